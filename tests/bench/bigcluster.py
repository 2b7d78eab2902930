"""A cluster to import that nobody has to run: an API server that makes up what is listed.

    python -m tests.bench.bigcluster --nodes 5000 --pods 100000

Prints its address, and serves GET until it is killed. Pages are made when they are asked for; the
same numbers give the same cluster. Half of the pods are of DaemonSets, where a real node has ten;
objects are as long as real ones, with managedFields, environment, probes and status.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web

Json = dict[str, Any]
_CORPUS: Final = Path(__file__).parents[1] / "corpus"
_POOLS: Final = 20
_ZONES: Final = ("a", "b", "c")
_DAEMONS: Final = 10
_NAMESPACES: Final = 100
_REPLICAS: Final = 40
_WRITTEN: Final = 1_000
"""Pods that are written as YAML."""
_OTHERS: Final = 0.1
"""Of the pods that no DaemonSet has: those of StatefulSets, Jobs, unknown owners, and of nobody."""


@dataclass(frozen=True, slots=True)
class BigCluster:
    """What there is, by number."""

    nodes: int
    pods: int

    @property
    def kinds(self) -> Mapping[str, tuple[str, int, Callable[[int], Json]]]:
        """By path: the kind, how many, and each of them."""
        deployments = self.deployments
        return {
            "/api/v1/namespaces": ("Namespace", _NAMESPACES, self.namespace),
            "/api/v1/nodes": ("Node", self.nodes, self.node),
            "/api/v1/pods": ("Pod", self.pods, self.pod),
            "/apis/apps/v1/daemonsets": ("DaemonSet", self.daemons, self.daemon_set),
            "/apis/apps/v1/deployments": ("Deployment", deployments, self.deployment),
            "/apis/apps/v1/replicasets": ("ReplicaSet", deployments * 3, self.replica_set),
            "/apis/apps/v1/statefulsets": ("StatefulSet", self.sets, self.stateful_set),
            "/apis/policy/v1/poddisruptionbudgets": (
                "PodDisruptionBudget",
                deployments,
                self.budget,
            ),
        }

    @property
    def daemons(self) -> int:
        return min(_DAEMONS, self.pods // (2 * self.nodes))

    @property
    def deployments(self) -> int:
        return max(1, int((self.pods - self.daemons * self.nodes) * (1 - _OTHERS)) // _REPLICAS)

    @property
    def sets(self) -> int:
        return max(1, self.deployments // 10)

    def snapshot(self) -> Iterator[str]:
        """Pieces of what cluster-autoscaler's /snapshotz would say, a node at a time, without
        spaces. It has no managedFields.
        """
        yield '{"NodeList":['
        for number in range(self.nodes):
            pods = [self.pod(each) for each in range(number, self.pods, self.nodes)]
            yield "," * bool(number) + _in_snapshot(self.node(number), pods)
        yield '],"UnscheduledPodsCanBeScheduled":null'
        yield "".join(f',"{each}Timestamp":"2026-01-01T00:00:00.5Z"' for each in ("Start", "End"))
        yield ',"TemplateNodes":{'
        for number in range(min(self.nodes, _POOLS * len(_ZONES))):
            yield "," * bool(number) + f'"group-{number}":{self._template(number)}'
        yield "}}"

    def _template(self, number: int) -> str:
        """A copy of a node of the group, with copies of DaemonSets' pods."""
        name, node = f"template-node-for-group-{number}-{number:019}", self.node(number)
        node["metadata"] |= {"name": name, "uid": f"template-uid-{number}"}
        node["metadata"]["labels"] |= {
            "cluster-autoscaler.kubernetes.io/template-node": "true",
            "kubernetes.io/hostname": name,
        }
        pods = [self.pod(each * self.nodes + number) for each in range(self.daemons)]
        for pod in pods:
            pod["metadata"]["name"] += f"-{number:019}"
            pod["spec"]["nodeName"] = name
        return _in_snapshot(node, pods)

    def listed(self) -> Iterator[str]:
        """Pieces of what `kubectl get nodes,pods -A -o yaml` would say. So that it takes minutes
        and not hours, pods are those of some with other names.
        """
        yield "apiVersion: v1\nitems:\n"
        for number in range(self.nodes):
            yield _as_item("Node", self.node(number))
        texts = [_as_item("Pod", self.pod(number)) for number in range(min(self.pods, _WRITTEN))]
        for number in range(self.pods):
            name = self.pod(number % _WRITTEN)["metadata"]["name"]
            yield texts[number % _WRITTEN].replace(name, f"{name}-{number}")
        yield 'kind: List\nmetadata:\n  resourceVersion: ""\n'

    def namespace(self, number: int) -> Json:
        return {
            "metadata": _metadata("Namespace", f"team-{number}", "", {"team": f"team-{number}"})
        }

    def node(self, number: int) -> Json:
        body = json.loads(_NODE)
        zone = _ZONES[number // _POOLS % 3]
        metadata = body["metadata"]
        metadata.update(name=f"node-{number}", uid=f"node-uid-{number}")
        metadata["labels"].update(
            {
                "eks.amazonaws.com/nodegroup": f"pool-{number % _POOLS}",
                "kubernetes.io/hostname": f"node-{number}",
                "topology.kubernetes.io/zone": f"eu-central-1{zone}",
            }
        )
        body["spec"]["providerID"] = f"aws:///eu-central-1{zone}/i-{number:017x}"
        images = [{"names": [f"registry.example/image-{n}@sha256:{n:064x}"]} for n in range(50)]
        body["status"]["images"] = images
        return dict(body)

    def daemon_set(self, number: int) -> Json:
        return self._workload(
            "DaemonSet", f"daemon-{number}", "kube-system", {"app": f"daemon-{number}"}, {}
        )

    def deployment(self, number: int) -> Json:
        name = f"web-{number}"
        return self._workload(
            "Deployment", name, _namespace(number), {"app": name}, {"replicas": _REPLICAS}
        )

    def stateful_set(self, number: int) -> Json:
        name = f"db-{number}"
        return self._workload(
            "StatefulSet",
            name,
            _namespace(number),
            {"app": name},
            {"replicas": 5, "serviceName": name},
        )

    def replica_set(self, number: int) -> Json:
        of, revision = divmod(number, 3)
        labels = {"app": f"web-{of}", "pod-template-hash": f"hash{revision}"}
        replicas = 0 if revision else _REPLICAS
        body = self._workload(
            "ReplicaSet", f"web-{of}-hash{revision}", _namespace(of), labels, {"replicas": replicas}
        )
        body["metadata"]["ownerReferences"] = _owner(
            "apps/v1", "Deployment", _namespace(of), f"web-{of}"
        )
        return body

    def budget(self, number: int) -> Json:
        selector = {"matchLabels": {"app": f"web-{number}"}}
        return {
            "metadata": _metadata("PodDisruptionBudget", f"web-{number}", _namespace(number), {}),
            "spec": {"maxUnavailable": "10%", "selector": selector},
        }

    def pod(self, number: int) -> Json:
        """DaemonSets' first, then Deployments', then those of others."""
        of_daemons = self.daemons * self.nodes
        node = f"node-{number % self.nodes}"
        if number < of_daemons:
            name = f"daemon-{number // self.nodes}"
            owner = _owner("apps/v1", "DaemonSet", "kube-system", name)
            return _pod(f"{name}-{number}", "kube-system", {"app": name}, owner, node)
        of, place = divmod(number - of_daemons, _REPLICAS)
        namespace = _namespace(of)
        if of < self.deployments:
            labels = {"app": f"web-{of}", "pod-template-hash": "hash0"}
            owner = _owner("apps/v1", "ReplicaSet", namespace, f"web-{of}-hash0")
            return _pod(f"web-{of}-hash0-{place:05}", namespace, labels, owner, node)
        rest = number - of_daemons - self.deployments * _REPLICAS
        match rest % 4:
            case 0 if rest // 20 < self.sets:
                name, ordinal = f"db-{rest // 20}", rest // 4 % 5
                namespace = _namespace(rest // 20)
                owner = _owner("apps/v1", "StatefulSet", namespace, name)
                return _pod(f"{name}-{ordinal}", namespace, {"app": name}, owner, node)
            case 1:
                return _pod(f"bare-{rest}", namespace, {"run": f"bare-{rest % 100}"}, [], node)
            case _:
                name = f"job-{rest // 200}"
                namespace = _namespace(rest // 200)
                version = "sparkoperator.k8s.io/v1beta2"
                owner = _owner(version, "SparkApplication", namespace, name)
                labels = {"spark-role": "executor"}
                return _pod(f"{name}-exec-{rest}", namespace, labels, owner, node)

    def _workload(self, kind: str, name: str, namespace: str, labels: Json, spec: Json) -> Json:
        template = {"metadata": {"labels": labels}, "spec": _spec(name, "")}
        selector = {"matchLabels": labels}
        return {
            "metadata": _metadata(kind, name, namespace, labels),
            "spec": {**spec, "selector": selector, "template": template},
            "status": {"replicas": spec.get("replicas", 0)},
        }


def _as_item(kind: str, body: Json) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump([{"apiVersion": "v1", "kind": kind, **body}], Dumper=dumper)
    return text


def _in_snapshot(node: Json, pods: list[Json]) -> str:
    for each in (node, *pods):
        each["metadata"].pop("managedFields", None)
    return json.dumps({"Node": node, "Pods": pods}, separators=(",", ":"))


def _namespace(number: int) -> str:
    return f"team-{number % _NAMESPACES}"


def _uid(kind: str, namespace: str, name: str) -> str:
    return f"00000000-0000-4000-8000-{kind}-{namespace}-{name}"


def _owner(version: str, kind: str, namespace: str, name: str) -> list[Json]:
    uid = _uid(kind, namespace, name)
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def _metadata(kind: str, name: str, namespace: str, labels: Json) -> Json:
    fields: Json = {
        f"f:{key}": {} for key in ("image", "name", "env", "resources", "ports", "probe")
    }
    managed = {"f:metadata": {"f:labels": fields}, "f:spec": {"f:containers": {"k:a": fields}}}
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": _uid(kind, namespace, name),
        "resourceVersion": "123456789",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {**labels, "app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"prometheus.io/scrape": "true", "checksum/config": "0" * 64},
        "managedFields": [
            {"manager": manager, "operation": "Update", "fieldsV1": managed}
            for manager in ("kube-controller-manager", "kubelet")
        ],
    }


def _spec(name: str, node: str) -> Json:
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    resources = {"cpu": "100m", "memory": "256Mi"}
    return {
        "containers": [
            {
                "name": container,
                "image": f"registry.example/{name}/{container}:v1.2.3",
                "command": ["/bin/server", "--listen=:8080"],
                "env": [
                    {"name": f"VARIABLE_{n}", "value": f"value {n} of {name}"} for n in range(12)
                ],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "resources": {"requests": resources, "limits": resources},
                "livenessProbe": probe,
                "readinessProbe": probe,
                "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}],
            }
            for container in ("main", "proxy")
        ],
        "volumes": [{"name": "config", "configMap": {"name": f"{name}-config"}}],
        "serviceAccountName": name,
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
            for key in ("not-ready", "unreachable")
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": name}},
            }
        ],
        **({"nodeName": node} if node else {}),
    }


def _pod(name: str, namespace: str, labels: Json, owner: list[Json], node: str) -> Json:
    metadata = _metadata("Pod", name, namespace, labels)
    if owner:
        metadata["ownerReferences"] = owner
    shape = owner[0]["name"] if owner else f"bare-{len(name)}"
    states = [
        {"name": each, "ready": True, "imageID": f"sha256:{'0' * 64}", "restartCount": 0}
        for each in ("main", "proxy")
    ]
    return {
        "metadata": metadata,
        "spec": _spec(shape, node),
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": each, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for each in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": states,
        },
    }


_NODE: Final = json.dumps(yaml.safe_load((_CORPUS / "eks-managed.yaml").read_text()))


class Server:
    """Answers GET of lists, in pages, as an API server does."""

    def __init__(self, cluster: BigCluster) -> None:
        self._kinds = cluster.kinds
        self.requests = 0

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/requests":
            return web.json_response({"requests": self.requests})
        self.requests += 1
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.0"})
        if request.path not in self._kinds:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        kind, count, make = self._kinds[request.path]
        first = int(request.query.get("continue") or 0)
        last = min(count, first + int(request.query.get("limit") or count))
        metadata = {"resourceVersion": "1", **({"continue": str(last)} if last < count else {})}
        items = [make(number) for number in range(first, last)]
        return web.json_response({"kind": f"{kind}List", "metadata": metadata, "items": items})


async def serve(cluster: BigCluster) -> None:
    """Until the process is killed."""
    app = web.Application()
    app.router.add_get("/{path:.*}", Server(cluster).handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    print(f"http://{host}:{port}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    flags = parser.parse_args()
    asyncio.run(serve(BigCluster(flags.nodes, flags.pods)))


if __name__ == "__main__":
    main()
