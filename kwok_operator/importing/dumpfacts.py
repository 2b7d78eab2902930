"""What an import keeps of a dump besides the imported objects: cluster-autoscaler's node groups,
pending pods, Events and logs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class DumpForm(StrEnum):
    """The form of a dump's file, in words for people."""

    SNAPSHOT = "a debugging snapshot of cluster-autoscaler"
    CLUSTER_INFO = "kubectl cluster-info dump"
    MUST_GATHER = "a must-gather folder"
    OBJECTS = "objects as kubectl get prints them"


@dataclass(frozen=True, slots=True)
class CloudGroup:
    """A node group as cluster-autoscaler (CA) knew it: its id in CA, and its template Node.

    `pods` are the pods that CA expects on each new node of the group: pods of DaemonSets, and
    static pods.
    """

    id: str
    node: Mapping[str, Any]
    pods: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod without a node. `owner` is the kind and name of its controller, empty without one.
    `schedulable`: in CA's simulation, the pod fits on nodes that exist.
    """

    namespace: str
    name: str
    owner: tuple[str, str] = ("", "")
    schedulable: bool = False


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An Event of the API. Times are in milliseconds since the epoch, 0 if unknown."""

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
    """Facts of the dumped cluster, with its original names."""

    forms: dict[Path, DumpForm] = field(default_factory=dict)
    """The form of each file or folder that the user named; empty for a live import."""
    taken: int = 0
    """When the newest file was written, in milliseconds since the epoch; 0 if unknown. A snapshot
    states its time; for other files it is the newest time in any object.
    """
    groups: dict[str, CloudGroup] = field(default_factory=dict)
    """CA's node groups by id, also those without a node. Only snapshots have them."""
    pending: list[PendingPod] = field(default_factory=list)
    events: list[SeenEvent] = field(default_factory=list)
    """The Events of cluster-autoscaler and of schedulers, in the order of the files."""
    logs: list[Path] = field(default_factory=list)
    """Log files of cluster-autoscaler's pods in a dumped folder, as if given by `--log`."""
