"""What holds a group's size besides its target: bounds, no target at all, a limit for all groups.

- a minSize without a targetSize fills up; an order below it is taken and clamped
- bounds moved past the target clamp, say so, and let go again
- a target over maxSize is refused by apply, patch and scale, and the nodes stay as they are
- `kubectl replace` and server-side apply without targetSize keep the size, over restarts and losses
- `kubectl scale` on a group that never had a target
- nodes that the API server refuses: the others come, status says so, and the rest follows later
- --max-total-nodes: what goes over it waits, says so, and goes on when there is room; nodes that
  exist are never taken away
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

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

REFUSAL = "no such node in this test"
ABOVE_MAX = "targetSize must not be greater than autoscaling.maxSize"
WHILE_NOTHING_HAPPENS = 2.0
"""Seconds in which the operator would have acted several times over."""


def limited(kubectl: Kubectl, group: str) -> tuple[str, str]:
    """Status and reason of ScalingLimited."""
    told = condition(kubectl, group, "ScalingLimited")
    return told["status"], told["reason"]


def wait_for_limit(kubectl: Kubectl, group: str, *, nodes: int) -> str:
    """Returns what the group says once it has so many nodes and waits for room."""
    wait_condition(kubectl, group, "ScalingLimited")
    eventually(
        lambda: status_of(kubectl, group)["replicas"],
        lambda replicas: replicas == nodes,
        describe=f"{group} has {nodes} nodes",
    )
    assert limited(kubectl, group) == ("True", "NodeLimit")
    assert len(names_of(kubectl, group)) == nodes
    return str(condition(kubectl, group, "ScalingLimited")["message"])


@contextmanager
def refused_nodes(kubectl: Kubectl, group: str, *, ending_in: tuple[str, ...]) -> Iterator[None]:
    """An admission policy refuses nodes of the group whose names end like this."""
    ends = " || ".join(f"object.metadata.name.endsWith('{end}')" for end in ending_in)
    refused = f"object.metadata.name.startsWith('{group}-') && ({ends})"
    nodes = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}
    policy = {
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {"resourceRules": [{**nodes, "operations": ["CREATE"]}]},
            "validations": [{"expression": f"!({refused})", "message": REFUSAL}],
        },
    }
    binding = {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {"policyName": group, "validationActions": ["Deny"]},
    }
    common = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": group}}
    probe = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"{group}-{ending_in[0]}"}}
    for manifest in (policy, binding):
        kubectl.apply({**common, **manifest})
    try:
        eventually(
            lambda: kubectl.fails("create", "-f-", "--dry-run=server", stdin=probe),
            lambda refusal: REFUSAL in refusal,
            describe="the policy is in force",
        )
        yield
    finally:
        kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
        kubectl("delete", kinds, group)


def test_a_minimum_without_a_target_fills_up(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, autoscaling={"minSize": 4})
    wait_ready(kubectl, group_name)
    assert len(names_of(kubectl, group_name)) == 4
    assert status_of(kubectl, group_name)["targetSize"] == 4
    assert "targetSize" not in group_of(kubectl, group_name)["spec"], "the operator writes no spec"

    scale(kubectl, group_name, 2)
    wait_ready(kubectl, group_name)
    assert len(names_of(kubectl, group_name)) == 4
    assert limited(kubectl, group_name) == ("True", "MinSize")


def test_bounds_moved_past_the_target_clamp_and_say_so(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=5, autoscaling={"minSize": 1, "maxSize": 8})
    wait_ready(kubectl, group_name)
    assert limited(kubectl, group_name) == ("False", "WithinLimits")

    for bounds, size, told in (
        ({"maxSize": 3}, 3, ("True", "MaxSize")),
        ({"maxSize": 8}, 5, ("False", "WithinLimits")),
        ({"minSize": 7}, 7, ("True", "MinSize")),
        ({"minSize": 0}, 5, ("False", "WithinLimits")),
        ({"maxSize": 0}, 0, ("True", "MaxSize")),
        ({"maxSize": None}, 5, ("False", "WithinLimits")),
    ):
        patch_group(kubectl, group_name, autoscaling=bounds)
        wait_ready(kubectl, group_name)
        assert limited(kubectl, group_name) == told
        assert len(names_of(kubectl, group_name)) == size
        assert status_of(kubectl, group_name)["targetSize"] == size
        assert group_of(kubectl, group_name)["spec"]["targetSize"] == 5, "nobody's target is lost"
        if told[0] == "True":
            message = condition(kubectl, group_name, "ScalingLimited")["message"]
            assert f"autoscaling.{told[1][0].lower()}{told[1][1:]} is {size}" in message


def test_a_target_over_the_maximum_is_refused(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    bounds = {"maxSize": 3}
    apply_group(kubectl, group_name, targetSize=2, autoscaling=bounds)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)
    over = group_manifest(group_name, targetSize=4, autoscaling=bounds)
    patch = as_text({"spec": {"targetSize": 4}})
    for refusal in (
        kubectl.fails("apply", "--filename=-", stdin=over),
        kubectl.fails("apply", "--server-side", "--filename=-", stdin=over),
        kubectl.fails("replace", "--filename=-", stdin=over),
        kubectl.fails("patch", "kng", group_name, "--type=merge", f"--patch={patch}"),
        kubectl.fails("scale", "kng", group_name, "--replicas=4"),
    ):
        assert ABOVE_MAX in refusal
    assert group_of(kubectl, group_name)["spec"]["targetSize"] == 2
    assert names_of(kubectl, group_name) == names
    scale(kubectl, group_name, 3)
    wait_ready(kubectl, group_name)
    assert len(names_of(kubectl, group_name)) == 3


def test_scaling_a_group_that_never_had_a_target(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name)
    wait_ready(kubectl, group_name)
    assert names_of(kubectl, group_name) == []
    assert status_of(kubectl, group_name)["targetSize"] == 0
    scale(kubectl, group_name, 3)
    wait_ready(kubectl, group_name)
    assert len(names_of(kubectl, group_name)) == 3


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
    time.sleep(WHILE_NOTHING_HAPPENS)
    assert names_of(kubectl, group_name) == found


def test_a_node_deleted_in_the_middle_of_a_batch_that_is_held_up(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    """As long as a serial before it and one after it are waited for, it is within the batch."""
    with refused_nodes(kubectl, group_name, ending_in=("002", "007")):
        apply_group(kubectl, group_name, targetSize=10)
        names = eventually(
            lambda: names_of(kubectl, group_name),
            lambda names: [*map(serial_of, names)] == [0, 1, 3, 4, 5, 6, 8, 9],
            describe="all nodes but the two refused ones are there",
        )
        wait_condition(kubectl, group_name, "Stalled")
        told = condition(kubectl, group_name, "Stalled")
        assert told["reason"] == "Refused" and REFUSAL in told["message"]
        kubectl("delete", "node", names[3])
        eventually(
            lambda: names_of(kubectl, group_name),
            lambda names: [*map(serial_of, names)] == [0, 1, 3, 5, 6, 8, 9, 10],
            describe="the node is made up for under a new name",
        )
    wait_ready(kubectl, group_name)
    serials = [serial_of(name) for name in names_of(kubectl, group_name)]
    assert serials == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert condition(kubectl, group_name, "Stalled")["status"] == "False"


def test_a_refusal_is_forgotten_with_the_nodes_it_was_about(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=1)
    wait_ready(kubectl, group_name)
    with refused_nodes(kubectl, group_name, ending_in=("001",)):
        scale(kubectl, group_name, 2)
        wait_condition(kubectl, group_name, "Stalled")
        scale(kubectl, group_name, 1)
        wait_ready(kubectl, group_name)
        assert condition(kubectl, group_name, "Stalled")["status"] == "False"


def test_what_goes_over_the_limit_for_all_groups_waits(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start("--max-total-nodes=20")
    first, second = f"{group_name}-first", f"{group_name}-second"
    apply_group(kubectl, first, targetSize=14)
    wait_ready(kubectl, first)
    apply_group(kubectl, second, targetSize=10)
    message = wait_for_limit(kubectl, second, nodes=6)
    assert "--max-total-nodes" in message and "4 of 10 wait" in message
    told = condition(kubectl, second, "Ready")
    assert (told["status"], told["reason"]) == ("False", "NodeLimit")
    assert [e["reason"] for e in events_of(kubectl, second)].count("NodeLimit") == 1

    scale(kubectl, first, 1_000_000)
    wait_for_limit(kubectl, first, nodes=14)
    time.sleep(WHILE_NOTHING_HAPPENS)
    assert (len(names_of(kubectl, first)), len(names_of(kubectl, second))) == (14, 6)

    scale(kubectl, first, 12)
    wait_for_limit(kubectl, second, nodes=8)
    assert len(names_of(kubectl, first)) == 12

    scale(kubectl, first, 3)
    wait_ready(kubectl, first)
    wait_ready(kubectl, second)
    assert len(names_of(kubectl, second)) == 10, "the one that waits goes on by itself"
    assert limited(kubectl, second) == ("False", "WithinLimits")


def test_a_group_that_is_deleted_makes_room(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start("--max-total-nodes=20")
    first, second = f"{group_name}-first", f"{group_name}-second"
    apply_group(kubectl, first, targetSize=20)
    wait_ready(kubectl, first)
    apply_group(kubectl, second, targetSize=5)
    wait_for_limit(kubectl, second, nodes=0)
    kubectl("delete", "kng", first)
    wait_ready(kubectl, second)
    assert len(names_of(kubectl, second)) == 5


def test_the_limit_for_all_groups_takes_no_nodes_away(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start("--max-total-nodes=20")
    first, second = f"{group_name}-first", f"{group_name}-second"
    for group in (first, second):
        apply_group(kubectl, group, targetSize=8)
        wait_ready(kubectl, group)
    names = names_of(kubectl, first) + names_of(kubectl, second)

    harness.start("--max-total-nodes=10")
    scale(kubectl, first, 9)
    wait_for_limit(kubectl, first, nodes=8)
    time.sleep(WHILE_NOTHING_HAPPENS)
    assert names_of(kubectl, first) + names_of(kubectl, second) == names

    victim = names_of(kubectl, first)[0]
    patch_group(kubectl, first, scaleDown={"nodesToDelete": [victim]})
    wait_for_limit(kubectl, first, nodes=7)
    assert victim not in names_of(kubectl, first), "whoever names nodes may go lower"

    scale(kubectl, second, 1)
    wait_ready(kubectl, second)
    wait_ready(kubectl, first)
    assert [serial_of(name) for name in names_of(kubectl, first)] == list(range(1, 10))
