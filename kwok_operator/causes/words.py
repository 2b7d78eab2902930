"""Shows chains of causes as lines of text: one pod's chain, or a summary by workload.

    Chain --chain_lines--> lines
    Chain --Answers.add--> counts by workload and cause --lines, worst--> lines

A line of the summary counts the pods of a workload that have the same cause, and quotes the one
that waited longest.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final

from kwok_operator.causes.deciding import longest_phase
from kwok_operator.causes.model import WAITS, CauseKind, Chain, ChainStep, StepKind
from kwok_operator.errors import TERMINAL_LINE, one_line
from kwok_operator.formats.words import counted

MOST_WORKLOADS: Final = 50
_MOST_KEPT: Final = 20_000
"""The most workloads that are counted separately."""
_OTHERS: Final = "other workloads"
_NAMED: Final = {
    StepKind.UNSCHEDULABLE: "unschedulable: ",
    StepKind.FAILED: "failed: ",
    StepKind.HELD: "kept: ",
}
_LONGEST: Final = {
    "wait.decision": "mostly until a node was requested",
    "wait.boot": "mostly until the node was usable",
    "wait.scheduling": "mostly until bound to a usable node",
    "wait.start": "mostly until containers ran",
}
_DOING: Final = {
    CauseKind.NO_AUTOSCALER: "waiting, without an autoscaler",
    CauseKind.UNDECIDED: "waiting for the autoscaler's next decision",
    CauseKind.REFUSED: "refused by the autoscaler for now",
    CauseKind.NEVER: "can never be placed",
    CauseKind.CREATING: "waiting for nodes under way",
    CauseKind.NO_STOCK: "waiting for nodes that the cloud can't create",
    CauseKind.NOT_READY: "waiting for nodes that aren't usable yet",
    CauseKind.UNSCHEDULED: "waiting for the scheduler",
    CauseKind.STARTING: "bound, and not running yet",
    CauseKind.HELD: "running on nodes that a PodDisruptionBudget keeps",
    CauseKind.DISRUPTED: "evicted or preempted",
    CauseKind.ENDED: "ended without having run",
    CauseKind.UNKNOWN: "waiting for a reason that isn't known",
}
_URGENCY: Final = tuple(
    [CauseKind.NEVER, CauseKind.NO_STOCK, CauseKind.REFUSED]
    + [kind for kind in CauseKind if kind in WAITS]
    + [CauseKind.DISRUPTED, CauseKind.HELD, CauseKind.RUNNING, CauseKind.ENDED]
)


def chain_lines(chain: Chain) -> Iterator[str]:
    """Yields the lines on a pod's chain: its cause first, then each step with its time."""
    of = f" of {chain.workload}" if chain.workload else ""
    yield _line(f"{chain.pod}{of}: {chain.cause.sentence}")
    if chain.cause.remedy:
        yield _line(f"to do: {chain.cause.remedy}", indent="  ")
    for step in chain.steps:
        yield _line(step_in_words(step), indent=f"{step.at:>10.1f} s  ")
    if chain.phases:
        parts = [f"{name} {seconds:.1f} s" for name, seconds in chain.phases.items()]
        yield f"  phases: {', '.join(parts)}; {chain.waited:.1f} s in all"
    for what in chain.unknown:
        yield _line(f"not known: {what}", indent="  ")


def step_in_words(step: ChainStep) -> str:
    return f"{_NAMED.get(step.kind, '')}{step.text}"


@dataclass(slots=True)
class _Alike:
    """The pods of a workload with the same cause."""

    waits: list[float] = field(default_factory=list)
    example: Chain | None = None
    """The chain of the pod that waited longest."""


_Key = tuple[CauseKind, str]


class Answers:
    """Counts chains by workload and cause, for a summary of why each workload's pods waited."""

    def __init__(self) -> None:
        self._workloads: dict[str, dict[_Key, _Alike]] = {}

    def add(self, chain: Chain) -> None:
        if chain.cause.kind is CauseKind.ENDED and not chain.waited:
            return  # the pod ran before the run began
        alike = self._alike(chain.workload or chain.pod, _key(chain))
        alike.waits.append(chain.waited)
        if alike.example is None or chain.waited > alike.example.waited:
            alike.example = chain

    def join(self, others: "Answers") -> None:
        """Adds the counts of another `Answers`."""
        for workload, by_cause in others._workloads.items():
            for key, each in by_cause.items():
                alike = self._alike(workload, key)
                alike.waits += each.waits
                examples = filter(None, (alike.example, each.example))
                alike.example = max(examples, key=lambda chain: chain.waited, default=None)

    def _alike(self, workload: str, key: "_Key") -> _Alike:
        if workload not in self._workloads and len(self._workloads) >= _MOST_KEPT:
            workload = _OTHERS
        return self._workloads.setdefault(workload, defaultdict(_Alike))[key]

    def lines(self) -> Iterator[str]:
        """Yields what became of the pods of each workload; workloads whose pods wait come first."""
        ordered = sorted(self._workloads, key=self._rank)
        for workload in ordered[:MOST_WORKLOADS]:
            by_cause = self._workloads[workload]
            count = sum(len(alike.waits) for alike in by_cause.values())
            yield _line(f"{workload}: {counted(count, 'pod')}")
            for key in sorted(by_cause, key=lambda key: (_URGENCY.index(key[0]), key[1])):
                what, remedy = _answer(key, by_cause[key], of=count)
                yield _line(what, indent="  ")
                if remedy:
                    yield _line(f"to do: {remedy}", indent="      ")
        if more := len(ordered) - MOST_WORKLOADS:
            if more > 0:
                yield f"and {more:,} more workloads; name one"

    def worst(self, *, most: int) -> Iterator[str]:
        """Yields a line for each of the `most` most urgent causes; of equally urgent ones, those
        with more pods come first.
        """
        every = [
            (_URGENCY.index(key[0]), -len(alike.waits), workload, key)
            for workload, by_cause in self._workloads.items()
            for key, alike in by_cause.items()
            if key[0] is not CauseKind.ENDED
        ]
        for _, _, workload, key in sorted(every)[:most]:
            by_cause = self._workloads[workload]
            count = sum(len(alike.waits) for alike in by_cause.values())
            what, remedy = _answer(key, by_cause[key], of=count)
            yield _line(f"{workload}: {what}{f'; to do: {remedy}' if remedy else ''}")

    def _rank(self, workload: str) -> tuple[int, float, str]:
        by_cause = self._workloads[workload]
        waiting = sum(len(alike.waits) for (kind, _), alike in by_cause.items() if kind in WAITS)
        return -waiting, -max(max(alike.waits) for alike in by_cause.values()), workload


def _answer(key: _Key, alike: _Alike, *, of: int) -> tuple[str, str]:
    """Returns a sentence on the pods of a workload that have the same cause, and the remedy. `of`
    is the number of all pods of the workload."""
    kind, longest = key
    count, most, chain = len(alike.waits), max(alike.waits), alike.example
    if chain is None:
        return "", ""
    who, such = f"{count:,} of {of:,}: ", f"such as {chain.pod}"
    if kind is not CauseKind.RUNNING:
        return f"{who}{_DOING[kind]}, {such}: {chain.cause.sentence}", chain.cause.remedy
    median = f"{median_low(alike.waits):.1f} s (median) and at most " if count > 1 else ""
    return f"{who}ran after {median}{most:.1f} s, {_LONGEST.get(longest, 'at once')}; {such}", ""


def _key(chain: Chain) -> _Key:
    cause = chain.cause
    if cause.kind is CauseKind.RUNNING:
        longest = longest_phase(chain.phases)
        return cause.kind, longest if chain.phases.get(longest) else ""
    return cause.kind, "; ".join(each.reason for each in cause.refusals)


def _line(text: str, *, indent: str = "") -> str:
    """Makes one short line of a text. Replaces control characters, which a terminal would
    interpret.
    """
    return f"{indent}{one_line(text, limit=TERMINAL_LINE)}"
