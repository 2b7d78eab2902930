"""Makes what is written into Nodes of a simulated cloud: at their creation, and in later patches.

    template's Node + Life, DesiredNode --born-->           the Node that begins its life
    Mark + DesiredNode                  --needs_shaping-->  whether there is something to write
    live Node + DesiredShape            --changes-->        merge patches, in order
    live Node + an edited template      --carried_over-->   the edit, without undoing its life

An annotation describes the state that was written last, so that most passes need not read the Node.
It is in the last patch: if a crash prevents that patch, the next pass writes what is missing. But
if a Ready Node gets the hold label, label and annotation come first, and the condition second: if a
crash prevents the second patch, the next pass sees that the Node is still Ready. Taints, labels and
conditions of others stay as they are.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.cloud.annotations import CLOUD_ANNOTATIONS, Mark, dump_life, read_life
from kwok_operator.cloud.api.cloud import Cloud, Interruptions
from kwok_operator.cloud.draws import instance_seed
from kwok_operator.cloud.life import DesiredNode, Life, born_at, draw_life
from kwok_operator.cloud.nodeparts import (
    READY,
    Condition,
    conditions_of,
    is_amount,
    is_ready,
    not_ready,
    notice,
    notice_taints,
    ready_status,
    taint_key,
    taint_of,
    taints_of,
    with_condition,
    with_taints,
)
from kwok_operator.formats.times import format_exact_time
from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups.api.template import Taint
from kwok_operator.nodegroups.cleaning import Node, part_of
from kwok_operator.nodegroups.inplace import Patch

_NOT_READY: Final = "NotReady"
_NOTICE: Final = "notice"
_MAX_SHOWN: Final = 200
_RESOURCES: Final = ("capacity", "allocatable")


class Hold(StrEnum):
    """What keeps the kwok controller from making a Node Ready: a Stage, or nothing."""

    STAGE = "Stage"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class DesiredShape:
    """How a live Node is to be patched.

    `life` is None if none is recorded on the Node. `taint` is for Nodes that have notice of their
    end; `now` is RFC 3339; `noticed_at` (milliseconds) is written into the Node's annotation.
    `kwok_alive` says whether a Node that is made Ready stays so, and may take pods.
    """

    desired: DesiredNode
    life: Life | None
    hold: Hold
    taint: Taint | None
    now: str
    noticed_at: int | None = None
    kwok_alive: bool = False


def shows_notice(mark: Mark | None) -> bool:
    """Whether the Node was patched already to show that it is under notice."""
    return mark is not None and _NOTICE in mark.shown.split(";")


def needs_shaping(mark: Mark | None, desired: DesiredNode, *, ready: bool, hold: Hold) -> bool:
    """Whether the Node has to be patched.

    Without a Stage that keeps kwok away (`hold`), no Node is made NotReady, as kwok would undo it
    each time. A Node that should be Ready, and isn't, is left to kwok once the hold label is off.
    """
    labelled = hold is Hold.STAGE and not desired.ready
    if mark is None:
        return labelled or shown_text(desired, hold) != READY
    if mark.hold is not labelled or (labelled and ready):
        return True
    shown = mark.shown or ("" if mark.life else READY)
    return shown != shown_text(desired, hold)


def holds(desired: DesiredNode, hold: Hold) -> bool:
    """Whether the Node should be NotReady, and can be kept so."""
    return hold is Hold.STAGE and not desired.ready


def born(
    body: bytes,
    *,
    life: Life,
    desired: DesiredNode,
    hold: Hold,
    interruption_taint: Taint | None,
    now: str,
) -> bytes:
    """Returns the JSON of a new Node; `body` is the JSON that its template makes.

    `life` is what was drawn for the Node, `desired` is how the Node should be now, `now` is RFC
    3339. If `body` has what a Ready node needs (conditions, kubelet's address), the operator can
    make the Node Ready later without kwok.
    """
    shown = shown_text(desired, hold)
    if life.is_perfect and shown == READY and desired.ready:
        return body
    node: Node = json.loads(body)
    metadata, status = node["metadata"], node["status"]
    metadata["annotations"][constants.SHOWN_ANNOTATION] = shown
    if not life.is_perfect:
        metadata["annotations"][constants.LIFE_ANNOTATION] = dump_life(life)
    taints = [taint_of(key=t.key, value=t.value, effect=t.effect) for t in desired.taints]
    taints += notice_taints(desired, interruption_taint)
    node["spec"]["taints"] = with_taints(taints_of(node), taints)
    for resource in desired.missing:
        for kind in _RESOURCES:
            status[kind].pop(resource.name, None)
    conditions = conditions_of(node)
    if not desired.ready:
        conditions = with_condition(conditions, not_ready(desired), now=now)
        if hold is Hold.STAGE:
            metadata["labels"][constants.HOLD_LABEL] = constants.HOLD_LABEL_VALUE
    if desired.noticed:
        conditions = with_condition(conditions, notice(desired, life), now=now)
    if conditions:
        status["conditions"] = conditions
    return json.dumps(node, separators=(",", ":")).encode()


def changes(live: Node, shape: DesiredShape) -> tuple[Patch, ...]:
    """Returns the patches that bring `live` to the desired shape; () if it has it.

    Lists are written whole, so the patches are valid only for the resourceVersion of `live`.
    """
    labelled = constants.HOLD_LABEL in part_of(live, "metadata", "labels")
    label = shape.hold is Hold.STAGE and not shape.desired.ready
    status = _resource_changes(live, shape) | _condition_changes(live, shape)
    becomes_ready = ready_status({"status": {**part_of(live, "status"), **status}}) == "True"
    metadata = _annotation_changes(live, shape)
    if labelled is not label:
        metadata["labels"] = {constants.HOLD_LABEL: constants.HOLD_LABEL_VALUE if label else None}
    rest = {
        "metadata": metadata,
        "spec": _taint_changes(live, shape, lets_pods_on=becomes_ready and shape.kwok_alive),
    }
    rest = {name: changed for name, changed in rest.items() if changed}
    patches: list[Patch] = []
    if status:
        patches.append(("/status", {"status": status}))
    if rest:
        patches.append(("", rest))
    # Held before it is made not Ready, as kwok would be quicker. Whether the second patch was
    # written is seen all the same: without it, the Node is Ready.
    if label and not labelled and ready_status(live) == "True":
        patches.reverse()
    return tuple(patches)


def carried_over(wanted: Node, live: Node, *, missing: Collection[str]) -> Node:
    """Returns `wanted`, the Node of an edited template, with the simulated cloud's annotations and
    label of `live`.

    Resources that `live` still lacks (`missing`, by name) come later, in the amounts of the edited
    template; those that the template doesn't have any more don't come.
    """
    node: Node = {**wanted, "metadata": {**wanted["metadata"]}, "status": {**wanted["status"]}}
    given, labels = part_of(live, "metadata", "annotations"), part_of(live, "metadata", "labels")
    metadata, status = node["metadata"], node["status"]
    metadata["annotations"] = {**part_of(wanted, "metadata", "annotations")}
    metadata["annotations"].update({key: given[key] for key in CLOUD_ANNOTATIONS if key in given})
    if constants.HOLD_LABEL in labels:
        held = {constants.HOLD_LABEL: labels[constants.HOLD_LABEL]}
        metadata["labels"] = {**part_of(wanted, "metadata", "labels"), **held}
    life, capacity = read_life(given), part_of(wanted, "status", "capacity")
    if life is not None and life.resources:
        coming = tuple(
            replace(resource, amount=str(capacity[resource.name]))
            for resource in life.resources
            if resource.name in capacity
        )
        if coming != life.resources:
            life = replace(life, resources=coming)
            metadata["annotations"][constants.LIFE_ANNOTATION] = dump_life(life)
    for kind in _RESOURCES:
        resources = part_of(wanted, "status", kind)
        status[kind] = {name: value for name, value in resources.items() if name not in missing}
    return node


def shown_text(desired: DesiredNode, hold: Hold) -> str:
    """Describes the desired state in few words. If the words change, the Node has to be written.

    Without a Stage that can keep Nodes NotReady (`hold`), each Node is described as Ready.
    """
    return _text(desired, ready=not holds(desired, hold))


def _text(desired: DesiredNode, *, ready: bool) -> str:
    if ready and not (desired.taints or desired.missing or desired.noticed):
        return READY
    parts = [READY if ready else f"{_NOT_READY}/{desired.reason}"]
    if desired.noticed:
        parts.append(_NOTICE)
    if desired.taints:
        parts.append("taints=" + ",".join([f"{t.key}:{t.effect}" for t in desired.taints]))
    if desired.missing:
        parts.append("lacks=" + ",".join([resource.name for resource in desired.missing]))
    text = ";".join(parts)
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN - 11]}#{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def _condition_changes(live: Node, shape: DesiredShape) -> dict[str, Any]:
    now, ready = conditions_of(live), _ready_condition(live, shape)
    conditions = now if ready is None else with_condition(now, ready, now=shape.now)
    if shape.desired.noticed:
        conditions = with_condition(conditions, notice(shape.desired, shape.life), now=shape.now)
    return {} if conditions == now else {"conditions": conditions}


def _ready_condition(live: Node, shape: DesiredShape) -> Condition | None:
    """The condition Ready to write; None if it is left as it is.

    Kubernetes writes Unknown on a Node whose kwok is gone: that is left alone.
    """
    status = ready_status(live)
    if holds(shape.desired, shape.hold):
        return None if status == "Unknown" else not_ready(shape.desired)
    shown = str(part_of(live, "metadata", "annotations").get(constants.SHOWN_ANNOTATION, ""))
    held = constants.HOLD_LABEL in part_of(live, "metadata", "labels")
    initialised = part_of(live, "status", "daemonEndpoints", "kubeletEndpoint").get("Port")
    if shape.desired.ready and status == "False" and initialised:
        return is_ready() if held or shown.startswith(_NOT_READY) else None
    return None


def _resource_changes(live: Node, shape: DesiredShape) -> dict[str, Any]:
    missing = {resource.name for resource in shape.desired.missing}
    changed: dict[str, dict[str, Any]] = {kind: {} for kind in _RESOURCES}
    for resource in shape.life.resources if shape.life else ():
        for kind in _RESOURCES:
            there = resource.name in part_of(live, "status", kind)
            if there and resource.name in missing:
                changed[kind][resource.name] = None
            elif not there and resource.name not in missing and is_amount(resource.amount):
                changed[kind][resource.name] = resource.amount
    return {kind: names for kind, names in changed.items() if names}


def _taint_changes(live: Node, shape: DesiredShape, *, lets_pods_on: bool) -> dict[str, Any]:
    now, given = taints_of(live), part_of(live, "metadata", "annotations")
    of_template = str(given.get(constants.TEMPLATE_TAINTS_ANNOTATION, "")).split(",")
    still = {(taint.key, taint.effect) for taint in shape.desired.taints}
    passed = {(t.key, t.effect) for t in (shape.life.taints if shape.life else ())} - still
    passed -= {key for key in passed if ":".join(key) in of_template}
    left = [
        taint
        for taint in now
        if taint_key(taint) not in passed and not (lets_pods_on and is_not_ready_taint(taint))
    ]
    taints = with_taints(left, notice_taints(shape.desired, shape.taint))
    return {} if taints == now else {"taints": taints}


def _annotation_changes(live: Node, shape: DesiredShape) -> dict[str, Any]:
    given = part_of(live, "metadata", "annotations")
    # A Node about which nothing was decided counts as Ready, without the annotation.
    if constants.LIFE_ANNOTATION not in given:
        given = {constants.SHOWN_ANNOTATION: READY, **given}
    wanted = {constants.SHOWN_ANNOTATION: shown_text(shape.desired, shape.hold)}
    if shape.noticed_at is not None:
        wanted[constants.NOTICED_AT_ANNOTATION] = format_exact_time(shape.noticed_at)
    changed = {key: text for key, text in wanted.items() if given.get(key) != text}
    return {"annotations": changed} if changed else {}


@dataclass(frozen=True, slots=True)
class Birth:
    """How a Node begins: the life drawn for it, and how it is to be when created (`desired`)."""

    life: Life
    desired: DesiredNode
    cloud: Cloud
    hold: Hold

    @property
    def ready(self) -> bool:
        return self.desired.ready

    @property
    def keeps_ready_parts(self) -> bool:
        """Whether the first JSON has what a Ready node needs: yes if the Node is to be Ready at
        once, or if a Stage (`hold`) keeps kwok away and the operator makes it Ready later."""
        return self.ready or self.hold is not Hold.NONE

    @classmethod
    def of(
        cls,
        cloud: Cloud,
        *,
        group: str,
        serial: int,
        due: int,
        now: int,
        capacity: Mapping[str, str],
        hold: Hold,
        unit: int | None = None,
        notice_at: int | None = None,
    ) -> "Birth":
        """Draws the life of a new Node. `due`, `now`: milliseconds; `capacity`: the template's.

        `unit` is the number of the Node's unit, if all instances of a unit draw alike; `notice_at`
        is when the existing Nodes of that unit get notice, which this Node then shares.
        """
        who = instance_seed(cloud, group=group, serial=serial, unit=unit)
        life = draw_life(cloud, who, born=born_at(due, now=now), capacity=capacity)
        if notice_at is not None:
            life = life.noticed(notice_at)
        # Notice comes with the next look, also where it is due at once: others may have to wait
        # for it, and it is reported.
        return cls(life, life.noticed(None).desired(now), cloud, hold)

    def body(self, plain: bytes, *, now: str) -> bytes:
        """Returns the Node's JSON; `plain` is what the template makes. `now` is RFC 3339."""
        taint = (self.cloud.interruptions or Interruptions()).taint
        return born(
            plain,
            life=self.life,
            desired=self.desired,
            hold=self.hold,
            interruption_taint=taint,
            now=now,
        )
