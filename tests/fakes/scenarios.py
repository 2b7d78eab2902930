"""A scenario as the tests of rehearsals write it, and surroundings that are told what there is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from kwok_operator.offline.files import Finding
from kwok_operator.rehearsal.scenario.checks import check
from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile, read_scenario
from kwok_operator.rehearsal.scenario.surroundings import Material, UnusableReferenceError

GROUP: dict[str, Any] = {
    "apiVersion": "kwok-operator.io/v1alpha1",
    "kind": "KwokNodeGroup",
    "metadata": {"name": "batch"},
    "spec": {"targetSize": 3},
}
WEB: dict[str, Any] = {"name": "web", "count": 50, "pods": {"cpu": "1"}}
RUNNING: dict[str, Any] = {"figure": "pods.running", "atLeast": 1}


@dataclass
class Told:
    """Surroundings: files by path, names of programs, what is wrong with a trace or trouble."""

    files: Mapping[str, str] = field(default_factory=dict)
    programs: frozenset[str] = frozenset({"ca", "karpenter", "tool"})
    traces: frozenset[str] = frozenset({"day.jsonl"})
    own_cluster: bool = True
    kubernetes: tuple[str, ...] = ("1.35", "1.36")
    complete: bool = True
    content: bytes = b"#!/bin/sh"
    """What is in the file of each program."""

    def material(self, path: str) -> Material:
        if path not in self.files:
            raise UnusableReferenceError("isn't there")
        return Material(((path, self.files[path]),), complete=self.complete)

    def text(self, path: str) -> str:
        ((_, text),) = self.material(path).texts
        return text

    def beside(self, program: str, name: str) -> str | None:
        return name if program in self.programs else None

    def executable(self, program: str) -> bytes:
        return self.content if program in self.programs else b""

    def check_program(self, name: str) -> None:
        if name not in self.programs:
            raise UnusableReferenceError("is no program")

    def lacks(self, name: str) -> bool:
        return False

    def check_trace(self, path: str) -> None:
        if path not in self.traces:
            raise UnusableReferenceError("can't be played")

    def check_trouble(self, plan: Mapping[str, Any]) -> None:
        if "rpcs" not in plan:
            raise UnusableReferenceError("has no rpcs")


def scenario(**parts: Any) -> dict[str, Any]:
    """A scenario without a mistake, with these parts in place of its own."""
    whole = {"apply": [{"object": GROUP}], "workloads": [WEB], "expect": [RUNNING]}
    return {key: part for key, part in (whole | parts).items() if part is not None}


def read(value: Any) -> ScenarioFile:
    """As far as its form goes."""
    return read_scenario("a.yaml", yaml.safe_dump(value, sort_keys=False))


def checked(value: Any, around: Told | None = None) -> ScenarioFile:
    """The whole check."""
    return check(read(value), around or Told())


def fields(found: tuple[Finding, ...]) -> list[str]:
    """What each finding is about: the words before its first colon."""
    return [finding.message.partition(":")[0] for finding in found]
