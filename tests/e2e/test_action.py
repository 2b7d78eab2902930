"""The GitHub Action's step that plays, run as a runner would: by bash, inputs as variables.

What installs the package and keeps the tools between jobs is the runner's, and isn't run here.
"""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.deploying import ROOT
from tests.fakes.docs import files_of

BASH = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c")


@pytest.fixture
def runner_temp(tmp_path: Path) -> Path:
    """As the first step leaves it; its python is this one."""
    program = tmp_path / "runner" / "kwok-operator" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path / "runner"


@pytest.mark.parametrize("verdict", ["passed", "failed"])
def test_a_scenario_is_played_and_summed_up(
    runner_temp: Path, tmp_path: Path, verdict: str
) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    (play,) = [step for step in steps if step.get("id") == "play"]
    name = f"$(touch planted) {verdict}.yaml"
    text = files_of("ci.md")["scenario.yaml"]
    wanted = {"passed": "equals: 10", "failed": "equals: 9"}[verdict]
    (tmp_path / name).write_text("name: it\n" + text.replace("equals: 10", wanted))
    # A checkout may have any files.
    (tmp_path / "signal.py").write_text("raise SystemExit(99)")
    inputs = {"scenario": name, "output": "out put"}
    given = {
        env: inputs.get(re.sub(r"^\$\{\{ inputs\.|\s*\}\}$", "", value), "")
        for env, value in play["env"].items()
    }
    files = {each: tmp_path / each for each in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    environ = {**os.environ, **given, **{each: str(path) for each, path in files.items()}}
    done = subprocess.run(
        [*BASH, play["run"]],
        env={**environ, "RUNNER_TEMP": str(runner_temp)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == (0 if verdict == "passed" else 1), done.stdout + done.stderr
    summary = files["GITHUB_STEP_SUMMARY"].read_text()
    assert summary.startswith(f"### it: {verdict}\n"), summary
    assert re.search(r"^\| (held|\*\*failed\*\*) \| pods.running: exactly", summary, re.MULTILINE)
    assert f"\n{verdict}\n" in files["GITHUB_OUTPUT"].read_text()
    assert {"verdict.json", "junit.xml", "report.html"} <= set(os.listdir(tmp_path / "out put"))
    assert not (tmp_path / "planted").exists()
