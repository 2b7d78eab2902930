"""The cases, by name: what each measures, and the function that does it.

A case adds measures to its context as it goes; it neither prints nor writes results.
"""

from collections.abc import Callable
from typing import Final

from tests.bench.cases import calls, changes, memory, one, pods, scale, shim
from tests.bench.context import Context

CASES: Final[dict[str, tuple[str, Callable[[Context], None]]]] = {
    "scale": ("create 0 -> N, delete N -> 0, in one group", scale.one_group),
    "groups": ("the same in 20 groups at once", scale.twenty_groups),
    "changes": ("the same with a target that changes ten times on the way", changes.run),
    "one": ("one more node: until it exists, until it is Ready", one.run),
    "calls": ("API calls per node, counted by the API server", calls.run),
    "memory": ("memory and CPU of the operator, idle, start-up", memory.run),
    "shim": ("memory and CPU of the shim, its calls beside a Go server", shim.run),
    "pods": ("a Deployment onto nodes as they arrive, and as they go", pods.run),
}
