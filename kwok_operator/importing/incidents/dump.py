"""Reads the files of an incident into a Reading and its facts, as importer.py reads a live cluster.

    files  --forms.dumped_items-->  objects  --Spool-->  in the order of KINDS  -->  Reading.take

Files are read once, and never held as a whole. What can't be read becomes an entry of the ledger;
if nothing could be read, DumpError is raised. If an object is in several files, the first counts.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.pieces import PieceError
from kwok_operator.formats.times import parse_time
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.importing.autoscalers import (
    CAPI,
    DEFAULT_NAMESPACE,
    KARPENTER,
    PROVIDER_CONFIG,
    SCALABLES,
    STATUS,
    TEMPLATES,
    add_configs,
)
from kwok_operator.importing.dumpfacts import CloudGroup, DumpForm, PendingPod, SeenEvent
from kwok_operator.importing.incidents.files import (
    DumpError,
    files_in,
    form_of_folder,
    is_log_of_autoscaler,
    is_output_of_import,
    may_have_objects,
    pieces_of,
)
from kwok_operator.importing.incidents.forms import (
    PIECES,
    DumpedItem,
    DumpedObject,
    Moment,
    Oddity,
    dumped_items,
)
from kwok_operator.importing.incidents.spool import Spool
from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.ledger import Unread
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.reading import Reading
from kwok_operator.reporter import Reporter

_AT_ONCE: Final = 200
"""Objects that are read between two checks for signals."""
_MOST_NAMED: Final = 1_000
"""The most other kinds that the ledger names."""
_MOST_PROBLEMS: Final = 10
"""The most problems of one file that the ledger names."""
_MOVED: Final = {(kind, "extensions") for kind in ("Deployment", "DaemonSet", "ReplicaSet")}
"""Kinds that were in another API group before Kubernetes 1.16, with that group."""
_OPENSHIFT: Final = "machine.openshift.io"
_MOST_EVENTS: Final = 100_000
_WRITERS: Final = ("cluster-autoscaler", "karpenter", "scheduler")
"""Parts of the names of components whose Events are kept."""
_OUTPUT: Final = "an import has written it; it was left out, as it would count its objects twice"
_FORMS: Final = (
    "a debugging snapshot of cluster-autoscaler (/snapshotz), the output of `kubectl cluster-info"
    " dump`, a must-gather folder, or of `kubectl get -o yaml` or json; logs go to --log"
)


async def read_dump(paths: Sequence[Path], reading: Reading, *, reporter: Reporter) -> None:
    """Reads files and folders into `reading`. Raises DumpError."""
    with Spool() as spool:
        dump = _Dump(reading, reporter, spool)
        for path in paths:
            await dump.read(path)
        await dump.finish()


class _Dump:
    def __init__(self, reading: Reading, reporter: Reporter, spool: Spool) -> None:
        self._reading = reading
        self._facts = reading.facts
        self._reporter = reporter
        self._spool = spool
        self._seen: dict[int, int] = {}
        """The hash of each object's name, with a hash of its uid and node, which show a second
        version. The names themselves would take 100 MB for 1 GB of pods.
        """
        self._others = Counter[str]()
        self._noted = Counter[tuple[Ref, Reason, str]]()
        self._snapshot = set[str]()
        """The names of the nodes in CA's snapshots."""
        self._configs: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        """The data of cluster-autoscaler's ConfigMaps, by namespace and name."""
        self._newest = 0
        self._count = 0

    async def read(self, path: Path) -> None:
        """Reads a file, or all files of a folder."""
        self._reporter.say(one_line(f"reading {path}"))
        files, is_folder = files_in(path)
        self._facts.forms[path] = DumpForm.OBJECTS
        for file in files:
            inside = file.relative_to(path) if is_folder else Path(path.name)
            if form := form_of_folder(inside):
                self._facts.forms[path] = form
            if not is_folder or may_have_objects(file):
                if is_folder and is_output_of_import(file):
                    self._unread(str(inside), _OUTPUT, needed=False)
                else:
                    await self._file(file, path, name=str(inside))
            elif is_log_of_autoscaler(path, inside):
                self._facts.logs.append(file)

    async def finish(self) -> None:
        """Imports what was collected: owners before the objects that they own."""
        reading, spool = self._reading, self._spool
        if not (spool.counts.keys() & KINDS.keys() or self._facts.groups or reading.anything):
            first = (
                reading.unread[0].reason
                if reading.unread
                else "no file has an object that is imported"
            )
            raise DumpError(f"--from: nothing to import was found: {first}; name {_FORMS}")
        reading.anything = True
        for kind in KINDS:
            # Files may have only a part of the cluster, such as the pods of all namespaces, but the
            # ReplicaSets of one. So a pod is imported even if its owner is missing.
            reading.workloads.not_whole(kind)
        for kind in KINDS:
            count = 0
            for body in spool.taken(kind):
                count += reading.take(kind, body)
                if count % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            if count:
                self._reporter.say(count_line(kind, count))
        for group in self._facts.groups.values():
            for pod in filter(partial(reading.wants, "Pod"), group.pods):
                reading.workloads.add_expected(pod, text_at(group.node, "metadata", "name"))
        self._note_what_lacks()
        # If two autoscalers name a group, the first in this order counts; a tenant may run its own.
        own = {**dict.fromkeys(reading.autoscalers, 1), DEFAULT_NAMESPACE: 0}
        for namespace in sorted(self._configs, key=lambda each: (own.get(each, 2), each)):
            add_configs(reading.bounds, self._configs[namespace])
        reading.notes += [
            Note(Ref(kind, "", ""), Reason.OTHER_KIND, count=count, dropped=True)
            for kind, count in sorted(self._others.items())
        ]
        reading.notes += [
            Note(ref, reason, detail=detail, count=count, dropped=reason is Reason.NODE_COMING)
            for (ref, reason, detail), count in sorted(self._noted.items())
        ]
        if self._snapshot:
            reading.nodes.keep_only(self._snapshot, Reason.NOT_IN_SNAPSHOT)
        self._facts.taken = self._facts.taken or self._newest

    def _add_bounds(self, dumped: DumpedObject) -> bool:
        """Adds a scalable of Cluster API or a NodePool to the objects from which groups get their
        bounds, as autoscalers.py does for a live cluster. Returns False for any other object.
        """
        group, bounds = _group_and_version(dumped.api_version)[0], self._reading.bounds
        if group in (CAPI, _OPENSHIFT) and f"{dumped.kind.lower()}s" in SCALABLES:
            bounds.add_scalable(_as_capi(dumped.body))
        elif (group, dumped.kind) == (KARPENTER, "NodePool"):
            bounds.node_pools.add(dumped.body)
        else:
            return False
        return True

    def _kind(self, dumped: DumpedObject) -> str:
        """Returns the kind of an object; an empty text if an import has no use for the kind."""
        kind, (group, version) = dumped.kind, _group_and_version(dumped.api_version)
        if kind in ("Node", "Event", "ConfigMap"):
            return kind if group in ("", "events.k8s.io") else ""
        if kind not in KINDS:
            return ""
        own = _group_and_version(KINDS[kind].api_version)
        if group != own[0] and (kind, group) not in _MOVED:
            return ""
        if (group, version) != own and dumped.api_version:
            self._noted[Ref(kind, "", ""), Reason.OTHER_VERSION, dumped.api_version] += 1
        return kind

    async def _file(self, file: Path, path: Path, *, name: str) -> None:
        given, odd = file == path, 0
        said = set[str]()
        try:
            for item in dumped_items(pieces_of(file, PIECES, given=given)):
                if problem := self._add(item, path):
                    odd += 1
                    if problem not in said and len(said) < _MOST_PROBLEMS:
                        said.add(problem)
                        self._unread(name, problem, needed=given)
                self._count += 1
                if self._count % _AT_ONCE == 0:
                    self._reporter.update(count_line("objects", self._count))
                    await asyncio.sleep(0)
        except (DumpError, PieceError) as error:
            self._unread(name, str(error), needed=True)
        if more := odd - len(said):
            self._unread(name, f"{more:,} more of this kind", needed=given)

    def _note_what_lacks(self) -> None:
        if set(self._facts.forms.values()) == {DumpForm.SNAPSHOT}:
            self._reporter.say(Reason.PENDING_UNKNOWN.sentence)
            self._reading.notes.append(Note(Ref("Pod", "", ""), Reason.PENDING_UNKNOWN))
        missing = [kind for kind in KINDS if not self._spool.counts[kind]]
        if missing:
            reason = "the files have none; if the cluster had some, add a file with them"
            kinds = names_in_words(missing)
            self._reading.unread.append(Unread(kinds, "", reason, needed=False))

    def _unread(self, name: str, problem: str, *, needed: bool) -> None:
        reason = one_line(f"{name}: {problem}", limit=500)
        if needed:
            self._reporter.say(reason)
        self._reading.unread.append(Unread("File", name, reason, needed=needed))

    def _add(self, item: DumpedItem, path: Path) -> str:
        """Adds an item of a file to what is imported, or to the facts of the dump. Returns what is
        wrong with the item; an empty text if nothing is.
        """
        match item:
            case Oddity(problem):
                return problem
            case DumpForm():
                self._facts.forms[path] = item
            case Moment(text):
                self._facts.taken = max(self._facts.taken, _time(text))
            case CloudGroup(id=name) if name not in self._facts.groups:
                self._facts.groups[name] = item
                self._reading.nodes.add_template(name, item.node)
            case DumpedObject():
                self._object(item)
        return ""

    def _object(self, dumped: DumpedObject) -> None:
        kind, body = self._kind(dumped), dumped.body
        place = text_at(body, "metadata", "namespace"), text_at(body, "metadata", "name")
        if dumped.in_snapshot and place[1]:
            self._snapshot.add(place[1])
        # Other API groups may have a kind of the same name, such as Volcano's Job.
        known_as = kind or f"{dumped.kind} of {_group_and_version(dumped.api_version)[0]}"
        if not self._is_new((known_as, *place), body):
            return
        self._note_times(body)
        if dumped.coming:
            self._noted[Ref("ScalingGroup", "", dumped.coming), Reason.NODE_COMING, ""] += 1
        elif kind == "Node":
            self._reading.anything |= self._reading.take(kind, body)
        elif kind == "Event":
            self._event(body)
        elif kind == "ConfigMap":
            if place[1] in (STATUS, PROVIDER_CONFIG, TEMPLATES):
                self._configs[place[0]].setdefault(place[1], as_map(body.get("data")))
        elif kind:
            if kind in ("Deployment", "Pod"):
                # This must come before the spool, which removes commands, and with them the flags.
                self._reading.add_autoscaler(kind, body)
            self._spool.add(kind, body)
            if kind == "Pod" and self._reading.wants(kind, body):
                self._pod(dumped)
        elif not self._add_bounds(dumped):
            self._others[dumped.kind if len(self._others) < _MOST_NAMED else "others"] += 1

    def _is_new(self, key: tuple[str, str, str], body: Mapping[str, Any]) -> bool:
        """Whether an object wasn't read before. An object without a name always counts as new."""
        version = hash((text_at(body, "metadata", "uid"), text_at(body, "spec", "nodeName")))
        before = len(self._seen)
        if not key[2]:
            return True
        first = self._seen.setdefault(hash(key), version)
        if first != version:
            self._noted[Ref(key[0].partition(" of ")[0], "", ""), Reason.TWO_MOMENTS, ""] += 1
        return len(self._seen) > before

    def _note_times(self, body: Mapping[str, Any]) -> None:
        times = [text_at(body, "metadata", "creationTimestamp")]
        for condition in as_list(value_at(body, "status", "conditions")):
            times += [
                text_at(condition, "lastHeartbeatTime"),
                text_at(condition, "lastTransitionTime"),
            ]
        self._newest = max(self._newest, *map(_time, times))

    def _pod(self, dumped: DumpedObject) -> None:
        body = dumped.body
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
                schedulable=dumped.schedulable,
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
    """Returns a timestamp of the API in milliseconds since the epoch; 0 for any other text."""
    try:
        return parse_time(text)
    except ValueError:
        return 0


def _as_capi(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns an OpenShift MachineSet with its annotations renamed to those of Cluster API, whose
    values mean the same.
    """
    metadata = as_map(body.get("metadata"))
    annotations = {
        str(key).replace(f"{_OPENSHIFT}/", f"{CAPI}/"): value
        for key, value in as_map(metadata.get("annotations")).items()
    }
    return {**body, "metadata": {**metadata, "annotations": annotations}}


def _group_and_version(api_version: str) -> tuple[str, str]:
    group, _, version = api_version.rpartition("/")
    return group, version


def count_line(what: str, count: int) -> str:
    """Returns a line of the progress: how many objects of a kind were read."""
    return f"  {count:>9,}  {what}"
