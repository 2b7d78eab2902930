"""Harm to the processes of a cluster: stopped, killed, made to forget.

Each block undoes what it did. What dies of it besides, as controllers do that lose their own Lease,
is brought back by `heal`: nobody restarts it here, as a kubelet would.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from kwok_operator.controlplane import Reporter, Settings, revive
from kwok_operator.controlplane.lock import exclusive
from tests.e2e.api import NODES, Api
from tests.e2e.kubectl import eventually
from tests.e2e.own_cluster import OwnCluster

API_SERVER, ETCD = "kube-apiserver", "etcd"
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")


class Faults:
    """What can be done to one cluster."""

    def __init__(self, own: OwnCluster, api: Api) -> None:
        self._own = own
        self._api = api

    @contextmanager
    def frozen(self, component: str) -> Iterator[None]:
        """It is there and does nothing; connections to it stay."""
        pid = self._own.cluster.pid(component)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
            self.heal()

    @contextmanager
    def killed(self, component: str) -> Iterator[None]:
        """It is gone, and comes back with nothing in its memory."""
        with _nobody_else_makes_clusters():
            os.kill(self._own.cluster.pid(component), signal.SIGKILL)
            try:
                eventually(lambda: component in self._own.cluster.dead(), describe="it is gone")
                yield
            finally:
                self.heal()

    @contextmanager
    def kwok_killed(self) -> Iterator[None]:
        with self._own.kwok_killed():
            yield

    @contextmanager
    def kwok_frozen(self) -> Iterator[None]:
        with self._own.kwok_stopped():
            yield

    def heal(self) -> None:
        """Returns once all components run, and the API server answers."""
        cluster = self._own.cluster
        eventually(cluster.answers, describe="the API server answers or is gone") if (
            not cluster.dead()
        ) else None
        # Controllers notice the loss of their Lease a moment later.
        time.sleep(0.5)
        if [name for name in cluster.dead() if name != "kwok-controller"]:
            revive(cluster)

    def compact(self) -> int:
        """etcd forgets everything before now; returns the revision it begins with."""
        _, revision = self._api.list(NODES, metadata=True)
        address = self._etcd_flag("listen-client-urls")
        request = urllib.request.Request(
            f"{address}/v3/kv/compaction",
            data=json.dumps({"revision": revision, "physical": True}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
        return int(revision)

    def snapshot(self) -> Path:
        """What etcd has on its disk at one instant."""
        data = Path(self._etcd_flag("data-dir"))
        copy = Path(tempfile.mkdtemp(dir=data.parent)) / data.name
        with self.frozen(ETCD):
            shutil.copytree(data, copy)
        return copy

    @contextmanager
    def restored(self, snapshot: Path) -> Iterator[None]:
        """The cluster is stopped, all of it; afterwards it runs on what a snapshot has."""
        data, cluster = Path(self._etcd_flag("data-dir")), self._own.cluster
        down = {API_SERVER, *CONTROLLERS, ETCD}
        with _nobody_else_makes_clusters():
            self._own.kill_kwok()
            for component in down - set(cluster.dead()):
                os.kill(cluster.pid(component), signal.SIGKILL)
            try:
                eventually(lambda: down <= set(cluster.dead()), describe="all of it is gone")
                shutil.rmtree(data)
                shutil.copytree(snapshot, data)
                yield
            finally:
                revive(cluster)

    def _etcd_flag(self, name: str) -> str:
        with open(f"/proc/{self._own.cluster.pid(ETCD)}/cmdline") as file:
            flags = file.read().split("\0")
        return next(f.removeprefix(f"--{name}=") for f in flags if f.startswith(f"--{name}="))


def _nobody_else_makes_clusters() -> AbstractContextManager[None]:
    """As one that is made would take the ports of what is down."""
    lock = Settings.from_environ(os.environ).cache / "clusters.lock"
    purpose = "which kills and restarts parts of its own cluster"
    return exclusive(lock, purpose=purpose, reporter=Reporter(sys.stderr))
