"""What a benchmark gives: measures, and what follows from them. Pure.

A `Measure` is one figure of one rival at one size, with a value for each round. Everything else is
made of a list of them: the table on the screen, the JSON, the plots. A ratio is a median over the
median of the measure's `reference`, another rival with the same case, work, size and figure; both
come from the same run.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Self

CEILING: Final = "ceiling"
"""The rival that others are compared with unless a measure says otherwise."""

SECONDS: Final = "seconds"
"""The figure that makes a rate: so many nodes in that time."""

Key = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """`values` of `figure` in `unit`, one a round, when `who` did `work` with `n` nodes."""

    case: str
    work: str
    n: int
    who: str
    figure: str
    unit: str
    values: tuple[float, ...]
    reference: str = CEILING

    @property
    def key(self) -> Key:
        """What is compared: everything but who."""
        return (self.case, self.work, self.n, self.figure)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_json(self) -> dict[str, Any]:
        """For the results file; the median stands there for those who read it by eye."""
        values = [rounded(value) for value in self.values]
        return {**asdict(self), "median": rounded(self.median), "values": values}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises KeyError where a field is missing."""
        given = {field.name: data[field.name] for field in fields(cls)}
        return cls(**given | {"values": tuple(map(float, data["values"]))})


def rounded(value: float) -> float:
    """Five significant digits: what lies behind them is noise."""
    return float(f"{value:.5g}")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values don't exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * round(share * 10_000) // 10_000)
    return ordered[max(rank, 1) - 1]


def abba(rivals: Sequence[str], rounds: int) -> list[tuple[int, str]]:
    """Rounds and rivals in the order A B C, C B A, A B C: who is last in one is first in the next.

    So neither the first nor the last place, nor a machine that slows down, favours anybody.
    """
    return [
        (each, rival)
        for each in range(rounds)
        for rival in (rivals if each % 2 == 0 else reversed(rivals))
    ]


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Slope and constant of the straight line with the least squares; one point has slope y/x."""
    xs = [x for x, _ in points]
    ys = [y for _, y in points]
    if len(set(xs)) < 2:
        return (ys[0] / xs[0], 0.0)
    slope, constant = statistics.linear_regression(xs, ys)
    return (slope, constant)


def gathered(measures: Iterable[Measure]) -> list[Measure]:
    """Measures of the same thing joined into one, their values in the order given."""
    joined: dict[tuple[Key, str], Measure] = {}
    for each in measures:
        place = (each.key, each.who)
        before = joined[place].values if place in joined else ()
        joined[place] = replace(each, values=(*before, *each.values))
    return list(joined.values())


def ratio(measure: Measure, measures: Iterable[Measure]) -> float | None:
    """How many times its reference a measure is; None for the reference, or where there is none."""
    if measure.who == measure.reference:
        return None
    for other in measures:
        if other.key == measure.key and other.who == measure.reference and other.median:
            return measure.median / other.median
    return None


def table(measures: Sequence[Measure]) -> str:
    """The measures of one case as text: what is compared stands together."""
    head = ("work", "nodes", "figure", "who", "median", "spread", "nodes/s", "ratio")
    rows: list[tuple[str, ...]] = []
    order = {key: place for place, key in enumerate(dict.fromkeys(m.key for m in measures))}
    last: Key | None = None
    for each in sorted(measures, key=lambda m: order[m.key]):
        found = ratio(each, measures)
        told = ("", "", "") if each.key == last else (each.work, f"{each.n:,}", each.figure)
        spread = f"{shown(min(each.values))} to {shown(max(each.values))}"
        rows.append(
            (
                *told,
                each.who,
                f"{shown(each.median)} {each.unit}".rstrip(),
                spread if len(each.values) > 1 else "",
                shown(each.n / each.median) if each.figure == SECONDS and each.median else "",
                "" if found is None else f"{found:.2f} x {each.reference}",
            )
        )
        last = each.key
    return _aligned([head, *rows])


def shown(value: float) -> str:
    """Three digits are enough to compare: 0.0123, 1.23, 12.3, 1,234."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 4
    return f"{value:,.{digits}f}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {1, 4, 6}
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
