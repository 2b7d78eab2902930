"""A long-lived process while the cluster grows: what it holds and what it uses.

    start -> each size: grow, settle, look; idle at the largest size with a live kwok
          -> a new process at the largest size, until it is ready -> back to no nodes

Up to `live_limit` nodes the whole control plane runs and kwok keeps the nodes' heartbeats; above it
only etcd and the API server do, since the heartbeats alone would be more than a small machine can
serve. Beside the process stand those of Kubernetes that hold the same nodes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from tests.bench.actors import Operator
from tests.bench.cluster import COMPONENTS, BenchCluster
from tests.bench.context import Context
from tests.bench.observer import Sight
from tests.bench.procfs import Usage, usage
from tests.bench.progress import Progress
from tests.bench.runs import all_usable, note_lag, patience

KWOK: Final = "kwok-controller"
_SETTLE_SECONDS = 10.0


class Subject(Protocol):
    """The process that is looked at."""

    name: str

    def launch(self) -> float: ...
    def stop(self) -> None: ...
    def usage(self) -> Usage: ...


@dataclass
class Growth:
    """One subject in one cluster, and the operator that makes the nodes (which may be the same)."""

    context: Context
    bench: BenchCluster
    progress: Progress
    operator: Operator
    subject: Subject
    live: bool = True

    def run(self) -> None:
        """All of it; raises what goes wrong."""
        sizes = self.context.options.memory_sizes
        alive = [size for size in sizes if size <= self.context.options.live_limit]
        self.progress.step("start")
        time.sleep(_SETTLE_SECONDS)
        self._look("start", 0)
        for size in sizes:
            if self.live and size not in alive:
                self._idle(max(alive, default=0))
                self.bench.stop_components()
                self.live = False
            self._grow(size)
        if self.live:
            self._idle(sizes[-1])
        self._restart(sizes[-1])
        self._shrink(sizes[-1])

    def _grow(self, size: int) -> None:
        self.progress.step(f"growing to {size:,} nodes")
        before = self.subject.usage()
        self._scale(size)
        time.sleep(_SETTLE_SECONDS)
        after = self._look("with nodes", size)
        self._add("CPU to get there", after.cpu - before.cpu, size, unit="s")

    def _restart(self, size: int) -> None:
        """A new process finds the nodes that are there."""
        self.progress.step(f"start-up with {size:,} nodes")
        self.subject.stop()
        seconds = self.subject.launch()
        at_once = self.subject.usage()
        self._add("seconds until ready", seconds, size, unit="s", work="start-up")
        self._add("CPU until ready", at_once.cpu, size, unit="s", work="start-up")
        time.sleep(_SETTLE_SECONDS)
        after = self.subject.usage()
        self._add("memory", after.rss, size, unit="MB", work="start-up")
        self._add("peak memory", after.peak, size, unit="MB", work="start-up")
        if self.subject is self.operator:
            note_lag(self.context, self.operator, work="start-up", n=size)

    def _idle(self, size: int) -> None:
        seconds = self.context.options.idle
        self.progress.step(f"idle with {size:,} nodes")
        before, began = self.subject.usage(), time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            self.progress.tick(f"{passed:.0f} of {seconds:.0f} s")
            time.sleep(min(1.0, seconds - passed))
        after = self.subject.usage()
        share = 100 * (after.cpu - before.cpu) / (time.monotonic() - began)
        self._add("CPU of one core", share, size, unit="%", work="idle")
        self._add("memory", after.rss, size, unit="MB", work="idle")

    def _shrink(self, size: int) -> None:
        self.progress.step(f"from {size:,} nodes to none")
        before = self.subject.usage()
        self._scale(0, nodes=size)
        time.sleep(_SETTLE_SECONDS)
        after = self._look("after, with none", size)
        self._add(
            "CPU to get there", after.cpu - before.cpu, size, unit="s", work="after, with none"
        )

    def _scale(self, size: int, *, nodes: int = 0) -> None:
        goal: Callable[[Sight], bool] = all_usable(size)
        if not self.live:
            # Without kwok no node is usable.
            def goal(sight: Sight) -> bool:
                return sight.present == size

        self.bench.nodes.expect(goal)
        began = self.operator.patch(size).began
        done = self.bench.nodes.wait(
            patience(nodes or size),
            tick=lambda sight: self.progress.tick(str(sight)),
        )
        if self.subject is self.operator:
            work = "with nodes" if size else "after, with none"
            self._add("seconds to get there", done - began, size or nodes, unit="s", work=work)
            note_lag(self.context, self.operator, work=work, n=size or nodes)

    def _look(self, work: str, size: int) -> Usage:
        found = self.subject.usage()
        self._add("memory", found.rss, size, unit="MB", work=work)
        self._add("peak memory", found.peak, size, unit="MB", work=work)
        for component in ("kube-apiserver", *COMPONENTS) if self.live else ("kube-apiserver",):
            other = usage(self.bench.cluster.pid(component))
            self.context.add(
                component, "memory", other.rss, work=work, n=size, unit="MB", reference=KWOK
            )
        return found

    def _add(
        self, figure: str, value: float, n: int, *, unit: str, work: str = "with nodes"
    ) -> None:
        self.context.add(
            self.subject.name, figure, value, work=work, n=n, unit=unit, reference=KWOK
        )


def steps(context: Context) -> int:
    """How many steps `Growth.run` has."""
    return 4 + len(context.options.memory_sizes)
