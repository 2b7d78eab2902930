"""Which transitions of a group are worth an Event, and in what words.

Compares the status before a pass with the one after it: what did not change is not said again,
after a restart neither.
"""

from kwok_operator.controller.groups import Group
from kwok_operator.controller.recorder import EventType, Recorder
from kwok_operator.core.plan import Plan
from kwok_operator.core.status import UPDATING, names_in_words
from kwok_operator.models.status import ConditionType, KwokNodeGroupStatus

_WARNINGS = {
    (ConditionType.TEMPLATE_RESOLVED, "False"),
    (ConditionType.TEMPLATE_RESOLVED, "Unknown"),
    (ConditionType.STALLED, "True"),
    (ConditionType.FOREIGN_NODES, "True"),
    (ConditionType.AUTOSCALABLE, "False"),
}
_TOLD = {
    *_WARNINGS,
    (ConditionType.SCALING_LIMITED, "True"),
    (ConditionType.PAUSED, "True"),
    (ConditionType.READY, "True"),
}


def announce(
    recorder: Recorder,
    group: Group,
    *,
    before: KwokNodeGroupStatus,
    after: KwokNodeGroupStatus,
    plan: Plan,
) -> None:
    """Emits what a pass that has just written `after` has to tell."""
    new = sum(serial >= before.next_serial for serial in plan.pending) - plan.replaced
    if new > 0 and after.next_serial > before.next_serial:
        message = (
            f"Creating {new} nodes: {after.replicas} exist, {plan.target.value} are the target."
        )
        recorder.emit(group, "Normal", "ScalingUp", message)
    settled = any(c.type == ConditionType.READY and c.status == "True" for c in before.conditions)
    going = len(plan.delete) - plan.replaced
    if going and (settled or before.observed_generation != after.observed_generation):
        message = (
            f"Deleting {going} nodes: {after.replicas} exist, {plan.target.value} are the target."
        )
        recorder.emit(group, "Normal", "ScalingDown", message)
    if plan.unknown and before.observed_generation != after.observed_generation:
        message = (
            f"spec.scaleDown.nodesToDelete names nodes that this group does not have: "
            f"{names_in_words(plan.unknown)}. Nothing is done about them."
        )
        recorder.emit(group, "Warning", "UnknownNodes", message)
    old = {c.type: (c.status, c.reason) for c in before.conditions}
    said: set[str] = set()  # one cause can turn several conditions, and is told once
    for condition in after.conditions:
        worth = (condition.type, condition.status) in _TOLD or condition.reason == UPDATING
        told = worth and condition.reason not in said
        if told and old.get(condition.type) != (condition.status, condition.reason):
            said.add(condition.reason)
            warning = (condition.type, condition.status) in _WARNINGS
            kind: EventType = "Warning" if warning else "Normal"
            recorder.emit(group, kind, condition.reason, condition.message)
