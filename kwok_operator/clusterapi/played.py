"""Which Machines a group is to have, and what each is to say.

    Fleet, Nodes, phases of the simulated cloud, Machines  --project-->  Projection

Made anew from what is there each time: nothing of it is remembered.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

from kwok_operator.cloud.states import Phase
from kwok_operator.clusterapi.keys import LABELS, Keys
from kwok_operator.clusterapi.machines import (
    FailureStyle,
    Shown,
    show_leaving,
    show_node,
    show_waiting,
)
from kwok_operator.clusterapi.playedobjects import MachineRecord
from kwok_operator.clusterapi.scalable import Scalable
from kwok_operator.constants import EMULATED_NODE_GROUP, NODE_GROUP_LABEL
from kwok_operator.nodegroups.autoscaler import Fleet
from kwok_operator.nodegroups.nodecache import NodeRecord

_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Projection:
    """By name: `create` has the Machines that are missing, `delete` those whose instance is gone,
    `relabel` those that have lost a label or their owner, `show` what others are to say, with the
    uid of their Node.
    """

    create: tuple[str, ...]
    delete: tuple[str, ...]
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
    """`nodes` are not being deleted, `leaving` are, slowly; `deleted` are the names of Machines
    that somebody has deleted: their instances go, and they are not made again.
    """
    name_of, going = fleet.names.name, fleet.going
    wanted: dict[str, tuple[Shown, str]] = {}
    create: list[str] = []
    for node in nodes.values():
        # Of one that goes at once there is nothing to say.
        shown = Shown() if node.name in going else show_node(node.name, ready=node.ready)
        wanted[node.name] = shown, node.uid
        if not (node.name in machines or node.name in going or node.name in deleted):
            create.append(node.name)
    for node in leaving.values():
        wanted[node.name] = show_leaving(node.name), node.uid
    for serial in fleet.waiting:
        if serial >= fleet.next_serial:
            continue
        name = name_of(serial)
        wanted[name] = show_waiting(phases.get(serial), style=style), ""
        if name not in machines and name not in deleted:
            create.append(name)
    # Machines of one group mostly share their labels: each set of them is compared once.
    label_sets = {id(machine.labels): machine.labels for machine in machines.values()}
    complete = {key for key, shared in label_sets.items() if labels.items() <= shared.items()}
    here = {name: machine for name, machine in machines.items() if not machine.deleting}
    kept = [name for name in here if name in wanted and name not in deleted]
    return Projection(
        create=tuple(create),
        delete=tuple(name for name in here if name not in wanted),
        relabel=tuple(
            name
            for name in kept
            if owner_uid not in here[name].owners or id(here[name].labels) not in complete
        ),
        show={
            name: wanted[name]
            for name in kept
            if wanted[name][0] not in (Shown(), here[name].shown)
        },
    )


def labels_annotation(scalable: Scalable) -> str:
    """The annotation by which cluster-autoscaler knows the labels of nodes that aren't there, with
    the one that all played nodes have. Of two values of a label it takes the last.
    """
    pieces = [piece for piece in scalable.annotations.get(LABELS, "").split(",") if piece]
    ours = [piece for piece in pieces if piece.partition("=")[0] == NODE_GROUP_LABEL]
    wanted = f"{NODE_GROUP_LABEL}={EMULATED_NODE_GROUP}"
    return ",".join(pieces if ours[-1:] == [wanted] else [*pieces, wanted])


def default_replicas(scalable: Scalable, keys: Keys, *, before: int | None) -> int:
    """What Cluster API's webhook makes of none: the minimum of a new one, an old number within the
    bounds, 1 without bounds.
    """
    bounds = [_bound(scalable.annotations.get(key)) for key in (keys.min_size, keys.max_size)]
    least, most = bounds
    if least is None or most is None:
        return 1
    return least if before is None else max(least, min(before, most))


def _bound(text: str | None) -> int | None:
    """None for what is no number that can be one of machines."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        return None
    return int(text)
