"""Sees when the last node is usable and when the last one is gone: the same eyes for all rivals.

A node is usable when it is Ready and free of the taint that every node gets at its creation; until
then no pod comes to it.

A thread reads a watch as admin and looks for a few bytes in each line instead of decoding it, about
2 us a line; so its cost is the same for every rival, and small. The API server's JSON has its
fields in the order of its types, which is what makes that possible.

The time of an event is that of its arrival. What the bench waits for is said before the clock
starts (`expect`), so that no event is missed and none has to be kept.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from kwok_operator.constants import GROUPS_PATH
from tests.bench.api import Api, ApiError

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
EXISTS: Final = "exists"
READY: Final = "Ready"
USABLE: Final = "usable"
BOUND: Final = "bound"
RUNNING: Final = "running"

_READY = b'"type":"Ready","status":"True"'
_NOT_READY_TAINT = b'"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"'

States = Mapping[str, Callable[[bytes], bool]]
NODE_STATES: Final[States] = {
    EXISTS: lambda line: True,
    READY: lambda line: _READY in line,
    USABLE: lambda line: _READY in line and _NOT_READY_TAINT not in line,
}
POD_STATES: Final[States] = {
    BOUND: lambda line: b'"nodeName":"' in line,
    RUNNING: lambda line: b'"phase":"Running"' in line,
}

_WATCH = (
    "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    "&allowWatchBookmarks=true&timeoutSeconds=86400"
)
_TYPE_AT = len(b'{"type":"')
_NAME = b'"metadata":{"name":"'
_SYNCED = b"k8s.io/initial-events-end"
_POLL = 0.25


class Unfinished(Exception):
    """What was expected did not happen in time."""


class View(Protocol):
    """What is made of the lines of a watch."""

    synced: bool

    def line(self, line: bytes, now: float) -> None: ...
    def anew(self) -> Self:
        """The view for a watch that begins anew: what was deleted meanwhile is not told."""
        ...


V = TypeVar("V", bound=View)


class Sight:
    """What the lines of a watch tell: which objects there are, and how many are in which state.

    `first` has when each object was first seen in a state. Pure.
    """

    def __init__(self, states: States) -> None:
        self._states = states
        self._objects: dict[bytes, frozenset[str]] = {}
        self.count = dict.fromkeys(states, 0)
        self.first: dict[str, dict[bytes, float]] = {state: {} for state in states}
        self.synced = False

    def anew(self) -> Self:
        """Nothing is there yet, but the first time of what comes back is that of before."""
        sight = type(self)(self._states)
        sight.first = self.first
        return sight

    @property
    def present(self) -> int:
        return len(self._objects)

    def forget_times(self) -> None:
        """What is seen from now on counts as first seen."""
        for times in self.first.values():
            times.clear()

    def last(self, state: str) -> float:
        """When the last of the objects came into a state."""
        return max(self.first[state].values())

    def line(self, line: bytes, now: float) -> None:
        """Take one event; raises ValueError where the watch has to begin anew."""
        kind = line[_TYPE_AT : line.index(b'"', _TYPE_AT)]
        if kind == b"BOOKMARK":
            self.synced = self.synced or _SYNCED in line
            return
        if kind == b"ERROR":
            raise ValueError(line[:300].decode(errors="replace"))
        start = line.index(_NAME) + len(_NAME)
        name = line[start : line.index(b'"', start)]
        before = self._objects.pop(name, frozenset())
        after: frozenset[str] = frozenset()
        if kind != b"DELETED":
            after = frozenset(state for state, is_in in self._states.items() if is_in(line))
            self._objects[name] = after
        for state in after - before:
            self.count[state] += 1
            self.first[state].setdefault(name, now)
        for state in before - after:
            self.count[state] -= 1

    def __str__(self) -> str:
        states = (f"{count:,} {state}" for state, count in self.count.items() if state != EXISTS)
        return ", ".join([f"{self.present:,} are there", *states])


class Events:
    """What is made of decoded events, of which there are few."""

    def __init__(self) -> None:
        self.synced = False

    def anew(self) -> Self:
        """Nothing is known."""
        return type(self)()

    def line(self, line: bytes, now: float) -> None:
        """Take one event; raises ValueError where the watch has to begin anew."""
        event = json.loads(line)
        match event["type"]:
            case "BOOKMARK":
                self.synced = self.synced or _SYNCED in line
            case "ERROR":
                raise ValueError(line[:300].decode(errors="replace"))
            case kind:
                self.take(event["object"], deleted=kind == "DELETED", now=now)

    def take(self, body: dict[str, Any], *, deleted: bool, now: float) -> None:
        """An object that is new, changed or deleted."""
        raise NotImplementedError


class Targets(Events):
    """The target of each group, as the API server has it."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: dict[str, int] = {}

    def take(self, body: dict[str, Any], *, deleted: bool, now: float) -> None:
        self.targets[body["metadata"]["name"]] = body.get("spec", {}).get("targetSize", -1)

    def __str__(self) -> str:
        return f"targets are {self.targets}"


def nodes_of(api: Api) -> "Observer[Sight]":
    """All nodes, and which of them are Ready and usable."""
    return Observer(api, path=NODES, view=Sight(NODE_STATES))


def pods_of(api: Api) -> "Observer[Sight]":
    """The pods in the namespace default, and which of them are bound and run."""
    return Observer(api, path=PODS, view=Sight(POD_STATES))


def targets_of(api: Api) -> "Observer[Targets]":
    """The targets of all groups."""
    return Observer(api, path=GROUPS_PATH, view=Targets())


class Observer(Generic[V]):
    """A watch in a thread, and what is made of it: `sight`."""

    def __init__(self, api: Api, *, path: str, view: V) -> None:
        self._api = api.another()
        self._path = path
        self._condition = threading.Condition()
        self._goal: Callable[[V], bool] | None = None
        self._reached: float | None = None
        self._error: Exception | None = None
        self._closed = False
        self.sight = view
        self._thread = threading.Thread(target=self._run, name=f"observe {path}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._api.close()

    def wait_synced(self, seconds: float = 60) -> None:
        self.expect(lambda sight: sight.synced)
        self.wait(seconds)

    def expect(self, goal: Callable[[V], bool]) -> None:
        """From now on, look out for this."""
        with self._condition:
            self._goal = goal
            self._reached = time.monotonic() if goal(self.sight) else None

    def wait(self, seconds: float, *, tick: Callable[[V], None] | None = None) -> float:
        """The time, by the monotonic clock, at which what is expected had arrived.

        Raises Unfinished after so many seconds.
        """
        deadline = time.monotonic() + seconds
        with self._condition:
            while self._reached is None:
                self._condition.wait(_POLL)
                if time.monotonic() > deadline:
                    trouble = f" (last error: {self._error})" if self._error else ""
                    raise Unfinished(f"{self._path} after {seconds:.0f} s: {self.sight}{trouble}")
                if tick is not None:
                    tick(self.sight)
            return self._reached

    def _run(self) -> None:
        while not self._closed:
            try:
                self._watch()
            except (ApiError, OSError, ValueError, http.client.HTTPException) as error:
                # A new resource is served a moment later, and a watch is ended for many reasons.
                self._error = error
            except AttributeError:
                # The connection was closed while it was read from.
                if not self._closed:
                    raise
            time.sleep(_POLL)
            with self._condition:
                self.sight = self.sight.anew()

    def _watch(self) -> None:
        rest = b""
        for chunk in self._api.chunks(f"{self._path}?{_WATCH}"):
            now = time.monotonic()
            *lines, rest = (rest + chunk).split(b"\n")
            with self._condition:
                for line in lines:
                    self.sight.line(line, now)
                    if self._goal is not None and self._reached is None and self._goal(self.sight):
                        self._reached = now
                        self._condition.notify_all()
