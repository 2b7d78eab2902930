"""comparison.html: one file, to be read anywhere and offline, as report.html of a rehearsal is.

The verdict comes first, then the effects with their intervals, each run's dots, and whether it was
fair. Numbers are those of comparison.json: nothing is computed here.
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


def page(found: Comparison) -> str:
    headline = found.headline
    parts = [part for contrast in found.contrasts for part in _contrast(found, contrast)]
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
            f"<p>{_arms(found)} · {_runs_in_words(found)}</p>",
            "</header><main>",
            *section("Verdict", _verdict(found)),
            *section(f"Each arm beside {found.plan.arms[0].name}", _matrix(found)),
            *parts,
            *section("Each run", _dots(found)),
            *section("Was it fair?", _fairness(found)),
            *_what_differed(found),
            *section("The runs", _runs(found)),
            "</main></body></html>\n",
        ]
    )


def _runs_in_words(found: Comparison) -> str:
    plan = found.plan
    text = f"{plan.runs_in_words}, each {plan.unit} with a seed of its own"
    return text if found.complete else f"{text}; {len(found.runs)} runs so far"


def _arms(found: Comparison) -> str:
    letters = ("A: ", "B: ") if len(found.contrasts) == 1 else [""] * len(found.plan.arms)
    return " · ".join(
        f"{key(number)} {letters[number]}{text(arm.name)}"
        for number, arm in enumerate(found.plan.arms)
    )


def _verdict(found: Comparison) -> Iterator[str]:
    for each in found.fail_if:
        shade = {FailAnswer.HOLDS: "missed", FailAnswer.HOLDS_NOT: "held"}.get(each.answer, "small")
        yield (
            f'<p><span class="{shade}">{each.said}:</span> {text(each.text)}:'
            f" {text(each.reason)}</p>"
        )
    rows = []
    for number, arm in enumerate(found.plan.arms):
        runs, failed = found.of_arm(number), found.failed_runs(number)
        shade, said = ("held", "holds")
        if failed:
            lost = number in (*found.losers, *found.mostly)
            shade, said = ("missed", "fails") if lost else ("small", "failed, not beyond chance")
        first = f"{failed[0].folder}: {failed[0].failures[0]}" if failed else ""
        count = f"{len(runs) - len(failed)} of {len(runs)}"
        rows.append((f'<span class="{shade}">{said}</span>', text(arm.name), count, text(first)))
    heads = ("", "Arm", "Runs that held what is expected", "The first that didn't")
    yield from table(heads, rows, ends_long=True)


def _matrix(found: Comparison) -> Iterator[str]:
    """A column for each further arm, if there is more than one."""
    if len(found.contrasts) == 1:
        return
    heads = ("Figure", *(arm.name for arm in found.plan.arms))
    rows = [
        (
            f"<code>{escape(name)}</code>",
            together(escape(words.of_first_arm(effects))),
            *map(_cell, effects),
        )
        for name, effects in found.by_figure.items()
    ]
    yield from table(heads, rows)


def _cell(effect: Effect | None) -> str:
    shade = _SHADES.get(effect.verdict, "") if effect else ""
    return f'<span class="{shade}">{text(words.in_a_cell(effect))}</span>'


def _contrast(found: Comparison, contrast: Contrast) -> Iterator[str]:
    """The sections on one arm beside the first."""
    names = f"{found.plan.arms[0].name} and {contrast.arm.name}"
    a, b = found.labels(contrast)
    beside = f"{a} ({names})" if len(found.contrasts) == 1 else a
    yield from section(
        f"What {b} does to each figure, beside {beside}",
        _effects(contrast.effects, (a, b), shared=len(found.contrasts) > 1),
    )
    of = "" if len(found.contrasts) == 1 else f", {b}"
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
    """A table cell with the exact value of comparison.json as an attribute, for programs."""
    exact = "" if value is None else f"{round(value, 6)!r}"
    text = together(escape(shown))
    return f'<data data-figure="{figure}" data-of="{which}" value="{exact}">{text}</data>'


def _dots(found: Comparison) -> Iterator[str]:
    rows = []
    for name in dict.fromkeys(effect.figure for effect in (*found.effects, *found.explored)):
        unit = FIGURES[name].unit
        values = [
            [v for run in found.of_arm(number) if (v := run.figures.get(name)) is not None]
            for number in range(len(found.plan.arms))
        ]
        every = [value for arm in values for value in arm]
        if every:
            low, high = (together(in_words(end, unit)) for end in (min(every), max(every)))
            rows.append((f"<code>{escape(name)}</code>", low, dots_picture(name, values), high))
    names = [f"{key(number)} {text(arm.name)}" for number, arm in enumerate(found.plan.arms)]
    yield from table(("Figure", "Least", "", "Most"), rows)
    if rows:
        yield f'<p class="small">From above to below: {", ".join(names)}.</p>'


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


def _what_differed(found: Comparison) -> Iterator[str]:
    first = found.plan.arms[0].name
    for contrast in found.contrasts:
        of = "" if len(found.contrasts) == 1 else f": {first} and {contrast.arm.name}"
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
