"""The verdict of a rehearsal."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from kwok_operator.errors import RecordingError
from kwok_operator.rehearsal.judge.figures import FigureReading, in_words
from kwok_operator.rehearsal.judge.recording import (
    EndLine,
    EventLine,
    PodLine,
    RecordedLine,
    WaitLine,
    WarningLine,
    WatchLine,
)
from kwok_operator.rehearsal.judge.verdict import Judged, judged, junit_xml, summary, verdict_json
from kwok_operator.rehearsal.report.inmarkdown import in_markdown
from kwok_operator.rehearsal.report.page import page
from kwok_operator.rehearsal.scenario.expectation import ScenarioCondition
from tests.fakes.rehearsed import (
    NAME,
    content,
    gone,
    job,
    judge,
    node,
    pod,
    random_run,
    reader,
    run,
)

WEB, A = {"workload": "web"}, {"group": "a"}


def lines(*more: RecordedLine) -> list[RecordedLine]:
    """Two nodes of group a, one of them until 60; web waits 10 and 40 seconds, job-1 for ever."""
    return run(
        node(5, "n-1", price=3.6),
        node(5, "n-2", ready=False, price=0.0),
        node(20, "n-2"),
        gone(60, "n-2"),
        pod(10, "web-1", created=10),
        pod(10, "web-2", created=10),
        pod(20, "web-1", created=10, bound=20, node="n-1"),
        pod(50, "web-2", created=10, bound=50, running=50, node="n-1", phase="Running"),
        pod(30, "job-1", created=30),
        EventLine(40, "Warning", "Late", "Pod/default/web-1", "ca", "it is late", 2),
        EventLine(40, "Normal", "Scaled", "KwokNodeGroup//a", "operator", "from 1 to 2"),
        job(0, "Job/default/j", wanted=1),
        WarningLine(30, "operator", "pods is forbidden", 2),
        WarningLine(50, "ca", "it is late"),
        *more,
    )


def outcome(expect: Any, *more: RecordedLine) -> Any:
    (found,) = judge(lines(*more), expect=[expect]).outcomes
    return found


@pytest.mark.parametrize(
    ("expect", "held", "value", "at"),
    [
        ({"figure": "pods.running", "equals": 1}, True, 1, 100),
        ({"figure": "pods.running", "equals": 2}, False, 1, 100),
        ({"figure": "pods.running", "of": WEB, "atLeast": 1, "atMost": 1}, True, 1, 100),
        ({"figure": "nodes.total", "of": A, "atMost": 1}, True, 1, 100),
        ({"figure": "nodes.max", "of": A, "atMost": 1}, False, 2, 100),
        ({"figure": "pendingSeconds.max", "of": WEB, "atMost": 40}, True, 40, 100),
        ({"figure": "pendingSeconds.max", "atMost": 40}, False, 70, 100),
        ({"figure": "cost", "atMost": 0.095}, True, 0.095, 100),
        ({"figure": "cost", "atMost": 0.094}, False, 0.095, 100),
        ({"event": {"reason": "Late"}, "atMost": 0}, False, 2, 100),
        ({"event": {"reason": "Late", "type": "Normal"}, "atMost": 0}, True, 0, 100),
        ({"event": {"from": "ca", "message": "late"}, "equals": 2}, True, 2, 100),
        ({"event": {"about": "Pod/default"}, "equals": 2}, True, 2, 100),
        ({"event": {"about": "Pod/other"}, "equals": 2}, False, 0, 100),
        ({"event": {"about": "KwokNodeGroup/a"}, "atMost": 0}, False, 1, 100),
        ({"event": {"about": ["Node/*", "KwokNodeGroup/?"]}, "equals": 1}, True, 1, 100),
        ({"event": {"about": "KwokNodeGroup/??"}, "equals": 0}, True, 0, 100),
        ({"event": {"message": ["on time", "late"]}, "equals": 2}, True, 2, 100),
        ({"event": {"message": ["on time", "early"]}, "equals": 0}, True, 0, 100),
        ({"event": {"about": "KwokNodeGroup//a"}, "atMost": 0}, False, 1, 100),
        ({"figure": "warnings", "equals": 0}, False, 3, 100),
        ({"figure": "warnings", "of": {"program": "operator"}, "equals": 2}, True, 2, 100),
        ({"figure": "warnings", "of": {"program": "shim"}, "equals": 0}, True, 0, 100),
        ({"figure": "warnings", "equals": 0, "when": "always"}, False, 2, 30),
        # always
        ({"figure": "nodes.total", "atMost": 2, "when": "always"}, True, 1, 100),
        ({"figure": "nodes.total", "atMost": 1, "when": "always"}, False, 2, 5),
        ({"figure": "nodes.notReady", "equals": 0, "when": "always"}, False, 1, 5),
        ({"figure": "nodes.total", "atLeast": 1, "when": "always"}, False, 0, 0),
        ({"event": {"reason": "Late"}, "atMost": 1, "when": "always"}, False, 2, 40),
        # at a time
        ({"figure": "nodes.total", "equals": 2, "when": {"at": 59.5}}, True, 2, 59.5),
        ({"figure": "nodes.total", "equals": 1, "when": {"at": 60}}, True, 1, 60),
        ({"figure": "pendingSeconds.max", "equals": 25, "when": {"at": 35}}, False, 25, 35),
        # incomplete, as job-1 waits
        ({"figure": "pendingSeconds.max", "atMost": 80}, False, 70, 100),
        ({"figure": "pendingSeconds.max", "atLeast": 60}, False, 70, 100),
        ({"figure": "pendingSeconds.max", "atMost": 80, "when": "always"}, False, 70, 100),
        ({"figure": "pendingSeconds.max", "atMost": 8, "when": "always"}, False, 10, 20),
        ({"figure": "pendingSeconds.p50", "atMost": 40, "when": "always"}, True, 40, 100),
        ({"figure": "gangs.completionSeconds.max", "atMost": 200}, False, 100, 100),
        ({"figure": "pods.running", "equals": 1, "when": {"at": 100}}, True, 1, 100),
    ],
)
def test_what_is_expected_holds_or_fails(
    expect: dict[str, Any], held: bool, value: float, at: float
) -> None:
    found = outcome(expect)
    assert (found.held, found.value, found.t) == (held, value, at)
    assert found.reason


@pytest.mark.parametrize(
    ("figure", "bounds", "number", "said"),
    [
        ("pendingSeconds.max", {"atMost": 5.001}, 5.004, "5.004 s, wanted at most 5.001 s"),
        ("pendingSeconds.max", {"atMost": 60}, 69.999, "70.00 s, wanted at most 60 s"),
        (
            "pendingSeconds.max",
            {"atMost": 1234.5678},
            9e6,
            "9,000,000 s, wanted at most 1,234.5678 s",
        ),
        ("utilisation.cpu", {"atMost": 0.00004}, 0.0003, "0.03 %, wanted at most 0.004 %"),
        ("utilisation.cpu", {"atLeast": 0.5}, 0.49999, "49.999 %, wanted at least 50 %"),
        ("nodes.total", {"equals": 1_000_000}, 1, "1, wanted exactly 1,000,000"),
    ],
)
def test_no_rounding_says_the_contrary(
    figure: str, bounds: dict[str, float], number: float, said: str
) -> None:
    told = ScenarioCondition.model_validate({"figure": figure, **bounds})
    assert f"{told.shown(number)}, wanted {told.wanted}" == said


def test_what_comes_after_the_end_does_not_count() -> None:
    found = judge([*run(node(1, "a")), node(200, "b")])
    assert (found.t, found.figures["nodes.max"]) == (100, 1)


def test_what_is_incomplete_is_named_everywhere() -> None:
    found = judge(lines())
    sentence = "2 of 3 waits have ended so far"
    assert found.incomplete["pendingSeconds.max"] == sentence
    assert "pendingSeconds.p50" not in found.incomplete
    data = verdict_json(found)
    assert data["incomplete"] == found.incomplete
    assert data["incompleteOf"]["workload Deployment/default/job"]["pendingSeconds.p50"]
    names = "pendingSeconds.p95, .p99, .max, .mean"
    for shown in ("\n".join(summary(found)), in_markdown(found), page(found)):
        assert names in shown and sentence in shown
    assert f"{in_words(70, 's')}</data> (incomplete)" in page(found)


@pytest.mark.parametrize(
    ("bounds", "complete", "incomplete"),
    [
        ({"atLeast": 60}, True, True),
        ({"atLeast": 80}, False, False),
        ({"atMost": 80}, True, False),
        ({"equals": 70}, True, False),
        ({"atLeast": 60, "atMost": 80}, True, False),
    ],
)
def test_a_condition_may_follow_the_part_that_is_known(
    bounds: dict[str, float], complete: bool, incomplete: bool
) -> None:
    condition = ScenarioCondition.model_validate({"figure": "pendingSeconds.max", **bounds})
    assert condition.holds_by_now(FigureReading(70)) == complete
    assert condition.holds_by_now(FigureReading(70, "some wait")) == incomplete
    assert not condition.holds_by_now(FigureReading(None))


def test_a_figure_that_drifts_is_looked_at_between_the_lines_too() -> None:
    # job-1 waits: nothing is written from 60 to 100, but another event keeps time going.
    ticks = [EventLine(t, reason="Tick") for t in range(61, 100)]
    expect = {"figure": "pendingSeconds.max", "atMost": 55, "when": "always"}
    found = outcome(expect, *ticks)
    assert not found.held
    assert 85 < found.t <= 87


def test_a_wait_is_answered_by_the_recording() -> None:
    expect = {"wait": "kng/a --for=condition=Ready", "within": 30}
    assert outcome(expect, WaitLine(99, 0, True, "condition met")).held
    assert not outcome(expect, WaitLine(99, 0, False, "timed out")).held
    assert not outcome(expect).held
    assert not outcome(expect, WaitLine(99, 1, True)).held  # of another one


@pytest.mark.parametrize(
    "expect",
    [
        {"figure": "nodes.total", "of": {"group": "b"}, "atMost": 9},
        {"figure": "nodes.total", "of": {"group": "b"}, "atMost": 9, "when": "always"},
        {"figure": "pods.failed", "of": {"workload": "wbe"}, "atMost": 0},
        {"figure": "pods.failed", "of": WEB | {"namespace": "kube-system"}, "atMost": 0},
        {"figure": "pods.failed", "of": {"namespace": "typo"}, "atMost": 0},
        {"figure": "nodes.notReady", "of": {"zone": "typo"}, "atMost": 0},
        {"figure": "gangs.completionSeconds.max", "of": WEB, "atMost": 99},
        {"figure": "cost", "of": {"zone": "x"}, "atMost": 9, "when": "always"},
        {"figure": "nodes.total", "atMost": 9, "when": {"at": 101}},
    ],
)
def test_nothing_seen_is_no_reason_to_pass(expect: dict[str, Any]) -> None:
    assert not outcome(expect).held


def test_a_group_or_job_that_has_nothing_yet_may_be_expected_to_have_nothing() -> None:
    assert outcome({"figure": "pods.running", "of": {"workload": "j"}, "equals": 0}).held
    elsewhere = {"workload": "job", "group": "a"}
    assert outcome({"figure": "pods.running", "of": elsewhere, "equals": 0}).held


@pytest.mark.parametrize(
    ("expect", "field"),
    [
        (7, ""),
        ({"figure": "nope", "atMost": 1}, ".figure"),
        ({"figure": "cost", "of": {"workload": "web"}, "atMost": 1}, ".figure"),
        ({"figure": "cost", "of": {"colour": "red"}, "atMost": 1}, ".of.colour"),
        ({"figure": "cost"}, ""),
        ({"figure": "cost", "wait": "x", "atMost": 1}, ""),
        ({"atMost": 1}, ""),
        ({"figure": "cost", "atMost": "much"}, ".atMost"),
        ({"figure": "cost", "atMost": 10**400}, ".atMost"),
        ({"figure": "cost", "atMost": 1, "when": "soon"}, ".when"),
        ({"figure": "cost", "atMost": 1, "when": {"at": 10**400}}, ".when.at"),
        ({"wait": "kng/a", "within": 10**400}, ".within"),
        ({"event": {"colour": "red"}, "atMost": 1}, ".event.colour"),
    ],
)
def test_what_cannot_be_judged_is_refused_by_name(expect: Any, field: str) -> None:
    header = {"format": 1, "expect": [{"figure": "cost", "atMost": 1}, expect]}
    with pytest.raises(RecordingError) as caught:
        judged(reader(json.dumps({"t": 0, "header": header}).encode()), name=NAME)
    assert caught.value.field == f"header.expect[1]{field}"


@pytest.mark.parametrize(
    ("reason", "passed"),
    [
        *[(meant, True) for meant in ("settled", "condition", "atMost")],
        *[(other, False) for other in ("unplayed", "interrupted", "died", "", "whatever")],
    ],
)
def test_a_run_that_did_not_come_to_its_end_has_failed(reason: str, passed: bool) -> None:
    found = judge([*lines()[:-1], EndLine(100, reason, "why")])
    assert found.passed == passed
    assert ("why" in found.broken_off) != passed
    case = ElementTree.fromstring(junit_xml(found)).find("testsuite/testcase")
    assert case is not None and (case.find("failure") is None) == passed


def test_nothing_holds_on_what_a_gap_of_a_watch_may_hide() -> None:
    now = {"figure": "pods.pending", "atMost": 3}
    expect = [
        now,
        {"figure": "gangs.unfinished", "equals": 0},
        {"event": {"reason": "Evicted"}, "atMost": 0},
        {**now, "when": "always"},
        {**now, "when": {"at": 40}},
        {"figure": "pods.gone", "equals": 0},
        {"figure": "evictions", "equals": 0},
    ]
    gap = [WatchLine(30, "pods", "broken"), WatchLine(50, "pods", "listed")]
    back, broken = WatchLine(50, "pods", "back"), WatchLine(90, "events", "broken")

    def held(*more: RecordedLine) -> str:
        outcomes = judge(lines(*more), expect=expect).outcomes
        return "".join("+" if outcome.held else "-" for outcome in outcomes)

    assert held() == "+++++++"
    assert held(*gap, back) == "+++----"
    assert held(*gap, back, broken) == "++-----"
    assert held(*gap) == "-++----"


def test_one_failed_assertion_fails_the_run() -> None:
    holds, fails = ({"figure": "pods.running", "equals": n} for n in (1, 2))
    assert judge(lines(), expect=[holds]).passed
    assert not judge(lines(), expect=[holds, fails, holds]).passed


def told(found: Judged) -> tuple[Any, str, list[str]]:
    return verdict_json(found), junit_xml(found), list(summary(found))


def test_the_same_recording_gives_the_same_files() -> None:
    expect = [{"figure": "pods.running", "atLeast": 1}]
    data = content(random_run(7), expect=expect)
    first, second = (told(judged(reader(data, chunk=n), name=NAME)) for n in (10, 10**6))
    assert first == second


def test_each_assertion_is_a_case_and_a_line_whatever_their_names() -> None:
    hostile = 'a"<b>&\x00\x1b\n'
    expect = [
        {"figure": "pods.running", "equals": 2, "name": hostile},
        {"figure": "pods.running", "equals": 1},
        {"wait": hostile},
    ]
    found = judge(lines(WaitLine(9, 2, False, hostile)), expect=expect, scenario=hostile)
    suite = ElementTree.fromstring(junit_xml(found).encode()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    failed = [case.find("failure") is not None for case in suite.iter("testcase")]
    assert failed == [False, True, False, True]
    assert all(line.isprintable() for line in summary(found))


def test_a_job_is_summed_up_in_tables_whatever_the_names() -> None:
    expect = [
        {"figure": "pods.running", "equals": 1},
        {"wait": "a | b\n| `c` <img> [d](e)", "name": "a | b\n| `c` <img> [d](e)"},
    ]
    said = in_markdown(judge(lines(), expect=expect, scenario="s\n# t")).splitlines()
    assert said[0] == "### s # t: failed"
    assert said[6].startswith("| **failed** | a \\| b \\| \\`c\\` \\<img\\> \\[d\\](e) |")
    assert said[7].startswith("| held | pods.running: exactly 1, at the end |")
    assert "| nodes.max | 2 |" in said
    died = judge([EndLine(9, "died", "a | b")], expect=expect[:1])
    assert r"**the run died: a \| b**" in in_markdown(died)


def test_the_slowest_pods_come_first_with_what_they_waited_for() -> None:
    why = {"why": "0/1 nodes are available: 1 Insufficient cpu."}
    found = judge(
        lines(
            pod(11, "web-2", created=10, **why),
            pod(12, "web-2", created=10),
            pod(13, "web-2", created=10, why="0/2 nodes are available: 1 Insufficient cpu, 1 Old."),
            pod(14, "web-2", created=10, **why),
            PodLine(90, "default/job-1", None),
        )
    )
    assert [(slow.name, slow.seconds) for slow in found.slowest] == [
        ("default/job-1", 60),
        ("default/web-2", 40),
        ("default/web-1", 10),
    ]
    assert found.slowest[1].why == why["why"]
    assert found.reasons == [("Insufficient cpu", 1), ("Old", 1)]
