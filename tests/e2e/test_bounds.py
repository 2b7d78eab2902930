"""What holds a group's size besides its target: bounds, no target, a limit for all groups."""

from typing import Any

import pytest

from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    group_manifest,
    group_of,
    names_of,
    patch_group,
    scale,
    serial_of,
    status_of,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.refusals import REFUSAL, refused_nodes

WITHIN = ("False", "WithinLimits")


def limited(kubectl: Kubectl, group: str) -> tuple[str, str]:
    """Status and reason of ScalingLimited."""
    told = condition(kubectl, group, "ScalingLimited")
    return told["status"], told["reason"]


def wait_for_limit(kubectl: Kubectl, group: str, *, nodes: int) -> None:
    """Returns once the group has so many nodes, and says of its present spec that it waits."""
    wait_condition(kubectl, group, "ScalingLimited")
    eventually(
        lambda: status_of(kubectl, group)["replicas"],
        lambda replicas: replicas == nodes,
        describe=f"{group} has {nodes} nodes",
    )
    assert limited(kubectl, group) == ("True", "NodeLimit")
    assert len(names_of(kubectl, group)) == nodes


@pytest.mark.core
def test_bounds_clamp_and_say_so(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    apply_group(kubectl, group_name)
    wait_ready(kubectl, group_name)
    bounds: dict[str, Any]
    for bounds, target, size, told in (
        ({}, None, 0, None),
        ({"minSize": 2}, None, 2, None),
        ({"minSize": 2}, 5, 5, WITHIN),
        ({"maxSize": 3}, 5, 3, ("True", "MaxSize")),
        ({"minSize": 7, "maxSize": None}, 5, 7, ("True", "MinSize")),
        ({"minSize": 0}, 5, 5, WITHIN),
    ):
        patch_group(kubectl, group_name, autoscaling=bounds)
        if target is not None:
            scale(kubectl, group_name, target)
        wait_ready(kubectl, group_name)
        assert told in (None, limited(kubectl, group_name))
        assert len(names_of(kubectl, group_name)) == size
        assert status_of(kubectl, group_name)["targetSize"] == size
        assert group_of(kubectl, group_name)["spec"].get("targetSize") == target


def test_leaving_the_target_out_keeps_the_size(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    manifest = group_manifest(group_name, scaleDown={"order": "OldestFirst"})
    kubectl.apply(manifest, "--server-side", "--field-manager=git")
    scale(kubectl, group_name, 5)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)

    manifest["spec"] = {"scaleDown": {"pods": "Delete"}}
    kubectl.apply(manifest, "--server-side", "--field-manager=git")
    wait_ready(kubectl, group_name)
    assert group_of(kubectl, group_name)["spec"]["targetSize"] == 5, "kubectl scale owns it"
    assert names_of(kubectl, group_name) == names

    kubectl("replace", "--filename=-", stdin=as_text(manifest))
    wait_ready(kubectl, group_name)
    assert "targetSize" not in group_of(kubectl, group_name)["spec"]
    assert status_of(kubectl, group_name)["targetSize"] == 5, "unset means: as it is"
    assert names_of(kubectl, group_name) == names

    harness.stop()
    kubectl("delete", "node", *names[:2])
    harness.start()
    found = eventually(
        lambda: names_of(kubectl, group_name),
        lambda found: len(found) == 5,
        describe="nodes that are lost are replaced all the same",
    )
    assert found[:3] == names[2:]
    patch_group(kubectl, group_name, scaleDown={"pods": "Leave"})
    wait_ready(kubectl, group_name)
    assert names_of(kubectl, group_name) == found
    assert status_of(kubectl, group_name)["nextSerial"] == 7, "and no others were asked for"


def test_nodes_that_are_refused_come_later_or_are_forgotten(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    def stalled() -> tuple[str, str]:
        told = condition(kubectl, group_name, "Stalled")
        return told["status"], told["message"]

    def wait_serials(*serials: int, describe: str) -> list[str]:
        return eventually(
            lambda: names_of(kubectl, group_name),
            lambda names: [*map(serial_of, names)] == [*serials],
            describe=describe,
        )

    with refused_nodes(kubectl, group_name, ending_in=("002", "007")):
        apply_group(kubectl, group_name, targetSize=10)
        names = wait_serials(0, 1, 3, 4, 5, 6, 8, 9, describe="all but the refused two are there")
        wait_condition(kubectl, group_name, "Stalled")
        assert condition(kubectl, group_name, "Stalled")["reason"] == "Refused"
        assert REFUSAL in stalled()[1]
        # A serial before it and one after it are waited for: it is in the middle of the batch.
        kubectl("delete", "node", names[3])
        wait_serials(0, 1, 3, 5, 6, 8, 9, 10, describe="it is made up for under a new name")
    wait_ready(kubectl, group_name)
    wait_serials(0, 1, 2, 3, 5, 6, 7, 8, 9, 10, describe="those that were refused have come")
    assert stalled()[0] == "False"

    with refused_nodes(kubectl, group_name, ending_in=("011",)):
        scale(kubectl, group_name, 11)
        wait_condition(kubectl, group_name, "Stalled")
        scale(kubectl, group_name, 10)
        wait_ready(kubectl, group_name)
        assert stalled()[0] == "False", "a refusal goes with the node that it was about"


@pytest.mark.core
def test_what_goes_over_the_limit_for_all_groups_waits(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start("--max-total-nodes=20")
    first, second = f"{group_name}-first", f"{group_name}-second"
    apply_group(kubectl, first, targetSize=14)
    wait_ready(kubectl, first)
    apply_group(kubectl, second, targetSize=10)
    wait_for_limit(kubectl, second, nodes=6)
    told = condition(kubectl, second, "Ready")
    assert (told["status"], told["reason"]) == ("False", "NodeLimit")
    eventually(
        lambda: [e["reason"] for e in events_of(kubectl, second)].count("NodeLimit") == 1,
        describe="an Event tells it",
    )
    scale(kubectl, first, 1_000_000)
    wait_for_limit(kubectl, first, nodes=14)
    assert len(names_of(kubectl, second)) == 6

    scale(kubectl, first, 3)
    wait_ready(kubectl, first)
    wait_ready(kubectl, second)
    assert len(names_of(kubectl, second)) == 10, "the one that waits goes on by itself"
    assert limited(kubectl, second) == WITHIN

    scale(kubectl, first, 30)
    wait_for_limit(kubectl, first, nodes=10)
    kubectl("delete", "kng", second)
    wait_for_limit(kubectl, first, nodes=20)

    names = names_of(kubectl, first)
    harness.start("--max-total-nodes=10")
    scale(kubectl, first, 31)
    wait_for_limit(kubectl, first, nodes=20)
    assert names_of(kubectl, first) == names, "no node is taken away for the limit's sake"
    patch_group(kubectl, first, scaleDown={"nodesToDelete": [names[0]]})
    wait_for_limit(kubectl, first, nodes=19)
    assert names_of(kubectl, first) == names[1:], "whoever names nodes may go lower"
