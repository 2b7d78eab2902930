"""A cluster that is shared: the operator yields to an API server that has little to give.

The API server's own priority and fairness is set tight for the operator: two seats for what it does
with nodes, no queue, so that whatever is too much is refused with 429 at once.
"""

import base64
import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import pytest

from kwok_operator.constants import API_GROUP, API_VERSION, PLURAL
from kwok_operator.settings import DEFAULT_NODE_CONCURRENCY
from tests.e2e.groups import apply_group, condition, events_of, names_of, scale, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import ACCOUNT, NAMESPACE, Harness, Process

pytestmark = pytest.mark.serial

SIZE = 300
ROUNDS = 3
QUIET_SAMPLES = 150
SETTLES_IN = 3.0
"""Seconds in which the others (kwok, the controller manager) see to the last nodes."""
BETWEEN_SAMPLES = 0.01
LONGEST_LAG = 0.05
"""Seconds of CPU. What other programs cause is in one round; what the operator does, in each."""
APF = "flowcontrol.apiserver.k8s.io/v1"
LEVEL = "kwok-operator-tight"


@contextmanager
def tight(kubectl: Kubectl) -> Iterator[None]:
    """The operator has two or three seats for nodes, and nowhere to queue."""
    level = {
        "apiVersion": APF,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": LEVEL},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 1,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    }
    account = {"name": ACCOUNT, "namespace": NAMESPACE}
    nodes = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": True}
    flow = {
        "apiVersion": APF,
        "kind": "FlowSchema",
        "metadata": {"name": LEVEL},
        "spec": {
            "matchingPrecedence": 50,
            "priorityLevelConfiguration": {"name": LEVEL},
            "rules": [
                {
                    "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
                    "resourceRules": [{**nodes, "verbs": ["*"]}],
                }
            ],
        },
    }
    kubectl.apply(level)
    try:
        kubectl.apply(flow)
        eventually(
            lambda: f'priority_level="{LEVEL}"' in kubectl.api.text("/metrics"),
            describe="the level is in force",
        )
        yield
    finally:
        kubectl("delete", "--ignore-not-found", f"flowschema/{LEVEL}")
        kubectl("delete", "--ignore-not-found", f"prioritylevelconfiguration/{LEVEL}")


def refusals(kubectl: Kubectl) -> float:
    """Requests that priority and fairness has refused the operator."""
    found = re.findall(
        rf'^apiserver_flowcontrol_rejected_requests_total{{.*priority_level="{LEVEL}".*}} (\S+)$',
        kubectl.api.text("/metrics"),
        re.MULTILINE,
    )
    return sum(map(float, found))


def sample(operator: Process, metric: str) -> float:
    metrics = operator.get("/metrics")[1]
    found = re.search(rf"^kwok_operator_{re.escape(metric)} (\S+)$", metrics, re.MULTILINE)
    assert found, metric
    return float(found[1])


@dataclass
class OtherClient:
    """Somebody with an account of their own, who looks at a group and writes ConfigMaps."""

    connection: http.client.HTTPConnection
    token: str
    namespace: str
    group: str
    reads: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)

    def look(self) -> dict[str, Any]:
        """The status of the group; notes how long two requests took."""
        time.sleep(BETWEEN_SAMPLES)
        path = f"/apis/{API_GROUP}/{API_VERSION}/{PLURAL}/{self.group}"
        answer = self._ask("GET", path, None, self.reads)
        manifest = {"metadata": {"generateName": "other-"}, "data": {"a": "b"}}
        self._ask("POST", f"/api/v1/namespaces/{self.namespace}/configmaps", manifest, self.writes)
        status: dict[str, Any] = answer.get("status", {})
        return status

    def _ask(self, method: str, path: str, body: Any, times: list[float]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        started = time.perf_counter()
        self.connection.request(method, path, json.dumps(body) if body else None, headers)
        response = self.connection.getresponse()
        answer = response.read()
        times.append(time.perf_counter() - started)
        assert response.status < 300, answer
        found: dict[str, Any] = json.loads(answer)
        return found


@pytest.fixture
def other(kubectl: Kubectl, group_name: str) -> Iterator[OtherClient]:
    namespace = account = f"{group_name}-other"
    rules = f"--resource={PLURAL}.{API_GROUP},configmaps"
    kubectl("create", "namespace", namespace)
    kubectl("create", "serviceaccount", account, f"--namespace={namespace}")
    kubectl("create", "clusterrole", account, "--verb=get,create", rules)
    bound = f"--serviceaccount={namespace}:{account}"
    kubectl("create", "clusterrolebinding", account, f"--clusterrole={account}", bound)
    token = kubectl("create", "token", account, f"--namespace={namespace}").strip()
    try:
        connection = connect(kubectl)
        yield OtherClient(connection, token, namespace, group_name)
        connection.close()
    finally:
        kubectl("delete", f"namespace/{namespace}", "--wait=false")
        kubectl("delete", f"clusterrole/{account}", f"clusterrolebinding/{account}")


def connect(kubectl: Kubectl) -> http.client.HTTPConnection:
    """One connection to the API server, kept alive."""
    view = kubectl.json("config", "view", "--raw", "--minify", "--flatten")["clusters"][0]
    server = urlsplit(view["cluster"]["server"])
    assert server.hostname
    if server.scheme == "http":
        return http.client.HTTPConnection(server.hostname, server.port, timeout=30)
    authority = view["cluster"].get("certificate-authority-data")
    trust = base64.b64decode(authority).decode() if authority else None
    context = ssl.create_default_context(cadata=trust)
    return http.client.HTTPSConnection(server.hostname, server.port, timeout=30, context=context)


@dataclass(frozen=True)
class Latency:
    """Medians, in seconds."""

    read: float
    write: float


@dataclass(frozen=True)
class Round:
    before: Latency
    busy: Latency
    after: Latency

    @property
    def unfelt(self) -> bool:
        """Whether the other client's requests took at most twice as long as when all was quiet."""
        read = max(self.before.read, self.after.read)
        write = max(self.before.write, self.after.write)
        return self.busy.read <= 2 * read and self.busy.write <= 2 * write


def measured(other: OtherClient) -> Latency:
    """Of what was asked since the last time."""
    latency = Latency(median(other.reads), median(other.writes))
    other.reads, other.writes = [], []
    return latency


def quiet(other: OtherClient) -> Latency:
    for _ in range(QUIET_SAMPLES):
        other.look()
    return measured(other)


def until_ready(other: OtherClient, size: int, *, timeout: float = 180) -> None:
    """Looks at the group again and again, until all its nodes are there."""
    deadline = time.monotonic() + timeout
    while True:
        status = other.look()
        if status.get("readyReplicas", 0) == status.get("replicas", 0) == size:
            return
        assert time.monotonic() < deadline, status


def told_of_no_error(kubectl: Kubectl, operator: Process, group: str) -> None:
    loud = [line for line in operator.log().splitlines() if "ERROR" in line or "WARNING" in line]
    assert loud == []
    assert condition(kubectl, group, "Stalled")["status"] == "False"
    assert [e for e in events_of(kubectl, group) if e["type"] != "Normal"] == []


def test_operator_yields_and_others_do_not_feel_it(
    kubectl: Kubectl, harness: Harness, group_name: str, other: OtherClient
) -> None:
    rounds = []
    with tight(kubectl):
        apply_group(kubectl, group_name, targetSize=2)
        for _ in range(ROUNDS):
            operator = harness.start()  # the longest lag is that of a process
            wait_ready(kubectl, group_name)
            before = quiet(other)
            scale(kubectl, group_name, SIZE)
            until_ready(other, SIZE)
            scale(kubectl, group_name, 2)
            until_ready(other, 2)
            busy = measured(other)
            time.sleep(SETTLES_IN)
            rounds.append(Round(before, busy, quiet(other)))
            lag = sample(operator, 'event_loop_lag_longest_seconds{clock="cpu"}')
            if rounds[-1].unfelt and lag < LONGEST_LAG:
                break
        wait_ready(kubectl, group_name)
        assert refusals(kubectl) > 0
        assert sample(operator, "node_writes_throttled_total") > 0
        assert 1 <= sample(operator, "node_write_limit") < DEFAULT_NODE_CONCURRENCY
        slowed = [line for line in operator.log().splitlines() if "asks to slow down" in line]
        assert 1 <= len(slowed) <= ROUNDS, "not for each node"
        assert lag < LONGEST_LAG
        told_of_no_error(kubectl, operator, group_name)
        assert "Throttled" in {event["reason"] for event in events_of(kubectl, group_name)}
    assert rounds[-1].unfelt, rounds


def test_flags_bound_what_is_asked_of_the_api_server(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    operator = harness.start("--max-qps=10", "--node-concurrency=2")
    apply_group(kubectl, group_name, targetSize=2)
    wait_ready(kubectl, group_name)
    assert sample(operator, "node_write_limit") == 2
    started = time.monotonic()
    scale(kubectl, group_name, 42)
    wait_ready(kubectl, group_name)
    assert time.monotonic() - started >= (42 - 2 - 1) / 10
    assert len(names_of(kubectl, group_name)) == 42
    told_of_no_error(kubectl, operator, group_name)
