"""What the recorder makes of what a watch shows, besides what is in test_traces.py."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.traces.recording import TraceRecorder
from kwok_operator.importing.traces.trace import Event, Happening, Header, Line, TracedShape, decode
from kwok_operator.importing.traces.trace import encode as encoded
from tests.fakes.traced import CLEAN

Json = dict[str, Any]


def pod(uid: str = "u1", name: str = "p", **fields: Any) -> Json:
    metadata = {"uid": uid, "namespace": "shop", "name": name, **fields.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"containers": [{"name": "x"}]}, **fields}


def owned(api_version: str, kind: str, name: str = "owner") -> Json:
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "controller": True}
    return {"ownerReferences": [owner]}


def listed() -> TraceRecorder:
    recorder = TraceRecorder(CLEAN)
    for kind in TRACED:
        recorder.begin(kind)
        assert list(recorder.end(kind, at=0)) == []
    return recorder


def seen(
    recorder: TraceRecorder, body: Any, *, kind: str = "Pod", what: str = "ADDED", at: float = 1
) -> list[Event]:
    lines = recorder.observed(kind, {"type": what, "object": body}, at=at)
    return [line for line in lines if isinstance(line, Event)]


@pytest.mark.parametrize(
    ("kind", "owner", "is_told"),
    [
        ("Pod", owned("apps/v1", "ReplicaSet"), False),
        ("Pod", owned("apps/v1", "StatefulSet"), False),
        ("Pod", owned("apps/v1", "DaemonSet"), False),
        ("Pod", owned("v1", "ReplicationController"), False),
        ("Pod", owned("v1", "Node"), False),
        ("Pod", owned("batch/v1", "Job"), False),
        ("ReplicaSet", owned("apps/v1", "Deployment"), False),
        ("Pod", owned("example.com/v1", "ReplicaSet"), True),
        ("Pod", owned("argoproj.io/v1alpha1", "Workflow"), True),
        ("ReplicaSet", owned("argoproj.io/v1alpha1", "Rollout"), True),
        ("Job", owned("batch/v1", "CronJob"), True),
        ("Pod", {"ownerReferences": [{"kind": "ReplicaSet", "apiVersion": "apps/v1"}]}, True),
    ],
)
def test_which_objects_are_recorded(kind: str, owner: Json, is_told: bool) -> None:
    body = pod(metadata=owner)
    body["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    told = seen(listed(), body, kind=kind)
    assert [event.happening for event in told] == [Happening.CREATE] * is_told


def test_the_end_of_a_pod_of_a_job_is_recorded() -> None:
    recorder = listed()
    running = pod(metadata=owned("batch/v1", "Job", "once"), status={"phase": "Running"})
    status = {
        "phase": "Failed",
        "startTime": "2026-01-01T00:00:10Z",
        "containerStatuses": [
            {"state": {"terminated": {"finishedAt": f"2026-01-01T00:00:{second}Z"}}}
            for second in ("15", "40", "20")
        ],
    }
    assert seen(recorder, running) == []
    (end,) = seen(recorder, {**running, "status": status}, what="MODIFIED", at=50)
    assert (end.happening, str(end.key), end.phase) == (Happening.END, "Job shop/once", "Failed")
    assert end.duration == 30
    assert seen(recorder, {**running, "status": status}, what="MODIFIED", at=51) == []
    assert seen(recorder, {**running, "status": status}, what="DELETED", at=52) == []


def test_how_long_a_pod_ran_is_what_was_seen_where_it_does_not_say() -> None:
    recorder = listed()
    seen(recorder, pod(), at=2)
    (end,) = seen(recorder, pod(status={"phase": "Succeeded"}), what="MODIFIED", at=9)
    assert end.duration == 7


def test_one_that_ended_before_it_was_seen_came_and_ended() -> None:
    recorder = listed()
    told = seen(recorder, pod(status={"phase": "Succeeded"}))
    assert [event.happening for event in told] == [Happening.CREATE, Happening.END]


def test_pods_that_had_ended_before_are_not_recorded() -> None:
    recorder = TraceRecorder(CLEAN)
    recorder.begin("Pod")
    job = owned("batch/v1", "Job")
    for body in (pod(), pod("u2", "q", metadata=job)):
        assert list(recorder.listed("Pod", {**body, "status": {"phase": "Failed"}}, at=0)) == []
    list(recorder.end("Pod", at=0))
    ended = pod("u2", "q", metadata=job, status={"phase": "Failed"})
    assert seen(recorder, ended, what="MODIFIED") == []


def test_it_is_gone_when_somebody_asks_for_it_to_go() -> None:
    recorder = listed()
    seen(recorder, pod())
    leaving = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert [e.happening for e in seen(recorder, leaving, what="MODIFIED")] == [Happening.DELETE]
    assert seen(recorder, leaving, what="MODIFIED") == []
    assert seen(recorder, leaving, what="DELETED") == []
    assert seen(listed(), leaving, what="MODIFIED") == []


def test_another_object_of_the_same_name() -> None:
    recorder = listed()
    seen(recorder, pod("u1"))
    told = seen(recorder, pod("u2"), at=3)
    assert [(e.happening, e.late) for e in told] == [
        (Happening.DELETE, True),
        (Happening.CREATE, False),
    ]
    assert seen(recorder, pod("u1"), what="DELETED") == []
    assert [e.happening for e in seen(recorder, pod("u2"), what="DELETED")] == [Happening.DELETE]


def job(generation: int = 1, **status: int) -> Json:
    spec = {"parallelism": 2, "completions": 9, "template": {"spec": {"containers": [{}]}}}
    metadata = {"uid": "j", "namespace": "shop", "name": "j", "generation": generation}
    return {"metadata": metadata, "spec": spec, "status": status}


def test_the_progress_of_a_job_is_no_update() -> None:
    recorder = listed()
    seen(recorder, job(), kind="Job")
    assert seen(recorder, job(2, succeeded=4), kind="Job", what="MODIFIED") == []
    more = job(3, succeeded=5)
    more["spec"]["parallelism"] = 7
    (scaled,) = seen(recorder, more, kind="Job", what="MODIFIED")
    assert (scaled.happening, scaled.replicas) == (Happening.SCALE, 7)


def test_what_is_not_kept_is_no_update() -> None:
    recorder = listed()
    seen(recorder, pod())
    for fields in (
        {"metadata": {"annotations": {"seen-by": "nobody"}}},
        {"metadata": {"resourceVersion": "9"}},
        {"status": {"phase": "Running", "podIP": "10.0.0.1"}},
    ):
        assert seen(recorder, pod(**fields), what="MODIFIED") == []
    (updated,) = seen(recorder, pod(metadata={"labels": {"a": "b"}}), what="MODIFIED")
    assert updated.happening is Happening.UPDATE


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_labels_and_annotations_change_without_a_generation(part: str) -> None:
    recorder = listed()
    seen(recorder, pod(metadata={"generation": 1}))
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    marked = pod(metadata={"generation": 1, part: {key: "false"}})
    (updated,) = seen(recorder, marked, what="MODIFIED")
    assert updated.happening is Happening.UPDATE


def test_shapes_are_written_once_for_each_file() -> None:
    recorder = listed()

    def shapes(lines: list[Line]) -> int:
        return sum(isinstance(line, TracedShape) for line in lines)

    first = list(recorder.observed("Pod", {"type": "ADDED", "object": pod()}, at=1))
    other = list(recorder.observed("Pod", {"type": "ADDED", "object": pod("u2", "q")}, at=1))
    part = list(recorder.part(Header(start=0, part=2, at=2), at=2))
    third = list(recorder.observed("Pod", {"type": "ADDED", "object": pod("u3", "r")}, at=3))
    assert [shapes(lines) for lines in (first, other, part, third)] == [1, 0, 1, 0]
    assert len(part) == 1 + 1 + 2


def test_a_part_leaves_out_what_has_ended() -> None:
    recorder = listed()
    for uid in ("u1", "u2"):
        seen(recorder, pod(uid, uid))
    seen(recorder, pod("u1", "u1", status={"phase": "Failed"}), what="MODIFIED")
    part = recorder.part(Header(start=0, part=2, at=2), at=2)
    assert [str(line.key) for line in part if isinstance(line, Event)] == ["Pod shop/u2"]


def test_memory_follows_what_lives() -> None:
    recorder = listed()

    def sizes() -> tuple[int, ...]:
        shapes = recorder._shapes
        held = (shapes._bodies, shapes._users, shapes._idle, shapes._written)
        return tuple(len(one) for one in (*held, recorder._live["Pod"], recorder._by_key))

    measured = []
    for number in range(5_000):
        body = pod(f"u{number}", f"p{number}", metadata={"labels": {"run": str(number)}})
        assert len(seen(recorder, body)) == 1
        assert len(seen(recorder, body, what="DELETED")) == 1
        if number % 1_000 == 999:
            measured.append(sizes())
    assert measured[-1] == measured[1]
    assert max(measured[-1]) <= 1_000
    # A shape that is used again and again stays known.
    again = [*seen(recorder, pod("v1", "a")), *seen(recorder, pod("v1", "a"), what="DELETED")]
    lines = recorder.observed("Pod", {"type": "ADDED", "object": pod("v2", "a")}, at=9)
    assert len(again) == 2 and not any(isinstance(line, TracedShape) for line in lines)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = part.items() if isinstance(part, dict) else enumerate(part)
    found = [path] if path else []
    for key, value in items if isinstance(part, dict | list) else ():
        found += places(value, (*path, key)) if isinstance(value, dict | list) else [(*path, key)]
    return found


FULL: Json = {
    **pod(metadata={**owned("batch/v1", "Job"), "labels": {"a": "b"}, "generateName": "p"}),
    "status": {
        "phase": "Failed",
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-01-01T00:00:09Z"}}}],
    },
}


@given(st.sampled_from(places(FULL)), ANY, st.sampled_from(["Pod", "Job", "Deployment"]))
def test_whatever_is_in_an_object_lines_can_be_read(place: Any, value: Any, kind: str) -> None:
    body = copy.deepcopy(FULL)
    inner = body
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    recorder = listed()
    for what in ("ADDED", "MODIFIED", "DELETED", value):
        for line in recorder.observed(kind, {"type": what, "object": body}, at=1):
            assert decode(encoded(line), where="here") == line


@given(ANY)
def test_what_is_no_event_is_nothing(value: Any) -> None:
    recorder = listed()
    recorder.begin("Pod")
    assert list(recorder.listed("Pod", value, at=0)) == []
    assert list(recorder.observed("Pod", {"type": "ADDED", "object": value}, at=0)) == []
