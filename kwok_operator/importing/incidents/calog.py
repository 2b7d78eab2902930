"""Reads the log of cluster-autoscaler (CA): what it considered and did, loop by loop.

    lines  --LogReader.add-->  Loop, LoggedEvent, flags, version

A loop is one pass of CA over the cluster. Texts are those of CA 1.36 and, where they differ, of
versions since 1.20: static_autoscaler.go, core/scaleup/, core/scaledown/, clusterstate/, expander/
and the Events, which CA logs at -v=4. Loop.detailed says whether the log has that level. A log may
have any size: loops more than `KEEP` seconds from the moment of interest are dropped at once.
"""

import re
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

from kwok_operator.formats.autoscalertexts import ScaleUp, scale_ups
from kwok_operator.importing.incidents.loglines import LogLine, read_line

KEEP: Final = 1800.0
"""Loops are kept if they began at most this many seconds before or after the moment of interest."""
_MOST_LOOPS: Final = 5_000
_PRUNE_EVERY: Final = 200
_MOST_NAMES: Final = 10_000
"""The most names of each sort that are kept of a loop."""
_MOST_EVENTS: Final = 100_000
MOST_TEXT: Final = 20_000
"""The most characters of a message that are read: enough for a plan for hundreds of groups."""
_ZONE: Final = 900.0
"""All time zones differ by multiples of this."""
_MOST_AHEAD: Final = 14 * 3600.0
_SLACK: Final = 2.0
"""The most seconds between the time in a snapshot and the log line about its beginning."""

_LOOP: Final = re.compile(r"Starting main loop|Found ([0-9]{1,9}) pods in the cluster")
_SNAPSHOT: Final = "Trigger Enabled for Debugging Snapshot"
_FLAG: Final = re.compile(r'FLAG: --([A-Za-z0-9._-]+)="(.*)"', re.DOTALL)
_OPTIONS: Final = (
    re.compile(
        r"Creating new static autoscaler with opts: \{\{(?P<threshold>[0-9.]+) (?P<gpu>[0-9.]+) "
        r"[^}]*?(?P<daemonsets>true|false)?\} (?:[0-9]+ )?(?P<nodes>[0-9]+) (?P<cores>[0-9]+)"
        r" (?P<least_cores>[0-9]+) (?P<memory>[0-9]+) (?P<least_memory>[0-9]+) \[[^]]*\] \[[^]]*\]"
        r" \S+ (?P<expander>[a-z,-]+) "
    ),
    re.compile(r" cluster-autoscaler-status (?P<balance>true|false) "),
    re.compile(
        r" (?P<system>true|false) (?P<local>true|false) (?P<custom>true|false) (?P<replicas>[0-9]+)"
        r" (?:[0-9a-z.]+ )?[0-9a-z.]+ \{(?P<allocatable>[0-9.]+) (?P<free>[0-9.]+)"
        r" (?P<capacity>[0-9.]+)\}"
    ),
)
"""Parts of the text in which CA 1.36 and other versions that don't log flags print all options
without names. The order is that of AutoscalingOptions in config/autoscaling_options.go, since 1.28.
"""
_NAMED: Final = {
    "threshold": "scale-down-utilization-threshold",
    "gpu": "scale-down-gpu-utilization-threshold",
    "daemonsets": "ignore-daemonsets-utilization",
    "nodes": "max-nodes-total",
    "expander": "expander",
    "balance": "balance-similar-node-groups",
    "system": "skip-nodes-with-system-pods",
    "local": "skip-nodes-with-local-storage",
    "custom": "skip-nodes-with-custom-controller-pods",
    "replicas": "min-replica-count",
    "allocatable": "max-allocatable-difference-ratio",
    "free": "max-free-difference-ratio",
    "capacity": "memory-difference-ratio",
}
_GIB: Final = 2**30
_VERSION: Final = re.compile(r"Cluster Autoscaler v?([0-9]+\.[0-9]+(?:\.[0-9]+)?)\S*")
_EVENT: Final = re.compile(
    r'Event\(v1\.ObjectReference\{Kind:"(?P<kind>[^"]*)", Namespace:"(?P<namespace>[^"]*)",'
    r" Name:\"(?P<name>[^\"]*)\".*?\}\): type: '[A-Za-z]*' reason: '(?P<reason>[A-Za-z]*)'"
    r" (?P<message>.*)",
    re.DOTALL,
)
_UNSCHEDULABLE: Final = re.compile(r"Pod ([^\s/]+/\S+) is unschedulable")
_OTHERS: Final = re.compile(r"([0-9]{1,9}) other pods are also unschedulable")
_UNFIT: Final = re.compile(
    r"Pod (\S+) can't be scheduled on (\S+), predicate checking error: (.*)", re.DOTALL
)
_SKIPPED: Final = (
    (re.compile(r"Skipping node group (\S+) - max size reached"), "max node group size reached"),
    (
        re.compile(r"Skipping node group (\S+)[;,] .*?(?:limit|quota) exceeded.*"),
        "max limit reached",
    ),
    (
        re.compile(r"Node group (\S+) is not ready for scaleup - backoff.*", re.DOTALL),
        "in backoff after failed scale-up",
    ),
    (
        re.compile(r"Node group (\S+) is not ready .* - unhealthy"),
        "not ready for scale-up",
    ),
)
_NO_POD: Final = re.compile(r"No pod can fit to (\S+)")
_WASTE: Final = re.compile(
    r"Expanding Node Group (\S+) would waste ([0-9.]+)% CPU, ([0-9.]+)% Memory, ([0-9.]+)% Blended"
)
_PRIORITY: Final = re.compile(r"priority expander: (\S+) chosen as the highest available")
_BEST: Final = re.compile(r"Best option to resize: (\S+)")
_PLAN: Final = "Final scale-up plan: "
_SET: Final = re.compile(r"Scale-up: setting group (\S+) size to ([0-9]{1,9})")
_EMPTY: Final = re.compile(r'Scale-down: removing empty node "?([^"\s]+)"?')
_DRAINED: Final = re.compile(
    r"Scale-down: removing node (\S+), utilization: .*?, pods to reschedule: (.*)", re.DOTALL
)
_KEPT: Final = (
    re.compile(r"[Nn]ode (\S+) (?:cannot be removed|is not suitable for removal): (.*)", re.DOTALL),
    re.compile(r"Node (\S+) unremovable: (.*)", re.DOTALL),
    re.compile(r"Node (\S+) is not suitable for removal - (.*)", re.DOTALL),
    re.compile(
        r"Skipping (?:unready node )?(\S+) (?:from delete consideration )?- (.*)", re.DOTALL
    ),
)
_UNNEEDED: Final = re.compile(
    r"(?:[Nn]ode |Skipping )?(\S+) (?:was unneeded for .*|may be removed"
    r"|from delete consideration - the node is currently being deleted)"
)
_SIZES: Final = re.compile(
    r"ScaleUpToNodeGroupMinSize: NodeGroup (\S+), TargetSize [0-9]{1,7}, MinSize ([0-9]{1,7}),"
    r" MaxSize ([0-9]{1,7})"
)
_BACKOFF: Final = re.compile(
    r"Disabling scale-up for node group (\S+) until (.*?); errorClass=([^;]*); errorCode=(.*)",
    re.DOTALL,
)
_SCALE_UP_ERROR: Final = re.compile(r"(Failed to scale up: .*)", re.DOTALL)
_BEGINS: Final = (
    rb"(?:Starting main loop|Found [0-9]+ |Creating new static|Trigger Enabled|FLAG: --"
    rb"|Cluster Autoscaler |Event\(v1|Pod \S+ (?:is unsch|can't be sch)|[0-9]+ other pods are"
    rb"|Skipping |Max total nodes|[Nn]ode |No (?:pod can|unsch)|Expanding Node|priority expander: "
    rb"|Best option|Final scale-up|Scale-up|ScaleUpTo|Scale-down: removing|\S{1,300} was unneeded"
    rb"|Disabling scale-up|Failed to scale)"
)
_OF_INTEREST: Final = (
    re.compile(rb'\.go:[0-9]+\] (?:\\*")?' + _BEGINS),
    re.compile(rb'msg\\*": ?\\*"' + _BEGINS),  # JSON in JSON is escaped
)
"""Bytes that a line of interest contains: a first, fast check, as most lines are of no interest.
Both patterns begin with plain text, for which the regex engine searches fast.
"""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An Event of CA, from its log or from the cluster. `about` is KIND/NAMESPACE/NAME."""

    at: float
    about: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CloudFailure:
    """An error of the cloud, because of which CA could not add nodes to a group. Its class is one
    of CA's: OutOfResource or Other.
    """

    group: str
    error_class: str
    code: str


@dataclass(slots=True)
class Loop:
    """What CA logged in one loop (a pass over the cluster). Pods are NAMESPACE/NAME, or NAME in
    some old versions.
    """

    at: float
    pods: set[str] = field(default_factory=set)
    more_pods: int = 0
    """The number of pending pods without a name in the log: at -v=4, CA names at most 20."""
    unfit: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why a pod (and all pods like it) doesn't fit a group, by pod and group."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Groups that CA did not consider, each with the reason in the words of CA's Events."""
    empty: set[str] = field(default_factory=set)
    """Groups whose nodes no pending pod could use."""
    waste: dict[str, float] = field(default_factory=dict)
    """The scores by which the expander least-waste compared groups, in percent."""
    highest: set[str] = field(default_factory=set)
    """The groups that the expander priority rated highest."""
    best: str = ""
    """The group that the expanders chose."""
    plan: tuple[ScaleUp, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    """New target sizes by group; CA logs them at any level."""
    removed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Nodes that CA removed, each with the pods that it evicted: none from an empty node."""
    kept: dict[str, str] = field(default_factory=dict)
    """Nodes that CA did not remove, each with the reason."""
    unneeded: set[str] = field(default_factory=set)
    failures: list[CloudFailure] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    no_pods: bool = False
    full: bool = False
    """Whether the cluster had --max-nodes-total nodes, so that CA considered no group."""
    total: int | None = None
    """The number of all pods of the cluster, which CA logs since 1.33; None without it."""

    @property
    def acts(self) -> bool:
        return bool(self.plan or self.sizes or self.removed or self.failures)


@dataclass(slots=True)
class LogReader:
    """Collects loops from the lines of logs, in the order of their times. `at` is the moment of
    interest, in seconds since 1970; None for the end of the log.
    """

    at: float | None
    near: float
    """About when the log was written, as its times have no year."""
    version: str = ""
    flags: dict[str, str] = field(default_factory=dict)
    loops: deque[Loop] = field(default_factory=deque)
    events: deque[LoggedEvent] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS))
    first: float | None = None
    last: float | None = None
    detailed: bool = False
    """Whether the log was written with -v=4."""
    relevant: int = 0
    """The number of lines that cluster-autoscaler may have written, and that matter."""
    fields: int = 0
    """The number of these that have fields, and whose message alone means nothing here."""
    cut: int = 0
    """The number of these that are longer than what is read of a message."""
    backwards: int = 0
    """How many more of the file's lines are older than the one before than are younger."""
    previous: float | None = None
    """When the previous of the file's lines was written."""
    least: dict[str, int] = field(default_factory=dict)
    """Minimum sizes of groups, as far as the log has them."""
    most: dict[str, int] = field(default_factory=dict)
    """Maximum sizes of groups, from the lines about scale-ups."""
    shift: float = 0.0
    """By how many seconds UTC is ahead of the log's clock: a multiple of a quarter of an hour. It
    is known if the moment of interest is that of a snapshot whose beginning is logged.
    """
    _fits: bool = False
    _begun: int = 0
    _flags_named: bool = False

    def add(self, line: bytes) -> None:
        if not any(pattern.search(line) for pattern in _OF_INTEREST):
            return
        said = read_line(line.decode("utf-8", "replace"), near=self.near)
        if said is None:
            return
        self.relevant += 1
        self.cut += len(said.text) > MOST_TEXT
        if self.previous is not None:
            self.backwards += (said.at < self.previous) - (said.at > self.previous)
        self.previous = said.at
        said = replace(said, text=said.text[:MOST_TEXT])
        self.first = said.at if self.first is None else min(self.first, said.at)
        self.last = said.at if self.last is None else max(self.last, said.at)
        known = self._about_the_program(said) or self._about_a_loop(said)
        self.fields += said.fields and not known

    def _about_the_program(self, line: LogLine) -> bool:
        # The version and flags of a process that started later don't count.
        late = self.at is not None and line.at + self.shift > self.at + _SLACK
        if match := _FLAG.fullmatch(line.text):
            if not late or not self.version:
                self.flags[match[1].replace("_", "-")] = match[2]
                self._flags_named = True
        elif _OPTIONS[0].match(line.text):
            if not self._flags_named and not (late and self.flags):
                self.flags = _options(line.text)
        elif match := _VERSION.fullmatch(line.text):
            self.version = self.version if late and self.version else match[1]
        elif line.text.startswith(_SNAPSHOT):
            self._snapshot(line.at)
        elif match := _EVENT.fullmatch(line.text):
            self.detailed = True
            if self._wanted(line.at):
                about = "/".join(match[part] for part in ("kind", "namespace", "name"))
                self.events.append(LoggedEvent(line.at, about, match["reason"], match["message"]))
        else:
            return False
        return True

    def _snapshot(self, begun: float) -> None:
        """Computes `shift`, the seconds by which UTC is ahead of the log's clock: `begun`, the
        log's time at which a debugging snapshot began, should be the moment of interest. If no time
        zone makes it so, `shift` stays as it is.
        """
        if self.at is None or self._fits:
            return
        zone = round((self.at - begun) / _ZONE) * _ZONE
        if abs(self.at - begun - zone) <= _SLACK and abs(zone) <= _MOST_AHEAD:
            self.shift, self._fits = zone, zone == 0

    def _about_a_loop(self, said: LogLine) -> bool:
        if match := _LOOP.match(said.text):
            self.detailed |= not match[1]
            if not match[1] or not self.loops or self.loops[-1].total is not None:
                self._begin(said.at)
            self.loops[-1].total = int(match[1]) if match[1] else None
        elif match := _SIZES.match(said.text):
            self.least[match[1]], self.most[match[1]] = int(match[2]), int(match[3])
        elif self.loops and self._wanted(said.at):
            if said.text.startswith(_PLAN):
                self.most |= {up.group: up.maximum for up in scale_ups(said.text)}
            return _read(self.loops[-1], said.text)
        else:
            return False
        return True

    def _begin(self, at: float) -> None:
        self.loops.append(Loop(at))
        self._begun += 1
        if self._begun % _PRUNE_EVERY == 0:
            self.loops = deque(each for each in self.loops if self._wanted(each.at))
            wanted = (each for each in self.events if self._wanted(each.at))
            self.events = deque(wanted, maxlen=_MOST_EVENTS)
        while len(self.loops) > _MOST_LOOPS:
            self.loops.popleft()

    def _wanted(self, at: float) -> bool:
        """Whether a loop or Event of this time is kept: one near the moment of interest, or near
        the newest line so far. The latter may turn out to be near the moment, too, once the log's
        time zone or end is known.
        """
        if self.last is None or at >= self.last - KEEP * (1 if self.at else 2):
            return True
        if self.at is None:
            return False
        return any(abs(at + shift - self.at) <= KEEP for shift in {0.0, self.shift})


def _options(text: str) -> dict[str, str]:
    """Reads CA's flags in a line with the values of all options, without names. Those that aren't
    certain are left out.
    """
    parts: dict[str, str] = {}
    for pattern in _OPTIONS:
        if match := pattern.search(text):
            parts |= {part: value for part, value in match.groupdict().items() if value}
    flags = {flag: parts[part] for part, flag in _NAMED.items() if part in parts}
    if "cores" in parts:
        memory, least = (int(parts[part]) // _GIB for part in ("memory", "least_memory"))
        flags["cores-total"] = f"{parts['least_cores']}:{parts['cores']}"
        flags["memory-total"] = f"{least}:{memory}"
    return flags


def _read(loop: Loop, text: str) -> bool:
    """Adds to a loop what one of its lines says; returns False if a Loop has no field for that."""
    readers = (_read_pods, _read_groups, _read_scale_up, _read_nodes)
    if any(read(loop, text) for read in readers):
        return True
    if match := _BACKOFF.fullmatch(text):
        loop.failures.append(CloudFailure(match[1], match[3], match[4]))
    elif match := _SCALE_UP_ERROR.fullmatch(text):
        loop.errors.append(match[1])
    else:
        return False
    return True


def _read_pods(loop: Loop, text: str) -> bool:
    if match := _UNSCHEDULABLE.fullmatch(text):
        _add(loop.pods, match[1])
    elif match := _OTHERS.fullmatch(text):
        loop.more_pods = int(match[1])
    elif match := _UNFIT.match(text):
        if len(loop.unfit) < _MOST_NAMES:
            loop.unfit[match[1], match[2]] = match[3]
    elif text == "No unschedulable pods":
        loop.no_pods = True
    elif text.startswith("Max total nodes in cluster reached"):
        loop.full = True
    else:
        return False
    return True


def _read_groups(loop: Loop, text: str) -> bool:
    for pattern, reason in _SKIPPED:
        if match := pattern.fullmatch(text):
            loop.skipped[match[1]] = reason
            return True
    if match := _NO_POD.fullmatch(text):
        _add(loop.empty, match[1])
    elif match := _WASTE.match(text):
        loop.waste[match[1]] = float(match[4])
    elif match := _PRIORITY.fullmatch(text):
        _add(loop.highest, match[1])
    else:
        return False
    return True


def _read_scale_up(loop: Loop, text: str) -> bool:
    if text.startswith(_PLAN):
        loop.plan += scale_ups(text)
    elif match := _SET.match(text):
        loop.sizes[match[1]] = int(match[2])
    elif match := _BEST.fullmatch(text):
        loop.best = match[1]
    else:
        return False
    return True


def _read_nodes(loop: Loop, text: str) -> bool:
    if match := _EMPTY.fullmatch(text):
        loop.removed[match[1]] = ()
    elif match := _DRAINED.fullmatch(text):
        loop.removed[match[1]] = tuple(name for name in re.split(r"[,\s]+", match[2]) if name)
    elif match := _UNNEEDED.fullmatch(text):
        _add(loop.unneeded, match[1])
    elif match := next(filter(None, (pattern.match(text) for pattern in _KEPT)), None):
        if len(loop.kept) < _MOST_NAMES:
            loop.kept[match[1]] = match[2]
    else:
        return False
    return True


def _add(names: set[str], name: str) -> None:
    if len(names) < _MOST_NAMES:
        names.add(name)
