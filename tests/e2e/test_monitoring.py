"""A real Prometheus looks at the operator and the shim while groups scale."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from kwok_operator.constants import API_GROUP, API_VERSION, POOL_KIND, POOL_PLURAL
from kwok_operator.controlplane import Tools
from tests.e2e.autoscaler import Autoscaler, Shim
from tests.e2e.groups import apply_group, scale, wait_condition, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process
from tests.e2e.ports import free_address
from tests.e2e.prometheus import (
    Panel,
    Prometheus,
    panels,
    prometheus_tools,  # noqa: F401
    rules,
    running_prometheus,
)

OF_CLUSTER_AUTOSCALER = "cluster-autoscaler"
SCARCE = 5


@pytest.fixture
def prometheus(
    prometheus_tools: Tools,  # noqa: F811
    operator: Process,
    shim: Shim,
    autoscaler: Autoscaler,
    tmp_path: Path,
) -> Iterator[Prometheus]:
    """It scrapes the operator and a shim."""
    shim_metrics = free_address()
    shim.start(f"--metrics-listen={shim_metrics}")
    eventually(lambda: serves(autoscaler), describe="the shim answers again")
    targets = {
        "kwok-operator": f"127.0.0.1:{operator.port}",
        "kwok-operator-shim": shim_metrics,
    }
    with running_prometheus(prometheus_tools, tmp_path, targets=targets) as prometheus:
        yield prometheus


@pytest.fixture
def pool(kubectl: Kubectl, group_name: str) -> Iterator[str]:
    """A KwokCapacityPool with SCARCE instances."""
    name = f"{group_name}-pool"
    kubectl.apply(
        {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": POOL_KIND,
            "metadata": {"name": name},
            "spec": {"instances": SCARCE},
        }
    )
    yield name
    kubectl("delete", POOL_PLURAL, name)


def test_every_query_of_the_dashboard_and_of_the_alerts_is_answered(
    kubectl: Kubectl,
    prometheus: Prometheus,
    autoscaler: Autoscaler,
    group_name: str,
    pool: str,
) -> None:
    apply_group(kubectl, group_name, targetSize=3, autoscaling={"minSize": 0, "maxSize": 100})
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 40)
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 30)
    wait_ready(kubectl, group_name)
    eventually(lambda: autoscaler.knows(group_name), describe="the shim serves the group")
    simulated = f"{group_name}-cloud"
    apply_group(kubectl, simulated, targetSize=SCARCE + 1, cloud={"capacityPools": [pool]})
    wait_condition(kubectl, simulated, "Provisioned", status="False")

    every = list(panels())
    assert {panel.row for panel in every} == {
        "Overview",
        "Groups",
        "Simulated cloud",
        "Operations",
        "Operator health",
        "Shim",
        OF_CLUSTER_AUTOSCALER,
    }
    eventually(
        lambda: unanswered(prometheus, every), until=lambda empty: not empty, describe="answers"
    )
    ready = f'kwok_operator_group_nodes{{group="{group_name}",state="ready"}}'
    eventually(
        lambda: prometheus.query(ready)[0]["value"][1],
        until=lambda value: value == "30",
        describe="Prometheus knows of the 30 nodes",
    )
    alerts = [rule["expr"] for group in rules()["groups"] for rule in group["rules"]]
    assert len(alerts) > 15
    for expression in alerts:
        prometheus.query(expression)
    assert prometheus.query('ALERTS{alertstate="firing"}') == []


def serves(autoscaler: Autoscaler) -> bool:
    try:
        autoscaler.refresh()
    except grpc.RpcError as error:
        raise LookupError(f"no answer: {error}") from error
    return True


def unanswered(prometheus: Prometheus, every: list[Panel]) -> list[tuple[str, str]]:
    """The queries that give nothing, with their panels; what is no query raises."""
    empty = []
    for panel in every:
        for query, _ in panel.queries:
            found = prometheus.query(query)
            if not found and panel.row != OF_CLUSTER_AUTOSCALER:
                empty.append((panel.title, query))
    return empty
