"""The groups that exist, and those that existed until a moment ago.

    kopf's events ──> GroupStore ──> the callbacks in `changed`, such as that of companions
    listings now and then ──┘

A group that can't be read is treated as not seen: the operator neither works on it nor deletes its
nodes. An event with an older version than the known one is late, or the cluster was restored from a
backup; a list that is begun after the event shows which.

A new group may have a name before the deletion of the old group of that name is reported, so groups
are distinguished by uid. A deleted group is kept for a while as *retired*: while it is remembered,
the operator deletes its nodes. Nodes that remain after that are left to Kubernetes' garbage
collector.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kwok_operator.errors import KwokOperatorError, NotFoundError
from kwok_operator.nodegroups.api.nodegroup import DeletedNodePods
from kwok_operator.nodegroups.client import (
    Group,
    Skipped,
    UnreadableGroup,
    log_unreadable,
    read_group,
)

logger = logging.getLogger(__name__)

RETIRED_FOR = 60.0
"""Seconds for which a deleted group is remembered, because nodes of it may still turn up."""


@dataclass(frozen=True, slots=True)
class Retired:
    """A group that was deleted a while ago, and whose nodes the operator still deletes."""

    name: str
    uid: str
    delete_pods: bool
    since: float
    version: int = field(default=0, compare=False)
    """The resourceVersion at which the group was deleted, if known."""


class GroupStore:
    """Keeps existing groups by name, and retired (recently deleted) ones by uid.

    `clock` returns monotonic seconds; `unreadable` is called once for a group that can't be read.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        unreadable: Callable[[UnreadableGroup], None] = log_unreadable,
    ) -> None:
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._gpu_labels: dict[str, str] = {}
        self._retired: dict[str, Retired] = {}
        self._skipped = Skipped(unreadable)
        self.newest = 0
        """The highest resourceVersion of a group seen so far."""
        self.complete: Callable[[Group], Group] = lambda group: group
        """Adds the settings that a group's spec leaves open; called before the group is stored."""
        self.changed: list[Callable[[str], None]] = []
        """Called in turn with the name of a group that an event has changed."""
        self.doubted = asyncio.Event()
        """Set while something suggests that the known groups are wrong: all groups are listed
        soon."""
        self._looked_into = False

    @property
    def sure(self) -> bool:
        """Whether the known groups may be acted on: False from a sign that they are wrong until all
        groups have been listed again."""
        return not self.doubted.is_set() and not self._looked_into

    def get(self, name: str) -> Group | None:
        return self._groups.get(name)

    def wish(self, name: str) -> tuple[str, int, bool] | None:
        """Returns what users want of the group, as a value to compare (see Group.wish); None if
        there is no such group."""
        group = self._groups.get(name)
        return None if group is None else group.wish

    def is_unreadable(self, name: str) -> bool:
        """Whether the latest version of the group can't be read."""
        return name in self._skipped

    def names(self) -> list[str]:
        return list(self._groups)

    @property
    def gpu_labels(self) -> Mapping[str, str]:
        """The GPU labels that groups set, by the groups' names; only of groups that
        cluster-autoscaler may drive."""
        return self._gpu_labels

    def are_born_ready(self, name: str) -> bool:
        """Whether the group's nodes may be created Ready; True for an unknown group."""
        group = self._groups.get(name)
        return group is None or group.spec.template.are_born_ready

    def __len__(self) -> int:
        return len(self._groups)

    def seen(self, body: Mapping[str, Any], gone: bool) -> bool:
        """Stores a group that a watch reports, or removes it if it is `gone`, and calls `changed`.
        Returns False, without a call, if there is nothing new to store."""
        group = read_group(body)
        if gone:
            self.remove(name=group.name, uid=group.uid, version=group.resource_version)
        else:
            known = self._groups.get(group.name)
            if known is not None and known.resource_version > group.resource_version:
                self.doubted.set()
            if not self.put(group):
                return False
        for changed in self.changed:
            changed(group.name)
        return True

    def put(self, group: Group | UnreadableGroup) -> bool:
        """Stores a group; returns False if this or a newer version is known already."""
        known = self._groups.get(group.name)
        if isinstance(group, UnreadableGroup):
            self._skipped.report(group)
            if known is None or known.uid != group.uid or known.deleting or not group.deleting:
                return False
            # Of a group that is being deleted, only whether it orphans its nodes is needed.
            orphaning = known.orphaning or group.orphaning
            self._groups[group.name] = replace(known, deleting=True, orphaning=orphaning)
            return True
        retired = self._retired.get(group.uid)
        later = retired is not None and 0 < retired.version < group.resource_version
        if retired is not None and (known is not None or not later):
            return False
        if known is not None and known.resource_version >= group.resource_version:
            return False
        if known is not None and known.uid != group.uid:
            self._retire(known, version=group.resource_version)
        # If a group is seen after it was taken for deleted, it exists, and its nodes stay.
        self._retired.pop(group.uid, None)
        self._groups[group.name] = self.complete(group)
        self._skipped.forget(group.name)
        self.newest = max(self.newest, group.resource_version)
        autoscaling = None if group.spec.paused or group.deleting else group.spec.autoscaling
        if autoscaling is not None and autoscaling.gpu_label:
            self._gpu_labels[group.name] = autoscaling.gpu_label
        else:
            self._gpu_labels.pop(group.name, None)
        return True

    def remove(self, *, name: str, uid: str, version: int = 0, retire: bool = True) -> None:
        """Removes a group that is gone, as of resourceVersion `version`.

        Its nodes are to be deleted, too, unless it was deleted with --cascade=orphan. Without
        `retire` the group is only forgotten, and its nodes are left to the garbage collector.
        """
        known = self._groups.get(name)
        self._skipped.forget(name)
        self.newest = max(self.newest, version)
        if known is not None and known.uid == uid:
            del self._groups[name]
            self._gpu_labels.pop(name, None)
            if retire:
                self._retire(known, version=version)

    def retired(self, name: str) -> list[Retired]:
        """Returns the deleted groups of that name that are still remembered."""
        oldest = self._clock() - RETIRED_FOR
        self._retired = {uid: r for uid, r in self._retired.items() if r.since > oldest}
        return [r for r in self._retired.values() if r.name == name]

    async def list_anew(
        self, listing: Callable[[], Awaitable[tuple[list[Group | UnreadableGroup], int]]]
    ) -> set[str] | None:
        """Lists all groups, to learn what a watch may have missed. `listing` returns them and the
        resourceVersion of the list.

        Returns the names of all stored groups and of those that are gone; None if the groups can't
        be listed.
        """
        doubted, before = self.doubted.is_set(), self.newest
        self.doubted.clear()
        self._looked_into = doubted
        try:
            groups, version = await listing()
        except NotFoundError:
            return None  # the CRD is gone; the garbage collector deletes the nodes
        except KwokOperatorError as error:
            if doubted:
                self.doubted.set()  # tried again; other requests report the trouble
            else:
                logger.warning("resync failed: error=%s", error)
            return None
        finally:
            self._looked_into = False
        restored = version < before
        if restored:
            logger.warning("the cluster was restored: version=%d before=%d", version, before)
            # The list may have replaced what the watch reported meanwhile, so another list follows.
            self.doubted.set()
        gone = self.replace(groups, version=version, restored=restored)
        return gone | set(self._groups)

    def replace(
        self, listed: Sequence[Group | UnreadableGroup], *, version: int, restored: bool = False
    ) -> set[str]:
        """Stores a full list of groups; returns the names of groups that turned out to be gone.

        `version` is the resourceVersion of the list. A group that was stored after the list was
        made stays, though the list lacks it. All older groups are replaced by the list. If the
        cluster was `restored` from a backup, nothing known before counts.
        """
        if restored:
            self._retired.clear()
            self.newest = version
        readable = self._skipped.sift(listed)
        for odd in listed:
            if isinstance(odd, UnreadableGroup):
                self.put(odd)
        for group in readable:
            retired = self._retired.get(group.uid)
            if retired is not None and 0 < retired.version <= version:
                del self._retired[group.uid]
            known = self._groups.get(group.name)
            if known is not None and (
                restored or group.resource_version < known.resource_version <= version
            ):
                del self._groups[group.name]
            self.put(group)
        self.newest = max(self.newest, version)
        # Compared by uid: a group that can't be read may have the name of one that is gone.
        uids = {group.uid for group in listed}
        gone = [
            group
            for group in self._groups.values()
            if group.uid not in uids and (restored or group.resource_version <= version)
        ]
        for group in gone:
            self.remove(name=group.name, uid=group.uid, version=version, retire=not restored)
        return {group.name for group in gone}

    def _retire(self, group: Group, *, version: int) -> None:
        if not group.orphaning:
            pods = group.spec.scale_down.pods is DeletedNodePods.DELETE
            self._retired[group.uid] = Retired(group.name, group.uid, pods, self._clock(), version)
