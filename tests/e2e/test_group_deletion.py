"""What is left when groups go, and what is not."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.groups import (
    CRD_NAME,
    POOL_CRD_NAME,
    apply_group,
    condition,
    group_of,
    install_crds,
    names_of,
    nodes_of,
    pool_manifest,
    scale,
    status_of,
    wait_ready,
    wait_until_heard,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.rights import apply_rights

HOLD = "example.com/hold"
WAITS = "waiting for the CRD"
ROLE_BINDING = "clusterrolebinding/kwok-operator"


@pytest.fixture
def everything_comes_back(kubectl: Kubectl, crds: None) -> Iterator[None]:
    """All tests share the CRD and the operator's rights: whoever removes them puts them back."""
    yield
    eventually(
        lambda: "deletionTimestamp" not in kubectl("get", "crd", "--output=yaml"),
        describe="a CRD that goes is gone",
    )
    install_crds(kubectl)
    apply_rights(kubectl)


def wait_gone(kubectl: Kubectl, name: str) -> None:
    """The garbage collector takes its time, above all when it has just lost a CRD."""
    eventually(
        lambda: names_of(kubectl, name),
        until=lambda names: names == [],
        describe=f"the nodes of {name} are gone",
    )


def let_the_garbage_collector_see_groups(kubectl: Kubectl, group_name: str) -> None:
    """Waits until it watches groups.

    Of a kind that came and went before it looked, it deletes nothing; it looks for new kinds every
    30 s. Only it can end a deletion in the foreground, and only of an object that its watch has
    shown to it.
    """
    scout = f"{group_name}-scout"
    apply_group(kubectl, scout, targetSize=0)
    kubectl("delete", "kng", scout, "--cascade=foreground", "--timeout=120s")


def kept(node: dict[str, Any]) -> dict[str, Any]:
    """What of a node only the operator might have changed. What Kubernetes adds comes and goes."""
    metadata = node["metadata"]
    annotations = metadata["annotations"].items()
    return {
        "uid": metadata["uid"],
        "label": metadata["labels"][NODE_GROUP_LABEL],
        "annotations": {k: v for k, v in annotations if ".alpha.kubernetes.io/" not in k},
        "deletionTimestamp": metadata.get("deletionTimestamp"),
        "providerID": node["spec"]["providerID"],
    }


def hold(kubectl: Kubectl, name: str, *, by: list[str]) -> None:
    """Sets the finalizers of a group, which keep it in being while it is deleted."""
    patch = f'{{"metadata":{{"finalizers":{by}}}}}'.replace("'", '"')
    kubectl("patch", "kng", name, "--type=merge", f"--patch={patch}")


@contextlib.contextmanager
def held(kubectl: Kubectl, name: str) -> Iterator[None]:
    """The group exists at least as long as the block runs, deleted or not."""
    hold(kubectl, name, by=[HOLD])
    try:
        yield
    finally:
        hold(kubectl, name, by=[])


@pytest.mark.core
def test_operator_deletes_the_nodes_of_a_group(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    """And neither groups nor nodes ever carry a finalizer of ours."""

    def finalizers() -> list[Any]:
        objects = [group_of(kubectl, group_name), *nodes_of(kubectl, group_name)]
        return [o["metadata"]["finalizers"] for o in objects if o["metadata"].get("finalizers")]

    apply_group(kubectl, group_name, targetSize=30, scaleDown={"pods": "Delete"})
    wait_ready(kubectl, group_name)
    assert finalizers() == []
    scale(kubectl, group_name, 20)
    wait_ready(kubectl, group_name)
    assert finalizers() == []
    owners = [o for n in nodes_of(kubectl, group_name) for o in n["metadata"]["ownerReferences"]]
    assert len(owners) == 20
    assert not any(owner.get("blockOwnerDeletion") for owner in owners)

    kubectl("delete", "kng", group_name)
    wait_gone(kubectl, group_name)
    # The garbage collector would do it too, later: the log tells who was first.
    told = f"deleting the nodes of a deleted group: group={group_name} nodes="
    eventually(operator.log, until=lambda log: told in log, describe="the operator deletes them")


def test_foreground_deletion_waits_for_the_nodes(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    kubectl("delete", "kng", group_name, "--cascade=foreground")
    wait_gone(kubectl, group_name)


@pytest.mark.parametrize("running", [True, False], ids=["operator-runs", "operator-is-away"])
def test_orphaned_nodes_stay(
    kubectl: Kubectl, harness: Harness, group_name: str, running: bool
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    if not running:
        harness.stop()
    before = [kept(node) for node in nodes_of(kubectl, group_name)]
    try:
        kubectl("delete", "kng", group_name, "--cascade=orphan")
        if not running:
            harness.start()
        wait_until_heard(kubectl, f"{group_name}-heard")
        after = nodes_of(kubectl, group_name)
        assert [kept(node) for node in after] == before
        assert not any(node["metadata"].get("ownerReferences") for node in after)
        # To the next group of that name they are foreign.
        for size in (3, 1):
            apply_group(kubectl, group_name, targetSize=size)
            wait_ready(kubectl, group_name)
            assert status_of(kubectl, group_name)["replicas"] == size
        assert condition(kubectl, group_name, "ForeignNodes")["status"] == "True"
        left = [kept(node) for node in nodes_of(kubectl, group_name)]
        assert [node for node in left if node in before] == before
        assert len(left) == len(before) + 1
    finally:
        kubectl("delete", "nodes", f"-l{NODE_GROUP_LABEL}={group_name}")


def test_orphaned_nodes_stay_while_something_else_holds_the_group(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    before = names_of(kubectl, group_name)

    try:
        with held(kubectl, group_name):
            kubectl("delete", "kng", group_name, "--cascade=orphan", "--wait=false")
            # The garbage collector has let go of the nodes, and taken its mark off the group.
            eventually(
                lambda: group_of(kubectl, group_name)["metadata"]["finalizers"],
                until=lambda finalizers: finalizers == [HOLD],
                describe="the nodes are orphaned",
            )
            wait_until_heard(kubectl, f"{group_name}-heard")
            assert names_of(kubectl, group_name) == before
        wait_until_heard(kubectl, f"{group_name}-again")
        assert names_of(kubectl, group_name) == before
    finally:
        kubectl("delete", "nodes", f"-l{NODE_GROUP_LABEL}={group_name}")


def wait_replaced(kubectl: Kubectl, name: str, old: set[str]) -> set[str]:
    """The nodes that a group has once those of the former one of its name are gone."""
    return eventually(
        lambda: set(names_of(kubectl, name)),
        until=lambda names: not names & old,
        describe="the nodes of the former group are gone",
    )


@pytest.mark.parametrize("running", [True, False], ids=["operator-runs", "operator-is-away"])
def test_group_made_again_at_once_starts_over(
    kubectl: Kubectl, harness: Harness, group_name: str, running: bool
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=20)
    wait_ready(kubectl, group_name)
    old = set(names_of(kubectl, group_name))
    if not running:
        harness.stop()

    kubectl("delete", "kng", group_name, "--wait=false")
    apply_group(kubectl, group_name, targetSize=25)
    if not running:
        harness.start()

    wait_ready(kubectl, group_name)
    assert status_of(kubectl, group_name)["replicas"] == 25
    assert len(wait_replaced(kubectl, group_name, old)) == 25
    wait_ready(kubectl, group_name)
    # On their way out, the former group's nodes were nothing to tell about.
    assert condition(kubectl, group_name, "ForeignNodes")["status"] == "False"


def test_group_that_is_being_deleted_creates_nothing(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    fresh = f"{group_name}-fresh"
    apply_group(kubectl, group_name, targetSize=5)
    wait_ready(kubectl, group_name)
    with held(kubectl, group_name):
        kubectl("delete", "kng", group_name, "--wait=false")
        wait_gone(kubectl, group_name)
        # Neither a new wish nor a new operator changes that.
        scale(kubectl, group_name, 10)
        wait_until_heard(kubectl, f"{group_name}-heard")
        assert names_of(kubectl, group_name) == []
        harness.stop()
        apply_group(kubectl, fresh, targetSize=5)
        with held(kubectl, fresh):
            kubectl("delete", "kng", fresh, "--wait=false")
            harness.start()
            wait_until_heard(kubectl, f"{group_name}-again")
            assert names_of(kubectl, group_name) == names_of(kubectl, fresh) == []
    kubectl("wait", "--for=delete", f"kng/{group_name}", "--timeout=60s")


def started_again(harness: Harness, *, because: str, ready: bool = True) -> Process:
    """The operator, as a kubelet would start it again once it has ended with an error."""
    former = harness.process
    assert former is not None
    assert former.wait() == 1, former.log()
    assert because in former.log()
    assert "Traceback" not in former.log()
    return harness.start(*former.flags, ready=ready)


def test_crd_of_pools_is_not_waited_for(
    kubectl: Kubectl, harness: Harness, group_name: str, everything_comes_back: None
) -> None:
    kubectl("delete", "crd", POOL_CRD_NAME)
    process = harness.start()
    wait_until_heard(kubectl, group_name)
    told = "the API server does not serve kwokcapacitypools: install its CRD"
    assert process.log().count(told) == 1

    install_crds(kubectl)
    process = started_again(harness, because="kwokcapacitypools are served by now")
    kubectl.apply(pool_manifest(group_name))
    eventually(
        lambda: kubectl.json("get", "kpool", group_name)["status"]["observedGeneration"] == 1,
        describe="the pool has a status",
    )
    assert told not in process.log()
    kubectl("delete", "kpool", group_name)


def test_the_crd_goes_and_comes_back(
    kubectl: Kubectl, harness: Harness, group_name: str, everything_comes_back: None
) -> None:
    """With its groups, as when a backup is restored; later without, and to another operator."""
    process = harness.start()
    apply_group(kubectl, group_name, targetSize=6)
    wait_ready(kubectl, group_name)
    old = set(names_of(kubectl, group_name))
    kubectl("delete", "crd", CRD_NAME)
    started_again(harness, because="kopf has ended", ready=False)
    install_crds(kubectl)
    apply_group(kubectl, group_name, targetSize=6)
    wait_ready(kubectl, group_name)
    assert len(wait_replaced(kubectl, group_name, old)) == 6
    scale(kubectl, group_name, 1)
    wait_ready(kubectl, group_name)
    assert len(names_of(kubectl, group_name)) == 1

    # An operator that works ends, one that starts waits for the CRD.
    kubectl("delete", "crd", CRD_NAME)
    wait_gone(kubectl, group_name)
    process = started_again(harness, because="kopf has ended", ready=False)
    eventually(process.log, lambda log: WAITS in log, describe="it is told")
    eventually(lambda: process.get("/readyz")[0] == 503, describe="it is not ready")
    assert process.get("/healthz")[0] == 200
    assert process.terminate() == 0
    process = harness.start(ready=False)
    eventually(process.log, lambda log: WAITS in log, describe="it is told")
    install_crds(kubectl)
    process.wait_ready()
    wait_until_heard(kubectl, group_name)
    assert process.log().count(WAITS) == 1


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(["operator", "groups"], marks=pytest.mark.core, id="operator-groups"),
        pytest.param(["rights", "crd", "operator"], id="rights-crd-operator"),
    ],
)
def test_uninstalling_leaves_nothing_behind(
    kubectl: Kubectl,
    harness: Harness,
    group_name: str,
    everything_comes_back: None,
    order: list[str],
) -> None:
    process = harness.start("--max-qps=50")
    apply_group(kubectl, group_name, targetSize=10)
    wait_ready(kubectl, group_name)
    let_the_garbage_collector_see_groups(kubectl, group_name)
    # Some of the nodes are under way when all ends.
    scale(kubectl, group_name, 200)
    eventually(lambda: len(names_of(kubectl, group_name)) > 20, describe="nodes are under way")

    steps: dict[str, Callable[[], object]] = {
        "groups": lambda: kubectl("delete", "kng", group_name, "--wait=false"),
        "crd": lambda: kubectl("delete", "crd", CRD_NAME, "--wait=false"),
        "rights": lambda: kubectl("delete", ROLE_BINDING),
        "operator": lambda: exit_codes.append(process.terminate()),
    }
    exit_codes: list[int] = []
    for step in order:
        steps[step]()

    assert exit_codes == [0], process.log()
    gone = f"crd/{CRD_NAME}" if "crd" in order else f"kng/{group_name}"
    kubectl("wait", "--for=delete", gone, "--timeout=120s")
    wait_gone(kubectl, group_name)
