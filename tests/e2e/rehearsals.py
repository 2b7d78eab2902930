"""Running `kwok-operator rehearse` as people do."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from kwok_operator.controlplane import Settings, processes
from kwok_operator.controlplane.kwokctl import cluster_directory
from kwok_operator.controlplane.lifecycle import names
from tests.e2e.deploying import ROOT

COMMAND = [sys.executable, "-m", "kwok_operator", "rehearse"]
GROUP: dict[str, Any] = {
    "apiVersion": "kwok-operator.io/v1alpha1",
    "kind": "KwokNodeGroup",
    "metadata": {"name": "a"},
    "spec": {"targetSize": 3, "template": {"shape": {"cpu": 4, "memory": "16Gi"}}},
}


def cluster_of(said: str) -> str:
    """The name of the cluster that a rehearsal has made."""
    found = re.search(r"^creating cluster (\S+)$", said, re.MULTILINE)
    assert found, said
    return found[1]


def is_there(cluster: str) -> bool:
    """Whether anything of it is left."""
    settings = Settings.from_environ(os.environ)
    directory = cluster_directory(cluster, settings=settings)
    return cluster in names(settings=settings) or bool(processes.running(directory))


def play(path: Path, output: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    # As people give it: relative to where they are, which is not where the scenario is.
    command = [*COMMAND, str(path), f"--output={os.path.relpath(output)}", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def autoscaler_in(directory: Path) -> dict[str, Any]:
    """A process of a scenario in this folder: what stands in for cluster-autoscaler."""
    program = directory / "autoscaler"
    player = f'cd {ROOT}; exec {sys.executable} -m tests.e2e.autoscaler_program "$@"'
    program.write_text(f"#!/bin/sh\n{player}\n")
    program.chmod(0o755)
    return {"name": "ca", "clusterAutoscaler": {"binary": "./autoscaler"}}


def verdict(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "verdict.json").read_text())
    return found
