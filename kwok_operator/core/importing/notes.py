"""What is told about an object that was dropped or changed: the entries of the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """An object, as people call it. `namespace` is empty where the kind has none."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


class Reason(StrEnum):
    """Why; REASONS says each in a sentence."""

    NO_OBJECT = "NoObject"

    # Nodes, and the groups that they become.
    CONTROL_PLANE_NODE = "ControlPlaneNode"
    NODE_TERMINATING = "NodeTerminating"
    NO_CAPACITY = "NoCapacity"
    NODE_NOT_READY = "NodeNotReady"
    NODE_CORDONED = "NodeCordoned"
    NODE_SURPLUS = "NodeSurplus"
    NODES_DIFFER = "NodesDiffer"
    LABEL_DROPPED = "LabelDropped"
    NO_PRICE = "NoPrice"
    NO_BOUNDS = "NoBounds"
    BOUNDS_SPLIT = "BoundsSplit"
    BOUNDS_WIDENED = "BoundsWidened"
    BOUNDS_UNMATCHED = "BoundsUnmatched"
    BOUNDS_UNREADABLE = "BoundsUnreadable"
    LIMITS_NOT_KEPT = "LimitsNotKept"


REASONS: Final[Mapping[Reason, str]] = {
    Reason.NO_OBJECT: "it is no object with a name, so nothing can be made of it",
    Reason.CONTROL_PLANE_NODE: "its taint keeps pods off, as it runs the control plane",
    Reason.NODE_TERMINATING: "it was being deleted",
    Reason.NO_CAPACITY: "it doesn't say its CPU and memory, or is not a whole Node",
    Reason.NODE_NOT_READY: "nodes of the group were not Ready; they count, and will be Ready",
    Reason.NODE_CORDONED: "nodes of the group were cordoned; they count, and pods may use them",
    Reason.NODE_SURPLUS: "an autoscaler was about to remove nodes of the group; they count",
    Reason.NODES_DIFFER: "nodes of the group had another value, or none; all get the template's",
    Reason.LABEL_DROPPED: "nodes had this label, which belongs to a machine; pods that select it"
    " find no node",
    Reason.NO_PRICE: "the price list has no price for the instance type and zone",
    Reason.NO_BOUNDS: "nothing that could be read says how far the group may be scaled, so no"
    " autoscaler is let near it; add spec.autoscaling",
    Reason.BOUNDS_SPLIT: "one scaling group has nodes in several groups; its minimum and maximum"
    " are dealt out among them evenly, where a cloud would take any zone",
    Reason.BOUNDS_WIDENED: "the group has more nodes than its maximum; the maximum is what it has",
    Reason.BOUNDS_UNMATCHED: "no imported node is known to belong to this scaling group",
    Reason.BOUNDS_UNREADABLE: "it can't be read, and its bounds are not known",
    Reason.LIMITS_NOT_KEPT: "a NodePool limits resources, and groups limit nodes; set maxSize",
}


@dataclass(frozen=True, slots=True)
class Note:
    """`field` is the path that it is about, `detail` what else there is to say of it; `count` how
    many objects it stands for. `dropped`: nothing of the object is left.
    """

    ref: Ref
    reason: Reason
    field: str = ""
    detail: str = ""
    count: int = 1
    dropped: bool = False
