"""`kwok-operator cloud-config`: the file that leads cluster-autoscaler (CA) to the shim.

- YAML with the keys that CA reads, for TCP, socket files, and mutual TLS
- the flags that go with it are in it as comments
- wrong flags are one line and exit code 2, and nothing on standard output
"""

from typing import Any

import pytest
import yaml

from kwok_operator.cli.main import main as cli
from kwok_operator.constants import NODE_GROUP_LABEL


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[dict[str, Any], str]:
    assert cli(["cloud-config", *flags]) == 0
    text = capsys.readouterr().out
    return yaml.safe_load(text), text


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8086", "[::1]:8086", "unix:/run/kwok/shim.sock", "shim.kwok:8086"]
)
def test_the_address_is_where_the_shim_listens(
    capsys: pytest.CaptureFixture[str], address: str
) -> None:
    config, _ = printed(capsys, f"--listen={address}")
    assert config == {"address": address, "grpc_timeout": "5s"}


def test_without_flags_it_is_for_a_shim_without_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys)[0]["address"] == "127.0.0.1:8086"


def test_the_variables_of_the_shim_hold_here_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOK_OPERATOR_LISTEN", "unix:/run/a.sock")
    assert printed(capsys)[0]["address"] == "unix:/run/a.sock"


def test_mutual_tls(capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--cert=/tls/tls.crt", "--key=/tls/tls.key", "--cacert=/tls/ca: 1.crt"]
    config, _ = printed(capsys, "--listen=shim.kwok:8086", *files)
    assert config == {
        "address": "shim.kwok:8086",
        "grpc_timeout": "5s",
        "cert": "/tls/tls.crt",
        "key": "/tls/tls.key",
        "cacert": "/tls/ca: 1.crt",
    }


def test_the_flags_that_go_with_it_are_comments(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = printed(capsys)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    flags = " ".join(comments)
    assert "--cloud-provider=externalgrpc" in flags
    assert "--cloud-config=THIS-FILE" in flags
    assert f"--balancing-ignore-label={NODE_GROUP_LABEL}" in flags


@pytest.mark.parametrize("flags", [["--listen=8086"], ["--cert=/tls/tls.crt"]], ids=repr)
def test_wrong_flags(capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    assert cli(["cloud-config", *flags]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kwok-operator: --")
    assert said.err.count("\n") == 1
