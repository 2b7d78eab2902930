"""Edits of spec.cloud while instances are outstanding."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.api.cloudstatus import TermsRecord
from kwok_operator.cloud.arrival import phases
from kwok_operator.cloud.draws import instance_seed
from kwok_operator.cloud.states import State
from kwok_operator.cloud.terms import MAX_BYTES, MAX_TERMS, History, asked_part
from tests.unit.clouds import CLOUDS, GROUP, QUICK, cloud

T0 = 1_800_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND


def fixed(seconds: int) -> Cloud:
    return cloud(provisioningDelay={"fixed": f"{seconds}s"})


def revised(history: History, spec: Cloud | None, *, now: int, oldest: int | None = T0) -> History:
    return history.revised(spec, group=GROUP, now=now, oldest=oldest)


def due_at(history: History, *, requested_at: int, serial: int = 0) -> int:
    who = instance_seed(history.at(requested_at), group=GROUP, serial=serial)
    last = list(phases(history, who, requested_at=requested_at))[-1]
    assert last.state is State.DUE
    return last.since


def test_an_edit_leaves_those_that_were_asked_for_before() -> None:
    history = revised(History(), fixed(60), now=T0)
    history = revised(history, fixed(600), now=T0 + 30 * SECOND)
    assert due_at(history, requested_at=T0) == T0 + MINUTE
    later = T0 + 30 * SECOND
    assert due_at(history, requested_at=later) == later + 10 * MINUTE


def test_an_edit_applies_to_the_next_try() -> None:
    broken = cloud(failures={"creation": [{"probability": "1"}]}, retryAfter="5m")
    history = revised(History(), broken, now=T0)
    history = revised(history, fixed(7), now=T0 + MINUTE)
    assert due_at(history, requested_at=T0) == T0 + 5 * MINUTE + 7 * SECOND


def test_a_cloud_that_is_taken_away_is_perfect_from_then_on() -> None:
    history = revised(revised(History(), fixed(60), now=T0), None, now=T0 + SECOND)
    assert due_at(history, requested_at=T0) == T0 + MINUTE
    assert due_at(history, requested_at=T0 + SECOND) == T0 + SECOND


def test_a_cloud_that_comes_later_leaves_those_that_were_due() -> None:
    history = revised(History(), None, now=T0)
    assert history == History()
    history = revised(history, fixed(60), now=T0 + SECOND)
    assert due_at(history, requested_at=T0) == T0


def test_an_edit_with_a_new_target_holds_for_the_new_ones() -> None:
    history = revised(revised(History(), fixed(60), now=T0), fixed(9), now=T0)
    assert due_at(history, requested_at=T0) == T0 + 9 * SECOND
    assert len(history.terms) == 1


def test_what_doesn_t_decide_on_arrivals_makes_no_new_terms() -> None:
    history = revised(History(), fixed(60), now=T0)
    other = fixed(60).model_copy(update={"outage": True, "stock": 3})
    assert revised(history, other, now=T0 + SECOND) == history


def test_nothing_is_recorded_while_nothing_is_outstanding() -> None:
    history = revised(History(), fixed(60), now=T0)
    assert revised(history, fixed(60), now=T0 + MINUTE, oldest=None) == History()


def test_what_nobody_needs_any_more_is_dropped() -> None:
    history = History()
    for n in range(5):
        history = revised(history, fixed(n + 1), now=T0 + n * MINUTE)
    assert len(history.terms) == 5
    history = revised(history, fixed(5), now=T0 + 9 * MINUTE, oldest=T0 + 3 * MINUTE)
    assert [terms.since for terms in history.terms] == [T0 + 3 * MINUTE, T0 + 4 * MINUTE]


def test_the_oldest_give_way_where_there_are_too_many() -> None:
    history = History()
    for n in range(3 * MAX_TERMS):
        history = revised(history, fixed(n + 1), now=T0 + n * MINUTE)
    assert len(history.terms) == MAX_TERMS
    assert history.terms[0].since == T0, "the oldest instances have terms all the same"
    assert history.at(T0 + 99 * MINUTE) == asked_part(fixed(3 * MAX_TERMS), group=GROUP)


def test_large_specs_are_kept_within_bounds() -> None:
    history = History()
    for n in range(6):
        samples = [f"{n}{k:03}s" for k in range(100)]
        history = revised(
            history, cloud(provisioningDelay={"samples": samples}), now=T0 + n * MINUTE
        )
    assert len(history.terms) > 1
    assert len(json.dumps([terms.dump().dump() for terms in history.terms])) <= MAX_BYTES


def test_the_seed_is_recorded_too() -> None:
    history = revised(History(), fixed(1), now=T0)
    assert history.at(T0).seed == GROUP


@pytest.mark.parametrize(
    "record",
    [
        {"since": "yesterday"},
        {"since": "0001-01-01T00:00:00+23:59"},
        {"since": "0001-01-01T00:00:00Z"},
        {"since": "9999-12-31T23:59:59-23:59"},
        {"since": "2026-01-01T00:00:00Z", "cloud": {"stock": -1}},
    ],
)
def test_what_we_did_not_write_is_left_out(record: dict[str, Any]) -> None:
    assert History.read([TermsRecord.model_validate(record)]) == History()


def test_of_more_terms_than_we_write_the_last_are_read() -> None:
    """A status of a megabyte has room for 30,000, which takes more than a second."""
    record = TermsRecord(since="2026-01-01T00:00:00Z")
    assert len(History.read([record] * 100).terms) == MAX_TERMS


EDITS = st.lists(st.tuples(st.integers(0, 600), st.none() | CLOUDS), min_size=1, max_size=5)


@given(EDITS, st.integers(0, 99))
@QUICK
def test_a_restart_changes_nothing(edits: list[tuple[int, Cloud | None]], serial: int) -> None:
    now, history = T0, History()
    for seconds, spec in edits:
        now += seconds * SECOND
        history = revised(history, spec, now=now)
        again = History.read([terms.dump() for terms in history.terms])
        assert again == history
        assert revised(again, spec, now=now + SECOND) == again, "nothing new is recorded"


@given(EDITS, CLOUDS, st.integers(0, 99), st.integers(0, 900))
@QUICK
def test_an_edit_never_changes_what_has_begun(
    edits: list[tuple[int, Cloud | None]], spec: Cloud, serial: int, seconds: int
) -> None:
    now, history = T0, History()
    for wait, edit in edits:
        now += wait * SECOND
        history = revised(history, edit, now=now)
    edited_at = now + (1 + seconds) * SECOND
    edited = revised(history, spec, now=edited_at)
    who = instance_seed(history.at(T0), group=GROUP, serial=serial)
    before = phases(history, who, requested_at=T0)
    for phase, now_ in zip(before, phases(edited, who, requested_at=T0), strict=False):
        if phase.since >= edited_at:
            break
        assert now_ == phase
