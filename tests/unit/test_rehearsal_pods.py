"""The figures of pods and waits."""

from dataclasses import replace
from typing import Any

import pytest

from kwok_operator.rehearsal.judge.figures import FIGURES, FigureScope
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.measures import Waits
from kwok_operator.rehearsal.judge.recording import PodLine, RecordedLine
from kwok_operator.rehearsal.judge.verdict import summary, verdict_json
from kwok_operator.rehearsal.report.inmarkdown import in_markdown
from kwok_operator.rehearsal.report.page import page
from tests.fakes.rehearsed import gone, judge, node, pod, reading, run

A, B = FigureScope(group="a"), FigureScope(group="b")


def life(
    name: str, created: float, bound: float, running: float, on: str, *then: PodLine
) -> list[RecordedLine]:
    """A pod that waits, is bound, runs; what comes then has the same beginning."""
    last: dict[str, Any] = {
        "created": created,
        "bound": bound,
        "running": running,
        "node": on,
        "phase": "Running",
    }
    return [
        pod(max(created, 0), name, created=created),
        pod(bound, name, created=created, bound=bound, node=on),
        pod(running, name, **last),
        *(
            replace(line, state=replace(line.state, **last | {"phase": line.state.phase}))
            if line.state is not None
            else line
            for line in then
        ),
    ]


def later(
    t: float, name: str, phase: str = "Running", *, why: str = "", restarts: int = 0
) -> PodLine:
    return pod(t, name, created=0, phase=phase, disrupted=why, restarts=restarts)


OLD: dict[str, Any] = {
    "created": -5.0,
    "bound": -3.0,
    "running": -2.0,
    "node": "n-1",
    "phase": "Running",
}
"""Of a pod that was there before the run."""

LINES = run(
    node(1, "n-1", "a", zone="x"),
    node(1, "n-2", "b", zone="y"),
    gone(60, "n-2"),
    pod(0, "old-1", restarts=7, disrupted="EvictionByEvictionAPI", **OLD),
    *life("web-1", 2, 4, 6, "n-1", later(20, "web-1", restarts=2)),
    *life("web-2", 2, 12, 13, "n-2"),  # an orphan from 60 on
    *life("job-1", 10, 11, 12, "n-1", later(30, "job-1", "Succeeded")),
    *life("job-2", 10, 12, 14, "n-1", later(40, "job-2", "Failed", why="PreemptionByScheduler")),
    *life("web-4", 10, 20, 21, "n-1", later(50, "web-4", why="EvictionByEvictionAPI")),
    *life("web-5", 10, 30, 31, "n-2", later(62, "web-5", "Failed", why="DeletionByPodGC")),
    PodLine(45, "default/job-2", None),
    PodLine(51, "default/web-4", None),
    pod(91, "lost-1", created=91),
    PodLine(92, "default/lost-1", None),
    pod(95, "late-1", created=95),
)
LEVELS = {
    "pending": (1, 5),
    "running": (2, 6),
    "succeeded": (1, 1),
    "failed": (1, 1),
    "orphaned": (1, 2),
    "gone": (3, 3),
}
VALUES = {
    **{f"pods.{name}{end}": now for name, (now, _) in LEVELS.items() for end in ("", ".final")},
    **{f"pods.{name}.max": most for name, (_, most) in LEVELS.items()},
    "pods.unserved": 1,
    "evictions": 1,
    "preemptions": 1,
    "losses": 1,
    "restarts": 2,
}
WAITS = {  # at 90, when none is open
    "pendingSeconds": {"p50": 2, "p95": 20, "p99": 20, "max": 20, "mean": 7.5},
    "startSeconds": {"p50": 4, "p95": 21, "p99": 21, "max": 21, "mean": 8.833333},
}


def test_each_has_its_value_and_an_expectation_of_another_fails() -> None:
    values: dict[str, tuple[float, Any]] = {name: (value, "end") for name, value in VALUES.items()}
    for figure, parts in WAITS.items():
        values |= {f"{figure}.{part}": (value, {"at": 90}) for part, value in parts.items()}
    ours = ("pods.", "pendingSeconds", "startSeconds", "evictions", "preempt", "losses", "restarts")
    assert values.keys() == {name for name in FIGURES if name.startswith(ours)}
    expect = [
        {"figure": name, "equals": value + off, "when": when}
        for name, (value, when) in values.items()
        for off in (0, 1)
    ]
    outcomes = judge(LINES, expect=expect).outcomes
    wrong = [
        str(each)
        for each, n in zip(outcomes, [True, False] * len(values), strict=True)
        if each.held != n
    ]
    assert not wrong


def test_waits_at_the_end_are_incomplete_and_no_expectation_holds_on_them() -> None:
    expect = [
        {"figure": f"{figure}.{part}", "atLeast": 0}
        for figure, parts in WAITS.items()
        for part in parts
    ]
    outcomes = judge(LINES, expect=expect).outcomes
    assert not any(each.held for each in outcomes)
    assert all("6 of 8 waits have ended so far" in each.reason for each in outcomes)


@pytest.mark.parametrize(
    ("done", "waiting", "never", "which", "value", "complete"),
    [
        ([], [], 0, "p50", None, True),
        ([], [], 2, "p50", None, False),
        ([3, 1, 2], [], 0, "p50", 2, True),
        ([1, 2, 3], [50], 0, "p50", 2, True),  # it is among the slower half anyway
        ([1, 2, 3], [2], 0, "p50", 2, True),
        ([1, 3, 4], [2], 0, "p50", 2, False),  # 3, if it goes on
        ([1], [50, 50], 0, "p50", 50, False),
        ([1, 2, 3], [], 2, "p50", 2, False),  # 3, if they had waited for ever
        ([1] * 19, [0], 0, "p95", 1, True),
        ([1] * 18, [0], 1, "p95", 1, False),
        ([1] * 60, [], 0, "p95", 1, True),
        ([1, 2, 3], [50], 0, "max", 50, False),
        ([1, 2, 3], [2], 0, "mean", 2, False),
        ([1, 2, 3], [], 1, "max", 3, False),
    ],
)
def test_a_figure_of_waits_is_complete_if_no_open_wait_can_change_it(
    done: list[float],
    waiting: list[float],
    never: int,
    which: str,
    value: float | None,
    complete: bool,
) -> None:
    waits = Waits()
    for seconds in done:
        waits.end("", seconds)
    for n, seconds in enumerate(waiting):
        waits.begin(f"{n}", 100 - seconds)
    for _ in range(never):
        waits.give_up("")
    assert waits.figure(which, 100) == value
    assert (waits.missing(which, value) == "") == complete


def ledger(lines: list[RecordedLine], *scopes: FigureScope) -> ClusterLedger:
    found = ClusterLedger(scopes)
    for line in lines:
        found.apply(line)
    return found


def test_a_pod_without_a_node_may_have_belonged_to_any_group() -> None:
    job, web = (FigureScope(workload=name, group="a") for name in ("job", "web"))
    lines = [line for line in LINES if line.t < 91 or isinstance(line, PodLine)]
    found = ledger(lines, A, job, web)

    def complete(scope: FigureScope, figure: str = "pendingSeconds.max") -> bool:
        return not reading(found.tally(scope), figure, 100).incomplete

    # lost-1 and late-1 are of workloads of their own.
    assert (complete(A), complete(job), complete(web)) == (False, True, True)
    assert reading(found.tally(A), "pendingSeconds.max", 100).value == 10
    assert reading(found.tally(web), "startSeconds.max", 100).value == 11
    assert not complete(A, "startSeconds.p50")


def test_an_orphan_runs_again_once_its_node_is_there_again() -> None:
    for back, level in ((None, "orphaned"), (70, "running")):
        lines = [*LINES[:-1], *([] if back is None else [node(back, "n-2", "b", zone="y")])]
        tally = ledger(sorted(lines, key=lambda line: line.t), B).tally(B)
        assert tally.pods[level].value == 1
        assert tally.pods["running"].most == 2


def test_a_pod_that_is_bound_to_a_node_that_was_gone_already_is_an_orphan() -> None:
    lines = run(node(1, "n", "b"), gone(5, "n"), *life("web-1", 2, 6, 7, "n"))
    assert ledger(lines, B).tally(B).pods["orphaned"].value == 1
    unknown = run(gone(5, "n"), *life("web-1", 2, 6, 7, "n"))
    assert ledger(unknown).all.pods["orphaned"].value == 1


def test_a_pod_goes_with_its_node_to_another_group() -> None:
    lines = run(node(1, "n", "a"), *life("web-1", 2, 6, 7, "n"), node(50, "n", "b"))
    found = ledger(lines, A, B)
    values = {
        scope.group: [reading(found.tally(scope), name, 100).value for name in names]
        for scope in (A, B)
        for names in [("pods.running", "pods.running.max", "pendingSeconds.max")]
    }
    assert values == {"a": [0, 1, None], "b": [1, 1, 4]}


def test_orphans_are_named_in_the_verdict() -> None:
    found = judge(LINES)
    assert verdict_json(found)["orphans"] == ["default/web-2"]
    sentence = "1 pod is on nodes that are gone: default/web-2"
    for shown in ("\n".join(summary(found)), in_markdown(found), page(found)):
        assert sentence in shown


def test_what_was_over_before_the_run_counts_in_nothing() -> None:
    lines = run(
        pod(0, "old-1", created=-5, phase="Failed"),
        pod(0, "old-2", created=-5, bound=-3, node="n"),
        pod(8, "old-2", created=-5, bound=-3, node="n", running=8, phase="Running", restarts=1),
        PodLine(9, "default/old-1", None),
    )
    found = ledger(lines).all
    names = ("pods.unserved", "pendingSeconds.max", "startSeconds.max", "restarts", "pods.gone")
    assert [reading(found, name, 100).value for name in names] == [0, None, 8, 1, 1]
    assert not any(reading(found, name, 100).incomplete for name in names)


def test_what_has_succeeded_on_a_node_has_run_and_what_has_failed_has_not() -> None:
    lines = run(
        pod(1, "job-1", created=1, bound=2, node="n"),
        pod(5, "job-1", created=1, bound=2, node="n", phase="Succeeded"),
        pod(1, "job-2", created=1, bound=2, node="n"),
        pod(5, "job-2", created=1, bound=2, node="n", phase="Failed"),
    )
    found = reading(ledger(lines).all, "startSeconds.max", 100)
    assert (found.value, bool(found.incomplete)) == (4, True)
