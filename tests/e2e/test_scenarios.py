"""The scenarios in deploy/scenarios, played as their users play them: each passes.

CLUSTER_AUTOSCALER names a cluster-autoscaler, and all scenarios with one are played: half an hour.
Without it, `autoscaler_program` stands in, and the shortest are played of which it can play each:
the loss of a zone, a choice by price, and a zone that is sold out. KARPENTER names a Karpenter, and
KARPENTER_CRDS its CRDs, for all scenarios with one; without it, `karpenter_program` stands in for
spot machines that are taken back. KUEUE names a Kueue that has its manifests beside it: scenarios
with Kueue are played if CLUSTER_AUTOSCALER is there, too. Those that need CRDs are
played if the folder crds is beside CLUSTER_AUTOSCALER. (`smoke` is in test_rehearse.)
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.rehearsal.scenario.process import ClusterAutoscaler
from tests.e2e.deploying import ROOT
from tests.e2e.rehearsals import KARPENTER, KUEUE, autoscaler_in, karpenter_in, play, verdict

FOLDER = ROOT / "deploy" / "scenarios"
REAL = os.environ.get("CLUSTER_AUTOSCALER", "")
SHORT = [("imported-cluster", ""), ("cheapest-group", ""), ("sold-out-zone", "")]
SHORT_WITH_KARPENTER = [("karpenter-spot", "")]
OTHER_TOOLS = ("kubernetes-upgrade", "from-1-35")
"""Plays on a Kubernetes that would have to be built first."""


def shipped() -> dict[tuple[str, str], Any]:
    """The processes of each scenario, and of each arm of those that have arms."""
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        scenario = yaml.safe_load(path.read_text())
        for name, arm in (scenario.get("arms") or {"": {}}).items():
            found[path.stem, name] = (arm or {}).get("processes") or scenario.get("processes") or []
    return found


def binary(process: Any) -> tuple[str, str]:
    """The preset of a process, and the name of its program."""
    defaults = {"clusterAutoscaler": "cluster-autoscaler"} | {n: n for n in ("karpenter", "kueue")}
    (preset,) = defaults.keys() & process.keys()
    return preset, process[preset].get("binary", defaults[preset])


def played() -> list[tuple[str, str]]:
    presets = {
        each: {binary(process)[0] for process in processes}
        for each, processes in shipped().items()
        if each != OTHER_TOOLS
    }
    with_karpenter = [each for each, needed in presets.items() if "karpenter" in needed]
    with_kueue = [each for each, needed in presets.items() if "kueue" in needed]
    others = [each for each in presets if each not in (*with_karpenter, *with_kueue)]
    chosen = [
        *(others if REAL else SHORT),
        *(with_karpenter if KARPENTER else SHORT_WITH_KARPENTER),
        *(with_kueue if REAL and KUEUE else ()),
    ]
    has_crds = (Path(REAL).expanduser().parent / "crds").is_dir()
    return [each for each in chosen if has_crds or not needs_crds(shipped()[each])]


def needs_crds(processes: Any) -> bool:
    autoscalers = (each.get("clusterAutoscaler") for each in processes)
    return any(ClusterAutoscaler(**each).flags_with_crds for each in autoscalers if each)


def test_each_is_played_as_it_is_named() -> None:
    assert {*SHORT, *SHORT_WITH_KARPENTER, OTHER_TOOLS} <= {*shipped()}


@pytest.mark.parametrize("name, arm", played())
def test_it_passes(name: str, arm: str, tmp_path: Path, own_cache: dict[str, str]) -> None:
    autoscaler_in(tmp_path)
    karpenter_in(tmp_path)
    autoscaler = shutil.which(os.path.expanduser(REAL)) if REAL else tmp_path / "autoscaler"
    programs = {
        "clusterAutoscaler": autoscaler,
        "karpenter": tmp_path / "karpenter/karpenter",
        "kueue": Path(KUEUE).expanduser().absolute(),
    }
    named = [binary(process) for process in shipped()[name, arm]]
    binaries = [f"--binary={program}={programs[preset]}" for preset, program in named]
    arms = [f"--arm={arm}"] if arm else []
    output = tmp_path / "out"
    path = FOLDER / f"{name}.yaml"
    done = play(path, output, *binaries, *arms, patience=None, reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert verdict(output)["verdict"] == "passed"
