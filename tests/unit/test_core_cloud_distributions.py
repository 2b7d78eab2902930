"""Spans from draws.

- each distribution gives the quantiles that its parameters say, and many draws fit them
- a greater draw never gives a shorter span; every span is from 0 to 720 h
- measured samples come as they were measured, and as often
- a stored object always gives a span, however odd
- a release never changes what a draw gives
"""

import math
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.core.cloud.distributions import (
    HOUR,
    LONGEST,
    SECOND,
    drawn,
    milliseconds,
    span,
    span_by_rate,
)
from kwok_operator.core.cloud.draws import Instance
from kwok_operator.models.delay import Delay
from tests.fakes.rows import each_row
from tests.unit.clouds import DELAYS

DRAWS = st.floats(0, 1, exclude_min=True, exclude_max=True)
MANY = 3_000
FURTHEST = 0.06
"""Kolmogorov and Smirnov: fewer than one in a billion such samples are further off."""


def delay(**fields: Any) -> Delay:
    return Delay.model_validate(fields)


def sample(given: Delay, *, seed: str) -> list[int]:
    return sorted(drawn(given, Instance(seed, "g", n), what="x") for n in range(MANY))


@each_row(
    "given draw seconds",
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
def test_a_release_never_changes_what_a_draw_gives(
    given: dict[str, Any], draw: float, expected: int
) -> None:
    assert span(delay(**given), draw) == expected


@given(seed=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
@pytest.mark.parametrize(
    ("given_", "cumulative"),
    [
        ({"uniform": {"min": "10s", "max": "1m"}}, lambda s: (s - 10) / 50),
        ({"normal": {"mean": "45s", "stddev": "10s"}}, NormalDist(45, 10).cdf),
        (
            {"lognormal": {"p50": "40s", "p99": "3m"}},
            lambda s: NormalDist(math.log(40), math.log(4.5) / 2.3263).cdf(math.log(s)),
        ),
        ({"exponential": {"mean": "1h"}}, lambda s: 1 - math.exp(-s / 3600)),
    ],
    ids=["uniform", "normal", "lognormal", "exponential"],
)
def test_many_draws_fit(given_: dict[str, Any], cumulative: Any, seed: int) -> None:
    spans = sample(delay(**given_), seed=str(seed))
    off = (abs(cumulative(s / SECOND) - n / MANY) for n, s in enumerate(spans))
    assert max(off) < FURTHEST


@given(seed=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_samples_come_as_often_as_they_are_named(seed: int) -> None:
    spans = sample(delay(samples=["7s", "1s", "1s", "4s"]), seed=str(seed))
    assert set(spans) == {1_000, 4_000, 7_000}
    assert spans.count(1_000) / MANY == pytest.approx(1 / 2, abs=FURTHEST)
    assert spans.count(7_000) / MANY == pytest.approx(1 / 4, abs=FURTHEST)


@given(DELAYS, DRAWS, DRAWS)
def test_spans_grow_with_the_draw_and_are_within_bounds(
    given: dict[str, Any], one: float, other: float
) -> None:
    low, high = (span(delay(**given), draw) for draw in sorted((one, other)))
    assert 0 <= low <= high <= LONGEST


@each_row(
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
@each_row("draw", [1e-16, 0.5, 1 - 1e-16])
def test_whatever_is_stored_gives_a_span(given: dict[str, Any], draw: float) -> None:
    assert 0 <= span(delay(**given), draw) <= LONGEST


def test_no_delay_is_none() -> None:
    assert drawn(None, Instance("s", "g", 0), what="x") == 0


def test_times_are_cut_at_thirty_days() -> None:
    assert milliseconds("1h1m1s") == 3_661_000
    assert milliseconds("999h") == LONGEST == 720 * HOUR


def test_a_rate_is_the_share_that_is_hit_within_an_hour() -> None:
    assert span_by_rate(0.05, 0.05) == HOUR
    assert span_by_rate(0.5, 0.75) == 2 * HOUR
    assert span_by_rate(0, 0.5) == LONGEST
    assert span_by_rate(1, 0.5) == 0
    hit = sum(span_by_rate(0.3, Instance("s", "g", n).draw("x")) <= HOUR for n in range(MANY))
    assert hit / MANY == pytest.approx(0.3, abs=FURTHEST)
