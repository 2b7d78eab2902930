"""One more node: from the moment of being told until it exists, and until it is usable.

The operator is told in two ways: with `kubectl scale`, whose own start is most of the time, and by
the HTTP request that kubectl would send, which is what the load generator has to be compared with.
"""

from collections.abc import Callable
from typing import Final

from tests.bench.actors import Actor, Operator, Told, running
from tests.bench.cluster import BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba, percentile
from tests.bench.observer import EXISTS, USABLE
from tests.bench.progress import Progress
from tests.bench.runs import all_usable, timed, warm_up

PATCHED: Final = "operator, plain PATCH"
_BLOCKS: Final = 4
_SECONDS = 60.0

Times = dict[str, list[float]]


def run(context: Context) -> None:
    options = context.options
    rivals = options.rivals("operator", PATCHED, "ceiling", "kwokctl")
    share = -(-options.singles // _BLOCKS)
    found: dict[str, Times] = {who: {"exists": [], "usable": [], "kubectl": []} for who in rivals}
    turns = abba(rivals, _BLOCKS)
    progress = context.progress(len(turns))
    with context.cluster() as bench:
        actors = {who: context.actor(who.partition(",")[0], bench) for who in rivals}
        for each, who in turns:
            what = f"{share} single nodes by {who}, block {each + 1} of {_BLOCKS}"
            with context.turn(what, bench, progress), running(actors[who]):
                _block(context, bench, progress, actors[who], who, share, found[who])
    for who, times in found.items():
        _report(context, who, times)
    progress.end()


def _block(
    context: Context,
    bench: BenchCluster,
    progress: Progress,
    actor: Actor,
    who: str,
    count: int,
    times: Times,
) -> None:
    base = context.options.base
    warm_up(bench, progress, actor)
    timed(bench, progress, lambda: actor.scale(base), size=base, nodes=base)
    actor.settle()
    bench.quiet(progress.tick)
    tell: Callable[[int], Told] = actor.scale
    if who == PATCHED and isinstance(actor, Operator):
        tell = actor.patch
    for size in range(base + 1, base + count + 1):
        progress.tick(f"{size - base} of {count}")
        bench.nodes.sight.forget_times()
        bench.nodes.expect(all_usable(size))
        told = tell(size)
        bench.nodes.wait(_SECONDS)
        actor.settle()
        sight = bench.nodes.sight
        (name,) = sight.first[EXISTS]
        times["exists"].append(sight.first[EXISTS][name] - told.began)
        times["usable"].append(sight.first[USABLE][name] - told.began)
        times["kubectl"].append(told.ended - told.began)


def _report(context: Context, who: str, times: Times) -> None:
    for event, values in times.items():
        if not values or (event == "kubectl" and who != "operator"):
            continue
        for share in (0.5, 0.99):
            figure = f"{event} p{share * 100:.0f}" if event != "kubectl" else "kubectl scale itself"
            if event == "kubectl" and share != 0.5:
                continue
            value = 1000 * percentile(values, share)
            context.add(who, figure, value, work="one more node", n=context.options.base, unit="ms")
