"""Caches the nodes that carry our label, with only the fields that a pass (one look at one group)
needs.

    reflector ──replace, upsert, remove──> NodeCache ──> reconciler (and a wake-up for the group)
    our own writes ──created, updated, deleted─^

Of each node only a record of half a kilobyte is kept: at 50,000 nodes the objects themselves would
take a gigabyte, and even their decoded fields 80 MB. The reflector's decoder makes the records, so
what passes count is computed once for each node: passes are many, and each looks at all nodes.

Our own writes are entered as soon as the API server has answered, before the watch reports them, so
a plan never misses a node only because the watch is late. That needs no time-outs, because names
are never used twice: a name that is gone stays gone.

A watch by label reports a node that has lost its label just like a deleted one. So one of our nodes
that vanishes without our deleting it is a *stray* until a request shows whether it exists. A
standby has `keeps_strays` off: it makes no such requests, so strays would only pile up.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Final, Protocol

from kwok_operator import constants
from kwok_operator.kube.decode import NODES, Decoder, NodeView
from kwok_operator.nodegroups.naming import NodeNames, group_of_node
from kwok_operator.nodegroups.network import HeldAddresses, NodeNetwork
from kwok_operator.nodegroups.places import NodePlace, OccupiedPlaces
from kwok_operator.nodegroups.template import KubeletEndpoint

_REMEMBERED_REMOVALS = 5_000
UNHEARD_OF: Final = 120.0
"""Seconds after which a create without an answer counts as failed: the API server works on a
request for a minute at most."""


class NodeMark(Protocol):
    """The decisions that a step (nodegroups/steps.py) has written on a node, such as those of the
    simulated cloud."""

    @property
    def delete_at(self) -> int | None:
        """The time (epoch milliseconds) at which to delete the node, if the simulated cloud delays
        its deletion; else None."""


@dataclass(slots=True)
class NodeRecord:
    """What is known of one node.

    `group` is the value of its label, "" for Karpenter's nodes. `owner` is the uid of the group
    that made it, "" unless annotation and ownerReference both name it. `serial` is the number in
    its name, None if the name isn't one that the owner gives. `deleting`: it has a
    deletionTimestamp, which nobody can remove. `held`: a finalizer delays its deletion.
    `dismissed`: the operator has sent a DELETE, even if others sent one before. `endpoint` is set
    for a Ready node, and for one that the operator may make Ready. Kubernetes keeps pods off nodes
    that are `tainted`, as any new node is, or `unreachable` (nodegroups/usable.py).
    """

    name: str
    uid: str
    resource_version: int
    group: str
    owner: str
    serial: int | None
    template_hash: str
    ready: bool
    deleting: bool
    held: bool
    endpoint: KubeletEndpoint | None
    mark: NodeMark | None = None
    dismissed: bool = False
    created: int = 0
    """When the node was created, in epoch seconds."""
    tainted: bool = False
    unreachable: bool = False
    pod_cidr: str = ""
    address: str = ""
    """The InternalIP, if the node has a podCIDR."""
    place: NodePlace | None = None

    @property
    def usable(self) -> bool:
        return self.ready and not self.tainted and not self.unreachable


ReadMark = Callable[[NodeView], NodeMark | None]


def _no_mark(node: NodeView) -> None:
    return None


def record_of(node: NodeView, read_mark: ReadMark = _no_mark) -> NodeRecord:
    """Makes the cache's record of a node."""
    annotations, group = node.annotations, group_of_node(node.labels, node.annotations)
    claimed = annotations.get(constants.NODE_GROUP_UID_ANNOTATION, "")
    owner = claimed if claimed in node.owner_uids else ""
    if not owner and constants.NODE_POOL_LABEL in node.labels:
        # A node of Karpenter. In a rehearsal Karpenter's instance types give the label of a group
        # on purpose.
        group = ""
    mark = read_mark(node)
    endpoint = None
    # A Ready node without port and addresses belongs to a kwok that serves no kubelet API.
    if node.ready or (mark is not None and node.kubelet_port):
        endpoint = _shared(KubeletEndpoint(node.addresses, node.kubelet_port))
    return NodeRecord(
        name=node.name,
        uid=node.uid,
        resource_version=node.resource_version,
        group=intern(group),
        owner=intern(owner),
        serial=_names(group, owner).serial(node.name) if owner else None,
        template_hash=intern(annotations.get(constants.TEMPLATE_HASH_ANNOTATION, "")),
        ready=node.ready,
        deleting=node.deleting,
        held=node.deleting and bool(node.finalizers),
        endpoint=endpoint,
        mark=mark,
        created=int(node.created),
        tainted=node.not_ready_taint,
        unreachable=node.unreachable_taint,
        pod_cidr=node.pod_cidr,
        address=_internal_ip(node) if node.pod_cidr else "",
        place=NodePlace.parse(annotations.get(constants.PLACE_ANNOTATION)),
    )


def _internal_ip(node: NodeView) -> str:
    return next((address for kind, address in node.addresses if kind == "InternalIP"), "")


@lru_cache(maxsize=1_000)
def _names(group: str, owner: str) -> NodeNames:
    return NodeNames.of(group, owner)


@lru_cache(maxsize=1_000)
def _shared(endpoint: KubeletEndpoint) -> KubeletEndpoint:
    """Returns one shared object for all equal endpoints."""
    return endpoint


class Initialised(Protocol):
    def __call__(
        self, name: str, endpoint: KubeletEndpoint, *, group: str, first_sight: bool
    ) -> None: ...


class NodeCache:
    """The nodes by group (as their label says) and name.

    `changed(group)` is called after changes that may concern the group. `initialised(name,
    endpoint, ...)` is called when the kubelet endpoint of a Ready node is new or has changed. The
    first endpoint of a node may be the operator's own; only kwok can have written a later one.
    """

    def __init__(
        self,
        *,
        changed: Callable[[str], None],
        initialised: Initialised,
        read_mark: ReadMark = _no_mark,
    ) -> None:
        self.decoder: Decoder[NodeRecord] = NODES.then(self.record_of)
        self._read_mark = read_mark
        self._changed = changed
        self._initialised = initialised
        self._groups: dict[str, dict[str, NodeRecord]] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._removed: OrderedDict[str, int] = OrderedDict()
        self.addresses = HeldAddresses()
        """The addresses of existing nodes, and of those that are being created."""
        self._places = OccupiedPlaces()
        self.keeps_strays = False
        self._strays: dict[str, dict[str, NodeRecord]] = {}
        self._unheard_of: dict[str, float] = {}
        """Nodes whose create got no answer -> when that was."""

    def record_of(self, node: NodeView) -> NodeRecord:
        return record_of(node, self._read_mark)

    def group(self, name: str) -> Mapping[str, NodeRecord]:
        """Returns the nodes labelled with a group's name, also those that the group did not
        make."""
        return self._groups.get(name, {})

    def strays(self, group: str) -> Mapping[str, NodeRecord]:
        """Returns a group's strays (nodes that vanished from the watch) by name, each as it was
        last seen."""
        return self._strays.get(group, {})

    def lost(self, record: NodeRecord) -> None:
        """Adds a node to its group's strays: nodes that vanished from the watch, or lost the label
        or owner of their group, and may still exist."""
        ours = record.owner and record.serial is not None
        if self.keeps_strays and ours and not record.deleting:
            self._strays.setdefault(record.group, {})[record.name] = record

    def occupied(self, domain: str, *, apart: str) -> Set[int]:
        """Returns the numbers of the places (such as slots of racks) that are taken in a topology
        domain: by any cached node, or by a stray (a node that vanished from the watch, and may
        still exist) of any group but `apart`."""
        held = self._places.of(domain)
        groups = (group for group in self._strays if group != apart)
        away = frozenset[int]().union(*(self.places_of_strays(g, domain=domain) for g in groups))
        return held | away if away else held

    def places_of_strays(self, group: str, *, domain: str) -> frozenset[int]:
        """Returns the numbers of the places (such as slots of racks) in a topology domain that a
        group's strays had: nodes that vanished from the watch. A stray that still exists has its
        place still."""
        standing = (stray.place for stray in self.strays(group).values())
        return frozenset(p.number for p in standing if p is not None and p.domain == domain)

    def settle_stray(self, group: str, name: str) -> None:
        """Removes a node from the group's strays (nodes that vanished from the watch): it is gone,
        or has its label and owner again."""
        strays = self._strays.get(group, {})
        if strays.pop(name, None) is not None and not strays:
            del self._strays[group]

    def forget_strays(self, group: str) -> None:
        """Forgets the strays (nodes that vanished from the watch) of a deleted group."""
        self._strays.pop(group, None)

    @property
    def has_foreign_nodes(self) -> bool:
        """Whether any node has the label of a group that did not create it."""
        return any(record.serial is None for record in self._nodes.values())

    def count(self, name: str) -> int:
        """Counts a group's nodes against --max-total-nodes, including deleted ones that a finalizer
        keeps."""
        return sum(not r.deleting or r.held for r in self.group(name).values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def page(self, items: Sequence[NodeRecord]) -> None:
        """Enters the nodes of one page of a listing; nodes that are not on it stay."""
        for item in items:
            self.upsert(item)

    def replace(self, items: Sequence[NodeRecord], resource_version: int) -> None:
        """Enters a full list of nodes.

        Records newer than `resource_version`, that of the list, stay. All others are replaced by
        what is listed, or removed if their node isn't listed.
        """
        listed = {item.name for item in items}
        for record in list(self._nodes.values()):
            if record.name not in listed and record.resource_version <= resource_version:
                self.lost(record)
                self._remove(record.name)
        for item in items:
            known = self._nodes.get(item.name)
            if known is item:
                continue
            if known and item.resource_version < known.resource_version <= resource_version:
                _forget_version(known)
            self.upsert(item)

    def forget_versions(self) -> None:
        """Forgets all resourceVersions after the cluster was restored, so that all later reports
        count as newer."""
        self._removed.clear()
        for record in self._nodes.values():
            _forget_version(record)

    def upsert(self, new: NodeRecord) -> None:
        old = self._nodes.get(new.name)
        if old is not None:
            # resourceVersions count for the whole cluster: an older one is late, even of another
            # node with that name.
            if old.resource_version > new.resource_version:
                return
            if old.uid == new.uid and not new.deleting and _kin(old) != _kin(new):
                self.lost(old)
            if old.group != new.group:
                self._remove(old.name)
                old = None
        self._removed.pop(new.name, None)
        self._put(new, old)

    def remove(self, item: NodeRecord) -> None:
        known = self._nodes.get(item.name)
        if known is None or known.uid == item.uid or known.resource_version < item.resource_version:
            if known is not None:
                self.lost(known)
            self._remove(item.name, version=item.resource_version)

    def created(self, group: str, new: NodeRecord) -> None:
        """Enters a node that the operator has created, or that existed already when it tried to.
        The watch may already have reported the node's deletion."""
        known = self._nodes.get(new.name)
        if known is not None and known.uid == new.uid:
            return
        newest = known.resource_version if known is not None else self._removed.get(new.name, -1)
        if newest < new.resource_version:
            self._remove(new.name)
            self._removed.pop(new.name, None)
            new.group = intern(group)
            self._put(new, None)

    def claim(self, network: NodeNetwork, name: str, serial: int) -> bool:
        """Reserves the addresses of a node to create; returns False if another node has them."""
        if self.addresses.taken(network, serial, node=name):
            return False
        self._unheard_of.pop(name, None)
        self.addresses.put(name, str(network.block(serial)), network.address(serial))
        return True

    def unheard_of(self, name: str, *, now: float) -> None:
        """Notes that the create of a node got no answer. The node keeps its addresses until it is
        certain whether it exists."""
        self._unheard_of[name] = now

    def release_unheard_of(self, *, now: float) -> None:
        """Releases addresses of nodes whose create got no answer so long ago that the watch would
        have reported the node by now."""
        for name in [n for n, since in self._unheard_of.items() if now - since >= UNHEARD_OF]:
            del self._unheard_of[name]
            self.release(name)

    def release(self, name: str) -> None:
        """Releases the addresses that were reserved for a node that was not created."""
        known = self._nodes.get(name)
        if known is None:
            self.addresses.remove(name)
        else:
            self.addresses.put(name, known.pod_cidr, known.address)

    def deleted(self, name: str, *, gone: bool = False, held: bool = False) -> None:
        """Enters that the API server accepted the operator's DELETE. `gone`: the node did not exist
        any more; `held`: a finalizer keeps it."""
        for group in [g for g, strays in self._strays.items() if name in strays]:
            self.settle_stray(group, name)
        if gone:
            self._remove(name)
        elif (record := self._nodes.get(name)) is not None:
            known = record.deleting
            record.deleting = record.dismissed = True
            record.held |= held
            if known:
                # No event follows: the node was in deletion before, so the API server changed
                # nothing.
                self._changed(record.group)

    def updated(
        self, item: NodeRecord, *, ready: bool | None = None, tainted: bool | None = None
    ) -> None:
        """Enters the answer to the operator's patch: the node's metadata, and `ready` and `tainted`
        if known.

        Events from before the patch are ignored from now on; the patch's own event says the same
        and more.
        """
        known = self._nodes.get(item.name)
        if known is None or known.uid != item.uid:
            return
        if known.resource_version < item.resource_version:
            known.resource_version = item.resource_version
            known.template_hash = item.template_hash
            known.mark = item.mark
            known.place = item.place
            self._places.put(item.name, item.place)
            if ready is not None:
                known.ready = ready
            if tainted is not None:
                known.tainted = tainted

    def _put(self, new: NodeRecord, old: NodeRecord | None) -> None:
        self._groups.setdefault(new.group, {})[new.name] = new
        self._nodes[new.name] = new
        if new.owner:
            self.settle_stray(new.group, new.name)
        if new.pod_cidr:
            self.addresses.put(new.name, new.pod_cidr, new.address)
        self._places.put(new.name, new.place)
        if old is not None and old.uid == new.uid:
            new.dismissed |= old.dismissed
            if old.deleting and not new.deleting:  # a late event, from before the DELETE
                new.deleting, new.held = True, old.held
        else:
            old = None
        endpoint = new.endpoint if new.owner and new.ready else None
        if endpoint is not None and (old is None or old.endpoint != endpoint):
            self._initialised(new.name, endpoint, group=new.group, first_sight=old is None)
        if old is None or _news(old) != _news(new):
            self._changed(new.group)

    def _remove(self, name: str, *, version: int = 0) -> None:
        record = self._nodes.pop(name, None)
        if record is None:
            return
        group = self._groups[record.group]
        del group[name]
        if not group:
            del self._groups[record.group]
        if record.pod_cidr:
            self.addresses.remove(name)
        self._places.remove(name)
        self._removed[name] = max(version, record.resource_version)
        if len(self._removed) > _REMEMBERED_REMOVALS:
            self._removed.popitem(last=False)
        self._changed(record.group)


def _kin(record: NodeRecord) -> tuple[str, str]:
    return record.group, record.owner


def _forget_version(record: NodeRecord) -> None:
    record.resource_version = 0
    record.deleting = record.held = record.dismissed = False


def _news(record: NodeRecord) -> tuple[object, ...]:
    return (
        record.ready,
        record.tainted,
        record.unreachable,
        record.deleting,
        record.held,
        record.owner,
        record.template_hash,
        record.mark,
        record.place,
    )
