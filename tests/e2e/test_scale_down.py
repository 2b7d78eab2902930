"""Which nodes go when a group shrinks, and what becomes of their pods."""

from typing import Any

import pytest

from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    names_of,
    patch_group,
    scale,
    serial_of,
    status_of,
    wait_condition,
    wait_ready,
    wait_until_heard,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.workloads import deployed, evict, forbid_disruption, pods_of, runs, uids


def serials(kubectl: Kubectl, group: str) -> list[int]:
    return [serial_of(name) for name in names_of(kubectl, group)]


def reports_of_unknown_names(kubectl: Kubectl, group: str) -> list[dict[str, Any]]:
    return [e for e in events_of(kubectl, group) if e["reason"] == "UnknownNodes"]


@pytest.mark.core
def test_the_newest_go_first_unless_asked_otherwise(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    orders = {f"{group_name}-newest": {}, f"{group_name}-oldest": {"order": "OldestFirst"}}
    # Up in two steps, so that age isn't just the order of names within one batch.
    for size in (5, 8, 3):
        for name, order in orders.items():
            apply_group(kubectl, name, targetSize=size, scaleDown=order)
        for name in orders:
            wait_ready(kubectl, name)
    assert [serials(kubectl, name) for name in orders] == [[0, 1, 2], [5, 6, 7]]


@pytest.mark.core
def test_named_nodes_go_in_the_write_that_lowers_the_target(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=6)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)
    patch_group(
        kubectl,
        group_name,
        targetSize=4,
        scaleDown={"nodesToDelete": [names[0], names[3]]},
    )
    wait_ready(kubectl, group_name)
    assert serials(kubectl, group_name) == [1, 2, 4, 5], "these two and no others, none replaced"
    assert reports_of_unknown_names(kubectl, group_name) == []


def test_named_nodes_go_whatever_the_target(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=4)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)

    patch_group(kubectl, group_name, scaleDown={"nodesToDelete": [names[1]]})
    wait_ready(kubectl, group_name)
    assert serials(kubectl, group_name) == [0, 2, 3, 4], "with the same target it is replaced"

    patch_group(kubectl, group_name, targetSize=6, scaleDown={"nodesToDelete": [names[0]]})
    wait_ready(kubectl, group_name)
    assert serials(kubectl, group_name) == [2, 3, 4, 5, 6, 7], "with a higher one too"

    patch_group(kubectl, group_name, targetSize=2, scaleDown={"nodesToDelete": [names[2]]})
    wait_ready(kubectl, group_name)
    assert serials(kubectl, group_name) == [3, 4], "the order decides on what is still too much"


def test_names_that_name_nothing_are_inert_and_reported_once(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    other = f"{group_name}-other"
    apply_group(kubectl, group_name, targetSize=3)
    apply_group(kubectl, other, targetSize=2)
    wait_ready(kubectl, other)
    wait_ready(kubectl, group_name)
    names, others = names_of(kubectl, group_name), names_of(kubectl, other)
    stem = names[0].rpartition("-")[0]
    gone, future = names[0], f"{stem}-000004"
    kubectl("delete", "node", gone)
    wait_ready(kubectl, group_name)
    eventually(
        lambda: serials(kubectl, group_name),
        lambda found: found == [1, 2, 3],
        describe="the node that is gone was replaced",
    )

    unknown = [gone, future, others[0], f"{stem}-2", "no-such-node"]
    patch_group(kubectl, group_name, scaleDown={"nodesToDelete": unknown})
    (report,) = eventually(
        lambda: reports_of_unknown_names(kubectl, group_name), describe="they are reported"
    )
    assert report["type"] == "Warning"
    assert all(name in report["message"] for name in unknown)
    wait_ready(kubectl, group_name)

    # What wakes the group, or makes the operator forget, doesn't make it say it again.
    kubectl("delete", "node", names[1])
    eventually(
        lambda: serials(kubectl, group_name),
        lambda found: found == [2, 3, 5],
        describe="a node was replaced, and not by the one that is named",
    )
    harness.start()
    wait_until_heard(kubectl, f"{group_name}-beside")
    assert serials(kubectl, group_name) == [2, 3, 5]
    assert names_of(kubectl, other) == others
    assert [r["count"] for r in reports_of_unknown_names(kubectl, group_name)] == [1]

    scale(kubectl, group_name, 4)
    wait_ready(kubectl, group_name)
    eventually(
        lambda: reports_of_unknown_names(kubectl, group_name),
        lambda reports: [report["count"] for report in reports] == [2],
        describe="a new generation reports them anew",
    )
    assert serials(kubectl, group_name) == [2, 3, 5, 6]


def test_pods_of_a_deleted_node_are_left_alone(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    with deployed(kubectl, group_name, group=group_name, replicas=3):
        forbid_disruption(kubectl, group_name)
        pods = pods_of(kubectl, group_name)
        refusal = evict(kubectl, pods[0]["metadata"]["name"])
        assert "disruption budget" in refusal, "the budget is in force"

        scale(kubectl, group_name, 1)
        wait_ready(kubectl, group_name)
        (node,) = names_of(kubectl, group_name)
        left = pods_of(kubectl, group_name)
        assert uids(left) == uids(pods), "the budget wasn't asked, nor any pod touched"
        assert [p["metadata"].get("deletionTimestamp") for p in left] == [None] * 3
        assert sum(pod["spec"]["nodeName"] == node for pod in left) == 1


def test_pods_of_a_deleted_node_go_with_it_if_asked_to(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3, scaleDown={"pods": "Delete"})
    wait_ready(kubectl, group_name)
    with deployed(kubectl, group_name, group=group_name, replicas=6):
        forbid_disruption(kubectl, group_name)
        before = pods_of(kubectl, group_name)
        victims = names_of(kubectl, group_name)[:2]
        patch_group(kubectl, group_name, targetSize=1, scaleDown={"nodesToDelete": victims})
        wait_ready(kubectl, group_name)

        (node,) = names_of(kubectl, group_name)
        lost = uids([pod for pod in before if pod["spec"]["nodeName"] in victims])
        assert len(lost) == 4
        # Kubernetes itself would need 40 s or more to find out that their node is gone.
        pods = eventually(
            lambda: pods_of(kubectl, group_name),
            lambda pods: len(pods) == 6 and not uids(pods) & lost,
            describe="the pods of the two nodes are gone, and others in their place",
        )
        assert uids(before) - lost <= uids(pods), "the pods on the node that stays are left alone"
        eventually(
            lambda: pods_of(kubectl, group_name),
            lambda pods: all(runs(p) and p["spec"]["nodeName"] == node for p in pods),
            describe="all pods run on the node that is left",
        )


@pytest.mark.core
def test_paused_holds_both_directions(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    apply_group(kubectl, group_name, targetSize=4)
    wait_ready(kubectl, group_name)
    assert condition(kubectl, group_name, "Paused")["status"] == "False"
    patch_group(kubectl, group_name, paused=True)
    wait_condition(kubectl, group_name, "Paused")
    assert condition(kubectl, group_name, "Ready")["status"] == "True", "it is as it should be"

    for size in (7, 2):
        scale(kubectl, group_name, size)
        wait_condition(kubectl, group_name, "Ready", status="False")
        assert condition(kubectl, group_name, "Ready")["reason"] == "Paused"
        assert status_of(kubectl, group_name)["targetSize"] == size
        wait_until_heard(kubectl, f"{group_name}-{size}")
        assert serials(kubectl, group_name) == [0, 1, 2, 3]

    victim = names_of(kubectl, group_name)[1]
    patch_group(kubectl, group_name, targetSize=4, scaleDown={"nodesToDelete": [victim]})
    kubectl("delete", "node", names_of(kubectl, group_name)[0])
    eventually(
        lambda: status_of(kubectl, group_name)["replicas"],
        lambda replicas: replicas == 3,
        describe="the loss is counted",
    )
    wait_until_heard(kubectl, f"{group_name}-beside")
    assert serials(kubectl, group_name) == [1, 2, 3], "neither replaced, nor the named one gone"

    patch_group(kubectl, group_name, paused=False)
    wait_ready(kubectl, group_name)
    assert condition(kubectl, group_name, "Paused")["status"] == "False"
    assert serials(kubectl, group_name) == [2, 3, 4, 5], "it goes on where it was held"
