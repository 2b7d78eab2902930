"""The gangs at one moment of a recording: how long they wait to run together, and to be complete,
and over how many racks they are spread.

    PodLine     --look--> members of its gang: which run, and in which racks --> waits, share
    JobLine     --------> how many must run at once; how long until it is complete
    PodGroupLine -------> how many must run at once

A gang is what labels or fields of its pods name (podparts.gang), or else a Job.
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
    """Returns the gang of a pod, as Kind/namespace/name; empty if it has none."""
    return pod.gang or (pod.workload if pod.workload.startswith(_JOB) else "")


class _Stage(Enum):
    NEW = "new"
    """Of a Job, of which it isn't known how many pods run at once."""
    WAITS = "waits"
    RUNS = "runs"
    OVER = "over"
    """Its Job or PodGroup is gone."""


class _Member(NamedTuple):
    runs: bool = False
    """Whether the pod runs, or has succeeded."""
    succeeded: bool = False
    rack: Rack | None = None
    """None if it holds no node, or one that isn't there."""


_NO_MEMBER: Final = _Member()
_DONE: Final = _Member(runs=True, succeeded=True)


@dataclass(slots=True)
class _Gang:
    tallies: tuple[Tally, ...]
    since: float
    """When it began to wait."""
    before_the_run: bool
    """Whether its first pod was created before the run."""
    stage: _Stage = _Stage.NEW
    least: int = 0
    """How many must run at once, as its pods say."""
    members: dict[str, _Member] = field(default_factory=dict)
    runs: int = 0
    """How many run or have succeeded, also if they were deleted since."""
    succeeded: int = 0
    done: set[str] = field(default_factory=set)
    """Members that were deleted after they had succeeded: one that is made again counts once."""
    ran: bool = False
    """Whether enough of them ran at the same time before."""
    racks: Counter[Rack] = field(default_factory=Counter)
    placed: int = 0

    def spread(self) -> tuple[int, int]:
        """Returns how many of its pods aren't in the rack that has most of them, and how many have
        a node; a single pod counts for nothing.
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
        self._least: dict[str, int] = {}
        """How many pods of a gang must run at once, as its Job or PodGroup says."""

    def look(self, name: str, state: PodState, *, level: str, place: Place, t: float) -> None:
        """Applies what a pod is now; `level` is the one of POD_LEVELS where it counts."""
        gang = self._gangs.get(key := gang_of(state))
        if gang is None:
            whose = Place(place.workload, place.namespace, rehearsed=place.rehearsed)
            begun, before = max(state.created, 0.0), state.created < 0
            gang = self._gangs[key] = _Gang(self._tallies(whose), begun, before)
        succeeded = level == "succeeded"
        held = state.node and not succeeded and level != "failed"
        rack = self._rack_of(state.node) if held else None
        gang.least = max(gang.least, state.least)
        self._becomes(gang, name, _Member(level == "running" or succeeded, succeeded, rack), t)
        self._check(key, gang, t)

    def gone(self, key: str, name: str, t: float, *, deleted: bool) -> None:
        """Takes a pod out of a gang: it was `deleted`, or has become one of another gang."""
        gang = self._gangs.get(key)
        if gang is None:
            return
        done = deleted and gang.members[name].succeeded
        self._becomes(gang, name, _Member(done, done), t)
        del gang.members[name]
        if done:
            gang.done.add(name)
        self._check(key, gang, t)
        if not gang.members and gang.stage is not _Stage.WAITS:
            del self._gangs[key]

    def pod_group(self, line: PodGroupLine) -> None:
        least = None if line.state is None else line.state.least
        self._is_of(line.name, least, line.t)

    def job(self, line: JobLine) -> None:
        """Measures how long a Job takes: from its creation, or the beginning of the run, until all
        of it has succeeded.
        """
        job, state, t = self._jobs.get(line.name), line.state, line.t
        self._is_of(line.name, None if state is None else state.parallelism, t)
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

    def _is_of(self, key: str, least: int | None, t: float) -> None:
        """Applies how many pods of a gang must run at once; None if its object is gone."""
        gang = self._gangs.get(key)
        if least is not None:
            self._least[key] = least
        elif self._least.pop(key, None) is not None and gang is not None:
            for tally in gang.tallies if gang.stage is _Stage.WAITS else ():
                tally.gang_waits.give_up(key)
            gang.stage = _Stage.OVER
            if not gang.members:
                del self._gangs[key]
        if gang is not None:
            self._check(key, gang, t)

    def _becomes(self, gang: _Gang, name: str, after: _Member, t: float) -> None:
        before = gang.members.get(name, _DONE if name in gang.done else _NO_MEMBER)
        gang.done.discard(name)
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
        """Ends the wait of a gang once enough of it runs, and begins another when it loses some.

        Until a gang has run whole, pods that have succeeded don't count: they may have run one
        after the other. Of one from before the run that isn't known.
        """
        least = self._least.get(key) or gang.least
        if gang.stage is _Stage.NEW and (least or not key.startswith(_JOB)):
            self._wait(key, gang, gang.since)
        counts_all = gang.ran or (gang.before_the_run and t == 0)
        enough = gang.runs if counts_all else gang.runs - gang.succeeded
        if gang.stage is _Stage.WAITS and 0 < least <= enough:
            gang.stage, gang.ran = _Stage.RUNS, True
            for tally in gang.tallies:
                if gang.before_the_run and t == 0:
                    tally.gang_waits.drop(key)
                else:
                    tally.gang_waits.end(key, t - gang.since)
        elif gang.stage is _Stage.RUNS and gang.runs < least:
            self._wait(key, gang, t)
            for tally in gang.tallies:
                tally.count("gangs.broken", f"{key} at {t:.1f} s")

    def _wait(self, key: str, gang: _Gang, since: float) -> None:
        gang.stage, gang.since = _Stage.WAITS, since
        for tally in gang.tallies:
            tally.gang_waits.begin(key, since)
