"""Groups as the e2e tests handle them: apply one, wait for it, read what it is and has.

Reads are fresh and come from the API server, never from the operator. A group's nodes are all that
have its label, terminating ones too; its Events are those about the object that has the name now.

`stopped` lets a test act in the middle of a long plan, however fast the operator is.

Nothing here asserts: what a group should be is for the tests to say.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    KIND,
    NODE_GROUP_LABEL,
    PLURAL,
    POOL_KIND,
    POOL_PLURAL,
)
from kwok_operator.schema.crd import CRD_DIRECTORY
from tests.e2e.api import GROUPS, NODES
from tests.e2e.kubectl import Kubectl, eventually

CRD_NAME = f"{PLURAL}.{API_GROUP}"
POOL_CRD_NAME = f"{POOL_PLURAL}.{API_GROUP}"
ESTABLISHED = "--for=condition=Established"


def install_crds(kubectl: Kubectl) -> None:
    """The CRDs of this checkout are served, and kubectl knows them."""
    kubectl("apply", f"--filename={CRD_DIRECTORY}")
    # In its first moment a CRD has no conditions, and kubectl wait doesn't wait for them.
    names = [f"crd/{CRD_NAME}", f"crd/{POOL_CRD_NAME}"]
    eventually(
        lambda: kubectl("wait", ESTABLISHED, *names, "--timeout=120s"),
        describe="the CRDs are established",
    )
    for kind in (PLURAL, POOL_PLURAL):
        _wait_served(kubectl, kind)


def _wait_served(kubectl: Kubectl, kind: str) -> None:
    """Established comes before discovery, the schema that explain reads, and the objects."""
    eventually(lambda: kubectl("explain", kind), describe=f"{kind} can be explained")
    eventually(lambda: kubectl("get", kind) is not None, describe=f"{kind} are served")


def group_manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": {"name": name},
        "spec": spec,
    }


def pool_manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {**group_manifest(name, **spec), "kind": POOL_KIND}


def apply_group(kubectl: Kubectl, name: str, **spec: Any) -> None:
    """`kubectl apply`, so a field that was applied before and is left out now is removed."""
    kubectl.apply(group_manifest(name, **spec))


def patch_group(kubectl: Kubectl, name: str, **spec: Any) -> None:
    """Changes these fields of spec and no others; None removes one."""
    kubectl.api.patch(f"{GROUPS}/{name}", {"spec": spec})


def scale(kubectl: Kubectl, name: str, replicas: int) -> None:
    """What `kubectl scale` does."""
    kubectl.api.patch(f"{GROUPS}/{name}/scale", {"spec": {"replicas": replicas}})


def delete_group(kubectl: Kubectl, name: str) -> None:
    kubectl.api.delete(f"{GROUPS}/{name}")


def wait_ready(kubectl: Kubectl, name: str) -> None:
    """On time-out tells the group's status."""
    wait_condition(kubectl, name, "Ready")


def wait_until_heard(kubectl: Kubectl, name: str) -> None:
    """Returns when the operator has dealt with all that happened before.

    A new group is Ready, and a node that is deleted now is made again: of nodes it hears later.
    """
    apply_group(kubectl, name, targetSize=1)
    wait_ready(kubectl, name)
    (old,) = names_of(kubectl, name)
    kubectl.api.delete(f"{NODES}/{old}")
    eventually(
        lambda: names_of(kubectl, name),
        until=lambda names: names and old not in names,
        describe=f"the operator has heard that {old} is gone",
    )


def wait_condition(kubectl: Kubectl, name: str, kind: str, *, status: str = "True") -> None:
    """Returns once the condition has that status for the present spec, as `kubectl wait` does."""

    def fits(group: dict[str, Any]) -> bool:
        told = group.get("status", {})
        found = {c["type"]: c for c in told.get("conditions", [])}.get(kind, {})
        seen = found.get("observedGeneration", told.get("observedGeneration", 0))
        return bool(found.get("status") == status and seen >= group["metadata"]["generation"])

    def read() -> dict[str, Any]:
        group = group_of(kubectl, name)
        group.get("status", {}).pop("resolvedTemplate", None)
        return group

    eventually(read, fits, describe=f"{kind} of {name} is {status}")


def group_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    found: dict[str, Any] = kubectl.json("get", "kng", name)
    return found


def status_of(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """The status; empty as long as there is none."""
    status: dict[str, Any] = group_of(kubectl, name).get("status", {})
    return status


def condition(kubectl: Kubectl, name: str, kind: str) -> dict[str, Any]:
    """One condition; raises LookupError as long as there is none of that type."""
    conditions = status_of(kubectl, name).get("conditions", [])
    return {c["type"]: c for c in conditions}[kind]  # type: ignore[no-any-return]


def nodes_of(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    """The nodes with the group's label, in the order of their names."""
    found = kubectl.json("get", "nodes", f"-l{NODE_GROUP_LABEL}={name}")
    items: list[dict[str, Any]] = found["items"]
    return items


def names_of(kubectl: Kubectl, name: str) -> list[str]:
    """The names of the nodes with the group's label; far cheaper than the nodes."""
    return list(kubectl.api.names(NODES, selector=f"{NODE_GROUP_LABEL}={name}"))


def events_of(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    """The Events about the group, oldest first."""
    uid = group_of(kubectl, name)["metadata"]["uid"]
    selector = f"--field-selector=involvedObject.kind={KIND},involvedObject.uid={uid}"
    found = kubectl.json("get", "events", "--all-namespaces", selector)
    items: list[dict[str, Any]] = found["items"]
    return sorted(items, key=lambda e: str(e["metadata"]["creationTimestamp"]))


def is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def serial_of(node_name: str) -> int:
    return int(node_name.rpartition("-")[2])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process stands still."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
