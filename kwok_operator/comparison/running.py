"""Plays a comparison: one run after the other, each a rehearsal on a cluster that is as new.

    ComparisonPlan --> registered.json
    next_round --> its runs --rehearse--> runs/ --compared--> comparison.json, .html, .md

Arms with the same version of Kubernetes and the same flags of its components share a control plane,
which is reset before each run (keptcluster.py). With other arms each run makes its own, as a second
one that is idle would take time from the first.

Runs that are in the folder already aren't played again, so an interrupted comparison can be
continued. Each start, also a continuation, plays a warm-up round first. The result files are
written after every round.
"""

import asyncio
import hashlib
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kwok_operator import controlplane
from kwok_operator.comparison.fairness import whole_rounds
from kwok_operator.comparison.folders import ComparisonFolder
from kwok_operator.comparison.load import metered
from kwok_operator.comparison.outcome import Comparison, PlayedRun, compared
from kwok_operator.comparison.plan import (
    WARM_UP,
    ComparisonArm,
    ComparisonPlan,
    PlannedRun,
    checked,
)
from kwok_operator.comparison.rounds import (
    WholeRound,
    in_minutes,
    next_round,
    repeats_stopped,
    runs_left,
    time_left,
)
from kwok_operator.errors import KwokOperatorError
from kwok_operator.rehearsal.keptcluster import KeptClusters, same_control_plane
from kwok_operator.rehearsal.progress import Report, RunProgress
from kwok_operator.rehearsal.rehearse import rehearse
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.testbed import FindProgram
from kwok_operator.signals import cancelled_by_signals

FindProgramOf = Callable[[ComparisonArm], FindProgram]
"""Returns the function that finds an arm's programs. Each arm may have its own programs."""


async def compare(
    plan: ComparisonPlan, *, folder: Path, find_program: FindProgramOf, report: Report
) -> Comparison:
    """Plays the runs that the folder lacks, writes the result files into it, and returns the
    comparison.

    Raises KwokOperatorError or ControlPlaneError, if possible before the first run, and when a run
    can't begin. Runs that were played before stay.
    """
    checked(plan)
    place = ComparisonFolder(folder)
    place.check(plan)
    await _find_tools(plan)
    with place.alone():
        plan = place.register(plan)
        while place.has_round(plan, plan.runs + 1):
            plan = replace(plan, runs=plan.runs + 1)  # runs that were played always count
        playing = _Playing(plan, place, find_program=find_program, report=report)
        playing.load_runs()
        whole = await playing.play_all()
        return playing.result(interrupted=not whole)


class _Playing:
    def __init__(
        self,
        plan: ComparisonPlan,
        place: ComparisonFolder,
        *,
        find_program: FindProgramOf,
        report: Report,
    ) -> None:
        self._plan = plan
        self._place = place
        self._find_program = find_program
        self._report = report
        self._cold = plan.warm_up
        self._done: dict[tuple[int, str], PlayedRun] = {}
        """The runs that count, by number of the round and name of the arm."""
        self._warm_ups: dict[str, PlayedRun] = {}
        self._over: set[str] = set()
        """The folders of runs that are over, or won't be played."""
        self._took: dict[str, list[float]] = {arm.name: [] for arm in plan.arms}
        self._clusters = KeptClusters("comparison")
        first, *others = (arm.scenario for arm in plan.arms)
        self._share = controlplane.CAN_REWIND and all(same_control_plane(first, b) for b in others)
        """Whether all runs share a control plane. If not, each run makes its own."""

    def _rounds(self) -> dict[int, WholeRound]:
        return whole_rounds(
            {number: run.facts for (number, name), run in self._done.items() if name == arm.name}
            for arm in self._plan.arms
        )

    def result(self, *, interrupted: bool = False) -> Comparison:
        runs = [run for _, run in sorted(self._done.items(), key=lambda each: each[0][0])]
        comparison = compared(
            self._plan, runs, warm_ups=[*self._warm_ups.values()], interrupted=interrupted
        )
        if runs:
            self._place.write(comparison)
        return comparison

    def load_runs(self) -> None:
        """Loads the runs that are in the folder already. They count like newly played runs."""
        for run in self._plan.round(WARM_UP):
            if played := self._place.played(run):
                self._warm_ups[run.arm.name] = played
        for number in range(1, self._plan.runs + 1):
            for attempt in (1, 2):
                runs = self._plan.round(number, attempt)
                there = [played for run in runs if (played := self._place.played(run))]
                self._over |= {Path(played.folder).name for played in there}
                for played in there:
                    self._took[played.arm] += [played.facts.took] if played.facts.took else []
                # A repeat counts only once all its runs are over.
                if attempt == 1 or len(there) == len(runs):
                    self._done |= {(number, played.arm): played for played in there}
        self._report(f"{self._plan.in_words}, {self._left()}")
        if self._done:
            self._report(
                f"{len(self._done)} runs are there already; what was registered before them is"
                f" judged: {self._plan.judged_in_words}"
            )
        if later := self._plan.explored_in_words:
            self._report(f"named after runs had been seen, so explored without a verdict: {later}")

    async def play_all(self) -> bool:
        """Plays all runs that are missing. Returns False if it was interrupted."""
        # A signal may come between two runs, too, and then a kept cluster must be deleted.
        with cancelled_by_signals():
            async with self._clusters:
                return await self._play_all()

    async def _play_all(self) -> bool:
        stopped = False
        while (step := next_round(self._plan, self._rounds())) is not None:
            if self._cold and not await self._play(WARM_UP, 1):
                return False
            self._cold = False
            if not await self._play(*step):
                return False
            if not stopped and repeats_stopped(self._plan, self._rounds()):
                stopped = True
                self._report(
                    f"the machine was as busy in the repeats: no more {self._plan.unit}s are"
                    " repeated, and smaller differences go unseen"
                )
        return True

    async def _play(self, number: int, attempt: int) -> bool:
        """Plays the missing runs of a round. Returns False if it was interrupted."""
        over: list[PlayedRun] = []
        runs = self._plan.round(number, attempt)
        for run in runs:
            # The warm-up of an earlier start is of no use now.
            before = None if number == WARM_UP else self._place.played(run)
            played = before or await self._played(run)
            if played is None:
                return False
            over.append(played)
            self._over.add(run.folder)
            if number == WARM_UP:
                self._warm_ups[played.arm] = played
            elif attempt == 1 or len(over) == len(runs):
                # A repeat replaces the whole round, or nothing.
                self._done |= {(number, each.arm): each for each in over}
                self.result()
        return True

    async def _played(self, run: PlannedRun) -> PlayedRun | None:
        self._report(f"run {run.folder} ({self._which(run)}), seed {run.seed}, {self._left()}")
        find = self._find_program(run.arm)
        folder = self._place.begin(run)
        began = time.monotonic()
        async with metered() as others:
            try:
                kept = await self._clusters.get(run.scenario, self._report) if self._share else None
                await rehearse(
                    run.scenario,
                    RehearseSettings(scenario=Path(run.arm.file)),
                    folder=folder,
                    find_program=find,
                    report=lambda line: self._report(f"  {line}"),
                    show=_show_nothing,
                    kept=kept,
                )
            except asyncio.CancelledError:
                return None
            except (KwokOperatorError, controlplane.ControlPlaneError):
                self._report(
                    f"run {run.folder}: no run; --output={self._place.path} goes on from here"
                )
                raise
            share = others()
        took = round(time.monotonic() - began, 1)
        facts = self._place.facts_of(
            run,
            others=share,
            repeated=run.attempt > 1,
            took=took,
            machine=_machine(),
            programs=_programs(run.arm, find),
        )
        self._place.finish(run, facts)
        played = self._place.played(run)
        if played is not None:
            self._took[run.arm.name].append(took)
            how = "held" if played.passed else f"FAILED: {played.failures[0]}"
            how += ", which doesn't count" if run.pair == WARM_UP and not played.passed else ""
            busy = "; the machine was busy with something else" if facts.busy else ""
            self._report(f"run {run.folder}: {how}, {played.seconds:g} s{busy}")
        return played

    def _which(self, run: PlannedRun) -> str:
        if run.pair == WARM_UP:
            return "warm-up, doesn't count"
        if run.attempt > 1:
            return f"the {self._plan.unit} again, as the machine was busy"
        return f"{len(self._done) + 1} of {len(self._plan.arms) * self._plan.runs}"

    def _left(self) -> str:
        runs = runs_left(self._plan, self._rounds(), cold=self._cold)
        left = [run for run in runs if run.folder not in self._over]
        return f"{in_minutes(*time_left(left, self._took))} left"


def _show_nothing(progress: RunProgress) -> None:
    pass


async def _find_tools(plan: ComparisonPlan) -> None:
    """Finds the control plane tools that the arms need. Raises ControlPlaneError if one lacks."""
    versions = {arm.scenario.cluster.kubernetes for arm in plan.arms}
    for version in sorted(versions, key=str):
        wanted = {"KUBERNETES_VERSION": version} if version else {}
        settings = controlplane.Settings.from_environ({**os.environ, **wanted})
        reporter = controlplane.Reporter(sys.stderr)
        await asyncio.to_thread(controlplane.find_tools, settings, reporter=reporter)


def _machine() -> dict[str, str]:
    return {
        "processors": str(os.cpu_count()),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "Python": platform.python_version(),
    }


def _programs(arm: ComparisonArm, find: FindProgram) -> dict[str, str]:
    """Returns a digest of each program that an arm runs. It shows whether the program was replaced
    by another of the same name between runs.
    """
    names = {process.program for process in arm.scenario.processes}
    return {f"program {name}": _file_digest(find(name)) for name in sorted(names)}


def _file_digest(path: Path | None) -> str:
    if path is None:
        return "none"
    with path.open("rb") as file:
        return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
