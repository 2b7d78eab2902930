"""Real nodes that templates are copied from: which of them, if several fit.

    LiveNode (what is kept of each) + NodesSource  --choose-->  the newest one that fits

Heartbeats change nothing here: `digest` stands for what of a node gets into a template.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kwok_operator.models.source import NodesSource, SelectorOperator, SelectorRequirement


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A node that is not fake. `created` is in epoch seconds."""

    name: str
    uid: str
    resource_version: int
    created: float
    ready: bool
    schedulable: bool
    has_capacity: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    digest: str

    @property
    def usable(self) -> bool:
        """Whether it may be copied: Ready, not cordoned, and it says what it has."""
        return self.ready and self.schedulable and self.has_capacity


def choose(nodes: Iterable[LiveNode], source: NodesSource) -> LiveNode | None:
    """The newest usable node that a source describes; of two equally new ones the first by name."""
    fitting = [node for node in nodes if node.usable and matches(node, source)]
    return min(fitting, key=lambda node: (-node.created, node.name), default=None)


def matches(node: LiveNode, source: NodesSource) -> bool:
    """Whether a source describes a node, usable or not."""
    if source.name is not None:
        return node.name == source.name
    if source.annotation is not None:
        return node.annotations.get(source.annotation.key) == source.annotation.value
    selector = source.selector
    if selector is None:
        return False
    return all(node.labels.get(k) == v for k, v in selector.match_labels.items()) and all(
        _meets(node.labels, requirement) for requirement in selector.match_expressions
    )


def _meets(labels: Mapping[str, str], requirement: SelectorRequirement) -> bool:
    # As in Kubernetes, NotIn holds for a node without the label.
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN:
            return value in requirement.values
        case SelectorOperator.NOT_IN:
            return value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None


def in_words(source: NodesSource) -> str:
    """A source as a phrase: `labelled pool=batch`, `called web-1`."""
    if source.name is not None:
        return f"called {source.name}"
    if source.annotation is not None:
        return f"annotated {source.annotation.key}={source.annotation.value}"
    selector = source.selector
    labels = [f"{k}={v}" for k, v in selector.match_labels.items()] if selector else []
    for r in selector.match_expressions if selector else ():
        values = f" ({', '.join(r.values)})" if r.values else ""
        labels.append(f"{r.key} {r.operator}{values}")
    return f"labelled {', '.join(labels)}" if labels else "at all"
