"""Parses KwokNodeGroups that the API server sends, and makes patches of them.

    bytes of lists, watches and answers ──GROUPS──┐
    objects that kopf has ────────────read_group──┴──> Group, or UnreadableGroup

A group is kept as parsed values, not as the object. A group can't be read if a newer CRD allows
fields that this version doesn't know, or if it nests too deep. Such a group is reported once, and
the operator neither works on it nor deletes its nodes. Other groups are not affected.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.errors import one_line
from kwok_operator.kube.decode import Decoder
from kwok_operator.kube.shallow import MOST, is_cut
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import Condition, ConditionType, KwokNodeGroupStatus
from kwok_operator.nodegroups.naming import NodeNames

logger = logging.getLogger(__name__)

ORPHAN_FINALIZER: Final = "orphan"
"""The finalizer of a group while `kubectl delete --cascade=orphan` is under way."""
LONGEST_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class Group:
    """A KwokNodeGroup as last read from the API server."""

    name: str
    uid: str
    generation: int
    resource_version: int
    deleting: bool
    orphaning: bool
    spec: KwokNodeGroupSpec
    status: KwokNodeGroupStatus
    names: NodeNames
    has_scale_down: bool
    """Whether the object has spec.scaleDown, so that a JSON Patch can add fields to it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The group's annotations whose keys begin with kwok-operator.io/."""

    @property
    def reference(self) -> dict[str, str]:
        """Returns the `involvedObject` of an Event about the group."""
        return _reference(self.name, self.uid)

    @property
    def wish(self) -> tuple[str, int, bool]:
        """What users want, as a value to compare: it changes whenever users change or delete the
        group, and not when the status changes."""
        return self.uid, self.generation, self.deleting

    def condition(self, kind: ConditionType) -> Condition | None:
        """Returns a condition of the group's status; None if it has none of that type yet."""
        return next((c for c in self.status.conditions if c.type == kind), None)

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> "Group":
        """Parses a KwokNodeGroup; raises ValueError or KeyError for anything else."""
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
            names=NodeNames.of(metadata["name"], metadata["uid"]),
            has_scale_down=isinstance((body.get("spec") or {}).get("scaleDown"), Mapping),
            labels=metadata.get("labels") or {},
            annotations={
                key: value
                for key, value in (metadata.get("annotations") or {}).items()
                if key.startswith(f"{constants.API_GROUP}/")
            },
        )


@dataclass(frozen=True, slots=True)
class UnreadableGroup:
    """A group that can't be read: only its name, metadata and the reason are known."""

    name: str
    uid: str
    resource_version: int
    why: str
    deleting: bool = False
    orphaning: bool = False

    @property
    def reference(self) -> dict[str, str]:
        return _reference(self.name, self.uid)


def _reference(name: str, uid: str) -> dict[str, str]:
    return {
        "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
        "kind": constants.KIND,
        "name": name,
        "uid": uid,
    }


def scaling_patch(
    group: Group, *, target: int | None, names: Collection[str] | None
) -> list[dict[str, Any]]:
    """Returns a JSON Patch that sets spec.targetSize to `target`, and spec.scaleDown.nodesToDelete
    to `names` (None: unchanged); empty if `group` has these values already.

    The patch tests the generation: it fails if the spec has changed since `group` was read, but not
    after a write of the status.
    """
    patch: list[dict[str, Any]] = []
    if target != group.spec.target_size:
        patch.append({"op": "add", "path": "/spec/targetSize", "value": target})
    if names is not None and frozenset(names) != group.spec.scale_down.nodes_to_delete:
        if not group.has_scale_down:
            patch.append({"op": "add", "path": "/spec/scaleDown", "value": {}})
        patch.append({"op": "add", "path": "/spec/scaleDown/nodesToDelete", "value": sorted(names)})
    tests: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": group.uid},
        {"op": "test", "path": "/metadata/generation", "value": group.generation},
    ]
    return [*tests, *patch] if patch else []


def read_group(body: Mapping[str, Any]) -> Group | UnreadableGroup:
    """Parses a group. If that fails, it returns an UnreadableGroup with the reason; it never
    raises."""
    if is_cut(body):
        return _unreadable(body, f"it nests deeper than {MOST} levels")
    try:
        return Group.parse(body)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _unreadable(body, f"{type(error).__name__}: {error}")


def _unreadable(body: Mapping[str, Any], why: str) -> UnreadableGroup:
    metadata: Any = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    version = str(metadata.get("resourceVersion", ""))
    return UnreadableGroup(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        resource_version=int(version) if version.isdecimal() else 0,
        why=one_line(why, limit=LONGEST_REASON),
        deleting=bool(metadata.get("deletionTimestamp")),
        orphaning=ORPHAN_FINALIZER in str(metadata.get("finalizers")),
    )


GROUPS: Final[Decoder[Group | UnreadableGroup]] = Decoder(dict[str, Any], read_group)


def log_unreadable(group: UnreadableGroup) -> None:
    logger.error("unreadable group, does the CRD fit? group=%s error=%s", group.name, group.why)


class Skipped:
    """Remembers groups that could not be read: each is reported once, and again when the reason
    changes."""

    def __init__(self, on_unreadable: Callable[[UnreadableGroup], None] = log_unreadable) -> None:
        self._on_unreadable = on_unreadable
        self._why: dict[str, str] = {}

    def report(self, group: UnreadableGroup) -> None:
        if self._why.get(group.name) != group.why:
            self._why[group.name] = group.why
            self._on_unreadable(group)

    def __contains__(self, name: str) -> bool:
        return name in self._why

    def forget(self, name: str) -> None:
        """Drops the reason why a group could not be read: it can be read now, or is gone."""
        self._why.pop(name, None)

    def sift(self, listed: Sequence[Group | UnreadableGroup]) -> list[Group]:
        """Splits a full listing: returns the groups that can be read, reports those that can't."""
        unread = {group.name: group for group in listed if isinstance(group, UnreadableGroup)}
        self._why = {name: why for name, why in self._why.items() if name in unread}
        for group in unread.values():
            self.report(group)
        return [group for group in listed if isinstance(group, Group)]
