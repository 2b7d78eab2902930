"""What happens in the middle of a long plan.

The operator writes at most RATE nodes a second here, so that a plan lasts some seconds longer than
it takes a test to see that it has begun, even where processes have to wait for their turn. It
stands still while a test acts: what the test does is seen before the next node is written.
"""

import re
from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.controlplane import Cluster
from tests.e2e.api import NODES
from tests.e2e.availability import watched
from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    is_ready,
    names_of,
    nodes_of,
    patch_group,
    scale,
    serial_of,
    status_of,
    stopped,
    wait_condition,
    wait_ready,
    wait_until_heard,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process
from tests.e2e.watching import Watch

RATE = 10
FLAGS = (f"--max-qps={RATE}",)
BEGUN = 5
"""Nodes after which a plan is under way."""
SIZE = 30
"""Of groups that are updated."""


@pytest.fixture
def slow(_harness: Harness) -> Process:
    """The operator runs, and has its time."""
    process = _harness.process
    if process is None or not process.running or process.flags != FLAGS:
        return _harness.start(*FLAGS)
    return process


def wait_begun(kubectl: Kubectl, group: str) -> None:
    eventually(
        lambda: len(names_of(kubectl, group)), lambda count: count > BEGUN, describe="it has begun"
    )


def created(operator: Process, group: str) -> int:
    """How many nodes this run of the operator has created for a group."""
    pattern = rf'^kwok_operator_nodes_created_total{{group="{group}"}} (\S+)$'
    found = re.search(pattern, operator.get("/metrics")[1], re.MULTILINE)
    return int(float(found[1])) if found else 0


@pytest.mark.core
def test_a_new_target_interrupts_the_way_up(
    kubectl: Kubectl, slow: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=200)
    wait_begun(kubectl, group_name)
    with stopped(slow.pid):
        scale(kubectl, group_name, 5)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)
    assert len(names) == 5
    status = status_of(kubectl, group_name)
    assert status["nextSerial"] == 200, "serials are recorded before their nodes are created"
    assert status["pending"] == [], "what was asked for is taken back"
    assert created(slow, group_name) < 200, "the rest was never created"

    scale(kubectl, group_name, 8)
    wait_ready(kubectl, group_name)
    new = set(names_of(kubectl, group_name)) - set(names)
    assert sorted(map(serial_of, new)) == [200, 201, 202], "a serial taken back is spent"


def test_a_new_target_interrupts_the_way_down(
    kubectl: Kubectl, slow: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=60)
    wait_ready(kubectl, group_name)
    before = names_of(kubectl, group_name)
    scale(kubectl, group_name, 0)
    eventually(lambda: len(names_of(kubectl, group_name)) < 60, describe="the first nodes are gone")
    with stopped(slow.pid):
        assert names_of(kubectl, group_name), "it hasn't come to its end"
        scale(kubectl, group_name, 60)
    wait_ready(kubectl, group_name)
    after = names_of(kubectl, group_name)
    assert len(after) == 60
    assert set(after) & set(before), "the rest of the nodes stayed"


def test_nodes_deleted_while_their_batch_is_filled_come_back_under_new_names(
    kubectl: Kubectl, slow: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=70)
    wait_begun(kubectl, group_name)
    with stopped(slow.pid):
        names = names_of(kubectl, group_name)
        assert len(names) < 70, "the batch is still being filled"
        deleted = names[-BEGUN:]
        kubectl("delete", "node", *deleted)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)
    assert len(names) == 70
    assert not set(deleted) & set(names)
    last = max(map(serial_of, names))
    assert last == 69 + BEGUN, "as many more serials were asked for, and no others"


def test_a_small_group_is_not_kept_waiting_by_a_large_one(
    kubectl: Kubectl, slow: Process, group_name: str
) -> None:
    large, small = f"{group_name}-large", f"{group_name}-small"
    order: list[str] = []

    def seen(event: str, node: dict[str, Any]) -> None:
        if event == "ADDED":
            order.append(node["metadata"]["labels"][NODE_GROUP_LABEL])

    selector = f"{NODE_GROUP_LABEL} in ({large},{small})"
    with Watch(kubectl.api, NODES, listed=lambda _: None, seen=seen, selector=selector) as watch:
        apply_group(kubectl, large, targetSize=100)
        wait_begun(kubectl, large)
        with stopped(slow.pid):
            apply_group(kubectl, small, targetSize=5)
        wait_ready(kubectl, small)
        wait_ready(kubectl, large)
        eventually(lambda: len(order) >= 105, describe="the watch has seen all nodes")
        assert watch.lists == 1, "the watch has a gap"
    last = max(at for at, group in enumerate(order) if group == small)
    assert len(order) - 1 - last > RATE, "more nodes of the large group came later"


def test_a_named_instance_that_has_not_arrived_never_comes(
    kubectl: Kubectl, slow: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=80)
    wait_begun(kubectl, group_name)
    with stopped(slow.pid):
        assert status_of(kubectl, group_name)["pending"][-1]["last"] == 79
        first = names_of(kubectl, group_name)[0]
        victims = [f"{first.rpartition('-')[0]}-{serial:06d}" for serial in range(70, 80)]
        assert not {*victims} & {*names_of(kubectl, group_name)}
        named = {"nodesToDelete": [*victims, first]}
        patch_group(kubectl, group_name, targetSize=70, scaleDown=named)
    wait_ready(kubectl, group_name)
    names = names_of(kubectl, group_name)
    assert len(names) == 70
    assert not {*victims, first} & {*names}
    assert max(map(serial_of, names)) == 80, "one more was asked for, to make up for the first"
    told = {event["reason"] for event in events_of(kubectl, group_name)}
    assert "UnknownNodes" not in told, "pending instances are known"


def test_paused_holds_a_batch(kubectl: Kubectl, slow: Process, group_name: str) -> None:
    apply_group(kubectl, group_name, targetSize=60)
    wait_begun(kubectl, group_name)
    with stopped(slow.pid):
        patch_group(kubectl, group_name, paused=True)
    wait_condition(kubectl, group_name, "Paused")
    held = names_of(kubectl, group_name)
    assert len(held) < 60
    wait_until_heard(kubectl, f"{group_name}-beside")
    assert names_of(kubectl, group_name) == held
    status = status_of(kubectl, group_name)
    assert status["pendingReplicas"] == 60 - len(held), "what was asked for stays asked for"

    patch_group(kubectl, group_name, paused=None)
    wait_ready(kubectl, group_name)
    nodes = nodes_of(kubectl, group_name)
    assert sorted(serial_of(n["metadata"]["name"]) for n in nodes) == list(range(60))
    assert all(map(is_ready, nodes))
    assert status_of(kubectl, group_name)["pending"] == []


def rolling(limit: object) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": limit}}


def labelled(value: str) -> dict[str, Any]:
    return {"shape": {"labels": {"v": value}}}


def versions(kubectl: Kubectl, group: str) -> list[str]:
    """The values of the label that the template has, "" where there is none."""
    return [n["metadata"]["labels"].get("v", "") for n in nodes_of(kubectl, group)]


def wait_updated(kubectl: Kubectl, group: str, value: str, *, least: int) -> None:
    eventually(
        lambda: versions(kubectl, group).count(value),
        lambda count: count >= least,
        describe=f"{least} nodes are new",
    )


def test_an_edit_and_a_new_target_in_the_middle_of_an_update(
    kubectl: Kubectl, cluster: Cluster, slow: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=SIZE, updateStrategy=rolling(1))
    wait_ready(kubectl, group_name)
    with watched(cluster, group_name) as seen:
        patch_group(kubectl, group_name, template=labelled("2"))
        wait_updated(kubectl, group_name, "2", least=3)
        with stopped(slow.pid):
            assert "" in versions(kubectl, group_name), "it is in the middle"
            said = condition(kubectl, group_name, "Reconciling")
            assert (said["status"], said["reason"]) == ("True", "Updating")
            patch_group(kubectl, group_name, template=labelled("3"), targetSize=SIZE - 10)
        wait_ready(kubectl, group_name)
    assert versions(kubectl, group_name) == ["3"] * (SIZE - 10)
    assert seen.fewest == SIZE - 11


def test_a_template_that_becomes_bad_in_the_middle_stops_an_update(
    kubectl: Kubectl, slow: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=SIZE, updateStrategy=rolling(1))
    wait_ready(kubectl, group_name)
    patch_group(kubectl, group_name, template=labelled("2"))
    wait_updated(kubectl, group_name, "2", least=2)
    bad = {"node": {"spec": {"taints": [{"key": "a", "effect": "Nope"}]}}}
    with stopped(slow.pid):
        patch_group(kubectl, group_name, template=bad)
    wait_condition(kubectl, group_name, "Stalled")
    assert condition(kubectl, group_name, "Stalled")["reason"] == "TemplateInvalid"
    stays = names_of(kubectl, group_name)
    scale(kubectl, group_name, SIZE + 1)
    eventually(
        lambda: status_of(kubectl, group_name)["targetSize"],
        lambda size: size == SIZE + 1,
        describe="it has looked again",
    )
    assert names_of(kubectl, group_name) == stays
    assert {"", "2"} == set(versions(kubectl, group_name)), "it was in the middle"
    patch_group(kubectl, group_name, template={"node": None}, updateStrategy=rolling("100%"))
    wait_ready(kubectl, group_name)
    assert versions(kubectl, group_name) == ["2"] * (SIZE + 1)


def test_the_operator_is_killed_in_the_middle_of_replacing(
    kubectl: Kubectl, cluster: Cluster, harness: Harness, group_name: str
) -> None:
    process = harness.start(*FLAGS)
    apply_group(kubectl, group_name, targetSize=SIZE, updateStrategy=rolling("10%"))
    wait_ready(kubectl, group_name)
    before = set(names_of(kubectl, group_name))
    with watched(cluster, group_name) as seen:
        patch_group(kubectl, group_name, template=labelled("2"))
        for least in (1, 12):
            wait_updated(kubectl, group_name, "2", least=least)
            process.kill()
            process = harness.start(*FLAGS)
        wait_ready(kubectl, group_name)
    assert versions(kubectl, group_name) == ["2"] * SIZE
    assert before.isdisjoint(names_of(kubectl, group_name))
    assert seen.fewest is not None
    assert seen.fewest >= SIZE - 3


def test_the_operator_is_killed_in_the_middle_of_patching(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start(*FLAGS)
    strategy = {"type": "InPlace"}
    apply_group(kubectl, group_name, targetSize=60, updateStrategy=strategy)
    wait_ready(kubectl, group_name)
    uids = {n["metadata"]["uid"] for n in nodes_of(kubectl, group_name)}
    template = {"shape": {"labels": {"v": "2"}, "cpu": 4}}
    patch_group(kubectl, group_name, template=template)
    wait_updated(kubectl, group_name, "2", least=1)
    process.kill()
    assert "" in versions(kubectl, group_name), "it was in the middle"
    harness.start()
    wait_ready(kubectl, group_name)
    nodes = nodes_of(kubectl, group_name)
    assert {n["metadata"]["uid"] for n in nodes} == uids
    found = {(n["metadata"]["labels"]["v"], n["status"]["capacity"]["cpu"]) for n in nodes}
    assert found == {("2", "4")}
