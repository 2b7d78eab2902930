"""Turns pods whose controller isn't imported into ReplicaSets, DaemonSets and StatefulSets.

Pods with the same owner and shape become replicas of one ReplicaSet. Static pods with the same name
and shape, and pods of a DaemonSet that wasn't read, become a DaemonSet on the groups of their
nodes; pods of a StatefulSet that wasn't read become a StatefulSet. Labels in which the pods differ
are left out.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.binding import NAME_FIELD, Places, bind_to_groups, require
from kwok_operator.importing.pods.fields import LABELS_OF_ONE_POD, REQUIRED
from kwok_operator.importing.pods.objects import Manifest, manifest_of
from kwok_operator.importing.pods.podlocations import PodLocations
from kwok_operator.nodegroups.naming import is_object_name

IMPORTED_LABEL: Final = "kwok-operator.io/imported"
"""A label that these pods get, for the selector of their ReplicaSet or DaemonSet."""
_LONGEST_NAME: Final = 50
_ANY_SHAPE: Final = b"any"
_MOST_GAPS: Final = 10
_REASONS: Final = {
    "Node": Reason.STATIC_PODS,
    "DaemonSet": Reason.CONTROLLER_UNREAD,
    "StatefulSet": Reason.CONTROLLER_UNREAD,
}
"""The reason in the ledger, by the kind of the pods' owner."""


@dataclass(slots=True)
class _Alike:
    """Pods of one owner and one shape, which become one manifest."""

    spec: dict[str, Any]
    labels: dict[str, str]
    annotations: dict[str, str]
    notes: list[Note]
    locations: PodLocations
    nodes: set[str]
    """The nodes of static pods, even if the pods are not bound yet."""
    count: int = 1
    differ: set[str] = field(default_factory=set)
    """Keys of labels whose values differ between the pods."""

    def add(self, others: "_Alike") -> None:
        self.count += others.count
        self.locations.merge(others.locations)
        self.nodes |= others.nodes
        self.notes += [note for note in others.notes if note not in self.notes]
        keys = self.labels.keys() | others.labels.keys()
        shared = _shared(self.labels, others.labels)
        self.differ |= others.differ | (keys - shared.keys())
        self.labels = shared
        self.annotations = _shared(self.annotations, others.annotations)


_Key = tuple[str, str, str, str, bytes]
"""Identifies pods that are alike: kind of manifest, namespace, owner (kind, name), and a hash of
the shape.
"""


class OwnedPod(NamedTuple):
    """A pod with an owner, as it was read and cleaned."""

    ref: Ref
    manifest: Manifest
    notes: list[Note]
    locations: PodLocations


class Gathered:
    def __init__(self) -> None:
        self._pods: dict[_Key, _Alike] = {}

    def add_owned(self, pod: OwnedPod, *, owner: tuple[str, str]) -> None:
        self._add(pod, "ReplicaSet", owner=owner)

    def add_static(self, pod: OwnedPod, *, node: str) -> None:
        name = pod.ref.name.removesuffix(f"-{node}")
        self._add(pod, "DaemonSet", owner=("Node", name), nodes={node})

    def add_daemon(self, pod: OwnedPod, *, of: str, node: str) -> None:
        """Adds a pod of the DaemonSet `of`, which could not be read. The pod is on `node`; a pod
        without locations doesn't exist yet, but CA expects one on each new node like `node`. Pods
        of all shapes count as one DaemonSet, as an update may be under way.
        """
        spec = pod.manifest["spec"]
        affinity = spec.get("affinity", {})
        # The controller has replaced the DaemonSet's node requirements by this node.
        affinity.get("nodeAffinity", {}).pop(REQUIRED, None)
        if not any(affinity.values()):
            spec.pop("affinity", None)
        self._add(pod, "DaemonSet", owner=("DaemonSet", of), nodes={node}, shape=_ANY_SHAPE)

    def add_numbered(self, pod: OwnedPod, *, of: str) -> None:
        """Adds a pod of the StatefulSet `of`, which could not be read."""
        self._add(pod, "StatefulSet", owner=("StatefulSet", of), shape=_ANY_SHAPE)

    def _add(
        self,
        pod: OwnedPod,
        kind: str,
        *,
        owner: tuple[str, str],
        nodes: Collection[str] = (),
        shape: bytes | None = None,
    ) -> None:
        ref = Ref(kind, pod.ref.namespace, owner[1])
        spec, metadata = pod.manifest["spec"], pod.manifest["metadata"]
        for name in ("restartPolicy", "activeDeadlineSeconds"):
            spec.pop(name, None)  # controllers of pods that never end refuse it
        labels = metadata.get("labels", {})
        one = _Alike(
            spec=spec,
            labels={key: labels[key] for key in labels if key not in LABELS_OF_ONE_POD},
            annotations=metadata.get("annotations", {}),
            notes=[replace(note, ref=ref) for note in pod.notes],
            locations=pod.locations,
            nodes=set(nodes),
            count=pod.locations.count,
        )
        shape = _hash(spec) if shape is None else shape
        _merge(self._pods, (ref.kind, ref.namespace, *owner, shape), one)

    def finish(
        self, places: Places, *, taken: frozenset[Ref]
    ) -> tuple[dict[Ref, Manifest], dict[Ref, PodLocations], list[Note]]:
        """Returns the manifests, the nodes that their pods were on, and notes. No manifest gets a
        name in `taken`.
        """
        manifests: dict[Ref, Manifest] = {}
        locations: dict[Ref, PodLocations] = {}
        notes: list[Note] = []
        everywhere = {g for (key, _), own in places.items() if key == NAME_FIELD for g in own}
        for key, alike in sorted(self._bound(places).items(), key=_first):
            kind, namespace, of_kind, name, shape = key
            while (
                ref := Ref(kind, namespace, _name(of_kind, name, shape))
            ) in taken | manifests.keys():
                shape = hashlib.sha256(shape).digest()
            if kind == "DaemonSet":
                groups = sorted({g for n in alike.nodes for g in places.get((NAME_FIELD, n), ())})
                if not groups:
                    lost = Reason.PODS_OF_NODES_ELSEWHERE
                    notes.append(Note(ref, lost, count=alike.count, dropped=True))
                    continue
                where = {"key": NODE_GROUP_LABEL, "operator": "In", "values": groups}
                if of_kind == "Node" or set(groups) != everywhere:
                    require(alike.spec, [[where]])
            reason = _REASONS.get(of_kind, Reason.OWNER_UNKNOWN)
            notes.append(Note(ref, reason, detail=of_kind, count=alike.count))
            notes += [replace(note, ref=ref, count=alike.count) for note in alike.notes]
            notes += [
                Note(ref, Reason.LABELS_DIFFER, f"metadata.labels.{key}", count=alike.count)
                for key in alike.differ
            ]
            manifests[ref], locations[ref] = _manifest(ref, alike), alike.locations
        return manifests, locations, notes

    def _bound(self, places: Places) -> dict[_Key, _Alike]:
        """Returns the pods, which select groups where they were bound to nodes. Pods that differed
        only in the node to which a controller bound them, and whose nodes are in one group, are
        equal now and are merged.
        """
        bound: dict[_Key, _Alike] = {}
        for key, alike in sorted(self._pods.items(), key=_first):
            kind, namespace, of_kind, name, shape = key
            spec = json.loads(json.dumps(alike.spec))
            nodes, differ = set(alike.nodes), set(alike.differ)
            ref = Ref(kind, namespace, name)
            notes = alike.notes + bind_to_groups(spec, places=places, ref=ref)
            locations = PodLocations()
            locations.merge(alike.locations)
            copy = replace(
                alike, spec=spec, notes=notes, locations=locations, nodes=nodes, differ=differ
            )
            if len(notes) > len(alike.notes) and shape != _ANY_SHAPE:
                shape = _hash(spec)
            _merge(bound, (kind, namespace, of_kind, name, shape), copy)
        return bound


def _first(item: tuple[_Key, _Alike]) -> _Key:
    return item[0]


def _merge(pods: dict[_Key, _Alike], key: _Key, alike: _Alike) -> None:
    if key in pods:
        pods[key].add(alike)
    else:
        pods[key] = alike


def _hash(spec: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).digest()


def _shared(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    return {key: one[key] for key in sorted(one) if other.get(key) == one[key]}


def _manifest(ref: Ref, alike: _Alike) -> Manifest:
    mark = {IMPORTED_LABEL: ref.name}
    metadata: dict[str, Any] = {"labels": {**alike.labels, **mark}}
    if alike.annotations:
        metadata["annotations"] = alike.annotations
    own: dict[str, Any] = {"replicas": alike.count} if ref.kind == "ReplicaSet" else {}
    if ref.kind == "StatefulSet":
        first, last = min(alike.locations.ordinals), max(alike.locations.ordinals)
        # Fewer if ordinals are so far apart that they can't be of one StatefulSet.
        replicas = min(last - first + 1, _MOST_GAPS * alike.count)
        own = {"replicas": replicas, "serviceName": ref.name}
        own |= {"podManagementPolicy": "Parallel"}  # as any of its pods may be pending
        own |= {"ordinals": {"start": first}} if first else {}
    return manifest_of(
        ref,
        {"labels": dict(mark)},
        spec={
            **own,
            "selector": {"matchLabels": dict(mark)},
            "template": {"metadata": metadata, "spec": alike.spec},
        },
    )


def _name(kind: str, name: str, shape: bytes) -> str:
    """Returns a readable name for the manifest of an owner's pods: the owner's own name, if that is
    valid and `shape` is _ANY_SHAPE (pods of all shapes together); else one with a hash of the
    shape.
    """
    if shape == _ANY_SHAPE and len(name) <= _LONGEST_NAME and is_object_name(name):
        return name
    readable = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{name}".lower()).strip("-")[:_LONGEST_NAME]
    return f"{readable.strip('-') or 'pods'}-{shape.hex()[:8]}"
