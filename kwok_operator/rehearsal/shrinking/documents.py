"""Turns a scenario into one document without other files, and that document into text.

ScenarioFile --inlined--> document --in_yaml--> a file that people read and attach
                          document --read_again--> ScenarioFile, with all its mistakes
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from kwok_operator.constants import REHEARSAL_LABEL
from kwok_operator.controlplane import known_versions
from kwok_operator.errors import SettingsError
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.formats.yamltext import Document, is_text_without_quotes, load_documents
from kwok_operator.importing.incidents.scenario import FIELDS
from kwok_operator.rehearsal.installing import read_objects
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.scenario.checks import check
from kwok_operator.rehearsal.scenario.expectation import Expectation
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile, scenario_in
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.rehearsal.shrinking.parts import Doc
from kwok_operator.rehearsal.surroundings import LocalSurroundings, read_text
from kwok_operator.shim.troublefile import parse_plan

MOST_LINES: Final = 100
"""The most lines of a file that is attached to an issue."""
_FIRST: Final = ("apiVersion", "kind", "metadata", "spec")


async def inlined(read: ScenarioFile, kubectl: AsyncKubectl, *, folder: Path) -> Doc:
    """Returns the document of a scenario, which contains its placement and all objects that it
    applies. It leaves out `teaches`, which may not be true of a smaller scenario. Raises
    CommandError, SettingsError.
    """
    assert read.document is not None and read.scenario is not None
    doc: Doc = copy.deepcopy(read.document.value)
    doc.pop("teaches", None)
    doc["name"] = read.scenario.name

    async def objects(sources: Sequence[ApplySource]) -> list[Doc]:
        labelled = await read_objects(kubectl, sources, folder=folder, label="shrink")
        return [{"object": _unlabelled(each)} for each in labelled]

    doc["apply"] = await objects(read.scenario.apply)
    for step, value in zip(read.scenario.timeline, as_list(doc.get("timeline")), strict=True):
        if step.apply is not None:
            value["apply"] = await objects(step.apply)
    for process, value in zip(read.scenario.processes, as_list(doc.get("processes")), strict=True):
        if process.karpenter is not None and process.karpenter.node_pools:
            value["karpenter"]["nodePools"] = await objects(process.karpenter.node_pools)
        if process.kueue is not None and process.kueue.objects:
            value["kueue"]["objects"] = await objects(process.kueue.objects)
    placement = doc.get("placement")
    path = placement if isinstance(placement, str) else as_map(placement).get("path")
    if isinstance(path, str):
        (doc["placement"],) = load_documents(read_text(folder / path), where=path)
        doc["placement"].pop("writer", None)
    return doc


def _unlabelled(made: Mapping[str, Any]) -> Doc:
    """Returns an object without the label that it got when kubectl read it."""
    metadata = {key: part for key, part in made["metadata"].items() if part is not None}
    labels = {k: v for k, v in as_map(metadata.get("labels")).items() if k != REHEARSAL_LABEL}
    others = {key: part for key, part in metadata.items() if key != "labels"}
    return {**made, "metadata": {**others, **({"labels": labels} if labels else {})}}


def expecting(doc: Doc, expect: Sequence[Expectation | Mapping[str, Any]]) -> Doc:
    """Returns the document with these expectations only."""
    dumped = [each.dump() if isinstance(each, Expectation) else dict(each) for each in expect]
    return {**doc, "expect": dumped}


def read_again(doc: Doc, path: Path, *, binaries: Mapping[str, Path]) -> ScenarioFile:
    """Reads and checks a document as if it were in the file at `path`."""
    read = ScenarioFile(str(path), document=Document(doc, 1, {}, {}))
    around = LocalSurroundings(
        path, kubernetes=known_versions(), binaries=binaries, check_trouble=parse_plan
    )
    return check(scenario_in(read), around)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = bool(text) and is_text_without_quotes(text)
    style = None if plain else "|" if "\n" in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def in_yaml(doc: Doc) -> str:
    """Returns a document as YAML. Small parts are on one line."""
    ordered = {key: doc[key] for key in ("name", *FIELDS) if key in doc}
    ordered |= {key: part for key, part in doc.items() if key not in ordered}
    text: str = yaml.dump(
        _in_order(ordered),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=100,
        default_flow_style=None,
    )
    if load_documents(text, where="the result") != [doc]:
        raise SettingsError("the result can't be written as YAML that is read as the same")
    return text


def _in_order(value: Any) -> Any:
    if isinstance(value, list):
        return [_in_order(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "kind" not in value or "metadata" not in value:
        return {key: _in_order(part) for key, part in value.items()}
    first = [key for key in _FIRST if key in value]
    return {key: _in_order(value[key]) for key in [*first, *(value.keys() - set(first))]}


def files_named(read: ScenarioFile) -> list[str]:
    """Returns the files that a scenario's document refers to, as it can't contain them: traces, and
    programs with a path.
    """
    assert read.scenario is not None
    traces = [each.arrivals.trace for each in read.scenario.workloads]
    programs = [each for each in sorted(read.scenario.programs) if "/" in each]
    return [*filter(None, traces), *programs]
