"""How the requests of a trace are sent."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.constants import REPLAYED_LABEL
from kwok_operator.errors import SettingsError, TraceError
from kwok_operator.importing.cluster import open_cluster
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.settings import ReplaySettings
from kwok_operator.importing.traces.cleaning import cleaner
from kwok_operator.importing.traces.files import Findings
from kwok_operator.importing.traces.record import cluster_id
from kwok_operator.importing.traces.replay import remove, replay
from kwok_operator.importing.traces.replaying import Replay, Request, Verb
from kwok_operator.importing.traces.report import Report, summary
from kwok_operator.importing.traces.trace import (
    Event,
    Happening,
    Header,
    Key,
    Line,
    encode,
    shape_of,
)
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.kubeconfigs import kubeconfig
from tests.fakes.traced import CLEAN
from tests.fakes.waiting import until

NAMESPACES = "/api/v1/namespaces"
PODS = TRACED["Pod"].collection("shop")
DEPLOYMENTS = TRACED["Deployment"].collection("shop")
MINE = TRACED["Pod"].collection("mine")
JOBS = TRACED["Job"].collection("shop")

CONTAINERS = {"containers": [{"name": "c0"}]}
POD = shape_of({"kind": "Pod", "metadata": {}, "spec": CONTAINERS})
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": CONTAINERS}
SPEC = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
DEPLOYMENT = shape_of({"kind": "Deployment", "metadata": {}, "spec": SPEC})
JOB = shape_of({"kind": "Job", "metadata": {}, "spec": {"template": TEMPLATE}})
CART = Key("Deployment", "shop", "cart")


def event(happening: str, at: float, key: Key = CART, **fields: Any) -> Event:
    shape = {"Deployment": DEPLOYMENT, "Job": JOB, "Pod": POD}[key.kind].id
    if happening in ("present", "create"):
        fields["shape"] = shape
    return Event(at, Happening(happening), key, **fields)


def pod(name: str) -> Key:
    return Key("Pod", "shop", name)


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        # The longer path first: a namespace's objects aren't parts of the namespace.
        server.serve(f"{NAMESPACES}/shop/serviceaccounts", kind="ServiceAccount")
        for path, kind in (
            (PODS, "Pod"),
            (MINE, "Pod"),
            (DEPLOYMENTS, "Deployment"),
            (JOBS, "Job"),
        ):
            server.serve(path, kind=kind, status_on_create=True)
        server.serve(NAMESPACES, kind="Namespace")
        server.create(NAMESPACES, {"metadata": {"name": "kube-system"}})
        yield server


class Player:
    def __init__(self, server: FakeApiServer, folder: Path) -> None:
        self.config = kubeconfig(folder / "config", server=server.url)
        self._path = folder / "trace.jsonl"
        self._server = server
        self.told: list[str] = []

    async def play(
        self, *lines: Line, header: Header | None = None, more: str = "", **fields: Any
    ) -> Report:
        found = (header or Header(start=0), POD, DEPLOYMENT, JOB, *lines)
        text = "".join(f"{encode(line)}\n" for line in found)
        await asyncio.to_thread(self._path.write_text, text + more)
        fields = {"speed": 1e6, **fields}
        settings = ReplaySettings(paths=(self._path,), kubeconfig=self.config, **fields)
        plan, told, report = await replay(settings, log=self.told.append)
        self.said = "\n".join(summary(plan, told, report))
        return report

    def asked(self, resource: str) -> list[tuple[str, str]]:
        """Verb and name, but where a list or the whole object was asked for."""
        return [
            (seen.verb, seen.name or json.loads(seen.body)["metadata"]["name"])
            for seen in self._server.seen
            if seen.resource == resource and seen.verb != "list"
        ]


@pytest.fixture
def player(server: FakeApiServer, tmp_path: Path) -> Player:
    return Player(server, tmp_path)


async def test_objects_live_through_their_trace(server: FakeApiServer, player: Player) -> None:
    report = await player.play(
        event("present", 0, pod("old")),
        event("create", 1, replicas=2),
        event("scale", 2, replicas=7),
        event("create", 3, pod("new")),
        event("end", 4, pod("new"), phase="Failed"),
        event("delete", 5, pod("old")),
    )
    assert server.objects(DEPLOYMENTS)["cart"]["spec"]["replicas"] == 7
    assert list(server.objects(PODS)) == ["new"]
    assert server.objects(PODS)["new"]["status"] == {"phase": "Failed"}
    assert not report.refused and report.left_out == 0
    assert {verb.value: count for verb, count in report.sent.items()} == {
        "create": 5,
        "scale": 1,
        "end": 1,
        "delete": 1,
    }
    assert len(report.errors) == 5  # not of the set-up


async def test_requests_are_sent_when_they_are_due(server: FakeApiServer, player: Player) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    report = await player.play(event("create", 0), event("create", 300, pod("late")), speed=1_000.0)
    assert loop.time() - begin >= 0.3
    assert len(report.errors) == 4 and min(report.errors) >= 0


async def test_the_clock_starts_when_all_is_there(server: FakeApiServer, player: Player) -> None:
    held = server.hold(verb="create", resource="deployments")
    lines = (event("present", 0, replicas=1), event("create", 0, pod("first")))
    playing = asyncio.create_task(player.play(*lines))
    await until(lambda: player.asked("deployments"))
    await asyncio.sleep(0.05)
    assert not player.asked("pods")
    held.set()
    report = await playing
    assert len(report.errors) == 1


async def test_one_object_in_order_and_others_meanwhile(
    server: FakeApiServer, player: Player
) -> None:
    held = server.hold(verb="create", resource="deployments")
    lines = (event("create", 0, replicas=1), event("scale", 1, replicas=5), event("delete", 2))
    playing = asyncio.create_task(player.play(*lines, event("create", 3, pod("other"))))
    await until(lambda: player.asked("pods") and player.asked("deployments"))
    assert player.asked("pods") == [("create", "other")]
    assert player.asked("deployments") == [("create", "cart")]
    held.set()
    await playing
    assert [verb for verb, _ in player.asked("deployments")] == ["create", "patch", "delete"]


async def test_nothing_is_created_before_its_namespace(
    server: FakeApiServer, player: Player
) -> None:
    held = server.hold(verb="create", resource="namespaces")
    playing = asyncio.create_task(player.play(event("create", 0, pod("a"))))
    await until(lambda: player.asked("namespaces"))
    await asyncio.sleep(0.05)
    assert not player.asked("pods") and not player.asked("serviceaccounts")
    held.set()
    await playing
    assert list(server.objects(PODS)) == ["a"]


async def test_what_is_anothers_is_left_alone(server: FakeApiServer, player: Player) -> None:
    server.create(DEPLOYMENTS, {"metadata": {"name": "cart"}, "spec": {"replicas": 3}})
    report = await player.play(
        event("create", 0, replicas=1),
        event("scale", 1, replicas=9),
        event("delete", 2),
        event("create", 3, pod("mine")),
    )
    assert report.refused == {("create", "Deployment", 409): 1}
    assert report.left_out == 2
    assert server.objects(DEPLOYMENTS)["cart"]["spec"] == {"replicas": 3}
    assert list(server.objects(PODS)) == ["mine"]
    assert "1 x create Deployment, 409; such as Deployment shop/cart" in player.said


async def test_a_namespace_that_is_there_will_do(server: FakeApiServer, player: Player) -> None:
    server.create(NAMESPACES, {"metadata": {"name": "shop"}})
    server.create(f"{NAMESPACES}/shop/serviceaccounts", {"metadata": {"name": "default"}})
    assert not (await player.play(event("create", 0, pod("a")))).refused
    assert server.objects(NAMESPACES)["shop"]["metadata"].get("labels") is None


async def test_a_namespace_that_is_going_is_waited_for(
    server: FakeApiServer, player: Player
) -> None:
    server.create(NAMESPACES, {"metadata": {"name": "shop", "finalizers": ["test/held"]}})
    old = server.objects(NAMESPACES)["shop"]["metadata"]["uid"]
    server.delete(NAMESPACES, "shop")
    playing = asyncio.create_task(player.play(event("create", 0, pod("a"))))
    await until(lambda: player.asked("namespaces").count(("create", "shop")) >= 2)
    assert not player.asked("pods")
    server.patch(NAMESPACES, "shop", {"metadata": {"finalizers": None}})
    assert not (await playing).refused
    assert server.objects(NAMESPACES)["shop"]["metadata"]["uid"] != old


async def test_what_is_refused_is_counted_and_the_rest_goes_on(
    server: FakeApiServer, player: Player
) -> None:
    server.fail(403, verb="create", resource="pods", times=2, message="exceeded quota")
    pods = [event("create", number, pod(f"p{number}")) for number in range(5)]
    report = await player.play(*pods, event("end", 9, pod("p0"), phase="Succeeded"))
    assert report.refused == {("create", "Pod", 403): 2}
    assert len(server.objects(PODS)) == 3
    assert "exceeded quota" in player.said


async def test_what_is_gone_already_is_no_failure(server: FakeApiServer, player: Player) -> None:
    held = server.hold(verb="delete", resource="pods")
    playing = asyncio.create_task(
        player.play(event("create", 0, pod("a")), event("delete", 1, pod("a")))
    )
    await until(lambda: ("delete", "a") in player.asked("pods"))
    server.delete(PODS, "a")
    held.set()
    assert not (await playing).refused


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_accidents_are_tried_again(
    status: int, server: FakeApiServer, player: Player
) -> None:
    server.fail(status, verb="create", resource="pods", times=2)
    assert not (await player.play(event("create", 0, pod("a")))).refused
    assert list(server.objects(PODS)) == ["a"]


async def test_a_write_whose_answer_was_lost_is_ours(server: FakeApiServer, player: Player) -> None:
    server.cut(verb="create", resource="pods", carried_out=True)
    report = await player.play(event("create", 0, pod("a")), event("delete", 1, pod("a")))
    assert not report.refused and not server.objects(PODS)


async def test_a_name_that_is_still_taken_is_waited_for(
    server: FakeApiServer, player: Player
) -> None:
    server.create(PODS, {"metadata": {"name": "x", "finalizers": ["test/held"]}})
    lines = [event("create", 0, pod("a")), event("delete", 1, pod("a"))]
    held = server.hold(verb="delete", resource="pods")
    playing = asyncio.create_task(player.play(*lines, event("create", 2, pod("a"))))
    await until(lambda: ("delete", "a") in player.asked("pods"))
    server.patch(PODS, "a", {"metadata": {"finalizers": ["test/held"]}})
    held.set()
    await until(lambda: player.asked("pods").count(("create", "a")) >= 3)
    server.patch(PODS, "a", {"metadata": {"finalizers": None}})
    assert not (await playing).refused
    assert server.objects(PODS)["a"]["metadata"].get("finalizers") is None


async def test_the_end_of_a_job_ends_its_oldest_pod_that_runs(
    server: FakeApiServer, player: Player
) -> None:
    job = Key("Job", "shop", "once")
    for name, phase, label in (
        ("a-waits", "Pending", "once"),
        ("b-runs", "Running", "once"),
        ("c-runs", "Running", "once"),
        ("a-other", "Running", "other"),
        ("a-done", "Succeeded", "once"),
    ):
        labels = {"batch.kubernetes.io/job-name": label}
        body = {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}
        server.create(PODS, body)
    ends = [event("end", number, job, phase="Failed") for number in (1, 2, 3, 4)]
    report = await player.play(event("create", 0, job, replicas=2), *ends)
    patched = [seen.name for seen in server.seen if seen.resource == "pods/status"]
    assert patched == ["b-runs", "c-runs", "a-waits"]
    assert server.objects(PODS)["b-runs"]["status"] == {"phase": "Failed"}
    assert report.left_out == 1 and not report.refused


async def test_it_is_not_played_where_it_was_recorded(
    server: FakeApiServer, player: Player
) -> None:
    async with open_cluster(kubeconfig=player.config, requests_per_second=0) as cluster:
        here = Header(start=0, cluster=await cluster_id(cluster))
    assert here.cluster
    with pytest.raises(SettingsError, match="--into-recorded-cluster"):
        await player.play(event("create", 0, pod("a")), header=here)
    assert not server.objects(PODS)
    await player.play(event("create", 0, pod("a")), header=here, into_recorded_cluster=True)
    assert list(server.objects(PODS)) == ["a"]
    await player.play(event("create", 0, pod("b")), header=Header(start=0, cluster="elsewhere"))


async def test_a_trace_that_breaks_off_is_played_up_to_there(
    server: FakeApiServer, player: Player
) -> None:
    report = await player.play(
        event("create", 0, pod("a")), event("create", 1, pod("b")), more='{"line": 7}\n'
    )
    assert "trace.jsonl:7" in report.broken and report.broken in player.said
    assert "a" in server.objects(PODS)
    with pytest.raises(TraceError):
        await player.play(more="{}\n")


async def test_the_latest_are_shown(player: Player) -> None:
    report = await player.play(event("create", 0, pod("a")))
    for number in range(100):
        report.timed(late_request(number), number / 100)
    assert [round(error, 2) for error, *_ in report.worst] == [0.99, 0.98, 0.97, 0.96, 0.95]
    text = "\n".join(summary(Replay(ReplaySettings(()), clean=CLEAN), Findings(), report))
    assert "p50 0.480 s, p99 0.980 s, max 0.990 s" in text
    assert "later than 0.25 s: 74 of 103" in text


def late_request(number: int) -> Request:
    return Request(float(number), Verb.CREATE, pod(f"p{number}"), "POST", PODS)


async def test_clean_deletes_what_replays_have_made(server: FakeApiServer, player: Player) -> None:
    for kind in TRACED.values():
        server.serve(kind.path, kind=kind.name)
    labels = {REPLAYED_LABEL: "true"}
    for name, marks in (("shop", labels), ("mine", {})):
        server.create(NAMESPACES, {"metadata": {"name": name, "labels": marks}})
    pods = TRACED["Pod"].path
    for name, namespace, marks in (
        ("in-ours", "shop", labels),
        ("ours", "mine", labels),
        ("theirs", "mine", {}),
    ):
        metadata = {"name": name, "namespace": namespace, "labels": marks}
        server.create(pods, {"metadata": metadata})
    high = {"metadata": {"name": "high", "labels": labels}, "value": 1}
    server.create(TRACED["PriorityClass"].path, high)
    server.create(MINE, {"metadata": {"name": "ours"}})
    server.patch(NAMESPACES, "shop", {"metadata": {"finalizers": ["test/held"]}})
    removing = asyncio.create_task(
        remove(kubeconfig=player.config, context=None, log=lambda _: None)
    )
    await until(lambda: server.calls["list", "namespaces"] > 3)
    assert not removing.done()
    server.patch(NAMESPACES, "shop", {"metadata": {"finalizers": None}})
    gone, wrong = await removing
    deleted = [(seen.resource, seen.name) for seen in server.seen if seen.verb == "delete"]
    assert sorted(deleted) == [
        ("namespaces", "shop"),
        ("pods", "ours"),
        ("priorityclasses", "high"),
    ]
    assert not server.objects(MINE)
    assert (gone, wrong) == (3, {})


async def test_namespaces_are_called_alike_in_objects_and_in_what_asks_for_them() -> None:
    """What is in kube-system goes where import brings it, and a prefix is before all of them."""
    near = {"namespaces": ["kube-system", "shop"], "topologyKey": "zone", "labelSelector": {}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    body = {"kind": "Pod", "spec": {"containers": [{}], "affinity": affinity}}
    shape = shape_of(body)
    key = Key("Pod", "kube-system", "a")
    lines: list[Line] = [Header(start=0), shape, Event(1, Happening.CREATE, key, shape.id)]
    told = Replay(ReplaySettings((), namespace_prefix="rp-"), clean=cleaner(places={}))
    made = {r.key.kind: r for r in told.requests([("", line) for line in lines])}
    assert made["Pod"].key.namespace == "rp-imported-kube-system"
    assert made["Namespace"].key.name == "rp-imported-kube-system"
    assert made["Pod"].body is not None
    (term,) = made["Pod"].body["spec"]["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["namespaces"] == ["rp-imported-kube-system", "rp-shop"]
