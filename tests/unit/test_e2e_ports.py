"""Ports of e2e tests: each worker has a range of its own, also one that was told of it late."""

import pytest

from kwok_operator.controlplane.settings import PORTS_VARIABLE
from tests.e2e.ports import free_port


@pytest.mark.parametrize("first", [31_000, 30_000])
def test_ports_are_of_the_range_of_the_worker(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, str(first))
    found = [free_port() for _ in range(3)]
    assert len(set(found)) == 3
    assert all(first + 500 <= port < first + 1_000 for port in found)
