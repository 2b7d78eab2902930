"""The judge of recordings agrees with one that computes each figure by its definition."""

import os
import random

import pytest

from kwok_operator.rehearsal.judge.figures import FIGURES, FigureScope
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import RecordedLine, encode
from tests.fakes.rehearsed import content, reader
from tests.naivejudge import history, naive, narrows
from tests.randomrecording import (
    GROUPS,
    NAMESPACES,
    NODE_POOLS,
    WORKLOADS,
    ZONES,
    random_recording,
)

RECORDINGS = int(os.environ.get("ORACLE_RECORDINGS", "200"))
"""How many; `ORACLE_RECORDINGS=10000 pytest tests/unit/test_rehearsal_oracle.py` looks further."""
BATCHES = 4


def random_scope(draw: random.Random) -> FigureScope:
    named = {"workload": WORKLOADS, "namespace": NAMESPACES, "group": GROUPS, "zone": ZONES}
    named["nodePool"] = NODE_POOLS
    keys = draw.sample(sorted(named), draw.choice((1, 1, 2)))
    return FigureScope(**{key: draw.choice(named[key]) for key in keys})


def differences(lines: list[RecordedLine], scopes: list[FigureScope]) -> list[str]:
    """Where the two judges disagree about what the file of these lines says."""
    read = list(reader(content(lines)).lines())
    ledger, all_ = ClusterLedger(scopes), history(read)
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
        different = differences(lines, scopes)
        assert not different, "\n".join([f"seed {seed}", *different, *map(encode, lines)])
