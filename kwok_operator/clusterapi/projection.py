"""Computes which Machines a group should have, and what the status of each should say.

    Fleet, Nodes, phases of the simulated cloud, Machines  --project-->  Projection

The projection is computed anew each time: nothing is kept in memory.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from kwok_operator.cloud.states import Phase
from kwok_operator.clusterapi.keys import LABELS, Keys
from kwok_operator.clusterapi.machines import (
    FailureStyle,
    MachinePhase,
    Shown,
    show_leaving,
    show_node,
    show_waiting,
)
from kwok_operator.clusterapi.objectstores import MachineRecord
from kwok_operator.clusterapi.scalable import Scalable
from kwok_operator.constants import EMULATED_NODE_GROUP, NODE_GROUP_LABEL
from kwok_operator.nodegroups.autoscaler import Fleet
from kwok_operator.nodegroups.nodecache import NodeRecord

_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Projection:
    """Which of a group's Machines to write, by name.

    `create`: missing Machines; `delete`: those whose instance is gone, also if our finalizer keeps
    them; `end`: those whose instance is being deleted: they get a deletionTimestamp at once, and
    our finalizer keeps them until the Node is gone; `relabel`: those that lack a label or their
    owner; `show`: the statuses to write, with the uids of their Nodes.
    """

    create: tuple[str, ...]
    delete: tuple[str, ...]
    end: tuple[str, ...]
    relabel: tuple[str, ...]
    show: Mapping[str, tuple[Shown, str]]


def project(
    fleet: Fleet,
    machines: Mapping[str, MachineRecord],
    *,
    nodes: Mapping[int, NodeRecord],
    leaving: Mapping[int, NodeRecord],
    phases: Mapping[int, Phase],
    deleted: Set[str],
    labels: Mapping[str, str],
    owner_uid: str,
    style: FailureStyle,
) -> Projection:
    """Compares a group's Machines with its instances.

    `nodes` are the Nodes of instances that stay, or are deleted next; `leaving` are Nodes stuck in
    deletion. `deleted` are the names of Machines that somebody has deleted: their instances are
    deleted, and these Machines are not made again.
    """
    wanted = _wanted(fleet, nodes=nodes, leaving=leaving, phases=phases, style=style)
    ending = {name for name, (shown, _) in wanted.items() if shown.phase == MachinePhase.DELETING}
    never = fleet.going | ending | deleted
    create = [name for name in wanted if name not in machines and name not in never]
    # Machines of one group usually share one object with their labels, so each such object is
    # compared once.
    label_sets = {id(machine.labels): machine.labels for machine in machines.values()}
    complete = {key for key, shared in label_sets.items() if labels.items() <= shared.items()}
    here = {name: machine for name, machine in machines.items() if not machine.deleting}
    known = [name for name in here if name in wanted and name not in deleted]
    staying = [name for name in known if name not in ending]
    ended = [name for name, machine in machines.items() if machine.deleting and machine.kept]
    return Projection(
        create=tuple(create),
        delete=tuple(name for name in (*here, *ended) if name not in wanted),
        end=tuple(name for name in known if name in ending),
        relabel=tuple(
            name
            for name in staying
            if owner_uid not in here[name].owners or id(here[name].labels) not in complete
        ),
        show={
            name: wanted[name]
            for name in (*staying, *ending.intersection(ended))
            if wanted[name][0] not in (Shown(), machines[name].shown)
        },
    )


def _wanted(
    fleet: Fleet,
    *,
    nodes: Mapping[int, NodeRecord],
    leaving: Mapping[int, NodeRecord],
    phases: Mapping[int, Phase],
    style: FailureStyle,
) -> dict[str, tuple[Shown, str]]:
    """Returns, by the name of an instance's Machine, the status that the Machine should have and
    the uid of its Node.
    """
    wanted: dict[str, tuple[Shown, str]] = {}
    for node in nodes.values():
        if node.name not in fleet.going:
            shown = show_node(node.name, ready=node.ready)
        elif node.deleting:
            # A finalizer keeps the Node. Usually the finalizer's owner waits for the Machine's
            # deletion.
            shown = show_leaving(node.name)
        else:
            shown = Shown()  # its Node is deleted without delay
        wanted[node.name] = shown, node.uid
    for node in leaving.values():
        wanted[node.name] = show_leaving(node.name), node.uid
    for serial in fleet.waiting:
        if serial < fleet.next_serial:
            wanted[fleet.names.name(serial)] = show_waiting(phases.get(serial), style=style), ""
    return wanted


def labels_annotation(scalable: Scalable) -> str:
    """Returns the annotation with the labels that cluster-autoscaler expects of a node while the
    scalable has none.

    The label that all simulated nodes have is added at the end: of two values of a label, CA uses
    the last.
    """
    pieces = [piece for piece in scalable.annotations.get(LABELS, "").split(",") if piece]
    ours = [piece for piece in pieces if piece.partition("=")[0] == NODE_GROUP_LABEL]
    wanted = f"{NODE_GROUP_LABEL}={EMULATED_NODE_GROUP}"
    return ",".join(pieces if ours[-1:] == [wanted] else [*pieces, wanted])


def default_replicas(scalable: Scalable, keys: Keys, *, before: int | None) -> int:
    """Returns the replicas that Cluster API's webhook sets if spec.replicas is missing.

    These are the minimum size, or the size `before` if there was one, moved into the bounds; 1 if a
    bound is missing.
    """
    bounds = [_bound(scalable.annotations.get(key)) for key in (keys.min_size, keys.max_size)]
    least, most = bounds
    if least is None or most is None:
        return 1
    return least if before is None else max(least, min(before, most))


def _bound(text: str | None) -> int | None:
    """Parses a bound of the size; None if it is no plausible number of machines."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        return None
    return int(text)
