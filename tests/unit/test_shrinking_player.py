"""How a try is played, where no cluster is needed to see it."""

import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.controlplane import ClusterError
from kwok_operator.rehearsal.outputs import RECORDING
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.rehearsal.shrinking import player as module
from kwok_operator.rehearsal.shrinking.parts import Doc
from kwok_operator.rehearsal.shrinking.player import TryPlayer
from kwok_operator.rehearsal.testbed import TestbedError
from tests.fakes.rehearsed import content, node, run

PENDING = {"figure": "nodes.total", "equals": 2}
DOC: Doc = {
    "name": "it",
    "processes": [{"name": "ca", "clusterAutoscaler": {"binary": "true", "flags": {"v": 1}}}],
    "until": {"settledFor": "10m", "atMost": "1h"},
    "steadyWithin": "30m",
    "workloads": [{"name": "web", "pods": {}}],
    "expect": [PENDING],
}

SOONER = {
    "scan-interval": "1s",
    "scale-down-unneeded-time": "2s",
    "scale-down-delay-after-add": "2s",
}


class Played:
    """What stands in for clusters and runs."""

    def __init__(self) -> None:
        self.clusters = 0
        self.scenarios: list[Scenario] = []
        self.enough: list[Any] = []
        self.fails: list[Exception] = []
        self.is_refused = False

    @asynccontextmanager
    async def made(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.clusters += 1
        if self.is_refused:
            raise ClusterError("creating cluster shrink-1: unknown flag: --no-such")
        yield self

    @property
    def cluster(self) -> "Played":
        return self

    def check(self) -> None:
        """All components run."""

    def dead(self) -> list[str]:
        return []

    async def play(self, scenario: Scenario, _: Any, *, folder: Path, **given: Any) -> None:
        self.scenarios.append(scenario)
        self.enough.append(given["enough"])
        if self.fails:
            raise self.fails.pop()
        lines = run(node(1.0, "a"), node(4.0, "b"), until=9.0)
        found = content(lines, expect=[PENDING])
        (folder / RECORDING).write_bytes(gzip.compress(found))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played()
    monkeypatch.setattr("kwok_operator.rehearsal.keptcluster.kept_cluster", found.made)
    monkeypatch.setattr(module, "play", found.play)
    return found


@pytest.fixture
async def player(played: Played, tmp_path: Path) -> AsyncIterator[TryPlayer]:
    async with TryPlayer(
        Scenario.model_validate(DOC),
        RehearseSettings(scenario=tmp_path / "it.yaml"),
        folder=tmp_path / "try",
        find_program=lambda name: None,
        report=print,
    ) as found:
        yield found


async def test_a_try_is_shorter_than_the_first_run_and_says_more_sooner(
    player: TryPlayer, played: Played
) -> None:
    player.whole = DOC
    whole, short = await player.play(DOC, None), await player.play(DOC, 1.0)
    assert whole == short and whole.outcomes == ("holds",) and whole.pause == 3.0
    first, second = played.scenarios
    assert first.until == Scenario.model_validate(DOC).until and played.enough == [(), range(1)]
    assert second.until.at_most < 60 and second.steady_within == 30.0
    assert second.until.settled == 12.0
    assert [flags_of(each) for each in (first, second)] == [{"v": "4"}, {"v": "4", **SOONER}]


async def test_a_flag_that_is_left_out_makes_no_try_act_sooner(
    player: TryPlayer, played: Played
) -> None:
    """Its default is ten minutes, and the try shows whether that changes anything."""
    player.whole = DOC
    await player.play(DOC, None)
    slow = {"binary": "true", "values": "production"}
    await player.play({**DOC, "processes": [{"name": "ca", "clusterAutoscaler": slow}]}, 1.0)
    assert flags_of(played.scenarios[-1]) == {"v": "4", "scan-interval": "1s"}
    assert played.scenarios[-1].until.settled == 600.0


def flags_of(scenario: Scenario) -> dict[str, str]:
    autoscaler = scenario.processes[0].cluster_autoscaler
    assert autoscaler is not None
    return dict(autoscaler.flags)


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [
        ({"figure": "nodes.max", "atLeast": 2}, 4.0),
        ({"figure": "nodes.max", "equals": 2}, 8.0),
        ({"event": {"reason": "TriggeredScaleUp"}, "equals": 0}, 8.0),
        # A node may go 2 s after the last one came, once it was unneeded for 2 s.
        ({"event": {"reason": "ScaleDown"}, "equals": 0}, 12.0),
    ],
)
async def test_a_try_waits_for_what_autoscalers_may_still_do(
    player: TryPlayer, played: Played, expected: Doc, seconds: float
) -> None:
    player.whole = doc = {**DOC, "expect": [expected]}
    for quiet in (None, 1.0, 40.0):
        await player.play(doc, quiet)
    assert [each.until.settled for each in played.scenarios] == [600.0, seconds, 40.0]


async def test_only_a_run_of_the_whole_limits_others(player: TryPlayer, played: Played) -> None:
    player.whole = {**DOC, "seed": "1"}
    for quiet in (None, 700.0):
        await player.play(DOC, quiet)
    assert [each.steady_within for each in played.scenarios] == [1800.0] * 2


async def test_a_control_plane_that_breaks_costs_no_try(player: TryPlayer, played: Played) -> None:
    played.fails = [ClusterError("etcd ended")] * 2
    assert (await player.play(DOC, None)).outcomes == ("holds",)
    assert played.clusters == 3
    played.fails = [ClusterError("etcd ended")] * 3
    with pytest.raises(ClusterError):
        await player.play(DOC, None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda doc: {**doc, "workloads": [{"name": "web"}]}, "has no pods"),
        (lambda doc: doc, "could not begin: not steady"),
    ],
)
async def test_what_can_not_be_played_is_not_the_same(
    player: TryPlayer, played: Played, change: Callable[[Doc], Doc], says: str
) -> None:
    played.fails = [TestbedError("not steady")]
    found = await player.play(change(DOC), None)
    assert says in found.broken_off


async def test_a_control_plane_that_can_not_be_made_is_not_made_again(
    player: TryPlayer, played: Played
) -> None:
    played.is_refused = True
    with pytest.raises(ClusterError, match="no-such"):
        await player.play(DOC, None)
    assert played.clusters == 1
