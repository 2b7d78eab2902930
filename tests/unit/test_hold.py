"""How nodes are held NotReady against kwok, and what is said about it.

Time stands still unless a test moves it.
"""

import asyncio

import pytest
import yaml

from kwok_operator.cloud import hold as module
from kwok_operator.cloud.hold import (
    DISOBEYED_AFTER,
    DISOBEYED_FOR,
    DISOBEYED_WITHIN,
    STAGE_KNOWN_FOR,
    HoldLink,
)
from kwok_operator.cloud.shaping import Hold
from kwok_operator.constants import HOLD_LABEL, HOLD_LABEL_VALUE, HOLD_STAGE
from kwok_operator.kube.client import KubeClient
from tests.e2e.deploying import DEPLOY
from tests.fakes.apiserver import FakeApiServer

STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"
NODE = "web-0"


class World:
    """Time, an API server, and what the account may do there."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.seconds = 1_000.0
        self.hold = HoldLink(client=client, clock=self.monotonic)

    def monotonic(self) -> float:
        return self.seconds

    def install_stage(self) -> None:
        self.server.serve(STAGES, kind="Stage")
        self.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})

    def asked(self) -> int:
        return len(self.server.seen)

    async def way_after(self, seconds: float) -> Hold:
        self.seconds += seconds
        return await self.hold.current()

    def is_disobeyed(self) -> None:
        """A node is Ready against the Stage, and stays so."""
        for _ in range(10):
            self.hold.disobeyed(NODE)
            self.seconds += 1
        assert DISOBEYED_AFTER < 10 < DISOBEYED_WITHIN


@pytest.fixture
def world(server: FakeApiServer, client: KubeClient) -> World:
    return World(server, client)


class TestWay:
    async def test_the_stage_where_it_is_there(self, world: World) -> None:
        world.install_stage()
        assert await world.hold.current() is Hold.STAGE

    @pytest.mark.parametrize("crd", [True, False])
    async def test_nothing_where_there_is_no_stage(self, world: World, crd: bool) -> None:
        if crd:
            world.server.serve(STAGES, kind="Stage")
        assert await world.hold.current() is Hold.NONE

    async def test_nothing_where_the_stage_may_not_be_seen(self, world: World) -> None:
        world.install_stage()
        world.server.fail(403, resource="stages", reason="Forbidden")
        assert await world.hold.current() is Hold.NONE

    async def test_it_is_looked_at_seldom(self, world: World) -> None:
        await world.hold.current()
        before = world.asked()
        assert await world.way_after(STAGE_KNOWN_FOR - 1) is Hold.NONE
        assert world.asked() == before
        world.install_stage()
        assert await world.way_after(1) is Hold.STAGE
        assert world.asked() == before + 1

    async def test_passes_that_come_together_make_one_request(self, world: World) -> None:
        await asyncio.gather(*(world.hold.current() for _ in range(5)))
        assert world.asked() == 1

    async def test_in_trouble_what_was_known_stands(self, world: World) -> None:
        world.install_stage()
        await world.hold.current()
        world.server.fail(500, times=3)
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE
        world.server.delete(STAGES, HOLD_STAGE)
        assert await world.way_after(module.ASK_AGAIN_AFTER) is Hold.NONE

    async def test_before_anything_is_known_nothing_is_held(self, world: World) -> None:
        world.install_stage()
        world.server.fail(503, times=3)
        assert await world.hold.current() is Hold.NONE
        assert "has not yet said" in world.hold.condition(wanted=True).message
        assert await world.way_after(module.ASK_AGAIN_AFTER) is Hold.STAGE


class TestDisobeyed:
    async def test_a_stage_that_is_disobeyed_is_ignored_for_a_while(self, world: World) -> None:
        world.install_stage()
        await world.hold.current()
        world.is_disobeyed()
        assert await world.hold.current() is Hold.NONE
        said = world.hold.condition(wanted=True)
        assert (said.status, said.reason) == (False, "NotHeld")
        assert "although the Stage kwok-operator-hold is there" in said.message
        assert "--enable-crds=Stage" in said.message
        assert await world.way_after(DISOBEYED_FOR - STAGE_KNOWN_FOR) is Hold.NONE
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE
        assert world.hold.condition(wanted=True).reason == "HeldByStage"

    @pytest.mark.parametrize(
        "seen_at",
        [
            pytest.param([0.0, DISOBEYED_AFTER], id="twice"),
            pytest.param([0.0, 0.1, 0.2, 0.3], id="for a moment"),
            pytest.param([0.0, DISOBEYED_WITHIN + 1, DISOBEYED_WITHIN + 2], id="now and then"),
        ],
    )
    async def test_a_moment_is_no_disobedience(self, world: World, seen_at: list[float]) -> None:
        """A node may be Ready between two writes."""
        world.install_stage()
        assert await world.hold.current() is Hold.STAGE
        start = world.seconds
        for at in seen_at:
            world.seconds = start + at
            world.hold.disobeyed(NODE)
        assert await world.hold.current() is Hold.STAGE

    async def test_different_nodes_are_no_disobedience(self, world: World) -> None:
        world.install_stage()
        assert await world.hold.current() is Hold.STAGE
        for number in range(20):
            world.hold.disobeyed(f"web-{number}")
            world.seconds += 1
        assert await world.hold.current() is Hold.STAGE

    async def test_without_the_stage_nobody_disobeys_it(self, world: World) -> None:
        await world.hold.current()
        world.is_disobeyed()
        world.install_stage()
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE


class TestTold:
    async def test_nothing_to_hold(self, world: World) -> None:
        await world.hold.current()
        said = world.hold.condition(wanted=False)
        assert (said.status, said.reason) == (True, "NothingToHold")

    async def test_the_stage_holds(self, world: World) -> None:
        world.install_stage()
        await world.hold.current()
        said = world.hold.condition(wanted=True)
        assert (said.status, said.reason) == (True, "HeldByStage")

    async def test_nothing_holds_and_the_remedy_is_named(self, world: World) -> None:
        await world.hold.current()
        said = world.hold.condition(wanted=True)
        assert (said.status, said.reason) == (False, "NotHeld")
        assert "there is no Stage kwok-operator-hold" in said.message
        assert "kubectl apply -f deploy/components/hold-stage/" in said.message

    async def test_a_stage_that_may_not_be_seen_is_told_apart(self, world: World) -> None:
        world.install_stage()
        world.server.fail(403, resource="stages", reason="Forbidden")
        await world.hold.current()
        assert "may not see whether there is a Stage" in world.hold.condition(wanted=True).message

    def test_the_remedies_exist(self) -> None:
        files = [word for word in module.REMEDY.split() if word.startswith("deploy/")]
        assert len(files) == 2
        for file in files:
            assert (DEPLOY.parent / file.rstrip(",")).is_file()


def test_the_stage_selects_what_the_operator_labels() -> None:
    text = (DEPLOY / "components/hold-stage/stage.yaml").read_text()
    stages = {stage["metadata"]["name"]: stage for stage in yaml.safe_load_all(text)}
    assert stages[HOLD_STAGE]["spec"]["selector"] == {"matchLabels": {HOLD_LABEL: HOLD_LABEL_VALUE}}


async def test_a_hung_answer_holds_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.install_stage()
    assert await world.hold.current() is Hold.STAGE
    monkeypatch.setattr(module, "LOOK_WITHIN", 0.01)
    released = world.server.hold(resource="stages")
    assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE
    released.set()
