"""A cloud that takes its time until a Node exists, and from there until it is usable."""

import time
from typing import Any

import pytest

from kwok_operator.controlplane import Cluster
from kwok_operator.formats.times import parse_time
from tests.e2e.clouds import (
    AGENT,
    MARKED,
    arrival,
    born_after,
    chronicled,
    condition_of,
    courses,
    life_of,
    rows_of,
    seeded,
    serial,
    states_of,
    taint_keys,
)
from tests.e2e.groups import (
    apply_group,
    condition,
    nodes_of,
    patch_group,
    scale,
    status_of,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

GPU = "nvidia.com/gpu"
NEVER_HERE = "10m"
"""Longer than a test takes."""


@pytest.mark.core
def test_nodes_come_in_the_order_of_their_delays(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    early, late = 1_000, 600_000
    cloud = seeded(
        {"provisioningDelay": {"samples": ["1s", NEVER_HERE]}, **MARKED},
        group=group_name,
        size=8,
        wish=lambda all: all.count(early) == 5 and all[0] == late and all[7] == early,
    )
    drawn = [arrival(course) for course in courses(cloud, group=group_name, size=8)]
    waiting = {serial: "Creating" for serial, after in enumerate(drawn) if after == late}
    apply_group(kubectl, group_name, targetSize=8, cloud=cloud)
    told = eventually(
        lambda: status_of(kubectl, group_name),
        lambda told: (
            states_of(told) == waiting and counted(told) == {"ready": 5, "creating": len(waiting)}
        ),
        describe="the early ones have come, and status tells of the late ones alone",
    )
    nodes = nodes_of(kubectl, group_name)
    assert [serial(node) for node in nodes] == sorted({*range(8)} - {*waiting}), "not the first"
    assert {born_after(node) for node in nodes} == {early}
    assert {row["reason"] for row in rows_of(told).values()} == {"Provisioning"}
    assert (told["pendingReplicas"], told["failedReplicas"]) == (3, 0)
    provisioned = condition_of(told, "Provisioned")
    assert (provisioned["status"], provisioned["reason"]) == ("False", "Provisioning")


def test_no_node_comes_before_its_time_and_all_come(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    cloud = {"provisioningDelay": {"samples": ["1s", "3s"]}, **MARKED}
    drawn = [arrival(course) for course in courses(cloud, group=group_name, size=8)]
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=8, cloud=cloud)
        wait_ready(kubectl, group_name)
        eventually(lambda: len(seen.born) == 8, describe="all of them were watched")
    assert [born_after(node) for node in nodes_of(kubectl, group_name)] == drawn
    assert all(first.at >= life_of(first.node).born for first, *_ in seen.nodes.values())
    status = status_of(kubectl, group_name)
    assert (states_of(status), status["pendingReplicas"]) == ({}, 0)
    assert condition_of(status, "Provisioned")["reason"] == "AllArrived"
    eventually(
        lambda: counted(status_of(kubectl, group_name)) == {"ready": 8},
        describe="all are counted",
    )


def counted(status: dict[str, Any]) -> dict[str, int]:
    """States that instances are in, and how many are."""
    return {state: count for state, count in status["cloud"]["counts"].items() if count}


def test_an_edit_holds_for_what_is_asked_for_later_and_what_is_late_goes_first(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    slow = {"provisioningDelay": {"fixed": NEVER_HERE}}
    apply_group(kubectl, group_name, targetSize=3, cloud=slow)
    waiting = dict.fromkeys(range(3), "Creating")
    status = eventually(
        lambda: status_of(kubectl, group_name),
        lambda status: states_of(status) == waiting,
        describe="three are asked for",
    )
    asked_at = parse_time(status["pending"][0]["requestedAt"])
    # What was asked for in the second of an edit goes by the edit.
    eventually(lambda: time.time() * 1_000 > asked_at + 1_000, describe="that second is over")
    patch_group(kubectl, group_name, cloud={"provisioningDelay": None}, targetSize=5)
    eventually(
        lambda: [serial(node) for node in nodes_of(kubectl, group_name)] == [3, 4],
        describe="the new ones come at once",
    )
    eventually(
        lambda: states_of(status_of(kubectl, group_name)) == waiting,
        describe="the others keep what they drew",
    )
    scale(kubectl, group_name, 3)
    eventually(
        lambda: states_of(status_of(kubectl, group_name)) == {0: "Creating"},
        describe="the newest of the late are taken back",
    )
    assert [serial(node) for node in nodes_of(kubectl, group_name)] == [3, 4]
    scale(kubectl, group_name, 1)
    wait_ready(kubectl, group_name)
    assert [serial(node) for node in nodes_of(kubectl, group_name)] == [3]
    status = status_of(kubectl, group_name)
    assert (states_of(status), status["nextSerial"]) == ({}, 5)


def test_startup_taints_are_taken_off_and_devices_come_late(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    cloud = {
        "startupTaints": [
            {**AGENT, "removedAfter": {"fixed": "2s"}},
            {"key": "example.com/net", "effect": "NoExecute", "removedAfter": {"fixed": "4s"}},
        ],
        "lateResources": [{"name": GPU, "after": {"fixed": "5s"}}],
    }
    shape = {"cpu": 8, "gpu": {"type": GPU, "count": 4}, "taints": [{"key": "mine", **NO_SCHEDULE}]}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=3, template={"shape": shape}, cloud=cloud)
        eventually(
            lambda: [gpus(node) for node in nodes_of(kubectl, group_name)] == [("4", "4")] * 3,
            describe="all nodes have their devices",
            timeout=240,
        )
        wait_ready(kubectl, group_name)
        names = [node["metadata"]["name"] for node in nodes_of(kubectl, group_name)]
        eventually(lambda: all(gpus(seen.nodes[n][-1].node)[0] for n in names), describe="watched")
    for name in names:
        versions = seen.nodes[name]
        born = life_of(versions[0].node).born
        first, last = versions[0].node, versions[-1].node
        assert {AGENT["key"], "example.com/net", "mine"} <= taint_keys(first)
        assert gpus(first) == (None, None)
        assert first["status"]["capacity"]["cpu"] == "8"
        passing = {AGENT["key"], "example.com/net"} & taint_keys(last)
        assert (passing, "mine" in taint_keys(last)) == (set(), True)
        for version in versions:
            age, keys = version.at - born, taint_keys(version.node)
            assert AGENT["key"] in keys or age >= 2_000
            assert "example.com/net" in keys or age >= 4_000
            assert gpus(version.node) == (None, None) or age >= 5_000


NO_SCHEDULE = {"effect": "NoSchedule"}


def gpus(node: dict[str, Any]) -> tuple[str | None, str | None]:
    """In capacity and in allocatable; None where it isn't named, or is none."""
    status = node["status"]
    found = [status[part].get(GPU) for part in ("capacity", "allocatable")]
    return tuple(None if amount == "0" else amount for amount in found)  # type: ignore[return-value]


def test_what_nothing_holds_says_so(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    """kwok makes Ready what it sees, and here it has no Stage that would keep it from that."""
    apply_group(kubectl, group_name, targetSize=1, cloud={"flapping": {"period": "10m"}})
    wait_condition(kubectl, group_name, "CloudSimulated", status="False")
    assert condition(kubectl, group_name, "CloudSimulated")["reason"] == "NotHeld"
