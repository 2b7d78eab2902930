"""Thousands of instances are under way, half of them fail: status stays small, the loop quick.

- with 2,000 instances pending and failing at random, again and again, the status without its
  template is less than 10 kB, and people are told in few Events
- meanwhile another group gets its node
"""

import json
import re
import time

from tests.e2e.groups import apply_group, events_of, scale, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness

SIZE = 2_000
LARGEST_STATUS = 10_000
"""Bytes."""


def test_thousands_that_fail_at_random_keep_nobody_waiting(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    operator = harness.start()
    large, small = f"{group_name}-large", f"{group_name}-small"
    apply_group(kubectl, small, targetSize=1)
    wait_ready(kubectl, small)
    cloud = {
        "provisioningDelay": {"lognormal": {"p50": "60m", "p99": "90m"}},
        "failures": {
            "creation": [{"probability": "0.5", "after": {"uniform": {"min": "0s", "max": "10s"}}}]
        },
        "retryAfter": "10s",
    }
    apply_group(kubectl, large, targetSize=SIZE, cloud=cloud)
    eventually(
        lambda: status_of(kubectl, large),
        lambda status: status["pendingReplicas"] == SIZE and status["failedReplicas"] > SIZE // 5,
        describe="they are under way, and many have failed",
        timeout=120,
    )
    waited, sizes = [], []
    for target in range(2, 7):
        started = time.monotonic()
        scale(kubectl, small, target)
        wait_ready(kubectl, small)
        waited.append(time.monotonic() - started)
        status = status_of(kubectl, large)
        assert status["pendingReplicas"] == SIZE
        status.pop("resolvedTemplate")
        sizes.append(len(json.dumps(status, separators=(",", ":"))))
        assert sizes[-1] < LARGEST_STATUS
    lag = re.findall(
        r"^kwok_operator_event_loop_lag_longest.* (\S+)$", operator.get("/metrics")[1], re.M
    )
    print(f"status: {sizes} bytes; a node of another group: {waited} s; longest turn: {lag} s")
    assert max(waited) < 30
    assert len(events_of(kubectl, large)) < 20
