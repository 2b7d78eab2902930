"""`kwok-operator compare`, as people run it: arms whose runs share a control plane."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.rehearsals import cluster_of, is_there

SMALL = {"shape": {"cpu": 1}}
FIGURE = "pendingSeconds.p50"
COMMAND = [
    *(sys.executable, "-m", "kwok_operator", "compare"),
    *("--no-repeat", "--no-warm-up", "--runs=8", "--order-seed=10"),  # a comes first
    *(f"--figures={FIGURE}", f"--fail-if={FIGURE} worse than 10%"),
]
PATIENCE = 1440.0


def group(name: str, size: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name},
        "spec": {"targetSize": size, **spec},
    }


def late(delay: str) -> dict[str, Any]:
    cloud = {"provisioningDelay": {"fixed": delay}}
    return {"object": group("a", 0, template={"shape": {"cpu": 4}}, cloud=cloud)}


def scenario(directory: Path) -> Path:
    """Three nodes are asked for when the clock starts, and six pods wait for them."""
    path = directory / "two.yaml"
    given = {
        # Without any node the scheduler tries again at times of its own, not when nodes come.
        "apply": [{"object": group("full", 1, template=SMALL)}, late("4s")],
        "workloads": [{"name": "web", "kind": "Pods", "count": 6, "pods": {"cpu": "1500m"}}],
        "timeline": [{"at": "0s", "scale": {"what": "kng/a", "replicas": 3}}],
        "until": {"condition": {"figure": "pods.running", "atLeast": 6}, "atMost": "90s"},
        "expect": [{"figure": "pods.running", "equals": 6}],
        "arms": {"a": {}, "b": {"apply": [late("6s")]}},
    }
    path.write_text(yaml.safe_dump(given))
    return path


def compare(path: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, f"--output={output}", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def kill_after_a_run(path: Path, output: Path) -> str:
    """Kills it in its second run; returns its cluster."""
    command = [*COMMAND, f"--output={output}", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if sum("rehearsing" in each for each in said) == 2:
                break
        process.kill()
    return cluster_of("".join(said))


def told(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "comparison.json").read_text())
    return found


@pytest.mark.timeout(PATIENCE)
def test_a_planted_slow_down_is_worse_also_after_a_kill(tmp_path: Path) -> None:
    output = tmp_path / "slower"
    path = scenario(tmp_path)
    killed = kill_after_a_run(path, output)
    first = output / "runs" / "1-a" / "recording.jsonl.gz"
    written = first.stat().st_mtime_ns

    done = compare(path, output)
    assert done.returncode == 1, done.stdout + done.stderr
    assert first.stat().st_mtime_ns == written
    assert not is_there(killed)
    found = told(output)
    (effect,) = found["effects"]
    assert effect["verdict"] == "worse", done.stdout
    assert 0.1 < effect["change"] < 0.6
    assert found["complete"] and found["failIf"][0]["holds"]
    held = {check["what"]: check["held"] for check in found["fairness"]}
    assert held["seeds"] and held["arrivals as planned"] and held["state at the beginning"]
    assert all((output / name).is_file() for name in ("comparison.html", "summary.md"))


@pytest.mark.timeout(PATIENCE)
def test_three_arms(tmp_path: Path) -> None:
    """They have 1, 1 and 3 nodes; two rounds show the means, and no verdict."""
    nodes = {"a": 1, "b": 1, "c": 3}
    given = {
        "until": {"atMost": "2s"},
        "expect": [{"figure": "nodes.ready", "atLeast": 1}],
        "arms": {
            name: {"apply": [{"object": group("g", n, template=SMALL)}]}
            for name, n in nodes.items()
        },
    }
    path, output = tmp_path / "three.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(given))
    flags = ["--runs=2", "--no-warm-up", "--no-repeat", "--figures=nodes.max", f"--output={output}"]
    command = [sys.executable, "-m", "kwok_operator", "compare", *flags, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = told(output)
    assert found["complete"] and len(found["runs"]) == 6
    assert [(each["arm"], each["a"], each["b"]) for each in found["effects"]] == [
        ("b", 1, 1),
        ("c", 1, 3),
    ]
    held = {check["what"]: check["held"] for check in found["fairness"]}
    assert held["seeds"] and held["arrivals as planned"]
    assert not held["state at the beginning"]  # c begins with more nodes
    assert "c does to each figure, beside a" in (output / "comparison.html").read_text()
