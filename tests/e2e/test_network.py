"""Nodes with addresses of their own, kept by an operator on a real cluster."""

from typing import Any

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.groups import (
    apply_group,
    condition,
    delete_group,
    nodes_of,
    scale,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness

RANGE = {"podCIDR": "10.64.0.0/20", "blockSize": 24}
PLACES = 16


def blocks(kubectl: Kubectl, *groups: str) -> list[str]:
    """Of each node; spec.podCIDRs says the same."""
    found = [node["spec"] for group in groups for node in nodes_of(kubectl, group)]
    assert all(spec["podCIDRs"] == [spec["podCIDR"]] for spec in found)
    return [spec["podCIDR"] for spec in found]


def addresses(kubectl: Kubectl, group: str) -> list[dict[str, str]]:
    found = [node["status"]["addresses"] for node in nodes_of(kubectl, group)]
    return [{each["type"]: each["address"] for each in one} for one in found]


def test_no_two_nodes_have_the_same(kubectl: Kubectl, harness: Harness, group_name: str) -> None:
    def apply(name: str, size: int, **network: Any) -> None:
        template = {"network": {**RANGE, **network}, "shape": {"cpu": 1}}
        apply_group(kubectl, name, targetSize=size, template=template)

    harness.ensure()
    a, b, old = (f"{group_name}-{each}" for each in ("a", "b", "old"))
    apply(old, 2)
    wait_ready(kubectl, old)
    try:
        kubectl("delete", "kng", old, "--cascade=orphan")
        apply(a, 5)
        apply(b, 4, nodeCIDR="172.20.0.0/24")
        for name in (a, b):
            wait_ready(kubectl, name)
        assert len(set(blocks(kubectl, a, b, old))) == 11

        own, theirs = addresses(kubectl, b), addresses(kubectl, a)
        assert len({each["InternalIP"] for each in own}) == 4
        assert all(each["InternalIP"].startswith("172.20.0.") for each in own)
        assert all(each == theirs[0] for each in theirs)
        assert {each["Hostname"] for each in own} == {theirs[0]["Hostname"]}

        # One is left.
        harness.start()
        scale(kubectl, a, 9)
        wait_ready(kubectl, a)
        scale(kubectl, b, 6)
        wait_condition(kubectl, b, "ScalingLimited")
        eventually(
            lambda: condition(kubectl, b, "Ready")["reason"],
            lambda reason: reason == "NoAddresses",
            describe="Ready says why it has fewer nodes",
        )
        eventually(
            lambda: blocks(kubectl, a, b, old),
            lambda found: len(found) == len(set(found)) == PLACES,
            describe="all blocks of the range are nodes'",
        )
        delete_group(kubectl, a)
        wait_ready(kubectl, b)
        assert len(set(blocks(kubectl, b, old))) == 8
    finally:
        kubectl("delete", "nodes", f"-l{NODE_GROUP_LABEL}={old}")
