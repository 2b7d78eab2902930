"""Makes the placement of an import: on which nodes its pods are when a rehearsal starts.

    the PodLocations of each workload, and the nth node of its group by name
        --placement_of-->  ImportedPlacement  --renamed, with --anonymize-->  --as_json-->  the file

placement.json has the form of a scenario's field `placement`, whose fields are in
rehearsal/scenario/placement.py. Nodes are written GROUP/NUMBER, as they get other names elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kwok_operator.constants import KIND
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.importing.ledger import WRITER
from kwok_operator.importing.nodes.nthnode import NodeBarrier, NthNode
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.podlocations import PodLocations

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class WorkloadPlacement:
    """The pods of a workload, or one pod without an owner.

    `on` has the number of pods by node; `ordinals` maps the ordinals of a StatefulSet's pods to
    their nodes. `pending` has the creation time of each pod without a node, "" if the time is
    unknown.
    """

    ref: Ref
    on: Mapping[NthNode, int]
    ordinals: Mapping[int, NthNode]
    pending: Sequence[str]


@dataclass(frozen=True, slots=True)
class ImportedPlacement:
    """On which node each pod was, and the taints and the like that kept pods off single nodes."""

    pods: Sequence[WorkloadPlacement]
    barriers: Mapping[NthNode, NodeBarrier]

    @property
    def pending(self) -> int:
        """The number of pods that had no node."""
        return sum(len(each.pending) for each in self.pods)

    def renamed(
        self, rename: Callable[[Ref], Ref], taint: Callable[[Any], Any]
    ) -> "ImportedPlacement":
        """Returns the placement with the names that `rename` and the taints that `taint` returns,
        sorted by the new names.
        """

        def node(nth: NthNode) -> NthNode:
            return NthNode(rename(Ref(KIND, "", nth.group)).name, nth.number)

        pods = [
            WorkloadPlacement(
                rename(each.ref),
                {node(nth): count for nth, count in each.on.items()},
                {ordinal: node(nth) for ordinal, nth in each.ordinals.items()},
                each.pending,
            )
            for each in self.pods
        ]
        barriers = {
            node(nth): replace(each, taints=tuple(map(taint, each.taints)))
            for nth, each in self.barriers.items()
        }
        return ImportedPlacement(sorted(pods, key=lambda each: each.ref), barriers)


def placement_of(
    locations: Mapping[Ref, PodLocations],
    *,
    nth: Mapping[str, NthNode],
    barriers: Mapping[NthNode, NodeBarrier],
) -> tuple[ImportedPlacement, list[Note]]:
    """Returns the placement, and notes on pods that were pending, or whose node isn't imported."""
    pods, notes = [], []
    for ref, located in sorted(locations.items()):
        on = Counter[NthNode]()
        for name, count in located.nodes.items():
            if name in nth:
                on[nth[name]] += count
        ordinals = {n: nth[name] for n, name in sorted(located.ordinals.items()) if name in nth}
        bound = located.nodes.total() + sum(map(bool, located.ordinals.values()))
        lost = bound - on.total() - len(ordinals)
        if lost:
            notes.append(Note(ref, Reason.STOOD_ELSEWHERE, count=lost))
        since = sorted(map(_time, located.pending))
        if since:
            oldest = min(filter(None, since), default="")
            detail = f"the oldest since {oldest}" if oldest else ""
            notes.append(Note(ref, Reason.PENDING, detail=detail, count=len(since)))
        if on or ordinals or since:
            pods.append(WorkloadPlacement(ref, dict(sorted(on.items())), ordinals, since))
    return ImportedPlacement(pods, dict(sorted(barriers.items()))), notes


def as_json(placement: ImportedPlacement) -> dict[str, Any]:
    """Returns the content of placement.json."""
    return {
        "writer": WRITER,
        "format": FORMAT,
        "nodes": {
            str(nth): _barrier(barrier) for nth, barrier in sorted(placement.barriers.items())
        },
        "pods": [dict(_pods(each)) for each in placement.pods],
    }


def _barrier(barrier: NodeBarrier) -> dict[str, Any]:
    fields: dict[str, Any] = {"cordoned": True} if barrier.cordoned else {}
    return fields | (
        {"taints": [dict(taint) for taint in barrier.taints]} if barrier.taints else {}
    )


def _pods(pods: WorkloadPlacement) -> Iterator[tuple[str, Any]]:
    yield "what", f"{pods.ref.kind.lower()}/{pods.ref.name}"
    yield "namespace", pods.ref.namespace
    if pods.on:
        yield "on", {str(nth): count for nth, count in sorted(pods.on.items())}
    if pods.ordinals:
        yield "ordinals", {str(n): str(nth) for n, nth in pods.ordinals.items()}
    if pods.pending:
        yield "pending", list(pods.pending)


def _time(text: str) -> str:
    try:
        return format_time(parse_time(text))
    except ValueError:
        return ""
