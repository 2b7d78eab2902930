"""How the fake API server puts objects on the wire: answers, and the lines of watches."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web

from tests.fakes.store import Change, Json, selects


def partial(item: Json) -> Json:
    """Metadata only."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item["metadata"],
    }


def line(kind: str, item: Json) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": item}, separators=(",", ":")).encode() + b"\n"


def status_of(code: int, reason: str, message: str) -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def refusal(
    code: int, reason: str, message: str, *, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    return web.json_response(status_of(code, reason, message), status=code, headers=headers)


def reply(body: Json, status: int = 200) -> web.StreamResponse:
    return web.json_response(body, status=status)


@dataclass(slots=True, eq=False)
class Watcher:
    """One open watch: chunks are written as they are put; None ends it, an exception cuts it."""

    path: str
    selector: str
    metadata_only: bool
    since: int = 0
    """What is not newer is not told, also where the server's history has gone back."""
    chunks: asyncio.Queue[bytes | ConnectionResetError | None] = field(
        default_factory=asyncio.Queue
    )

    def tell(self, change: Change) -> None:
        if change.path != self.path or change.version <= self.since:
            return
        before, after = selects(self.selector, change.old), selects(self.selector, change.new)
        if not before and not after:
            return
        if after:
            assert change.new is not None
            kind, item = ("MODIFIED" if before else "ADDED"), change.new
        else:
            # A deletion comes with the last state, and with a version of its own.
            assert change.old is not None
            meta = {**change.old["metadata"], "resourceVersion": str(change.version)}
            kind, item = "DELETED", {**change.old, "metadata": meta}
        self.send(kind, partial(item) if self.metadata_only else item)

    def send(self, kind: str, item: Json) -> None:
        self.chunks.put_nowait(line(kind, item))
