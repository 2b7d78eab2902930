"""Reads the files of an incident instead of a cluster: into the same Reading, and its facts.

    files  --forms.found_in-->  objects  --Spool-->  in the order of KINDS  -->  Reading.take

Files are read once, and never held as a whole. What can't be read is an entry of the ledger; if
nothing could be, DumpError is raised. Of an object that is in several files the first counts.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.pieces import PieceError
from kwok_operator.formats.times import parse_time
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.importing.autoscalers import PROVIDER_CONFIG, STATUS, TEMPLATES, add_configs
from kwok_operator.importing.dumpfacts import CloudGroup, DumpForm, PendingPod, SeenEvent
from kwok_operator.importing.incidents.files import (
    DumpError,
    files_in,
    is_log_of_autoscaler,
    may_have_objects,
    pieces_of,
)
from kwok_operator.importing.incidents.forms import (
    PIECES,
    DumpedItem,
    DumpedObject,
    Moment,
    Oddity,
    found_in,
)
from kwok_operator.importing.incidents.spool import Spool
from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.ledger import Unread
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.reading import Reading
from kwok_operator.reporter import Reporter

_AT_ONCE: Final = 200
"""Objects that are read before a signal is heard."""
_MOVED: Final = {(kind, "extensions") for kind in ("Deployment", "DaemonSet", "ReplicaSet")}
"""Kinds by the API group in which they were before Kubernetes 1.16."""
_MOST_EVENTS: Final = 100_000
_WRITERS: Final = ("cluster-autoscaler", "karpenter", "scheduler")
"""Parts of the names of the components whose Events count."""
_FORMS: Final = (
    "a debugging snapshot of cluster-autoscaler (/snapshotz), the output of `kubectl cluster-info"
    " dump`, a must-gather folder, or of `kubectl get -o yaml` or json"
)


async def read_dump(paths: Sequence[Path], reading: Reading, *, reporter: Reporter) -> None:
    """Reads files and folders into `reading`; raises DumpError."""
    dump = _Dump(reading, reporter)
    for path in paths:
        await dump.read(path)
    await dump.finish()


class _Dump:
    def __init__(self, reading: Reading, reporter: Reporter) -> None:
        self._reading = reading
        self._facts = reading.facts
        self._reporter = reporter
        self._spool = Spool()
        self._seen: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._noted = Counter[tuple[str, Reason, str]]()
        """Objects by kind, reason and detail of a note."""
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._newest = 0
        self._count = 0

    async def read(self, path: Path) -> None:
        """Reads a file, or all files of a folder."""
        self._reporter.say(one_line(f"reading {path}"))
        files, is_folder = files_in(path)
        for file in files:
            if is_folder and not may_have_objects(file):
                if is_log_of_autoscaler(file.relative_to(path)):
                    self._facts.logs.append(file)
                continue
            await self._file(
                file, path, name=str(file.relative_to(path)) if is_folder else path.name
            )

    async def finish(self) -> None:
        """Imports what has been collected, owners before what they own."""
        reading, spool = self._reading, self._spool
        if not (spool.counts.keys() & KINDS.keys() or self._facts.groups or reading.anything):
            first = reading.unread[0].reason if reading.unread else "they have no such object"
            raise DumpError(f"--from: nothing to import was found: {first}; name {_FORMS}")
        reading.anything = True
        for kind in KINDS:
            # Files may have a part of the cluster only, such as the pods of all namespaces, and the
            # ReplicaSets of one: a pod without an owner there is no pod that has gone.
            reading.workloads.not_whole(kind)
        for kind in KINDS:
            count = 0
            for body in spool.taken(kind):
                count += reading.take(kind, body)
                if count % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            if count:
                self._reporter.say(_counted(kind, count))
        add_configs(reading.bounds, self._configs)
        reading.notes += [
            Note(Ref(kind, "", ""), reason, detail=detail, count=count, dropped=dropped)
            for (kind, reason, detail), count in sorted(self._noted.items())
            for dropped in [reason is Reason.OTHER_KIND]
        ]
        self._facts.taken = self._facts.taken or self._newest

    def _kind(self, found: DumpedObject) -> str:
        """Returns the kind of an object if it is one that is imported; else empty."""
        kind, (group, version) = found.kind, _group_and_version(found.api_version)
        if kind in ("Node", "Event", "ConfigMap"):
            return kind if group in ("", "events.k8s.io") else ""
        if kind not in KINDS:
            return ""
        own = _group_and_version(KINDS[kind].api_version)
        if group != own[0] and (kind, group) not in _MOVED:
            return ""
        if (group, version) != own and found.api_version:
            self._noted[kind, Reason.OTHER_VERSION, found.api_version] += 1
        return kind

    async def _file(self, file: Path, path: Path, *, name: str) -> None:
        given = file == path
        try:
            for item in found_in(pieces_of(file, PIECES, given=given)):
                if problem := self._add(item, path):
                    self._unread(name, problem, needed=given)
                self._count += 1
                if self._count % _AT_ONCE == 0:
                    self._reporter.update(_counted("objects", self._count))
                    await asyncio.sleep(0)
        except (DumpError, PieceError) as error:
            self._unread(name, str(error), needed=True)

    def _unread(self, name: str, problem: str, *, needed: bool) -> None:
        reason = one_line(f"{name}: {problem}", limit=500)
        if needed:
            self._reporter.say(reason)
        self._reading.unread.append(Unread("File", name, reason, needed=needed))

    def _add(self, item: DumpedItem, path: Path) -> str:
        """Adds what was found; returns a problem in words, or nothing."""
        match item:
            case Oddity(problem):
                return problem
            case DumpForm():
                self._facts.forms[path] = item
            case Moment(text):
                self._facts.taken = max(self._facts.taken, _time(text))
            case CloudGroup(id=name):
                self._facts.groups.setdefault(name, item)
            case DumpedObject():
                self._object(item)
        return ""

    def _object(self, found: DumpedObject) -> None:
        kind, body = self._kind(found), found.body
        place = text_at(body, "metadata", "namespace"), text_at(body, "metadata", "name")
        if not self._is_new((found.kind, *place), body):
            return
        self._note_times(body)
        if kind == "Node":
            self._reading.anything |= self._reading.take(kind, body)
        elif kind == "Event":
            self._event(body)
        elif kind == "ConfigMap":
            if place[1] in (STATUS, PROVIDER_CONFIG, TEMPLATES):
                self._configs[place[1]] = as_map(body.get("data"))
        elif kind:
            self._spool.add(kind, body)
            if kind == "Pod":
                self._pod(found)
        else:
            self._noted[found.kind, Reason.OTHER_KIND, ""] += 1

    def _is_new(self, key: tuple[str, str, str], body: Mapping[str, Any]) -> bool:
        """Whether an object wasn't read before; one without a name always is."""
        version = text_at(body, "metadata", "uid"), text_at(body, "metadata", "resourceVersion")
        if not key[2]:
            return True
        if key in self._seen:
            if self._seen[key] != version:
                self._noted[key[0], Reason.TWO_MOMENTS, ""] += 1
            return False
        self._seen[key] = version
        return True

    def _note_times(self, body: Mapping[str, Any]) -> None:
        times = [text_at(body, "metadata", "creationTimestamp")]
        for condition in as_list(value_at(body, "status", "conditions")):
            times += [
                text_at(condition, "lastHeartbeatTime"),
                text_at(condition, "lastTransitionTime"),
            ]
        self._newest = max(self._newest, *map(_time, times))

    def _pod(self, found: DumpedObject) -> None:
        body = found.body
        gone = value_at(body, "metadata", "deletionTimestamp") is not None
        waits = text_at(body, "status", "phase") in ("Pending", "")
        if gone or not waits or text_at(body, "spec", "nodeName"):
            return
        owners = as_list(value_at(body, "metadata", "ownerReferences"))
        owner = next((each for each in owners if value_at(each, "controller") is True), None)
        self._facts.pending.append(
            PendingPod(
                namespace=text_at(body, "metadata", "namespace"),
                name=text_at(body, "metadata", "name"),
                owner=(text_at(owner, "kind"), text_at(owner, "name")),
                created=_time(text_at(body, "metadata", "creationTimestamp")),
                schedulable=found.schedulable,
            )
        )

    def _event(self, body: Mapping[str, Any]) -> None:
        event = event_of(body)
        if event is not None and len(self._facts.events) < _MOST_EVENTS:
            self._facts.events.append(event)


def event_of(body: Mapping[str, Any]) -> SeenEvent | None:
    """Returns an Event of v1 or events.k8s.io/v1, if an autoscaler or a scheduler wrote it."""
    component = next(
        filter(
            None,
            (
                text_at(body, "source", "component"),
                text_at(body, "deprecatedSource", "component"),
                text_at(body, "reportingComponent"),
                text_at(body, "reportingController"),
            ),
        ),
        "",
    )
    if not any(word in component for word in _WRITERS):
        return None
    about = as_map(body.get("involvedObject") or body.get("regarding"))
    firsts = ("firstTimestamp", "deprecatedFirstTimestamp", "eventTime")
    lasts = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime")
    first, last = (
        next((at for key in keys if (at := _time(text_at(body, key)))), 0)
        for keys in (firsts, lasts)
    )
    count = value_at(body, "series", "count") or body.get("count") or body.get("deprecatedCount")
    return SeenEvent(
        component=component,
        reason=text_at(body, "reason"),
        message=text_at(body, "message") or text_at(body, "note"),
        kind=text_at(about, "kind"),
        namespace=text_at(about, "namespace"),
        name=text_at(about, "name"),
        first=first,
        last=max(last, _time(text_at(body, "series", "lastObservedTime"))),
        count=count if isinstance(count, int) else 1,
    )


def _time(text: str) -> int:
    """Returns a time of the API in milliseconds since the epoch, 0 for any other text."""
    try:
        return parse_time(text)
    except ValueError:
        return 0


def _group_and_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def _counted(what: str, count: int) -> str:
    return f"  {count:>9,}  {what}"
