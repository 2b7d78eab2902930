"""Writes a test for pytest that passes as long as a shrunk scenario has the same outcome.

ScenarioFile, Symptom --pytest_file--> the text of test_NAME.py, which plays NAME.yaml beside it
"""

import json
from collections.abc import Iterator

from kwok_operator.rehearsal.scenario.scenariofile import ScenarioFile
from kwok_operator.rehearsal.shrinking.symptom import Symptom

_HEAD = '''\
"""Passes as long as {file} comes out as it did. Needs pytest and kwok-operator.

An expectation that is False here fails for now. Once it is mended, write True.
"""

import os

PROGRAMS = {programs}
"""The variable with the path of each program that must not be the one on PATH."""


def test_{name}(rehearse):
    paths = {{name: os.environ.get(variable) for name, variable in PROGRAMS.items()}}
    binaries = {{name: path for name, path in paths.items() if path}}
    result = rehearse({quoted}, binaries=binaries)
    assert result.verdict["brokenOff"] is None
    assert [(each["name"], each["held"]) for each in result.expectations] == [
'''


def pytest_file(file: str, read: ScenarioFile, symptom: Symptom) -> str:
    """Returns the text of a test that plays the scenario in `file`, a name without folder."""
    assert read.scenario is not None
    stem = file.removesuffix(".yaml").replace("-", "_")
    variables = {name: _variable(name) for name in sorted(read.scenario.programs)}
    programs = {name: each for name, each in variables.items() if each != "KUBECTL"}
    head = _HEAD.format(
        file=file, name=stem, quoted=json.dumps(file), programs=json.dumps(programs)
    )
    return head + "".join(_expected(read, symptom)) + "    ]\n"


def _expected(read: ScenarioFile, symptom: Symptom) -> Iterator[str]:
    assert read.scenario is not None
    for each, outcome in zip(read.scenario.expect, symptom.outcomes, strict=True):
        yield f"        ({json.dumps(str(each))}, {outcome == 'holds'}),\n"


def _variable(program: str) -> str:
    name = program.rpartition("/")[2]
    return "".join(letter if letter.isalnum() else "_" for letter in name.upper())
