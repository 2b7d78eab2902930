"""Sums up what the pods on nodes use, to find out where one pod without a node could be scheduled.

    manifests of pods on nodes --add--> used resources, ports, counts by topology --> fit.py

A pod's manifest is read once and not kept, so memory grows with the nodes only. The rules are those
of the scheduler's plugins NodeResourcesFit, NodePorts, InterPodAffinity and PodTopologySpread in
Kubernetes 1.36 (pkg/scheduler/framework/plugins). Preferred (soft) rules are ignored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.formats.podparts import dicts, is_sidecar, requests, selects
from kwok_operator.formats.untyped import as_list, as_map, as_texts, text_at, value_at

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
ANY_ADDRESS: Final = "0.0.0.0"
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""The phases of pods that have ended, and so use nothing of their node."""

Port = tuple[str, str, int]
"""A host port: its address, protocol and number."""
Labels = Mapping[str, str]
Namespaces = Mapping[str, Labels]
"""The labels of each namespace, by its name. An unknown namespace counts as one without labels."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required term of a pod's podAffinity or podAntiAffinity."""

    key: str
    """The term's topologyKey: the label of nodes whose values are the topology domains."""
    namespaces: frozenset[str]
    namespace_selector: object
    """The term's namespaceSelector, which adds namespaces; None if it adds none."""
    selector: object

    def selects(self, namespace: str, labels: Labels, namespaces: Namespaces) -> bool:
        return selects(self.selector, labels) and (
            namespace in self.namespaces
            or selects(self.namespace_selector, namespaces.get(namespace, {}))
        )


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """A topologySpreadConstraint that keeps a pod off nodes (DoNotSchedule)."""

    key: str
    selector: Any
    most_skew: int
    least_domains: int
    honors_affinity: bool
    honors_taints: bool


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """What a pod needs of its node, as far as the scheduler's filters look at it."""

    namespace: str
    labels: Labels
    spec: Mapping[str, Any]
    requests: Mapping[str, float]
    ports: tuple[Port, ...]
    affinity: tuple[PodTerm, ...]
    anti_affinity: tuple[PodTerm, ...]
    spread: tuple[SpreadRule, ...]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "PodNeeds":
        metadata, spec = as_map(body.get("metadata")), as_map(body.get("spec"))
        namespace, labels = text_at(metadata, "namespace"), as_texts(metadata.get("labels"))
        affinity = spec.get("affinity")
        return cls(
            namespace,
            labels,
            spec,
            requests(spec),
            tuple(host_ports(spec)),
            pod_terms(value_at(affinity, "podAffinity"), namespace),
            pod_terms(value_at(affinity, "podAntiAffinity"), namespace),
            tuple(_spread_rules(spec.get("topologySpreadConstraints"), labels)),
        )


@dataclass(slots=True)
class NodeUse:
    """What the pods of one node use, and how many of them the waiting pod's rules select."""

    pods: int = 0
    requests: dict[str, float] = field(default_factory=dict)
    ports: set[Port] = field(default_factory=set)
    affinity_pods: int = 0
    """How many pods on the node all terms of the waiting pod's podAffinity select."""
    anti_affinity_pods: Counter[int] = field(default_factory=Counter)
    """How many pods on the node each podAntiAffinity term of the pod selects, by its index."""
    anti_affinity_keys: set[str] = field(default_factory=set)
    """The topology keys of the podAntiAffinity of pods on the node that selects the waiting pod."""
    spread: Counter[int] = field(default_factory=Counter)
    """How many pods on the node each spread rule of the waiting pod selects, by its index."""


class PodsOnNodes:
    """All pods on nodes, summed up for one waiting pod. The caller must pass each pod to `add`
    once."""

    def __init__(self, pod: PodNeeds, namespaces: Namespaces) -> None:
        self.pod = pod
        self.namespaces = namespaces
        self.of_node: dict[str, NodeUse] = {}

    def use(self, node: str) -> NodeUse:
        """Returns what the pods of this node use."""
        return self.of_node.get(node) or NodeUse()

    def add(self, body: Mapping[str, Any]) -> None:
        """Adds the manifest of a pod; ignores a pod that has no node, or has ended."""
        spec, metadata = as_map(body.get("spec")), as_map(body.get("metadata"))
        node = text_at(spec, "nodeName")
        if not node or value_at(body, "status", "phase") in ENDED:
            return
        use = self.of_node.setdefault(node, NodeUse())
        use.pods += 1
        for resource, amount in requests(spec).items():
            use.requests[resource] = use.requests.get(resource, 0) + amount
        use.ports.update(host_ports(spec))
        self._select(use, metadata)
        namespace, labels = self.pod.namespace, self.pod.labels
        own = text_at(metadata, "namespace")
        for term in pod_terms(value_at(spec, "affinity", "podAntiAffinity"), own):
            if term.selects(namespace, labels, self.namespaces):
                use.anti_affinity_keys.add(term.key)

    def _select(self, use: NodeUse, metadata: Mapping[str, Any]) -> None:
        pod = self.pod
        if not (pod.affinity or pod.anti_affinity or pod.spread):
            return
        namespace, labels = text_at(metadata, "namespace"), as_texts(metadata.get("labels"))
        seen = [t.selects(namespace, labels, self.namespaces) for t in pod.affinity]
        use.affinity_pods += bool(seen) and all(seen)
        for place, term in enumerate(pod.anti_affinity):
            use.anti_affinity_pods[place] += term.selects(namespace, labels, self.namespaces)
        if namespace == pod.namespace and not metadata.get("deletionTimestamp"):
            for place, rule in enumerate(pod.spread):
                # The scheduler counts no pods for a selector that selects all.
                use.spread[place] += bool(_parts(rule.selector)) and selects(rule.selector, labels)


def pod_terms(affinity: object, namespace: str) -> tuple[PodTerm, ...]:
    """Reads the required terms of a podAffinity or podAntiAffinity of a pod in a namespace."""
    terms = []
    for term in dicts(value_at(affinity, REQUIRED)):
        listed = [name for name in as_list(term.get("namespaces")) if isinstance(name, str)]
        selector = term.get("namespaceSelector")
        if not listed and selector is None:
            listed = [namespace]
        terms.append(
            PodTerm(
                text_at(term, "topologyKey"), frozenset(listed), selector, term.get("labelSelector")
            )
        )
    return tuple(terms)


def host_ports(spec: Mapping[str, Any]) -> Iterable[Port]:
    """Yields the host ports that a pod uses, with those of its sidecars."""
    sidecars = filter(is_sidecar, dicts(spec.get("initContainers")))
    for container in (*sidecars, *dicts(spec.get("containers"))):
        for port in dicts(container.get("ports")):
            number = port.get("hostPort")
            if isinstance(number, int) and number > 0:
                address, protocol = port.get("hostIP"), port.get("protocol")
                yield str(address or ANY_ADDRESS), str(protocol or "TCP"), number


def _spread_rules(constraints: object, labels: Labels) -> Iterable[SpreadRule]:
    for each in dicts(constraints):
        if each.get("whenUnsatisfiable") != "DoNotSchedule":
            continue
        selector = each.get("labelSelector")
        same = [key for key in as_list(each.get("matchLabelKeys")) if key in labels]
        if same and isinstance(selector, dict):
            wanted = {**as_map(selector.get("matchLabels")), **{key: labels[key] for key in same}}
            selector = {**selector, "matchLabels": wanted}
        yield SpreadRule(
            text_at(each, "topologyKey"),
            selector,
            _number(each.get("maxSkew")),
            _number(each.get("minDomains")),
            each.get("nodeAffinityPolicy") != "Ignore",
            each.get("nodeTaintsPolicy") == "Honor",
        )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 1


def _parts(selector: object) -> list[Any]:
    fields = as_map(selector)
    return [part for key in ("matchLabels", "matchExpressions") if (part := fields.get(key))]
