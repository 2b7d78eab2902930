"""The pictures of docs/pods.md are what the samples give."""

import pytest

from hack.podpictures import main


def test_what_is_committed_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err
