"""API calls per node, counted at the API server.

Each rival has a flow schema of its own, so the API server's own metrics tell how many requests it
has let in from it: all of them, of every verb and resource, watches and status writes too. With
several sizes, the slope is the cost of one more node and the constant what comes on top once.
"""

import time

from tests.bench.actors import Actor, running
from tests.bench.cluster import CEILING, OPERATOR, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import line_through
from tests.bench.progress import Progress
from tests.bench.runs import timed, warm_up

_FLOWS = {"operator": OPERATOR, "ceiling": CEILING}
_AFTERMATH_SECONDS = 5.0
"""Counts in the status are written at most once a second: the last ones belong to it, too."""


def run(context: Context) -> None:
    options = context.options
    sizes = sorted({100, *options.sizes})
    rivals = options.rivals("operator", "ceiling")
    progress = context.progress(len(rivals) * len(sizes))
    with context.cluster() as bench:
        for who in rivals:
            points: dict[str, list[tuple[float, float]]] = {"create": [], "delete": []}
            actor = context.actor(who, bench)
            for size in sizes:
                with context.turn(f"{size:,} nodes by {who}", bench, progress), running(actor):
                    _count(context, bench, progress, actor, size=size, points=points)
            for work, found in points.items():
                if found:
                    slope, constant = line_through(found)
                    for figure, value in (("calls a node", slope), ("calls besides", constant)):
                        context.add(who, figure, value, work=f"{work}, over all sizes", n=sizes[-1])
    progress.end()


def _count(
    context: Context,
    bench: BenchCluster,
    progress: Progress,
    actor: Actor,
    *,
    size: int,
    points: dict[str, list[tuple[float, float]]],
) -> None:
    warm_up(bench, progress, actor)
    time.sleep(_AFTERMATH_SECONDS)
    for work, target, verb in (("create", size, "POST"), ("delete", 0, "DELETE")):
        before = _counts(bench, actor.name, verb)
        timed(bench, progress, lambda target=target: actor.scale(target), size=target, nodes=size)  # type: ignore[misc]
        actor.settle()
        time.sleep(_AFTERMATH_SECONDS)
        calls, writes = (
            now - then for now, then in zip(_counts(bench, actor.name, verb), before, strict=True)
        )
        points[work].append((size, calls))
        context.add(actor.name, "API calls", calls, work=work, n=size)
        context.add(actor.name, "API calls a node", calls / size, work=work, n=size)
        context.add(actor.name, f"{verb} of nodes a node", writes / size, work=work, n=size)


def _counts(bench: BenchCluster, who: str, verb: str) -> tuple[float, float]:
    return bench.calls(_FLOWS[who]), bench.requests(verb=verb, resource="nodes")
