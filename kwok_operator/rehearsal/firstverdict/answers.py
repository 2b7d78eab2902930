"""Finds out from the runs of a first verdict which pods had no node, and whether the loss of a zone
changed that.

    lines of a recording  --ZoneObserver-->  counts before the loss, after it, and at the end
    Judged, ZoneObserver  --answer-->  CopyAnswer  --verdict_md, verdict_json-->  texts

Pods of DaemonSets don't count among the pods that must move: they stay on lost nodes.
"""

from collections import Counter, defaultdict
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
    """What a run that loses a zone shows at one moment. Pods of DaemonSets don't count."""

    in_zone: int = 0
    """The number of pods on nodes of the lost zone."""
    nodes: int = 0
    deleting: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    """How many pods that ran before the loss don't run outside the zone now, by workload."""
    tried: Counter[str] = field(default_factory=Counter)
    """How many pods have no node, and a message of the scheduler on that, by workload."""


@dataclass(slots=True)
class ZoneObserver:
    """Reads the recording of a run in which a zone is lost."""

    zone: str
    before: PodCounts = field(default_factory=PodCounts)
    alone: PodCounts | None = None
    """The counts when the autoscaler started; None without one."""
    started: float = 0.0
    again: float | None = None
    """When, in seconds, as many pods ran as before the loss, for good; None if not."""
    _pods: dict[str, PodState] = field(default_factory=dict)
    _nodes: dict[str, NodeState] = field(default_factory=dict)
    _needed: Counter[str] = field(default_factory=Counter)
    """How many pods of each workload ran before the loss."""
    _safe: Counter[str] = field(default_factory=Counter)
    """How many pods of each workload run outside the lost zone."""
    _counted: dict[str, str] = field(default_factory=dict)
    """The workload of each pod that `_safe` counts, by the pod's name."""
    _on: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The names of the pods on each node, even if the node isn't recorded yet."""
    _lacking: int = 0
    """How many more pods would have to run outside the zone to be as many as before."""

    def apply(self, line: RecordedLine | UnknownLine) -> None:
        match line:
            case NodeLine(name=name, state=state):
                self._node(line.t, name, state)
            case PodLine(name=name, state=state):
                self._pod(line.t, name, state)
            case MarkLine(what="outage begins"):
                self._begin(line.t)
            case MarkLine(what="start"):
                self.alone, self.started = self.now(), line.t

    def _begin(self, t: float) -> None:
        self.before = self.now()
        running = (n for n, pod in self._pods.items() if _moves(pod) and pod.phase == "Running")
        self._needed = Counter(_workload(name, self._pods[name]) for name in running)
        self._lacking = (self._needed - self._safe).total()
        self.again = None if self._lacking else t

    def _node(self, t: float, name: str, node: NodeState | None) -> None:
        before = self._nodes.pop(name, None)
        if node is not None:
            self._nodes[name] = node
        if (before and before.zone) != (node and node.zone):
            for pod in self._on.get(name, ()):
                self._count(pod)
            self._note(t)

    def _pod(self, t: float, name: str, pod: PodState | None) -> None:
        before = self._pods.pop(name, None)
        if before is not None:
            self._on[before.node].discard(name)
        if pod is not None:
            self._pods[name] = pod
            self._on[pod.node].add(name)
        self._count(name)
        self._note(t)

    def _note(self, t: float) -> None:
        if self._lacking:
            self.again = None
        elif self.again is None:
            self.again = t

    def _count(self, name: str) -> None:
        pod = self._pods.get(name)
        if (counted := self._counted.pop(name, None)) is not None:
            self._change(counted, -1)
        if pod is not None and _moves(pod) and self._is_safe(pod):
            self._counted[name] = _workload(name, pod)
            self._change(self._counted[name], 1)

    def _change(self, workload: str, by: int) -> None:
        lacked = max(self._needed[workload] - self._safe[workload], 0)
        self._safe[workload] += by
        self._lacking += max(self._needed[workload] - self._safe[workload], 0) - lacked

    def _is_safe(self, pod: PodState) -> bool:
        if pod.phase == "Succeeded":
            return True
        node = self._nodes.get(pod.node)
        return pod.phase == "Running" and node is not None and node.zone != self.zone

    def now(self) -> PodCounts:
        there = {name for name, node in self._nodes.items() if node.zone == self.zone}
        moving = {name: pod for name, pod in self._pods.items() if _moves(pod)}
        waiting = {name: pod for name, pod in moving.items() if not pod.node and pod.why}
        return PodCounts(
            in_zone=sum(pod.node in there for pod in moving.values()),
            nodes=len(self._nodes),
            deleting=sum(pod.deleting for pod in self._pods.values()),
            missing=self._needed - self._safe,
            tried=Counter(_workload(name, pod) for name, pod in waiting.items()),
        )


def _moves(pod: PodState) -> bool:
    return not pod.deleting and not pod.workload.startswith("DaemonSet/")


def _workload(name: str, pod: PodState) -> str:
    return pod.workload or f"Pod/{name}"


@dataclass(frozen=True, slots=True)
class CopyAnswer:
    """What a run shows about a CopyQuestion. `held`: whether the copy runs as the original did, or
    its pods run again after the loss of a zone; None if the run doesn't show that.
    """

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
    judged: Judged,
    lines: Iterable[RecordedLine | UnknownLine],
    *,
    facts: CopyFacts,
    seconds: float,
) -> CopyAnswer:
    """Returns what a run shows about the question. The run took `seconds`; `lines` are its
    recording.
    """
    if judged.broken_off:
        # It says nothing about the cluster that was copied.
        return CopyAnswer(question, None, judged.broken_off, judged.why, seconds)
    if not question.zone:
        missed = [f"{each.name}: {each.reason}" for each in judged.outcomes if not each.held]
        running, pending = (
            round(judged.figures[f"pods.{name}"] or 0) for name in ("running", "pending")
        )
        sentence = f"pods that run: {running:,}, that are pending: {pending:,}"
        if not judged.passed:
            sentence += f"; in the cluster {facts.bound:,} and {facts.waiting:,}"
        return CopyAnswer(question, judged.passed, sentence, [*missed, *judged.why], seconds)
    observer = ZoneObserver(question.zone)
    for line in lines:
        observer.apply(line)
    return _about_zone(question, observer, judged, seconds=seconds)


def _about_zone(
    question: CopyQuestion, observer: ZoneObserver, judged: Judged, *, seconds: float
) -> CopyAnswer:
    before, end = observer.before, observer.now()
    alone = observer.alone or end
    without = alone.tried - before.tried
    placeless, missing = without.total(), end.missing.total()
    facts: dict[str, Any] = {
        "podsInZone": before.in_zone,
        "withoutPlace": placeless,
        "workloadsWithoutPlace": dict(without.most_common()),
        "notRunning": missing,
        "workloadsNotRunning": dict(end.missing.most_common()),
        "stayed": end.in_zone,
    }
    sentence = f"pods that had to move: {before.in_zone:,}"
    if not before.in_zone:
        sentence = "no pod was there, but those of DaemonSets"
    elif placeless:
        sentence += f"; without a place: {placeless:,}"
    elif not missing:
        sentence += "; all found another place"
    if observer.alone is not None:
        after = (
            None
            if observer.again is None or missing
            else max(observer.again - observer.started, 0.0)
        )
        new = max(end.nodes - alone.nodes, 0)
        facts |= {"newNodes": new, "secondsUntilAllRun": after}
        if placeless and after is not None:
            sentence += f"; all ran again {after:.0f} s after cluster-autoscaler had started"
        if placeless or new:
            sentence += f"; new nodes: {new:,}"
    if missing and (observer.alone is not None or missing != placeless):
        sentence += f"; that don't run again: {missing:,}"
    details = [
        f"{what}: {', '.join(f'{w}: {n:,}' for w, n in counts.most_common(_MOST_NAMED))}"
        for what, counts in (("without a place", without), ("don't run again", end.missing))
        if counts
    ]
    details += judged.why if missing else ()
    for what, count in (
        ("pods that had not left yet when cluster-autoscaler started", alone.in_zone - end.in_zone),
        ("pods that stay on nodes of the zone, as they tolerate that", end.in_zone),
        ("pods that are still being deleted", end.deleting),
    ):
        if count > 0:
            details.append(f"{what}: {count:,}")
    if end.in_zone and end.in_zone == before.in_zone:
        return CopyAnswer(question, None, "no pod left the zone", details, seconds, facts)
    # Pods that had a node, but didn't run yet before the loss, aren't among the missing.
    held = not missing and (observer.alone is not None or not placeless)
    return CopyAnswer(question, held, sentence, details, seconds, facts)


def all_held(answers: Iterable[CopyAnswer]) -> bool:
    return all(each.held for each in answers)


def lines_of(facts: CopyFacts, answers: Sequence[CopyAnswer]) -> Iterator[str]:
    """Yields the verdict as lines for a terminal."""
    for each in answers:
        yield f"{_word(each)}: {_about(each, facts)}: {each.sentence}"
        yield from (f"    {detail}" for detail in each.details)
    yield from remarks(facts)


def remarks(facts: CopyFacts) -> Iterator[str]:
    """Yields sentences on nodes that are lost in no run, such as those without a zone."""
    zones = [zone for zone, nodes in facts.zones.items() if zone and nodes]
    bare = facts.zones.get("", 0)
    if len(zones) == 1 and not bare:
        yield f"all nodes are in the zone {zones[0]}: without it there is no node, so it isn't lost"
    if bare:
        yield f"{bare:,} of {facts.nodes:,} nodes have no zone, and no question takes them away"


def verdict_md(facts: CopyFacts, answers: Sequence[CopyAnswer]) -> str:
    """Returns the text of verdict.md, the verdict for people."""
    lines = ["# First verdict", "", "| | | | seconds | report |", "|---|---|---|---:|---|"]
    for each in answers:
        report = f"[report]({each.question.name}/report.html)" if each.seconds else ""
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
