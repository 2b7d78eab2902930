"""What the runs of a first verdict say: which pods had no place, and whether that changed.

    lines of a recording  --ZoneLooks-->  counts before the loss, after it, and at the end
    Judged, ZoneLooks  --answer-->  CopyAnswer  --verdict_md, verdict_json-->  texts

Pods of DaemonSets don't count among those that move: they stay on lost nodes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.formats.markdown import plain
from kwok_operator.rehearsal.firstverdict.questions import CopyFacts, CopyQuestion
from kwok_operator.rehearsal.judge.recording import (
    MarkLine,
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordedLine,
    UnknownLine,
)
from kwok_operator.rehearsal.judge.verdict import Judged

_MOST_NAMED: Final = 5
WRITER: Final = "kwok-operator import --rehearse"


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods at one moment, without those of DaemonSets."""

    pods: int = 0
    waiting: int = 0
    """Pods without a node, DaemonSets' too."""
    in_zone: int = 0
    """Pods on nodes of the zone."""
    nodes: int = 0
    tried: Counter[str] = field(default_factory=Counter)
    """Pods without a node by their workload, if the scheduler has said that it finds none."""


@dataclass(slots=True)
class ZoneLooks:
    """Follows the recording of a run in which the zone is lost."""

    zone: str
    allowed: int
    """How many pods may wait: as many as did before."""
    before: PodCounts = field(default_factory=PodCounts)
    alone: PodCounts | None = None
    """When the autoscaler started; None without one."""
    started: float = 0.0
    again: float | None = None
    """When no more pods waited than before, for good."""
    _pods: dict[str, PodState] = field(default_factory=dict)
    _nodes: dict[str, NodeState] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)

    def apply(self, line: RecordedLine | UnknownLine) -> None:
        match line:
            case NodeLine(name=name, state=None):
                self._nodes.pop(name, None)
            case NodeLine(name=name, state=NodeState() as node):
                self._nodes[name] = node
            case PodLine(name=name, state=state):
                self._pod(line.t, name, state)
            case MarkLine(what="outage begins"):
                self.before = self.now()
            case MarkLine(what="start"):
                self.alone, self.started = self.now(), line.t

    def _pod(self, t: float, name: str, pod: PodState | None) -> None:
        if pod is None:
            self._pods.pop(name, None)
        else:
            self._pods[name] = pod
        waits = pod is not None and pod.phase == "Pending" and not pod.node and not pod.deleting
        (self._waiting.add if waits else self._waiting.discard)(name)
        if len(self._waiting) > self.allowed:
            self.again = None
        elif self.again is None:
            self.again = t

    def now(self) -> PodCounts:
        moving = [
            pod
            for pod in self._pods.values()
            if not pod.workload.startswith("DaemonSet/")
            and not pod.deleting
            and pod.phase in ("Pending", "Running")
        ]
        there = {name for name, node in self._nodes.items() if node.zone == self.zone}
        in_zone = sum(pod.node in there for pod in moving)
        waiting = {name: self._pods[name] for name in self._waiting}
        tried = Counter(pod.workload or f"Pod/{name}" for name, pod in waiting.items() if pod.why)
        return PodCounts(len(moving), len(waiting), in_zone, len(self._nodes), tried)


@dataclass(frozen=True, slots=True)
class CopyAnswer:
    """The answer to a question. `sentence` sums it up; `held` is None if it was not played."""

    question: CopyQuestion
    held: bool | None
    sentence: str
    details: Sequence[str] = ()
    seconds: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)


def unplayed(question: CopyQuestion, why: str) -> CopyAnswer:
    return CopyAnswer(question, None, f"not played: {why}")


def answer(
    question: CopyQuestion,
    found: Judged,
    lines: Iterable[RecordedLine | UnknownLine],
    *,
    facts: CopyFacts,
    seconds: float,
) -> CopyAnswer:
    """Returns the answer that a run gives, which took so many seconds."""
    if found.broken_off:
        return CopyAnswer(question, False, found.broken_off, found.why, seconds)
    if not question.zone:
        missed = [f"{each.name}: {each.reason}" for each in found.outcomes if not each.held]
        running, pending = (
            round(found.figures[f"pods.{name}"] or 0) for name in ("running", "pending")
        )
        sentence = f"pods that run: {running:,}, that are pending: {pending:,}"
        if not found.passed:
            sentence += f"; in the cluster {facts.bound:,} and {facts.waiting:,}"
        return CopyAnswer(question, found.passed, sentence, [*missed, *found.why], seconds)
    looks = ZoneLooks(question.zone, allowed=facts.waiting)
    for line in lines:
        looks.apply(line)
    return _about_zone(question, looks, found, seconds=seconds)


def _about_zone(
    question: CopyQuestion, looks: ZoneLooks, found: Judged, *, seconds: float
) -> CopyAnswer:
    before, end = looks.before, looks.now()
    alone = looks.alone or end
    left = max(end.waiting - looks.allowed, 0)
    without = alone.tried - before.tried
    lacking = without.most_common()
    # Pods that have just come may still find a place when the autoscaler starts.
    placeless = left if looks.alone is None else without.total()
    said: dict[str, Any] = {
        "podsInZone": before.in_zone,
        "withoutPlace": placeless,
        "workloadsWithoutPlace": dict(lacking),
        "stayed": end.in_zone,
        "gone": max(before.pods - end.pods, 0),
    }
    moved = f"pods that had to move: {before.in_zone:,}"
    if before.in_zone == 0:
        sentence = "no pod was there, but those of DaemonSets"
    elif not placeless and not left:
        sentence = f"{moved}; all found another place"
    else:
        sentence = f"{moved}; without a place: {placeless:,}"
    if looks.alone is not None:
        after = None if looks.again is None or left else max(looks.again - looks.started, 0.0)
        new = max(end.nodes - alone.nodes, 0)
        said |= {"withoutPlaceInTheEnd": left, "newNodes": new, "secondsUntilAllRun": after}
        if left:
            sentence += f"; with cluster-autoscaler: {left:,}; new nodes: {new:,}"
        elif placeless:
            sentence += f"; with cluster-autoscaler: 0 after {after:.0f} s; new nodes: {new:,}"
    details = [f"without a place: {', '.join(f'{w}: {n:,}' for w, n in lacking[:_MOST_NAMED])}"]
    details = [*(details if placeless else ()), *(found.why if left else ())]
    if (late := alone.in_zone - end.in_zone) > 0:
        details.append(f"pods that had not left yet when cluster-autoscaler started: {late:,}")
    if end.in_zone:
        details.append(f"pods that tolerate nodes that aren't Ready, and stay: {end.in_zone:,}")
    if gone := said["gone"]:
        details.append(f"pods that are gone, as nothing makes them anew: {gone:,}")
    if end.in_zone and end.in_zone == before.in_zone:
        return CopyAnswer(question, None, "no pod left the zone", details, seconds, said)
    return CopyAnswer(question, not left, sentence, details, seconds, said)


def all_held(answers: Iterable[CopyAnswer]) -> bool:
    return all(each.held for each in answers)


def lines_of(facts: CopyFacts, answers: Sequence[CopyAnswer]) -> Iterator[str]:
    """Yields the verdict in lines, for a terminal."""
    for each in answers:
        yield f"{_word(each)}: {_about(each, facts)}: {each.sentence}"
        yield from (f"    {detail}" for detail in each.details)
    yield from remarks(facts)


def remarks(facts: CopyFacts) -> Iterator[str]:
    """Yields what the questions leave open."""
    zones = [zone for zone, nodes in facts.zones.items() if zone and nodes]
    bare = facts.zones.get("", 0)
    if len(zones) == 1 and not bare:
        yield f"all nodes are in the zone {zones[0]}: without it there is no node, so it isn't lost"
    if bare:
        yield f"{bare:,} of {facts.nodes:,} nodes have no zone, and no question takes them away"


def verdict_md(facts: CopyFacts, answers: Sequence[CopyAnswer]) -> str:
    """Returns verdict.md."""
    lines = ["# First verdict", "", "| | | | seconds | report |", "|---|---|---|---:|---|"]
    for each in answers:
        report = f"[report]({each.question.name}/report.html)" if each.held is not None else ""
        cells = (_about(each, facts), _word(each), each.sentence)
        shown = " | ".join(plain(cell, limit=1_000) for cell in cells)
        lines.append(f"| {shown} | {each.seconds:.0f} | {report} |")
    details = [(each, detail) for each in answers for detail in each.details]
    lines += [
        "",
        *(f"- {plain(_about(a, facts), limit=300)}: {plain(d, limit=1_000)}" for a, d in details),
    ]
    lines += ["", *(plain(each, limit=1_000) for each in remarks(facts))]
    return "\n".join(lines).rstrip() + "\n"


def verdict_json(facts: CopyFacts, answers: Sequence[CopyAnswer]) -> dict[str, Any]:
    """Returns the content of verdict.json."""
    return {
        "writer": WRITER,
        "format": 1,
        "passed": all_held(answers),
        "nodes": facts.nodes,
        "zones": dict(facts.zones),
        "podsWithNode": facts.bound,
        "podsPending": facts.waiting,
        "questions": [
            {
                "name": each.question.name,
                **({"zone": each.question.zone} if each.question.zone else {}),
                "held": each.held,
                "sentence": each.sentence,
                "details": list(each.details),
                "seconds": round(each.seconds, 1),
                **each.facts,
            }
            for each in answers
        ],
        "remarks": list(remarks(facts)),
    }


def _about(each: CopyAnswer, facts: CopyFacts) -> str:
    question = each.question
    if not question.zone:
        return "as it stands"
    return f"without zone {question.zone} ({question.nodes:,} of {facts.nodes:,} nodes)"


def _word(each: CopyAnswer) -> str:
    return {True: "held", False: "FAILED", None: "open"}[each.held]
