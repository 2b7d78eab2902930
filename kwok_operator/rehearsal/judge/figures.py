"""The figures of a rehearsal: their names, units, how they are computed, how they can be narrowed.

    ClusterLedger --levels, waits, counts--> Tally (of a FigureScope) --Figure--> FigureReading

A figure is one number about a run, such as pendingSeconds.p95. A new figure needs one entry of
`_figures`, and a row of docs/figures.md. A figure has no value if there was nothing to measure. A
figure is incomplete if only a part of its value is known: then its FigureReading says what is
missing.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pydantic import Field

from kwok_operator.causes.phases import PHASES
from kwok_operator.cloud.summary import COUNTED as STATUS_COUNTS
from kwok_operator.formats.words import FEW, counted
from kwok_operator.rehearsal.judge.measures import (
    HOUR,
    PERCENTILES,
    SHORTEST,
    Level,
    Ratio,
    Waits,
    WatchGaps,
)
from kwok_operator.rehearsal.scenario.parts import Line, ScenarioPart

if TYPE_CHECKING:
    from kwok_operator.rehearsal.judge.recording import NodeClaimState, NodeState

POD_LEVELS: Final = ("pending", "running", "succeeded", "failed", "orphaned", "gone")
"""The levels of pods. Every pod counts in exactly one of them. PodLedger (podledger.py) decides
which."""
NODE_LEVELS: Final[Mapping[str, Callable[["NodeState"], bool]]] = {
    "total": lambda node: True,
    "ready": lambda node: node.ready,
    "notReady": lambda node: not node.ready,
    "cordoned": lambda node: not node.schedulable,
    "deleting": lambda node: node.deleting,
}
NODE_CLAIM_LEVELS: Final[Mapping[str, Callable[["NodeClaimState"], bool]]] = {
    "underWay": lambda claim: claim.registered is None and not claim.deleting,
    "launched": lambda claim: claim.launched is not None,
    "registered": lambda claim: claim.registered is not None,
}
DISRUPTIONS: Final = ("Underutilized", "Empty", "Drifted", "Expired")
"""The reasons for which Karpenter disrupts NodeClaims."""
INSTANCE_STATES: Final = tuple(state.value for state in STATUS_COUNTS.values())
GPU: Final = "gpu"
RESOURCES: Final = ("cpu", "memory", GPU)
RACK_LEVELS: Final = ("racks.total", "racks.free")
LARGEST_GANGS: Final = ("largestGang.rack", "largestGang.block", "largestGang.cluster")
OF_NODES: Final = frozenset({"group", "zone", "nodePool"})
"""The parts of a scope that belong to nodes, and to pods through their node."""


class Place(NamedTuple):
    """The group, workload and so on that an object belongs to, as far as known. `workload` is
    KIND/NAMESPACE/NAME, such as Job/default/web-0007; `rehearsed` is the name of the scenario's
    workload, `web`, if the two names differ.
    """

    workload: str = ""
    namespace: str = ""
    group: str = ""
    zone: str = ""
    node_pool: str = ""
    rehearsed: str = ""
    program: str = ""


class FigureScope(ScenarioPart):
    """Which objects a figure counts: those that match all fields; by default, all."""

    workload: Line = Field(
        default="", description="A workload of the scenario, Kind/NAME, or Kind/NAMESPACE/NAME."
    )
    namespace: Line = Field(default="", description="A namespace.")
    group: Line = Field(default="", description="A KwokNodeGroup.")
    zone: Line = Field(default="", description="A zone.")
    node_pool: Line = Field(default="", description="A NodePool of Karpenter.")
    program: Line = Field(
        default="", description="operator, shim, or a process that is an autoscaler."
    )

    @classmethod
    def narrowed(cls, **by: str) -> Self:
        """Returns the scope with these fields, without the empty ones."""
        return cls(**{part: name for part, name in by.items() if name})

    def contains(self, place: Place) -> bool:
        return (
            (not self.namespace or self.namespace == place.namespace)
            and (not self.group or self.group == place.group)
            and (not self.zone or self.zone == place.zone)
            and (not self.node_pool or self.node_pool == place.node_pool)
            and (not self.program or self.program == place.program)
            and (not self.workload or is_workload(self.workload, place.workload, place.rehearsed))
        )

    @property
    def wide(self) -> "FigureScope":
        """This scope without its group, zone and NodePool."""
        kept = {part: name for part, name in self.by.items() if part not in OF_NODES}
        return FigureScope(**kept)

    @property
    def by(self) -> dict[str, str]:
        """The names to which the scope is narrowed, by field, such as `nodePool`."""
        fields = type(self).model_fields
        return {
            f.alias or name: value for name, f in fields.items() if (value := self.__dict__[name])
        }

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.by.items())


def is_workload(wanted: str, workload: str, rehearsed: str = "") -> bool:
    """Whether `wanted`, such as `web` or `deployment/web`, means the workload KIND/NAMESPACE/NAME.

    `web` also means `web-0007`, if `rehearsed` shows that the scenario created it for its workload
    `web`.
    """
    kind, _, rest = workload.partition("/")
    name = rest.partition("/")[2]
    parts = wanted.split("/")
    if parts[-1] not in (name, rehearsed or name):
        return False
    if len(parts) > 1 and parts[0].casefold() != kind.casefold():
        return False
    return len(parts) < 3 or parts[1] == rest.partition("/")[0]


class Tally:
    """The sums for one scope, such as a group. The ledger updates them in the order of time."""

    def __init__(self, gaps: WatchGaps, wide: "Tally | None" = None) -> None:
        self.gaps = gaps
        self.wide = wide
        """The tally of the same scope without group, zone and NodePool, if it has any of them: a
        pod that never got a node may have belonged to this scope.
        """
        self.known = False
        """Whether the recording has shown any object of this scope."""
        self.priced = False
        self.pods = {name: Level() for name in POD_LEVELS}
        self.nodes = {name: Level() for name in NODE_LEVELS}
        self.claims = {name: Level() for name in NODE_CLAIM_LEVELS}
        self.instances = {name: Level() for name in INSTANCE_STATES}
        self.price = Level()
        self.unpriced = Level()
        """The number of nodes whose price isn't known yet."""
        self.use = {name: Ratio() for name in RESOURCES}
        self.pending = Waits()
        self.starting = Waits()
        self.phases = tuple(Waits() for _ in PHASES)
        self.gangs = Waits()
        """The waits of Jobs until they are complete."""
        self.gang_waits = Waits()
        """The waits of gangs until enough of their pods run."""
        self.spread = Ratio()
        """The ratio of gang pods outside the rack with most of their gang to all gang pods that
        have a node.
        """
        self.racks: dict[str, Level] = {}
        """RACK_LEVELS and LARGEST_GANGS of the topology; only in the tally without a scope."""
        self.claiming = False
        """Whether any pod with a node has had ResourceClaims (DRA)."""
        self.counts: Counter[str] = Counter()
        self.last: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=FEW))
        """For each count, the last few objects that were counted, with what happened to them."""

    def count(self, name: str, what: str, by: int = 1) -> None:
        """Increases the count `name`. `what` names the object that is counted, and the time."""
        self.counts[name] += by
        self.last[name].append(what)


@dataclass(frozen=True, slots=True)
class FigureReading:
    """The value of a figure at one moment."""

    value: float | None
    incomplete: str = ""
    """What is missing, if the value covers only the known part; else empty."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a run. It is never below 0."""

    name: str
    of: frozenset[str]
    """The parts of a scope by which the figure can be narrowed."""
    compute: Callable[[Tally, float], float | None]
    unit: str = ""
    """The unit: `s`, `h` or `share`; empty for a plain number."""
    drifts: bool = False
    """Whether the value changes while nothing happens, or takes long to compute. Then `always`
    checks it only once a second.
    """
    whole: bool = False
    """Whether the value is always an integer."""
    grows: bool = False
    """Whether the value is 0 when the run begins, and never decreases."""
    momentary: bool = False
    """Whether the value depends only on the present state of the cluster."""
    lacks: Callable[[Tally, float, float | None], str] | None = None
    """Returns what makes a value incomplete, in words; an empty text if it is complete."""
    kinds: tuple[str, ...] = ("nodes", "pods")
    """The kinds of objects from which the figure is computed."""
    waits: Callable[[Tally], Waits] | None = None
    """Returns the waits of a tally that the figure is about."""
    counts: tuple[str, ...] = ()
    """The names of the counts of a tally that the figure sums up."""
    lower_is_better: bool | None = None
    """None if neither more nor less is better, as for the number of nodes."""
    decisions: bool = False
    """Whether it counts decisions, which hardly vary between runs that don't differ."""

    def rises(self, of: FigureScope) -> bool:
        """Whether the value, narrowed to `of`, never decreases during a run. A figure of waits is
        meant without the waits that still go on.

        The longest wait (`.max`) may decrease if the scope names nodes, such as those of a group:
        once a pod has a node, its wait counts for that node's group. The longest phase
        (`wait.*.max`) may decrease, as phases are known only later.
        """
        most = self.name.endswith(".max") and self.unit != "share"
        areas = self.name in ("cost", "nodeHours")
        wait = self.waits is not None and (
            bool(of.by.keys() & OF_NODES) or self.name.partition(".")[0] == "wait"
        )
        return self.grows or areas or (most and not wait)

    def reading(self, tally: Tally, t: float, *, always: bool = False) -> FigureReading:
        """Returns the value at `t`, rounded as it is shown everywhere.

        With `always`, the reading is also incomplete if anything was missing at a time before `t`.
        """
        value = self.compute(tally, t)
        gap = tally.gaps.missing(self.kinds, momentary=self.momentary and not always)
        lack = self.lacks(tally, t, value) if self.lacks else ""
        return FigureReading(
            None if value is None else rounded(value), "; ".join(filter(None, (gap, lack)))
        )


_OBJECTS: Final = frozenset({"workload", "namespace"})
_PODS: Final = _OBJECTS | OF_NODES
_GROUPS: Final = frozenset({"group"})
_NAMESPACES: Final = frozenset({"namespace"})
_PROGRAMS: Final = frozenset({"program"})


def _one_of(levels: str, name: str) -> Callable[[Tally], Level]:
    return lambda tally: getattr(tally, levels)[name]


def _level(
    name: str, of: frozenset[str], level: Callable[[Tally], Level | None], **options: Any
) -> Iterator[Figure]:
    def most(tally: Tally, _: float) -> float | None:
        found = level(tally)
        return None if found is None else found.most

    def now(tally: Tally, _: float) -> float | None:
        found = level(tally)
        return None if found is None else found.value

    momentary = name != "pods.gone"
    yield Figure(name, of, now, whole=True, momentary=momentary, **options)
    yield Figure(f"{name}.max", of, most, whole=True, **options)
    yield Figure(f"{name}.final", of, now, whole=True, momentary=momentary, **options)


def _waits(
    name: str, of: frozenset[str], waits: Callable[[Tally], Waits], **options: Any
) -> Iterator[Figure]:
    def figure(which: str) -> Figure:
        return Figure(
            f"{name}.{which}",
            of,
            lambda tally, t: waits(tally).figure(which, t),
            unit="s",
            drifts=True,
            lower_is_better=True,
            lacks=lambda tally, _, value: _missing_waits(tally, waits(tally), which, value),
            waits=waits,
            **options,
        )

    return map(figure, (*PERCENTILES, "max", "mean"))


def _use(name: str) -> Callable[[Tally], Ratio]:
    return lambda tally: tally.use[name]


def _of_racks(name: str) -> Callable[[Tally], Level | None]:
    return lambda tally: tally.racks.get(name)


def _phase(place: int) -> Callable[[Tally], Waits]:
    return lambda tally: tally.phases[place]


def _missing_waits(tally: Tally, waits: Waits, which: str, value: float | None) -> str:
    missing = waits.missing(which, value)
    nowhere = tally.wide.pending.unended if tally.wide else 0
    if nowhere:
        pods = f"{counted(nowhere, 'pod')} without a node may have belonged here"
        missing = f"{missing}{missing and '; '}{pods}"
    return missing


def _ratio(
    name: str, of: frozenset[str], ratio: Callable[[Tally], Ratio], **options: Any
) -> Iterator[Figure]:
    def overall(tally: Tally, t: float) -> float | None:
        return ratio(tally).overall(t)

    def peak(tally: Tally, t: float) -> float | None:
        return ratio(tally).peak(t)

    def now(tally: Tally, _: float) -> float | None:
        return ratio(tally).value

    yield Figure(name, of, overall, "share", drifts=True, **options)
    yield Figure(f"{name}.max", of, peak, "share", drifts=True, **options)
    yield Figure(f"{name}.final", of, now, "share", momentary=True, **options)


def with_gpus(amounts: Mapping[str, float]) -> Mapping[str, float]:
    """Returns the amounts, and adds under GPU the sum of the GPUs of all vendors."""
    gpus = [amount for name, amount in amounts.items() if name.endswith("/gpu")]
    return {**amounts, GPU: sum(gpus)} if gpus else amounts


def _with_claims(tally: Tally, _: float, __: float | None) -> str:
    return "pods have claims of devices (DRA), which are not counted" if tally.claiming else ""


def _node_hours(tally: Tally, t: float) -> float:
    return tally.nodes["total"].area(t) / HOUR


def _cost(tally: Tally, t: float) -> float | None:
    return tally.price.area(t) / HOUR if tally.priced else None


def _without_price(tally: Tally, t: float, _: float | None) -> str:
    hours, unpriced = (level.area(t) / HOUR for level in (tally.nodes["total"], tally.unpriced))
    if unpriced * HOUR < SHORTEST:
        return ""
    return f"{in_words(unpriced)} of {in_words(hours)} node-hours have no price"


def _count(name: str, of: frozenset[str], *counts: str, **options: Any) -> Figure:
    """Returns a figure: the sum of the given counts of a tally; by default, the count with the
    figure's name.
    """
    counts = counts or (name,)

    def compute(tally: Tally, _: float) -> float:
        return sum(tally.counts[each] for each in counts)

    return Figure(name, of, compute, whole=True, grows=True, counts=counts, **options)


_LOW: Final[dict[str, Any]] = {"lower_is_better": True}
_HIGH: Final[dict[str, Any]] = {"lower_is_better": False}


def _figures() -> Iterator[Figure]:
    for name in POD_LEVELS:
        better = _HIGH if name in ("running", "succeeded") else _LOW
        of = _OBJECTS if name == "pending" else _PODS
        yield from _level(f"pods.{name}", of, _one_of("pods", name), **better)
    yield from _waits("pendingSeconds", _PODS, lambda tally: tally.pending)
    yield from _waits("startSeconds", _PODS, lambda tally: tally.starting)
    for place, name in enumerate(PHASES):
        yield from _waits(name, _PODS, _phase(place))
    for name in NODE_LEVELS:
        options = {"total": {"decisions": True}, "notReady": _LOW}.get(name, {})
        yield from _level(f"nodes.{name}", OF_NODES, _one_of("nodes", name), **options)
    _, most, final = _level("nodes", OF_NODES, _one_of("nodes", "total"), decisions=True)
    yield from (most, final)
    for name in INSTANCE_STATES:
        level = _one_of("instances", name)
        yield from _level(f"instances.{name}", _GROUPS, level, kinds=("groups",))
    yield Figure("nodeHours", OF_NODES, _node_hours, "h", drifts=True, **_LOW)
    yield Figure("cost", OF_NODES, _cost, drifts=True, lacks=_without_price, **_LOW)
    for name in RESOURCES:
        lacks = {"lacks": _with_claims} if name == GPU else {}
        yield from _ratio(f"utilisation.{name}", OF_NODES, _use(name), **_HIGH, **lacks)
    yield from _waits(
        "gangs.completionSeconds", _OBJECTS, lambda tally: tally.gangs, kinds=("jobs",)
    )
    gangs = {"kinds": ("nodes", "pods", "jobs", "podGroups")}
    yield from _waits("gangs.waitingSeconds", _OBJECTS, lambda tally: tally.gang_waits, **gangs)
    yield _count("gangs.broken", _OBJECTS, **_LOW, **gangs)
    yield from _ratio("gangs.crossRack", _OBJECTS, lambda tally: tally.spread, **_LOW)
    for name in RACK_LEVELS:
        yield from _level(name, frozenset(), _of_racks(name))
    for name in LARGEST_GANGS:
        yield from _level(name, frozenset(), _of_racks(name), **_HIGH)
    yield _count("churn.created", OF_NODES, decisions=True, **_LOW)
    yield _count("churn.deleted", OF_NODES, decisions=True, **_LOW)
    yield _count("churn.replacedSameShape", OF_NODES, decisions=True, **_LOW)
    yield _count("pods.unserved", _OBJECTS, **_LOW)
    # About pods: the reasons of their condition DisruptionTarget.
    by_api, by_taint = "EvictionByEvictionAPI", "DeletionByTaintManager"
    yield _count("evictions", _PODS, by_api, by_taint, decisions=True, **_LOW)
    yield _count("preemptions", _PODS, "PreemptionByScheduler", decisions=True)
    yield _count("losses", _PODS, "DeletionByPodGC", **_LOW)
    yield _count("restarts", _PODS, **_LOW)
    budgets = ("pods", "budgets")
    yield _count("disruptions.beyondBudget", _NAMESPACES, kinds=budgets, decisions=True, **_LOW)
    claims = ("nodeClaims",)
    for name in NODE_CLAIM_LEVELS:
        level = _one_of("claims", name)
        yield from _level(f"nodeClaims.{name}", OF_NODES, level, kinds=claims)
    yield _count("nodeClaims.neverRegistered", OF_NODES, kinds=claims, **_LOW)
    for reason in DISRUPTIONS:
        yield _count(f"disruptions.{reason}", OF_NODES, kinds=claims, decisions=True)
    yield _count("gangs.unfinished", _OBJECTS, kinds=("jobs",), **_LOW)
    yield _count("events", _NAMESPACES, kinds=("events",))
    yield _count("warnings", _PROGRAMS, kinds=(), **_LOW)


FIGURES: Final[Mapping[str, Figure]] = {figure.name: figure for figure in _figures()}
EVENT_COUNT: Final = _count("events", frozenset(), kinds=("events",))
"""The figure that is compared if an expectation counts Events; it gives their unit and range."""
COUNTED: Final = frozenset(name for figure in FIGURES.values() for name in figure.counts)
"""The names of the counts that a tally keeps."""


def rounded(number: float) -> float:
    whole = round(number)
    return whole if abs(number - whole) < 1e-9 else round(number, 6)


def form_of(figure: Figure) -> str:
    """Returns how a bound for the figure is written, for error messages."""
    if figure.unit == "s":
        return "a time such as 30s"
    if figure.unit == "share":
        return "a share from 0 to 1, such as 0.5"
    return "a whole number such as 3" if figure.whole else "a number from 0 on, such as 2.5"


def in_words(number: float | None, unit: str = "", *, exact: bool = False) -> str:
    """Returns a number as people read it, such as `31.2 s`, `63.5 %` or `1,204`. With `exact`, as
    for bounds, it has all digits.
    """
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
