"""Runs `kwok-operator replay`: sends the requests of a trace when they are due.

    files -> lines -> Replay.requests -> Sender, many at a time, those about one object in order

Refused requests are counted, and the replay goes on. Requests about an object that could not be
created are left out, as they would change an object that isn't ours. The report says how late
requests were sent.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kwok_operator.constants import REPLAYED_LABEL
from kwok_operator.errors import SettingsError, TraceError
from kwok_operator.formats.untyped import as_map
from kwok_operator.importing.cluster import ClusterClient, Log, Unreadable, open_cluster
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.settings import ReplaySettings
from kwok_operator.importing.traces.cleaning import cleaner
from kwok_operator.importing.traces.files import Findings, read_trace
from kwok_operator.importing.traces.record import cluster_id
from kwok_operator.importing.traces.replaying import (
    NAMESPACES,
    Replay,
    Request,
    Verb,
)
from kwok_operator.importing.traces.report import Report
from kwok_operator.importing.traces.trace import Key, Line
from kwok_operator.signals import cancelled_by_signals

_MOST_AT_ONCE: Final = 100
_MOST_WAITING: Final = 5_000
_ATTEMPTS: Final = 6
_PATIENCE: Final = 30.0
"""Seconds in which a creation is retried while its name is taken, or its class unknown."""
_REMEMBERED: Final = 10_000
_GOING: Final = -1
"""Stands for an HTTP status: the namespace is being deleted, so nothing can be created in it."""
_AGAIN: Final = frozenset({0, 429, 500, 502, 503, 504})
_SHARED: Final = frozenset({"Namespace", "ServiceAccount", "PriorityClass", "RuntimeClass"})
"""Kinds of which an existing object is used instead of a new one."""
_PROGRESS_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.3
_GONE_WITHIN: Final = 300.0


def planned(settings: ReplaySettings) -> tuple[Replay, Findings, Iterator[Request]]:
    """Returns the plan, the problems of the files, and the requests. The files are read, and
    problems added, while the caller iterates over the requests.
    """
    clean, findings = cleaner(places={}), Findings()
    replay = Replay(settings, clean=cleaner(places={}, keep_images=True))

    def lines() -> Iterator[tuple[str, Line]]:
        for path in settings.paths:
            yield from read_trace(path, clean=clean, findings=findings)

    return replay, findings, replay.requests(lines())


def shown(request: Request) -> str:
    """Returns a request as a line of --dry-run."""
    line = {
        "at": round(request.at, 3),
        "setup": request.setup,
        "verb": request.verb.value,
        "object": str(request.key),
        "method": request.method,
        "path": request.path,
        "body": request.body,
    }
    return json.dumps(line, separators=(",", ":"))


async def replay(settings: ReplaySettings, *, log: Log) -> tuple[Replay, Findings, Report]:
    """Replays the files in the cluster. Raises KwokOperatorError."""
    plan, findings, requests = planned(settings)
    first = next(requests, None)
    async with open_cluster(
        kubeconfig=settings.kubeconfig, context=settings.context, requests_per_second=0, log=log
    ) as cluster:
        await cluster.get("/version")
        if not settings.into_recorded_cluster:
            await _check_cluster(cluster, plan)
        report = Report()
        sender = Sender(cluster, report)
        log(f"replaying into {cluster.description}")
        try:
            with cancelled_by_signals():
                await _play(sender, first, requests, log=log)
        except TraceError as error:
            report.broken = str(error)
        except asyncio.CancelledError:
            report.interrupted = True
        await sender.wait()
    return plan, findings, report


async def _check_cluster(cluster: ClusterClient, plan: Replay) -> None:
    recorded = plan.header.cluster if plan.header else ""
    if recorded and recorded == await cluster_id(cluster):
        raise SettingsError(
            f"this trace was recorded in {cluster.description}: give --context another cluster,"
            " or --into-recorded-cluster, if that one is meant"
        )


async def _play(
    sender: "Sender", first: Request | None, rest: Iterator[Request], *, log: Log
) -> None:
    start, logged_at, setting_up = time.monotonic(), time.monotonic(), True
    for request in itertools.chain((first,) if first else (), rest):
        if setting_up and not request.setup:
            await sender.wait()
            setting_up, start = False, time.monotonic()
            log(f"{sender.report.sent.total():,} requests made what was there; now it begins")
        now = time.monotonic()
        if now - logged_at > _PROGRESS_SECONDS:
            logged_at = now
            log(f"{request.at:,.0f} s: {sender.progress()}")
        due = None if request.setup else start + request.at
        if due is not None and due > now:
            await asyncio.sleep(due - now)
        await sender.submit(request, due=due)
    await sender.wait()


class Sender:
    """Sends many requests at a time, but requests about the same object one after the other."""

    def __init__(self, cluster: ClusterClient, report: Report) -> None:
        self.report = report
        self._cluster = cluster
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)
        self._room = asyncio.Semaphore(_MOST_WAITING)
        self._last: dict[Key, asyncio.Task[None]] = {}
        self._not_ours: set[Key] = set()
        self._deleted: dict[Key, None] = {}
        """The objects that were deleted last, at most `_REMEMBERED`."""

    async def submit(self, request: Request, *, due: float | None) -> None:
        await self._room.acquire()
        before = [self._last.get(key) for key in (request.key, request.after) if key is not None]
        waits = [task for task in before if task is not None]
        task = asyncio.create_task(self._in_turn(request, due, waits))
        self._last[request.key] = task
        task.add_done_callback(lambda done: self._done(request.key, done))

    async def wait(self) -> None:
        """Waits until all submitted requests are done."""
        while self._last:
            await asyncio.wait(list(self._last.values()))

    def progress(self) -> str:
        errors = self.report.errors
        return (
            f"{self.report.sent.total():,} sent, the last {errors[-1] if errors else 0:.3f} s late"
        )

    def _done(self, key: Key, task: asyncio.Task[None]) -> None:
        self._room.release()
        if self._last.get(key) is task:
            del self._last[key]
        if not task.cancelled():
            task.result()

    async def _in_turn(
        self, request: Request, due: float | None, waits: list[asyncio.Task[None]]
    ) -> None:
        if waits:
            await asyncio.wait(waits)
        if request.key in self._not_ours and request.verb is not Verb.CREATE:
            self.report.left_out += 1
            return
        async with self._slots:
            if due is not None:
                self.report.timed(request, max(time.monotonic() - due, 0.0))
            self.report.sent[request.verb] += 1
            if request.verb is Verb.END and request.key.kind != "Pod":
                await self._end_one_pod(request)
            else:
                await self._send(request)

    async def _send(self, request: Request) -> None:
        """Sends a request, retries it if that may help, and counts the result."""
        until = time.monotonic() + _PATIENCE
        attempt, unsure = 0, False
        creates = request.verb is Verb.CREATE
        while True:
            status, message = await self._once(request)
            if creates and status == 409 and await self._is_going(request):
                status, message = _GOING, "it is still being deleted; begin again when it is gone"
            if status in _AGAIN and attempt < _ATTEMPTS:
                unsure |= status != 429
            elif not (creates and self._comes_right(request, status, message)):
                break
            elif time.monotonic() > until:
                break
            attempt += 1
            await asyncio.sleep(min(0.1 * 2**attempt, 5.0))
        there = status == 409 and (unsure or request.key.kind in _SHARED)
        gone = status == 404 and request.verb is Verb.DELETE
        if creates:
            self._not_ours.discard(request.key)
        if not (200 <= status < 300 or there or gone):
            self.report.refuse(request, 409 if status == _GOING else status, message)
            if creates:
                self._not_ours.add(request.key)
        if request.verb is Verb.DELETE:
            self._deleted[request.key] = None
            if len(self._deleted) > _REMEMBERED:
                del self._deleted[next(iter(self._deleted))]

    def _comes_right(self, request: Request, status: int, message: str) -> bool:
        """Whether a refused creation may succeed later: once an older object of the same name is
        deleted, or once the API server knows the PriorityClass.
        """
        if status == _GOING:
            return True
        if status == 409:
            return request.key in self._deleted and request.key.kind not in _SHARED
        return status == 403 and request.setup and "PriorityClass" in message

    async def _is_going(self, request: Request) -> bool:
        """Whether the request creates a namespace whose older namesake is still being deleted, or
        has gone since the request was refused.
        """
        if request.key.kind != "Namespace":
            return False
        try:
            namespace = await self._cluster.get(f"{request.path}/{request.key.name}")
        except Unreadable as error:
            return error.status == 404
        return bool(as_map(namespace.get("metadata")).get("deletionTimestamp"))

    async def _once(self, request: Request) -> tuple[int, str]:
        try:
            status, answer = await self._cluster.send(
                request.method, request.path, request.body, request.content_type, attempts=1
            )
        except Unreadable as error:
            return 0, error.reason
        return status, str(answer.get("message") or "")

    async def _end_one_pod(self, request: Request) -> None:
        """Ends the oldest running pod of a Job, or else the oldest pending one."""
        path, _, selector = request.path.partition("?labelSelector=")
        try:
            pods = (await self._cluster.get(path, {"labelSelector": selector})).get("items")
        except Unreadable as error:
            self.report.refuse(request, error.status, error.reason)
            return
        ages = sorted(_age(pod) for pod in pods or () if _phase(pod) in ("Running", "Pending"))
        if not ages:
            self.report.left_out += 1
            return
        path = f"{path}/{ages[0][-1]}/status"
        await self._send(replace(request, path=path))


def _phase(pod: dict[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase"))


def _age(pod: dict[str, Any]) -> tuple[bool, str, str]:
    """Returns a key that sorts running pods before others, then by age, then by name."""
    metadata = pod["metadata"]
    return _phase(pod) != "Running", str(metadata.get("creationTimestamp")), metadata["name"]


async def remove(
    *, kubeconfig: str | None, context: str | None, log: Log
) -> tuple[int, dict[str, str]]:
    """Deletes the objects of all replays, by their label. Returns how many, and the failures."""
    wrong: dict[str, str] = {}
    gone = 0
    async with open_cluster(
        kubeconfig=kubeconfig, context=context, requests_per_second=0, log=log
    ) as cluster:
        kinds = {"Namespace": NAMESPACES} | {kind.name: kind.path for kind in TRACED.values()}
        namespaces: set[str] = set()
        for kind, path in kinds.items():
            try:
                keys = await _labelled(cluster, kind, path)
            except Unreadable as error:
                if error.status == 0:
                    raise
                wrong[kind] = str(error)
                continue
            if kind == "Namespace":
                namespaces = {key.name for key in keys}
            # Deleting a namespace deletes the objects in it.
            keys = [key for key in keys if key.namespace not in namespaces]
            for begin in range(0, len(keys), _MOST_AT_ONCE):
                some = keys[begin : begin + _MOST_AT_ONCE]
                answers = await asyncio.gather(*(_delete(cluster, path, key) for key in some))
                gone += answers.count("")
                wrong |= {str(key): why for key, why in zip(some, answers, strict=True) if why}
        wrong |= await _wait_until_gone(cluster, namespaces - {*wrong}, log=log)
    return gone, wrong


async def _wait_until_gone(
    cluster: ClusterClient, namespaces: set[str], *, log: Log
) -> dict[str, str]:
    """Waits until namespaces are deleted, as until then a new replay would be refused. Returns a
    sentence about each namespace that still exists after five minutes.
    """
    until, logged_at = time.monotonic() + _GONE_WITHIN, time.monotonic()
    while namespaces:
        left = {key.name for key in await _labelled(cluster, "Namespace", NAMESPACES)}
        namespaces &= left
        if not namespaces or time.monotonic() > until:
            break
        if time.monotonic() - logged_at > _PROGRESS_SECONDS:
            logged_at = time.monotonic()
            log(f"waiting until {len(namespaces):,} namespaces are gone")
        await asyncio.sleep(_LOOK_SECONDS)
    return {f"Namespace {name}": "is still being deleted" for name in sorted(namespaces)}


async def _labelled(cluster: ClusterClient, kind: str, path: str) -> list[Key]:
    keys: dict[Key, None] = {}
    async for page in cluster.pages(path, params={"labelSelector": REPLAYED_LABEL}):
        for body in page:
            metadata = body["metadata"]
            keys[Key(kind, metadata.get("namespace") or "", metadata["name"])] = None
    return list(keys)


async def _delete(cluster: ClusterClient, path: str, key: Key) -> str:
    """Deletes an object. Returns why that failed, or an empty text."""
    path = TRACED[key.kind].collection(key.namespace) if key.kind in TRACED else path
    body = {"propagationPolicy": "Background"}
    status, answer = await cluster.send("DELETE", f"{path}/{key.name}", body)
    return "" if status in (200, 404) else f"{status} {answer.get('message')}"
