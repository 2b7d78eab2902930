"""Nodes that look like a group's and aren't: reported, never touched, never counted."""

import json
from typing import Any

import pytest

from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    KIND,
    NODE_GROUP_LABEL,
    NODE_GROUP_UID_ANNOTATION,
)
from kwok_operator.nodegroups.naming import NodeNames
from tests.e2e.api import NODES
from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    group_of,
    names_of,
    nodes_of,
    scale,
    serial_of,
    status_of,
    wait_ready,
    wait_until_heard,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.sources import real_node

CONDITION = "ForeignNodes"
REASON = "NotOurs"


def node(name: str, **metadata: Any) -> dict[str, Any]:
    """A node without kwok's annotation, so that kwok leaves it alone, too."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def owned_by(group: dict[str, Any]) -> list[dict[str, Any]]:
    meta = group["metadata"]
    owner = {"kind": KIND, "name": meta["name"], "uid": meta["uid"]}
    return [{"apiVersion": f"{API_GROUP}/{API_VERSION}", **owner}]


def foreigners(group: dict[str, Any]) -> list[dict[str, Any]]:
    """Nodes of which each lacks something: a name that we give, the annotation, or the owner."""
    name, uid = group["metadata"]["name"], group["metadata"]["uid"]
    names, labels = NodeNames.of(name, uid), {NODE_GROUP_LABEL: name}
    marked, owned = {NODE_GROUP_UID_ANNOTATION: uid}, owned_by(group)
    return [
        node(f"{name}-label-only", labels=labels),
        node(names.name(90), labels=labels),
        node(names.name(91), labels=labels, annotations=marked),
        node(names.name(92), labels=labels, ownerReferences=owned),
        node(f"{name}-all-else", labels=labels, annotations=marked, ownerReferences=owned),
    ]


def create(kubectl: Kubectl, *manifests: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The nodes as they were made, by name."""
    made = [kubectl.api.create(NODES, manifest) for manifest in manifests]
    return {found["metadata"]["name"]: found for found in made}


def wait_reported(kubectl: Kubectl, group: str, *names: str) -> None:
    eventually(
        lambda: condition(kubectl, group, CONDITION),
        until=lambda c: c["status"] == "True" and all(name in c["message"] for name in names),
        describe=f"{CONDITION} names {names}",
    )


def wait_not_reported(kubectl: Kubectl, group: str) -> None:
    eventually(
        lambda: condition(kubectl, group, CONDITION),
        until=lambda c: c["status"] == "False",
        describe=f"{CONDITION} is False again",
    )


def times_told(kubectl: Kubectl, group: str) -> int:
    return sum(e["count"] for e in events_of(kubectl, group) if e["reason"] == REASON)


def assert_untouched(kubectl: Kubectl, made: dict[str, dict[str, Any]]) -> None:
    """Still the same objects, and written only by their maker and the controllers of Kubernetes."""
    for name, before in made.items():
        meta = kubectl.json("get", "node", name, "--show-managed-fields")["metadata"]
        assert meta["uid"] == before["metadata"]["uid"]
        assert "deletionTimestamp" not in meta
        writers = {entry["manager"] for entry in meta.get("managedFields", [])}
        assert not {writer for writer in writers if writer.startswith("kwok")}, writers


def own_names(kubectl: Kubectl, name: str) -> list[str]:
    """The names of the nodes that bear all marks of the group, whatever its status says."""
    uid = group_of(kubectl, name)["metadata"]["uid"]
    prefix = NodeNames.of(name, uid).prefix

    def is_own(meta: dict[str, Any]) -> bool:
        marked = meta.get("annotations", {}).get(NODE_GROUP_UID_ANNOTATION)
        owners = [owner["uid"] for owner in meta.get("ownerReferences", [])]
        return meta["name"].startswith(prefix) and marked == uid and owners == [uid]

    return [n["metadata"]["name"] for n in nodes_of(kubectl, name) if is_own(n["metadata"])]


@pytest.mark.core
def test_foreign_nodes_are_reported_and_left_alone(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    assert condition(kubectl, group_name, CONDITION)["status"] == "False"
    made = create(kubectl, *foreigners(group_of(kubectl, group_name)))
    try:
        wait_reported(kubectl, group_name, *made)
        assert condition(kubectl, group_name, CONDITION)["reason"] == REASON
        # They don't keep the group from being Ready, and stand in for none of its nodes.
        for size in (5, 0, 2):
            scale(kubectl, group_name, size)
            wait_ready(kubectl, group_name)
            status = status_of(kubectl, group_name)
            assert (status["replicas"], status["readyReplicas"]) == (size, size)
            assert len(own_names(kubectl, group_name)) == size
        assert_untouched(kubectl, made)
        own = set(own_names(kubectl, group_name))
        kubectl("delete", "kng", group_name)
        eventually(
            lambda: not own & set(names_of(kubectl, group_name)),
            describe="the group's own nodes are gone",
        )
        wait_until_heard(kubectl, f"{group_name}-heard")
        # The garbage collector takes those with the owner, whatever the operator does.
        left = {n: m for n, m in made.items() if "ownerReferences" not in m["metadata"]}
        assert_untouched(kubectl, left)
    finally:
        kubectl("delete", "nodes", f"-l{NODE_GROUP_LABEL}={group_name}")


def test_a_restart_keeps_the_report_and_sends_no_second_event(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=2)
    wait_ready(kubectl, group_name)
    real = real_node(f"{group_name}-real", labels={NODE_GROUP_LABEL: group_name})
    made = create(kubectl, real)
    try:
        wait_reported(kubectl, group_name, *made)
        eventually(lambda: times_told(kubectl, group_name) == 1, describe="an Event tells it")
        harness.start()
        # A Ready group after a change means that the new operator has looked at all of it.
        scale(kubectl, group_name, 4)
        wait_ready(kubectl, group_name)
        wait_reported(kubectl, group_name, *made)
        assert status_of(kubectl, group_name)["replicas"] == 4
        assert times_told(kubectl, group_name) == 1
        assert_untouched(kubectl, made)
    finally:
        kubectl("delete", "node", *made)
    wait_not_reported(kubectl, group_name)


def test_node_of_another_group_goes_back_when_it_is_relabelled(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    other = f"{group_name}-other"
    for name in (group_name, other):
        apply_group(kubectl, name, targetSize=2)
        wait_ready(kubectl, name)
    moved = names_of(kubectl, other)[0]
    kubectl("label", "node", moved, f"{NODE_GROUP_LABEL}={group_name}", "--overwrite")

    # It stays with the group that made it.
    eventually(
        lambda: moved in names_of(kubectl, other), describe="its own group has put the label back"
    )
    scale(kubectl, group_name, 0)
    wait_ready(kubectl, group_name)
    assert not names_of(kubectl, group_name)
    assert len(names_of(kubectl, other)) == 2


def test_whoever_takes_labels_off_in_a_loop_gets_no_more_nodes(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=6)
    wait_ready(kubectl, group_name)
    uid = group_of(kubectl, group_name)["metadata"]["uid"]
    prefix = NodeNames.of(group_name, uid).prefix

    def there() -> dict[str, str]:
        found = (item["metadata"] for item in kubectl.json("get", "nodes")["items"])
        return {meta["name"]: meta["uid"] for meta in found if meta["name"].startswith(prefix)}

    made = there()
    patch = json.dumps({"metadata": {"labels": {NODE_GROUP_LABEL: None}}})

    def strip() -> tuple[int, str]:
        kubectl("patch", "nodes", *there(), "--type=merge", f"--patch={patch}")
        return len(there()), condition(kubectl, group_name, "Stalled")["reason"]

    eventually(strip, lambda seen: seen[1] == "NodesAltered", describe="the group is stopped")
    assert all(strip()[0] == 6 for _ in range(5))
    scale(kubectl, group_name, 8)
    wait_ready(kubectl, group_name)
    assert len(there()) == 8
    assert made.items() <= there().items()


def test_names_that_are_taken_cost_their_serials_and_no_node(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    # A node without our label is not watched; whether it still is there is asked at each resync.
    harness.start("--resync-interval=1")
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    group = group_of(kubectl, group_name)
    names = NodeNames.of(group_name, group["metadata"]["uid"])
    first = status_of(kubectl, group_name)["nextSerial"]
    bare, labelled, dying = (names.name(first + i) for i in range(3))
    # It bears all our marks, but what is terminating is no node of ours.
    held = {
        "annotations": {NODE_GROUP_UID_ANNOTATION: group["metadata"]["uid"]},
        "ownerReferences": owned_by(group),
        "finalizers": ["example.com/hold"],
    }
    made = create(
        kubectl,
        node(bare),
        node(labelled, labels={NODE_GROUP_LABEL: group_name}),
        node(dying, **held),
    )
    try:
        kubectl("delete", "node", dying, "--wait=false")
        scale(kubectl, group_name, 6)
        wait_ready(kubectl, group_name)
        wait_reported(kubectl, group_name, bare, labelled)
        status = status_of(kubectl, group_name)
        assert (status["replicas"], status["readyReplicas"]) == (6, 6)
        serials = sorted(map(serial_of, own_names(kubectl, group_name)))
        assert serials == [0, 1, 2, first + 3, first + 4, first + 5]
        del made[dying]
        assert_untouched(kubectl, made)
    finally:
        kubectl("patch", "node", dying, "--type=merge", '--patch={"metadata":{"finalizers":[]}}')
        kubectl("delete", "node", *made, "--ignore-not-found")
    wait_not_reported(kubectl, group_name)

    # The names stay unused for ever, even now that they are free.
    scale(kubectl, group_name, 8)
    wait_ready(kubectl, group_name)
    assert not {bare, labelled, dying} & set(own_names(kubectl, group_name))
