"""Posts Events, which `kubectl describe` shows for a group, a ConfigMap, or a node.

    emit() ──> the same again, within an hour? ──> one Event, its count raised (PATCH)
                    │ no
                    └──> too many of this object? ──> a new Event (POST)

There is one Event per transition, not one per node. Events about single nodes are the first to be
dropped if many wait. Repetitions are counted: an Event's name is made from its content, so a
restarted operator continues the count. Repetitions with varying messages are combined in one Event,
and each object has a budget of writes: a group that flaps for a day costs etcd a few writes a
minute at first, and then one.

Events are posted in the background and may be lost; the conditions are the reliable record. Needs
the verbs create and patch; nothing is read.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, Literal, Protocol

from kwok_operator.constants import KIND
from kwok_operator.errors import ConflictError, KwokOperatorError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, JSON, MERGE_PATCH, KubeClient

logger = logging.getLogger(__name__)

NAMESPACE = "default"
"""The namespace of Events about cluster-scoped objects; others are in their object's namespace."""
REPEATS_WITHIN: Final = 3_600.0
"""Seconds within which a repetition raises the count. Later it makes a new Event, as the API server
has deleted the old one."""
SIMILAR: Final = 10
"""How many Events with the same reason about one object may differ in their messages; further ones
are combined."""
COMBINED: Final = "(combined from similar events): "
BURST: Final = 25
PER_EVENT: Final = 60.0
"""The budget of an object: BURST writes at once, then one in this many seconds."""
AHEAD: Final = timedelta(seconds=2)
"""How far in the future an Event may be dated; kubectl shows up to 2 s in the future as now."""
_MAX_MESSAGE = 1024
_MAX_WAITING = 500
_MAX_WAITING_WITH_NODES = _MAX_WAITING // 2
_MAX_SUBJECTS = 2_000
_REPORTER = "kwok-operator"
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

EventType = Literal["Normal", "Warning"]


class Subject(Protocol):
    """An object that an Event can be about."""

    @property
    def name(self) -> str: ...

    @property
    def reference(self) -> dict[str, str]:
        """Returns apiVersion, kind, name, uid, and the namespace if there is one."""


@dataclass(slots=True)
class _Record:
    """One Event: its content, its count, and whether the API server has it (`posted`).

    `before` is the count that an earlier process had reached, `said` is when the Event was last
    emitted (monotonic seconds). `first` and `last` are times of day for people; they may go back if
    the clock is set.
    """

    reference: dict[str, str]
    name: str
    kind: EventType
    reason: str
    message: str
    first: datetime
    last: datetime
    said: float = 0.0
    count: int = 0
    before: int = 0
    posted: bool = False

    @property
    def namespace(self) -> str:
        return self.reference.get("namespace", NAMESPACE)


@dataclass(slots=True)
class _Story:
    """The Events about one object in the last hour, by the name of the Event, and the object's
    budget of writes."""

    refilled: float
    dated: datetime = _NEVER
    """The time of the last Event."""
    budget: float = BURST
    records: dict[str, _Record] = field(default_factory=dict)

    def spend(self, now: float) -> bool:
        """Takes one write from the budget; returns False if it is used up."""
        self.budget = min(float(BURST), self.budget + (now - self.refilled) / PER_EVENT)
        self.refilled = now
        if self.budget < 1.0:
            return False
        self.budget -= 1.0
        return True

    def date(self, now: datetime) -> datetime:
        """Returns the time to give an Event. Events have whole seconds, and kubectl sorts by them,
        so a second Event within the same second gets the next second."""
        second = now.replace(microsecond=0)
        self.dated = max(second, min(self.dated + timedelta(seconds=1), second + AHEAD))
        return self.dated

    def drop_old(self, now: float) -> None:
        old = [name for name, record in self.records.items() if now - record.said >= REPEATS_WITHIN]
        for name in old:
            del self.records[name]


class Recorder:
    """Posts Events one after the other; `run()` does the posting.

    `clock` returns monotonic seconds, `wall` the time of day.
    """

    def __init__(
        self, *, client: KubeClient, clock: Callable[[], float], wall: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._clock = clock
        self._wall = wall
        self._stories: OrderedDict[str, _Story] = OrderedDict()
        self._waiting: OrderedDict[str, _Record] = OrderedDict()
        self._work = asyncio.Event()

    def emit(
        self,
        subject: Subject,
        kind: EventType,
        reason: str,
        message: str,
        *,
        log: Mapping[str, str] | None = None,
    ) -> None:
        """Emits an Event about a group, a profile or a ConfigMap, and logs it.

        `log` adds keys to the log line: `trouble` with the name of a problem that begins, or `over`
        with that of one that ends (observability/logs.py).
        """
        level, reference = logging.WARNING if kind == "Warning" else logging.INFO, subject.reference
        what = "group" if reference["kind"] == KIND else reference["kind"].lower()
        logger.log(level, "%s: %s=%s %s", reason, what, subject.name, message, extra=log)
        now = self._clock()
        story = self._story(reference["uid"], now)
        moment = story.date(self._wall())
        record = self._record_for(
            story, reference, kind, reason, message[:_MAX_MESSAGE], now=moment
        )
        record.count += 1
        record.last, record.said = moment, now
        story.records[record.name] = story.records.pop(record.name)  # sorted by the last emission
        if record.name in self._waiting:
            return
        if len(self._waiting) >= _MAX_WAITING or not story.spend(now):
            logger.debug("event not posted now: %s=%s reason=%s", what, subject.name, reason)
            return
        self._waiting[record.name] = record
        self._work.set()

    def last_said(self, subject: Subject, reasons: Collection[str]) -> str | None:
        """Returns which of these reasons was emitted last for an object, if any was within an
        hour."""
        story = self._stories.get(subject.reference["uid"])
        record = reversed(story.records.values()) if story is not None else ()
        return next((each.reason for each in record if each.reason in reasons), None)

    def emit_for_node(self, name: str, kind: EventType, reason: str, message: str) -> bool:
        """Emits an Event about a node, in addition to the one about the node's group.

        The recorder keeps no record of it. If it is emitted again, the POST fails, and PATCHes
        raise the count of the existing Event. Returns False if it is dropped because many other
        Events wait.
        """
        if len(self._waiting) >= _MAX_WAITING_WITH_NODES:
            return False
        # The kubelet refers to its node so, with the name as uid; kubectl searches for that too.
        reference = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
        event, now = event_name(reference, kind, reason, message), self._wall()
        record = _Record(reference, event, kind, reason, message[:_MAX_MESSAGE], now, now, count=1)
        self._waiting[event] = record
        self._work.set()
        return True

    async def run(self) -> None:
        """Posts Events until cancelled."""
        while True:
            await self._work.wait()
            await self.flush()

    async def flush(self) -> None:
        """Posts all Events that wait, and returns."""
        while self._waiting:
            _, record = self._waiting.popitem(last=False)
            await self._post(record)
        self._work.clear()

    def _story(self, uid: str, now: float) -> _Story:
        story = self._stories.pop(uid, None) or _Story(refilled=now)
        self._stories[uid] = story
        if len(self._stories) > _MAX_SUBJECTS:
            self._stories.popitem(last=False)
        story.drop_old(now)
        return story

    @staticmethod
    def _record_for(
        story: _Story,
        reference: dict[str, str],
        kind: EventType,
        reason: str,
        message: str,
        *,
        now: datetime,
    ) -> _Record:
        """Returns the record with this content, a new one if there is none. Once the object has
        SIMILAR records of this kind and reason, all further messages share one record."""
        said = message
        name = event_name(reference, kind, reason, said)
        if name not in story.records:
            similar = sum((t.kind, t.reason) == (kind, reason) for t in story.records.values())
            if similar >= SIMILAR:
                message, said = f"{COMBINED}{message}"[:_MAX_MESSAGE], COMBINED
                name = event_name(reference, kind, reason, said)
        record = story.records.get(name)
        if record is None:
            record = _Record(reference, name, kind, reason, message, first=now, last=now)
            story.records[name] = record
        record.message = message
        return record

    async def _post(self, record: _Record) -> None:
        try:
            if not record.posted or not await self._count(record):
                await self._create(record)
        except NotFoundError:
            logger.debug("event dropped: namespace %s does not exist", record.namespace)
        except KwokOperatorError as error:
            logger.debug("event dropped: reason=%s error=%s", record.reason, error)

    async def _create(self, record: _Record) -> None:
        path = f"/api/v1/namespaces/{record.namespace}/events"
        try:
            await self._client.request(
                "POST", path, body=_event(record), accept=ACCEPT_METADATA, retries=1
            )
            record.posted = True
        except ConflictError:
            # An earlier operator created it. The answer to a patch contains its count.
            answer = json.loads(await self._patch(record, {}, accept=JSON))
            record.before, record.posted = int(answer.get("count") or 0), True
            await self._count(record)

    async def _count(self, record: _Record) -> bool:
        """Writes the raised count; returns False if the API server has deleted the Event."""
        try:
            await self._patch(
                record, {"count": record.before + record.count}, accept=ACCEPT_METADATA
            )
        except NotFoundError:
            record.posted, record.before, record.count, record.first = False, 0, 1, record.last
            return False
        return True

    async def _patch(self, record: _Record, changes: dict[str, Any], *, accept: str) -> bytes:
        path = f"/api/v1/namespaces/{record.namespace}/events/{record.name}"
        body = {"lastTimestamp": _time(record.last), "message": record.message, **changes}
        return await self._client.request(
            "PATCH", path, body=body, content_type=MERGE_PATCH, accept=accept, retries=1
        )


def event_name(reference: dict[str, str], kind: str, reason: str, message: str) -> str:
    """Returns an Event's name: the same for the same content about the same object."""
    said = json.dumps([reference["uid"], kind, reason, message])
    return f"{reference['name'][:200].rstrip('-.')}.{sha256(said.encode()).hexdigest()[:16]}"


def _event(record: _Record) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": record.name, "namespace": record.namespace},
        "involvedObject": record.reference,
        "type": record.kind,
        "reason": record.reason,
        "message": record.message,
        "source": {"component": _REPORTER},
        "reportingComponent": _REPORTER,
        "firstTimestamp": _time(record.first),
        "lastTimestamp": _time(record.last),
        "count": record.count,
    }


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
