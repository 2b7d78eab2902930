"""One turn of one rival: warmed up, timed on the way up, timed on the way down.

Before each turn a rival is started and makes and removes a few nodes, so that connections, code
and caches are warm for all alike (kwokctl is a process each time, and stays cold). The clock starts
when the rival is told, and stops at the event by which the last node is usable, or has gone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.bench.actors import Actor, Ceiling, Operator, Told, running
from tests.bench.cluster import BenchCluster
from tests.bench.context import Context
from tests.bench.observer import READY, USABLE, Sight, Unfinished
from tests.bench.progress import Progress

WARM_UP: Final = 60
_STABLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """When a rival was told, when it was done, and when the last node was Ready."""

    told: Told
    done: float
    ready: float | None = None

    @property
    def seconds(self) -> float:
        """From the moment at which kubectl was started, where it was."""
        return self.done - self.told.began

    @property
    def from_acceptance(self) -> float:
        """From the moment at which the new target could be seen in the API server."""
        return self.done - self.told.accepted


def patience(nodes: int) -> float:
    """Seconds after which a rival is given up: at 4 nodes a second even the slowest is done."""
    return 120 + nodes / 4


def all_usable(size: int) -> Callable[[Sight], bool]:
    """Whether there are so many nodes, and all of them are usable."""
    # A watch that begins anew shows no node at first.
    return lambda sight: sight.synced and sight.present == size and sight.count[USABLE] == size


def timed(
    bench: BenchCluster,
    progress: Progress,
    tell: Callable[[], Told],
    *,
    size: int,
    nodes: int,
) -> Timing:
    """Tell a rival, and wait until there are `size` nodes, all usable; `nodes` of them change."""
    bench.nodes.sight.forget_times()
    bench.nodes.expect(all_usable(size))
    told = tell()
    done = bench.nodes.wait(
        patience(nodes), tick=lambda sight: progress.tick(f"{sight}, to be {size:,}")
    )
    time.sleep(_STABLE_SECONDS)
    bench.nodes.wait_synced()
    sight = bench.nodes.sight
    if sight.present != size:
        raise Unfinished(f"there were {size} nodes for a moment, then {sight.present}")
    return Timing(told, done, sight.last(READY) if sight.first[READY] else None)


def warm_up(bench: BenchCluster, progress: Progress, actor: Actor) -> None:
    """A few nodes up and down, then quiet."""
    for size in (WARM_UP, 0):
        timed(bench, progress, lambda size=size: actor.scale(size), size=size, nodes=WARM_UP)  # type: ignore[misc]
        actor.settle()
    bench.quiet(progress.tick)


def up_and_down(
    context: Context,
    bench: BenchCluster,
    progress: Progress,
    actor: Actor,
    *,
    size: int,
) -> None:
    """0 to `size` and back, with what it took."""
    with running(actor):
        warm_up(bench, progress, actor)
        for work, target in (("create", size), ("delete", 0)):
            before, others = actor.usage(), bench.cpu()
            timing = timed(
                bench,
                progress,
                lambda target=target: actor.scale(target),  # type: ignore[misc]
                size=target,
                nodes=size,
            )
            actor.settle()
            note_timing(context, actor, timing, work=work, n=size)
            after = actor.usage()
            if before is not None and after is not None:
                cpu = after.cpu - before.cpu
                context.add(actor.name, "CPU", cpu, work=work, n=size, unit="s")
                context.add(actor.name, "peak memory", after.peak, work=work, n=size, unit="MB")
            for component, cpu in bench.cpu().items():
                used = cpu - others[component]
                context.add(actor.name, f"CPU of {component}", used, work=work, n=size, unit="s")
            bench.quiet(progress.tick)
        note_lag(context, actor, work="create and delete", n=size)


def note_timing(context: Context, actor: Actor, timing: Timing, *, work: str, n: int) -> None:
    """From being told, and where kubectl does that, from acceptance, and kubectl's own time."""
    who = actor.name
    context.add(who, "seconds", timing.seconds, work=work, n=n, unit="s")
    if timing.ready is not None:
        ready = timing.ready - timing.told.began
        context.add(who, "seconds until all are Ready", ready, work=work, n=n, unit="s")
    context.add(who, "seconds from acceptance", timing.from_acceptance, work=work, n=n, unit="s")
    if isinstance(actor, Operator):
        kubectl = timing.told.ended - timing.told.began
        context.add(who, "kubectl scale itself", kubectl, work=work, n=n, unit="s")


def note_lag(context: Context, actor: Actor, *, work: str, n: int) -> None:
    """How late the operator's event loop was at most, where it tells."""
    if isinstance(actor, Operator) and (lag := actor.largest_lag()) is not None:
        context.add(actor.name, "largest loop lag", lag, work=work, n=n, unit="s")


def find_concurrency(
    context: Context, bench: BenchCluster, progress: Progress, ceiling: Ceiling
) -> None:
    """The load generator's best concurrency on this machine, now."""
    options = context.options
    progress.step("the load generator: finding its best concurrency")
    with running(ceiling):
        warm_up(bench, progress, ceiling)
        found = ceiling.find_concurrency(options.concurrency, burst=options.burst)
    for work, seconds in found["tried"].items():
        told = ", ".join(f"{c}: {options.burst / s:.0f}/s" for c, s in sorted(seconds.items()))
        context.note(f"load generator, {work}, by requests in flight: {told}")
    bench.clear(progress.tick)
