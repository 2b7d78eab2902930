"""Converts traces of other programs to lines of ours.

- openb: the lists of pods of Alibaba's cluster-trace-gpu-v2023, as rows of their CSV
- SimKube: the output of `skctl export`, decoded from msgpack; TraceRecorder makes the lines

Traces of both programs are read into memory as a whole, as they aren't sorted by time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.untyped import as_map, value_at
from kwok_operator.formats.words import names_in_words
from kwok_operator.importing.kinds import TRACED
from kwok_operator.importing.traces.cleaning import Clean
from kwok_operator.importing.traces.recording import TraceRecorder
from kwok_operator.importing.traces.trace import (
    MAX_SECONDS,
    Event,
    Happening,
    Header,
    Key,
    Line,
    Stop,
    shape_of,
    trace_error,
)
from kwok_operator.nodegroups.naming import is_object_name

Placed = tuple[str, Line]
"""The place of a line in the file, and the line."""

OPENB_COLUMNS: Final = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time")
OPENB_NAMESPACE: Final = "openb"
GPU: Final = "nvidia.com/gpu"
GPU_MODEL_LABEL: Final = "alibabacloud.com/gpu-card-model"
"""A label of openb's nodes; the column gpu_spec has its values."""
_NOTHING: Final = (None, "", "nan", "NaN")
"""Empty values of a column, also as pandas writes them."""
SIMKUBE_VERSION: Final = 2


def openb_lines(rows: Iterable[Mapping[str, Any]], *, where: str) -> list[Placed]:
    """Converts openb's rows: each pod is created at creation_time and deleted at deletion_time.

    A pod with a share of a GPU gets a whole GPU, as schedulers know no shares.
    """
    lines: list[tuple[float, int, Placed]] = []
    number = 1
    for number, row in enumerate(rows, start=2):
        place = f"{where}:{number}"
        created = _number(row, "creation_time", place)
        deleted = _number(row, "deletion_time", place, default=None)
        name = row.get("name")
        if not isinstance(name, str) or not is_object_name(name):
            raise trace_error(
                place, "name", "is no name of an object", "use one as openb-pod-1", value=name
            )
        key, shape = Key("Pod", OPENB_NAMESPACE, name), shape_of(_openb_pod(row, place))
        lines.append((created, number, (place, shape)))
        lines.append((created, number, (place, Event(created, Happening.CREATE, key, shape.id))))
        if deleted is not None and deleted >= created:
            lines.append((deleted, number, (place, Event(deleted, Happening.DELETE, key))))
    if not lines:
        raise trace_error(where, "rows", "are missing", "give a list of pods that has some")
    lines.sort(key=lambda line: line[:2])
    header: Placed = (where, Header(start=0, at=lines[0][0]))
    return [header, *(placed for *_, placed in lines), (where, Stop(lines[-1][0]))]


def _openb_pod(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    cpu, memory = _number(row, "cpu_milli", place), _number(row, "memory_mib", place)
    gpus = _number(row, "num_gpu", place)
    resources = {"cpu": f"{cpu:.0f}m", "memory": f"{memory:.0f}Mi"}
    resources |= {GPU: f"{gpus:.0f}"} if gpus else {}
    container = {"name": "c0", "resources": {"requests": resources, "limits": resources}}
    spec: dict[str, Any] = {"containers": [container]}
    models = [model for model in str(row.get("gpu_spec") or "").split("|") if model not in _NOTHING]
    if gpus and models:
        wanted = {"key": GPU_MODEL_LABEL, "operator": "In", "values": models}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    metadata: dict[str, Any] = {}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def _number(row: Mapping[str, Any], field: str, place: str, default: Any = ...) -> Any:
    text = row.get(field)
    if default is not ... and text in _NOTHING:
        return default
    try:
        number = float(str(text))
    except ValueError:
        number = -1.0
    if not 0 <= number <= MAX_SECONDS:
        raise trace_error(place, field, "is no number", "give one from 0", value=text)
    return number


def simkube_lines(
    trace: Any, *, where: str, clean: Clean, ignored: Counter[str] | None = None
) -> Iterator[Placed]:
    """Converts a SimKube trace. Its first event is the state at the start. `ignored` counts objects
    of kinds that aren't traced.
    """
    trace = as_map(trace)
    if trace.get("version") != SIMKUBE_VERSION:
        remedy = f"export it anew with a SimKube that writes version {SIMKUBE_VERSION}"
        raise trace_error(where, "version", "is not read here", remedy, value=trace.get("version"))
    ignored = Counter() if ignored is None else ignored
    happenings = sorted(_objects(trace, where, ignored), key=lambda each: each.at)
    if not happenings:
        kinds = names_in_words([f"{count} {kind}" for kind, count in ignored.items()])
        problem = f"have nothing that can be replayed{f', but {kinds}' if kinds else ''}"
        remedy = f"record some of {', '.join(TRACED)}"
        raise trace_error(where, "events", problem, remedy)
    start = happenings[0].at
    happenings = sorted([*happenings, *_ends(trace, where)], key=lambda each: each.at)
    happenings = [each for each in happenings if each.at >= start]
    recorder = TraceRecorder(clean)
    yield where, Header(start=int(start * 1_000))
    for kind in TRACED:
        recorder.begin(kind)
        for happening in happenings:
            if happening.at == start and happening.type == "MODIFIED" and happening.kind == kind:
                lines = recorder.listed(kind, happening.body, at=0.0)
                yield from ((happening.place, line) for line in lines)
        list(recorder.end(kind, at=0.0))
    for happening in happenings:
        at = happening.at - start
        if happening.type == _ENDED:
            key = Key(happening.kind, *_named(happening.body))
            yield happening.place, Event(at, Happening.END, key, phase="Succeeded")
        elif at > 0:
            lines = recorder.observed(
                happening.kind, {"type": happening.type, "object": happening.body}, at=at
            )
            yield from ((happening.place, line) for line in lines)
    yield where, Stop(happenings[-1].at - start)


_ENDED: Final = "ended"


@dataclass(frozen=True, slots=True)
class _Happening:
    at: float
    place: str
    type: str
    kind: str
    body: dict[str, Any]


def _objects(trace: Mapping[str, Any], where: str, ignored: Counter[str]) -> Iterator[_Happening]:
    for number, event in enumerate(_list(trace.get("events"), where, "events"), start=1):
        place = f"{where}: event {number}"
        event = as_map(event)
        at = _number(event, "ts", place)
        for field, type_ in (("applied_objs", "MODIFIED"), ("deleted_objs", "DELETED")):
            for body in _list(event.get(field), place, field):
                kind, metadata = value_at(body, "kind"), value_at(body, "metadata")
                if kind not in TRACED or not isinstance(metadata, dict):
                    ignored[one_line(kind, limit=100)] += 1
                    continue
                # SimKube has no uids: an object is identified by its name.
                uid = "/".join((kind, *_named(body)))
                yield _Happening(
                    at, place, type_, kind, {**body, "metadata": {**metadata, "uid": uid}}
                )


def _ends(trace: Mapping[str, Any], where: str) -> Iterator[_Happening]:
    """Yields the ends of bare pods, and of the pods of Jobs."""
    place = f"{where}: pod_lifecycles"
    for owner, by_hash in as_map(trace.get("pod_lifecycles")).items():
        api, name = owner if isinstance(owner, tuple) and len(owner) == 2 else ("", "")
        kind = {"v1.Pod": "Pod", "batch/v1.Job": "Job"}.get(str(api))
        namespace, _, name = str(name).partition("/")
        if kind is None or not (is_object_name(namespace) and is_object_name(name)):
            continue
        body = {"metadata": {"namespace": namespace, "name": name}}
        for lives in as_map(by_hash).values():
            for life in _list(lives, place, str(owner)):
                times = value_at(life, "Finished")
                if isinstance(times, list) and len(times) == 2:
                    at = _number({"end": times[1]}, "end", place)
                    yield _Happening(at, place, _ENDED, kind, body)


def _named(body: Mapping[str, Any]) -> tuple[str, str]:
    metadata = body["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _list(value: Any, where: str, field: str) -> list[Any]:
    if value is None or isinstance(value, list):
        return value or []
    raise trace_error(where, field, "is no list", "export the trace anew")
