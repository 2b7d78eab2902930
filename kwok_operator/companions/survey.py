"""Compares the companions that nodes have with those that they should have; writes nothing.

    nodes, Companions of the template, objects in the caches  --survey-->  CompanionSurvey

Level-triggered: a survey needs no memory of the survey before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.devices import device_course
from kwok_operator.companions.companioncache import CompanionRecord
from kwok_operator.companions.desired import Companion, CompanionKind, CompanionOwner, tainted
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.nodecache import NodeRecord

AllKept = Mapping[CompanionKind, Mapping[str, CompanionRecord]]


@dataclass(slots=True)
class CompanionWork:
    """What to write for one owner (a Node, or the group): `stale` companions are deleted, then
    `missing` ones created."""

    owner: CompanionOwner
    missing: list[Companion] = field(default_factory=list)
    stale: list[tuple[CompanionKind, CompanionRecord]] = field(default_factory=list)

    def writes_beside(self, taken: Set[str]) -> bool:
        """Whether there is anything to write, except missing companions whose names objects of
        others have (`taken`)."""
        names = {companion.name(self.owner.base) for companion in self.missing}
        return bool(self.stale) or not names <= taken


@dataclass(slots=True)
class CompanionSurvey:
    """The result of a survey. `nodes` counts the owners that are nodes; one more owner may be the
    group.

    `complete`: names of owners that lack nothing; `taken`: names of companions that others' objects
    have; `dropped`: fields that the API server didn't keep.
    """

    nodes: int = 0
    owners: int = 0
    complete: set[str] = field(default_factory=set)
    right: int = 0
    """The number of objects that are up to date."""
    work: list[CompanionWork] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    held: int = 0
    """How many nodes lack only companions that the simulated cloud delays."""
    due: int | None = None
    """When the simulated cloud next changes a node's devices, in epoch milliseconds."""


def survey(
    group: Group,
    nodes: Iterable[NodeRecord],
    companions: Sequence[Companion],
    kept: AllKept,
    *,
    is_due: Callable[[str], bool],
    under_way: Set[str],
    cloud: Cloud | None,
    now: int,
) -> CompanionSurvey:
    """Compares the companions of a group's nodes, and those that the nodes share, with those that
    they should have; `now` is in epoch milliseconds.

    `is_due(repair_key)` says whether a repair may be tried now. `under_way` has the uids of nodes
    whose companions are being created already.
    """
    result, bases = CompanionSurvey(), dict[str, str]()
    of_nodes = [companion for companion in companions if not companion.shared]
    pools = [companion for companion in companions if companion.shared]
    for node in nodes:
        if node.owner == group.uid and not node.deleting:
            bases[node.uid] = node.name
            owner = CompanionOwner(node.name, node.uid, group.name)
            created_ms = node.created * 1_000
            wanted, due = wanted_now(group, node.serial, of_nodes, cloud, made=created_ms, now=now)
            result.due = min((at for at in (result.due, due) if at is not None), default=None)
            _compare(owner, wanted, kept, result, is_due, under_way)
            if len(wanted) < len(of_nodes) and node.name in result.complete:
                result.complete.discard(node.name)
                result.held += 1
    result.nodes = len(bases)
    base = group.names.prefix.rstrip("-")
    bases[group.uid] = base
    if pools:
        owner = CompanionOwner(base, group.uid, group.name, is_group=True)
        _compare(owner, pools, kept, result, is_due, under_way)
    if result.right < sum(map(len, kept.values())):
        result.work += _superfluous(group, companions, kept, bases)
    return result


def wanted_now(
    group: Group,
    serial: int | None,
    companions: Sequence[Companion],
    cloud: Cloud | None,
    *,
    made: int,
    now: int,
) -> tuple[Sequence[Companion], int | None]:
    """Returns the companions that a node should have `now`, and when that changes (None: never).

    `made` is when the node was created; all times are epoch milliseconds. Only devices that the
    simulated cloud delays or taints change with time.
    """
    if cloud is None or cloud.devices is None or serial is None:
        return companions, None
    names = sorted(name for each in companions for name in each.devices)
    course = device_course(cloud, group=group.name, serial=serial, made=made, devices=names)
    failed, failures = course.failed(now), cloud.devices.failures
    wanted = []
    for each in companions:
        if each.kind is CompanionKind.RESOURCE_SLICE:
            if course.published is None or course.published > now:
                continue
            if failures is not None and (ill := failed & each.devices):
                wanted.append(tainted(each, ill, failures.taint))
                continue
        wanted.append(each)
    return wanted, course.next_change(now)


def repair_key(companion: Companion, owner: CompanionOwner) -> str:
    """Returns a key that identifies a repair: the object's name, and the digest that it should
    have."""
    return f"{companion.name(owner.base)} {companion.digest}"


def _compare(
    owner: CompanionOwner,
    companions: Sequence[Companion],
    kept: AllKept,
    result: CompanionSurvey,
    is_due: Callable[[str], bool],
    under_way: Set[str],
) -> None:
    work, right = CompanionWork(owner), 0
    for companion in companions:
        existing = kept[companion.kind].get(companion.name(owner.base))
        if existing is None:
            work.missing.append(companion)
        elif existing.owner != owner.uid:
            result.taken.add(existing.name)
        elif existing.digest == companion.digest and not existing.deleting:
            result.dropped |= companion.gated - existing.gated
            right += 1
        elif not existing.deleting and is_due(repair_key(companion, owner)):
            work.stale.append((companion.kind, existing))
            work.missing.append(companion)
    result.owners += 1
    result.right += right
    if right == len(companions):
        result.complete.add(owner.base)
    if work.missing and owner.uid not in under_way:
        result.work.append(work)


def _superfluous(
    group: Group, companions: Sequence[Companion], kept: AllKept, bases: Mapping[str, str]
) -> Iterator[CompanionWork]:
    """Yields a deletion of each companion that the template no longer has."""
    wanted = {(c.kind, c.suffix, c.shared) for c in companions}
    for kind, shelved in kept.items():
        for each in shelved.values():
            base = bases.get(each.owner)
            if base is None or each.deleting or not each.name.startswith(base):
                continue
            shared = each.owner == group.uid
            if (kind, each.name.removeprefix(base), shared) not in wanted:
                owner = CompanionOwner(base, each.owner, group.name, shared)
                yield CompanionWork(owner, stale=[(kind, each)])
