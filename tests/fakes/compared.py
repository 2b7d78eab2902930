"""Comparisons that tests make up: arms, and rehearsals that take no time."""

import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kwok_operator.comparison.failing import fail_condition
from kwok_operator.comparison.fairness import RunFacts
from kwok_operator.comparison.outcome import PlayedRun
from kwok_operator.comparison.plan import ComparisonArm, ComparisonPlan
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.verdict import Judged
from kwok_operator.rehearsal.scenario.model import Scenario
from tests.fakes.rehearsed import content, node, pod, run
from tests.fakes.scenarios import scenario

PENDING = "pendingSeconds.p95"


def arm(name: str, **parts: Any) -> ComparisonArm:
    made = Scenario.model_validate({"name": "test", "seed": "s", **scenario(**parts)})
    digest = json.dumps(made.dump(), sort_keys=True)
    return ComparisonArm(name, f"{name}.yaml", made, digest)


def plan(
    *,
    fail_if: Iterable[str] = (),
    b: dict[str, Any] | None = None,
    beside: Iterable[str] = (),
    **more: Any,
) -> ComparisonPlan:
    """Arms a and b, and those that are named `beside`, which are as b."""
    differs = {"until": {"atMost": "9m"}} if b is None else b
    arms = (arm("a"), *(arm(name, **differs) for name in ("b", *beside)))
    conditions = tuple(fail_condition(each) for each in fail_if)
    return ComparisonPlan("test", arms, fail_if=conditions, **more)


def played(
    pair: int,
    name: str,
    figures: dict[str, float | None],
    *,
    failures: tuple[str, ...] = (),
    **facts: Any,
) -> PlayedRun:
    told = RunFacts(**{"seed": f"s-{pair}", "others": 0.01, **facts})
    return PlayedRun(pair, name, f"runs/{pair}-{name}", told, 60.0, figures, failures)


@dataclass
class FakeRehearse:
    """Writes a recording whose pods wait as long as `waits` says of the seed and the arm."""

    waits: Callable[[str, str], float] = lambda seed, arm: 2.0 + int(seed[-1]) / 10
    fails_in: str = ""
    """An arm, or a run of it."""
    breaks_at: int = 0
    """The run that is interrupted; counted from 1."""
    seeds: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    clusters: list[str | None] = field(default_factory=list)
    """The kept cluster of each run; None for one that makes its own."""
    dead: list[str] = field(default_factory=list)
    """The components of the kept cluster that have ended."""

    @asynccontextmanager
    async def keep(self, scenario: Scenario, prefix: str, **_: Any) -> AsyncIterator[Any]:
        name = f"{prefix}-{len(set(self.clusters))}"
        self.dead.clear()
        yield SimpleNamespace(cluster=SimpleNamespace(name=name, dead=lambda: self.dead))

    async def __call__(
        self, scenario: Scenario, settings: Any, *, folder: Path, kept: Any = None, **_: Any
    ) -> Judged:
        self.clusters.append(kept and kept.cluster.name)
        name = folder.name.rpartition("-")[2]
        self.order.append(folder.name)
        self.seeds.append(scenario.draws_from)
        wait = self.waits(scenario.draws_from, name)
        pods = [
            pod(1 + wait, f"web-{n}", created=1, bound=1 + wait, phase="Running", running=2 + wait)
            for n in "1234"
        ]
        pods = [] if self.fails_in in (name, folder.name) else pods
        cut = len(self.order) == self.breaks_at
        lines = run(node(0.5, "n-1"), *pods, reason="interrupted" if cut else "settled")
        expect = [each.dump() for each in scenario.expect]
        versions = {"kubernetes": f"v1-{name}"}
        data = content(lines, expect=expect, seed=scenario.draws_from, versions=versions)
        (folder / outputs.RECORDING).write_bytes(gzip.compress(data))
        found = outputs.judge(folder)
        outputs.write(found, folder)
        return found
