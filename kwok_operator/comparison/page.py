"""comparison.html: one file, to be read anywhere and offline, as report.html of a rehearsal is.

The verdict comes first, then the effects with their intervals, each run's dots, and whether it was
fair. Numbers are those of comparison.json: nothing is computed here.
"""

from collections.abc import Iterator
from html import escape
from typing import Final

from kwok_operator.comparison import words
from kwok_operator.comparison.failing import FailAnswer
from kwok_operator.comparison.outcome import FIRST_SHOWN, Comparison, PlayedRun
from kwok_operator.comparison.pictures import dots_picture, interval_picture, key, scale_of
from kwok_operator.comparison.plan import WARM_UP
from kwok_operator.comparison.statistics import Effect, EffectVerdict
from kwok_operator.rehearsal.judge.figures import FIGURES, in_words
from kwok_operator.rehearsal.report.pageparts import beginning, section, table, text, together
from kwok_operator.rehearsal.report.plots import in_time

_MOST_RUNS: Final = 200
_MOST_DIFFERENCES: Final = 60
_SHADES: Final = {EffectVerdict.BETTER: "held", EffectVerdict.WORSE: "missed"}

_HEADS: Final = (
    "Figure",
    "Verdict",
    "A",
    "B",
    "Change",
    "95 % interval",
    "",
    "Could have been seen",
)


def page(found: Comparison) -> str:
    a, b = (arm.name for arm in found.plan.arms)
    of = f"{a} and {b}"
    headline = found.headline
    # Green: all is well; red: it fails. A change for the worse that no condition forbids is
    # neither.
    worse = any(effect.verdict is EffectVerdict.WORSE for effect in found.effects)
    tag = "span" if found.inconclusive or (worse and not found.fails) else "b"
    shade = "failed" if found.fails else "open" if found.inconclusive else "passed"
    return "".join(
        [
            beginning(f"{found.plan.name}: {headline}"),
            f'<header class="{shade}">',
            f"<h1>{text(found.plan.name)} <{tag}>{text(headline)}</{tag}></h1>",
            f"<p>{key(0)} A: {text(a)} · {key(1)} B: {text(b)} · {_runs_in_words(found)}</p>",
            "</header><main>",
            *section("Verdict", _verdict(found)),
            *section(f"What B does to each figure, beside A ({of})", _effects(found)),
            *section("Explored: named once runs had been seen, without verdict", _explored(found)),
            *section("Each run", _dots(found)),
            *section("Was it fair?", _fairness(found)),
            *section("What differed", _differs(found)),
            *section("The runs", _runs(found)),
            "</main></body></html>\n",
        ]
    )


def _runs_in_words(found: Comparison) -> str:
    text = f"{found.plan.runs} pairs of runs, each pair with a seed of its own"
    return text if found.complete else f"{text}; {len(found.runs)} runs so far"


def _verdict(found: Comparison) -> Iterator[str]:
    for each in found.fail_if:
        shade = {FailAnswer.HOLDS: "missed", FailAnswer.HOLDS_NOT: "held"}.get(each.answer, "small")
        yield (
            f'<p><span class="{shade}">{each.said}:</span> {text(each.condition.text)}:'
            f" {text(each.reason)}</p>"
        )
    rows = []
    for number, arm in enumerate(found.plan.arms):
        runs, failed = found.of_arm(number), found.failed_runs(number)
        shade, said = ("held", "holds")
        if failed:
            lost = number == found.loser or number in found.mostly
            shade, said = ("missed", "fails") if lost else ("small", "failed, not beyond chance")
        first = f"{failed[0].folder}: {failed[0].failures[0]}" if failed else ""
        count = f"{len(runs) - len(failed)} of {len(runs)}"
        rows.append((f'<span class="{shade}">{said}</span>', text(arm.name), count, text(first)))
    heads = ("", "Arm", "Runs that held what is expected", "The first that didn't")
    yield from table(heads, rows, ends_long=True)


def _effects(found: Comparison) -> Iterator[str]:
    order = {verdict: place for place, verdict in enumerate(FIRST_SHOWN)}
    effects = sorted(found.effects, key=lambda each: order.get(each.verdict, len(order)))
    scale = scale_of(effects)
    rows = [_effect_row(effect, scale) for effect in effects]
    yield from table(_HEADS, rows)
    yield (
        f'<p class="small">The pictures go from -{scale * 100:.0f} % to +{scale * 100:.0f} %.'
        " A difference is reported where chance makes one in at most 1 of 100 comparisons, over all"
        " figures and failed runs together, if the two runs of a pair are exchangeable. The last"
        " column has the smallest decrease and increase that so many runs, with so much noise,"
        " would have shown 95 times of 100.</p>"
    )


def _explored(found: Comparison) -> Iterator[str]:
    scale = scale_of(found.explored)
    yield from table(_HEADS, [_effect_row(effect, scale) for effect in found.explored])


def _effect_row(effect: Effect, scale: float) -> tuple[str, ...]:
    shade = _SHADES.get(effect.verdict, "")
    name = effect.figure
    return (
        f"<code>{escape(name)}</code>",
        f'<span class="{shade}">{text(words.verdict(effect))}</span>',
        _data(name, "a", effect.a, words.amount(effect, effect.a)),
        _data(name, "b", effect.b, words.amount(effect, effect.b)),
        _data(name, "change", effect.change, words.change(effect)),
        together(escape(words.interval(effect))),
        interval_picture(effect, scale=scale),
        together(escape(words.smallest(effect))),
    )


def _data(figure: str, which: str, value: float | None, shown: str) -> str:
    """A table cell with the exact value of comparison.json as an attribute, for programs."""
    exact = "" if value is None else f"{round(value, 6)!r}"
    text = together(escape(shown))
    return f'<data data-figure="{figure}" data-of="{which}" value="{exact}">{text}</data>'


def _dots(found: Comparison) -> Iterator[str]:
    rows = []
    for effect in (*found.effects, *found.explored):
        name, unit = effect.figure, FIGURES[effect.figure].unit
        values = [
            [v for run in found.of_arm(number) if (v := run.figures.get(name)) is not None]
            for number in (0, 1)
        ]
        every = [value for arm in values for value in arm]
        if every:
            low, high = (together(in_words(end, unit)) for end in (min(every), max(every)))
            rows.append((f"<code>{escape(name)}</code>", low, dots_picture(name, values), high))
    a, b = (text(arm.name) for arm in found.plan.arms)
    yield from table(("Figure", "Least", "", "Most"), rows)
    if rows:
        yield f'<p class="small">Above, {key(0)} {a}; below, {key(1)} {b}.</p>'


def _fairness(found: Comparison) -> Iterator[str]:
    rows = [
        (
            f'<span class="{"held" if each.held else "missed"}">'
            f"{'yes' if each.held else 'no'}</span>",
            text(each.what),
            text(each.said),
        )
        for each in found.checks
    ]
    yield from table(("", "The same", "Found"), rows, ends_long=True)


def _differs(found: Comparison) -> Iterator[str]:
    rows = [
        (f"<code>{text(each.what)}</code>", text(each.a), text(each.b))
        for each in found.differs[:_MOST_DIFFERENCES]
    ]
    names = (arm.name for arm in found.plan.arms)
    more = len(found.differs) - len(rows)
    if rows:
        yield from table(("What", *names), rows, more=more)
    else:
        yield "<p>Nothing: this is A against A.</p>"


def _runs(found: Comparison) -> Iterator[str]:
    every = [*found.warm_ups, *found.runs]
    rows = [_run_row(run) for run in every[:_MOST_RUNS]]
    heads = ("Run", "", "Seed", "Took", "Others used", "")
    yield from table(heads, rows, more=len(every) - len(rows), ends_long=True)


def _run_row(run: PlayedRun) -> tuple[str, ...]:
    facts = run.facts
    notes = ["warm-up, doesn't count"] if run.pair == WARM_UP else []
    notes += ["on a busy machine"] if facts.busy else []
    notes += ["repeated"] if facts.repeated else []
    return (
        text(run.folder),
        f'<span class="{"held" if run.passed else "missed"}">'
        f"{'held' if run.passed else 'failed'}</span>",
        text(facts.seed),
        together(in_time(run.seconds)),
        "not known" if facts.others is None else f"{facts.others * 100:.0f}&nbsp;%",
        text(", ".join([*notes, *run.failures[:1]])),
    )
