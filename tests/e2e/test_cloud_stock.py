"""A cloud that has only so much: a group's own stock, and pools that groups share."""

from typing import Any

import pytest

from kwok_operator.controlplane import Cluster
from tests.e2e.clouds import (
    apply_pool,
    chronicled,
    condition_of,
    pool_status,
    pools,
    rows_of,
    states_of,
)
from tests.e2e.groups import apply_group, names_of, patch_group, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

SOON = "2s"


def wait_counts(kubectl: Kubectl, group: str, *, come: int, failed: int) -> dict[str, Any]:
    return eventually(
        lambda: status_of(kubectl, group),
        lambda status: (status["readyReplicas"], status["failedReplicas"]) == (come, failed),
        describe=f"{come} have come to {group} and {failed} found no room",
        timeout=240,
    )


def test_a_group_gets_what_there_is_and_the_rest_when_there_is_more(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    cloud = {"stock": 3, "retryAfter": SOON}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=5, cloud=cloud)
        status = wait_counts(kubectl, group_name, come=3, failed=2)
        assert states_of(status) == {3: "Failed", 4: "Failed"}, "the first of a request find room"
        row = rows_of(status)[3]
        assert (row["reason"], row["count"]) == ("OutOfStock", 2)
        assert "stock is 3" in row["message"]
        assert condition_of(status, "Provisioned")["reason"] == "OutOfStock"

        kubectl("delete", "node", names_of(kubectl, group_name)[0])
        eventually(
            lambda: len(seen.born) == 4 and len(seen.here()) == 3,
            describe="the place of the deleted one is taken",
        )
        # The others are tried again, and find no room again.
        refused_at = rows_of(wait_counts(kubectl, group_name, come=3, failed=2))
        eventually(
            lambda: rows_of(status_of(kubectl, group_name)) != refused_at,
            describe="they have been tried again",
        )
        assert seen.most == 3
    patch_group(kubectl, group_name, cloud={"stock": 5})
    wait_ready(kubectl, group_name)
    assert len(names_of(kubectl, group_name)) == 5


@pytest.mark.core
def test_three_groups_share_a_pool(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    first, second, third = groups = [f"{group_name}-{letter}" for letter in "abc"]
    cloud = {
        "capacityPools": [group_name],
        "retryAfter": SOON,
        "provisioningDelay": {"fixed": "1s"},
        "failures": {"slowDeletion": {"serials": "1", "delay": {"fixed": "4s"}}},
    }
    with pools(kubectl, group_name), chronicled(cluster, *groups) as seen:
        apply_group(kubectl, first, targetSize=4, cloud=cloud)
        status = eventually(
            lambda: status_of(kubectl, first),
            lambda status: set(states_of(status).values()) == {"Waiting"},
            describe="without a pool they wait",
        )
        assert rows_of(status)[0]["reason"] == "PoolMissing"
        assert condition_of(status, "Provisioned")["reason"] == "PoolMissing"
        assert status["failedReplicas"] == 0, "nobody has refused them"
        apply_pool(kubectl, group_name, instances=6, error={"code": "ZoneIsFull"})
        wait_ready(kubectl, first)
        # Who is the first to ask is the first to get.
        for group, come in ((second, 2), (third, 0), (first, 4)):
            if group != first:
                apply_group(kubectl, group, targetSize=4, cloud=cloud)
            wait_counts(kubectl, group, come=come, failed=4 - come)
        reasons = {row["reason"] for row in rows_of(status_of(kubectl, third)).values()}
        assert reasons == {"PoolExhausted"}
        shown = eventually(
            lambda: pool_status(kubectl, group_name),
            lambda status: (status["instances"], status["refused"]) == (6, 6),
            describe="the pool's status tells of all of them",
        )
        assert {share["group"]: share["instances"] for share in shown["groups"]} == {
            first: 4,
            second: 2,
        }

        scale(kubectl, first, 0)
        eventually(
            lambda: seen.counts[-1],
            lambda counts: counts[first] == 0 and counts.total() == 6,
            describe="those that waited have taken what was freed",
        )
        scale(kubectl, third, 0)
        wait_ready(kubectl, second)
        eventually(
            lambda: pool_status(kubectl, group_name),
            lambda status: (status["instances"], status["refused"]) == (4, 0),
            describe="the pool has room again",
        )
        assert seen.most == 6, "at no time were there more than the pool has"
