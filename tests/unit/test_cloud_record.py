"""What status remembers of instances without a Node, and what is told of them."""

import base64
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud import room
from kwok_operator.cloud.api.cloud import Cloud, ErrorClass
from kwok_operator.cloud.api.cloudstatus import MAX_REFUSED, MAX_ROWS, CloudStatus
from kwok_operator.cloud.arrival import MAX_TRIES, TRIES_AT_ONCE
from kwok_operator.cloud.record import CloudRecord, Refusal, outstanding, redated
from kwok_operator.cloud.room import CloudRequest
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.cloud.stock import CapacityPool, StockDecision, StockRequest, decide
from kwok_operator.cloud.summary import (
    InstanceState,
    autoscaler_state,
    counts,
    instance_counts,
    next_look,
    rows,
)
from kwok_operator.cloud.terms import History
from kwok_operator.cloud.units import Outage
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.api.status import (
    Condition,
    ConditionType,
    KwokNodeGroupStatus,
    PendingBatch,
)
from kwok_operator.nodegroups.serials import MAX_BATCHES, Batch, format_ranges
from tests.unit.clouds import CLOUDS, GROUP, QUICK, cloud

T0 = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
FAULT = Fault(ErrorClass.OUT_OF_RESOURCES, "NoCapacity", "zone-b is sold out")


def batch(first: int, last: int, *, at: int = T0, spent: set[int] | None = None) -> Batch:
    return Batch(first, last, format_time(at), frozenset(spent or ()))


def record_of(spec: Cloud, *refusals: Refusal, at: int = T0) -> CloudRecord:
    history = History().revised(spec, group=GROUP, now=at, oldest=at)
    return CloudRecord(history, refusals)


def refusal(*serials: int, since: int = T0, fault: Fault | None = FAULT) -> Refusal:
    return Refusal(frozenset(serials), since, "zone-b", "PoolExhausted", fault)


def phases_of(record: CloudRecord, *batches: Batch, now: int = T0, **more: Any) -> dict[int, Phase]:
    parts = outstanding(record, batches, group=GROUP, now=now, **{"arrived": set(), **more})
    return {serial: phase for part in parts for serial, phase in part.items()}


def settle(
    record: CloudRecord, decision: StockDecision, *, wanted: set[int], now: int = T0
) -> CloudRecord:
    return record.settled(decision, wanted=wanted, now=now)


def ask(*serials: int) -> StockRequest:
    return StockRequest(GROUP, serials, pools=["zone-b"])


def zone(instances: int, **more: Any) -> dict[str, CapacityPool]:
    return {"zone-b": CapacityPool("zone-b", instances, **more)}


def test_who_finds_room_later_begins_then() -> None:
    spec = cloud(provisioningDelay={"fixed": "30s"})
    record = record_of(spec, refusal(3, 4))
    again = T0 + 5 * MINUTE
    ((_, serials),) = record.asking(again)
    decision = decide(ask(*serials), pools=zone(1))
    record = settle(record, decision, wanted=set(range(5)), now=again)
    batches = redated([batch(0, 4)], granted={*decision.granted}, at=format_time(again))
    assert batches == (batch(0, 2), batch(3, 3, at=again), batch(4, 4))
    found = phases_of(record, *batches, now=again)
    assert [found[s].state for s in range(5)] == [State.DUE] * 3 + [State.CREATING, State.FAILED]
    assert (found[3].since, found[3].until) == (again, again + 30 * SECOND)
    assert (found[4].since, found[4].until) == (again, again + 5 * MINUTE)


def test_the_phase_of_an_instance_that_was_refused_or_is_now_is_computed_anew() -> None:
    refused, granted = record_of(cloud(), refusal(3)), record_of(cloud())
    for record, before in ((refused, granted), (granted, refused)):
        known = phases_of(before, batch(2, 3))
        assert record.still(known, before=before) == {2: known[2]}


def test_room_is_for_those_that_ask_for_the_longest_time() -> None:
    record = record_of(cloud(), refusal(3, since=T0 + MINUTE), refusal(5))
    requested = CloudRequest(
        group=GROUP,
        cloud=cloud(capacityPools=["zone-b"]),
        pending=[3, 5],
        first_new=6,
        arrived=set(),
        batches=(batch(3, 5, spent={4}),),
    )
    settled = room.settle(
        requested, record, pools=zone(1), others=lambda _: [], now=T0 + 6 * MINUTE
    )
    assert settled.redated == {5}
    assert settled.record.refused({3, 5}) == {3}


def test_never_is_never() -> None:
    record = record_of(cloud(retryAfter="Never"), refusal(3))
    assert not list(record.asking(T0 + 10**12))
    assert phases_of(record, batch(3, 3))[3].until is None


def test_what_is_undecided_waits_and_asks_each_time() -> None:
    decision = decide(ask(0, 1), pools={})
    record = settle(record_of(cloud()), decision, wanted={0, 1})
    found = phases_of(record, batch(0, 1))
    assert {phase.state for phase in found.values()} == {State.WAITING}
    assert {phase.reason for phase in found.values()} == {"PoolMissing"}
    later = T0 + MINUTE
    assert list(record.asking(later)) == [(T0, frozenset({0, 1}))]
    out = decide(ask(0, 1), pools=zone(9, outage=True))
    record = settle(record, out, wanted={0, 1}, now=later)
    assert [(r.since, r.reason) for r in record.refusals] == [(T0, "Outage")]
    record = settle(record, decide(ask(0, 1), pools=zone(9)), wanted={0, 1}, now=later)
    assert not record.refusals


def test_a_try_that_meets_an_outage_waits() -> None:
    record = record_of(cloud(), refusal(3))
    again = T0 + 5 * MINUTE
    out = decide(ask(3), pools=zone(9, outage=True))
    record = settle(record, out, wanted={3}, now=again)
    phase = phases_of(record, batch(3, 3), now=again)[3]
    assert (phase.state, phase.since, phase.until) == (State.WAITING, again, None)


def test_an_outage_keeps_back_what_is_due() -> None:
    record = record_of(cloud(provisioningDelay={"fixed": "30s"}))
    out = T0 + MINUTE
    coming = phases_of(record, batch(0, 0), now=T0 + 10 * SECOND, out=Outage(T0))[0]
    assert coming.state is State.CREATING
    due = phases_of(record, batch(0, 0), now=out, out=Outage(T0))[0]
    assert (due.state, due.reason, due.since) == (State.WAITING, "Outage", T0 + 30 * SECOND)
    assert phases_of(record, batch(0, 0), now=out)[0].state is State.DUE


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_redating_loses_nobody(spent: set[int], granted: set[int], ends: set[int]) -> None:
    bounds = sorted({0, 31} | ends)
    batches = [
        Batch(first, following - 1, format_time(T0 + first), frozenset(spent))
        for first, following in pairwise(bounds)
    ]
    parts = redated(batches, granted=granted, at="later")
    assert {s for b in parts for s in b} == {s for b in batches for s in b}
    assert all(a.last < b.first for a, b in pairwise(parts))
    dates = {s: b.requested_at for b in parts for s in b}
    assert {s for s, at in dates.items() if at == "later"} == granted & dates.keys()


@given(CLOUDS, st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 10**6))
@QUICK
def test_everyone_outstanding_is_in_one_phase_also_after_a_restart(
    spec: Cloud, arrived: set[int], refused: set[int], later: int
) -> None:
    batches = [batch(0, 19, spent={3}), batch(20, 40, at=T0 + SECOND)]
    record = record_of(spec, *([refusal(*refused)] if refused else []))
    now = T0 + SECOND + later
    found = phases_of(record, *batches, now=now, arrived=arrived)
    assert found.keys() == set(range(41)) - {3} - arrived
    assert sum(counts(found.values()).values()) == len(found)
    earlier = phases_of(record, *batches, now=T0 + SECOND, arrived=arrived)
    assert phases_of(record, *batches, now=now, arrived=arrived, known=earlier) == found
    again = CloudRecord.read(CloudStatus.model_validate(record.dump().dump()), batches)
    assert again == record
    assert phases_of(again, *batches, now=now, arrived=arrived) == found
    assert all(found[s].state is State.FAILED for s in refused & found.keys())
    look = next_look(phase for s, phase in found.items() if s not in refused)
    assert look is None or look > now


def test_many_tries_are_walked_through_in_parts() -> None:
    spec = cloud(failures={"creation": [{"probability": "0.9999"}]}, retryAfter="1s")
    late = T0 + 2 * MAX_TRIES * SECOND
    walk = outstanding(record_of(spec), [batch(0, 9)], group=GROUP, arrived=set(), now=late)
    tries, most = dict[int, int](), 0
    for part in walk:
        before = sum(tries.values())
        tries |= {serial: phase.tries for serial, phase in part.items()}
        most = max(most, sum(tries.values()) - before)
    assert sum(tries.values()) > 5 * TRIES_AT_ONCE, "it is worth it"
    assert most < 2 * TRIES_AT_ONCE


def test_refusals_of_many_times_are_joined_the_closest_first() -> None:
    record = record_of(cloud())
    for n in range(2 * MAX_REFUSED):
        now = T0 + n * MINUTE + (0 if n < MAX_REFUSED else n * MINUTE)
        decision = decide(ask(n), pools=zone(0))
        record = settle(record, decision, wanted=set(range(n + 1)), now=now)
    assert len(record.refusals) == MAX_REFUSED
    requested = set(range(2 * MAX_REFUSED))
    assert record.refused(requested) == requested
    assert record.refusals[0].serials > {0, 1}


def test_refusals_that_were_tampered_with_are_left_out() -> None:
    status = record_of(cloud(), refusal(1, 2)).dump().dump()
    (good,) = status["refused"]
    odd = [{**good, "serials": "x"}, {**good, "since": "now"}, {**good, "class": "Odd"}]
    twice = {**good, "serials": "2-3", "reason": "OutOfStock"}
    many = {**good, "serials": "0-9999999"}
    status = {"refused": [many, *odd, good, twice, good, twice]}
    read = CloudRecord.read(CloudStatus.model_validate(status), [batch(0, 4)])
    assert [r.serials for r in read.refusals] == [{1, 2}, {2, 3}], "no more than are requested"
    kept = settle(read, StockDecision(), wanted={1, 2, 3, 4})
    assert [r.serials for r in kept.refusals] == [{1, 2}, {3}], "the first holds"


def _bitmap(first: int) -> str:
    return f"{first}+{base64.b64encode(zlib.compress(bytes([0b1010_1010] * 200_000))).decode()}"


@pytest.mark.parametrize(
    "serials",
    [
        ["0-999999", "0-1999999"],
        [_bitmap(0), _bitmap(1)],
        [f"{n}-{n + 1_000_000}" for n in range(50)],
    ],
)
def test_what_is_refused_is_not_spelt_out_but_for_what_is_asked_for(serials: list[str]) -> None:
    """Whatever is in status: somebody else may have written it."""
    part = {"since": format_time(T0), "reason": "PoolExhausted", "pool": "zone-b"}
    status = CloudStatus.model_validate({"refused": [{**part, "serials": s} for s in serials]})
    wanted = set(range(100, 200))
    with traced_memory() as most:
        read = CloudRecord.read(status, [batch(0, 100_000_000)])
        phases_of(read, batch(100, 199))
        assert settle(read, StockDecision(), wanted=wanted).refused(wanted) == wanted
        assert read.refused_by_pool.keys() == {"zone-b"}
        assert most() < 5_000_000


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """What gives the bytes that were in use at most."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def full_status(record: CloudRecord, batches: list[Batch], now: int) -> dict[str, Any]:
    """Everything but the template, with conditions as long as they get."""
    found = phases_of(record, *batches, now=now)
    at = format_time(now)
    said = "A sentence for people that says what holds, and what they can do about it. " * 3
    conditions = tuple(
        Condition(
            type=kind,
            status="False",
            reason="SomeLongReason",
            message=said,
            observed_generation=999_999,
            last_transition_time=at,
        )
        for kind in ConditionType
    )
    status = KwokNodeGroupStatus(
        replicas=99_999,
        ready_replicas=99_999,
        updated_replicas=99_999,
        pending_replicas=len(found),
        target_size=99_999,
        observed_generation=999_999,
        selector="kwok-operator.io/node-group=" + 50 * "x",
        next_serial=999_999,
        template_hash=16 * "x",
        template_source="configmap",
        conditions=conditions,
        pending=tuple(
            PendingBatch(
                first=b.first,
                last=b.last,
                requested_at=b.requested_at,
                except_=format_ranges(b.spent),
            )
            for b in batches
        ),
    )
    states = instance_counts(dict.fromkeys(State, 99_999))
    shown = record.dump().model_copy(update={"instances": rows(found), "counts": states})
    return {**status.dump(), "cloud": shown.dump()}


def size(status: dict[str, Any]) -> int:
    return len(json.dumps(status, separators=(",", ":")).encode())


HALF_FAIL = cloud(
    seed="a-run-with-a-name-of-its-own",
    provisioningDelay={"lognormal": {"p50": "40s", "p99": "3m"}},
    failures={
        "creation": [
            {"probability": "0.3", "after": {"uniform": {"min": "5s", "max": "20s"}}},
            {"probability": "0.2", "class": "QuotaExceeded", "code": "VcpuLimitExceeded"},
        ]
    },
)


def test_status_is_small_with_half_of_two_thousand_refused_by_turns() -> None:
    draw = random.Random(1)
    serials = [n for n in range(2_000) if draw.random() < 0.5]
    parts = [
        Refusal(
            frozenset(serials[n::MAX_REFUSED]),
            T0 + n * SECOND,
            "zone-b",
            "PoolExhausted",
            Fault(FAULT.error_class, 64 * "c", 120 * "m"),
        )
        for n in range(MAX_REFUSED)
    ]
    assert size(full_status(record_of(HALF_FAIL, *parts), [batch(0, 1_999)], T0)) < 10_500


def test_status_is_small_with_asks_that_trickle_in() -> None:
    batches = [batch(40 * n, 40 * n + 39, at=T0 + n * SECOND) for n in range(MAX_BATCHES)]
    assert size(full_status(record_of(HALF_FAIL), batches, T0 + MINUTE)) < 10_000


def test_rows_are_few_and_count_everybody() -> None:
    phases = {n: Phase(State.FAILED, T0 + n, None, f"Reason{n % 30}", FAULT) for n in range(3_000)}
    found = rows(phases)
    assert len(found) == MAX_ROWS
    assert sum(row.count for row in found) == 3_000
    assert found[-1].reason == "Various"
    assert all(len(row.serials) <= 60 and row.serials.endswith(",...") for row in found)


def test_a_row() -> None:
    phases = {n: Phase(State.FAILED, T0 + n * SECOND, None, "X", FAULT) for n in (4, 2, 3, 9)}
    (row,) = rows(phases)
    assert (row.state, row.reason, row.count, row.serials) == ("Failed", "X", 4, "2-4,9")
    assert parse_time(row.since) == T0 + 2 * SECOND
    assert row.message == FAULT.message
    assert rows({}) == ()


@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_each_state_has_its_count(state: State) -> None:
    """What is due is being created: it is so for a moment only."""
    shown = {name: count for name, count in instance_counts({state: 3}).dump().items() if count}
    expected = State.CREATING if state is State.DUE else state
    assert {name.lower(): count for name, count in shown.items()} == {expected.value.lower(): 3}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.WAITING, InstanceState.CREATING),
        (State.CREATING, InstanceState.CREATING),
        (State.FAILED, InstanceState.CREATING),
        (State.DUE, InstanceState.CREATING),
        (State.UNREGISTERED, InstanceState.RUNNING),
        (State.STARTING, InstanceState.CREATING),
        (State.INITIALIZING, InstanceState.RUNNING),
        (State.READY, InstanceState.RUNNING),
        (State.NOT_READY, InstanceState.RUNNING),
        (State.INTERRUPTED, InstanceState.RUNNING),
        (State.DELETING, InstanceState.DELETING),
        (State.GONE, InstanceState.DELETING),
    ],
)
def test_what_cluster_autoscaler_is_told(state: State, expected: InstanceState) -> None:
    fault = FAULT if state is State.FAILED else None
    assert autoscaler_state(state, FAULT) == (expected, fault)
