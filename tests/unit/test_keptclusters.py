"""When a control plane is kept, and when it is replaced. None is made."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kwok_operator import controlplane
from kwok_operator.controlplane import ClusterError
from kwok_operator.rehearsal import keptcluster
from kwok_operator.rehearsal.keptcluster import KeptClusters, reused_cluster
from kwok_operator.rehearsal.scenario.model import Scenario

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


class Left:
    """The cluster that stays, as files; `noted` is its state, if there is one."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.noted = folder / "noted.json"
        self.refused = False
        self.cluster = SimpleNamespace(name="it", kubeconfig=folder / "kubeconfig.yaml")
        functions = {"create": self.create, "delete": self.delete, "get": self.get}
        for name, function in functions.items():
            monkeypatch.setattr(controlplane, name, function)
        monkeypatch.setattr(controlplane, "free_name", self.free_name)
        monkeypatch.setattr(keptcluster, "KeptCluster", lambda *_: self)
        monkeypatch.setattr(keptcluster, "_install_in", self.install)
        monkeypatch.setattr(keptcluster, "manifests", lambda _: ())
        self.commands = SimpleNamespace(stop=self.install)

    @contextmanager
    def free_name(self, prefix: str, **_: Any) -> Iterator[str]:
        yield prefix

    def create(self, name: str, **_: Any) -> Any:
        self.log.append("create")
        return self.cluster

    def get(self, name: str, **_: Any) -> Any:
        return self.cluster

    def delete(self, name: str, **_: Any) -> None:
        self.log.append("delete")
        self.noted.unlink(missing_ok=True)

    async def install(self, *_: Any) -> None:
        pass

    def save(self, path: Path) -> None:
        path.write_text("it")

    def load(self, path: Path) -> None:
        self.log.append("put back")
        if self.refused:
            raise ClusterError("unlike what is installed")

    async def reset(self) -> None:
        pass


async def test_only_a_cluster_whose_first_state_was_noted_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, a process was killed while it made the cluster, which may lack anything."""
    left = Left(tmp_path, monkeypatch)
    scenario = Scenario.model_validate(
        {"name": "a", "expect": [{"figure": "nodes.max", "equals": 0}]}
    )
    for refused, done in (
        (False, ["delete", "create"]),
        (False, ["create", "put back"]),
        (True, ["create", "put back", "delete", "create"]),
    ):
        left.refused, left.log = refused, []
        async with reused_cluster(scenario, report=lambda _: None):
            assert left.log == done
        left.refused = False
