"""summary.md: the effects as a table, for the summary of a job in CI; and lines for a terminal.

What differs comes first. Nothing is computed here.
"""

from collections.abc import Iterator
from typing import Final

from kwok_operator.comparison import words
from kwok_operator.comparison.outcome import FIRST_SHOWN, Comparison
from kwok_operator.comparison.statistics import Effect
from kwok_operator.errors import TERMINAL_LINE, one_line
from kwok_operator.formats.markdown import plain, table

_CELL: Final = 200
_BOLD: Final = frozenset(FIRST_SHOWN)
_MOST_DIFFERENCES: Final = 20


def in_markdown(found: Comparison) -> str:
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: Comparison) -> Iterator[str]:
    a, b = (arm.name for arm in found.plan.arms)
    yield f"### {_text(found.plan.name)}: {_text(found.headline)}"
    yield ""
    so_far = "" if found.complete else f", {len(found.runs)} runs so far"
    yield f"A is {_text(a)}, B is {_text(b)}; {found.plan.runs} pairs of runs{so_far}."
    for each in found.fail_if:
        yield from ("", f"**{each.said}**: {_text(each.condition.text)}: {_text(each.reason)}")
    for number, arm in enumerate(found.plan.arms):
        for run in found.failed_runs(number)[:1]:
            count = len(found.failed_runs(number))
            of = len(found.of_arm(number))
            sentence = (
                f"{_text(arm.name)} failed in {count} of {of} runs, first {_text(run.folder)}"
            )
            yield from ("", f"**{sentence}**: {_text(run.failures[0])}")
    yield ""
    yield from table(
        (
            "Figure",
            "A:",
            "B:",
            "Change:",
            "95 % interval",
            "Verdict",
            "Could have been seen:",
        ),
        [_row(effect) for effect in (*_ordered(found), *found.explored)],
    )
    for check in found.checks:
        if not check.held:
            yield from ("", f"**not the same: {_text(check.what)}**: {_text(check.said)}")
    if found.differs:
        yield ""
        shown = found.differs[:_MOST_DIFFERENCES]
        rows = [(_text(each.what), _text(each.a), _text(each.b)) for each in shown]
        yield from table(("What differed", "A", "B"), rows)
        if more := len(found.differs) - len(shown):
            yield from ("", f"and {more:,} more")


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


def _ordered(found: Comparison) -> list[Effect]:
    order = {verdict: place for place, verdict in enumerate(FIRST_SHOWN)}
    return sorted(found.effects, key=lambda each: order.get(each.verdict, len(order)))


def in_lines(found: Comparison) -> Iterator[str]:
    """The comparison as lines for a terminal. Texts may come from recordings, so they are made
    printable.
    """
    return (one_line(line, limit=TERMINAL_LINE) for line in _in_lines(found))


def _in_lines(found: Comparison) -> Iterator[str]:
    for effect in (*_ordered(found), *found.explored):
        yield _line(effect)
    for check in found.checks:
        if not check.held:
            yield f"NOT THE SAME: {check.what}: {check.said}"
    for each in found.fail_if:
        yield f"{each.said}: {each.condition.text}: {each.reason}"
    yield found.headline


def _line(effect: Effect) -> str:
    a, b = words.amount(effect, effect.a), words.amount(effect, effect.b)
    size = f", {words.change(effect)} ({words.interval(effect)})" if effect.pairs else ""
    seen = words.smallest(effect)
    could = f"; could have been seen: {seen}" if seen and effect.smallest is not None else ""
    return f"{effect.figure}: {a} and {b}{size}: {words.verdict(effect)}{could}"


def _text(text: object) -> str:
    return plain(text, limit=_CELL)
