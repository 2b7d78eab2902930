"""Registries in which every metric has a value, for tests that look at all of them."""

import time

from prometheus_client import CollectorRegistry

from kwok_operator.observability.cloudmetrics import INSTANCE_STATES
from kwok_operator.observability.groupmetrics import CONDITIONS, NODE_STATES
from kwok_operator.observability.metrics import Metrics, ProcessMetrics
from kwok_operator.shim.grpcwire import StatusCode
from kwok_operator.shim.metrics import ShimMetrics

NODES = "/api/v1/nodes"


def operator_metrics() -> CollectorRegistry:
    """What an operator tells that has one group, with a simulated cloud, and one pool."""
    metrics = Metrics()
    _fill(metrics)
    metrics.watch_queue(lambda: 1)
    metrics.watch_write_limit(lambda: 32)
    metrics.watch_leader(lambda: True)
    metrics.watch_kwok(lambda: True)
    metrics.watch_total(nodes=lambda: 1, limit=10_000, waiting=lambda: 0)
    metrics.provider_problems({"NoKey": 1})
    metrics.loop_lag(0.1, 0.1)
    metrics.group(
        "web",
        target=5,
        nodes=dict.fromkeys(NODE_STATES, 1),
        conditions=CONDITIONS,
        oldest_pending="2026-01-02T03:04:05Z",
    )
    metrics.cloud("web", dict.fromkeys(INSTANCE_STATES, 1))
    metrics.instance_failed("web", "OutOfResources", 2)
    metrics.interrupted("web", "Interrupted")
    metrics.pool("zone-b", used=40, limit=50, refused=3)
    with metrics.reconciling(time.monotonic):
        pass
    return metrics.registry


def shim_metrics() -> CollectorRegistry:
    """What a shim tells that has been called once."""
    metrics = ShimMetrics()
    _fill(metrics)
    metrics.call("/provider/NodeGroups", StatusCode.OK, 0.001)
    metrics.trouble("NodeGroups", "latency")
    metrics.watch_store(sizes=lambda: (1, 2, 3), synced=lambda: True)
    return metrics.registry


def _fill(metrics: ProcessMetrics) -> None:
    metrics.request("GET", NODES, 200, 0.1)
    metrics.watch_restarted(NODES, "closed")
    metrics.watch_contact(NODES, time.monotonic)
