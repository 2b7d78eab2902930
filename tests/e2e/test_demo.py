"""`make demo`, run as a process from the checkout.

- it shows the whole story, checks it, and exits with 0; with --no-keep nothing is left
- cluster-autoscaler, played by a program of the tests, gets nodes through the shim
- one that can't be used is one line, and the rest is shown; an interrupt ends it and the shim
- what it leaves otherwise can be played with: the cluster answers, the operator works
- a second demo on what the first has left works as well
- the operator ends when the cluster is deleted, which is what `make cluster-down` does
- a step that fails is one line on standard error and exit status 1
"""

import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.demo.autoscaler import VARIABLE
from hack.demo.kubectl import CHECKOUT
from kwok_operator.controlplane import Settings, delete, processes
from kwok_operator.controlplane.kwokctl import cluster_directory
from kwok_operator.controlplane.lifecycle import names
from kwok_operator.controlplane.settings import KUBECONFIG_VARIABLE
from tests.e2e.kubectl import Kubectl, eventually

BORROWED = bool(os.environ.get(KUBECONFIG_VARIABLE))


def run(module: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=CHECKOUT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def script(file: Path, text: str) -> str:
    """A program."""
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5):
            return True
    except ConnectionRefusedError:
        return False


def operator_address(output: str, *, command: str = "run") -> str:
    """Where the operator, or the shim, that a demo has started listens."""
    (address,) = re.findall(rf"kwok-operator {command} .*--listen=(\S+)", output)
    return str(address)


def what_is_left(name: str) -> list[str]:
    """Clusters and processes of that name."""
    settings = Settings.from_environ(os.environ)
    clusters = [each for each in names(settings=settings) if each == name]
    return clusters + list(processes.running(cluster_directory(name, settings=settings)).values())


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for a cluster, of which nothing is there afterwards."""
    if BORROWED:
        # All demos share that cluster with the other tests: their operator has to stop.
        request.getfixturevalue("harness")
    name = f"demo-test-{secrets.token_hex(3)}"
    yield name
    if BORROWED:
        run("hack.demo", "--down")
    else:
        delete(name)


def test_it_shows_the_whole_story_and_leaves_nothing_when_told_so(
    name: str, tmp_path: Path
) -> None:
    player = f'exec {shlex.quote(sys.executable)} -m tests.e2e.autoscaler_program "$@"'
    autoscaler = script(tmp_path / "cluster-autoscaler", player)
    demo = run("hack.demo", "--name", name, "--no-keep", **{VARIABLE: autoscaler})

    assert demo.returncode == 0, demo.stderr + demo.stdout
    for line in (
        "   $ kubectl apply -f crds/",
        "   $ kubectl apply -f deploy/base/namespace.yaml -f deploy/base/rbac.yaml",
        "   ok: five nodes are even and five odd (even: 5, odd: 5)",
        "   $ kubectl scale kng/demo-eks --replicas=1000",
        "   ok: nothing of the pasted machine is on the node",
        "   $ kubectl scale kng/demo-eks --replicas=0",
        "   ok: none of its nodes is left",
        "   $ kubectl apply -f hack/demo/manifests/six-pods.yaml",
    ):
        assert line in demo.stdout.splitlines()
    for pattern in (
        r"\$ kubectl drain demo-(even|odd)-\w{4}-\d{6} ",
        r"error when evicting pods/.*: Cannot evict pod as it would violate the pod's disruption",
        r"ok: the difference is one \((even: 5, odd: 6|even: 6, odd: 5)\)",
        r"\[#+\.*\] 1,000 of 1,000 nodes, \d+ nodes/s",
        r"ok: 1,000 nodes are usable after .* s: \d+ nodes/s",
        r"ok: 1,000 nodes are gone after .* s: \d+ nodes/s",
        r"ok: six pods run on six new nodes after .* s",
        r"ok: it has given the six nodes back after .* s",
    ):
        assert re.search(pattern, demo.stdout), pattern
    assert "\x1b" not in demo.stdout and "\r" not in demo.stdout, "it is no terminal"
    assert "go on running" not in demo.stdout
    assert not listens(operator_address(demo.stdout))
    assert not listens(operator_address(demo.stdout, command="shim"))
    assert what_is_left(name) == []


def test_what_it_leaves_works_until_the_cluster_is_deleted(name: str, tmp_path: Path) -> None:
    arguments = ("--name", name, "--nodes", "20")
    none = {VARIABLE: str(tmp_path / "none")}
    first = run("hack.demo", *arguments, **none)
    assert first.returncode == 0, first.stderr + first.stdout
    (line,) = [line for line in first.stdout.splitlines() if none[VARIABLE] in line]
    assert line.startswith("No cluster-autoscaler is shown: ")
    again = run("hack.demo", *arguments, **none)
    assert again.returncode == 0, "on what the first has left:\n" + again.stderr + again.stdout
    assert "creating cluster" not in again.stderr
    assert not listens(operator_address(first.stdout)), "its operator has made way"

    assert "The cluster and the operator go on running." in again.stdout
    (kubeconfig,) = re.findall(r"export KUBECONFIG=(\S+)", again.stdout)
    kubectl = Kubectl(
        program=Path(_kubectl(again.stdout)), kubeconfig=Path(kubeconfig), cache=tmp_path
    )
    kubectl("scale", "kng", "demo-even", "--replicas=7")
    nodes = ("get", "nodes", "--selector=kwok-operator.io/node-group=demo-even", "--output=name")
    eventually(lambda: kubectl(*nodes).split(), lambda found: len(found) == 7, describe="7 nodes")

    down = ("hack.demo", "--down") if BORROWED else ("kwok_operator.controlplane", "down")
    removed = run(*down, "--name", name)
    assert removed.returncode == 0, removed.stderr
    address = operator_address(again.stdout)
    eventually(lambda: not listens(address), describe="the operator has ended")
    assert what_is_left(name) == []


def test_an_interrupt_ends_cluster_autoscaler_and_the_shim(name: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    answer = '[ "$1" != --help ] || { echo "--cloud-provider: externalgrpc"; exit; }'
    # It asks for nothing, so the demo waits for its nodes.
    autoscaler = script(tmp_path / "idle", f"{answer}\necho $$ > {pid}\nexec sleep 600")
    demo = subprocess.Popen(
        [sys.executable, "-m", "hack.demo", "--name", name, "--nodes", "5"],
        cwd=CHECKOUT,
        env={**os.environ, VARIABLE: autoscaler},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert demo.stdout is not None
        shown = ""
        while "0 of 6 nodes" not in shown:
            line = demo.stdout.readline()
            assert line, shown
            shown += line
        shim = operator_address(shown, command="shim")
        eventually(lambda: pid.exists() and pid.read_text(), describe="cluster-autoscaler runs")
        assert listens(shim)
        # As a terminal does, to all of them. It is no SIGINT, because that is ignored by whatever a
        # shell has started in the background; the demo takes both alike.
        os.killpg(demo.pid, signal.SIGTERM)
        rest, errors = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.communicate()

    assert demo.returncode == 130, errors + rest
    assert "Traceback" not in errors
    assert not listens(shim)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert listens(operator_address(shown)), "the operator stays"


def test_a_step_that_fails_is_one_line(name: str) -> None:
    # The operator takes its flags from the environment, too, and does not start with this one.
    demo = run("hack.demo", "--name", name, "--no-keep", KWOK_OPERATOR_MAX_TOTAL_NODES="many")

    assert demo.returncode == 1
    (line,) = [line for line in demo.stderr.splitlines() if line.startswith("error")]
    assert line.startswith("error: the operator has ended: ")
    assert "KWOK_OPERATOR_MAX_TOTAL_NODES: 'many' is not a number of nodes" in line
    assert "Traceback" not in demo.stderr
    assert "go on running" not in demo.stdout
    assert what_is_left(name) == []


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "nobody",
                "clusters": [{"name": "nobody", "cluster": {"server": "https://127.0.0.1:9"}}],
                "users": [{"name": "nobody", "user": {"token": "none"}}],
                "contexts": [
                    {"name": "nobody", "context": {"cluster": "nobody", "user": "nobody"}}
                ],
            }
        )
    )
    demo = run("hack.demo", "--no-keep", **{KUBECONFIG_VARIABLE: str(kubeconfig)})

    assert demo.returncode == 1
    (line,) = demo.stderr.splitlines()
    assert line.startswith("error: `kubectl get --raw /readyz` failed: ")
    assert "The connection to the server 127.0.0.1:9 was refused" in line


def _kubectl(output: str) -> str:
    """The kubectl that a demo tells to use."""
    directories = re.findall(r'export PATH="(\S+):\$PATH"', output)
    return f"{directories[0]}/kubectl" if directories else "kubectl"
