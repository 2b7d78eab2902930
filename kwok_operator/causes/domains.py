"""Checks which nodes a pod can't use because of the other pods in a topology domain, such as a
zone.

The rules are those of the scheduler's plugins PodTopologySpread and InterPodAffinity in Kubernetes
1.36. Counts that are the same for all nodes are made once, in the constructor of `Domains`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kwok_operator.causes.nodematch import FitNode, NodeRules
from kwok_operator.causes.podsonnodes import PodsOnNodes, PodTerm, SpreadRule
from kwok_operator.formats import schedulertexts as texts
from kwok_operator.formats.podparts import selects

Domain = tuple[str, str]
"""A topology domain: the key and the value of a label of nodes."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a node doesn't take the pod. `detail` names what the reason is about, such as a taint.

    If the reason is about a resource, `free` is how much of it no pod uses on the node, and `most`
    is how much of it the node has for pods.
    """

    reason: str
    detail: str = ""
    resource: str = ""
    free: float = 0.0
    most: float = 0.0


class Domains:
    """How many pods each topology domain has. Only pods that the rules of one waiting pod consider
    are counted.
    """

    def __init__(self, pods: PodsOnNodes, rules: NodeRules, nodes: Sequence[FitNode]) -> None:
        self._pod = pod = pods.pod
        self._affinity_domains: set[Domain] = set()
        self._anti_affinity_domains: set[tuple[int, str]] = set()
        self._unwanted_domains: set[Domain] = set()
        for node in nodes:
            if not (use := pods.of_node.get(node.name)):
                continue
            if use.affinity_pods:
                keys = (term.key for term in pod.affinity)
                self._affinity_domains |= {
                    (key, node.labels[key]) for key in keys if key in node.labels
                }
            for place, term in enumerate(pod.anti_affinity):
                if use.anti_affinity_pods[place] and term.key in node.labels:
                    self._anti_affinity_domains.add((place, node.labels[term.key]))
            self._unwanted_domains |= {
                (key, node.labels[key]) for key in use.anti_affinity_keys if key in node.labels
            }
        own = pod.namespace, pod.labels, pods.namespaces
        self._first = not self._affinity_domains and all(
            term.selects(*own) for term in pod.affinity
        )
        self._spread = _spread(pods, rules, nodes)

    def spread_obstacles(self, node: FitNode) -> Iterator[Obstacle]:
        """Yields the first spread rule that the pod would break on a node."""
        for rule, counts in zip(self._pod.spread, self._spread, strict=True):
            if rule.key not in node.labels:
                yield Obstacle(texts.SPREAD_LABEL, f"no label {rule.key}")
                return
            if not counts:  # no node is eligible for this rule
                continue
            least = min(counts.values()) if len(counts) >= rule.least_domains else 0
            value = node.labels[rule.key]
            here = counts.get(value, 0)
            if here + selects(rule.selector, self._pod.labels) - least > rule.most_skew:
                detail = f"{rule.key}={value} has {here} such pods, the least is {least}"
                yield Obstacle(texts.SPREAD, f"{detail}, maxSkew is {rule.most_skew}")
                return

    def affinity_obstacles(self, node: FitNode) -> Iterator[Obstacle]:
        """Yields how a node breaks the affinity or anti-affinity of the pod or of pods on it."""
        if lacks := self._far(node):
            yield Obstacle(texts.POD_AFFINITY, lacks)
            return
        for place, term in enumerate(self._pod.anti_affinity):
            if (place, node.labels.get(term.key)) in self._anti_affinity_domains:
                yield Obstacle(texts.ANTI_AFFINITY, _at(term, node))
                return
        for key, value in self._unwanted_domains:
            if node.labels.get(key) == value:
                detail = f"a pod in {key}={value} shuns this one"
                yield Obstacle(texts.EXISTING_ANTI_AFFINITY, detail)
                return

    def _far(self, node: FitNode) -> str:
        """Returns in words which podAffinity term of the pod the node doesn't meet; empty if it
        meets all terms.
        """
        for term in self._pod.affinity:
            if term.key not in node.labels:
                return f"no label {term.key}"
        for term in self._pod.affinity:
            # The first of several pods that have affinity to each other may go to any node.
            if (term.key, node.labels[term.key]) not in self._affinity_domains and not self._first:
                return f"no pod that it wants to be near is in {_domain(term, node)}"
        return ""


def _at(term: PodTerm, node: FitNode) -> str:
    return f"a pod that it must be apart from is in {_domain(term, node)}"


def _domain(term: PodTerm, node: FitNode) -> str:
    return f"{term.key}={node.labels[term.key]}"


def _spread(pods: PodsOnNodes, rules: NodeRules, nodes: Sequence[FitNode]) -> list[Counter[str]]:
    """Returns for each spread rule how many pods each domain has, over the eligible nodes."""
    spread = pods.pod.spread
    counts: list[Counter[str]] = [Counter() for _ in spread]
    for node in nodes if spread else ():
        if not all(rule.key in node.labels for rule in spread):
            continue
        use = pods.use(node.name)
        for place, (rule, count) in enumerate(zip(spread, counts, strict=True)):
            if _counts(rule, rules, node):
                count[node.labels[rule.key]] += use.spread[place]
    return counts


def _counts(rule: SpreadRule, rules: NodeRules, node: FitNode) -> bool:
    return not (rule.honors_affinity and rules.unmet(node)) and not (
        rule.honors_taints and rules.untolerated(node)
    )
