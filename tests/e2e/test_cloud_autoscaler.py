"""What cluster-autoscaler learns of a simulated cloud, and what it makes of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.e2e.autoscaler import STATES, Autoscaler, Shim, placeholder, registered
from tests.e2e.clouds import apply_pool, pool_status, pools, states_of
from tests.e2e.groups import (
    apply_group,
    names_of,
    nodes_of,
    scale,
    status_of,
    wait_ready,
    wait_until_heard,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process

BOUNDS = {"minSize": 0, "maxSize": 50}
OUT_OF_RESOURCES, OTHER = 1, 99


class Told(NamedTuple):
    """An instance as cluster-autoscaler is told of it."""

    state: str
    error_class: int = 0
    code: str = ""
    message: str = ""


def told(autoscaler: Autoscaler, group: str) -> dict[int, Told]:
    """The instances of a group by serial."""
    request = pb.NodeGroupNodesRequest(id=group)
    answer = autoscaler.call("NodeGroupNodes", request, pb.NodeGroupNodesResponse)
    found = {}
    for instance in answer.instances:
        status, error = instance.status, instance.status.errorInfo
        said = (error.instanceErrorClass, error.errorCode, error.errorMessage)
        state = STATES[status.instanceState]
        found[serial(instance.id)] = Told(state, *said) if error.errorCode else Told(state)
    return dict(sorted(found.items()))


def ids(autoscaler: Autoscaler, group: str) -> dict[int, str]:
    return {serial(identity): identity for identity in sorted(autoscaler.instances(group))}


def serial(provider_id: str) -> int:
    return int(provider_id.rpartition("-")[2])


class Agreement:
    """How the list of instances compared with the target, sample by sample.

    `wrong` are the samples in which another number of instances than the target weren't Deleting.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.wrong: list[tuple[int, dict[str, str]]] = []

    def note(self, target: int, instances: dict[str, str]) -> None:
        self.samples += 1
        if sum(state != "Deleting" for state in instances.values()) != target:
            self.wrong.append((target, instances))


@contextmanager
def watched_agreement(shim: Shim, group: str) -> Iterator[Agreement]:
    """Asks for both again and again, as long as the block lasts."""
    seen, done, client = Agreement(), threading.Event(), Autoscaler(shim.socket)

    def ask() -> None:
        while not done.wait(0.05):
            before = client.target(group)
            instances = client.instances(group)
            # Somebody may change it in between.
            if client.target(group) == before:
                seen.note(before, instances)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
        eventually(lambda: seen.samples > 10, describe="both were asked for")
    finally:
        done.set()
        thread.join()
        client.close()
    assert seen.wrong == []


def serve(
    autoscaler: Autoscaler, kubectl: Kubectl, group: str, cloud: dict[str, Any], **spec: Any
) -> None:
    """A group of no nodes that the shim serves."""
    apply_group(kubectl, group, targetSize=0, autoscaling=BOUNDS, cloud=cloud, **spec)
    wait_ready(kubectl, group)
    eventually(lambda: autoscaler.knows(group), describe="the shim serves the group")


def test_instances_are_creating_until_their_node_is_there(
    operator: Process, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    cloud = {
        "provisioningDelay": {"fixed": "1s"},
        "failures": {"neverRegisters": {"serials": "1"}},
        "capacityPools": [group_name],
    }
    with pools(kubectl, group_name):
        # They wait for the pool, for as long as it takes to look.
        serve(autoscaler, kubectl, group_name, cloud)
        autoscaler.increase(group_name, 3)
        wait_until_told(autoscaler, kubectl, group_name, "Waiting")
        promised = ids(autoscaler, group_name)
        assert names_of(kubectl, group_name) == []
        apply_pool(kubectl, group_name)
        eventually(
            lambda: told(autoscaler, group_name) == dict.fromkeys(range(3), Told("Running")),
            describe="all are Running, the one that does not register too",
        )
    eventually(
        lambda: states_of(status_of(kubectl, group_name)) == {1: "Unregistered"},
        describe="one does not register",
    )
    nodes = nodes_of(kubectl, group_name)
    assert [node["spec"]["providerID"] for node in nodes] == [promised[0], promised[2]]

    autoscaler.delete(group_name, placeholder(promised[1]))
    assert autoscaler.target(group_name) == 2
    wait_ready(kubectl, group_name)
    eventually(lambda: list(told(autoscaler, group_name)) == [0, 2], describe="it is given back")
    assert status_of(kubectl, group_name)["nextSerial"] == 3

    slow = f"{group_name}-slow"
    serve(autoscaler, kubectl, slow, {"provisioningDelay": {"fixed": "10m"}})
    autoscaler.increase(slow, 3)
    wait_until_told(autoscaler, kubectl, slow, "Creating")
    assert names_of(kubectl, slow) == []


def wait_until_told(autoscaler: Autoscaler, kubectl: Kubectl, group: str, state: str) -> None:
    """Returns once three instances are in that state, and told as Creating."""
    eventually(
        lambda: states_of(status_of(kubectl, group)) == dict.fromkeys(range(3), state),
        describe=f"three are {state}",
    )
    eventually(
        lambda: told(autoscaler, group) == dict.fromkeys(range(3), Told("Creating")),
        describe="they are Creating for cluster-autoscaler",
    )


@pytest.mark.core
def test_what_failed_is_given_back_and_another_group_taken(
    operator: Process, shim: Shim, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    failures = [
        {"serials": "0-1", "class": "OutOfResources", "code": "ZonalStockout", "message": "None."},
        {"serials": "2", "class": "QuotaExceeded"},
        {"serials": "3", "class": "Other", "code": "InternalError"},
    ]
    first, second = f"{group_name}-a", f"{group_name}-b"
    serve(autoscaler, kubectl, first, {"failures": {"creation": failures}})
    serve(autoscaler, kubectl, second, {"provisioningDelay": {"fixed": "1s"}})
    with watched_agreement(shim, first):
        autoscaler.increase(first, 6)
        found = eventually(
            lambda: told(autoscaler, first),
            lambda found: (
                [one.state for one in found.values()] == ["Creating"] * 4 + ["Running"] * 2
                and all(found[failed].code for failed in range(4))
            ),
            describe="four have failed",
        )
        assert found[0] == found[1] == Told("Creating", OUT_OF_RESOURCES, "ZonalStockout", "None.")
        assert found[2][1:3] == (OUT_OF_RESOURCES, "QuotaExceeded")
        assert found[3][1:3] == (OTHER, "InternalError")
        assert all(found[failed].message for failed in range(4)), "people read it"
        assert {found[4], found[5]} == {Told("Running")}

        failed = [ids(autoscaler, first)[number] for number in range(4)]
        autoscaler.delete(first, *(placeholder(one, "create-error") for one in failed))
        assert autoscaler.target(first) == 2
        autoscaler.increase(second, 4)
        eventually(lambda: list(told(autoscaler, first)) == [4, 5], describe="they are given back")
        wait_ready(kubectl, second)
        wait_ready(kubectl, first)
    assert len(names_of(kubectl, second)) == 4
    assert status_of(kubectl, first)["nextSerial"] == 6, "they are not asked for again"


def test_a_pool_without_room_is_out_of_resources(
    operator: Process, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    with pools(kubectl, group_name):
        apply_pool(kubectl, group_name, instances=2, error={"code": "ReservationIsFull"})
        serve(autoscaler, kubectl, group_name, {"capacityPools": [group_name]})
        autoscaler.increase(group_name, 3)
        found = eventually(
            lambda: told(autoscaler, group_name),
            lambda found: (
                [one.state for one in found.values()] == ["Running", "Running", "Creating"]
                and found[2].code
            ),
            describe="two have come",
        )
        assert found[2][1:3] == (OUT_OF_RESOURCES, "ReservationIsFull")
        # There is room now, but nobody asks: cluster-autoscaler does that itself.
        apply_pool(kubectl, group_name, instances=9)
        eventually(
            lambda: pool_status(kubectl, group_name)["observedGeneration"] == 2,
            describe="the operator has seen it",
        )
        wait_until_heard(kubectl, f"{group_name}-heard")
        assert told(autoscaler, group_name) == found
        refused = ids(autoscaler, group_name)[2]
        autoscaler.delete(group_name, placeholder(refused, "create-error"))
        wait_ready(kubectl, group_name)
        assert (autoscaler.target(group_name), list(told(autoscaler, group_name))) == (2, [0, 1])


def test_the_target_and_the_instances_agree_while_everything_changes(
    harness: Harness, shim: Shim, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    """Whoever takes nodes away, and while no operator is there."""
    cloud = {
        "provisioningDelay": {"uniform": {"min": "0s", "max": "2s"}},
        "failures": {
            "creation": [{"probability": "0.3", "after": {"fixed": "1s"}}],
            "neverRegisters": {"probability": "0.1"},
            "slowDeletion": {"serials": "0-99", "delay": {"fixed": "3s"}},
        },
        "retryAfter": "2s",
        "stock": 15,
        "interruptions": {"lifetime": {"uniform": {"min": "4s", "max": "12s"}}, "notice": "1s"},
    }

    def wait_asked_for(least: int) -> None:
        eventually(
            lambda: status_of(kubectl, group_name)["nextSerial"] >= least,
            describe=f"{least} are asked for",
        )

    process = harness.start()
    serve(autoscaler, kubectl, group_name, cloud)
    with watched_agreement(shim, group_name):
        for size in (10, 25):
            autoscaler.increase(group_name, size - autoscaler.target(group_name))
            wait_asked_for(size)
        for _ in range(4):
            nodes = eventually(
                lambda: registered(kubectl, group_name),
                lambda nodes: len(nodes) > 2,
                describe="some are there",
            )
            give_back_what_failed(autoscaler, group_name)
            kubectl("delete", "node", nodes[0].name, "--wait=false", "--ignore-not-found")
            autoscaler.delete(group_name, nodes[-1])
        eventually(
            lambda: "Deleting" in {one.state for one in told(autoscaler, group_name).values()},
            describe="some are stuck in deletion",
        )
        process.kill()
        autoscaler.increase(group_name, 3)
        foreseen = max(told(autoscaler, group_name))
        harness.start()
        wait_asked_for(foreseen + 1)
    scale(kubectl, group_name, 0)
    eventually(lambda: told(autoscaler, group_name) == {}, describe="all are gone")


def test_what_all_groups_together_have_no_room_for_is_given_back(
    harness: Harness, shim: Shim, autoscaler: Autoscaler, kubectl: Kubectl, group_name: str
) -> None:
    """cluster-autoscaler would wait for it in vain, and not take another group."""
    harness.start("--max-total-nodes=3")
    serve(autoscaler, kubectl, group_name, {})
    with watched_agreement(shim, group_name):
        autoscaler.increase(group_name, 5)
        found = eventually(
            lambda: told(autoscaler, group_name),
            lambda found: (
                [one.state for one in found.values()] == ["Running"] * 3 + ["Creating"] * 2
                and all(found[number].code for number in (3, 4))
            ),
            describe="two have no room",
        )
        assert {found[number][1:3] for number in (3, 4)} == {(OUT_OF_RESOURCES, "NodeLimit")}
        refused = [ids(autoscaler, group_name)[number] for number in (3, 4)]
        assert [autoscaler.group_of(placeholder(one)) for one in refused] == [group_name] * 2
        autoscaler.delete(group_name, *(placeholder(one, "create-error") for one in refused))
        assert autoscaler.target(group_name) == 3
        wait_ready(kubectl, group_name)
    assert list(told(autoscaler, group_name)) == [0, 1, 2]


def give_back_what_failed(autoscaler: Autoscaler, group: str) -> None:
    failed = [placeholder(one, "create-error") for one in autoscaler.failures(group)]
    if failed:
        autoscaler.delete(group, *failed)
