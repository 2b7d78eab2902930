"""Clusters that go with whoever made them."""

import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.controlplane import (
    ClusterError,
    ControlPlaneError,
    Settings,
    UnknownVersion,
    async_temporary,
    create,
    delete,
    free_name,
    get,
    remove_unused,
    temporary,
)
from kwok_operator.controlplane.lifecycle import creating, names, remove
from kwok_operator.controlplane.processes import running
from tests.fakes.waiting import until

from .controlplane_fakes import machine, quiet

ROOT = Path(__file__).parents[2]
OWNER = """\
import os, signal
from kwok_operator.controlplane import Settings, temporary
settings = Settings.from_environ(os.environ)
with temporary("killed", extra_args={extra_args}, settings=settings):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    settings = machine(tmp_path)
    yield settings
    for name in names(settings=settings):
        delete(name, settings=settings)


def left(settings: Settings) -> list[str]:
    """Files and processes in the cache."""
    files = [path.name for path in settings.cache.rglob("*") if path.is_file()]
    files.remove("clusters.lock")
    return [*files, *running(settings.cache).values()]


@pytest.mark.parametrize("raised", [None, ValueError, KeyboardInterrupt])
def test_it_lasts_for_the_block(settings: Settings, raised: type[BaseException] | None) -> None:
    try:
        with temporary("one", settings=settings) as cluster:
            assert cluster.name.startswith("one-") and cluster.answers()
            assert cluster.pid("etcd")
            if raised is not None:
                raise raised
    except (ValueError, KeyboardInterrupt):
        pass
    assert left(settings) == []


def test_interrupted_while_removed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(name: str, **options: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        remove(name, **options)

    monkeypatch.setattr("kwok_operator.controlplane.ownership.remove", interrupted)
    with pytest.raises(KeyboardInterrupt), temporary("one", settings=settings):
        pass
    assert left(settings) == []


def test_one_that_is_kept(settings: Settings) -> None:
    with temporary("one", keep=True, settings=settings) as kept:
        pass
    with temporary("one", settings=settings):
        assert kept.pid("etcd")
    assert names(settings=settings) == [kept.name]


def test_two_that_live_side_by_side(settings: Settings) -> None:
    with temporary("one", settings=settings) as one, temporary("one", settings=settings) as two:
        assert one.name != two.name
        assert one.pid("etcd") and two.pid("etcd")
    assert left(settings) == []


def owner(settings: Settings, *extra_args: str) -> "subprocess.Popen[bytes]":
    program = OWNER.format(extra_args=extra_args)
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, cwd=ROOT, env=settings.environ, stderr=subprocess.DEVNULL)


def test_what_a_killed_owner_leaves_goes_with_the_next(settings: Settings) -> None:
    owner(settings).wait()
    (name,) = names(settings=settings)
    assert get(name, settings=settings).pid("etcd")
    reporter, said = quiet()
    with temporary("one", settings=settings, reporter=reporter) as cluster:
        assert names(settings=settings) == [cluster.name]
    assert f"removing cluster {name}" in said.getvalue()
    assert left(settings) == []


def test_an_owner_that_is_killed_before_its_cluster_is_there(settings: Settings) -> None:
    with owner(settings, "--hang") as killed:
        homes = settings.cache / "clusters"
        while not running(homes):
            assert killed.poll() is None
        killed.kill()
    assert running(homes), "kwokctl is still at work"
    with temporary("one", settings=settings):
        assert running(homes) == {}
    assert left(settings) == []


async def test_beside_an_event_loop(settings: Settings) -> None:
    async with async_temporary("one", settings=settings) as cluster:
        assert cluster.pid("etcd")
    assert left(settings) == []
    with pytest.raises(UnknownVersion):
        async with async_temporary("one", settings=replace(settings, kubernetes_version="1")):
            raise AssertionError


async def cancelled(task: "asyncio.Task[None]") -> None:
    """Cancel a task, whose cluster takes a minute to come."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(50):
            await task


async def test_cancelled_while_it_is_made(settings: Settings) -> None:
    async def make() -> None:
        async with async_temporary("one", extra_args=["--hang"], settings=settings):
            raise AssertionError

    making = asyncio.create_task(make())
    await until(lambda: bool(running(settings.cache / "clusters")))
    await cancelled(making)
    assert left(settings) == []


async def test_cancelled_while_another_is_made(settings: Settings) -> None:
    reporter, said = quiet()

    async def make() -> None:
        async with async_temporary("one", settings=settings, reporter=reporter):
            raise AssertionError

    with creating("another", settings=settings, reporter=reporter):
        making = asyncio.create_task(make())
        await until(lambda: "waiting" in said.getvalue())
        await cancelled(making)
    assert left(settings) == []


@pytest.mark.parametrize("deleted", [False, True])
def test_one_that_does_not_come_up(settings: Settings, deleted: bool) -> None:
    with (
        pytest.raises(ClusterError, match="etcd ended"),
        temporary("one", extra_args=["--break=etcd"], settings=settings),
    ):
        raise AssertionError
    (name,) = names(settings=settings)
    cluster = get(name, settings=settings)
    assert running(settings.cache) == {}
    assert cluster.log("etcd").is_file()
    if deleted:
        delete(name, settings=settings)
    else:
        with temporary("two", settings=settings) as another:
            assert names(settings=settings) == [another.name]
    assert left(settings) == []


def test_one_that_can_not_come_up_leaves_nothing(settings: Settings) -> None:
    wrong = replace(settings, kubernetes_version="1.12")
    with pytest.raises(UnknownVersion), temporary("one", settings=wrong):
        raise AssertionError
    assert left(settings) == []


def test_a_name_that_leads_elsewhere(settings: Settings) -> None:
    with pytest.raises(ControlPlaneError, match="naming"), temporary("../one", settings=settings):
        raise AssertionError
    assert not settings.cache.exists()


def test_it_is_ours_where_a_variable_names_another(settings: Settings, tmp_path: Path) -> None:
    settings = replace(settings, borrowed_kubeconfig=tmp_path / "theirs")
    with temporary("one", settings=settings) as cluster:
        assert not cluster.borrowed


def test_clusters_that_stay_have_one_user_each(settings: Settings) -> None:
    with free_name("stays", settings=settings) as one:
        create(one, settings=settings, stays=True)
        with free_name("stays", settings=settings) as two:
            assert [one, two] == ["stays-1", "stays-2"]
            assert remove_unused("stays", settings=settings) == ([], [one, two])
    (settings.cache / "clusters" / f"{one}.used").unlink()
    assert remove_unused("stays", settings=settings) == ([one], [])
    assert left(settings) == []


def test_a_cluster_that_somebody_made_under_such_a_name_is_left_alone(settings: Settings) -> None:
    with free_name("stays", settings=settings) as name:
        create(name, settings=settings, stays=True)
    delete(name, settings=settings)
    pid = create(name, settings=settings).pid("etcd")
    with free_name("stays", settings=settings) as other:
        assert [name, other] == ["stays-1", "stays-2"]
    assert remove_unused("stays", settings=settings) == ([], [])
    assert get(name, settings=settings).pid("etcd") == pid


def test_a_cluster_that_somebody_makes_meanwhile_is_left_alone(settings: Settings) -> None:
    with free_name("stays", settings=settings) as name:
        pid = create(name, settings=settings).pid("etcd")
        with pytest.raises(ClusterError, match="somebody"):
            create(name, settings=settings, stays=True)
    assert get(name, settings=settings).pid("etcd") == pid


def test_a_cluster_that_stays_becomes_that_of_who_asks_for_its_name(settings: Settings) -> None:
    with free_name("stays", settings=settings) as name:
        create(name, settings=settings, stays=True)
    create(name, settings=settings, reuse=True)
    assert remove_unused("stays", settings=settings) == ([], [])


def test_whatever_a_killed_process_left_of_one_that_stays_is_removed(settings: Settings) -> None:
    with free_name("stays", settings=settings) as name:
        create(name, settings=settings, stays=True)
    home = get(name, settings=settings).kubeconfig.parent
    for path in (*home.iterdir(), home):  # in any order
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        with free_name("stays", settings=settings) as again:
            assert again == name
    assert remove_unused("stays", settings=settings) == ([name], [])
    assert left(settings) == []


def test_a_lock_that_can_not_be_written_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with (
        pytest.raises(ClusterError, match=f"KWOK_OPERATOR_CACHE .* than {tmp_path / 'cache'}"),
        free_name("one", settings=Settings(cache=tmp_path / "cache")),
    ):
        raise AssertionError
