"""comparison.html: one file that can be read anywhere and offline, like a rehearsal's report.html.

The verdict comes first, then the effects with their intervals, a dot for each run, and the checks
for fairness. Numbers are those of comparison.json: nothing is computed here.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from kwok_operator.comparison import words
from kwok_operator.comparison.failing import FailAnswer
from kwok_operator.comparison.outcome import (
    Comparison,
    Contrast,
    PlayedRun,
    differences_first,
)
from kwok_operator.comparison.pictures import dots_picture, interval_picture, key, scale_of
from kwok_operator.comparison.plan import WARM_UP
from kwok_operator.comparison.statistics import Effect, EffectVerdict
from kwok_operator.rehearsal.judge.figures import FIGURES, in_words
from kwok_operator.rehearsal.report.pageparts import beginning, section, table, text, together
from kwok_operator.rehearsal.report.plots import in_time

_MOST_RUNS: Final = 200
_MOST_DIFFERENCES: Final = 60
_SHADES: Final = {EffectVerdict.BETTER: "held", EffectVerdict.WORSE: "missed"}


def page(comparison: Comparison) -> str:
    headline = comparison.headline
    parts = [part for contrast in comparison.contrasts for part in _contrast(comparison, contrast)]
    # Green: all is well; red: the comparison fails. A change for the worse that no condition
    # forbids is neither.
    worse = any(effect.verdict is EffectVerdict.WORSE for effect in comparison.effects)
    tag = "span" if comparison.inconclusive or (worse and not comparison.fails) else "b"
    shade = "failed" if comparison.fails else "open" if comparison.inconclusive else "passed"
    return "".join(
        [
            beginning(f"{comparison.plan.name}: {headline}"),
            f'<header class="{shade}">',
            f"<h1>{text(comparison.plan.name)} <{tag}>{text(headline)}</{tag}></h1>",
            f"<p>{_arms(comparison)} · {_runs_in_words(comparison)}</p>",
            "</header><main>",
            *section("Verdict", _verdict(comparison)),
            *section(f"Each arm beside {comparison.plan.arms[0].name}", _matrix(comparison)),
            *parts,
            *section("Each run", _dots(comparison)),
            *section("Was it fair?", _fairness(comparison)),
            *_what_differed(comparison),
            *section("The runs", _runs(comparison)),
            "</main></body></html>\n",
        ]
    )


def _runs_in_words(comparison: Comparison) -> str:
    plan = comparison.plan
    text = f"{plan.runs_in_words}, each {plan.unit} with a seed of its own"
    return text if comparison.complete else f"{text}; {len(comparison.runs)} runs so far"


def _arms(comparison: Comparison) -> str:
    letters = ("A: ", "B: ") if len(comparison.contrasts) == 1 else [""] * len(comparison.plan.arms)
    return " · ".join(
        f"{key(number)} {letters[number]}{text(arm.name)}"
        for number, arm in enumerate(comparison.plan.arms)
    )


def _verdict(comparison: Comparison) -> Iterator[str]:
    for each in comparison.fail_if:
        shade = {FailAnswer.HOLDS: "missed", FailAnswer.HOLDS_NOT: "held"}.get(each.answer, "small")
        yield (
            f'<p><span class="{shade}">{each.said}:</span> {text(each.text)}:'
            f" {text(each.reason)}</p>"
        )
    rows = []
    for number, arm in enumerate(comparison.plan.arms):
        runs, failed = comparison.of_arm(number), comparison.failed_runs(number)
        shade, said = ("held", "holds")
        if failed:
            lost = number in (*comparison.losers, *comparison.mostly)
            shade, said = ("missed", "fails") if lost else ("small", "failed, not beyond chance")
        first = f"{failed[0].folder}: {failed[0].failures[0]}" if failed else ""
        count = f"{len(runs) - len(failed)} of {len(runs)}"
        rows.append((f'<span class="{shade}">{said}</span>', text(arm.name), count, text(first)))
    heads = ("", "Arm", "Runs that held what is expected", "The first that didn't")
    yield from table(heads, rows, ends_long=True)


def _matrix(comparison: Comparison) -> Iterator[str]:
    """Yields the table with a column for each further arm; nothing if there is only one further
    arm.
    """
    if len(comparison.contrasts) == 1:
        return
    heads = ("Figure", *(arm.name for arm in comparison.plan.arms))
    rows = [
        (
            f"<code>{escape(name)}</code>",
            together(escape(words.of_first_arm(effects))),
            *map(_cell, effects),
        )
        for name, effects in comparison.by_figure.items()
    ]
    yield from table(heads, rows)


def _cell(effect: Effect | None) -> str:
    shade = _SHADES.get(effect.verdict, "") if effect else ""
    return f'<span class="{shade}">{text(words.in_a_cell(effect))}</span>'


def _contrast(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    """Yields the sections on the comparison of one arm with the first."""
    names = f"{comparison.plan.arms[0].name} and {contrast.arm.name}"
    a, b = comparison.labels(contrast)
    beside = f"{a} ({names})" if len(comparison.contrasts) == 1 else a
    yield from section(
        f"What {b} does to each figure, beside {beside}",
        _effects(contrast.effects, (a, b), shared=len(comparison.contrasts) > 1),
    )
    of = "" if len(comparison.contrasts) == 1 else f", {b}"
    yield from section(
        f"Explored: named once runs had been seen, without verdict{of}",
        _table(contrast.explored, (a, b)),
    )


def _effects(given: Sequence[Effect], labels: tuple[str, str], *, shared: bool) -> Iterator[str]:
    effects = differences_first(given)
    yield from _table(effects, labels)
    scale = scale_of(effects)
    arms = " and arms" if shared else ""
    yield (
        f'<p class="small">The pictures go from -{scale * 100:.0f} % to +{scale * 100:.0f} %.'
        " A difference is reported where chance makes one in at most 1 of 100 comparisons, over all"
        f" figures{arms} and failed runs together, if the two runs of a pair are exchangeable. The"
        " last column has the smallest decrease and increase that so many runs, with so much noise,"
        " would have shown 95 times of 100.</p>"
    )


def _table(effects: Sequence[Effect], labels: tuple[str, str]) -> Iterator[str]:
    scale = scale_of(effects)
    heads = ("Figure", "Verdict", *labels, "Change", "95 % interval", "", "Could have been seen")
    yield from table(heads, [_effect_row(effect, scale) for effect in effects])


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
    """A table cell, with the exact value of comparison.json as an attribute for programs."""
    exact = "" if value is None else f"{round(value, 6)!r}"
    text = together(escape(shown))
    return f'<data data-figure="{figure}" data-of="{which}" value="{exact}">{text}</data>'


def _dots(comparison: Comparison) -> Iterator[str]:
    rows = []
    effects = (*comparison.effects, *comparison.explored)
    for name in dict.fromkeys(effect.figure for effect in effects):
        unit = FIGURES[name].unit
        values = [
            [v for run in comparison.of_arm(number) if (v := run.figures.get(name)) is not None]
            for number in range(len(comparison.plan.arms))
        ]
        every = [value for arm in values for value in arm]
        if every:
            low, high = (together(in_words(end, unit)) for end in (min(every), max(every)))
            rows.append((f"<code>{escape(name)}</code>", low, dots_picture(name, values), high))
    names = [f"{key(number)} {text(arm.name)}" for number, arm in enumerate(comparison.plan.arms)]
    yield from table(("Figure", "Least", "", "Most"), rows)
    if rows:
        yield f'<p class="small">From above to below: {", ".join(names)}.</p>'


def _fairness(comparison: Comparison) -> Iterator[str]:
    rows = [
        (
            f'<span class="{"held" if each.held else "missed"}">'
            f"{'yes' if each.held else 'no'}</span>",
            text(each.what),
            text(each.said),
        )
        for each in comparison.checks
    ]
    yield from table(("", "The same", "Found"), rows, ends_long=True)


def _what_differed(comparison: Comparison) -> Iterator[str]:
    first = comparison.plan.arms[0].name
    for contrast in comparison.contrasts:
        of = "" if len(comparison.contrasts) == 1 else f": {first} and {contrast.arm.name}"
        yield from section(f"What differed{of}", _differs(first, contrast))


def _differs(first: str, contrast: Contrast) -> Iterator[str]:
    rows = [
        (f"<code>{text(each.what)}</code>", text(each.a), text(each.b))
        for each in contrast.differs[:_MOST_DIFFERENCES]
    ]
    more = len(contrast.differs) - len(rows)
    if rows:
        yield from table(("What", first, contrast.arm.name), rows, more=more)
    else:
        yield "<p>Nothing: this is A against A.</p>"


def _runs(comparison: Comparison) -> Iterator[str]:
    every = [*comparison.warm_ups, *comparison.runs]
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
