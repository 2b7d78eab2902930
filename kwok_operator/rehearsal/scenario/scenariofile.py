"""Reads a scenario from the text of its file, or finds all mistakes in it.

    text --YAML--> one document --arms.py--> one arm of it --models--> Scenario
        --checks.py--> ScenarioFile: findings

A mistake is reported with file and line, field, value, remedy. If a scenario doesn't have the right
form, nothing else in it is checked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from kwok_operator.formats.yamltext import Document, DocumentError, read_documents
from kwok_operator.offline.files import Finding, line_of
from kwok_operator.rehearsal.scenario.arms import arm_of, wrong_with_arms
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.parts import MAX_NAME
from kwok_operator.rehearsal.scenario.problems import field_problems
from kwok_operator.schema.check import FieldProblem

MAX_BYTES: Final = 1024 * 1024
_ENDINGS: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """The result of reading a file. `scenario` is None if the file has no scenario of the right
    form.
    """

    file: str
    scenario: Scenario | None = None
    document: Document | None = None
    findings: tuple[Finding, ...] = ()
    ignored: tuple[str, ...] = ()
    """Fields of the groups, and steps of the timeline, that have no effect on Karpenter's nodes."""
    unlike: tuple[str, ...] = ()
    """Sentences on how Karpenter's nodes differ from those of the groups."""
    unchecked: tuple[str, ...] = ()
    """What could not be checked, as a program is missing that a mere check doesn't need."""

    def with_findings(
        self, problems: Iterable[FieldProblem], findings: Iterable[Finding] = ()
    ) -> "ScenarioFile":
        """Returns the file with further problems of the scenario, and findings in other files."""
        every = [*self.findings, *(self._finding(each) for each in problems), *findings]
        return replace(self, findings=tuple(dict.fromkeys(every)))

    def _finding(self, problem: FieldProblem) -> Finding:
        line = line_of(self.document, problem.path) if self.document else None
        return Finding(self.file, line, problem.message)


def read_scenario(file: str, text: str, *, arm: str | None = None) -> ScenarioFile:
    """Reads a scenario from text, or one `arm` (variant) of it, and checks only its form."""
    read = read_document(file, text)
    return scenario_in(read, arm=arm) if read.document and not read.findings else read


def read_document(file: str, text: str) -> ScenarioFile:
    """Reads the document, which must be an object, but not the scenario in it."""
    if len(text) > MAX_BYTES:
        message = f"has more than {MAX_BYTES:,} characters; name files in apply instead"
        return ScenarioFile(file, findings=(Finding(file, None, message),))
    try:
        documents = [d for d in read_documents(text, where=file) if d.value is not None]
    except DocumentError as error:
        return ScenarioFile(file, findings=(Finding(file, error.line, error.problem),))
    if len(documents) != 1:
        wrong = f"has {len(documents)} documents, and must be one" if documents else "is empty"
        line = documents[1].line if documents else None
        message = f"{wrong}; a scenario has fields such as workloads and expect"
        return ScenarioFile(file, findings=(Finding(file, line, message),))
    (document,) = documents
    read = ScenarioFile(file, document=document)
    if not isinstance(document.value, dict):
        return read.with_findings([FieldProblem((), "is no object of keys and values")])
    if "kind" in document.value and "apiVersion" in document.value:
        message = "is a Kubernetes object, and no scenario; name it in apply of a scenario"
        return read.with_findings([FieldProblem((), message)])
    return read


def scenario_in(read: ScenarioFile, *, arm: str | None = None) -> ScenarioFile:
    """Reads the scenario from a document that is an object."""
    document, file = read.document, read.file
    assert document is not None
    wrong = wrong_with_arms(document, arm)
    if wrong:
        return read.with_findings(wrong)
    if arm is not None:
        document = arm_of(document, arm)
        read = replace(read, document=document)
    value = _named(document.value, file)
    try:
        scenario = Scenario.model_validate(value)
    except ValidationError as error:
        return read.with_findings(field_problems(error, Scenario, value))
    return replace(read, scenario=scenario)


def _named(value: dict[str, Any], file: str) -> dict[str, Any]:
    """Adds a name, from that of the file, if the scenario has none."""
    if value.get("name") is not None:
        return value
    stem = file.replace("\\", "/").rpartition("/")[2]
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    letters = "".join(c if c.isascii() and c.isalnum() else "-" for c in stem.lower())
    return {**value, "name": letters.strip("-")[:MAX_NAME].strip("-") or "scenario"}
