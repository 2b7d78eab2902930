"""Imports HorizontalPodAutoscalers, with usage; or leaves them out, so that workloads keep their
size.

    add, one after the other  -->  finish(workloads)  -->  manifests, notes; usage for the workloads

kwok takes the usage that metrics-server reads from annotations of pods. So for an imported
autoscaler, the pods of its workload get annotations with the average usage of the original pods.
kwok serves only CPU and memory of whole pods.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.cloud.nodeparts import is_amount
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.allow import Schema, copy_allowed

USAGE: Final = {name: f"kwok.x-k8s.io/usage-{name}" for name in ("cpu", "memory")}
"""Annotations of a pod, by resource, from which kwok's own ClusterResourceUsage takes its usage."""
_WORDS: Final = frozenset(USAGE).union(
    "Resource Utilization AverageValue Max Min Disabled Pods Percent".split()
)
_SCALED: Final = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
_RULES: Final[dict[str, Schema]] = {
    "stabilizationWindowSeconds": int,
    "selectPolicy": str,
    "policies": [{"type": str, "value": int, "periodSeconds": int}],
}
_SPEC: Final[dict[str, Schema]] = {
    "minReplicas": int,
    "maxReplicas": int,
    "metrics": [
        {
            "type": str,
            "resource": {
                "name": str,
                "target": {"type": str, "averageUtilization": int, "averageValue": (str, int)},
            },
        }
    ],
    "behavior": {"scaleUp": _RULES, "scaleDown": _RULES},
}


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A HorizontalPodAutoscaler: its target, the part of its spec that an import keeps, and the
    average usage of a pod by resource.
    """

    target: Ref
    spec: dict[str, Any]
    usage: Mapping[str, str]
    whole: bool
    """Whether all of its metrics are kept."""


@dataclass(slots=True)
class PodAutoscalers:
    """Collects HorizontalPodAutoscalers. Unless `kept`, they are only named in the ledger."""

    kept: bool = False
    _scaled: dict[Ref, _Scaled | None] = field(default_factory=dict)

    def add(self, ref: Ref, body: Mapping[str, Any]) -> None:
        """Collects a HorizontalPodAutoscaler; `ref` is its name once imported. Never raises."""
        self._scaled[ref] = _read(ref, body) if self.kept else None

    def finish(
        self, workloads: Mapping[Ref, Mapping[str, Any]]
    ) -> tuple[dict[Ref, dict[str, Any]], list[Note]]:
        """Returns the manifests of the kept autoscalers, and notes. Adds annotations with the usage
        to the pod templates of the workloads that they scale.
        """
        manifests: dict[Ref, dict[str, Any]] = {}
        notes: list[Note] = []
        for ref, scaled in self._scaled.items():
            if scaled is None or scaled.target not in workloads:
                notes.append(Note(ref, Reason.HPA_FIXED, dropped=True))
                continue
            template: dict[str, Any] = workloads[scaled.target]["spec"]["template"]
            usage = {USAGE[name]: amount for name, amount in scaled.usage.items()}
            template["metadata"]["annotations"] = (
                template["metadata"].get("annotations", {}) | usage
            )
            manifests[ref] = {
                "apiVersion": KINDS[ref.kind].api_version,
                "kind": ref.kind,
                "metadata": {"name": ref.name, "namespace": ref.namespace},
                "spec": scaled.spec,
            }
            notes.append(Note(scaled.target, Reason.HPA_USAGE, "metadata.annotations"))
            if not scaled.whole:
                notes.append(Note(ref, Reason.HPA_METRICS, "spec.metrics"))
        return manifests, notes


def _read(ref: Ref, body: Mapping[str, Any]) -> _Scaled | None:
    """Reads the parts of a HorizontalPodAutoscaler that an import keeps; None if they wouldn't
    scale the target as before.
    """
    target = as_map(value_at(body, "spec", "scaleTargetRef"))
    kind, name = text_at(target, "kind"), text_at(target, "name")
    if kind not in _SCALED or target.get("apiVersion") != KINDS[kind].api_version:
        return None
    spec = copy_allowed(body.get("spec"), _SPEC).fields
    given = spec.get("metrics", [])
    seen = _usage(body)
    metrics = [
        each
        for each in given
        if each.get("type") == "Resource" and text_at(each, "resource", "name") in seen
    ]
    if not metrics or "maxReplicas" not in spec:
        return None
    usage = {each["resource"]["name"]: seen[each["resource"]["name"]] for each in metrics}
    reference = {"apiVersion": KINDS[kind].api_version, "kind": kind, "name": name}
    spec |= {"metrics": metrics}
    if not all(map(_is_known, spec.values())):
        return None
    spec["scaleTargetRef"] = reference
    return _Scaled(Ref(kind, ref.namespace, name), spec, usage, whole=metrics == given)


def _usage(body: Mapping[str, Any]) -> dict[str, str]:
    """Returns the average usage of a pod by resource, from the autoscaler's status."""
    amounts = (
        (text_at(each, "resource", "name"), text_at(each, "resource", "current", "averageValue"))
        for each in as_list(value_at(body, "status", "currentMetrics"))
    )
    return {name: amount for name, amount in amounts if name in USAGE and is_amount(amount)}


def _is_known(value: object) -> bool:
    """Whether all texts inside a value are words of Kubernetes or amounts. Any other text might be
    private.
    """
    if isinstance(value, dict | list):
        return all(map(_is_known, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, str) or value in _WORDS or is_amount(value)
