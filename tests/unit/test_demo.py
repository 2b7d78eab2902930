"""The demo without a cluster: its scenarios, and the parts of the player that it alone needs."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.cli.main import main
from kwok_operator.cli.rehearsing import surroundings
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.loading import load_demo, load_scenario
from kwok_operator.rehearsal.programs import Program
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import DEMO, RehearseSettings
from kwok_operator.rehearsal.steps import abridged
from kwok_operator.rehearsal.testbed import Testbed
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.rehearsaltestbed import fake_testbed, play_on, serve_quiet_cluster


def loaded(autoscaler: Path) -> tuple[Scenario, list[str]]:
    """The demo with this cluster-autoscaler, and what is reported meanwhile."""
    reported: list[str] = []
    settings = RehearseSettings(DEMO, binaries={"cluster-autoscaler": autoscaler}, demo=True)
    read = load_demo(DEMO, surroundings(settings), report=reported.append)
    assert read.findings == () and read.scenario is not None
    return read.scenario, reported


def test_with_a_cluster_autoscaler_both_scenarios_are_played() -> None:
    both, reported = loaded(Path(sys.executable))
    assert reported == []
    assert [each.name for each in both.processes] == ["autoscaler"]
    says = [step.say.partition(".")[0] for step in both.timeline if step.say is not None]
    assert says == ["1", "2", "3", "4", "5", "6"]


def test_without_a_cluster_autoscaler_the_tour_is_played_alone(tmp_path: Path) -> None:
    tour, reported = loaded(tmp_path / "none")
    assert tour.processes == ()
    (line,) = reported
    assert line.startswith("no cluster-autoscaler is shown: ") and str(tmp_path / "none") in line
    guide = line.partition("(")[2].split()[0]
    assert (DEMO.parents[3] / guide).exists()


def test_the_part_with_cluster_autoscaler_can_be_played_alone() -> None:
    settings = RehearseSettings(DEMO, binaries={"cluster-autoscaler": Path(sys.executable)})
    assert load_scenario(DEMO.with_name("autoscaler.yaml"), surroundings(settings)).findings == ()


@pytest.mark.parametrize("more", [["scenario.yaml"], ["--kubeconfig=a"], ["--arm=a"]])
def test_no_scenario_with_the_demo(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", "--demo", *more]) == 2
    assert "--demo: goes without" in capsys.readouterr().err


@pytest.fixture
async def testbed(tmp_path: Path) -> AsyncIterator[Testbed]:
    async with FakeApiServer() as server:
        serve_quiet_cluster(server)
        async with KubeClient(connection=server.connection()) as client:
            testbed = fake_testbed(client, tmp_path)
            testbed.environment = {**os.environ, "KUBECONFIG": "", "REHEARSAL": ""}
            yield testbed


def shell(script: str, **rest: Any) -> dict[str, Any]:
    return {"run": {"command": ["sh", "-c", script], **rest}}


async def test_steps_without_a_time_are_in_sequence(testbed: Testbed, tmp_path: Path) -> None:
    late = tmp_path / "late"
    steps = [
        shell(f"sleep 0.3; touch {late}"),
        {"delay": "100ms", **shell(f"test -e {late}")},
    ]
    assert (await play_on(testbed, timeline=steps)).passed


async def test_what_a_step_says_and_shows_is_printed(testbed: Testbed) -> None:
    shown: list[tuple[str, str]] = []
    testbed.say = lambda line, style="": shown.append((line, style))
    step = {"say": "1. Title\nwhat it\nexplains", **shell("echo out; echo err >&2", show=True)}
    assert (await play_on(testbed, timeline=[step, shell("echo hidden")])).passed
    assert [each for each in shown if each[0]] == [
        ("1. Title", "bold"),
        ("   what it explains", ""),
        ("   $ sh -c 'echo out; echo err >&2'", "cyan"),
        ("   out", "dim"),
        ("   err", "dim"),
    ]


@pytest.mark.parametrize(
    ("script", "passed"),
    [("echo no nodes >&2", True), ("echo no nodes; exit 1", True), ("echo node-1; exit 1", False)],
)
async def test_a_failing_command_must_print(testbed: Testbed, script: str, passed: bool) -> None:
    judged = await play_on(testbed, timeline=[shell(script, mayFail=True, prints="^no nodes$")])
    assert judged.passed == passed
    if not passed:
        assert "timeline[0], run: " in judged.broken_off and "node-1" in judged.broken_off


def test_a_long_output_is_abridged_and_a_short_one_is_not() -> None:
    pods = [f"evicting pod demo/ten-5d8b-x{number}" for number in range(14)]
    assert abridged(pods) == pods
    long = [*pods, "error: " + 200 * "x", "done"]
    first, more, error, done = abridged(long)
    assert (first, more, done) == (pods[0], "  (and 13 more like it)", "done")
    assert len(error) == 160 and error.endswith("...")


async def test_a_program_is_left_running_until_a_file_is_gone(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    program = Program("left", log=tmp_path / "log")
    await program.start(["sleep", "600"], env=os.environ, cwd=tmp_path, grace=0.1)
    await program.leave(while_there=kubeconfig)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(program.wait()), 0.5)
    kubeconfig.unlink()
    assert await asyncio.wait_for(program.wait(), 20) != 0
