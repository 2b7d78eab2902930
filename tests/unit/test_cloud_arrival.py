"""From the request to the Node."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.cloud import draws
from kwok_operator.cloud.api.cloud import Cloud, ErrorClass
from kwok_operator.cloud.arrival import MAX_TRIES, phases, walk
from kwok_operator.cloud.draws import InstanceSeed, instance_seed
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.cloud.terms import History, Terms
from tests.unit.clouds import CLOUDS, GROUP, QUICK, cloud

T0 = 1_800_000_000_000
MINUTE = 60_000
ALWAYS = {"probability": "1"}


def waiting_phase(
    history: History, who: InstanceSeed, *, requested_at: int, now: int, after: Phase | None = None
) -> Phase:
    """The phase that an instance without a Node is in; before its request, the first."""
    *_, phase = walk(history, who, requested_at=requested_at, now=now, after=after)
    return phase


def phase_of(spec: Cloud, serial: int = 0, *, now: int = T0) -> Phase:
    who = instance_seed(spec, group=GROUP, serial=serial)
    return waiting_phase(History.always(spec), who, requested_at=T0, now=now)


def course_of(spec: Cloud, serial: int = 0, *, most: int = 50) -> list[Phase]:
    who = instance_seed(spec, group=GROUP, serial=serial)
    walk = phases(History.always(spec), who, requested_at=T0)
    return [phase for _, phase in zip(range(most), walk, strict=False)]


def test_a_perfect_cloud_gives_the_node_at_once() -> None:
    assert course_of(cloud()) == [Phase(State.DUE, T0, None, "Provisioned")]


def test_a_node_comes_when_its_delay_is_over() -> None:
    first, last = course_of(cloud(provisioningDelay={"fixed": "30s"}))
    assert (first.state, first.since, first.until) == (State.CREATING, T0, T0 + 30_000)
    assert (last.state, last.since, last.until) == (State.DUE, T0 + 30_000, None)


def test_a_failed_try_tells_its_error_and_is_made_again() -> None:
    failure = {"serials": "0", "times": 1, "after": {"fixed": "20s"}, "class": "QuotaExceeded"}
    spec = cloud(failures={"creation": [failure]}, provisioningDelay={"fixed": "30s"})
    creating, failed, again, due = course_of(spec)
    assert (creating.state, creating.until) == (State.CREATING, T0 + 20_000)
    assert failed.state is State.FAILED
    assert failed.fault is not None and failed.fault.error_class is ErrorClass.QUOTA_EXCEEDED
    assert failed.until == T0 + 20_000 + 5 * MINUTE, "five minutes unless something else is said"
    assert (again.state, again.since, again.tries) == (State.CREATING, failed.until, 1)
    assert due.since == failed.until + 30_000


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        ({}, (ErrorClass.OUT_OF_RESOURCES, "OutOfResources", None)),
        ({"class": "Other"}, (ErrorClass.OTHER, "Other", None)),
        ({"code": "NoCapacity", "message": "m"}, (ErrorClass.OUT_OF_RESOURCES, "NoCapacity", "m")),
    ],
    ids=str,
)
def test_an_error_has_a_code_and_a_message(
    error: dict[str, str], fault: tuple[ErrorClass, str, str | None]
) -> None:
    found = phase_of(cloud(failures={"creation": [{**ALWAYS, **error}]})).fault
    default = "the simulated cloud did not create the instance"
    assert found == Fault(fault[0], fault[1], fault[2] or default)


def test_never_is_never() -> None:
    spec = cloud(failures={"creation": [ALWAYS]}, retryAfter="Never")
    (failed,) = course_of(spec)
    assert (failed.state, failed.until) == (State.FAILED, None)


def test_what_always_fails_is_given_up_at_last() -> None:
    spec = cloud(failures={"creation": [ALWAYS]}, retryAfter="0s")
    last = course_of(spec, most=MAX_TRIES + 1)[-1]
    assert (last.state, last.until, last.tries) == (State.FAILED, None, MAX_TRIES)


def test_named_serials_fail_for_certain_and_others_don_t() -> None:
    spec = cloud(failures={"creation": [{"serials": "3,10-12,9-8"}]}, retryAfter="Never")
    failed = [s for s in range(20) if phase_of(spec, s).state is State.FAILED]
    assert failed == [3, 10, 11, 12]


def test_who_is_named_meets_what_he_is_named_for() -> None:
    rules = [{**ALWAYS, "code": "any"}, {"serials": "5", "code": "named"}]
    spec = cloud(failures={"creation": rules})
    codes = [fault.code for s in (4, 5) if (fault := phase_of(spec, s).fault)]
    assert codes == ["any", "named"]


def test_shares_add_up() -> None:
    rules = [{"probability": "0.2", "code": "a"}, {"probability": "0.5", "code": "b"}]
    spec = cloud(failures={"creation": rules}, retryAfter="Never")
    found = Counter(p.fault.code if (p := phase_of(spec, s)).fault else "" for s in range(3_000))
    assert found["a"] / 3_000 == pytest.approx(0.2, abs=0.05)
    assert found["b"] / 3_000 == pytest.approx(0.5, abs=0.05)
    assert found[""] / 3_000 == pytest.approx(0.3, abs=0.05)


def test_every_try_draws_anew() -> None:
    spec = cloud(failures={"creation": [{"probability": "0.5"}]}, retryAfter="10s")
    tries = [course_of(spec, serial)[-1].tries for serial in range(1_000)]
    assert sum(tries) / 1_000 == pytest.approx(1, abs=0.3), "half fail once more each time"


def test_what_never_registers_runs_and_has_no_node() -> None:
    spec = cloud(failures={"neverRegisters": ALWAYS}, provisioningDelay={"fixed": "9s"})
    creating, zombie = course_of(spec)
    assert creating.until == zombie.since == T0 + 9_000
    assert (zombie.state, zombie.until) == (State.UNREGISTERED, None)


@given(CLOUDS, st.integers(0, 100))
@QUICK
def test_phases_follow_each_other_without_a_gap(spec: Cloud, serial: int) -> None:
    course = course_of(spec, serial)
    assert course[0].since == T0
    for phase, following in pairwise(course):
        assert phase.until == following.since > phase.since
    assert (course[-1].until is None) or len(course) == 50
    for phase in course:
        who = instance_seed(spec, group=GROUP, serial=serial)
        history = History.always(spec)
        assert waiting_phase(history, who, requested_at=T0, now=phase.since) == phase
        last = phase.since + 10**9 if phase.until is None else phase.until - 1
        assert waiting_phase(history, who, requested_at=T0, now=last) == phase


@given(CLOUDS, st.integers(0, 100), st.lists(st.integers(0, 7_200_000), min_size=2, max_size=6))
@QUICK
def test_a_walk_can_go_on_where_it_was(spec: Cloud, serial: int, times: list[int]) -> None:
    who, history = instance_seed(spec, group=GROUP, serial=serial), History.always(spec)
    before: Phase | None = None
    for now in sorted(T0 + time for time in times):
        found = waiting_phase(history, who, requested_at=T0, now=now)
        if before is not None and before.until is not None and before.until <= now:
            assert waiting_phase(history, who, requested_at=T0, now=now, after=before) == found
        before = found


@pytest.mark.parametrize("probability", ["1", "0.9999"])
@pytest.mark.parametrize("edited", [False, True])
def test_days_of_failures_are_not_walked_phase_by_phase(probability: str, edited: bool) -> None:
    asked = []

    class Counting(History):
        def at(self, time: int) -> Cloud:
            asked.append(time)
            return super().at(time)

    specs = [
        cloud(failures={"creation": [{"probability": probability, "code": code}]}, retryAfter="10s")
        for code in ("old", "new")
    ]
    edits = [Terms(T0, specs[0]), Terms(T0 + 500 * 10_000 + 1, specs[1])]
    history = Counting(tuple(edits[: 1 + edited]))
    who = instance_seed(specs[0], group=GROUP, serial=0)
    late = T0 + 1_500 * 10_000
    known = waiting_phase(history, who, requested_at=T0, now=late)
    assert known.tries > 1_000
    assert len(asked) < 10
    asked.clear()
    waiting_phase(history, who, requested_at=T0, now=late + 10_000, after=known)
    assert len(asked) < 5


def test_a_delay_is_looked_up_once_for_many_tries() -> None:
    """A look costs more than a draw."""
    failure = {"probability": "0.9999", "after": {"uniform": {"min": "1s", "max": "3s"}}}
    looks: Any = vars(draws)["_inverse"].cache_info
    before = looks().hits
    found = phase_of(cloud(failures={"creation": [failure]}, retryAfter="1s"), now=T0 + 3_600_000)
    assert found.tries > 1_000
    assert looks().hits - before < 20


AFTER = st.sampled_from([{"fixed": "7s"}, {"uniform": {"min": "1s", "max": "9s"}}])
BOUNDS = {"times": st.integers(1, 30), "after": AFTER}
RULES = st.one_of(
    st.fixed_dictionaries({"serials": st.sampled_from(["0", "0-2"])}, optional=BOUNDS),
    st.fixed_dictionaries(
        {"probability": st.sampled_from(["0.3", "0.5", "0.97", "1"])}, optional=BOUNDS
    ),
)


@given(
    st.lists(st.lists(RULES, min_size=1, max_size=2), min_size=3, max_size=3),
    st.integers(0, 2),
    st.integers(0, 300_000),
)
@settings(deadline=None, max_examples=200)
def test_tries_that_are_counted_are_those_that_would_be_walked_through(
    rules: list[list[dict[str, object]]], serial: int, since: int
) -> None:
    clouds = [cloud(failures={"creation": each}, retryAfter="3s") for each in rules]
    history = History(tuple(Terms(T0 + 40_000 * (n - 1), each) for n, each in enumerate(clouds)))
    who, now = instance_seed(clouds[0], group=GROUP, serial=serial), T0 + since
    walk = phases(history, who, requested_at=T0)
    expected = next(phase for phase in walk if phase.until is None or now < phase.until)
    assert waiting_phase(history, who, requested_at=T0, now=now) == expected
