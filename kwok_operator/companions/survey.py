"""What nodes have of their companions, and what they lack: compared, and nothing written.

    nodes, Companions of the template, what is on the shelves  --survey-->  CompanionSurvey

Level-triggered: it needs no memory of the survey before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.devices import device_course
from kwok_operator.companions.desired import Companion, CompanionKind, CompanionOwner, tainted
from kwok_operator.companions.shelf import Shelved
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.nodecache import NodeRecord

AllKept = Mapping[CompanionKind, Mapping[str, Shelved]]


@dataclass(slots=True)
class CompanionWork:
    """What one owner lacks, and what it has that it should not have as it is."""

    owner: CompanionOwner
    missing: list[Companion] = field(default_factory=list)
    stale: list[tuple[CompanionKind, Shelved]] = field(default_factory=list)

    def beyond(self, taken: Set[str]) -> bool:
        """Whether there was more to do than to find names taken, which no further pass mends."""
        names = {companion.name(self.owner.base) for companion in self.missing}
        return bool(self.stale) or not names <= taken


@dataclass(slots=True)
class CompanionSurvey:
    """`nodes` is how many of the owners are nodes; another one may be the group. `complete` are
    names of owners that lack nothing, `taken` those of objects that are somebody else's."""

    nodes: int = 0
    owners: int = 0
    complete: set[str] = field(default_factory=set)
    right: int = 0
    """Objects that are as they should be."""
    work: list[CompanionWork] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    held: int = 0
    """Nodes that lack nothing but what the simulated cloud holds back."""
    due: int | None = None
    """When that changes, in epoch milliseconds."""


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
    """Of a group's nodes and, for what they share, of the group, `now` (epoch milliseconds).

    `is_due` says of a repair, by its key, whether it may be tried now. Nodes whose uid is
    `under_way` get theirs from somebody else.
    """
    found, bases = CompanionSurvey(), dict[str, str]()
    of_nodes = [companion for companion in companions if not companion.shared]
    pools = [companion for companion in companions if companion.shared]
    for node in nodes:
        if node.owner == group.uid and not node.deleting:
            bases[node.uid] = node.name
            owner = CompanionOwner(node.name, node.uid, group.name)
            made = node.created * 1_000
            wanted, due = wanted_now(group, node.serial, of_nodes, cloud, made=made, now=now)
            found.due = min((at for at in (found.due, due) if at is not None), default=None)
            _compare(owner, wanted, kept, found, is_due, under_way)
            if len(wanted) < len(of_nodes) and node.name in found.complete:
                found.complete.discard(node.name)
                found.held += 1
    found.nodes = len(bases)
    base = group.names.prefix.rstrip("-")
    bases[group.uid] = base
    if pools:
        owner = CompanionOwner(base, group.uid, group.name, is_group=True)
        _compare(owner, pools, kept, found, is_due, under_way)
    if found.right < sum(map(len, kept.values())):
        found.work += _superfluous(group, companions, kept, bases)
    return found


def wanted_now(
    group: Group,
    serial: int | None,
    companions: Sequence[Companion],
    cloud: Cloud | None,
    *,
    made: int,
    now: int,
) -> tuple[Sequence[Companion], int | None]:
    """What of its companions a node that was `made` then is to have now, and when that changes."""
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
    """What is repaired, and to what end."""
    return f"{companion.name(owner.base)} {companion.digest}"


def _compare(
    owner: CompanionOwner,
    companions: Sequence[Companion],
    kept: AllKept,
    found: CompanionSurvey,
    is_due: Callable[[str], bool],
    under_way: Set[str],
) -> None:
    work, right = CompanionWork(owner), 0
    for companion in companions:
        each = kept[companion.kind].get(companion.name(owner.base))
        if each is None:
            work.missing.append(companion)
        elif each.owner != owner.uid:
            found.taken.add(each.name)
        elif each.digest == companion.digest and not each.deleting:
            found.dropped |= companion.gated - each.gated
            right += 1
        elif not each.deleting and is_due(repair_key(companion, owner)):
            work.stale.append((companion.kind, each))
            work.missing.append(companion)
    found.owners += 1
    found.right += right
    if right == len(companions):
        found.complete.add(owner.base)
    if work.missing and owner.uid not in under_way:
        found.work.append(work)


def _superfluous(
    group: Group, companions: Sequence[Companion], kept: AllKept, bases: Mapping[str, str]
) -> Iterator[CompanionWork]:
    """What owners have that they are not to have any more."""
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
