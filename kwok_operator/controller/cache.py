"""The nodes that carry our label, as little of them as will do.

    reflector ──replace, upsert, remove──> NodeCache ──> reconciler (and a wake-up for the group)
    our own writes ──created, updated, deleted─^

A few hundred bytes a node: at 50,000 nodes the objects themselves would be a gigabyte. What we
wrote is entered as soon as the API server has answered, not when the watch tells, so a plan never
counts on something that is merely late. That needs no time-outs, because names are never used
twice: a name that is gone stays gone.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Protocol

from kwok_operator import constants
from kwok_operator.core.template import KubeletEndpoint
from kwok_operator.kube.decode import NodeView

_REMEMBERED_REMOVALS = 5_000


@dataclass(slots=True)
class NodeRecord:
    """One node.

    `owner` is the uid of the group that made it, "" where annotation and ownerReference don't agree
    on one. `deleting` is final. `held` means that a finalizer keeps it from going.
    """

    name: str
    uid: str
    resource_version: int
    owner: str
    template_hash: str
    ready: bool
    deleting: bool
    held: bool
    endpoint: KubeletEndpoint | None


class Initialised(Protocol):
    def __call__(self, name: str, endpoint: KubeletEndpoint, *, first_sight: bool) -> None: ...


class NodeCache:
    """Nodes by group (the value of their label) and name.

    `changed(group)` is called when something happened that the group may have to act upon,
    `initialised(name, endpoint, first_sight=...)` when a Ready node has a kubelet endpoint that it
    did not have before: at first sight it may be one that we gave it, later it can only be kwok's.
    """

    def __init__(
        self,
        *,
        changed: Callable[[str], None],
        initialised: Initialised,
    ) -> None:
        self._changed = changed
        self._initialised = initialised
        self._groups: dict[str, dict[str, NodeRecord]] = {}
        self._group_of: dict[str, str] = {}
        self._removed: OrderedDict[str, int] = OrderedDict()
        self._endpoints: dict[KubeletEndpoint, KubeletEndpoint] = {}

    def group(self, name: str) -> Mapping[str, NodeRecord]:
        """The nodes labelled with a group's name, whoever made them."""
        return self._groups.get(name, {})

    def count(self, name: str) -> int:
        """The nodes of a group that are not on their way out."""
        return sum(not record.deleting for record in self.group(name).values())

    def __len__(self) -> int:
        return len(self._group_of)

    def replace(self, items: Sequence[NodeView], resource_version: int) -> None:
        """A full listing, as of `resource_version`; nodes entered since then stay."""
        listed = {item.name for item in items}
        for group in list(self._groups.values()):
            for record in list(group.values()):
                if record.name not in listed and record.resource_version <= resource_version:
                    self._remove(record.name)
        for item in items:
            self.upsert(item)

    def upsert(self, item: NodeView) -> None:
        group = item.labels.get(constants.NODE_GROUP_LABEL, "")
        known = self._find(item.name)
        # Versions are the cluster's: an older one is late, of another node of that name, too.
        if known is not None and known.resource_version > item.resource_version:
            return
        if self._group_of.get(item.name, group) != group:
            self._remove(item.name)
        old = self.group(group).get(item.name)
        self._removed.pop(item.name, None)
        self._put(group, self._record(item), old)

    def remove(self, item: NodeView) -> None:
        known = self._find(item.name)
        if known is None or known.uid == item.uid or known.resource_version < item.resource_version:
            self._remove(item.name, version=item.resource_version)

    def created(self, group: str, item: NodeView) -> None:
        """We made this node, or found it made; the watch may already have told of its end."""
        known = self._find(item.name)
        if known is not None and known.uid == item.uid:
            return
        newest = known.resource_version if known is not None else self._removed.get(item.name, -1)
        if newest < item.resource_version:
            self._remove(item.name)
            self._removed.pop(item.name, None)
            self._put(group, self._record(item), None)

    def deleted(self, name: str, *, gone: bool = False) -> None:
        """The API server took our DELETE; `gone` where it did not know the node any more."""
        group = self._group_of.get(name)
        if group is None:
            return
        if gone:
            self._remove(name)
        else:
            self._groups[group][name].deleting = True

    def updated(self, item: NodeView) -> None:
        """We patched this node; of the answer only the metadata count.

        Events from before the patch come too late from now on; its own tells the same and more.
        """
        known = self._find(item.name)
        if known is None or known.uid != item.uid:
            return
        if known.resource_version < item.resource_version:
            known.resource_version = item.resource_version
            known.template_hash = _template_hash(item)

    def _record(self, item: NodeView) -> NodeRecord:
        claimed = item.annotations.get(constants.NODE_GROUP_UID_ANNOTATION, "")
        endpoint = None
        if item.ready:  # of a kwok that serves no kubelet API, too: it writes neither
            endpoint = KubeletEndpoint(item.addresses, item.kubelet_port)
            endpoint = self._endpoints.setdefault(endpoint, endpoint)
        return NodeRecord(
            name=item.name,
            uid=item.uid,
            resource_version=item.resource_version,
            owner=intern(claimed) if claimed in item.owner_uids else "",
            template_hash=_template_hash(item),
            ready=item.ready,
            deleting=item.deleting,
            held=item.deleting and bool(item.finalizers),
            endpoint=endpoint,
        )

    def _put(self, group: str, new: NodeRecord, old: NodeRecord | None) -> None:
        group = intern(group)
        self._groups.setdefault(group, {})[new.name] = new
        self._group_of[new.name] = group
        if old is not None and old.uid == new.uid:
            new.deleting |= old.deleting
        else:
            old = None
        if new.owner and new.endpoint is not None and (old is None or old.endpoint != new.endpoint):
            self._initialised(new.name, new.endpoint, first_sight=old is None)
        if old is None or _told(old) != _told(new):
            self._changed(group)

    def _find(self, name: str) -> NodeRecord | None:
        group = self._group_of.get(name)
        return None if group is None else self._groups[group][name]

    def _remove(self, name: str, *, version: int = 0) -> None:
        group = self._group_of.pop(name, None)
        if group is None:
            return
        record = self._groups[group].pop(name)
        if not self._groups[group]:
            del self._groups[group]
        self._removed[name] = max(version, record.resource_version)
        if len(self._removed) > _REMEMBERED_REMOVALS:
            self._removed.popitem(last=False)
        self._changed(group)


def _template_hash(item: NodeView) -> str:
    return intern(item.annotations.get(constants.TEMPLATE_HASH_ANNOTATION, ""))


def _told(record: NodeRecord) -> tuple[object, ...]:
    return (record.ready, record.deleting, record.held, record.owner, record.template_hash)
