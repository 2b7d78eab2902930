"""A comparison, run by run: the arms in turn, each run a rehearsal on a cluster of its own.

    ComparisonPlan --> A B, B A, ... --rehearse--> runs/ --compared--> comparison.json, .html, .md

What is there already isn't played again, so a comparison that was broken off goes on where it was.
Its files are written after every run.
"""

import asyncio
import hashlib
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from kwok_operator import controlplane
from kwok_operator.comparing.folders import ComparisonFolder
from kwok_operator.comparing.load import metered
from kwok_operator.core.comparison.outcome import Comparison, PlayedRun, compared
from kwok_operator.core.comparison.plan import ComparisonArm, ComparisonPlan, PlannedRun, checked
from kwok_operator.errors import KwokOperatorError
from kwok_operator.rehearsal.progress import RunProgress
from kwok_operator.rehearsal.runner import rehearse
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.stage import FindProgram

Tell = Callable[[str], None]
FindProgramOf = Callable[[ComparisonArm], FindProgram]
"""Arms may be in different folders, and programs are found from there."""


async def compare(
    plan: ComparisonPlan, *, folder: Path, find_program: FindProgramOf, tell: Tell
) -> Comparison:
    """Plays what isn't there yet; the files are in `folder` then.

    Raises KwokOperatorError and ControlPlaneError, before anything starts as far as that can be
    known, and where a run could not begin. What was played until then is kept.
    """
    checked(plan)
    place = ComparisonFolder(folder)
    place.check(plan)
    await _find_tools(plan)
    playing = _Playing(plan, place, find_program=find_program, tell=tell)
    with place.alone():
        whole = await playing.play_all()
        return playing.result(interrupted=not whole)


class _Playing:
    def __init__(
        self,
        plan: ComparisonPlan,
        place: ComparisonFolder,
        *,
        find_program: FindProgramOf,
        tell: Tell,
    ) -> None:
        self._plan = plan
        self._place = place
        self._find_program = find_program
        self._tell = tell
        self._done: dict[str, PlayedRun] = {}

    def was_busy(self, run: PlannedRun) -> bool:
        facts = self._done[run.folder].facts
        return facts.busy and not facts.repeated

    def result(self, *, interrupted: bool = False) -> Comparison:
        runs = [self._done[run.folder] for run in self._plan.all_runs if run.folder in self._done]
        found = compared(self._plan, runs, interrupted=interrupted)
        if runs:
            self._place.write(found)
        return found

    async def play_all(self) -> bool:
        """Whether it came to the end; not if it was interrupted."""
        for run in self._plan.all_runs:
            if not await self.play(run):
                return False
        if self._plan.repeat_busy:
            for run in [run for run in self._plan.all_runs if self.was_busy(run)]:
                self._tell(f"run {run.folder}: the machine was busy with something else; once more")
                if not await self.play(run, again=True):
                    return False
        return True

    async def play(self, run: PlannedRun, *, again: bool = False) -> bool:
        """Whether it is there now; not if it was interrupted."""
        found = self._place.played(run)
        if found is None or again:
            found = await self._played(run, again=again)
        else:
            self._tell(f"run {run.folder}: is there already")
        if found is None:
            return False
        self._done[run.folder] = found
        self.result()
        return True

    async def _played(self, run: PlannedRun, *, again: bool) -> PlayedRun | None:
        of = "again" if again else f"{len(self._done) + 1} of {2 * self._plan.runs}"
        self._tell(f"run {run.folder} ({of}), seed {run.seed}")
        find = self._find_program(run.arm)
        folder = self._place.begin(run)
        async with metered() as others:
            try:
                await rehearse(
                    run.scenario,
                    RehearseSettings(scenario=Path(run.arm.file)),
                    folder=folder,
                    find_program=find,
                    tell=lambda line: self._tell(f"  {line}"),
                    show=_show_nothing,
                )
            except asyncio.CancelledError:
                return None
            except (KwokOperatorError, controlplane.ControlPlaneError):
                self._tell(
                    f"run {run.folder}: no run; --output={self._place.path} goes on from here"
                )
                raise
            share = others()
        facts = self._place.facts_of(
            run,
            others=share,
            repeated=again,
            machine=_machine(),
            programs=_programs(run.arm, find),
        )
        self._place.finish(run, facts)
        found = self._place.played(run)
        if found is not None:
            how = "held" if found.passed else f"FAILED: {found.failures[0]}"
            busy = "; the machine was busy with something else" if facts.busy else ""
            self._tell(f"run {run.folder}: {how}, {found.seconds:g} s{busy}")
        return found


def _show_nothing(progress: RunProgress) -> None:
    pass


async def _find_tools(plan: ComparisonPlan) -> None:
    """Raises ControlPlaneError where there can be no control plane of a version that is needed."""
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
    """Which files the programs of an arm are: the same name may be another version."""
    names = {process.program for process in arm.scenario.processes}
    return {f"program {name}": _file_digest(find(name)) for name in sorted(names)}


def _file_digest(path: Path | None) -> str:
    if path is None:
        return "none"
    with path.open("rb") as file:
        return f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()[:12]}"
