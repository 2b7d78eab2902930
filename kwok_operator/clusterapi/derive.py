"""Derives groups from scalables, and decides which of them cluster-autoscaler (CA) sees, and when.

    Scalables, infrastructure templates  --derive-->  CapiGroup each, Findings

A scalable is a MachineDeployment, MachineSet or MachinePool. CA accepts that a scalable's size is
outside its bounds; the operator would move a group's target into the bounds. So the bounds of a
group are widened to include its target. A larger maximum makes no difference to CA: the target has
reached it and can't grow. A smaller minimum would (--enforce-node-group-min-size), so an annotation
of the group has the minimum for CA.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from pydantic import ValidationError

from kwok_operator import constants
from kwok_operator.api.base import is_label_key, is_label_value
from kwok_operator.clusterapi import keys as names
from kwok_operator.clusterapi.capacity import (
    DEFAULT_ARCH,
    Capacity,
    read_capacity,
    whole_number,
)
from kwok_operator.clusterapi.discovery import Discovery, allowed, namespace_watched
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import CapiFinding, InfrastructureRef, Kind, Scalable
from kwok_operator.errors import one_line
from kwok_operator.formats.optiontexts import duration, share
from kwok_operator.formats.words import nearest, shown
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.naming import group_name

NO_CAPACITY: Final = "NoCapacity"


class Offer(Enum):
    """When CA sees a group: while its size is zero (first value), and above zero (second)."""

    ALWAYS = (True, True)
    AT_ZERO = (True, False)
    ABOVE_ZERO = (False, True)
    NEVER = (False, False)

    def holds(self, target: int) -> bool:
        at_zero, above = self.value
        return above if target > 0 else at_zero


@dataclass(frozen=True, slots=True)
class CapiTemplates:
    """Infrastructure templates, by namespace and reference.

    `trouble` maps a reference to the reason why templates of its kind can't be read.
    """

    readable: Mapping[tuple[str, InfrastructureRef], Mapping[str, Any]] = field(
        default_factory=dict
    )
    trouble: Mapping[InfrastructureRef, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CapiGroup:
    """The group that is made of a scalable. `size` is spec.replicas; `default_size` is what Cluster
    API's webhook sets if it is missing. The bounds are those that CA uses."""

    name: str
    scalable: Scalable
    size: int | None
    default_size: int
    min_size: int
    max_size: int
    offer: Offer
    options: Mapping[str, str]
    capacity: Capacity

    def manifest(self, *, target: int, offered: bool = True) -> dict[str, Any]:
        """Returns the manifest to apply. `target` is the group's present target size: it decides
        about bounds and annotations, but isn't part of the spec.

        Without `offered`, the shim never shows the group to CA.
        """
        template = {"shape": dict(self.capacity.shape)}
        if self.capacity.companions:
            template["companions"] = dict(self.capacity.companions)
        spec: dict[str, Any] = {
            "template": template,
            "guardTaint": {"enabled": False},
        }
        if offered and self.offer.holds(target):
            bounds: dict[str, Any] = {
                "minSize": min(self.min_size, target),
                "maxSize": max(self.max_size, target),
                "gpuLabel": names.GPU_LABEL,
            }
            spec["autoscaling"] = bounds | ({"options": dict(self.options)} if self.options else {})
        return {
            "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
            "kind": constants.KIND,
            "metadata": {
                "name": self.name,
                "labels": _labels(self.scalable) | {constants.DERIVED_LABEL: "true"},
                "annotations": self._annotations(target),
            },
            "spec": spec,
        }

    def _annotations(self, target: int) -> dict[str, str]:
        of = self.scalable
        annotations = {
            constants.CAPI_ANNOTATION: of.id,
            constants.CAPI_NAMESPACE_ANNOTATION: of.namespace,
            constants.CAPI_CLUSTER_ANNOTATION: of.cluster_name,
        }
        if target < self.min_size:
            annotations[constants.CA_MIN_SIZE_ANNOTATION] = str(self.min_size)
        if self.capacity.overlay:
            overlay = json.dumps(self.capacity.overlay, sort_keys=True)
            annotations[constants.FROM_ZERO_ANNOTATION] = overlay
        return annotations


@dataclass(frozen=True, slots=True)
class CapiFleet:
    """All derived groups. `hidden`: scalables for which CA sees no group because of their
    annotations."""

    groups: tuple[CapiGroup, ...]
    findings: tuple[CapiFinding, ...]
    hidden: tuple[str, ...] = ()


def derive(
    scalables: Iterable[Scalable],
    templates: CapiTemplates | None = None,
    *,
    keys: Keys,
    discoveries: Sequence[Discovery] = (),
    default_arch: str = DEFAULT_ARCH,
) -> CapiFleet:
    """Derives the groups of all scalables (MachineDeployments, MachineSets, MachinePools). Problems
    become findings; nothing is raised."""
    deriver = _Deriver(templates or CapiTemplates(), keys, discoveries, default_arch)
    return deriver.run(sorted(scalables, key=lambda each: (list(Kind).index(each.kind), each.id)))


@dataclass(slots=True)
class _Deriver:
    _templates: CapiTemplates
    _keys: Keys
    _discoveries: Sequence[Discovery]
    _default_arch: str
    _findings: list[CapiFinding] = field(default_factory=list)
    _hidden: list[str] = field(default_factory=list)

    def run(self, scalables: Sequence[Scalable]) -> CapiFleet:
        groups: dict[str, CapiGroup] = {}
        for scalable in scalables:
            if self._is_of_a_deployment(scalable) or not self._is_wanted(scalable):
                continue
            group = self._group(scalable)
            if group is None:
                continue
            other = groups.setdefault(group.name, group)
            if other is not group:
                message = (
                    f"metadata.name: {scalable.id} and {other.scalable.id} both give the group name"
                    f" {group.name}, which {other.scalable.id} has; rename one of them"
                )
                for each in (scalable, other.scalable):
                    self._report(each, "NameCollision", message, "metadata", "name")
        if self._hidden:
            groups = {n: replace(group, offer=Offer.NEVER) for n, group in groups.items()}
        return CapiFleet(tuple(groups.values()), tuple(self._findings), tuple(self._hidden))

    def _report(
        self, of: Scalable, reason: str, message: str, *path: str | int, note: bool = False
    ) -> None:
        self._findings.append(CapiFinding(reason, one_line(message), of.id, path, note))

    def _is_of_a_deployment(self, scalable: Scalable) -> bool:
        if scalable.kind is not Kind.MACHINE_SET or not scalable.deployment:
            return False
        if any(key in scalable.annotations for key in (self._keys.min_size, self._keys.max_size)):
            owner = scalable.deployment
            message = f"metadata.ownerReferences: MachineDeployment {owner} owns it; CA scales that"
            self._report(scalable, "Owned", message, "metadata", "ownerReferences", note=True)
        return True

    def _is_wanted(self, scalable: Scalable) -> bool:
        if namespace_watched(self._discoveries) not in ("", scalable.namespace):
            return False
        return allowed(
            self._discoveries,
            namespace=scalable.namespace,
            cluster_name=scalable.cluster_name,
            labels=scalable.labels,
        )

    def _group(self, scalable: Scalable) -> CapiGroup | None:
        bounds = self._bounds(scalable)
        if bounds is None:
            self._hidden.append(scalable.id)
        least, most = bounds or (0, 0)
        self._unknown_keys(scalable)
        seen = bounds is None or most > 0
        capacity = self._capacity(scalable, seen=seen)
        if not seen and not scalable.annotations.keys().isdisjoint(self._keys.of_autoscaler):
            message = f"{self._keys.max_size}: is not set, or 0: CA doesn't see the group"
            self._report(scalable, "NoMaximum", message, "metadata", "annotations", note=True)
        annotated = {self._keys.min_size, self._keys.max_size} <= scalable.annotations.keys()
        group = CapiGroup(
            name=group_name(f"{scalable.namespace}.{scalable.name}"),
            scalable=scalable,
            size=self._size(scalable),
            default_size=least if annotated else 1,
            min_size=least,
            max_size=most,
            offer=self._offer(scalable, capacity, most=most),
            options=self._options(scalable),
            capacity=capacity,
        )
        try:
            KwokNodeGroupSpec.model_validate(group.manifest(target=0)["spec"])
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            self._report(scalable, "InvalidGroup", f"no group can have its {where}: {first['msg']}")
            return None
        return group

    def _size(self, scalable: Scalable) -> int | None:
        given, size = scalable.spec.get("replicas"), None
        if scalable.replicas is not None:
            size = max(0, min(scalable.replicas, MAX_TARGET_SIZE))
        if given != size:
            what = f"is no whole number from 0 to {MAX_TARGET_SIZE}; correct it"
            message = f"spec.replicas: {shown(given)} {what}"
            self._report(scalable, "InvalidReplicas", message, "spec", "replicas")
        return size

    def _bounds(self, scalable: Scalable) -> tuple[int, int] | None:
        """Returns minimum and maximum; None if CA refuses them, and therefore can't list any
        group."""
        bounds: list[int] = []
        for key in (self._keys.min_size, self._keys.max_size):
            text = scalable.annotations.get(key, "0")
            number = whole_number(text)
            if number is None or number < 0:
                self._hides(scalable, key, f"{text!r} is no whole number from 0")
            else:
                bounds.append(number)
        if len(bounds) < 2:
            return None
        least, most = bounds
        if most < least:
            self._hides(
                scalable, self._keys.max_size, f"the maximum, {most}, is below the minimum, {least}"
            )
            return None
        return min(least, MAX_TARGET_SIZE), min(most, MAX_TARGET_SIZE)

    def _hides(self, scalable: Scalable, key: str, what: str) -> None:
        message = f"{key}: {what}; CA then sees no node group at all, of any name: correct it"
        self._report(scalable, "InvalidBounds", message, "metadata", "annotations", key)

    def _unknown_keys(self, scalable: Scalable) -> None:
        known = self._keys.of_autoscaler
        for key in filter(names.is_meant_for_autoscaler, sorted(scalable.annotations)):
            if key in known:
                continue
            # Domains are long and alike, so a misspelling is searched for in the part after the
            # slash.
            by_name = {each.partition("/")[2]: each for each in known}
            near = nearest(key.rpartition("/")[2], by_name)
            hint = f"did you mean {by_name[near]}?" if near else "take it out"
            message = f"{key}: is nothing that cluster-autoscaler reads here; {hint}"
            self._report(scalable, "UnknownKey", message, "metadata", "annotations", key)

    def _capacity(self, scalable: Scalable, *, seen: bool) -> Capacity:
        """Reads the capacity of a scalable. If CA doesn't see its group, findings are only
        notes."""
        ref = scalable.infrastructure
        template = None
        if ref is not None:
            template = self._templates.readable.get((scalable.namespace, ref))
            if why := self._templates.trouble.get(ref):
                message = f"spec.template.spec.infrastructureRef: {ref.kind} of {ref.group} {why}"
                path = ("spec", "template", "spec", "infrastructureRef")
                self._report(scalable, "TemplateUnreadable", message, *path)
        capacity = read_capacity(scalable, template, default_arch=self._default_arch)
        self._findings += (replace(each, note=each.note or not seen) for each in capacity.findings)
        missing = [part for part in ("cpu", "memory") if part not in capacity.shape]
        if missing:
            self._report(
                scalable,
                NO_CAPACITY,
                "neither annotations nor the infrastructure template's status.capacity give"
                f" {' and '.join(missing)} that a node can have: CA can't scale the group from"
                " zero, and its fake nodes have 32 CPU or 256Gi there; set"
                f" {' and '.join(names.CAPACITY + part for part in missing)}",
                "metadata",
                "annotations",
                note=not seen,
            )
        return capacity

    def _offer(self, scalable: Scalable, capacity: Capacity, *, most: int) -> Offer:
        if most == 0:
            return Offer.NEVER
        if names.PAUSED in scalable.annotations:
            message = f"{names.PAUSED}: while it is there, CA 1.36 and later leave the group alone"
            path = ("metadata", "annotations", names.PAUSED)
            self._report(scalable, "Paused", message, *path, note=True)
            return Offer.NEVER
        if scalable.spec.get("replicas") is None:
            message = "spec.replicas: is not set; Cluster API's webhook would set it"
            self._report(scalable, "NoReplicas", message, "spec", "replicas", note=True)
        return Offer((capacity.known, self._finds_machine_set(scalable)))

    def _finds_machine_set(self, scalable: Scalable) -> bool:
        """Whether CA's flags also select the MachineSet between a MachineDeployment and its
        Machines. If not, CA doesn't find the Machines."""
        if scalable.kind is not Kind.MACHINE_DEPLOYMENT:
            return True
        handed_on = {
            **scalable.template_labels,
            self._keys.cluster_name: scalable.cluster_name,
            names.DEPLOYMENT_NAME: scalable.name,
        }
        good = allowed(
            self._discoveries,
            namespace=scalable.namespace,
            cluster_name=scalable.cluster_name,
            labels=handed_on,
        )
        if not good:
            self._report(
                scalable,
                "LabelsNotHandedOn",
                "spec.template.metadata.labels: lacks the labels that --node-group-auto-discovery"
                " asks for; CA lists the group and doesn't find it for its nodes: once it has"
                " some, it neither grows nor shrinks; add them there",
                *("spec", "template", "metadata", "labels"),
            )
        return good

    def _options(self, scalable: Scalable) -> dict[str, str]:
        options: dict[str, str] = {}
        for key, text in sorted(scalable.annotations.items()):
            option = key.removeprefix(self._keys.options)
            if option == key or not option or not text:
                continue
            text = text.lower()
            path = ("metadata", "annotations", key)
            if option in names.SHARES and (wanted := share(text)):
                options[names.SHARES[option]] = wanted
            elif option in names.TIMES and (wanted := duration(text)):
                options[names.TIMES[option]] = wanted
            elif option == names.STARTUP_TIME and duration(text):
                message = f"{key}: CA 1.35 and later read it; with the shim they go without"
                self._report(scalable, "OptionNotSent", message, *path, note=True)
            elif key in self._keys.of_autoscaler:
                why = "is nothing that a group can say; CA's flag holds"
                self._report(scalable, "InvalidOption", f"{key}: {text[:100]!r} {why}", *path)
        return options


def _labels(scalable: Scalable) -> dict[str, str]:
    """Returns those labels of a scalable that its group gets, too, so that users can select the
    group by them.
    """
    ours = f"{constants.API_GROUP}/"
    return {
        key: value
        for key, value in scalable.labels.items()
        if not key.startswith(ours) and is_label_key(key) and is_label_value(value)
    }
