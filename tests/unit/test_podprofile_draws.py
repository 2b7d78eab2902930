"""What is drawn for pods, by jq and by Python."""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.api.delay import Delay
from kwok_operator.cloud.draws import LONGEST, span
from kwok_operator.podprofiles.draws import (
    JQ_DEFINITIONS,
    MODULUS,
    RANGE,
    DrawKey,
    draw,
    jq_draw,
    number_of,
    number_of_try,
)
from kwok_operator.podprofiles.quantiles import NONE, Spans, spans
from tests.fakes.stages import evaluate
from tests.unit.clouds import DELAYS

KEYS = st.builds(DrawKey, st.text(max_size=8), st.text(max_size=8))
NUMBERS = st.integers(0, MODULUS - 1)
DRAWN = st.integers(0, RANGE - 1)
CELLS = 1_000
FURTHEST = 5.5
"""Standard deviations: fewer than one in ten million such figures are further off."""


@pytest.mark.parametrize(
    ("who", "seed", "use", "restarts", "expected"),
    [
        ("default/web-0", "slow-images", "start", 0, 783_758),
        ("batch/train/499/2", "run-1", "failure", 3, 873_449),
        ("ü/\N{GRINNING FACE}", "", "run", 1_000_000, 423_945),
    ],
)
def test_a_release_never_changes_what_is_drawn(
    who: str, seed: str, use: str, restarts: int, expected: int
) -> None:
    assert draw(DrawKey(seed, use), number_of_try(number_of(who), restarts)) == expected


@given(KEYS, st.text(max_size=20), st.integers(0, 10_000))
def test_jq_draws_the_same(key: DrawKey, who: str, restarts: int) -> None:
    found = evaluate(
        f"{JQ_DEFINITIONS} .who | number_of | ., {jq_draw(key)},"
        f" (number_of_try({restarts}) | {jq_draw(key)})",
        {"who": who},
    )
    number = number_of(who)
    assert found == [number, draw(key, number), draw(key, number_of_try(number, restarts))]


def test_nothing_needs_more_than_53_bits() -> None:
    assert (MODULUS - 1) * 8_191 + 0x10FFFF < 2**53
    assert MODULUS < RANGE * RANGE
    assert (RANGE - 1) ** 2 < 2**53
    assert RANGE * LONGEST < 2**53


def names(digits: int) -> Iterator[int]:
    """The numbers of pods whose names end in so many digits, one after the other."""
    tens = [number_of("batch/train-" + "".join(text)) for text in heads(digits)]
    return ((each * 8_191 + last) % MODULUS for each in tens for last in range(48, 58))


def heads(digits: int) -> Iterator[tuple[str, ...]]:
    return product("0123456789", repeat=digits - 1)


def unevenness(counts: Sequence[int]) -> float:
    """Chi-squared, in standard deviations from what chance gives."""
    expected = sum(counts) / len(counts)
    squared = sum((count - expected) ** 2 for count in counts) / expected
    return abs(squared - (len(counts) - 1)) / math.sqrt(2 * (len(counts) - 1))


def dependence(ones: Sequence[int], others: Sequence[int], *, cells: int = 32) -> float:
    counts = [0] * cells**2
    for one, other in zip(ones, others, strict=False):
        counts[one * cells // RANGE * cells + other * cells // RANGE] += 1
    return unevenness(counts)


def test_a_million_draws_are_spread_evenly() -> None:
    key, counts = DrawKey("seed", "start"), [0] * CELLS
    for number in names(6):
        counts[draw(key, number) * CELLS // RANGE] += 1
    assert sum(counts) == 1_000_000
    assert unevenness(counts) < FURTHEST
    # Kolmogorov and Smirnov: nowhere is the share of draws below a value far from the value.
    below, most = 0, 0.0
    for cell, count in enumerate(counts):
        below += count
        most = max(most, abs(below / 1_000_000 - (cell + 1) / CELLS))
    assert most * 1_000 < 3


def test_neighbours_uses_and_tries_are_independent() -> None:
    numbers = list(names(5))
    start, run = ([draw(DrawKey("seed", use), n) for n in numbers] for use in ("start", "run"))
    again = [draw(DrawKey("seed", "start"), number_of_try(n, 1)) for n in numbers]
    later = [draw(DrawKey("seed", "start"), number_of_try(n, 2)) for n in numbers]
    other = [draw(DrawKey("seed2", "start"), n) for n in numbers]
    for lag in (1, 2, 10, 100):
        assert dependence(start, start[lag:]) < FURTHEST, lag
    for others in (run, run[1:], again, again[1:], other, other[1:]):
        assert dependence(start, others) < FURTHEST
    assert dependence(again, later) < FURTHEST
    assert dependence(again, later[1:]) < FURTHEST


@given(DELAYS, DRAWN, DRAWN)
def test_spans_follow_their_distribution(given: dict[str, object], one: int, other: int) -> None:
    delay = Delay.model_validate(given)
    table = spans(delay)
    low, high = sorted((one, other))
    assert 0 <= table.least <= table.at(low) <= table.at(high) <= table.most <= LONGEST
    exact = span(delay, (one + 0.5) / RANGE)
    assert abs(table.at(one) - exact) <= max(50, exact / 50)
    assert evaluate(table.jq(), one) == [table.at(one)]


def test_the_middle_of_a_distribution_is_within_half_a_percent() -> None:
    delay = Delay.model_validate({"lognormal": {"p50": "40s", "p99": "10m"}})
    for percent in range(1, 100):
        exact = span(delay, percent / 100)
        assert abs(spans(delay).at(percent * RANGE // 100) - exact) <= exact / 200 + 20, percent


def test_samples_come_as_often_as_they_are_named() -> None:
    table: Spans = spans(Delay.model_validate({"samples": ["3s", "1s", "2s", "2s"]}))
    shares = [table.at((2 * i + 1) * RANGE // 16) for i in range(8)]
    assert shares == [1_000, 1_000, 2_000, 2_000, 2_000, 2_000, 3_000, 3_000]
    assert spans(None) is NONE
    assert evaluate(NONE.jq(), 7) == [0]
