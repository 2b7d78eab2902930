"""Reads the arms of a comparison, and checks them completely before anything starts.

A.yaml B.yaml ... | one file with arms --> scenarios with all that is wrong --> ComparisonArm
"""

import hashlib
import json
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from kwok_operator.comparison.plan import ComparisonArm
from kwok_operator.errors import SettingsError
from kwok_operator.offline.files import Finding
from kwok_operator.rehearsal.installing import sources_of
from kwok_operator.rehearsal.loading import load_scenario
from kwok_operator.rehearsal.scenario.arms import (
    ARMS,
    FEWEST_ARMS,
    MOST_ARMS,
    names_of_arms,
)
from kwok_operator.rehearsal.scenario.karpenter import CRDS_FOLDER
from kwok_operator.rehearsal.scenario.kueue import MANIFESTS
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile, read_document
from kwok_operator.rehearsal.surroundings import LocalSurroundings, read_text
from kwok_operator.userfiles import chunks

_READ: Final = (".py", ".sh", ".js", ".rb", ".lua", ".jar", ".yaml", ".yml", ".json", ".toml",
                ".conf", ".cfg", ".ini")  # fmt: skip
"""Endings of files that a command is assumed to read. Files with others may be its output."""

MakeSurroundings = Callable[[Path], LocalSurroundings]


@dataclass(frozen=True, slots=True)
class LoadedArms:
    name: str
    """The name of the comparison."""
    arms: tuple[ComparisonArm, ...]
    """All arms; empty if a scenario has an error."""
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...] = ()
    """What could not be checked, as a program is missing."""


def load_arms(paths: Sequence[Path], around: MakeSurroundings) -> LoadedArms:
    """Loads the arms. Raises SettingsError if a file can't be read, or there are too few or too
    many arms.
    """
    if not 1 <= len(paths) <= MOST_ARMS:
        raise SettingsError(
            f"SCENARIO: name one with arms, or {FEWEST_ARMS} to {MOST_ARMS} scenarios, such as"
            " before.yaml after.yaml"
        )
    if len(paths) == 1:
        (path,) = paths
        read = read_document(str(path), read_text(path))
        names = names_of_arms(read.document)
        if read.document and not read.findings and not read.document.value.get(ARMS):
            message = "has no arms; give it two or more, or name two or more scenarios"
            return LoadedArms(path.stem, (), (Finding(str(path), None, message),))
        if not FEWEST_ARMS <= len(names) <= MOST_ARMS:
            names = [""]  # the scenarios' findings say what is wrong
        scenarios = [(name, path, load_scenario(path, around(path), arm=name)) for name in names]
        return _loaded(path.stem, scenarios, around)
    names = [path.stem for path in paths]
    if len({*names}) < len(names):
        names = [*string.ascii_lowercase[: len(names)]]
    scenarios = [(n, p, load_scenario(p, around(p))) for n, p in zip(names, paths, strict=True)]
    return _loaded(" and ".join(names), scenarios, around)


def _loaded(
    name: str, scenarios: Sequence[tuple[str, Path, ScenarioFile]], around: MakeSurroundings
) -> LoadedArms:
    findings = [each for _, _, read in scenarios for each in read.findings]
    findings += _without_effect([read for _, _, read in scenarios])
    arms = []
    for arm, path, read in scenarios:
        if read.scenario is None:
            continue
        files = _files(read.scenario, around(path))
        digest = _digest(read.scenario, files, around(path))
        arms.append(ComparisonArm(arm, str(path), read.scenario, digest, files, read.unlike))
    findings = [*dict.fromkeys(findings)]
    unchecked = tuple(dict.fromkeys(each for _, _, read in scenarios for each in read.unchecked))
    return LoadedArms(name, () if findings else tuple(arms), tuple(findings), unchecked)


def _without_effect(reads: Sequence[ScenarioFile]) -> Iterator[Finding]:
    """Yields findings on fields that have no effect on Karpenter's nodes, if another arm has no
    Karpenter, so that they have an effect there.
    """
    having = [read for read in reads if read.scenario and read.scenario.karpenters]
    for read in having if len(having) < len(reads) else ():
        for what in read.ignored:
            sentence = f"{what} has no effect on Karpenter's nodes, and another arm has it"
            yield Finding(read.file, None, f"{sentence}; take it out to compare them")


def _files(scenario: Scenario, around: LocalSurroundings) -> dict[str, str]:
    """Returns a digest of each file that a scenario reads: manifests, traces, and files among the
    arguments of its commands.
    """
    names = [source.path for source in sources_of(scenario)]
    names += [workload.arrivals.trace for workload in scenario.workloads]
    names += [scenario.placement.path] if scenario.placement is not None else []
    for each in scenario.karpenters.values():
        crds = around.beside(each.binary, CRDS_FOLDER) if each.crds is None else None
        names += [*each.paths, crds]
    for kueue in scenario.kueues.values():
        beside = around.beside(kueue.binary, MANIFESTS) if kueue.manifests is None else None
        names += [*kueue.paths, beside]
    for process in scenario.processes:
        if (autoscaler := process.cluster_autoscaler) is not None:
            names.append(autoscaler.folder_of_crds(partial(around.beside, autoscaler.binary)))
    commands = [process.command for process in scenario.processes]
    commands += [step.run.command for step in scenario.timeline if step.run is not None]
    # The program itself is no file of the scenario; an argument may have the form --config=FILE.
    given = [part.rpartition("=")[2] for command in commands for part in (command or ())[1:]]
    names += [part for part in given if part.endswith(_READ)]
    contents = {name: around.files(name) for name in dict.fromkeys(names) if name}
    return {name: _content(files) for name, files in contents.items() if files}


def _content(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name}\0".encode(errors="replace"))
        content = hashlib.sha256()
        with suppress(OSError):
            for chunk in chunks(path):
                content.update(chunk)
            digest.update(content.digest())
    return digest.hexdigest()[:12]


def _digest(scenario: Scenario, files: Mapping[str, str], around: LocalSurroundings) -> str:
    """Returns a digest of the scenario, its files and its programs."""
    digest = hashlib.sha256(json.dumps([scenario.dump(), files], sort_keys=True).encode())
    for process in scenario.processes:
        program = around.program(process.program)
        if program is not None and program.is_file():
            stat = program.stat()
            digest.update(f"{program} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:16]
