"""Whether two runs show the same: how expectations came out, and why."""

from typing import Any

import pytest

from kwok_operator.causes.model import Cause, CauseKind, Chain, ChainStep, StepKind, known_reasons
from kwok_operator.causes.recorded import Explainer
from kwok_operator.formats.autoscalertexts import ScaleUp
from kwok_operator.importing.incidents.calog import Loop
from kwok_operator.rehearsal.judge.recording import EventLine, RecordedLine
from kwok_operator.rehearsal.judge.verdict import judged
from kwok_operator.rehearsal.shrinking.symptom import (
    Symptom,
    TryFollower,
    agree,
    because,
    symptom_of,
)
from tests.fakes.rehearsed import content, judge, node, pod, reader, run

PENDING = {"figure": "pods.pending", "equals": 0}
WORKLOAD = "Deployment/shop/a"
APART = "no node fits the pod (0/3: 3 node(s) didn't match pod anti-affinity rules)"
FULL = "no node fits the pod (0/3 nodes are available: 3 Insufficient cpu)"


def chain(
    sentence: str, *steps: str, kind: CauseKind = CauseKind.REFUSED, waited: float = 9
) -> Chain:
    found = tuple(ChainStep(1.0, StepKind.REFUSED, text) for text in steps)
    cause = Cause(kind, sentence)
    return Chain("shop/a", WORKLOAD, "", steps=found, cause=cause, waited=waited)


def symptom(
    expected: dict[str, Any],
    *chains: Chain,
    pods: int = 1,
    nodes: int = 3,
    loops: list[Loop] | None = None,
    groups: set[str] | None = None,
    reason: str = "settled",
) -> Symptom:
    lines = [node(0.0, f"a-x-{n}") for n in range(nodes)]
    waiting = [pod(1.0, f"shop/a-{n}", created=1.0, workload=WORKLOAD) for n in range(pods)]
    judged = judge(run(*lines, *waiting, reason=reason), expect=[expected])
    return symptom_of(judged, [0], {0: chains}, loops or [], groups or set())


def test_a_run_that_broke_off_is_never_the_same() -> None:
    first = symptom(PENDING, chain(APART))
    assert agree(first, first)
    assert not agree(first, symptom(PENDING, chain(APART), reason="died"))


def test_pods_must_wait_for_the_same_reason() -> None:
    first = symptom(PENDING, chain(APART), chain(FULL), pods=2)
    assert agree(first, symptom(PENDING, chain(APART)))
    assert agree(first, symptom(PENDING, chain(FULL)))
    assert not agree(symptom(PENDING, chain(APART)), symptom(PENDING, chain(FULL)))
    assert not agree(first, symptom(PENDING, pods=0))
    chosen = because(first, "Insufficient")
    assert agree(chosen, symptom(PENDING, chain(FULL)))
    assert not agree(chosen, symptom(PENDING, chain(APART)))


def test_a_group_that_is_gone_is_another_outcome() -> None:
    expected = {"figure": "nodes.max", "of": {"group": "a"}, "atLeast": 9}
    assert agree(symptom(expected), symptom(expected, nodes=1))
    assert not agree(symptom(expected), symptom(expected, nodes=0))


def test_a_pod_that_waited_too_long_tells_its_steps() -> None:
    expected = {"figure": "pendingSeconds.max", "atMost": "5s"}
    ran = CauseKind.RUNNING
    late = chain("the pod ran after 9 s", "in backoff after failed scale-up", kind=ran)
    soon = chain("the pod ran after 1 s", "3 Insufficient cpu", kind=ran, waited=1)
    found = symptom(expected, late, soon)
    assert found.reasons == (frozenset({frozenset({"in backoff"})}),)


def test_a_wait_that_goes_on_is_too_long_already() -> None:
    late = symptom({"figure": "pendingSeconds.max", "atMost": "5s"}, chain(FULL))
    soon = symptom({"figure": "pendingSeconds.max", "atMost": "500s"}, chain(FULL))
    assert (late.outcomes, soon.outcomes) == (("fails, too high",), ("fails, without rest",))


def test_nodes_are_kept_for_the_same_reason() -> None:
    expected = {"figure": "nodes.final", "of": {"group": "a"}, "equals": 3}
    budget, low = "not enough pod disruption budget to move shop/a-1", "cpu requested (50% of..)"
    others = {"b-abcd-000001": low, "a-b-abcd-000001": low, "a-abcd-000003": low}
    loops = [Loop(1.0, kept={"a-abcd-000001": budget, **others}), Loop(2.0)]
    loops[1].unneeded.add("a-abcd-000003")
    by_budget = symptom(expected, loops=loops)
    other_pod = symptom(
        expected, loops=[Loop(1.0, kept={"a-abcd-000000": budget.replace("a-1", "b-7")})]
    )
    assert agree(by_budget, other_pod)
    assert not agree(by_budget, symptom(expected, loops=[Loop(1.0, kept={"a-abcd-000001": low})]))
    assert not agree(by_budget, symptom(expected))


@pytest.mark.parametrize(
    "expected",
    [
        {"figure": "nodes.max", "of": {"group": "a"}, "atLeast": 9},
        {"event": {"reason": "TriggeredScaleUp"}, "atLeast": 1},
    ],
)
def test_if_no_node_comes_pods_wait_for_the_same_reason(expected: dict[str, Any]) -> None:
    first = symptom(expected, chain(FULL))
    assert agree(first, symptom(expected, chain(FULL)))
    assert not agree(first, symptom(expected, chain(APART)))
    assert not agree(first, symptom(expected, pods=0))


def test_a_choice_stays_a_choice() -> None:
    expected = {"figure": "nodes.max", "of": {"group": "a"}, "equals": 0}
    chosen = symptom(expected, loops=[Loop(1.0, best="a", empty={"c"})], groups={"a", "b", "c"})
    assert agree(chosen, symptom(expected, loops=[Loop(1.0, best="a")], groups={"a", "b"}))
    alone = symptom(expected, loops=[Loop(1.0, best="a", empty={"b"})], groups={"a", "b"})
    assert not agree(chosen, alone)


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (APART, {"anti-affinity"}),
        (f"{APART}; {FULL}; 2 node(s) had untolerated taint", {"anti-affinity"}),
        (f"{FULL}; 2 node(s) didn't match Pod's node affinity/selector", {"Insufficient"}),
        ("didn't match Pod's node affinity/selector", {"node affinity"}),
        ("max node group size reached; 1 Insufficient cpu", {"max node group size reached"}),
        ("nothing", set()),
    ],
)
def test_what_says_little_beside_others_is_left_out(text: str, reasons: set[str]) -> None:
    assert known_reasons(text) == reasons


def test_a_group_that_was_chosen_by_chance_is_not_the_same() -> None:
    expected = {"event": {"reason": "TriggeredScaleUp"}, "atLeast": 1}
    plan = (ScaleUp("b", 0, 1, 3),)

    def of(**waste: float) -> Symptom:
        loop = Loop(1.0, best="b", plan=plan, waste=waste)
        line = EventLine(2.0, "Normal", "TriggeredScaleUp", "Pod/shop/a", "cluster-autoscaler")
        judged = judge(run(line), expect=[expected])
        return symptom_of(judged, [0], {}, [loop])

    chosen, drawn, only = of(a=50.0, b=40.0), of(a=40.0, b=40.0), of(b=40.0)
    assert agree(chosen, only) and not agree(chosen, drawn)
    assert agree(drawn, chosen) and agree(drawn, only)


def followed(lines: list[RecordedLine], *expect: dict[str, Any]) -> TryFollower:
    recording = reader(content(lines, expect=expect))
    follower = TryFollower(recording.header)
    judged(recording, name="recording", followers=(follower,))
    return follower


def test_the_chains_are_those_of_the_recording() -> None:
    lines = run(node(1.0, "a"), pod(2.0, "web-1", created=2.0), pod(3.0, "web-2", created=2.5))
    explainer = Explainer(reader(content(lines)).header)
    chains = [chain for line in lines for chain in explainer.apply(line)]
    assert followed(lines).chains == [*chains, *explainer.finish(lines[-1].t)] != []


def test_the_longest_pause_is_one_that_ended() -> None:
    lines = run(node(1.0, "a"), node(4.0, "a", ready=False), node(5.0, "a"), until=60.0)
    assert followed(lines).pause == 3.0
    assert followed(run(until=60.0)).pause == 0.0


def test_an_event_that_nothing_expects_ends_no_pause() -> None:
    event = EventLine(30.0, "Normal", "RegisteredNode", "Node//a", "node-controller", "a", 1)
    lines = run(node(1.0, "a"), event)
    assert followed(lines, PENDING).pause == 1.0
    assert followed(lines, {"event": {"reason": "RegisteredNode"}, "equals": 1}).pause == 29.0
