"""The shim with the operator behind it, driven as cluster-autoscaler drives it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import pytest

from tests.e2e.api import GROUPS
from tests.e2e.autoscaler import (
    Autoscaler,
    Shim,
    as_node,
    code_of,
    placeholder,
    registered,
)
from tests.e2e.groups import (
    apply_group,
    group_of,
    nodes_of,
    patch_group,
    scale,
    status_of,
    stopped,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process
from tests.e2e.refusals import REFUSAL, refused_nodes
from tests.e2e.sources import RealNodes
from tests.fakes.nodebytes import decode_node

BOUNDS = {"minSize": 0, "maxSize": 20}


@pytest.fixture
def group(kubectl: Kubectl, operator: Process, autoscaler: Autoscaler, group_name: str) -> str:
    """A group of no nodes that the shim serves."""
    apply_group(kubectl, group_name, targetSize=0, autoscaling=BOUNDS)
    wait_ready(kubectl, group_name)
    eventually(lambda: autoscaler.knows(group_name), describe="the shim serves the group")
    return group_name


def wait_instances(autoscaler: Autoscaler, group: str, count: int, state: str = "Running") -> Any:
    return eventually(
        lambda: autoscaler.instances(group),
        lambda found: list(found.values()) == [state] * count,
        describe=f"{count} instances are {state}",
    )


@pytest.mark.core
def test_probes_get_serving(autoscaler: Autoscaler) -> None:
    assert autoscaler.serves()


def test_a_whole_life(autoscaler: Autoscaler, kubectl: Kubectl, group: str) -> None:
    assert autoscaler.loop()[group] == (0, 20)
    node = decode_node(autoscaler.template(group))
    assert node["status"]["allocatable"]["cpu"] == "32"

    autoscaler.increase(group, 5)
    assert autoscaler.target(group) == 5, "read your writes"
    wait_ready(kubectl, group)
    instances = wait_instances(autoscaler, group, 5)
    nodes = registered(kubectl, group)
    assert {node.providerID for node in nodes} == set(instances)
    assert {autoscaler.group_of(node) for node in nodes} == {group}

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda node: autoscaler.delete(group, node), nodes[:3]))
    assert autoscaler.target(group) == 2
    eventually(lambda: len(nodes_of(kubectl, group)) == 2, describe="exactly these are gone")
    assert [n.providerID for n in registered(kubectl, group)] == [n.providerID for n in nodes[3:]]
    autoscaler.delete(group, nodes[0])
    assert autoscaler.target(group) == 2, "what is gone lowers nothing"
    autoscaler.delete(group, *nodes[3:])
    assert autoscaler.target(group) == 0
    wait_instances(autoscaler, group, 0)
    wait_ready(kubectl, group)


def test_instances_not_requested_yet_can_be_taken_back(
    operator: Process, autoscaler: Autoscaler, kubectl: Kubectl, group: str
) -> None:
    """The operator stands still: the number is there, and the instances that it will ask for."""
    autoscaler.increase(group, 1)
    wait_ready(kubectl, group)
    wait_instances(autoscaler, group, 1)
    with stopped(operator.pid):
        autoscaler.increase(group, 4)
        found = autoscaler.instances(group)
        assert sorted(found.values()) == ["Creating"] * 4 + ["Running"]
        foreseen = next(one for one, state in found.items() if state == "Creating")
        assert autoscaler.group_of(placeholder(foreseen)) == group
        autoscaler.decrease(group, -2)
        assert autoscaler.target(group) == 3
        autoscaler.decrease(group, -9)
        assert autoscaler.target(group) == 1, "clamped to what is there"
    wait_ready(kubectl, group)
    assert len(nodes_of(kubectl, group)) == 1


def test_an_increase_with_an_unusable_template_is_refused(
    autoscaler: Autoscaler, kubectl: Kubectl, group: str
) -> None:
    """cluster-autoscaler then turns to another group, and does not wait for nodes in vain."""
    patch_group(kubectl, group, template={"node": {"status": {"capacity": {"a.b/c": "0.5"}}}})
    _, sentence = eventually(
        lambda: code_of(autoscaler.increase, group, 25),
        lambda said: said[0] == "FAILED_PRECONDITION",
        describe="an increase is refused because of the template",
    )
    assert "no usable template" in sentence and "a.b/c" in sentence
    patch_group(kubectl, group, template={"node": None})
    wait_ready(kubectl, group)
    eventually(
        lambda: code_of(autoscaler.increase, group, 25)[0],
        lambda code: code == "OUT_OF_RANGE",
        describe="the corrected one is used",
    )
    autoscaler.increase(group, 1)
    wait_ready(kubectl, group)


def test_pending_instances_have_names(
    operator: Process, autoscaler: Autoscaler, kubectl: Kubectl, group: str
) -> None:
    """A hand-written status says what the operator, killed at that instant, would have left."""
    scale(kubectl, group, 1)
    wait_ready(kubectl, group)
    with stopped(operator.pid):
        status = status_of(kubectl, group)
        batch = {"first": 1, "last": 3, "requestedAt": "2026-01-02T03:04:05Z"}
        status |= {"pending": [batch], "nextSerial": 4}
        autoscaler.increase(group, 3)
        kubectl.api.patch(f"{GROUPS}/{group}/status", {"status": status})
        found = eventually(
            lambda: autoscaler.instances(group),
            lambda i: sorted(i.values()) == ["Creating"] * 3 + ["Running"],
            describe="three are Creating",
        )
        creating = sorted(i for i, state in found.items() if state == "Creating")
        for provider_id in creating:
            assert autoscaler.group_of(placeholder(provider_id)) == group
        autoscaler.delete(group, placeholder(creating[0]))
        autoscaler.delete(group, placeholder(creating[0]))
        autoscaler.decrease(group, -1)
        assert autoscaler.target(group) == 2
        assert sorted(autoscaler.instances(group).values()) == ["Creating", "Running"]
    wait_ready(kubectl, group)
    names = [n["spec"]["providerID"] for n in nodes_of(kubectl, group)]
    assert creating[1] in names and creating[0] not in names and creating[2] not in names


@pytest.mark.core
def test_failed_instances_have_their_reason_and_are_given_back(
    autoscaler: Autoscaler, kubectl: Kubectl, group: str
) -> None:
    """The API server takes the template, and refuses the nodes."""
    with refused_nodes(kubectl, group, dry_runs=False):
        autoscaler.increase(group, 3)
        failed = eventually(
            lambda: autoscaler.failures(group),
            lambda found: len(found) == 3,
            describe="three instances have failed",
        )
        assert all(REFUSAL in message for message in failed.values())
        autoscaler.delete(group, *(placeholder(i, "create-error") for i in failed))
        assert autoscaler.target(group) == 0
        wait_instances(autoscaler, group, 0)
        patch_group(kubectl, group, autoscaling={"minSize": 1})
        failed = eventually(
            lambda: autoscaler.failures(group),
            lambda found: len(found) == 1,
            describe="the one of the minimum has failed",
        )
        autoscaler.delete(group, placeholder(next(iter(failed)), "create-error"))
        assert autoscaler.target(group) == 1, "the group tries again"
    wait_ready(kubectl, group)
    assert len(nodes_of(kubectl, group)) == 1


def test_the_nodes_of_others(
    autoscaler: Autoscaler, kubectl: Kubectl, group: str, real_nodes: RealNodes
) -> None:
    autoscaler.increase(group, 1)
    wait_ready(kubectl, group)
    wait_instances(autoscaler, group, 1)
    (ours,) = nodes_of(kubectl, group)
    real_nodes.add(f"{group}-r1", labels={"pool": "a"})
    cloud = as_node(kubectl.json("get", "node", f"{group}-r1"))
    assert autoscaler.group_of(cloud) == ""
    imposter = as_node(ours)
    imposter.name = imposter.providerID = "i-0123456789"
    assert autoscaler.group_of(imposter) == ""
    not_given_out = as_node(ours)
    name = f"{ours['metadata']['name'][:-6]}999999"
    not_given_out.name, not_given_out.providerID = name, f"kwok:{name}"
    assert autoscaler.group_of(not_given_out) == ""
    for node in (cloud, imposter, not_given_out):
        assert code_of(autoscaler.delete, group, node)[0] == "INVALID_ARGUMENT"
    assert autoscaler.target(group) == 1


def test_many_writers_lose_nothing(autoscaler: Autoscaler, kubectl: Kubectl, group: str) -> None:
    """Twenty callers, and somebody who writes the group's status all the while."""
    patch_group(kubectl, group, autoscaling={"maxSize": 1000}, paused=True)
    patch_group(kubectl, group, paused=False)
    eventually(lambda: autoscaler.loop().get(group) == (0, 1000), describe="the bound is known")
    done = threading.Event()

    def storm() -> None:
        while not done.is_set():
            for value in ("1", None):
                change = {"metadata": {"annotations": {"example.com/n": value}}}
                kubectl.api.patch(f"{GROUPS}/{group}", change)

    writer = threading.Thread(target=storm)
    writer.start()
    try:
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda _: autoscaler.increase(group, 2), range(100)))
    finally:
        done.set()
        writer.join()
    assert autoscaler.target(group) == group_of(kubectl, group)["spec"]["targetSize"] == 200
    scale(kubectl, group, 0)


def test_a_template_changed_at_zero_reaches_cluster_autoscaler(
    autoscaler: Autoscaler, kubectl: Kubectl, group: str
) -> None:
    """It copies a group's last node for years: left out for one loop, the group is asked anew."""
    autoscaler.template(group)
    autoscaler.loop()
    patch_group(kubectl, group, template={"shape": {"cpu": 7}})
    wait_ready(kubectl, group)
    loops: list[bool] = []

    def another_loop() -> list[bool]:
        loops.append(group in autoscaler.loop())
        return loops

    eventually(another_loop, lambda seen: False in seen and seen[-1], describe="it is back")
    assert loops.count(False) == 1, "it was left out of one loop"
    assert decode_node(autoscaler.template(group))["status"]["capacity"]["cpu"] == "7"


def test_the_shim_killed_and_another_cluster_autoscaler(
    shim: Shim, autoscaler: Autoscaler, kubectl: Kubectl, group: str
) -> None:
    autoscaler.increase(group, 4)
    shim.kill()
    shim.start()
    again = Autoscaler(shim.socket)

    def target() -> int:
        with suppress(grpc.RpcError):
            return again.target(group)
        return -1

    eventually(target, lambda size: size == 4, describe="it knows the target")
    wait_ready(kubectl, group)
    wait_instances(again, group, 4)
    assert shim.stop() == 0
    again.close()
    assert len(nodes_of(kubectl, group)) == 4
