"""Pods, volumes and their import, for tests of what becomes of workloads."""

from typing import Any

import yaml

from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.notes import Reason
from kwok_operator.importing.pods.workloads import Imported, Workloads

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GROUP = "kwok-operator.io/node-group"
SELECTOR = {"matchLabels": {"app": "web"}}
IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
RESOURCES = {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}, "limits": {"memory": "1Gi"}}

CONSTRAINTS: dict[str, Any] = yaml.safe_load("""
nodeSelector: {disk: ssd}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - &nodes
        matchExpressions: [{key: a, operator: NotIn, values: [x, "y"]}]
        matchFields: [{key: metadata.name, operator: In, values: [n1]}]
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, preference: *nodes}]
  podAffinity: &pods
    requiredDuringSchedulingIgnoredDuringExecution:
    - &term
      labelSelector:
        matchLabels: {app: web}
        matchExpressions: [{key: a, operator: NotIn, values: [x, "y"]}]
      namespaces: [b]
      namespaceSelector: {matchLabels: {app: web}}
      topologyKey: zone
      matchLabelKeys: [k]
      mismatchLabelKeys: [m]
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3, podAffinityTerm: *term}]
  podAntiAffinity: *pods
tolerations:
- {key: a, operator: Equal, value: b, effect: NoExecute}
- {operator: Exists, tolerationSeconds: 5}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: zone
  whenUnsatisfiable: DoNotSchedule
  labelSelector: {matchLabels: {app: web}}
  minDomains: 2
  nodeAffinityPolicy: Ignore
  nodeTaintsPolicy: Honor
  matchLabelKeys: [k]
priorityClassName: high
preemptionPolicy: Never
schedulerName: other
terminationGracePeriodSeconds: 0
activeDeadlineSeconds: 9
restartPolicy: Always
runtimeClassName: kata
resources: {requests: {cpu: "3"}, limits: {memory: 4}}
""")
"""Every constraint of a pod's spec."""


def places_of(groups_of: dict[str, str]) -> dict[tuple[str, str], frozenset[str]]:
    """Of nodes whose host name is their name."""
    keys = ("metadata.name", "kubernetes.io/hostname")
    return {(key, node): frozenset({groups_of[node]}) for node in groups_of for key in keys}


def imported(*objects: tuple[str, Any], groups_of: dict[str, str] | None = None) -> Imported:
    workloads = Workloads()
    for kind, body in objects:
        workloads.add(kind, body)
    return workloads.finish(places=places_of(groups_of or {}))


def owned_by(kind: str, uid: str, *, api_version: str = "example.com/v1") -> dict[str, Any]:
    known = KINDS[kind].api_version if kind in KINDS else api_version
    return {"apiVersion": known, "kind": kind, "name": uid, "uid": uid, "controller": True}


def body_of(
    name: str,
    spec: dict[str, Any] | None = None,
    *,
    owner: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    namespace: str = "shop",
    **metadata: Any,
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": name, **metadata}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata, "spec": spec or {}, "status": status or {}}


def pod(name: str, *, owner: dict[str, Any] | None = None, **more: Any) -> tuple[str, Any]:
    spec = {"containers": [{"resources": RESOURCES}], "nodeName": "n1", **more.pop("spec", {})}
    status = {"phase": more.pop("phase", "Running")}
    return "Pod", body_of(name, spec, owner=owner, status=status, **more)


def found(result: Imported, kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in result.manifests if manifest["kind"] == kind]


def reasons(result: Imported) -> dict[Reason, int]:
    return {note.reason: note.count for note in result.notes}


def required_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The requirements of the only alternative that a workload's pods have."""
    spec = manifest["spec"].get("template", manifest)["spec"]
    (term,) = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    requirements: list[dict[str, Any]] = term["matchExpressions"]
    return requirements


def volume(
    name: str, claim: str, zone: str, *, key: str = "zone", namespace: str = "shop"
) -> tuple[str, Any]:
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [zone]}]}
    spec = {
        "claimRef": {"namespace": namespace, "name": claim},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    return "PersistentVolume", body_of(name, spec)


def with_claim(name: str) -> dict[str, Any]:
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
    return {"containers": [{}], "volumes": [claim], "nodeSelector": {"disk": "ssd"}}
