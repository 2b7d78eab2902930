"""Makes the CRDs that simulated Machines need, and decides whether a cluster's CRDs may be used for
them.

    group  --emulated_crds-->  CustomResourceDefinitions with our mark
    the CRDs that a cluster has  --objection-->  why nothing may be emulated there

The CRDs are the least that cluster-autoscaler needs: two versions without conversion, unknown
fields kept, status and scale. An annotation on them (the mark) is the user's consent: a cluster
without it may have real machines, which cost money.
"""

from collections.abc import Mapping
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.clusterapi.keys import DEFAULT_GROUP
from kwok_operator.formats.untyped import as_map

MARK: Final = "emulated"
"""The value of the annotation constants.CAPI_ANNOTATION on CRDs for simulated Machines. On groups,
that annotation names the scalable."""
VERSIONS: Final = ("v1beta1", "v1beta2")
"""The API versions of all kinds; the last one is the storage version."""
PROVIDER_LABEL: Final = "cluster.x-k8s.io/provider"
"""A label that every CRD of Cluster API's own installer has."""

_KINDS: Final = (
    ("MachineDeployment", "md", True),
    ("MachineSet", "ms", True),
    ("Machine", "ma", False),
)
PLURALS: Final = tuple(f"{kind.lower()}s" for kind, _, _ in _KINDS)
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd_name(plural: str, group: str) -> str:
    return f"{plural}.{group}"


def emulated_crds(group: str = DEFAULT_GROUP) -> list[dict[str, Any]]:
    """Returns the CRDs of MachineDeployments, MachineSets and Machines for an API group."""
    return [_crd(group, kind, short, scalable=scalable) for kind, short, scalable in _KINDS]


def is_marked(crd: Mapping[str, Any]) -> bool:
    return _metadata(crd, "annotations").get(constants.CAPI_ANNOTATION) == MARK


def objection(crds: Mapping[str, Mapping[str, Any] | None], *, group: str) -> str | None:
    """Returns why Machines must not be simulated with these CRDs; None if they may. `crds` has the
    CRDs by their plurals.
    """
    missing = [crd_name(plural, group) for plural in PLURALS if crds.get(plural) is None]
    if missing:
        flag = "" if group == DEFAULT_GROUP else f"={group}"
        return (
            f"there is no CRD {', '.join(missing)}; bring it with"
            f" `kwok-operator install --apply --clusterapi-crds{flag}`"
        )
    for plural in PLURALS:
        crd, name = crds[plural] or {}, crd_name(plural, group)
        if PROVIDER_LABEL in _metadata(crd, "labels"):
            return f"CRD {name} has the label {PROVIDER_LABEL}: a real Cluster API is installed"
        strategy = as_map(as_map(crd.get("spec")).get("conversion")).get("strategy", "None")
        if strategy != "None":
            return f"CRD {name} has spec.conversion.strategy {strategy}: not one of ours"
        if not is_marked(crd):
            return (
                f"CRD {name} lacks the annotation {constants.CAPI_ANNOTATION}: {MARK}, which"
                " `kwok-operator install --clusterapi-crds` gives to those that it brings;"
                " choose a cluster without Cluster API, or another group with CAPI_GROUP"
            )
    return None


def _crd(group: str, kind: str, short: str, *, scalable: bool) -> dict[str, Any]:
    singular = kind.lower()
    plural = f"{singular}s"
    annotations = {constants.CAPI_ANNOTATION: MARK}
    if f".{group}".endswith((".k8s.io", ".kubernetes.io")):
        # In these API groups, the API server accepts a CRD only with this annotation.
        annotations["api-approved.kubernetes.io"] = "unapproved, for emulation only"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd_name(plural, group), "annotations": annotations},
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "shortNames": [short],
                "categories": ["cluster-api"],
            },
            "scope": "Namespaced",
            "versions": [_version(name, kind, scalable=scalable) for name in VERSIONS],
        },
    }


def _version(name: str, kind: str, *, scalable: bool) -> dict[str, Any]:
    spec, status = dict(_OPEN), dict(_OPEN)
    subresources: dict[str, Any] = {"status": {}}
    columns = [("Cluster", "string", ".spec.clusterName")]
    if scalable:
        number = {"type": "integer", "format": "int32", "minimum": 0}
        spec["properties"] = {"replicas": number}
        status["properties"] = {"replicas": number, "selector": {"type": "string"}}
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
        columns += [
            ("Desired", "integer", ".spec.replicas"),
            ("Current", "integer", ".status.replicas"),
            ("Ready", "integer", ".status.readyReplicas"),
            ("Phase", "string", ".status.phase"),
        ]
    else:
        columns += [
            ("Node", "string", ".status.nodeRef.name"),
            ("ProviderID", "string", ".spec.providerID"),
            ("Phase", "string", ".status.phase"),
        ]
    columns.append(("Age", "date", ".metadata.creationTimestamp"))
    return {
        "name": name,
        "served": True,
        "storage": name == VERSIONS[-1],
        "schema": {
            "openAPIV3Schema": {
                **_OPEN,
                "description": f"A {kind} that kwok-operator plays: its machines are fake nodes.",
                "properties": {"spec": spec, "status": status},
            }
        },
        "subresources": subresources,
        "additionalPrinterColumns": [
            {"name": column, "type": kind_of, "jsonPath": path} for column, kind_of, path in columns
        ],
    }


def _metadata(crd: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    return as_map(as_map(crd.get("metadata")).get(part))
