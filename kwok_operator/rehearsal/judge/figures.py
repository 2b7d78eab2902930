"""The figures of a rehearsal: their names, what they may be narrowed by, and how they are read.

    ClusterLedger --levels, waits, counts--> Tally (of a FigureScope) --reading--> FigureReading

Expectations, verdict, report and diff know figures by these names; docs/figures.md says what each
counts. A figure is nothing where there was nothing to measure, and incomplete where it is known in
part: its FigureReading says what is missing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kwok_operator.cloud.summary import COUNTED
from kwok_operator.rehearsal.judge.measures import (
    HOUR,
    PERCENTILES,
    SHORTEST,
    Level,
    Ratio,
    Waits,
)
from kwok_operator.rehearsal.judge.recording import BACK, BROKEN, WatchLine

POD_LEVELS: Final = ("pending", "running", "succeeded", "failed", "orphaned", "gone")
NODE_LEVELS: Final = ("total", "ready", "notReady", "cordoned", "deleting")
RESOURCES: Final = ("cpu", "memory")


class Place(NamedTuple):
    """Where a thing belongs, as far as it does; `workload` is Kind/namespace/name, `rehearsed` the
    scenario's workload, where that is called otherwise."""

    workload: str = ""
    namespace: str = ""
    group: str = ""
    zone: str = ""
    rehearsed: str = ""
    program: str = ""


@dataclass(frozen=True, slots=True)
class FigureScope:
    """What a figure is narrowed to; a workload is given as its name, Kind/name, or in full."""

    workload: str = ""
    namespace: str = ""
    group: str = ""
    zone: str = ""
    program: str = ""

    def holds(self, place: Place) -> bool:
        return (
            (not self.namespace or self.namespace == place.namespace)
            and (not self.group or self.group == place.group)
            and (not self.zone or self.zone == place.zone)
            and (not self.program or self.program == place.program)
            and (not self.workload or is_workload(self.workload, place.workload, place.rehearsed))
        )

    @property
    def wide(self) -> "FigureScope":
        """Without group and zone."""
        return replace(self, group="", zone="")

    @property
    def by(self) -> dict[str, str]:
        """What it narrows by."""
        named = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in named.items() if value}

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.by.items())


def is_workload(wanted: str, told: str, rehearsed: str = "") -> bool:
    """Whether Kind/namespace/name is what somebody calls `web` or `deployment/web`.

    `web-0007` is where it was made for the workload `web` of the scenario, as `rehearsed` says.
    """
    kind, _, rest = told.partition("/")
    name = rest.partition("/")[2]
    parts = wanted.split("/")
    if parts[-1] not in (name, rehearsed or name):
        return False
    if len(parts) > 1 and parts[0].casefold() != kind.casefold():
        return False
    return len(parts) < 3 or parts[1] == rest.partition("/")[0]


class WatchGaps:
    """What the recording lacks by now: kinds whose watch is broken, or that were listed anew."""

    def __init__(self) -> None:
        self._broken: dict[str, float] = {}
        self._listed: dict[str, float] = {}

    def apply(self, line: WatchLine) -> None:
        if line.state == BROKEN:
            self._broken.setdefault(line.of, line.t)
        elif line.state == BACK:
            self._broken.pop(line.of, None)
        else:
            self._listed.setdefault(line.of, line.t)

    def missing(self, kinds: Iterable[str], *, momentary: bool) -> str:
        """What makes a figure of these kinds incomplete; nothing where it is complete."""
        for kind in kinds:
            if kind in self._broken:
                return f"the watch of {kind} is broken since {self._broken[kind]:g} s"
            if kind in self._listed and not momentary:
                at = f"{self._listed[kind]:g} s"
                return f"{kind} were listed anew at {at}: what came and went before may be missing"
        return ""


class Tally:
    """The sums of one scope. The ledger moves them; `t` never goes back."""

    def __init__(self, scope: FigureScope, gaps: WatchGaps, wide: "Tally | None" = None) -> None:
        self.scope = scope
        self.gaps = gaps
        self.wide = wide
        """That of the same without group and zone, where it has one of them: a pod without a node
        may have belonged here."""
        self.known = False
        """Whether anything of the scope was ever there."""
        self.priced = False
        self.pods = {name: Level() for name in POD_LEVELS}
        self.nodes = {name: Level() for name in NODE_LEVELS}
        self.instances = {state.value: Level() for state in COUNTED.values()}
        self.price = Level()
        self.unpriced = Level()
        """Nodes of which no price is known yet."""
        self.use = {name: Ratio() for name in RESOURCES}
        self.pending = Waits()
        self.starting = Waits()
        self.gangs = Waits()
        self.counts: Counter[str] = Counter()


@dataclass(frozen=True, slots=True)
class Figure:
    """`of`: what it may be narrowed by. `drifts`: it changes while nothing happens, or is much work
    to find, and so isn't asked for at every line. No figure is ever below 0."""

    unit: str
    of: frozenset[str]
    read: Callable[[Tally, float], float | None]
    drifts: bool = False
    whole: bool = False
    """Whether it is always a whole number."""
    grows: bool = False
    """Whether it is 0 when the run begins, and only grows."""
    momentary: bool = False
    """Whether it is what there is now, whatever was before."""
    missing: Callable[[Tally, float, float | None], str] | None = None
    """What makes such a value incomplete; nothing where it is complete."""


@dataclass(frozen=True, slots=True)
class FigureReading:
    """A figure at one moment."""

    value: float | None
    incomplete: str = ""
    """What is missing, where the value is only the part that is known."""


_OF_PODS: Final = frozenset({"workload", "namespace", "group", "zone"})
_OF_WAITING: Final = frozenset({"workload", "namespace"})
_OF_NODES: Final = frozenset({"group", "zone"})
_OF_GROUPS: Final = frozenset({"group"})
_OF_OBJECTS: Final = frozenset({"workload", "namespace"})
_OF_NAMESPACES: Final = frozenset({"namespace"})
_COUNTS: Final = {
    "churn.created": _OF_NODES,
    "churn.deleted": _OF_NODES,
    "churn.replacedSameShape": _OF_NODES,
    "pods.unserved": _OF_WAITING,
    "evictions": _OF_PODS,
    "preemptions": _OF_PODS,
    "losses": _OF_PODS,
    "restarts": _OF_PODS,
    "disruptions.beyondBudget": _OF_NAMESPACES,
    "gangs.unfinished": _OF_OBJECTS,
    "events": _OF_NAMESPACES,
    "warnings": frozenset({"program"}),
}


def _level(name: str, of: frozenset[str], level: Callable[[Tally], Level]) -> dict[str, Figure]:
    momentary = name != "pods.gone"
    now = Figure("", of, lambda tally, _: level(tally).value, whole=True, momentary=momentary)
    most = Figure("", of, lambda tally, _: level(tally).most, whole=True)
    return {name: now, f"{name}.max": most, f"{name}.final": now}


def _waits(name: str, of: frozenset[str], waits: Callable[[Tally], Waits]) -> dict[str, Figure]:
    def figure(which: str) -> Figure:
        return Figure(
            "s",
            of,
            lambda tally, t: waits(tally).figure(which, t),
            drifts=True,
            missing=lambda tally, _, value: _missing_waits(tally, waits(tally), which, value),
        )

    return {f"{name}.{which}": figure(which) for which in (*PERCENTILES, "max", "mean")}


def _missing_waits(tally: Tally, waits: Waits, which: str, value: float | None) -> str:
    missing = waits.missing(which, value)
    nowhere = tally.wide.pending.unended if tally.wide else 0
    if nowhere:
        pods = "1 pod" if nowhere == 1 else f"{nowhere:,} pods"
        missing = f"{missing}{missing and '; '}{pods} without a node may have belonged here"
    return missing


def _ratio(name: str, of: frozenset[str], ratio: Callable[[Tally], Ratio]) -> dict[str, Figure]:
    return {
        name: Figure("share", of, lambda tally, t: ratio(tally).overall(t), drifts=True),
        f"{name}.max": Figure("share", of, lambda tally, t: ratio(tally).peak(t), drifts=True),
        f"{name}.final": Figure("share", of, lambda tally, _: ratio(tally).value, momentary=True),
    }


def _without_price(tally: Tally, t: float, _: float | None) -> str:
    hours, unpriced = (level.area(t) / HOUR for level in (tally.nodes["total"], tally.unpriced))
    if unpriced * HOUR < SHORTEST:
        return ""
    return f"{in_words(unpriced)} of {in_words(hours)} node-hours have no price"


def _count(name: str, of: frozenset[str]) -> Figure:
    return Figure("", of, lambda tally, _: tally.counts[name], whole=True, grows=True)


def _one_of_pods(name: str) -> Callable[[Tally], Level]:
    return lambda tally: tally.pods[name]


def _one_of_nodes(name: str) -> Callable[[Tally], Level]:
    return lambda tally: tally.nodes[name]


def _one_of_instances(name: str) -> Callable[[Tally], Level]:
    return lambda tally: tally.instances[name]


def _one_of_uses(name: str) -> Callable[[Tally], Ratio]:
    return lambda tally: tally.use[name]


def _figures() -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name in POD_LEVELS:
        of = _OF_WAITING if name == "pending" else _OF_PODS
        found |= _level(f"pods.{name}", of, _one_of_pods(name))
    found |= _waits("pendingSeconds", _OF_PODS, lambda tally: tally.pending)
    found |= _waits("startSeconds", _OF_PODS, lambda tally: tally.starting)
    for name in NODE_LEVELS:
        found |= _level(f"nodes.{name}", _OF_NODES, _one_of_nodes(name))
    found |= {f"nodes.{which}": found[f"nodes.total.{which}"] for which in ("max", "final")}
    for name in (state.value for state in COUNTED.values()):
        found |= _level(
            f"instances.{name}",
            _OF_GROUPS,
            _one_of_instances(name),
        )
    found["nodeHours"] = Figure(
        "h", _OF_NODES, lambda tally, t: tally.nodes["total"].area(t) / HOUR, drifts=True
    )
    found["cost"] = Figure(
        "",
        _OF_NODES,
        lambda tally, t: tally.price.area(t) / HOUR if tally.priced else None,
        drifts=True,
        missing=_without_price,
    )
    for name in RESOURCES:
        found |= _ratio(f"utilisation.{name}", _OF_NODES, _one_of_uses(name))
    found |= _waits("gangs.completionSeconds", _OF_OBJECTS, lambda tally: tally.gangs)
    for name, of in _COUNTS.items():
        found[name] = _count(name, of)
    return found


FIGURES: Final[Mapping[str, Figure]] = _figures()
EVENT_COUNT: Final = _count("events", frozenset())
"""What an expectation of Events counts, by its unit and range."""


_WATCHED: Final[Mapping[str, Sequence[str]]] = {
    "instances": ("groups",),
    "gangs": ("jobs",),
    "disruptions": ("pods", "budgets"),
    "events": ("events",),
    "warnings": (),
}
"""The kinds that figures are made of, by the beginning of their names; others of nodes and pods."""


def reading(tally: Tally, name: str, t: float, *, always: bool = False) -> FigureReading:
    """A figure at `t`, rounded to what can be meant: the one number that everybody shows.

    `always`: as it was until now, too.
    """
    figure = FIGURES[name]
    value = figure.read(tally, t)
    missing = figure.missing(tally, t, value) if figure.missing else ""
    kinds = _WATCHED.get(name.partition(".")[0], ("nodes", "pods"))
    gap = tally.gaps.missing(kinds, momentary=figure.momentary and not always)
    return FigureReading(
        None if value is None else rounded(value), "; ".join(filter(None, (gap, missing)))
    )


def rounded(number: float) -> float:
    whole = round(number)
    return whole if abs(number - whole) < 1e-9 else round(number, 6)


def form_of(figure: Figure) -> str:
    """How a number that it is held against is written."""
    if figure.unit == "s":
        return "a time such as 30s"
    if figure.unit == "share":
        return "a share from 0 to 1, such as 0.5"
    return "a whole number such as 3" if figure.whole else "a number from 0 on, such as 2.5"


def in_words(number: float | None, unit: str = "", *, exact: bool = False) -> str:
    """As people read it: `31.2 s`, `63.5 %`, `1,204`; `exact` has all digits, as for bounds."""
    if number is None:
        return "nothing to measure"
    if exact:
        share = unit == "share"
        return f"{number * 100 if share else number:,.12g} {'%' if share else unit}".rstrip()
    if unit == "share":
        return f"{number * 100:.1f} %"
    if 0 < abs(number) < 1:
        text = f"{number:.3g}"
    else:
        digits = 0 if number == int(number) else 2 if abs(number) < 1_000 else 1
        text = f"{number:,.{digits}f}"
    return f"{text} {unit}" if unit else text
