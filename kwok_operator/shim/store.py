"""Keeps the groups that cluster-autoscaler (CA) may drive, and their nodes, in memory.

    reflectors (groups, nodes) ──> Store ──> service (every read)
    our own writes ────────────────^

Every read of CA is answered from this memory. The group that the API server returns for a write is
stored at once, and no older resourceVersion replaces it: so CA sees the result of its own writes.
As all kinds share resourceVersions, the store also knows how far behind the watch on nodes is.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from datetime import datetime
from typing import Final, Generic, TypeVar

from kwok_operator import constants
from kwok_operator.kube.decode import NodeView
from kwok_operator.nodegroups.api.status import PendingBatch
from kwok_operator.nodegroups.autoscaler import MOST_INSTANCES, Fleet, target_of
from kwok_operator.nodegroups.client import Group, Skipped, UnreadableGroup
from kwok_operator.nodegroups.naming import NodeNames, group_of_node
from kwok_operator.nodegroups.serials import Batch
from kwok_operator.nodegroups.status import batches_of
from kwok_operator.shim.groupnodes import GroupNode, GroupNodes
from kwok_operator.shim.settings import Selector

T = TypeVar("T")

GONE_FOR: Final = 60.0
"""Seconds after a group's deletion for which it is remembered, as the answer to an earlier write
may still come."""


class Store:
    """Keeps groups and nodes. `groups` and `nodes` are sinks of reflectors; `clock` returns epoch
    seconds.

    A deleted group is forgotten at once, its nodes when the last of them is gone.
    """

    def __init__(
        self,
        *,
        selector: Selector,
        provider_id_prefix: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.provider_id_prefix = provider_id_prefix
        self.groups: CallbackSink[Group | UnreadableGroup] = CallbackSink(
            replace=self.replace_groups, upsert=self.put_group, remove=self.drop_group
        )
        self.nodes: CallbackSink[NodeView] = CallbackSink(
            replace=self.replace_nodes, upsert=self.put_node, remove=self.drop_node
        )
        self._selector = selector
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._uids: set[str] = set()
        self._skipped = Skipped()
        self._gone: dict[str, float] = {}
        """Uid of a deleted group -> when it was deleted. The answer to an earlier write may come
        after that."""
        self._by_prefix: dict[str, Group] = {}
        self._nodes: dict[str, GroupNodes] = {}
        self._nodes_version = 0
        """The highest version that the watch on nodes has shown."""
        self._group_of: dict[str, tuple[str, int]] = {}
        """providerID of a node -> the group's uid, and the serial in the node's name."""

    @property
    def synced(self) -> bool:
        """Whether groups and nodes have been listed once."""
        return self.groups.synced.is_set() and self.nodes.synced.is_set()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Returns the numbers of groups that CA may drive, of all groups and of nodes. Any thread
        may call it.
        """
        served = sum(self._is_served(group) for group in list(self._groups.values()))
        return served, len(self._groups), len(self._group_of)

    def served(self, name: str) -> Group | None:
        """Returns the group of that name if CA may drive it, else None."""
        group = self._groups.get(name)
        return group if group is not None and self._is_served(group) else None

    def all_served(self) -> Iterator[Group]:
        """Yields the groups that CA may scale, in the order of their names."""
        return (self._groups[n] for n in sorted(self._groups) if self._is_served(self._groups[n]))

    def known(self, name: str) -> Group | None:
        """Returns the group of that name, served or not."""
        return self._groups.get(name)

    def group_for(self, provider_id: str, name: str) -> Group | None:
        """Returns the served group of an instance; None if it belongs to none.

        The name alone is no proof: the group must have used the serial in it, and own the node if
        there is one.
        """
        prefix = name[: name.rfind("-") + 1]
        group = self._by_prefix.get(prefix)
        if group is None or not self._is_served(group):
            return None
        owner = self._group_of.get(provider_id)
        if owner is not None:
            return group if owner == (group.uid, group.names.serial(name)) else None
        serial = group.names.serial(name)
        if serial is None or provider_id != f"{self.provider_id_prefix}{name}":
            return None
        named = len(group.spec.scale_down.nodes_to_delete)
        # The operator skips at most as many serials as names are in nodesToDelete, so this is above
        # all that it uses next.
        most = self._next_serial(group) + self.target(group) + named
        return group if serial < group.status.next_serial or serial < most else None

    def node(self, group: Group, serial: int) -> GroupNode | None:
        nodes = self._nodes.get(group.uid)
        return nodes.there.get(serial) if nodes else None

    def has_node(self, group: Group) -> bool:
        nodes = self._nodes.get(group.uid)
        return nodes is not None and bool(nodes.there)

    def node_of(self, group: Group, provider_id: str) -> str | None:
        """Returns the name of the instance with this providerID, whether it has a Node or not; None
        if the providerID lacks the shim's prefix."""
        owner = self._group_of.get(provider_id)
        if owner is not None and owner[0] == group.uid:
            return group.names.name(owner[1])
        name = provider_id.removeprefix(self.provider_id_prefix)
        return None if name == provider_id else name

    def is_running(self, group: Group, serial: int) -> bool:
        """Whether the instance's Node has been usable for pods at some time, or is so old
        (STARTUP_TIME) that it counts as such. Also True if the instance has no Node."""
        node = self.node(group, serial)
        return node is None or node.is_running(now=self._clock())

    def is_starting(self, group: Group) -> bool:
        """Whether a node of the group is new and doesn't take pods yet."""
        nodes = self._nodes.get(group.uid)
        return nodes is not None and nodes.is_starting(now=self._clock())

    def waits_longer(self, group: Group, seconds: float) -> bool:
        """Whether an instance that has no Node yet was requested more than `seconds` ago."""
        # Of all batches, not only the first: a simulated cloud may let older instances wait for
        # room.
        oldest = min((batch.requested_at for batch in group.status.pending), default=None)
        if oldest is None:
            return False
        try:
            requested = datetime.fromisoformat(oldest).timestamp()
        except (ValueError, OverflowError):  # not written by the operator
            return False
        return requested < self._clock() - seconds

    def now(self) -> float:
        """Returns the present time in epoch seconds."""
        return self._clock()

    def arrived(self, group: Group) -> Set[int]:
        """Returns the serials of the group's Nodes: all that exist, and those gone ones that the
        group's status may still list as pending."""
        nodes = self._nodes.get(group.uid)
        return nodes.there.keys() | nodes.gone if nodes else frozenset()

    def target(self, group: Group) -> int:
        """Returns the group's target size: the same as `fleet(group).target`, but mostly without
        the cost of making the fleet."""
        return target_of(group.spec, group.status, count=lambda: len(self.fleet(group).present))

    def fleet(self, group: Group) -> Fleet:
        """Returns a group and its instances as they are now."""
        nodes, now = self._nodes.get(group.uid) or GroupNodes(), self._clock()
        cloud = group.spec.cloud
        capped = bool(cloud and cloud.interruptions and cloud.interruptions.at_a_time is not None)
        expected = nodes.still_expected(seen=self._nodes_version, now=now)
        return Fleet(
            group=group.name,
            names=group.names,
            spec=group.spec,
            status=group.status,
            present={s: n.name for s, n in nodes.there.items() if not n.deleting},
            leaving=frozenset(s for s, n in nodes.there.items() if n.deleting),
            # Sorted by age, because the newest are cancelled first.
            batches=tuple(sorted((*batches_of(group.status), *expected), key=_first)),
            next_serial=self._next_serial(group),
            gone=frozenset(nodes.gone),
            ended=nodes.ended(capped=capped, now=now),
        )

    def put_group(self, group: Group | UnreadableGroup) -> bool:
        """Stores a group as the API server returned it. Returns False if a newer version is known,
        or the group was deleted."""
        if isinstance(group, UnreadableGroup):
            self._skipped.report(group)
            return False
        known = self._groups.get(group.name)
        if group.uid in self._gone:
            return False
        if known is not None and known.resource_version >= group.resource_version:
            return False
        if known is not None and known.uid != group.uid:
            self.drop_group(known)
            known = None
        self._groups[group.name] = self._by_prefix[group.names.prefix] = group
        self._uids.add(group.uid)
        self._skipped.forget(group.name)
        if known is not None and _requested(known) != _requested(group):
            self._note_arrivals(known, group)
        if nodes := self._nodes.get(group.uid):
            nodes.forget_gone(batches_of(group.status), next_serial=group.status.next_serial)
        return True

    def _note_arrivals(self, before: Group, group: Group) -> None:
        """Expects the Nodes of instances that the group's status listed as pending before, and no
        longer does: most of these Nodes exist by now."""
        # Spent serials never become Nodes, so they are not expected.
        pending = {s for b in batches_of(group.status) for s in range(b.first, b.last + 1)}
        given_out = range(before.status.next_serial, group.status.next_serial)[-MOST_INSTANCES:]
        missed = {s for b in batches_of(before.status) for s in b}.union(given_out) - pending
        nodes = self._nodes.setdefault(group.uid, GroupNodes())
        nodes.expect(missed, version=group.resource_version, now=self._clock())

    def drop_group(self, group: Group | UnreadableGroup) -> None:
        self._remember_gone(group.uid)
        self._skipped.forget(group.name)
        known = self._groups.get(group.name)
        if known is not None and known.uid == group.uid:
            del self._groups[group.name]
            self._by_prefix.pop(known.names.prefix, None)
            self._uids.discard(group.uid)
            self._forget_nodes(group.uid)

    def replace_groups(self, listed: Sequence[Group | UnreadableGroup], version: int) -> None:
        uids = {group.uid for group in listed}
        for known in list(self._groups.values()):
            if known.uid not in uids and known.resource_version <= version:
                self.drop_group(known)
        for group in self._skipped.sift(listed):
            self._gone.pop(group.uid, None)
            before = self._groups.get(group.name)
            # A list is right about everything older than itself, even if it shows an older version
            # of a group.
            if before and group.resource_version < before.resource_version <= version:
                self._groups[group.name] = replace(before, resource_version=0)
            self.put_group(group)

    def forget_versions(self) -> None:
        """Lets the next version of each group replace the stored one, even if the next version's
        resourceVersion is lower, as when etcd was restored from a backup."""
        self._groups = {
            name: replace(group, resource_version=0) for name, group in self._groups.items()
        }

    def put_node(self, view: NodeView) -> None:
        self._nodes_version = max(self._nodes_version, view.resource_version)
        place = _place(view)
        if place is None:
            self.drop_node(view)
            return
        uid, serial = place
        self._nodes.setdefault(uid, GroupNodes()).put(serial, view, now=self._clock())
        self._group_of[view.provider_id] = place

    def drop_node(self, view: NodeView) -> None:
        self._nodes_version = max(self._nodes_version, view.resource_version)
        place = self._group_of.get(view.provider_id)
        if place is None:
            return
        nodes = self._nodes.get(place[0])
        # The event may be of a foreign node that somebody made with the providerID of one of ours.
        known = nodes.there.get(place[1]) if nodes else None
        if known is not None and known.name != view.name:
            return
        self._node_gone(view.provider_id)

    def replace_nodes(self, views: Sequence[NodeView], version: int) -> None:
        if version < self._nodes_version:  # the cluster was restored from a backup
            self._nodes.clear()
            self._group_of.clear()
        self._nodes_version = version
        listed = {view.provider_id for view in views if _place(view)}
        for provider_id in self._group_of.keys() - listed:
            self._node_gone(provider_id)
        for view in views:
            self.put_node(view)

    def _node_gone(self, provider_id: str) -> None:
        uid, serial = self._group_of.pop(provider_id)
        nodes = self._nodes.get(uid)
        if nodes is not None:
            nodes.remove(serial)
            self._forget_nodes(uid)

    def _remember_gone(self, uid: str) -> None:
        now = self._clock()
        while self._gone:
            first = next(iter(self._gone))
            if now - self._gone[first] < GONE_FOR:
                break
            del self._gone[first]
        self._gone[uid] = now

    def _forget_nodes(self, uid: str) -> None:
        """Forgets a group's nodes once the group and all its nodes are gone."""
        nodes = self._nodes.get(uid)
        if nodes is not None and not nodes.there and uid not in self._uids:
            del self._nodes[uid]

    def _is_served(self, group: Group) -> bool:
        return (
            group.spec.autoscaling is not None
            and not group.spec.paused
            and not group.deleting
            and self._selector.matches(group.labels, group.annotations)
        )

    def _next_serial(self, group: Group) -> int:
        """Returns a number above all serials that the operator has used, as far as the group's
        status and its Nodes show."""
        nodes = self._nodes.get(group.uid)
        last = max((batch.last for batch in batches_of(group.status)), default=-1)
        return max(group.status.next_serial, last + 1, nodes.highest + 1 if nodes else 0)


def _first(batch: Batch) -> int:
    return batch.first


def _requested(group: Group) -> tuple[int, tuple[PendingBatch, ...]]:
    """Returns the next serial and the pending batches of a group: what changes in its status when
    instances are requested, arrive or are cancelled."""
    return group.status.next_serial, group.status.pending


def _place(view: NodeView) -> tuple[str, int] | None:
    """Returns the uid of the group that owns a node, and the node's serial; None if no group owns
    it."""
    uid = view.annotations.get(constants.NODE_GROUP_UID_ANNOTATION, "")
    if not uid or uid not in view.owner_uids:
        return None
    group = group_of_node(view.labels, view.annotations)
    serial = NodeNames.of(group, uid).serial(view.name)
    return None if serial is None else (uid, serial)


class CallbackSink(Generic[T]):
    """Passes objects of one kind from a reflector to callbacks; `synced` is set when all have been
    listed."""

    def __init__(
        self,
        *,
        replace: Callable[[Sequence[T], int], None],
        upsert: Callable[[T], object],
        remove: Callable[[T], None],
    ) -> None:
        self.synced = asyncio.Event()
        self._replace, self._upsert, self._remove = replace, upsert, remove

    def replace(self, items: Sequence[T], resource_version: int) -> None:
        self._replace(items, resource_version)
        self.synced.set()

    def upsert(self, item: T) -> None:
        self._upsert(item)

    def remove(self, item: T) -> None:
        self._remove(item)
