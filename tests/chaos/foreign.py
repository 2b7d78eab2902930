"""Nodes of other people, more or less like ours, and the proof that nobody of ours touched them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from tests.e2e.api import NODES, Api

MANAGER: Final = "kwok-operator"
"""The name under which the API server books what the operator writes."""
CONTROLLERS_OWN: Final = "node.kubernetes.io/"
"""Taints that Kubernetes itself puts on nodes that nobody answers for."""


def impostors(group: str) -> list[dict[str, Any]]:
    """Four nodes: a stranger, one with our label, one with a name of ours, one with our
    annotations and the uid of nobody. None has an owner: one that doesn't exist would have the
    garbage collector delete the node.
    """
    label = {NODE_GROUP_LABEL: group}
    other = "00000000-0000-4000-8000-000000000000"
    return [
        _node(f"stranger-of-{group}"),
        _node(f"labelled-{group}", labels=label),
        _node(f"{group}-zzzz-000000", labels=label),
        _node(
            f"{group}-yyyy-000001",
            labels=label,
            annotations={NODE_GROUP_UID_ANNOTATION: other, "kwok.x-k8s.io/node": "real"},
        )
        | {"spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}]}},
    ]


def _node(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def bystanders(group: str) -> dict[str, dict[str, Any]]:
    """By path, objects that nobody writes to; no scheduler looks at the pod."""
    metadata = {"name": f"bystander-of-{group}", "labels": {NODE_GROUP_LABEL: group}}
    container = {"name": "c", "image": "c"}
    return {
        "/api/v1/namespaces/default/configmaps": {"metadata": metadata, "data": {"a": "b"}},
        "/api/v1/namespaces/default/pods": {
            "metadata": metadata,
            "spec": {"schedulerName": "nobody", "containers": [container]},
        },
        "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
            "metadata": metadata,
            "spec": {"holderIdentity": group},
        },
    }


class Foreigners:
    """Some nodes of other people in a cluster, and objects of other kinds."""

    def __init__(self, api: Api, group: str) -> None:
        self._api = api
        self._before = {
            made["metadata"]["name"]: _content(made)
            for made in (api.create(NODES, node) for node in impostors(group))
        }
        self._bystanders = {
            f"{path}/{made['metadata']['name']}": made["metadata"]
            for path, made in ((path, api.create(path, b)) for path, b in bystanders(group).items())
        }

    @property
    def names(self) -> list[str]:
        return list(self._before)

    def touched(self) -> list[str]:
        """In sentences, what has been done to them."""
        found = []
        for name, before in self._before.items():
            node = self._api.get(f"{NODES}/{name}")
            managers = {m["manager"] for m in node["metadata"].get("managedFields", ())}
            if MANAGER in managers:
                found.append(f"the operator has written to {name}")
            if _content(node) != before:
                found.append(f"{name} was {before} and is {_content(node)}")
        for path, meta in self._bystanders.items():
            now = self._api.get(path)["metadata"]
            if (now["uid"], now["resourceVersion"]) != (meta["uid"], meta["resourceVersion"]):
                found.append(f"{path} was {meta} and is {now}")
        return found

    def remove(self) -> None:
        for path in self._bystanders:
            self._api.delete(path)
        for name in self._before:
            self._api.delete(f"{NODES}/{name}")


def _content(node: Mapping[str, Any]) -> str:
    """What people have said about a node, and nothing that Kubernetes fills in by itself."""
    meta, spec = node["metadata"], dict(node.get("spec") or {})
    taints = [t for t in spec.pop("taints", ()) if not t["key"].startswith(CONTROLLERS_OWN)]
    annotations = meta.get("annotations") or {}
    kept = {k: v for k, v in annotations.items() if "ttl" not in k and "volumes." not in k}
    spec.pop("podCIDR", None)
    spec.pop("podCIDRs", None)
    deleted = meta.get("deletionTimestamp")
    return json.dumps(
        [meta["uid"], deleted, meta.get("labels"), kept, meta.get("ownerReferences"), spec, taints],
        sort_keys=True,
    )
