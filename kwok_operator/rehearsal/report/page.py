"""report.html: one file that can be read anywhere, offline, for as long as there are browsers.

The verdict comes first, then plots over time, what was done when, and all figures, as in
verdict.json: only the cost of more time is computed here. The page loads nothing. All of it can be
read without JavaScript; with it, plots can be zoomed, a clicked row is marked in all parts, and
each node has a row. All texts of the recording are escaped.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from kwok_operator.causes.model import Chain
from kwok_operator.causes.phases import PHASES
from kwok_operator.causes.words import step_in_words
from kwok_operator.errors import one_line
from kwok_operator.formats.autoscalertexts import AUTOSCALERS
from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.judge.figures import FIGURES, in_words
from kwok_operator.rehearsal.judge.story import (
    BACK,
    MOST_WARNINGS,
    WRITES,
    CallsOfAKind,
    ClaimsOfAKind,
    EventsOfAKind,
)
from kwok_operator.rehearsal.judge.verdict import (
    Judged,
    held_in_words,
    notes,
    verdict_in_words,
    warnings_in_words,
)
from kwok_operator.rehearsal.report.charts import time_plots
from kwok_operator.rehearsal.report.figurenames import figure_in_words
from kwok_operator.rehearsal.report.livepage import PageScript, data_block, lanes_data
from kwok_operator.rehearsal.report.money import PRICE, money, node_price, not_grown
from kwok_operator.rehearsal.report.pageparts import (
    POLICY,
    beginning,
    marking,
    section,
    subject,
    table,
    text,
    together,
)
from kwok_operator.rehearsal.report.plots import TimePlot, draw, in_time, live
from kwok_operator.rehearsal.report.rackmap import rack_map

MOST_BYTES: Final = 480_000
MOST_ROWS: Final = 60
_LONG: Final = 3_000
_FEW_WARNINGS: Final = 30
_MOST_EXPECTATIONS: Final = 100
_MOST_REASONS: Final = 10
_MOST_TYPES: Final = 4
_MOST_MESSAGES: Final = 5
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
_METHODS: Final = {
    "NodeGroupIncreaseSize": "asks for more",
    "NodeGroupDeleteNodes": "deletes nodes",
    "NodeGroupForceDeleteNodes": "deletes nodes by force",
}
_GIVES_BACK: Final = "gives back what never became a node"
_OF_GROUPS: Final = ("nodes.max", "nodes.final", "nodeHours", "cost", "utilisation.cpu")
_OF_WORKLOADS: Final = (
    "pods.running",
    "pods.pending",
    "pendingSeconds.p95",
    "pendingSeconds.max",
    *(f"{phase}.p95" for phase in PHASES),
)

_LANES: Final = "Nodes and their pods"
_LAST: Final = frozenset({"Verdict", "Warnings", "At a glance", "Over time"})
"""The sections that are left out last if the page would be too large."""
_LANES_HTML: Final = 1_000
"""The most bytes around the data of the lanes."""
_TOO_LARGE: Final = (
    '<p class="small">Left out, as the page would be too large: see verdict.json and the'
    " recording.</p>"
)

Figures = Mapping[str, float | None]


def page(judged: Judged, script: PageScript | None = None) -> str:
    """Returns the page; without a script, it has pictures and tables only."""
    header = judged.header
    name = header.scenario or "rehearsal"
    verdict = "passed" if judged.passed else "failed"
    plots = [*time_plots(judged)]
    head = beginning(
        f"{name}: {verdict_in_words(judged)}",
        policy=script.policy if script else POLICY,
        style=script.style if script else "",
    )
    first = [
        head,
        f'<header class="{verdict}"><h1>{text(name)} <b>{text(verdict_in_words(judged))}</b></h1>',
        f"<p>{text(header.teaches)}</p>" if header.teaches else "",
        f"<p>{_run_in_words(judged)}</p></header><main>",
    ]
    last = ["</main>", _live(judged, plots, script) if script else "", "</body></html>\n"]
    contents = {
        "Verdict": _expectations(judged),
        "Warnings": _warnings(judged, most=MOST_WARNINGS),
        "At a glance": _glance(judged),
        "Over time": _plots(judged, plots),
        "Racks over time": rack_map(judged),
        _LANES: iter(()),
        "What was done when": _timeline(judged),
        "What the autoscaler did": _autoscaler(judged),
        "Groups that did not grow": not_grown(judged),
        "Why pods waited, and the slowest": _slowest(judged),
        "Groups": _parts(judged, judged.groups, _OF_GROUPS, "group"),
        "NodePools": _parts(judged, judged.node_pools, _OF_GROUPS, "nodePool"),
        "Workloads": _parts(judged, judged.workloads, _OF_WORKLOADS, "workload"),
        "Cost": money(judged),
        "Events of others": _events(judged),
        "All figures": _every_figure(judged),
    }
    sections = {title: "".join(section(title, content)) for title, content in contents.items()}

    def room() -> int:
        return MOST_BYTES - _size([*first, *sections.values(), *last])

    if room() < 0:
        sections["Warnings"] = "".join(section("Warnings", _warnings(judged)))
    for title in sorted(sections, key=lambda title: (title in _LAST, -len(sections[title]))):
        if room() < 0:
            sections[title] = "".join(section(title, [_TOO_LARGE]))
    if script:
        sections[_LANES] = _lanes(judged, most=room())
    return "".join([*first, *sections.values(), *last])


def _live(judged: Judged, plots: Sequence[TimePlot], script: PageScript) -> str:
    data = {
        "until": round(judged.t, 3),
        "times": [round(sample.t, 3) for sample in judged.story.samples],
        "plots": [*live(plots)],
        "marks": [round(t, 3) for t in plots[0].marks],
        "asked": plots[0].requested_at,
    }
    return data_block("run", data) + script.tags()


def _lanes(judged: Judged, *, most: int) -> str:
    block, left_out = lanes_data(judged.story.lanes, most=most - _LANES_HTML)
    if not block:
        return ""
    return "".join(
        section(
            _LANES,
            [
                '<div id="rows"><p class="small">This picture needs a script.</p></div>',
                f'<p class="small">{text(left_out)}</p>' if left_out else "",
                block,
            ],
        )
    )


def _size(parts: Iterable[str]) -> int:
    return sum(len(part.encode(errors="replace")) for part in parts)


def _run_in_words(judged: Judged) -> str:
    header, end = judged.header, judged.end
    facts = [held_in_words(judged.outcomes), f"{in_time(judged.t)}, in real time"]
    facts += [f"ended: {end.reason}"] if end.reason else []
    facts += [f"seed {header.seed}"] if header.seed else []
    facts += [header.started] if header.started else []
    facts += [f"{what} {version}" for what, version in header.versions.items()]
    facts += [f"the cluster's clock was {header.clock}"] if header.clock else []
    return " · ".join(text(each) for each in facts)


def _expectations(judged: Judged) -> Iterator[str]:
    if judged.broken_off:
        yield f'<p class="broken">{text(judged.broken_off)}</p>'
    rows = [
        (
            f'<span class="{"held" if each.held else "missed"}">'
            f"{'held' if each.held else 'failed'}</span>",
            text(each.name, limit=_LONG),
            text(each.reason, limit=_LONG),
        )
        for each in sorted(judged.outcomes, key=lambda each: each.held)[:_MOST_EXPECTATIONS]
    ]
    if rows:
        more = len(judged.outcomes) - len(rows)
        yield from table(("", "Expected", "Found"), rows, more=more)
    else:
        yield "<p>Nothing was expected.</p>"


def _warnings(judged: Judged, *, most: int = _FEW_WARNINGS) -> Iterator[str]:
    warnings = warnings_in_words(judged, most=most)
    rows = [(text(who), text(what, limit=_LONG)) for who, what in warnings]
    yield from table(("Of", "When, how often, and what it logged"), rows, ends_long=True)


def _glance(judged: Judged) -> Iterator[str]:
    yield '<dl class="glance">'
    for name in GLANCE:
        unit = f" {text(judged.currency)}".rstrip() if name == "cost" else ""
        whole = name not in judged.incomplete
        shown = _figure(name, judged.figures.get(name), whole=whole, unit=unit)
        words = escape(figure_in_words(name))
        yield f'<div title="{name}"><dt>{words}</dt><dd>{shown}</dd></div>'
    yield "</dl>"
    rows = [
        (text(what, limit=_LONG), text(sentence, limit=_LONG)) for what, sentence in notes(judged)
    ]
    yield from table(("Besides", ""), rows, ends_long=True)


def _plots(judged: Judged, plots: Sequence[TimePlot]) -> Iterator[str]:
    yield '<div class="plots" id="plots">'
    yield from (draw(plot, until=judged.t) for plot in plots)
    yield "</div>"
    if judged.story.marks or any(judged.story.requested_at.values()):
        yield (
            '<p class="small">Dashed lines have the numbers of what was done, below. Triangles: the'
            " autoscaler asked for more (up), for less (down); hollow: its call failed; grey: it"
            " gave back instances that never became nodes.</p>"
        )


def _timeline(judged: Judged) -> Iterator[str]:
    story = judged.story
    rows = [
        (str(number), _moment(mark.t), text(mark.what), text(mark.detail, limit=_LONG))
        for number, mark in enumerate(story.marks, start=1)
    ]
    marks = [
        marking(subject("mark", number), start=mark.t)
        for number, mark in enumerate(story.marks, start=1)
    ]
    yield from table(("", "When", "What", ""), rows, more=story.more_marks, marks=marks)


def _autoscaler(judged: Judged) -> Iterator[str]:
    story = judged.story
    rows = [
        (
            _span(calls),
            text(calls.group),
            _method(calls),
            text(_what(calls)),
            f"{calls.count:,}",
            text(calls.code),
            together(f"{calls.slowest_ms:.1f} ms"),
        )
        for calls in story.calls[:MOST_ROWS]
    ]
    more = story.more_calls + sum(calls.count for calls in story.calls[MOST_ROWS:])
    heads = ("When", "Group", "Call", "What", "Calls", "Answer", "Took at most")
    marks = [
        marking(
            subject("call", number),
            of=[subject("group", calls.group)] if calls.group else (),
            start=calls.first,
            end=calls.last,
        )
        for number, calls in enumerate(story.calls[:MOST_ROWS])
    ]
    yield from table(heads, rows, more=more, marks=marks)
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
    marks = [
        marking(
            subject("claims", number),
            of=[subject("group", claims.pool)],
            start=claims.first,
            end=claims.last,
        )
        for number, claims in enumerate(story.claims[:MOST_ROWS])
    ]
    yield from table(heads, rows, more=more, marks=marks)


def _types(claims: ClaimsOfAKind) -> list[str]:
    return [f"{count:,} {name}" for name, count in claims.types.most_common() if name]


def _method(calls: CallsOfAKind) -> str:
    words = _GIVES_BACK if calls.way == BACK else _METHODS.get(calls.method, calls.method)
    return f'<span title="{text(calls.method)}">{text(words)}</span>'


def _span(some: CallsOfAKind | ClaimsOfAKind) -> str:
    return " to ".join(dict.fromkeys((_moment(some.first), _moment(some.last))))


def _what(calls: CallsOfAKind) -> str:
    """Returns how many machines were requested or given back; else the first call's argument."""
    if calls.total:
        return f"{'+' if WRITES.get(calls.method) == 'up' else ''}{calls.total:,}"
    return f"{calls.argument} and others" if calls.count > 1 else calls.argument


def _slowest(judged: Judged) -> Iterator[str]:
    if judged.answers:
        lines = (escape(one_line(line, limit=_LONG)) for line in judged.answers)
        indents = (len(line) - len(line.lstrip()) for line in judged.answers)
        yield '<div class="answers">'
        yield from (
            f'<p class="in{indent // 2}">{line}</p>'
            for line, indent in zip(lines, indents, strict=True)
        )
        yield "</div>"
    reasons = [(text(why), f"{count:,}") for why, count in judged.reasons[:_MOST_REASONS]]
    more = max(len(judged.reasons) - _MOST_REASONS, 0)
    yield from table(("What the scheduler said", "Pods"), reasons, more=more)
    slowest = [pod for pod in judged.slowest if pod.seconds >= 0.001]
    rows = [
        (
            together(in_words(round(pod.seconds, 3), "s")),
            text(pod.name),
            text(pod.workload),
            _moment(max(pod.created, 0.0)),
            text(pod.outcome),
            _chain(judged.chains.get(pod.name)) or text(pod.why, limit=_LONG),
        )
        for pod in slowest
    ]
    marks = [
        marking(
            subject("pod", pod.name),
            of=[subject("workload", pod.workload)],
            start=max(pod.created, 0.0),
            end=max(pod.created, 0.0) + pod.seconds,
        )
        for pod in slowest
    ]
    why = "Why" if judged.chains else "What the scheduler said last"
    heads = ("Waited", "Pod", "Workload", "Created", "Then", why)
    yield from table(heads, rows, ends_long=True, marks=marks)


def _chain(chain: Chain | None) -> str:
    """Returns HTML of a wait: its cause, which can be unfolded to each step with its time."""
    if chain is None:
        return ""
    steps = [
        f"<li><b>{_moment(step.at)}</b> {text(step_in_words(step), limit=_LONG)}</li>"
        for step in chain.steps
    ]
    cause, remedy = chain.cause.sentence, chain.cause.remedy
    steps += [f"<li>to do: {text(remedy, limit=_LONG)}</li>"] if remedy else []
    steps += [f"<li>not known: {text(what, limit=_LONG)}</li>" for what in chain.unknown]
    return (
        f"<details><summary>{text(cause, limit=_LONG)}</summary>"
        f'<ul class="chain">{"".join(steps)}</ul></details>'
    )


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
        price = [together(text(node_price(judged, part)))] if by == "group" else []
        rows.append((text(part), *price, *cells))
    more = max(len(parts) - MOST_ROWS, 0) + judged.more_parts.get(by, 0)
    heads = [(figure_in_words(name), name) for name in names]
    kind = "workload" if by == "workload" else "group"
    marks = [marking(subject(kind, part)) for part in parts]
    first = (by[0].upper() + by[1:], *((PRICE,) if by == "group" else ()))
    yield from table((*first, *heads), rows, more=more, marks=marks[:MOST_ROWS])


def _events(judged: Judged, *, of_autoscalers: bool = False) -> Iterator[str]:
    story = judged.story
    events = [
        (kind, event)
        for kind, event in sorted(story.events.items(), key=lambda item: (item[1].first, item[0]))
        if (kind[0] in AUTOSCALERS) == of_autoscalers
    ]
    rows = [
        (
            _moment(event.first),
            _moment(event.last),
            f"{event.count:,}",
            text(component),
            text(reason),
            _said(event),
        )
        for (component, reason, _), event in events[:MOST_ROWS]
    ]
    marks = [
        marking(
            subject("event", "/".join(kind)),
            of=_abouts(event.abouts),
            start=event.first,
            end=event.last,
        )
        for kind, event in events[:MOST_ROWS]
    ]
    more = sum(event.count for _, event in events[MOST_ROWS:])
    more += 0 if of_autoscalers else story.more_events
    heads = ("First", "Last", "Count", "From", "Reason", "What they said")
    yield from table(heads, rows, more=more, ends_long=True, marks=marks)


def _said(event: EventsOfAKind) -> str:
    """Returns the most frequent messages of these Events as HTML, each with the number of Events
    that have it.
    """
    said = event.messages.most_common(_MOST_MESSAGES)
    parts = [
        f"{_often(count) if len(event.messages) > 1 else ''}{text(message, limit=_LONG)}"
        for message, count in said
    ]
    more = event.count - sum(count for _, count in said)
    parts += [f"and {more:,} more"] if more else []
    return "".join(f"<div>{part}</div>" for part in parts)


def _often(count: int) -> str:
    return "once: " if count == 1 else f"{count:,} times: "


def _abouts(abouts: Iterable[str]) -> Iterator[str]:
    for about in abouts:
        yield from _about(about)


def _about(about: str) -> list[str]:
    """Returns the keys (see `subject`) by which `marking` marks a row about the object
    KIND/NAMESPACE/NAME; empty for kinds that the page doesn't show elsewhere.
    """
    kind, _, name = about.partition("/")
    if kind == "Pod":
        return [subject("pod", name)]
    if kind in ("Node", "KwokNodeGroup"):
        return [subject("node" if kind == "Node" else "group", name.rpartition("/")[2])]
    return []


def _every_figure(judged: Judged) -> Iterator[str]:
    rows = [
        (
            escape(figure_in_words(name)),
            f"<code>{name}</code>",
            _figure(name, number, whole=name not in judged.incomplete),
        )
        for name, number in judged.figures.items()
    ]
    yield "<details><summary>As in verdict.json</summary>"
    yield from table(("Figure", "Its name", "Value"), rows)
    yield "</details>"


def _figure(
    name: str,
    number: float | None,
    *,
    by: str = "",
    part: str = "",
    whole: bool = True,
    unit: str = "",
) -> str:
    """Returns HTML of a figure's value; the exact value is in an attribute, for programs."""
    of = f' data-{by.lower()}="{escape(part)}"' if by else ""
    exact = "" if number is None else f"{number!r}"
    shown = "none" if number is None else escape(in_words(number, FIGURES[name].unit))
    more = ("" if number is None else unit) + ("" if whole else " (incomplete)")
    return f'<data data-figure="{name}"{of} value="{exact}">{shown}</data>{more}'


def _moment(seconds: float) -> str:
    return together(in_time(seconds))
