"""Writes a Node's place in the topology into the JSON with which the Node is created."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from kwok_operator.nodegroups.cleaning import Node, part_of


def marked(node: Node, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Node:
    """Returns a copy of the node with these labels and annotations added."""
    metadata = {**node["metadata"]}
    metadata["labels"] = {**part_of(node, "metadata", "labels"), **labels}
    metadata["annotations"] = {**part_of(node, "metadata", "annotations"), **annotations}
    return {**node, "metadata": metadata}


@dataclass(frozen=True, slots=True)
class PlacedBirth:
    """The labels and annotations with which a Node is created in its place."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def ready(self) -> bool:
        return True

    @property
    def keeps_ready_parts(self) -> bool:
        return True

    def body(self, plain: bytes, *, now: str) -> bytes:
        """Returns the Node's JSON; `plain` is what the template makes."""
        node = marked(json.loads(plain), self.labels, self.annotations)
        return json.dumps(node, separators=(",", ":")).encode()
