"""Decides which changes of a group are worth an Event, and in what words.

It compares the status before a pass with the status after it, so unchanged conditions are not
reported again, not even after a restart. The beginning of a condition is reported in the words of
its message, and its end is reported, too: somebody who reads only the Events learns how it ended.
"""

from collections.abc import Iterable, Iterator, Mapping

from kwok_operator.formats.words import few_names
from kwok_operator.kube.events import EventType, Recorder
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec, UpdateStrategyType
from kwok_operator.nodegroups.api.status import (
    ALL_ARRIVED,
    FAILURES,
    UNIT_OUTAGE,
    Condition,
    ConditionType,
    KwokNodeGroupStatus,
)
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.plan import Plan
from kwok_operator.nodegroups.status import UPDATING

_WARNINGS = {
    (ConditionType.TEMPLATE_RESOLVED, "False"),
    (ConditionType.TEMPLATE_RESOLVED, "Unknown"),
    (ConditionType.STALLED, "True"),
    (ConditionType.FOREIGN_NODES, "True"),
    (ConditionType.AUTOSCALABLE, "False"),
    (ConditionType.COMPANIONS_PRESENT, "False"),
    (ConditionType.OUTAGE, "True"),
    (ConditionType.CLOUD_SIMULATED, "False"),
}
_REPORTED = {
    *_WARNINGS,
    (ConditionType.SCALING_LIMITED, "True"),
    (ConditionType.PAUSED, "True"),
    (ConditionType.READY, "True"),
}
_TROUBLE = (
    (ConditionType.TEMPLATE_RESOLVED, "True", "TemplateResolved"),
    (ConditionType.STALLED, "False", "Recovered"),
    (ConditionType.PAUSED, "False", "Resumed"),
    (ConditionType.SCALING_LIMITED, "False", "WithinLimits"),
    (ConditionType.FOREIGN_NODES, "False", "NoForeignNodes"),
    (ConditionType.AUTOSCALABLE, "True", "Drivable"),
    (ConditionType.PROVISIONED, "True", ALL_ARRIVED),
    (ConditionType.OUTAGE, "False", "OutageOver"),
    (ConditionType.CLOUD_SIMULATED, "True", "Held"),
)
"""Conditions whose trouble is reported when it ends: the condition's type, its status without
trouble, and the reason of the Event."""
_KWOK_SILENT = "KwokNotResponding"
_OUTAGE = "Outage"
_ARRIVING = (*FAILURES, ALL_ARRIVED)

_Conditions = Mapping[str, Condition]


def announce(
    recorder: Recorder,
    group: Group,
    *,
    before: KwokNodeGroupStatus,
    after: KwokNodeGroupStatus,
    plan: Plan,
    cautions: Iterable[str] = (),
) -> None:
    """Emits the Events about a pass that has just written the status `after` in place of `before`.
    `cautions` are warnings about the group's spec."""
    old, new = _by_type(before.conditions), _by_type(after.conditions)
    if before.template_hash and before.template_hash != after.template_hash:
        recorder.emit(group, "Normal", "TemplateChanged", _template_changed(group.spec, after))
    failed = recorder.last_said(group, _ARRIVING) in FAILURES
    for cause, reason, message in _ended(old, new, after=after, failed=failed):
        recorder.emit(group, "Normal", reason, message, log={"over": f"{group.name}: {cause}"})
    _announce_scaling(recorder, group, before=before, after=after, plan=plan)
    if plan.unknown and before.observed_generation != after.observed_generation:
        message = (
            f"spec.scaleDown.nodesToDelete names nodes that this group does not have: "
            f"{few_names(plan.unknown)}. Nothing is done about them."
        )
        recorder.emit(group, "Warning", "UnknownNodes", message)
    if before.observed_generation != after.observed_generation:
        for sentence in cautions:
            recorder.emit(group, "Warning", "Caution", f"{sentence}.")
    for cause, kind, reason, message in _begun(old, after.conditions):
        recorder.emit(group, kind, reason, message, log={"trouble": f"{group.name}: {cause}"})


def announce_slowness(recorder: Recorder, group: Group) -> None:
    """Emits an Event that the API server slows down the work on a group."""
    message = (
        "The API server has too much to do, or fails: fewer nodes are written at once until it has"
        " recovered."
    )
    recorder.emit(group, "Normal", "Throttled", message)


def _announce_scaling(
    recorder: Recorder,
    group: Group,
    *,
    before: KwokNodeGroupStatus,
    after: KwokNodeGroupStatus,
    plan: Plan,
) -> None:
    there, target = after.replicas, plan.target.value
    new = sum(serial >= before.next_serial for serial in plan.pending)
    new -= plan.replaced + plan.ended
    if new > 0 and after.next_serial > before.next_serial:
        message = f"Scaling up from {there} to {target}: {_nodes(new)} to create."
        recorder.emit(group, "Normal", "ScalingUp", message)
    settled = any(c.type == ConditionType.READY and c.status == "True" for c in before.conditions)
    going = len(plan.delete) - plan.replaced - plan.ended
    if going and (settled or before.observed_generation != after.observed_generation):
        message = f"Scaling down from {there} to {target}: {_nodes(going)} to delete."
        recorder.emit(group, "Normal", "ScalingDown", message)


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _template_changed(spec: KwokNodeGroupSpec, after: KwokNodeGroupStatus) -> str:
    outdated = after.replicas - after.updated_replicas
    sentence = f"New nodes are made from template {after.template_hash}."
    if not outdated:
        return sentence
    kept = spec.update_strategy.type is UpdateStrategyType.ON_DELETE
    what = "kept as they are" if kept else "brought to it"
    return f"{sentence} {_nodes(outdated)} of a former one: {what} ({spec.update_strategy.type})."


def _begun(
    old: _Conditions, conditions: Iterable[Condition]
) -> Iterator[tuple[str, EventType, str, str]]:
    """Yields (reason of the condition, type, reason and message of the Event) for each condition
    that begins."""
    said: set[str] = set()  # one cause can change several conditions; it gets one Event
    for condition in conditions:
        missing = condition.type == ConditionType.PROVISIONED and _failed(condition)
        worth = (condition.type, condition.status) in _REPORTED or condition.reason == UPDATING
        if not (worth or missing) or condition.reason in said:
            continue
        before = old.get(condition.type)
        if before is None or _differs(before, condition):
            said.add(condition.reason)
            warning = missing or (condition.type, condition.status) in _WARNINGS
            reason = _OUTAGE if condition.type == ConditionType.OUTAGE else condition.reason
            kind: EventType = "Warning" if warning else "Normal"
            yield condition.reason, kind, reason, condition.message


def _differs(before: Condition, now: Condition) -> bool:
    """Whether a condition has begun anew: its status or reason differs, or the outage that it
    reports is of other units (zones, racks) than before."""
    other_units = now.reason == UNIT_OUTAGE and before.message != now.message
    return other_units or (before.status, before.reason) != (now.status, now.reason)


def _ended(
    old: _Conditions, new: _Conditions, *, after: KwokNodeGroupStatus, failed: bool
) -> Iterator[tuple[str, str, str]]:
    """Yields (reason that the condition had, reason and message of the Event) for each condition
    that ends.

    That all instances have arrived is reported only after failed ones: the condition reported
    them last, or an earlier Event did (`failed`).
    """
    over: set[str] = set()
    for kind, well, reason in _TROUBLE:
        before, now = old.get(kind), new.get(kind)
        if before is None or now is None or now.status != well or before.status == well:
            continue
        arrived = kind == ConditionType.PROVISIONED
        if before.reason in over or (arrived and not (failed or _failed(before))):
            continue
        over.add(before.reason)
        if before.reason == _KWOK_SILENT and after.ready_replicas == after.replicas > 0:
            said = "KwokResponding", "A kwok controller looks after the nodes again."
        elif kind == ConditionType.PAUSED:
            said = reason, "spec.paused is false: the group is brought to its target again."
        else:
            said = reason, now.message
        yield before.reason, *said


def _failed(condition: Condition) -> bool:
    """Whether the condition's reason says that instances failed, not only that they are late."""
    return condition.reason in FAILURES


def _by_type(conditions: Iterable[Condition]) -> _Conditions:
    return {condition.type: condition for condition in conditions}
