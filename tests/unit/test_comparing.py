"""`kwok-operator compare`, with rehearsals that take no time."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.cli.main import main
from kwok_operator.comparison import running
from kwok_operator.comparison.load import LoadMeter
from kwok_operator.comparison.loading import load_arms
from kwok_operator.controlplane import ControlPlaneError
from kwok_operator.rehearsal.surroundings import MAX_BYTES, LocalSurroundings
from tests.fakes.compared import PENDING, FakeRehearse
from tests.fakes.scenarios import GROUP, WEB, scenario

FOUR = [{**WEB, "count": 4}]
ARMS = {"a": {}, "b": {"until": {"atMost": "9m"}}}
ORDER = "10"
"""Draws a b, b a, a b, and b a for each repeat."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRehearse:
    found = FakeRehearse()
    monkeypatch.setattr(running, "rehearse", found)
    monkeypatch.setattr("kwok_operator.rehearsal.keptcluster.kept_cluster", found.keep)
    monkeypatch.setattr("kwok_operator.controlplane.find_tools", lambda *_, **__: None)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "two.yaml", scenario(seed="s", arms=ARMS, workloads=FOUR))


def write(path: Path, value: Any) -> Path:
    path.write_text(yaml.safe_dump(value))
    return path


def compare(path: Path, *flags: str, runs: int = 2, warm_up: bool = False) -> int:
    output = f"--output={path.parent / 'out'}"
    always = [f"--order-seed={ORDER}", *([] if warm_up else ["--no-warm-up"])]
    return main(["compare", f"--runs={runs}", output, *always, str(path), *flags])


def make_busy(monkeypatch: pytest.MonkeyPatch, fake: FakeRehearse, *folders: str) -> None:
    """While runs go on whose folders these are, others use the machine."""
    monkeypatch.setattr(
        LoadMeter, "others", property(lambda _: 0.9 if fake.order[-1] in folders else 0.0)
    )


def told(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path.parent / "out" / "comparison.json").read_text())
    return found


def test_runs_are_played_in_turn(path: Path, fake: FakeRehearse) -> None:
    assert compare(path) == 0
    assert fake.order == ["1-a", "1-b", "2-b", "2-a"]
    assert fake.seeds == ["s-1", "s-1", "s-2", "s-2"]
    found = told(path)
    assert found["complete"] and found["verdict"] == "undecided: 6 more pairs are needed"
    assert all(check["held"] for check in found["fairness"][:4]), found["fairness"]
    assert {each["what"] for each in found["differs"]} == {"until", "kubernetes"}
    for name in ("comparison.html", "summary.md", "runs/2-b/report.html", "runs/2-b/verdict.json"):
        assert (path.parent / "out" / name).is_file()


@pytest.mark.parametrize(
    ("cluster", "shared"),
    [
        ({"flags": {"kwok-operator": {"node-workers": 4}}}, True),
        ({"flags": {"kube-scheduler": {"v": "4"}}}, False),
        ({"kubernetes": "1.35"}, False),
    ],
    ids=["operator's flags", "scheduler's flags", "version"],
)
def test_arms_with_one_control_plane_share_it(
    path: Path, fake: FakeRehearse, cluster: dict[str, Any], shared: bool
) -> None:
    write(path, scenario(arms={"a": {}, "b": {"cluster": cluster}}, workloads=FOUR))
    assert compare(path) == 0
    assert fake.clusters == ["comparison-0" if shared else None] * 4


def test_a_run_that_ends_the_control_plane_ends_not_the_comparison(
    path: Path, fake: FakeRehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ending(*given: Any, **named: Any) -> Any:
        played = await fake(*given, **named)
        fake.dead += ["kube-apiserver"] if named["folder"].name == "1-a" else []
        return played

    monkeypatch.setattr(running, "rehearse", ending)
    write(path, scenario(arms={"a": {}, "b": {}}, workloads=FOUR))
    assert compare(path) == 0
    assert fake.clusters == ["comparison-0", *["comparison-1"] * 3]


def test_three_arms_are_played_in_rounds(
    path: Path, fake: FakeRehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, scenario(seed="s", arms={**ARMS, "c": {}}, workloads=FOUR))
    make_busy(monkeypatch, fake, "2-a")
    fake.breaks_at = 5
    assert compare(path) == 130
    assert compare(path) == 0
    drawn = json.loads((path.parent / "out" / "registered.json").read_text())["order"]
    rounds = [[f"{n}-{name}" for name in order] for n, order in enumerate(drawn, 1)]
    again = [each for each in fake.order if each.startswith("again-2-")]
    assert fake.order == [*rounds[0], *rounds[1][:2], *rounds[1][1:], *again]
    assert sorted(again) == ["again-2-a", "again-2-b", "again-2-c"]
    found = told(path)
    assert found["complete"] and found["verdict"] == "undecided: 7 more pairs are needed"
    assert {run["folder"] for run in found["runs"] if run["pair"] == 2} == {
        f"runs/{each}" for each in again
    }
    assert all(check["held"] for check in found["fairness"]), found["fairness"]


def test_a_slow_down_is_found(path: Path, fake: FakeRehearse) -> None:
    fake.waits = lambda seed, arm: (2.0 + int(seed[-1]) / 10) * (1.3 if arm == "b" else 1)
    condition = "--fail-if=pendingSeconds.p95 worse than 10%"
    assert compare(path, condition, "--figures=pendingSeconds.p95", runs=8) == 1
    (effect,) = told(path)["effects"]
    assert effect["verdict"] == "worse"
    assert effect["change"] == pytest.approx(0.3, abs=0.01)


def test_an_arm_that_fails(path: Path, fake: FakeRehearse) -> None:
    fake.fails_in = "b"
    assert compare(path) == 1
    assert told(path)["verdict"].startswith("b fails: a failed in 0 of 2 runs, b failed in 2 of 2")


def test_what_can_t_be_decided_has_an_exit_code_of_its_own(
    path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.waits = lambda seed, arm: 2.0 + int(seed[-1]) / 10 * (3 if arm == "b" else 1)
    condition = f"--fail-if={PENDING} worse than 40%"
    assert compare(path, condition, f"--figures={PENDING}", runs=8) == 3
    assert "TOO NOISY TO TELL" in capsys.readouterr().out
    assert compare(path, condition, "--check", runs=8) == 0
    assert "UNDECIDED" not in capsys.readouterr().err
    assert compare(path, "--check", runs=7) == 0
    assert "UNDECIDED, before it starts" in capsys.readouterr().err
    assert told(path)["undecided"] and not told(path)["fails"]


def test_what_compares_nothing_is_no_success(path: Path, fake: FakeRehearse) -> None:
    assert compare(path, "--figures=gangs.completionSeconds.p50", runs=8) == 3
    assert told(path)["verdict"] == "nothing could be compared"


def test_it_goes_on_where_it_was(
    path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.breaks_at = 3
    assert compare(path) == 130
    assert "goes on from here" in capsys.readouterr().err
    assert [run["folder"] for run in told(path)["runs"]] == ["runs/1-a", "runs/1-b"]
    (path.parent / "out" / "runs" / "1-b" / "verdict.json").unlink()
    assert compare(path) == 0
    assert fake.order[3:] == ["1-b", "2-b", "2-a"]
    assert compare(path, runs=3) == 0
    assert fake.order[6:] == ["3-a", "3-b"]


def test_a_pair_on_a_busy_machine_is_repeated_whole(
    path: Path, fake: FakeRehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_busy(monkeypatch, fake, "1-b")
    assert compare(path) == 0
    assert fake.order == ["1-a", "1-b", "2-b", "2-a", "again-1-b", "again-1-a"]
    counted = {run["folder"]: run["repeated"] for run in told(path)["runs"]}
    assert counted == {
        "runs/again-1-b": True,
        "runs/again-1-a": True,
        "runs/2-b": False,
        "runs/2-a": False,
    }
    assert (path.parent / "out" / "runs" / "1-b" / "verdict.json").is_file()
    assert compare(path) == 0 and len(fake.order) == 6
    assert compare(path, f"--output={path.parent / 'other'}", "--no-repeat") == 0
    assert len(fake.order) == 10


def test_after_two_repeats_in_vain_it_repeats_no_more(
    path: Path,
    fake: FakeRehearse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(LoadMeter, "others", 0.9)
    assert compare(path, runs=4) == 0
    assert [each for each in fake.order if each.startswith("again")] == [
        "again-1-b",
        "again-1-a",
        "again-2-b",
        "again-2-a",
    ]
    assert "no more pairs are repeated" in capsys.readouterr().err
    (check,) = (each for each in told(path)["fairness"] if each["what"] == "quiet machine")
    assert not check["held"]
    assert "2 repeats were as busy" in check["said"] and "widens the intervals" in check["said"]
    assert compare(path, runs=4) == 0 and len(fake.order) == 12


def test_a_warm_up_does_not_count(
    path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.fails_in = "warm-up-b"
    assert compare(path, warm_up=True) == 0
    assert fake.order[:3] == ["warm-up-a", "warm-up-b", "1-a"]
    assert "run warm-up-b: FAILED" in capsys.readouterr().err
    found = told(path)
    assert [run["pair"] for run in found["runs"]] == [1, 1, 2, 2]
    assert [(run["folder"], run["passed"]) for run in found["warmUps"]] == [
        ("runs/warm-up-a", True),
        ("runs/warm-up-b", False),
    ]
    assert "warm-up, doesn" in (path.parent / "out" / "comparison.html").read_text()
    marked = json.loads((path.parent / "out" / "runs" / "warm-up-b" / "run.json").read_text())
    assert marked["counts"] is False


def test_broken_off_anywhere_it_counts_what_it_would_have(
    path: Path, fake: FakeRehearse, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_busy(monkeypatch, fake, "1-b")
    whole = path.parent / "whole"
    assert compare(path, f"--output={whole}", warm_up=True) == 0
    order = [*fake.order]
    found = json.loads((whole / "comparison.json").read_text())
    for at in (2, 4, 7, 8):  # a warm-up, a pair, a repeat, half a repeat
        fake.order.clear()
        fake.breaks_at = at
        assert compare(path, warm_up=True) == 130
        if at == 8:  # half of a repeat takes the place of nothing
            assert not any(run["repeated"] for run in told(path)["runs"])
        assert compare(path, warm_up=True) == 0
        # Beside the run that was broken off, only warm-ups are played twice.
        again = [each for each in fake.order if not each.startswith("warm-up")]
        assert [*dict.fromkeys(again)] == order[2:], at
        assert len(again) == len(order[2:]) + (at > 2), at
        assert told(path)["runs"] == found["runs"], at
        shutil.rmtree(path.parent / "out")


def test_what_is_judged_is_registered_first(
    path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]
) -> None:
    registered = path.parent / "out" / "registered.json"
    flags = [f"--figures={PENDING}", f"--fail-if={PENDING} worse than 10%"]
    fake.breaks_at = 3
    assert compare(path, "--figures=cost", warm_up=True) == 130
    # Nothing has been seen yet, so one may think again.
    assert compare(path, *flags, runs=8) == 0
    read = json.loads(registered.read_text())
    assert (read["figures"], read["runs"], read["orderSeed"]) == ([PENDING], 8, ORDER)
    assert read["order"][:3] == [["a", "b"], ["b", "a"], ["a", "b"]]
    before = registered.read_bytes()

    later = ["--figures=nodes.max", f"--fail-if={PENDING} worse than 50%"]
    assert compare(path, *later, runs=9) == 3  # a condition given later decides nothing
    assert registered.read_bytes() == before
    assert "UNDECIDED" not in capsys.readouterr().err.rpartition("goes on from here")[2]
    found = told(path)
    assert [each["figure"] for each in found["effects"]] == [PENDING]
    assert [each["figure"] for each in found["explored"]] == ["nodes.max"]
    assert [each["answer"] for each in found["failIf"]][1:] == ["explored"]
    (check,) = (each for each in told(path)["fairness"] if each["what"].startswith("registered"))
    assert not check["held"]
    assert "8 runs of each arm were registered, 9 are" in check["said"]
    assert "nodes.max" in check["said"] and "50%" in check["said"]
    assert compare(path, runs=2) == 0  # what was played isn't left out
    assert told(path)["pairs"] == 9

    assert compare(path, "--order-seed=other") == 2
    assert "--order-seed: other" in capsys.readouterr().err
    for content in ("", '{"runs": 5}'):
        registered.write_text(content)
        assert compare(path) == 2
        assert "registered.json" in capsys.readouterr().err


def test_a_folder_of_something_else(
    path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(path) == 0
    write(path, scenario(seed="s", workloads=FOUR, arms={**ARMS, "b": {"until": {"atMost": "8m"}}}))
    assert compare(path) == 2
    assert "another comparison" in capsys.readouterr().err
    other = path.parent / "other"
    other.mkdir()
    (other / "mine.txt").write_text("")
    assert compare(path, f"--output={other}") == 2
    assert compare(path, f"--output={path}") == 2
    assert len(fake.order) == 4


def test_what_a_scenario_names_is_part_of_it(tmp_path: Path, fake: FakeRehearse) -> None:
    """Runs of other files aren't mixed in; files that differ between the arms are listed."""
    files = {
        "two.yaml": scenario(
            seed="s",
            apply=["groups.yaml", "k", "large.yaml"],
            timeline=[{"at": "1s", "apply": ["timed"]}],
            processes=[
                {
                    "name": "mine",
                    "command": ["./program", "controller.py", "-c=controller.conf", "--log=log"],
                }
            ],
        ),
        "groups.yaml": GROUP,
        "k/kustomization.yaml": {
            "resources": ["map.yaml"],
            "patches": [{"path": "patch.yaml"}],
            "configMapGenerator": [{"name": "c", "envs": ["settings.env"]}],
        },
        "k/map.yaml": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}},
        "large.yaml": {"a": "b" * MAX_BYTES},
        **dict.fromkeys(("k/patch.yaml", "k/settings.env", "timed/later.yaml"), GROUP),
        **{name: {} for name in ("controller.py", "controller.conf", "program")},
    }
    for name, value in files.items():
        for folder in ("before", "after"):
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, value)
            if name == "program":
                path.write_text("#!/bin/sh\n")
                path.chmod(0o755)
    arms = [str(tmp_path / folder / "two.yaml") for folder in ("before", "after")]
    command = ["compare", "--runs=2", f"--output={tmp_path / 'out'}", *arms]
    assert main(command) == 0
    for name in [*files][1:]:
        path = tmp_path / "after" / name
        before = path.read_text()
        path.write_text(f"{before}# more\n")
        assert main(command) == 2, name
        path.write_text(before)
    write(tmp_path / "after" / "log", "which a program has written")
    assert load_arms([*map(Path, arms)], LocalSurroundings).arms[1].files.keys().isdisjoint({"log"})
    for name in ("k/patch.yaml", "large.yaml", "controller.py"):
        write(tmp_path / "after" / name, {**GROUP, "metadata": {"name": "other"}})
    (tmp_path / "after" / "program").write_text("#!/bin/sh\nexit 1\n")
    assert main([*command, f"--output={tmp_path / 'new' / 'out'}"]) == 0
    named = {each["what"] for each in told(tmp_path / "new" / "x")["differs"]}
    assert {"file k", "file large.yaml", "file controller.py", "program ./program"} <= named


def test_without_a_control_plane_nothing_starts(
    path: Path,
    fake: FakeRehearse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ControlPlaneError("there is no etcd; install it")

    monkeypatch.setattr("kwok_operator.controlplane.find_tools", fail)
    assert compare(path) == 2
    assert "there is no etcd" in capsys.readouterr().err
    assert fake.order == [] and not (path.parent / "out").exists()


def test_a_run_that_was_edited_or_can_t_be_read_is_played_again(
    path: Path, fake: FakeRehearse
) -> None:
    """As after a loss of power."""
    assert compare(path) == 0
    run = path.parent / "out" / "runs" / "1-b"
    changes: list[tuple[str, dict[str, Any]]] = [
        ("run.json", {"facts": {"others": "x"}}),
        ("run.json", {"facts": {"came": None}}),
        ("run.json", {"facts": {"versions": [1]}}),
        ("verdict.json", {"figures": {PENDING: "1"}}),
        ("verdict.json", {"figures": {PENDING: float("nan")}}),
        ("verdict.json", {"figures": {PENDING: 10**400}}),
        ("verdict.json", {"expectations": [1]}),
    ]
    texts = [
        (file, json.dumps({**json.loads((run / file).read_text()), **change}))
        for file, change in changes
    ]
    for file, text in [*texts, *(("run.json", text) for text in ("", "{", "[]", '"é'))]:
        fake.order.clear()
        (run / file).write_text(text, encoding="latin-1")
        assert compare(path) == 0
        assert fake.order == ["1-b"], (file, text)


def test_what_was_registered_is_not_edited_once_runs_were_seen(
    path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was judged: with other figures, or none (which ended in an exception), another order."""
    assert compare(path) == 0
    registered = path.parent / "out" / "registered.json"
    laid_down = json.loads(registered.read_text())
    changes: list[dict[str, Any]] = [
        {"compared": []},
        {"compared": ["cost"]},
        {"runs": 9},
        {"orderSeed": "x"},
        {"failIf": ["cost worse"]},
        {"repeatBusy": False},
    ]
    for change in changes:
        registered.write_text(json.dumps({**laid_down, **change}, indent=2) + "\n")
        assert compare(path) == 2, change
        assert "registered.json is none of this version, or was edited" in capsys.readouterr().err
    registered.write_text(json.dumps(laid_down, indent=2) + "\n")
    assert compare(path) == 0
    assert len(fake.order) == 4


def test_a_run_that_is_replaced_by_hand_is_reported(path: Path, fake: FakeRehearse) -> None:
    """Figures that were edited don't count, and a second look is no first one."""
    assert compare(path) == 0
    runs = path.parent / "out" / "runs"
    shutil.rmtree(runs / "1-a")
    better = json.loads((runs / "2-b" / "verdict.json").read_text())
    better["figures"][PENDING] = 0.001
    (runs / "2-b" / "verdict.json").write_text(json.dumps(better))
    assert compare(path) == 0
    assert fake.order[4:] == ["1-a", "2-b"]
    for _ in "ab":
        (check,) = (c for c in told(path)["fairness"] if c["what"].startswith("registered"))
        assert not check["held"] and "1-a, 2-b had been seen" in check["said"]
        assert compare(path) == 0 and len(fake.order) == 6


def test_whether_busy_pairs_are_repeated_is_registered(
    path: Path,
    fake: FakeRehearse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_busy(monkeypatch, fake, "1-b")
    assert compare(path, "--no-repeat") == 0
    assert compare(path) == 0  # looking first, and repeating then, would be a second look
    assert len(fake.order) == 4
    assert "busy pairs are not repeated" in capsys.readouterr().err


def test_pods_that_did_not_come_are_no_arrivals_as_planned(path: Path, fake: FakeRehearse) -> None:
    fake.fails_in = "2-b"  # no pod comes
    assert compare(path) == 0
    checks = {each["what"]: each for each in told(path)["fairness"]}
    assert not checks["arrivals as planned"]["held"]
    assert "up to 4 pods did not come, in 1 runs" in checks["arrivals as planned"]["said"]


def test_where_a_run_could_not_begin_it_says_how_to_go_on(
    path: Path,
    fake: FakeRehearse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def no_cluster(*given: Any, **named: Any) -> Any:
        if named["folder"].name == "2-b":
            raise ControlPlaneError("etcd has not answered; look at its log")
        return await fake(*given, **named)

    monkeypatch.setattr(running, "rehearse", no_cluster)
    assert compare(path) == 2
    said = capsys.readouterr().err
    assert f"--output={path.parent / 'out'} goes on from here" in said
    assert said.splitlines()[-1] == "kwok-operator: etcd has not answered; look at its log"
    assert [run["folder"] for run in told(path)["runs"]] == ["runs/1-a", "runs/1-b"]
    monkeypatch.setattr(running, "rehearse", fake)
    assert compare(path) == 0
    assert fake.order[2:] == ["2-b", "2-a"]


def test_two_comparisons_do_not_play_into_one_folder(
    path: Path,
    fake: FakeRehearse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    codes: list[int] = []

    async def meanwhile(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(running, "rehearse", fake)
        with ThreadPoolExecutor(1) as other:  # where no other event loop runs
            codes.append(other.submit(compare, path).result())
        return await fake(*given, **named)

    monkeypatch.setattr(running, "rehearse", meanwhile)
    monkeypatch.setattr("kwok_operator.cli.comparing.signal.signal", lambda *_: None)
    assert compare(path) == 0
    assert codes == [2] and len(fake.order) == 4
    assert "another comparison plays" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--runs=1"], "--runs"),
        (["--figures=pendingSeconds.p96"], "did you mean"),
        (["--fail-if=bad"], "--fail-if"),
        (["--binary=x"], "--binary"),
        (["{}"] * 8, "SCENARIO"),
        (["gone.yaml"], "gone.yaml"),
    ],
)
def test_what_is_wrong_is_reported_first(
    path: Path,
    fake: FakeRehearse,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    said: str,
) -> None:
    assert compare(path, *(flag.format(path) for flag in flags)) == 2
    assert said in capsys.readouterr().err
    assert fake.order == []


def test_two_files(tmp_path: Path, fake: FakeRehearse, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "before.yaml", scenario())
    other = write(tmp_path / "after.yaml", scenario(until={"atMost": "9m"}))
    assert main(["compare", str(one), "--check", str(other)]) == 0
    said = capsys.readouterr().out
    assert "before" in said and "differs: until: none, " in said
    assert compare(one, str(other)) == 0
    assert fake.order[0] == "1-before"
    assert fake.seeds == ["before-1"] * 2 + ["before-2"] * 2
    expect = [{"figure": "restarts", "atMost": 1}]
    strange = write(tmp_path / "restarts.yaml", scenario(expect=expect))
    assert main(["compare", str(one), str(strange), "--check"]) == 2
    assert "nothing in common" in capsys.readouterr().err
    seeded = [write(tmp_path / f"{s}.yaml", scenario(seed=s)) for s in ("one", "other")]
    assert main(["compare", str(one), str(other), str(seeded[0]), "--check"]) == 0
    printed = capsys.readouterr()
    assert "differs in after: until: none, " in printed.out
    assert "all arms get the seed of before" in printed.err
    again = ["compare", "--runs=2", f"--output={tmp_path / 'seeded'}"]
    assert main([*again, *map(str, seeded)]) == 0
    assert main([*again, *map(str, seeded[::-1])]) == 2  # the runs there are of another seed
    assert main(["compare", str(one), "--check"]) == 2
    assert f"{one}: has no arms" in capsys.readouterr().err
    wrong = write(tmp_path / "wrong.yaml", scenario(until={"atMost": "soon"}))
    assert main(["compare", str(one), str(wrong), "--check"]) == 2
    assert f"{wrong}:" in capsys.readouterr().err


def test_our_own_load_is_not_somebody_else_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200 ticks 150 are worked, and 50 of these are ours: half of all is somebody else's."""
    monkeypatch.setenv("REHEARSAL_COMPARED_BY", "us")

    def ticks(worked: int, idle: int, **used: int) -> None:
        (tmp_path / "stat").write_text(f"cpu {worked} 0 0 {idle} 0 0 0 0 0 0\n")
        for name, ticks in used.items():
            pid = tmp_path / name.removeprefix("p")
            pid.mkdir(exist_ok=True)
            mark = "us" if name == "p11" else "others"
            (pid / "environ").write_bytes(f"A=b\0REHEARSAL_COMPARED_BY={mark}\0".encode())
            numbers = " ".join(["0"] * 10)
            (pid / "stat").write_text(f"11 (a ) b) S {numbers} {ticks} 0 0 0 20")

    ticks(1000, 1000, p11=70, p12=900)
    meter = LoadMeter(tmp_path)
    assert meter.others is None
    ticks(1150, 1050, p11=120, p12=1000)
    meter.measure()
    assert meter.others == 0.5
    assert LoadMeter(tmp_path / "none").others is None
