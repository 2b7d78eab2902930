"""Decides which pod gets which node, by a placement. A seat is a place for one pod on a node.

    Placement, Nodes of groups  -->  Seats  --take(pod, workload)-->  the name of a node, or None

A StatefulSet's pods differ by their ordinals, a DaemonSet's by the nodes that they are for; those
of other workloads are interchangeable. `left` counts the seats that no pod has taken.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.rehearsal.scenario.borrowing import nodes_of_pod
from kwok_operator.rehearsal.scenario.placement import Placement


class Workload(NamedTuple):
    """A workload, or a pod without one; `kind` is in lower case."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def names_of_places(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the name of each Node of a group, by group and number, such as general/0."""
    groups = defaultdict[str, list[str]](list)
    for node in nodes:
        if group := text_at(node, "metadata", "labels", NODE_GROUP_LABEL):
            groups[group].append(text_at(node, "metadata", "name"))
    return {
        f"{group}/{number}": name
        for group, names in groups.items()
        for number, name in enumerate(sorted(names))
    }


class Seats:
    """The free seats. `names` are the names of nodes by group and number."""

    def __init__(self, placement: Placement, names: Mapping[str, str]) -> None:
        self._free: dict[Workload, dict[str, int]] = {}
        self._ordinals: dict[Workload, dict[str, str]] = {}
        self.nowhere: dict[str, int] = defaultdict(int)
        """The number of pods whose place has no node, by place."""
        for each in placement.pods:
            kind, _, name = each.what.partition("/")
            workload = Workload(kind, each.namespace, name)
            free = {names[at]: count for at, count in each.on.items() if at in names}
            ordinals = {n: names[at] for n, at in each.ordinals.items() if at in names}
            for at, count in [*each.on.items(), *((at, 1) for at in each.ordinals.values())]:
                if at not in names:
                    self.nowhere[at] += count
            if free:
                self._free[workload] = free
            if ordinals:
                self._ordinals[workload] = ordinals

    def take(self, pod: Mapping[str, Any], workload: Workload) -> str | None:
        """Takes a seat for a pod, and returns the name of its node; None if the workload has no
        seat left for this pod.
        """
        ordinals = self._ordinals.get(workload, {})
        ordinal = text_at(pod, "metadata", "name").removeprefix(f"{workload.name}-")
        if ordinal in ordinals:
            return ordinals.pop(ordinal)
        free = self._free.get(workload, {})
        meant = nodes_of_pod(pod) if workload.kind == "daemonset" else free
        node = next((node for node in meant if free.get(node)), None)
        if node is not None:
            free[node] -= 1
            if not free[node]:
                del free[node]
        return node

    @property
    def left(self) -> dict[Workload, int]:
        """The number of seats that no pod has taken, by workload."""
        counts = Counter({workload: sum(free.values()) for workload, free in self._free.items()})
        counts.update({workload: len(nodes) for workload, nodes in self._ordinals.items()})
        return dict(+counts)


def workloads_of(
    pods: Iterable[Mapping[str, Any]], replica_sets: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Workload]]:
    """Yields each pod with its workload: a Deployment rather than its ReplicaSet."""
    owners = {text_at(each, "metadata", "uid"): _owner(each) for each in replica_sets}
    for pod in pods:
        namespace = text_at(pod, "metadata", "namespace")
        owner = _owner(pod)
        above = owners.get(text_at(owner, "uid"))
        known = above or owner or {"kind": "Pod", "name": value_at(pod, "metadata", "name")}
        kind, name = text_at(known, "kind").lower(), text_at(known, "name")
        yield pod, Workload(kind, namespace, name)


def _owner(body: Mapping[str, Any]) -> Mapping[str, Any]:
    owners = map(as_map, as_list(value_at(body, "metadata", "ownerReferences")))
    return next((each for each in owners if each.get("controller")), {})
