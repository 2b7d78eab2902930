"""A target that changes ten times while nodes are still being made, or removed.

The load generator is told once, which is the least that there is to do. `kwokctl scale` can't be
told anything else while it works, so it takes no part. Targets are set by plain HTTP requests, in
equal intervals within half the time that a direct way would take.
"""

import time
from typing import Final

from tests.bench.actors import Actor, Ceiling, Operator, Told, running
from tests.bench.cluster import FEW_HEARTBEATS, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba
from tests.bench.progress import Progress
from tests.bench.runs import find_concurrency, note_lag, timed, warm_up

UP: Final = (1.0, 0.3, 0.8, 0.5, 1.0, 0.2, 0.7, 0.4, 0.9, 1.0)
DOWN: Final = tuple(1 - share for share in UP)
VERBS: Final = ("POST", "DELETE")
_RATE = 400.0
"""Nodes a second of a direct way, about."""


def run(context: Context) -> None:
    options = context.options
    rivals = options.rivals("operator", "ceiling")
    turns = [(n, *turn) for n in options.sizes for turn in abba(rivals, options.rounds)]
    progress = context.progress(len(turns) + ("ceiling" in rivals))
    with context.cluster(extra_args=FEW_HEARTBEATS) as bench:
        actors = {who: context.actor(who, bench) for who in rivals}
        for actor in actors.values():
            if isinstance(actor, Ceiling):
                find_concurrency(context, bench, progress, actor)
        for size, each, who in turns:
            what = f"{size:,} nodes by {who}, round {each + 1} of {options.rounds}"
            with context.turn(what, bench, progress), running(actors[who]):
                _there_and_back(context, bench, progress, actors[who], size=size)
    progress.end()


def _there_and_back(
    context: Context, bench: BenchCluster, progress: Progress, actor: Actor, *, size: int
) -> None:
    warm_up(bench, progress, actor)
    for work, shares in (("create", UP), ("delete", DOWN)):
        target = round(shares[-1] * size)
        posted = [bench.requests(verb=verb, resource="nodes") for verb in VERBS]

        def tell(shares: tuple[float, ...] = shares, target: int = target) -> Told:
            if isinstance(actor, Operator):
                return _changing(actor, [round(share * size) for share in shares])
            return actor.scale(target)

        timing = timed(bench, progress, tell, size=target, nodes=size)
        actor.settle()
        context.add(actor.name, "seconds", timing.seconds, work=work, n=size, unit="s")
        if isinstance(actor, Operator):
            last = timing.from_acceptance
            context.add(actor.name, "after the last change", last, work=work, n=size, unit="s")
        for verb, before in zip(VERBS, posted, strict=True):
            count = bench.requests(verb=verb, resource="nodes") - before
            context.add(actor.name, f"{verb} of nodes", count, work=work, n=size)
        bench.quiet(progress.tick)
    note_lag(context, actor, work="create and delete", n=size)


def _changing(operator: Operator, targets: list[int]) -> Told:
    """Set one target after the other."""
    began = time.monotonic()
    interval = max(targets) / _RATE / 2 / len(targets)
    told = Told(began, began, began)
    for place, target in enumerate(targets):
        time.sleep(max(0.0, began + place * interval - time.monotonic()))
        told = operator.patch(target)
    return Told(began, told.accepted, told.ended)
