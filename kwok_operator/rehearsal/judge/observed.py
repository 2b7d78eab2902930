"""Reads from an object the state that a recording keeps of it, and that figures are computed from.

    object as the API server sends it --node, pod, group, node_claim, ...--> its state

Changes that don't change this state, such as heartbeats, aren't recorded. Amounts are integers: CPU
in thousandths, everything else in its own unit. Values that can't be read are left out; an object
is never refused.

The time of a change is when it was seen here, exact to milliseconds. If it was seen late, it is the
timestamp in the object, which has whole seconds. Only what the first list shows is older than the
run, whatever timestamps say: the cluster's clock may differ from ours.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from kwok_operator.cloud.summary import COUNTED
from kwok_operator.constants import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_PRICE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODE_POOL_LABEL,
    REHEARSED_LABEL,
    REQUESTED_AT_ANNOTATION,
    UNREGISTERED_TAINT_KEY,
    ZONE_LABEL,
)
from kwok_operator.formats.podparts import (
    MAX_AMOUNT,
    amounts,
    dicts,
    gang,
    is_sidecar,
    requests,
    selects,
    workload,
)
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.times import parse_duration, parse_time
from kwok_operator.formats.untyped import as_map, as_texts, condition_of
from kwok_operator.kube.taints import is_not_ready_taint, is_unreachable_taint
from kwok_operator.nodegroups.api.status import PROVISIONING, ConditionType
from kwok_operator.nodegroups.naming import group_of_node
from kwok_operator.rehearsal.judge.clocks import ClockOffset
from kwok_operator.rehearsal.judge.recording import (
    EARLIEST,
    MAX_COUNT,
    MAX_SECONDS,
    BudgetState,
    EventLine,
    GroupState,
    JobState,
    NodeClaimState,
    NodeState,
    PodGroupState,
    PodState,
)

LATE_MS: Final = 1_500
"""Milliseconds. A timestamp is up to a second older than its event, and the watch delivers late."""
_MAX_TEXT: Final = 300
_MAX_MESSAGE: Final = 32_768
"""The most characters of a condition's message: as in Kubernetes' own API."""
_PREEMPTED: Final = re.compile(r"Preempted by pod (\S+) on node ")
_NO_SELECTORS: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True)
class StampClock:
    """Converts timestamps to seconds since the run began; `began` is in milliseconds since the
    epoch.

    `offset` is the offset of the clock from which the cluster takes its timestamps.
    """

    began: int
    offset: ClockOffset = field(default_factory=ClockOffset)

    def at(self, stamp: object, *, seen: float) -> float:
        """Returns when something happened: at `seen`, or at the object's timestamp if it was seen
        late.

        A negative `seen` means that the object was in the first list, so it is older than the run.
        """
        stamped = self._milliseconds(stamp)
        if stamped is None:
            return seen
        stamped -= round(self.offset.ahead * 1_000)
        if seen * 1_000 - stamped < LATE_MS + self.offset.error * 1_000:
            return seen
        moment = round(stamped / 1_000 + 0.5, 3)
        return max(moment, EARLIEST if seen < 0 else 0.0)

    def seconds(self, stamp: object) -> float | None:
        """Converts a timestamp that was written on this machine to seconds since the run began;
        None if it is no timestamp.
        """
        stamped = self._milliseconds(stamp)
        seconds = None if stamped is None else stamped / 1_000
        return seconds if seconds is None or EARLIEST <= seconds <= MAX_SECONDS else None

    def _milliseconds(self, stamp: object) -> int | None:
        try:
            return parse_time(stamp) - self.began if isinstance(stamp, str) else None
        except ValueError:
            return None


def node(
    body: Mapping[str, Any],
    *,
    price: float | None,
    before: NodeState | None,
    seen: float,
    clock: StampClock,
    levels: Sequence[str] = (),
) -> NodeState:
    """Returns the state of a Node. `price` is its group's price per hour; if it is None, the node
    has the price in its label, or keeps its last price. `levels` are the labels of its topology.
    """
    metadata, spec, status = _parts(body)
    requested_at = as_map(metadata.get("annotations")).get(REQUESTED_AT_ANNOTATION)
    born = metadata.get("creationTimestamp")
    kept_off = any(map(_keeps_off, dicts(spec.get("taints"))))
    allocatable = amounts(status.get("allocatable"))
    # Devices may be added late: until then, a new node's shape is that of the node it replaces.
    shaping = tuple(sorted((k, v) for k, v in allocatable.items() if "/" not in k))
    instance_type, zone = _label(metadata, INSTANCE_TYPE_LABEL), _label(metadata, ZONE_LABEL)
    if price is None:
        price = _offered_price(metadata)
    return NodeState(
        group=group_of(body),
        pool=_label(metadata, NODE_POOL_LABEL),
        zone=zone,
        instance_type=instance_type,
        shape=_shape(shaping, instance_type, zone, _label(metadata, CAPACITY_TYPE_LABEL)),
        ready=_holds(body, "Ready") and not kept_off,
        schedulable=spec.get("unschedulable") is not True,
        deleting=bool(metadata.get("deletionTimestamp")),
        allocatable=allocatable,
        price=before.price if price is None and before else price,
        created=before.created if before else clock.at(born, seen=seen),
        requested=before.requested if before else clock.seconds(requested_at),
        topology=_stands(metadata, levels) if levels else (),
    )


def _stands(metadata: Mapping[str, Any], levels: Sequence[str]) -> tuple[str, ...]:
    values = tuple(_label(metadata, level) for level in levels)
    return values if any(values) else ()


def _offered_price(metadata: Mapping[str, Any]) -> float | None:
    return _number(as_map(metadata.get("labels")).get(INSTANCE_PRICE_LABEL))


def _keeps_off(taint: Mapping[str, Any]) -> bool:
    """Whether the taint means that the node isn't Ready, reachable or registered."""
    return (
        is_not_ready_taint(taint)
        or is_unreachable_taint(taint)
        or taint.get("key") == UNREGISTERED_TAINT_KEY
    )


def group_of(node: Mapping[str, Any]) -> str:
    """Returns the name of the node's group; empty if it has none."""
    metadata = as_map(node.get("metadata"))
    labels, annotations = (as_texts(metadata.get(part)) for part in ("labels", "annotations"))
    return group_of_node(labels, annotations)


def pod(
    body: Mapping[str, Any],
    *,
    before: PodState | None,
    seen: float,
    clock: StampClock,
    selectors: Mapping[str, object] = _NO_SELECTORS,
) -> PodState:
    """Returns the state of a Pod. Times of what has happened already, and fields that never change,
    are copied from `before`, its previous state.

    `selectors` are the selectors of existing PodDisruptionBudgets, by NAMESPACE/NAME.
    """
    metadata, spec, status = _parts(body)
    scheduled = condition_of(body, "PodScheduled")
    phase, node_name = _text(status.get("phase")) or "Pending", _text(spec.get("nodeName"))
    if before is None:
        whose, (of, least) = workload(metadata), gang(metadata, spec)
        before = PodState(
            workload=whose,
            rehearsed=_rehearsed(metadata, whose),
            created=clock.at(metadata.get("creationTimestamp"), seen=seen),
            requests=requests(spec),
            priority=_whole(spec.get("priority")),
            gang=of,
            least=min(least, MAX_COUNT),
            claims=len(dicts(spec.get("resourceClaims"))),
        )
    bound, running, budgets = before.bound, before.running, before.budgets
    covered = _covering(metadata, selectors) if selectors else ()
    disrupted = condition_of(body, "DisruptionTarget")
    why = _text(disrupted.get("reason")) if disrupted.get("status") == "True" else ""
    # As in the API server, no budget protects a pod that doesn't run, or is being deleted.
    if why and not before.disrupted and phase == "Running" and not before.deleting:
        budgets = covered
    if bound is None and node_name:
        bound = clock.at(scheduled.get("lastTransitionTime"), seen=seen)
    if running is None and ((started := _started(status)) or phase == "Running"):
        running = clock.at(started, seen=seen)
    return replace(
        before,
        phase=phase,
        node=node_name,
        bound=bound,
        running=running,
        ready=_holds(body, "Ready"),
        deleting=bool(metadata.get("deletionTimestamp")),
        restarts=_whole(
            sum(_whole(each.get("restartCount")) for each in _kept_running(spec, status))
        ),
        why="" if node_name else _text(scheduled.get("message"), limit=_MAX_MESSAGE),
        reason=_text(status.get("reason")) or _waits_for(status),
        disrupted=why,
        budgets=budgets,
        covered=covered,
    )


def _covering(metadata: Mapping[str, Any], selectors: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the names of the PodDisruptionBudgets in the pod's namespace that cover it."""
    namespace, labels = _text(metadata.get("namespace")), as_map(metadata.get("labels"))
    split = ((name.partition("/"), selector) for name, selector in selectors.items())
    return tuple(
        sorted(
            name
            for (where, _, name), selector in split
            if where == namespace and selects(selector, labels)
        )
    )


def _rehearsed(metadata: Mapping[str, Any], workload: str) -> str:
    """Returns the scenario's workload in a label; empty if `workload` has the same name."""
    name = _label(metadata, REHEARSED_LABEL)
    return "" if workload.rpartition("/")[2] == name else name


def group(body: Mapping[str, Any]) -> GroupState:
    """Returns the state of a KwokNodeGroup."""
    _, spec, status = _parts(body)
    counts, price = as_map(as_map(status.get("cloud")).get("counts")), as_map(spec.get("price"))
    return GroupState(
        target=_whole(spec.get("targetSize")),
        replicas=_whole(status.get("replicas")),
        ready=_whole(status.get("readyReplicas")),
        states={
            state.value: _whole(counts[key]) for key, state in COUNTED.items() if key in counts
        },
        price=_number(price.get("hourly")),
        currency=_text(price.get("currency")),
        conditions={
            _text(each.get("type")): _text(each.get("status"))
            for each in dicts(status.get("conditions"))
        },
        maximum=_maximum(as_map(spec.get("autoscaling"))),
        says=_missing(body),
    )


def _maximum(autoscaling: Mapping[str, Any]) -> int | None:
    most = autoscaling.get("maxSize")
    return _whole(most) if isinstance(most, int) else None


def _missing(group: Mapping[str, Any]) -> str:
    """Returns why a group's instances are missing, from the message of its condition."""
    provisioned = condition_of(group, ConditionType.PROVISIONED)
    waits = provisioned.get("status") != "False" or provisioned.get("reason") == PROVISIONING
    return "" if waits else _text(provisioned.get("message"), limit=_MAX_MESSAGE)


def preemptor(event: EventLine) -> str:
    """Returns the UID of the pod for which the scheduler preempted the Event's pod; empty if the
    Event is no preemption.
    """
    match = _PREEMPTED.match(event.message) if event.reason == "Preempted" else None
    return match[1] if match else ""


def event(body: Mapping[str, Any]) -> EventLine:
    """Returns the line of a core/v1 Event. Its time is 0, which the caller replaces. Its count is
    that of the Event's series, if it has one.
    """
    about = as_map(body.get("involvedObject"))
    source = _text(as_map(body.get("source")).get("component"))
    count = _whole(as_map(body.get("series")).get("count")) or _whole(body.get("count"))
    return EventLine(
        0.0,
        type=_text(body.get("type")),
        reason=_text(body.get("reason")),
        about="/".join(_text(about.get(key)) for key in ("kind", "namespace", "name")),
        component=source or _text(body.get("reportingComponent")),
        message=_text(body.get("message"), limit=None),  # an expectation may match any part of it
        count=count or 1,
    )


def budget(body: Mapping[str, Any]) -> BudgetState:
    """Returns the state of a PodDisruptionBudget."""
    status = _parts(body)[2]
    return BudgetState(
        allowed=_whole(status.get("disruptionsAllowed")),
        healthy=_whole(status.get("currentHealthy")),
        desired=_whole(status.get("desiredHealthy")),
    )


def job(
    body: Mapping[str, Any], *, before: JobState | None, seen: float, clock: StampClock
) -> JobState:
    metadata, spec, status = _parts(body)
    created = clock.at(metadata.get("creationTimestamp"), seen=seen)
    # A Job without completions is a work queue, complete when its condition says so.
    completions = spec.get("completions", 0 if spec.get("parallelism") is not None else 1)
    return JobState(
        created=before.created if before else created,
        wanted=_whole(completions),
        succeeded=_whole(status.get("succeeded")),
        failed=_whole(status.get("failed")),
        done=next((kind for kind in ("Complete", "Failed") if _holds(body, kind)), ""),
        rehearsed=_rehearsed(metadata, _text(metadata.get("name"))),
        parallelism=_at_once(spec),
    )


def _at_once(job: Mapping[str, Any]) -> int:
    """Returns how many pods of a Job run at once: its parallelism, at most its completions."""
    most, completions = _whole(job.get("parallelism", 1)), job.get("completions")
    return most if completions is None else min(most, _whole(completions))


def pod_group(body: Mapping[str, Any]) -> PodGroupState:
    """Returns the state of a PodGroup of scheduling.k8s.io, of scheduler-plugins or of Volcano."""
    _, spec, _ = _parts(body)
    policy = as_map(spec.get("schedulingPolicy"))
    if "gang" in policy:
        return PodGroupState(least=_whole(as_map(policy.get("gang")).get("minCount")))
    return PodGroupState(least=_whole(spec.get("minMember")))


def node_claim(
    body: Mapping[str, Any],
    *,
    price: float | None,
    before: NodeClaimState | None,
    seen: float,
    clock: StampClock,
) -> NodeClaimState:
    """Returns the state of a NodeClaim of Karpenter. `price` is its group's price per hour."""
    metadata, _, status = _parts(body)

    def moment(condition: str, known: float | None) -> float | None:
        if known is None and _holds(body, condition):
            return clock.at(condition_of(body, condition).get("lastTransitionTime"), seen=seen)
        return known

    created = clock.at(metadata.get("creationTimestamp"), seen=seen)
    return NodeClaimState(
        created=before.created if before else created,
        pool=_label(metadata, NODE_POOL_LABEL),
        node=_text(status.get("nodeName")),
        group=group_of(body),
        zone=_label(metadata, ZONE_LABEL),
        instance_type=_label(metadata, INSTANCE_TYPE_LABEL),
        capacity_type=_label(metadata, CAPACITY_TYPE_LABEL),
        price=_offered_price(metadata) if price is None else price,
        launched=moment("Launched", before.launched if before else None),
        registered=moment("Registered", before.registered if before else None),
        initialized=moment("Initialized", before.initialized if before else None),
        deleting=bool(metadata.get("deletionTimestamp")),
        reason=_why_disrupted(body),
    )


def _why_disrupted(claim: Mapping[str, Any]) -> str:
    """Returns why Karpenter ends a NodeClaim; empty if it doesn't, or if others end it.

    The reason is in the condition DisruptionReason, which Karpenter removes if it cancels the
    disruption. For a NodeClaim that expires, it writes no condition and only deletes it
    (nodeclaim/expiration/controller.go).
    """
    metadata, spec, _ = _parts(claim)
    disruption = condition_of(claim, "DisruptionReason")
    if disruption.get("status") == "True":
        return _text(disruption.get("reason"))
    stamps = ("creationTimestamp", "deletionTimestamp")
    try:
        created, deleted = (parse_time(str(metadata.get(key))) for key in stamps)
        expires = created + _span(spec.get("expireAfter")) * 1_000
    except ValueError:  # it isn't being deleted, or never expires
        return ""
    return "Expired" if deleted >= expires else ""


def consolidates_after(spec: Mapping[str, Any]) -> float:
    """Returns after how many seconds without a change Karpenter may consolidate nodes of a NodePool
    with this spec; infinity for Never.
    """
    disruption = as_map(spec.get("disruption"))
    try:
        return float(_span(disruption.get("consolidateAfter")))
    except (ValueError, OverflowError):  # Never
        return math.inf


def _span(value: object) -> int:
    """Reads a duration of Karpenter in seconds. Its parts may be in any order, and repeated. Raises
    ValueError, also for Never.
    """
    parts = re.findall(r"[0-9]+[hms]", text := str(value))
    if not parts or "".join(parts) != text:
        raise ValueError(f"{text!r} is no duration")
    return sum(map(parse_duration, parts))


def _parts(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(as_map(body.get(part)) for part in ("metadata", "spec", "status"))


def _label(metadata: Mapping[str, Any], key: str) -> str:
    return _text(as_map(metadata.get("labels")).get(key))


def _holds(body: Mapping[str, Any], condition: str) -> bool:
    return condition_of(body, condition).get("status") == "True"


def _containers(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    return dicts(status.get("containerStatuses"))


def _kept_running(spec: Mapping[str, Any], status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the statuses of a pod's containers and of its sidecars, which are init containers
    with restartPolicy Always.
    """
    inits = dicts(spec.get("initContainers"))
    sidecars = {_text(each.get("name")) for each in inits if is_sidecar(each)}
    of_inits = dicts(status.get("initContainerStatuses"))
    return [*_containers(status), *(e for e in of_inits if _text(e.get("name")) in sidecars)]


def _started(status: Mapping[str, Any]) -> str:
    """Returns when the first container began to run, even if it has ended; empty if none has."""
    for each in _containers(status):
        state = as_map(each.get("state"))
        for kind in ("running", "terminated"):
            if stamp := _text(as_map(state.get(kind)).get("startedAt")):
                return stamp
    return ""


def _waits_for(status: Mapping[str, Any]) -> str:
    for each in _containers(status):
        reason = as_map(as_map(each.get("state")).get("waiting")).get("reason")
        if reason:
            return _text(reason)
    return ""


@lru_cache(maxsize=1_024)
def _shape(allocatable: tuple[tuple[str, float], ...], *labels: str) -> str:
    # Thousands of nodes share a few shapes.
    text = json.dumps([allocatable, labels])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _text(value: object, *, limit: int | None = _MAX_TEXT) -> str:
    return value[:limit] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    try:
        number = float(parse_quantity(value))
    except ValueError:
        return None
    return number if 0 <= number <= MAX_AMOUNT else None


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_COUNT:
        return value
    return 0
