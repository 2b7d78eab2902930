"""Whether each node of a group is what its template says, worked out from the spec alone."""

import re
from typing import Any

from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from kwok_operator.nodegroups.naming import uid_hash
from tests.e2e.api import GROUPS, NODES, Api

GUARD = [{"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}]


def inexact(api: Api, name: str) -> list[str]:
    """In sentences, what is wrong; about groups with a plain shape only."""
    group = api.get(f"{GROUPS}/{name}")
    nodes, _ = api.list(NODES)
    prefix = f"{name}-{uid_hash(group['metadata']['uid'])}-"
    ours = [node for node in nodes if node["metadata"]["name"].startswith(prefix)]
    wrong = [text for node in ours for text in _wrong(node, group, prefix)]
    if len(ours) != group["spec"]["targetSize"]:
        wrong.append(f"{len(ours)} nodes, not {group['spec']['targetSize']}")
    return wrong


def _wrong(node: dict[str, Any], group: dict[str, Any], prefix: str) -> list[str]:
    meta, spec, status = node["metadata"], node["spec"], node["status"]
    shape, name = group["spec"]["template"]["shape"], meta["name"]
    labels = {
        **shape["labels"],
        NODE_GROUP_LABEL: group["metadata"]["name"],
        "kubernetes.io/hostname": name,
    }
    marks = {
        NODE_GROUP_UID_ANNOTATION: group["metadata"]["uid"],
        "kwok.x-k8s.io/node": "fake",
    }
    checks = {
        "name": (bool(re.fullmatch(re.escape(prefix) + r"\d{6,}", name)), True),
        "labels": ({k: meta["labels"].get(k) for k in labels}, labels),
        "annotations": ({k: meta["annotations"].get(k) for k in marks}, marks),
        "owners": ([o["uid"] for o in meta["ownerReferences"]], [group["metadata"]["uid"]]),
        "taints": (spec.get("taints"), GUARD),
        "providerID": (spec.get("providerID"), f"kwok:{name}"),
        "cpu": (status["capacity"]["cpu"], str(shape["cpu"])),
        "allocatable cpu": (status["allocatable"]["cpu"], str(shape["cpu"])),
    }
    return [f"{name}: {what} {is_}, not {be}" for what, (is_, be) in checks.items() if is_ != be]
