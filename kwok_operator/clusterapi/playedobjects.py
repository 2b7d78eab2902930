"""What is played, as the API server has it: MachineDeployments, MachineSets, and our Machines.

    reflector ──replace, upsert, remove──> Scalables, MachineStore ──> Emulation
    our own writes ──put, gone──────────────────────^

A Machine is ours by its name, which is that of a serial, and by the uid of the group on it: the
label alone anybody may write. What we wrote is entered at once, so nothing is written twice because
a watch is late.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.machines import Shown
from kwok_operator.clusterapi.scalable import Kind, Scalable, read_scalable
from kwok_operator.errors import ManifestError
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.kube.decode import Decoder

_REMEMBERED: Final = 20_000
"""Machines that are gone, so that a late event doesn't bring one back."""


@dataclass(slots=True)
class MachineRecord:
    """One Machine. `group` and `group_uid` are what it says of its group, `owners` the uids of its
    ownerReferences, `shown` what its status says.
    """

    namespace: str
    name: str
    uid: str
    resource_version: int
    group: str
    group_uid: str
    deleting: bool
    annotated: bool
    owners: tuple[str, ...]
    labels: Mapping[str, str]
    shown: Shown


def machine_record(body: Mapping[str, Any], keys: Keys) -> MachineRecord:
    """Whatever somebody has written into it."""
    metadata = as_map(body.get("metadata"))
    labels, annotations = as_map(metadata.get("labels")), as_map(metadata.get("annotations"))
    references = metadata.get("ownerReferences")
    version = str(metadata.get("resourceVersion", ""))
    return MachineRecord(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        resource_version=int(version) if version.isdecimal() else 0,
        group=str(labels.get(constants.NODE_GROUP_LABEL, "")),
        group_uid=str(annotations.get(constants.NODE_GROUP_UID_ANNOTATION, "")),
        deleting=bool(metadata.get("deletionTimestamp")),
        annotated=keys.delete_machine in annotations,
        owners=tuple(str(as_map(r).get("uid")) for r in as_list(references)),
        labels=_shared(tuple(sorted((k, v) for k, v in labels.items() if isinstance(v, str)))),
        shown=_one(Shown.read(as_map(body.get("status")))),
    )


def machines_decoder(keys: Keys) -> Decoder[MachineRecord]:
    return Decoder(dict[str, Any], lambda body: machine_record(body, keys))


@lru_cache(maxsize=2_000)
def _shared(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Machines of a group have the same labels."""
    return dict(labels)


@lru_cache(maxsize=2_000)
def _one(shown: Shown) -> Shown:
    return shown


class MachineStore:
    """Machines by the group that they name, and by their own name.

    `changed(group)` is called when one has changed; `lost(group, name)` when one is gone that was
    there, `restored(group, name)` when a list has it again.
    """

    def __init__(
        self,
        *,
        changed: Callable[[str], None],
        lost: Callable[[str, str], None],
        restored: Callable[[str, str], None],
    ) -> None:
        self._changed = changed
        self._lost = lost
        self._restored = restored
        self._groups: dict[str, dict[str, MachineRecord]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def group(self, name: str) -> Mapping[str, MachineRecord]:
        return self._groups.get(name, {})

    def groups(self) -> list[str]:
        return list(self._groups)

    def upsert(self, item: MachineRecord) -> None:
        """Takes a Machine as a write of ours or the watch returned it."""
        known = self._groups.get(item.group, {}).get(item.name)
        if item.uid in self._gone:
            return
        if known is not None and known.resource_version >= item.resource_version:
            return
        self._groups.setdefault(item.group, {})[item.name] = item
        if known is not None and known.uid == item.uid:
            item.deleting |= known.deleting
        if known is None or known.uid != item.uid or _news(known) != _news(item):
            self._changed(item.group)

    def deleted(self, item: MachineRecord) -> None:
        """The API server took our DELETE; the watch reports when the Machine is gone."""
        item.deleting = True

    def remove(self, item: MachineRecord) -> None:
        """The Machine has gone, whoever deleted it."""
        self._gone[item.uid] = None
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        group = self._groups.get(item.group, {})
        known = group.get(item.name)
        if known is None or known.uid != item.uid:
            return
        del group[item.name]
        if not group:
            del self._groups[item.group]
        self._lost(item.group, item.name)
        self._changed(item.group)

    def forget(self) -> None:
        """The cluster was restored: what isn't there now was never there."""
        self._groups.clear()
        self._gone.clear()

    def replace(self, items: Sequence[MachineRecord], resource_version: int) -> None:
        """Takes a list, also where it is older than what is known: the cluster may be restored."""
        uids = {item.uid for item in items}
        for record in [r for group in self._groups.values() for r in group.values()]:
            if record.resource_version > resource_version:
                continue
            if record.uid in uids:
                del self._groups[record.group][record.name]
            else:
                self.remove(record)
        for item in items:
            if item.uid in self._gone:
                del self._gone[item.uid]
                self._restored(item.group, item.name)
            self.upsert(item)


def _news(record: MachineRecord) -> tuple[object, ...]:
    return record.deleting, record.owners, record.labels, record.shown


@dataclass(frozen=True, slots=True)
class Played:
    """A MachineDeployment or MachineSet, and what is compared before it is written."""

    scalable: Scalable
    resource_version: int
    generation: int
    labels: Mapping[str, Any] = field(repr=False)
    status: Mapping[str, Any] = field(repr=False)


def read_played(body: Mapping[str, Any], keys: Keys) -> Played | None:
    """None for what is no scalable."""
    try:
        scalable = read_scalable(body, keys)
    except ManifestError:
        return None
    metadata = as_map(body.get("metadata"))
    version, generation = str(metadata.get("resourceVersion", "")), metadata.get("generation")
    return Played(
        scalable=scalable,
        resource_version=int(version) if version.isdecimal() else 0,
        generation=generation if isinstance(generation, int) else 0,
        labels=as_map(metadata.get("labels")),
        status=as_map(body.get("status")),
    )


def played_decoder(keys: Keys, kind: Kind) -> Decoder[Played | None]:
    # The items of a list of custom resources have their kind; those of a fake may not.
    return Decoder(dict[str, Any], lambda body: read_played({"kind": kind, **body}, keys))


class PlayedStore:
    """Those of one kind, by namespace and name; `changed` is called for each change."""

    def __init__(self, *, changed: Callable[[Scalable], None]) -> None:
        self._changed = changed
        self._known: dict[tuple[str, str], Played] = {}

    def get(self, namespace: str, name: str) -> Played | None:
        return self._known.get((namespace, name))

    def upsert(self, item: Played | None) -> None:
        if item is None:
            return
        key = item.scalable.namespace, item.scalable.name
        known = self._known.get(key)
        if known is not None and known.resource_version >= item.resource_version:
            return
        self._known[key] = item
        self._changed(item.scalable)

    def forget(self) -> None:
        """The cluster was restored: what is listed next is all that there is."""
        self._known = {key: replace(p, resource_version=0) for key, p in self._known.items()}

    def replace(self, items: Sequence[Played | None], resource_version: int) -> None:
        before, self._known = self._known, {}
        for item in items:
            if item is not None:
                self._known[item.scalable.namespace, item.scalable.name] = item
        for key, known in before.items():
            if key not in self._known:
                if known.resource_version > resource_version > 0:
                    self._known[key] = known
                else:
                    self._changed(known.scalable)
        for item in self._known.values():
            self._changed(item.scalable)

    def remove(self, item: Played | None) -> None:
        if item is None:
            return
        key = item.scalable.namespace, item.scalable.name
        known = self._known.get(key)
        if known is not None and known.scalable.uid == item.scalable.uid:
            del self._known[key]
            self._changed(known.scalable)
