"""summary.md: the verdict as a short table, for the summary of a job in CI.

Expectations that were not met come first. Nothing is computed here.
"""

from collections.abc import Iterator
from typing import Final

from kwok_operator.formats.markdown import plain, table
from kwok_operator.rehearsal.judge.figures import FIGURES, in_words
from kwok_operator.rehearsal.judge.verdict import (
    Judged,
    notes,
    verdict_in_words,
    warnings_in_words,
)
from kwok_operator.rehearsal.report.page import GLANCE

_MOST_EXPECTATIONS: Final = 100
_CELL: Final = 200
_LONG: Final = 3_000


def in_markdown(judged: Judged) -> str:
    return "".join(f"{line}\n" for line in _lines(judged))


def _lines(judged: Judged) -> Iterator[str]:
    held = sum(each.held for each in judged.outcomes)
    facts = [f"{held} of {len(judged.outcomes)} expectations held", f"{judged.t:g} s"]
    facts += [f"{what} {version}" for what, version in judged.header.versions.items()]
    yield f"### {_text(judged.header.scenario or 'rehearsal')}: {verdict_in_words(judged)}"
    yield from ("", " · ".join(_text(each) for each in facts), "")
    if judged.broken_off:
        yield from (f"**{_text(judged.broken_off)}**", "")
    shown = sorted(judged.outcomes, key=lambda each: each.held)[:_MOST_EXPECTATIONS]
    rows = [
        ("held" if each.held else "**failed**", _text(each.name), _text(each.reason))
        for each in shown
    ]
    yield from table(("", "Expected", "Found"), rows)
    if more := len(judged.outcomes) - len(shown):
        yield from ("", f"and {more:,} more")
    for cause in judged.why:
        yield from ("", f"Why: {plain(cause, limit=_LONG)}")
    yield ""
    warned = [
        (_text(program), plain(text, limit=_LONG)) for program, text in warnings_in_words(judged)
    ]
    if warned:
        yield from (*table(("Warning of", ""), warned), "")
    for what, sentence in notes(judged):
        yield from (f"**{plain(f'{what}: {sentence}', limit=_LONG)}**", "")
    figures = {name: judged.figures.get(name) for name in GLANCE}
    known = {name: number for name, number in figures.items() if number is not None}
    lacks = dict.fromkeys(judged.incomplete, " (incomplete)")
    yield from table(
        ("Figure", ":"),
        [
            (_text(name), _text(in_words(n, FIGURES[name].unit)) + lacks.get(name, ""))
            for name, n in known.items()
        ],
    )


def _text(text: object) -> str:
    return plain(text, limit=_CELL)
