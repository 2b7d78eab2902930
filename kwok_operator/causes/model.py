"""The chain of causes of a pod: what happened when, and in one sentence why it waits or waited.

    a recording --recorded-->  Chain --words--> lines of text
    a cluster   --live------>

This module owns the kinds of causes, with the sentence and the remedy of each. It doesn't know
where facts come from, nor how chains are shown.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kwok_operator.formats.autoscalertexts import GroupRefusal
from kwok_operator.formats.words import counted


class StepKind(StrEnum):
    """What a step of a chain is about. Steps of one moment are shown in this order."""

    CREATED = "created"
    UNSCHEDULABLE = "unschedulable"
    """The scheduler found no node for the pod."""
    REFUSED = "refused"
    """The autoscaler adds no node for the pod, at least not now."""
    DECIDED = "decided"
    """The autoscaler adds a node for the pod."""
    REQUESTED = "requested"
    """The node's instance was requested."""
    FAILED = "failed"
    """The cloud could not create an instance."""
    CREATING = "creating"
    NODE = "node"
    """The Node object exists."""
    USABLE = "usable"
    """The node is Ready, and has lost the taints that keep pods off new nodes."""
    BOUND = "bound"
    RUNNING = "running"
    HELD = "held"
    """A PodDisruptionBudget prevented the eviction of the pod."""
    DISRUPTED = "disrupted"
    """The pod was evicted or preempted."""
    ENDED = "ended"
    """The pod succeeded, failed, or was deleted."""


_ORDER: Final = {kind: place for place, kind in enumerate(StepKind)}


@dataclass(frozen=True, slots=True)
class ChainStep:
    at: float
    """In seconds, since the run began (of a recording) or since the pod was created (of a live
    cluster). Negative for what happened before.
    """
    kind: StepKind
    text: str
    """A clause such as `bound to a-000003`. It may quote other programs, so it may be long."""


class CauseKind(StrEnum):
    """Why a pod waits; or, for a pod that no longer waits, what became of it."""

    NO_AUTOSCALER = "noAutoscaler"
    """There is no sign of an autoscaler, or the autoscalers never add nodes for such a pod."""
    UNDECIDED = "undecided"
    """An autoscaler runs, and hasn't decided yet whether it adds a node for the pod."""
    REFUSED = "refused"
    """The autoscaler adds no node now; it may later."""
    NEVER = "never"
    """No existing or possible node fits the pod, as long as pod and groups stay as they are."""
    CREATING = "creating"
    NO_STOCK = "noStock"
    """The cloud can't create the instances that the autoscaler requested."""
    NOT_READY = "notReady"
    """The pod's node exists, and isn't usable yet."""
    UNSCHEDULED = "unscheduled"
    """A node that fits exists, and the scheduler hasn't bound the pod yet."""
    STARTING = "starting"
    """The pod is bound to a node, and doesn't run yet."""
    RUNNING = "running"
    HELD = "held"
    """The pod runs, and a PodDisruptionBudget prevented its eviction."""
    DISRUPTED = "disrupted"
    ENDED = "ended"
    UNKNOWN = "unknown"
    """The known facts don't show the cause; Chain.unknown says which facts are missing."""


WAITS: Final = frozenset(CauseKind) - {
    CauseKind.RUNNING,
    CauseKind.HELD,
    CauseKind.DISRUPTED,
    CauseKind.ENDED,
}
"""The kinds of causes of pods that still wait."""


@dataclass(frozen=True, slots=True)
class Cause:
    kind: CauseKind
    sentence: str
    """One sentence whose subject is `the pod`, without a full stop."""
    remedy: str = ""
    """What to do about it, as an imperative clause; empty if there is nothing to do."""
    refusals: tuple[GroupRefusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """What happened to one pod until it ran, step by step, and the cause of its wait."""

    pod: str
    """The pod, as NAMESPACE/NAME."""
    workload: str
    """The pod's workload, as KIND/NAMESPACE/NAME."""
    rehearsed: str
    """The name of the workload in the scenario, if it differs from `workload`."""
    steps: tuple[ChainStep, ...]
    """The steps, in the order of their times."""
    cause: Cause
    phases: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each phase, by figure such as `wait.decision`; they add up to the time from
    the pod's creation until it ran.
    """
    waited: float = 0.0
    """For how many seconds the pod waited to run; if it still waits, until now."""
    node: str = ""
    group: str = ""
    """The group or NodePool of the pod's node, or of the node that the pod waits for."""
    unknown: tuple[str, ...] = ()
    """Which facts are missing, each with what would show it."""

    @property
    def waits(self) -> bool:
        return self.cause.kind in WAITS


def in_order(steps: Iterable[ChainStep]) -> tuple[ChainStep, ...]:
    return tuple(sorted(steps, key=lambda step: (step.at, _ORDER[step.kind])))


_PASSING: Final = {
    "in backoff": "end what makes scale-ups of the group fail, or wait until its back-off is over",
    "max node group size reached": "raise the group's maximum size",
    "max cluster cpu limit reached": "raise cluster-autoscaler's --cores-total",
    "max cluster memory limit reached": "raise cluster-autoscaler's --memory-total",
    "max cluster": "raise cluster-autoscaler's limits of resources",
    "max limit reached": "raise the limit of the cluster's resources",
    "max total nodes in cluster reached": "raise cluster-autoscaler's --max-nodes-total",
    "not ready for scale-up": "see why the group's nodes don't become ready",
    "limits have been exhausted": "raise spec.limits of the NodePool",
    "exceed limits": "raise spec.limits of the NodePool",
}
"""Reasons of refusals that may end by themselves although the pod and the groups don't change, each
with its remedy. See cluster-autoscaler's core/scaleup/orchestrator/skippedreasons.go and
estimator/threshold_based_limiter.go, and Karpenter's scheduling/scheduler.go.
"""
_FITTING: Final = {
    "and the largest node": "let the pod request less, or add a group with larger nodes",
    "PersistentVolumeClaim": "see the pod's claims, and the provisioner of their StorageClass",
    "persistentvolumeclaim": "see the pod's claims, and the provisioner of their StorageClass",
    "PersistentVolume's": "see the pod's volumes: a volume may be used only in its own zone",
    "Insufficient": "let the pod request less, or add a group with larger nodes",
    "Too many pods": "add a group whose nodes take more pods",
    "existing pods anti-affinity": "loosen the anti-affinity of the pods that run, or add a group"
    " in another domain",
    "anti-affinity": "loosen the pod's anti-affinity, or add a group in another domain",
    "pod affinity": "loosen the pod's affinity, or run the pod that it wants to be near",
    "node affinity": "correct the pod's selector or affinity, or label a group's template so",
    "untolerated taint": "let the pod tolerate the taint, or add a group without it",
    "topology spread": "loosen the pod's topologySpreadConstraints, or add a group in that domain",
    "volume": "see the pod's volumes: a volume may be used only in its own zone",
    "instance type": "let the pod request less, or let the NodePool have larger instance types",
    "requirement": "correct the pod's selector, or let a NodePool have these labels",
}
"""Reasons why a pod doesn't fit a group's nodes, each with its remedy. They are texts of the
scheduler's plugins, which the autoscalers repeat.
"""


_FOR_OTHERS: Final = ("Pod's node affinity", "untolerated taint", "not tolerate")
"""Reasons that usually mean that a group is for other pods."""
_GENERAL: Final = (
    frozenset({"node affinity", "untolerated taint", "requirement"}),
    frozenset({"Insufficient", "and the largest node", "Too many pods", "instance type"}),
)
_LASTING: Final = (
    "Insufficient",
    "Pod's node affinity",
    "untolerated taint",
    "did not tolerate taint",
    "no instance type has enough resources",
    "incompatible requirements",
)
"""Reasons of refusals that last as long as the pod and the groups stay as they are. Other pods,
claims, volumes and the cloud's stock don't change them.
"""


def passes(reason: str) -> bool:
    """Whether this reason for adding no node for a pod may end although the pod stays as it is: by
    itself, or because of other programs."""
    return any(text in reason for text in _PASSING)


def lasts(reason: str) -> bool:
    """Whether this reason for adding no node for a pod lasts as long as the pod and the groups stay
    as they are."""
    return not passes(reason) and any(text in reason for text in _LASTING)


def remedy_of(reasons: Iterable[str]) -> str:
    """Returns the remedy for these reasons for adding no node; empty if none is known."""
    known = {**_PASSING, **_FITTING}
    keys = [next((k for k in known if k in reason), "") for reason in reasons]
    return "; or ".join(dict.fromkeys(known[key] for key in keys if key))


def known_reasons(text: str) -> frozenset[str]:
    """Returns the known reasons for adding no node that a text of the scheduler or an autoscaler
    contains. Two kinds of reasons explain little, and are left out if there are others: that groups
    are for other pods, and that nodes are full."""
    reasons = {each for each in (*_PASSING, *_FITTING) if each in text}
    reasons -= {one for one in reasons for other in reasons if one != other and one in other}
    for general in _GENERAL:
        reasons = reasons - general or reasons
    return frozenset(reasons)


def refusals_in_words(refusals: Sequence[GroupRefusal]) -> str:
    """Lists groups with their reasons: `2 groups: max node group size reached; a, b: ...`."""
    return "; ".join(
        f"{', '.join(each.names) or counted(each.groups, 'group')}: {each.reason}"
        for each in refusals
    )


def no_autoscaler(scheduler: str, too_large: str = "") -> Cause:
    """The cause of a pod that no autoscaler considers. `scheduler` is the scheduler's message;
    empty if there is none. `too_large` says which resource no node has enough of for the pod."""
    return Cause(
        CauseKind.NO_AUTOSCALER,
        f"no node fits the pod ({scheduler or 'the scheduler has not said why'}), and nothing"
        f" shows that an autoscaler runs{f'; {too_large}' if too_large else ''}",
        "run an autoscaler, or add a node that fits the pod",
    )


def of_a_daemon_set(scheduler: str) -> Cause:
    """The cause of a DaemonSet's pod without a node: cluster-autoscaler and Karpenter ignore such
    pods."""
    return Cause(
        CauseKind.NO_AUTOSCALER,
        f"no node fits the pod ({scheduler}), and no autoscaler adds nodes for pods of a DaemonSet",
        "make room on its node: let other pods or itself request less, or give it a priority",
    )


def unknown_autoscaler(scheduler: str) -> Cause:
    return Cause(
        CauseKind.UNKNOWN,
        f"no node fits the pod ({scheduler}), and whether an autoscaler runs isn't known",
        "read it with the rights in docs/why.md",
    )


def undecided(scheduler: str, *, since: float, old: float) -> Cause:
    """The cause of a pod of which no decision of an autoscaler is known. `since` is how many
    seconds ago the pod's wait began; after `old` seconds, an autoscaler has probably decided.
    """
    if since > old:
        return Cause(
            CauseKind.UNKNOWN,
            f"no node fits the pod ({scheduler or 'the scheduler has not said why'}), and for"
            f" {since:.1f} s no Event is seen that says what the autoscaler has decided",
            "see the autoscaler's log",
        )
    return Cause(
        CauseKind.UNDECIDED,
        f"no node fits the pod ({scheduler or 'the scheduler has not said why'}), and the"
        " autoscaler hasn't decided yet",
        "wait for its next loop: cluster-autoscaler's --scan-interval, Karpenter's"
        " --batch-idle-duration; see its log if nothing comes",
    )


def refused(
    refusals: Sequence[GroupRefusal],
    *,
    chosen: Collection[str] = (),
    no_node_ever: bool = False,
    too_large: str = "",
) -> Cause:
    """The cause of a pod for which an autoscaler adds no node, for the reasons in `refusals`. Its
    kind is NEVER if all these reasons last (see `lasts`) and no existing node can take the pod
    (`no_node_ever`), else REFUSED. `too_large` says which resource no node has enough of for the
    pod.

    cluster-autoscaler skips groups in back-off or at a limit before it checks whether the pod fits
    their nodes. So a skipped group says nothing about the pod, unless it was `chosen` for the pod
    before. Of groups whose nodes don't fit, those that are for other pods are named last.
    """
    passing = [each for each in refusals if passes(each.reason)]
    fitting = [each for each in refusals if not passes(each.reason)]
    fitting.sort(key=lambda each: _is_for_others(each.reason))
    # A group was chosen for this pod before it failed, so its nodes would fit the pod.
    passing.sort(key=lambda e: (not set(e.names) & set(chosen), "in backoff" in e.reason))
    fits = [each for each in passing if set(each.names) & set(chosen)]
    own = [] if fits else [each for each in fitting if not _is_for_others(each.reason)]
    if not passing:
        says, ordered = "no node that could be added fits the pod", fitting
        lasting = all(lasts(each.reason) for each in fitting)
        kind = CauseKind.NEVER if lasting and no_node_ever else CauseKind.REFUSED
        if kind is CauseKind.REFUSED and any(map(_is_for_size, fitting)):
            says += " (one that exists may, once it has room)"
    elif own:
        says, kind = "no group that the autoscaler looked at fits the pod", CauseKind.REFUSED
        ordered = [*fitting, *passing]
    else:
        says, kind = "the autoscaler adds no node now", CauseKind.REFUSED
        ordered = [*passing, *fitting]
    parts = [refusals_in_words(fitting), f"not looked at: {refusals_in_words(passing)}"]
    listed = "; ".join(parts) if passing and own else refusals_in_words(ordered)
    large = f"; {too_large}" if too_large and any(map(_is_for_size, own)) else ""
    about = own or fits or passing or fitting
    return Cause(
        kind, f"{says}: {listed}{large}", remedy_of(e.reason for e in about), tuple(ordered)
    )


def _is_for_size(refusal: GroupRefusal) -> bool:
    return "Insufficient" in refusal.reason


def no_group(too_large: str) -> Cause:
    """The cause of a pod for which cluster-autoscaler adds no node, and names no group that it has
    considered. `too_large` says which resource no node has enough of for the pod."""
    large = f"; {too_large}" if too_large else ""
    return Cause(
        CauseKind.REFUSED,
        "no node fits the pod now, and the autoscaler names no group that it could add a node to"
        f"{large}",
        "see the autoscaler's log for the groups that it knows",
    )


def _is_for_others(reason: str) -> bool:
    return any(text in reason for text in _FOR_OTHERS)


def never(why: str, *, says: str = "") -> Cause:
    """The cause of a pod that fits no node. `why` is a clause: `it requests 64 CPUs, and the
    largest node has 16`; `says` is the autoscaler's message.
    """
    sentence = f"the pod fits no node: {why}{f'; {says}' if says else ''}"
    return Cause(CauseKind.NEVER, sentence, remedy_of([why]))


def lost_claim(name: str, says: str) -> Cause:
    """The cause of a pod whose NodeClaim doesn't exist. `says` continues the sentence on it: `which
    has gone; why isn't known`."""
    return Cause(
        CauseKind.UNKNOWN,
        f"Karpenter has chosen NodeClaim {name} for the pod, {says}",
        "see the Events of the NodeClaim, and Karpenter's log",
    )


def creating(group: str, *, since: float, of: str = "") -> Cause:
    """The cause of a pod whose node is being created. `since` is how many seconds ago the node was
    requested; `of` names the node or its NodeClaim."""
    what = f"its node{f' {of}' if of else ''}{f' of {group}' if group else ''}"
    return Cause(
        CauseKind.CREATING, f"{what} was requested {since:.1f} s ago, and doesn't exist yet"
    )


def no_stock(group: str, says: str) -> Cause:
    """The cause of a pod for which the cloud can't create instances. `says` is the cloud's answer
    to the request for them."""
    return Cause(
        CauseKind.NO_STOCK,
        f"the cloud can't create the node that was requested of {group}: {says}",
        "let the autoscaler choose another group (zone, instance type) for this pod, or wait",
    )


def lost(node: str, group: str, *, since: float) -> Cause:
    return Cause(
        CauseKind.UNKNOWN,
        f"node {node} of {group} has gone {since:.1f} s ago, after the autoscaler had decided on"
        f" {group}, and nothing shows what it has decided since",
        f"see why nodes of {group} go, and the autoscaler's log",
    )


def not_ready(node: str, *, since: float, says: str = "") -> Cause:
    """The cause of a pod whose node isn't usable yet. `since` is how many seconds the Node has
    existed; `says` is what keeps it from being used.
    """
    return Cause(
        CauseKind.NOT_READY,
        f"its node {node} has existed for {since:.1f} s, and isn't usable yet"
        f"{f': {says}' if says else ''}",
        "see the node's conditions and taints",
    )


def no_longer_usable(node: str) -> Cause:
    return Cause(
        CauseKind.NOT_READY,
        f"its node {node} was usable, and isn't now",
        "see the node's conditions and taints",
    )


def unscheduled(node: str, *, since: float, scheduler: str = "") -> Cause:
    return Cause(
        CauseKind.UNSCHEDULED,
        f"{node} has been usable for {since:.1f} s, and the scheduler hasn't bound the pod to it"
        f"{f': {scheduler}' if scheduler else ''}",
        "wait for the scheduler's back-off (up to 10 s); if nothing comes, see what keeps the pod"
        " off this node",
    )


def unseen(*, since: float) -> Cause:
    return Cause(
        CauseKind.UNSCHEDULED,
        f"no scheduler has said anything about the pod for {since:.1f} s",
        "see whether the scheduler in spec.schedulerName runs",
    )


def gated() -> Cause:
    return Cause(
        CauseKind.UNSCHEDULED,
        "the pod has scheduling gates, so no scheduler looks for a node",
        "let the program that has set spec.schedulingGates remove them",
    )


def starting(node: str, *, since: float, reason: str = "") -> Cause:
    return Cause(
        CauseKind.STARTING,
        f"the pod was bound to {node} {since:.1f} s ago, and doesn't run yet"
        f"{f' ({reason})' if reason else ''}",
        "see the Events of the pod, and the kubelet of its node",
    )


def without_its_node(node: str, *, since: float) -> Cause:
    """The cause of a pod whose node is gone. `since` is how many seconds ago the pod was bound."""
    return Cause(
        CauseKind.STARTING,
        f"the pod was bound to {node} {since:.1f} s ago, and that node is gone",
        "wait until the pod garbage collector has deleted the pod, or delete it",
    )


def running(waited: float, longest: str = "") -> Cause:
    """The cause of a pod that runs after a wait. `longest` says in a clause which phase was
    longest.
    """
    return Cause(
        CauseKind.RUNNING, f"the pod ran after {waited:.1f} s{f', {longest}' if longest else ''}"
    )


def held(by: str) -> Cause:
    """The cause of a pod that runs, and whose PodDisruptionBudget protects its node from removal.
    `by` is a clause with the text of the Event: `its node is kept: ...`."""
    return Cause(
        CauseKind.HELD,
        f"the pod runs, and {by}",
        "run more replicas, or raise the budget's maxUnavailable",
    )


def disrupted(how: str) -> Cause:
    """The cause of a pod that lost its node. `how` is like `evicted by cluster-autoscaler: ...`."""
    return Cause(CauseKind.DISRUPTED, f"the pod was {how}")


def ended(how: str) -> Cause:
    return Cause(CauseKind.ENDED, f"the pod {how}")
