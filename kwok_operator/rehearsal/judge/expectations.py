"""Whether what a scenario expects has held, and why: an outcome for each assertion.

    header.expect --assertions--> Assertion;  lines, ledger --Judge--> AssertionOutcome

`end` is the last moment of the recording, `always` each of its moments, `{at: 120}` that second.
Nothing holds on an incomplete figure, and `always` waits for it to be complete, unless what is
known breaks it already.
What `kubectl wait` was asked is answered by a line of the recording. A group or workload that
the recording has never seen is a mistake in the scenario, and no reason to pass.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.errors import RecordingError, one_line
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.words import few_names
from kwok_operator.rehearsal.judge.figures import (
    FIGURES,
    FigureReading,
    FigureScope,
    in_words,
    reading,
)
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import MAX_SECONDS, EventLine, RecordedLine, WaitLine

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at a figure that drifts, for `always`."""
_BOUNDS: Final = {"atLeast": "at least", "atMost": "at most", "equals": "exactly"}
_SCOPES: Final = FigureScope.__slots__
_EVENT_FIELDS: Final = ("reason", "type", "about", "from", "message")
_MOST_TEXT: Final = 500
_MOST_NUMBER: Final = 2.0**1023


@dataclass(frozen=True, slots=True)
class Assertion:
    """One of figure, event and wait; what isn't given is empty."""

    name: str = ""
    figure: str = ""
    of: FigureScope = field(default_factory=FigureScope)
    event: Mapping[str, str] = field(default_factory=dict)
    """Of reason, type, about, from, message: those that are given."""
    wait: str = ""
    within: float | None = None
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Of atLeast, atMost, equals: those that are given."""
    always: bool = False
    at: float | None = None

    @property
    def kind(self) -> str:
        return "figure" if self.figure else "event" if self.event else "wait"

    @property
    def unit(self) -> str:
        return FIGURES[self.figure].unit if self.figure else ""

    @property
    def wanted(self) -> str:
        return " and ".join(
            f"{_BOUNDS[key]} {in_words(number, self.unit, exact=True)}"
            for key, number in self.bounds.items()
        )

    @property
    def moment(self) -> str:
        return "always" if self.always else "at the end" if self.at is None else f"at {self.at:g} s"

    def __str__(self) -> str:
        if self.kind == "wait":
            within = "" if self.within is None else f" within {self.within:g} s"
            return one_line(f"kubectl wait {self.wait}{within}", limit=_MOST_TEXT)
        what = self.figure
        if self.kind == "event":
            told = ", ".join(f"{key} {text}" for key, text in self.event.items())
            what = f"Events with {told}"
        elif self.of.by:
            what += f" of {self.of}"
        return one_line(f"{what}: {self.wanted}, {self.moment}", limit=_MOST_TEXT)

    def holds(self, number: float) -> bool:
        at_least, at_most = self.bounds.get("atLeast"), self.bounds.get("atMost")
        equals = self.bounds.get("equals")
        return (
            (at_least is None or number >= at_least)
            and (at_most is None or number <= at_most)
            and (equals is None or abs(number - equals) < 1e-6)
        )

    def shown(self, number: float) -> str:
        """Rounded, unless that would be on the other side of a bound."""
        text = in_words(number, self.unit)
        rounded = float(text.split()[0].replace(",", "")) / (100 if self.unit == "share" else 1)
        if self.holds(rounded) == self.holds(number):
            return text
        return in_words(number, self.unit, exact=True)

    def holds_by_now(self, read: FigureReading) -> bool:
        """For what waits until it does: a part that is known may be enough for `atLeast`."""
        if read.value is None or (read.incomplete and self.bounds.keys() != {"atLeast"}):
            return False
        return self.holds(read.value)

    def is_broken_by(self, read: FigureReading) -> bool:
        """Whether nothing that is still missing can mend it."""
        if read.value is None:
            return False
        at_most = self.bounds.get("atMost", math.inf)
        return read.value > at_most if read.incomplete else not self.holds(read.value)

    def counts(self, event: EventLine) -> bool:
        told = {"reason": event.reason, "type": event.type, "from": event.component}
        for key, wanted in self.event.items():
            if key == "message":
                if wanted not in event.message:
                    return False
            elif key == "about":
                about, parts = event.about.split("/"), wanted.split("/")
                if about[1:2] == [""] and len(parts) == 2:
                    del about[1]  # Kind/name, as the kind has no namespaces
                if about[: len(parts)] != parts:
                    return False
            elif told[key] != wanted:
                return False
        return True


@dataclass(frozen=True, slots=True)
class AssertionOutcome:
    assertion: Assertion
    held: bool
    reason: str
    value: float | None = None
    t: float | None = None
    """When it was decided."""

    @property
    def name(self) -> str:
        return self.assertion.name or str(self.assertion)


def assertions(expect: Sequence[Any], *, where: str) -> list[Assertion]:
    """What a header says is expected. Raises RecordingError for what can't be judged."""
    return [_assertion(each, f"header.expect[{n}]", where) for n, each in enumerate(expect)]


def _assertion(told: Any, path: str, where: str) -> Assertion:
    def refuse(key: str, found: Any, problem: str, remedy: str) -> RecordingError:
        place = f"{path}.{key}" if key else path
        return RecordingError(where=where, field=place, value=found, problem=problem, remedy=remedy)

    if not isinstance(told, Mapping):
        raise refuse("", told, "is no object", "write what is expected")
    texts = {key: told.get(key) or "" for key in ("name", "figure", "wait")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise refuse(key, text, "is no text", "write a string")
    bounds = {key: told[key] for key in _BOUNDS if told.get(key) is not None}
    for key, number in bounds.items():
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise refuse(key, number, "is no number", "write a number; times are seconds")
        if not abs(number) <= _MOST_NUMBER:
            raise refuse(key, number, "is out of range", "write a number of the size of a figure")
    when = told.get("when", "end")
    at = as_map(when).get("at")
    if when not in ("end", "always") and not isinstance(at, int | float):
        raise refuse("when", when, "is no moment", 'write "end", "always" or {"at": SECONDS}')
    if at is not None and not 0 <= at <= MAX_SECONDS:
        raise refuse("when", when, "is out of range", f"write from 0 to {MAX_SECONDS:g} seconds")
    event = {key: str(text) for key, text in as_map(told.get("event")).items() if text}
    of = {key: str(text) for key, text in as_map(told.get("of")).items() if text}
    within = told.get("within")
    if isinstance(within, int | float) and not 0 <= within <= MAX_SECONDS:
        raise refuse(
            "within", within, "is out of range", f"write from 0 to {MAX_SECONDS:g} seconds"
        )
    found = Assertion(
        **texts,
        of=FigureScope(**{key: text for key, text in of.items() if key in _SCOPES}),
        event=event,
        within=float(within) if isinstance(within, int | float) else None,
        bounds={key: float(number) for key, number in bounds.items()},
        always=when == "always",
        at=float(at) if at is not None else None,
    )
    if sum(map(bool, (found.figure, found.event, found.wait))) != 1:
        raise refuse("", None, "isn't one of figure, event and wait", "expect one thing at a time")
    if found.kind != "wait" and not bounds:
        raise refuse("", None, "has no bound", f"give {', '.join(_BOUNDS)}")
    if unknown := event.keys() - set(_EVENT_FIELDS):
        raise refuse("event", few_names(unknown), "is not known", f"use {', '.join(_EVENT_FIELDS)}")
    if problem := figure_problem(found.figure, of) if found.figure else "":
        raise refuse("figure", found.figure, problem, "see the list of figures in docs")
    return found


def figure_problem(name: str, of: Mapping[str, str]) -> str:
    """Why there can't be such a figure; nothing where there can."""
    if name not in FIGURES:
        return "is no figure"
    wrong = sorted(of.keys() - FIGURES[name].of)
    if wrong:
        may = ", ".join(sorted(FIGURES[name].of))
        return f"can't be narrowed by {', '.join(wrong)}, only by {may}"
    return ""


def scopes(asserted: Sequence[Assertion]) -> set[FigureScope]:
    """All that a ledger has to sum up for these."""
    found = {each.of for each in asserted}
    for of in list(found):
        found |= {scope for _, scope in _parts(of)}
    return found - {FigureScope()}


def _parts(of: FigureScope) -> list[tuple[str, FigureScope]]:
    """What must have been there, each by itself: the pods of a workload need not have come to a
    group, but a workload that isn't in the namespace is a mistake."""
    return [
        ("group", FigureScope(group=of.group)),
        ("zone", FigureScope(zone=of.zone)),
        ("namespace", FigureScope(namespace=of.namespace)),
        ("workload", FigureScope(workload=of.workload, namespace=of.namespace)),
    ]


@dataclass(slots=True)
class _Case:
    assertion: Assertion
    events: int = 0
    broken: tuple[float, float] | None = None
    """When an `always` was first broken, and by what."""
    measured: bool = False
    outcome: AssertionOutcome | None = None


class Judge:
    """Follows a ledger, and decides each assertion when its moment has come."""

    def __init__(self, asserted: Sequence[Assertion], ledger: ClusterLedger) -> None:
        self._ledger = ledger
        self._cases = [_Case(each) for each in asserted]
        self._events = [case for case in self._cases if case.assertion.kind == "event"]
        self._timed = [case for case in self._cases if case.assertion.at is not None]
        always = [case for case in self._cases if case.assertion.always]
        self._drifting = [case for case in always if _drifts(case.assertion)]
        self._steady = [case for case in always if not _drifts(case.assertion)]
        self.follows = bool(always or self._timed)
        """Whether anything is decided before the end, but for what `kubectl wait` is asked."""
        self._looked = 0.0
        self._now = 0.0

    def moves_on(self, t: float) -> None:
        """All lines until now are in the ledger, and the next one is at `t`."""
        if t <= self._now:
            return
        for case in self._steady:
            self._check(case, self._now)
        if t - self._looked >= LOOK_EVERY:
            self._looked = t
            for case in self._drifting:
                self._check(case, t)
        for case in self._timed:
            if case.outcome is None and case.assertion.at is not None and case.assertion.at < t:
                self._decide(case, case.assertion.at)
        self._now = t

    def look(self, line: RecordedLine) -> None:
        if isinstance(line, EventLine):
            for case in self._events:
                if case.assertion.counts(line):
                    case.events += line.count
        elif isinstance(line, WaitLine) and 0 <= line.expect < len(self._cases):
            case = self._cases[line.expect]
            if case.assertion.kind == "wait":
                said = line.detail or ("it held" if line.held else "it did not hold")
                case.outcome = AssertionOutcome(
                    case.assertion, line.held, one_line(said, limit=_MOST_TEXT), t=line.t
                )

    @property
    def decided(self) -> list[AssertionOutcome]:
        """Those that nothing can change any more."""
        broken = (case for case in self._cases if case.broken and case.outcome is None)
        there = [case.outcome for case in self._cases if case.outcome is not None]
        return [*there, *(self._of_always(case, self._now) for case in broken)]

    def finish(self, t: float) -> list[AssertionOutcome]:
        """The recording ends at `t`."""
        self.moves_on(t)
        for case in (*self._steady, *self._drifting):
            self._check(case, t)
        return [case.outcome or self._last(case, t) for case in self._cases]

    def _last(self, case: _Case, t: float) -> AssertionOutcome:
        told = case.assertion
        if told.kind == "wait":
            return AssertionOutcome(told, False, "the cluster was never asked", t=t)
        if told.at is not None and told.at > t:
            return AssertionOutcome(told, False, f"the run ended before, at {t:g} s", t=t)
        if told.always:
            return self._of_always(case, t)
        self._decide(case, t)
        assert case.outcome is not None
        return case.outcome

    def _of_always(self, case: _Case, t: float) -> AssertionOutcome:
        told = case.assertion
        if problem := self._unknown(told):
            return AssertionOutcome(told, False, problem, t=t)
        if case.broken is not None:
            since, number = case.broken
            reason = f"{told.shown(number)} at {since:g} s, wanted {told.wanted}"
            return AssertionOutcome(told, False, reason, number, since)
        now = self._read(case, t)
        if now.incomplete:
            return AssertionOutcome(told, False, _incomplete(told, now), now.value, t)
        if not case.measured:
            return AssertionOutcome(told, False, "there was nothing to measure at any time", t=t)
        reason = f"{in_words(now.value, told.unit)} at the end"
        return AssertionOutcome(told, True, reason, now.value, t)

    def _check(self, case: _Case, t: float) -> None:
        if case.broken is None and (read := self._read(case, t)).value is not None:
            case.measured = True
            if case.assertion.is_broken_by(read):
                case.broken = (t, read.value)

    def _decide(self, case: _Case, t: float) -> None:
        told, read = case.assertion, self._read(case, t)
        problem, number = self._unknown(told), read.value
        if problem or number is None or read.incomplete:
            problem = problem or _incomplete(told, read)
            case.outcome = AssertionOutcome(told, False, problem, number, t)
            return
        held = told.holds(number)
        reason = told.shown(number)
        reason += "" if told.at is None else f" at {told.at:g} s"
        reason += "" if held else f", wanted {told.wanted}"
        case.outcome = AssertionOutcome(told, held, reason, number, t)

    def _read(self, case: _Case, t: float) -> FigureReading:
        told = case.assertion
        if told.kind == "event":
            gap = self._ledger.gaps.missing(("events",), momentary=False)
            return FigureReading(float(case.events), gap)
        return reading(self._ledger.tally(told.of), told.figure, t, always=told.always)

    def _unknown(self, told: Assertion) -> str:
        """Where something is named that the recording has never seen."""
        there = {"group": self._ledger.groups, "workload": self._ledger.workloads}
        for what, scope in _parts(told.of):
            if getattr(scope, what) and not self._ledger.tally(scope).known:
                has = f"; it has {few_names(there[what]) or 'none'}" if what in there else ""
                named = ", ".join(f"{part} {name}" for part, name in scope.by.items())
                return one_line(f"the recording has no {named}{has}")
        return ""


def _incomplete(told: Assertion, read: FigureReading) -> str:
    """Why a reading can't be held against what was wanted."""
    if not read.incomplete:
        return "there was nothing to measure"
    known = "nothing" if read.value is None else in_words(read.value, told.unit)
    return f"incomplete: {read.incomplete}; {known} is known, wanted {told.wanted}"


def _drifts(told: Assertion) -> bool:
    return bool(told.figure) and FIGURES[told.figure].drifts
