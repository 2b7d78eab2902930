"""A failed expectation names its objects."""

from typing import Any

import pytest

from kwok_operator.rehearsal.judge.recording import (
    EventLine,
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedLine,
)
from kwok_operator.rehearsal.judge.verdict import junit_xml, summary, verdict_json
from tests.fakes.rehearsed import budget, gone, job, judge, node, pod, run

TAINT: dict[str, Any] = {"phase": "Running", "disrupted": "DeletionByTaintManager"}
WEB, A = {"workload": "web"}, {"group": "a"}
LINES = run(
    node(1, "n-1"),
    node(1, "n-2", group="b", ready=False),
    node(2, "n-3", group="b"),
    gone(9, "n-3"),
    pod(10, "web-1", created=10),
    pod(10, "web-2", created=10),
    pod(20, "web-1", created=10, bound=20, node="n-1"),
    pod(25, "web-1", created=10, bound=20, running=25, node="n-1", phase="Running"),
    pod(30, "job-1", created=30),
    PodLine(31, "default/job-1", None),
    pod(35, "other-1", created=35),
    budget(40, "b", 0),
    budget(40, "c", 1),
    *(pod(50 + n, f"old-{n}", created=1, node="n-1", budgets=("b", "c"), **TAINT) for n in (0, 1)),
    job(60, "Job/default/j", created=60, wanted=1),
    NodeClaimLine(61, "claim", NodeClaimState(61)),
    EventLine(62, "Warning", "Late", "Pod/default/web-2", "ca", "it is late"),
)


def reason(expect: dict[str, Any], lines: list[RecordedLine] = LINES) -> str:
    (found,) = judge(lines, expect=[expect]).outcomes
    assert not found.held
    return found.reason


@pytest.mark.parametrize(
    ("expect", "objects"),
    [
        ({"figure": "pods.pending", "equals": 0}, "pending: default/other-1, default/web-2"),
        ({"figure": "pods.running", "of": WEB, "equals": 2}, "pending: default/web-2"),
        ({"figure": "nodes.final", "of": A, "atMost": 0}, "there: n-1"),
        ({"figure": "nodes.ready", "atLeast": 2}, "not ready: n-2"),
        ({"figure": "nodeClaims.underWay", "equals": 0}, "under way: claim"),
        (
            {"figure": "pendingSeconds.max", "of": WEB, "atMost": "5s"},
            "still wait: default/web-2; the longest: default/web-1 (10 s)",
        ),
        (
            {"figure": "startSeconds.max", "of": A, "atMost": "1m"},
            "still wait: default/old-0, default/old-1, default/other-1, default/web-2; "
            "never end: default/job-1",
        ),
        (
            {"figure": "wait.scheduling.p50", "of": WEB, "atMost": "5s"},
            "still wait: default/web-2; the longest: default/web-1 (10 s)",
        ),
        (
            {"figure": "gangs.completionSeconds.max", "atMost": "1h"},
            "still wait: Job/default/j",
        ),
        ({"figure": "pods.unserved", "equals": 0}, "the last: default/job-1 at 31.0 s"),
        ({"figure": "churn.deleted", "of": {"group": "b"}, "equals": 0}, "the last: n-3 at 9.0 s"),
        (
            {"figure": "evictions", "atMost": 1},
            "the last: default/old-1 at 51.0 s (DeletionByTaintManager), "
            "default/old-0 at 50.0 s (DeletionByTaintManager)",
        ),
        (
            {"figure": "disruptions.beyondBudget", "equals": 0},
            "the last: default/b, default/c by the eviction of default/old-1 at 51.0 s"
            " (DeletionByTaintManager), default/b by the eviction of default/old-0 at 50.0 s"
            " (DeletionByTaintManager)",
        ),
        ({"event": {"reason": "Late"}, "atMost": 0}, "the last: Pod/default/web-2 at 62.0 s"),
        (
            {"event": {"reason": "Late", "message": "on time"}, "atLeast": 1},
            "instead: Pod/default/web-2 at 62.0 s: it is late",
        ),
    ],
    ids=lambda value: str(value.get("figure", "event")) if isinstance(value, dict) else "",
)
def test_a_failed_expectation_names_its_objects(expect: dict[str, Any], objects: str) -> None:
    assert reason(expect).endswith(f"; {objects}")


@pytest.mark.parametrize(
    "expect",
    [
        {"figure": "pods.running", "equals": 0},
        {"figure": "pods.pending.max", "equals": 0},
        {"figure": "pods.pending", "atLeast": 9},
        {"figure": "evictions", "atLeast": 9},
        {"figure": "nodeHours", "atMost": 0},
    ],
    ids=str,
)
def test_what_is_no_object_of_it_is_not_named(expect: dict[str, Any]) -> None:
    assert "; " not in reason(expect)


def test_objects_are_those_of_the_moment_when_it_was_judged() -> None:
    pending = {"figure": "pods.pending", "of": WEB, "atMost": 1}
    always = reason({**pending, "when": "always"})
    assert always.endswith(" at 10 s, wanted at most 1; pending: default/web-1, default/web-2")
    at_15 = reason({**pending, "atMost": 0, "when": {"at": "15s"}})
    assert at_15.endswith("; pending: default/web-1, default/web-2")


def test_a_wait_that_belongs_to_another_group_by_now_is_not_named() -> None:
    waited = [
        pod(1, f"web-{n}", created=1, bound=1 + 10 * n, node=f"n-{n}", phase="Running", running=30)
        for n in (1, 2)
    ]
    lines = run(node(0, "n-1"), node(0, "n-2"), *waited, node(50, "n-2", group="b"))
    found = reason({"figure": "pendingSeconds.max", "of": A, "atMost": "5s"}, lines)
    assert found.endswith("; the longest: default/web-1 (10 s)")


def test_of_many_objects_a_few_are_named_whatever_they_are_called() -> None:
    hostile = "<script>\x1b[2J\n" + "x" * 9_000
    many = [PodLine(1, f"default/{n}{hostile}", pod(1, "a-1", created=1).state) for n in range(99)]
    ended = [PodLine(2, line.name, None) for line in many]
    pending = {"figure": "pods.pending", "equals": 0}
    waits = {"figure": "pendingSeconds.max", "atMost": "1m"}
    unserved = {"figure": "pods.unserved", "equals": 0}
    for lines, expect in (
        (run(*many), [pending, waits]),
        (run(*many, *ended), [unserved, waits]),
    ):
        found = judge(lines, expect=expect)
        for each in found.outcomes:
            assert each.reason.endswith(" and 94 more") and len(each.reason) < 3_000
        assert [each["reason"] for each in verdict_json(found)["expectations"]] == [
            each.reason for each in found.outcomes
        ]
        assert "and 94 more" in junit_xml(found)
        shown = [*summary(found)]
        assert sum("and 94 more" in line for line in shown) == 2
        assert not any("\x1b" in line or "\n" in line for line in shown)
