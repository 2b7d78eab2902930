"""The GitHub Action: inputs become a command, what comes of it a summary, outputs, an exit code."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.cli import action
from kwok_operator.cli.main import main
from kwok_operator.errors import SettingsError

ACTION = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())
HOSTILE = "--keep $(id) `id` ' \" ; ${{ x }} <<EOF"


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ({"SCENARIO": "a.yaml"}, "rehearse --output=kwok-rehearsal -- a.yaml"),
        (
            {"SCENARIO": " a ", "OUTPUT": "o", "BINARIES": "ca=./ca\n\n b=c\n", "RUNS": ""},
            "rehearse --output=o --binary=ca=./ca --binary=b=c -- a",
        ),
        (
            {"COMPARE": "a\nb\n", "RUNS": "8", "FAIL_IF": "x\ny", "FIGURES": "f,g"},
            "compare --output=kwok-rehearsal --runs=8 --figures=f,g --fail-if=x --fail-if=y -- a b",
        ),
    ],
)
def test_inputs_become_a_command(inputs: dict[str, str], wanted: str) -> None:
    assert action.arguments(inputs) == wanted.split(" ")


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({}, "scenario"),
        ({"SCENARIO": "a", "COMPARE": "b"}, "scenario"),
        ({"SCENARIO": "a", "RUNS": "2"}, "runs"),
        ({"SCENARIO": "a", "FAIL_IF": "x"}, "fail-if"),
        ({"SCENARIO": "a", "FIGURES": "x"}, "figures"),
    ],
)
def test_inputs_that_do_not_fit_together_are_reported(inputs: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        action.arguments(inputs)


def test_no_input_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for scenario in ("--schema", HOSTILE):
        assert main(action.arguments({"SCENARIO": scenario, "OUTPUT": HOSTILE})) == 2
        assert scenario in capsys.readouterr().err


def step_of(name: str) -> dict[str, Any]:
    (found,) = [step for step in ACTION["runs"]["steps"] if step.get("id") == name]
    return dict(found)


def played(folder: Path, command: action.Command, **inputs: str) -> tuple[int, str, dict[str, str]]:
    """Exit code, summary, outputs as the runner reads them."""
    environ = {f"INPUT_{name}": value for name, value in inputs.items()}
    files = {name: folder / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    code = action.run({**environ, **{name: str(path) for name, path in files.items()}}, command)
    outputs = re.findall(
        r"^(\S+?)<<(\S+)\n(.*?)\n\2$", files["GITHUB_OUTPUT"].read_text(), re.DOTALL | re.MULTILINE
    )
    return code, files["GITHUB_STEP_SUMMARY"].read_text(), {n: value for n, _, value in outputs}


@pytest.mark.parametrize(("code", "verdict"), [(0, "passed"), (1, "failed"), (130, "not-played")])
def test_what_came_of_it_is_handed_on(tmp_path: Path, code: int, verdict: str) -> None:
    output = tmp_path / "a\nverdict<<x"

    def command(argv: Sequence[str]) -> int:
        output.mkdir()
        (output / "summary.md").write_text("### it\n")
        return code

    found = played(tmp_path, command, SCENARIO="s", OUTPUT=str(output))
    assert found == (code, "### it\n\n", {"verdict": verdict, "folder": str(output)})


def test_where_nothing_was_played_the_summary_says_what_was_said(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    earlier = output / "summary.md"
    earlier.write_text("of an earlier step, or the project's own")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("expect: []\n")
    code, summary, outputs = played(tmp_path, main, SCENARIO=str(scenario), OUTPUT=str(output))
    assert (code, outputs["verdict"]) == (2, "not-played")
    assert re.search(r"^    .*s\.yaml:1: expect", summary, re.MULTILINE)
    assert "earlier" not in summary and "earlier" in earlier.read_text()


def test_an_output_that_is_no_folder_is_reported(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.write_text("")
    scenario = tmp_path / "s.yaml"
    scenario.write_text("expect: [{figure: nodes.total, equals: 0}]\n")
    code, summary, outputs = played(tmp_path, main, SCENARIO=str(scenario), OUTPUT=str(output))
    assert (code, outputs["verdict"]) == (2, "not-played")
    assert "--output" in summary


def test_printed_text_is_no_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def command(argv: Sequence[str]) -> int:
        print("::error::planted")
        sys.exit(2)

    assert played(tmp_path, command, SCENARIO="s")[0] == 2
    first, planted, last = capsys.readouterr().out.splitlines()
    token = first.removeprefix("::stop-commands::")
    assert len(token) == 32
    assert (planted, last) == ("::error::planted", f"::{token}::")


def test_the_action_gives_inputs_to_no_shell() -> None:
    steps: list[dict[str, Any]] = ACTION["runs"]["steps"]
    assert not [step for step in steps if "${{" in step.get("run", "")]
    play = step_of("play")
    assert "inputs." not in str([step for step in steps if step != play])
    given = {name: f"INPUT_{name.upper().replace('-', '_')}" for name in ACTION["inputs"]}
    assert play["env"] == {env: f"${{{{ inputs.{name} }}}}" for name, env in given.items()}
    assert ACTION["inputs"]["output"]["default"] == action.folder({})


def test_tools_of_another_kubernetes_are_kept_too(tmp_path: Path) -> None:
    tools, output = tmp_path / "the tools' $(x)", tmp_path / "output"

    def key(*of: str) -> str:
        for name in of:
            (tools / name).parent.mkdir(parents=True, exist_ok=True)
            (tools / name).touch()
        output.write_text("")
        environ = {"TOOLS": str(tools), "WANTED": "w", "GITHUB_OUTPUT": str(output)}
        script = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]
        subprocess.run([*script, step_of("kept")["run"]], env={**os.environ, **environ}, check=True)
        return output.read_text()

    assert key() == ""
    of_one = key("etcd/v3/etcd", "kubernetes-1.36/v1.36.3/kubectl")
    assert re.fullmatch(r"key=kwok-operator-w-[0-9a-f]{64}\n", of_one)
    assert key() == of_one
    of_both = key("kubernetes-1.35/v1.35.1/kubectl")
    assert of_both not in ("", of_one)
    # What is restored is the newest that begins like this: whatever versions that has.
    restored, last = step_of("cache")["with"], ACTION["runs"]["steps"][-1]
    assert restored["restore-keys"] == "kwok-operator-${{ steps.install.outputs.wanted }}-"
    assert last["with"]["key"] == "${{ steps.kept.outputs.key }}"
