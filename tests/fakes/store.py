"""What the fake API server stores, and by which rules: no HTTP here.

Objects stand in collections, each known by its path. Every write takes the next resourceVersion of
one counter and leaves a `Change`, which is what watches are told. Refusals are `Refused`, with the
status and the reason that a real API server gives.

Only what clients of this project rely on is done as the real one does it: names taken,
preconditions, generation, finalizers, no new version where nothing changed, /status apart from the
rest. There is no validation, and no server-side apply or strategic merge: these need a real one.
"""

import json
import marshal
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

CREATED_AT = "2026-01-01T00:00:00Z"


def copied(value: Any) -> Any:
    """As copy.deepcopy() copies JSON, in a tenth of the time."""
    try:
        return marshal.loads(marshal.dumps(value))
    except ValueError:  # such as an enum in what a test gives
        return json.loads(json.dumps(value))


class Refused(Exception):
    """The API server says no."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what was before, and what is now. None is nothing."""

    version: int
    path: str
    old: Json | None
    new: Json | None


@dataclass(slots=True)
class Collection:
    """All objects of one kind, in one scope."""

    path: str
    kind: str
    api_version: str
    status_on_create: bool
    """Nodes may be created with a status; a custom resource with /status loses it."""
    objects: dict[str, Json] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        return self.path.rpartition("/")[2]


class Store:
    """Collections, one counter of versions, and the history since the last compaction."""

    def __init__(self) -> None:
        self.version = 1000
        self.compacted = 0
        self.collections: dict[str, Collection] = {}
        self.history: list[Change] = []

    def serve(self, path: str, *, kind: str, status_on_create: bool = False) -> Collection:
        """Have a collection at this path from now on."""
        api_version = path.split("/")[2]
        if path.startswith("/apis/"):
            api_version = "/".join(path.split("/")[2:4])
        collection = Collection(path, kind, api_version, status_on_create)
        self.collections[path] = collection
        return collection

    def compact(self) -> None:
        """Forget the history: watches from before get 410."""
        self.compacted = self.version
        self.history.clear()

    def get(self, collection: Collection, name: str) -> Json:
        try:
            return collection.objects[name]
        except KeyError:
            raise Refused(404, "NotFound", f'{collection.resource} "{name}" not found') from None

    def create(self, collection: Collection, body: Json, *, dry_run: bool = False) -> Json:
        new: Json = copied(body)
        meta = new.setdefault("metadata", {})
        name = meta.get("name")
        if not name:
            raise Refused(422, "Invalid", "metadata.name: Required value: name is required")
        if name in collection.objects:
            raise Refused(409, "AlreadyExists", f'{collection.resource} "{name}" already exists')
        new.update(kind=collection.kind, apiVersion=collection.api_version)
        if not collection.status_on_create:
            new.pop("status", None)
        if collection.kind == "Node":
            _keep_pods_off(new)
        meta.update(uid=str(uuid.uuid4()), creationTimestamp=CREATED_AT, generation=1)
        if dry_run:
            return new
        return self._write(collection, name, None, new)

    def update(
        self, collection: Collection, name: str, body: Json, *, subresource: str = ""
    ) -> Json:
        """Store a whole object, or the status of one."""
        old = self.get(collection, name)
        wanted = body.get("metadata", {})
        self._check(old, collection, wanted.get("uid"), wanted.get("resourceVersion"))
        new: Json = copied(old if subresource == "status" else body)
        if subresource == "status":
            new["status"] = copied(body.get("status", {}))
        else:
            new["status"] = copied(old.get("status", {}))
            if new["status"] == {} and "status" not in old:
                del new["status"]
        kept = ("uid", "name", "creationTimestamp", "generation", "deletionTimestamp")
        new["metadata"] = {
            **new.get("metadata", {}),
            **{key: old["metadata"][key] for key in kept if key in old["metadata"]},
            "resourceVersion": old["metadata"]["resourceVersion"],
        }
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] += 1
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._write(collection, name, old, None)
            return new
        return self._write(collection, name, old, new)

    def delete(
        self,
        collection: Collection,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
    ) -> Json:
        old = self.get(collection, name)
        self._check(old, collection, uid, version)
        if not old["metadata"].get("finalizers"):
            self._write(collection, name, old, None)
            return old
        if "deletionTimestamp" in old["metadata"]:
            return old
        new: Json = copied(old)
        new["metadata"]["deletionTimestamp"] = CREATED_AT
        return self._write(collection, name, old, new)

    def _check(
        self, old: Json, collection: Collection, uid: str | None, version: str | None
    ) -> None:
        meta = old["metadata"]
        for wanted, found in ((uid, meta["uid"]), (version, meta["resourceVersion"])):
            if wanted is not None and wanted != found:
                raise Refused(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {collection.resource} "{meta["name"]}": '
                    f"the precondition {wanted} is not the current {found}",
                )

    def _write(self, collection: Collection, name: str, old: Json | None, new: Json | None) -> Json:
        self.version += 1
        if new is None:
            del collection.objects[name]
        else:
            new["metadata"]["resourceVersion"] = str(self.version)
            collection.objects[name] = new
        self.history.append(Change(self.version, collection.path, old, new))
        return new or {}


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Iterable[Json]) -> Any:
    """RFC 6902, without move and copy."""
    result = copied(target)
    for operation in operations:
        *parents, last = (
            step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]
        )
        place = result
        for step in parents:
            place = place[int(step)] if isinstance(place, list) else place.get(step)
            if place is None:
                raise Refused(422, "Invalid", f"there is no {operation['path']}")
        _apply(place, last, operation)
    return result


def _apply(place: Any, key: str, operation: Json) -> None:
    is_list, value = isinstance(place, list), operation.get("value")
    at: Any = int(key) if is_list and key != "-" else key
    there = at < len(place) if is_list and key != "-" else at in place
    match operation["op"]:
        case "test":
            if not there or place[at] != value:
                raise Refused(422, "Invalid", f"the test of {operation['path']} failed")
        case "add" if is_list:
            place.insert(len(place) if key == "-" else at, value)
        case "add":
            place[at] = value
        case "replace" if there:
            place[at] = value
        case "remove" if there:
            del place[at]
        case other:
            raise Refused(422, "Invalid", f"{other} of {operation['path']} is impossible")


def _keep_pods_off(node: Json) -> None:
    """As the admission plugin TaintNodesByCondition does."""
    spec = node["spec"] = node.get("spec") or {}
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    spec["taints"] = [*(spec.get("taints") or ()), taint]


def patched(current: Json, patch: Any, content_type: str) -> Json:
    """Apply a patch of one of the two types that are known here."""
    if content_type == "application/merge-patch+json":
        result = merge_patch(current, patch)
    elif content_type == "application/json-patch+json":
        result = json_patch(current, patch)
    else:
        raise Refused(415, "UnsupportedMediaType", f"{content_type} needs a real API server")
    assert isinstance(result, dict)
    return result


def selects(selector: str, item: Json | None) -> bool:
    """Whether a label selector of equalities and existence takes this object."""
    labels = ((item or {}).get("metadata") or {}).get("labels") or {}
    return item is not None and all(_holds(term.strip(), labels) for term in _terms(selector))


def _terms(selector: str) -> Iterator[str]:
    yield from (term for term in selector.split(",") if term.strip())


def _holds(term: str, labels: dict[str, str]) -> bool:
    if "!=" in term:
        key, _, value = term.partition("!=")
        return labels.get(key) != value
    if "=" in term:
        key, _, value = term.replace("==", "=").partition("=")
        return labels.get(key) == value
    return (term[1:] not in labels) if term.startswith("!") else term in labels
