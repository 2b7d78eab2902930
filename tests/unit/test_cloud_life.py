"""From a Node's birth to its end."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.annotations import dump_life, load_life
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.draws import HOUR, InstanceSeed
from kwok_operator.cloud.life import (
    INTERRUPTED,
    LATE,
    ComingResource,
    End,
    Life,
    born_at,
    deletion_delay,
    draw_life,
)
from kwok_operator.cloud.states import State
from tests.unit.clouds import CLOUDS, QUICK, cloud

T0 = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND


def who(serial: int = 0) -> InstanceSeed:
    return InstanceSeed("seed", "group-a", serial)


def life(serial: int = 0, **fields: Any) -> Life:
    return draw_life(cloud(**fields), who(serial), born=T0)


def states(of: Life, *, most: int = 20) -> list[tuple[State, int]]:
    """The states and when they begin, in seconds after birth."""
    found: list[tuple[State, int]] = []
    now: int | None = T0
    for _ in range(most):
        if now is None:
            break
        view = of.desired(now)
        entry = view.state, (view.since - T0) // SECOND
        if entry not in found:
            found.append(entry)
        now = view.until
    return found


def test_a_node_of_a_perfect_cloud_is_ready_and_stays_so() -> None:
    assert life().is_perfect
    assert states(life()) == [(State.READY, 0)]


def test_a_slow_boot() -> None:
    slow = life(
        readinessDelay={"fixed": "20s"},
        startupTaints=[{"key": "agent", "effect": "NoSchedule", "removedAfter": {"fixed": "40s"}}],
        lateResources=[{"name": "nvidia.com/gpu", "after": {"fixed": "90s"}}],
    )
    assert not slow.is_perfect
    assert states(slow) == [(State.STARTING, 0), (State.INITIALIZING, 20), (State.READY, 90)]
    seen = [slow.desired(T0 + s * SECOND) for s in (0, 20, 40, 90)]
    assert [view.ready for view in seen] == [False, True, True, True]
    assert [len(view.taints) for view in seen] == [1, 1, 0, 0]
    assert [len(view.missing) for view in seen] == [1, 1, 1, 0]
    assert [view.reason for view in seen] == [
        "Booting",
        "StartupTaint",
        "ResourcesMissing",
        "Ready",
    ]


def test_a_resource_comes_with_the_amount_that_the_node_has() -> None:
    spec = cloud(
        lateResources=[
            {"name": "nvidia.com/gpu", "after": {"fixed": "9s"}},
            {"name": "example.com/none", "after": {"fixed": "9s"}},
        ]
    )
    late = draw_life(spec, who(), born=T0, capacity={"nvidia.com/gpu": "8", "cpu": "4"})
    assert late.resources == (ComingResource("nvidia.com/gpu", "8", 9_000),)


def test_what_never_is_ready() -> None:
    assert states(life(failures={"neverReady": {"serials": "0"}})) == [(State.NOT_READY, 0)]
    assert states(life(1, failures={"neverReady": {"serials": "0"}})) == [(State.READY, 0)]


def test_notice_then_the_end() -> None:
    spot = life(interruptions={"lifetime": {"fixed": "10m"}})
    assert states(spot) == [(State.READY, 0), (State.INTERRUPTED, 480), (State.GONE, 600)]
    assert spot.desired(T0 + 9 * MINUTE).ready, "it works until it goes"
    assert spot.desired(T0 + 10 * MINUTE).reason == "Interrupted"


def test_a_life_shorter_than_the_notice_has_the_whole_notice() -> None:
    spot = life(interruptions={"lifetime": {"fixed": "10s"}, "notice": "30s"})
    assert states(spot) == [(State.INTERRUPTED, 0), (State.GONE, 30)]


def test_no_node_lives_longer_than_it_may() -> None:
    spec = {"lifetime": {"fixed": "2h"}, "maxLifetime": "1h", "notice": "0s"}
    assert life(interruptions=spec).end == End(HOUR, 0, "MaxLifetime")
    assert life(interruptions={"maxLifetime": "1h", "notice": "0s"}).end == End(
        HOUR, 0, "MaxLifetime"
    )
    assert life(interruptions={**spec, "maxLifetime": "2h"}).end == End(2 * HOUR, 0, INTERRUPTED)
    assert life(interruptions={}).end is None
    assert life(interruptions={"hourlyRate": "0"}).end is None


def test_notice_may_be_given_later_or_not_at_all() -> None:
    spot = life(interruptions={"lifetime": {"fixed": "10m"}})
    assert spot.notice_at == T0 + 8 * MINUTE
    assert states(spot.noticed(None)) == [(State.READY, 0)]
    late = spot.noticed(T0 + 20 * MINUTE)
    assert states(late) == [(State.READY, 0), (State.INTERRUPTED, 1_200), (State.GONE, 1_320)]


def test_spells() -> None:
    flapping = life(flapping={"period": "100s", "notReady": "0.25"}, readinessDelay={"fixed": "5s"})
    assert flapping.spells is not None
    first = 5 * SECOND + flapping.spells.first
    for n in range(3):
        start = T0 + first + n * 100 * SECOND
        assert flapping.desired(start - 1).ready
        assert [flapping.desired(start + s).ready for s in (0, 24_999, 25_000)] == [
            False,
            False,
            True,
        ]
    view = flapping.desired(T0 + first)
    assert (view.state, view.reason) == (State.NOT_READY, "Flapping")
    assert (view.since, view.until) == (T0 + first, T0 + first + 25 * SECOND)


def test_spells_fall_at_other_times_and_on_a_share_of_the_nodes() -> None:
    lives = [life(n, flapping={"period": "10m", "nodes": "0.5"}) for n in range(1_000)]
    firsts = {one.spells.first for one in lives if one.spells}
    assert sum(one.spells is not None for one in lives) / 1_000 == pytest.approx(0.5, abs=0.1)
    assert len(firsts) > 400 and max(firsts) < 10 * MINUTE


def test_spells_that_fill_the_period_never_end() -> None:
    broken = life(flapping={"period": "1s", "notReady": "1"})
    assert broken.spells is not None
    view = broken.desired(T0 + HOUR)
    assert (view.ready, view.since, view.until) == (False, T0 + broken.spells.first, None)
    assert life(flapping={"period": "1s", "notReady": "0"}).spells is None


def test_an_outage_leaves_no_trace() -> None:
    one = life(readinessDelay={"fixed": "20s"})
    out = one.desired(T0 + MINUTE, outage_since=T0 + 50 * SECOND)
    assert (out.state, out.reason, out.ready) == (State.NOT_READY, "Outage", False)
    assert out.since == T0 + 50 * SECOND
    assert one.desired(T0 + 10 * SECOND, outage_since=T0).state is State.STARTING
    assert one.desired(T0 + MINUTE).ready


def test_a_deletion_gets_stuck() -> None:
    spec = cloud(failures={"slowDeletion": {"serials": "3", "delay": {"fixed": "10m"}}})
    assert [deletion_delay(spec, who(n)) for n in (2, 3)] == [0, 10 * MINUTE]
    assert deletion_delay(cloud(), who()) == 0


def test_a_node_is_born_when_it_was_due_unless_it_was_kept_back() -> None:
    assert born_at(T0, now=T0 + LATE) == T0
    assert born_at(T0, now=T0 + LATE + 1) == T0 + LATE + 1


@given(CLOUDS, st.integers(0, 99), st.integers(0, 10**7), st.integers(0, 10**7))
@QUICK
def test_a_life_moves_forward_in_steps(spec: Cloud, serial: int, one: int, other: int) -> None:
    of = draw_life(spec, who(serial), born=T0)
    early, late = (of.desired(T0 + age) for age in sorted((one, other)))
    assert early.since <= late.since <= T0 + max(one, other)
    assert not (early.noticed and not (late.noticed or late.gone))
    assert set(late.taints) <= set(early.taints) and set(late.missing) <= set(early.missing)
    view = of.desired(T0 + one)
    if view.until is not None:
        assert view.until > T0 + one
        assert of.desired(view.until - 1) == view
        assert of.desired(view.until) != view


@given(CLOUDS, st.integers(0, 99))
@QUICK
def test_the_annotation_is_read_back_as_it_was(spec: Cloud, serial: int) -> None:
    of = draw_life(spec, who(serial), born=T0 + 1)
    assert load_life(dump_life(of)) == of


def test_the_annotation_is_short_and_plain() -> None:
    of = draw_life(
        cloud(readinessDelay={"fixed": "20s"}, interruptions={"maxLifetime": "1h"}), who(), born=T0
    )
    assert dump_life(of) == (
        '{"bornAt":"2027-01-15T08:00:00.000Z","readyAfter":20000,'
        '"end":{"after":3600000,"notice":120000,"reason":"MaxLifetime"}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"bornAt": "yesterday"}',
        '{"bornAt": "2026-01-02T03:04:05"}',
        '{"bornAt": "2026-01-02T03:04:05Z", "readyAfter": -1}',
        '{"bornAt": "2026-01-02T03:04:05Z", "readyAfter": 1e99}',
        '{"bornAt": "2026-01-02T03:04:05Z", "spells": {"period": 0, "length": 1}}',
        '{"bornAt": "2026-01-02T03:04:05Z", "surprise": 1}',
        json.dumps({"bornAt": "2026-01-02T03:04:05Z", "end": {"reason": "x" * 10**5}}),
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the record of a life"):
        load_life(text)
