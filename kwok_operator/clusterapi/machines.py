"""Makes the JSON of simulated Machines and MachineSets.

    Scalable, serials of its group  --machine_manifest, machine_set-->  what is created
    the state of an instance        --show_...-->  Shown  --status_patch-->  the Machine's status
    counts                          --scalable_status-->  status of MachineDeployment, MachineSet

A Machine has the name of its Node, so it need not be recorded which belongs to which. As our CRDs
have no conversion, the fields of both API versions are written into each object.
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
from kwok_operator.formats.podparts import dicts
from kwok_operator.formats.untyped import (
    as_list,
    as_map,
    as_texts,
    condition_of,
    text_at,
    value_at,
)
from kwok_operator.nodegroups.naming import uid_hash

MACHINE: Final = "Machine"
MACHINES: Final = "machines"
LONGEST_LABEL: Final = 63
_CREATE_ERROR: Final = "CreateError"
_HASH: Final = 5
"""The number of characters that a MachineSet's name has in addition to its MachineDeployment's."""


class MachinePhase(StrEnum):
    """The phases of a Machine, by Cluster API's names."""

    PROVISIONING = "Provisioning"
    PROVISIONED = "Provisioned"
    RUNNING = "Running"
    DELETING = "Deleting"
    FAILED = "Failed"


class FailureStyle(StrEnum):
    """How a Machine shows that its creation failed: as in Cluster API up to 1.10, or later."""

    V1BETA1 = "v1beta1"
    V1BETA2 = "v1beta2"


@dataclass(frozen=True, slots=True)
class EmulationTerms:
    """Settings for simulated Machines: API group and version, and how failures are shown."""

    keys: Keys
    version: str
    style: FailureStyle
    provider_id_prefix: str

    @property
    def api_version(self) -> str:
        return f"{self.keys.group}/{self.version}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of an object: for Machines, their MachineSet."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What a Machine's status says. `ready`, `reason` and `message` are those of the Machine's
    condition Ready.
    """

    phase: str = ""
    node: str = ""
    ready: str = ""
    reason: str = ""
    message: str = ""
    failure: str = ""

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> "Shown":
        """Reads a Machine's status, which others may have written; malformed parts count as
        empty."""
        ready = condition_of({"status": status}, "Ready")
        return cls(
            phase=text_at(status, "phase"),
            node=text_at(status, "nodeRef", "name"),
            ready=text_at(ready, "status"),
            reason=text_at(ready, "reason"),
            message=text_at(ready, "message"),
            failure=text_at(status, "failureMessage"),
        )


def show_leaving(name: str) -> Shown:
    """Returns the status of a Machine whose Node is stuck in deletion."""
    return Shown(MachinePhase.DELETING, name, "False", "Deleting")


def show_node(name: str, *, ready: bool) -> Shown:
    """Returns the status of a Machine whose Node exists."""
    if not ready:
        return Shown(MachinePhase.RUNNING, name, "False", "NodeNotReady")
    return Shown(MachinePhase.RUNNING, name, "True", "Ready")


def show_waiting(phase: Phase | None, *, style: FailureStyle) -> Shown:
    """Returns the status of a Machine without a Node, by the phase of the Machine's creation in the
    simulated cloud. The status is empty if `phase` is None, as the Node then comes at once.
    """
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
    """Makes the merge patch of a Machine's status; `now` is RFC 3339."""
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
    """Returns a Machine's labels: the template's, and those that cluster-autoscaler needs."""
    labels = {**scalable.template_labels, **match_labels(scalable, keys)}
    labels |= default_selector(scalable, keys) | {names.SET_NAME: machine_set}
    # The operator finds a Machine by this label, so the template must not set it.
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
    """Makes a new Machine, without a status."""
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
    """Returns the labels that Cluster API's webhook puts into an empty spec.selector."""
    labels = {keys.cluster_name: scalable.cluster_name}
    if scalable.kind is Kind.MACHINE_DEPLOYMENT:
        labels[names.DEPLOYMENT_NAME] = scalable.name
    return labels


def selector_of(scalable: Scalable, keys: Keys) -> Mapping[str, Any]:
    """Returns spec.selector, or the default that Cluster API's webhook would set."""
    if has_selector(scalable):
        return as_map(scalable.spec.get("selector"))
    return {"matchLabels": default_selector(scalable, keys)}


def match_labels(scalable: Scalable, keys: Keys) -> dict[str, str]:
    """Returns the matchLabels of the selector."""
    return as_texts(selector_of(scalable, keys).get("matchLabels"))


def has_selector(scalable: Scalable) -> bool:
    """Whether spec.selector is set. An empty one counts as missing, as for Cluster API's
    webhook."""
    selector = as_map(scalable.spec.get("selector"))
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def machine_set_name(scalable: Scalable) -> str:
    """Returns the name of a MachineDeployment's MachineSet; it depends on the deployment's uid."""
    if scalable.kind is Kind.MACHINE_SET:
        return scalable.name
    name = scalable.name[: LONGEST_LABEL - _HASH].rstrip(".")
    return f"{name}-{uid_hash(scalable.uid)}"


def machine_set(scalable: Scalable, terms: EmulationTerms, *, group_uid: str) -> dict[str, Any]:
    """Makes the only MachineSet of a MachineDeployment.

    Its revision makes cluster-autoscaler take it for the newest one.
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
    """Counts of Machines: those that exist, those whose Node is Ready, and those whose Node takes
    pods."""

    replicas: int
    ready: int
    available: int


def scalable_status(
    counts: MachineCounts, *, wanted: int, generation: int, selector: str, before: Any, now: str
) -> dict[str, Any]:
    """Makes the status of a MachineDeployment or MachineSet. `before` is the present status, which
    others may have written."""
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
    """Makes a condition; its lastTransitionTime is kept while its status is unchanged."""
    status = "True" if holds else "False"
    old = condition_of({"status": before}, kind)
    since = text_at(old, "lastTransitionTime") if old.get("status") == status else ""
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": since or now}


def selector_text(scalable: Scalable, keys: Keys) -> str:
    """Formats the selector as one line for kubectl's --selector."""
    parts = [f"{key}={value}" for key, value in sorted(match_labels(scalable, keys).items())]
    for key, operator, values in _expressions(scalable):
        listed = f"({','.join(sorted(values))})"
        words = {"In": f"{key} in {listed}", "NotIn": f"{key} notin {listed}", "Exists": key}
        parts.append(words.get(operator, f"!{key}"))
    return ",".join(parts)


def selects(scalable: Scalable, keys: Keys, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches Machines with these labels."""
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
    """Yields key, operator and values of matchExpressions; malformed ones are left out."""
    for each in dicts(value_at(scalable.spec, "selector", "matchExpressions")):
        if isinstance(each.get("key"), str):
            texts = [v for v in as_list(each.get("values")) if isinstance(v, str)]
            yield each["key"], text_at(each, "operator"), texts
