"""Runs `kwok-operator record`: writes a trace of a cluster's workloads.

    list each kind -> watch it from there -> TraceRecorder -> TraceWriter

One task watches each kind; another one flushes the file and begins new parts. A broken watch
continues from its last event or, after a 410, from a new list; the trace gets a gap line.
"""

import asyncio
import hashlib
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.formats.untyped import text_at, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.importing.anonymizing import Names
from kwok_operator.importing.cluster import ClusterClient, Log, Unreadable, open_cluster
from kwok_operator.importing.folder import OutputError
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.nodes.grouping import Nodes
from kwok_operator.importing.settings import RecordSettings
from kwok_operator.importing.traces.cleaning import anonymous, cleaner
from kwok_operator.importing.traces.files import TraceWriter
from kwok_operator.importing.traces.recording import TraceRecorder
from kwok_operator.importing.traces.trace import Gap, Happening, Header, Line, Stop

FLUSH_SECONDS: Final = 2.0
_NAMES_SECONDS: Final = 30.0
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_GONE: Final = 410
_NOT_FOR_US: Final = (401, 403, 404, 405)


class StoppedEarlyError(KwokOperatorError):
    """Stopped before all kinds were listed. The file is deleted, as it would look complete."""


@dataclass(slots=True)
class Outcome:
    """The result of a recording; `unread` has the kinds that could not be read, and why."""

    unread: dict[str, str]
    gaps: int = 0
    lost: int = 0
    failed: str = ""


async def cluster_id(cluster: ClusterClient) -> str:
    """Returns a hash that identifies a cluster, made from the UID of kube-system; empty if that
    namespace can't be read.
    """
    try:
        uid = value_at(await cluster.get("/api/v1/namespaces/kube-system"), "metadata", "uid")
    except Unreadable:
        return ""
    return hashlib.sha256(f"trace {uid}".encode()).hexdigest()[:12] if uid else ""


async def record(
    settings: RecordSettings, *, log: Log, flush_seconds: float = FLUSH_SECONDS
) -> tuple[TraceRecorder, Outcome]:
    """Records until the time is up, or SIGTERM or SIGINT comes. Raises KwokOperatorError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    rate = settings.requests_per_second
    async with open_cluster(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        requests_per_second=rate,
        log=log,
    ) as cluster:
        recording = Recording(cluster, settings, log=log)
        try:
            await recording.run(stop, flush_seconds=flush_seconds)
        except OutputError as error:
            recording.outcome.failed = str(error)
        except OSError as error:
            recording.outcome.failed = f"writing {recording.path}: {error.strerror or error}"
        return recording.recorder, recording.outcome


class Recording:
    """Makes one recording, from the first list to the last line."""

    def __init__(self, cluster: ClusterClient, settings: RecordSettings, *, log: Log) -> None:
        self._places: dict[tuple[str, str], frozenset[str]] = {}
        self._names = None
        if settings.anonymize:
            self._names = Names(settings.output, settings.anonymize_table)
        self.recorder = TraceRecorder(
            cleaner(
                places=self._places,
                keep_images=settings.keep_images,
                anonymizer=self._names.anonymizer if self._names else None,
            )
        )
        self.outcome = Outcome(unread={})
        self._cluster = cluster
        self._settings = settings
        self._log = log
        rotates = settings.rotate_bytes is not None or settings.rotate_seconds is not None
        self._writer = TraceWriter(settings.output, parts=rotates)
        self._header = Header(start=0)
        self._began = self._part_began = self._names_saved = 0.0
        self._state_size = 0
        """How many bytes the beginning of this part takes: the objects that existed then."""
        self._away: dict[str, float] = {}
        """Kinds that aren't watched at the moment, each with the time since when."""
        self._open: set[str] = set()
        """Kinds whose watch the API server has accepted, so that no event is missed."""

    @property
    def path(self) -> Path:
        return self._writer.path

    async def run(self, stop: asyncio.Event, *, flush_seconds: float) -> None:
        self._writer.open_part()
        try:
            identity = await self._until(stop, cluster_id(self._cluster)) or ""
            self._began = time.monotonic()
            self._header = Header(start=time.time_ns() // 1_000_000, cluster=identity)
            self._write([self._header])
            try:
                versions = await self._until(stop, self._list_all())
            except KwokOperatorError:
                self._writer.discard()
                raise
            if versions is None:
                self._writer.discard()
                raise StoppedEarlyError(
                    "stopped before all that is there had been read; nothing was written"
                )
            if versions:
                self._save_names()
                self._writer.flush()
                self._state_size = self._writer.size
                self._log(f"recording {self._cluster.description} into {self.path}")
                await self._watch_all(stop, versions, flush_seconds=flush_seconds)
        finally:
            self._finish()

    def _write(self, lines: Iterable[Line]) -> None:
        if self._names is not None:
            anonymizer = self._names.anonymizer
            lines = (anonymous(line, anonymizer) for line in lines)
        self._writer.write(lines)

    def _save_names(self) -> None:
        self._names_saved = time.monotonic()
        if self._names is not None:
            self._names.save()

    def _finish(self) -> None:
        now = self._now()
        for kind, since in self._away.items():
            self._gap(kind, since=since, at=now, lost=kind not in self._open)
        try:
            self._write([Stop(now)])
        finally:
            self._writer.close()
            self._save_names()

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _until(self, stop: asyncio.Event, work: Any) -> Any:
        """Waits for `work` and returns its result; stops waiting and returns None if `stop` is set
        first.
        """
        task, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await _ended(task, stopped)

    async def _list_all(self) -> dict[str, str]:
        """Writes the state at the start. Returns the version from which to watch each kind."""
        await self._learn_groups()
        versions: dict[str, str] = {}
        for kind in TRACED:
            try:
                versions[kind] = await self._list(kind)
            except Unreadable as error:
                if error.status not in _NOT_FOR_US and not versions:
                    raise
                self._unread(kind, error)
        if not versions:
            reason = next(iter(self.outcome.unread.values()))
            raise KwokOperatorError(f"nothing can be read: {reason}")
        return versions

    async def _learn_groups(self) -> None:
        """Reads the nodes, to replace a node that a pod is bound to by the group that an import
        makes of the node.
        """
        nodes = Nodes()
        try:
            async for page in self._cluster.pages(NODES_PATH):
                for body in page:
                    nodes.add(body)
        except Unreadable as error:
            if error.status not in _NOT_FOR_US:
                raise
            self._log(f"pods that ask for a node by its name won't: {error}")
        self._places.update(nodes.finish().places)

    async def _list(self, kind: str) -> str:
        """Lists a kind and writes its objects; after a gap (a time without a watch), only those
        that have changed. Returns the resourceVersion from which to watch.
        """
        self.recorder.begin(kind)
        version = ""
        async for page in self._cluster.pages(TRACED[kind].path):
            at = self._now()
            if kind in self._away:
                self._gap(kind, since=self._away.pop(kind), at=at, lost=True)
            for body in page:
                self._write(self.recorder.listed(kind, body, at=at))
            version = page.version
        self._write(self.recorder.end(kind, at=self._now()))
        return version

    async def _watch_all(
        self, stop: asyncio.Event, versions: dict[str, str], *, flush_seconds: float
    ) -> None:
        seconds = self._settings.seconds
        left = None if seconds is None else max(seconds - self._now(), 0.0)
        tasks = {
            asyncio.ensure_future(self._follow(kind, version)) for kind, version in versions.items()
        }
        tasks.add(asyncio.ensure_future(self._keep_files(flush_seconds)))
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stopped.done():
                done, _ = await asyncio.wait(
                    {*tasks, stopped}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done - {stopped}:
                    task.result()
                    tasks.discard(task)
                if not done or not len(tasks) > 1:
                    return
                left = None if seconds is None else max(seconds - self._now(), 0.0)
        finally:
            await _ended(*tasks, stopped)

    async def _follow(self, kind: str, version: str) -> None:
        """Watches a kind for ever, or until the API server no longer allows it."""
        path, pause, last = TRACED[kind].path, 0.0, self._now()
        while True:
            try:
                if not version:
                    version = await self._list(kind)
                watch = self._cluster.watch(path, version, opened=lambda: self._open.add(kind))
                async for event in watch:
                    last, pause = self._now(), 0.0
                    self._back(kind, at=last)
                    version = text_at(event, "object", "metadata", "resourceVersion") or version
                    self._write(self.recorder.observed(kind, event, at=last))
                # API servers end a watch without any event now and then.
                last = self._now()
            except Unreadable as error:
                self._away.setdefault(kind, last)
                self._open.discard(kind)
                if error.status == _GONE:
                    version = ""
                elif error.status in _NOT_FOR_US:
                    self._unread(kind, error)
                    return
                pause = min(max(pause * 2, _SHORTEST_PAUSE), _LONGEST_PAUSE)
                if pause > 2:
                    self._log(f"{kind}: {error}; trying again in {pause:.0f} s")
                await asyncio.sleep(pause)

    def _back(self, kind: str, *, at: float) -> None:
        since = self._away.pop(kind, None)
        if since is not None:
            self._gap(kind, since=since, at=at, lost=False)

    def _gap(self, kind: str, *, since: float, at: float, lost: bool) -> None:
        self.outcome.gaps += 1
        self.outcome.lost += lost
        self._write([Gap(at=at, since=since, kind=kind, lost=lost)])
        if lost:
            self._log(f"{kind}: what happened in {at - since:.0f} s may be missing; it is marked")

    def _unread(self, kind: str, error: Unreadable) -> None:
        self.outcome.unread[kind] = str(error)
        self._log(f"{kind} isn't recorded: {error}")

    async def _keep_files(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._writer.flush()
            if time.monotonic() - self._names_saved > _NAMES_SECONDS:
                self._save_names()
            if self._part_is_full():
                self._writer.open_part()
                self._part_began = now = self._now()
                header = Header(self._header.start, self._writer.part, now, self._header.cluster)
                self._write(self.recorder.part(header, at=now))
                self._writer.flush()
                self._state_size = self._writer.size

    def _part_is_full(self) -> bool:
        by_size, by_time = self._settings.rotate_bytes, self._settings.rotate_seconds
        if by_time is not None and self._now() - self._part_began >= by_time:
            return True
        # If the state alone is larger than a part should be, each part would have nothing else.
        return by_size is not None and self._writer.size >= max(by_size, 2 * self._state_size)


async def _ended(*tasks: "asyncio.Future[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def summary(settings: RecordSettings, recorder: TraceRecorder, outcome: Outcome) -> list[str]:
    """Returns the sentences that are printed at the end of a recording."""
    written = recorder.written
    counts = ", ".join(f"{written[each]:,} {each.value}" for each in Happening if written[each])
    lines = [f"{settings.output}: {counts or 'nothing happened'}"]
    if recorder.dropped:
        kinds = names_in_words([f"{n:,} {kind}" for kind, n in recorder.dropped.items()])
        lines.append(f"left out, as import leaves them out: {kinds}")
    if outcome.gaps:
        lines.append(f"gaps: {outcome.gaps}, of them {outcome.lost} in which something may be lost")
    for kind, why in outcome.unread.items():
        lines.append(f"{kind} wasn't recorded, or not to the end: {one_line(why, limit=300)}")
    if outcome.failed:
        lines.append(f"the recording broke off: {outcome.failed}")
    return lines
