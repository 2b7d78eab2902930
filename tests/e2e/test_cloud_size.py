"""Thousands of instances are under way, most fail: status stays small, others are served."""

import json

from tests.e2e.groups import apply_group, events_of, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

SIZE = 2_000
LARGEST_STATUS = 10_000
"""Bytes."""


def test_thousands_that_fail_at_random_keep_nobody_waiting(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    large, small = f"{group_name}-large", f"{group_name}-small"
    apply_group(kubectl, small, targetSize=1)
    wait_ready(kubectl, small)
    cloud = {
        "provisioningDelay": {"lognormal": {"p50": "60m", "p99": "90m"}},
        "failures": {
            "creation": [{"probability": "0.9", "after": {"uniform": {"min": "0s", "max": "10s"}}}]
        },
        "retryAfter": "10s",
    }
    apply_group(kubectl, large, targetSize=SIZE, cloud=cloud)
    eventually(
        lambda: status_of(kubectl, large),
        lambda status: status["pendingReplicas"] == SIZE and status["failedReplicas"] > SIZE // 5,
        describe="they are under way, and many have failed",
    )
    for target in (2, 3, 4):
        scale(kubectl, small, target)
        wait_ready(kubectl, small)
        status = status_of(kubectl, large)
        assert status["pendingReplicas"] == SIZE
        status.pop("resolvedTemplate")
        assert len(json.dumps(status, separators=(",", ":"))) < LARGEST_STATUS
    assert len(events_of(kubectl, large)) < 20
