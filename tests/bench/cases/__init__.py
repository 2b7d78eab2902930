"""The cases, by name: what each measures, and the function that does it.

A case adds measures to its context as it goes; it neither prints nor writes results.
"""

from collections.abc import Callable
from typing import Final

from tests.bench.cases import (
    autoscaler,
    calls,
    changes,
    companions,
    importing,
    lives,
    machines,
    memory,
    one,
    pods,
    racks,
    scale,
    shim,
    writes,
)
from tests.bench.context import Context

CASES: Final[dict[str, tuple[str, Callable[[Context], None]]]] = {
    "usable": ("create 0 -> N until all are usable, delete N -> 0", scale.one_group),
    "groups": ("the same in 20 groups at once", scale.twenty_groups),
    "changes": ("the same with a target that changes ten times on the way", changes.run),
    "one": ("one more node: until it exists, until it is usable", one.run),
    "calls": ("API calls per node, counted by the API server", calls.run),
    "writes": ("all writes in the life of a node, by the audit log", writes.run),
    "memory": ("memory and CPU of the operator, idle, start-up", memory.run),
    "shim": ("memory and CPU of the shim, its calls beside a Go server", shim.run),
    "pods": ("pods that wait for nodes: until bound, until they run, as nodes go", pods.run),
    "racks": ("pods a second of the scheduler, plain and by topology, 50 racks", racks.run),
    "lives": ("pods that live by a profile: times, failures, seeds, kwok's CPU", lives.run),
    "machines": ("Cluster API's machines beside as many nodes of a bare group", machines.run),
    "companions": ("nodes with a CSINode and eight devices each: time, lateness", companions.run),
    "import": ("reading a large cluster: time, CPU and memory of import", importing.run),
    "autoscaler": ("the same with cluster-autoscaler, from its start", autoscaler.run),
}
