"""The capacity of a scalable's nodes, and the capacity that cluster-autoscaler (CA) expects of them
while the scalable has no node.

    annotations, infrastructure template's status  --read_capacity-->  shape, overlay, findings

A scalable is a MachineDeployment, MachineSet or MachinePool. CA errs in some cases, so there are
two results: `shape` is for nodes, which get what production's nodes have; `overlay` is how the
template from which CA scales up from zero differs. Annotations win over the status of the
infrastructure template.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from kwok_operator.api.base import ExtendedResourceName, Quantity, is_label_key, is_label_value
from kwok_operator.clusterapi import keys
from kwok_operator.clusterapi.scalable import CapiFinding, Path, Scalable
from kwok_operator.companions.api import MAX_COUNT, MAX_DRIVERS, DriverName
from kwok_operator.constants import ARCH_LABEL, HOSTNAME_LABEL, NODE_GROUP_LABEL, OS_LABEL
from kwok_operator.errors import one_line
from kwok_operator.formats.quantity import format_quantity, parse_quantity
from kwok_operator.formats.untyped import value_at
from kwok_operator.formats.words import shown
from kwok_operator.nodegroups.api.template import TaintEffect

DEFAULT_ARCH: Final = "amd64"
ARCHITECTURES: Final = ("amd64", "arm64", "ppc64le", "s390x")
DEFAULT_MAX_PODS: Final = "110"
_SHAPES: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}
_QUANTITIES: Final = {
    keys.CPU: "cpu",
    keys.MEMORY: "memory",
    keys.DISK: "ephemeral-storage",
}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,400}")
_EFFECTS: Final = frozenset(TaintEffect)
_OURS: Final = frozenset({HOSTNAME_LABEL, NODE_GROUP_LABEL})
_BELOW: Final = (
    "is below 0, and no node can have that: CA takes it as it is, and no pod that asks for any"
    " finds room at zero; correct it"
)
_MACHINES: Final = {
    "cpu": ("1m", "100k", "4"),
    "memory": ("1Mi", "1Ei", "16Gi"),
    "ephemeral-storage": ("1Mi", "1Ei", "100Gi"),
}
"""Per resource, the least and the most that a machine is likely to have, and an example."""
_RESOURCE_NAME: Final = TypeAdapter(ExtendedResourceName)
_QUANTITY: Final = TypeAdapter(Quantity)
_DRIVER: Final = TypeAdapter(DriverName)

Taint = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a scalable's nodes; `shape` and `companions` are parts of spec.template.

    `overlay` is how CA's template for scaling from zero differs: labels (None: it lacks the label),
    taints (all of them), capacity. `known` says whether CA knows enough to scale from zero.
    """

    shape: Mapping[str, Any]
    overlay: Mapping[str, Any]
    known: bool
    findings: tuple[CapiFinding, ...]
    companions: Mapping[str, Any] = field(default_factory=dict)


def read_capacity(
    scalable: Scalable, template: Mapping[str, Any] | None, *, default_arch: str = DEFAULT_ARCH
) -> Capacity:
    """Reads the capacity of a scalable (MachineDeployment, MachineSet, MachinePool). `template` is
    its infrastructure template, None without one."""
    return _Reader(scalable, template, default_arch).read()


@dataclass(slots=True)
class _Reader:
    _of: Scalable
    _template: Mapping[str, Any] | None
    _default_arch: str
    _findings: list[CapiFinding] = field(default_factory=list)
    _broken: bool = False

    def read(self) -> Capacity:
        annotated, listed = self._annotated(), self._listed()
        declared = {**listed, **annotated}
        pods = declared.get("pods", DEFAULT_MAX_PODS)
        # CA treats a negative amount like 0: no pod that requests the resource fits.
        below = {name: "0" for name, text in declared.items() if _is_below(text)}
        resources = {"pods": DEFAULT_MAX_PODS} | {
            name: _short(text)
            for source in (listed, annotated)
            for name, text in source.items()
            if not _is_below(text)
        }
        labels, seen_labels = self._labels()
        taints, seen_taints = self._taints()
        overlay: dict[str, Any] = {}
        differing = {
            key: seen_labels.get(key)
            for key in sorted(labels.keys() | seen_labels.keys())
            if labels.get(key) != seen_labels.get(key)
        }
        if differing:
            overlay["labels"] = differing
        if seen_taints != taints:
            overlay["taints"] = seen_taints
        if below:
            overlay["capacity"] = below
        if "pods" not in annotated and pods != DEFAULT_MAX_PODS:
            overlay["capacity"] = below | {"pods": DEFAULT_MAX_PODS}
            self._report(
                "PodsIgnored",
                f"status.capacity.pods of the infrastructure template is {shown(pods)}; without"
                f" the annotation {keys.MAX_PODS} CA counts with {DEFAULT_MAX_PODS}; add it",
            )
        known = not self._broken and {"cpu", "memory"} <= declared.keys()
        shape = self._shape(resources, labels, taints)
        companions = {**self._csi_node(), **self._resource_slices()}
        return Capacity(shape, overlay, known, tuple(self._findings), companions)

    def _report(self, reason: str, message: str, path: Path = (), *, note: bool = False) -> None:
        self._findings.append(CapiFinding(reason, one_line(message), self._of.id, path, note))

    def _report_annotation(self, key: str, value: str, what: str, *, reason: str = "") -> None:
        path = ("metadata", "annotations", key)
        self._report(reason or "InvalidCapacity", f"{key}: {shown(value)} {what}", path)

    def _annotated(self) -> dict[str, str]:
        """The resources that annotations give; empty or zero ones count as missing."""
        amounts: dict[str, str] = {}
        for key, name in _QUANTITIES.items():
            text = self._of.annotations.get(key, "")
            amount = _amount(text) if text else Fraction(0)
            if amount is None:
                self._broken = True
                hides = "CA can't scale the group from zero, and drops it while it has no replicas"
                self._report_annotation(key, text, f"is no quantity such as 4 or 16Gi; {hides}")
            elif amount:
                amounts[name] = text
            if _is_below(text):
                self._report_annotation(key, text, _BELOW)
            elif unlikely := _unlikely(name, amount):
                self._report_annotation(key, text, unlikely, reason="UnlikelyCapacity")
        gpus, pods = self._integer(keys.GPU_COUNT), self._integer(keys.MAX_PODS)
        if pods:
            amounts["pods"] = str(pods)
        gpu_type = self._of.annotations.get(keys.GPU_TYPE, "")
        driver = self._of.annotations.get(keys.DRA_DRIVER, "")
        if gpus and gpu_type:
            amounts[gpu_type] = str(gpus)
        elif gpus > 0 and not driver:
            what = f"is of no type: {keys.GPU_TYPE} is missing, and CA leaves GPUs out; add it"
            self._report_annotation(keys.GPU_COUNT, str(gpus), what, reason="GpuIncomplete")
        elif gpu_type and not gpus:
            what = f"has no count: {keys.GPU_COUNT} isn't above 0, and CA leaves GPUs out; set it"
            self._report_annotation(keys.GPU_TYPE, gpu_type, what, reason="GpuIncomplete")
        return amounts

    def _resource_slices(self) -> dict[str, Any]:
        """The ResourceSlices that CA 1.33 and later expect, from the annotations with a DRA driver
        and a GPU count."""
        driver = self._of.annotations.get(keys.DRA_DRIVER, "")
        gpus = whole_number(self._of.annotations.get(keys.GPU_COUNT, "")) or 0
        if not driver:
            return {}
        if gpus <= 0:
            what = f"has no devices: {keys.GPU_COUNT} isn't above 0, and CA leaves it out; set it"
            self._report_annotation(keys.DRA_DRIVER, driver, what, reason="GpuIncomplete")
        elif not _fits(_DRIVER, driver) or gpus > MAX_COUNT:
            what = f"with {gpus} devices can't be published: a driver is a DNS name in lower case"
            what = f"{what}, with at most {MAX_COUNT:,} devices"
            self._report_annotation(keys.DRA_DRIVER, driver, what, reason="InvalidDriver")
        else:
            device = {"name": "gpu", "count": gpus, "attributes": {"type": {"string": "gpu"}}}
            return {"resourceSlices": [{"driver": driver, "devices": [device]}]}
        return {}

    def _csi_node(self) -> dict[str, Any]:
        """The CSINode that CA 1.35 and later expect, from an annotation DRIVER=LIMIT,...; 0 means
        no limit."""
        drivers: dict[str, dict[str, Any]] = {}
        for piece in self._of.annotations.get(keys.CSI_DRIVER, "").split(","):
            name, _, text = (part.strip() for part in piece.partition("="))
            limit = whole_number(text)
            if limit is None or not 0 <= limit < 2**31 or not _fits(_DRIVER, name):
                if piece.strip():
                    what = "is not of the form DRIVER=LIMIT, with a DNS name and a number from 0 on"
                    self._report_annotation(keys.CSI_DRIVER, piece, what, reason="InvalidDriver")
            else:
                allocatable = {"allocatable": {"count": limit}} if limit else {}
                drivers.setdefault(name, {"name": name, **allocatable})
        most = list(drivers.values())[:MAX_DRIVERS]
        return {"csiNode": {"drivers": most}} if most else {}

    def _integer(self, key: str) -> int:
        text = self._of.annotations.get(key, "")
        number = whole_number(text or "0")
        if number is None:
            self._broken = True
            hides = "CA can't scale the group from zero, and drops it while it has no replicas"
            self._report_annotation(key, text, f"is no whole number; {hides}")
            return 0
        if number < 0:
            self._report_annotation(key, text, _BELOW)
        return number

    def _listed(self) -> dict[str, str]:
        """The resources in the infrastructure template's status, without unreadable amounts."""
        amounts: dict[str, str] = {}
        where = "status.capacity.{} of the infrastructure template: {} {}"
        for name, text in self._status("capacity").items():
            amount = _amount(text)
            if amount is None:
                what = "is no quantity; CA leaves it out"
                self._report("InvalidCapacity", where.format(name, shown(text), what))
                continue
            amounts[name] = text
            if _is_below(text):
                self._report("InvalidCapacity", where.format(name, shown(text), _BELOW))
            elif unlikely := _unlikely(name, amount):
                self._report("UnlikelyCapacity", where.format(name, shown(text), unlikely))
        return amounts

    def _status(self, part: str) -> dict[str, str]:
        """A map of strings in the infrastructure template's status; {} if one of its values is no
        string."""
        given = value_at(self._template, "status", part)
        if not isinstance(given, Mapping):
            return {}
        wrong = [str(key) for key, value in given.items() if not isinstance(value, str)]
        if wrong:
            self._report(
                "InvalidCapacity",
                f"status.{part} of the infrastructure template: {', '.join(wrong[:5])} is no text;"
                " CA takes all of it for empty: write it in quotes",
            )
            return {}
        return dict(given)

    def _labels(self) -> tuple[dict[str, str], dict[str, str]]:
        """The labels of the nodes, and the labels that CA expects of a node while the scalable has
        none.
        """
        info = self._status("nodeInfo")
        default = {ARCH_LABEL: self._default_arch, OS_LABEL: "linux"}
        labels = {
            ARCH_LABEL: info.get("architecture", ""),
            OS_LABEL: info.get("operatingSystem", ""),
        }
        nodes = default | {key: value for key, value in labels.items() if value}
        seen = default | (labels if self._template is not None else {})
        empty = [key for key in (ARCH_LABEL, OS_LABEL) if not seen[key]]
        handed_on = {
            key: value
            for key, value in self._of.template_labels.items()
            if keys.is_managed(key) and self._reaches_nodes(key, value)
        }
        nodes |= handed_on
        seen |= {k: v for k, v in self._of.node_labels.items() if keys.is_managed(k)}
        unseen = [key for key in handed_on if seen.get(key) != handed_on[key]]
        annotated = self._annotated_labels()
        if empty := [key for key in empty if key not in annotated]:
            self._report(
                "NoArchitecture",
                "status.nodeInfo of the infrastructure template lacks what gives"
                f" {' and '.join(empty)}: CA 1.35 and later take that for empty, and pods that"
                f" select it find no group at zero; add it to the annotation {keys.LABELS}",
            )
        if unseen := [key for key in unseen if key not in annotated]:
            self._report(
                "LabelsUnseen",
                f"spec.template.metadata.labels: {', '.join(sorted(unseen)[:5])} reach the nodes,"
                f" and CA doesn't see them from zero; add them to the annotation {keys.LABELS}",
                ("spec", "template", "metadata", "labels"),
            )
        seen |= annotated
        nodes |= {
            key: value
            for key, value in annotated.items()
            if self._is_label(key, value) and (value or key not in default)
        }
        return {k: v for k, v in nodes.items() if k not in _OURS}, {
            k: v for k, v in seen.items() if k not in _OURS
        }

    def _annotated_labels(self) -> dict[str, str]:
        labels: dict[str, str] = {}
        for piece in self._of.annotations.get(keys.LABELS, "").split(","):
            key, equals, value = piece.partition("=")
            if equals:
                labels[key] = value
            elif piece:
                what = "is not of the form KEY=VALUE; CA leaves it out"
                self._report_annotation(keys.LABELS, piece, what, reason="InvalidLabel")
        return labels

    def _reaches_nodes(self, key: str, value: str) -> bool:
        good = is_label_key(key) and is_label_value(value)
        if not good:
            path = ("spec", "template", "metadata", "labels")
            message = f"{'.'.join(path)}: {shown(f'{key}={value}')} is no label: correct it"
            self._report("InvalidLabel", message, path)
        return good

    def _is_label(self, key: str, value: str) -> bool:
        good = is_label_key(key) and is_label_value(value)
        if not good:
            what = "is no label that a node can have; CA expects it from zero, and no node has it"
            self._report_annotation(keys.LABELS, f"{key}={value}", what, reason="InvalidLabel")
        return good

    def _taints(self) -> tuple[list[Taint], list[Taint]]:
        """The taints of the nodes, and the taints that CA expects of a node while the scalable has
        none.
        """
        specified = [
            {"key": t.get("key", ""), "value": t.get("value", ""), "effect": t.get("effect", "")}
            for t in self._of.taints
        ]
        annotated: dict[tuple[str, str], Taint] = {}
        for piece in self._of.annotations.get(keys.TAINTS, "").split(","):
            taint = _taint(piece)
            if taint is None:
                if piece:
                    what = "is not of the form KEY=VALUE:EFFECT; CA leaves it out"
                    self._report_annotation(keys.TAINTS, piece, what, reason="InvalidTaint")
            else:
                annotated[taint["key"], taint["effect"]] = taint
        seen = [annotated.get((t["key"], t["effect"]), t) for t in specified]
        seen += [taint for taint in annotated.values() if taint not in seen]
        nodes = [taint for taint in annotated.values() if taint["effect"] in _EFFECTS]
        for taint in annotated.values():
            if taint not in nodes:
                what = f"has no effect of {', '.join(TaintEffect)}; no node can have it"
                self._report_annotation(keys.TAINTS, taint["key"], what, reason="InvalidTaint")
        if any((t["key"], t["effect"]) not in annotated for t in specified):
            self._report(
                "TaintsUnseen",
                "spec.template.spec.taints: CA 1.36 and later expect them from zero, and nodes have"
                " them only with Cluster API's feature gate MachineTaintPropagation, which is off"
                f" by default; name them in the annotation {keys.TAINTS} if nodes have them",
                ("spec", "template", "spec", "taints"),
            )
        return nodes, seen

    def _shape(
        self, resources: Mapping[str, str], labels: Mapping[str, str], taints: Sequence[Taint]
    ) -> dict[str, Any]:
        shape: dict[str, Any] = {"maxPods": int(_amount(resources["pods"]) or 0)}
        others: dict[str, str] = {}
        for name, text in sorted(resources.items()):
            if name in _SHAPES:
                if _fits(_QUANTITY, text):
                    shape[_SHAPES[name]] = text
            elif name == self._of.annotations.get(keys.GPU_TYPE) and _fits(_RESOURCE_NAME, name):
                shape["gpu"] = {"type": name, "count": int(_amount(text) or 0)}
            elif name.startswith("hugepages-") or _fits(_RESOURCE_NAME, name):
                if _fits(_QUANTITY, text):
                    others[name] = text
            elif name != "pods":
                self._report(
                    "UnknownResource",
                    f"the resource {shown(name)} has no domain, such as nvidia.com/gpu has; CA"
                    " counts with it, and no node can have it",
                )
        rest = dict(labels)
        shape["arch"] = rest.pop(ARCH_LABEL) or self._default_arch
        shape["os"] = rest.pop(OS_LABEL) or "linux"
        for part, value in (("resources", others), ("labels", rest), ("taints", list(taints))):
            if value:
                shape[part] = value
        return shape


def whole_number(text: str) -> int | None:
    """Parses a number as Go's strconv.Atoi does; None if that would fail."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _taint(text: str) -> Taint | None:
    """Parses a taint as cluster-autoscaler does: `key=value:Effect`, `key:Effect` or `key`."""
    head, colon, effect = text.partition(":")
    key, equals, value = head.partition("=") if colon else (head, "", "")
    if ":" in effect or (equals and "=" in value):
        return None
    if not is_label_key(key) or not is_label_value(value):
        return None
    return {"key": key, "value": value, "effect": effect}


def _amount(text: str) -> Fraction | None:
    try:
        return parse_quantity(text)
    except ValueError:
        return None


def _is_below(text: str) -> bool:
    return (_amount(text) or 0) < 0


def _unlikely(name: str, amount: Fraction | None) -> str:
    """Returns a sentence if no machine has as much, or as little, of a resource; else ""."""
    least, most, example = _MACHINES.get(name, ("", "", ""))
    if not amount or not example or parse_quantity(least) <= amount <= parse_quantity(most):
        return ""
    return (
        f"is not between {least} and {most}, and no machine has that; CA takes it as it is: write"
        f" it like {example}"
    )


def _short(text: str) -> str:
    """Returns the amount as text that a group's spec accepts, if there is such a text for the same
    amount.
    """
    amount = _amount(text)
    if amount is None or _fits(_QUANTITY, text):
        return text
    return format_quantity(amount, like=text)


def _fits(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True
