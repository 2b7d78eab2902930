"""Finds the Nodes in a text that users wrote.

    text  --load_documents-->  values  --nodes_of-->  NodeDocuments  --pick-->  one Node

It accepts every form in which people keep Nodes: one document, several documents, a List as kubectl
prints it. cleaning.py and merge.py check whether a Node is usable as a template.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.untyped import text_at, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.formats.yamltext import load_documents

_MAX_NODE_NAME: Final = 253
_LISTS: Final = ("List", "NodeList")
_PARTS_OF_A_NODE: Final = frozenset({"metadata", "spec", "status"})


@dataclass(frozen=True, slots=True)
class NodeDocuments:
    """The Nodes of a text, in its order, and descriptions of its other content."""

    nodes: tuple[dict[str, Any], ...]
    others: tuple[str, ...] = ()


def read_nodes(text: str, *, where: str) -> NodeDocuments:
    """Reads the Nodes of a text; raises ManifestError if it isn't YAML, or has no Node."""
    return nodes_of(load_documents(text, where=where), where=where)


def nodes_of(values: Sequence[Any], *, where: str) -> NodeDocuments:
    """Finds the Nodes among values and in Lists among them.

    Raises ManifestError if there is none, or if several have the same name.
    """
    nodes: list[dict[str, Any]] = []
    others: list[str] = []
    for place, value, in_node_list in _objects(values):
        if value is None:
            continue
        if not isinstance(value, dict):
            others.append(f"{place} (no object)")
        elif value.get("kind") == "Node" and value.get("apiVersion") == "v1":
            nodes.append(value)
        elif in_node_list and "kind" not in value and "apiVersion" not in value:
            nodes.append(value)
        else:
            others.append(_other(value, place=place))
    if not nodes:
        content = f"; it has {names_in_words(others)}" if others else ", it is empty"
        raise ManifestError(f"{where}: has no Node (apiVersion: v1, kind: Node){content}")
    _check_names(nodes, where=where)
    return NodeDocuments(nodes=tuple(nodes), others=tuple(others))


def pick(documents: NodeDocuments, name: str | None, *, where: str) -> dict[str, Any]:
    """Returns the Node of that name; if `name` is None, the only Node. If there is no such Node,
    raises ManifestError, which lists the Nodes' names."""
    names = [node_name(node) for node in documents.nodes]
    if name is None:
        if len(names) == 1:
            return documents.nodes[0]
        problem = f"has {len(names)} Nodes, and template.from.configMap.node names none"
    elif name in names:
        return documents.nodes[names.index(name)]
    else:
        problem = f"has no Node {name!r}"
    known = names_in_words(sorted(n for n in names if n)) or "one Node without a name"
    raise ManifestError(f"{where}: {problem}; there is {known}")


def node_name(node: dict[str, Any]) -> str:
    """Returns metadata.name, empty if there is none."""
    return text_at(node, "metadata", "name")


def _objects(values: Sequence[Any]) -> Iterator[tuple[str, Any, bool]]:
    """Yields each value that is no List: its position in words, the value, and whether it is in a
    NodeList."""
    for number, document in enumerate(values, start=1):
        stack = [(document, False)]
        while stack:
            value, in_node_list = stack.pop()
            kind, items = value_at(value, "kind"), value_at(value, "items")
            if kind in _LISTS and value.get("apiVersion") == "v1" and isinstance(items, list):
                stack.extend((item, kind == "NodeList") for item in reversed(items))
            else:
                yield f"document {number}", value, in_node_list


def _other(value: dict[str, Any], *, place: str) -> str:
    kind, name = value.get("kind"), node_name(value)
    if isinstance(kind, str) and kind and kind != "Node":
        return one_line(f"{kind} {name}", limit=100)
    lacking = [
        f"{key}: {right}"
        for key, right in (("apiVersion", "v1"), ("kind", "Node"))
        if value.get(key) != right
    ]
    looks_like_a_node = kind == "Node" or _PARTS_OF_A_NODE & value.keys()
    remedy = f"; write {' and '.join(lacking)}" if looks_like_a_node else ""
    what = f"no kind{remedy}" if kind != "Node" else f"Node {name}{remedy}"
    return one_line(f"{place} ({what})", limit=150)


def _check_names(nodes: Sequence[dict[str, Any]], *, where: str) -> None:
    seen: set[str] = set()
    for number, node in enumerate(nodes, start=1):
        name = node_name(node)
        given = value_at(node, "metadata", "name")
        if given is not None and not isinstance(given, str):
            value = one_line(repr(given), limit=100)
            raise ManifestError(
                f"{where}: metadata.name of a Node is {value}, and must be text; put it in quotes"
            )
        if len(name) > _MAX_NODE_NAME:
            raise ManifestError(
                f"{where}: metadata.name of a Node has {len(name)} characters; a name has at most"
                f" {_MAX_NODE_NAME}"
            )
        if not name and len(nodes) > 1:
            raise ManifestError(
                f"{where}: Node {number} of {len(nodes)} has no metadata.name; give it one, so that"
                " a group can name it"
            )
        if name and name in seen:
            raise ManifestError(f"{where}: two Nodes are called {name!r}; rename or remove one")
        seen.add(name)
