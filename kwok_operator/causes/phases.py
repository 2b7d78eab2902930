"""Splits the time from a pod's creation until it runs into phases, by what the pod waited for.

    created --decision--> requested --boot--> usable --scheduling--> bound --start--> running

This module splits the time as docs/figures.md says; its callers find the moments. The phases of a
pod that runs add up to the time from its creation until it ran.
"""

import math
from itertools import pairwise
from typing import Final

PHASES: Final = ("wait.decision", "wait.boot", "wait.scheduling", "wait.start")
"""The names of the phases, in their order; also the names of the figures about them."""


def split(
    *,
    created: float,
    requested: float | None,
    usable: float | None,
    bound: float | None,
    running: float | None,
) -> tuple[float, ...]:
    """Returns the seconds of the phases that are over, in the order of PHASES: all four for a pod
    that ran, three for a pod that is bound, none for other pods.

    All moments are in seconds by one clock; None for what hasn't happened. `requested` and `usable`
    are those of the pod's node. `requested` is None if nothing is known of the node, which then
    counts as older than the pod. A moment that is out of order is moved to its neighbour's.
    """
    if bound is None and running is None:
        return ()
    ran = math.inf if running is None else max(running, created)
    placed = ran if bound is None else min(max(bound, created), ran)
    if requested is None:
        requested = usable = created
    decided = min(max(requested, created), placed)
    # A pod that tolerates the taints of a new node is bound to it before the node is usable.
    ready = placed if usable is None else min(max(usable, decided), placed)
    moments = (created, decided, ready, placed, *(() if running is None else (ran,)))
    return tuple(after - before for before, after in pairwise(moments))
