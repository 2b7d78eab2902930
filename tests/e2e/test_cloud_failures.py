"""A cloud that fails: instances that aren't created, or don't go.

- a failed instance is told with what the cloud said, is tried again, and comes under the same name
- what gets stuck in deletion stays for its time, as a Node that doesn't count
"""

import pytest

from kwok_operator.constants import DELETE_AT_ANNOTATION
from kwok_operator.controlplane import Cluster
from kwok_operator.formats.times import parse_time
from tests.e2e.clouds import (
    MARKED,
    born_after,
    chronicled,
    condition_of,
    rows_of,
    serial,
    states_of,
)
from tests.e2e.groups import (
    apply_group,
    names_of,
    nodes_of,
    scale,
    serial_of,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process


@pytest.mark.core
def test_a_failed_instance_is_told_and_tried_again(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    failure = {
        "serials": "1-2",
        "times": 1,
        "after": {"fixed": "1s"},
        "class": "OutOfResources",
        "code": "InsufficientInstanceCapacity",
        "message": "There is no m7i.8xlarge in eu-west-1b.",
    }
    cloud = {"failures": {"creation": [failure]}, "retryAfter": "4s", **MARKED}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=4, cloud=cloud)
        told = eventually(
            lambda: seen.told(
                group_name,
                lambda status: (
                    states_of(status) == {1: "Failed", 2: "Failed"} and status["replicas"] == 2
                ),
            ),
            describe="two have failed, and two are there",
        )
        wait_ready(kubectl, group_name)
    assert told is not None
    (row,) = {row["serials"]: row for row in rows_of(told).values()}.values()
    assert (row["reason"], row["count"], row["serials"]) == ("CreationFailed", 2, "1-2")
    assert row["message"] == failure["message"]
    assert (told["pendingReplicas"], told["failedReplicas"]) == (2, 2)
    provisioned = condition_of(told, "Provisioned")
    assert (provisioned["status"], provisioned["reason"]) == ("False", "CreationFailed")

    nodes = nodes_of(kubectl, group_name)
    assert [serial(node) for node in nodes] == [0, 1, 2, 3], "the same instances, no others"
    assert [born_after(node) for node in nodes] == [0, 5_000, 5_000, 0]
    status = status_of(kubectl, group_name)
    assert (status["nextSerial"], status["failedReplicas"], rows_of(status)) == (4, 0, {})


def test_what_gets_stuck_in_deletion_stays_for_its_time_and_does_not_count(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    slow = {"serials": "1", "delay": {"fixed": "20s"}}
    cloud = {"failures": {"slowDeletion": slow}}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=3, cloud=cloud)
        wait_ready(kubectl, group_name)
        names = names_of(kubectl, group_name)
        scale(kubectl, group_name, 0)
        eventually(
            lambda: {names[0], names[2]} <= set(seen.gone_at),
            describe="the others are gone",
        )
        told = eventually(
            lambda: seen.told(
                group_name, lambda s: s["replicas"] == 0 and states_of(s) == {1: "Deleting"}
            ),
            describe="status tells of the one that is stuck, and doesn't count it",
        )
        scale(kubectl, group_name, 2)
        wait_ready(kubectl, group_name)
        eventually(lambda: names[1] in seen.gone_at, describe="it goes in the end")
    assert told is not None and told["pendingReplicas"] == 0
    assert seen.gone_at[names[1]] > max(seen.gone_at[names[0]], seen.gone_at[names[2]])
    stuck = seen.nodes[names[1]][-1].node["metadata"]
    assert seen.gone_at[names[1]] >= parse_time(stuck["annotations"][DELETE_AT_ANNOTATION])
    assert "finalizers" not in stuck
    assert list(map(serial_of, names_of(kubectl, group_name))) == [3, 4], "others took its place"
    wait_ready(kubectl, group_name)
    assert states_of(status_of(kubectl, group_name)) == {}
