"""Spans from draws."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.api.delay import Delay
from kwok_operator.cloud.draws import (
    HOUR,
    LONGEST,
    SECOND,
    InstanceSeed,
    drawn,
    milliseconds,
    span,
    span_by_rate,
)
from tests.unit.clouds import DELAYS

DRAWS = st.floats(0, 1, exclude_min=True, exclude_max=True)
MANY = 3_000
FURTHEST = 0.06
"""Kolmogorov and Smirnov: fewer than one in a billion such samples are further off."""


def delay(**fields: Any) -> Delay:
    return Delay.model_validate(fields)


@pytest.mark.parametrize(
    ("given", "draw", "seconds"),
    [
        ({"fixed": "1m30s"}, 0.123, 90),
        ({"uniform": {"min": "10s", "max": "1m"}}, 0.5, 35),
        ({"normal": {"mean": "45s", "stddev": "10s"}}, 0.5, 45),
        ({"normal": {"mean": "45s", "stddev": "10s"}}, 0.841345, 55),
        ({"normal": {"mean": "5s", "stddev": "10s"}}, 0.1, 0),
        ({"lognormal": {"p50": "40s", "p99": "3m"}}, 0.5, 40),
        ({"lognormal": {"p50": "40s", "p99": "3m"}}, 0.99, 180),
        ({"exponential": {"mean": "100s"}}, 1 - math.exp(-1), 100),
        ({"samples": ["3s", "1s", "2s", "2s"]}, 0.25, 1),
        ({"samples": ["3s", "1s", "2s", "2s"]}, 0.7, 2),
        ({"samples": ["3s", "1s", "2s", "2s"]}, 0.76, 3),
    ],
)
def test_quantiles(given: dict[str, Any], draw: float, seconds: float) -> None:
    assert span(delay(**given), draw) == pytest.approx(seconds * SECOND, abs=1)


@pytest.mark.parametrize(
    ("given", "draw", "expected"),
    [
        ({"normal": {"mean": "45s", "stddev": "10s"}}, 0.3, 39_756),
        ({"lognormal": {"p50": "40s", "p99": "3m"}}, 0.9, 91_602),
        ({"exponential": {"mean": "6h"}}, 0.75, 29_943_958),
    ],
    ids=str,
)
def test_draws_are_the_same_for_ever(given: dict[str, Any], draw: float, expected: int) -> None:
    assert span(delay(**given), draw) == expected


@given(DELAYS, DRAWS, DRAWS)
def test_spans_grow_within_bounds(given: dict[str, Any], one: float, other: float) -> None:
    low, high = (span(delay(**given), draw) for draw in sorted((one, other)))
    assert 0 <= low <= high <= LONGEST


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"fixed": "999h"},
        {"uniform": {"min": "2m", "max": "1m"}},
        {"lognormal": {"p50": "0s", "p99": "0s"}},
        {"lognormal": {"p50": "1s", "p99": "999h"}},
        {"lognormal": {"p50": "2s", "p99": "1s"}},
        {"exponential": {"mean": "999h"}},
        {"fixed": "1s", "samples": ["2s"]},
    ],
)
@pytest.mark.parametrize("draw", [1e-16, 0.5, 1 - 1e-16])
def test_whatever_is_stored_gives_a_span(given: dict[str, Any], draw: float) -> None:
    assert 0 <= span(delay(**given), draw) <= LONGEST


def test_no_delay_is_none() -> None:
    assert drawn(None, InstanceSeed("s", "g", 0), what="x") == 0


def test_times_are_cut_at_thirty_days() -> None:
    assert milliseconds("1h1m1s") == 3_661_000
    assert milliseconds("999h") == LONGEST == 720 * HOUR


def test_a_rate_is_the_share_that_is_hit_within_an_hour() -> None:
    assert span_by_rate(0.05, 0.05) == HOUR
    assert span_by_rate(0.5, 0.75) == 2 * HOUR
    assert span_by_rate(0, 0.5) == LONGEST
    assert span_by_rate(1, 0.5) == 0
    hit = sum(span_by_rate(0.3, InstanceSeed("s", "g", n).draw("x")) <= HOUR for n in range(MANY))
    assert hit / MANY == pytest.approx(0.3, abs=FURTHEST)
