"""Nodes that look like a group's and aren't: told about, never touched, never counted.

- our label without all the rest: the uid in the annotation, and the ownerReference with that uid
- a node of another group, relabelled; a node as a real kubelet registers it
- nodes that a former group of the same name left behind (`--cascade=orphan`)
- a node that somebody else made under the name that the group would use next: the serial is spent
- the condition names them and goes when they go; one Event tells of them, a restart tells no other
"""

from typing import Any

import pytest

from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    KIND,
    NODE_GROUP_LABEL,
    NODE_GROUP_UID_ANNOTATION,
)
from kwok_operator.core.naming import NodeNames
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
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import Harness, Process

CONDITION = "ForeignNodes"
REASON = "NotOurs"


def node(name: str, **metadata: Any) -> dict[str, Any]:
    """A node without kwok's annotation, so that kwok leaves it alone, too."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def owned_by(group: dict[str, Any]) -> list[dict[str, Any]]:
    meta = group["metadata"]
    owner = {"kind": KIND, "name": meta["name"], "uid": meta["uid"]}
    return [{"apiVersion": f"{API_GROUP}/{API_VERSION}", **owner}]


def label_only(group: dict[str, Any], name: str) -> dict[str, Any]:
    return node(name, labels={NODE_GROUP_LABEL: group["metadata"]["name"]})


def under_a_name_of_ours(group: dict[str, Any], name: str) -> dict[str, Any]:
    meta = group["metadata"]
    return label_only(group, NodeNames.of(meta["name"], meta["uid"]).name(90))


def annotated(group: dict[str, Any], name: str) -> dict[str, Any]:
    foreign = under_a_name_of_ours(group, name)
    foreign["metadata"]["annotations"] = {NODE_GROUP_UID_ANNOTATION: group["metadata"]["uid"]}
    return foreign


def owned(group: dict[str, Any], name: str) -> dict[str, Any]:
    foreign = under_a_name_of_ours(group, name)
    foreign["metadata"]["ownerReferences"] = owned_by(group)
    return foreign


def owned_and_annotated_under_a_name_we_never_give(
    group: dict[str, Any], name: str
) -> dict[str, Any]:
    foreign = annotated(group, name)
    foreign["metadata"] |= {"name": name, "ownerReferences": owned_by(group)}
    return foreign


def real_looking(group: dict[str, Any], name: str) -> dict[str, Any]:
    foreign = label_only(group, name)
    foreign["metadata"]["labels"] |= {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m7i.2xlarge",
    }
    return {
        **foreign,
        "spec": {"providerID": f"aws:///eu-west-1a/{name}", "podCIDR": "10.77.3.0/24"},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"cpu": "7910m", "memory": "30Gi", "pods": "110"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.17"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


FOREIGN = [
    label_only,
    under_a_name_of_ours,
    annotated,
    owned,
    owned_and_annotated_under_a_name_we_never_give,
    real_looking,
]


def create(kubectl: Kubectl, manifest: dict[str, Any]) -> dict[str, Any]:
    created: dict[str, Any] = kubectl.json("create", "-f-", stdin=as_text(manifest))
    return created


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


def assert_untouched(kubectl: Kubectl, made: dict[str, Any]) -> None:
    """Still the same object, and written only by its maker and the controllers of Kubernetes."""
    meta = kubectl.json("get", "node", made["metadata"]["name"], "--show-managed-fields")[
        "metadata"
    ]
    assert meta["uid"] == made["metadata"]["uid"]
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


@pytest.mark.parametrize("make", FOREIGN, ids=lambda make: make.__name__)
def test_foreign_node_is_reported_and_left_alone(
    kubectl: Kubectl, operator: Process, group_name: str, make: Any
) -> None:
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    assert condition(kubectl, group_name, CONDITION)["status"] == "False"
    made = create(kubectl, make(group_of(kubectl, group_name), f"{group_name}-foreign"))
    name = made["metadata"]["name"]
    try:
        wait_reported(kubectl, group_name, name)
        assert condition(kubectl, group_name, CONDITION)["reason"] == REASON
        # It doesn't keep the group from being Ready, and stands in for none of its nodes.
        for size in (5, 0, 2):
            scale(kubectl, group_name, size)
            wait_ready(kubectl, group_name)
            status = status_of(kubectl, group_name)
            assert (status["replicas"], status["readyReplicas"]) == (size, size)
            assert len(own_names(kubectl, group_name)) == size
        eventually(
            lambda: times_told(kubectl, group_name),
            until=lambda told: told == 1,
            describe="one Event tells of the foreign node",
        )
        assert_untouched(kubectl, made)
    finally:
        kubectl("delete", "node", name)
    wait_not_reported(kubectl, group_name)


def test_foreign_nodes_outlive_the_group(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    group = group_of(kubectl, group_name)
    makers = [label_only, under_a_name_of_ours, real_looking]
    made = [create(kubectl, make(group, f"{group_name}-{i}")) for i, make in enumerate(makers)]
    names = sorted(m["metadata"]["name"] for m in made)
    try:
        wait_reported(kubectl, group_name, *names)
        kubectl("delete", "kng", group_name)
        eventually(
            lambda: names_of(kubectl, group_name),
            until=lambda left: left == names,
            describe="the group's own nodes are gone, and no others",
        )
        # Until the operator has certainly seen it all.
        apply_group(kubectl, f"{group_name}-heard", targetSize=1)
        wait_ready(kubectl, f"{group_name}-heard")
        for manifest in made:
            assert_untouched(kubectl, manifest)
    finally:
        kubectl("delete", "nodes", f"-l{NODE_GROUP_LABEL}={group_name}")


def test_restart_keeps_the_report_and_tells_it_no_second_time(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=2)
    wait_ready(kubectl, group_name)
    made = create(kubectl, label_only(group_of(kubectl, group_name), f"{group_name}-foreign"))
    try:
        wait_reported(kubectl, group_name, made["metadata"]["name"])
        eventually(lambda: times_told(kubectl, group_name) == 1, describe="an Event tells it")
        harness.start()
        # A Ready group after a change means that the new operator has looked at all of it.
        scale(kubectl, group_name, 4)
        wait_ready(kubectl, group_name)
        wait_reported(kubectl, group_name, made["metadata"]["name"])
        assert status_of(kubectl, group_name)["replicas"] == 4
        assert times_told(kubectl, group_name) == 1
        assert_untouched(kubectl, made)
    finally:
        kubectl("delete", "node", made["metadata"]["name"])


def test_node_of_another_group_is_foreign_when_it_is_relabelled(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    other = f"{group_name}-other"
    for name in (group_name, other):
        apply_group(kubectl, name, targetSize=2)
        wait_ready(kubectl, name)
    moved = names_of(kubectl, other)[0]
    kubectl("label", "node", moved, f"{NODE_GROUP_LABEL}={group_name}", "--overwrite")

    # The group that lost it makes another one, the one that got it counts none.
    wait_reported(kubectl, group_name, moved)
    eventually(
        lambda: len(names_of(kubectl, other)), lambda n: n == 2, describe="the other has two again"
    )
    assert status_of(kubectl, group_name)["replicas"] == 2
    scale(kubectl, group_name, 0)
    wait_ready(kubectl, group_name)
    assert names_of(kubectl, group_name) == [moved]


def test_orphans_of_a_former_group_are_foreign_to_the_next_of_its_name(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=4)
    wait_ready(kubectl, group_name)
    kubectl("delete", "kng", group_name, "--cascade=orphan")
    orphans = {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes_of(kubectl, group_name)}
    assert len(orphans) == 4
    try:
        apply_group(kubectl, group_name, targetSize=3)
        wait_ready(kubectl, group_name)
        wait_reported(kubectl, group_name, *orphans)
        assert status_of(kubectl, group_name)["replicas"] == 3
        assert not set(own_names(kubectl, group_name)) & set(orphans)

        scale(kubectl, group_name, 1)
        wait_ready(kubectl, group_name)
        left = {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes_of(kubectl, group_name)}
        assert {name: left.get(name) for name in orphans} == orphans
        assert len(left) == 4 + 1
    finally:
        kubectl("delete", "nodes", *orphans)
    wait_not_reported(kubectl, group_name)
    assert status_of(kubectl, group_name)["replicas"] == 1


@pytest.mark.parametrize("labelled", [False, True], ids=["no-label", "with-our-label"])
def test_name_that_is_taken_costs_its_serial_and_no_node(
    kubectl: Kubectl, harness: Harness, group_name: str, labelled: bool
) -> None:
    # A node without our label is not watched; whether it still is there is asked at each resync.
    harness.start("--resync-interval=1")
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    group = group_of(kubectl, group_name)
    names = NodeNames.of(group_name, group["metadata"]["uid"])
    next_serial = status_of(kubectl, group_name)["nextSerial"]
    labels = {NODE_GROUP_LABEL: group_name} if labelled else {}
    taken = create(kubectl, node(names.name(next_serial), labels=labels))
    try:
        scale(kubectl, group_name, 6)
        wait_ready(kubectl, group_name)
        wait_reported(kubectl, group_name, taken["metadata"]["name"])
        status = status_of(kubectl, group_name)
        assert (status["replicas"], status["readyReplicas"]) == (6, 6)
        serials = sorted(map(serial_of, own_names(kubectl, group_name)))
        assert serials == [0, 1, 2, next_serial + 1, next_serial + 2, next_serial + 3]
        eventually(lambda: times_told(kubectl, group_name) == 1, describe="an Event tells it")
        assert_untouched(kubectl, taken)
    finally:
        kubectl("delete", "node", taken["metadata"]["name"])
    wait_not_reported(kubectl, group_name)

    # The name stays unused for ever, even now that it is free.
    scale(kubectl, group_name, 8)
    wait_ready(kubectl, group_name)
    assert taken["metadata"]["name"] not in own_names(kubectl, group_name)


def test_name_that_is_taken_by_a_node_on_its_way_out_costs_its_serial(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    """Even one that bears all our marks: what is terminating is no node of ours."""
    harness.start("--resync-interval=1")
    apply_group(kubectl, group_name, targetSize=1)
    wait_ready(kubectl, group_name)
    group = group_of(kubectl, group_name)
    name = NodeNames.of(group_name, group["metadata"]["uid"]).name(
        status_of(kubectl, group_name)["nextSerial"]
    )
    manifest = owned_and_annotated_under_a_name_we_never_give(group, name)
    del manifest["metadata"]["labels"]
    manifest["metadata"]["finalizers"] = ["example.com/hold"]
    create(kubectl, manifest)
    try:
        kubectl("delete", "node", name, "--wait=false")
        scale(kubectl, group_name, 3)
        wait_ready(kubectl, group_name)
        assert status_of(kubectl, group_name)["replicas"] == 3
        assert name not in own_names(kubectl, group_name)
    finally:
        kubectl("patch", "node", name, "--type=merge", '--patch={"metadata":{"finalizers":[]}}')
    kubectl("wait", "--for=delete", f"node/{name}", "--timeout=60s", timeout=90)
    wait_not_reported(kubectl, group_name)
    assert name not in own_names(kubectl, group_name)
