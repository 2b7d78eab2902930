"""The figures of nodes and objects: each is what it should be in one recording, and an expectation
that wants another value fails; with those of pods and warnings these are all that there are."""

from dataclasses import replace
from typing import Any

import pytest

from kwok_operator.cloud.states import State
from kwok_operator.cloud.summary import COUNTED, instance_counts
from kwok_operator.rehearsal.judge import observed
from kwok_operator.rehearsal.judge.figures import DISRUPTIONS, FIGURES
from kwok_operator.rehearsal.judge.recording import (
    EventLine,
    GroupLine,
    JobLine,
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedTopology,
)
from tests.fakes.rehearsed import ALLOCATABLE, budget, gone, judge, node, pod, run
from tests.fakes.rehearsed import job as job_line

OTHERS = ("pods.", "pendingSeconds", "startSeconds", "wait.")
OTHER_COUNTS = {"evictions", "preemptions", "losses", "restarts", "warnings"}
STATES = list(COUNTED.values())


def group(t: float, counts: dict[State, int]) -> GroupLine:
    counted = instance_counts(counts).dump()
    return GroupLine(t, "a", observed.group({"status": {"cloud": {"counts": counted}}}))


def job(t: float, name: str, **state: Any) -> JobLine:
    return job_line(t, f"Job/default/{name}", wanted=1, **state)


def jobs() -> list[JobLine]:
    """Of ten, ten seconds, twenty, and so on; one more fails."""
    done = [job(10.0 * n, f"j-{n}", created=0, succeeded=1) for n in range(1, 11)]
    begun = [job(0, f"j-{n}", created=0) for n in range(1, 11)]
    return [*begun, *done]


def claims() -> list[NodeClaimLine]:
    """One waits, one ends before it registers; of five that have registered, one stays."""
    there = NodeClaimState(3, launched=3, registered=3)
    ended = [replace(there, reason=reason, deleting=True) for reason in DISRUPTIONS]
    return [
        NodeClaimLine(1, "waits", NodeClaimState(1)),
        NodeClaimLine(1, "never", NodeClaimState(1)),
        NodeClaimLine(2, "never", None),
        *(NodeClaimLine(3, reason, there) for reason in (*DISRUPTIONS, "stays")),
        *(NodeClaimLine(4, claim.reason, claim) for claim in ended),
        *(NodeClaimLine(5, reason, None) for reason in DISRUPTIONS),
    ]


NODES = run(
    # two at a time, of which one is replaced; one pod uses all of one
    node(0, "n-1", price=2.0),
    node(0, "n-2", price=2.0, created=-9.0, schedulable=False),
    node(36, "n-2", price=2.0, created=-9.0, ready=False, deleting=True),
    gone(72, "n-2"),
    node(72, "n-3", price=2.0),
    pod(0, "web-1", created=0, bound=0, node="n-1", requests=ALLOCATABLE, phase="Running"),
    group(1, {state: 2 + n for n, state in enumerate(STATES)}),
    group(2, {state: 1 + n for n, state in enumerate(STATES)}),
    budget(1, "b", 0),
    pod(
        80,
        "web-2",
        created=70,
        node="n-3",
        requests={},
        phase="Running",
        budgets=("b",),
        disrupted="DeletionByTaintManager",
    ),
    *claims(),
    EventLine(3, "Normal", "X", "Pod/default/p", count=3),
    *jobs(),
    until=144,
)
FAILED = run(job(0, "f"), job(5, "f", done="Failed"))
GPUS = ALLOCATABLE | {"nvidia.com/gpu": 8.0}


def member(t: float, name: str, on: str = "", **state: Any) -> PodLine:
    """Of a gang of two pods, each with half of a node's GPUs."""
    told = {"gang": "PodGroup/default/g", "least": 2, "requests": {"nvidia.com/gpu": 4.0}}
    phase = "Running" if on else "Pending"
    return pod(t, name, node=on, **{"phase": phase, "created": 0, **told, **state})


GANG = run(
    *(node(0, f"n-{n}", topology=("b", rack), allocatable=GPUS) for n, rack in enumerate("rs")),
    member(0, "w-0", "n-0"),
    member(0, "w-1"),
    member(30, "w-1", "n-1"),
    gone(50, "n-1"),
    node(60, "n-2", topology=("b", "s"), allocatable=GPUS),
    member(60, "w-2", "n-2", created=50),
)
OF_GANGS: dict[str, float] = {
    **{f"gangs.waitingSeconds.{name}": 30 for name in ("max", "p95", "p99")},
    "gangs.waitingSeconds.p50": 10,
    "gangs.waitingSeconds.mean": 20,
    "gangs.broken": 1,
    **{f"gangs.crossRack{end}": 0.5 for end in ("", ".max", ".final")},
    **{f"racks.total{end}": 2 for end in ("", ".max", ".final")},
    **{f"racks.free{end}": n for end, n in (("", 0), (".max", 2), (".final", 0))},
    **{
        f"largestGang.{of}{end}": n
        for of, most in (("rack", 1), ("block", 2), ("cluster", 2))
        for end, n in (("", 0), (".max", most), (".final", 0))
    },
    "utilisation.gpu": 0.421053,
    "utilisation.gpu.max": 0.5,
    "utilisation.gpu.final": 0.5,
}
LEVELS = {"total": (2, 2), "ready": (2, 2), "notReady": (0, 1), "cordoned": (0, 1)}
LEVELS |= {"deleting": (0, 1)}
CLAIMS = {"underWay": (1, 2), "launched": (1, 5), "registered": (1, 5)}
VALUES = {
    **{f"nodes.{name}{end}": now for name, (now, _) in LEVELS.items() for end in ("", ".final")},
    **{f"nodes.{name}.max": most for name, (_, most) in LEVELS.items()},
    **{
        f"instances.{state}{end}": 1 + n for n, state in enumerate(STATES) for end in ("", ".final")
    },
    **{f"instances.{state}.max": 2 + n for n, state in enumerate(STATES)},
    **{f"nodeClaims.{name}{end}": n for name, (n, _) in CLAIMS.items() for end in ("", ".final")},
    **{f"nodeClaims.{name}.max": most for name, (_, most) in CLAIMS.items()},
    "nodeClaims.neverRegistered": 1,
    **{f"disruptions.{reason}": 1 for reason in DISRUPTIONS},
    "nodes.max": 2,
    "nodes.final": 2,
    "nodeHours": 0.08,
    "cost": 0.16,
    **{f"utilisation.{name}{end}": 0.5 for name in ("cpu", "memory") for end in ("", ".max")},
    **{f"utilisation.{name}.final": 0.5 for name in ("cpu", "memory")},
    "churn.created": 2,
    "churn.deleted": 1,
    "churn.replacedSameShape": 1,
    "disruptions.beyondBudget": 1,
    "events": 3,
    **{f"gangs.completionSeconds.{name}": 100 for name in ("max", "p95", "p99")},
    "gangs.completionSeconds.p50": 50,
    "gangs.completionSeconds.mean": 55,
}


def unexpected(lines: list[Any], values: dict[str, float], **header: Any) -> list[str]:
    """What holds of what is one too many, or doesn't of what is right."""
    expect = [
        {"figure": name, "equals": value + off} for name, value in values.items() for off in (0, 1)
    ]
    outcomes = judge(lines, expect=expect, **header).outcomes
    wanted = [True, False] * len(values)
    return [str(each) for each, held in zip(outcomes, wanted, strict=True) if each.held != held]


def test_each_has_its_value_and_an_expectation_of_another_fails() -> None:
    there = {name for name in FIGURES if not name.startswith(OTHERS)} - OTHER_COUNTS
    assert VALUES.keys() | {"gangs.unfinished"} | OF_GANGS.keys() == there
    assert unexpected(NODES, VALUES) == []
    assert unexpected(FAILED, {"gangs.unfinished": 1}) == []
    assert unexpected(GANG, OF_GANGS, topology=RecordedTopology(("a/block", "a/rack"))) == []


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(
            [member(5, "w-0", "n-0", phase="Succeeded"), member(6, "w-1", "n-0")],
            id="one after the other",
        ),
        pytest.param(
            [
                member(5, "w-0", "n-0", phase="Succeeded"),
                PodLine(6, "default/w-0", None),
                member(7, "w-0", "n-0"),
            ],
            id="made again",
        ),
        pytest.param(
            [
                member(5, "w-0", "n-0", gang="PodGroup/default/other", least=1),
                member(6, "w-1", "n-0"),
            ],
            id="of another gang by now",
        ),
    ],
)
def test_a_gang_that_never_ran_whole_waits(later: list[PodLine]) -> None:
    lines = run(node(0, "n-0"), member(0, "w-0", "n-0"), *later, until=20)
    expect = [{"figure": "gangs.waitingSeconds.max", "atMost": 100}]
    (outcome,) = judge(lines, expect=expect, topology=RecordedTopology(("a/rack",))).outcomes
    assert not outcome.held


def test_a_pod_that_is_made_again_after_it_succeeded_counts_once() -> None:
    lines = run(
        *(member(0, f"w-{n}", "n-0") for n in range(2)),
        member(5, "w-0", "n-0", phase="Succeeded"),
        PodLine(6, "default/w-0", None),
        member(7, "w-0", "n-0"),
        member(8, "w-1", "n-0", phase="Failed"),
    )
    assert judge(lines).figures["gangs.broken"] == 1
