"""The runner, where no cluster is needed to see what it does."""

import asyncio
import contextlib
import errno
import gc
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.cli.validate import complain
from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION, ZONE_LABEL
from kwok_operator.controlplane.errors import ClusterError
from kwok_operator.errors import SettingsError
from kwok_operator.formats.times import format_time
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.serverclock import ServerClock
from kwok_operator.rehearsal import outputs, runner
from kwok_operator.rehearsal.arriving import TRACE
from kwok_operator.rehearsal.borrowed import borrow
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import PodGroupState
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.programs import Program, says
from kwok_operator.rehearsal.recorder import PODS_PATH, RunRecorder
from kwok_operator.rehearsal.refusals import BorrowedClusterError
from kwok_operator.rehearsal.rehearse import LeftBehindError, rehearse
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.testbed import Testbed
from kwok_operator.signals import cancelled_by_signals
from tests.fakes import rehearsed
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.rehearsaltestbed import EXPECT, fake_testbed, play_on, serve_quiet_cluster
from tests.fakes.waiting import until
from tests.fakes.wire import Watcher

MEETS = """
import pathlib, signal, sys, time
own, other = map(pathlib.Path, sys.argv[1:])
def end(*_):
    own.touch()
    while not other.exists():
        time.sleep(0.01)
    print("met", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture
def never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def interrupted(*_: Any, **__: Any) -> AsyncIterator[None]:
        raise asyncio.CancelledError
        yield

    monkeypatch.setattr(runner, "testbed", interrupted)


async def play_into(folder: Path) -> None:
    await rehearse(
        Scenario.model_validate({"name": "it", "until": {"settledFor": "1s"}, "expect": EXPECT}),
        RehearseSettings(scenario=folder / "it.yaml"),
        folder=folder,
        find_program=lambda name: None,
        report=print,
    )


@pytest.mark.usefixtures("never_begins")
async def test_one_that_did_not_begin_has_no_verdict_of_a_run_before(tmp_path: Path) -> None:
    (tmp_path / outputs.RECORDING).write_bytes(rehearsed.content(rehearsed.run(), expect=EXPECT))
    outputs.write(outputs.judge(tmp_path), tmp_path)
    with pytest.raises(asyncio.CancelledError):
        await play_into(tmp_path)
    assert os.listdir(tmp_path) == ["logs"]


@pytest.mark.usefixtures("never_begins")
async def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / outputs.SUMMARY).write_text("of mine")
    (tmp_path / outputs.VERDICT).write_text("of mine, too")
    with pytest.raises(SettingsError, match=r"summary\.md: is there, .*--output"):
        await play_into(tmp_path)
    assert (tmp_path / outputs.SUMMARY).read_text() == "of mine"


@pytest.mark.usefixtures("never_begins")
async def test_two_do_not_play_into_one_folder(tmp_path: Path) -> None:
    with outputs.begun(tmp_path):
        with pytest.raises(SettingsError, match="another rehearsal"):
            await play_into(tmp_path)
    with pytest.raises(asyncio.CancelledError):
        await play_into(tmp_path)


class _Borrowed:
    """A cluster of others, and who clears it up; interrupted while `at` is under way."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.reached = asyncio.Event()
        self.done: list[str] = []
        self.left: list[str] = []

    async def check(self, *_: Any) -> None:
        pass

    async def claim(self) -> None:
        await self._do("claim")

    async def install(self, manifests: Any) -> None:
        pass

    async def clear(self, turns: Any) -> list[str]:
        await self._do("clear")
        return self.left

    async def _do(self, what: str) -> None:
        if what == self.at:
            self.reached.set()
            await asyncio.sleep(0.01)
        self.done.append(what)


@pytest.mark.parametrize("failed", [False, True])
async def test_a_changed_cluster_is_reported_but_not_instead_of_why(
    failed: bool,
) -> None:
    cluster: Any = _Borrowed("")
    cluster.left = ["Node a-1"]
    with pytest.raises(SettingsError if failed else BorrowedClusterError):
        async with borrow(cluster, [], applied=[], clearing=cluster, keep=False, report=print):
            if failed:
                raise SettingsError("apply[0]: can't be applied")


@pytest.mark.parametrize("at", ["claim", "clear"])
async def test_a_claim_is_cleared_up_whenever_the_interrupt_comes(at: str) -> None:
    cluster: Any = _Borrowed(at)

    async def play() -> None:
        async with borrow(cluster, [], applied=[], clearing=cluster, keep=False, report=print):
            pass

    playing = asyncio.create_task(play())
    await cluster.reached.wait()
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert cluster.done == ["claim", "clear"]


async def test_a_recorder_that_cannot_write_says_so() -> None:
    def full(line: Any) -> None:
        raise SettingsError("no space left")

    server = FakeApiServer()
    async with server, KubeClient(connection=server.connection()) as client:
        server.create(NODES, {"metadata": {"name": "a"}})
        recorder = RunRecorder(client=client, write=full, clock=StampClock(0), now=lambda: 0.0)
        starting = asyncio.create_task(recorder.start())
        await asyncio.sleep(0)
        try:
            with pytest.raises(SettingsError):
                await asyncio.wait_for(recorder.follow(), 60)
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await recorder.stop()


@pytest.mark.parametrize(
    ("version", "spec"),
    [
        ("scheduling.k8s.io/v1alpha2", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 2}),
        ("scheduling.volcano.sh/v1beta1", {"minMember": 2}),
    ],
)
async def test_what_racks_and_gangs_are_measured_by_is_recorded(version: str, spec: Any) -> None:
    lines, path = list[Any](), f"/apis/{version}/podgroups"
    async with FakeApiServer() as server:
        serve_quiet_cluster(server)
        server.serve(path, kind="PodGroup")
        server.create(path, {"metadata": {"name": "g", "namespace": "shop"}, "spec": spec})
        server.create(NODES, {"metadata": {"name": "n", "labels": {"a/rack": "r"}}})
        async with KubeClient(connection=server.connection()) as client:
            recorder = RunRecorder(
                client=client,
                write=lines.append,
                clock=StampClock(0),
                now=lambda: 0.0,
                levels=["a/rack"],
            )
            await recorder.start()
            await recorder.stop()
    states = {line.name: line.state for line in lines}
    assert states["PodGroup/shop/g"] == PodGroupState(least=2)
    assert states["n"].topology == ("r",)


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[tuple[FakeApiServer, Testbed]]:
    """Of a cluster where nothing happens."""
    async with FakeApiServer() as server:
        serve_quiet_cluster(server)
        async with KubeClient(connection=server.connection()) as client:
            yield server, fake_testbed(client, tmp_path)


async def end_of(testbed: Testbed, **fields: Any) -> str:
    return (await play_on(testbed, **fields)).end.reason


async def test_what_could_not_be_taken_away_costs_no_verdict(
    testbed: tuple[FakeApiServer, Testbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def stays(*_: Any, **__: Any) -> AsyncIterator[Testbed]:
        yield testbed[1]
        raise ClusterError("deleting cluster it: it stays")

    monkeypatch.setattr(runner, "testbed", stays)
    with pytest.raises(LeftBehindError, match="it stays") as raised:
        await play_into(tmp_path)
    assert raised.value.judged.passed
    assert (tmp_path / outputs.VERDICT).exists()


async def test_a_disk_that_is_full_at_the_end_costs_the_files_and_not_the_verdict(
    testbed: tuple[FakeApiServer, Testbed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def there(*_: Any, **__: Any) -> AsyncIterator[Testbed]:
        yield testbed[1]

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runner, "testbed", there)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LeftBehindError, match="No space left") as raised:
        await play_into(tmp_path)
    assert raised.value.judged.passed
    assert [name for name in os.listdir(tmp_path) if "verdict" in name] == []


async def test_what_is_there_before_the_run_is_there_always(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    server, place = testbed
    server.create(NODES, {"metadata": {"name": "a"}})
    expect = [{"figure": "nodes.total", "atLeast": 1, "when": "always"}]
    assert (await play_on(place, expect=expect)).passed


async def test_what_a_process_that_the_timeline_starts_does_otherwise_is_in_the_verdict(
    testbed: tuple[FakeApiServer, Testbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def started(place: Testbed, process: Any) -> None:
        place.caveats.append((process.name, "does it otherwise"))

    monkeypatch.setattr(Testbed, "start", started)
    late = {"name": "tool", "command": ["tool"], "starts": "byTimeline"}
    found = await play_on(testbed[1], processes=[late], timeline=[{"start": "tool"}])
    assert [each.message for each in found.warnings] == ["does it otherwise"]


async def test_what_was_made_a_moment_before_the_run_is_none_of_it(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    server, place = testbed
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"nodeName": "a"}}
    for path, body in ((NODES, {"metadata": {"name": "a"}}), (PODS_PATH, pod)):
        server.create(path, body)
        (there,) = server.objects(path).values()
        there["metadata"]["creationTimestamp"] = format_time(time.time_ns() // 1_000_000)
    found = await play_on(place)
    assert found.figures["churn.created"] == 0
    assert found.figures["pendingSeconds.p50"] is None


async def test_a_file_that_cannot_be_read_ends_the_run_with_a_sentence(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    _, place = testbed
    (place.logs / "it.calls.jsonl").mkdir()
    found = await play_on(place)
    assert (found.end.reason, found.passed) == ("died", False)
    assert "it.calls.jsonl" in found.end.detail


async def test_a_run_that_is_over_before_anything_began_leaves_nothing_unawaited(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        assert (await play_on(testbed[1], until={"atMost": "1ms"})).end.reason == "atMost"
        gc.collect()
    assert [each for each in told if "never awaited" in str(each.message)] == []


async def test_a_cordon_of_no_node_fails_as_a_scaling_of_nothing_does(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    found = await play_on(testbed[1], timeline=[{"at": "0s", "cordon": {"group": "a"}}])
    assert found.broken_off.startswith("the run died: timeline[0], cordon: no node of the group a")


async def test_an_outage_of_a_zone_takes_its_groups_and_leaves_them_as_they_were(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    server, place = testbed
    clouds = {"a": {"stock": 3, "retryAfter": "1m"}, "b": {}, "c": {"outage": True, "stock": 0}}
    for name, cloud in clouds.items():
        server.create(GROUPS, {"metadata": {"name": name}, "spec": {"cloud": cloud}})
        zone = {ZONE_LABEL: "zone-1" if name in "ac" else "zone-2"}
        status = {"resolvedTemplate": {"metadata": {"labels": zone}}}
        server.patch(GROUPS, name, {"status": status}, subresource="status")

    step = {"at": "0s", "outage": {"zone": "zone-1", "for": "300ms"}}
    await play_on(place, timeline=[step])
    patches = [each for each in server.seen if each.verb == "patch"]
    assert {each.name for each in patches} == {"a", "c"}
    assert json.loads(patches[0].body) == {"spec": {"cloud": {"outage": True, "stock": 0}}}
    after = {name: body["spec"]["cloud"] for name, body in server.objects(GROUPS).items()}
    assert after == clouds
    gone = await play_on(place, timeline=[{"at": "0s", "outage": {"zone": "zone-3"}}])
    assert "no group makes nodes in the zone zone-3" in gone.broken_off


async def test_an_outage_of_racks_takes_those_that_have_nodes(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    server, place = testbed
    rack = "example.com/rack"
    levels = [{"label": rack, "of": 2}]
    for name, domain in {"a": "pool", "b": "pool", "c": "other", "d": None}.items():
        topology = {"domain": domain, "levels": levels} if domain else None
        spec = {"template": {"topology": topology} if topology else {}, "cloud": {"stock": 3}}
        server.create(GROUPS, {"metadata": {"name": name}, "spec": spec})
    for number, value in enumerate(["pool-0", "pool-0", "other-3", "somebody-s"]):
        group = "c" if value == "other-3" else "a"
        server.create(NODES, of_a_group(f"n{number}", **{rack: value, NODE_GROUP_LABEL: group}))

    def outage(seconds: str = "300ms", **topology: Any) -> list[dict[str, Any]]:
        return [{"at": "0s", "outage": {"topology": topology, "for": seconds}}]

    found = await play_on(place, timeline=outage(level=rack, count=3))
    patched = [(each.name, json.loads(each.body)) for each in server.seen if each.verb == "patch"]
    both, *back = ({"spec": {"cloud": {"outageUnits": units}}} for units in (["pool-0"], None))
    other = {"spec": {"cloud": {"outageUnits": ["other-3"]}}}
    assert sorted(patched[:3], key=lambda each: each[0]) == [("a", both), ("b", both), ("c", other)]
    assert sorted(patched[3:], key=lambda each: each[0]) == [(name, back[0]) for name in "abc"]
    assert [(mark.what, mark.detail) for mark in found.story.marks if "outage" in mark.what] == [
        ("outage begins", "other-3, pool-0; 3 were to be"),
        ("outage ends", "other-3, pool-0"),
    ]
    gone = await play_on(place, timeline=outage(values=["pool-x"]))
    assert "no group has the unit pool-x in its topology" in gone.broken_off
    empty = await play_on(place, timeline=outage(level="example.com/row"))
    assert "no node of a group stands in a unit of example.com/row" in empty.broken_off
    two = await play_on(place, timeline=[*outage("1s", level=rack), *outage("1s", level=rack)])
    begun = [mark.detail for mark in two.story.marks if mark.what == "outage begins"]
    assert sorted(begun) == ["other-3", "pool-0"]
    later = {"outage": {"topology": {"level": rack, "count": 2}, "for": "50ms"}}
    row = await play_on(place, timeline=[later] * 4)
    begun = [mark.detail for mark in row.story.marks if mark.what == "outage begins"]
    assert begun == ["other-3, pool-0"] * 4


def of_a_group(name: str, **more: str) -> dict[str, Any]:
    labels = {NODE_GROUP_LABEL: "a", **more}
    annotations = {NODE_GROUP_UID_ANNOTATION: "u"}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


async def test_a_run_goes_on_while_a_machine_is_under_notice(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    testbed[0].create(NODES, of_a_group("n"))
    step = {"at": "0s", "interrupt": {"group": "a", "notice": "2s"}}
    until = {"settledFor": "500ms", "atMost": "60s"}
    found = await play_on(testbed[1], timeline=[step], until=until)
    assert found.end.reason == "settled" and found.end.t >= 2


async def test_what_a_late_step_does_is_waited_for(testbed: tuple[FakeApiServer, Testbed]) -> None:
    step = {"at": "1s", "interrupt": {"group": "none", "share": 0.5}}
    until = {"settledFor": "500ms", "atMost": "60s"}
    found = await play_on(testbed[1], timeline=[step], until=until)
    assert found.end.reason == "settled" and found.end.t >= 1.5


async def test_a_step_may_wait_until_nothing_changes(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    steps = [
        {"at": "1s", "interrupt": {"group": "none", "share": 0.5}},
        {"interrupt": {"group": "none", "share": 0.5}, "settledFor": "1s"},
    ]
    until = {"settledFor": "500ms", "atMost": "60s"}
    found = await play_on(testbed[1], timeline=steps, until=until)
    assert found.end.reason == "settled" and found.end.t >= 2.5


async def test_a_machine_that_can_t_be_lost_ends_the_run(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    testbed[0].create(NODES, of_a_group("n"))
    testbed[0].fail(422, verb="delete", name="n")
    found = await play_on(testbed[1], timeline=[{"at": "0s", "lose": {"group": "a"}}])
    assert found.broken_off.startswith("the run died: timeline[0], lose: ")


NODE_THERE = {"figure": "nodes.total", "atLeast": 1}
NO_NODE = {"figure": "nodes.total", "atMost": 0}
WAITS = {"after": NODE_THERE, "cordon": {"group": "a"}}
PODS = {"name": "web", "kind": "Pods", "count": 9, "pods": {"cpu": 1}}


@pytest.mark.parametrize(
    "fields",
    [
        {"timeline": [WAITS], "until": {"atMost": "1s"}},
        {"timeline": [WAITS], "until": {"atMost": "20s", "condition": NO_NODE}},
        {"workloads": [PODS], "until": {"atMost": "1s"}},
        {"workloads": [PODS], "until": {"atMost": "20s", "condition": NO_NODE}},
    ],
)
async def test_what_was_not_played_is_no_reason_to_pass(
    testbed: tuple[FakeApiServer, Testbed], monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(runner, "_ANSWER_SECONDS", 0.2)
    testbed[0].hold(verb="create", resource="pods")
    expect = [{"figure": "nodes.total", "equals": 0}]
    found = await play_on(testbed[1], **fields, expect=expect)
    assert (found.end.reason, found.passed) == ("unplayed", False)
    assert (
        "timeline[0], cordon" if "timeline" in fields else "1 of 9 objects of web"
    ) in found.end.detail


async def test_a_condition_that_holds_before_the_last_creation_is_answered_ends_a_whole_run(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    server, place = testbed
    held = server.hold(verb="create", resource="pods")
    asyncio.get_running_loop().call_later(1, held.set)
    until = {"atMost": "20s", "condition": NO_NODE}
    assert await end_of(place, workloads=[PODS], until=until) == "condition"


async def test_what_is_asked_at_the_end_is_kept_and_is_no_part_of_the_run(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    asked: list[dict[str, Any]] = []
    began, begun_to_ask = time.monotonic(), 0.0

    async def kubectl(*arguments: str, **how: Any) -> str:
        nonlocal begun_to_ask
        begun_to_ask = time.monotonic()
        asked.append(how)
        testbed[0].create(NODES, {"metadata": {"name": "late"}})
        await asyncio.sleep(2)
        return ""

    asking: Any = kubectl
    found = await play_on(
        replace(testbed[1], kubectl=asking),
        expect=[{"wait": "kng/a --for=delete"}],
        until={"atMost": "200ms"},
    )
    assert [how["kept"] for how in asked] == [True]
    assert found.end.t <= begun_to_ask - began
    assert found.figures["nodes.total"] == 0


async def test_a_server_that_stands_still_is_no_quiet_cluster(
    testbed: tuple[FakeApiServer, Testbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_COMPONENTS_SECONDS", 0.1)
    monkeypatch.setattr(runner, "_BLIND_SECONDS", 0.5)
    server, place = testbed
    server.hold(verb="get", resource="namespaces")
    assert await end_of(place) == "died"


async def test_what_is_listed_anew_in_the_run_may_have_missed_an_eviction(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    server, place = testbed

    async def all_watched(*, but: Sequence[Watcher] = ()) -> None:
        paths = {NODES, "/api/v1/pods"}
        await until(lambda: paths <= {each.path for each in server.watchers if each not in but})

    async def lose_history() -> None:
        await all_watched()
        before = [*server.watchers]
        server.send_error(410, "Expired")
        await all_watched(but=before)
        server.create(NODES, {"metadata": {"name": "last"}})

    expect = [{"figure": name, "equals": 0} for name in ("evictions", "pods.running")]
    last = {"condition": {"figure": "nodes.total", "atLeast": 1}, "atMost": "1m"}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(lose_history())
        found = await play_on(place, expect=expect, until=last)
    assert [outcome.held for outcome in found.outcomes] == [False, True]
    assert "were listed anew" in found.outcomes[0].reason


@pytest.mark.parametrize(("step", "reason"), [(0.0, "settled"), (5.0, "died"), (-5.0, "died")])
async def test_a_clock_that_is_set_during_the_run_ends_it(
    testbed: tuple[FakeApiServer, Testbed],
    monkeypatch: pytest.MonkeyPatch,
    step: float,
    reason: str,
) -> None:
    monkeypatch.setattr(runner, "_COMPONENTS_SECONDS", 0.1)
    clock = ServerClock()
    monkeypatch.setattr(testbed[1].client, "server_clock", clock)
    began = time.time()

    def stepped(date: str) -> None:
        said = parsedate_to_datetime(date).timestamp()
        clock.said = said + (step if time.time() - began > 0.5 else 0)

    monkeypatch.setattr(clock, "heard", stepped)
    quiet = "2s" if reason == "settled" else "1m"
    found = await play_on(testbed[1], until={"settledFor": quiet, "atMost": "2m"})
    assert found.end.reason == reason
    assert ("clock was set" in found.end.detail) is (reason == "died")


async def test_kubectl_waits_for_a_condition_in_one_go(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    """With a second each, an API server that takes two to list would never answer in time."""
    asked: list[float] = []

    async def kubectl(*arguments: str, **_: Any) -> str:
        within = float(arguments[-1].removeprefix("--timeout=").removesuffix("s"))
        asked.append(within)
        await asyncio.sleep(min(within, 2))
        if within < 2:
            raise CommandError("timed out waiting for the condition")
        return "condition met"

    asking: Any = kubectl
    until = {"condition": {"wait": "kng/a --for=condition=Ready"}, "atMost": "1m"}
    found = await play_on(replace(testbed[1], kubectl=asking), until=until)
    assert (found.end.reason, len(asked)) == ("condition", 1)
    assert asked[0] <= 60  # not beyond the end of the run


async def test_a_trace_that_was_played_is_no_dead_process(
    testbed: tuple[FakeApiServer, Testbed],
) -> None:
    _, place = testbed
    played = Program("the trace of web", log=place.logs / "web.log")
    await played.start(["true"], env={}, cwd=place.folder)
    await played.wait()
    place.programs[f"{TRACE}web"] = played
    assert await end_of(place) == "settled"


async def test_processes_are_ended_all_at_once(
    testbed: tuple[FakeApiServer, Testbed], tmp_path: Path
) -> None:
    _, place = testbed
    for own, other in (("a", "b"), ("b", "a")):
        program = place.programs[own] = Program(own, log=tmp_path / f"{own}.log")
        command = [sys.executable, "-c", MEETS, str(tmp_path / own), str(tmp_path / other)]
        await program.start(command, env=os.environ, cwd=tmp_path)
        await program.wait_until_ready(says(program.log, "up"), within=60)
    await place.stop_all()
    assert [(tmp_path / f"{name}.log").read_text() for name in "ab"] == ["up\nmet\n"] * 2


@pytest.mark.parametrize("ignored", [False, True])
async def test_a_terminal_that_is_closed_is_an_interrupt_but_behind_nohup(ignored: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with contextlib.nullcontext() if ignored else pytest.raises(asyncio.CancelledError):
            with cancelled_by_signals():
                # One that isn't taken care of would be the end of this process.
                assert ignored or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
                os.kill(os.getpid(), signal.SIGHUP)
                await asyncio.sleep(0.05)
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_signal_after_an_inner_block_reaches_the_outer_one() -> None:
    with pytest.raises(asyncio.CancelledError), cancelled_by_signals():
        with cancelled_by_signals():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)


def test_what_nobody_reads_any_more_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stream)
    complain("clearing up")
    with contextlib.suppress(BrokenPipeError):
        stream.close()
