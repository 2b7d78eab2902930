"""The scenarios in deploy/scenarios, played as their users play them: each passes.

CLUSTER_AUTOSCALER names a cluster-autoscaler, and all of them are played: half an hour. Without it,
`autoscaler_program` stands in, and the shortest are played of which it can play each: the loss of a
zone, a choice by price, and a zone that is sold out. (`smoke` is in test_rehearse.)
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.deploying import ROOT
from tests.e2e.rehearsals import COMMAND, autoscaler_in, verdict

FOLDER = ROOT / "deploy" / "scenarios"
REAL = os.environ.get("CLUSTER_AUTOSCALER", "")
SHORT = [("imported-cluster", ""), ("cheapest-group", ""), ("sold-out-zone", "")]
OTHER_TOOLS = ("kubernetes-upgrade", "from-1-35")
"""Plays on a Kubernetes that would have to be built first."""
PROGRAMS = ("cluster-autoscaler", "ca-before", "ca-after")


def shipped() -> list[tuple[str, str]]:
    """Each scenario; each arm of those that have two."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        arms = yaml.safe_load(path.read_text()).get("arms") or {"": {}}
        found += [(path.stem, arm) for arm in arms]
    return found


def test_each_is_played_as_it_is_named() -> None:
    assert {*SHORT, OTHER_TOOLS} <= {*shipped()}


@pytest.mark.parametrize(
    "name, arm", [each for each in shipped() if each != OTHER_TOOLS] if REAL else SHORT
)
def test_it_passes(name: str, arm: str, tmp_path: Path) -> None:
    autoscaler_in(tmp_path)
    program = shutil.which(os.path.expanduser(REAL)) if REAL else tmp_path / "autoscaler"
    text = (FOLDER / f"{name}.yaml").read_text()
    named = [each for each in PROGRAMS[1:] if each in text] or PROGRAMS[:1]
    binaries = [f"--binary={each}={program}" for each in named if "clusterAutoscaler" in text]
    arms = [f"--arm={arm}"] if arm else []
    output = tmp_path / "out"
    done = subprocess.run(
        [*COMMAND, str(FOLDER / f"{name}.yaml"), f"--output={output}", *binaries, *arms],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdict(output)["verdict"] == "passed"
