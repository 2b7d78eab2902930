"""The judge of recordings agrees with one that computes each figure by its definition."""

import os
import random
from collections.abc import Sequence

import pytest

from kwok_operator.rehearsal.judge.expectations import ExpectationOutcome, Judge, scopes
from kwok_operator.rehearsal.judge.figures import FIGURES, FigureScope
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import (
    RecordedLine,
    RecordedTopology,
    WatchLine,
    encode,
)
from kwok_operator.rehearsal.scenario.expectation import Expectation
from tests.fakes.rehearsed import content, reader
from tests.naivejudge import history, naive, narrows
from tests.randomrecording import (
    GROUPS,
    NAMESPACES,
    NODE_POOLS,
    WORKLOADS,
    ZONES,
    random_recording,
    random_topology,
)

RECORDINGS = int(os.environ.get("ORACLE_RECORDINGS", "200"))
"""How many; `ORACLE_RECORDINGS=10000 pytest tests/unit/test_rehearsal_oracle.py` looks further."""
BATCHES = 4


def random_scope(draw: random.Random) -> FigureScope:
    named = {"workload": WORKLOADS, "namespace": NAMESPACES, "group": GROUPS, "zone": ZONES}
    named["nodePool"] = NODE_POOLS
    keys = draw.sample(sorted(named), draw.choice((1, 1, 2)))
    return FigureScope(**{key: draw.choice(named[key]) for key in keys})


def differences(
    lines: list[RecordedLine], scopes: list[FigureScope], topology: RecordedTopology | None = None
) -> list[str]:
    """Where the two judges disagree about what the file of these lines says."""
    read = list(reader(content(lines)).lines())
    ledger, all_ = ClusterLedger(scopes, topology=topology), history(read, topology)
    for line in read:
        ledger.apply(line)
    different = []
    for scope in (FigureScope(), *scopes):
        values, incomplete = naive(all_, scope)
        for name in (name for name in FIGURES if narrows(name, scope)):
            first = FIGURES[name].reading(ledger.tally(scope), ledger.now)
            second, part = values[name], name in incomplete
            same = first.value == second or (
                None not in (first.value, second) and first.value == pytest.approx(second, abs=1e-6)
            )
            if not same or bool(first.incomplete) is not part:
                by = scope.by
                different.append(
                    f"{name} of {by}: {first.value} ({first.incomplete}), not {second} ({part})"
                )
    return different


@pytest.mark.parametrize("batch", range(BATCHES))
def test_agrees_with_the_definitions(batch: int) -> None:
    for seed in range(batch, RECORDINGS, BATCHES):
        draw = random.Random(f"scopes {seed}")
        scopes = list({random_scope(draw) for _ in range(3)})
        lines = random_recording(seed)
        different = differences(lines, scopes, random_topology(seed))
        assert not different, "\n".join([f"seed {seed}", *different, *map(encode, lines)])


def random_expectation(draw: random.Random) -> Expectation:
    name = draw.choice([*FIGURES])
    scope = random_scope(draw)
    of = scope if narrows(name, scope) else FigureScope()
    bound = draw.choice([0, 1, 2, 3, 5, 10, 30, 0.001])
    bounds = {draw.choice(["atLeast", "atMost", "equals"]): bound}
    when = draw.choice(["end", "end", "always", {"at": draw.choice([1, 5, 20])}])
    return Expectation.model_validate({"figure": name, "of": of, **bounds, "when": when})


def judged(expect: list[Expectation], lines: Sequence[RecordedLine]) -> tuple[Judge, ClusterLedger]:
    ledger = ClusterLedger(scopes(expect))
    judge = Judge(expect, ledger)
    for line in lines:
        if line.t > ledger.now:
            judge.moves_on(line.t)
        ledger.apply(line)
        judge.on_line(line)
    return judge, ledger


def in_words(outcome: ExpectationOutcome) -> tuple[bool, str, bool]:
    """Whether it held, what was lacking, and whether it was more than wanted."""
    each = outcome.expectation
    most = each.equals if each.at_most is None else each.at_most
    return outcome.held, outcome.lacks, most is not None and (outcome.value or 0) > most


@pytest.mark.parametrize("batch", range(BATCHES))
def test_what_is_certain_before_the_end_is_so_at_the_end(batch: int) -> None:
    certain = 0
    for seed in range(batch, RECORDINGS, BATCHES):
        draw = random.Random(f"expectations {seed}")
        expect = [random_expectation(draw) for _ in range(12)]
        # A kind that can't be watched for a while makes figures incomplete, which nobody foresees.
        lines = [line for line in random_recording(seed) if not isinstance(line, WatchLine)]
        end, ledger = judged(expect, lines)
        last = end.finish(ledger.now)
        here, ledger = judged(expect, lines[: len(lines) // 2])
        early = [n for n in range(len(expect)) if here.is_certain(n)]
        then = here.finish(ledger.now)
        certain += len(early)
        different = [expect[n] for n in early if in_words(then[n]) != in_words(last[n])]
        assert not different, f"seed {seed}: {', '.join(map(str, different))}"
    assert certain > RECORDINGS / BATCHES
