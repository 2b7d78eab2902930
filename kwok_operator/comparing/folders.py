"""The folder of a comparison: which runs are there, and the files that come of them.

    DIR/runs/<pair>-<arm>/   the files of a rehearsal, and run.json: which run it is, its facts
    DIR/comparison.json, comparison.html, summary.md

run.json is written first without facts, and with them once the run is over: one without them was
broken off, and is played again.
"""

import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from kwok_operator.core.comparison.fairness import RunFacts, planned_arrivals, recorded_facts
from kwok_operator.core.comparison.inmarkdown import in_markdown
from kwok_operator.core.comparison.outcome import Comparison, PlayedRun, comparison_json
from kwok_operator.core.comparison.page import page
from kwok_operator.core.comparison.plan import ComparisonPlan, PlannedRun
from kwok_operator.core.untyped import as_list, as_map
from kwok_operator.errors import SettingsError
from kwok_operator.rehearsal import outputs

RUNS: Final = "runs"
RUN: Final = "run.json"
COMPARISON: Final = "comparison.json"
PAGE: Final = "comparison.html"
SUMMARY: Final = "summary.md"
_PLAYED: Final = TypeAdapter(PlayedRun)
"""What was read has its types: somebody may have edited it."""


class ComparisonFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, plan: ComparisonPlan) -> None:
        """Raises SettingsError where it holds something else than this comparison."""
        digests = {arm.name: arm.digest for arm in plan.arms}
        try:
            found = [*self.path.iterdir()] if self.path.is_dir() else []
        except OSError as error:
            raise SettingsError(f"--output: {self.path}: {error.strerror or error}") from error
        if self.path.exists() and not self.path.is_dir():
            raise SettingsError(f"--output: {self.path} is no folder; name another")
        ours = any(entry.name == RUNS for entry in found)
        if found and not ours:
            raise SettingsError(
                f"--output: {self.path} has files that are no comparison's; name another folder,"
                " or empty it"
            )
        for entry in sorted((self.path / RUNS).glob(f"*/{RUN}")):
            told = _read(entry)
            if not told:
                continue  # it can't be read, and is played again
            digest, seed = digests.get(str(told.get("arm"))), f"{plan.seed}-{told.get('pair')}"
            if digest is None or (told.get("digest"), told.get("seed")) != (digest, seed):
                raise SettingsError(
                    f"--output: {self.path} is of another comparison, or an arm has changed since"
                    f" ({RUNS}/{entry.parent.name} is of another one); name another folder"
                )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the block runs no other comparison plays into it. Raises SettingsError."""
        runs = self.path / RUNS
        with outputs.writing(runs):
            held = os.open(runs, os.O_RDONLY)
        try:
            _lock(held, f"--output: {self.path}")
            yield
        finally:
            os.close(held)

    def folder(self, run: PlannedRun) -> Path:
        return self.path / RUNS / run.folder

    def begin(self, run: PlannedRun) -> Path:
        """Makes an empty folder for it, whatever of it there was."""
        folder = self.folder(run)
        shutil.rmtree(folder, ignore_errors=True)
        with outputs.writing(folder):
            outputs.put(folder / RUN, json.dumps(_identity(run), indent=2) + "\n")
        return folder

    def finish(self, run: PlannedRun, facts: RunFacts) -> None:
        told = {**_identity(run), "facts": asdict(facts)}
        outputs.put(self.folder(run) / RUN, json.dumps(told, indent=2) + "\n")

    def facts_of(self, run: PlannedRun, **known: Any) -> RunFacts:
        """Those of a run that is over. Raises RecordingError, SettingsError."""
        with outputs.opened(self.folder(run)) as recording:
            header = recording.header
            came, start = recorded_facts(recording, run.scenario)
        return RunFacts(
            seed=header.seed,
            arrivals=planned_arrivals(run.scenario),
            came=came,
            start=start,
            versions=dict(header.versions),
            **known,
        )

    def played(self, run: PlannedRun) -> PlayedRun | None:
        """What came of a run; None if it isn't there, or was broken off from outside."""
        told = _read(self.folder(run) / RUN)
        verdict = _read(self.folder(run) / outputs.VERDICT)
        if told.get("digest") != run.arm.digest or told.get("seed") != run.seed:
            return None
        if as_map(verdict.get("end")).get("reason") in (None, "", "interrupted"):
            return None
        off = verdict.get("brokenOff")
        try:
            missed = [
                f"{each['name']}: {each['reason']}"
                for each in as_list(verdict.get("expectations"))
                if not each["held"]
            ]
            found = PlayedRun(
                pair=run.pair,
                arm=run.arm.name,
                folder=f"{RUNS}/{run.folder}",
                facts=RunFacts(**told["facts"]),
                seconds=float(verdict["seconds"]),
                figures=as_map(verdict.get("figures")),
                failures=(*([str(off)] if off else []), *missed),
            )
            read = _PLAYED.validate_json(json.dumps(asdict(found), allow_nan=False), strict=True)
            if any(value is not None and math.isinf(value) for value in read.figures.values()):
                return None
            return found
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # it was not over, or isn't ours

    def write(self, found: Comparison) -> None:
        """Writes what came of the comparison so far. Raises SettingsError."""
        texts = {
            COMPARISON: json.dumps(comparison_json(found), indent=2) + "\n",
            PAGE: page(found),
            SUMMARY: in_markdown(found),
        }
        with outputs.writing(self.path):
            for name, text in texts.items():
                outputs.put(self.path / name, text)


def _identity(run: PlannedRun) -> dict[str, Any]:
    return {"pair": run.pair, "arm": run.arm.name, "seed": run.seed, "digest": run.arm.digest}


def _lock(folder: int, name: str) -> None:
    try:
        # The kernel gives it up when this process ends, however that happens.
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingsError(
            f"{name}: another comparison plays into it; wait for its end, or name another folder"
        ) from None
    except OSError:
        pass  # a file system that has no locks


def _read(path: Path) -> dict[str, Any]:
    """An object in a file, or an empty one."""
    try:
        return dict(as_map(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError):
        return {}
