"""Holds what CA's snapshots and logs say of an incident beyond the objects of the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class DumpForm(StrEnum):
    """The form of a file, as words for people."""

    SNAPSHOT = "a debugging snapshot of cluster-autoscaler"
    CLUSTER_INFO = "kubectl cluster-info dump"
    MUST_GATHER = "a must-gather folder"
    OBJECTS = "objects as kubectl get prints them"


@dataclass(frozen=True, slots=True)
class CloudGroup:
    """A node group as cluster-autoscaler (CA) knew it: its id there, and its template Node.

    `pods` are those that CA expects on each new node of it: of DaemonSets, and static ones.
    """

    id: str
    node: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node. Times are milliseconds since the epoch, 0 where they are not known.

    `owner` is kind and name of its controller, empty without one. `schedulable`: it fits on nodes
    that exist, in CA's simulation.
    """

    namespace: str
    name: str
    owner: tuple[str, str] = ("", "")
    created: int = 0
    schedulable: bool = False


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An Event of the API. Times are milliseconds since the epoch, 0 where they are not known."""

    component: str
    reason: str
    message: str
    kind: str
    namespace: str
    name: str
    first: int = 0
    last: int = 0
    count: int = 1


@dataclass(slots=True)
class DumpFacts:
    """Names are those of the cluster that was dumped: not anonymous, not renamed."""

    forms: dict[Path, DumpForm] = field(default_factory=dict)
    """The form of each file or folder that the user named; empty for a live import."""
    taken: int = 0
    """When the newest was written, in milliseconds since the epoch; 0 if nothing says it. A
    snapshot states it; elsewhere it is the newest time in any object."""
    groups: dict[str, CloudGroup] = field(default_factory=dict)
    """CA's node groups by id, only from a snapshot; also those without a node."""
    pending: list[PendingPod] = field(default_factory=list)
    events: list[SeenEvent] = field(default_factory=list)
    """Those of cluster-autoscaler and of schedulers, in the order of the files."""
    logs: list[Path] = field(default_factory=list)
    """Log files of cluster-autoscaler's pods in a folder, for `--log`."""

    def age(self, pod: PendingPod) -> float | None:
        """Returns how long a pod had existed when the files were written, in seconds; None if that
        isn't known.
        """
        known = self.taken and pod.created
        return max(0, self.taken - pod.created) / 1000 if known else None
