"""Decides which pods a profile is for: as a Stage's selector, and in Python.

A Stage sees only the pod, neither its namespace nor its node. So namespaces that are selected by
labels are given by name, and a node's group is read from its name. If several profiles select a
pod, the Stages of all but the first in rank exclude it: otherwise kwok would choose among the
Stages at random.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.api.selectors import SelectorOperator, SelectorRequirement
from kwok_operator.podprofiles.api import KwokPodProfileSpec, LabelSelector

# Without a regular expression, which jq would compile again for each pod.
_JQ_GROUP: Final = '(.spec.nodeName // "" | .[:rindex("-") // 0] | .[:rindex("-") // 0])'

Expression = dict[str, Any]
"""One entry of a Stage's matchExpressions."""


def expression(key: str, operator: str, *values: str) -> Expression:
    parts: Expression = {"key": key, "operator": operator}
    return parts | ({"values": list(values)} if values else {})


def text(value: str) -> str:
    """Quotes a text for jq, so that nothing in it can end the string, or count as an
    interpolation."""
    return json.dumps(value)


@dataclass(frozen=True, slots=True)
class Pod:
    """Those fields of a pod that decide what happens to it."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node: str = ""
    restart_policy: str = "Always"
    grace_seconds: int = 30
    init_containers: tuple[bool, ...] = ()
    """For each init container, whether it is a sidecar."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "Pod":
        """Reads a pod's manifest."""
        metadata, spec = manifest.get("metadata") or {}, manifest.get("spec") or {}
        inits = spec.get("initContainers") or ()
        grace = spec.get("terminationGracePeriodSeconds")
        return cls(
            namespace=metadata.get("namespace") or "default",
            name=metadata.get("name") or "",
            labels=metadata.get("labels") or {},
            annotations=metadata.get("annotations") or {},
            node=spec.get("nodeName") or "",
            restart_policy=spec.get("restartPolicy") or "Always",
            grace_seconds=30 if grace is None else grace,
            init_containers=tuple(c.get("restartPolicy") == "Always" for c in inits),
        )


def labels_match(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches these labels; None matches all."""
    if selector is None:
        return True
    return all(labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        _requirement_met(each, labels) for each in selector.match_expressions
    )


def may_both_match(one: LabelSelector | None, other: LabelSelector | None) -> bool:
    """Whether one object could match both selectors. Only their matchLabels are compared."""
    mine, theirs = (each.match_labels if each else {} for each in (one, other))
    return all(theirs.get(key, value) == value for key, value in mine.items())


def _requirement_met(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    has = requirement.key in labels
    match requirement.operator:
        case SelectorOperator.EXISTS:
            return has
        case SelectorOperator.DOES_NOT_EXIST:
            return not has
        case SelectorOperator.IN:
            return has and labels[requirement.key] in requirement.values
    return not has or labels[requirement.key] not in requirement.values


@dataclass(frozen=True, slots=True)
class Scope:
    """The pods that a profile is for."""

    pods: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    """The names of the namespaces; None is all."""
    node_groups: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: KwokPodProfileSpec, namespaces: Sequence[str] | None) -> "Scope":
        names = None if namespaces is None else tuple(sorted(set(namespaces)))
        return cls(spec.pod_selector, names, spec.node_groups)

    def takes(self, pod: Pod) -> bool:
        """Whether the profile selects a pod. The groups of nodes are ignored for a pod that isn't
        bound to a node yet."""
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        if self.node_groups and pod.node and group_of(pod.node) not in self.node_groups:
            return False
        return labels_match(self.pods, pod.labels)

    def everything(self) -> bool:
        labels = self.pods and (self.pods.match_labels or self.pods.match_expressions)
        return self.namespaces is None and not self.node_groups and not labels

    def may_overlap(self, other: "Scope") -> bool:
        """Whether this scope and the other one may select the same pod. Only namespaces, groups and
        matchLabels are compared."""
        for mine, theirs in (
            (self.namespaces, other.namespaces),
            (self.node_groups or None, other.node_groups or None),
        ):
            if mine is not None and theirs is not None and not set(mine) & set(theirs):
                return False
        return may_both_match(self.pods, other.pods)

    def match_labels(self) -> dict[str, str]:
        return dict(self.pods.match_labels) if self.pods else {}

    def expressions(self) -> list[Expression]:
        """Returns a Stage's matchExpressions, sorted by what they cost kwok."""
        expressions = []
        if self.namespaces is not None:
            expressions.append(expression(".metadata.namespace", "In", *self.namespaces))
        for each in self.pods.match_expressions if self.pods else ():
            key = f".metadata.labels[{text(each.key)}]"
            expressions.append(expression(key, each.operator.value, *each.values))
        if self.node_groups:
            expressions.append(expression(_JQ_GROUP, "In", *self.node_groups))
        return expressions

    def jq(self) -> str:
        """Returns one jq expression that says whether the profile selects the pod."""
        conditions = [
            f".metadata.labels[{text(key)}] == {text(value)}"
            for key, value in self.match_labels().items()
        ]
        conditions += [_condition(each) for each in self.expressions()]
        return " and ".join(f"({each})" for each in conditions) or "true"


def _condition(each: Expression) -> str:
    key, operator = each["key"], each["operator"]
    if operator in (SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST):
        return f"{key} {'!=' if operator == SelectorOperator.EXISTS else '=='} null"
    any_of = f"{key} as $v | any({json.dumps(each['values'])}[]; . == $v)"
    return any_of if operator == SelectorOperator.IN else f"{any_of} | not"


def group_of(node: str) -> str:
    """Returns the group in a node's name, `<group>-<hash>-<serial>`; "" if there is none."""
    return node.rpartition("-")[0].rpartition("-")[0]
