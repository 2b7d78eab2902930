"""Writes single events of Chrome's Trace Event format, which chrome://tracing and Perfetto read.

    process, thread, Lanes --numbers--> metadata events with their names and order
    slice, begin, end, instant, counter, flow --> one JSON object each, as text

Times are integers in microseconds. runtrace.py decides what is shown.

Rules of the format, and of its two readers: slices of one thread must nest, so overlapping ones get
lanes, each a thread. A flow leads from slice to slice, never from an instant; each of its events
comes after the beginning of its slice in the file, as readers sort by time alone. All numbers of
processes and threads must differ, and none may be 0: Perfetto takes that for the idle process. It
shows threads in the order of their numbers, so lanes have successive numbers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from kwok_operator.errors import one_line

_MOST_TEXT: Final = 1_000
_MOST_NAME: Final = 253
"""The most characters of a text that is cached: as many as Kubernetes' names have."""
_LANES: Final = 1_000
"""How many numbers each process and each thread reserves for its lanes: threads beside it."""

Value = str | float


class TraceThread(NamedTuple):
    pid: int
    tid: int


class TracePoint(NamedTuple):
    """Where an arrow of a flow begins or ends: a moment when a slice of `thread` has begun."""

    thread: TraceThread
    at: int


def microseconds(t: float) -> int:
    """Converts seconds since the run began to microseconds. Times before the run become 0."""
    return max(round(t * 1e6), 0)


class TraceEvents:
    """Collects events until they are taken. All names are users' input, and may be any text."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._numbers = count(_LANES, _LANES)
        self._flows = count(1)
        self._processes: dict[str, int] = {}

    def taken(self) -> list[str]:
        """Returns the events that were collected since the previous call."""
        texts, self._texts = self._texts, []
        return texts

    @property
    def waiting(self) -> int:
        """The number of events that `taken` hasn't returned yet."""
        return len(self._texts)

    def process(self, name: str, *, rank: int) -> int:
        """Returns the number of a process. Processes of a lower rank are shown first."""
        if name not in self._processes:
            pid = self._processes[name] = self.number()
            self._name("process", TraceThread(pid, pid), name, rank * 10**9 + pid)
        return self._processes[name]

    def thread(self, pid: int, name: str, *, number: int | None = None) -> TraceThread:
        """Makes a thread, with a new number or a given one. Viewers sort threads by number."""
        thread = TraceThread(pid, self.number() if number is None else number)
        self._name("thread", thread, name, thread.tid)
        return thread

    def number(self) -> int:
        """Returns a new number. The numbers after it are left free for lanes."""
        return next(self._numbers)

    def slice(
        self, thread: TraceThread, name: str, what: str, since: int, until: int, **args: Value
    ) -> None:
        rest = f'"name":{_quoted(name)},"cat":{_quoted(what)},"ts":{since},"dur":{until - since}'
        self._put("X", thread, rest, args)

    def begin(self, thread: TraceThread, name: str, what: str, at: int) -> None:
        self._put("B", thread, f'"name":{_quoted(name)},"cat":{_quoted(what)},"ts":{at}')

    def end(self, thread: TraceThread, name: str, at: int, **args: Value) -> None:
        # The format allows leaving out the name, but some readers, such as speedscope, need it.
        self._put("E", thread, f'"name":{_quoted(name)},"ts":{at}', args)

    def instant(
        self,
        thread: TraceThread,
        name: str,
        what: str,
        at: int,
        *,
        wide: bool = False,
        **args: Value,
    ) -> None:
        """Writes an event without a duration, of a thread, or with `wide` of the whole trace."""
        rest = (
            f'"name":{_quoted(name)},"cat":{_quoted(what)},"ts":{at},"s":"{"g" if wide else "t"}"'
        )
        self._put("i", thread, rest, args)

    def counter(self, pid: int, name: str, at: int, values: Mapping[str, float]) -> None:
        self._put("C", TraceThread(pid, pid), f'"name":{_quoted(name)},"ts":{at}', values)

    def flow(self, points: Sequence[TracePoint]) -> None:
        """Writes arrows that lead from point to point; there must be at least two points."""
        number, last = next(self._flows), len(points) - 1
        for place, (thread, at) in enumerate(points):
            phase = "f" if place == last else "t" if place else "s"
            # Without `bp`, the last arrow leads to the slice after the moment, not around it.
            bound = ',"bp":"e"' if phase == "f" else ""
            rest = f'"name":"leads to","cat":"flow","ts":{at},"id":{number}{bound}'
            self._put(phase, thread, rest)

    def _name(self, what: str, thread: TraceThread, name: str, place: int) -> None:
        self._put("M", thread, f'"name":"{what}_name","ts":0', {"name": name})
        self._put("M", thread, f'"name":"{what}_sort_index","ts":0', {"sort_index": place})

    def _put(
        self,
        phase: str,
        thread: TraceThread,
        rest: str,
        args: Mapping[str, Value] | None = None,
    ) -> None:
        if args:
            given = (
                f'"{key}":{_quoted(value) if isinstance(value, str) else value}'
                for key, value in args.items()
                if value != ""
            )
            rest += f',"args":{{{",".join(given)}}}'
        pid, tid = thread
        self._texts.append(f'{{"ph":"{phase}","pid":{pid},"tid":{tid},{rest}}}')


@dataclass(slots=True)
class Lanes:
    """Up to `most` threads for slices that may overlap: each thread has one slice at a time."""

    events: TraceEvents
    pid: int
    name: str
    most: int | None = None
    first: TraceThread = field(init=False)
    """The thread with the plain name, which always exists."""
    _made: int = 1
    _number: int = field(init=False)
    """The number of the last thread."""
    _free: list[tuple[int, TraceThread]] = field(init=False)
    """The free threads, each with the time since when it is free."""

    def __post_init__(self) -> None:
        self.first = self.events.thread(self.pid, self.name)
        self._number = self.first.tid
        self._free = [(0, self.first)]

    def take(self, since: int) -> TraceThread | None:
        """Returns a thread that is free from `since` on; None if there are `most` busy ones."""
        if self._free and self._free[0][0] <= since:
            return heappop(self._free)[1]
        if self._made == self.most:
            return None
        full = self._made % _LANES == 0
        self._number = self.events.number() if full else self._number + 1
        self._made += 1
        return self.events.thread(self.pid, f"{self.name} ({self._made})", number=self._number)

    def give(self, thread: TraceThread, until: int) -> None:
        """Returns a thread to the free ones; its last slice ended at `until`."""
        heappush(self._free, (until, thread))


def _quoted(text: str) -> str:
    return _quoted_name(text) if len(text) <= _MOST_NAME else _quoted_name.__wrapped__(text)


@lru_cache(maxsize=2**13)  # names of pods come again soon, those of workloads all the time
def _quoted_name(text: str) -> str:
    return json.dumps(one_line(text, limit=_MOST_TEXT))
