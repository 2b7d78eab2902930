"""`--clusterapi emulate` on a real control plane, with what cluster-autoscaler's provider does."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.clusterapi.crds import MARK, PLURALS
from kwok_operator.constants import CAPI_ANNOTATION, NODE_GROUP_LABEL
from kwok_operator.nodegroups.naming import uid_hash
from tests.e2e import capi
from tests.e2e.api import GROUPS, NODES, Refused
from tests.e2e.capi import Provider, deployment
from tests.e2e.emulated import (
    EMULATE,
    RIGHTS,
    allowed,
    group_of,
    running,
    wait_running,
)
from tests.e2e.groups import events_of, patch_group, stopped
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.watching import Watch, each

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def played(kubectl: Kubectl, operator_kubeconfig: Path) -> Iterator[None]:
    """Our CRDs, and the account has the component's rights besides its own."""
    capi.install_crds(kubectl)
    kubectl("apply", f"--filename={RIGHTS}")
    allowed(kubectl, capi.GROUP)
    yield
    kubectl("delete", f"--filename={RIGHTS}")


@pytest.fixture
def provider(kubectl: Kubectl, played: None) -> Provider:
    return Provider(kubectl.api)


@pytest.fixture
def name(kubectl: Kubectl, provider: Provider, group_name: str) -> Iterator[str]:
    """Of a MachineDeployment or MachineSet, which is removed with all that comes of it."""
    yield group_name
    for plural in ("machinedeployments", "machinesets"):
        provider.delete(plural, group_name)
    for machine in provider.objects("machines"):
        provider.delete("machines", machine["metadata"]["name"])
    eventually(
        lambda: capi.nodes_of(kubectl, group_of(group_name)) == [], describe="the nodes are gone"
    )


@pytest.fixture
def emulated(harness: Harness, played: None) -> Process:
    return harness.start(EMULATE)


@pytest.mark.core
def test_machines_come_and_the_annotated_ones_go(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    provider.create(deployment(name, replicas=0))
    assert provider.instances(name) == {}
    provider.set_size(name, 6)
    machines = wait_running(kubectl, provider, name, 6)
    assert provider.instances(name) == {f"kwok:{machine}": "Running" for machine in machines}
    assert {provider.group_of(node) for node in machines} == {f"MachineDeployment/default/{name}"}
    assert not provider.rolls_out(name)
    victims = [machines[1], machines[4]]
    with stopped(emulated.pid):
        # All of it is there when the operator looks: nobody's victims are taken for another's.
        provider.delete_nodes(name, victims[:1])
        provider.delete_nodes(name, victims[1:])
    left = [machine for machine in machines if machine not in victims]
    assert wait_running(kubectl, provider, name, 4) == left, "exactly these, and none comes again"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = provider.get("machinedeployments", name)["status"]
        return found

    told = eventually(
        status, lambda s: s["replicas"] == s["readyReplicas"] == 4, describe="status counts them"
    )
    assert told["selector"] == f"pool={name}"


def test_what_cluster_autoscaler_sees_from_zero_has_the_label_of_the_nodes(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    provider.create(deployment(name, replicas=0))
    told = eventually(
        lambda: provider.labels_from_zero(name),
        lambda labels: NODE_GROUP_LABEL in labels,
        describe="pods that keep off fake nodes find no room in it",
    )
    provider.set_size(name, 1)
    (node,) = wait_running(kubectl, provider, name, 1)
    labels = kubectl.api.get(f"{NODES}/{node}")["metadata"]["labels"]
    assert {key: labels.get(key) for key in told} == told
    assert name not in "".join(set(labels.values()) - {node}), "balancing takes groups for alike"


def test_machines_stand_in_racks(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    """The topology is set on the derived group, and stays. A Machine's successor is requested while
    the Machine is there, so one after it fills the hole: the second, if the operator has yet to
    see that the node is gone."""
    provider.create(deployment(name, replicas=0))
    levels = [{"label": "example.com/rack", "of": 2}]
    path = f"{GROUPS}/{group_of(name)}"
    eventually(lambda: kubectl.api.get(path), describe="the group is derived")
    patch_group(kubectl, group_of(name), template={"topology": {"levels": levels}})

    def racks() -> list[str]:
        nodes = capi.nodes_of(kubectl, group_of(name))
        labels = [kubectl.api.get(f"{NODES}/{node}")["metadata"]["labels"] for node in nodes]
        return sorted(each.get("example.com/rack", "") for each in labels)

    provider.set_size(name, 6)
    machines = wait_running(kubectl, provider, name, 6)
    full = [f"{group_of(name)}-{place // 2}" for place in range(8)]
    assert racks() == full[:6]
    provider.delete("machines", machines[1])
    eventually(
        lambda: wait_running(kubectl, provider, name, 6),
        lambda found: machines[1] not in found,
        describe="another Machine runs",
    )
    for size in (7, 8):
        provider.set_size(name, size)
        wait_running(kubectl, provider, name, size)
    assert racks() == full


def test_each_node_has_a_csi_node(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    """Or cluster-autoscaler with --enable-csi-node-aware-scheduling ends each loop."""
    provider.create(deployment(name, replicas=2))
    machines = wait_running(kubectl, provider, name, 2)

    def empty() -> set[str]:
        found = kubectl.api.list("/apis/storage.k8s.io/v1/csinodes")[0]
        return {each["metadata"]["name"] for each in found if not each["spec"]["drivers"]}

    eventually(empty, lambda found: found >= {*machines}, describe="it is there, and empty")


def test_fewer_and_a_deleted_one_are_counted_once(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    provider.create(deployment(name, replicas=4, deletion={"order": "Newest"}))
    before = wait_running(kubectl, provider, name, 4)
    with stopped(emulated.pid):
        provider.delete("machines", before[0])
        provider.set_size(name, 2)
    # The deleted one is one of the two; the newest is the other.
    assert wait_running(kubectl, provider, name, 2) == before[1:3]


def test_without_replicas_it_gets_the_minimum_and_a_selector(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    body = deployment(name, replicas=None)
    body["metadata"]["annotations"][f"{capi.GROUP}/cluster-api-autoscaler-node-group-min-size"] = (
        "2"
    )
    del body["spec"]["selector"]
    provider.create(body)
    eventually(
        lambda: provider.get("machinedeployments", name)["spec"],
        lambda spec: spec.get("replicas") == 2 and spec.get("selector"),
        describe="they are written",
    )
    wait_running(kubectl, provider, name, 2)


def test_a_machine_set_of_its_own(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    sets = {"plural": "machinesets"}
    provider.create(deployment(name, replicas=3, kind="MachineSet", deletePolicy="Oldest"))
    before = wait_running(kubectl, provider, name, 3, **sets)
    assert {provider.group_of(node) for node in before} == {f"MachineSet/default/{name}"}
    provider.set_size(name, 2, **sets)
    assert wait_running(kubectl, provider, name, 2, **sets) == before[1:]
    selectors = [s["spec"]["selector"]["matchLabels"] for s in provider.objects("machinesets")]
    assert selectors.count({"pool": name}) == 1, "it has none of its own"


@pytest.mark.parametrize("style", ["v1beta1", "v1beta2"])
def test_failures_in_the_style_of_each_version(
    kubectl: Kubectl, provider: Provider, harness: Harness, played: None, name: str, style: str
) -> None:
    harness.start(EMULATE, f"--clusterapi-failures={style}")
    provider.create(deployment(name, replicas=0))
    eventually(lambda: kubectl.json("get", "kng", group_of(name)), describe="the group is there")
    cloud = {"stock": 1}
    patch_group(kubectl, group_of(name), cloud=cloud)
    provider.set_size(name, 2)
    said = {"v1beta1": "ProvisioningFailed", "v1beta2": "Creating"}[style]
    states = eventually(
        lambda: provider.instances(name),
        lambda found: sorted(found.values()) == sorted(["Running", said]),
        describe=f"one runs, the other is told as {said}",
    )
    (failed,) = [i.partition("_")[2] for i, state in states.items() if state == said]

    def ready() -> dict[str, Any]:
        conditions = provider.get("machines", failed)["status"]["conditions"]
        return {each["type"]: each for each in conditions}["Ready"]  # type: ignore[no-any-return]

    # In v1beta2 it is told as one that is still to come, so it may have failed only now.
    told = eventually(
        ready,
        lambda told: told["reason"] == "OutOfResources",
        describe="condition Ready says why, in either version",
    )
    assert (told["status"], bool(told["message"])) == ("False", True)
    # As CA gives back what failed.
    provider.mark_for_deletion(failed)
    provider.set_size(name, 1)
    (left,) = wait_running(kubectl, provider, name, 1)
    assert left != failed


def test_killed_in_the_middle_it_goes_on(
    kubectl: Kubectl, provider: Provider, harness: Harness, played: None, name: str
) -> None:
    process = harness.start(EMULATE)
    provider.create(deployment(name, replicas=60))
    eventually(
        lambda: len(provider.machines(name)),
        lambda n: n > 5,
        describe="some are there",
        interval=0.01,
    )
    process.kill()
    process = harness.start(EMULATE)
    machines = wait_running(kubectl, provider, name, 60)
    provider.delete_nodes(name, machines[10:12])
    provider.set_size(name, 30)
    eventually(
        lambda: len(provider.machines(name)),
        lambda n: n < 58,
        describe="some are gone",
        interval=0.01,
    )
    process.kill()
    harness.start(EMULATE)
    left = wait_running(kubectl, provider, name, 30)
    assert not {*machines[10:12]} & {*left}


def test_a_deployment_that_is_deleted_takes_all_with_it_and_may_come_again(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    provider.create(deployment(name, replicas=3))
    before = wait_running(kubectl, provider, name, 3)
    uid = provider.get("machinedeployments", name)["metadata"]["uid"]
    provider.delete("machinedeployments", name)
    provider.create(deployment(name, replicas=2))

    def fresh() -> list[str]:
        machines = running(provider, name)
        assert machines == sorted(capi.nodes_of(kubectl, group_of(name)))
        owners = {
            owner["uid"]
            for each in provider.objects("machinesets")
            for owner in each["metadata"]["ownerReferences"]
        }
        assert uid not in owners
        return machines

    after = eventually(fresh, lambda m: len(m) == 2, describe="only those of the new one are there")
    assert not {*before} & {*after}
    provider.delete("machinedeployments", name)
    eventually(
        lambda: [*provider.objects("machines"), *provider.objects("machinesets")] == [],
        describe="all is gone",
    )


def test_a_deletion_while_the_operator_is_away_is_carried_out_later(
    kubectl: Kubectl, provider: Provider, harness: Harness, played: None, name: str
) -> None:
    harness.start(EMULATE)
    provider.create(deployment(name, replicas=2))
    wait_running(kubectl, provider, name, 2)
    harness.stop()
    provider.delete("machinedeployments", name)
    harness.start(EMULATE)
    eventually(
        lambda: [*provider.objects("machines"), *capi.nodes_of(kubectl, group_of(name))] == [],
        describe="all is gone",
    )


def test_another_group_beside_foreign_crds_of_the_default_one(
    kubectl: Kubectl, harness: Harness, played: None, group_name: str
) -> None:
    group = "capi.example.com"
    crds = f"{CRDS}/machines.{capi.GROUP}"
    capi.install_crds(kubectl, group)
    rights = RIGHTS.read_text().replace(capi.GROUP, group).replace("-emulate", "-other")
    kubectl.apply(rights)
    allowed(kubectl, group)
    unmark = {"metadata": {"annotations": {CAPI_ANNOTATION: None}}}
    kubectl.api.patch(crds, unmark)
    try:
        harness.start(EMULATE, environ={"CAPI_GROUP": group})
        provider = Provider(kubectl.api, group=group)
        provider.create(deployment(group_name, replicas=2, group=group))
        machines = wait_running(kubectl, provider, group_name, 2)
        assert {provider.group_of(node) for node in machines} == {
            f"MachineDeployment/default/{group_name}"
        }
        provider.delete("machinedeployments", group_name)
        eventually(
            lambda: capi.nodes_of(kubectl, group_of(group_name)) == [],
            describe="the nodes are gone",
        )
    finally:
        kubectl.api.patch(crds, {"metadata": {"annotations": {CAPI_ANNOTATION: MARK}}})
        kubectl("delete", "--filename=-", stdin=rights)
        for plural in PLURALS:
            kubectl.api.delete(f"{CRDS}/{plural}.{group}")


def test_nothing_is_emulated_beside_crds_that_are_not_ours(
    kubectl: Kubectl, harness: Harness, played: None
) -> None:
    crd = f"{CRDS}/machinesets.{capi.GROUP}"
    kubectl.api.patch(crd, {"metadata": {"annotations": {CAPI_ANNOTATION: None}}})
    try:
        process = harness.start(EMULATE, ready=False)
        assert process.wait() == 1
        assert f"machinesets.{capi.GROUP}" in process.log().splitlines()[-1]
    finally:
        kubectl.api.patch(crd, {"metadata": {"annotations": {CAPI_ANNOTATION: MARK}}})


def test_random_changes_end_in_the_right_state(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str, chance: random.Random
) -> None:
    provider.create(deployment(name, replicas=12))
    wait_running(kubectl, provider, name, 12)
    gone: set[str] = set()
    for _ in range(25):
        names = [m["metadata"]["name"] for m in provider.machines(name)]
        match chance.randrange(4):
            case 0:
                provider.set_size(name, provider.size(name) + chance.randint(1, 4))
            case 1 if names and provider.size(name):
                victim = chance.choice(names)
                try:
                    provider.mark_for_deletion(victim)
                except Refused:
                    continue  # it has just gone
                provider.set_size(name, provider.size(name) - 1)
            case 2 if names:
                victim = chance.choice(names)
                provider.delete("machines", victim)
                gone.add(victim)
            case 3 if nodes := capi.nodes_of(kubectl, group_of(name)):
                victim = chance.choice(nodes)
                kubectl.api.delete(f"{NODES}/{victim}")
                gone.add(victim)
    size = provider.size(name)
    left = wait_running(kubectl, provider, name, size)
    assert not gone & {*left}, "no name is used twice"
    assert provider.instances(name) == {f"kwok:{machine}": "Running" for machine in left}
    played = eventually(
        lambda: provider.get("machinedeployments", name),
        lambda found: (
            found["status"]["observedGeneration"] == found["metadata"]["generation"]
            and found["status"]["replicas"] == found["status"]["availableReplicas"] == size
        ),
        describe="status counts them",
    )
    assert played["status"]["phase"] == "Running"


def test_an_interrupted_machine_goes_with_its_node(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    provider.create(deployment(name, replicas=0))
    eventually(lambda: kubectl.json("get", "kng", group_of(name)), describe="the group is there")
    patch_group(
        kubectl,
        group_of(name),
        cloud={"interruptions": {"lifetime": {"fixed": "2s"}, "notice": "0s"}},
    )
    ran, gone = set[str](), set[str]()

    def note(event: str, machine: dict[str, Any]) -> None:
        if event == "DELETED":
            gone.add(machine["metadata"]["name"])
        elif machine.get("status", {}).get("phase") == "Running":
            ran.add(machine["metadata"]["name"])

    path, ours = provider.path("machines"), f"pool={name}"
    with Watch(kubectl.api, path, listed=each(note), seen=note, selector=ours):
        provider.set_size(name, 2)
        eventually(lambda: len(ran & gone) >= 2, describe="two that ran have gone")
        patch_group(kubectl, group_of(name), cloud={"interruptions": None})

        def others() -> list[str]:
            """Returns those that run; none that ran before is among them, nor has it a Node."""
            machines = running(provider, name)
            assert machines == sorted(capi.nodes_of(kubectl, group_of(name)))
            assert not {*machines} & gone
            return machines

        eventually(others, lambda machines: len(machines) == 2, describe="others have come")


def test_a_restart_writes_nothing_that_is_there(
    kubectl: Kubectl, provider: Provider, harness: Harness, played: None, name: str
) -> None:
    harness.start(EMULATE)
    provider.create(deployment(name, replicas=5))
    wait_running(kubectl, provider, name, 5)
    for plural in ("machinedeployments", "machinesets"):
        eventually(
            lambda plural=plural: [  # type: ignore[misc]
                each["status"].get("availableReplicas")
                for each in provider.objects(plural)
                if each["metadata"]["name"].startswith(name)
            ],
            lambda available: available == [5],
            describe=f"all is told in {plural}",
        )
    harness.stop()

    def versions() -> dict[str, str]:
        found = {
            f"{plural}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for plural in PLURALS
            for each in provider.objects(plural)
            if each["metadata"]["name"].removeprefix("default.").startswith(name)
        }
        group = kubectl.json("get", "kng", group_of(name))["metadata"]
        return found | {"group": str(group["generation"])}

    before = versions()
    assert len(before) == 8
    harness.start(EMULATE)
    # What comes after it has been dealt with: so it has been looked at, too.
    other = f"{name}-other"
    provider.create(deployment(other, replicas=1))
    try:
        wait_running(kubectl, provider, other, 1)
        assert {key: v for key, v in versions().items() if other not in key} == before
    finally:
        provider.delete("machinedeployments", other)
        eventually(
            lambda: capi.nodes_of(kubectl, group_of(other)) == [], describe="the node is gone"
        )


def test_refusals_of_the_api_server_are_reported_and_made_good(
    kubectl: Kubectl, provider: Provider, emulated: Process, name: str
) -> None:
    body = deployment(name, replicas=2)
    body["spec"]["template"]["metadata"]["labels"] = {"pool": name, "bad": "no label at all"}
    provider.create(body)

    def told() -> list[str]:
        reasons = [event["reason"] for event in events_of(kubectl, group_of(name))]
        return [reason for reason in reasons if reason == "EmulationRefused"]

    eventually(told, describe="an Event says so")
    good = {"spec": {"template": {"metadata": {"labels": {"bad": None}}}}}
    kubectl.api.patch(provider.path("machinedeployments", name), good)
    wait_running(kubectl, provider, name, 2)
    assert emulated.log().count("reconciling failed") < 15, (
        "it is tried again, and not all the time"
    )


def test_somebody_elses_machine_set_is_left_alone(
    kubectl: Kubectl, provider: Provider, harness: Harness, played: None, name: str
) -> None:
    harness.stop()
    provider.create(deployment(name, replicas=1))
    uid = provider.get("machinedeployments", name)["metadata"]["uid"]
    theirs = f"{name}-{uid_hash(uid)}"
    provider.create(deployment(theirs, replicas=0, kind="MachineSet", deletePolicy="Newest"))
    before = provider.get("machinesets", theirs)
    harness.start(EMULATE)
    eventually(
        lambda: [e for e in events_of(kubectl, group_of(name)) if e["reason"] == "MachineSetTaken"],
        describe="an Event says so",
    )
    assert provider.get("machinesets", theirs)["spec"] == before["spec"]
    provider.delete("machinesets", theirs)
    wait_running(kubectl, provider, name, 1)
