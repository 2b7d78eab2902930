"""Maps cluster-autoscaler's names of groups, nodes and pods to those in the copy of the cluster.

    Grouped, PodLocations of workloads, Anonymizer if names are hidden  --copy_of-->  ReplayCopy

Nodes and pods get new names in the copy, so their names are patterns: * stands for any characters,
? for one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kwok_operator.constants import KIND
from kwok_operator.formats import schedulertexts as texts
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.incidents.decision import BACKOFF
from kwok_operator.importing.incidents.replaying import ReplayCopy
from kwok_operator.importing.nodes.bounds import ImportedGroup, members_of
from kwok_operator.importing.nodes.nthnode import NthNode
from kwok_operator.importing.notes import Ref
from kwok_operator.importing.pods.podlocations import PodLocations
from kwok_operator.importing.pods.shape import namespace_there
from kwok_operator.nodegroups.naming import pattern_of_node

_PUBLIC: Final = frozenset(
    {
        BACKOFF,
        "max node group size reached",
        "max limit reached",
        "not ready for scale-up",
        "max total nodes in cluster reached",
        "scale-up execution failed",
        *(text for name, text in vars(texts).items() if name.isupper() and isinstance(text, str)),
    }
)
"""Reasons of cluster-autoscaler that contain no names."""
_INSUFFICIENT: Final = re.compile(r"Insufficient (\S+)")


def copy_of(
    groups: Iterable[ImportedGroup],
    *,
    ca_names: Iterable[str],
    nth: Mapping[str, NthNode],
    workloads: Mapping[Ref, PodLocations],
    anonymizer: Anonymizer | None = None,
) -> ReplayCopy:
    """Returns the map of names in the imported cluster to those in its copy. `ca_names` are the
    names of cluster-autoscaler's groups.
    """
    there = sorted(groups, key=lambda each: each.name)
    named = _Names(anonymizer)
    by_name = {name: [each.name for each in members_of(name, there)] for name in ca_names}
    known = {name for names in by_name.values() for name in names}
    by_name |= {each.name: [each.name] for each in there if each.name not in known}
    sizes = {named.group(each.name): each.size for each in there}
    return ReplayCopy(
        groups={
            ca: [named.group(name) for name in names] for ca, names in by_name.items() if names
        },
        sizes=sizes,
        nodes={
            name: pattern_of_node(named.group(each.group), each.number)
            for name, each in nth.items()
        },
        pod=_pods(workloads, named),
        text=named.reason if anonymizer else lambda reason: reason,
    )


class _Names:
    def __init__(self, anonymizer: Anonymizer | None) -> None:
        self._anonymizer = anonymizer

    def group(self, name: str) -> str:
        return self.ref(Ref(KIND, "", name)).name

    def ref(self, ref: Ref) -> Ref:
        return self._anonymizer.ref(ref) if self._anonymizer else ref

    def reason(self, text: str) -> str:
        """Returns the reason of a refusal if it is a well-known text; `Insufficient NAME` with the
        anonymous name of the resource; "" for other reasons, which may have private names.
        """
        if self._anonymizer and (match := _INSUFFICIENT.fullmatch(text)):
            return f"Insufficient {self._anonymizer.resource(match[1])}"
        return text if text in _PUBLIC else ""


def _pods(workloads: Mapping[Ref, PodLocations], named: _Names) -> Callable[[str], str]:
    """Returns a function that maps NAMESPACE/NAME of a pod to the pattern for all pods of its
    workload; empty if no known workload may have created the pod.
    """
    known = {(ref.namespace, ref.name): ref for ref in workloads}
    workload_by_pending_pod = {
        (r.namespace, name): r for r, locations in workloads.items() for name in locations.waiting
    }

    def pattern(pod: str) -> str:
        namespace, _, name = pod.partition("/")
        namespace_in_copy = namespace_there(namespace)
        if (namespace_in_copy, name) in known:  # a pod without an owner
            ref = named.ref(known[namespace_in_copy, name])
            return f"{ref.namespace}/{ref.name}"
        maker = workload_by_pending_pod.get((namespace_in_copy, name))
        while name and maker is None:  # the pod was created after the workload was read
            name = name.rpartition("-")[0]
            maker = known.get((namespace_in_copy, name))
        if maker is None:
            return ""
        ref = named.ref(maker)
        return f"{ref.namespace}/{ref.name}-*"

    return pattern
