"""Makes a scenario smaller, level by level, as long as a run of it shows the same symptom.

    LEVELS --delta debugging--> a smaller document --valid?--> known? --play--> Symptom --agree?-->
      it is kept, and reported, or not

The first document is played twice, first to the end of its run. A try is a run of a smaller
document. If the two first runs agree, a single run decides a try. If not, either no try may end
early, or the majority of up to three runs decides. A try may end early, once nothing has changed in
it for somewhat longer than in any pause of the smallest document's run; this saves most for a
scenario with a long settledFor. As such a try may have missed something, the smallest document is
played once to the end of its run after all levels. If that run disagrees, all levels are repeated
by majority, and no try ends early. The levels are repeated until none leaves out anything more. In
a repetition each part is left out alone, as most parts are needed.
"""

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

from kwok_operator.errors import KwokOperatorError
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.shrinking.deltadebugging import lowered, minimized
from kwok_operator.rehearsal.shrinking.levels import LEVELS, ShrinkLevel
from kwok_operator.rehearsal.shrinking.parts import Amount, Doc, Part, with_numbers, without
from kwok_operator.rehearsal.shrinking.symptom import Symptom, agree, because
from kwok_operator.rehearsal.shrinking.tries import Tries, key_of

MOST_TRIES: Final = 3
"""How often a document is played at most, if its outcomes differ."""

_LONGER: Final = 1.5
_MORE: Final = 2.0
"""A try must be quiet for _LONGER times the longest pause, plus this many seconds."""

Play = Callable[[Doc, float | None], Awaitable[Symptom]]
"""Plays a document until it was quiet for the given seconds; None: to the end of its run."""
T = TypeVar("T")


class ShrinkError(KwokOperatorError):
    """There is nothing to shrink. The message says why."""


class _Spent(Exception):
    """The budget of tries and time is spent."""


@dataclass(frozen=True, slots=True)
class ShrinkBudget:
    runs: int
    seconds: float


@dataclass(slots=True)
class Shrinker:
    """Shrinks one document. `play` plays a smaller one (a try), `is_valid` checks one without
    playing it, and `smaller` is called with each document that is the smallest so far.
    """

    smallest: Doc
    play: Play
    is_valid: Callable[[Doc], bool]
    tries: Tries
    budget: ShrinkBudget
    report: Report
    smaller: Callable[[Doc], object]
    now: Callable[[], float] = time.monotonic
    runs: int = 0
    """How many tries were made, without those whose result was known."""
    first: Symptom = field(default_factory=Symptom)
    reason: str = ""
    """A text that a reason of the first run must contain; then only such reasons are kept."""
    by_majority: bool = False
    patient: bool = False
    """Whether each try is played to the end of its run."""
    _pause: float = 0.0
    """The longest pause in the run of the smallest so far, in seconds."""
    _last: Symptom | None = None
    """The symptom of the last try that was the same."""
    _began: float = 0.0
    _answers: dict[str, bool] = field(default_factory=dict)

    async def shrink(self) -> bool:
        """Shrinks. Returns whether nothing more can be left out; if not, the budget is spent.

        Raises ShrinkError if the first run can't be judged or has no reason with the text `reason`,
        if no two of the first runs agree, if the budget is spent before the first runs are over, or
        if the result of tries by majority disagrees at the end.
        """
        self._began = self.now()
        with suppress(_Spent):
            await self._begin()
            for passed in count():
                before = self.smallest
                for level in LEVELS:
                    await self._reduce(level, again=passed > 0 and not self.patient)
                if self.smallest == before:
                    return True
                if not await self._decided(self.smallest, None):
                    self._doubt(before)
        if not self.first.outcomes:
            raise ShrinkError("the budget was spent before the first runs were over; raise it")
        return False

    async def _begin(self) -> None:
        """Plays the whole scenario to see which symptom to keep, and how reliably it appears."""
        self.report("the first run says what is to be kept")
        symptoms = [await self._try(self.smallest, None)]
        if symptoms[0].broken_off:
            raise ShrinkError(f"the scenario as it is can't be judged: {symptoms[0].broken_off}")
        self._pause = symptoms[0].pause
        early = await self._try(self.smallest, self._quiet)
        if early.broken_off:  # by chance, such as an autoscaler that a busy machine starts too late
            early = await self._try(self.smallest, self._quiet)
        symptoms.append(early)
        if not agree(symptoms[0], symptoms[1]):
            symptoms.append(await self._try(self.smallest, None))
            # If only the run that ended early is different, no other may end early.
            self.patient = agree(symptoms[0], symptoms[2])
            self.by_majority = not self.patient
        kept = [one for one in symptoms if sum(agree(one, each) for each in symptoms) > 1]
        if not kept:
            said = "; ".join(dict.fromkeys(map(str, symptoms)))
            raise ShrinkError(f"it comes out differently in each run: {said}")
        first = because(kept[0], self.reason) if self.reason else kept[0]
        if self.reason and not any(first.reasons):
            raise ShrinkError(f"--because {self.reason}: is no reason of the first run: {kept[0]}")
        self.first = first
        self._answers[key_of(self.smallest)] = True
        often = (
            ", in two of three runs: each try is decided by majority" if self.by_majority else ""
        )
        self.report(f"kept: {self.first}{often}")
        if any(each != "holds" for each in self.first.outcomes) and not any(self.first.reasons):
            self.report("nothing is known of why; the smallest may fail for another reason")

    def _doubt(self, before: Doc) -> None:
        """Goes back to `before`, the document before the levels were tried, as tries that ended
        early can't be trusted. From now on, no try ends early.
        """
        if self.by_majority:
            raise ShrinkError("what is left comes out differently each time it is played")
        self.report("what is left comes out differently at the end of its run: with patience again")
        self.by_majority = self.patient = True
        self._answers.clear()
        self.smallest = before
        self.smaller(before)

    @property
    def _quiet(self) -> float | None:
        return None if self.patient else self._pause * _LONGER + _MORE

    async def _reduce(self, level: ShrinkLevel, *, again: bool) -> None:
        doc = self.smallest
        if parts := tuple(level.parts(doc)):

            def only(kept: tuple[Part, ...]) -> Doc:
                return without(doc, (each for each in parts if each not in kept))

            await self._drive(
                minimized(parts, singly=again),
                only,
                lambda kept: f"{len(parts) - len(kept)} of {len(parts)} {level.description}",
            )
        if amounts := {each: each.value for each in level.amounts(doc)}:

            def lower(numbers: Mapping[Amount, int]) -> Doc:
                return with_numbers(doc, numbers)

            await self._drive(
                lowered(amounts, {each: each.least for each in amounts}, singly=again),
                lower,
                lambda numbers: (
                    f"{sum(amounts.values()) - sum(numbers.values())} of"
                    f" {sum(amounts.values())} {level.description}"
                ),
            )

    async def _drive(
        self,
        tries: Generator[T, bool, T],
        doc_of: Callable[[T], Doc],
        describe: Callable[[T], str],
    ) -> None:
        with suppress(StopIteration):
            attempt = next(tries)
            while True:
                doc = doc_of(attempt)
                began, runs = self.now(), self.runs
                holds = await self._holds(doc)
                if holds:
                    if self._last is not None:
                        self._pause = self._last.pause
                    self.smallest = doc
                    self.smaller(doc)
                took = f"{self.now() - began:.0f} s" if self.runs > runs else "not played"
                verdict = "the same" if holds else "not the same"
                self.report(f"without {describe(attempt)}: {verdict} ({took}); {self.left}")
                attempt = tries.send(holds)

    @property
    def left(self) -> str:
        """The rest of the budget of tries and time, in words."""
        minutes = max(self.budget.seconds - (self.now() - self._began), 0.0) / 60
        return f"{self.budget.runs - self.runs} runs and {minutes:.0f} min left"

    async def _holds(self, doc: Doc) -> bool:
        key = key_of(doc)
        if key not in self._answers:
            self._answers[key] = self.is_valid(doc) and await self._decided(doc, self._quiet)
        return self._answers[key]

    async def _decided(self, doc: Doc, quiet: float | None) -> bool:
        """Plays a document once, or, by majority, until two runs give the same result. Returns
        whether it shows the symptom.
        """
        votes = {True: 0, False: 0}
        while max(votes.values()) < (MOST_TRIES + 1) // 2:
            symptom = await self._try(doc, quiet)
            same = agree(self.first, symptom)
            votes[same] += 1
            if same:
                self._last = symptom
            if not self.by_majority:
                break
        return votes[True] > votes[False]

    async def _try(self, doc: Doc, quiet: float | None) -> Symptom:
        key = key_of([doc, quiet])
        if (known := self.tries.known(key)) is not None:
            return known
        began = self.now()
        if self.runs >= self.budget.runs or began - self._began > self.budget.seconds:
            raise _Spent
        self.runs += 1
        symptom = await self.play(doc, quiet)
        self.tries.add(key, symptom, seconds=self.now() - began)
        return symptom
