"""Caches of the simulated objects: MachineDeployments, MachineSets, and the operator's Machines.

    reflector ──replace, upsert, remove──> ScalableStore, MachineStore ──> Emulation
    our own writes ──put, gone──────────────────────^

A Machine is the operator's if its name has a serial and the hash of its group's uid; the label
alone could be written by anybody. Our own writes are entered at once, so that nothing is written
twice because a watch is late.
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
"""The most deleted Machines that are remembered, so that a late event doesn't bring one back."""


@dataclass(slots=True)
class MachineRecord:
    """The fields of one Machine that are kept in memory.

    `group` and `group_uid` are from its label and annotation; `owners` are the uids of its
    ownerReferences; `shown` is its status. `annotated`: it has cluster-autoscaler's delete-machine
    annotation.
    """

    namespace: str
    name: str
    uid: str
    resource_version: int
    group: str
    group_uid: str
    deleting: bool
    finalizers: tuple[str, ...]
    annotated: bool
    owners: tuple[str, ...]
    labels: Mapping[str, str]
    shown: Shown

    @property
    def kept(self) -> bool:
        """Whether our finalizer keeps the Machine until its instance is gone."""
        return constants.INSTANCE_FINALIZER in self.finalizers


def machine_record(body: Mapping[str, Any], keys: Keys) -> MachineRecord:
    """Reads a Machine, which others may have written; malformed parts count as empty."""
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
        finalizers=tuple(map(str, as_list(metadata.get("finalizers")))),
        annotated=keys.delete_machine in annotations,
        owners=tuple(str(as_map(r).get("uid")) for r in as_list(references)),
        labels=_shared(tuple(sorted((k, v) for k, v in labels.items() if isinstance(v, str)))),
        shown=_one(Shown.read(as_map(body.get("status")))),
    )


def machines_decoder(keys: Keys) -> Decoder[MachineRecord]:
    return Decoder(dict[str, Any], lambda body: machine_record(body, keys))


@lru_cache(maxsize=2_000)
def _shared(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Returns one object for equal labels, to save memory: Machines of a group share them."""
    return dict(labels)


@lru_cache(maxsize=2_000)
def _one(shown: Shown) -> Shown:
    return shown


class MachineStore:
    """Caches Machines, by the group that their label names, and by name.

    `changed(group)` is called when a Machine has changed; `lost(group, name)` when it is gone;
    `restored(group, name)` when a list contains a lost Machine again.
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
        """Enters a Machine, which the watch or the answer to our own write contains."""
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
        """Notes that the API server accepted our DELETE of a Machine. Once the Machine is gone, the
        watch calls `remove`.
        """
        item.deleting = True

    def remove(self, item: MachineRecord) -> None:
        """Removes a Machine that is gone, also one that another client deleted."""
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
        """Forgets all Machines, as the cluster was restored from a backup. None of them counts as
        lost."""
        self._groups.clear()
        self._gone.clear()

    def replace(self, items: Sequence[MachineRecord], resource_version: int) -> None:
        """Enters a full list; Machines newer than the list stay."""
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
    return record.deleting, record.kept, record.owners, record.labels, record.shown


@dataclass(frozen=True, slots=True)
class ScalableRecord:
    """A MachineDeployment or MachineSet, with the parts that are compared before a write."""

    scalable: Scalable
    resource_version: int
    generation: int
    labels: Mapping[str, Any] = field(repr=False)
    status: Mapping[str, Any] = field(repr=False)


def scalable_record(body: Mapping[str, Any], keys: Keys) -> ScalableRecord | None:
    """Reads a MachineDeployment or MachineSet; None if it is malformed."""
    try:
        scalable = read_scalable(body, keys)
    except ManifestError:
        return None
    metadata = as_map(body.get("metadata"))
    version, generation = str(metadata.get("resourceVersion", "")), metadata.get("generation")
    return ScalableRecord(
        scalable=scalable,
        resource_version=int(version) if version.isdecimal() else 0,
        generation=generation if isinstance(generation, int) else 0,
        labels=as_map(metadata.get("labels")),
        status=as_map(body.get("status")),
    )


def scalables_decoder(keys: Keys, kind: Kind) -> Decoder[ScalableRecord | None]:
    # In a list of custom resources each item has its kind; a fake API server in tests may omit it.
    return Decoder(dict[str, Any], lambda body: scalable_record({"kind": kind, **body}, keys))


class ScalableStore:
    """The scalables of one kind, by namespace and name; `changed` is called for each change."""

    def __init__(self, *, changed: Callable[[Scalable], None]) -> None:
        self._changed = changed
        self._known: dict[tuple[str, str], ScalableRecord] = {}

    def get(self, namespace: str, name: str) -> ScalableRecord | None:
        return self._known.get((namespace, name))

    def upsert(self, item: ScalableRecord | None) -> None:
        if item is None:
            return
        key = item.scalable.namespace, item.scalable.name
        known = self._known.get(key)
        if known is not None and known.resource_version >= item.resource_version:
            return
        self._known[key] = item
        self._changed(item.scalable)

    def forget(self) -> None:
        """Prepares for a cluster that was restored from a backup: the next list replaces all known
        objects, even those that seem newer.
        """
        self._known = {key: replace(p, resource_version=0) for key, p in self._known.items()}

    def replace(self, items: Sequence[ScalableRecord | None], resource_version: int) -> None:
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

    def remove(self, item: ScalableRecord | None) -> None:
        if item is None:
            return
        key = item.scalable.namespace, item.scalable.name
        known = self._known.get(key)
        if known is not None and known.scalable.uid == item.scalable.uid:
            del self._known[key]
            self._changed(known.scalable)
