"""Whether two arms differ: what is reported, and how often it is wrong."""

from collections.abc import Sequence
from random import Random
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.sureness import Independent, Recorded, compared, coverage, false_alarms, power, recorded
from kwok_operator.comparison.permutation import Bound
from kwok_operator.comparison.statistics import (
    DIFFERENCES,
    Effect,
    EffectVerdict,
    against_bounds,
    compare_figures,
)
from kwok_operator.comparison.studentt import quantile, two_sided_p

STEADY = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.1, 9.9, 10.0, 10.1, 9.9, 10.0]
OTHERS = {EffectVerdict.BETTER: EffectVerdict.WORSE, EffectVerdict.WORSE: EffectVerdict.BETTER}
VALUES = st.none() | st.floats() | st.integers() | st.sampled_from([0, 1, 1e-300, 1e300, 10**400])
ARMS = st.lists(st.tuples(VALUES, VALUES), max_size=14)


def compare(
    a: Sequence[float | None], b: Sequence[float | None], *, lower_is_better: bool | None = True
) -> Effect:
    (found,) = compare_figures({"f": a}, {"f": b}, lower_is_better={"f": lower_is_better})
    return found


def slower(by: float, *, pairs: int = 12) -> list[float]:
    return [by * value for value in STEADY[1:pairs] + STEADY[:1]]


@pytest.mark.parametrize(
    ("two_sided", "freedom", "t"),
    [
        (0.05, 1, 12.7062),
        (0.05, 7, 2.36462),
        (0.01, 7, 3.49948),
        (0.001, 11, 4.43698),
        (0.0001, 3, 28.0001),
        (0.05, 120, 1.97993),
    ],
)
def test_students_t_is_as_in_the_tables(two_sided: float, freedom: int, t: float) -> None:
    assert quantile(two_sided, freedom) == pytest.approx(t, rel=1e-5)
    assert two_sided_p(-t, freedom) == pytest.approx(two_sided, rel=1e-4)


@given(ARMS, ARMS)
def test_any_values_have_an_answer_and_the_arms_are_alike(
    pairs: list[tuple[float | None, float | None]],
    others: list[tuple[float | None, float | None]],
) -> None:
    arms = [{"f": [pair[n] for pair in pairs], "g": [pair[n] for pair in others]} for n in (0, 1)]
    better = {"f": True, "g": True}
    there, _ = compare_figures(*arms, lower_is_better=better)
    back, _ = compare_figures(*arms[::-1], lower_is_better=better)
    assert back.verdict is OTHERS.get(there.verdict, there.verdict)
    if there.verdict is EffectVerdict.NOT_COMPARABLE:
        assert there.reason and there.change is there.low is None
        return
    middle = there.difference if there.change is None else there.change
    assert middle is not None and there.low is not None and there.high is not None
    assert there.low <= middle <= there.high
    if there.verdict in DIFFERENCES:
        assert not there.low <= 0 <= there.high
        assert there.smallest is not None


def test_a_verdict_says_what_to_keep_in_mind() -> None:
    assert compare(STEADY, slower(1.3)).reason == ""
    assert "probably smaller" in compare(STEADY, slower(1.025)).reason
    one = compare(STEADY, slower(1.015))
    assert one.low is not None and one.low > 0 and one.verdict is EffectVerdict.NONE_SEEN
    assert "1 of 20 intervals" in one.reason
    many = compare_figures(
        {"f": STEADY, "g": STEADY}, {"f": slower(1.015), "g": STEADY[3:] + STEADY[:3]},
        lower_is_better={},
    )  # fmt: skip
    assert "of 2 figures compared" in many[0].reason


def test_what_could_be_seen_is_said_of_both_directions() -> None:
    found = compare(STEADY, slower(1.0))
    assert found.smallest and found.smallest_less
    assert (1 + found.smallest) * (1 + found.smallest_less) == pytest.approx(1)
    counts = compare([0.0, 9, 1, 3, 2, 6, 4, 3], [3.0, 2, 0, 1, 9, 3, 4, 2])
    assert counts.smallest and counts.smallest > 1 and counts.smallest_less is None


@pytest.mark.parametrize("scale", [1e-9, 3600, 1e50])
@pytest.mark.parametrize("by", [1.0, 1.02, 0.9])
def test_the_unit_of_a_figure_says_nothing(scale: float, by: float) -> None:
    one = compare(STEADY, slower(by))
    other = compare([scale * value for value in STEADY], [scale * v for v in slower(by)])
    assert other.verdict is one.verdict
    assert (other.low, other.high, other.smallest) == pytest.approx(
        (one.low, one.high, one.smallest)
    )


@pytest.mark.parametrize(
    ("lower_is_better", "verdict"),
    [(True, EffectVerdict.WORSE), (False, EffectVerdict.BETTER), (None, EffectVerdict.DIFFERS)],
)
def test_which_direction_is_better_is_for_the_figure(
    lower_is_better: bool | None, verdict: EffectVerdict
) -> None:
    found = compare(STEADY, slower(1.1), lower_is_better=lower_is_better)
    assert found.verdict is verdict
    assert found.change == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("moves", "verdict"),
    [
        ((30, 2, 22, 4, 25, 3, 30, 9), EffectVerdict.WORSE),
        ((8, 8, 8, 8, 8, 8, 8, -0.1), EffectVerdict.NONE_SEEN),  # 2 of 128 ways
        ((1, 1, 1, 1, 1, 1, 1, 200), EffectVerdict.NONE_SEEN),  # its interval has 0 in it
    ],
)
def test_chance_and_the_interval_have_to_say_so(
    moves: tuple[float, ...], verdict: EffectVerdict
) -> None:
    a = [10.0 * 2**number for number in range(8)]
    found = compare(a, [value * (1 + move / 100) for value, move in zip(a, moves, strict=True)])
    assert found.verdict is verdict


@pytest.mark.parametrize(("rivals", "told"), [(1, True), (2, False)])
def test_rivals_share_the_alarms(rivals: int, told: bool) -> None:
    """Where one of nine pairs hardly moves, 2 of 256 ways reach as far; where two do, 4 of 512 in
    one direction."""
    a = [10.0 * 2**number for number in range(9)]
    one, two = ([v * (1.08 if n >= few else 0.999) for n, v in enumerate(a)] for few in (1, 2))
    bound = Bound("f", more=True, by=0.0, relative=True)
    (found,) = compare_figures({"f": a}, {"f": one}, lower_is_better={}, rivals=rivals)
    beside = against_bounds({"f": a}, {"f": two}, [bound], rivals=rivals)
    assert (found.verdict in DIFFERENCES, beside[bound].beyond) == (told, told)


def test_equal_arms_are_equal() -> None:
    found = compare([7.0] * 8, [7.0] * 8)
    assert (found.verdict, found.change, found.low, found.high) == (
        EffectVerdict.NONE_SEEN,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("a", "change", "low"),
    [
        ([0.0] * 8, None, 4),
        ([0.0, 1, 0, 2, 0, 1, 0, 0], None, 4),  # its mean may as well be 0
        ([0.0, 2, 3, 2, 2, 3, 2, 2], 2.75, 1),
    ],
)
def test_where_values_are_zero_the_differences_count(
    a: list[float], change: float | None, low: float
) -> None:
    found = compare(a, [value + 5 + number % 2 for number, value in enumerate(a)])
    assert (found.verdict, found.change) == (EffectVerdict.WORSE, change)
    assert found.low is not None and found.low >= low


def test_the_interval_of_a_ratio_holds_where_there_are_zeros() -> None:
    """B is twice A, so most of what parts two runs is in B."""
    random = Random(1)
    held: list[bool] = []
    while len(held) < 600:
        a, b = (
            [float(sum(random.random() < share for _ in range(12))) for _ in range(12)]
            for share in (0.125, 0.25)
        )
        if 0 in (*a, *b):
            found = compare(a, b)
            assert found.low is not None and found.high is not None
            held.append(found.low <= (1.5 if found.change is None else 1.0) <= found.high)
    assert fmean(held) > 0.92


@pytest.mark.parametrize("pairs", [2, 5, 7])
def test_few_runs_can_show_nothing_and_say_so(pairs: int) -> None:
    found = compare(STEADY[:pairs], slower(9, pairs=pairs))
    assert (found.verdict, found.smallest) == (EffectVerdict.UNDECIDED, None)
    assert found.reason.startswith(f"{8 - pairs} more pair")


@pytest.mark.parametrize(("counts", "pairs"), [(0, 8), (1, 9), (2, 10), (3, 10), (4, 11)])
def test_what_other_figures_hide_takes_as_many_more_pairs_as_it_says(
    counts: int, pairs: int
) -> None:
    """A wait doubles, while counts are one more in one run of each pair, now of A and now of B."""
    random = Random(counts)
    a = {"f": [10 + random.random() for _ in range(11)], "same": [7.0] * 11}
    b = {"f": [20 + random.random() for _ in range(11)], "same": [7.0] * 11}
    for number in map(str, range(counts)):
        a[number] = [random.choice((10.0, 11.0)) for _ in range(11)]
        b[number] = [21 - value for value in a[number]]

    def verdicts(pairs: int) -> list[Effect]:
        arms = ({name: values[:pairs] for name, values in arm.items()} for arm in (a, b))
        return compare_figures(*arms, lower_is_better={"f": True}, decided={*a} - {"f"})

    wait, same, *_ = verdicts(8)
    if counts:
        assert {wait.verdict, same.verdict} == {EffectVerdict.UNDECIDED}
        assert wait.smallest is None
        assert wait.reason.startswith(f"{pairs - 8} more pair"), wait.reason
    wait, *others = verdicts(pairs)
    assert wait.verdict is EffectVerdict.WORSE
    assert {each.verdict for each in others} == {EffectVerdict.NONE_SEEN}


def test_noise_that_hides_any_change_is_no_answer() -> None:
    a = [1.0, 1e3, 1e6, 1e2, 1e4, 1.0, 1e5, 10.0]
    found = compare(a, a[3:] + a[:3])
    assert (found.verdict, found.smallest) == (EffectVerdict.UNDECIDED, None)
    assert "more pairs are needed, as changes below a hundredfold" in found.reason


@pytest.mark.parametrize(
    ("a", "b"), [([1.0], [2.0]), ([1.0, None, 3.0], [1.0, 2.0, None]), ([1.0, 2.0], [])]
)
def test_one_pair_is_not_compared(a: list[float | None], b: list[float | None]) -> None:
    assert compare(a, b).verdict is EffectVerdict.NOT_COMPARABLE


def test_a_figure_of_one_arm_is_not_compared() -> None:
    found = compare_figures({"a": STEADY}, {"b": STEADY}, lower_is_better={})
    assert [(each.figure, each.verdict) for each in found] == [
        ("a", EffectVerdict.NOT_COMPARABLE),
        ("b", EffectVerdict.NOT_COMPARABLE),
    ]


def test_figures_that_can_raise_no_alarm_of_their_own_cost_nothing() -> None:
    alone = compare(STEADY, slower(1.02))
    constant = {str(number): [7.0] * 12 for number in range(50)}
    found = compare_figures(
        {"f": STEADY, "same": STEADY} | constant,
        {"f": slower(1.02), "same": slower(1.02)} | constant,
        lower_is_better={"f": True},
    )
    assert found[0] == alone


@pytest.mark.parametrize(
    ("distribution", "pairs"),
    [("lognormal, sigma 50 %", 8), ("uniform, 5 to 15", 12), ("-1, 0 or 1", 3), ("1 or 2", 4)],
)
def test_a_against_a_raises_no_alarm(distribution: str, pairs: int) -> None:
    # Of 400 at 1 in 100 more than 11 come by chance less than 1 time in 1000.
    assert false_alarms(Independent(distribution, 10), pairs=pairs, times=400) <= 11 / 400


@pytest.mark.parametrize("scenario", recorded())
def test_recorded_runs_raise_no_alarm(scenario: str) -> None:
    assert false_alarms(Recorded(scenario), pairs=12, times=200) <= 7 / 200


@pytest.mark.parametrize(
    ("scenario", "figure"),
    [
        ("boots", "pendingSeconds.p50"),
        ("boots", "pendingSeconds.p95"),
        ("boots", "startSeconds.p95"),
        ("quiet jobs", "cost"),
    ],
)
def test_a_tenth_more_is_found_in_twelve_recorded_runs(scenario: str, figure: str) -> None:
    assert power(Recorded(scenario), figure, pairs=12, times=60) >= 0.95


def test_a_tenth_more_is_found_among_many_figures_where_it_fails_a_job() -> None:
    """Of 22 figures, most of which move as others do. It is 71 of 100 where each counts by itself,
    and no figure more than another."""
    asked = "pendingSeconds.p95"
    assert power(Recorded("quiet jobs"), asked, pairs=12, times=100, first=[asked]) >= 0.85


def test_a_large_difference_hides_no_other() -> None:
    """All pairs of `g` move by as much: no way of turning them round reaches farther."""
    a = {"f": STEADY[:8], "g": [5.0] * 8}
    found = compare_figures(a, {"f": slower(1.3, pairs=8), "g": [10.0] * 8}, lower_is_better={})
    assert [each.verdict for each in found] == [EffectVerdict.DIFFERS] * 2
    assert all(each.smallest is not None for each in found)


def test_figures_that_lack_pairs_raise_no_alarms_beyond_those_of_all() -> None:
    """16 of 8 pairs, and one of 9."""
    random, told, times = Random(3), 0, 1_500
    names = list(map(str, range(17)))
    for _ in range(times):
        arms = [{name: [random.gauss(10, 1) for _ in range(9)] for name in names} for _ in "ab"]
        lacking = {name: [None, *values[1:]] for name, values in arms[0].items() if name != "0"}
        found = compare_figures({**arms[0], **lacking}, arms[1], lower_is_better={})
        told += any(effect.verdict in DIFFERENCES for effect in found)
    assert told / times <= 0.015


@pytest.mark.parametrize(
    "distribution", ["exponential", "one run in ten takes three times as long"]
)
def test_intervals_hold(distribution: str) -> None:
    assert 0.92 <= coverage(Independent(distribution, 1), "0", pairs=8, times=500)


@pytest.mark.parametrize("pairs", [8, 12])
def test_what_could_be_seen_is_seen(pairs: int) -> None:
    source, random = Independent("lognormal, sigma 3 %", 2), Random(1)
    smallest = median(compared(source, random, pairs, {})["0"].smallest or 0 for _ in range(50))
    found = fmean(
        compared(source, random, pairs, {"0": 1 + smallest})["0"].verdict in DIFFERENCES
        for _ in range(100)
    )
    assert found >= 0.88
