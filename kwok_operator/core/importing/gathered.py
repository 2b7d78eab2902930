"""Pods that a controller made which nobody here knows, gathered into ReplicaSets and DaemonSets.

Pods of one owner that are scheduled alike are replicas of one ReplicaSet; static pods of nodes that
have one name and shape are a DaemonSet on the groups of these nodes. Labels that not all of them
have are those of one pod, and stay away.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.core.importing.binding import require
from kwok_operator.core.importing.fields import LABELS_OF_ONE_POD
from kwok_operator.core.importing.notes import Note, Reason, Ref
from kwok_operator.core.importing.objects import Manifest, manifest_of

IMPORTED_LABEL: Final = "kwok-operator.io/imported"
"""On gathered pods: what their ReplicaSet or DaemonSet selects."""
_LONGEST_NAME: Final = 50


@dataclass(slots=True)
class _Alike:
    """Pods of one owner and one shape."""

    spec: dict[str, Any]
    labels: dict[str, str]
    annotations: dict[str, str]
    notes: list[Note]
    count: int = 0
    nodes: set[str] = field(default_factory=set)

    def add(self, metadata: Mapping[str, Any]) -> None:
        self.count += 1
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        self.labels = dict(self.labels.items() & labels.items())
        self.annotations = dict(self.annotations.items() & annotations.items())


class Gathered:
    def __init__(self) -> None:
        self._pods: dict[tuple[str, str, str, str, bytes], _Alike] = {}
        """By kind of manifest, namespace, owner (kind, name), and a hash of the shape."""

    def add_owned(
        self, ref: Ref, manifest: Manifest, notes: list[Note], *, owner: tuple[str, str]
    ) -> None:
        self._alike("ReplicaSet", ref, manifest, notes, owner).add(manifest["metadata"])

    def add_static(self, ref: Ref, manifest: Manifest, notes: list[Note], *, node: str) -> None:
        name = ref.name.removesuffix(f"-{node}")
        alike = self._alike("DaemonSet", ref, manifest, notes, ("Node", name))
        alike.nodes.add(node)
        alike.add(manifest["metadata"])

    def _alike(
        self, kind: str, ref: Ref, manifest: Manifest, notes: list[Note], owner: tuple[str, str]
    ) -> _Alike:
        spec = manifest["spec"]
        shape = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).digest()
        key = (kind, ref.namespace, *owner, shape)
        alike = self._pods.get(key)
        if alike is None:
            metadata = manifest["metadata"]
            labels = {k: v for k, v in metadata.get("labels", {}).items() if not _of_one_pod(k)}
            alike = self._pods[key] = _Alike(
                spec, labels, dict(metadata.get("annotations", {})), notes
            )
        return alike

    def finish(
        self, groups_of: Mapping[str, str], *, taken: frozenset[Ref]
    ) -> tuple[dict[Ref, Manifest], list[Note]]:
        """Their manifests; none has a name in `taken`."""
        made: dict[Ref, Manifest] = {}
        notes: list[Note] = []
        for (kind, namespace, of_kind, name, shape), alike in sorted(self._pods.items(), key=_key):
            ref = Ref(kind, namespace, _name(of_kind, name, shape))
            while ref in taken or ref in made:
                shape = hashlib.sha256(shape).digest()
                ref = Ref(kind, namespace, _name(of_kind, name, shape))
            spec = json.loads(json.dumps(alike.spec))
            if kind == "DaemonSet":
                groups = sorted({groups_of[node] for node in alike.nodes if node in groups_of})
                if not groups:
                    notes.append(
                        Note(ref, Reason.STATIC_PODS_ELSEWHERE, count=alike.count, dropped=True)
                    )
                    continue
                where = {"key": NODE_GROUP_LABEL, "operator": "In", "values": groups}
                require(spec, [[where]])
                reason = Reason.STATIC_PODS
            else:
                reason = Reason.OWNER_UNKNOWN
            notes.append(Note(ref, reason, detail=of_kind, count=alike.count))
            notes += [Note(ref, n.reason, n.field, n.detail, alike.count) for n in alike.notes]
            made[ref] = _manifest(ref, alike, spec)
        return made, notes


def _manifest(ref: Ref, alike: _Alike, spec: dict[str, Any]) -> Manifest:
    for name in ("restartPolicy", "activeDeadlineSeconds"):
        spec.pop(name, None)
    mark = {IMPORTED_LABEL: ref.name}
    metadata: dict[str, Any] = {"labels": {**alike.labels, **mark}}
    if alike.annotations:
        metadata["annotations"] = alike.annotations
    replicas = {"replicas": alike.count} if ref.kind == "ReplicaSet" else {}
    return manifest_of(
        ref,
        {"labels": dict(mark)},
        spec={
            **replicas,
            "selector": {"matchLabels": dict(mark)},
            "template": {"metadata": metadata, "spec": spec},
        },
    )


def _of_one_pod(label: str) -> bool:
    return label in LABELS_OF_ONE_POD


def _key(item: tuple[tuple[str, str, str, str, bytes], _Alike]) -> tuple[Any, ...]:
    return item[0]


def _name(kind: str, name: str, shape: bytes) -> str:
    """A readable name for an owner's pods of one shape."""
    readable = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{name}".lower()).strip("-")[:_LONGEST_NAME]
    return f"{readable.strip('-') or 'pods'}-{shape.hex()[:8]}"
