"""The figures of a rehearsal."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cloud.states import State
from kwok_operator.cloud.summary import instance_counts
from kwok_operator.rehearsal.judge import observed
from kwok_operator.rehearsal.judge.figures import FigureScope
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.podledger import scheduling_reasons
from kwok_operator.rehearsal.judge.recording import (
    EventLine,
    GroupLine,
    JobLine,
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedLine,
)
from tests.fakes.rehearsed import budget, gone, judge, node, pod, random_run, reading, run
from tests.fakes.rehearsed import job as job_line


def tallied(lines: list[RecordedLine], *scopes: FigureScope) -> ClusterLedger:
    ledger = ClusterLedger(scopes)
    for line in lines:
        ledger.apply(line)
    return ledger


def figure(lines: list[RecordedLine], name: str, scope: FigureScope | None = None) -> float | None:
    scope = scope or FigureScope()
    ledger = tallied(lines, scope)
    return reading(ledger.tally(scope), name, ledger.now).value


@given(seed=st.integers(0, 10**9))
@settings(max_examples=15, deadline=None)
def test_groups_and_workloads_add_up(seed: int) -> None:
    found = judge(random_run(seed))
    for parts, names in (
        (found.groups, ("nodeHours", "cost", "churn.created", "nodes.total")),
        (found.workloads, ("pods.pending", "pods.running", "pods.gone", "restarts")),
    ):
        for name in names:
            parted = sum(figures.get(name) or 0 for figures in parts.values())
            assert parted == pytest.approx(found.figures[name] or 0, abs=1e-5)


def test_a_pod_belongs_to_its_node_whichever_line_comes_first() -> None:
    bound = pod(5, "web-1", created=1, bound=4, running=5, phase="Running", node="n")
    for at in (2, 5, 9):
        lines = run(node(at, "n", "a", zone="x"), pod(1, "web-1", created=1), bound)
        found = {
            name: figure(lines, name, FigureScope(group="a", zone="x"))
            for name in ("pods.running", "pendingSeconds.max", "startSeconds.max")
        }
        assert found == {"pods.running": 1, "pendingSeconds.max": 3, "startSeconds.max": 4}
        assert figure(lines, "utilisation.cpu.final") == 0.25


def test_what_still_waits_counts_with_what_it_has_waited() -> None:
    lines = run(
        pod(10, "web-1", created=10, bound=12, node="n"),
        pod(10, "web-2", created=10),
        pod(20, "web-3", created=20),
        PodLine(50, "default/web-3", None),
        until=110,
    )
    assert figure(lines, "pendingSeconds.max") == 100
    assert figure(lines, "pendingSeconds.p50") == 2  # web-3 went without ever being bound
    assert figure(lines, "pendingSeconds.mean") == 51
    assert figure(lines, "pods.unserved") == 1


def test_what_waits_when_the_run_begins_has_waited_since_then() -> None:
    lines = run(
        pod(0.2, "web-1", created=-7, bound=-3, node="n"),  # bound before
        pod(0.2, "web-2", created=-7),
        pod(30, "web-2", created=-7, bound=30, running=31, phase="Running", node="n"),
        pod(0.2, "web-3", created=-7),
        until=110,
    )
    assert figure(lines, "pendingSeconds.max") == 110
    assert figure(lines, "pendingSeconds.p50") == 30
    assert figure(lines, "startSeconds.p50") == 110


def test_without_anything_to_measure_a_figure_is_nothing() -> None:
    lines = run(node(1, "n", price=None))
    for name in ("cost", "pendingSeconds.p95", "gangs.completionSeconds.max"):
        assert figure(lines, name) is None
    assert figure(run(), "utilisation.cpu") is None
    assert figure(lines, "utilisation.cpu") == 0


def test_replacements_by_the_same_shape_are_counted_apart() -> None:
    lines = run(
        node(1, "n-1", created=-100),
        node(1, "n-2"),
        node(1, "n-3"),
        gone(10, "n-1"),
        gone(10, "n-2"),
        node(20, "n-4"),  # in the place of n-1
        node(21, "n-5", shape="other"),
        node(22, "n-6", group="b"),
        gone(30, "n-3"),
        node(900, "n-7"),  # too late for n-2 and n-3
        until=1000,
    )
    assert figure(lines, "churn.created") == 6
    assert figure(lines, "churn.deleted") == 3
    assert figure(lines, "churn.replacedSameShape") == 1
    assert figure(lines, "churn.created", FigureScope(group="b")) == 1


def test_karpenter_replaces_a_node_before_it_ends_it() -> None:
    claim = NodeClaimState(1, node="n-1", registered=1, reason="Drifted")
    lines = run(
        node(1, "n-1"),
        node(2, "n-2"),  # nothing leaves yet
        NodeClaimLine(10, "c-1", claim),
        node(20, "n-3", shape="other"),
        node(20, "n-4", zone="x"),
        node(21, "n-5"),  # n-1 is replaced once
        NodeClaimLine(30, "c-1", None),
        gone(30, "n-1"),
        node(31, "n-6"),
    )
    for until, count in ((21, 0), (30, 1), (100, 1)):
        there = [line for line in lines if line.t <= until]
        assert figure(there, "churn.replacedSameShape") == count
    assert figure(lines, "churn.replacedSameShape", FigureScope(zone="x")) == 1


def test_a_disruption_that_karpenter_gives_up_replaces_nothing() -> None:
    stays = NodeClaimState(1, node="n-1", registered=1)
    lines = run(
        node(1, "n-1"),
        NodeClaimLine(10, "c-1", replace(stays, reason="Underutilized")),
        node(20, "n-2"),
        NodeClaimLine(30, "c-1", stays),
        gone(40, "n-1"),
    )
    assert figure(lines, "churn.replacedSameShape") == 0


def covered(t: float, name: str, *budgets: str, **state: Any) -> PodLine:
    """A pod that a taint evicts, and the budgets that cover it."""
    told = {"disrupted": "DeletionByTaintManager", "phase": "Running", "created": 1.0, **state}
    return pod(t, name, budgets=budgets, **told)


def test_what_a_taint_evicts_is_beyond_a_budget_that_allows_no_more() -> None:
    evicted = [covered(3 + n, f"web-{n}", "b") for n in range(5)]
    lines = run(budget(1, "b", 1), *evicted)
    assert figure(lines, "disruptions.beyondBudget") == 4
    assert figure(lines, "disruptions.beyondBudget", FigureScope(namespace="default")) == 4
    assert figure(lines, "disruptions.beyondBudget", FigureScope(namespace="other")) == 0
    assert figure(run(*lines[:-1], budget(4.5, "b", 9)), "disruptions.beyondBudget") == 1


API = {"disrupted": "EvictionByEvictionAPI"}


@pytest.mark.parametrize(
    ("lines", "beyond"),
    [
        ([budget(3, "b", 0), covered(3.9, "web-1", "b")], 0),
        ([budget(3, "b", 0), covered(4.1, "web-1", "b")], 1),
        ([budget(3, "b", 0), covered(3.1, "web-1", "b"), covered(3.2, "web-2", "b")], 1),
        ([budget(3, "b", 0), covered(3.1, "web-1", "b", **API), covered(3.2, "web-2", "b")], 1),
        ([covered(3, "web-1", "b", **API), budget(3.1, "b", 0), covered(3.2, "web-2", "b")], 1),
        ([covered(3, "web-1", "b"), budget(3.1, "b", 0), covered(3.2, "web-2", "b")], 1),
    ],
    ids=["before", "long before", "one", "of the API", "API first", "after"],
)
def test_the_decrease_of_a_budget_may_be_seen_before_its_eviction(
    lines: list[RecordedLine], beyond: int
) -> None:
    assert figure(run(budget(1, "b", 1), *lines), "disruptions.beyondBudget") == beyond


def test_an_increase_of_a_budget_undoes_only_the_decreases_before_it() -> None:
    evicted = [covered(3.1 + n / 10, f"web-{n}", "b") for n in range(2)]
    up_down = [budget(1, "b", 0), budget(2.8, "b", 1), budget(3, "b", 0)]
    assert figure(run(*up_down, *evicted), "disruptions.beyondBudget") == 1
    down_up = [budget(1, "b", 1), budget(2.8, "b", 0), budget(3, "b", 1)]
    assert figure(run(*down_up, *evicted), "disruptions.beyondBudget") == 1
    down_up_down = [*down_up, budget(3.05, "b", 0)]
    assert figure(run(*down_up_down, *evicted), "disruptions.beyondBudget") == 1


def test_a_budget_reports_late_that_two_were_evicted() -> None:
    evicted = [covered(3 + n / 10, f"web-{n}", "b") for n in range(4)]
    late = [budget(3.15, "b", 2), budget(3.16, "b", 1)]
    lines = run(budget(1, "b", 3), *evicted, *late)
    assert figure(lines, "disruptions.beyondBudget") == 1


def test_of_several_budgets_each_is_used_up_and_a_pod_counts_once() -> None:
    lines = run(
        budget(1, "b", 0),
        budget(1, "c", 2),
        covered(2, "web-1", "b", "c"),
        covered(3, "web-1", "b", "c", deleting=True),
        covered(4, "web-2", "c"),
        covered(5, "web-3", "c"),
        covered(6, "web-4", "unknown"),
    )
    assert figure(lines, "disruptions.beyondBudget") == 2  # web-1 by b, web-3 by c


@pytest.mark.parametrize(
    "lines",
    [
        # ten replicas become five, under minAvailable 9
        [budget(1, "b", 1, 10), *(budget(2 + n, "b", 0, 9 - n) for n in range(5))],
        # a pod that is not ready, five times
        [budget(1 + n, "b", 0 if n % 2 else 1, 8 if n % 2 else 9) for n in range(10)],
        # by the eviction API, in favour of others, and with its node
        [budget(1, "b", 0), covered(2, "web-1", "b", disrupted="EvictionByEvictionAPI")],
        [budget(1, "b", 0), covered(2, "web-1", "b", disrupted="PreemptionByScheduler")],
        [budget(1, "b", 0), covered(2, "web-1", "b", disrupted="DeletionByPodGC")],
        # before the run
        [budget(0, "b", 0), covered(0, "web-1", "b", created=-9.0)],
    ],
)
def test_what_no_taint_evicted_is_not_beyond_a_budget(lines: list[RecordedLine]) -> None:
    assert figure(run(*lines), "disruptions.beyondBudget") == 0


def job(t: float, name: str, succeeded: int = 0, done: str = "", **state: Any) -> JobLine:
    told = {"wanted": 3, "succeeded": succeeded, "done": done, **state}
    return job_line(t, f"Job/ns/{name}", **told)


def no_job(t: float, name: str) -> JobLine:
    return JobLine(t, f"Job/ns/{name}", None)


@pytest.mark.parametrize(
    ("lines", "seconds", "unfinished"),
    [
        ([job(10, "a"), job(25, "a", 2), job(40, "a", 3), job(41, "a", 3, "Complete")], 30, 0),
        # a work queue is done when it says so, not with its first success
        ([job(0, "q", wanted=0), job(9, "q", 1, wanted=0), job(100, "q", 4, "Complete")], 100, 0),
        ([job(0, "a"), no_job(5, "a")], None, 1),
        (
            [job(0, "a"), job(5, "a", 1, "Failed"), job(6, "a", 1, "Failed"), no_job(7, "a")],
            None,
            1,
        ),
        ([job(0, "a"), job(5, "a", 3), no_job(6, "a")], 5, 0),
        # before the run: complete or failed, or only begun
        ([job(0, "a", 3, "Complete", created=-3600.0), no_job(5, "a")], None, 0),
        ([job(0, "a", 1, "Failed", created=-3600.0), no_job(5, "a")], None, 0),
        ([job(0, "a", created=-3600.0), job(7, "a", 3, created=-3600.0)], 7, 0),
        ([job(0, "a", created=-3600.0), no_job(5, "a")], None, 1),
        # made again
        ([job(0, "a"), job(5, "a", 3), no_job(6, "a"), job(20, "a"), job(60, "a", 3)], 40, 0),
    ],
)
def test_a_gang_is_complete_when_all_of_it_has_succeeded(
    lines: list[RecordedLine], seconds: float | None, unfinished: int
) -> None:
    found = run(*lines)
    assert figure(found, "gangs.completionSeconds.max") == seconds
    assert figure(found, "gangs.unfinished") == unfinished
    assert figure(found, "gangs.unfinished", FigureScope(workload="b")) == 0


@pytest.mark.parametrize(
    ("lines", "cost", "unpriced", "hours"),
    [
        # one of ten has a price
        ([node(0, f"n-{n}", price=None if n else 1.0) for n in range(10)], 1, 9, 10),
        # its group is deleted
        ([node(0, "n", price=1.0), node(1800, "n", price=None), gone(2700, "n")], 0.75, 0, 0.75),
        # its group is made again, later
        ([node(0, "n", price=1.0), node(2, "n", price=None), node(1800, "n", price=3.0)], 2, 0, 1),
        # the price comes late, in another zone
        ([node(0, "n"), node(900, "n", zone="z"), node(1800, "n", zone="z", price=2.0)], 2, 0, 1),
        # a price for no time, and none for an hour
        ([node(0, "n"), node(3600, "m", price=2.0)], 0, 1, 1),
        # it never comes
        ([node(0, "n"), gone(900, "n"), node(1800, "n", price=2.0)], 1, 0.25, 0.75),
    ],
)
def test_a_node_keeps_its_last_price_and_has_its_first_one_from_the_beginning(
    lines: list[RecordedLine], cost: float | None, unpriced: float, hours: float
) -> None:
    found = run(*lines, until=3600)
    assert figure(found, "cost") == pytest.approx(cost)
    said = reading(tallied(found).all, "cost", 3600).incomplete
    assert said == (f"{unpriced} of {hours} node-hours have no price" if unpriced else "")


def test_a_node_costs_where_it_was() -> None:
    moved = node(900, "n", "b", zone="z", price=2.0)
    lines = run(node(0, "n", zone="y"), moved, until=3600)
    for scope in (FigureScope(group="a"), FigureScope(zone="y")):
        assert figure(lines, "cost", scope) == 0.5
    assert figure(lines, "cost", FigureScope(group="b", zone="z")) == 1.5


def test_utilisation_is_what_was_used_over_what_was_offered() -> None:
    told: dict[str, Any] = {"created": 0.0, "bound": 0.0, "phase": "Running"}
    lines = run(
        node(0, "n-1"),
        pod(0, "web-1", node="n-1", requests={"cpu": 4_000.0}, **told),
        *(node(99, f"n-{n}") for n in range(2, 101)),
        until=100,
    )
    assert figure(lines, "utilisation.cpu") == pytest.approx(100 / (99 + 100), abs=1e-6)
    assert figure(lines, "utilisation.cpu.max") == 1
    assert figure(lines, "utilisation.cpu.final") == 0.01


def test_evictions_and_restarts_are_counted_once() -> None:
    told: dict[str, Any] = {"created": 1, "bound": 1, "node": "n", "phase": "Running"}
    evicted = {**told, "disrupted": "EvictionByEvictionAPI"}
    lines = run(
        pod(1, "web-1", **told),
        pod(2, "web-1", **told, restarts=2),
        pod(3, "web-1", **evicted, restarts=3),
        pod(4, "web-1", **evicted, restarts=3, deleting=True),
        pod(5, "web-2", **told, disrupted="PreemptionByScheduler"),
        pod(6, "web-2", **evicted),
    )
    assert figure(lines, "evictions") == 1
    assert figure(lines, "preemptions") == 1
    assert figure(lines, "restarts") == 3


def reported(t: float, name: str, **states: int) -> GroupLine:
    """A group whose status the operator has written."""
    counts = instance_counts({State(state): count for state, count in states.items()})
    return GroupLine(t, name, observed.group({"status": {"cloud": {"counts": counts.dump()}}}))


def test_instances_are_counted_by_state() -> None:
    lines = run(
        reported(1, "a", Creating=4, Due=1, NotReady=1),
        reported(2, "b", Creating=1),
        reported(3, "a", Ready=5, Failed=1),
        EventLine(4, reason="X", about="Pod/ns/p", count=3),
        EventLine(5, reason="X", about="Node//n"),
    )
    assert figure(lines, "instances.Creating.max") == 6
    assert figure(lines, "instances.NotReady.max") == 1
    assert figure(lines, "instances.Creating", FigureScope(group="a")) == 0
    assert figure(lines, "instances.Failed", FigureScope(group="a")) == 1
    assert figure(lines, "events") == 4
    assert figure(lines, "events", FigureScope(namespace="ns")) == 3


@pytest.mark.parametrize(
    ("wanted", "told", "holds"),
    [
        ("web", "Deployment/ns/web", True),
        ("deployment/web", "Deployment/ns/web", True),
        ("Deployment/ns/web", "Deployment/ns/web", True),
        ("we", "Deployment/ns/web", False),
        ("job/web", "Deployment/ns/web", False),
        ("Deployment/other/web", "Deployment/ns/web", False),
    ],
)
def test_a_workload_has_three_names(wanted: str, told: str, holds: bool) -> None:
    line = PodLine(1, "ns/p", pod(1, "p", created=1, workload=told).state)
    assert figure(run(line), "pods.pending", FigureScope(workload=wanted)) == holds


def test_a_workload_has_the_pods_and_jobs_that_were_made_for_it_and_no_others() -> None:
    owners = {"queue-0000": "queue", "queue-0001": "queue", "queue-2024": ""}
    lines = [
        line
        for name, rehearsed in owners.items()
        for line in (
            pod(1, name, created=1, workload=f"Job/ns/{name}", rehearsed=rehearsed),
            job(1, name, wanted=1, created=1, rehearsed=rehearsed),
        )
    ]
    lines.append(job(9, "queue-0000", 1, wanted=1))
    queue, other = FigureScope(workload="queue"), FigureScope(workload="queue-2024")
    found = run(*lines)
    assert figure(found, "pods.pending", queue) == 2
    assert figure(found, "pods.pending", other) == 1
    assert figure(found, "gangs.completionSeconds.p50", queue) == 8


def test_reasons_of_the_scheduler_are_taken_apart() -> None:
    message = (
        "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint {a: b}. "
        "preemption: 0/5 nodes are available: 5 No preemption victims found."
    )
    assert scheduling_reasons(message) == [
        "Insufficient cpu",
        "node(s) had untolerated taint {a: b}",
    ]
    assert scheduling_reasons("no nodes") == ["no nodes"]
