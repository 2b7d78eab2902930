"""The groups that exist, and those that existed until a moment ago.

    kopf events, listings ──> GroupStore ──> reconciler

A group is kept as parsed values, not as the object: what is needed to decide, and nothing else. A
name can belong to a new group before the end of the old one is heard of, so what counts is the uid.
A group that is gone stays for a while as *retired*: its nodes are ours to delete as long as we
remember it. Whatever is forgotten is left to the garbage collector.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kwok_operator import constants
from kwok_operator.models.nodegroup import DeletedNodePods, KwokNodeGroupSpec
from kwok_operator.models.status import KwokNodeGroupStatus

ORPHAN_FINALIZER = "orphan"
"""On a group while `kubectl delete --cascade=orphan` is under way."""
RETIRED_FOR = 60.0
"""Seconds for which a deleted group is remembered: as long as late nodes of it may turn up."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A KwokNodeGroup of which no more is known."""

    name: str
    uid: str

    @property
    def reference(self) -> dict[str, str]:
        """What an Event about the group refers to."""
        return {
            "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
            "kind": constants.KIND,
            "name": self.name,
            "uid": self.uid,
        }


@dataclass(frozen=True, slots=True)
class Group:
    """A KwokNodeGroup as last seen."""

    name: str
    uid: str
    generation: int
    resource_version: int
    deleting: bool
    orphaning: bool
    spec: KwokNodeGroupSpec
    status: KwokNodeGroupStatus
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Ours only."""

    @property
    def reference(self) -> dict[str, str]:
        return Unread(self.name, self.uid).reference

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> "Group":
        metadata = body["metadata"]
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 0),
            resource_version=int(metadata.get("resourceVersion", 0)),
            deleting=bool(metadata.get("deletionTimestamp")),
            orphaning=ORPHAN_FINALIZER in (metadata.get("finalizers") or ()),
            spec=KwokNodeGroupSpec.model_validate(body.get("spec")),
            status=KwokNodeGroupStatus.model_validate(body.get("status")),
            annotations={
                key: value
                for key, value in (metadata.get("annotations") or {}).items()
                if key.startswith(f"{constants.API_GROUP}/")
            },
        )


@dataclass(frozen=True, slots=True)
class Retired:
    """A group that is gone, whose nodes are to go as well."""

    name: str
    uid: str
    delete_pods: bool
    since: float


class GroupStore:
    """Groups by name, retired ones by uid. `clock` gives monotonic seconds."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._groups: dict[str, Group] = {}
        self._gpu_labels: dict[str, str] = {}
        self._retired: dict[str, Retired] = {}

    def get(self, name: str) -> Group | None:
        return self._groups.get(name)

    def names(self) -> list[str]:
        return list(self._groups)

    @property
    def gpu_labels(self) -> Mapping[str, str]:
        """The GPU labels of groups that cluster-autoscaler may drive and that set one, by name."""
        return self._gpu_labels

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, group: Group) -> bool:
        """Takes what was seen; False where it is known already, or something newer is."""
        known = self._groups.get(group.name)
        if group.uid in self._retired:
            return False
        if known is not None and known.resource_version >= group.resource_version:
            return False
        if known is not None and known.uid != group.uid:
            self._retire(known)
        self._groups[group.name] = group
        autoscaling = None if group.spec.paused or group.deleting else group.spec.autoscaling
        if autoscaling is not None and autoscaling.gpu_label:
            self._gpu_labels[group.name] = autoscaling.gpu_label
        else:
            self._gpu_labels.pop(group.name, None)
        return True

    def remove(self, *, name: str, uid: str, retire: bool = True) -> None:
        """The object is gone. Its nodes go too, unless it was deleted with --cascade=orphan.

        Without `retire` it is only forgotten, and its nodes are left to the garbage collector.
        """
        known = self._groups.get(name)
        if known is not None and known.uid == uid:
            del self._groups[name]
            self._gpu_labels.pop(name, None)
            if retire:
                self._retire(known)

    def retired(self, name: str) -> list[Retired]:
        """The groups of that name which are gone, as long as they are remembered."""
        oldest = self._clock() - RETIRED_FOR
        self._retired = {uid: r for uid, r in self._retired.items() if r.since > oldest}
        return [r for r in self._retired.values() if r.name == name]

    def replace(self, groups: Iterable[Group], *, version: int) -> set[str]:
        """Takes a full listing; returns the names of groups that turned out to be gone.

        A group heard of after the listing, which was made as of `version`, is not in it and stays.
        """
        listed = {group.name: group for group in groups}
        for group in listed.values():
            self.put(group)
        gone = {
            name
            for name, group in self._groups.items()
            if name not in listed and group.resource_version <= version
        }
        for name in gone:
            self.remove(name=name, uid=self._groups[name].uid)
        return gone

    def _retire(self, group: Group) -> None:
        if not group.orphaning:
            pods = group.spec.scale_down.pods is DeletedNodePods.DELETE
            self._retired[group.uid] = Retired(group.name, group.uid, pods, self._clock())
