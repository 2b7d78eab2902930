"""When a control plane is kept, and when it is replaced. None is made."""

import asyncio
import shutil
import threading
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
SCENARIO = Scenario.model_validate({"name": "a", "expect": [{"figure": "nodes.max", "equals": 0}]})


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
    """The cluster that stays, as files. Nothing runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.home = folder / "it"
        self.lacks_a_pid_file = self.interrupted = False
        self.cluster = SimpleNamespace(
            name="it",
            environment={},
            kubeconfig=self.home / "kubeconfig.yaml",
            kubectl=self.home / "kubectl",
            kubectl_cache=self.home / "kubectl-cache",
        )
        for name in ("create", "delete", "free_name", "get"):
            monkeypatch.setattr(controlplane, name, getattr(self, name))
        monkeypatch.setattr(controlplane, "Rewinder", self.rewinder)
        commands = SimpleNamespace(start=self.nothing, stop=self.nothing)
        monkeypatch.setattr(keptcluster, "Preloaded", lambda: commands)
        monkeypatch.setattr(keptcluster, "install", self.install)
        monkeypatch.setattr(keptcluster, "manifests", lambda _: ())

    @contextmanager
    def free_name(self, prefix: str, **_: Any) -> Iterator[str]:
        yield prefix

    def create(self, name: str, *, reuse: bool, **_: Any) -> Any:
        if not reuse:
            self.delete(name)
        if self.home.exists():
            self.log.append("reuse")
            assert self.cluster.kubeconfig.read_text() == "it", "the cluster would not answer"
        else:
            self.log.append("create")
            self.home.mkdir()
            self.cluster.kubeconfig.write_text("it")
        return self.cluster

    def get(self, name: str, **_: Any) -> Any:
        if not self.home.exists():
            raise ClusterError("there is none")
        return self.cluster

    def delete(self, name: str, **_: Any) -> None:
        if self.home.exists():
            self.log.append("delete")
            shutil.rmtree(self.home)
            self.lacks_a_pid_file = False

    def rewinder(self, _: Any) -> Any:
        if self.lacks_a_pid_file:
            raise ClusterError("finding etcd: it does not run")
        return SimpleNamespace(
            note=lambda: None,
            noted=dict,
            rewind=lambda: self.log.append("put back"),
            take=lambda _: None,
        )

    async def nothing(self, *_: Any) -> None:
        pass

    async def install(self, *_: Any) -> None:
        if self.interrupted:
            raise asyncio.CancelledError

    async def log_of_a_run(self) -> list[str]:
        self.log.clear()
        async with reused_cluster(SCENARIO, report=lambda _: None):
            return self.log


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    return Left(tmp_path, monkeypatch)


async def test_what_an_earlier_run_left_is_reused(left: Left) -> None:
    assert await left.log_of_a_run() == ["create"]
    assert await left.log_of_a_run() == ["reuse", "put back"]
    left.cluster.kubeconfig.write_text("a scenario changed it")
    assert await left.log_of_a_run() == ["reuse", "put back"]
    theirs = left.home / "theirs"
    theirs.write_text("precious")
    left.cluster.kubeconfig.unlink()
    left.cluster.kubeconfig.symlink_to(theirs)
    assert await left.log_of_a_run() == ["reuse", "put back"]
    assert theirs.read_text() == "precious"
    assert not [path for path in left.home.glob("*kubeconfig*") if path.stat().st_mode & 0o077]


async def test_only_a_cluster_whose_first_state_was_noted_is_reused(left: Left) -> None:
    """Without it, a process was killed while it made the cluster, which may lack anything."""
    left.interrupted = True
    with pytest.raises(asyncio.CancelledError):
        await left.log_of_a_run()
    assert left.log == ["create", "delete"], "else it would run on, for nothing"
    left.interrupted = False
    left.create("it", reuse=False)
    assert await left.log_of_a_run() == ["delete", "create"]
    (left.home / "noted.json").write_text("")
    assert await left.log_of_a_run() == ["reuse", "delete", "create"]
    left.lacks_a_pid_file = True
    assert await left.log_of_a_run() == ["reuse", "delete", "create"]
    for name in ("noted.json", "noted.kubeconfig"):
        (left.home / name).unlink()
        (left.home / name).mkdir()
        assert await left.log_of_a_run() == ["delete", "create"]


async def test_interrupted_it_leaves_nothing_once_others_can_have_the_name(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @contextmanager
    def free_name(prefix: str, **_: Any) -> Iterator[str]:
        try:
            yield prefix
        finally:
            left.log.append("free")

    def create(name: str, **_: Any) -> Any:
        begun.set()
        assert go_on.wait(10)
        return left.create(name, reuse=False)

    monkeypatch.setattr(controlplane, "free_name", free_name)
    monkeypatch.setattr(controlplane, "create", create)
    run = asyncio.create_task(left.log_of_a_run())
    await asyncio.to_thread(begun.wait)
    run.cancel()
    await asyncio.wait([run], timeout=0.05)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert left.log == ["create", "delete", "free"]


async def test_a_kubeconfig_that_can_not_be_put_back_is_named(left: Left) -> None:
    await left.log_of_a_run()
    left.cluster.kubeconfig.unlink()
    left.cluster.kubeconfig.mkdir()
    with pytest.raises(ClusterError, match=r"writing .*/kubeconfig\.yaml: "):
        await left.log_of_a_run()
