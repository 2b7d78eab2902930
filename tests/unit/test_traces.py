"""A trace has what a replay needs to make a cluster again."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import TraceError
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.settings import ReplaySettings
from kwok_operator.importing.traces.files import Findings, read_trace
from kwok_operator.importing.traces.recording import TraceRecorder
from kwok_operator.importing.traces.replaying import Replay, Request, Verb
from kwok_operator.importing.traces.trace import (
    Event,
    Gap,
    Happening,
    Header,
    Key,
    Line,
    TracedShape,
    decode,
    encode,
    shape_of,
)
from tests.fakes.traced import CLEAN, KINDS, Played, World

ACTIONS = ("create", "create", "scale", "reshape", "progress", "end", "delete", "blind", "part")
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.integers(0, 3)), max_size=40
)


@dataclass
class Story:
    """What was recorded of some steps, and what there was at which time."""

    parts: list[list[Line]] = field(default_factory=list)
    states: dict[float, Any] = field(default_factory=dict)
    final: Any = None
    final_but_ended: Any = None

    @property
    def lines(self) -> list[Line]:
        return [line for part in self.parts for line in part]


def told(steps: Sequence[tuple[str, int, int]], *, before: int) -> Story:
    """`before` steps happen before the recording begins."""
    world, recorder, story = World(), TraceRecorder(CLEAN), Story()
    silent: set[str] = set()
    blind, before = False, min(before, len(steps))

    def write(lines: Iterator[Line]) -> None:
        # A trace is what can be read of it.
        found = [decode(encode(line), where="here") for line in lines]
        story.parts[-1].extend(line for line in found if line is not None)

    for number, (action, index, value) in enumerate([*steps, ("see", 0, 0)]):
        at = float(number)
        if number == before:
            story.parts.append([])
            write(iter([Header(start=0, at=at)]))
            silent = world.ended()
            for kind in TRACED:
                recorder.begin(kind)
                for body in world.of_kind(kind):
                    write(recorder.listed(kind, body, at=at))
                write(recorder.end(kind, at=at))
        recording = number >= before
        if recording and blind and (action == "see" or (action == "blind" and value > 0)):
            for kind in KINDS:
                write(iter([Gap(at, at, kind, True)]))
                recorder.begin(kind)
                for body in world.of_kind(kind):
                    write(recorder.listed(kind, body, at=at))
                write(recorder.end(kind, at=at))
            blind = False
        elif action == "blind":
            blind = recording
        elif action == "part" and recording and not blind:
            story.parts.append([])
            write(recorder.part(Header(start=0, part=len(story.parts), at=at), at=at))
        else:
            what, body = (
                world.create(KINDS[index % 3], index, value)
                if action == "create"
                else world.change(action, index, value)
            )
            if what and recording and not blind:
                event = {"type": what, "object": body}
                write(recorder.observed(body["kind"], event, at=at))
        if recording and not blind:
            story.states[at] = world.expected(silent=silent)
    story.final = world.expected(silent=silent)
    story.final_but_ended = world.expected(silent=silent | world.ended())
    return story


def requests(lines: Sequence[Line], **settings: Any) -> list[Request]:
    replay = Replay(ReplaySettings((), **settings), clean=CLEAN)
    return list(replay.requests((f"line {n}", line) for n, line in enumerate(lines, start=1)))


@given(STEPS, st.integers(0, 10))
def test_a_replay_has_what_the_cluster_had(steps: Any, before: int) -> None:
    story, played = told(steps, before=before), Played()
    asked = requests(story.lines)
    begin = min(story.states)
    for at, expected in story.states.items():
        while asked and asked[0].at <= at - begin:
            played.take(asked.pop(0))
        assert played.state() == expected
    assert not asked


@given(STEPS, st.integers(0, 10))
def test_the_last_part_is_enough(steps: Any, before: int) -> None:
    story, played = told(steps, before=before), Played()
    for request in requests(story.parts[-1]):
        played.take(request)
    assert played.state(but_ended=True) == story.final_but_ended


@given(STEPS, st.integers(0, 10), st.integers(0, 40))
def test_a_replay_may_begin_at_any_time_of_the_trace(steps: Any, before: int, since: int) -> None:
    story, played = told(steps, before=before), Played()
    times = [each.at for each in story.lines if not isinstance(each, TracedShape)]
    if since > times[-1] - times[0]:
        with pytest.raises(TraceError, match="--from"):
            requests(story.lines, since=float(since))
        return
    for request in requests(story.lines, since=float(since)):
        assert request.setup <= (request.at == 0.0)
        played.take(request)
    assert played.state(but_ended=True) == story.final_but_ended


@given(STEPS)
def test_a_seed_decides_names_and_only_names(steps: Any) -> None:
    lines = told(steps, before=0).lines
    one, again, other = (requests(lines, seed=seed) for seed in ("a", "a", "b"))
    assert one == again
    assert [(r.at, r.verb, r.key.kind, r.key.namespace) for r in one] == [
        (r.at, r.verb, r.key.kind, r.key.namespace) for r in other
    ]
    names = [{r.key.name for r in each if r.key.kind == "Pod"} for each in (one, other)]
    assert not names[0] & names[1]


POD = shape_of({"kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "c0"}]}})
DEPLOYMENT = shape_of(
    {
        "kind": "Deployment",
        "metadata": {},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD.body["spec"]},
        },
    }
)
CART = Key("Deployment", "shop", "cart")


def event(happening: Happening, at: float, key: Key = CART, **fields: Any) -> Event:
    shape = (POD if key.kind == "Pod" else DEPLOYMENT).id
    if happening in (Happening.PRESENT, Happening.CREATE):
        fields = {"shape": shape, **fields}
    return Event(at, happening, key, **fields)


START: list[Line] = [Header(start=0), POD, DEPLOYMENT]


def test_the_sample_can_be_played() -> None:
    path = Path(__file__).parents[2] / "deploy/samples/traces/rush-hour.jsonl"
    findings = Findings()
    made = requests([line for _, line in read_trace(path, clean=CLEAN, findings=findings)])
    assert not findings.cut
    assert {request.verb for request in made} == set(Verb)
    assert made[-1].at == 90


def test_speed_and_prefix() -> None:
    lines = [*START, event(Happening.CREATE, 10, replicas=3), event(Happening.DELETE, 30)]
    namespace, account, create, delete = requests(lines, speed=10, namespace_prefix="r-")
    assert [request.at for request in (namespace, account, create, delete)] == [1, 1, 1, 3]
    assert (create.path, delete.path) == (
        "/apis/apps/v1/namespaces/r-shop/deployments",
        "/apis/apps/v1/namespaces/r-shop/deployments/cart",
    )
    assert create.body is not None and create.body["spec"]["replicas"] == 3
    assert (account.after, create.after) == (namespace.key, account.key)


def test_what_was_there_is_made_first_and_owners_before_pods() -> None:
    pod = Key("Pod", "shop", "alone")
    lines = [*START, event(Happening.PRESENT, 0, pod), event(Happening.PRESENT, 1)]
    made = requests([*lines, event(Happening.SCALE, 5, replicas=4)])
    assert [(r.verb, r.key.kind, r.setup, r.at) for r in made] == [
        (Verb.CREATE, "Namespace", True, 0),
        (Verb.CREATE, "ServiceAccount", True, 0),
        (Verb.CREATE, "Deployment", True, 0),
        (Verb.CREATE, "Pod", True, 0),
        (Verb.SCALE, "Deployment", False, 5),
    ]
    assert made[-1].body == {"spec": {"replicas": 4}}


def test_names_that_are_made_up_are_never_used_twice_at_a_time() -> None:
    pods = [Key("Pod", "shop", f"w-{number}") for number in range(6_000)]
    made = requests([*START, *(event(Happening.CREATE, 0, pod, prefix="w-") for pod in pods)])
    names = [request.key.name for request in made if request.key.kind == "Pod"]
    assert len(set(names)) == 6_000
    (long,) = requests([*START, event(Happening.CREATE, 0, pods[0], prefix="w" * 63)])[2:]
    assert len(long.key.name) == 63


def test_an_end_is_what_a_kubelet_writes() -> None:
    pod, job = Key("Pod", "shop", "alone"), Key("Job", "shop", "once")
    shape = TracedShape("job", {"spec": {"template": DEPLOYMENT.body["spec"]["template"]}})
    lines: list[Line] = [*START, shape, event(Happening.CREATE, 0, pod)]
    lines += [event(Happening.CREATE, 0, job, shape="job")]
    lines += [event(Happening.END, 1, key, phase="Failed") for key in (pod, job)]
    first, second = requests(lines)[-2:]
    assert first.body == second.body == {"status": {"phase": "Failed"}}
    assert first.path == "/api/v1/namespaces/shop/pods/alone/status"
    selected = "labelSelector=batch.kubernetes.io/job-name=once"
    assert second.path == f"/api/v1/namespaces/shop/pods?{selected}"


def test_what_import_would_not_keep_is_not_sent() -> None:
    spec = {
        "containers": [
            {"name": "x", "command": ["steal"], "securityContext": {"privileged": True}}
        ],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
        "hostNetwork": True,
        "nodeName": "production-1",
    }
    evil = TracedShape(
        "evil", {"metadata": {"finalizers": ["x/y"], "labels": {"a": "b"}}, "spec": spec}
    )
    lines = [*START, evil, event(Happening.CREATE, 0, Key("Pod", "shop", "p"), shape="evil")]
    text = json.dumps(requests(lines)[-1].body)
    for word in ("steal", "privileged", "hostPath", "hostNetwork", "production-1", "finalizers"):
        assert word not in text
    assert '"a": "b"' in text


def test_a_shape_that_is_written_again_is_cleaned_again() -> None:
    pods = [Key("Pod", "shop", name) for name in "ab"]
    lines: list[Line] = [
        *START,
        TracedShape("s", POD.body),
        event(Happening.CREATE, 0, pods[0], shape="s"),
    ]
    lines += [TracedShape("s", {**POD.body, "spec": {"containers": [{"command": ["steal"]}]}})]
    made = requests([*lines, event(Happening.CREATE, 1, pods[1], shape="s")])
    assert "steal" not in str(made)


def test_between_parts_what_ended_stays_and_what_is_missing_goes() -> None:
    ended, missed, stays = (Key("Pod", "shop", name) for name in ("ended", "missed", "stays"))
    lines = [*START, *(event(Happening.CREATE, 1, pod) for pod in (ended, missed, stays))]
    lines += [event(Happening.END, 2, ended, phase="Failed"), Header(start=0, part=2, at=3), POD]
    lines += [event(Happening.PRESENT, 3, stays), event(Happening.DELETE, 5, ended)]
    made = requests(lines)[5:]
    assert [(request.verb, request.key.name, request.at) for request in made] == [
        (Verb.END, "ended", 2),
        (Verb.DELETE, "missed", 3),
        (Verb.DELETE, "ended", 5),
    ]


def test_what_is_gone_is_forgotten() -> None:
    replay, lines = Replay(ReplaySettings(()), clean=CLEAN), list(START)
    for number in range(3):
        pod = Key("Pod", "shop", f"w-{number}")
        lines += [event(Happening.CREATE, number, pod, prefix="w-")]
        lines += [event(Happening.DELETE, number, pod)]
    assert len(list(replay.requests(("", line) for line in lines))) == 2 + 6
    assert not replay._live and not replay._names


def test_lines_about_what_nobody_saw_coming_are_counted() -> None:
    replay = Replay(ReplaySettings(()), clean=CLEAN)
    lines = [*START, Gap(5.0, 2.0, "Pod", True), Gap(6.0, 1.0, "Job", False)]
    lines += [event(Happening.SCALE, 7, replicas=1, late=True), event(Happening.DELETE, 8)]
    assert list(replay.requests(("", line) for line in lines)) == []
    seen = replay.seen
    assert (seen.unknown, seen.gaps, seen.lost, seen.late) == (2, 2, 3.0, 1)


@pytest.mark.parametrize(
    ("lines", "field_name"),
    [
        ([], "the header"),
        ([POD], "line"),
        ([*START, Header(start=7)], "start"),
        ([*START, event(Happening.CREATE, 5), event(Happening.DELETE, 4)], "at"),
        ([*START, event(Happening.CREATE, 5, shape="nowhere")], "shape"),
        (
            [*START, event(Happening.CREATE, 5, Key("PriorityClass", "", "p"), shape=POD.id)],
            "shape",
        ),
    ],
    ids=["nothing", "no header", "another recording", "back in time", "no shape", "wrong kind"],
)
def test_a_trace_that_makes_no_sense_is_refused(lines: list[Line], field_name: str) -> None:
    with pytest.raises(TraceError) as caught:
        requests(lines)
    assert caught.value.field == field_name
    assert caught.value.remedy
