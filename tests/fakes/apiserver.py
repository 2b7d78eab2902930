"""A small API server for the faults that a real one can't be made to show.

    async with FakeApiServer() as server:
        server.create("/api/v1/nodes", node)
        server.fail(429, retry_after=1, times=3, verb="create")
        client = KubeClient(connection=server.connection())

It serves nodes, their leases and KwokNodeGroups; `server.serve()` adds others. Everything that was
asked stands in `server.calls` (counted by verb and resource) and `server.seen`. Faults are queued
and used up one per request. Nothing happens by itself, not even bookmarks: tests say when.
"""

import asyncio
import copy
import json
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from ssl import SSLContext
from typing import Any, Self

from aiohttp import web

from kwok_operator.kube.connection import ApiConnection, Endpoint
from tests.fakes.store import Collection, Json, Refused, Store, merge_patch, patched, selects
from tests.fakes.waiting import until
from tests.fakes.wire import Watcher, partial, refusal, reply, status_of

NODES = "/api/v1/nodes"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
GROUPS = "/apis/kwok-operator.io/v1alpha1/kwoknodegroups"

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Seen:
    """One request."""

    verb: str
    resource: str
    name: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Fault:
    """What goes wrong, and with which requests; an empty verb, resource or name means any."""

    verb: str = ""
    resource: str = ""
    name: str = ""
    status: int = 0
    reason: str = ""
    message: str = "injected"
    retry_after: int | None = None
    location: str | None = None
    cut: bool = False
    carried_out: bool = False
    """Whether the request has its effect before the connection is cut."""
    released: asyncio.Event | None = None
    body: bytes | None = None
    times: int = 1

    def hits(self, seen: Seen) -> bool:
        return (
            self.verb in ("", seen.verb)
            and self.resource in ("", seen.resource)
            and self.name in ("", seen.name)
        )


def _place(port: int) -> socket.socket:
    """A port where nobody listens yet."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", port))
    return place


class FakeApiServer:
    """See the module."""

    def __init__(self, *, tls: SSLContext | None = None) -> None:
        self.store = Store()
        self.store.serve(NODES, kind="Node", status_on_create=True)
        self.store.serve(LEASES, kind="Lease")
        self.store.serve(GROUPS, kind="KwokNodeGroup")
        self.documents: dict[str, str] = {"/readyz": "ok", "/version": '{"gitVersion": "v1.34.0"}'}
        """Other things to GET."""
        self.admit: Callable[[Json, bool], None] = lambda body, dry_run: None
        """Alters what is created, as a webhook does."""
        self.tokens: set[str] | None = None
        """The bearer tokens that are known; None takes everybody."""
        self.calls: Counter[tuple[str, str]] = Counter()
        self.seen: list[Seen] = []
        self.watchers: list[Watcher] = []
        self.gone_as_event = False
        """A version that is too old is told by an ERROR event, not by the status."""
        self.url = ""
        self._tls = tls
        self._told_of = self.store.version
        self._faults: list[Fault] = []
        self._pages: dict[str, tuple[list[Json], int]] = {}
        self._runner: web.AppRunner | None = None
        self._place: socket.socket | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self._place is not None:
            self._place.close()

    @property
    def serving(self) -> bool:
        """Whether it can be reached."""
        return self._runner is not None

    async def start(self, port: int = 0) -> None:
        """Serves, at the same address each time."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        self._place = self._place or _place(port)
        await web.SockSite(self._runner, self._place, ssl_context=self._tls).start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Be gone, as during an upgrade; `start()` brings it back with all it stored."""
        self.end_watches()
        if self._runner is not None:
            port = self._port
            await self._runner.cleanup()
            self._runner = None
            # Nobody else gets the port meanwhile, be it by chance for a connection of their own.
            self._place = _place(port)

    async def restore(self, saved: Store, *, missed: Callable[[], bool], others: int = 0) -> None:
        """Be gone until it is missed, and come back with what a `snapshot` has, its revision too.

        So many objects of others are written before anybody finds it again.
        """
        await self.stop()
        await until(missed)
        self.store = copy.deepcopy(saved)
        self._told_of = self.store.version
        self.compact()
        for i in range(others):
            self.create(LEASES, {"metadata": {"name": f"another-{i}"}})
        await self.start()

    @property
    def _port(self) -> int:
        assert self._place is not None
        return int(self._place.getsockname()[1])

    def snapshot(self) -> Store:
        """All that is stored."""
        return copy.deepcopy(self.store)

    def connection(self, **fields: Any) -> ApiConnection:
        return ApiConnection(Endpoint(server=self.url, **fields))

    def serve(self, path: str, *, kind: str, status_on_create: bool = False) -> None:
        """Have a collection at this path."""
        self.store.serve(path, kind=kind, status_on_create=status_on_create)

    def objects(self, path: str) -> dict[str, Json]:
        """What is stored there, by name."""
        return self.store.collections[path].objects

    def create(self, path: str, body: Json) -> Json:
        """Somebody else creates an object."""
        return self._told(self.store.create(self.store.collections[path], body))

    def patch(self, path: str, name: str, patch: Json, *, subresource: str = "") -> Json:
        """Somebody else patches an object, by merge."""
        collection = self.store.collections[path]
        body = merge_patch(self.store.get(collection, name), patch)
        return self._told(self.store.update(collection, name, body, subresource=subresource))

    def delete(self, path: str, name: str) -> None:
        """Somebody else deletes an object."""
        self._told(self.store.delete(self.store.collections[path], name))

    def fail(self, status: int, *, times: int = 1, **which: Any) -> None:
        """Answer the next requests with this status; see `Fault` for the rest."""
        if times:
            self._faults.append(Fault(status=status, times=times, **which))

    def heal(self) -> None:
        """What was to fail doesn't any more."""
        self._faults.clear()

    def cut(self, *, times: int = 1, **which: Any) -> None:
        """Cut the connections of the next requests without an answer."""
        if times:
            self._faults.append(Fault(cut=True, times=times, **which))

    def hold(self, **which: Any) -> asyncio.Event:
        """Make the next request wait until the event is set."""
        released = asyncio.Event()
        self._faults.append(Fault(released=released, **which))
        return released

    def answer(self, body: bytes, **which: Any) -> None:
        """Answer the next request with 200 and these bytes."""
        self._faults.append(Fault(status=200, body=body, **which))

    def compact(self) -> None:
        """Forget the history and the lists that are being paged through."""
        self.store.compact()
        self._pages.clear()

    def bookmark(self) -> None:
        """Send all watches a bookmark."""
        for watcher in self.watchers:
            collection = self.store.collections[watcher.path]
            meta = {"resourceVersion": str(self.store.version), "creationTimestamp": None}
            watcher.send(
                "BOOKMARK",
                {"kind": collection.kind, "apiVersion": collection.api_version, "metadata": meta},
            )

    def send_error(self, code: int, reason: str = "InternalError") -> None:
        """Send all watches an ERROR event, and end them."""
        for watcher in self.watchers:
            watcher.send("ERROR", status_of(code, reason, "injected"))
        self.end_watches()

    def end_watches(self) -> None:
        """End all watches, properly."""
        for watcher in self.watchers:
            watcher.chunks.put_nowait(None)

    def cut_watches(self, leaving: bytes = b"") -> None:
        """Cut the connections of all watches, perhaps after some last bytes."""
        for watcher in self.watchers:
            if leaving:
                watcher.chunks.put_nowait(leaving)
            watcher.chunks.put_nowait(ConnectionResetError())

    def _told(self, answer: Json) -> Json:
        """Tell the watches what has been written since they were last told."""
        news = takewhile(
            lambda change: change.version > self._told_of, reversed(self.store.history)
        )
        for change in reversed(list(news)):
            for watcher in self.watchers:
                watcher.tell(change)
        self._told_of = self.store.version
        return answer

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        collection, name, subresource = self._find(request.path)
        seen = await self._note(request, collection, name, subresource)
        known = self.tokens
        if known is not None and seen.headers.get("Authorization", "")[7:] not in known:
            return refusal(401, "Unauthorized", "Unauthorized")
        fault = next((fault for fault in self._faults if fault.hits(seen)), None)
        if fault is not None:
            fault.times -= 1
            if not fault.times:
                self._faults.remove(fault)
            if fault.released is not None:
                await fault.released.wait()
            if fault.carried_out:
                await self._respond(request, seen, collection, subresource)
            if fault.cut:
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if fault.body is not None:
                return web.Response(body=fault.body, content_type="application/json")
            if fault.status:
                headers = {"Retry-After": fault.retry_after, "Location": fault.location}
                said = {name: str(value) for name, value in headers.items() if value is not None}
                return refusal(fault.status, fault.reason, fault.message, headers=said)
        try:
            return await self._respond(request, seen, collection, subresource)
        except Refused as error:
            return refusal(error.status, error.reason, str(error))

    def _find(self, path: str) -> tuple[Collection | None, str, str]:
        """Find the collection, the name and the subresource that a path means."""
        for prefix, collection in self.store.collections.items():
            if path == prefix or path.startswith(prefix + "/"):
                name, _, subresource = path[len(prefix) + 1 :].partition("/")
                return collection, name, subresource
        return None, "", ""

    async def _note(
        self, request: web.Request, collection: Collection | None, name: str, subresource: str
    ) -> Seen:
        verb = _VERBS.get(request.method) or ("get" if name or collection is None else "list")
        if verb == "list" and request.query.get("watch") in ("1", "true"):
            verb = "watch"
        resource = collection.resource if collection is not None else request.path
        seen = Seen(
            verb=verb,
            resource=f"{resource}/{subresource}" if subresource else resource,
            name=name,
            query=dict(request.query),
            headers=dict(request.headers),
            body=await request.read(),
        )
        self.seen.append(seen)
        self.calls[seen.verb, seen.resource] += 1
        return seen

    async def _respond(
        self, request: web.Request, seen: Seen, collection: Collection | None, subresource: str
    ) -> web.StreamResponse:
        if collection is None:
            if request.path not in self.documents:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            document = self.documents[request.path]
            kind = "application/json" if document.startswith("{") else "text/plain"
            return web.Response(text=document, content_type=kind)
        metadata_only = "as=PartialObjectMetadata" in seen.headers.get("Accept", "")
        if seen.verb == "watch":
            return await self._watch(request, collection, metadata_only)
        if seen.verb == "list":
            return reply(self._list(collection, seen.query, metadata_only))
        answer = self._told(self._serve_object(seen, collection, subresource))
        status = 201 if seen.verb == "create" else 200
        return reply(partial(answer) if metadata_only else answer, status)

    def _serve_object(self, seen: Seen, collection: Collection, subresource: str) -> Json:
        body = json.loads(seen.body) if seen.body else {}
        match seen.verb:
            case "get":
                return self.store.get(collection, seen.name)
            case "create":
                dry_run = seen.query.get("dryRun") == "All"
                self.admit(body, dry_run)
                if manager := seen.query.get("fieldManager"):
                    written = {"manager": manager, "operation": "Update"}
                    body["metadata"]["managedFields"] = [written]
                return self.store.create(collection, body, dry_run=dry_run)
            case "delete" if seen.name:
                wanted = body.get("preconditions") or {}
                return self.store.delete(
                    collection,
                    seen.name,
                    uid=wanted.get("uid"),
                    version=wanted.get("resourceVersion"),
                )
            case "patch":
                body = patched(
                    self.store.get(collection, seen.name), body, seen.headers["Content-Type"]
                )
            case "update":
                pass
            case _:
                raise Refused(405, "MethodNotAllowed", "the server does not allow this method")
        return self.store.update(collection, seen.name, body, subresource=subresource)

    def _list(self, collection: Collection, query: dict[str, str], metadata_only: bool) -> Json:
        token = query.get("continue", "")
        if token:
            if token not in self._pages:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            items, version = self._pages.pop(token)
        else:
            selector = query.get("labelSelector", "")
            field, _, name = query.get("fieldSelector", "").partition("=")
            items = [o for _, o in sorted(collection.objects.items()) if selects(selector, o)]
            if field == "metadata.name":
                items = [o for o in items if o["metadata"]["name"] == name]
            version = self.store.version
        limit = int(query.get("limit") or 0) or len(items)
        page, rest = items[:limit], items[limit:]
        meta: Json = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = f"{version}-{len(rest)}-{len(self.seen)}"
            meta["remainingItemCount"] = len(rest)
            self._pages[meta["continue"]] = (rest, version)
        if metadata_only:
            page = [partial(item) for item in page]
        kind = "PartialObjectMetadata" if metadata_only else collection.kind
        api_version = "meta.k8s.io/v1" if metadata_only else collection.api_version
        # An empty list of metadata is null, and only that.
        found = page or (None if metadata_only else [])
        return {"kind": f"{kind}List", "apiVersion": api_version, "metadata": meta, "items": found}

    async def _watch(
        self, request: web.Request, collection: Collection, metadata_only: bool
    ) -> web.StreamResponse:
        watcher = Watcher(collection.path, request.query.get("labelSelector", ""), metadata_only)
        since = int(request.query.get("resourceVersion") or self.store.version)
        if since < self.store.compacted:
            if not self.gone_as_event:
                raise Refused(410, "Expired", f"too old resource version: {since}")
            watcher.send("ERROR", status_of(410, "Expired", f"too old resource version: {since}"))
            watcher.chunks.put_nowait(None)
        watcher.since = since
        for change in self.store.history:
            watcher.tell(change)
        self.watchers.append(watcher)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            while (chunk := await watcher.chunks.get()) is not None:
                if isinstance(chunk, ConnectionResetError):
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await response.write(chunk)
        finally:
            self.watchers.remove(watcher)
        return response
