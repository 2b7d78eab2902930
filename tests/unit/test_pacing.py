"""How fast nodes may be written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.kube.pacing import CATCH_UP, Pace, Rate

gaps = st.floats(min_value=0.0, max_value=10.0)
steps = st.lists(st.tuples(st.sampled_from(["begin", "ok", "wait", "fail"]), gaps), max_size=60)


def slowed(most: int, *, delay: float = 1.0) -> Pace:
    """At time 0."""
    pace = Pace(most=most)
    pace.asked_to_wait(0.0, ticket=pace.begin(0.0), delay=delay)
    return pace


@given(st.integers(min_value=1, max_value=64), steps)
def test_limit_stays_in_bounds(most: int, steps: list[tuple[str, float]]) -> None:
    pace, now, ticket = Pace(most=most), 0.0, 0
    for what, gap in steps:
        now += gap
        match what:
            case "begin":
                ticket = pace.begin(now)
            case "ok":
                pace.succeeded(now)
            case "wait":
                pace.asked_to_wait(now, ticket=ticket, delay=gap)
                assert pace.wait(now) >= gap - 1e-9
            case "fail":
                pace.failed(now, ticket=ticket)
        assert 1 <= pace.limit <= most
        assert pace.throttled or pace.limit == most


@given(st.integers(min_value=1, max_value=64), steps)
def test_whatever_happened_it_recovers(most: int, steps: list[tuple[str, float]]) -> None:
    pace, now = Pace(most=most), 0.0
    for what, gap in steps:
        now += gap
        if what == "fail":
            pace.failed(now, ticket=pace.begin(now))
        else:
            pace.asked_to_wait(now, ticket=pace.begin(now), delay=gap)
    now += 10.0  # the longest pause
    for _ in range(most + 1):
        assert pace.wait(now) <= 0
        now += 1.01
        pace.succeeded(now)
    assert (pace.limit, pace.throttled) == (most, False)


@pytest.mark.parametrize(("most", "halved"), [(32, 16), (5, 2), (2, 1), (1, 1)])
def test_asked_to_slow_down_it_halves_and_pauses(most: int, halved: int) -> None:
    pace = Pace(most=most)
    ticket = pace.begin(0.0)
    assert pace.wait(0.0) <= 0
    assert pace.asked_to_wait(0.0, ticket=ticket, delay=3.0)
    assert (pace.limit, pace.throttled) == (halved, True)
    assert pace.wait(1.0) == 2.0
    assert pace.wait(3.0) <= 0


def test_other_failures_take_a_quarter_and_pause_nobody() -> None:
    pace = Pace(most=32)
    assert pace.failed(0.0, ticket=pace.begin(0.0))
    assert pace.limit == 24
    assert pace.wait(0.0) <= 0


def test_calls_that_were_under_way_together_count_once() -> None:
    pace = Pace(most=32)
    first = [pace.begin(0.0) for _ in range(32)]
    told = [pace.asked_to_wait(0.1, ticket=ticket, delay=1.0) for ticket in first]
    assert (told.count(True), pace.limit) == (1, 16)
    assert pace.asked_to_wait(2.0, ticket=pace.begin(2.0), delay=1.0)
    assert pace.limit == 8
    # A straggler from before.
    assert not pace.failed(2.5, ticket=first[0])
    assert pace.limit == 8


def test_the_longest_pause_counts() -> None:
    pace = Pace(most=32)
    tickets = [pace.begin(0.0) for _ in range(3)]
    for ticket, delay in zip(tickets, (1.0, 5.0, 2.0), strict=True):
        pace.asked_to_wait(0.0, ticket=ticket, delay=delay)
    assert pace.wait(0.0) == 5.0


def test_a_second_of_success_gives_one_back() -> None:
    pace = slowed(32, delay=2.0)
    limits = []
    for tenth in range(20, 60):
        pace.succeeded(tenth / 10)
        limits.append(pace.limit)
    assert limits == [16] * 10 + [17] * 10 + [18] * 10 + [19] * 10


def test_time_alone_gives_nothing_back() -> None:
    pace = slowed(32)
    pace.succeeded(1_000.0)
    assert pace.limit == 17


def test_a_failure_begins_the_second_anew() -> None:
    pace = slowed(32)
    pace.succeeded(1.9)
    pace.failed(1.9, ticket=0)
    pace.succeeded(2.8)
    assert pace.limit == 16
    pace.succeeded(2.9)
    assert pace.limit == 17


@given(
    st.floats(min_value=0.01, max_value=1_000.0),
    st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=1, max_size=80),
)
def test_no_stretch_of_time_has_more_than_the_rate(per_second: float, gaps: list[float]) -> None:
    rate, now, begun = Rate(per_second), 0.0, []
    for gap in gaps:
        now += gap / per_second
        now = max(now, now + rate.wait(now))
        rate.count_request(now)
        begun.append(now)
    for i, start in enumerate(begun):
        for count, end in enumerate(begun[i:], start=1):
            assert count <= per_second * (end - start + CATCH_UP) + 1 + 1e-6


@pytest.mark.parametrize("per_second", [0.5, 50.0, 2_000.0])
def test_the_rate_is_reached_by_those_who_wake_late(per_second: float) -> None:
    rate, now, count = Rate(per_second), 0.0, 0
    while now < 100.0:
        rate.count_request(now)
        count += 1
        wait = rate.wait(now)
        now += wait + 0.001 if wait > 0 else 0.0  # a timer is a millisecond late
    assert count == pytest.approx(100 * per_second, rel=0.05, abs=1)


def test_no_rate_is_no_wait() -> None:
    pace = Pace(most=4)
    for _ in range(100_000):
        assert pace.wait(0.0) <= 0
        pace.begin(0.0)


def test_requests_on_top_are_made_up_for() -> None:
    pace = Pace(most=4, qps=10.0)
    pace.begin(100.0)
    pace.count_request(100.0)
    pace.count_request(100.0)
    assert pace.wait(100.0) == pytest.approx(0.3 - CATCH_UP)
