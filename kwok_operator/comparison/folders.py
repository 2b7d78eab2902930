"""The folder of a comparison: its runs, and the result files that are made from the runs.

    DIR/registered.json      figures to judge, number of runs, order: written before the first run
    DIR/runs/<pair>-<arm>/   the files of a rehearsal, and run.json: which run it is, its facts
    DIR/runs/again-<pair>-<arm>/   a run of a pair that is repeated, as the machine was busy
    DIR/runs/warm-up-<arm>/        a run that doesn't count
    DIR/comparison.json, comparison.html, summary.md

run.json is written when a run begins, and again with the facts of the run (RunFacts) when it is
over. So a run without facts was interrupted, and is played again.
"""

import fcntl
import hashlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from kwok_operator.comparison.failing import fail_condition
from kwok_operator.comparison.fairness import RunFacts, planned_arrivals, recorded_facts
from kwok_operator.comparison.inmarkdown import in_markdown
from kwok_operator.comparison.outcome import Comparison, PlayedRun, comparison_json
from kwok_operator.comparison.page import page
from kwok_operator.comparison.plan import WARM_UP, ComparisonPlan, PlannedRun, Registered
from kwok_operator.errors import SettingsError
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.rehearsal import outputs

RUNS: Final = "runs"
RUN: Final = "run.json"
REGISTERED: Final = "registered.json"
COMPARISON: Final = "comparison.json"
PAGE: Final = "comparison.html"
SUMMARY: Final = "summary.md"
_PLAYED: Final = TypeAdapter(PlayedRun)
"""Checks the types of what is read from the files, as somebody may have edited them."""
_NAMES: Final = TypeAdapter(tuple[str, ...])


class ComparisonFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self, plan: ComparisonPlan) -> None:
        """Raises SettingsError if the folder has files that don't belong to this comparison."""
        digests = {arm.name: arm.digest for arm in plan.arms}
        self.registered(plan)
        try:
            names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        except OSError as error:
            raise SettingsError(f"--output: {self.path}: {error.strerror or error}") from error
        if self.path.exists() and not self.path.is_dir():
            raise SettingsError(f"--output: {self.path} is no folder; name another")
        if RUNS not in names and names - {outputs.GITIGNORE}:
            raise SettingsError(
                f"--output: {self.path} has files that are no comparison's; name another folder,"
                " or empty it"
            )
        for entry in sorted((self.path / RUNS).glob(f"*/{RUN}")):
            record = _read(entry)
            if not record:
                continue  # it can't be read, and is played again
            digest, seed = digests.get(str(record.get("arm"))), f"{plan.seed}-{record.get('pair')}"
            if digest is None or (record.get("digest"), record.get("seed")) != (digest, seed):
                raise SettingsError(
                    f"--output: {self.path} is of another comparison, or an arm has changed since"
                    f" ({RUNS}/{entry.parent.name} is of another one); name another folder"
                )

    def registered(self, plan: ComparisonPlan) -> Registered | None:
        """Returns what was registered in this folder for these arms; None if there is no
        registration, and no run that counts is over.

        Raises SettingsError if the registration can't be read, was edited, is for other arms, or is
        missing although runs are over.
        """
        remedy = "name another folder"
        edited = f"--output: {self.path / REGISTERED} is none of this version, or was edited"
        read = _read(self.path / REGISTERED)
        if not read:
            if not self._has_seen_any:
                return None
            raise SettingsError(
                f"--output: {self.path} has runs, and no {REGISTERED} that can be read: what they"
                f" were played for isn't known, as of a version before; {remedy}"
            )
        try:
            registered = Registered(
                runs=int(read["runs"]),
                figures=_NAMES.validate_python(read["figures"]),
                compared=_NAMES.validate_python(read["compared"]),
                fail_if=tuple(fail_condition(each) for each in read["failIf"]),
                order_seed=str(read["orderSeed"]),
                repeat_busy=bool(read["repeatBusy"]),
            )
        except (KeyError, TypeError, ValueError, SettingsError) as error:
            raise SettingsError(f"{edited}; {remedy}") from error
        digest = _digest(self.path / REGISTERED)
        if any(each and each.get("registered") != digest for each in self._seen()):
            raise SettingsError(f"{edited} once runs had been seen; {remedy}")
        names = [arm.name for arm in plan.arms]
        if read.get("arms") != names:
            raise SettingsError(
                f"--output: {self.path} compares {read.get('arms')}, not {names}; {remedy}"
            )
        if plan.order_seed and plan.order_seed != registered.order_seed:
            raise SettingsError(
                f"--order-seed: {plan.order_seed} isn't that of {self.path},"
                f" {registered.order_seed}; leave it out, or {remedy}"
            )
        return registered

    def register(self, plan: ComparisonPlan) -> ComparisonPlan:
        """Writes registered.json: the runs, figures and conditions that will be judged, and the
        seed of the order. If a run that counts is over, doesn't change the file, but replaces these
        parts of `plan` by those in the file.

        Returns the plan to play. Raises SettingsError.
        """
        before = self.registered(plan)
        if before is not None and self._has_seen_any:
            return plan.under(before)
        # Each comparison gets a new random order. Otherwise, what disturbs every comparison alike,
        # such as a job that starts with it, would always meet the same order.
        seed = plan.order_seed or (before.order_seed if before else secrets.token_hex(4))
        made = replace(plan, order_seed=seed).registering()
        with outputs.writing(self.path):
            outputs.put(self.path / REGISTERED, json.dumps(_registration(made), indent=2) + "\n")
        return made

    def has_round(self, plan: ComparisonPlan, number: int) -> bool:
        return all(self.played(run) for run in plan.round(number))

    def _seen(self) -> Iterator[dict[str, Any]]:
        """Yields the run.json of each run that is over and counts."""
        for entry in (self.path / RUNS).glob(f"*/{RUN}"):
            record = _read(entry)
            if record.get("pair") != WARM_UP and _is_over(_read(entry.parent / outputs.VERDICT)):
                yield record

    @property
    def _has_seen_any(self) -> bool:
        return next(self._seen(), None) is not None

    @cached_property
    def _seen_before(self) -> set[str]:
        """Returns the folders of the runs that the last comparison.json in this folder counts."""
        runs = as_list(_read(self.path / COMPARISON).get("runs"))
        return {str(as_map(each).get("folder")) for each in runs}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Locks the folder against other comparisons while the block runs. Raises SettingsError."""
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
        """Makes an empty folder for a run, and returns it. Deletes files of an earlier attempt."""
        folder = self.folder(run)
        record = {
            **_identity(run),
            "registered": _digest(self.path / REGISTERED),
            "seenBefore": f"{RUNS}/{run.folder}" in self._seen_before,
        }
        shutil.rmtree(folder, ignore_errors=True)
        with outputs.writing(folder):
            outputs.put(folder / RUN, json.dumps(record, indent=2) + "\n")
        return folder

    def finish(self, run: PlannedRun, facts: RunFacts) -> None:
        """Adds the run's facts to run.json, with a digest of its verdict, by which later edits are
        noticed.
        """
        folder = self.folder(run)
        record = _read(folder / RUN)
        record["facts"] = {**asdict(facts), "seen_before": record.get("seenBefore")}
        record["verdict"] = _digest(folder / outputs.VERDICT)
        outputs.put(folder / RUN, json.dumps(record, indent=2) + "\n")

    def facts_of(self, run: PlannedRun, **known: Any) -> RunFacts:
        """Reads the facts of a run that is over from its recording. `known` are other fields of
        RunFacts. Raises RecordingError or SettingsError.
        """
        with outputs.opened(self.folder(run)) as recording:
            header = recording.header
            return replace(
                recorded_facts(recording, run.scenario),
                seed=header.seed,
                arrivals=planned_arrivals(run.scenario),
                versions=dict(header.versions),
                **known,
            )

    def played(self, run: PlannedRun) -> PlayedRun | None:
        """Returns the result of a run; None if there is none, or if the run was interrupted or its
        result edited.
        """
        record = _read(self.folder(run) / RUN)
        verdict = _read(self.folder(run) / outputs.VERDICT)
        if record.get("digest") != run.arm.digest or record.get("seed") != run.seed:
            return None
        if not _is_over(verdict) or record.get("verdict") != _digest(
            self.folder(run) / outputs.VERDICT
        ):
            return None
        off = verdict.get("brokenOff")
        try:
            missed = [
                f"{each['name']}: {each['reason']}"
                for each in as_list(verdict.get("expectations"))
                if not each["held"]
            ]
            played = PlayedRun(
                pair=run.pair,
                arm=run.arm.name,
                folder=f"{RUNS}/{run.folder}",
                facts=RunFacts(**record["facts"]),
                seconds=float(verdict["seconds"]),
                figures=as_map(verdict.get("figures")),
                failures=(*([str(off)] if off else []), *missed),
                died=bool(off),
                incomplete=as_map(verdict.get("incomplete")),
            )
            read = _PLAYED.validate_json(json.dumps(asdict(played), allow_nan=False), strict=True)
            if any(value is not None and math.isinf(value) for value in read.figures.values()):
                return None
            return played
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # it was not over, or isn't ours

    def write(self, comparison: Comparison) -> None:
        """Writes the result files for the runs so far. Raises SettingsError."""
        texts = {
            COMPARISON: json.dumps(comparison_json(comparison), indent=2) + "\n",
            PAGE: page(comparison),
            SUMMARY: in_markdown(comparison),
        }
        with outputs.writing(self.path):
            for name, text in texts.items():
                outputs.put(self.path / name, text)


def _is_over(verdict: dict[str, Any]) -> bool:
    """Returns whether a run ended by itself, not by an interrupt."""
    return as_map(verdict.get("end")).get("reason") not in (None, "", "interrupted")


def _identity(run: PlannedRun) -> dict[str, Any]:
    return {
        "pair": run.pair,
        "arm": run.arm.name,
        "attempt": run.attempt,
        "counts": run.pair != WARM_UP,
        "seed": run.seed,
        "digest": run.arm.digest,
    }


def _registration(plan: ComparisonPlan) -> dict[str, Any]:
    return {
        "arms": [arm.name for arm in plan.arms],
        "runs": plan.runs,
        "figures": plan.figures,
        "compared": plan.compared,
        "failIf": [each.text for each in plan.fail_if],
        "orderSeed": plan.order_seed,
        "repeatBusy": plan.repeat_busy,
        "order": [
            [run.arm.name for run in plan.round(number)] for number in range(1, plan.runs + 1)
        ],
    }


def _lock(folder: int, name: str) -> None:
    try:
        # The kernel releases the lock when this process ends, however it ends.
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingsError(
            f"{name}: another comparison plays into it; wait for its end, or name another folder"
        ) from None
    except OSError:
        pass  # a file system without locks


def _digest(path: Path) -> str:
    """Returns a digest of a file; an empty text if it can't be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def _read(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file; an empty one if it can't be read."""
    try:
        return dict(as_map(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError):
        return {}
