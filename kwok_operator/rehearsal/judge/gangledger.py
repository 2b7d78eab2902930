"""The gangs at one moment of a recording: how long they wait to run together, and to be complete,
and over how many racks they are spread.

    PodLine    --apply--> members of its gang: which run, and in which racks --> waits, share
    JobLine     --------> how many must run at once; how long until it is complete
    PodGroupLine -------> how many must run at once

A gang is a set of pods of which a minimum must run at the same time. Labels or fields of pods name
it (podparts.gang); else a Job's pods are a gang.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from kwok_operator.rehearsal.judge.figures import Place, Tally
from kwok_operator.rehearsal.judge.rackledger import Rack, RackOf
from kwok_operator.rehearsal.judge.recording import JobLine, PodGroupLine, PodState

TalliesOf = Callable[[Place], tuple[Tally, ...]]
_JOB: Final = "Job/"


def gang_of(pod: PodState) -> str:
    """Returns the gang of a pod, as KIND/NAMESPACE/NAME; empty if it belongs to none."""
    return pod.gang or (pod.workload if pod.workload.startswith(_JOB) else "")


class _Stage(Enum):
    NEW = "new"
    """The gang is a Job whose number of parallel pods isn't known yet."""
    WAITS = "waits"
    RUNS = "runs"
    OVER = "over"
    """The gang's Job or PodGroup is deleted."""


class _Member(NamedTuple):
    runs: bool = False
    """Whether the pod runs, or has succeeded."""
    succeeded: bool = False
    rack: Rack | None = None
    """The rack of the pod's node; None if it occupies no node, or its node doesn't exist."""


_NO_MEMBER: Final = _Member()
_DONE: Final = _Member(runs=True, succeeded=True)


@dataclass(slots=True)
class _Gang:
    tallies: tuple[Tally, ...]
    since: float
    """When the gang began to wait, in seconds since the run began."""
    before_the_run: bool
    """Whether its first pod was created before the run."""
    stage: _Stage = _Stage.NEW
    min_running: int = 0
    """How many pods must run at once, by the pods' own fields; 0 if they don't say."""
    members: dict[str, _Member] = field(default_factory=dict)
    runs: int = 0
    """How many members run or have succeeded, including succeeded ones that were deleted."""
    succeeded: int = 0
    succeeded_names: set[str] = field(default_factory=set)
    """Names of members that were deleted after they had succeeded, so that none counts twice."""
    has_run: bool = False
    """Whether enough of its pods have run at the same time."""
    racks: Counter[Rack] = field(default_factory=Counter)
    placed: int = 0

    def spread(self) -> tuple[int, int]:
        """Returns how many of the gang's pods with a node are outside the rack that has most of
        them, and how many have a node; 0 and 0 if fewer than two have one.
        """
        if self.placed < 2:
            return 0, 0
        most = max((n for rack, n in self.racks.items() if rack), default=0)
        return self.placed - most, self.placed


@dataclass(slots=True)
class _Job:
    place: Place
    since: float
    ended: bool


class GangLedger:
    def __init__(self, tallies: TalliesOf, rack_of: RackOf) -> None:
        self._tallies = tallies
        self._rack_of = rack_of
        self._gangs: dict[str, _Gang] = {}
        self._jobs: dict[str, _Job] = {}
        self._min_running: dict[str, int] = {}
        """How many pods of a gang must run at once, by its Job or PodGroup."""

    def apply(self, name: str, state: PodState, *, level: str, place: Place, t: float) -> None:
        """Applies the present state of a pod. `level` is one of POD_LEVELS, such as running."""
        gang = self._gangs.get(key := gang_of(state))
        if gang is None:
            whose = Place(place.workload, place.namespace, rehearsed=place.rehearsed)
            begun, before = max(state.created, 0.0), state.created < 0
            gang = self._gangs[key] = _Gang(self._tallies(whose), begun, before)
        succeeded = level == "succeeded"
        held = state.node and not succeeded and level != "failed"
        rack = self._rack_of(state.node) if held else None
        gang.min_running = max(gang.min_running, state.least)
        self._becomes(gang, name, _Member(level == "running" or succeeded, succeeded, rack), t)
        self._check(key, gang, t)

    def gone(self, key: str, name: str, t: float, *, deleted: bool) -> None:
        """Removes a pod from a gang: either the pod was `deleted`, or it belongs to another gang
        now.
        """
        gang = self._gangs.get(key)
        if gang is None:
            return
        done = deleted and gang.members[name].succeeded
        self._becomes(gang, name, _Member(done, done), t)
        del gang.members[name]
        if done:
            gang.succeeded_names.add(name)
        self._check(key, gang, t)
        if not gang.members and gang.stage is not _Stage.WAITS:
            del self._gangs[key]

    def pod_group(self, line: PodGroupLine) -> None:
        min_running = None if line.state is None else line.state.least
        self._set_min_running(line.name, min_running, line.t)

    def job(self, line: JobLine) -> None:
        """Measures how long a Job takes: from its creation, or the beginning of the run, until it
        is complete.
        """
        job, state, t = self._jobs.get(line.name), line.state, line.t
        self._set_min_running(line.name, None if state is None else state.parallelism, t)
        if state is None:
            if job is not None:
                del self._jobs[line.name]
                self._end_job(line.name, job, t, complete=False)
            return
        complete = state.done == "Complete" or 0 < state.wanted <= state.succeeded
        finished = complete or state.done == "Failed"
        if job is None:
            place = Place(line.name, line.name.split("/")[1], rehearsed=state.rehearsed)
            created = t if state.created is None else state.created
            job = _Job(place, max(created, 0.0), ended=created < 0 and finished)
            self._jobs[line.name] = job
            for tally in self._tallies(place):
                if not job.ended:
                    tally.gangs.begin(line.name, job.since)
        if finished:
            self._end_job(line.name, job, t, complete=complete)

    def _end_job(self, name: str, job: _Job, t: float, *, complete: bool) -> None:
        if job.ended:
            return
        job.ended = True
        for tally in self._tallies(job.place):
            if complete:
                tally.gangs.end(name, t - job.since)
            else:
                tally.gangs.give_up(name)
                tally.count("gangs.unfinished", f"{name} at {t:.1f} s")

    def _set_min_running(self, key: str, min_running: int | None, t: float) -> None:
        """Sets how many pods of a gang must run at once; None if its Job or PodGroup is gone."""
        gang = self._gangs.get(key)
        if min_running is not None:
            self._min_running[key] = min_running
        elif self._min_running.pop(key, None) is not None and gang is not None:
            for tally in gang.tallies if gang.stage is _Stage.WAITS else ():
                tally.gang_waits.give_up(key)
            gang.stage = _Stage.OVER
            if not gang.members:
                del self._gangs[key]
        if gang is not None:
            self._check(key, gang, t)

    def _becomes(self, gang: _Gang, name: str, after: _Member, t: float) -> None:
        before = gang.members.get(name, _DONE if name in gang.succeeded_names else _NO_MEMBER)
        gang.succeeded_names.discard(name)
        gang.members[name] = after
        gang.runs += after.runs - before.runs
        gang.succeeded += after.succeeded - before.succeeded
        if after.rack == before.rack:
            return
        old = gang.spread()
        for rack, by in ((before.rack, -1), (after.rack, 1)):
            if rack is not None:
                gang.racks[rack] += by
                gang.placed += by
        new = gang.spread()
        for tally in gang.tallies if new != old else ():
            tally.spread.move(t, above=new[0] - old[0], below=new[1] - old[1])

    def _check(self, key: str, gang: _Gang, t: float) -> None:
        """Ends the wait of a gang once enough of its pods run; starts a new wait when it loses
        some.

        Until enough pods have run at the same time, succeeded pods don't count as running, as they
        may have run one after the other. In gangs that are older than the run they do count, as
        nothing is known of that time.
        """
        min_running = self._min_running.get(key) or gang.min_running
        if gang.stage is _Stage.NEW and (min_running or not key.startswith(_JOB)):
            self._wait(key, gang, gang.since)
        counts_all = gang.has_run or (gang.before_the_run and t == 0)
        enough = gang.runs if counts_all else gang.runs - gang.succeeded
        if gang.stage is _Stage.WAITS and 0 < min_running <= enough:
            gang.stage, gang.has_run = _Stage.RUNS, True
            for tally in gang.tallies:
                if gang.before_the_run and t == 0:
                    tally.gang_waits.drop(key)
                else:
                    tally.gang_waits.end(key, t - gang.since)
        elif gang.stage is _Stage.RUNS and gang.runs < min_running:
            self._wait(key, gang, t)
            for tally in gang.tallies:
                tally.count("gangs.broken", f"{key} at {t:.1f} s")

    def _wait(self, key: str, gang: _Gang, since: float) -> None:
        gang.stage, gang.since = _Stage.WAITS, since
        for tally in gang.tallies:
            tally.gang_waits.begin(key, since)
