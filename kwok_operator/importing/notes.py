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
    NO_SUCH_KEY = "NoSuchKey"
    NO_PRICE = "NoPrice"
    NO_BOUNDS = "NoBounds"
    BOUNDS_SPLIT = "BoundsSplit"
    BOUNDS_WIDENED = "BoundsWidened"
    BOUNDS_UNMATCHED = "BoundsUnmatched"
    BOUNDS_UNREADABLE = "BoundsUnreadable"
    LIMITS_NOT_KEPT = "LimitsNotKept"

    # Workloads and their pods.
    TERMINATING = "Terminating"
    ENDED = "Ended"
    PENDING = "Pending"
    OWNER_CAME_OR_WENT = "OwnerCameOrWent"
    OWNER_UNKNOWN = "OwnerUnknown"
    LABELS_DIFFER = "LabelsDiffer"
    STATIC_PODS = "StaticPods"
    STATIC_PODS_ELSEWHERE = "StaticPodsElsewhere"
    AS_ADMITTED = "AsAdmitted"
    PARTLY_DONE = "PartlyDone"
    SUSPENDED = "Suspended"
    NOT_SCHEDULING = "NotScheduling"
    INVALID_FIELD = "InvalidField"
    UNKNOWN_FIELDS = "UnknownFields"
    RESOURCE_CLAIMS = "ResourceClaims"
    SCHEDULING_GATES = "SchedulingGates"
    READINESS_GATES = "ReadinessGates"
    NO_PRIORITY_CLASS = "NoPriorityClass"
    NO_RUNTIME_CLASS = "NoRuntimeClass"
    BOUND_TO_NODE = "BoundToNode"
    BOUND_BY_VOLUME = "BoundByVolume"
    NODE_UNKNOWN = "NodeUnknown"
    TOO_MANY_PLACES = "TooManyPlaces"
    VOLUMES_IN_SEVERAL_PLACES = "VolumesInSeveralPlaces"
    NAMESPACE_MOVED = "NamespaceMoved"
    NAME_TAKEN = "NameTaken"
    NAMESPACE_LABELS = "NamespaceLabels"
    POD_SECURITY = "PodSecurity"
    QUOTA_UNUSED = "QuotaUnused"
    NOTHING_LEFT = "NothingLeft"


REASONS: Final[Mapping[Reason, str]] = {
    Reason.NO_OBJECT: "it is no object with a name, so nothing can be made of it",
    Reason.CONTROL_PLANE_NODE: "its taint keeps pods off, as it runs the control plane",
    Reason.NODE_TERMINATING: "it was being deleted",
    Reason.NO_CAPACITY: "it doesn't say its CPU and memory, or is not a whole Node",
    Reason.NODE_NOT_READY: "nodes of the group were not Ready; they count, and will be Ready",
    Reason.NODE_CORDONED: "nodes of the group were cordoned; they count, and pods may use them",
    Reason.NODE_SURPLUS: "an autoscaler was about to remove nodes of the group; they count",
    Reason.NODES_DIFFER: "nodes of the group had another value, or none; all get the template's",
    Reason.LABEL_DROPPED: "nodes had this label, which belongs to a machine; pods that select a"
    " value of it get the group",
    Reason.NO_SUCH_KEY: "no node has this label or annotation of --group-by; correct it",
    Reason.NO_PRICE: "the price list has no price for the instance type and zone",
    Reason.NO_BOUNDS: "nothing that could be read says how far the group may be scaled, so no"
    " autoscaler is let near it; add spec.autoscaling",
    Reason.BOUNDS_SPLIT: "one scaling group has nodes in several groups; its minimum and maximum"
    " are dealt out among them evenly, where a cloud would take any zone",
    Reason.BOUNDS_WIDENED: "the group has more nodes than its maximum; the maximum is what it has",
    Reason.BOUNDS_UNMATCHED: "no imported node is known to belong to this scaling group",
    Reason.BOUNDS_UNREADABLE: "it can't be read, and its bounds are not known",
    Reason.LIMITS_NOT_KEPT: "a NodePool limits resources, and groups limit nodes; set maxSize",
    Reason.TERMINATING: "it was being deleted",
    Reason.ENDED: "it had ended",
    Reason.PENDING: "pods were pending, and will be again",
    Reason.OWNER_CAME_OR_WENT: "pods whose owner came or went while the cluster was read; import"
    " again to see them settled",
    Reason.OWNER_UNKNOWN: "its owner is of a kind that isn't imported; the same number of pods of"
    " that shape is",
    Reason.LABELS_DIFFER: "pods of one owner had another value of this label, or none; all go"
    " without",
    Reason.STATIC_PODS: "static pods of nodes; a DaemonSet runs them on the groups of these nodes",
    Reason.STATIC_PODS_ELSEWHERE: "static pods of nodes that aren't imported",
    Reason.AS_ADMITTED: "pods of it ask for something else than its template, as a webhook, an"
    " autoscaler of pods or a limit of the namespace changed them; all get what most ask for",
    Reason.PARTLY_DONE: "so many pods of the Job had succeeded; only the rest is to do",
    Reason.SUSPENDED: "it is suspended: it would begin Jobs at times that have nothing to do with"
    " a rehearsal",
    Reason.NOT_SCHEDULING: "what doesn't decide where pods are scheduled is never kept",
    Reason.INVALID_FIELD: "its value is of a type that no API server takes, so it is left out",
    Reason.UNKNOWN_FIELDS: "it has fields that are not known here, and they are left out",
    Reason.RESOURCE_CLAIMS: "claims of devices aren't imported; the pods ask for none",
    Reason.SCHEDULING_GATES: "nobody would open the gates; the pods are scheduled at once",
    Reason.READINESS_GATES: "nobody would open the gates; the pods are Ready without",
    Reason.NO_PRIORITY_CLASS: "its PriorityClass could not be read; the pods have no priority",
    Reason.NO_RUNTIME_CLASS: "its RuntimeClass could not be read; the pods have no overhead",
    Reason.BOUND_TO_NODE: "it, or a volume of it, asks for nodes by name, or by a label that no"
    " group has, and gets their groups",
    Reason.BOUND_BY_VOLUME: "a volume bound it to a place; it asks for nodes there instead",
    Reason.NODE_UNKNOWN: "it says something of a node by name that can't be said of a group, or of"
    " a node that isn't imported; that condition is left out",
    Reason.TOO_MANY_PLACES: "its volumes and its affinity have too many alternatives together; the"
    " place of a volume is left out",
    Reason.VOLUMES_IN_SEVERAL_PLACES: "its pods have volumes in several places; each may now be in"
    " any of them",
    Reason.NAMESPACE_MOVED: "every cluster has a namespace of the former name, with objects of its"
    " own that these must not replace",
    Reason.NAMESPACE_LABELS: "labels of a namespace that every cluster has aren't imported; pods"
    " that select it by them find none there",
    Reason.NAME_TAKEN: "an object of a namespace that is moved has this name, too; import one of"
    " the two namespaces alone",
    Reason.POD_SECURITY: "a label that would refuse pods without a security context is left out",
    Reason.QUOTA_UNUSED: "no pod uses up what it limits",
    Reason.NOTHING_LEFT: "nothing of it concerns pods",
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
