"""Whether the rules of comparisons keep what they promise, each beside the rule that it replaced.

    runs with known truth ──> the rule before, the rule now ──> share of comparisons

Part of `python -m hack.power`. Where A is compared with A, each difference that is reported is a
false alarm, and at most 1 of 100 comparisons may have one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from hack.simulated import compared, head, lognormal, noise, percent, reported, row
from kwok_operator.comparison.failing import FailCondition, FailWay, bound_of, judged
from kwok_operator.comparison.plan import ComparisonArm, ComparisonPlan
from kwok_operator.comparison.statistics import (
    EffectVerdict,
    against_bounds,
)
from kwok_operator.rehearsal.scenario.model import Scenario

FIGURE: Final = "pendingSeconds.p95"
_SCENARIO: Final = Scenario.model_validate(
    {"name": "simulated", "expect": [{"figure": FIGURE, "atMost": 60}]}
)
_ARMS: Final = tuple(ComparisonArm(name, "scenario.yaml", _SCENARIO, name) for name in "ab")
_VARIES: Final = 0.03
"""The CV of a run, where nothing else is given."""
_DISTURBED: Final = 1.1
_COLD: Final = 1.22
_LATE: Final = 0.95
"""How long runs take when repeats are played, beside before."""

Shares = tuple[float, float]
Order = list[tuple[str, str]]
"""Of each pair, the arms in the order in which they are played."""


def failed_runs(times: int, pairs: int, chance: float = 0.05, chance_b: float = 0.05) -> Shares:
    """A winner is named: of any arm that fails alone; where that is beyond chance."""
    random, before, now = Random(pairs), 0, 0
    for _ in range(times):
        a, b = ([float(random.random() < of) for _ in range(pairs)] for of in (chance, chance_b))
        before += any(a) is not any(b)
        now += bool(reported({FIGURE: a}, {FIGURE: b}))
    return before / times, now / times


def condition(times: int, change: float, pairs: int = 12, variation: float = 0.05) -> Shares:
    """`worse than 10%` holds: by the measured change; by its test against the bound."""
    random, before, now = Random(pairs), 0, 0
    worse = FailCondition(f"{FIGURE} worse than 10%", FIGURE, FailWay.WORSE, 0.1)
    for _ in range(times):
        a = {FIGURE: lognormal(noise(random, pairs), variation)}
        b = {FIGURE: lognormal(noise(random, pairs), variation, change)}
        (effect,) = compared(a, b, [FIGURE])
        before += effect.verdict is EffectVerdict.WORSE and (effect.change or 0) > worse.bound
        now += judged(worse, effect, against_bounds(a, b, {bound_of(worse)})).holds
    return before / times, now / times


def disturbance(times: int, pairs: int = 12) -> Shares:
    """Every fourth run takes longer: A B, B A, A B and so on; the order that is drawn."""

    def alarms(order: Callable[[int], Order]) -> float:
        random, found = Random(pairs), 0
        for seed in range(times):
            slow = partial(_every_fourth, random.randrange(4))
            found += _differ(random, order(seed), slow)
        return found / times

    return alarms(lambda _: _in_turn(pairs)), alarms(lambda seed: _drawn(pairs, seed))


def cold_run(times: int, pairs: int = 8, change: float = 1.1) -> Shares:
    """A tenth more is reported: A always first, and cold; a warm-up of each arm comes first."""

    def power(order: Callable[[int], Order], slower: float) -> float:
        def by(place: int, arm: str) -> float:
            return (change if arm == "b" else 1.0) * (1.0 if place else slower)

        random = Random(pairs)
        return sum(_differ(random, order(seed), by) for seed in range(times)) / times

    return power(lambda _: _in_turn(pairs), _COLD), power(lambda seed: _drawn(pairs, seed), 1.0)


def repeats(times: int, pairs: int = 12, chance: float = 0.5) -> Shares:
    """Runs of B are taken for busy, those of A aren't, and repeats meet another machine: the busy
    run is repeated; the whole pair is."""
    random, before, now = Random(pairs), 0, 0
    for _ in range(times):
        a, b = (lognormal(noise(random, pairs), _VARIES / 2) for _ in "ab")
        again = [random.random() < chance for _ in range(pairs)]
        alone = [each * _LATE if busy else each for each, busy in zip(b, again, strict=True)]
        whole = [each * _LATE if busy else each for each, busy in zip(a, again, strict=True)]
        before += bool(reported({FIGURE: a}, {FIGURE: alone}))
        now += bool(reported({FIGURE: whole}, {FIGURE: alone}))
    return before / times, now / times


def afterwards(times: int, pairs: int = 8, figures: int = 22) -> Shares:
    """The figure that moves most is compared alone, on the same runs; all are registered first."""
    random, before, now = Random(pairs), 0, 0
    for _ in range(times):
        a, b = (
            {str(n): lognormal(noise(random, pairs), _VARIES) for n in range(figures)} for _ in "ab"
        )
        before += any(reported({name: a[name]}, {name: b[name]}) for name in a)
        now += bool(reported(a, b))
    return before / times, now / times


def _every_fourth(phase: int, place: int, _: str) -> float:
    return _DISTURBED if place % 4 == phase else 1.0


def _in_turn(pairs: int) -> Order:
    return [("a", "b") if pair % 2 == 0 else ("b", "a") for pair in range(pairs)]


def _drawn(pairs: int, seed: int) -> Order:
    plan = ComparisonPlan("simulated", _ARMS, runs=pairs)
    plan = replace(plan, order_seed=str(seed))
    return [
        (first.arm.name, second.arm.name) for first, second in map(plan.round, range(1, pairs + 1))
    ]


def _differ(random: Random, order: Order, by: Callable[[int, str], float]) -> bool:
    """Whether a difference is reported; `by`: how much longer a run takes, by place and arm."""
    arms: dict[str, list[float]] = {"a": [], "b": []}
    for place, arm in enumerate(arm for pair in order for arm in pair):
        arms[arm] += lognormal(noise(random, 1), _VARIES, by(place, arm))
    return bool(reported({FIGURE: arms["a"]}, {FIGURE: arms["b"]}))


def table(times: int) -> Iterator[str]:
    rows: Sequence[tuple[str, Callable[[int], Shares]]] = (
        ("A with A, 5 % of runs fail, 8 pairs: a winner", lambda n: failed_runs(n, 8)),
        ("the same, 16 pairs", lambda n: failed_runs(n, 16)),
        ("half of B's runs fail, none of A's, 8 pairs: a winner",
         lambda n: failed_runs(n, 8, 0.0, 0.5)),
        ("all of B's runs fail, none of A's, 8 pairs: a winner",
         lambda n: failed_runs(n, 8, 0.0, 1.0)),
        ("`worse than 10%` at +8 %, CV 5 %, 12 pairs", lambda n: condition(n, 1.08)),
        ("the same at +9.5 %", lambda n: condition(n, 1.095)),
        ("the same at +15 %", lambda n: condition(n, 1.15)),
        ("the same at +20 %", lambda n: condition(n, 1.2)),
        ("A with A, every fourth run 10 % slower, 12 pairs", disturbance),
        ("+10 % at a CV of 3 %, the first run 22 % slower, 8 pairs", cold_run),
        ("A with A, busy runs of B repeated, 12 pairs", repeats),
        ("A with A, the figure chosen of 22 afterwards, 8 pairs",
         lambda n: afterwards(max(n // 5, 1))),
    )  # fmt: skip
    yield head("% of comparisons", "before", "now")
    for name, rule in rows:
        yield row(name, [percent(share, digits=1) for share in rule(times)])
