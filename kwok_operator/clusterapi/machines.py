"""Machines and MachineSets that are played, as they are written.

    Scalable, serials of its group  --machine_manifest, machine_set-->  what is created
    an instance as it is            --show-->  Shown  --status_patch-->  what is written of it
    counts                          --scalable_status-->  status of MachineDeployment, MachineSet

A Machine has the name of its Node, so nothing has to be remembered of which belongs to which. The
same fields stand in both versions: there is no conversion, so what either version has is written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.cloud.states import Phase, State
from kwok_operator.clusterapi import keys as names
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import Kind, Scalable
from kwok_operator.formats.untyped import as_map, as_texts
from kwok_operator.nodegroups.naming import uid_hash

MACHINE: Final = "Machine"
MACHINES: Final = "machines"
LONGEST_LABEL: Final = 63
_CREATE_ERROR: Final = "CreateError"
_HASH: Final = 5
"""Characters that a MachineSet's name adds to its MachineDeployment's."""


class MachinePhase(StrEnum):
    """As Cluster API calls them."""

    PROVISIONING = "Provisioning"
    PROVISIONED = "Provisioned"
    RUNNING = "Running"
    DELETING = "Deleting"
    FAILED = "Failed"


class FailureStyle(StrEnum):
    """How a machine says that it could not be created: as with Cluster API up to 1.10, or later."""

    V1BETA1 = "v1beta1"
    V1BETA2 = "v1beta2"


@dataclass(frozen=True, slots=True)
class EmulationTerms:
    """How Machines are played: under which names, and how failures are shown."""

    keys: Keys
    version: str
    style: FailureStyle
    provider_id_prefix: str

    @property
    def api_version(self) -> str:
        return f"{self.keys.group}/{self.version}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The MachineSet of Machines."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What a Machine's status says; `ready` is that of its condition Ready."""

    phase: str = ""
    node: str = ""
    ready: str = ""
    reason: str = ""
    message: str = ""
    failure: str = ""

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> "Shown":
        """As somebody has written it, whatever that is."""
        conditions = status.get("conditions")
        ready: Mapping[str, Any] = {}
        for condition in conditions if isinstance(conditions, list) else ():
            if isinstance(condition, Mapping) and condition.get("type") == "Ready":
                ready = condition
        node = status.get("nodeRef")
        return cls(
            phase=_text(status.get("phase")),
            node=_text(node.get("name")) if isinstance(node, Mapping) else "",
            ready=_text(ready.get("status")),
            reason=_text(ready.get("reason")),
            message=_text(ready.get("message")),
            failure=_text(status.get("failureMessage")),
        )


def show_leaving(name: str) -> Shown:
    """A Machine whose Node takes its time to go."""
    return Shown(MachinePhase.DELETING, name, "False", "Deleting")


def show_node(name: str, *, ready: bool) -> Shown:
    """A Machine whose Node is there."""
    if not ready:
        return Shown(MachinePhase.RUNNING, name, "False", "NodeNotReady")
    return Shown(MachinePhase.RUNNING, name, "True", "Ready")


def show_waiting(phase: Phase | None, *, style: FailureStyle) -> Shown:
    """A Machine without a Node; nothing to say where the Node is to come at once."""
    if phase is None:
        return Shown()
    if phase.state is State.UNREGISTERED:
        return Shown(MachinePhase.PROVISIONED, "", "False", phase.reason)
    if phase.state is not State.FAILED or phase.fault is None:
        return Shown(MachinePhase.PROVISIONING, "", "False", phase.reason)
    fault = phase.fault
    if style is FailureStyle.V1BETA1:
        return Shown(
            MachinePhase.FAILED, "", "False", fault.code, fault.message, failure=fault.message
        )
    return Shown(MachinePhase.PROVISIONING, "", "False", fault.code, fault.message)


def status_patch(shown: Shown, *, node_uid: str, now: str) -> dict[str, Any]:
    """A merge patch; `now` is RFC 3339."""
    infrastructure = "True" if shown.node or shown.phase == MachinePhase.PROVISIONED else "False"
    node = {"apiVersion": "v1", "kind": "Node", "name": shown.node, "uid": node_uid}
    return {
        "status": {
            "phase": shown.phase,
            "nodeRef": node if shown.node else None,
            "failureReason": _CREATE_ERROR if shown.failure else None,
            "failureMessage": shown.failure or None,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": shown.reason if status == shown.ready else "Provisioned",
                    "message": shown.message,
                    "lastTransitionTime": now,
                }
                for kind, status in (
                    ("Ready", shown.ready),
                    ("InfrastructureReady", infrastructure),
                )
            ],
        }
    }


def machine_labels(scalable: Scalable, keys: Keys, *, machine_set: str) -> dict[str, str]:
    """Those of the template, and whatever cluster-autoscaler needs to find a Machine again."""
    labels = dict(scalable.template_labels) | match_labels(scalable, keys)
    labels[keys.cluster_name] = scalable.cluster_name
    labels[names.SET_NAME] = machine_set
    if scalable.kind is Kind.MACHINE_DEPLOYMENT:
        labels[names.DEPLOYMENT_NAME] = scalable.name
    # By this one a Machine is found again: it names its group, whatever a template says.
    labels.pop(constants.NODE_GROUP_LABEL, None)
    return labels


def machine_manifest(
    name: str,
    scalable: Scalable,
    terms: EmulationTerms,
    *,
    owner: Owner,
    group: str,
    group_uid: str,
) -> dict[str, Any]:
    """A Machine that has no status yet."""
    labels = machine_labels(scalable, terms.keys, machine_set=owner.name)
    return {
        "apiVersion": terms.api_version,
        "kind": MACHINE,
        "metadata": {
            "name": name,
            "namespace": scalable.namespace,
            "labels": labels | {constants.NODE_GROUP_LABEL: group},
            "annotations": {constants.NODE_GROUP_UID_ANNOTATION: group_uid},
            "ownerReferences": [owner_reference(Kind.MACHINE_SET, owner, terms)],
        },
        "spec": {
            "clusterName": scalable.cluster_name,
            "providerID": f"{terms.provider_id_prefix}{name}",
        },
    }


def owner_reference(kind: str, owner: Owner, terms: EmulationTerms) -> dict[str, Any]:
    return {
        "apiVersion": terms.api_version,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }


def default_selector(scalable: Scalable, keys: Keys) -> dict[str, str]:
    """What Cluster API's webhook selects by where nobody says anything."""
    labels = {keys.cluster_name: scalable.cluster_name}
    if scalable.kind is Kind.MACHINE_DEPLOYMENT:
        labels[names.DEPLOYMENT_NAME] = scalable.name
    return labels


def selector_of(scalable: Scalable, keys: Keys) -> Mapping[str, Any]:
    """spec.selector, or what the webhook makes of none."""
    if has_selector(scalable):
        return as_map(scalable.spec.get("selector"))
    return {"matchLabels": default_selector(scalable, keys)}


def match_labels(scalable: Scalable, keys: Keys) -> dict[str, str]:
    """The labels that spec.selector asks of Machines."""
    return as_texts(selector_of(scalable, keys).get("matchLabels"))


def has_selector(scalable: Scalable) -> bool:
    """An empty one, which would select everything, counts as none for Cluster API's webhook."""
    selector = as_map(scalable.spec.get("selector"))
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def machine_set_name(scalable: Scalable) -> str:
    """That of a MachineDeployment's MachineSet: another one if it is made again."""
    if scalable.kind is Kind.MACHINE_SET:
        return scalable.name
    name = scalable.name[: LONGEST_LABEL - _HASH].rstrip(".")
    return f"{name}-{uid_hash(scalable.uid)}"


def machine_set(scalable: Scalable, terms: EmulationTerms, *, group_uid: str) -> dict[str, Any]:
    """The only MachineSet of a MachineDeployment; its revision makes cluster-autoscaler take it for
    the newest.
    """
    labels = machine_labels(scalable, terms.keys, machine_set=machine_set_name(scalable))
    del labels[names.SET_NAME]
    owner = Owner(scalable.name, scalable.uid)
    return {
        "apiVersion": terms.api_version,
        "kind": Kind.MACHINE_SET.value,
        "metadata": {
            "name": machine_set_name(scalable),
            "namespace": scalable.namespace,
            "labels": labels,
            "annotations": {
                names.REVISION: "1",
                constants.NODE_GROUP_UID_ANNOTATION: group_uid,
            },
            "ownerReferences": [owner_reference(Kind.MACHINE_DEPLOYMENT, owner, terms)],
        },
        "spec": {
            "clusterName": scalable.cluster_name,
            "replicas": scalable.replicas or 0,
            "selector": selector_of(scalable, terms.keys),
            "template": as_map(scalable.spec.get("template")),
        },
    }


@dataclass(frozen=True, slots=True)
class MachineCounts:
    """Machines: that exist, whose Node is Ready, whose Node takes pods."""

    replicas: int
    ready: int
    available: int


def scalable_status(
    counts: MachineCounts, *, wanted: int, generation: int, selector: str, before: Any, now: str
) -> dict[str, Any]:
    """As a merge patch has it; `before` is the status that is there, whoever wrote it."""
    done = counts.available >= wanted and counts.replicas == wanted
    phase = "Running"
    if counts.replicas < wanted or counts.ready < wanted <= counts.replicas:
        phase = "ScalingUp"
    elif counts.replicas > wanted:
        phase = "ScalingDown"
    reason = "Available" if done else phase
    kinds = (
        ("Available", counts.available >= wanted, reason if done else "NotAvailable"),
        ("ScalingUp", phase == "ScalingUp", phase),
        ("ScalingDown", phase == "ScalingDown", phase),
    )
    return {
        "replicas": counts.replicas,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "upToDateReplicas": counts.replicas,
        "updatedReplicas": counts.replicas,
        "unavailableReplicas": max(0, wanted - counts.available),
        "fullyLabeledReplicas": counts.replicas,
        "observedGeneration": generation,
        "selector": selector,
        "phase": phase,
        "conditions": [
            _condition(kind, holds=holds, reason=reason, before=before, now=now)
            for kind, holds, reason in kinds
        ],
    }


def _condition(kind: str, *, holds: bool, reason: str, before: Any, now: str) -> dict[str, Any]:
    """With the time since when it holds, or doesn't."""
    status = "True" if holds else "False"
    known = before.get("conditions") if isinstance(before, Mapping) else None
    since = now
    for old in known if isinstance(known, list) else ():
        if isinstance(old, Mapping) and (old.get("type"), old.get("status")) == (kind, status):
            since = _text(old.get("lastTransitionTime")) or now
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": since}


def selector_text(scalable: Scalable, keys: Keys) -> str:
    """As a label selector is written in one line."""
    parts = [f"{key}={value}" for key, value in sorted(match_labels(scalable, keys).items())]
    for key, operator, values in _expressions(scalable):
        listed = f"({','.join(sorted(values))})"
        words = {"In": f"{key} in {listed}", "NotIn": f"{key} notin {listed}", "Exists": key}
        parts.append(words.get(operator, f"!{key}"))
    return ",".join(parts)


def selects(scalable: Scalable, keys: Keys, labels: Mapping[str, str]) -> bool:
    """Whether the expressions of spec.selector take Machines with these labels."""
    matches = []
    for key, operator, values in _expressions(scalable):
        has = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
        }
        matches.append(has.get(operator, key not in labels))
    return all(matches) and match_labels(scalable, keys).items() <= labels.items()


def _expressions(scalable: Scalable) -> Iterator[tuple[str, str, list[str]]]:
    """Key, operator and values; what is none is left out."""
    selector = scalable.spec.get("selector")
    listed = selector.get("matchExpressions") if isinstance(selector, Mapping) else None
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("key"), str):
            values = each.get("values")
            texts = [v for v in values if isinstance(v, str)] if isinstance(values, list) else []
            yield each["key"], _text(each.get("operator")), texts


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
