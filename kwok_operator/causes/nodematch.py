"""Checks whether a node has the labels that a pod requires, and only taints that the pod tolerates.

The rules are those of the scheduler's plugins NodeAffinity and TaintToleration in Kubernetes 1.36
(component-helpers/scheduling/corev1). What doesn't match is returned in words.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.causes.podsonnodes import REQUIRED
from kwok_operator.formats.podparts import amounts, dicts, meets
from kwok_operator.formats.untyped import as_list, as_map, as_texts, text_at, value_at

_NAME: Final = "metadata.name"
_KEEPING: Final = ("NoSchedule", "NoExecute")

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FitNode:
    """The parts of a node that the scheduler's filters look at."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Manifest, ...] = ()
    """The taints that keep pods off: NoSchedule and NoExecute."""
    cordoned: bool = False
    allocatable: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Manifest) -> "FitNode":
        spec = as_map(body.get("spec"))
        return cls(
            text_at(body, "metadata", "name"),
            as_texts(value_at(body, "metadata", "labels")),
            tuple(taint for taint in dicts(spec.get("taints")) if taint.get("effect") in _KEEPING),
            spec.get("unschedulable") is True,
            amounts(value_at(body, "status", "allocatable")),
        )


@dataclass(frozen=True, slots=True)
class NodeRules:
    """A pod's tolerations, nodeSelector, and terms of required node affinity (None if none)."""

    tolerations: Sequence[Manifest]
    selector: Mapping[str, str]
    terms: Sequence[Manifest] | None

    @classmethod
    def of(cls, spec: Manifest) -> "NodeRules":
        required = value_at(spec, "affinity", "nodeAffinity", REQUIRED)
        return cls(
            dicts(spec.get("tolerations")),
            as_texts(spec.get("nodeSelector")),
            None if required is None else dicts(value_at(required, "nodeSelectorTerms")),
        )

    def tolerates(self, taint: Manifest) -> bool:
        return any(_tolerates(each, taint) for each in self.tolerations)

    def untolerated(self, node: FitNode) -> Manifest | None:
        """Returns the first taint of a node that the pod doesn't tolerate."""
        return next((taint for taint in node.taints if not self.tolerates(taint)), None)

    def unmet(self, node: FitNode) -> str:
        """Returns which of the pod's requirements the node's labels don't meet, in words; empty if
        they meet all.
        """
        wrong = [f"{k}={v}" for k, v in self.selector.items() if node.labels.get(k) != v]
        if wrong:
            return f"nodeSelector {', '.join(wrong)}"
        unmet = "" if self.terms is None else unmet_terms(self.terms, node)
        return f"node affinity {unmet}" if unmet else ""

    def named(self) -> frozenset[str] | None:
        """Returns the names of the only nodes that the terms allow; None if they name none."""
        allowed: set[str] = set()
        for term in self.terms or ():
            names = [
                set(as_list(each.get("values")))
                for each in dicts(term.get("matchFields"))
                if each.get("key") == _NAME and each.get("operator") == "In"
            ]
            if not names:
                return None
            allowed |= set.intersection(*names)
        return frozenset(allowed) or None


def unmet_terms(terms: Iterable[Manifest], node: FitNode) -> str:
    """Returns what the node doesn't meet of each term, in words; empty if it meets one term."""
    unmet = []
    for term in terms:
        labels, fields = (dicts(term.get(part)) for part in ("matchExpressions", "matchFields"))
        if not labels and not fields:
            continue  # an empty term selects no node
        wrong = [each for each in labels if not meets(_label(node, each), each)]
        wrong += [each for each in fields if not meets(_field(node, each), each)]
        if not wrong:
            return ""
        unmet.append(" and ".join(map(_in_words, wrong)))
    return "; or ".join(dict.fromkeys(unmet)) or "without a term"


def _label(node: FitNode, requirement: Manifest) -> str | None:
    return node.labels.get(text_at(requirement, "key"))


def _field(node: FitNode, requirement: Manifest) -> str | None:
    return node.name if requirement.get("key") == _NAME else ""


def _in_words(requirement: Manifest) -> str:
    values = [str(each) for each in as_list(requirement.get("values"))]
    listed = f" [{' '.join(values)}]" if values else ""
    return f"{requirement.get('key')} {requirement.get('operator')}{listed}"


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
    return False
