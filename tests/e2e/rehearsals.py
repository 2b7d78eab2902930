"""Running `kwok-operator rehearse` as people do."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.controlplane import Settings, processes
from kwok_operator.controlplane.kwokctl import cluster_directory
from kwok_operator.controlplane.lifecycle import names
from kwok_operator.controlplane.settings import CACHE_VARIABLE
from tests.e2e.deploying import ROOT
from tests.e2e.karpenterobjects import crds
from tests.fakes.kueue import manifests

COMMAND = [sys.executable, "-m", "kwok_operator", "rehearse"]
KARPENTER, KARPENTER_CRDS = (os.environ.get(each, "") for each in ("KARPENTER", "KARPENTER_CRDS"))
KUEUE = os.environ.get("KUEUE", "")
GROUP: dict[str, Any] = {
    "apiVersion": "kwok-operator.io/v1alpha1",
    "kind": "KwokNodeGroup",
    "metadata": {"name": "a"},
    "spec": {"targetSize": 3, "template": {"shape": {"cpu": 4, "memory": "16Gi"}}},
}


def cluster_of(said: str) -> str:
    """The name of the cluster that a rehearsal has made, or put back."""
    found = re.search(
        r"^(?:creating cluster (?=\S+$)|putting cluster (?=\S+ back$))(\S+)", said, re.M
    )
    assert found, said
    return found[1]


def is_there(cluster: str) -> bool:
    """Whether anything of it is left."""
    settings = Settings.from_environ(os.environ)
    directory = cluster_directory(cluster, settings=settings)
    return cluster in names(settings=settings) or bool(processes.running(directory))


def play(
    path: Path,
    output: Path,
    *flags: str,
    patience: float | None = 400,
    reuse: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """`reuse` is an environment in which rehearsals share a control plane: `own_cache`."""
    # As people give it: relative to where they are, which is not where the scenario is.
    command = [*COMMAND, str(path), f"--output={os.path.relpath(output)}", *flags]
    command += ["--reuse"] if reuse is not None else []
    return subprocess.run(
        command, capture_output=True, text=True, timeout=patience, check=False, env=reuse
    )


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment with the tools, in which no other process leaves a cluster to be reused."""
    cache = tmp_path_factory.mktemp("cache")
    (cache / "tools").symlink_to(Settings.from_environ(os.environ).cache / "tools")
    environment = {**os.environ, CACHE_VARIABLE: str(cache)}
    yield environment
    subprocess.run([*COMMAND, "--clear", "--reuse"], env=environment, check=True)


def autoscaler_in(directory: Path) -> dict[str, Any]:
    """A process of a scenario in this folder: what stands in for cluster-autoscaler."""
    _stand_in(directory / "autoscaler", "autoscaler_program")
    return {"name": "ca", "clusterAutoscaler": {"binary": "./autoscaler"}}


def karpenter_in(directory: Path, **fields: Any) -> dict[str, Any]:
    """A process of a scenario in this folder: Karpenter where KARPENTER names it, and
    KARPENTER_CRDS the folder of its CRDs, else what stands in for it.
    """
    program = directory / "karpenter" / "karpenter"
    program.parent.mkdir()
    if KARPENTER:
        program.symlink_to(Path(KARPENTER).expanduser().absolute())
        (program.parent / "crds").symlink_to(Path(KARPENTER_CRDS).expanduser().absolute())
    else:
        _stand_in(program, "karpenter_program")
        (program.parent / "crds").mkdir()
        for crd in crds():
            path = program.parent / "crds" / f"{crd['metadata']['name']}.yaml"
            path.write_text(yaml.safe_dump(crd))
    return {"name": "karpenter", "karpenter": {"binary": "karpenter/karpenter", **fields}}


def kueue_in(directory: Path, **fields: Any) -> dict[str, Any]:
    """A process of a scenario in this folder: what stands in for Kueue."""
    program = directory / "kueue" / "kueue"
    program.parent.mkdir()
    _stand_in(program, "kueue_program")
    (program.parent / "manifests").mkdir()
    text = yaml.safe_dump_all(manifests())
    (program.parent / "manifests" / "kueue.yaml").write_text(text)
    return {"name": "kueue", "kueue": {"binary": "kueue/kueue", **fields}}


def _stand_in(program: Path, module: str) -> None:
    player = f'cd {ROOT}; exec {sys.executable} -m tests.e2e.{module} "$@"'
    program.write_text(f"#!/bin/sh\n{player}\n")
    program.chmod(0o755)


def verdict(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "verdict.json").read_text())
    return found
