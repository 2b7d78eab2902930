"""Instances that a cloud fails to create.

A failed instance is reported with what the cloud said, is tried again, and comes under the same
name.
"""

import pytest

from kwok_operator.controlplane import Cluster
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
    nodes_of,
    patch_group,
    status_of,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process


@pytest.mark.core
def test_a_failed_instance_is_reported_and_tried_again(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    failure = {
        "serials": "1-2",
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
        # They fail until now, so that nobody misses it; the next tries go by the edit.
        patch_group(kubectl, group_name, cloud={"failures": None})
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
    after = [born_after(node) for node in nodes]
    assert (after[0], after[1] % 5_000, after[3]) == (0, 0, 0)
    assert after[1] == after[2] >= 5_000, "each try takes one second, and the next comes after four"
    status = status_of(kubectl, group_name)
    assert (status["nextSerial"], status["failedReplicas"], rows_of(status)) == (4, 0, {})
