"""`kwok-operator rehearse --check` and `--schema`, and the scenarios that come along."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.cli.main import main
from kwok_operator.comparison.folders import ComparisonFolder
from kwok_operator.comparison.plan import ComparisonPlan
from kwok_operator.errors import KwokOperatorError
from kwok_operator.rehearsal import rehearse as rehearsal
from kwok_operator.rehearsal.outputs import ignored_folder
from kwok_operator.rehearsal.scenario.autoscaler import FAST, autoscaler_flags
from kwok_operator.rehearsal.scenario.process import ClusterAutoscaler
from kwok_operator.rehearsal.scenario.scenariofile import read_scenario
from kwok_operator.rehearsal.scenario.surroundings import UnusableReferenceError
from kwok_operator.rehearsal.surroundings import LocalSurroundings
from tests.fakes.jsonschema import refusals
from tests.fakes.rehearsed import judge, run
from tests.fakes.scenarios import GROUP, scenario

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "deploy" / "scenarios").glob("*.yaml"))
SMOKE = ROOT / "deploy" / "scenarios" / "smoke.yaml"


def test_the_page_shows_what_the_smoke_test_prints() -> None:
    smoke = read_scenario(SMOKE.name, SMOKE.read_text()).scenario
    assert smoke is not None
    expected = smoke.expect
    shown = (ROOT / "docs" / "rehearsals.md").read_text()
    held = [line for line in shown.splitlines() if line.startswith("held   ")]
    assert [line.rpartition(": ")[0] for line in held] == [f"held   {each}" for each in expected]
    assert f"passed: {len(held)} of {len(held)} expectations held" in shown


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_those_that_come_along_are_right(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    text = path.read_text()
    value = yaml.safe_load(text)
    command = "compare" if "arms" in value else "rehearse"
    assert main([command, "--check", str(path)]) == 0, capsys.readouterr().err
    assert path.stem in capsys.readouterr().out
    assert len(text.splitlines()) <= 70
    assert len(value["teaches"]) > 30
    assert schema_refuses(value) == []


def schema_refuses(value: Any) -> list[str]:
    from kwok_operator.cli.rehearsing import schema

    whole: dict[str, Any] = schema()
    return refusals(value, whole, whole)


@pytest.mark.parametrize(
    "parts",
    [
        {"aply": []},
        {"expect": []},
        {"until": {"atMost": "5 m"}},
        {"workloads": [{"kind": "Deployment"}]},
        {"workloads": [{"name": "a", "count": 0}]},
        {"apply": [{"path": "a", "object": {}}]},
        {"expect": [{"figure": "a", "when": "never"}]},
        {"cluster": {"kubernetes": 1.36}},
        {"begin": "at once"},
        {"steadyWithin": "0"},
        {"processes": [{"name": "a", "karpenter": {"nodePools": "pools"}}]},
    ],
)
def test_the_schema_refuses_what_is_wrong(parts: dict[str, Any]) -> None:
    assert schema_refuses(scenario()) == []
    assert schema_refuses(scenario(**parts))


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["required"] == ["expect"]
    assert "x-kubernetes" not in json.dumps(printed)


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(value))
    return path


def test_what_is_wrong_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.yaml", scenario(until={"atMost": "soon"}))
    assert main(["rehearse", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "soon" in text)
    assert f"{path}:{line}: until.atMost: " in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "SCENARIO"),
        (["--check"], "SCENARIO"),
        (["gone.yaml"], "gone.yaml"),
        (["."], "is a folder"),
        (["a\0b"], "no name of a file"),
        (["/dev/null"], "is empty"),
        (["--binary=x", "a.yaml"], "--binary"),
        (["--clear"], "--clear"),
        (["--clear", "--kubeconfig=a", "a.yaml"], "--clear"),
        (["--binary=x=a", "--binary=x=b", "a.yaml"], "given twice"),
    ],
)
def test_what_can_t_be_checked(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rehearse", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/within"])
def test_an_output_that_can_t_be_written_is_reported_before_anything_starts(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["rehearse", f"--output={tmp_path / place}", str(SMOKE)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path / place) in said and "--output" in said


def test_what_was_left_behind_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def played(*_: Any, **__: Any) -> None:
        raise rehearsal.LeftBehindError(KwokOperatorError("it stays"), judge(run()))

    monkeypatch.setattr(rehearsal, "rehearse", played)
    assert main(["rehearse", f"--output={tmp_path}", str(SMOKE)]) == 1
    said = capsys.readouterr()
    assert "passed" in said.out and "it stays" in said.err


@pytest.mark.parametrize("command", [["rehearse"], ["compare", "--runs=2"]])
def test_a_binary_that_the_scenario_does_not_name_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path / "a.yaml",
        scenario(
            processes=[{"name": "ca", "clusterAutoscaler": {}}],
            timeline=[{"at": "1s", "run": {"command": ["tool"]}}],
            arms={"a": {}, "b": {"until": {"atMost": "1m"}}} if "compare" in command else None,
        ),
    )
    given = [f"--binary={name}={sys.executable}" for name in ("cluster-autoscaler", "tool")]
    assert main([*command, "--check", *given, str(path)]) == 0
    assert main([*command, "--check", "--binary=cluster-autoscalr=/a", str(path)]) == 2
    said = "--binary: 'cluster-autoscalr' is no program of this scenario; did you mean cluster-"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", [["rehearse"], ["compare", "--runs=2"]])
def test_a_check_says_what_it_could_not_check_without_the_programs(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    processes = [
        {"name": "ca", "clusterAutoscaler": {"binary": "./ca"}},
        {"name": "k", "karpenter": {}, "starts": "byTimeline"},
        {"name": "own", "command": ["no-such-program"]},
    ]
    parts = {
        "processes": processes,
        "timeline": [{"at": "1s", "start": "k"}],
        "arms": {"a": {}, "b": {"until": {"atMost": "1m"}}} if "compare" in command else None,
    }
    path = write(tmp_path / "s.yaml", scenario(**parts))
    monkeypatch.setenv("PATH", "")
    assert main([*command, "--check", str(path)]) == 0
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "not checked" in each)
    assert "./ca, karpenter, no-such-program: not on this machine; NodePools" in line
    wrong = write(tmp_path / "wrong.yaml", scenario(**{**parts, "until": {"settledFor": "20m"}}))
    assert main([*command, "--check", str(wrong)]) == 2
    assert main(["rehearse", "--check", f"--binary=karpenter={tmp_path / 'no'}", str(path)]) == 2


def test_the_fast_flags_are_those_of_the_docs() -> None:
    page = (ROOT / "docs" / "cluster-autoscaler.md").read_text()
    table = page.partition("## Flags of cluster-autoscaler")[2].partition("\n\nKeep ")[0]
    told: dict[str, str] = {}
    for row in table.splitlines():
        if row.startswith("| `--"):
            names, _, values = (cell.strip().replace("`", "") for cell in row.split("|")[1:4])
            told |= dict(zip(names.split(", "), values.split(", "), strict=True))
    assert told == {f"--{name}": value for name, value in FAST.items()}


def test_a_scenario_s_flags_win() -> None:
    wanted = ClusterAutoscaler.model_validate({"flags": {"scan-interval": "7s", "v": 4}})
    flags = autoscaler_flags(
        wanted, cloud_config="c", kubeconfig="k", namespace="n", address="127.0.0.1:1"
    )
    assert [flag for flag in flags if "scan-interval" in flag] == ["--scan-interval=7s"]
    assert {"--v=4", "--kubeconfig=k", "--namespace=n", "--leader-elect=false"} <= set(flags)
    slow = ClusterAutoscaler.model_validate({"values": "production"})
    same = autoscaler_flags(slow, cloud_config="", kubeconfig="", namespace="", address="")
    assert not [flag for flag in same if "scan-interval" in flag]
    balancing = {"balancing-ignore-label": "tier"}
    own = ClusterAutoscaler.model_validate({"flags": balancing})
    flags = autoscaler_flags(own, cloud_config="", kubeconfig="", namespace="", address="")
    assert [flag for flag in flags if "balancing" in flag] == ["--balancing-ignore-label=tier"]


def test_no_default_folder_is_an_untracked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = ignored_folder("two arms")
    no_arms: Any = ()
    # A comparison may go into it: it is as good as an empty one.
    ComparisonFolder(folder).check(ComparisonPlan(name="two arms", arms=no_arms))
    git = ("git", "-C", str(tmp_path))
    subprocess.run([*git, "init", "-q"], check=True)
    (folder / "verdict.json").write_text("{}")
    assert subprocess.check_output([*git, "status", "--porcelain"]) == b""


@pytest.mark.parametrize("output", [None, "a/b"])
def test_nothing_is_left_where_nothing_was_played(
    output: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "s.yaml", scenario(workloads=None))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    arguments = ["rehearse", "--kubeconfig=/gone", str(path)]
    assert main([*arguments, *([f"--output={output}"] if output else [])]) == 2
    assert [*Path().rglob("*")] == []


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "s.yaml", scenario(workloads=None))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".gitignore").touch()
    assert main(["rehearse", "--kubeconfig=/gone", f"--output={tmp_path / 'out'}", str(path)]) == 2
    assert [each.name for each in (tmp_path / "out").iterdir()] == [".gitignore"]


def test_what_is_empty_names_a_remedy_that_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "s.yaml", {**scenario(), "expect": []})
    assert main(["rehearse", "--check", str(path)]) == 2
    said = capsys.readouterr().err
    assert "expect: is empty; give at least one entry" in said
    assert "leave it out" not in said


class TestSurroundings:
    def around(self, folder: Path, **given: Any) -> LocalSurroundings:
        write(folder / "scenario.yaml", scenario())
        return LocalSurroundings(folder / "scenario.yaml", **given)

    def names(self, folder: Path, path: str) -> list[str]:
        material = self.around(folder).material(path)
        return [str(Path(name).relative_to(folder)) for name, _ in material.texts]

    def refused(self, folder: Path, path: str) -> str:
        with pytest.raises(UnusableReferenceError) as refused:
            self.around(folder).material(path)
        return str(refused.value)

    def test_files_and_folders(self, tmp_path: Path) -> None:
        for name in ("a.yaml", "b/2.yml", "b/1.json", "b/notes.txt", "b/deeper/3.yaml"):
            write(tmp_path / name, GROUP)
        assert self.names(tmp_path, "a.yaml") == ["a.yaml"]
        assert self.names(tmp_path, "./b/") == ["b/1.json", "b/2.yml"]

    def test_a_kustomization(self, tmp_path: Path) -> None:
        for name in ("k/a.yaml", "k/b.yaml", "base/c.yaml"):
            write(tmp_path / name, GROUP)
        write(tmp_path / "base/kustomization.yaml", {"resources": ["c.yaml"]})
        write(tmp_path / "k/kustomization.yaml", {"resources": ["b.yaml", "../base"]})
        assert self.names(tmp_path, "k") == ["k/b.yaml", "k/../base/c.yaml"]
        assert self.around(tmp_path).material("k").complete
        write(tmp_path / "k/kustomization.yaml", {"resources": ["b.yaml"], "patches": []})
        assert not self.around(tmp_path).material("k").complete

    def test_what_is_large_is_not_looked_into(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a.yaml", "b.yaml"):
            size = len(write(tmp_path / name, GROUP).read_bytes())
        monkeypatch.setattr("kwok_operator.rehearsal.surroundings.MAX_BYTES", size + 1)
        around = self.around(tmp_path)
        assert around.material("a.yaml").complete
        material = around.material("b.yaml")
        assert (material.texts, material.complete) == ((), False)

    def test_what_can_t_be_applied(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "odd.yaml").write_bytes(b"\xff\xfe")
        for name, other in (("one", "two"), ("two", "one")):
            write(tmp_path / name / "kustomization.yaml", {"resources": [f"../{other}"]})
        write(tmp_path / "bare/kustomization.yaml", {"resources": ["../empty"]})
        for path, said in {
            "gone.yaml": f"isn't there; it would be {tmp_path}",
            "empty": "has no file that ends in",
            ".": "holds the scenario itself",
            "scenario.yaml": "holds the scenario itself",
            "one": "leads back to itself",
            "bare": "has no kustomization.yaml",
            "one/kustomization.yaml": "name its folder",
            "https://a.example/b.yaml": "download it",
            "odd.yaml": "UTF-8",
            "/dev/zero": "neither a file nor a folder",
            "a\0b": "isn't there",
            "x" * 5000: "can't be read",
        }.items():
            assert said in self.refused(tmp_path, path), path

    def test_programs(self, tmp_path: Path) -> None:
        for name in ("bin/own", "there/listed", "given"):
            write(tmp_path / name, "").write_text("#!/bin/sh\n")
        for name in ("bin/own", "bin/text", "there/listed", "given"):
            path = tmp_path / name
            path.touch()
            path.chmod(0o755)
        write(tmp_path / "bin/plain", "")
        around = self.around(
            tmp_path,
            binaries={"ca": tmp_path / "given", "no": tmp_path / "bin/plain"},
            search_path=str(tmp_path / "there"),
        )
        for name in ("ca", "listed", "bin/own", "./bin/own", "kubectl"):
            around.check_program(name)
        assert around.program("bin/own") == tmp_path / "bin/own"
        for name, said in {
            "no": f"--binary no={tmp_path / 'bin/plain'}: it has no right to be executed",
            "own": "is no program on PATH",
            "bin/plain": "chmod +x",
            "bin/text": f"{tmp_path / 'bin/text'} is neither a program for this machine nor a",
            "bin/gone": "isn't there",
            "bin": "is no program on PATH",
            "./bin": "is no file",
            "": "is no program",
            "a\0b": "is no program",
        }.items():
            with pytest.raises(UnusableReferenceError) as refused:
                around.check_program(name)
            assert said in str(refused.value)
            assert around.program(name) is None
        around.check_program(sys.executable)

    def test_a_check_needs_no_program_that_is_only_named(self, tmp_path: Path) -> None:
        gone = {"given": tmp_path / "gone"}
        around = self.around(tmp_path, programs_later=True, binaries=gone, search_path="")
        write(tmp_path / "bin/plain", "")
        for name in ("cluster-autoscaler", "bin/gone"):
            around.check_program(name)
            assert around.lacks(name)
        for name in ("given", "bin/plain"):
            with pytest.raises(UnusableReferenceError):
                around.check_program(name)
            assert not around.lacks(name)
        assert not around.lacks("kubectl")
        assert not self.around(tmp_path, search_path="").lacks("cluster-autoscaler")

    def test_traces(self, tmp_path: Path) -> None:
        around = self.around(tmp_path)
        around.check_trace(str(ROOT / "deploy" / "samples" / "traces" / "rush-hour.jsonl"))
        for name in ("gone.jsonl", "scenario.yaml", "a\0b", "."):
            with pytest.raises(UnusableReferenceError):
                around.check_trace(name)
