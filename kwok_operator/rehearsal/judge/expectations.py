"""Decides whether each expectation of a scenario was met, and why.

`end` checks the last moment of the recording, `always` each moment, `{at: 120}` that second. An
expectation isn't met if its figure is incomplete: if a part of its value is unknown. With `always`,
the judge waits until the figure is complete, unless its known part breaks the bounds already. The
result of a `kubectl wait` is a line of the recording. A group or workload that the recording never
shows is a mistake in the scenario, so such an expectation isn't met.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.errors import RecordingError, one_line
from kwok_operator.formats.words import FEW, few_names
from kwok_operator.rehearsal.judge.figures import (
    FIGURES,
    OF_NODES,
    FigureReading,
    FigureScope,
    Tally,
    in_words,
)
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.named import objects_of
from kwok_operator.rehearsal.judge.recording import EventLine, RecordedLine, WaitLine
from kwok_operator.rehearsal.scenario.expectation import Compared, Expectation

LOOK_EVERY: Final = 1.0
"""Seconds between two checks of an `always` on a figure that changes while nothing happens."""
_MOST_TEXT: Final = 500


@dataclass(frozen=True, slots=True)
class ExpectationOutcome:
    expectation: Expectation
    held: bool
    reason: str
    value: float | None = None
    t: float | None = None
    """When the outcome was decided, in seconds since the run began."""
    lacks: str = ""
    """What was missing to compare the figure, in a word; empty if it was compared."""

    @property
    def name(self) -> str:
        return str(self.expectation)


def check_figures(expect: Sequence[Expectation], *, where: str) -> None:
    """Raises RecordingError if an expectation of the header names an unknown figure, or narrows a
    figure in a way that this version doesn't know.
    """
    for number, each in enumerate(expect):
        figure = FIGURES.get(each.figure or "")
        if each.figure is None or (figure and each.of.by.keys() <= figure.of):
            continue
        by = ", ".join(sorted(figure.of)) if figure else ""
        raise RecordingError(
            where=where,
            field=f"header.expect[{number}].figure",
            value=each.figure,
            problem=f"can be narrowed only by {by}" if figure else "is no figure",
            remedy="see the list of figures in docs",
        )


def scopes(compared: Iterable[Compared]) -> set[FigureScope]:
    """Returns the scopes for which the ledger must keep sums: that of each of `compared`, such as
    group a in zone b, and those of its fields alone: group a, zone b.
    """
    narrowed = {each.of for each in compared}
    return {part for of in narrowed for part in (of, *_parts(of).values())} - {FigureScope()}


def _parts(of: FigureScope) -> dict[str, FigureScope]:
    """Returns, by field, a scope that has only this field of `of`: group a for group a in zone b.
    The judge checks that the recording has objects in each. A workload keeps its namespace, but not
    its group, as its pods need not be on the group's nodes.
    """
    parts: dict[str, FigureScope] = {
        name: FigureScope(**{name: of.by[name]})
        for name in (*sorted(OF_NODES), "namespace")
        if name in of.by
    }
    if of.workload:
        parts["workload"] = FigureScope.narrowed(workload=of.workload, namespace=of.namespace)
    return parts


@dataclass(slots=True)
class _Case:
    expectation: Expectation
    tally: Tally
    ledger: ClusterLedger
    events: int = 0
    last_events: list[str] = field(default_factory=list)
    other_events: list[str] = field(default_factory=list)
    """The first Events that differ only in their message: they are named if too few matched."""
    broken: tuple[float, float, str] | None = None
    """When an `always` was first broken, the value then, and the names of objects to blame."""
    measured: bool = False
    outcome: ExpectationOutcome | None = None

    def read(self, t: float) -> FigureReading:
        each = self.expectation
        if each.event is not None:
            gap = self.tally.gaps.missing(each.measured.kinds, momentary=False)
            return FigureReading(float(self.events), gap)
        return each.measured.reading(self.tally, t, always=each.always)

    def check(self, t: float) -> None:
        """Notes when the figure of an `always` expectation first breaks its bounds."""
        if self.broken is None and (read := self.read(t)).value is not None:
            self.measured = True
            if self.expectation.is_broken_by(read):
                self.broken = (t, read.value, self.objects(read))

    def objects(self, read: FigureReading) -> str:
        """Returns a clause that names the objects behind a reading, such as pending pods; empty if
        none can be named.
        """
        each, events, others = self.expectation, self.last_events, self.other_events
        objects = objects_of(self.ledger, each, self.tally, read, events=events, others=others)
        return f"; {objects}" if objects else ""


class Judge:
    """Follows a ledger, and decides each expectation when its time has come."""

    def __init__(self, expect: Sequence[Expectation], ledger: ClusterLedger) -> None:
        self._ledger = ledger
        self._cases = [_Case(each, ledger.tally(each.of), ledger) for each in expect]
        self._events = [case for case in self._cases if case.expectation.event]
        self._timed = [case for case in self._cases if case.expectation.at is not None]
        always = [case for case in self._cases if case.expectation.always]
        self._drifting = [case for case in always if case.expectation.measured.drifts]
        self._steady = [case for case in always if not case.expectation.measured.drifts]
        self.follows = bool(always or self._timed)
        """Whether any expectation depends on figures before the end."""
        self._looked = 0.0
        self._now = 0.0

    def moves_on(self, t: float) -> None:
        """Checks the expectations that are due before `t`, the time of the next line. The ledger
        must have applied all lines before that line.
        """
        if t <= self._now:
            return
        for case in self._steady:
            case.check(self._now)
        if t - self._looked >= LOOK_EVERY:
            self._looked = t
            for case in self._drifting:
                case.check(t)
        for case in self._timed:
            at = case.expectation.at
            if case.outcome is None and at is not None and at < t:
                case.outcome = self._decide(case, at)
        self._now = t

    def on_line(self, line: RecordedLine) -> None:
        if isinstance(line, EventLine):
            for case in self._events:
                if case.expectation.event and case.expectation.event.matches(line):
                    case.events += line.count
                    what = f"{line.about} at {line.t:.1f} s"
                    case.last_events = [what, *case.last_events][:FEW]
                elif case.expectation.event and case.expectation.event.nearly_matches(line):
                    said = f"{line.about} at {line.t:.1f} s: {line.message}"
                    case.other_events = [*case.other_events, said][:FEW]
        elif isinstance(line, WaitLine) and 0 <= line.expect < len(self._cases):
            case = self._cases[line.expect]
            if case.expectation.wait is not None:
                answer = line.detail or ("it held" if line.held else "it did not hold")
                reason = one_line(answer, limit=_MOST_TEXT)
                case.outcome = ExpectationOutcome(case.expectation, line.held, reason, t=line.t)

    @property
    def decided(self) -> list[ExpectationOutcome]:
        """The outcomes that can't change any more."""
        broken = (case for case in self._cases if case.broken and case.outcome is None)
        there = [case.outcome for case in self._cases if case.outcome is not None]
        return [*there, *(self._of_always(case, self._now) for case in broken)]

    def is_certain(self, number: int) -> bool:
        """Whether the outcome of the expectation with this number can't change any more.

        Before the end of the run, this can be so for a figure that never decreases: once its value
        is beyond its bound, or has reached the bound if the only bound is `atLeast`.
        """
        case = self._cases[number]
        expectation = case.expectation
        if case.outcome is not None:
            return True
        if self._never_seen(expectation.of):
            return False
        if case.broken is not None:
            return True
        if (
            expectation.kind == "wait"
            or expectation.when != "end"
            or not expectation.measured.rises(expectation.of)
        ):
            return False
        read = case.read(self._now)
        if read.value is None:
            return False
        most = expectation.equals if expectation.at_most is None else expectation.at_most
        value = read.value
        if expectation.measured.waits is not None:
            # A wait that hasn't ended may later become one that can't end, which doesn't count.
            value = max(
                (seconds for seconds, _ in expectation.measured.waits(case.tally).longest),
                default=0,
            )
        beyond = most is not None and value > most and expectation.is_broken_by(read)
        reached = expectation.bounds.keys() == {"atLeast"} and expectation.holds(value)
        # An unended wait may make the value incomplete later, and then the expectation fails.
        return beyond or (reached and expectation.measured.lacks is None and not read.incomplete)

    def finish(self, t: float) -> list[ExpectationOutcome]:
        """Decides the remaining expectations at `t`, the end of the recording. Returns all
        outcomes.
        """
        self.moves_on(t)
        for case in (*self._steady, *self._drifting):
            case.check(t)
        return [case.outcome or self._last(case, t) for case in self._cases]

    def _last(self, case: _Case, t: float) -> ExpectationOutcome:
        each = case.expectation
        if each.wait is not None:
            reason = "the cluster was never asked"
            return ExpectationOutcome(each, False, reason, t=t, lacks="answer")
        if each.at is not None and each.at > t:
            reason = f"the run ended before, at {t:g} s"
            return ExpectationOutcome(each, False, reason, t=t, lacks="end")
        return self._of_always(case, t) if each.always else self._decide(case, t)

    def _of_always(self, case: _Case, t: float) -> ExpectationOutcome:
        each = case.expectation
        if problem := self._never_seen(each.of):
            return ExpectationOutcome(each, False, problem, t=t, lacks="object")
        if case.broken is not None:
            since, number, objects = case.broken
            reason = f"{each.shown(number)} at {since:g} s, wanted {each.wanted}{objects}"
            return ExpectationOutcome(each, False, reason, number, since)
        now = case.read(t)
        if now.incomplete:
            reason = _incomplete(case, now)
            return ExpectationOutcome(each, False, reason, now.value, t, "rest")
        if not case.measured:
            reason = "there was nothing to measure at any time"
            return ExpectationOutcome(each, False, reason, t=t, lacks="value")
        reason = f"{in_words(now.value, each.measured.unit)} at the end"
        return ExpectationOutcome(each, True, reason, now.value, t)

    def _decide(self, case: _Case, t: float) -> ExpectationOutcome:
        each, read = case.expectation, case.read(t)
        if problem := self._never_seen(each.of):
            return ExpectationOutcome(each, False, problem, read.value, t, "object")
        if read.value is None or read.incomplete:
            lacks = "" if each.is_broken_by(read) else "rest" if read.incomplete else "value"
            return ExpectationOutcome(each, False, _incomplete(case, read), read.value, t, lacks)
        held = each.holds(read.value)
        reason = each.shown(read.value)
        reason += "" if each.at is None else f" at {each.at:g} s"
        reason += "" if held else f", wanted {each.wanted}{case.objects(read)}"
        return ExpectationOutcome(each, held, reason, read.value, t)

    def _never_seen(self, of: FigureScope) -> str:
        """Returns a clause on the first field of the scope, such as its group, for which the
        recording has no object; empty if it has objects for all fields.
        """
        ledger = self._ledger
        there = {"group": ledger.groups, "nodePool": ledger.node_pools}
        there["workload"] = ledger.workloads
        for what, scope in _parts(of).items():
            if not ledger.tally(scope).known:
                has = f"; it has {few_names(there[what]) or 'none'}" if what in there else ""
                named = ", ".join(f"{part} {name}" for part, name in scope.by.items())
                return one_line(f"the recording has no {named}{has}")
        return ""


def _incomplete(case: _Case, read: FigureReading) -> str:
    """Returns why there is no value to compare with the bounds, or only an incomplete one."""
    if not read.incomplete:
        return "there was nothing to measure"
    each = case.expectation
    known = "nothing" if read.value is None else in_words(read.value, each.measured.unit)
    wanted = f"wanted {each.wanted}{case.objects(read)}"
    return f"incomplete: {read.incomplete}; {known} is known, {wanted}"
