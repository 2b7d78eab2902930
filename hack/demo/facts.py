"""What the cluster's answers say, for the demo to check and to show. Pure.

Objects are as `kubectl get -o json` gives them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kwok_operator.constants import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL

Object = Mapping[str, Any]


def running_on(pods: Iterable[Object]) -> Counter[str]:
    """Count the running pods of each node."""
    return Counter(pod["spec"]["nodeName"] for pod in pods if _runs(pod))


def running(pods: Iterable[Object]) -> list[str]:
    """Name the running pods, in order."""
    return sorted(pod["metadata"]["name"] for pod in pods if _runs(pod))


def by_label(pods_on: Counter[str], nodes: Iterable[Object], *, label: str) -> Counter[str]:
    """Add up pods of nodes by the value of a label of the nodes."""
    pods: Counter[str] = Counter()
    for node in nodes:
        pods[label_of(node, label)] += pods_on[node["metadata"]["name"]]
    return pods


def label_of(node: Object, name: str) -> str:
    """Return the value of a label, or nothing where a node has none."""
    return str(node["metadata"].get("labels", {}).get(name, ""))


def identities(pasted: Object) -> list[str]:
    """List what belongs to the one machine that a node was pasted from, and to no other."""
    metadata, spec, status = pasted["metadata"], pasted["spec"], pasted["status"]
    info = status["nodeInfo"]
    return [
        metadata["name"],
        metadata["uid"],
        spec["providerID"].rsplit("/", 1)[-1],
        *(info[key] for key in ("machineID", "systemUUID", "bootID")),
        *(address["address"] for address in status["addresses"]),
        *status.get("volumesInUse", ()),
    ]


def traces(pasted: Object, made: Object) -> list[str]:
    """List the identities of the pasted machine that occur anywhere in the node made from it."""
    text = json.dumps(made)
    return [identity for identity in identities(pasted) if identity in text]


def comparison(pasted: Object, made: Object) -> list[tuple[str, str, str]]:
    """Return rows of what became of the pasted node: what, in the paste, in the node."""
    return [(what, _text(read(pasted)), _text(read(made))) for what, read in _COMPARED]


def in_words(seen: Mapping[str, int] | Sequence[str]) -> str:
    """Write counts as `even: 6, odd: 5`, and names one after the other."""
    if isinstance(seen, Mapping):
        return ", ".join(f"{name}: {count}" for name, count in sorted(seen.items()))
    return ", ".join(seen)


def abridged(lines: Sequence[str], *, names: Iterable[str], width: int = 160) -> list[str]:
    """Shorten output that says the same of many names: the first of a kind, then how many more."""
    anyone = re.compile("|".join(map(re.escape, names)) or "$^")
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(anyone.sub("", line), []).append(line)
    short = []
    for first, *more in kinds.values():
        short.append(first if len(first) <= width else f"{first[: width - 3]}...")
        if more:
            short.append(f"  (and {len(more)} more like it)")
    return short


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _runs(pod: Object) -> bool:
    # A pod on its way out still has the phase it had.
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _text(value: object) -> str:
    if isinstance(value, list):
        return str(len(value)) if value else "-"
    return str(value) if value is not None else "-"


def _label(name: str) -> Callable[[Object], object]:
    return lambda node: node["metadata"]["labels"].get(name)


def _address(kind: str) -> Callable[[Object], object]:
    return lambda node: next(
        (a["address"] for a in node["status"].get("addresses", ()) if a["type"] == kind), None
    )


_COMPARED: tuple[tuple[str, Callable[[Object], object]], ...] = (
    ("name", lambda node: node["metadata"]["name"]),
    ("hostname label", _label(HOSTNAME_LABEL)),
    ("instance-id label", _label("alpha.eksctl.io/instance-id")),
    ("spec.providerID", lambda node: node["spec"].get("providerID")),
    ("ExternalIP", _address("ExternalIP")),
    ("images", lambda node: node["status"].get("images", [])),
    ("volumes attached", lambda node: node["status"].get("volumesAttached", [])),
    ("instance type", _label(INSTANCE_TYPE_LABEL)),
    ("zone", _label(ZONE_LABEL)),
    ("CPU for pods", lambda node: node["status"]["allocatable"]["cpu"]),
    ("memory for pods", lambda node: node["status"]["allocatable"]["memory"]),
    ("taints", lambda node: ", ".join(sorted(t["key"] for t in node["spec"].get("taints", [])))),
)
