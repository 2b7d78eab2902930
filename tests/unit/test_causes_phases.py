"""The phases of a pod's start."""

import math
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.causes.phases import PHASES, split
from kwok_operator.rehearsal.judge.figures import FigureScope
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import (
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedLine,
)
from tests.fakes.rehearsed import gone, judge, node, pod, reading, run
from tests.randomrecording import random_recording

MOMENT = st.integers(-100, 100)
MAYBE = st.none() | MOMENT


@given(created=MOMENT, requested=MAYBE, usable=MAYBE, bound=MAYBE, running=MOMENT)
def test_the_phases_of_what_runs_add_up(
    created: int, requested: int | None, usable: int | None, bound: int | None, running: int
) -> None:
    found = split(created=created, requested=requested, usable=usable, bound=bound, running=running)
    assert len(found) == len(PHASES)
    assert sum(found) == max(running - created, 0)
    assert min(found) >= 0


@given(seed=st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_the_phases_of_every_pod_of_a_recording_add_up(seed: int) -> None:
    ledger = ClusterLedger()
    for line in random_recording(seed):
        ledger.apply(line)
        for each in ledger.pods.live.values():
            if each.starting is not None and each.starting.seconds is not None:
                assert len(each.phases) == len(PHASES)
                assert math.fsum(each.phases) == pytest.approx(each.starting.seconds, abs=1e-9)
                assert min(each.phases) >= 0


def phases(lines: list[RecordedLine], which: str = "max", **of: str) -> list[float | None]:
    scope = FigureScope(**of)
    ledger = ClusterLedger([scope])
    for line in lines:
        ledger.apply(line)
    return [reading(ledger.tally(scope), f"{n}.{which}", ledger.now).value for n in PHASES]


RAN: dict[str, Any] = {"created": 10, "bound": 70, "running": 75, "phase": "Running", "node": "n"}
WAITED: list[RecordedLine] = [
    pod(10, "web-1", created=10),
    node(50, "n", created=50, requested=30, ready=False),
    node(60, "n", created=50, requested=30),
    pod(75, "web-1", **RAN),
]


def test_a_pod_waits_for_a_decision_a_boot_the_scheduler_and_its_start() -> None:
    assert phases(run(*WAITED)) == [20, 30, 10, 5]
    assert phases(run(*WAITED), group="a") == [20, 30, 10, 5]
    assert judge(run(*WAITED)).workloads["Deployment/default/web"]["wait.boot.p50"] == 30


CLAIM = NodeClaimLine(64, "c", NodeClaimState(20, node="n", registered=64))
OTHERS = NodeClaimLine(1, "b", NodeClaimState(0, node="n"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([node(5, "n", created=5)], [0, 0, 60, 5]),
        ([node(0.5, "n", created=-50)], [0, 0, 60, 5]),
        ([], [0, 0, 60, 5]),
        ([node(72, "n", created=71)], [60, 0, 0, 5]),
        ([node(60, "n", created=40, ready=False)], [30, 30, 0, 5]),
        ([node(60, "n", created=40), CLAIM], [10, 40, 10, 5]),
        ([node(60, "n", created=40, requested=30), CLAIM], [20, 30, 10, 5]),
        (
            [CLAIM, node(2, "n", created=2), gone(9, "n"), node(60, "n", created=40)],
            [10, 40, 10, 5],
        ),
        ([OTHERS, gone(9, "n"), node(60, "n")], [50, 0, 10, 5]),
    ],
    ids=[
        "there before",
        "there before the run",
        "not shown",
        "created later",
        "never ready",
        "its NodeClaim",
        "its own request",
        "there again",
        "the NodeClaim of another",
    ],
)
def test_the_node_of_a_pod(lines: list[RecordedLine], expected: list[float]) -> None:
    assert phases(run(WAITED[0], WAITED[-1], *lines)) == expected


def test_the_order_of_the_lines_of_a_moment_makes_no_difference() -> None:
    node_line, claim = node(75, "n", created=50, requested=30), replace(CLAIM, t=75)
    for order in permutations([node_line, WAITED[-1], claim]):
        assert phases(run(WAITED[0], *order)) == [20, 40, 0, 5]


def test_what_a_pod_waits_for_is_known_in_part_until_it_runs() -> None:
    at_60 = run(*WAITED[:3], until=60)
    assert phases(at_60) == [0, 0, 0, 0]
    bound = pod(70, "web-1", created=10, bound=70, node="n")
    assert phases(run(*WAITED[:3], bound, until=73)) == [20, 30, 10, 3]
    missing = [
        [name for name in PHASES if f"{name}.max" in judge(lines).incomplete]
        for lines in (at_60, run(*WAITED[:3], bound), run(*WAITED))
    ]
    assert missing == [[*PHASES], ["wait.start"], []]
    expect = [{"figure": f"{name}.max", "atMost": "10m"} for name in PHASES]
    assert not any(each.held for each in judge(at_60, expect=expect).outcomes)


def test_a_pod_that_never_ran_has_waited_for_its_node_all_the_same() -> None:
    bound = pod(70, "web-1", created=10, bound=70, node="n")
    failed = run(*WAITED[:3], bound, PodLine(80, "default/web-1", None))
    assert phases(failed) == [20, 30, 10, None]
    unserved = run(WAITED[0], PodLine(80, "default/web-1", None))
    assert phases(unserved) == [None] * 4
