"""What a run shows of the expectations that are to come out the same, and whether two runs agree.

    Judged, chains of pods --symptom_of--> Symptom, Symptom --agree--> whether it is the same

That an expectation fails is not enough: a scenario without its groups has pending pods, too. So a
run agrees with the first one only if it came to its end, the figure is on the same side of its
bound, and pods wait, or waited, for a reason that the first run had as well.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kwok_operator.causes.model import Chain, StepKind, known_reasons
from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.judge.expectations import ExpectationOutcome
from kwok_operator.rehearsal.judge.figures import FIGURES
from kwok_operator.rehearsal.judge.verdict import Judged

_HOLDS: Final = "holds"
_TELLING: Final = frozenset({StepKind.REFUSED, StepKind.FAILED, StepKind.HELD})
"""The steps of a pod whose texts say what has kept it waiting."""
_OF_WAITING: Final = ("pods.pending", "pods.running", "pods.unserved")

Reasons = frozenset[frozenset[str]]
"""For which reasons pods wait: those of a pod together."""
ReasonsOf = Callable[[ExpectationOutcome], Reasons]


@dataclass(frozen=True, slots=True)
class Symptom:
    broken_off: str = ""
    """Why the run doesn't count; empty if it came to its end."""
    outcomes: tuple[str, ...] = ()
    """How each of the expectations came out, in a word or two."""
    reasons: tuple[Reasons, ...] = ()
    """For each of them why the pods wait that it is about; empty if it says nothing of that."""

    def __str__(self) -> str:
        if self.broken_off:
            return self.broken_off
        parts = []
        for outcome, reasons in zip(self.outcomes, self.reasons, strict=True):
            why = names_in_words(sorted({each for some in reasons for each in some}))
            parts.append(f"{outcome}{f' ({why})' if why else ''}")
        return ", ".join(parts)


def agree(first: Symptom, other: Symptom) -> bool:
    """Whether the expectations came out the same as in the first run, and for one of its reasons
    each.
    """
    return (
        not other.broken_off
        and first.outcomes == other.outcomes
        and all(not a or bool(a & b) for a, b in zip(first.reasons, other.reasons, strict=True))
    )


def symptom_of(
    judged: Judged, keeps: Sequence[int], chains: Mapping[int, Sequence[Chain]]
) -> Symptom:
    """`keeps` are the numbers of the expectations, and `chains` has the pods that each of them is
    about.
    """
    if judged.broken_off:
        return Symptom(judged.broken_off)
    outcomes = [judged.outcomes[number] for number in keeps]
    return Symptom(
        outcomes=tuple(map(_in_words, outcomes)),
        reasons=tuple(
            frozenset(map(_reasons, _concerned(outcome, chains.get(number, ()))))
            for number, outcome in zip(keeps, outcomes, strict=True)
        ),
    )


def _in_words(outcome: ExpectationOutcome) -> str:
    expected, value = outcome.expectation, outcome.value
    if outcome.held:
        return _HOLDS
    if outcome.lacks or expected.kind == "wait" or value is None:
        return f"fails, without {outcome.lacks}" if outcome.lacks else "fails"
    low = expected.at_least if expected.equals is None else expected.equals
    return "fails, too low" if low is not None and value < low else "fails, too high"


def _concerned(outcome: ExpectationOutcome, chains: Iterable[Chain]) -> list[Chain]:
    """Returns the chains of those pods for which an expectation fails."""
    expected = outcome.expectation
    figure = FIGURES.get(expected.figure or "")
    if outcome.held or figure is None:
        return []
    if figure.waits is not None:
        bound = expected.at_most if expected.equals is None else expected.equals
        return [each for each in chains if each.waits or each.waited > (bound or 0.0)]
    return [each for each in chains if each.waits] if figure.name.startswith(_OF_WAITING) else []


def _reasons(chain: Chain) -> frozenset[str]:
    texts = [chain.cause.sentence, *(each.reason for each in chain.cause.refusals)]
    texts += [step.text for step in chain.steps if step.kind in _TELLING]
    return known_reasons("; ".join(texts)) or frozenset({chain.cause.kind.value})
