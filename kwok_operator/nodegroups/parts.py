"""The parts that a pass works with, which operator/assembly.py puts together, and the result of a
pass. Values only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.nodegroups.budget import NodeBudget
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.kwok import KwokLink
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.observation import Memory, Observation
from kwok_operator.nodegroups.plan import Plan
from kwok_operator.nodegroups.statuswriter import StatusWriter
from kwok_operator.nodegroups.steps import GroupStep, StepPass
from kwok_operator.nodegroups.templates import Resolution, Templates
from kwok_operator.observability.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock: `monotonic` seconds for durations, and the time of day."""

    monotonic: Callable[[], float]
    wall: Callable[[], datetime]

    def now(self) -> str:
        """Returns the time of day in RFC 3339, in whole seconds."""
        return self.wall().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that every pass uses, whatever the group."""

    store: GroupStore
    cache: NodeCache
    writer: NodeWriter
    templates: Templates
    kwok: KwokLink
    recorder: Recorder
    executor: Executor
    budget: NodeBudget
    status: StatusWriter
    metrics: Metrics
    clock: Clock
    steps: Sequence[GroupStep]
    provider_id_prefix: str


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass observed and decided; `resolution` has the template in use; `now` is RFC 3339."""

    group: Group
    memory: Memory
    seen: Observation
    plan: Plan
    resolution: Resolution
    steps: Sequence[StepPass]
    now: str
