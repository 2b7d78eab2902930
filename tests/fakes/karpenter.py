"""CRDs with the names and versions of Karpenter's, and as much of their schemas as tests need."""

from typing import Any

import yaml

from tests.fakes.scenarios import GROUP

_ANY: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd(group: str, kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    properties = {"apiVersion": text, "kind": text, "metadata": _ANY, "spec": spec}
    schema = {"type": "object", "properties": properties}
    names = {"kind": kind, "plural": f"{kind.lower()}s"}
    if kind == "KWOKNodeClass":
        names["plural"] = "kwoknodeclasses"
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Cluster",
            "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
        },
    }


def _fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


POOLS = crd(
    "karpenter.sh",
    "NodePool",
    "v1",
    _fields(
        template=_ANY,
        limits=_ANY,
        disruption=_fields(
            consolidateAfter={"type": "string"},
            consolidationPolicy={"type": "string", "enum": ["WhenEmpty"]},
        ),
    ),
)
CLAIMS = crd("karpenter.sh", "NodeClaim", "v1", _ANY)
CLASSES = crd(
    "karpenter.kwok.sh",
    "KWOKNodeClass",
    "v1alpha1",
    _fields(nodeRegistrationDelay={"type": "string"}),
)
CRDS = (POOLS, CLAIMS, CLASSES)


def as_text(*objects: Any) -> str:
    return yaml.safe_dump_all(objects)


def group(name: str = "batch", **spec: Any) -> dict[str, Any]:
    """A group of which an autoscaler may make nodes."""
    given = {"autoscaling": {"maxSize": 10}, "price": {"hourly": "0.1"}} | spec
    return GROUP | {"metadata": {"name": name}, "spec": given}


def pool(name: str = "pool", *requirements: dict[str, Any]) -> dict[str, Any]:
    """A NodePool as production has it."""
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    spec = {"nodeClassRef": ref, "requirements": [*requirements]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": spec}},
    }
