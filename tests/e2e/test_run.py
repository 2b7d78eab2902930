"""`kwok-operator run` as a program: how it finds and leaves a cluster, and what it says meanwhile.

- what can't work ends with one line that names the remedy, and an exit code that isn't 0
- identities: service account in a pod, token, client certificate, exec plugin
- an API server that goes away and comes back is survived
- flags, their environment variables, --help, --version
- /healthz, /readyz, /metrics; logs as text and JSON, and how little is logged
"""

import base64
import dataclasses
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hack.controlplane import Cluster, Settings, create, delete, revive
from kwok_operator import __version__
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.models.crd import CRD_DIRECTORY
from kwok_operator.observability.metrics import Metrics
from kwok_operator.settings import RunSettings
from tests.e2e.groups import (
    apply_group,
    condition,
    group_manifest,
    names_of,
    scale,
    status_of,
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


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the program to its end."""
    environ = {**os.environ, **variables}
    return subprocess.run(
        [str(PROGRAM), *arguments], env=environ, capture_output=True, text=True, timeout=60
    )


def why_it_ends(*flags: str, **variables: str) -> str:
    """The last line of a run that can't work: the only one for people, whatever was logged."""
    ended = run("run", *flags, **variables)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    lines = ended.stderr.splitlines()
    told = [line for line in lines if line.startswith("kwok-operator: ")]
    assert told == lines[-1:], ended.stderr
    return told[0]


@pytest.fixture
def kubeconfig(crds: None, operator_kubeconfig: Path, tmp_path: Path) -> Write:
    """Writes a copy of the operator's kubeconfig, its cluster and user changed."""

    def write(change: Change) -> Path:
        config = json.loads(operator_kubeconfig.read_text())
        change(config["clusters"][0]["cluster"], config["users"][0]["user"])
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(config))
        return file

    return write


def no_change(cluster: Config, user: Config) -> None:
    """As the tests' operator has it."""


MISTAKES: dict[str, tuple[Change, list[str]]] = {
    "nobody-listens": (
        lambda cluster, user: cluster.update(server="https://127.0.0.1:1"),
        ["https://127.0.0.1:1", "refused"],
    ),
    "untrusted-certificate": (
        lambda cluster, user: cluster.pop("certificate-authority-data"),
        ["certificate"],
    ),
    "invalid-token": (lambda cluster, user: user.update(token="nonsense"), ["401", "credentials"]),
    "plugin-fails": (
        lambda cluster, user: user.update(
            token=None,
            exec={
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "sh",
                "args": ["-c", "echo please log in first >&2; exit 3"],
            },
        ),
        ["exit code 3", "please log in first"],
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_cluster_that_cannot_be_used_is_one_line(kubeconfig: Write, mistake: str) -> None:
    change, words = MISTAKES[mistake]
    line = why_it_ends(f"--kubeconfig={kubeconfig(change)}", "--listen=0")
    assert [word for word in words if word not in line] == [], line


def test_unknown_context_tells_the_known_ones(kubeconfig: Write) -> None:
    file = kubeconfig(no_change)
    known = json.loads(file.read_text())["contexts"][0]["name"]
    line = why_it_ends(f"--kubeconfig={file}", "--context=nowhere", "--listen=0")
    assert "'nowhere'" in line
    assert known in line


@pytest.mark.parametrize("content", [None, "", "a: [b", "[]"], ids=repr)
def test_kubeconfig_that_is_none_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    line = why_it_ends(f"--kubeconfig={file}", "--listen=0")
    assert str(file) in line or "no current-context" in line


def test_account_without_rights_is_told_which_are_missing(
    kubectl: Kubectl, kubeconfig: Write
) -> None:
    kubectl("create", "serviceaccount", "nobody", "--namespace=default")
    try:
        token = kubectl("create", "token", "nobody", "--namespace=default").strip()
        file = kubeconfig(lambda cluster, user: user.update(token=token))
        line = why_it_ends(f"--kubeconfig={file}", "--listen=0")
        for right in ("create nodes", "delete nodes", "watch kwoknodegroups.kwok-operator.io"):
            assert right in line
        assert "deploy/" in line

        # As with the ClusterRole of an older release: all but one.
        role = kubectl.json("get", "clusterrole", "kwok-operator")
        for rule in role["rules"]:
            if "nodes" in rule["resources"]:
                rule["verbs"].remove("delete")
        kubectl.apply({**role, "metadata": {"name": "nobody"}})
        account = "--serviceaccount=default:nobody"
        kubectl("create", "clusterrolebinding", "nobody", "--clusterrole=nobody", account)
        lease = ("rolebinding", "nobody", "--namespace=kube-node-lease")
        kubectl("create", *lease, "--role=kwok-operator", account)
        own = ("rolebinding", "nobody", "--namespace=kwok-operator")
        kubectl("create", *own, "--role=kwok-operator", account)
        eventually(
            lambda: why_it_ends(f"--kubeconfig={file}", "--listen=0"),
            until=lambda line: "may not: delete nodes. " in line,
            describe="only the one that is missing is told",
        )
    finally:
        kubectl("delete", "serviceaccount", "nobody", "--namespace=default")
        kubectl("delete", "clusterrole,clusterrolebinding", "nobody", "--ignore-not-found")
        for namespace in ("kube-node-lease", "kwok-operator"):
            kubectl("delete", "rolebinding", "nobody", f"-n{namespace}", "--ignore-not-found")


def test_port_in_use_is_one_line(kubeconfig: Write) -> None:
    file = kubeconfig(no_change)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        line = why_it_ends(f"--kubeconfig={file}", f"--listen={address}")
    assert f"--listen {address}" in line
    assert "in use" in line


WRONG = """max-total-nodes=-1 max-total-nodes=many listen=8080 listen=localhost:http
    resync-interval=0 resync-interval=nan log-format=yaml log-level=loud"""


@pytest.mark.parametrize("wrong", WRONG.split())
def test_wrong_setting_is_told_with_its_name_and_value(wrong: str) -> None:
    flag, _, value = wrong.partition("=")
    variable = f"KWOK_OPERATOR_{flag.upper().replace('-', '_')}"
    by_flag = run("run", f"--{flag}={value}", **{variable: "overridden by the flag"})
    by_variable = run("run", **{variable: value})
    for ended, name in ((by_flag, f"--{flag}"), (by_variable, variable)):
        assert ended.returncode == 2
        assert len(ended.stderr.splitlines()) == 1, ended.stderr
        assert ended.stderr.startswith(f"kwok-operator: {name}: {value!r} is ")


def test_variables_say_which_cluster(kubeconfig: Write, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert missing in why_it_ends(KWOK_OPERATOR_KUBECONFIG=missing, KWOK_OPERATOR_LISTEN="0")
    file = str(kubeconfig(no_change))
    line = why_it_ends(KWOK_OPERATOR_KUBECONFIG=file, KWOK_OPERATOR_CONTEXT="nowhere")
    assert "'nowhere'" in line


def test_variables_set_what_flags_do_not(
    kubectl: Kubectl, harness: Harness, group_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KWOK_OPERATOR_MAX_TOTAL_NODES", "3")
    monkeypatch.setenv("KWOK_OPERATOR_PROVIDER_ID_PREFIX", "other://")
    monkeypatch.setenv("KWOK_OPERATOR_LOG_FORMAT", "json")
    process = harness.start("--log-format=text", "--provider-id-prefix=fake://")
    apply_group(kubectl, group_name, targetSize=5)
    wait_condition(kubectl, group_name, "ScalingLimited")
    assert condition(kubectl, group_name, "ScalingLimited")["reason"] == "NodeLimit"
    node = eventually(lambda: names_of(kubectl, group_name), describe="there are nodes")[0]
    provider_id = kubectl("get", "node", node, "--output=jsonpath={.spec.providerID}")
    assert provider_id == f"fake://{node}"
    assert not process.log().startswith("{")


def test_version_and_help() -> None:
    assert run("--version").stdout == f"kwok-operator {__version__}\n"
    assert "run the operator" in run("--help").stdout
    told = run("run", "--help").stdout
    variables = {"namespace": "$POD_NAMESPACE", "provider_config": "$KWOK_PROVIDER_CONFIGMAP"}
    for flag in dataclasses.fields(RunSettings):
        assert variables.get(flag.name, f"--{flag.name.replace('_', '-')}") in told
    assert "KWOK_OPERATOR_MAX_TOTAL_NODES" in told
    assert run().returncode == run("fly").returncode == 2


def test_client_certificate_is_an_identity(
    cluster: Cluster, kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    user = kubectl.json("config", "view", "--minify")["users"][0]["user"]
    assert any(key.startswith("client-certificate") for key in user), "what kwokctl writes"
    harness.start(kubeconfig=cluster.kubeconfig)
    apply_group(kubectl, group_name, targetSize=2)
    wait_ready(kubectl, group_name)


def test_exec_plugin_is_an_identity(
    kubectl: Kubectl, harness: Harness, kubeconfig: Write, group_name: str, tmp_path: Path
) -> None:
    plugin, runs = tmp_path / "log-in", tmp_path / "runs"

    def use_plugin(cluster: Config, user: Config) -> None:
        token = user.pop("token")
        version = "client.authentication.k8s.io/v1"
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
        plugin.write_text(f"#!/bin/sh\necho $1 >> {runs}\necho '{json.dumps(answer)}'\n")
        plugin.chmod(0o700)
        # Relative to the kubeconfig, as kubectl has it.
        command = {"command": "./log-in", "args": ["hello"], "interactiveMode": "Never"}
        user["exec"] = {"apiVersion": version, **command}

    harness.start(kubeconfig=kubeconfig(use_plugin))
    apply_group(kubectl, group_name, targetSize=2)
    wait_ready(kubectl, group_name)
    assert set(runs.read_text().split()) == {"hello"}


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


def test_probes_and_metrics_tell_the_truth(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    assert operator.get("/healthz") == (200, "ok\n")
    assert operator.get("/readyz") == (200, "ok\n")

    apply_group(kubectl, group_name, targetSize=12)
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 4)
    wait_ready(kubectl, group_name)
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
    assert (({"group": group_name}), 4) in found["kwok_operator_group_target_nodes"]
    assert written(found["kwok_operator_nodes_created"], group_name) == [12]
    assert written(found["kwok_operator_nodes_deleted"], group_name) == [8]
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


def test_little_is_logged_about_many_nodes(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start()
    for size in (300, 0):
        apply_group(kubectl, group_name, targetSize=size)
        wait_ready(kubectl, group_name)
    assert len(process.log().splitlines()) < 40, process.log()


def test_json_logs_are_one_object_a_line(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    process = harness.start("--log-format=json")
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    apply_group(kubectl, group_name, targetSize=3, template={"node": {"spec": {"typo": 1}}})
    wait_condition(kubectl, group_name, "TemplateResolved", status="False")
    assert process.terminate() == 0
    lines = [json.loads(line) for line in process.log().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    assert {"info", "warning"} <= {line["level"] for line in lines}


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A control plane whose parts may be stopped, whatever cluster the other tests use."""
    settings = dataclasses.replace(Settings.from_environ(os.environ), borrowed_kubeconfig=None)
    name = f"run-{os.getpid()}"
    try:
        yield create(name, settings=settings)
    finally:
        delete(name, settings=settings)


@pytest.fixture
def own(own_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Cluster, Kubectl, Harness]]:
    kubeconfig = own_cluster.kubeconfig
    kubectl = Kubectl(program=own_cluster.kubectl, kubeconfig=kubeconfig, cache=tmp_path / "cache")
    kubectl("apply", f"--filename={CRD_DIRECTORY}")
    eventually(lambda: kubectl("get", "kng") is not None, describe="groups are served")
    harness = Harness(kubeconfig=kubeconfig, directory=tmp_path)
    yield own_cluster, kubectl, harness
    harness.stop()


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "dies"])
def test_api_server_that_is_away_for_a_while_is_survived(
    own: tuple[Cluster, Kubectl, Harness], sent: signal.Signals
) -> None:
    cluster, kubectl, harness = own
    name = f"survives-{sent.name.lower()}"
    process = harness.start()
    # In the middle of it, when most requests are under way.
    apply_group(kubectl, name, targetSize=300)
    eventually(lambda: sizes(process, name)["pending"] > 0, describe="nodes are on their way")
    api_server = cluster.pid("kube-apiserver")
    os.kill(api_server, sent)
    time.sleep(6)
    if sent is signal.SIGSTOP:
        os.kill(api_server, signal.SIGCONT)
    else:
        revive(cluster)

    wait_ready(kubectl, name, timeout=180)
    assert len(names_of(kubectl, name)) == 300
    assert status_of(kubectl, name)["nextSerial"] == 300, "no node was asked for twice"
    scale(kubectl, name, 5)
    wait_ready(kubectl, name, timeout=180)
    assert len(names_of(kubectl, name)) == 5
    assert process.running
    assert "Traceback" not in process.log()


def test_group_that_nests_too_deep_stops_nobody(
    kubectl: Kubectl, operator: Process, group_name: str, tmp_path: Path
) -> None:
    deep, levels = f"{group_name}-deep", 3000
    apply_group(kubectl, group_name, targetSize=1)
    wait_ready(kubectl, group_name)
    text = json.dumps(group_manifest(deep, targetSize=1, template={"node": {"deep": "?"}}))
    manifest = tmp_path / "deep.json"
    manifest.write_text(text.replace('"?"', '{"a":' * levels + "{}" + "}" * levels))
    try:
        kubectl("create", f"--filename={manifest}", "--validate=false")
        eventually(
            operator.log, lambda log: f"Unreadable: group={deep}" in log, describe="it is told"
        )
        scale(kubectl, group_name, 3)
        wait_ready(kubectl, group_name)
        events = kubectl.json("get", "events", f"--field-selector=involvedObject.name={deep}")
        assert [event["reason"] for event in events["items"]] == ["Unreadable"]
    finally:
        kubectl("delete", "kng", deep)
    assert operator.running
    assert "Traceback" not in operator.log()
    assert operator.terminate() == 0
