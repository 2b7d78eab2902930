"""Lines of a recording, from bytes to values.

What figures are made of is checked here, with one clear error; keys that aren't known are left
alone, and so are lines of kinds that aren't. A recording that was cut off is read up to there.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn

from kwok_operator.cloud.summary import COUNTED
from kwok_operator.errors import RecordingError
from kwok_operator.formats.jsonlines import numbered_lines, unzipped
from kwok_operator.rehearsal.judge.clocks import ClockOffset
from kwok_operator.rehearsal.judge.recording import (
    EARLIEST,
    FORMAT,
    MAX_AMOUNT,
    MAX_COUNT,
    MAX_SECONDS,
    CallLine,
    EndLine,
    EventLine,
    GroupLine,
    GroupState,
    MarkLine,
    NodeLine,
    NodeState,
    ObjectLine,
    PodLine,
    PodState,
    RecordedLine,
    RecordingHeader,
    WaitLine,
    WarningLine,
    WatchLine,
)

_MAX_STEP_BACK: Final = 5.0
"""Lines of one moment are written one after the other; what goes further back is no recording."""


class RecordingReader:
    """The lines of a recording, read one by one: memory doesn't grow with them.

    `chunks` are the bytes of the file `name`. Raises RecordingError, at once if it has no header.
    """

    def __init__(self, chunks: Iterator[bytes], *, name: str) -> None:
        self.cut = False
        """Once all lines are read: whether it ends in the middle."""
        self._name = name
        data = unzipped(chunks, damaged=self._damaged, on_cut=self._note_cut)
        self._texts = numbered_lines(data, damaged=self._damaged)
        self.header = self._header()

    def lines(self) -> Iterator[RecordedLine]:
        """All but the header, whose times never go back. To be asked for once."""
        now = 0.0
        for number, text, ended in self._texts:
            where = f"{self._name}:{number}"
            try:
                told = _object(text, where)
                fields = _Fields(told, where)
                t = fields.seconds("t")
                line = _line(fields, max(now, t))
            except RecordingError:
                if ended:
                    raise
                self.cut = True
                return
            if t < now - _MAX_STEP_BACK:
                fields.refuse("t", "goes back in time", "lines come in the order of their times")
            now = max(now, t)
            if line is not None:
                yield line

    def _header(self) -> RecordingHeader:
        for number, text, _ in self._texts:
            where = f"{self._name}:{number}"
            return _header(_Fields(_object(text, where), where))
        raise self._damaged("holds nothing")

    def _note_cut(self) -> None:
        self.cut = True

    def _damaged(self, problem: str) -> RecordingError:
        return RecordingError(
            where=self._name,
            field="the file",
            value=None,
            problem=problem,
            remedy="name the recording.jsonl.gz of a rehearsal",
        )


class _Fields:
    """What a line holds, checked as it is asked for. What is absent is empty."""

    def __init__(self, told: Mapping[str, Any], where: str, path: str = "") -> None:
        self.told = told
        self._where = where
        self._path = path

    def refuse(self, key: str, problem: str, remedy: str) -> NoReturn:
        raise RecordingError(
            where=self._where,
            field=f"{self._path}{key}",
            value=self.told.get(key),
            problem=problem,
            remedy=remedy,
        )

    def part(self, key: str) -> "_Fields":
        value = self.told.get(key)
        if not isinstance(value, dict):
            self.refuse(key, "is no object", "write an object with the fields of such a line")
        return _Fields(value, self._where, f"{self._path}{key}.")

    def text(self, key: str) -> str:
        value = self.told.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.refuse(key, "is no text", "write a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.told.get(key) or ()
        if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
            self.refuse(key, "is no list of texts", "write a list of strings")
        return tuple(value)

    def flag(self, key: str, *, otherwise: bool = False) -> bool:
        value = self.told.get(key, otherwise)
        if not isinstance(value, bool):
            self.refuse(key, "is neither true nor false", "write one of them")
        return value

    def number(self, key: str, *, least: float = 0.0, most: float = MAX_AMOUNT) -> float | None:
        value = self.told.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(key, "is no number", "write a number")
        if not least <= value <= most:
            self.refuse(key, "is out of range", f"write a number from {least:g} to {most:g}")
        return float(value)

    def seconds(self, key: str, *, least: float = 0.0) -> float:
        value = self.number(key, least=least, most=MAX_SECONDS)
        if value is None:
            self.refuse(key, "is missing", "give seconds from the beginning of the run")
        return value

    def moment(self, key: str) -> float | None:
        """Seconds, or nothing; before the run it is negative."""
        return self.number(key, least=EARLIEST, most=MAX_SECONDS)

    def count(self, key: str, *, otherwise: int = 0) -> int:
        value = self.told.get(key)
        if value is None:
            return otherwise
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > MAX_COUNT:
            self.refuse(key, "is no whole number", "write a whole number")
        return value

    def each(self, key: str, read: "Callable[[_Fields, str], Any]") -> dict[str, Any]:
        if self.told.get(key) is None:
            return {}
        part = self.part(key)
        return {name: read(part, name) for name in part.told}


def _object(text: bytes, where: str) -> Mapping[str, Any]:
    try:
        told = _DECODER.decode(text.decode())
    except (ValueError, RecursionError) as error:
        problem = "is nested too deeply" if isinstance(error, RecursionError) else "is no JSON"
        raise _no_line(where, problem) from error
    if not isinstance(told, dict):
        raise _no_line(where, "is no JSON object")
    return told


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number)


def _no_line(where: str, problem: str) -> RecordingError:
    remedy = "each line of a recording is one JSON object; take the recording as it was written"
    return RecordingError(where=where, field="the line", value=None, problem=problem, remedy=remedy)


def _header(fields: _Fields) -> RecordingHeader:
    if "header" not in fields.told:
        fields.refuse("header", "is missing", "the first line of a recording is its header")
    fields = fields.part("header")
    if fields.told.get("format") != FORMAT:
        fields.refuse("format", "is not read here", f"use the version that wrote it, not {FORMAT}")
    expect = fields.told.get("expect", [])
    if not isinstance(expect, list):
        fields.refuse("expect", "is no list", "write what the scenario expects")
    return RecordingHeader(
        scenario=fields.text("scenario"),
        teaches=fields.text("teaches"),
        seed=fields.text("seed"),
        started=fields.text("started"),
        versions=fields.each("versions", _Fields.text),
        expect=tuple(expect),
        clock=_clock(fields.part("clock")) if fields.told.get("clock") is not None else None,
    )


def _clock(fields: _Fields) -> ClockOffset:
    return ClockOffset(fields.moment("ahead") or 0.0, fields.number("error") or 0.0)


def _line(fields: _Fields, t: float) -> RecordedLine | None:
    for key, read in _LINES.items():
        if key in fields.told:
            return read(fields, t)
    return None


def _state(fields: _Fields) -> _Fields | None:
    if fields.told.get("is") is None:
        return None
    return fields.part("is")


def _name(fields: _Fields, key: str) -> str:
    return fields.text(key) or fields.refuse(key, "is empty", "name the object")


def _node(fields: _Fields, t: float) -> NodeLine:
    name, state = _name(fields, "node"), _state(fields)
    if state is None:
        return NodeLine(t, name, None)
    return NodeLine(
        t,
        name,
        NodeState(
            group=state.text("group"),
            zone=state.text("zone"),
            instance_type=state.text("instanceType"),
            shape=state.text("shape"),
            ready=state.flag("ready"),
            schedulable=state.flag("schedulable", otherwise=True),
            deleting=state.flag("deleting"),
            allocatable=state.each("allocatable", _amount),
            price=state.number("price"),
            created=state.moment("created"),
            requested=state.moment("requested"),
        ),
    )


def _pod(fields: _Fields, t: float) -> PodLine:
    name, state = _name(fields, "pod"), _state(fields)
    if state is None:
        return PodLine(t, name, None)
    created = state.moment("created")
    return PodLine(
        t,
        name,
        PodState(
            workload=state.text("workload"),
            phase=state.text("phase") or "Pending",
            created=t if created is None else created,
            bound=state.moment("bound"),
            running=state.moment("running"),
            ready=state.flag("ready"),
            deleting=state.flag("deleting"),
            node=state.text("node"),
            requests=state.each("requests", _amount),
            priority=state.count("priority"),
            restarts=state.count("restarts"),
            why=state.text("why"),
            reason=state.text("reason"),
            disrupted=state.text("disrupted"),
            budgets=state.texts("budgets"),
            rehearsed=state.text("rehearsed"),
        ),
    )


def _group(fields: _Fields, t: float) -> GroupLine:
    name, state = _name(fields, "group"), _state(fields)
    if state is None:
        return GroupLine(t, name, None)
    return GroupLine(
        t,
        name,
        GroupState(
            target=state.count("target"),
            replicas=state.count("replicas"),
            ready=state.count("ready"),
            # Earlier recordings have the keys of status.
            states={
                COUNTED.get(key, key): count
                for key, count in state.each("states", _Fields.count).items()
            },
            price=state.number("price"),
            conditions=state.each("conditions", _Fields.text),
        ),
    )


def _object_line(fields: _Fields, t: float) -> ObjectLine:
    name, state = _name(fields, "object"), _state(fields)
    if state is None:
        return ObjectLine(t, name, None)
    told: dict[str, Any] = {key: state.count(key) for key in _COUNTS if key in state.told}
    if state.told.get("created") is not None:
        told["created"] = state.moment("created")
    if whose := state.text("rehearsed"):
        told["rehearsed"] = whose
    return ObjectLine(t, name, told | {"done": state.text("done")})


_COUNTS: Final = ("allowed", "healthy", "desired", "wanted", "succeeded", "failed")


def _event(fields: _Fields, t: float) -> EventLine:
    part = fields.part("event")
    named = {key: part.text(key) for key in ("type", "reason", "about", "message")}
    return EventLine(
        t, **named, component=part.text("from"), count=part.count("count", otherwise=1)
    )


def _call(fields: _Fields, t: float) -> CallLine:
    part = fields.part("call")
    argument = part.told.get("argument")
    if isinstance(argument, str | int | float) or argument is None:
        shown = "" if argument is None else str(argument)
    else:
        shown = json.dumps(argument, separators=(",", ":"))
    texts = (part.text("method"), part.text("group"), shown, part.text("code"))
    return CallLine(t, *texts, ms=part.number("ms") or 0.0)


def _mark(fields: _Fields, t: float) -> MarkLine:
    part = fields.part("mark")
    return MarkLine(t, part.text("what"), part.text("detail"))


def _watch(fields: _Fields, t: float) -> WatchLine:
    part = fields.part("watch")
    return WatchLine(t, part.text("of"), part.text("state"), part.text("detail"))


def _warning(fields: _Fields, t: float) -> WarningLine:
    part = fields.part("warning")
    count = part.count("count", otherwise=1)
    told = part.text("program"), part.text("message")
    return WarningLine(t, *told, count, before=part.flag("before"))


def _wait(fields: _Fields, t: float) -> WaitLine:
    part = fields.part("wait")
    return WaitLine(t, part.count("expect"), part.flag("held"), part.text("detail"))


def _end(fields: _Fields, t: float) -> EndLine:
    part = fields.part("end")
    return EndLine(t, part.text("reason"), part.text("detail"))


def _amount(fields: _Fields, name: str) -> float:
    return fields.number(name) or 0.0


_LINES: Final[Mapping[str, Callable[[_Fields, float], RecordedLine]]] = {
    "pod": _pod,
    "node": _node,
    "event": _event,
    "group": _group,
    "call": _call,
    "object": _object_line,
    "mark": _mark,
    "watch": _watch,
    "warning": _warning,
    "wait": _wait,
    "end": _end,
}
