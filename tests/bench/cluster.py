"""A control plane of the bench's own, with the CRD and with a service account for each rival.

Each case gets a fresh one (a few seconds), also where KWOK_OPERATOR_TEST_KUBECONFIG names a
cluster: a case alone and a case among others are then the same thing, and nobody's cluster is
filled with nodes.

Operator, load generator and shim have service accounts; the first two have the same ClusterRole.
Each has a FlowSchema with the priority level that service accounts have anyway: so none of them is
exempt from the API server's fairness, and its metrics count each one's requests.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Unpack

from kwok_operator.constants import PLURAL
from kwok_operator.controlplane import Choices, Cluster, ClusterError, Flags, Settings, temporary
from tests.bench import prometheus
from tests.bench.api import Api
from tests.bench.observer import Observer, Sight, Targets, nodes_of, targets_of
from tests.bench.procfs import usage
from tests.e2e.groups import install_crds
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.rights import apply_rights

NAMESPACE: Final = "kwok-operator"
OPERATOR, CEILING, SHIM = "kwok-operator", "bench-ceiling", "kwok-operator-shim"
COMPONENTS: Final = ("kube-controller-manager", "kube-scheduler", "kwok-controller")
"""Those that a control plane can be without for a while."""
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

FEW_HEARTBEATS: Final = ("--heartbeat-factor", "100")
"""kwokctl: Leases of 4,000 s. Its own, of 200 s, are renewed every 50 s: with 10,000 nodes in waves
of 20 s, which take a third of the API server's time. Whom they hit would be chance."""

_TOKEN = "--duration=12h"
_QUIET_WRITES = 30.0
_QUIET_SECONDS = 120.0
_EMPTY_SECONDS = 900.0
_TRIES = 3


@dataclass
class BenchCluster:
    """A cluster, and the bench's ways to look at it and to change it."""

    cluster: Cluster
    settings: Settings
    kubectl: Kubectl
    api: Api
    nodes: Observer[Sight]
    targets: Observer[Targets]
    directory: Path
    secrets: Path

    def kubeconfig(self, account: str) -> Path:
        """The kubeconfig of a service account."""
        return self.secrets / f"{account}.kubeconfig"

    def apply_group(self, name: str, **spec: Any) -> None:
        """A KwokNodeGroup; its target is left as it is unless named."""
        manifest = {
            "apiVersion": "kwok-operator.io/v1alpha1",
            "kind": "KwokNodeGroup",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.kubectl.apply(manifest)

    def clear(self, tick: Callable[[str], None]) -> None:
        """Remove all groups and nodes, and wait until the API server is quiet."""
        self.kubectl("delete", PLURAL, "--all", "--wait=false")
        self.nodes.expect(lambda sight: sight.present == 0)
        if self.nodes.sight.present:
            # A rival that has failed may have left some.
            self.api.request("DELETE", "/api/v1/nodes")
        self.nodes.wait(_EMPTY_SECONDS, tick=lambda s: tick(f"{s.present:,} nodes to remove"))
        self.api.request("DELETE", LEASES)
        self.quiet(tick)

    def quiet(self, tick: Callable[[str], None]) -> None:
        """Returns when nodes and their Leases are hardly written any more, or in two minutes.

        kwok takes the Leases of 10,000 new nodes for a while after they are there. What is left are
        heartbeats, and what the controller manager does at its limit of 20 requests a second; both
        are there for everybody.
        """
        deadline = time.monotonic() + _QUIET_SECONDS
        before = self._writes()
        while time.monotonic() < deadline:
            time.sleep(2)
            now = self._writes()
            if (now - before) / 2 < _QUIET_WRITES + self.nodes.sight.present / 500:
                return
            tick(f"waiting for a quiet API server, {(now - before) / 2:.0f} writes/s")
            before = now

    def _writes(self) -> float:
        return sum(
            value
            for labels, value in prometheus.samples(self.api.metrics(), "apiserver_request_total")
            if labels.get("resource") in ("nodes", "leases")
            and labels.get("verb") not in ("GET", "LIST", "WATCH")
        )

    def calls(self, account: str) -> float:
        """All requests of an account that the API server has let in."""
        flow = "apiserver_flowcontrol_dispatched_requests_total"
        return prometheus.total(self.api.metrics(), flow, flow_schema=account)

    def requests(self, **labels: str) -> float:
        """Requests with these labels, of everybody."""
        return prometheus.total(self.api.metrics(), "apiserver_request_total", **labels)

    def cpu(self) -> dict[str, float]:
        """The CPU that each part of the control plane has used so far, in seconds."""
        parts = ("kube-apiserver", "etcd", *COMPONENTS)
        return {part: usage(self.cluster.pid(part)).cpu for part in parts}

    def stop_components(self) -> None:
        """End all but etcd and the API server, for sizes that this machine can't keep alive."""
        for component in COMPONENTS:
            with suppress(ProcessLookupError):
                os.kill(self.cluster.pid(component), signal.SIGKILL)


@contextmanager
def bench_cluster(
    directory: Path,
    *,
    raised_limits: bool = False,
    stages: bool = False,
    extra_args: Sequence[str] = (),
    flags: Flags | None = None,
) -> Iterator[BenchCluster]:
    """A cluster that is there as long as the block; logs go to `directory`, tokens go with it."""
    settings = Settings.from_environ(os.environ)
    directory.mkdir(parents=True, exist_ok=True)
    secrets = Path(tempfile.mkdtemp(prefix="bench-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, secrets, ignore_errors=True)
        cluster = _created(
            stack,
            raised_limits=raised_limits,
            stages=stages,
            extra_args=extra_args,
            flags=flags or {},
        )
        kubectl = Kubectl(
            program=cluster.kubectl, kubeconfig=cluster.kubeconfig, cache=secrets / "cache"
        )
        config = kubectl.json("config", "view", "--raw", "--minify", "--flatten")
        _prepare(kubectl, config=config, directory=secrets)
        assert cluster.directory is not None
        api = Api(
            server=config["clusters"][0]["cluster"]["server"],
            certificates=cluster.directory / "pki",
        )
        nodes, targets = nodes_of(api), targets_of(api)
        try:
            nodes.wait_synced()
            targets.wait_synced()
            yield BenchCluster(cluster, settings, kubectl, api, nodes, targets, directory, secrets)
        finally:
            for each in (nodes, targets, api):
                each.close()


def _created(stack: ExitStack, **choices: Unpack[Choices]) -> Cluster:
    """A new cluster. One that does not come up is no reason to lose hours of measuring."""
    for _ in range(_TRIES - 1):
        try:
            return stack.enter_context(temporary("bench", **choices))
        except ClusterError as error:
            print(f"{error}\ntrying again", file=sys.stderr)
    return stack.enter_context(temporary("bench", **choices))


def _prepare(kubectl: Kubectl, *, config: Mapping[str, Any], directory: Path) -> None:
    install_crds(kubectl)
    apply_rights(kubectl, policies=False)
    for manifest in (_account(), _binding(), *map(_flow, (OPERATOR, CEILING, SHIM))):
        kubectl.apply(manifest)
    for account, verb in ((OPERATOR, "create"), (CEILING, "create"), (SHIM, "list")):
        user = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
        eventually(
            lambda verb=verb, user=user: kubectl("auth", "can-i", verb, "nodes", user),  # type: ignore[misc]
            describe=f"{account} has its rights",
        )
        token = kubectl("create", "token", account, f"--namespace={NAMESPACE}", _TOKEN).strip()
        _write_kubeconfig(config, account=account, token=token, directory=directory)


def _write_kubeconfig(
    config: Mapping[str, Any], *, account: str, token: str, directory: Path
) -> None:
    context = {**config["contexts"][0]["context"], "user": account, "namespace": NAMESPACE}
    own = {
        **config,
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{**config["contexts"][0], "context": context}],
    }
    (directory / f"{account}.kubeconfig").write_text(json.dumps(own))


def _account() -> dict[str, Any]:
    metadata = {"name": CEILING, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _binding() -> dict[str, Any]:
    """The load generator may do what the operator may do."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": CEILING},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [{"kind": "ServiceAccount", "name": CEILING, "namespace": NAMESPACE}],
    }


def _flow(account: str) -> dict[str, Any]:
    """The flow schema `service-accounts` for one account, so that its requests are counted."""
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": account},
        "spec": {
            "priorityLevelConfiguration": {"name": "workload-low"},
            "matchingPrecedence": 8000,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [
                        {
                            "kind": "ServiceAccount",
                            "serviceAccount": {"name": account, "namespace": NAMESPACE},
                        }
                    ],
                    "resourceRules": [{**rule, "clusterScope": True, "namespaces": ["*"]}],
                    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                }
            ],
        },
    }
