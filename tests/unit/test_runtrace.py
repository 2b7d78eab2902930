"""trace.json.gz, of any run and of some that are known."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    EndLine,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedLine,
)
from kwok_operator.rehearsal.judge.verdict import judged
from kwok_operator.rehearsal.report import runtrace
from kwok_operator.rehearsal.report.runtrace import RunTrace
from tests.fakes.rehearsed import NAME, content, gone, judge, node, pod, random_run, reader, run
from tests.randomrecording import random_recording

Event = dict[str, Any]
Thread = tuple[int, int]
HOSTILE = 'a"\\</script>\x00\n\u2028\u202e' + "é" * 5_000


class Read:
    """A trace, read by the rules of its format alone."""

    def __init__(self, lines: Iterable[RecordedLine], *, cut: int | None = None) -> None:
        texts: list[str] = []
        judged(reader(content(lines)[:cut]), name=NAME, followers=[RunTrace("it", texts.append)])
        text = "".join(texts)
        assert text.isascii()
        self.events: list[Event] = json.loads(text)["traceEvents"]
        self.slices: list[Event] = []
        begun: dict[Thread, list[Event]] = defaultdict(list)
        for place, each in enumerate(self.events):
            each["thread"], each["place"] = (each["pid"], each["tid"]), place
            if each["ph"] == "B":
                begun[each["thread"]].append(each)
            elif each["ph"] == "E":
                first = begun[each["thread"]].pop()
                assert each["name"] == first["name"]
                self.slices.append({**first, "dur": each["ts"] - first["ts"], "args": each["args"]})
            elif each["ph"] == "X":
                self.slices.append(each)
        assert not any(begun.values())
        self.names: dict[tuple[str, Thread], str] = {
            (each["name"], each["thread"]): each["args"]["name"]
            for each in self.events
            if each.get("name") in ("process_name", "thread_name")
        }

    def of(self, what: str) -> list[Event]:
        return [each for each in self.slices if each["cat"] == what]

    def track(self, thread: Thread) -> tuple[str, str]:
        """The names of the process and the thread."""
        pid, _ = thread
        return self.names["process_name", (pid, pid)], self.names["thread_name", thread]

    def at(self, event: Event) -> list[Event]:
        """The slices at an end of a flow."""
        return [
            each
            for each in self.slices
            if each["thread"] == event["thread"]
            and each["ts"] <= event["ts"] <= each["ts"] + each["dur"]
            and each["place"] < event["place"]
        ]

    def arrows(self) -> list[list[str]]:
        """The slices along each flow, by their names."""
        flows = defaultdict(list)
        for each in self.events:
            if each["ph"] in "stf" and "id" in each:
                flows[each["id"]].append(each)
        for flow in flows.values():
            assert "".join(each["ph"] for each in flow) in ("sf", "stf")
            assert [each["ts"] for each in flow] == sorted(each["ts"] for each in flow)
            assert all(map(self.at, flow))
        return [[self.at(each)[-1]["name"] for each in flow] for flow in flows.values()]


def seconds(slices: Iterable[Event]) -> float:
    return float(sum(each["dur"] for each in slices)) / 1e6


def seen_at_once(lines: Iterable[RecordedLine]) -> list[RecordedLine]:
    """The same without the moments at which pods began to run, so that it is when it was seen."""
    return [
        replace(line, state=replace(line.state, running=None))
        if isinstance(line, PodLine) and line.state is not None
        else line
        for line in lines
    ]


def any_run(seed: int) -> list[RecordedLine]:
    return random_run(seed, nodes=10, pods=40) if seed % 3 == 0 else random_recording(seed)


@settings(max_examples=30)
@given(st.integers(0, 10**9))
def test_slices_nest_and_arrows_lead_to_slices(seed: int) -> None:
    found = Read(any_run(seed))
    by_thread = defaultdict(list)
    for each in found.slices:
        assert each["ts"] >= 0 <= each["dur"]
        by_thread[each["thread"]].append((each["ts"], -each["dur"]))
    for slices in by_thread.values():
        ends: list[int] = []
        for since, length in sorted(slices):
            while ends and ends[-1] <= since:
                ends.pop()
            assert not ends or since - length <= ends[-1]
            ends.append(since - length)
    tids = {each["tid"] for each in found.events}
    assert 0 not in tids and len({each["thread"] for each in found.events}) == len(tids)
    found.arrows()


@settings(max_examples=30)
@given(st.integers(0, 10**9))
def test_pods_wait_and_run_as_long_as_the_judge_says(seed: int) -> None:
    lines = seen_at_once(any_run(seed))
    found, ledger = Read(lines), ClusterLedger()
    for line in lines:
        ledger.apply(line)
        if isinstance(line, EndLine):
            break
    running = ledger.all.pods["running"].area(ledger.now)
    assert seconds(found.of("runs")) == pytest.approx(running, abs=1e-3)
    waits = [w for w in found.of("waits") if w["args"].get("outcome") != "went without a node"]
    figures = judge(lines).figures
    mean, most = (figures[f"pendingSeconds.{which}"] for which in ("mean", "max"))
    if waits:
        assert seconds(waits) / len(waits) == pytest.approx(mean, abs=1e-3)
        assert max(wait["dur"] for wait in waits) / 1e6 == pytest.approx(most, abs=1e-3)
    else:
        assert mean is None


def starts(name: str, on: str, *, created: float, bound: float) -> list[RecordedLine]:
    told: dict[str, Any] = {"created": created, "bound": bound, "node": on}
    return [
        pod(created, name, created=created, why="0/1 nodes are available: 1 Insufficient cpu."),
        pod(bound, name, **told),
        pod(bound + 1, name, **told, running=bound + 1, phase="Running"),
    ]


def boots(name: str, group: str, *, at: tuple[float, float, float], **told: Any) -> list[Any]:
    requested, came, ready = at
    told |= {"created": came, **({"requested": requested} if group else {})}
    return [node(came, name, group, ready=False, **told), node(ready, name, group, **told)]


SCALE_UP = [
    node(0, "old", created=-9.0),
    CallLine(10.05, "NodeGroupIncreaseSize", "a", "1", "OK", 3.0),
    *boots("n-1", "a", at=(10.0, 12, 15)),
    *boots("n-2", "a", at=(10.0, 12, 15)),  # nobody asked for a second one
    *starts("web-1", "n-1", created=5, bound=15.5),
    *starts("web-2", "n-1", created=6, bound=15.5),
    *starts("late-1", "n-1", created=16, bound=16.5),
    *starts("here-1", "old", created=5, bound=5.5),
]


def test_arrows_lead_from_the_request_to_its_node_and_the_pods_that_waited() -> None:
    found = Read(run(*SCALE_UP))
    asks, first, second = "NodeGroupIncreaseSize", "default/web-1 starts", "default/web-2 starts"
    assert sorted(found.arrows()) == [[asks, "boot", first], ["boot", second]] or sorted(
        found.arrows()
    ) == [["boot", second], [asks, "boot", first]]
    (boot,) = (each for each in found.of("boot") if found.track(each["thread"])[1] == "n-1")
    assert (boot["ts"], boot["dur"]) == (10_000_000, 5_000_000)
    assert found.track(boot["thread"]) == ("group a", "n-1")
    (wait,) = (each for each in found.of("waits") if each["name"] == "default/web-1")
    assert wait["args"]["why"] == "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize("named_at", [11, 15.2], ids=["before it comes", "when it is ready"])
def test_arrows_lead_from_the_nodeclaim_that_names_the_node(named_at: float) -> None:
    found = Read(
        run(
            NodeClaimLine(10, "c", NodeClaimState(created=10.0, pool="p")),
            *boots("n-1", "", at=(10, 12, 15), pool="p"),
            NodeClaimLine(named_at, "c", NodeClaimState(created=10.0, pool="p", node="n-1")),
            *starts("web-1", "n-1", created=5, bound=15.5),
        )
    )
    assert found.arrows() == [["NodeClaims", "boot", "default/web-1 starts"]]
    (boot,) = found.of("boot")
    assert (boot["ts"], boot["dur"]) == (10_000_000, 5_000_000)
    assert found.track(boot["thread"]) == ("NodePool p", "n-1")


def test_a_decision_for_a_node_that_no_pod_waited_for_has_its_arrow() -> None:
    lines = [line for line in SCALE_UP if not isinstance(line, PodLine)]
    for more in ([], [gone(20, "n-1")]):
        assert Read(run(*lines, *more)).arrows() == [["NodeGroupIncreaseSize", "boot"]]


def test_a_pod_does_not_run_while_its_node_is_gone() -> None:
    pods = starts("web-1", "n", created=1.0, bound=2.0)
    found = Read(run(node(0, "n"), *pods, gone(10, "n"), node(20, "n"), until=30))
    assert [(each["ts"], each["dur"]) for each in found.of("runs")] == [
        (3_000_000, 7_000_000),
        (20_000_000, 10_000_000),
    ]


def test_cost_says_how_many_nodes_it_leaves_out() -> None:
    found = Read(run(node(1, "a", price=1.0), node(2, "b"), node(9, "b", price=2.0)))
    counters = [each for each in found.events if each["ph"] == "C"]
    lacking = [each["args"] for each in counters if "without a price" in each["name"]]
    assert [each["nodes"] for each in lacking] == [1, 0]
    whole = Read(run(node(1, "a", price=1.0))).events
    assert not any("without a price" in each.get("name", "") for each in whole)


def test_names_may_be_anything() -> None:
    lines: list[RecordedLine] = [
        node(1, HOSTILE, HOSTILE, created=1.0),
        node(1, "decisions", "", pool=HOSTILE),
        PodLine(2, HOSTILE, pod(2, "x-1", created=1, bound=1.5, node=HOSTILE).state),
        MarkLine(3, HOSTILE, HOSTILE),
    ]
    found = Read(run(*lines))
    assert len(found.of("waits")) == len(found.of("starts")) == 1
    assert all(len(json.dumps(each)) < 20_000 for each in found.events)


def test_threads_are_used_again_and_only_so_many_pods_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[RecordedLine] = [node(0, "n")]
    for n in range(50):
        lines += starts(f"web-{n}", "n", created=n + 0.5, bound=n + 2.0)
        lines.append(PodLine(n + 3.5, f"default/web-{n}", None))
    tracks = {found for each in Read(run(*lines)).slices for found in [each["thread"]]}
    assert len(tracks) == 4  # two pods at a time wait, and two run
    monkeypatch.setattr(runtrace, "MOST_WAITING", 1)
    found = Read(run(*lines))
    assert len(found.of("runs")) == 50 > len(found.of("waits")) > 20
    assert any("waits of pods are left out" in each["name"] for each in found.events)


def test_a_recording_that_is_cut_off_has_a_whole_trace() -> None:
    whole = content(run(*SCALE_UP))
    found = Read(run(*SCALE_UP), cut=len(whole) * 3 // 4)
    assert found.of("starts")
    found.arrows()
