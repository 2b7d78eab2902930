"""Identifies a node by its group and number, as imported nodes don't keep their names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class NthNode(NamedTuple):
    """Node `number` of a group, from 0, in the order of names. As text: `group/number`."""

    group: str
    number: int

    def __str__(self) -> str:
        return f"{self.group}/{self.number}"


@dataclass(frozen=True, slots=True)
class NodeBarrier:
    """Taints and the like that keep pods off one node, and aren't in its group's template."""

    cordoned: bool
    taints: tuple[Mapping[str, str], ...]
