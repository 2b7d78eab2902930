"""Makes the tries: plays documents one after the other, in one control plane that is kept.

    document --> Scenario --keptcluster.py, runner.py--> recording --symptom.py--> Symptom

A run ends as soon as the results of the expectations can't change any more. It also ends once
nothing has changed for `settledFor`, or for the shorter time that the caller gives. If the control
plane itself fails, another one is made, and the document is played again.

cluster-autoscaler logs at -v=4 or more, so that its log says why it does something. In runs that
may end early, it has a shorter scan-interval and shorter delays before scale-downs, as each run
must last until the autoscaler has had time to act.
"""

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kwok_operator.causes.model import Chain
from kwok_operator.constants import KIND
from kwok_operator.controlplane import ControlPlaneError
from kwok_operator.errors import ApiUnreachableError, KwokOperatorError, one_line
from kwok_operator.formats.autoscalertexts import NOT_TRIGGERED, TRIGGERED
from kwok_operator.importing.incidents.calog import LogReader, Loop
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.judge.figures import FigureScope
from kwok_operator.rehearsal.judge.verdict import judged, place_of
from kwok_operator.rehearsal.keptcluster import KeptClusters
from kwok_operator.rehearsal.logs import log_of
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.runner import play
from kwok_operator.rehearsal.scenario.autoscaler import FAST, delay_of
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.parts import seconds_of
from kwok_operator.rehearsal.scenario.process import ClusterAutoscaler, FlagSet
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.shrinking.documents import read_again
from kwok_operator.rehearsal.shrinking.parts import Doc
from kwok_operator.rehearsal.shrinking.symptom import Symptom, TryFollower, symptom_of
from kwok_operator.rehearsal.testbed import FindProgram

_CLUSTERS: Final = 3
"""How many control planes may fail in one try."""
_STEADY_AT_LEAST: Final = 30.0
"""Seconds that a try always gets to become steady."""
_LEAST_QUIET: Final = 4.0
"""The fewest seconds for which a try must be quiet."""
_OF_NODES: Final = ("nodes", "instances", "churn", "utilisation", "cost")
_OF_SCALE_UPS: Final = frozenset(
    ("nodes.max", "instances.max", "churn.created", TRIGGERED, NOT_TRIGGERED)
)
"""Figures, and reasons of Events, that no scale-down changes."""
_STARTS: Final = 6.0
"""Seconds that cluster-autoscaler may take from its start to its first decision."""
_LEVEL: Final = "4"
"""The -v at which cluster-autoscaler says why it does something."""
_SOONER: Final = {
    "scan-interval": "1s",
    "scale-down-unneeded-time": "2s",
    "scale-down-delay-after-add": "2s",
}
"""Values of these flags in a try that may end early: it waits for less."""
_TIMES: Final = 3.0
"""A try may take so many times as long as the first one to become steady, and to settle."""


class TryPlayer:
    """Plays documents of one scenario. Leaving this context manager deletes the control plane."""

    def __init__(
        self,
        scenario: Scenario,
        settings: RehearseSettings,
        *,
        folder: Path,
        find_program: FindProgram,
        report: Report,
    ) -> None:
        self._scenario = scenario
        self._settings = settings
        self._folder = folder
        self._find_program = find_program
        self._report = report
        self._clusters = KeptClusters("shrink")
        self._first: tuple[float, float] | None = None
        """How long the whole scenario took until its clock started, and after that, in seconds.
        Unknown if an earlier program made that run: then tries get as much time as the scenario
        allows.
        """
        self._had_cluster = False
        self.whole: Doc | None = None
        """The document that is shrunk."""

    async def __aenter__(self) -> "TryPlayer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clusters.aclose()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def play(self, doc: Doc, quiet: float | None) -> Symptom:
        """Plays a document until nothing has changed for `quiet` seconds. If `quiet` is None, plays
        it to the end of its run, even if the results can't change any more.

        Raises ControlPlaneError if several control planes fail one after the other.
        """
        read = read_again(doc, self._settings.scenario, binaries=self._settings.binaries)
        if read.scenario is None or read.findings:
            return Symptom("; ".join(finding.message for finding in read.findings))
        for attempt in range(_CLUSTERS):
            try:
                symptom, took = await self._played(read.scenario, quiet)
                if quiet is None and doc == self.whole:
                    self._first = self._first or took
                return symptom
            except (ControlPlaneError, ApiUnreachableError) as error:
                await self._clusters.aclose()
                if attempt + 1 == _CLUSTERS or not self._had_cluster:
                    raise
                self._report(one_line(f"another control plane is made: {error}", limit=300))
        raise AssertionError

    async def _played(
        self, scenario: Scenario, quiet: float | None
    ) -> tuple[Symptom, tuple[float, float] | None]:
        """Returns the symptom of a run, and the run's seconds before and after its clock started;
        None for these if the clock never started.
        """
        keeps = range(len(scenario.expect))
        limited = self._limited(scenario, quiet)
        kept = await self._clusters.get(self._scenario, self._report)
        self._had_cluster = True
        shutil.rmtree(self._folder, ignore_errors=True)
        began = time.monotonic()
        with outputs.begun(self._folder):
            try:
                left = await play(
                    limited,
                    self._settings,
                    folder=self._folder,
                    find_program=self._find_program,
                    report=lambda line: None,
                    show=lambda now: None,
                    kept=kept,
                    enough=() if quiet is None else keeps,
                )
            except (ControlPlaneError, ApiUnreachableError):
                raise
            except KwokOperatorError as error:
                return Symptom(one_line(f"it could not begin: {error}", limit=500)), None
            if isinstance(left, ControlPlaneError):
                raise left
        path = self._folder / outputs.RECORDING
        with outputs.opened(path) as recording:
            follower = TryFollower(recording.header)
            verdict = judged(recording, name=path.name, followers=(follower,))
        kept.cluster.check()
        if verdict.end.reason == "interrupted":
            raise asyncio.CancelledError
        took = (time.monotonic() - began - verdict.t, verdict.t)
        if verdict.end.reason == "atMost" and limited.until.at_most < scenario.until.at_most:
            return Symptom("it takes much longer than the first run"), took
        groups = {
            made["metadata"]["name"]
            for each in scenario.apply
            if (made := each.object) is not None
            and made.get("kind") == KIND
            and "autoscaling" in made.get("spec", {})
        }
        chains = _about(scenario, follower.chains)
        symptom = symptom_of(verdict, keeps, chains, self._loops(scenario), groups)
        return replace(symptom, pause=follower.pause), took

    def _limited(self, scenario: Scenario, quiet: float | None) -> Scenario:
        """Returns the scenario with flags that make autoscalers log why they do something. With
        `quiet`, autoscalers also act sooner, and the time limits are shorter if the first run took
        much less time.
        """
        firsts = {p.name: p.cluster_autoscaler for p in self._scenario.processes}
        processes = []
        for process in scenario.processes:
            if (autoscaler := process.cluster_autoscaler) is not None:
                flags = {} if _says_enough(autoscaler.flags.get("v", "0")) else {"v": _LEVEL}
                if quiet is not None:
                    flags |= _sooner(autoscaler, firsts.get(process.name, autoscaler))
                flags = {**autoscaler.flags, **flags}
                changed = autoscaler.model_copy(update={"flags": flags})
                process = process.model_copy(update={"cluster_autoscaler": changed})
            processes.append(process)
        update: dict[str, object] = {"processes": tuple(processes)}
        if self._first is not None and quiet is not None:
            until, (begin, run) = scenario.until, self._first
            steady = max(_TIMES * begin, _STEADY_AT_LEAST)
            update["steady_within"] = min(scenario.steady_within, steady)
            longest = min(until.at_most, _TIMES * run + _STEADY_AT_LEAST)
            # Once anything is said of the end, there is no default any more.
            looking = scenario.model_copy(update=update)
            settled = until.settled and min(until.settled, max(quiet, _least_quiet(looking)))
            if until.settled or until.condition:
                shorter = {"at_most": longest, "settled_for": settled}
                update["until"] = until.model_copy(update=shorter)
        return scenario.model_copy(update=update)

    def _loops(self, scenario: Scenario) -> list[Loop]:
        """Reads the loops that the autoscalers of the last run have logged."""
        loops: list[Loop] = []
        for process in scenario.processes:
            if process.cluster_autoscaler is not None:
                reader = LogReader(at=None, near=time.time())
                path = self._folder / outputs.LOGS / log_of(process.name)
                if path.exists():
                    with path.open("rb") as lines:
                        for line in lines:
                            reader.add(line)
                loops += reader.loops
        return loops


def _least_quiet(scenario: Scenario) -> float:
    """Returns how many seconds without a change end a try. In this time, autoscalers check the
    cluster; if a scale-down may change an expected figure or Event, there is also time for a
    scale-down.
    """
    may_change = [
        each.event.reason if each.event is not None else each.figure
        for each in scenario.expect
        if each.event is not None or (each.figure or "").startswith(_OF_NODES)
        if each.bounds.keys() != {"atLeast"} or not each.measured.rises(each.of)
    ]
    waits = [_LEAST_QUIET]
    for process in scenario.processes:
        if (autoscaler := process.cluster_autoscaler) is not None:
            scan, unneeded, after_add = _delays(autoscaler).values()
            waits.append(1.5 * scan + 2)
            if may_change:
                waits.append(2 * scan + _STARTS)
            if not set(may_change) <= _OF_SCALE_UPS:
                waits.append(unneeded + after_add + 2 * scan + _STARTS)
    return max(waits)


def _delays(autoscaler: ClusterAutoscaler) -> dict[str, float]:
    """Returns the values of the flags in _SOONER, delays in seconds, in the order of _SOONER."""
    given = FAST if autoscaler.values is FlagSet.FAST else {}
    return {name: delay_of(name, {**given, **autoscaler.flags}) for name in _SOONER}


def _sooner(autoscaler: ClusterAutoscaler, first: ClusterAutoscaler | None) -> dict[str, str]:
    """Returns the flags, with values, that make an autoscaler act sooner than its scenario wants.

    `first` is the same autoscaler before anything was left out. A delay that has become longer
    since, as a try leaves out its flag, isn't shortened: the try is to show whether the flag is
    needed.
    """
    delays, given = _delays(autoscaler), _delays(first or autoscaler)
    return {
        name: text
        for name, text in _SOONER.items()
        if delays[name] > seconds_of(text)
        and (name == "scan-interval" or delays[name] <= given[name])
    }


def _about(scenario: Scenario, chains: Sequence[Chain]) -> Mapping[int, Sequence[Chain]]:
    """Returns the chains of the pods that each expectation is about, by the expectation's number.
    Of its scope, only workload and namespace count, as the pods may be on any nodes.
    """
    scopes = [
        FigureScope.narrowed(workload=each.of.workload, namespace=each.of.namespace)
        for each in scenario.expect
    ]
    return {
        number: [each for each in chains if scope.contains(place_of(each))]
        for number, scope in enumerate(scopes)
    }


def _says_enough(level: str) -> bool:
    return level.isdecimal() and int(level) >= int(_LEVEL)
