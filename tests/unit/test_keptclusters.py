"""When a control plane is kept, and when it is replaced. None is made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kwok_operator.controlplane import ClusterError
from kwok_operator.rehearsal import keptcluster
from kwok_operator.rehearsal.keptcluster import KeptClusters

ANY: Any = None


class Made:
    def __init__(self) -> None:
        self.dead: list[str] = []
        self.log: list[str] = []
        self.fails = False

    @asynccontextmanager
    async def make(self, _: Any, prefix: str, *, same_beginning: bool) -> AsyncIterator[Any]:
        if self.fails:
            raise ClusterError("no port is free")
        self.dead.clear()
        self.log.append(f"{prefix} {same_beginning}")
        yield SimpleNamespace(cluster=SimpleNamespace(dead=lambda: self.dead))
        self.log.append("deleted")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    found = Made()
    monkeypatch.setattr(keptcluster, "kept_cluster", found.make)
    return found


async def test_it_is_kept_until_a_component_has_ended(made: Made) -> None:
    async with KeptClusters("a") as clusters:
        first = await clusters.get(ANY, made.log.append)
        assert await clusters.get(ANY, made.log.append) is first and made.log == ["a False"]
        made.dead.append("kube-apiserver")
        second = await clusters.get(ANY, made.log.append)
        assert await clusters.get(ANY, made.log.append) is second is not first
        why = "another control plane is made: kube-apiserver ended"
        assert made.log == ["a False", why, "deleted", "a False"]
    assert made.log[4:] == ["deleted"]


async def test_it_is_replaced_once_it_is_too_old(made: Made) -> None:
    async with KeptClusters("a", same_beginning=True, oldest=-1) as clusters:
        await clusters.get(ANY, made.log.append)
        await clusters.get(ANY, made.log.append)
    assert made.log == ["a True", "deleted"] * 2


async def test_one_that_was_deleted_is_never_returned(made: Made) -> None:
    async with KeptClusters("a") as clusters:
        await clusters.get(ANY, made.log.append)
        await clusters.aclose()
        made.fails = True
        with pytest.raises(ClusterError):
            await clusters.get(ANY, made.log.append)
        made.fails = False
        await clusters.get(ANY, made.log.append)
    assert made.log == ["a False", "deleted"] * 2
