"""What a run shows of the expectations that a shrinking keeps, and whether two runs agree.

    Judged, chains of pods, loops of cluster-autoscaler --symptom_of--> Symptom
    Symptom, Symptom --agree--> whether it is the same

It isn't enough that an expectation fails again: a scenario without its groups has pending pods,
too. So a run agrees with the first one only if it came to its end, the figure is on the same side
of its bound, and a reason is the same: why pods wait or waited; why cluster-autoscaler keeps nodes;
whether it chose a group among several, and not at random.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kwok_operator.causes.model import Chain, StepKind, known_reasons
from kwok_operator.causes.recorded import Explainer
from kwok_operator.formats.autoscalertexts import TRIGGERED
from kwok_operator.formats.words import names_in_words
from kwok_operator.importing.incidents.calog import Loop
from kwok_operator.importing.incidents.decision import rated_alike
from kwok_operator.rehearsal.judge.expectations import ExpectationOutcome
from kwok_operator.rehearsal.judge.figures import FIGURES
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import (
    EventLine,
    GroupLine,
    JobLine,
    NodeClaimLine,
    NodeLine,
    PodLine,
    RecordedLine,
    RecordingHeader,
)
from kwok_operator.rehearsal.judge.verdict import Judged

_HOLDS: Final = "holds"
_TOO_HIGH: Final = "fails, too high"
_TELLING: Final = frozenset({StepKind.REFUSED, StepKind.FAILED, StepKind.HELD})
"""The kinds of a pod's steps whose texts say why it waited."""
_NOT_THERE: Final = ("NotFound", "no matching resources found")
"""Parts of kubectl's message about an object that doesn't exist."""
_OF_WAITING: Final = ("pods.pending", "pods.running", "pods.unserved")
_OF_NODES: Final = ("nodes", "instances", "churn.created", "cost")
_OF_A_GROUP: Final = r"-[a-z0-9]{4}-[0-9]+"
"""What follows the group's name in the name of a node."""
_NAMES: Final = re.compile(r"\S*[0-9/]\S*")
_A_CHOICE: Final = "a choice among groups"
_NO_CHOICE: Final = "the only group"
_NO_CHANCE: Final = "not by chance"
_CHANGES: Final = (NodeLine, PodLine, GroupLine, JobLine, NodeClaimLine)

Reasons = frozenset[frozenset[str]]
"""The reasons of all pods or nodes concerned; those of one pod or node are a set in it."""


@dataclass(frozen=True, slots=True)
class Symptom:
    broken_off: str = ""
    """Why the run doesn't count; empty if it came to its end."""
    outcomes: tuple[str, ...] = ()
    """The outcome of each of the expectations, in a word or two."""
    reasons: tuple[Reasons, ...] = ()
    """The reasons why each of them fails; empty if unknown."""
    pause: float = 0.0
    """The longest time without a change, in seconds, after which something still changed."""

    def __str__(self) -> str:
        if self.broken_off:
            return self.broken_off
        parts = []
        for outcome, reasons in zip(self.outcomes, self.reasons, strict=True):
            why = names_in_words(sorted({each for some in reasons for each in some}))
            parts.append(f"{outcome}{f' ({why})' if why else ''}")
        return ", ".join(parts)


def because(symptom: Symptom, text: str) -> Symptom:
    """Returns the symptom with only those of its reasons that contain this text."""
    kept = (
        frozenset(some for some in reasons if any(text.lower() in each.lower() for each in some))
        for reasons in symptom.reasons
    )
    return replace(symptom, reasons=tuple(kept))


class TryFollower:
    """Reads the recording of a try while it is judged. It collects the chains of all pods, and the
    longest `pause`: the most seconds between two changes. An expected Event counts as a change;
    other Events don't, as they may come late, such as those of new nodes.
    """

    def __init__(self, header: RecordingHeader) -> None:
        self.chains: list[Chain] = []
        self.pause = 0.0
        self._explainer = Explainer(header)
        self._events = [each.event for each in header.expect if each.event is not None]
        self._changed = 0.0

    def moves_on(self, ledger: ClusterLedger, t: float) -> None:
        pass

    def on_line(self, line: RecordedLine, ledger: ClusterLedger) -> None:
        self.chains += self._explainer.apply(line)
        if isinstance(line, _CHANGES) or (
            isinstance(line, EventLine) and any(each.matches(line) for each in self._events)
        ):
            self.pause, self._changed = max(self.pause, line.t - self._changed), line.t

    def finish(self, ledger: ClusterLedger) -> None:
        self.chains += self._explainer.finish(ledger.now)


def agree(first: Symptom, other: Symptom) -> bool:
    """Whether the other run came to its end, and each expectation has the same outcome in both
    runs, with at least one reason in common if the first run has any.
    """
    return (
        not other.broken_off
        and first.outcomes == other.outcomes
        and all(not a or bool(a & b) for a, b in zip(first.reasons, other.reasons, strict=True))
    )


def symptom_of(
    judged: Judged,
    keeps: Sequence[int],
    chains: Mapping[int, Sequence[Chain]],
    loops: Sequence[Loop] = (),
    groups: Collection[str] = (),
) -> Symptom:
    """Returns the symptom of a run. `keeps` are the numbers of the expectations, `chains` has the
    pods that each of them is about, `loops` is what cluster-autoscaler logged, and `groups` are
    those that it may scale.
    """
    if judged.broken_off:
        return Symptom(judged.broken_off)
    outcomes = [judged.outcomes[number] for number in keeps]
    return Symptom(
        outcomes=tuple(map(_in_words, outcomes)),
        reasons=tuple(
            frozenset(map(_reasons, _concerned(outcome, chains.get(number, ()))))
            | _of_nodes(outcome, loops, groups)
            | _of_chance(outcome, loops)
            for number, outcome in zip(keeps, outcomes, strict=True)
        ),
    )


def _of_nodes(
    outcome: ExpectationOutcome, loops: Sequence[Loop], groups: Collection[str]
) -> Reasons:
    """Returns, for an expectation on nodes, the reasons why there are too many, or enough: why
    cluster-autoscaler keeps nodes, or whether it could choose between groups when it added some.
    Empty for any other expectation.
    """
    expected = outcome.expectation
    figure = FIGURES.get(expected.figure or "")
    if figure is None or not figure.name.startswith(_OF_NODES):
        return frozenset()
    low = expected.at_least if expected.equals is None else expected.equals
    if _in_words(outcome) != _TOO_HIGH and not (outcome.held and low):
        return frozenset()
    group = expected.of.group
    if not figure.rises(expected.of):
        kept: dict[str, str] = {}
        for loop in loops:
            # It logs now and then why it keeps a node, until it finds the node unneeded.
            for node in (*loop.unneeded, *loop.removed):
                kept.pop(node, None)
            kept |= loop.kept
        own = re.compile(rf"{re.escape(group)}{_OF_A_GROUP}")
        why = [text for node, text in kept.items() if not group or own.fullmatch(node)]
        return frozenset(frozenset({_NAMES.sub("*", text)}) for text in why)
    choices = set()
    for loop in loops:
        options = set(groups) - loop.empty - loop.skipped.keys()
        if loop.best and group in ("", loop.best):
            choices.add(_A_CHOICE if len(options) > 1 else _NO_CHOICE)
    return frozenset(frozenset({each}) for each in choices)


def _of_chance(outcome: ExpectationOutcome, loops: Sequence[Loop]) -> Reasons:
    """Returns a reason if an expected scale-up Event came, and cluster-autoscaler had a reason to
    choose the group. Returns none if it chose at random: another run may choose another group.
    """
    event = outcome.expectation.event
    if event is None or event.reason != TRIGGERED or not outcome.held:
        return frozenset()
    chosen = [loop for loop in loops if loop.plan and not rated_alike(loop)]
    return frozenset([frozenset({_NO_CHANCE})] if chosen else ())


def _in_words(outcome: ExpectationOutcome) -> str:
    expected, value = outcome.expectation, outcome.value
    if outcome.held:
        return _HOLDS
    if expected.kind == "wait" and any(text in outcome.reason for text in _NOT_THERE):
        return "fails, without its object"
    if outcome.lacks or expected.kind == "wait" or value is None:
        return f"fails, without {outcome.lacks}" if outcome.lacks else "fails"
    low = expected.at_least if expected.equals is None else expected.equals
    return "fails, too low" if low is not None and value < low else _TOO_HIGH


def _concerned(outcome: ExpectationOutcome, chains: Iterable[Chain]) -> list[Chain]:
    """Returns the chains of the pods that may be the reason why an expectation fails."""
    expected = outcome.expectation
    figure = FIGURES.get(expected.figure or "")
    if outcome.held:
        return []
    if figure is None or (figure.name.startswith(_OF_NODES) and _in_words(outcome) != _TOO_HIGH):
        # No node was added, or no Event or Ready object: pods that wait may show why.
        return [each for each in chains if each.waits and _in_words(outcome) != _TOO_HIGH]
    if figure.waits is not None:
        bound = expected.at_most if expected.equals is None else expected.equals
        return [each for each in chains if each.waits or each.waited > (bound or 0.0)]
    return [each for each in chains if each.waits] if figure.name.startswith(_OF_WAITING) else []


def _reasons(chain: Chain) -> frozenset[str]:
    texts = [chain.cause.sentence, *(each.reason for each in chain.cause.refusals)]
    texts += [step.text for step in chain.steps if step.kind in _TELLING]
    return known_reasons("; ".join(texts)) or frozenset({chain.cause.kind.value})
