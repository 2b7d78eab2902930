"""`kwok-operator run` as a program: how it finds and leaves a cluster, and what it says meanwhile.

What each mistake in a flag or a kubeconfig is called is for tests/unit.
"""

import base64
import json
import os
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kwok_operator.controlplane import Cluster
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.observability.metrics import Metrics
from tests.e2e.groups import (
    apply_group,
    condition,
    group_manifest,
    names_of,
    nodes_of,
    scale,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import PROGRAM, Harness, Process

Config = dict[str, Any]
Change = Callable[[Config, Config], object]
"""Of a kubeconfig's cluster and user, in place."""
Write = Callable[[Change], Path]
Samples = list[tuple[Mapping[str, str], float]]
AT_ONCE = 120
"""Seconds for some processes that start together."""
FEW_LINES = 100
"""Of the log, for 150 nodes that come, most of which go."""


@pytest.fixture
def kubeconfig(crds: None, operator_kubeconfig: Path, tmp_path: Path) -> Write:
    """Writes a copy of the operator's kubeconfig, its cluster and user changed."""
    written: list[Path] = []

    def write(change: Change) -> Path:
        config = json.loads(operator_kubeconfig.read_text())
        change(config["clusters"][0]["cluster"], config["users"][0]["user"])
        written.append(tmp_path / f"kubeconfig-{len(written)}")
        written[-1].write_text(json.dumps(config))
        return written[-1]

    return write


@pytest.mark.core
def test_what_cannot_work_is_one_line(kubectl: Kubectl, kubeconfig: Write) -> None:
    """All of them at once, as most of it is the start of Python."""
    nobody = kubectl("create", "token", "default", "--namespace=default").strip()
    unchanged = kubeconfig(lambda cluster, user: None)
    known = json.loads(unchanged.read_text())["contexts"][0]["name"]

    def of(change: Change) -> list[str]:
        return [f"--kubeconfig={kubeconfig(change)}", "--listen=0"]

    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        cases: dict[str, tuple[list[str], Mapping[str, str], list[str]]] = {
            "refused token": (of(lambda cluster, user: user.update(token="no")), {}, ["401"]),
            "no rights": (
                [
                    *of(lambda cluster, user: user.update(token=nobody)),
                    "--leader-elect",
                    "--leader-elect-resource-namespace=kube-system",
                ],
                {},
                ["create nodes", "leases.coordination.k8s.io in namespace kube-system", "deploy/"],
            ),
            "port in use": (
                [f"--kubeconfig={unchanged}", f"--listen={address}"],
                {},
                [f"--listen {address}"],
            ),
            "no context, by variable": (
                [],
                {
                    "KWOK_OPERATOR_KUBECONFIG": str(unchanged),
                    "KWOK_OPERATOR_CONTEXT": "nowhere",
                    "KWOK_OPERATOR_LISTEN": "0",
                },
                ["'nowhere'", known],
            ),
        }
        started = {name: started_with(flags, more) for name, (flags, more, _) in cases.items()}
        told = {
            name: last_words(process, status=2 if name == "no context, by variable" else 1)
            for name, process in started.items()
        }
    for name, (_, _, words) in cases.items():
        assert [word for word in words if word not in told[name]] == [], told[name]


def started_with(flags: list[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(PROGRAM), "run", *flags],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def last_words(process: subprocess.Popen[str], *, status: int) -> str:
    """The last line of a run that can't work: the only one for people, whatever was logged."""
    try:
        _, said = process.communicate(timeout=AT_ONCE)
    finally:
        process.kill()
    assert process.returncode == status, said
    assert "Traceback" not in said
    lines = said.splitlines()
    told = [line for line in lines if line.startswith("kwok-operator: ")]
    assert told == lines[-1:], said
    return told[0]


def test_flags_win_over_variables(
    cluster: Cluster, kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    """And a client certificate is an identity; a providerID is for life; JSON logs are objects."""
    harness.start()
    apply_group(kubectl, group_name, targetSize=1)
    wait_ready(kubectl, group_name)

    user = kubectl.json("config", "view", "--minify")["users"][0]["user"]
    assert any(key.startswith("client-certificate") for key in user), "what kwokctl writes"
    process = harness.start(
        "--log-format=json",
        "--provider-id-prefix=fake://",
        kubeconfig=cluster.kubeconfig,
        environ={
            "KWOK_OPERATOR_MAX_TOTAL_NODES": "3",
            "KWOK_OPERATOR_PROVIDER_ID_PREFIX": "other://",
            "KWOK_OPERATOR_LOG_FORMAT": "text",
        },
    )
    scale(kubectl, group_name, 5)
    wait_condition(kubectl, group_name, "ScalingLimited")
    assert condition(kubectl, group_name, "ScalingLimited")["reason"] == "NodeLimit"
    nodes = eventually(
        lambda: nodes_of(kubectl, group_name),
        lambda found: len(found) == 3,
        describe="there are as many nodes as may be",
    )
    prefixes = [n["spec"]["providerID"].removesuffix(n["metadata"]["name"]) for n in nodes]
    assert prefixes == ["kwok:", "fake://", "fake://"]

    apply_group(kubectl, group_name, targetSize=3, template={"node": {"spec": {"typo": 1}}})
    wait_condition(kubectl, group_name, "TemplateResolved", status="False")
    assert process.terminate() == 0
    lines = [json.loads(line) for line in process.log().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert {"info", "warning"} <= {line["level"] for line in lines}


@pytest.mark.core
async def test_service_account_of_a_pod_is_an_identity(kubeconfig: Write, tmp_path: Path) -> None:
    """The files and variables of a pod; that no pod is around them makes no difference."""
    cluster, user = Config(), Config()
    kubeconfig(lambda *parts: (cluster.update(parts[0]), user.update(parts[1])))
    address = urlsplit(cluster["server"])
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    (tmp_path / "token").write_text("that has expired")
    connection = await load_connection(
        environ={
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
        },
        service_account=tmp_path,
    )
    assert connection.description == f"in-cluster at {cluster['server']}"
    # The kubelet renews it; whoever is refused reads it again.
    (tmp_path / "token").write_text(user["token"])
    async with KubeClient(connection=connection) as client:
        assert await client.get_json("/api/v1/nodes") is not None


@pytest.mark.core
def test_probes_and_metrics_are_right_and_logs_are_short(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    assert operator.get("/healthz") == (200, "ok\n")
    assert operator.get("/readyz") == (200, "ok\n")

    before = len(operator.log().splitlines())
    for size in (150, 4):
        apply_group(kubectl, group_name, targetSize=size)
        wait_ready(kubectl, group_name)
    assert len(operator.log().splitlines()) - before < FEW_LINES, operator.log()
    found = metrics(operator)
    assert {family.name for family in Metrics().registry.collect()} <= set(found)
    assert "kwok_operator_queue_depth" in found
    assert all(name.startswith(("kwok_operator_", "process_", "python_")) for name in found)
    none = dict.fromkeys(("not_ready", "pending", "failed", "terminating"), 0)
    eventually(
        lambda: sizes(operator, group_name),
        until=lambda told: told == {"ready": 4, **none},
        describe="the sizes are told",
    )
    assert ({"group": group_name}, 4) in found["kwok_operator_group_target_nodes"]
    assert written(found["kwok_operator_nodes_created"], group_name) == [150]
    assert written(found["kwok_operator_nodes_deleted"], group_name) == [146]
    answers = found["kwok_operator_api_request_duration_seconds"]
    codes = {(s["method"], s["code"]) for s, _ in answers if s["resource"] != "other"}
    assert {("POST", "201"), ("DELETE", "200"), ("PATCH", "200"), ("WATCH", "200")} <= codes

    kubectl("delete", "kng", group_name)
    eventually(
        lambda: operator.get("/metrics")[1],
        until=lambda text: group_name not in text,
        describe="nothing is said about a group that is gone",
    )


def metrics(process: Process) -> dict[str, Samples]:
    """Labels and values by the name of the metric."""
    return {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(process.get("/metrics")[1])
    }


def sizes(process: Process, group: str) -> dict[str, float]:
    samples = metrics(process)["kwok_operator_group_nodes"]
    return {labels["state"]: value for labels, value in samples if labels["group"] == group}


def written(samples: Samples, group: str) -> list[float]:
    return [v for labels, v in samples if labels.get("group") == group]


def test_what_nests_too_deep_stops_nobody(
    kubectl: Kubectl, harness: Harness, group_name: str, tmp_path: Path
) -> None:
    """While the operator runs, and after a restart: by a watch, and in a list."""
    nested: Config = {}
    for _ in range(300):  # deeper than fast JSON parsers go, and read all the same
        nested = {"a": nested}
    template, group = f"{group_name}-template", f"{group_name}-group"
    manifest, levels = tmp_path / "deep.json", 3000
    text = json.dumps(group_manifest(group, targetSize=1, template={"node": {"deep": "?"}}))
    manifest.write_text(text.replace('"?"', '{"a":' * levels + "{}" + "}" * levels))

    def stops_nobody(operator: Process, *, size: int) -> None:
        told = f"Unreadable: group={group}"
        eventually(operator.log, lambda log: told in log, describe="it is told")
        wait_condition(kubectl, template, "TemplateResolved", status="False")
        apply_group(kubectl, group_name, targetSize=size)
        wait_ready(kubectl, group_name)
        assert len(names_of(kubectl, group_name)) == size
        assert "Traceback" not in operator.log()

    operator = harness.start()
    apply_group(kubectl, template, targetSize=1, template={"node": {"x": nested}})
    try:
        kubectl("create", f"--filename={manifest}", "--validate=false")
        stops_nobody(operator, size=1)
        stops_nobody(harness.start(), size=2)
        events = kubectl.json("get", "events", f"--field-selector=involvedObject.name={group}")
        assert {event["reason"] for event in events["items"]} == {"Unreadable"}
    finally:
        kubectl("delete", "kng", group)
