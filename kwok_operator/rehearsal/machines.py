"""Decides which machines a step of the timeline interrupts or loses.

metadata of Nodes  --read_machine-->  Machines  --drawn-->  some of them, by the scenario's seed
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.cloud.annotations import PERFECT, dump_life, read_life
from kwok_operator.cloud.draws import InstanceSeed
from kwok_operator.cloud.life import INTERRUPTED, End, Life
from kwok_operator.formats.times import format_exact_time
from kwok_operator.formats.untyped import as_list, as_map, as_texts, text_at
from kwok_operator.nodegroups.naming import group_of_node
from kwok_operator.rehearsal.scenario.timeline import MachinesStep

_NODE_CLAIM: Final = "NodeClaim"


@dataclass(frozen=True, slots=True)
class Machine:
    """The fields of a Node that matter for ending its machine."""

    name: str
    uid: str
    group: str
    pool: str
    """The node's Karpenter NodePool; empty if it has none."""
    zone: str
    created: str
    claim: str
    """The name of the node's NodeClaim; empty if it has none."""
    simulated: bool
    """Whether a KwokNodeGroup made the node, so that its simulated cloud can end it."""
    life: Life | None

    @property
    def kin(self) -> tuple[str, str]:
        """The node's group or NodePool, and its zone."""
        return self.group or self.pool, self.zone


def read_machine(metadata: Mapping[str, Any], *, now: int) -> Machine | None:
    """Reads a machine from the metadata of its Node; None if the cloud has given the machine notice
    of its end, or the Node is being deleted. `now` is in milliseconds since the epoch.
    """
    labels, annotations = as_texts(metadata.get("labels")), as_texts(metadata.get("annotations"))
    life = read_life(annotations)
    going = bool(metadata.get("deletionTimestamp"))
    going |= not annotations.keys().isdisjoint(
        (constants.NOTICED_AT_ANNOTATION, constants.DELETE_AT_ANNOTATION)
    )
    if going or (life is not None and life.desired(now).noticed):
        return None
    owners = [as_map(each) for each in as_list(metadata.get("ownerReferences"))]
    return Machine(
        name=text_at(metadata, "name"),
        uid=text_at(metadata, "uid"),
        group=group_of_node(labels, annotations),
        pool=labels.get(constants.NODE_POOL_LABEL, ""),
        zone=labels.get(constants.ZONE_LABEL, ""),
        created=text_at(metadata, "creationTimestamp"),
        claim=next((text_at(o, "name") for o in owners if o.get("kind") == _NODE_CLAIM), ""),
        simulated=constants.NODE_GROUP_UID_ANNOTATION in annotations,
        life=life,
    )


def drawn(
    machines: Iterable[Machine], step: MachinesStep, *, seed: str, what: str
) -> list[Machine]:
    """Returns the machines that a step takes, drawn by the seed.

    Names differ from run to run, so a draw depends on a machine's place: its group or NodePool, its
    zone, and its number there by age. If two runs have machines in the same places, the step takes
    the same places in both.
    """
    numbers = Counter[tuple[str, str]]()
    draws: list[tuple[float, str, Machine]] = []
    for each in sorted(machines, key=lambda each: (each.created, each.name)):
        seeded = InstanceSeed(seed, "/".join(each.kin), numbers[each.kin])
        numbers[each.kin] += 1
        draws.append((seeded.draw(what), each.name, each))
    most = len(draws) if step.count is None else step.count
    if step.share is not None:
        most = math.ceil(round(step.share * len(draws), 6))
    return [machine for _, _, machine in sorted(draws, key=lambda each: each[:2])[:most]]


def noticed_now(machine: Machine, *, notice: int, now: int) -> dict[str, str]:
    """Returns annotations for a Node by which the operator ends it: the cloud gives notice `now`,
    and the node ends after `notice`; both are in milliseconds. Other values that were drawn for
    the node's life stay.
    """
    life = machine.life or replace(PERFECT, born=now)
    end = End(max(0, now - life.born) + notice, notice, INTERRUPTED)
    return {
        constants.LIFE_ANNOTATION: dump_life(replace(life, end=end)),
        constants.NOTICED_AT_ANNOTATION: format_exact_time(now),
    }
