"""`make demo`, run as a process."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kwok_operator.controlplane import delete, processes
from kwok_operator.controlplane.settings import KUBECONFIG_VARIABLE
from kwok_operator.rehearsal.settings import DEMO_CLUSTER
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.rehearsals import cluster_of, is_there

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "kwok_operator", "rehearse", "--demo")


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != KUBECONFIG_VARIABLE}


def demo(output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, f"--output={output}", *flags],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def operators_of(kubeconfig: Path) -> list[str]:
    """Command lines of the operators that use a kubeconfig beside this one."""
    lines = [line for _, line in processes.command_lines()]
    return [line for line in lines if f"--kubeconfig={kubeconfig.parent}/" in line]


@pytest.fixture
def kept_cluster() -> Iterator[None]:
    """Deletes the cluster that a demo has left. No two tests may leave one at a time."""
    yield
    delete(DEMO_CLUSTER)


@pytest.mark.usefixtures("kept_cluster")
def test_it_shows_the_whole_tour_and_what_it_leaves_works(tmp_path: Path) -> None:
    autoscaler = tmp_path / "cluster-autoscaler"
    player = f'cd {ROOT}; exec {shlex.quote(sys.executable)} -m tests.e2e.autoscaler_program "$@"'
    autoscaler.write_text(f"#!/bin/sh\n{player}\n")
    autoscaler.chmod(0o755)
    played = demo(tmp_path / "out", "--keep", f"--binary=cluster-autoscaler={autoscaler}")

    assert played.returncode == 0, played.stderr + played.stdout
    for line in (
        "2. Ten nodes in two groups",
        "   $ kubectl apply -f groups.yaml",
        "   $ kubectl scale kng/demo-eks --replicas=1000",
        "   kwoknodegroup.kwok-operator.io/demo-eks scaled",
        "   $ kubectl apply -f six-pods.yaml",
    ):
        assert line in played.stderr.splitlines()
    for pattern in (
        r"\$ kubectl drain .*\n(.*\n)+ .*Cannot evict pod as it would violate the pod's disruption",
        r"\(and \d+ more like it\)",
        r"   deployment.apps/six condition met\n",
    ):
        assert re.search(pattern, played.stderr), pattern
    assert "\x1b" not in played.stderr, "it is no terminal"
    assert played.stdout.count("held   ") == 7 and "FAILED" not in played.stdout

    assert "The cluster and the operator go on running." in played.stdout
    (kubeconfig,) = map(Path, re.findall(r"export KUBECONFIG=(\S+)", played.stdout))
    directories = re.findall(r'export PATH="(\S+):\$PATH"', played.stdout)
    program = Path(f"{directories[0]}/kubectl" if directories else "kubectl")
    kubectl = Kubectl(program=program, kubeconfig=kubeconfig, cache=tmp_path)

    kubectl("scale", "kng", "demo-even", "--replicas=7")
    nodes = ("get", "nodes", "--selector=kwok-operator.io/node-group=demo-even", "--output=name")
    eventually(lambda: kubectl(*nodes).split(), lambda found: len(found) == 7, describe="7 nodes")
    assert operators_of(kubeconfig)

    (removal,) = re.findall(r"To remove them: (.+)", played.stdout)
    subprocess.run(shlex.split(removal), cwd=ROOT, check=True, timeout=60)
    eventually(
        lambda: operators_of(kubeconfig), lambda left: not left, describe="no operator is left"
    )
    assert not kubeconfig.exists()


def test_it_leaves_nothing_without_keep(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, f"--output={tmp_path / 'out'}"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("1. The operator runs"):
                process.send_signal(signal.SIGINT)
    text = "".join(said)
    assert process.returncode == 130, text
    assert "go on running" not in text
    assert not is_there(cluster_of(text))
