"""The picture of a report in docs/rehearsals.md: verdict and first plots, as the page draws them.

python -m hack.reportpicture RECORDING    write docs/img/rehearsal.svg

The recording is that of a real run, and isn't kept; so nothing checks whether the picture is stale.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

from kwok_operator.errors import one_line
from kwok_operator.rehearsal.judge.verdict import Judged, held_in_words
from kwok_operator.rehearsal.outputs import judge
from kwok_operator.rehearsal.report.page import time_plots
from kwok_operator.rehearsal.report.pagestyle import STYLE
from kwok_operator.rehearsal.report.plots import HEIGHT, WIDTH, TimePlot, in_time, keys, picture

PICTURE: Final = Path(__file__).resolve().parents[1] / "docs" / "img" / "rehearsal.svg"
_MARGIN: Final = 20
_GAP: Final = 12
_ROW: Final = 22
_PLOTS: Final = 4
_HEAD, _LEGEND = 24, 22
_WIDE: Final = 2 * (WIDTH + _MARGIN) + _GAP
_OWN_STYLE: Final = (
    "svg{font-family:system-ui,sans-serif}.card{fill:var(--bg);stroke:var(--line)}"
    ".plain{fill:var(--fg);font-size:14px}.good{fill:var(--good)}.bad{fill:var(--bad)}"
)


def draw(judged: Judged) -> str:
    parts = list(_verdict(judged))
    top = 84 + _ROW * len(judged.outcomes)
    for number, plot in enumerate([*time_plots(judged)][:_PLOTS]):
        left = _MARGIN + number % 2 * (WIDTH + _GAP)
        parts += _plot(plot, left, top, until=judged.t)
        top += number % 2 * (HEIGHT + _HEAD + _LEGEND + _GAP)
    size = f'width="{_WIDE}" height="{top + _MARGIN - _GAP}"'
    first = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {top + _MARGIN - _GAP}"'
        f' {size} role="img">',
        f"<title>{_text(judged.header.scenario)}</title><style>{STYLE}{_OWN_STYLE}</style>",
        f'<rect class="card" {size} rx="8"/>',
    ]
    return "\n".join([*first, *parts, "</svg>"]) + "\n"


def _verdict(judged: Judged) -> Iterator[str]:
    how = ("passed", "good") if judged.passed else ("failed", "bad")
    name = f'{_text(judged.header.scenario)} <tspan class="{how[1]}">{how[0]}</tspan>'
    yield f'<text class="plain" x="{_MARGIN}" y="36" font-weight="bold">{name}</text>'
    told = f"{held_in_words(judged.outcomes)} · {in_time(judged.t)}, in real time"
    yield f'<text x="{_MARGIN}" y="56">{_text(judged.header.teaches)} · {told}</text>'
    for number, outcome in enumerate(judged.outcomes):
        y = 84 + _ROW * number
        how = ("held", "good") if outcome.held else ("failed", "bad")
        yield f'<text class="plain {how[1]}" x="{_MARGIN}" y="{y}">{how[0]}</text>'
        expected = _text(outcome.name)
        yield f'<text class="plain" x="{_MARGIN + 80}" y="{y}">{expected}</text>'
        found = _text(outcome.reason, limit=30)
        yield f'<text class="plain" x="{_WIDE - 220}" y="{y}">{found}</text>'


def _plot(plot: TimePlot, left: float, top: float, *, until: float) -> Iterator[str]:
    high = HEIGHT + _HEAD + _LEGEND
    yield f'<rect class="card" x="{left}" y="{top}" width="{WIDTH}" height="{high}" rx="6"/>'
    title = escape(plot.title)
    yield f'<text x="{left + 8}" y="{top + 17}" font-weight="bold">{title}</text>'
    place = f' x="{left}" y="{top + _HEAD}" width="{WIDTH}" height="{HEIGHT}"'
    yield picture(plot, until=until, attributes=place)
    x, y = left + 8, top + _HEAD + HEIGHT
    for name, fill, shade in keys(plot.lines):
        yield f'<rect{shade} x="{x}" y="{y}" width="10" height="10" fill="{fill}"/>'
        yield f'<text x="{x + 15}" y="{y + 9}">{name}</text>'
        x += 35 + 6 * len(name)


def _text(text: str, *, limit: int = 80) -> str:
    return escape(one_line(text, limit=limit))


def main(arguments: Sequence[str] | None = None, *, path: Path = PICTURE) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.reportpicture", description="Draw the picture of a report."
    )
    parser.add_argument("recording", type=Path, help="recording.jsonl.gz of a run, or its folder")
    path.write_text(draw(judge(parser.parse_args(arguments).recording)), encoding="utf-8")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
