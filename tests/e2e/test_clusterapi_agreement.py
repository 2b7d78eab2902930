"""The same decisions by both protocols: mirror with the shim, and emulate.

Six MachineDeployments and sixteen steps, in which pods come and go: after each step all groups have
the same sizes in both, which are those that production's cluster-autoscaler would give them.
`smallautoscaler` decides; where CLUSTER_AUTOSCALER names a real one, it does, too.
"""

import os
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from kwok_operator.constants import ALIKE_LABEL, NODE_GROUP_LABEL
from tests.e2e import capi
from tests.e2e.api import GROUPS, NODES
from tests.e2e.autoscaler import Autoscaler, Shim
from tests.e2e.capi import CAPACITY, GROUP, Provider, deployment
from tests.e2e.kubectl import PATIENCE, eventually
from tests.e2e.own_cluster import OwnCluster, own_cluster
from tests.e2e.ports import free_port
from tests.e2e.smallautoscaler import FLAGS, GPU, ByMachines, ByShim, Side, loop, observe

REAL: Final = os.environ.get("CLUSTER_AUTOSCALER", "")
CALM: Final = 10
"""Loops in which a real one has changed nothing."""
YOUNG: Final = 33.0
"""Seconds; a real one waits half a minute for more pods that want GPUs."""
LONG: Final = 240.0

MACHINES: Final[Mapping[str, dict[str, str]]] = {
    **{
        name: {"cpu": "4", "labels": f"pool=web,topology.kubernetes.io/zone=zone-{name}"}
        for name in ("web-a", "web-b", "web-c")
    },
    "big": {"cpu": "16", "taints": "dedicated=big:NoSchedule"},
    "gpu": {
        "cpu": "8",
        "labels": "cluster-api/accelerator=t4",
        "taints": "gpu=true:NoSchedule",
        "gpu-type": GPU,
        "gpu-count": "1",
    },
    "floor": {"cpu": "2", "labels": "pool=floor"},
}
PODS: Final[Mapping[str, dict[str, Any]]] = {
    "web": {"requests": {"cpu": "3"}, "nodeSelector": {"pool": "web"}},
    "any": {"requests": {"cpu": "3"}},
    "big": {"requests": {"cpu": "10"}, "tolerates": "dedicated"},
    "gpu": {"requests": {"cpu": "1", GPU: "1"}, "tolerates": "gpu"},
    "floor": {"requests": {"cpu": "1500m"}, "nodeSelector": {"pool": "floor"}},
    "fake": {"requests": {"cpu": "3"}, "on_fake_nodes": "Exists"},
    "real": {"requests": {"cpu": "1"}, "on_fake_nodes": "DoesNotExist"},
}
STEPS: Final[list[tuple[str, dict[str, int], list[int]]]] = [
    # What happens, pods by kind from then on, and sizes in the order of MACHINES.
    ("the minimum is enforced", {}, [0, 0, 0, 0, 0, 2]),
    ("pods that keep off fake nodes", {"real": 2}, [0, 0, 0, 0, 0, 2]),
    ("from zero in three zones, for pods that want them", {"fake": 3}, [1, 1, 1, 0, 0, 2]),
    ("more in three zones", {"web": 3}, [2, 2, 2, 0, 0, 2]),
    ("only one machine is large enough", {"big": 1}, [2, 2, 2, 1, 0, 2]),
    ("a GPU", {"gpu": 1}, [2, 2, 2, 1, 1, 2]),
    ("the total of GPUs", {"gpu": 4}, [2, 2, 2, 1, 2, 2]),
    ("fewer are asked for than there may be", {"gpu": 0}, [2, 2, 2, 1, 0, 2]),
    ("still more in three zones", {"web": 6}, [3, 3, 3, 1, 0, 2]),
    ("the least is wasted", {"any": 3}, [4, 4, 4, 1, 0, 2]),
    ("more of the large ones", {"big": 3}, [4, 4, 4, 3, 0, 2]),
    ("to zero", {"big": 0}, [4, 4, 4, 0, 0, 2]),
    ("beyond the minimum", {"floor": 3}, [4, 4, 4, 0, 0, 3]),
    ("down to those of two kinds", {"web": 0}, [2, 2, 2, 0, 0, 3]),
    ("down to the minimum", {"floor": 0}, [2, 2, 2, 0, 0, 2]),
    ("nothing is left", {"any": 0, "fake": 0, "real": 0}, [0, 0, 0, 0, 0, 2]),
]


def machine_deployment(name: str) -> dict[str, Any]:
    body = deployment(name, replicas=0)
    annotations = body["metadata"]["annotations"]
    annotations |= {f"{CAPACITY}{key}": text for key, text in MACHINES[name].items()}
    annotations[f"{CAPACITY}memory"] = f"{4 * int(MACHINES[name]['cpu'])}Gi"
    sizes = f"{GROUP}/cluster-api-autoscaler-node-group-"
    annotations[f"{sizes}min-size"] = "2" if name == "floor" else "0"
    annotations[f"{sizes}max-size"] = "9"
    return body


def pod(kind: str, number: int) -> dict[str, Any]:
    wanted = PODS[kind]
    requests = {"requests": wanted["requests"]}
    if GPU in wanted["requests"]:
        requests["limits"] = {GPU: wanted["requests"][GPU]}
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "pause", "resources": requests}],
        "nodeSelector": wanted.get("nodeSelector", {}),
        "terminationGracePeriodSeconds": 0,
    }
    if key := wanted.get("tolerates"):
        spec["tolerations"] = [{"key": key, "operator": "Exists"}]
    if operator := wanted.get("on_fake_nodes"):
        term = {"matchExpressions": [{"key": NODE_GROUP_LABEL, "operator": operator}]}
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    metadata = {"name": f"{kind}-{number}", "namespace": "default", "labels": {"kind": kind}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@dataclass
class Play:
    """A fleet in a cluster; `settle` returns when the autoscaler has nothing to do any more."""

    own: OwnCluster
    side: Side
    sizes: Callable[[], dict[str, int]]
    settle: Callable[["Play"], None]
    _pods: dict[str, int] = field(default_factory=dict)

    def run(self) -> list[list[int]]:
        """The sizes after each step."""
        found = []
        for _, change, _ in STEPS:
            for kind, wanted in change.items():
                self._bring(kind, wanted)
            self.settle(self)
            sizes = self.sizes()
            found.append([sizes[name] for name in MACHINES])
        return found

    def _bring(self, kind: str, wanted: int) -> None:
        there, self._pods[kind] = self._pods.get(kind, 0), wanted
        if wanted > there:
            more = [pod(kind, number) for number in range(there, wanted)]
            self.own.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": more})
        else:
            self.own.kubectl("delete", "pods", f"-lkind={kind}", "--force", "--grace-period=0")


def by_itself(play: Play) -> None:
    api = play.own.kubectl.api
    eventually(
        lambda: loop(api, play.side), lambda acted: not acted, describe="it settles", timeout=LONG
    )


def is_young(pod: Any) -> bool:
    born = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - born).total_seconds() < YOUNG


@dataclass
class Program:
    """A real cluster-autoscaler that runs."""

    address: str
    process: subprocess.Popen[bytes]

    @property
    def loops(self) -> int:
        """Raises LookupError until it listens."""
        if self.process.poll() is not None:
            raise RuntimeError("it has ended: cluster-autoscaler.log says why")
        try:
            with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError as error:
            raise LookupError(self.address) from error
        count = r'^cluster_autoscaler_function_duration_seconds_count\{function="main"\} (\d+)'
        found = re.search(count, text, re.MULTILINE)
        return int(found[1]) if found else 0

    def __call__(self, play: Play) -> None:
        """All is as it asked for, and for some loops it asks for nothing."""
        calm: tuple[dict[str, int], int] = ({}, 0)

        def is_calm() -> bool:
            nonlocal calm
            sizes, loops = play.sizes(), self.loops
            if sizes != calm[0]:
                calm = sizes, loops
            waiting = observe(play.own.kubectl.api, play.side).waiting
            if any(is_young(pod) for pod in waiting if pod["metadata"]["labels"]["kind"] == "gpu"):
                calm = sizes, loops
            return loops - calm[1] >= CALM

        eventually(is_calm, describe="it has settled", timeout=LONG)


def known_flags() -> list[str]:
    """Those that it has: one before 1.35 looks at no CSINodes."""
    answer = subprocess.run([os.path.expanduser(REAL), "--help"], capture_output=True, text=True)
    known = re.findall(r"--[a-z0-9-]+", answer.stdout + answer.stderr)
    return [flag for flag in FLAGS if flag.partition("=")[0] in known]


@contextmanager
def program(own: OwnCluster, directory: Path, *flags: str) -> Iterator[Program]:
    address = f"127.0.0.1:{free_port()}"
    command = [
        os.path.expanduser(REAL),
        f"--kubeconfig={own.cluster.kubeconfig}",
        f"--address={address}",
        *("--leader-elect=false", "--namespace=default", "--v=2", "--scan-interval=1s"),
        *("--write-status-configmap=false", "--kube-client-qps=100", "--kube-client-burst=200"),
        *(f"--scale-down-{which}=1s" for which in ("unneeded-time", "unready-time")),
        *(f"--scale-down-delay-after-{what}=1s" for what in ("add", "delete", "failure")),
        *known_flags(),
        *flags,
    ]
    with (directory / "cluster-autoscaler.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield Program(address, process)
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    with own_cluster("agreement", directory=tmp_path_factory.mktemp("agreement")) as own:
        capi.install_crds(own.kubectl)
        own.kubectl.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"machinepools.{GROUP}"},
                "spec": {
                    "group": GROUP,
                    "names": {"kind": "MachinePool", "plural": "machinepools"},
                    "scope": "Namespaced",
                    "versions": [
                        {
                            "name": "v1beta2",
                            "served": True,
                            "storage": True,
                            "schema": {
                                "openAPIV3Schema": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                }
                            },
                        }
                    ],
                },
            }
        )
        yield own


@contextmanager
def fleet(own: OwnCluster, mode: str) -> Iterator[Provider]:
    own.harness.start(f"--clusterapi={mode}", kubeconfig=own.cluster.kubeconfig)
    provider = Provider(own.kubectl.api)
    for name in MACHINES:
        provider.create(machine_deployment(name))
    eventually(lambda: len(own.kubectl.api.names(GROUPS)) == len(MACHINES), describe="groups")
    try:
        yield provider
    finally:
        own.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        for name in MACHINES:
            provider.delete("machinedeployments", name)
        eventually(
            lambda: [*own.kubectl.api.names(GROUPS), *own.kubectl.api.names(NODES)] == [],
            describe="all is gone",
            timeout=LONG,
        )
        own.harness.stop()


def emulated(own: OwnCluster, directory: Path, *, real: bool) -> list[list[int]]:
    with fleet(own, "emulate") as provider:
        play = Play(
            own,
            ByMachines(own.kubectl.api),
            lambda: {name: provider.size(name) for name in MACHINES},
            by_itself,
        )
        if not real:
            return play.run()
        with program(own, directory, "--cloud-provider=clusterapi") as play.settle:
            return play.run()


def mirrored(own: OwnCluster, directory: Path, *, real: bool) -> list[list[int]]:
    def sizes() -> dict[str, int]:
        groups = own.kubectl.api.list(GROUPS)[0]
        return {g["metadata"]["name"].partition(".")[2]: g["spec"]["targetSize"] for g in groups}

    shim = Shim(kubeconfig=own.cluster.kubeconfig, directory=directory)
    with fleet(own, "mirror"):
        shim.start()
        client = Autoscaler(shim.socket)
        try:
            eventually(shim.socket.exists, describe="the shim listens")
            for name in MACHINES:
                eventually(partial(client.knows, f"default.{name}"), describe=f"{name} is served")
            play = Play(own, ByShim(client), sizes, by_itself)
            if not real:
                return play.run()
            config = directory / "cloud-config.yaml"
            config.write_text(f"address: unix:{shim.socket}\n")
            flags = ("--cloud-provider=externalgrpc", f"--cloud-config={config}")
            balancing = f"--balancing-label={ALIKE_LABEL}"
            with program(own, directory, *flags, balancing) as play.settle:
                return play.run()
        finally:
            client.close()
            shim.stop()


@pytest.mark.parametrize("real", [False, True] if REAL else [False])
@pytest.mark.parametrize("way", [emulated, mirrored], ids=["emulate", "mirror"])
def test_sizes_are_those_of_production(
    own: OwnCluster, tmp_path: Path, way: Callable[..., list[list[int]]], real: bool
) -> None:
    found = way(own, tmp_path, real=real)
    steps = [words for words, _, _ in STEPS]
    assert dict(zip(steps, found, strict=True)) == {words: sizes for words, _, sizes in STEPS}
