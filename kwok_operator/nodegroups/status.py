"""Makes a group's status: counts, conditions, and the sentences in them.

    Facts (what the reconciler knows)  --make_status-->  KwokNodeGroupStatus

Conditions follow the Kubernetes conventions (and kstatus, which Flux and Argo read): `Ready` is
good, `Reconciling` and `Stalled` are not. Each has the generation of the spec from which it was
computed, so that an old one never counts for a new spec. A reason is a word for programs and for
the STATUS column; a message is a sentence for people that says what to do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.formats.times import parse_time
from kwok_operator.formats.words import few_names
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.api.status import (
    LAST_SERIAL,
    PROVISIONING,
    Condition,
    ConditionType,
    KwokNodeGroupStatus,
    PendingBatch,
    Verdict,
    conditions_of,
)
from kwok_operator.nodegroups.autoscalable import DRIVABLE, FROM_ONE_NODE
from kwok_operator.nodegroups.plan import Rollout, Target
from kwok_operator.nodegroups.serials import LONGEST_GAP, MAX_BATCHES, Batch, Ranges, format_ranges

_LIKE_TARGET: Final = 4
_MOST_SKIPPED: Final = MAX_BATCHES * LONGEST_GAP
"""The most serials that all batches of a group may have together: _LIKE_TARGET times the target,
plus _MOST_SKIPPED for skipped ones. More are nothing that the operator wrote."""
UPDATING = "Updating"
"""The reason of Ready and Reconciling while nodes are updated to the present template."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a status is made from.

    Counts are nodes. `ready` are usable and have all their companions. `leaving` are to be deleted
    and still exist, `terminating` have been deleted and are held by a finalizer. `foreign` look
    like the group's nodes and are not. `out` are in an outage.

    `template_error` is the sentence why the template can't be used, `template_reason` the
    condition's reason for it; while `template_tried` is false the API server has not answered yet
    whether it can. `template_origin` says what the template is copied from, `last_template`
    (reason, sentence) why only the last known one is in use. `kwok_silent` is the sentence why no
    kwok controller seems to run. `refusal` is the API server's answer to the last write of a node
    that it refused. `rollout` is the update in progress.

    `autoscaled` says whether cluster-autoscaler may drive the group, `hindrance` (reason, sentence)
    why it can't; `known_from_one` says that cluster-autoscaler learns everything about the group's
    nodes only from an existing one. `conditions` and `fields` come from the steps of the pass
    (nodegroups/steps.py).
    """

    generation: int
    target: Target
    paused: bool
    replicas: int
    ready: int
    updated: int
    pending: int
    failed: int
    leaving: int
    terminating: Sequence[str]
    foreign: Sequence[str]
    next_serial: int
    batches: tuple[Batch, ...]
    template_error: str | None = None
    template_reason: str = "TemplateInvalid"
    template_tried: bool = True
    template_origin: str = ""
    last_template: tuple[str, str] | None = None
    kwok_silent: str | None = None
    refusal: str | None = None
    rollout: Rollout | None = None
    out: int = 0
    autoscaled: bool = False
    hindrance: tuple[str, str] | None = None
    known_from_one: bool = False
    conditions: Mapping[ConditionType, Verdict] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def make_status(
    facts: Facts,
    *,
    group: str,
    previous: KwokNodeGroupStatus,
    resolved: tuple[dict[str, object], str, str] | None,
    now: str,
) -> KwokNodeGroupStatus:
    """Returns the status to write; equal to `previous` if nothing has changed.

    `resolved` is the template in use, its hash and its source; if it is None the previous one
    stays. `now` (RFC 3339) dates the conditions that changed.
    """
    node, node_hash, node_source = resolved or (
        previous.resolved_template,
        previous.template_hash,
        previous.template_source,
    )
    return KwokNodeGroupStatus(
        replicas=facts.replicas,
        ready_replicas=facts.ready,
        updated_replicas=facts.updated,
        pending_replicas=facts.pending,
        failed_replicas=facts.failed,
        target_size=facts.target.value,
        observed_generation=facts.generation,
        selector=f"{constants.NODE_GROUP_LABEL}={group}",
        next_serial=facts.next_serial,
        pending=tuple(_to_record(batch) for batch in facts.batches),
        resolved_template=node,
        template_hash=node_hash,
        template_source=node_source,
        conditions=conditions_of(
            Condition,
            _verdicts(facts),
            previous=previous.conditions,
            generation=facts.generation,
            now=now,
        ),
        **facts.fields,
    )


def batches_of(status: KwokNodeGroupStatus) -> tuple[Batch, ...]:
    """Returns the batches recorded in a status.

    Batches that the operator can't have written are left out, and their instances requested anew.
    If all batches together have more serials than the group can need, the oldest are left out, too:
    each pass goes through all serials.
    """
    batches, most = list[Batch](), _LIKE_TARGET * (status.target_size or 0) + _MOST_SKIPPED
    room = min(most, 2 * MAX_TARGET_SIZE)
    for record in reversed(status.pending):
        batch = _from_record(record, room=room)
        if batch is not None:
            batches.append(batch)
            room -= batch.last - batch.first + 1
    return tuple(reversed(batches))


def nodes_by_state(facts: Facts, *, terminating: int) -> dict[str, int]:
    """Counts a group's nodes by state; `terminating` is the number of those being deleted."""
    return {
        "ready": facts.ready,
        "not_ready": facts.replicas - facts.ready,
        "pending": facts.pending - facts.failed,
        "failed": facts.failed,
        "terminating": terminating,
    }


def oldest_pending(status: KwokNodeGroupStatus) -> str | None:
    """Returns when the oldest pending instance was requested (RFC 3339); None if none is
    pending."""
    if not status.pending_replicas:
        return None
    return min((batch.requested_at for batch in status.pending), default=None)


def _from_record(record: PendingBatch, *, room: int) -> Batch | None:
    if not 0 <= record.first <= record.last < record.first + room or record.last > LAST_SERIAL:
        return None
    try:
        parse_time(record.requested_at)
        spent = Ranges(record.except_ or "")
    except ValueError:
        return None
    if not spent.is_within(record.first, record.last):
        return None
    return Batch(record.first, record.last, record.requested_at, frozenset(spent))


def _to_record(batch: Batch) -> PendingBatch:
    return PendingBatch(
        first=batch.first,
        last=batch.last,
        requested_at=batch.requested_at,
        except_=format_ranges(batch.spent),
    )


def _verdicts(facts: Facts) -> dict[ConditionType, Verdict]:
    stalled = _stalled(facts)
    ready = _ready(facts, stalled)
    verdicts = {
        ConditionType.READY: ready,
        ConditionType.RECONCILING: _reconciling(facts, ready, stalled),
        ConditionType.STALLED: stalled,
        ConditionType.TEMPLATE_RESOLVED: _template_resolved(facts),
        ConditionType.SCALING_LIMITED: _scaling_limited(facts),
        ConditionType.PAUSED: _paused(facts),
        ConditionType.FOREIGN_NODES: _foreign_nodes(facts),
    }
    if facts.autoscaled:
        verdicts[ConditionType.AUTOSCALABLE] = _autoscalable(facts)
    return {**verdicts, **facts.conditions}


def _ready(facts: Facts, stalled: Verdict) -> Verdict:
    counts = f"{facts.ready} of {facts.target.value} nodes are usable"
    settled = _settled(facts) and not facts.rollout
    if facts.template_error:
        return Verdict(False, stalled.reason, facts.template_error)
    if facts.target.limit and facts.target.limit.keeps_waiting:
        return Verdict(False, facts.target.limit.reason, facts.target.limit.message)
    if not settled and facts.paused:
        return Verdict(False, "Paused", f"{counts}; spec.paused holds the rest back.")
    if not settled and stalled.status:
        return Verdict(False, stalled.reason, stalled.message)
    if facts.rollout:
        return Verdict(False, UPDATING, _update_in_words(facts, facts.rollout))
    if not settled and (trouble := _trouble(facts)) is not None:
        return Verdict(False, trouble.reason, f"{counts}. {trouble.message}")
    if not settled:
        up = facts.replicas - facts.leaving < facts.target.value
        going = f", {facts.leaving} are leaving" if facts.leaving else ""
        return Verdict(False, "ScalingUp" if up else "ScalingDown", f"{counts}{going}.")
    if facts.ready < facts.replicas and stalled.status:
        return Verdict(False, stalled.reason, stalled.message)
    if facts.ready < facts.replicas:
        out = facts.conditions.get(ConditionType.OUTAGE)
        if out and out.status and facts.out:
            return Verdict(False, "Outage", f"{counts}. {out.message}")
        companions = facts.conditions.get(ConditionType.COMPANIONS_PRESENT)
        if companions and not companions.status:
            return Verdict(False, "CompanionsMissing", f"{counts}. {companions.message}")
        return Verdict(False, "NodesNotReady", f"{counts}.")
    return Verdict(True, "Ready", f"{counts}.")


def _trouble(facts: Facts) -> Verdict | None:
    """Returns the verdict that says why requested instances don't arrive; None if they do, or are
    on their way."""
    verdict = facts.conditions.get(ConditionType.PROVISIONED)
    unharmed = verdict is None or verdict.status or verdict.reason == PROVISIONING
    return None if unharmed else verdict


def _update_in_words(facts: Facts, rollout: Rollout) -> str:
    how = f"{rollout.strategy}"
    if rollout.held:
        how += " waits, because --max-total-nodes leaves no room for new nodes"
    elif rollout.max_unavailable is not None:
        how += f", at most {rollout.max_unavailable} unavailable"
    return f"{facts.updated} of {facts.target.value} nodes have the present template ({how})."


def _settled(facts: Facts) -> bool:
    return facts.replicas == facts.target.value and not facts.leaving


def _stalled(facts: Facts) -> Verdict:
    if facts.template_error:
        return Verdict(True, facts.template_reason, facts.template_error)
    if facts.refusal:
        return Verdict(True, "Refused", facts.refusal)
    if facts.kwok_silent and facts.ready < facts.replicas:
        return Verdict(True, "KwokNotResponding", facts.kwok_silent)
    return Verdict(False, "Progressing", "Nothing stands in the way.")


def _reconciling(facts: Facts, ready: Verdict, stalled: Verdict) -> Verdict:
    if facts.paused:
        return Verdict(False, "Paused", "spec.paused is true.")
    if stalled.status:
        return Verdict(False, "Stalled", stalled.message)
    at_rest = _settled(facts) and facts.ready == facts.replicas and not facts.rollout
    if (ready.status or at_rest) and facts.terminating:
        return Verdict(
            False,
            "NodesTerminating",
            f"Nothing is left to do. {few_names(facts.terminating)}: deleted, but held by a "
            "finalizer of somebody else; not counted.",
        )
    if ready.status or at_rest:
        return Verdict(False, "Settled", "Nothing is under way.")
    return Verdict(True, ready.reason, ready.message)


def _template_resolved(facts: Facts) -> Verdict:
    if facts.template_error:
        reason, tried = facts.template_reason, facts.template_tried
        return Verdict(False, reason, facts.template_error, known=tried)
    if facts.last_template:
        return Verdict(False, *facts.last_template, known=False)
    copied = f" Copied from {facts.template_origin}." if facts.template_origin else ""
    accepted = "The API server accepts the nodes that the template makes."
    return Verdict(True, "Resolved", f"{accepted}{copied}")


def _scaling_limited(facts: Facts) -> Verdict:
    limit = facts.target.limit
    if limit is None:
        return Verdict(False, "WithinLimits", f"The target of {facts.target.value} is in force.")
    target = f"The target in force is {facts.target.value}"
    return Verdict(True, limit.reason, f"{target}: {limit.message}")


def _paused(facts: Facts) -> Verdict:
    if facts.paused:
        return Verdict(
            True, "SpecPaused", "Nothing is created, deleted or updated until spec.paused is false."
        )
    return Verdict(False, "NotPaused", "spec.paused is false.")


def _foreign_nodes(facts: Facts) -> Verdict:
    if facts.foreign:
        return Verdict(
            True,
            "NotOurs",
            f"{few_names(facts.foreign)}: labelled or named as a node of this group, but not "
            "made for it. Left alone, and not counted. Remove the label "
            f"{constants.NODE_GROUP_LABEL} from it or delete it.",
        )
    return Verdict(False, "NoForeignNodes", "No foreign node carries this group's label or names.")


def _autoscalable(facts: Facts) -> Verdict:
    if facts.hindrance:
        return Verdict(False, *facts.hindrance)
    return Verdict(True, *(FROM_ONE_NODE if facts.known_from_one else DRIVABLE))
