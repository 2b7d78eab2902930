"""How a cluster is recorded."""

import asyncio
import gzip
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.cli.main import main
from kwok_operator.errors import KwokOperatorError
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.cluster import open_cluster
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.settings import RecordSettings, ReplaySettings
from kwok_operator.importing.traces.files import Findings, read_trace
from kwok_operator.importing.traces.record import Recording
from kwok_operator.importing.traces.record import record as run_record
from kwok_operator.importing.traces.replaying import Replay, Verb
from kwok_operator.importing.traces.trace import (
    Event,
    Gap,
    Happening,
    Header,
    Key,
    Line,
    Stop,
    TracedShape,
)
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.kubeconfigs import kubeconfig
from tests.fakes.traced import CLEAN
from tests.fakes.waiting import until

PODS, DEPLOYMENTS = TRACED["Pod"].path, TRACED["Deployment"].path
NAMESPACES = "/api/v1/namespaces"


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("trace*"))


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "x"}]}
    return {"metadata": {"name": name, "namespace": "shop", **metadata}, "spec": spec}


def deployment(replicas: int) -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}}
    spec["template"] = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    return {"metadata": {"name": "cart", "namespace": "shop"}, "spec": spec}


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        for kind in TRACED.values():
            server.serve(kind.path, kind=kind.name)
        server.serve(NAMESPACES, kind="Namespace")
        server.create(NAMESPACES, {"metadata": {"name": "kube-system"}})
        server.create(PODS, pod("old"))
        yield server


class Running:
    """A recording that is under way, and what it has written when it is over."""

    def __init__(self, folder: Path, recording: Recording, stop: asyncio.Event) -> None:
        self.folder = folder
        self.recording = recording
        self.stop = stop
        self.task: asyncio.Task[None]

    def lines(
        self,
        name: str = "trace.jsonl.gz",
    ) -> list[Line]:
        path = self.folder / name
        return [line for _, line in read_trace(path, clean=CLEAN, findings=Findings())]

    def told(self) -> list[str]:
        """`create Pod shop/a` and so on, without times and shapes."""
        return [
            f"{line.happening.value} {line.key}{' late' if line.late else ''}"
            if isinstance(line, Event)
            else f"{type(line).__name__} {getattr(line, 'kind', '')}".strip()
            for line in self.lines()
            if not isinstance(line, TracedShape)
        ]


Record = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def record(server: FakeApiServer, tmp_path: Path) -> Record:
    @asynccontextmanager
    async def run(*, watches: int = len(TRACED), **settings: Any) -> AsyncIterator[Running]:
        path = kubeconfig(tmp_path / "config", server=server.url)
        stop = asyncio.Event()
        wanted = RecordSettings(output=tmp_path / "trace.jsonl.gz", **settings)
        async with open_cluster(kubeconfig=path, requests_per_second=0) as cluster:
            recording = Recording(cluster, wanted, log=lambda _: None)
            task = asyncio.create_task(recording.run(stop, flush_seconds=0.01))
            running = Running(tmp_path, recording, stop)
            running.task = task
            await until(lambda: len(server.watchers) == watches or task.done())
            yield running
            stop.set()
            await task

    return run


def written(running: Running, count: int) -> Callable[[], bool]:
    return lambda: sum(running.recording.recorder.written.values()) >= count


async def test_what_is_there_and_what_happens(server: FakeApiServer, record: Record) -> None:
    async with record() as running:
        server.create(DEPLOYMENTS, deployment(1))
        server.patch(DEPLOYMENTS, "cart", {"spec": {"replicas": 4}})
        server.delete(PODS, "old")
        await until(written(running, 4))
    assert sorted(running.told()) == sorted(
        [
            "Header",
            "present Pod shop/old",
            "create Deployment shop/cart",
            "scale Deployment shop/cart",
            "delete Pod shop/old",
            "Stop",
        ]
    )
    assert running.told()[0] == "Header" and running.told()[-1] == "Stop"
    assert {call[0] for call in server.calls} == {"get", "list", "watch"}
    assert (running.recording.outcome.gaps, running.recording.outcome.unread) == (0, {})


async def test_it_ends_when_the_time_is_up(record: Record) -> None:
    async with record(seconds=0.05) as running:
        await until(lambda: running.told()[-1] == "Stop")
        assert not running.stop.is_set()


async def test_a_broken_watch_goes_on_where_it_was(server: FakeApiServer, record: Record) -> None:
    async with record() as running:
        server.cut_watches()
        await until(lambda: not server.watchers)
        server.create(PODS, pod("meanwhile"))
        await until(written(running, 2))
        await until(lambda: len(server.watchers) == len(TRACED))
    told = running.told()
    assert told[:4] == [
        "Header",
        "present Pod shop/old",
        "Gap Pod",
        "create Pod shop/meanwhile",
    ]
    gaps = [line for line in running.lines() if isinstance(line, Gap)]
    assert sorted(gap.kind for gap in gaps) == sorted(TRACED)
    assert not any(gap.lost for gap in gaps)
    assert all(gap.since <= gap.at for gap in gaps)


async def test_changes_are_recorded_once(server: FakeApiServer, record: Record) -> None:
    async with record() as running:
        server.create(DEPLOYMENTS, deployment(1))
        for replicas in (4, 2):
            server.patch(DEPLOYMENTS, "cart", {"spec": {"replicas": replicas}})
        await until(written(running, 4))
        server.cut_watches()
        await until(lambda: server.calls["watch", "deployments"] == 2)
        server.delete(DEPLOYMENTS, "cart")
        await until(lambda: "delete Deployment shop/cart" in running.told())
    assert running.told().count("scale Deployment shop/cart") == 2


async def test_what_is_away_at_the_end_may_have_lost_something(
    server: FakeApiServer, record: Record
) -> None:
    async with record() as running:
        server.fail(500, verb="watch", resource="pods", times=50)
        server.cut_watches()
        await until(lambda: len(server.watchers) == len(TRACED) - 1)
    lost = [line.kind for line in running.lines() if isinstance(line, Gap) and line.lost]
    assert lost == ["Pod"]


async def test_a_watch_that_ends_properly_is_no_gap(server: FakeApiServer, record: Record) -> None:
    async with record() as running:
        server.end_watches()
        await until(lambda: server.calls["watch", "pods"] == 2)
        server.create(PODS, pod("later"))
        await until(written(running, 2))
    assert running.recording.outcome.gaps == 0


@pytest.mark.parametrize("as_event", [False, True])
async def test_lost_history_is_marked_and_the_difference_recorded(
    as_event: bool, server: FakeApiServer, record: Record
) -> None:
    server.gone_as_event = as_event
    for name in ("stays", "goes"):
        server.create(PODS, pod(name))
    async with record() as running:
        server.fail(500, verb="watch", resource="pods", times=2)
        server.cut_watches()
        await until(lambda: not server.watchers)
        server.delete(PODS, "goes")
        server.create(PODS, pod("comes"))
        server.patch(PODS, "stays", {"metadata": {"labels": {"new": "label"}}})
        server.create(PODS, pod("unseen"))
        server.delete(PODS, "unseen")
        server.compact()
        await until(written(running, 3 + 3))
        server.create(PODS, pod("after"))
        await until(written(running, 7))
    told = running.told()
    begin = told.index("Gap Pod")
    assert sorted(told[begin + 1 : begin + 4]) == [
        "create Pod shop/comes late",
        "delete Pod shop/goes late",
        "update Pod shop/stays late",
    ]
    assert "create Pod shop/after" in told
    assert not [line for line in told if "unseen" in line]
    (gap,) = (line for line in running.lines() if isinstance(line, Gap) and line.kind == "Pod")
    assert gap.lost
    assert running.recording.outcome.lost > 0


async def test_a_forbidden_kind_is_reported_and_the_others_recorded(
    server: FakeApiServer, record: Record
) -> None:
    server.fail(403, verb="list", resource="jobs", times=1)
    async with record(watches=len(TRACED) - 1) as running:
        server.create(PODS, pod("new"))
        await until(written(running, 2))
    assert list(running.recording.outcome.unread) == ["Job"]
    assert "create Pod shop/new" in running.told()


async def test_pods_that_name_a_node_get_its_group(server: FakeApiServer, record: Record) -> None:
    labels = {"eks.amazonaws.com/nodegroup": "general", "kubernetes.io/hostname": "real-1"}
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": capacity, "allocatable": capacity}
    server.create(NODES, {"metadata": {"name": "real-1", "labels": labels}, "status": status})
    body = pod("bound")
    body["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "real-1"}
    server.create(PODS, body)
    async with record() as running:
        pass
    shapes = [line.body["spec"] for line in running.lines() if isinstance(line, TracedShape)]
    assert {"kwok-operator.io/node-group": "general"} in [s.get("nodeSelector") for s in shapes]


async def test_under_other_names_nothing_private_is_left(
    server: FakeApiServer, record: Record, tmp_path: Path
) -> None:
    """The names are those of an import with the same table, and what was selected still is."""
    labels = {"labels": {"team": "canary", "node.kubernetes.io/canary": "x"}}
    server.create(PODS, pod("canary-7", generateName="canary-", **labels))
    cart = deployment(2)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": labels["labels"]}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    cart["spec"]["template"]["spec"] = pod("x")["spec"] | {"affinity": {"podAffinity": required}}
    cart["metadata"] |= {"name": "canary", "namespace": "kube-system"}
    async with record(anonymize=True) as running:
        server.create(DEPLOYMENTS, cart)
        await until(lambda: running.recording.recorder.written[Happening.CREATE] == 1)
        server.patch(DEPLOYMENTS, "canary", {"spec": {"replicas": 5}})
        await until(lambda: running.recording.recorder.written[Happening.SCALE] == 1)
        server.delete(PODS, "canary-7")
        await until(lambda: running.recording.recorder.written[Happening.DELETE] == 1)
    content = gzip.decompress((tmp_path / "trace.jsonl.gz").read_bytes()).decode()
    assert "canary" not in content and "shop" not in content
    table = json.loads((tmp_path / "trace.jsonl.gz.names.json").read_text())
    assert {"canary", "shop"} <= set(table["names"].values())
    assert "canary-7" not in table["names"].values(), "pods come and go, and a table would grow"
    lines = running.lines()
    names = Anonymizer(bytes.fromhex(table["key"]))
    place = names.name("imported-kube-system")
    assert {line.key for line in lines if isinstance(line, Event) and line.replicas} == {
        Key("Deployment", place, names.name("canary"))
    }
    shapes = [line.body for line in lines if isinstance(line, TracedShape)]
    (made,) = [shape for shape in shapes if shape["kind"] == "Deployment"]
    asked = made["spec"]["template"]["spec"]["affinity"]["podAffinity"]
    labels_there = [s["metadata"]["labels"] for s in shapes if s["kind"] == "Pod" and s["metadata"]]
    (term,) = asked["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [term["labelSelector"]["matchLabels"]] == labels_there
    replayed = Replay(ReplaySettings(()), clean=CLEAN).requests(("", line) for line in lines)
    verbs = [each.verb for each in replayed if each.key.kind in ("Pod", "Deployment")]
    assert verbs == [Verb.CREATE] * 3 + [Verb.SCALE, Verb.DELETE]


async def test_a_table_that_can_t_be_saved_is_reported(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr("kwok_operator.importing.anonymizing.write_secretly", full)
    wanted = RecordSettings(
        output=tmp_path / "trace.jsonl",
        kubeconfig=kubeconfig(tmp_path / "config", server=server.url),
        anonymize=True,
    )
    _, outcome = await run_record(wanted, log=lambda _: None)
    assert "no space" in outcome.failed


async def test_a_right_that_is_taken_away_leaves_a_gap(
    server: FakeApiServer, record: Record
) -> None:
    async with record() as running:
        server.fail(403, verb="watch", resource="pods", times=1)
        server.end_watches()
        await until(lambda: "Pod" in running.recording.outcome.unread)
    assert [line.kind for line in running.lines() if isinstance(line, Gap) and line.lost] == ["Pod"]


async def test_where_nothing_can_be_read_nothing_is_left(
    server: FakeApiServer, record: Record, tmp_path: Path
) -> None:
    server.fail(403, verb="list", times=len(TRACED) + 1)
    with pytest.raises(KwokOperatorError):
        async with record():
            pass
    assert files(tmp_path) == []


async def test_parts_begin_by_size_and_each_is_whole(
    server: FakeApiServer, record: Record, tmp_path: Path
) -> None:
    async with record(rotate_bytes=2_000) as running:
        for number in range(40):
            noise = hashlib.sha256(str(number).encode()).hexdigest()[:60]
            server.create(PODS, pod(f"p-{number}", labels={"run": noise}))
        await until(lambda: len(files(tmp_path)) >= 2)
        await until(written(running, 41))
    parts = files(tmp_path)
    lines = [running.lines(part) for part in parts]
    headers = [part[0] for part in lines]
    assert all(isinstance(header, Header) for header in headers)
    assert [getattr(header, "part", 0) for header in headers] == list(range(1, len(parts) + 1))
    assert len({getattr(header, "start", 0) for header in headers}) == 1
    assert isinstance(lines[-1][-1], Stop)
    known = {str(line.key) for line in lines[-1] if isinstance(line, Event)}
    assert known == {"Pod shop/old", *(f"Pod shop/p-{number}" for number in range(40))}


async def test_a_state_that_is_larger_than_a_part_makes_no_new_parts(
    server: FakeApiServer, record: Record, tmp_path: Path
) -> None:
    for number in range(40):
        noise = hashlib.sha256(str(number).encode()).hexdigest()[:60]
        server.create(PODS, pod(f"p-{number}", labels={"run": noise}))
    flushes = 0
    async with record(rotate_bytes=1_000) as running:
        flush = running.recording._writer.flush

        def counted() -> None:
            nonlocal flushes
            flushes += 1
            flush()

        running.recording._writer.flush = counted  # type: ignore[method-assign]
        await until(lambda: flushes >= 5)
    assert files(tmp_path) == ["trace-0001.jsonl.gz"]


async def test_parts_begin_by_time(record: Record, tmp_path: Path) -> None:
    async with record(rotate_seconds=0.02):
        await until(lambda: (tmp_path / "trace-0003.jsonl.gz").exists())


async def test_a_full_disk_ends_it(
    server: FakeApiServer, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        async with record() as running:
            monkeypatch.setattr(type(running.recording._writer), "flush", full)
            await until(running.task.done)
    assert running.told()[:2] == ["Header", "present Pod shop/old"]


async def test_a_signal_ends_the_program_and_its_file(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """SIGINT; a test below sends SIGTERM."""
    path, output = kubeconfig(tmp_path / "config", server=server.url), tmp_path / "t.jsonl.gz"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kwok_operator", "record", "--kubeconfig", path, "--output", str(output)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    await until(lambda: len(server.watchers) == len(TRACED))
    process.send_signal(signal.SIGINT)
    out, errors = await process.communicate()
    assert (process.returncode, b"1 present" in out) == (0, True), errors
    lines = [line for _, line in read_trace(output, clean=CLEAN, findings=Findings())]
    assert isinstance(lines[-1], Stop)


def test_a_file_that_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, output = kubeconfig(tmp_path / "config", server="http://127.0.0.1:9"), tmp_path / "t"
    output.write_text("mine")
    assert main(["record", "--kubeconfig", path, "--output", str(output)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert output.read_text() == "mine"


async def test_one_that_is_stopped_before_all_is_read_leaves_nothing(
    server: FakeApiServer, tmp_path: Path
) -> None:
    """A trace of some kinds alone would pass for a whole one."""
    server.hold(verb="list", resource="pods")
    path, output = kubeconfig(tmp_path / "config", server=server.url), tmp_path / "t.jsonl"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kwok_operator", "record", "--kubeconfig", path, "--output", str(output)),
        stderr=subprocess.PIPE,
    )
    await until(lambda: server.calls["list", "pods"] or process.returncode is not None)
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    assert process.returncode == 130, errors
    assert not output.exists()
