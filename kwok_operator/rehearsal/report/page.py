"""report.html: one file, to be read anywhere, offline, and for as long as there are browsers.

The verdict comes first, then plots over time, what was done when, and all figures, as in
verdict.json: nothing is computed here. The page has no script and loads nothing; the policy in its
head forbids both. All texts of the recording are escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Final

from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.judge.figures import FIGURES, in_words
from kwok_operator.rehearsal.judge.story import WRITES, CallsOfAKind, ClaimsOfAKind, Sample
from kwok_operator.rehearsal.judge.verdict import (
    Judged,
    held_in_words,
    notes,
    verdict_in_words,
    warnings_in_words,
)
from kwok_operator.rehearsal.report.pageparts import beginning, section, table, text, together
from kwok_operator.rehearsal.report.plots import PlotLine, TimePlot, draw, in_time

MOST_BYTES: Final = 480_000
MOST_ROWS: Final = 60
_LONG: Final = 3_000
_MOST_EXPECTATIONS: Final = 100
_MOST_GROUPS_DRAWN: Final = 6
_MOST_REASONS: Final = 10
_MOST_TYPES: Final = 4
GLANCE: Final = (
    "pods.running",
    "pods.pending",
    "pendingSeconds.p95",
    "pendingSeconds.max",
    "nodes.max",
    "nodes.final",
    "nodeHours",
    "cost",
    "utilisation.cpu",
    "utilisation.memory",
    "churn.created",
    "churn.deleted",
)
_AUTOSCALERS: Final = frozenset({"cluster-autoscaler", "karpenter"})
_OF_GROUPS: Final = ("nodes.max", "nodes.final", "nodeHours", "cost", "utilisation.cpu")
_OF_WORKLOADS: Final = ("pods.running", "pods.pending", "pendingSeconds.p95", "pendingSeconds.max")

_TOO_LARGE: Final = (
    '<p class="small">Left out, as the page would be too large: see verdict.json and the'
    " recording.</p>"
)

Figures = Mapping[str, float | None]


def page(judged: Judged) -> str:
    header = judged.header
    name = header.scenario or "rehearsal"
    verdict = "passed" if judged.passed else "failed"
    first = [
        beginning(f"{name}: {verdict_in_words(judged)}"),
        f'<header class="{verdict}"><h1>{text(name)} <b>{text(verdict_in_words(judged))}</b></h1>',
        f"<p>{text(header.teaches)}</p>" if header.teaches else "",
        f"<p>{_run_in_words(judged)}</p></header><main>",
        *section("Verdict", _expectations(judged)),
        *section("Warnings", _warnings(judged)),
        *section("At a glance", _glance(judged)),
        *section("Over time", _plots(judged)),
    ]
    then = {
        "What was done when": _timeline(judged),
        "What the autoscaler did": _autoscaler(judged),
        "Why pods waited, and the slowest": _slowest(judged),
        "Groups": _parts(judged, judged.groups, _OF_GROUPS, "group"),
        "NodePools": _parts(judged, judged.node_pools, _OF_GROUPS, "nodePool"),
        "Workloads": _parts(judged, judged.workloads, _OF_WORKLOADS, "workload"),
        "Events of others": _events(judged),
        "All figures": _every_figure(judged),
    }
    sections = {title: "".join(section(title, content)) for title, content in then.items()}
    for title in sorted(sections, key=lambda title: -len(sections[title])):
        if _size([*first, *sections.values()]) > MOST_BYTES:
            sections[title] = "".join(section(title, [_TOO_LARGE]))
    return "".join([*first, *sections.values(), "</main></body></html>\n"])


def _size(parts: Iterable[str]) -> int:
    return sum(len(part.encode(errors="replace")) for part in parts)


def _run_in_words(judged: Judged) -> str:
    header, end = judged.header, judged.end
    told = [held_in_words(judged.outcomes), f"{in_time(judged.t)}, in real time"]
    told += [f"ended: {end.reason}"] if end.reason else []
    told += [f"seed {header.seed}"] if header.seed else []
    told += [header.started] if header.started else []
    told += [f"{what} {version}" for what, version in header.versions.items()]
    told += [f"the cluster's clock was {header.clock}"] if header.clock else []
    return " · ".join(text(each) for each in told)


def _expectations(judged: Judged) -> Iterator[str]:
    if judged.broken_off:
        yield f'<p class="broken">{text(judged.broken_off)}</p>'
    rows = [
        (
            f'<span class="{"held" if each.held else "missed"}">'
            f"{'held' if each.held else 'failed'}</span>",
            text(each.name),
            text(each.reason),
        )
        for each in sorted(judged.outcomes, key=lambda each: each.held)[:_MOST_EXPECTATIONS]
    ]
    if rows:
        more = len(judged.outcomes) - len(rows)
        yield from table(("", "Expected", "Found"), rows, more=more)
    else:
        yield "<p>Nothing was expected.</p>"


def _warnings(judged: Judged) -> Iterator[str]:
    rows = [(text(who), text(what, limit=_LONG)) for who, what in warnings_in_words(judged)]
    yield from table(("Of", "When, how often, and what it logged"), rows, ends_long=True)


def _glance(judged: Judged) -> Iterator[str]:
    yield '<dl class="glance">'
    for name in GLANCE:
        shown = _figure(name, judged.figures.get(name), whole=name not in judged.incomplete)
        yield f"<div><dt>{name}</dt><dd>{shown}</dd></div>"
    yield "</dl>"
    rows = [(text(what), text(sentence)) for what, sentence in notes(judged)]
    yield from table(("Besides", ""), rows, ends_long=True)


def time_plots(judged: Judged) -> Iterator[TimePlot]:
    """Returns the plots over time."""
    samples = judged.story.samples
    marks = [mark.t for mark in judged.story.marks]
    ups, downs = (sorted(judged.story.asked[way]) for way in ("up", "down"))

    def plot(title: str, *lines: PlotLine, **more: bool) -> TimePlot:
        return TimePlot(title, lines, marks=marks, ups=ups, downs=downs, **more)

    def line(name: str, values: Iterable[float | None], colour: int) -> PlotLine:
        steps = zip((sample.t for sample in samples), values, strict=True)
        return PlotLine(name, [(t, value or 0.0) for t, value in steps], colour)

    names = {name for sample in samples for name in sample.nodes} - {""}
    by = "NodePool" if names and not names & judged.groups.keys() else "group"
    yield plot(f"Nodes by {by} and state", *_nodes_of_groups(samples), stacked=True, counts=True)
    running = line("running", (sample.running for sample in samples), 2)
    pending = line("pending", (sample.pending for sample in samples), 1)
    orphaned = line("on nodes that are gone", (sample.orphaned for sample in samples), 3)
    some = [orphaned] if any(sample.orphaned for sample in samples) else []
    yield plot("Pods", running, pending, *some, counts=True)
    cpu = line("CPU", (sample.cpu for sample in samples), 0)
    memory = line("memory", (sample.memory for sample in samples), 3)
    yield plot("Utilisation: requests over allocatable", cpu, memory, percent=True)
    if judged.figures["cost"] is not None:
        cost = line("so far", (sample.cost for sample in samples), 4)
        yield plot("Cost", replace(cost, smooth=True))
        price = line("of all nodes", (sample.price for sample in samples), 4)
        yield plot("Price per hour", price)


def _plots(judged: Judged) -> Iterator[str]:
    yield '<div class="plots">'
    yield from (draw(plot, until=judged.t) for plot in time_plots(judged))
    yield "</div>"
    if judged.story.marks or any(judged.story.asked.values()):
        yield (
            '<p class="small">Dashed lines have the numbers of what was done, below. Triangles: the'
            " autoscaler asked for more (up), for less (down).</p>"
        )


def _nodes_of_groups(samples: Sequence[Sample]) -> list[PlotLine]:
    """Returns lines of ready and other nodes for the larger groups, and for the smaller ones
    together.
    """
    most: dict[str, int] = {}
    for sample in samples:
        for group, (total, _) in sample.nodes.items():
            most[group] = max(most.get(group, 0), total)
    drawn = sorted((g for g in most if g), key=lambda g: (-most[g], g))[:_MOST_GROUPS_DRAWN]
    rest = [group for group in most if group not in drawn]
    lines = []
    for colour, group in enumerate([*drawn, ""] if rest else drawn):
        members = [group] if group else rest
        name = group or ("all others" if drawn else "nodes")
        ready, other = [], []
        for sample in samples:
            counts = [sample.nodes.get(member, (0, 0)) for member in members]
            usable = sum(count for _, count in counts)
            ready.append((sample.t, float(usable)))
            other.append((sample.t, float(sum(count for count, _ in counts) - usable)))
        lines.append(PlotLine(name, ready, colour))
        if any(count for _, count in other):
            lines.append(PlotLine("lighter: not ready", other, colour, faint=True))
    return lines


def _timeline(judged: Judged) -> Iterator[str]:
    story = judged.story
    rows = [
        (str(number), _moment(mark.t), text(mark.what), text(mark.detail))
        for number, mark in enumerate(story.marks, start=1)
    ]
    yield from table(("", "When", "What", ""), rows, more=story.more_marks)


def _autoscaler(judged: Judged) -> Iterator[str]:
    story = judged.story
    rows = [
        (
            _span(calls),
            text(calls.group),
            text(calls.method),
            text(_what(calls)),
            f"{calls.count:,}",
            text(calls.code),
            together(f"{calls.slowest_ms:.1f} ms"),
        )
        for calls in story.calls[:MOST_ROWS]
    ]
    more = story.more_calls + sum(calls.count for calls in story.calls[MOST_ROWS:])
    heads = ("When", "Group", "Call", "What", "Calls", "Answer", "Took at most")
    yield from table(heads, rows, more=more)
    yield from _node_claims(judged)
    yield from _events(judged, of_autoscalers=True)


def _node_claims(judged: Judged) -> Iterator[str]:
    story = judged.story
    rows = [
        (
            _span(claims),
            text(claims.pool),
            text(claims.what),
            f"{claims.count:,}",
            text(names_in_words(_types(claims), most=_MOST_TYPES)),
        )
        for claims in story.claims[:MOST_ROWS]
    ]
    more = story.more_claims + sum(claims.count for claims in story.claims[MOST_ROWS:])
    heads = ("When", "NodePool", "What happened", "NodeClaims", "Instance types")
    yield from table(heads, rows, more=more)


def _types(claims: ClaimsOfAKind) -> list[str]:
    return [f"{count:,} {name}" for name, count in claims.types.most_common() if name]


def _span(some: CallsOfAKind | ClaimsOfAKind) -> str:
    return " to ".join(dict.fromkeys((_moment(some.first), _moment(some.last))))


def _what(calls: CallsOfAKind) -> str:
    """Returns how many machines were asked for, or the first call's argument."""
    if calls.asked:
        return f"{'+' if WRITES.get(calls.method) == 'up' else ''}{calls.asked:,}"
    return f"{calls.argument} and others" if calls.count > 1 else calls.argument


def _slowest(judged: Judged) -> Iterator[str]:
    reasons = [(text(why), f"{count:,}") for why, count in judged.reasons[:_MOST_REASONS]]
    more = max(len(judged.reasons) - _MOST_REASONS, 0)
    yield from table(("What the scheduler said", "Pods"), reasons, more=more)
    rows = [
        (
            together(in_words(round(pod.seconds, 3), "s")),
            text(pod.name),
            text(pod.workload),
            _moment(max(pod.created, 0.0)),
            text(pod.outcome),
            text(pod.why),
        )
        for pod in judged.slowest
        if pod.seconds >= 0.001
    ]
    heads = ("Waited", "Pod", "Workload", "Created", "Then", "What the scheduler said last")
    yield from table(heads, rows, ends_long=True)


def _parts(
    judged: Judged, parts: Mapping[str, Figures], names: Sequence[str], by: str
) -> Iterator[str]:
    rows = []
    for part, figures in list(parts.items())[:MOST_ROWS]:
        lacks = judged.incomplete_of.get(f"{by} {part}", {})
        cells = [
            _figure(name, figures.get(name), by=by, part=part, whole=name not in lacks)
            for name in names
        ]
        rows.append((text(part), *cells))
    more = max(len(parts) - MOST_ROWS, 0)
    yield from table((by[0].upper() + by[1:], *names), rows, more=more)


def _events(judged: Judged, *, of_autoscalers: bool = False) -> Iterator[str]:
    story = judged.story
    found = [
        (kind, event)
        for kind, event in sorted(story.events.items(), key=lambda item: (item[1].first, item[0]))
        if (kind[0] in _AUTOSCALERS) == of_autoscalers
    ]
    rows = [
        (
            _moment(event.first),
            _moment(event.last),
            f"{event.count:,}",
            text(component),
            text(reason),
            text(event.message),
        )
        for (component, reason, _), event in found[:MOST_ROWS]
    ]
    more = sum(event.count for _, event in found[MOST_ROWS:])
    more += 0 if of_autoscalers else story.more_events
    heads = ("First", "Last", "Count", "From", "Reason", "The first of them said")
    yield from table(heads, rows, more=more, ends_long=True)


def _every_figure(judged: Judged) -> Iterator[str]:
    rows = [
        (f"<code>{name}</code>", _figure(name, number, whole=name not in judged.incomplete))
        for name, number in judged.figures.items()
    ]
    yield "<details><summary>As in verdict.json</summary>"
    yield from table(("Figure", ""), rows)
    yield "</details>"


def _figure(
    name: str, number: float | None, *, by: str = "", part: str = "", whole: bool = True
) -> str:
    """A table cell of a figure, with its exact value as an attribute, for programs."""
    of = f' data-{by.lower()}="{escape(part)}"' if by else ""
    exact = "" if number is None else f"{number!r}"
    shown = "none" if number is None else escape(in_words(number, FIGURES[name].unit))
    more = "" if whole else " (incomplete)"
    return f'<data data-figure="{name}"{of} value="{exact}">{shown}</data>{more}'


def _moment(seconds: float) -> str:
    return together(in_time(seconds))
