"""The verdict of a rehearsal, computed by reading its recording once.

    RecordingReader --judged--> Judged --verdict_json, junit_xml, summary--> files and lines

The same recording gives the same bytes. A run has passed if all its expectations were met and it
came to its end. It has failed if it was interrupted, died, or its recording was cut off.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Protocol
from xml.sax.saxutils import escape, quoteattr

from kwok_operator.causes.model import Chain
from kwok_operator.causes.recorded import Explainer
from kwok_operator.causes.words import Answers
from kwok_operator.errors import TERMINAL_LINE, one_line
from kwok_operator.formats.words import few_names, names_in_words
from kwok_operator.rehearsal.judge.expectations import (
    ExpectationOutcome,
    Judge,
    check_figures,
    scopes,
)
from kwok_operator.rehearsal.judge.figures import (
    FIGURES,
    FigureReading,
    FigureScope,
    Place,
    Tally,
    rounded,
)
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.podledger import SlowPod
from kwok_operator.rehearsal.judge.recording import (
    OPERATOR,
    SHIM,
    EndLine,
    RecordedLine,
    RecordingHeader,
    RecordingReader,
)
from kwok_operator.rehearsal.judge.story import LoggedWarning, Story
from kwok_operator.rehearsal.scenario.expectation import Expectation

_BROKEN_OFF: Final = {
    "interrupted": "the run was interrupted",
    "died": "the run died",
    "unplayed": "the run ended before all of the scenario was played",
    "": "the recording ends in the middle of the run",
}
"""Reasons for an end that wasn't intended, in words."""
_MEANT: Final = frozenset({"settled", "condition", "atMost", "decided"})
_MOST_WARNINGS: Final = 30
"""The most warnings that are shown, as each may be long."""
_MOST_ORPHANS: Final = 20
_MOST_CAUSES: Final = 3
"""The most causes that a failed verdict names: nobody reads more at a terminal."""
_ALL_PODS: Final = FigureScope()
_NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_Scopes = frozenset[FigureScope]


@dataclass(frozen=True, slots=True)
class Judged:
    header: RecordingHeader
    t: float
    """When the recording ends, in seconds since the run began."""
    end: EndLine
    cut: bool
    outcomes: list[ExpectationOutcome]
    figures: dict[str, float | None]
    orphans: list[str]
    """The pods whose node is gone."""
    incomplete: dict[str, str]
    """The figures of which only a part is known, each with what is missing."""
    groups: dict[str, dict[str, float | None]]
    node_pools: dict[str, dict[str, float | None]]
    workloads: dict[str, dict[str, float | None]]
    more_parts: dict[str, int]
    """The number of groups, NodePools and workloads that are too many to have figures here."""
    incomplete_of: dict[str, dict[str, str]]
    """The incomplete figures of each `group NAME`, `nodePool NAME` and `workload NAME`, with what
    is missing.
    """
    slowest: list[SlowPod]
    reasons: list[tuple[str, int]]
    """The scheduler's reasons why pods waited, each with the number of pods."""
    story: Story
    why: tuple[str, ...] = ()
    """If the run has failed, the most important causes why pods waited, each a line."""
    why_of: Mapping[FigureScope, tuple[str, ...]] = field(default_factory=dict)
    """The same as `why`, for the `pod_scope` of each expectation that was not met."""
    answers: tuple[str, ...] = ()
    """What became of the pods of each workload, and why, as indented lines."""
    chains: Mapping[str, Chain] = field(default_factory=dict)
    """The chains of causes of the slowest pods, by the pod's name."""
    refusals: Mapping[str, Counter[str]] = field(default_factory=dict)
    """For how many pods an autoscaler refused each group or NodePool, by its reason. Refusals that
    name no group are counted under "".
    """
    trace: Iterable[bytes] = ()
    """The parts of trace.json.gz, as bytes."""

    @property
    def broken_off(self) -> str:
        """Why the run failed regardless of its expectations; empty if it came to its end."""
        reason = self.end.reason
        why = "" if reason in _MEANT else _BROKEN_OFF.get(reason, f"the end {reason} is not known")
        return one_line(f"{why}: {self.end.detail}" if why and self.end.detail else why)

    @property
    def currencies(self) -> list[str]:
        """The currencies of all prices: the scenario's, or else those that groups with a price
        name, which may be none.
        """
        groups = self.story.groups.values()
        named = {group.currency for group in groups if group.price is not None}
        return [self.header.currency] if self.header.currency else sorted(named)

    @property
    def currency(self) -> str:
        """The currency of all prices; empty if it is unknown or not the same for all."""
        return self.currencies[0] if len(self.currencies) == 1 else ""

    @property
    def passed(self) -> bool:
        return not self.broken_off and all(outcome.held for outcome in self.outcomes)

    @property
    def warnings(self) -> list[LoggedWarning]:
        """The logged warnings; those during the run come first."""
        return sorted(self.story.warnings.values(), key=lambda each: (each.before, each.first))

    @property
    def but(self) -> str:
        """A clause, `but with 2 warnings of the shim`, if the run passed with any; else empty.

        Warnings during the run that an expectation counts are left out, as the expectation judges
        them.
        """
        if not self.passed:
            return ""
        judged = {
            each.expectation.of.program
            for each in self.outcomes
            if each.expectation.figure == "warnings"
        }
        counts = Counter[tuple[str, bool]]()
        for each in self.warnings:
            if each.before or not judged & {"", each.program}:
                counts[each.program, each.before] += each.count
        text = [
            f"{count:,} warning{'s' if count > 1 else ''} of {program_in_words(program)}"
            f"{' before the run' if before else ''}"
            for (program, before), count in counts.items()
        ]
        return f"but with {names_in_words(text)}" if text else ""


class Follower(Protocol):
    """Gets the lines of a recording while it is judged."""

    def moves_on(self, ledger: ClusterLedger, t: float) -> None:
        """Is called before `ledger` applies a line whose time, `t`, is later than that of the line
        before.
        """

    def on_line(self, line: RecordedLine, ledger: ClusterLedger) -> None:
        """Is called for each line once `ledger` has applied it."""

    def finish(self, ledger: ClusterLedger) -> None:
        """Is called after the last line."""


class WaitReasons:
    """Finds out why pods waited, while a recording is judged.

    line --Explainer--> chains of causes --> Answers, by the scopes of expectations with the pod
                                        └--> chains of the slowest pods; refusals by group
    """

    def __init__(self, header: RecordingHeader) -> None:
        self._explainer = Explainer(header)
        scopes = {scope for each in header.expect if (scope := pod_scope(each)) is not None}
        self._scopes_of = lru_cache(maxsize=4_096)(lambda place: _holding(scopes, place))
        self._answers = defaultdict[_Scopes, Answers](Answers)
        """Answers by the scopes that contain their pods; only the end shows which are needed."""
        self._slow: dict[str, Chain] = {}
        self._refusals = defaultdict[str, Counter[str]](Counter)

    def moves_on(self, ledger: ClusterLedger, t: float) -> None:
        pass

    def on_line(self, line: RecordedLine, ledger: ClusterLedger) -> None:
        for chain in self._explainer.apply(line):
            self._take(chain)
            if ledger.pods.was_slow(chain.pod):
                self._keep(chain)

    def finish(self, ledger: ClusterLedger) -> None:
        slowest = {pod.name for pod in ledger.pods.slowest(ledger.now)}
        self._slow = {name: chain for name, chain in self._slow.items() if name in slowest}
        for chain in self._explainer.finish(ledger.now):
            self._take(chain)
            if chain.pod in slowest:
                self._keep(chain)

    def added_to(self, judged: Judged) -> Judged:
        """Returns the verdict, with the reasons why pods waited added to it."""
        failed = {pod_scope(each.expectation) for each in judged.outcomes if not each.held}
        scopes = {scope for scope in failed if scope is not None}
        about = {_ALL_PODS} if judged.broken_off else scopes
        return replace(
            judged,
            why=_worst(self._of(about)),
            why_of={scope: _worst(self._of({scope})) for scope in scopes},
            answers=tuple(self._of({_ALL_PODS}).lines()),
            chains=self._slow,
            refusals=self._refusals,
        )

    def _take(self, chain: Chain) -> None:
        self._answers[self._scopes_of(place_of(chain))].add(chain)
        for refusal in chain.cause.refusals:
            for group in refusal.names or ("",):
                self._refusals[group][refusal.reason] += 1

    def _keep(self, chain: Chain) -> None:
        if chain.pod not in self._slow or self._slow[chain.pod].waited < chain.waited:
            self._slow[chain.pod] = chain

    def _of(self, scopes: set[FigureScope]) -> Answers:
        """Returns the reasons why the pods in any of these scopes waited."""
        answers = Answers()
        for holding, each in self._answers.items():
            if _ALL_PODS in scopes or holding & scopes:
                answers.join(each)
        return answers


def place_of(chain: Chain) -> Place:
    """Returns the workload and namespace of a chain's pod, as a Place to compare with scopes."""
    return Place(chain.workload, chain.pod.partition("/")[0], rehearsed=chain.rehearsed)


def _holding(scopes: Iterable[FigureScope], place: Place) -> _Scopes:
    return frozenset(scope for scope in scopes if scope.contains(place))


def _worst(answers: Answers) -> tuple[str, ...]:
    return tuple(answers.worst(most=_MOST_CAUSES))


def judged(recording: RecordingReader, *, name: str, followers: Sequence[Follower] = ()) -> Judged:
    """Judges a recording, which it reads to the end. Raises RecordingError if it isn't valid."""
    expect = recording.header.expect
    check_figures(expect, where=f"{name}:1")
    ledger = ClusterLedger(scopes(expect), topology=recording.header.topology)
    judge, story = Judge(expect, ledger), Story()
    end = EndLine(0.0, "")
    for line in recording.lines():
        if line.t > ledger.now:
            judge.moves_on(line.t)
            for each in (story, *followers):
                each.moves_on(ledger, line.t)
        ledger.apply(line)
        judge.on_line(line)
        for each in (story, *followers):
            each.on_line(line, ledger)
        if isinstance(line, EndLine):
            end = line
            break
    t = ledger.now
    for each in (story, *followers):
        each.finish(ledger)
    every = {name: figure.reading(ledger.all, t) for name, figure in FIGURES.items()}
    read_of = {
        by: {name: _own(tally, by, t) for name, tally in sorted(tallies.items())}
        for by, tallies in ledger.parted.items()
    }
    parts = {f"{by} {name}": read for by, of in read_of.items() for name, read in of.items()}
    return Judged(
        header=recording.header,
        t=t,
        end=end,
        cut=recording.cut,
        outcomes=judge.finish(t),
        figures={name: read.value for name, read in every.items()},
        orphans=ledger.pods.orphans(),
        incomplete=_missing(every),
        groups={name: _known(read) for name, read in read_of["group"].items()},
        node_pools={name: _known(read) for name, read in read_of["nodePool"].items()},
        workloads={name: _known(read) for name, read in read_of["workload"].items()},
        more_parts={by: len(names) for by, names in ledger.beyond.items()},
        incomplete_of={name: lacks for name, read in parts.items() if (lacks := _missing(read))},
        slowest=ledger.pods.slowest(t),
        reasons=sorted(ledger.pods.reasons.items(), key=lambda item: (-item[1], item[0])),
        story=story,
    )


def _own(tally: Tally, by: str, t: float) -> dict[str, FigureReading]:
    """Returns the readings at `t` of those figures that can be narrowed by `by`, a field of a scope
    such as group.
    """
    return {n: figure.reading(tally, t) for n, figure in FIGURES.items() if by in figure.of}


def _known(read: Mapping[str, FigureReading]) -> dict[str, float | None]:
    """Returns the figures without those that are 0 or have no value."""
    return {name: each.value for name, each in read.items() if each.value}


def _missing(read: Mapping[str, FigureReading]) -> dict[str, str]:
    return {name: each.incomplete for name, each in read.items() if each.incomplete}


def pod_scope(expectation: Expectation) -> FigureScope | None:
    """Returns which pods an expectation is about; None for an expectation on nodes."""
    of, figure = expectation.of, FIGURES.get(expectation.figure or "")
    if figure is not None and "workload" not in figure.of:
        return None
    return FigureScope.narrowed(workload=of.workload, namespace=of.namespace)


def notes(judged: Judged) -> Iterator[tuple[str, str]]:
    """Yields notes on the figures: which are incomplete and why, whether prices have several
    currencies, and which pods are on nodes that are gone.
    """
    of: dict[str, list[str]] = {}
    for name, sentence in judged.incomplete.items():
        of.setdefault(sentence, []).append(name)
    for sentence, names in of.items():
        yield f"incomplete: {_folded(names)}", sentence
    if len(named := [each for each in judged.currencies if each]) > 1:
        yield "cost", f"prices are in {names_in_words(named)}, so a sum of them means nothing"
    if count := len(judged.orphans):
        what = "1 pod is" if count == 1 else f"{count:,} pods are"
        yield "pods.orphaned", f"{what} on nodes that are gone: {few_names(judged.orphans)}"


def _folded(names: Sequence[str]) -> str:
    """Lists figures, each family only once: `pendingSeconds.p95, .max, cost`."""
    of: dict[str, list[str]] = {}
    for name in names:
        family, dot, part = name.rpartition(".")
        of.setdefault(family, []).append(f"{dot}{part}")
    return ", ".join(f"{family}{', '.join(parts)}" for family, parts in of.items())


def verdict_json(judged: Judged) -> dict[str, Any]:
    """Returns the content of verdict.json."""
    header = judged.header
    return {
        "verdict": "passed" if judged.passed else "failed",
        "brokenOff": judged.broken_off or None,
        "scenario": header.scenario,
        "seed": header.seed,
        "started": header.started,
        "versions": dict(header.versions),
        "clock": None if header.clock is None else asdict(header.clock),
        "seconds": rounded(judged.t),
        "end": {"reason": judged.end.reason, "detail": judged.end.detail},
        "cut": judged.cut,
        "why": list(judged.why),
        "expectations": [
            {
                "name": outcome.name,
                "kind": outcome.expectation.kind,
                "held": outcome.held,
                "reason": outcome.reason,
                "value": outcome.value,
                "at": outcome.t,
            }
            for outcome in judged.outcomes
        ],
        "figures": judged.figures,
        "incomplete": judged.incomplete,
        "orphans": judged.orphans[:_MOST_ORPHANS],
        "groups": judged.groups,
        "nodePools": judged.node_pools,
        "workloads": judged.workloads,
        "incompleteOf": judged.incomplete_of,
        "events": _events(judged.story),
        "but": judged.but or None,
        "warnings": [asdict(each) for each in judged.warnings],
        "moreWarnings": judged.story.more_warnings,
    }


def _events(story: Story) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (_, reason, _), events in story.events.items():
        counts[reason] = counts.get(reason, 0) + events.count
    return dict(sorted(counts.items()))


def summary(judged: Judged) -> Iterator[str]:
    """Yields the verdict as lines for a terminal; the expectations come first."""
    for outcome in judged.outcomes:
        text = one_line(f"{outcome.name}: {outcome.reason}", limit=TERMINAL_LINE)
        yield f"{'held  ' if outcome.held else 'FAILED'} {text}"
    yield from (f"why    {one_line(cause, limit=TERMINAL_LINE)}" for cause in judged.why)
    others = [f"{what}: {sentence}" for what, sentence in notes(judged)]
    others += [f"warning of {program}, {text}" for program, text in warnings_in_words(judged)]
    others += [f"FAILED {judged.broken_off}"] if judged.broken_off else []
    others += [f"{verdict_in_words(judged)}: {held_in_words(judged.outcomes)}, {judged.t:g} s"]
    yield from (one_line(other, limit=TERMINAL_LINE) for other in others)


def verdict_in_words(judged: Judged) -> str:
    but = f", {judged.but}" if judged.but else ""
    return f"{'passed' if judged.passed else 'failed'}{but}"


def warnings_in_words(judged: Judged, *, most: int = _MOST_WARNINGS) -> Iterator[tuple[str, str]]:
    """Yields the first `most` warnings as pairs: the program; when, how often and what it logged. A
    last pair has the number of all other warnings.
    """
    for each in judged.warnings[:most]:
        when = "before the run" if each.before else f"at {each.first:.1f} s"
        often = f", {each.count:,} times" if each.count > 1 else ""
        yield program_in_words(each.program), f"{when}{often}: {each.message}"
    more = sum(each.count for each in judged.warnings[most:])
    if more := more + judged.story.more_warnings:
        yield "all programs", f"{more:,} times: other texts; see verdict.json and their logs"


def program_in_words(program: str) -> str:
    return f"the {program}" if program in (OPERATOR, SHIM) else program


def held_in_words(outcomes: Sequence[ExpectationOutcome]) -> str:
    """Returns a clause on how many of the expectations were met."""
    if not outcomes:
        return "nothing was expected"
    return f"{sum(outcome.held for outcome in outcomes)} of {len(outcomes)} expectations held"


def junit_xml(judged: Judged) -> str:
    """Returns the verdict as JUnit XML: a test case for each expectation, and one for the run
    itself.
    """
    suite = judged.header.scenario or "rehearsal"
    failed = sum(not outcome.held for outcome in judged.outcomes) + bool(judged.broken_off)
    cases = [_case(suite, "the run came to its end", judged.broken_off, judged.t, why=judged.why)]
    for outcome in judged.outcomes:
        scope, failure = pod_scope(outcome.expectation), "" if outcome.held else outcome.reason
        why = judged.why_of.get(scope, ()) if scope is not None else ()
        cases.append(_case(suite, outcome.name, failure, why=why))
    counts = f'tests="{len(cases)}" failures="{failed}" errors="0" skipped="0"'
    time = f'time="{judged.t:.3f}"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f"<testsuites {counts} {time}>",
            f"<testsuite name={_attribute(suite)} {counts} {time}>",
            *cases,
            *_warned(judged),
            "</testsuite>",
            "</testsuites>",
            "",
        ]
    )


def _warned(judged: Judged) -> Iterator[str]:
    lines = [f"warning of {program}, {text}" for program, text in warnings_in_words(judged)]
    if lines:
        text = escape(_NOT_IN_XML.sub("?", "\n".join(lines)))
        yield f"<system-err>{text}</system-err>"


def _case(suite: str, name: str, failure: str, t: float = 0.0, *, why: Sequence[str] = ()) -> str:
    head = f'<testcase classname={_attribute(suite)} name={_attribute(name)} time="{t:.3f}"'
    if not failure:
        return f"{head}/>"
    text = escape(_NOT_IN_XML.sub("?", "\n".join([failure, *why])))
    return f"{head}><failure message={_attribute(failure)}>{text}</failure></testcase>"


def _attribute(text: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("?", text))
