"""The whole course of an instance."""

from hypothesis import given
from hypothesis import strategies as st

from hack.cloudpictures.course import Course
from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.arrival import phases
from kwok_operator.cloud.draws import instance_seed
from kwok_operator.cloud.states import State
from kwok_operator.cloud.terms import History
from tests.unit.clouds import CLOUDS, GROUP, QUICK, cloud

T0 = 1_800_000_000_000
ROUGH = cloud(
    provisioningDelay={"lognormal": {"p50": "40s", "p99": "3m"}},
    readinessDelay={"uniform": {"min": "5s", "max": "30s"}},
    failures={"creation": [{"probability": "0.3"}], "neverReady": {"probability": "0.05"}},
    interruptions={"hourlyRate": "0.5"},
    flapping={"period": "10m", "nodes": "0.2"},
)


def course(
    spec: Cloud, serial: int, *, at: int = T0, group: str = GROUP, seed: str | None = None
) -> Course:
    spec = spec if seed is None else spec.model_copy(update={"seed": seed})
    return Course.of(spec, group=group, serial=serial, requested_at=at)


def story(of: Course, *, most: int = 30) -> list[tuple[State, str, int]]:
    """State, reason and when it began, counted from the request, as seen by who looks again when
    he is told to.
    """
    found: list[tuple[State, str, int]] = []
    now: int | None = of.requested_at
    while now is not None and len(found) < most:
        moment = of.at(now)
        entry = moment.state, moment.reason, moment.since - of.requested_at
        if entry not in found:
            found.append(entry)
        now = of.next_change(now)
    return found


@given(CLOUDS, st.integers(0, 10**6), st.integers(0, 10**12))
@QUICK
def test_the_same_seed_gives_the_same_course_at_any_time(spec: Cloud, serial: int, at: int) -> None:
    assert story(course(spec, serial, at=at)) == story(course(spec, serial))


def test_another_seed_or_group_gives_another_course() -> None:
    def run(group: str, seed: str | None) -> list[list[tuple[State, str, int]]]:
        return [story(course(ROUGH, n, group=group, seed=seed)) for n in range(20)]

    first = run("a", "one")
    assert run("a", "one") == first
    assert run("a", "two") != first
    assert run("b", "one") != first
    assert run("a", None) == run("a", "a"), "the seed is the group's name unless there is one"


@given(CLOUDS, st.integers(0, 99), st.integers(0, 3_600_000))
@QUICK
def test_nothing_changes_before_the_next_change(spec: Cloud, serial: int, moment: int) -> None:
    of = course(spec, serial)
    now = of.at(T0 + moment)
    change = of.next_change(T0 + moment)
    assert change == now.until
    if change is None:
        assert of.at(T0 + moment + 10**12) == now
    else:
        assert change > T0 + moment
        assert of.at(change - 1) == now
        assert of.at(change) != now


@given(CLOUDS, st.integers(0, 99))
@QUICK
def test_the_life_is_that_of_the_node(spec: Cloud, serial: int) -> None:
    of = course(spec, serial)
    walk = phases(History.always(spec), of.who, requested_at=T0)
    # A spec that fails for certain is walked to the end of its tries: that is shown elsewhere.
    last = [phase for _, phase in zip(range(50), walk, strict=False)][-1]
    if last.state is State.DUE:
        life = of.life()
        assert life is not None and life.born == last.since
        assert of.at(last.since + 7) == life.desired(last.since + 7)
    assert of.who == instance_seed(spec, group=GROUP, serial=serial)


def test_what_never_comes_has_no_life() -> None:
    assert course(cloud(failures={"neverRegisters": {"serials": "0"}}), 0).life() is None


def test_the_spec_alone_tells_a_story() -> None:
    spec = cloud(
        provisioningDelay={"fixed": "30s"},
        readinessDelay={"fixed": "20s"},
        failures={"creation": [{"serials": "0", "times": 1}]},
        retryAfter="1m",
        interruptions={"maxLifetime": "1h"},
    )
    assert [(state.value, since // 1_000) for state, _, since in story(course(spec, 0))] == [
        ("Failed", 0),
        ("Creating", 60),
        ("Starting", 90),
        ("Ready", 110),
        ("Interrupted", 3_570),
        ("Gone", 3_690),
    ]
