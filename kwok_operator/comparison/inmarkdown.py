"""The effects of a comparison as summary.md, for the job summary in CI; and as lines for a
terminal.

Differences come first. Nothing is computed here.
"""

from collections.abc import Iterator
from typing import Final

from kwok_operator.comparison import words
from kwok_operator.comparison.outcome import Comparison, Contrast, differences_first
from kwok_operator.comparison.statistics import DIFFERENCES, Effect
from kwok_operator.errors import TERMINAL_LINE, one_line
from kwok_operator.formats.markdown import plain, table

_LONGEST: Final = 200
_BOLD: Final = frozenset(DIFFERENCES)
_MOST_DIFFERENCES: Final = 20


def in_markdown(comparison: Comparison) -> str:
    return "".join(f"{line}\n" for line in _lines(comparison))


def _lines(comparison: Comparison) -> Iterator[str]:
    first, *others = (_text(arm.name) for arm in comparison.plan.arms)
    yield f"### {_text(comparison.plan.name)}: {_text(comparison.headline)}"
    yield ""
    so_far = "" if comparison.complete else f", {len(comparison.runs)} runs so far"
    arms = f"A is {first}, B is {others[0]}"
    if len(others) > 1:
        arms = f"{', '.join(others)} are compared with {first}"
    yield f"{arms}; {comparison.plan.runs_in_words}{so_far}."
    for each in comparison.fail_if:
        yield from ("", f"**{each.said}**: {_text(each.text)}: {_text(each.reason)}")
    for number, arm in enumerate(comparison.plan.arms):
        for run in comparison.failed_runs(number)[:1]:
            count = len(comparison.failed_runs(number))
            of = len(comparison.of_arm(number))
            sentence = (
                f"{_text(arm.name)} failed in {count} of {of} runs, first {_text(run.folder)}"
            )
            yield from ("", f"**{sentence}**: {_text(run.failures[0])}")
    yield ""
    if len(others) > 1:
        rows = [
            (_text(name), words.of_first_arm(effects), *map(_cell, effects))
            for name, effects in comparison.by_figure.items()
        ]
        yield from table(("Figure", *(f"{name}:" for name in (first, *others))), rows)
    for contrast in comparison.contrasts:
        if len(others) > 1:
            yield from ("", f"#### {_text(contrast.arm.name)}, beside {first}", "")
        yield from _effects(comparison, contrast)
    for check in comparison.checks:
        if not check.held:
            yield from ("", f"**not the same: {_text(check.what)}**: {_text(check.said)}")
    for contrast in comparison.contrasts:
        if contrast.differs:
            yield ""
            yield from _differs(comparison, contrast)


def _effects(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    a, b = map(_text, comparison.labels(contrast))
    heads = ("Figure", f"{a}:", f"{b}:", "Change:", "95 % interval", "Verdict")
    effects = (*differences_first(contrast.effects), *contrast.explored)
    yield from table((*heads, "Could have been seen:"), [_row(effect) for effect in effects])


def _differs(comparison: Comparison, contrast: Contrast) -> Iterator[str]:
    shown = contrast.differs[:_MOST_DIFFERENCES]
    rows = [(_text(each.what), _text(each.a), _text(each.b)) for each in shown]
    yield from table(("What differed", *map(_text, comparison.labels(contrast))), rows)
    if more := len(contrast.differs) - len(shown):
        yield from ("", f"and {more:,} more")


def _cell(effect: Effect | None) -> str:
    text = _text(words.in_a_cell(effect))
    return f"**{text}**" if effect and effect.verdict in _BOLD else text


def _row(effect: Effect) -> tuple[str, ...]:
    verdict = _text(words.verdict(effect))
    return (
        _text(effect.figure),
        words.amount(effect, effect.a),
        words.amount(effect, effect.b),
        words.change(effect),
        words.interval(effect),
        f"**{verdict}**" if effect.verdict in _BOLD else verdict,
        words.smallest(effect),
    )


def in_lines(comparison: Comparison) -> Iterator[str]:
    """Yields the comparison as lines for a terminal. Texts may come from recordings, so control
    characters are replaced.
    """
    return (one_line(line, limit=TERMINAL_LINE) for line in _in_lines(comparison))


def _in_lines(comparison: Comparison) -> Iterator[str]:
    for contrast in comparison.contrasts:
        arm = f"{contrast.arm.name}: " if len(comparison.contrasts) > 1 else ""
        for effect in (*differences_first(contrast.effects), *contrast.explored):
            yield f"{arm}{_line(effect)}"
    for check in comparison.checks:
        if not check.held:
            yield f"NOT THE SAME: {check.what}: {check.said}"
    for each in comparison.fail_if:
        yield f"{each.said}: {each.text}: {each.reason}"
    yield comparison.headline


def _line(effect: Effect) -> str:
    a, b = words.amount(effect, effect.a), words.amount(effect, effect.b)
    size = f", {words.change(effect)} ({words.interval(effect)})" if effect.pairs else ""
    seen = words.smallest(effect)
    could = f"; could have been seen: {seen}" if seen and effect.smallest is not None else ""
    return f"{effect.figure}: {a} and {b}{size}: {words.verdict(effect)}{could}"


def _text(text: object) -> str:
    return plain(text, limit=_LONGEST)
