"""Watches a cluster during a rehearsal, and writes what happens as lines of its recording.

    a reflector for each kind ──> observed ──> a line, if the state has changed ──> RunCourse.write
                                          └──> the present states        steps, programs ──┘

RunCourse also has the run's clock, and the figures that the conditions of the scenario are compared
with. Memory grows with the cluster, not with time. Kinds that the API server doesn't serve count as
having no objects. Changes during a broken watch are recorded when the next list shows them.
"""

import asyncio
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from kwok_operator.constants import GROUPS_PATH, NODE_CLAIMS_PATH, NODE_POOLS_PATH, NODES_PATH
from kwok_operator.formats.untyped import as_map
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import Decoder, only
from kwok_operator.kube.gathering import GATHER
from kwok_operator.kube.reflector import Reflector
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge import observed
from kwok_operator.rehearsal.judge.expectations import Judge, scopes
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.measures import BACK, BROKEN, LISTED
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    BudgetState,
    EventLine,
    GroupLine,
    GroupState,
    JobLine,
    JobState,
    MarkLine,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    NodeState,
    PodGroupLine,
    PodGroupState,
    PodLine,
    PodState,
    RecordedLine,
    RecordingHeader,
    WatchLine,
    encode,
)
from kwok_operator.rehearsal.progress import RunProgress
from kwok_operator.rehearsal.scenario.borrowing import is_marked
from kwok_operator.rehearsal.scenario.expectation import ScenarioCondition

PODS_PATH: Final = "/api/v1/pods"
EVENTS_PATH: Final = "/api/v1/events"
BUDGETS_PATH: Final = "/apis/policy/v1/poddisruptionbudgets"
JOBS_PATH: Final = "/apis/batch/v1/jobs"
_POD_GROUPS: Final = tuple(
    f"/apis/{version}/podgroups"
    for version in (
        *("scheduling.k8s.io/v1alpha2", "scheduling.x-k8s.io/v1alpha1"),
        "scheduling.volcano.sh/v1beta1",
    )
)
_KINDS: Final = {
    GROUPS_PATH: "groups",
    NODES_PATH: "nodes",
    PODS_PATH: "pods",
    EVENTS_PATH: "events",
    BUDGETS_PATH: "budgets",
    JOBS_PATH: "jobs",
    NODE_CLAIMS_PATH: "nodeClaims",
    NODE_POOLS_PATH: "nodePools",
    **dict.fromkeys(_POD_GROUPS, "podGroups"),
}
"""The names of the kinds in lines about their watches."""
_OPTIONAL: Final = frozenset({GROUPS_PATH, NODE_CLAIMS_PATH, NODE_POOLS_PATH, *_POD_GROUPS})
"""The paths of kinds that may not be served: Karpenter's CRDs may be installed during the run."""
_SYNCED_WITHIN: Final = 60.0
_LATER: Final = {BUDGETS_PATH: 0.01, NODE_CLAIMS_PATH: -0.02}
"""Seconds by which some kinds are read later than others. An eviction must be recorded before the
budget that it has lowered, and a NodeClaim's disruption before the node that replaces it.
"""
_AWAY_AFTER: Final = 10.0
"""On a busy machine the API server ends watches that lag, and answers seconds later. Nobody
restores its store in so short a time, and what a new list lacks is missing in the verdict.
"""
_BEFORE: Final = -0.001
"""The time for objects of the first list, in seconds: they are older than the run."""
FLUSH_SECONDS: Final = 2.0
_LINES_AT_ONCE: Final = 200
_CHANGES: Final = (
    *(NodeLine, PodLine, GroupLine, BudgetLine, JobLine, PodGroupLine, NodeClaimLine),
)

S = TypeVar("S")
Body = dict[str, Any]
Write = Callable[[RecordedLine], None]


class RunCourse:
    """The recording and the state of one run. The run's time counts from this object's creation.
    Raises SettingsError if the recording can't be written.
    """

    def __init__(
        self, path: Path, header: RecordingHeader, conditions: Sequence[ScenarioCondition]
    ) -> None:
        self._events = {id(each): 0 for each in conditions if each.event is not None}
        self._conditions = list(conditions)
        self._expected = len(header.expect)
        self.ledger = ClusterLedger(scopes([*conditions, *header.expect]), topology=header.topology)
        self._judge = Judge(header.expect, self.ledger)
        self._last_mark = ""
        self._at_the_beginning = False
        self.changed_at = 0.0
        """When anything in the cluster last changed, in seconds since the run began."""
        self._folder = path.parent
        with outputs.writing(self._folder):
            self._file = path.open("wb")
        self._zip: Any = zlib.compressobj(wbits=outputs.GZIP)
        self._lines: list[str] = []
        self._began = time.monotonic()
        self._over_at: float | None = None
        self._put(encode(header))

    def now(self) -> float:
        """Returns the seconds since the run began; once it is over, its length."""
        if self._over_at is not None:
            return self._over_at
        return round(time.monotonic() - self._began, 3)

    @property
    def is_on(self) -> bool:
        return self._over_at is None

    def stop(self) -> None:
        """Stops the clock: lines that are written later get the time of this call."""
        self._over_at = self.now()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Records lines at time 0 while the block runs: their objects existed before the run,
        whenever they were listed.
        """
        self._at_the_beginning = True
        try:
            yield
        finally:
            self._at_the_beginning = False

    def write(self, line: RecordedLine) -> None:
        if self._at_the_beginning:
            line = replace(line, t=0.0)
        self._put(encode(line))
        if self._judge.follows and line.t > self.ledger.now:
            self._judge.moves_on(line.t)
        self.ledger.apply(line)
        self._judge.on_line(line)
        if isinstance(line, _CHANGES):
            self.changed_at = line.t
        elif isinstance(line, EventLine):
            for each in self._conditions:
                if each.event is not None and each.event.matches(line):
                    self._events[id(each)] += line.count

    def mark(self, what: str, detail: str = "") -> None:
        line = MarkLine(self.now(), what, detail)
        self._last_mark = f"{what} {detail}".rstrip() + f", at {line.t:.0f} s"
        self.write(line)

    def progress(self) -> RunProgress:
        """Returns how far the run is now."""
        every = self.ledger.all
        return RunProgress(
            t=self.now(),
            ready=round(every.nodes["ready"].value),
            nodes=round(every.nodes["total"].value),
            running=round(every.pods["running"].value),
            pending=round(every.pods["pending"].value),
            groups={name: (ready, nodes) for name, (nodes, ready) in self.ledger.counts().items()},
            mark=self._last_mark,
            decided=self._judge.decided,
            expected=self._expected,
        )

    def is_certain(self, number: int) -> bool:
        """Whether the outcome of the expectation with this number can't change any more."""
        return self._judge.is_certain(number)

    def holds(self, condition: ScenarioCondition) -> bool:
        """Whether the condition holds now. Always False for a `kubectl wait`, which only the
        cluster can decide.
        """
        if condition.event is not None:
            return condition.holds(float(self._events[id(condition)]))
        if condition.wait is not None:
            return False
        tally = self.ledger.tally(condition.of)
        return condition.holds_by_now(condition.measured.reading(tally, self.now()))

    async def keep_flushed(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            with outputs.writing(self._folder):
                self._file.write(self._packed() + self._zip.flush(zlib.Z_SYNC_FLUSH))
                self._file.flush()

    def close(self) -> None:
        with outputs.writing(self._folder), self._file:
            self._file.write(self._packed() + self._zip.flush())

    def _put(self, text: str) -> None:
        self._lines.append(f"{text}\n")
        if len(self._lines) >= _LINES_AT_ONCE:
            with outputs.writing(self._folder):
                self._file.write(self._packed())

    def _packed(self) -> bytes:
        """Compresses the waiting lines, many at once, as one by one would take much longer."""
        lines, self._lines = self._lines, []
        packed: bytes = self._zip.compress("".join(lines).encode())
        return packed


_METADATA: Final = only(
    "name generateName namespace uid resourceVersion creationTimestamp deletionTimestamp labels"
    " annotations ownerReferences"
)
# All other fields are skipped: managedFields are half of a Node's bytes.
DECODER: Final[Decoder[Body]] = Decoder(
    only(
        "spec status type reason message count series source reportingComponent involvedObject",
        metadata=_METADATA,
    ),
    lambda raw: raw,
)


class _Kind(Generic[S]):
    """Records the objects of one kind, as a reflector reports them; keeps their last states."""

    def __init__(
        self,
        look: Callable[[Body, S | None, float], S],
        report: Callable[[float, str, S | None], None],
        *,
        now: Callable[[], float],
        counts: Callable[[Body], bool] = lambda body: True,
    ) -> None:
        self._counts = counts
        self.listed_anew: Callable[[], None] = _nothing
        self.states: dict[str, S] = {}
        self._uids: dict[str, str] = {}
        self._begun = self._served = False
        self._look = look
        self._report = report
        self._now = now

    def replace(self, items: Sequence[Body], resource_version: int) -> None:
        there = {_name(item) for item in items if self._counts(item)}
        for name in [name for name in self.states if name not in there]:
            self._gone(name)
        seen = self._now() if self._begun else _BEFORE
        if self._served:
            self.listed_anew()
        self._begun, self._served = True, resource_version > 0
        for item in items:
            self._see(item, seen)

    def upsert(self, item: Body) -> None:
        self._see(item, self._now())

    def _see(self, item: Body, seen: float) -> None:
        if not self._counts(item):
            return
        name, uid = _name(item), _uid(item)
        if self._uids.get(name, uid) != uid:
            self._gone(name)  # a new object of that name: the deletion of the first was missed
        before = self.states.get(name)
        state = self._look(item, before, seen)
        self._uids[name] = uid
        self.set(name, state)

    def remove(self, item: Body) -> None:
        self._gone(_name(item))

    def named(self, uid: str) -> str:
        """Returns the name of the object with this UID; empty if there is none."""
        return next((name for name, each in self._uids.items() if each == uid), "")

    def set(self, name: str, state: S) -> None:
        """Records a state if it differs from the last recorded one."""
        if self.states.get(name) != state:
            self.states[name] = state
            self._report(self._now(), name, state)

    def _gone(self, name: str) -> None:
        self._uids.pop(name, None)
        if self.states.pop(name, None) is not None:
            self._report(self._now(), name, None)


class _Events:
    """Records each new Event once, and again when its count grows. Leaves out Events from before
    the run. `pod_named` returns the name of the pod with a UID.
    """

    def __init__(
        self, *, write: Write, now: Callable[[], float], pod_named: Callable[[str], str]
    ) -> None:
        self._write = write
        self._pod_named = pod_named
        self._now = now
        self._counts: dict[str, int] = {}
        self._begun = False

    def replace(self, items: Sequence[Body], resource_version: int) -> None:
        there = {_uid(item) for item in items}
        self._counts = {uid: n for uid, n in self._counts.items() if uid in there}
        for item in items:
            if self._begun:
                self.upsert(item)
            else:
                self._counts[_uid(item)] = observed.event(item).count
        self._begun = True

    def upsert(self, item: Body) -> None:
        line, uid = observed.event(item), _uid(item)
        more = line.count - self._counts.get(uid, 0)
        if more > 0:
            self._counts[uid] = line.count
            by = observed.preemptor(line)
            by = self._pod_named(by) if by else ""
            self._write(replace(line, t=self._now(), count=more, by=by))

    def remove(self, item: Body) -> None:
        self._counts.pop(_uid(item), None)


class RunRecorder:
    """Watches nodes, pods, groups, Events, PodDisruptionBudgets, Jobs, PodGroups and NodeClaims;
    records changes.

    `now()` returns the seconds since the run began; `clock` converts timestamps to such seconds.
    With `marked_only`, it leaves out nodes, pods and the like that aren't the rehearsal's, all
    PodGroups, and all of Karpenter's objects unless the scenario has a `karpenter`. `levels` are
    the labels of the topology.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        write: Write,
        clock: StampClock,
        now: Callable[[], float],
        marked_only: bool = False,
        karpenter: bool = False,
        levels: Sequence[str] = (),
    ) -> None:
        counts = is_marked if marked_only else lambda body: True
        self._write = write
        self._now = now
        self.trouble: dict[str, tuple[float, str]] = {}
        """The paths that can't be watched now, each with the time since when, and why."""
        self._prices: dict[str, float | None] = {}
        """The last known price of each group: its nodes can outlive the group."""
        self._selectors: dict[str, object] = {}
        known: Any = {"clock": clock, "levels": levels}
        self._nodes = _Kind[NodeState](
            lambda body, before, seen: observed.node(
                body, price=self._price_of(body), before=before, seen=seen, **known
            ),
            lambda t, name, state: write(NodeLine(t, name, state)),
            now=now,
            counts=counts,
        )
        self.groups: dict[str, Body] = {}
        """The groups that exist now by name, as the API server has sent them."""
        self._groups = _Kind[GroupState](
            lambda body, _, __: self._group(body), self._write_group, now=now
        )
        self._pods = self._of_pods(clock, counts)
        budgets = _Kind[BudgetState](
            lambda body, _, __: self._budget(body), self._write_budget, now=now, counts=counts
        )
        self.pools_changed_at = 0.0
        """When a NodePool of Karpenter last changed; NodePools themselves aren't recorded."""
        self._pools = _Kind[Mapping[str, Any]](
            lambda body, _, __: as_map(body.get("spec")),
            lambda t, *_: self._pool_changed(t),
            now=now,
            counts=counts,
        )
        sinks: dict[str, Any] = {
            **({} if marked_only else self._of_pod_groups()),
            GROUPS_PATH: self._groups,
            NODES_PATH: self._nodes,
            PODS_PATH: self._pods,
            EVENTS_PATH: _Events(write=write, now=now, pod_named=self._pods.named),
            BUDGETS_PATH: budgets,
            JOBS_PATH: self._of_jobs(clock, counts),
        }
        if karpenter or not marked_only:  # listing objects of others needs more rights
            sinks |= self._of_karpenter(clock, counts)
        self._reflectors = [self._reflector(client, path, sink) for path, sink in sinks.items()]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        """The nodes that exist now, by name."""
        return self._nodes.states

    @property
    def pods(self) -> Mapping[str, PodState]:
        """The pods that exist now, by NAMESPACE/NAME."""
        return self._pods.states

    def node_pools(self) -> Mapping[str, float]:
        """For each NodePool, after how many seconds without a change Karpenter may consolidate its
        nodes; infinity for never.
        """
        pools = self._pools.states.items()
        return {name: observed.consolidates_after(spec) for name, spec in pools}

    async def start(self) -> None:
        """Starts the watches. Returns once all existing objects have been recorded. Raises
        TimeoutError.
        """
        self._tasks = [asyncio.create_task(each.run(), name="record") for each in self._reflectors]
        async with asyncio.timeout(_SYNCED_WITHIN):
            for each in self._reflectors:
                await each.synced.wait()

    async def follow(self) -> None:
        """Never returns. Raises the error of the first watch that fails: otherwise it would seem
        that nothing happens.
        """
        ended, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reflector(self, client: KubeClient, path: str, sink: Any) -> Reflector[Body]:
        def look(state: str, detail: str = "") -> None:
            self._write(WatchLine(self._now(), _KINDS[path], state, detail))

        def in_trouble(why: str | None) -> None:
            if why is None:
                self.trouble.pop(path, None)
            else:
                self.trouble.setdefault(path, (self._now(), why))
            look(BROKEN if why else BACK, why or "")

        reflector: Reflector[Body] = Reflector(
            client=client,
            path=path,
            sink=sink,
            decoder=DECODER,
            optional=path in _OPTIONAL,
            away_after=_AWAY_AFTER,
            on_trouble=in_trouble,
            gather_for=lambda: self._until_all_look(_LATER.get(path, 0.0)),
        )

        def listed_anew() -> None:
            if not reflector.just_served:
                look(LISTED)

        if path != EVENTS_PATH:  # Events stay for an hour, so the new list has all of them
            sink.listed_anew = listed_anew
        return reflector

    def _until_all_look(self, later: float) -> float:
        """Returns for how many seconds to wait so that all watches wake up at the same moment,
        which costs less CPU time than one by one.
        """
        return GATHER - (self._now() - later) % GATHER

    def _of_pods(self, clock: StampClock, counts: Callable[[Body], bool]) -> "_Kind[PodState]":
        return _Kind(
            lambda body, before, seen: observed.pod(
                body, before=before, seen=seen, clock=clock, selectors=self._selectors
            ),
            lambda t, name, state: self._write(PodLine(t, name, state)),
            now=self._now,
            counts=counts,
        )

    def _of_jobs(self, clock: StampClock, counts: Callable[[Body], bool]) -> "_Kind[JobState]":
        return _Kind(
            lambda body, before, seen: observed.job(body, before=before, seen=seen, clock=clock),
            lambda t, name, state: self._write(JobLine(t, f"Job/{name}", state)),
            now=self._now,
            counts=counts,
        )

    def _of_pod_groups(self) -> dict[str, Any]:
        """Returns the recorders of PodGroups: by API path, one for each of their API groups."""

        def sink() -> _Kind[PodGroupState]:
            return _Kind(
                lambda body, _, __: observed.pod_group(body),
                lambda t, name, state: self._write(PodGroupLine(t, f"PodGroup/{name}", state)),
                now=self._now,
            )

        return {path: sink() for path in _POD_GROUPS}

    def _of_karpenter(self, clock: StampClock, counts: Callable[[Body], bool]) -> dict[str, Any]:
        """Returns the recorders of NodeClaims and NodePools, by API path."""
        claims = _Kind[NodeClaimState](
            lambda body, before, seen: observed.node_claim(
                body, price=self._price_of(body), before=before, seen=seen, clock=clock
            ),
            lambda t, name, state: self._write(NodeClaimLine(t, name, state)),
            now=self._now,
            counts=counts,
        )
        return {NODE_CLAIMS_PATH: claims, NODE_POOLS_PATH: self._pools}

    def _price_of(self, body: Body) -> float | None:
        """Returns the price of an object's group; None if it has none."""
        return self._prices.get(observed.group_of(body))

    def _group(self, body: Body) -> GroupState:
        self.groups[_name(body)] = body
        return observed.group(body)

    def _budget(self, body: Body) -> BudgetState:
        self._selectors[_name(body)] = as_map(body.get("spec")).get("selector")
        return observed.budget(body)

    def _pool_changed(self, t: float) -> None:
        self.pools_changed_at = t

    def _write_budget(self, t: float, name: str, state: BudgetState | None) -> None:
        self._write(BudgetLine(t, f"PodDisruptionBudget/{name}", state))
        if state is None:
            self._selectors.pop(name, None)

    def _write_group(self, t: float, name: str, state: GroupState | None) -> None:
        self._write(GroupLine(t, name, state))
        if state is None:
            self.groups.pop(name, None)
        if state is None or state.price == self._prices.get(name):
            return
        self._prices[name] = state.price
        for node, there in list(self._nodes.states.items()):
            if there.group == name and state.price is not None:
                self._nodes.set(node, replace(there, price=state.price))


def _nothing() -> None:
    pass


def _name(item: Mapping[str, Any]) -> str:
    metadata = as_map(item.get("metadata"))
    namespace, name = metadata.get("namespace"), str(metadata.get("name"))
    return f"{namespace}/{name}" if namespace else name


def _uid(item: Mapping[str, Any]) -> str:
    return str(as_map(item.get("metadata")).get("uid"))
