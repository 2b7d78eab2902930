"""A cluster for one test module: for what would disturb the others, or needs another kwok.

    with own_cluster("absent", directory=..., extra_args=[...]) as own: own.kubectl, own.harness

It has the CRDs, and a harness whose operator runs as its service account. It is made by us even
where KWOK_OPERATOR_TEST_KUBECONFIG names a cluster, whose processes nobody may stop. What kwok is
made to do here (to stop, to come back, to move to another port) it does as a process.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from kwok_operator.controlplane import Choices, Cluster, temporary
from tests.e2e.groups import install_crds, is_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, as_service_account

KWOK = "kwok-controller"

KUBELET_FLAGS = ("--server-address=", "--node-port=", "--node-name=", "--node-ip=")

SHORT_LEASES = ("--heartbeat-factor", "0.25")
"""kwokctl: Leases of 10 s, and nodes whose Lease has run out are NotReady after 10 s."""


@dataclass
class OwnCluster:
    """A cluster, and all that works with it."""

    cluster: Cluster
    kubectl: Kubectl
    harness: Harness
    _command: list[str] = field(default_factory=list)
    _kwok: subprocess.Popen[bytes] | None = None

    @contextmanager
    def kwok_stopped(self) -> Iterator[None]:
        """kwok is there and does nothing."""
        with self.stopped(KWOK, pid=self._kwok.pid if self._kwok else None):
            yield

    @contextmanager
    def stopped(self, component: str, *, pid: int | None = None) -> Iterator[None]:
        """A process of the cluster is there and does nothing."""
        pid = pid or self.cluster.pid(component)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def kwok_killed(self) -> Iterator[None]:
        """There is no kwok; afterwards there is another one, on the same port."""
        self.kill_kwok()
        try:
            yield
        finally:
            self.start_kwok()

    def kill_kwok(self) -> None:
        if self._kwok is None:
            pid = self.cluster.pid(KWOK)
            self._command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: KWOK in self.cluster.dead(), describe="kwok is gone")
        else:
            self._kwok.kill()
            self._kwok.wait()
            self._kwok = None

    def start_kwok(self, *, port: int | None = None, serving: bool = True) -> None:
        """Starts kwok as it was, on another port from now on, or without a kubelet API."""
        if port is not None:
            known = next(a for a in self._command if a.startswith("--node-port=")).split("=")[1]
            self._command = [a.replace(known, str(port)) for a in self._command]
        command = self._command
        if not serving:
            command = [*(a for a in command if not a.startswith(KUBELET_FLAGS)), "--node-port=0"]
        with self.cluster.log(KWOK).open("a") as log:
            self._kwok = subprocess.Popen(
                command, cwd=self.cluster.directory, stdout=log, stderr=log
            )


@contextmanager
def own_cluster(
    name: str,
    *,
    directory: Path,
    **choices: Unpack[Choices],
) -> Iterator[OwnCluster]:
    """A cluster that is there as long as the block; logs and the like go to `directory`."""
    with temporary(f"e2e-{name}", **choices) as cluster:
        kubectl = Kubectl(
            program=cluster.kubectl, kubeconfig=cluster.kubeconfig, cache=directory / "cache"
        )
        install_crds(kubectl)
        kubeconfig = directory / "operator.kubeconfig"
        kubeconfig.write_text(as_service_account(kubectl))
        own = OwnCluster(cluster, kubectl, Harness(kubeconfig=kubeconfig, directory=directory))
        try:
            yield own
        finally:
            own.harness.stop()
            own.kill_kwok()


def born_ready(kubectl: Kubectl, node: str) -> bool:
    """Whether a node is Ready and kwok had no part in it.

    What stands in a node's first write is in no managedFields if it belongs to status; what kwok
    writes when it initialises a node is.
    """
    found = kubectl.json("get", "node", node, "--show-managed-fields")
    writers = {m["manager"] for m in found["metadata"]["managedFields"] if "subresource" in m}
    return is_ready(found) and KWOK not in writers
