"""`kwok-operator why` says the cause that was planted, of a recording and of the cluster itself.

CLUSTER_AUTOSCALER names a cluster-autoscaler. Without it `autoscaler_program` stands in, and the
causes are asked for that it can show; on the stranger's cluster there is none.
"""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e import planted
from tests.e2e.deploying import ROOT
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.rehearsals import autoscaler_in, play
from tests.e2e.stranger import POOL, strange_cluster, waiting

REAL: Final = os.path.expanduser(os.environ.get("CLUSTER_AUTOSCALER", ""))
WHY: Final = [sys.executable, "-m", "kwok_operator", "why"]
SAYS: Final = {
    "fallback": ("failed: first: .*ZonalStockExhausted", "its node second-"),
    "stuck": ("scarce: in backoff after failed scale-up", "stock is 0"),
    "huge": (f"requests {planted.HUGE_CPUS} CPUs",),
    "queue": ("small: max node group size reached",),
    "patient": (r"wait\.boot \d+\.", "its node slow-"),
}
SAYS_LIVE: Final = {"stuck": ("scarce: .*stock is 0",)}
"""Of a request and a refusal in one second, Events don't show which was first."""
SAYS_THE_REAL_ONE: Final = {
    "apart": ("fits the pod: .*didn't match pod anti-affinity rules",),
    "kept": ("PodDisruptionBudget default/kept allows no eviction",),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recording in `out`, and in `live` what was said of each pod meanwhile."""
    directory = tmp_path_factory.mktemp("why")
    (directory / "live").mkdir()
    process = autoscaler_in(directory)
    process["clusterAutoscaler"]["flags"] = {"expander": "price", **planted.BACKOFF}
    if REAL:
        process["clusterAutoscaler"]["binary"] = REAL
    requested = {"wait": "kng/slow --for=jsonpath={.status.pendingReplicas}=1"}
    boots = {"after": requested, **_asked(directory, "boots", ["patient"])}
    runs = {"figure": "pods.running", "of": {"workload": "patient"}, "atLeast": 1}
    path = directory / "scenario.yaml"
    scenario = {
        "apply": [{"object": each} for each in planted.objects()],
        "workloads": [*planted.workloads()],
        "processes": [process],
        "timeline": [boots, {"after": runs, "delay": "5s", **_asked(directory, "end", asked())}],
        "until": {"settledFor": "1s", "atMost": "4m"},
        "expect": [
            {"figure": "pods.pending", "equals": 4},
            {"figure": "pods.running", "of": {"workload": "fallback"}, "equals": 1},
            *([{"figure": "nodes.final", "of": {"group": "guarded"}, "equals": 2}] if REAL else []),
        ],
    }
    path.write_text(yaml.safe_dump(scenario))
    done = play(path, directory / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def asked() -> list[str]:
    return [*SAYS, *(SAYS_THE_REAL_ONE if REAL else ())]


def _asked(directory: Path, when: str, names: list[str]) -> dict[str, Any]:
    """A step that keeps what is said of the cluster."""
    command = [*WHY, "--kubeconfig=$(KUBECONFIG)"]
    lines = [
        f"{shlex.join(command)} {name}-0 > {directory}/live/{name}-{when} 2>&1" for name in names
    ]
    return {"run": {"command": ["sh", "-c", "\n".join([f"cd {ROOT}", *lines, "true"])]}}


def lacking(patterns: tuple[str, ...], said: str) -> list[str]:
    return [each for each in patterns if not re.search(each, said)]


@pytest.mark.parametrize("name", asked())
def test_it_says_the_planted_cause(run: Path, name: str) -> None:
    patterns = {**SAYS, **SAYS_THE_REAL_ONE}[name]
    done = subprocess.run(
        [*WHY, str(run / "out"), f"{name}-0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert lacking(patterns, done.stdout) == [], done.stdout
    said = (run / "live" / f"{name}-end").read_text()
    assert lacking(SAYS_LIVE.get(name, patterns), said) == [], said


def test_it_says_how_long_a_node_took(run: Path) -> None:
    """As long as is planted, and longer only if it did take longer."""
    with gzip.open(run / "out" / "recording.jsonl.gz") as recording:
        lines = [json.loads(line) for line in recording]
    nodes = (line for line in lines if line.get("node", "").startswith("slow-"))
    usable = next(line for line in nodes if line["is"]["ready"])
    took = usable["t"] - usable["is"]["requested"]
    done = subprocess.run(
        [*WHY, str(run / "out"), "patient-0"], capture_output=True, text=True, check=True
    )
    for said in (done.stdout, (run / "live" / "patient-end").read_text()):
        (seconds,) = re.findall(r"wait\.boot (\d+)\.", said)
        # Stamps are of whole seconds.
        assert planted.BOOT_SECONDS - 1 <= int(seconds) <= took + 1, said


def test_it_says_that_a_node_boots(run: Path) -> None:
    said = (run / "live" / "patient-boots").read_text()
    assert lacking(("slow", "requested"), said) == [], said


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with strange_cluster(tmp_path_factory.mktemp("stranger"), autoscaler=REAL) as kubectl:
        yield kubectl


def test_it_says_so_on_a_cluster_of_others(stranger: Kubectl) -> None:
    small = {POOL: "stranger-small"}
    stranger.apply(waiting("huge", cpu=str(planted.HUGE_CPUS)))
    stranger.apply(waiting("queue", cpu="3", nodeSelector=small))
    expected = {"huge": "Insufficient cpu", "queue": "Insufficient cpu"}
    if REAL:
        expected["queue"] = "max node group size reached"
    for pod, cause in expected.items():
        _is_said(stranger, pod, cause)


def _is_said(kubectl: Kubectl, pod: str, cause: str) -> None:
    command = [*WHY, pod, f"--kubeconfig={kubectl.kubeconfig}"]

    def says() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    eventually(says, lambda text: cause in text, describe=f"{pod}: {cause}", interval=2.0)
