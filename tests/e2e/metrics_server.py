"""A real metrics-server for tests: built once, and reached as kwokctl has it reached.

    with running_metrics_server(own, tools, directory): kubectl top ...

It reads what kwok answers for each node (`METRIC`, as kwok's own manifests have it), and the API
server asks it by a Service that is another name for this machine.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.tools import METRICS_SERVER
from kwok_operator.controlplane import Settings, Tools, find_set
from kwok_operator.reporter import Reporter
from tests.e2e.clouds import condition_of
from tests.e2e.kubectl import PATIENCE, eventually
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.ports import free_port

NAME = "metrics-server"
NAMESPACE = "kube-system"
SERVICE = "v1beta1.metrics.k8s.io"


@pytest.fixture(scope="package")
def metrics_server_tools() -> Tools:
    """metrics-server; the first time it is built, which takes some minutes."""
    settings = Settings.from_environ(os.environ)
    return find_set(METRICS_SERVER, settings=settings, reporter=Reporter(sys.stderr))


def _series(dimension: str, name: str, kind: str, value: str) -> dict[str, Any]:
    labels = {
        "container": "container.name",
        "namespace": "pod.metadata.namespace",
        "pod": "pod.metadata.name",
    }
    named = [{"name": key, "value": value} for key, value in labels.items()]
    found = {"name": name, "help": name, "dimension": dimension, "kind": kind, "value": value}
    return found if dimension == "node" else {**found, "labels": named}


METRIC = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Metric",
    "metadata": {"name": "metrics-resource"},
    "spec": {
        "path": "/metrics/nodes/{nodeName}/metrics/resource",
        "metrics": [
            _series("container", "container_start_time_seconds", "gauge", "pod.SinceSecond()"),
            *(
                _series(dimension, f"{dimension}_{name}", kind, f"{of}.{asked}{which})")
                for dimension, of, which in (
                    ("container", "pod", ", container.name"),
                    ("node", "node", ""),
                )
                for name, kind, asked in (
                    ("cpu_usage_seconds_total", "counter", 'CumulativeUsage("cpu"'),
                    ("memory_working_set_bytes", "gauge", 'Usage("memory"'),
                )
            ),
        ],
    },
}


@contextmanager
def running_metrics_server(own: OwnCluster, tools: Tools, directory: Path) -> Iterator[None]:
    """`own` has kwok's CRD Metric."""
    port = free_port()
    own.kubectl.apply(METRIC)
    own.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": _reached_at(port)})
    assert own.cluster.directory is not None
    pki = own.cluster.directory / "pki"
    kubeconfigs = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    with (directory / "metrics-server.log").open("w") as log:
        process = subprocess.Popen(
            [
                str(tools[NAME]),
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                *(f"--{flag}={own.cluster.kubeconfig}" for flag in kubeconfigs),
                f"--client-ca-file={pki / 'ca.crt'}",
                f"--cert-dir={directory / 'metrics-server'}",
                "--kubelet-use-node-status-port",
                "--kubelet-insecure-tls",
                "--metric-resolution=10s",
                "--kubelet-request-timeout=5s",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
    try:
        eventually(
            lambda: own.kubectl.json("get", "apiservice", SERVICE)["status"],
            lambda status: condition_of(status, "Available").get("status") == "True",
            describe="the API server reaches metrics-server",
        )
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _reached_at(port: int) -> list[dict[str, Any]]:
    version, _, group = SERVICE.partition(".")
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": SERVICE},
            "spec": {
                "service": {"name": NAME, "namespace": NAMESPACE, "port": port},
                "group": group,
                "version": version,
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]
