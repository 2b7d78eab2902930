"""Nodes of which nobody says a pool: those that are alike are one.

    name -> what is kept of the node  --pools_by_shape-->  name -> Pool

Alike are nodes with the same resources, taints and labels. Machines of one type differ a little in
memory, and some labels are different on each node: neither makes a pool of its own.
"""

import base64
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.importing.nodes.pools import Pool, instance_type
from kwok_operator.importing.nodes.template import Kept

SOURCE: Final = "shape"
_MEMORY_TOLERANCE: Final = Fraction(15, 1000)
"""As cluster-autoscaler takes node groups for similar."""
_FEW_VALUES: Final = 3
_OF_A_PLACE = re.compile(r"(.*[/-])?(zone|region|zone-id)")
_NOT_COMPARED = re.compile(r"memory|ephemeral-storage|attachable-volumes-.*")
_HASH_LENGTH: Final = 5


def pools_by_shape(nodes: Mapping[str, Kept]) -> dict[str, Pool]:
    """Groups are split by zone elsewhere: labels of places are not compared."""
    found: dict[str, Pool] = {}
    by_resources: dict[str, list[str]] = defaultdict(list)
    for name in sorted(nodes):
        by_resources[_resources(nodes[name])].append(name)
    for alike in by_resources.values():
        for names in _by_memory(alike, nodes):
            noise = _labels_of_single_nodes([nodes[name]["labels"] for name in names])
            first = nodes[names[0]]
            for name in names:
                said = {
                    k: v
                    for k, v in nodes[name]["labels"].items()
                    if k not in noise and not _OF_A_PLACE.fullmatch(k)
                }
                rest = [said, nodes[name]["taints"], _resources(nodes[name]), _memory(first)]
                found[name] = Pool(SOURCE, _title(first), (_digest(rest),))
    return found


def _resources(kept: Kept) -> str:
    amounts = {
        name: str(parse_quantity(text))
        for name, text in kept["capacity"].items()
        if not _NOT_COMPARED.fullmatch(name)
    }
    labels = kept["labels"]
    kind = [labels.get(key) for key in (constants.ARCH_LABEL, constants.OS_LABEL)]
    return json.dumps([amounts, kind, instance_type(labels)], sort_keys=True)


def _memory(kept: Kept) -> str:
    return str(kept["capacity"]["memory"])


def _by_memory(names: Sequence[str], nodes: Mapping[str, Kept]) -> list[list[str]]:
    """Each has hardly more than the one before it; the smallest comes first."""
    amounts = sorted((parse_quantity(_memory(nodes[name])), name) for name in names)
    found: list[list[str]] = []
    last = Fraction(0)
    for amount, name in amounts:
        if not found or amount - last > amount * _MEMORY_TOLERANCE:
            found.append([])
        found[-1].append(name)
        last = amount
    return found


def _labels_of_single_nodes(labels: Sequence[Mapping[str, str]]) -> set[str]:
    """Keys with too many values to say anything of a pool."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for each in labels:
        for key, value in each.items():
            values[key][value] += 1
    most = max(_FEW_VALUES, len(labels) // 2)
    return {key for key, found in values.items() if len(found) > most}


def _title(kept: Kept) -> str:
    """`m5.large`, or `8cpu-31gi`."""
    if named := instance_type(kept["labels"]):
        return named
    cpu, memory = (parse_quantity(kept["capacity"][name]) for name in ("cpu", "memory"))
    return f"{float(cpu):g}cpu-{round(memory / 2**30)}gi"


def _digest(value: Any) -> str:
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:_HASH_LENGTH]
