"""Makes the companions of a node: a pure function of template, node name and node uid.

    Companions (spec) ──compile_companions──> Companion ──body(owner)──> bytes to POST
    an object as the API server has it ──digest_of──> its digest, to compare with the Companion's

A digest says whether an object is as it should be, so nothing has to be recorded. It is the same
for all nodes of a group. The digest of a CSINode is computed from its content, with {node} in place
of the node's name. A ResourceSlice has its digest as an annotation, and counts as edited once its
generation is above 1.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.api.taints import DeviceTaint
from kwok_operator.companions import gpudevices
from kwok_operator.companions.api import Companions, CsiNode
from kwok_operator.companions.deviceslices import (
    GATES,
    NODE_PATTERN,
    OF_NODE,
    Slice,
    compile_slices,
    cut,
    gated_fields,
    written_size,
)
from kwok_operator.companions.livecompanions import CopiedCompanions
from kwok_operator.errors import TemplateError, one_line
from kwok_operator.formats.words import few_names
from kwok_operator.nodegroups.api.status import Verdict
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.nodegroups.naming import longest_name
from kwok_operator.sources.api.source import NodesSource

_MAX_NODE_ID: Final = 192
"""The most bytes before Kubernetes 1.36; since then 256."""
_EDITED: Final = "edited"
_DIGEST: Final = f"{constants.API_GROUP}/companion"
"""The annotation on a ResourceSlice with the digest of the spec from which it was made."""


class CompanionKind(Enum):
    """The kinds of companions; each value is kind, API version and plural."""

    CSI_NODE = ("CSINode", "storage.k8s.io/v1", "csinodes")
    RESOURCE_SLICE = ("ResourceSlice", "resource.k8s.io/v1", "resourceslices")

    @property
    def kind(self) -> str:
        return self.value[0]

    @property
    def api_version(self) -> str:
        return self.value[1]

    @property
    def path(self) -> str:
        return f"/apis/{self.api_version}/{self.value[2]}"


@dataclass(frozen=True, slots=True)
class CompanionOwner:
    """The owner of companions: a Node; or the group, for companions that its nodes share.

    The names of the companions begin with `base`: for a Node, that is its name.
    """

    base: str
    uid: str
    group: str
    is_group: bool = False

    @property
    def reference(self) -> dict[str, str]:
        if self.is_group:
            api_version = f"{constants.API_GROUP}/{constants.API_VERSION}"
            owner = {"apiVersion": api_version, "kind": constants.KIND, "name": self.group}
        else:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.base}
        return {**owner, "uid": self.uid}


@dataclass(frozen=True, slots=True)
class Companion:
    """An object that each owner (a Node, or the group) gets. Its name is the owner's with `suffix`
    added.

    `gated` are those of its fields that an API server silently drops if a feature gate is off.
    """

    kind: CompanionKind
    suffix: str
    shared: bool
    digest: str
    gated: frozenset[str]
    _spec: str
    """JSON with placeholders: {node}, and in a ResourceSlice {uid}."""
    devices: frozenset[str] = frozenset()
    """The names of the devices in a ResourceSlice."""

    def name(self, base: str) -> str:
        return f"{base}{self.suffix}"

    def body(self, owner: CompanionOwner) -> bytes:
        """Returns the JSON of this companion for one owner (a Node, or the group)."""
        spec = self._spec.replace(NODE_PATTERN, owner.base)
        metadata: dict[str, Any] = {
            "name": self.name(owner.base),
            "labels": {constants.NODE_GROUP_LABEL: owner.group},
            "ownerReferences": [owner.reference],
        }
        if self.kind is CompanionKind.RESOURCE_SLICE:
            metadata["annotations"] = {_DIGEST: self.digest}
            spec = spec.replace(gpudevices.UID_PATTERN, owner.uid)
        head = {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata}
        text = json.dumps(head, separators=(",", ":"))
        return f'{text[:-1]},"spec":{spec}}}'.encode()


_NONE: Final = (None, Companions())
_EMPTY: Final = CsiNode()


def asks_for_companions(template: Template) -> bool:
    return template.companions not in _NONE or _asks_otherwise(template)


def adds_companions(template: Template) -> bool:
    """Whether a template has companions with content. An empty CSINode doesn't count."""
    companions = template.companions
    given = companions not in (*_NONE, Companions(csi_node=_EMPTY))
    return given or _asks_otherwise(template)


def _asks_otherwise(template: Template) -> bool:
    gpu = template.shape.gpu
    return (gpu is not None and gpu.dra) or copied_from(template) is not None


def with_csi_node(template: Template) -> Template:
    """Returns the template with an empty CSINode, unless it has or copies one."""
    companions = template.companions or Companions()
    if companions.csi_node is not None or copied_from(template) is not None:
        return template
    completed = companions.model_copy(update={"csi_node": _EMPTY})
    return template.model_copy(update={"companions": completed})


def copied_from(template: Template) -> NodesSource | None:
    """Returns the real node whose companions are copied; None if the template copies none."""
    nodes = template.source.nodes if template.source is not None else None
    return nodes if nodes is not None and nodes.companions else None


def compile_companions(
    template: Template,
    *,
    group: str,
    tainted: bool = False,
    copied: CopiedCompanions | None = None,
) -> tuple[Companion, ...]:
    """Returns the companions that each node gets, and those that a group's nodes share.

    No two have the same name. With `tainted`, slices leave room for taints that devices get later.
    A `copied` CSINode is used only if the template has none, `copied` ResourceSlices of a driver
    only if the template has none of this driver. Raises TemplateError with the field, the value and
    the remedy.
    """
    companions, gpu = template.companions or Companions(), template.shape.gpu
    csi_nodes, base = [], longest_name(group)
    if companions.csi_node is not None:
        _check_node_ids(companions.csi_node, base=base)
        csi_nodes.append(_csi_node([driver.dump() for driver in companions.csi_node.drivers]))
    elif copied is not None and copied.csi_drivers is not None:
        csi_nodes.append(_csi_node([_with_short_id(each, base) for each in copied.csi_drivers]))
    slices = [
        each
        for part in companions.resource_slices
        for each in compile_slices(part, group=group, tainted=tainted)
    ]
    for pool in gpudevices.gpu_pools(gpu) if gpu is not None and gpu.dra else ():
        if any(part.driver == pool.driver for part in companions.resource_slices):
            raise TemplateError(
                field="spec.template.companions.resourceSlices",
                value=pool.driver,
                problem="is published by shape.gpu.dra already",
                remedy="take one of the two out",
            )
        slices += cut(pool.driver, pool.devices, pool.counters, where=OF_NODE, tainted=tainted)
    if copied is not None:
        drivers = frozenset(s.spec["driver"] for s in slices)
        slices += copied.slices(without=drivers, tainted=tainted, base=base)
    return tuple([*csi_nodes, *map(_resource_slice, slices)])


def _check_node_ids(wanted: CsiNode, *, base: str) -> None:
    for driver in wanted.drivers:
        if written_size(driver.node_id, base) > _MAX_NODE_ID:
            raise TemplateError(
                field=f"spec.template.companions.csiNode.drivers[{driver.name}].nodeID",
                value=driver.node_id,
                problem=f"is longer than {_MAX_NODE_ID} bytes where it is written out",
                remedy="make it shorter",
            )


def _with_short_id(driver: Mapping[str, Any], base: str) -> dict[str, Any]:
    fits = written_size(driver["nodeID"], base) <= _MAX_NODE_ID
    return {**driver, "nodeID": driver["nodeID"] if fits else NODE_PATTERN}


def _csi_node(drivers: list[dict[str, Any]]) -> Companion:
    for driver in drivers:
        driver["topologyKeys"] = list(dict.fromkeys(driver["topologyKeys"]))
    spec = {"drivers": drivers}
    kind = CompanionKind.CSI_NODE
    return Companion(kind, "", False, _csi_digest(spec), frozenset(), json.dumps(spec))


def _resource_slice(wanted: Slice) -> Companion:
    spec = json.dumps(wanted.spec, separators=(",", ":"))
    return Companion(
        CompanionKind.RESOURCE_SLICE,
        wanted.suffix,
        wanted.shared,
        _short(spec),
        gated_fields(wanted.spec),
        spec,
        frozenset(device["name"] for device in wanted.spec.get("devices", ())),
    )


@lru_cache(maxsize=4_096)
def tainted(companion: Companion, devices: frozenset[str], taint: DeviceTaint) -> Companion:
    """Returns the ResourceSlice with one more taint on these of its devices."""
    spec = json.loads(companion._spec)
    for device in spec["devices"]:
        if device["name"] in devices:
            device["taints"] = [*device.get("taints", ()), taint.dump()]
    return _resource_slice(Slice(companion.suffix, companion.shared, spec))


def gated_of(kind: CompanionKind, body: Mapping[str, Any]) -> frozenset[str]:
    """Returns the fields of an object that an API server would drop if a feature gate were off."""
    if kind is CompanionKind.CSI_NODE:
        return frozenset()
    return gated_fields(body.get("spec") or {})


def digest_of(kind: CompanionKind, body: Mapping[str, Any]) -> str:
    """Computes the digest of an object as the API server has it.

    It equals `digest` of the Companion from which the object was made, and differs once somebody
    has changed the object.
    """
    metadata, spec = body["metadata"], body.get("spec") or {}
    if kind is CompanionKind.RESOURCE_SLICE:
        first = metadata.get("generation") in (None, 1)
        return (metadata.get("annotations") or {}).get(_DIGEST, _EDITED) if first else _EDITED
    drivers = [
        {**driver, "nodeID": str(driver.get("nodeID")).replace(metadata["name"], NODE_PATTERN)}
        for driver in spec.get("drivers") or ()
    ]
    return _csi_digest({"drivers": drivers})


def _csi_digest(spec: Mapping[str, Any]) -> str:
    drivers = [
        {key: value for key, value in driver.items() if value not in (None, [], ())}
        for driver in spec["drivers"]
    ]
    return _short(json.dumps(sorted(drivers, key=lambda d: d["name"]), sort_keys=True))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why companions are not written: `reason` and `message` are those of a condition."""

    reason: str
    message: str


NAME_TAKEN: Final = "NameTaken"
FIELDS_DROPPED: Final = "FieldsDropped"
OF_SOME: Final = frozenset((NAME_TAKEN, FIELDS_DROPPED))
"""Reasons that concern single objects: other objects are still written."""


def not_served(kind: CompanionKind) -> Trouble:
    return Trouble(
        "NotServed",
        f"This cluster doesn't serve {kind.kind} in {kind.api_version}: use a Kubernetes that does,"
        " or take it out of spec.template.companions.",
    )


def not_allowed(kind: CompanionKind) -> Trouble:
    return Trouble(
        "NotAllowed",
        f"The operator may not read and write {kind.value[2]} of {kind.api_version}: add the"
        " component companions (deploy/components) to its installation.",
    )


def may_not_copy(said: str) -> Trouble:
    return Trouble(
        "NotAllowed",
        f"What belongs to the node of spec.template.from.nodes may not be read ({said}): grant get"
        " on csinodes and list on resourceslices, in this cluster by the component companions.",
    )


def not_copied(reason: str, why: str) -> Trouble:
    return Trouble(
        reason,
        one_line(f"What belongs to the node of spec.template.from.nodes can't be copied: {why}."),
    )


def refused(kind: CompanionKind, said: str) -> Trouble:
    return Trouble(
        "Refused",
        f"The API server refuses a {kind.kind}: {said}. Correct spec.template.companions.",
    )


def dropped(fields: frozenset[str]) -> Trouble:
    gates = sorted({GATES[field] for field in fields})
    return Trouble(
        FIELDS_DROPPED,
        f"The API server doesn't keep {', '.join(sorted(fields))} of ResourceSlices: start it with"
        f" the feature gate {' and '.join(gates)}, or take it out of spec.template.companions.",
    )


def taken(names: frozenset[str]) -> Trouble:
    return Trouble(
        NAME_TAKEN,
        f"{few_names(names)}: there, but not made by this operator for the group's nodes. Left"
        " alone; delete it, and the node gets its own.",
    )


ABOUT_TO_BE_WRITTEN: Final = Verdict(
    False, "Writing", "Nodes are to get their companions.", known=False
)
REMOVING: Final = Verdict(
    False,
    "Removing",
    "Companions that the template doesn't have any more are deleted.",
    known=False,
)


def verdict(
    *, owners: int, missing: int, trouble: Trouble | None, paused: bool, held: int = 0
) -> Verdict:
    """Returns the condition CompanionsPresent. `owners` counts nodes, and the group if its nodes
    share companions; `missing` of them lack companions, `held` of these because the simulated cloud
    delays them."""
    if trouble is not None:
        return Verdict(False, trouble.reason, trouble.message)
    if not missing:
        return Verdict(True, "Present", "Every node has its companions.")
    counts = f"{owners - missing} of {owners} nodes and shared pools have their companions"
    if paused:
        return Verdict(False, "Paused", f"{counts}; spec.paused holds the rest back.", known=False)
    if missing == held:
        return Verdict(
            False, "HeldBack", f"{counts}; spec.cloud.devices holds the rest back.", known=False
        )
    return Verdict(False, "Writing", f"{counts}.", known=False)
