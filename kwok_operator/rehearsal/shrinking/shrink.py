"""`kwok-operator shrink` from start to end: makes of a scenario's file a smaller one, and a test of
it.

    ScenarioFile --documents.py--> document --shrinker.py, player.py--> smaller documents
      --> OUTPUT/shrunk.yaml, as soon as one is smaller; OUTPUT/test_shrunk.py

OUTPUT/tries.jsonl has the results of all tries, so the same command with the same --output
continues where it was stopped.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kwok_operator import __version__
from kwok_operator.errors import SettingsError
from kwok_operator.importing.anonymizing import Names
from kwok_operator.rehearsal import outputs
from kwok_operator.rehearsal.keptcluster import kubectl_of
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.shrinking.documents import (
    expecting,
    files_named,
    in_yaml,
    inlined,
    read_again,
)
from kwok_operator.rehearsal.shrinking.hiding import hidden, still_readable
from kwok_operator.rehearsal.shrinking.keeps import expectations
from kwok_operator.rehearsal.shrinking.parts import Doc
from kwok_operator.rehearsal.shrinking.player import TryPlayer
from kwok_operator.rehearsal.shrinking.pytestfile import pytest_file
from kwok_operator.rehearsal.shrinking.shrinker import ShrinkBudget, Shrinker
from kwok_operator.rehearsal.shrinking.symptom import Symptom
from kwok_operator.rehearsal.shrinking.tries import Tries, key_of, make_ready
from kwok_operator.rehearsal.testbed import FindProgram
from kwok_operator.signals import cancelled_by_signals

RESULT: Final = "shrunk.yaml"
_TRY: Final = ".try"
_HEAD: Final = f"""\
# Shrunk with kwok-operator {__version__}. To play it: kwok-operator rehearse {RESULT}
"""
_HASH: Final = re.compile(r"n-[a-z2-7]{12}")


@dataclass(frozen=True, slots=True)
class ShrinkSettings:
    rehearse: RehearseSettings
    folder: Path
    keeps: Sequence[str] = ()
    """The expectations that --keeps names."""
    because: str = ""
    """A text that must be in the reason why an expectation fails; empty for any reason."""
    anonymize: bool = False
    table: Path | None = None
    """The path of the table of anonymous names; None for a file beside the folder."""
    budget: ShrinkBudget = field(default_factory=lambda: ShrinkBudget(200, 3600.0))


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The result of a shrinking."""

    path: Path
    lines: int
    first: Symptom
    runs: int
    smallest: bool
    """Whether nothing more can be left out, and the result was played to its end. If not, the
    budget was spent, or the shrinking interrupted.
    """
    interrupted: bool
    files: Sequence[str]
    """Files that the shrunk scenario still names."""


async def shrink(
    read: ScenarioFile, settings: ShrinkSettings, *, find_program: FindProgram, report: Report
) -> Shrunk:
    """Shrinks a scenario that was read without findings. If interrupted, returns the smallest so
    far.

    Raises KwokOperatorError, and CancelledError if it is interrupted before the first run is over.
    """
    assert read.scenario is not None and read.document is not None
    kept = expectations(
        settings.keeps, read.scenario.expect, raw=read.document.value.get("expect", ())
    )
    scenario, folder = read.scenario, settings.folder
    with cancelled_by_signals():
        with outputs.locked(folder):
            make_ready(folder)
            async with TryPlayer(
                scenario,
                settings.rehearse,
                folder=folder / _TRY,
                find_program=find_program,
                report=report,
            ) as player:
                kubectl = await kubectl_of(read.scenario)
                doc = await inlined(read, kubectl, folder=settings.rehearse.scenario.parent)
                doc = expecting(doc, kept)
                if settings.anonymize:
                    doc, report = _anonymous(doc, settings, report)
                return await _shrunk(doc, settings, player, find_program, report)


def _anonymous(doc: Doc, settings: ShrinkSettings, report: Report) -> tuple[Doc, Report]:
    """Returns the document with hashes for names, and a function that reports the real names."""
    names = Names(settings.folder, settings.table)
    doc = hidden(doc, names.anonymizer)
    names.save()
    if texts := [*still_readable(doc)]:
        report("only names of objects are replaced in these; read them before you share the result")
        for each in texts:
            report(f"  {each}")
    table = names.anonymizer.table
    return doc, lambda line: report(_HASH.sub(lambda match: table.get(match[0], match[0]), line))


async def _shrunk(
    doc: Doc, settings: ShrinkSettings, player: TryPlayer, find_program: FindProgram, report: Report
) -> Shrunk:
    given = settings.rehearse
    read = read_again(doc, given.scenario, binaries=given.binaries)
    if read.scenario is None or read.findings:
        raise SettingsError("; ".join(finding.message for finding in read.findings))
    path = settings.folder / RESULT
    programs = {name: _version(find_program(name)) for name in sorted(read.scenario.programs)}
    tries = Tries(
        settings.folder,
        {
            "version": __version__,
            "kubernetes": os.environ.get("KUBERNETES_VERSION", ""),
            "programs": programs,
            "files": hashes_of_files(read.scenario, given.scenario.parent),
            "scenario": key_of(doc),
        },
    )

    player.whole = doc

    def read_of(smaller: Doc) -> ScenarioFile:
        return read_again(smaller, given.scenario, binaries=given.binaries)

    def is_valid(smaller: Doc) -> bool:
        read = read_of(smaller)
        return read.scenario is not None and not read.findings

    def write(smaller: Doc) -> int:
        text = f"{_HEAD}{in_yaml(smaller)}"
        outputs.put(path, text)
        return text.count("\n")

    shrinker = Shrinker(doc, player.play, is_valid, tries, settings.budget, report, write)
    shrinker.reason = settings.because
    smallest, interrupted = False, False
    try:
        smallest = await shrinker.shrink()
    except asyncio.CancelledError:
        if not shrinker.first.outcomes:
            raise
        interrupted = True
    lines, left = write(shrinker.smallest), read_of(shrinker.smallest)
    test = pytest_file(path.name, left, shrinker.first)
    outputs.put(settings.folder / f"test_{path.stem}.py", test)
    return Shrunk(
        path=path,
        lines=lines,
        first=shrinker.first,
        runs=shrinker.runs,
        smallest=smallest,
        interrupted=interrupted,
        files=files_named(left),
    )


def hashes_of_files(scenario: Scenario, folder: Path) -> dict[str, str]:
    """Returns a hash of each file that the scenario reads besides what it applies: traces,
    arguments of commands, and what Karpenter and Kueue are given.
    """
    named = [each.arrivals.trace for each in scenario.workloads]
    named += [word for each in scenario.processes for word in each.command or ()]
    named += [word for step in scenario.timeline if step.run for word in step.run.command]
    named += [each.karpenter.types_file for each in scenario.processes if each.karpenter]
    kueues = [each.kueue for each in scenario.processes if each.kueue]
    named += [name for each in kueues for name in (each.manifests, each.configuration)]
    digests = {}
    for name in filter(None, named):
        with suppress(OSError, ValueError):
            digests[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    return digests


def _version(path: Path | None) -> str:
    """Returns a text that changes when the program is replaced by another version."""
    if path is None:
        return ""
    state = os.stat(path)
    return f"{path} {state.st_size} {state.st_mtime_ns}"
