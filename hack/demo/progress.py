"""How far a group is from its target, from what `kubectl get --watch` prints to a bar. Pure."""

from __future__ import annotations

from dataclasses import dataclass

WATCHED = (
    "{.metadata.generation} {.status.observedGeneration} {.status.replicas}"
    " {.status.readyReplicas}"
    ' {.status.conditions[?(@.type=="Ready")].status}{"\\n"}'
)
"""The jsonpath of a line that `Sighting.parse` reads."""

_WIDTH = 32


@dataclass(frozen=True, slots=True)
class Sighting:
    """A group as one line of the watch tells: its nodes, those of them that take pods, and whether
    it is where it should be.
    """

    nodes: int
    usable: int
    settled: bool

    @classmethod
    def parse(cls, line: str) -> Sighting | None:
        """Read a line; None where the group has no status yet."""
        words = line.split()
        if len(words) != 5:
            return None
        generation, observed, nodes, usable, ready = words
        # A condition of an older generation says nothing about the size that was just asked for.
        settled = ready == "True" and observed == generation
        return cls(nodes=int(nodes), usable=int(usable), settled=settled)


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` nodes after `seconds`."""

    done: int
    total: int
    seconds: float

    @classmethod
    def of(cls, nodes: int, *, start: int, end: int, seconds: float) -> Progress:
        """Between two sizes, whichever of them is the larger one."""
        done = (nodes - start) if end > start else (start - nodes)
        total = abs(end - start)
        return cls(done=min(max(done, 0), total), total=total, seconds=seconds)

    @property
    def rate(self) -> float:
        """Nodes in a second, so far."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    def line(self) -> str:
        """Write it as a bar with the numbers behind it."""
        full = _WIDTH * self.done // self.total if self.total else _WIDTH
        bar = "#" * full + "." * (_WIDTH - full)
        return f"[{bar}] {self.done:,} of {self.total:,} nodes, {self.rate:,.0f} nodes/s"
