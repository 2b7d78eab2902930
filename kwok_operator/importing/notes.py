"""The entries of the ledger: which object was dropped or changed, and why."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """A reference to an object by its name. `namespace` is empty if the kind has none."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


class Reason(StrEnum):
    """Why an object was dropped or changed, as a word; `sentence` explains it to people."""

    sentence: str

    def __new__(cls, word: str, sentence: str) -> "Reason":
        member = str.__new__(cls, word)
        member._value_ = word
        member.sentence = sentence
        return member

    NO_OBJECT = "NoObject", "it is no object with a name, so nothing can be made of it"

    OTHER_KIND = "OtherKind", "objects of kinds that aren't imported"
    OTHER_VERSION = (
        "OtherVersion",
        "files have objects of another version of this kind; the fields that both have are read",
    )
    TWO_MOMENTS = (
        "TwoMoments",
        "objects are in several files, and differ: these are of different times, and the first file"
        " counts",
    )

    # About nodes, and the groups that they become.
    CONTROL_PLANE_NODE = (
        "ControlPlaneNode",
        "its taint keeps pods off, as it runs the control plane",
    )
    NODE_TERMINATING = "NodeTerminating", "it was being deleted"
    NO_CAPACITY = "NoCapacity", "it doesn't say its CPU and memory, or is not a whole Node"
    NODE_NOT_READY = (
        "NodeNotReady",
        "nodes of the group were not Ready; they count, and will be Ready",
    )
    NODE_CORDONED = (
        "NodeCordoned",
        "nodes of the group were cordoned; they count, and pods may use them",
    )
    NODE_SURPLUS = "NodeSurplus", "an autoscaler was about to remove nodes of the group; they count"
    NODE_COMING = (
        "NodeComing",
        "cluster-autoscaler had asked for nodes of the group that weren't there yet; they aren't at"
        " the beginning either, so that it can decide again",
    )
    NOT_IN_SNAPSHOT = (
        "NotInSnapshot",
        "it isn't in cluster-autoscaler's snapshot, so it came later, or wasn't ready yet",
    )
    GROUPS_ALIKE = (
        "GroupsAlike",
        "nodes are as much like those of another scaling group; they are all in this one",
    )
    NODES_DIFFER = (
        "NodesDiffer",
        "nodes of the group had another value, or none; all get the template's",
    )
    SEVERAL_RACKS = (
        "SeveralRacks",
        "nodes of the group are in several racks by this label, and all get the label of one; two"
        " --group-by, of the pool's label and of this one, keep racks apart",
    )
    LABEL_DROPPED = (
        "LabelDropped",
        "nodes had this label, which belongs to a machine; pods that select a value of it get the"
        " group",
    )
    NO_SUCH_KEY = "NoSuchKey", "no node has this label or annotation of --group-by; correct it"
    NO_PRICE = "NoPrice", "the price list has no price for the instance type and zone"
    NO_BOUNDS = (
        "NoBounds",
        "nothing that could be read says how far the group may be scaled, so no autoscaler is let"
        " near it; add spec.autoscaling, or import with --max-size",
    )
    MAX_SIZE = "MaxSize", "nothing says how far the group may be scaled; --max-size does"
    BOUNDS_SPLIT = (
        "BoundsSplit",
        "one scaling group has nodes in several groups; its minimum and maximum are dealt out"
        " among them evenly, where a cloud would take any zone",
    )
    BOUNDS_WIDENED = (
        "BoundsWidened",
        "the group has more nodes than its maximum; the maximum is what it has",
    )
    BOUNDS_UNMATCHED = (
        "BoundsUnmatched",
        "no imported node is known to belong to this scaling group",
    )
    BOUNDS_UNREADABLE = "BoundsUnreadable", "it can't be read, and its bounds are not known"
    SCALED_BY_KARPENTER = (
        "ScaledByKarpenter",
        "Karpenter scales the group, within the limits of its NodePool; for cluster-autoscaler, set"
        " maxSize",
    )
    PRICE_NEEDED = (
        "PriceNeeded",
        "Karpenter decides by price, and the group has none; import again with --prices",
    )
    POOL_WITHOUT_NODES = (
        "PoolWithoutNodes",
        "the NodePool had no node; it may take types of instances that nodes of others have",
    )
    POOL_UNKNOWN = (
        "PoolUnknown",
        "the NodePool had no node, and no node of others can be one of it",
    )
    REQUIREMENT_UNKNOWN = (
        "RequirementUnknown",
        "no imported node has the label, so Karpenter's kwok provider can't choose by it; the"
        " requirement is left out",
    )
    MIN_VALUES = (
        "MinValues",
        "only types of instances that had a node are known, so minValues of a requirement is left"
        " out: pods that have a choice of many types in production would find too few",
    )
    STARTUP_TAINTS = (
        "StartupTaints",
        "nothing would take startup taints off, so nodes of the NodePool have none and take pods"
        " sooner; registrationDelay can stand for the time until they go",
    )

    # About workloads and their pods.
    LOGGED_BOUNDS = (
        "LoggedBounds",
        "its bounds are those that the log of cluster-autoscaler shows: it had no more to add",
    )
    LOG_LACKS = (
        "LogLacks",
        "the log of cluster-autoscaler lacks something, so less is expected of its decision",
    )
    HPA_FIXED = (
        "HpaFixed",
        "its workload keeps the number of pods that it had; --hpas metrics imports those whose"
        " metrics are known",
    )
    HPA_METRICS = (
        "HpaMetrics",
        "only CPU and memory of whole pods can be pretended; the other metrics are left out",
    )
    HPA_USAGE = (
        "HpaUsage",
        "each of its pods uses what they used on average when they were read, however many there"
        " are; metrics-server has to serve it",
    )
    TERMINATING = "Terminating", "it was being deleted"
    ENDED = "Ended", "it had ended"
    PENDING_UNKNOWN = (
        "PendingUnknown",
        "cluster-autoscaler's snapshot lacks the pods for which it found no room; add them with"
        " `--from pods.yaml` (kubectl get pods -A -o yaml)",
    )
    PENDING = "Pending", "pods were pending, and will be again"
    OWNER_CAME_OR_WENT = (
        "OwnerCameOrWent",
        "pods whose owner came or went while the cluster was read; import again to see them"
        " settled",
    )
    OWNER_UNKNOWN = (
        "OwnerUnknown",
        "its owner is of a kind that isn't imported; the same number of pods of that shape is",
    )
    LABELS_DIFFER = (
        "LabelsDiffer",
        "pods of one owner had another value of this label, or none; all go without",
    )
    STATIC_PODS = (
        "StaticPods",
        "static pods of nodes; a DaemonSet runs them on the groups of these nodes",
    )
    CONTROLLER_UNREAD = (
        "ControllerUnread",
        "it could not be read, and is made of its pods: a DaemonSet runs on the groups of their"
        " nodes, a StatefulSet has pods up to the highest ordinal",
    )
    PODS_OF_NODES_ELSEWHERE = (
        "PodsOfNodesElsewhere",
        "static pods, or pods of a DaemonSet, of nodes that aren't imported",
    )
    AS_ADMITTED = (
        "AsAdmitted",
        "pods of it ask for something else than its template, as a webhook, an autoscaler of pods"
        " or a limit of the namespace changed them; all get what most ask for",
    )
    PARTLY_DONE = "PartlyDone", "so many pods of the Job had succeeded; only the rest is to do"
    SUSPENDED = (
        "Suspended",
        "it is suspended: it would begin Jobs at times that have nothing to do with a rehearsal",
    )
    NOT_SCHEDULING = "NotScheduling", "what doesn't decide where pods are scheduled is never kept"
    INVALID_FIELD = (
        "InvalidField",
        "its value is of a type that no API server takes, so it is left out",
    )
    UNKNOWN_FIELDS = "UnknownFields", "it has fields that are not known here, and they are left out"
    RESOURCE_CLAIMS = "ResourceClaims", "claims of devices aren't imported; the pods ask for none"
    SCHEDULING_GATES = (
        "SchedulingGates",
        "nobody would open the gates; the pods are scheduled at once",
    )
    READINESS_GATES = "ReadinessGates", "nobody would open the gates; the pods are Ready without"
    NO_PRIORITY_CLASS = (
        "NoPriorityClass",
        "its PriorityClass could not be read; the pods have no priority",
    )
    NO_RUNTIME_CLASS = (
        "NoRuntimeClass",
        "its RuntimeClass could not be read; the pods have no overhead",
    )
    BOUND_TO_NODE = (
        "BoundToNode",
        "it, or a volume of it, asks for nodes by name, or by a label that no group has, and gets"
        " their groups",
    )
    BOUND_BY_VOLUME = (
        "BoundByVolume",
        "a volume bound it to a place; it asks for nodes there instead",
    )
    NODE_UNKNOWN = (
        "NodeUnknown",
        "it says something of a node by name that can't be said of a group, or of a node that"
        " isn't imported; that condition is left out",
    )
    STOOD_ELSEWHERE = (
        "StoodElsewhere",
        "pods of it were on nodes that aren't imported; the scheduler finds them another place",
    )
    TOO_MANY_PLACES = (
        "TooManyPlaces",
        "its volumes and its affinity have too many alternatives together; the place of a volume"
        " is left out",
    )
    VOLUMES_IN_SEVERAL_PLACES = (
        "VolumesInSeveralPlaces",
        "its pods have volumes in several places; each may now be in any of them",
    )
    NAMESPACE_MOVED = (
        "NamespaceMoved",
        "every cluster has a namespace of the former name, with objects of its own that these must"
        " not replace",
    )
    NAME_TAKEN = (
        "NameTaken",
        "an object of a namespace that is moved has this name, too; import one of the two"
        " namespaces alone",
    )
    NAMESPACE_LABELS = (
        "NamespaceLabels",
        "labels of a namespace that every cluster has aren't imported; pods that select it by them"
        " find none there",
    )
    POD_SECURITY = (
        "PodSecurity",
        "a label that would refuse pods without a security context is left out",
    )
    QUOTA_UNUSED = "QuotaUnused", "no pod uses up what it limits"
    NOTHING_LEFT = "NothingLeft", "nothing of it concerns pods"


@dataclass(frozen=True, slots=True)
class Note:
    """An entry of the ledger. `dropped`: the object was left out as a whole. `field` is the path
    that was changed, `detail` adds to the reason, `count` is the number of objects that the note
    stands for.
    """

    ref: Ref
    reason: Reason
    field: str = ""
    detail: str = ""
    count: int = 1
    dropped: bool = False
