"""From an incident to a test: each of five planted causes, from its files to the least that has it.

- the import of what was saved is a scenario in which cluster-autoscaler (CA) decides the same again
- shrunk, it has what was planted and nothing else, in at most a hundred lines

CLUSTER_AUTOSCALER names a CA, without which nothing is tested: what stands in for it elsewhere
serves no snapshot. INCIDENT_RUNS is how often each scenario has to come out the same (default
once).
"""

import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.e2e.incidents import NAMESPACE, Incident, incidents, scenario
from tests.e2e.rehearsals import play

REAL: Final = os.path.expanduser(os.environ.get("CLUSTER_AUTOSCALER", ""))
RUNS: Final = int(os.environ.get("INCIDENT_RUNS", "1"))
PROGRAM: Final = [sys.executable, "-m", "kwok_operator"]
MOST_LINES: Final = 100
MOST_MINUTES: Final = 15
BINARY: Final = f"--binary=cluster-autoscaler={REAL}"
SPENT: Final = 3
"""The exit code where still more might be left out."""
SAVED: Final = ("snapshotz.json", "pods.yaml", "pdbs.yaml", "workloads.yaml", "status.yaml")
PLAYED: Final = list(incidents())
pytestmark = pytest.mark.skipif(not REAL, reason="CLUSTER_AUTOSCALER names no cluster-autoscaler")


@dataclass(frozen=True)
class Copied:
    """An incident, and the folder of its import."""

    incident: Incident
    folder: Path


@pytest.fixture(scope="module", params=PLAYED, ids=[each.name for each in PLAYED])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copied:
    incident: Incident = request.param
    directory = tmp_path_factory.mktemp(incident.name)
    saved, path = directory / "saved", directory / "scenario.yaml"
    body = scenario(incident, directory, autoscaler=REAL, keep=saved)
    path.write_text(yaml.safe_dump(body))
    done = play(path, directory / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    given = [f"--from={saved / name}" for name in SAVED]
    run("import", *given, f"--log={saved / 'ca.log'}", f"--output={directory / 'copy'}")
    return Copied(incident, directory / "copy")


def run(*arguments: str, codes: Collection[int] = (0,)) -> None:
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in codes, done.stdout + done.stderr


@pytest.mark.timeout((RUNS + 1) * 5 * 60)
def test_the_same_is_decided_again(copied: Copied, tmp_path: Path) -> None:
    for number in range(RUNS):
        output = tmp_path / f"run-{number}"
        path = copied.folder / "scenario.yaml"
        done = play(path, output, BINARY)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "as then" in done.stdout, done.stdout


@pytest.mark.timeout((MOST_MINUTES + 10) * 60)
def test_what_is_left_is_what_was_planted(copied: Copied, tmp_path: Path) -> None:
    output = tmp_path / "least"
    keeps = [f"--keeps={each}" for each in copied.incident.keeps]
    flags = [BINARY, f"--minutes={MOST_MINUTES}", f"--output={output}"]
    run("shrink", str(copied.folder / "scenario.yaml"), *keeps, *flags, codes=(0, SPENT))
    (path,) = output.glob("*.yaml")
    text = path.read_text()
    assert text.count("\n") <= MOST_LINES, text
    left = {each["object"]["metadata"]["name"] for each in yaml.safe_load(text)["apply"]}
    assert copied.incident.needed <= left <= copied.incident.planted | {NAMESPACE}, text
    assert copied.incident.cause in text
