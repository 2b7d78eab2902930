"""Finds out what keeps a pod off nodes, by the scheduler's filters.

    a pod, its claims, PodsOnNodes, nodes --fit--> Fit: each reason, on how many nodes, details

The reasons are in the scheduler's own words (schedulertexts.py). As in the scheduler, a node gets
the reasons of the first filter that rejects it, in the order of the default plugins of Kubernetes
1.36 (pkg/scheduler/apis/config/v1/default_plugins.go). Not computed are: limits of volumes of a CSI
driver, volumes that are yet to be provisioned, devices (DRA), third-party plugins, and the effect
of preemption. This only reads: it moves no pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.causes.domains import Domains, Obstacle
from kwok_operator.causes.nodematch import FitNode, NodeRules, unmet_terms
from kwok_operator.causes.podsonnodes import ANY_ADDRESS, PodsOnNodes, Port
from kwok_operator.constants import ZONE_LABEL
from kwok_operator.formats import schedulertexts as texts
from kwok_operator.formats.podparts import dicts
from kwok_operator.formats.untyped import value_at
from kwok_operator.formats.words import few_names

NOT_NAMED: Final = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_CORDON: Final = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_TODAYS: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_PLACES: Final = frozenset({*_TODAYS, *_TODAYS.values()})


@dataclass(frozen=True, slots=True)
class FitClaim:
    """A PersistentVolumeClaim of the pod, with what its volume requires of a node."""

    name: str
    problem: str = ""
    """Why this claim keeps the pod off all nodes, in the scheduler's words; empty if it doesn't."""
    affinity: object = None
    """The volume's required node affinity; None if any node can use the volume."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The volume's labels: old volumes name their zone only in a label."""


@dataclass(slots=True)
class KeptOff:
    """One reason with its detail, and how many nodes it keeps the pod off. For a resource, `free`
    and `most` are the highest values on any of these nodes.
    """

    reason: str
    detail: str = ""
    resource: str = ""
    nodes: int = 0
    example: str = ""
    free: float = 0.0
    most: float = 0.0


@dataclass(frozen=True, slots=True)
class Fit:
    """How many nodes exist, how many would take the pod, and what keeps it off the other nodes."""

    nodes: int
    takes: int = 0
    example: str = ""
    """The name of a node that would take the pod; empty if there is none."""
    kept_off: tuple[KeptOff, ...] = ()
    """The reasons of the nodes that don't take the pod; the reason of most nodes comes first."""
    pod: str = ""
    """Why no node can take the pod, if the reason lies in the pod; in the scheduler's words."""

    def reasons(self) -> dict[str, int]:
        """Returns, for each reason, how many nodes it applies to, as in the scheduler's message."""
        counts: dict[str, int] = {}
        for each in self.kept_off:
            counts[each.reason] = counts.get(each.reason, 0) + each.nodes
        return counts


def fit(pods: PodsOnNodes, nodes: Sequence[FitNode], claims: Sequence[FitClaim] = ()) -> Fit:
    """Checks the waiting pod, `pods.pod`, against each node."""
    if problem := next((claim.problem for claim in claims if claim.problem), ""):
        return Fit(len(nodes), pod=problem)
    filters = _Filters(pods, nodes, claims)
    kept_off: dict[tuple[str, str], KeptOff] = {}
    takes, example = 0, ""
    for node in nodes:
        obstacles = filters.obstacles(node)
        for each in obstacles:
            key = each.reason, each.detail
            kept = kept_off.setdefault(key, KeptOff(*key, each.resource, example=node.name))
            kept.nodes += 1
            kept.free, kept.most = max(kept.free, each.free), max(kept.most, each.most)
        if not obstacles:
            takes, example = takes + 1, example or node.name
    ordered = sorted(kept_off.values(), key=lambda each: (-each.nodes, each.reason, each.detail))
    return Fit(len(nodes), takes, example, tuple(ordered))


class _Filters:
    """The scheduler's filters for one pod, with the values that are the same for all nodes."""

    def __init__(
        self, pods: PodsOnNodes, nodes: Sequence[FitNode], claims: Sequence[FitClaim]
    ) -> None:
        self._pods = pods
        self._claims = claims
        self._rules = NodeRules.of(pods.pod.spec)
        self._names = self._rules.named()
        self._domains = Domains(pods, self._rules, nodes)

    def obstacles(self, node: FitNode) -> list[Obstacle]:
        """Returns the reasons of the first filter that rejects the node; empty if the node takes
        the pod.
        """
        for filtered in (
            self._not_named,
            self._cordoned,
            self._tainted,
            self._not_selected,
            self._ports_taken,
            self._insufficient,
            self._volumes_elsewhere,
            self._volumes_in_other_zones,
            self._domains.spread_obstacles,
            self._domains.affinity_obstacles,
        ):
            if obstacles := list(filtered(node)):
                return obstacles
        return []

    def _not_named(self, node: FitNode) -> Iterator[Obstacle]:
        if self._names is not None and node.name not in self._names:
            yield Obstacle(NOT_NAMED, f"the pod is for {few_names(self._names)}")

    def _cordoned(self, node: FitNode) -> Iterator[Obstacle]:
        if node.cordoned and not self._rules.tolerates(_CORDON):
            yield Obstacle(texts.UNSCHEDULABLE, "cordoned")

    def _tainted(self, node: FitNode) -> Iterator[Obstacle]:
        if taint := self._rules.untolerated(node):
            value = f"={taint['value']}" if taint.get("value") else ""
            yield Obstacle(texts.TAINTS, f"{taint.get('key')}{value}:{taint.get('effect')}")

    def _not_selected(self, node: FitNode) -> Iterator[Obstacle]:
        if unmet := self._rules.unmet(node):
            yield Obstacle(texts.NODE_AFFINITY, unmet)

    def _ports_taken(self, node: FitNode) -> Iterator[Obstacle]:
        used = self._pods.use(node.name).ports
        for port in self._pods.pod.ports:
            if any(_conflict(port, other) for other in used):
                yield Obstacle(texts.PORTS, f"port {port[2]}/{port[1]} is in use")
                return

    def _insufficient(self, node: FitNode) -> Iterator[Obstacle]:
        use = self._pods.use(node.name)
        if use.pods + 1 > (most := node.allocatable.get("pods", 0)):
            yield Obstacle(texts.TOO_MANY_PODS, resource="pods", most=most)
        for resource, amount in self._pods.pod.requests.items():
            most = node.allocatable.get(resource, 0)
            free = max(most - use.requests.get(resource, 0), 0)
            if amount > free:
                reason = texts.insufficient(resource)
                yield Obstacle(reason, resource=resource, free=free, most=most)

    def _volumes_elsewhere(self, node: FitNode) -> Iterator[Obstacle]:
        for claim in self._claims:
            if claim.affinity is not None:
                terms = dicts(value_at(claim.affinity, "nodeSelectorTerms"))
                if unmet := unmet_terms(terms, node):
                    yield Obstacle(texts.VOLUME_NODE, f"claim {claim.name}: {unmet}")
                    return

    def _volumes_in_other_zones(self, node: FitNode) -> Iterator[Obstacle]:
        if not _PLACES & node.labels.keys():  # nodes without zone labels pass, as in the scheduler
            return
        for claim in self._claims:
            for key in sorted(_PLACES & claim.labels.keys()):
                here = node.labels.get(key, node.labels.get(_TODAYS.get(key, key)))
                if here not in claim.labels[key].split("__"):
                    detail = f"claim {claim.name}: {key}={claim.labels[key]}"
                    yield Obstacle(texts.VOLUME_ZONE, detail)
                    return


def _conflict(one: Port, other: Port) -> bool:
    return one[1:] == other[1:] and (one[0] == other[0] or ANY_ADDRESS in (one[0], other[0]))
