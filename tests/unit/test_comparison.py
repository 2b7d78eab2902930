"""What comes of the runs of a comparison."""

import json
import math
import re
from dataclasses import replace
from functools import partial
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

import pytest

from kwok_operator.comparison.failing import fail_condition
from kwok_operator.comparison.fairness import planned_arrivals, recorded_facts
from kwok_operator.comparison.inmarkdown import in_lines, in_markdown
from kwok_operator.comparison.outcome import Comparison, PlayedRun, compared, comparison_json
from kwok_operator.comparison.page import page
from kwok_operator.comparison.plan import ComparisonPlan, checked
from kwok_operator.comparison.statistics import DIFFERENCES, EffectVerdict
from kwok_operator.errors import SettingsError
from kwok_operator.rehearsal.judge.figures import FIGURES
from kwok_operator.rehearsal.judge.recording import MarkLine, RecordedLine
from tests.fakes.compared import PENDING, arm, plan, played
from tests.fakes.rehearsed import content, node, reader
from tests.fakes.scenarios import GROUP, scenario
from tests.reportpages import HOSTILE, Seen

RUNS = 8
NINE = (
    "pendingSeconds.p50",
    "pendingSeconds.p95",
    "pendingSeconds.mean",
    "pendingSeconds.max",
    "startSeconds.p95",
    "nodes.max",
    "nodeHours",
    "cost",
    "churn.created",
    "evictions",
)


def compare(
    made: ComparisonPlan, *, slower: float = 1.0, evictions: int = 0, **of_b: Any
) -> Comparison:
    """Runs with some noise; B's pods wait longer."""
    runs = []
    for pair in range(1, made.runs + 1):
        noise = 1 + 0.01 * ((pair * 7) % 5 - 2)
        usual: dict[str, float | None] = {"nodes.max": 10.0, "cost": None, "evictions": 0.0}
        runs.append(played(pair, "a", {**usual, PENDING: 10 * noise}))
        other = {
            **usual,
            PENDING: 10 * noise * slower * (1 + (-1) ** pair / 300),
            "evictions": evictions,
        }
        runs.append(played(pair, "b", other, **of_b))
    return compared(made, runs)


@pytest.mark.parametrize(
    ("condition", "slower", "evictions", "answer"),
    [
        (f"{PENDING} worse than 10%", 1.3, 0, "holds"),
        (f"{PENDING}  worse than 10 %", 1.3, 0, "holds"),
        (f"{PENDING} worse than 40%", 1.3, 0, "does not hold"),
        (f"{PENDING} worse", 1.3, 0, "holds"),
        (f"{PENDING} worse than 2s", 1.3, 0, "holds"),
        (f"{PENDING} worse than 4", 1.3, 0, "does not hold"),
        (f"{PENDING} worse", 0.7, 0, "does not hold"),
        (f"{PENDING} less than 10%", 0.7, 0, "holds"),
        (f"{PENDING} less than 31%", 0.7, 0, "does not hold"),
        (f"{PENDING} more than 10%", 0.7, 0, "does not hold"),
        (f"{PENDING} worse", 1.0, 0, "does not hold"),
        # It is measured as a bit more: chance may have done that.
        (f"{PENDING} worse than 29.9%", 1.3, 0, "too noisy to tell"),
        (f"{PENDING} worse than 30.1%", 1.3, 0, "too noisy to tell"),
        ("evictions worse than 50%", 1.0, 3, "holds"),
        ("evictions worse than 5", 1.0, 3, "does not hold"),
        ("cost worse than 10%", 1.0, 0, "undecided"),  # nothing has a price: nobody knows
    ],
)
def test_what_fails_a_job(condition: str, slower: float, evictions: int, answer: str) -> None:
    found = compare(plan(runs=RUNS, fail_if=[condition]), slower=slower, evictions=evictions)
    (outcome,) = found.fail_if
    assert outcome.answer.value == answer, outcome.reason
    assert found.fails is (answer == "holds")
    assert found.undecided is (answer in ("too noisy to tell", "undecided"))


def lognormal(
    made: ComparisonPlan, random: Random, *, b: float = 1.0, fails: float = 0.0, cv: float = 0.05
) -> Comparison:
    """Of all figures B has `b` times as much; runs fail by chance."""
    runs = []
    for pair, (name, times) in product(range(1, made.runs + 1), (("a", 1.0), ("b", b))):
        values = {f: 10 * times * math.exp(random.gauss(0, cv)) for f in made.compared}
        failures = ("pods.running: none",) if random.random() < fails else ()
        runs.append(played(pair, name, {**values}, failures=failures))
    return compared(made, runs)


@pytest.mark.parametrize(
    ("true", "fails", "most"), [(1.08, 0.0, 0.02), (1.1, 0.0, 0.03), (1.25, 0.95, 1.0)]
)
def test_noise_takes_no_bound(true: float, fails: float, most: float) -> None:
    """It was 15 and 40 of 100 where the measured change was held against the bound."""
    made = plan(runs=12, figures=(PENDING,), fail_if=[f"{PENDING} worse than 10%"])
    random = Random(1)
    held = fmean(lognormal(made, random, b=true).fails for _ in range(300))
    assert fails <= held <= most


def test_many_conditions_share_the_false_alarms() -> None:
    """All changes are as large as their bounds."""
    made = plan(runs=8, figures=NINE, fail_if=[f"{name} more than 10%" for name in NINE])
    random = Random(1)
    assert fmean(lognormal(made, random, b=1.1).fails for _ in range(200)) <= 0.03


def test_a_bound_in_seconds_is_held_against_the_direction_too() -> None:
    """Eleven pairs are worse by a half, and one so large is better that the mean of all is."""
    made = plan(runs=12, figures=(PENDING,), fail_if=[f"{PENDING} worse than 5s"])
    runs = []
    for pair, (a, b) in enumerate([*[(1.0, 1.5)] * 11, (1_000.0, 800.0)], 1):
        runs += [played(pair, "a", {PENDING: a}), played(pair, "b", {PENDING: b})]
    found = compared(made, runs)
    assert found.effects[0].verdict is EffectVerdict.WORSE
    assert not found.fails, found.fail_if[0].reason


@pytest.mark.parametrize(
    ("of_a", "of_b", "said"),
    [
        ([10.0] * 8, [None] * 6 + [100.0, 110.0], "6 of 8 pairs"),
        ([10.0] * 20, [None] * 8 + [10.0] * 12, "8 of 20 pairs"),
        ([10.0] * 8, [19.0, 18.0, 17.0, 16.0, 18.0, 19.0, 17.0, 9.0], "too noisy"),
        ([10.0] * 8, [10.0] * 8, ""),
        ([10.0] * 7, [10.0] * 7, "1 more pair is needed"),
        ([10.0] * 20, [None] * 8 + [5.0] * 12, "8 of 20 pairs"),  # those that have it are better
    ],
)
def test_what_can_t_be_decided_is_no_success(
    of_a: list[float | None], of_b: list[float | None], said: str
) -> None:
    made = plan(runs=len(of_a), figures=(PENDING,), fail_if=[f"{PENDING} worse than 5s"])
    runs = [played(1 + n, "a", {PENDING: value}) for n, value in enumerate(of_a)]
    half = compared(made, [*runs, played(1, "b", {PENDING: 10.0}), played(2, "b", {PENDING: 9.0})])
    assert half.effects[0].lacking == 0
    runs += [played(1 + n, "b", {PENDING: value}) for n, value in enumerate(of_b)]
    found = compared(made, runs)
    (outcome,) = found.fail_if
    assert (found.fails, found.undecided) == (False, bool(said))
    assert said in f"{outcome.answer.value}: {outcome.reason}"


def test_seven_runs_that_lie_apart_are_undecided() -> None:
    """No green over dots that don't overlap; before it starts, at the end, and on the page."""
    made = plan(runs=7, figures=NINE)
    found = lognormal(made, Random(1), b=2.0)
    assert found.headline == "undecided: 1 more pair is needed"
    assert found.inconclusive and not found.fails
    assert '<header class="open">' in page(found)
    assert "undecided: 1 more pair is needed" in next(in_lines(found))


@pytest.mark.parametrize("pairs", [6, 8, 9])
def test_what_befalls_the_first_run_of_a_pair_favours_no_arm(pairs: int) -> None:
    """It is slower, fails, and has a node more. Of all orders that may be drawn, at most 1 of 100
    names an arm, or fails a job: it was 6 of 100 with 5 pairs."""
    made = plan(runs=pairs, figures=(PENDING, "cost", "nodes.max"), fail_if=["cost worse than 1%"])
    random = Random(pairs)
    noise = [[random.lognormvariate(0, 0.03) for _ in range(6)] for _ in range(pairs)]
    wrong = 0
    for order in product("ab", repeat=pairs):
        runs = []
        for pair, (first, draws) in enumerate(zip(order, noise, strict=True), 1):
            second = "b" if first == "a" else "a"
            for place, name in enumerate((first, second)):
                values = {
                    PENDING: draws[place] * (1.0 if place else 1.2),
                    "cost": draws[2 + place],
                    "nodes.max": 10.0 + (place if draws[4] > 1 else 1 - place),
                }
                failures = ("pods.running: none",) if place == 0 else ()
                runs.append(played(pair, name, {**values}, failures=failures))
        found = compared(made, runs)
        differs = any(each.verdict in DIFFERENCES for each in found.effects)
        wrong += differs or bool(found.losers) or any(each.holds for each in found.fail_if)
    assert wrong <= 0.01 * 2**pairs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "can't be read"),
        ("pendingSeconds.p95", "can't be read"),
        ("pendingSeconds.p95 worse than ten", "can't be read"),
        ("pendingSeconds.p95 worse than -1%", "can't be read"),
        ("pendingSeconds.p59 worse than 1%", "did you mean pendingSeconds.p"),
        ("nodes.max worse than 1%", "more than or less than"),
        ("evictions worse than 3s", "is no time"),
        ("utilisation.cpu less than 5", "less than 1; lower the bound"),
        ("pods.running less than 150%", "can't come true"),
        (HOSTILE, "can't be read"),
    ],
)
def test_what_can_t_be_read(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        fail_condition(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "bound", "relative"),
    [
        ("than 10%", 0.1, True),
        ("", 0, True),
        ("than 500ms", 0.5, False),
        ("than 1.5s", 1.5, False),
        ("than 2m", 120, False),
        ("than 1h", 3600, False),
        ("than 7", 7, False),
    ],
)
def test_a_bound_has_a_unit(text: str, bound: float, relative: bool) -> None:
    found = fail_condition(f"{PENDING} worse {text}")
    assert found.bound == pytest.approx(bound) and found.relative is relative


@pytest.mark.parametrize(
    ("of_a", "of_b", "headline", "fails"),
    [
        (0, 8, "a wins: a failed in 0 of 8 runs, b failed in 8 of 8 runs; ", True),
        (8, 0, "b wins: a failed in 8 of 8 runs, b failed in 0 of 8 runs; ", True),
        (7, 0, "a fails: a failed in 7 of 8 runs, b failed in 0 of 8 runs (a difference", True),
        (8, 8, "both arms fail: a failed in 8 of 8 runs, b failed in 8 of 8 runs; ", True),
        (1, 0, "a failed in 1 of 8 runs (a difference not beyond chance); ", False),
        (1, 2, "a failed in 1 of 8 runs, b failed in 2 of 8 runs (a difference not", False),
        (0, 5, "b fails: a failed in 0 of 8 runs, b failed in 5 of 8 runs (a difference", True),
        (0, 0, "no difference seen", False),
    ],
)
def test_an_arm_that_fails_more_often(of_a: int, of_b: int, headline: str, fails: bool) -> None:
    runs = [
        played(n, name, {PENDING: 10.0}, failures=("pods.running: none",) if n <= failed else ())
        for n in range(1, RUNS + 1)
        for name, failed in (("a", of_a), ("b", of_b))
    ]
    found = compared(plan(runs=RUNS, figures=(PENDING,)), runs)
    assert found.headline.startswith(headline) and found.fails is fails
    assert found.headline.endswith("no difference seen")


def three(*, died: int = 0, **more: Any) -> Comparison:
    """Arm b is as a is, c waits longer; in its last `died` runs b fails."""
    made = plan(runs=9, beside=["c"], figures=(PENDING, "cost"), **more)
    runs = []
    for n in range(1, 10):
        for name, times in (("a", 1.0), ("b", 1 + (n * 5 % 9 - 4) / 200), ("c", 1.3)):
            failures = ("pods.running: none",) * (name == "b" and n > 9 - died)
            values = {PENDING: (10 + n % 4 / 10) * times, "cost": 1 + n % 2 / 10}
            runs.append(played(n, name, {**values}, failures=failures))
    return compared(made, runs)


def test_each_further_arm_is_compared_with_the_first() -> None:
    found = three(fail_if=[f"{PENDING} worse than 10%", "cost more in b"])
    assert found.headline == f"b: no difference seen; c is worse in {PENDING}"
    outcomes = [(each.text, each.said) for each in found.fail_if]
    assert outcomes == [
        (f"{PENDING} worse than 10% in b", "not so"),
        ("cost more in b", "not so"),
        (f"{PENDING} worse than 10% in c", "FAILS"),
    ]
    assert found.fails and found.complete and not found.losers
    told = comparison_json(found)
    for part, arms in (("effects", "bbcc"), ("failIf", "bbc"), ("differs", "bc")):
        assert "".join(each["arm"] for each in told[part]) == arms
    lines = [*in_lines(found)]
    assert any(line.startswith(f"c: {PENDING}: 10.14 s and 13.19 s, +30.0 %") for line in lines)
    assert f"| {PENDING} | 10.14 s | 0 %, no difference seen | **+30.0 %, worse** |" in in_markdown(
        found
    )
    assert "c does to each figure, beside a" in page(found)


def test_an_arm_of_three_that_fails_more_often() -> None:
    headline = three(died=9).headline
    counts = "a failed in 0 of 9 runs, b failed in 9 of 9 runs, c failed in 0 of 9 runs"
    assert headline.startswith(f"b failed more often, beyond chance: {counts}; ")
    assert three(died=5).headline.startswith(f"b fails: {counts.replace('9 of', '5 of')} (a diff")
    assert three(died=4).headline.startswith("b failed in 4 of 9 runs (a difference not beyond")


def test_with_more_arms_more_rounds_are_needed() -> None:
    eight = compare(plan(runs=8, beside=["c"], figures=(PENDING,)), slower=2.0)
    assert eight.headline == ("b: undecided: 1 more pair is needed; c: nothing could be compared")
    with pytest.raises(SettingsError, match="9 rounds are needed"):
        checked(plan(runs=8, beside=["c"], fail_if=["cost worse"]))


@pytest.mark.parametrize("name", ["a", "d"])
def test_a_condition_is_about_a_further_arm(name: str) -> None:
    with pytest.raises(SettingsError, match=f"'{name}' is .*: b"):
        checked(plan(runs=8, fail_if=[f"cost worse in {name}"]))


def test_a_chance_failure_names_no_winner() -> None:
    """A against A named a winner in 43 of 100 comparisons, and failed the job in 54."""
    made, random = plan(runs=8, figures=NINE), Random(1)
    found = [lognormal(made, random, fails=0.05) for _ in range(200)]
    assert fmean(bool(each.losers) for each in found) <= 0.01
    assert fmean(each.fails for each in found) <= 0.01


def test_runs_that_died_give_no_figures() -> None:
    """They cost less, and that is no merit."""
    runs = []
    for n in range(1, 13):
        died = n % 3 == 0
        runs.append(played(n, "a", {"cost": 10.0 + n % 3, PENDING: 10.0 + n % 3}))
        part = played(n, "b", {"cost": 0.1 if died else 10.0 + n % 4}, failures=("it died",) * died)
        runs.append(replace(part, died=died))
    found = compared(plan(runs=12, figures=("cost",)), runs)
    (cost,) = found.effects
    assert (cost.verdict, cost.pairs, cost.lacking) == (EffectVerdict.NONE_SEEN, 8, 4)
    assert [len(found.failed_runs(n)) for n in (0, 1)] == [0, 4]


@pytest.mark.parametrize(
    ("dead_a", "dead_b", "slower", "answer", "reason"),
    [
        (0, 3, 1.0, "undecided", "in 3 of 12 pairs a run lacks it"),
        (3, 3, 1.0, "undecided", "in 3 of 12 pairs a run lacks it"),
        (0, 3, 1.5, "holds", "in 3 of 12 pairs a run lacks it"),
        (0, 3, 0.5, "undecided", "in 3 of 12 pairs a run lacks it"),
        (0, 0, 1.0, "does not hold", "no difference seen"),
    ],
)
def test_no_condition_is_green_on_the_runs_that_survived(
    dead_a: int, dead_b: int, slower: float, answer: str, reason: str
) -> None:
    runs: list[PlayedRun] = []
    for n in range(1, 13):
        for name, dead, times in (("a", dead_a, 1.0), ("b", dead_b, slower)):
            value = (10 + (n * 7 + len(runs)) % 5 / 100) * times
            run = played(n, name, {PENDING: value}, failures=("it died",) * (n <= dead))
            runs.append(replace(run, died=n <= dead))
    made = plan(runs=12, figures=(PENDING,), fail_if=[f"{PENDING} worse than 10%"])
    found = compared(made, runs)
    (outcome,) = found.fail_if
    assert (outcome.answer.value, reason in outcome.reason) == (answer, True), outcome
    assert found.undecided is (answer == "undecided")
    (effect,) = found.effects
    assert (f"{dead_a + dead_b} of 12" in effect.reason) is (dead_a != dead_b)


def test_an_incomplete_figure_is_neither_better_nor_worse() -> None:
    runs = []
    for n in range(1, RUNS + 1):
        runs.append(played(n, "a", {PENDING: 40.0 + n, "cost": 2.0}))
        part = played(n, "b", {PENDING: 30.0 + n, "cost": 1.0})
        runs.append(replace(part, incomplete={PENDING: "10 pods still wait"} if n == 3 else {}))
    made = plan(runs=RUNS, figures=(PENDING, "cost"), fail_if=[f"{PENDING} worse than 10%"])
    found = compared(made, runs)
    wait, cost = found.effects
    assert (wait.verdict, wait.change) == (EffectVerdict.INCOMPLETE, None)
    assert wait.reason == "in 1 of 16 runs: 10 pods still wait"
    assert cost.verdict is EffectVerdict.BETTER
    assert found.headline == f"b is better in cost; incomplete in {PENDING}"
    assert found.undecided and wait.reason in found.fail_if[0].reason
    assert "in 1 of 16 runs" in in_markdown(found) and "in 1 of 16 runs" in page(found)


def test_what_was_named_afterwards_is_explored() -> None:
    later = fail_condition("cost worse")
    made = replace(
        plan(runs=RUNS, figures=(PENDING,)), explored=("cost",), explored_conditions=(later,)
    )
    runs = [
        played(n, name, {PENDING: 10.0 + n % 3, "cost": cost})
        for n in range(1, RUNS + 1)
        for name, cost in (("a", 1.0), ("b", 2.0))
    ]
    found = compared(made, runs)
    (effect,) = found.explored
    assert (effect.verdict, effect.change) == (EffectVerdict.EXPLORED, 1.0)
    assert found.headline == "no difference seen"
    assert (found.fails, found.undecided) == (False, True)
    assert "Explored" in page(found) and "cost" in in_markdown(found)
    assert "EXPLORED: cost worse" in "\n".join(in_lines(found))
    (contrast,) = found.contrasts
    assert "Explored" not in page(replace(found, contrasts=(replace(contrast, explored=()),)))


def test_figures_that_one_arm_lacks_leave_the_others_as_they_are() -> None:
    made = plan(runs=RUNS, figures=NINE)
    found = lognormal(made, Random(1), b=1.5)
    assert all(each.verdict in DIFFERENCES for each in found.effects), found.headline
    lacking = NINE[:4]
    runs = [
        replace(run, figures={**run.figures, **dict.fromkeys(lacking)})
        if run.arm == "b" and run.pair <= 2
        else run
        for run in found.runs
    ]
    less = compared(made, runs)
    verdicts = {each.figure: each.verdict for each in less.effects}
    assert {name for name, v in verdicts.items() if v in DIFFERENCES} == {*NINE[4:]}
    assert {verdicts[name] for name in lacking} == {EffectVerdict.UNDECIDED}
    assert "2 more pairs are needed that have it, as 6 of 8 do" in in_markdown(less)


@pytest.mark.parametrize("figure", ["pods.unserved", "pods.orphaned.max", "gangs.unfinished"])
def test_pods_and_jobs_that_are_left_alone_are_worse(figure: str) -> None:
    made = plan(runs=RUNS, fail_if=[f"{figure} worse than 3"])
    runs = [
        played(pair, name, {PENDING: wait, figure: left})
        for pair in range(1, RUNS + 1)
        for name, wait, left in (("a", 5.0 + pair % 2, 0.0), ("b", 1.0, 40.0))
    ]
    found = compared(made, runs)
    assert found.fails and f"b is worse in {figure}; better in {PENDING}" in found.headline
    assert "pods.unserved" in plan().compared


def test_nothing_is_better_than_a_claim() -> None:
    assert compare(plan(runs=RUNS), slower=0.5).headline == f"b is better in {PENDING}"
    assert compare(plan(runs=RUNS)).headline == "no difference seen"
    assert not compare(plan(runs=RUNS)).fails
    for nothing in (compare(plan(runs=RUNS, figures=("cost",))), compared(plan(), [])):
        assert nothing.headline == "nothing could be compared"
        assert nothing.undecided and not nothing.fails


def test_which_figures_are_compared() -> None:
    assert "pods.running" in plan().compared  # both arms expect something of it
    assert plan(figures=("cost",), fail_if=["evictions worse"]).compared == ["cost", "evictions"]
    figures = [effect.figure for effect in compare(plan(runs=RUNS)).effects]
    assert "cost" not in figures and PENDING in figures


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"runs": 1}, "--runs"),
        ({"runs": 10**9}, "--runs"),
        ({"runs": 7, "fail_if": ["cost worse"]}, "--runs=8"),
        ({"figures": ("pendingSeconds.p9",)}, "did you mean pendingSeconds.p"),
        ({"b": {"expect": [{"figure": "cost", "atMost": 1}]}}, "nothing in common"),
    ],
)
def test_plans_that_can_show_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        checked(plan(**given))
    assert said in str(refused.value)
    assert checked(plan(b={"expect": [{"figure": "cost", "atMost": 1}]}, figures=("cost",)))


def test_pairs_have_a_seed_each() -> None:
    group = {**GROUP, "spec": {"cloud": {"provisioningDelay": {"constant": "1s"}}}}
    profile = {**GROUP, "kind": "KwokPodProfile", "spec": {"seed": "mine"}}
    apply = [{"object": group}, {"object": profile}]
    made = ComparisonPlan("x", (arm("a", apply=apply), arm("b")), runs=3)
    runs = sorted((run for n in (1, 2, 3) for run in made.round(n)), key=lambda run: run.folder)
    assert [run.seed for run in runs] == ["s-1", "s-1", "s-2", "s-2", "s-3", "s-3"]
    first, last = (run.scenario.apply[0].object for run in (runs[0], runs[4]))
    assert first and last
    assert (first["spec"]["cloud"]["seed"], last["spec"]["cloud"]["seed"]) == ("batch-1", "batch-3")
    assert "seed" not in group["spec"]["cloud"]
    drawn = runs[4].scenario.apply[1].object
    assert drawn and drawn["spec"]["seed"] == "mine-3"
    assert planned_arrivals(runs[0].scenario) == planned_arrivals(runs[1].scenario)


@pytest.mark.parametrize(
    ("of_b", "unlike"),
    [
        ({}, []),
        ({"seed": "other"}, ["seeds"]),
        ({"arrivals": "x"}, ["arrivals as planned"]),
        ({"start": "x"}, ["state at the beginning"]),
        ({"came": {"web": 9.0}}, ["pods as they came"]),  # none of A
        ({"others": 0.9}, ["machine load", "quiet machine"]),
    ],
)
def test_what_has_to_be_equal(of_b: dict[str, Any], unlike: list[str]) -> None:
    found = compare(plan(runs=2), **of_b)
    assert [check.what for check in found.checks if not check.held] == unlike
    said = in_markdown(found)
    assert all(what in said for what in unlike)


@pytest.mark.parametrize(
    ("until", "figures", "longer", "held"),
    [
        ({"settledFor": "30s"}, ("cost", "evictions"), 1.2, False),
        ({"settledFor": "30s"}, ("cost", "evictions"), 1.03, True),
        ({"settledFor": "30s"}, ("evictions",), 1.2, None),
        ({"condition": {"figure": "pods.running", "atLeast": 9}}, ("cost",), 1.2, True),
    ],
)
def test_costs_of_runs_that_end_at_different_times_are_no_comparison(
    until: dict[str, Any], figures: tuple[str, ...], longer: float, held: bool | None
) -> None:
    arms = (arm("a", until=until), arm("b", until=until))
    runs = [
        replace(played(pair, name, {}), seconds=60.0 * (longer if name == "b" else 1))
        for pair in (1, 2)
        for name in "ab"
    ]
    runs.append(replace(played(3, "b", {}), seconds=900.0, died=True))
    found = compared(ComparisonPlan("x", arms, runs=3, figures=figures), runs)
    checks = {each.what: each for each in found.checks}
    assert (held is None) == ("length of runs" not in checks)
    if held is not None:
        assert checks["length of runs"].held is held
    if held is False:
        said = checks["length of runs"].said
        assert "72 s in b" in said and "atMost: 72s" in said and "evictions" not in said


def test_karpenters_nodes_are_part_of_the_beginning() -> None:
    def start(*nodes: RecordedLine) -> str:
        facts = recorded_facts(reader(content(nodes)), plan().arms[0].scenario)
        return facts.start

    node_of = partial(node, group="general", pool="default")
    one, later = node_of(0, "n-1"), node_of(0.5, "n-2")
    assert start() == start(node(0, "n-1")) == ""
    assert start(one) == start(node_of(0, "another"), later) != ""
    for unlike in (node_of(0, "n-2"), node_of(0, "n-2", shape="other")):
        assert start(one) != start(one, unlike)
    assert start(one) != start(node_of(0, "n-1", shape="other"))
    checks = {each.what: each.said for each in compare(plan(runs=2), start="").checks}
    assert "nothing is there" in checks["state at the beginning"]


def test_machines_that_a_step_lacked_are_reported() -> None:
    takes = [{"at": "1s", "lose": {"group": "general", "count": 5}}]
    shares = [*takes, {"at": "2s", "lose": {"group": "general", "share": 0.1}}]
    taken = MarkLine(1.0, "lose", "3 of 3 machines")
    for timeline, lacked in ((takes, 2), (shares, 0), ([], 0)):
        of = arm("a", timeline=timeline).scenario
        assert recorded_facts(reader(content([taken])), of).lacked == lacked
    checks = {each.what: each for each in compare(plan(runs=2), lacked=2).checks}
    lacking = checks["machines that steps take"]
    assert not lacking.held and "2" in lacking.said


def test_runs_of_another_tool_or_machine_are_reported() -> None:
    """Both arms have them alike, so nothing differs between these."""
    runs = [
        played(pair, name, {PENDING: 10.0}, versions={"kwok-operator": version})
        for pair, version in enumerate(("0.1", "0.1", "0.2"), 1)
        for name in "ab"
    ]
    checks = {each.what: each for each in compared(plan(runs=3), runs).checks}
    assert not checks["versions and machine"].held
    assert "0.1, 0.2 in b" in checks["versions and machine"].said
    assert {each.what: each.held for each in compared(plan(runs=3), runs[:4]).checks}[
        "versions and machine"
    ]


def test_pods_that_come_later_in_one_arm_are_reported() -> None:
    runs = [played(1, "a", {}, came={"web": 1.0}), played(1, "b", {}, came={"web": 9.0})]
    (unlike,) = [c for c in compared(plan(runs=2), runs).checks if not c.held]
    assert unlike.what == "pods as they came" and "8.0 s" in unlike.said


def test_what_differs_is_listed() -> None:
    found = compare(plan(runs=2), versions={"kubernetes": "v2"}, programs={"program ca": "ca 1"})
    assert [(each.what, each.b) for each in found.contrasts[0].differs] == [
        ("until", '{"atMost": 540.0}')
    ]
    runs = [
        played(1, "a", {}, versions={"kubernetes": "v1"}, machine={"kernel": "6"}),
        played(1, "b", {}, versions={"kubernetes": "v2"}, machine={"kernel": "6"}),
    ]
    found = compared(plan(runs=2, b={}), runs)
    assert [(each.what, each.a, each.b) for each in found.contrasts[0].differs] == [
        ("kubernetes", "v1", "v2")
    ]


def test_the_page_has_the_numbers_of_the_file() -> None:
    found = compare(plan(runs=RUNS, fail_if=[f"{PENDING} worse than 10%"]), slower=1.3)
    told, text = comparison_json(found), page(found)
    assert text == page(found)
    seen = Seen(text)
    effects = {effect["figure"]: effect for effect in told["effects"]}
    assert len(seen.figures) == 3 * len(effects)
    for attributes, shown in seen.figures:
        value = effects[attributes["data-figure"]][attributes["data-of"]]
        assert attributes["value"] == ("" if value is None else repr(value))
        assert shown
    assert text.index("<h2>Verdict") < text.index("What B does")
    assert f"b is worse in {PENDING}" in text and told["verdict"] in text
    assert [line for line in in_lines(found)][-1] == told["verdict"]
    assert f"| {PENDING} |" in in_markdown(found)


def test_the_page_asks_nobody_for_anything() -> None:
    made = plan(
        runs=2,
        b={"teaches": HOSTILE, "workloads": [{**scenario()["workloads"][0], "namespace": "x"}]},
    )
    found = compare(made, failures=(HOSTILE,), versions={HOSTILE: HOSTILE})
    for tag, attributes in Seen(page(found)).tags:
        assert tag not in ("script", "img", "link", "iframe", "a", "base")
        assert not {"src", "href", "onerror"} & attributes.keys()
    assert "url(" not in page(found)
    assert not re.search(r"(?<!\\)<script", in_markdown(found))
    json.dumps(comparison_json(found))


def test_the_page_stays_small() -> None:
    found = compare(plan(runs=1000), slower=1.01)
    assert len(page(found).encode()) <= 500_000
    assert len(re.findall("<tr>", page(found))) < 400


@pytest.mark.parametrize(
    ("figures", "better"),
    [
        (("pendingSeconds", "startSeconds", "wait.", "gangs", "churn"), True),
        (("pods.pending", "pods.failed", "pods.gone", "pods.orphaned", "pods.unserved"), True),
        (("nodes.notReady", "nodeHours", "cost", "disruptions.beyond"), True),
        (("evictions", "restarts", "losses", "warnings"), True),
        (("pods.running", "pods.succeeded", "utilisation"), False),
        (("nodes.total", "nodes.max", "nodes.ready", "nodes.cordoned", "instances"), None),
        (("preemptions", "events", "disruptions.E", "disruptions.Drifted"), None),
    ],
)
def test_which_way_is_better(figures: tuple[str, ...], better: bool | None) -> None:
    named = [each for name, each in FIGURES.items() if name.startswith(figures)]
    assert {each.lower_is_better for each in named} == {better}


def test_which_figures_count_decisions() -> None:
    counts = {name.partition(".")[0] for name, each in FIGURES.items() if each.decisions}
    assert counts == {"nodes", "churn", "evictions", "preemptions", "disruptions"}
    nodes = {name for name, each in FIGURES.items() if each.decisions and "nodes" in name}
    totals = {f"nodes.total{suffix}" for suffix in ("", ".max", ".final")}
    assert nodes == {"nodes.max", "nodes.final", *totals}
