"""How nodes are held NotReady against kwok, and what is said about it.

- the Stage, where it is there and may be seen; else Leases, where we may create them; else nothing
- both are looked at seldom, and where the API server has trouble, what was known stands
- a Stage that kwok does not obey counts for nothing for a while, once that has lasted
- the condition names what holds, what can't be shown, and the remedy
- a Lease is made before the Node, belongs to the group, and is given up only if it is ours

Time stands still unless a test moves it.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from kwok_operator.constants import HOLD_LABEL, HOLD_LABEL_VALUE, HOLD_STAGE, LEASE_HOLDER
from kwok_operator.controller.cloud import hold as module
from kwok_operator.controller.cloud.hold import (
    DISOBEYED_AFTER,
    DISOBEYED_FOR,
    DISOBEYED_WITHIN,
    RIGHT_KNOWN_FOR,
    STAGE_KNOWN_FOR,
    HoldLink,
)
from kwok_operator.core.cloud.shaping import Hold
from kwok_operator.errors import ServerError
from kwok_operator.kube.client import KubeClient
from tests.e2e.deploying import DEPLOY
from tests.fakes.apiserver import LEASES, FakeApiServer
from tests.fakes.waiting import until

STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"
REVIEWS = module.REVIEWS_PATH
NODE, GROUP, UID = "web-0", "web", "uid-of-web"
KWOK = "kwok-7f_1"


class World:
    """Time, an API server, and what the account may do there."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.seconds = 1_000.0
        self.hold = HoldLink(client=client, clock=self.monotonic, wall=self.wall)

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def install_stage(self) -> None:
        self.server.serve(STAGES, kind="Stage")
        self.server.create(STAGES, {"metadata": {"name": HOLD_STAGE}})

    def may_create_leases(self, *, times: int = 1) -> None:
        """The next answers to that question are yes; nobody asks about anything else."""
        for _ in range(times):
            self.server.answer(b'{"status":{"allowed":true}}', resource=REVIEWS)

    def asked(self) -> int:
        return len(self.server.seen)

    async def way_after(self, seconds: float) -> Hold:
        self.seconds += seconds
        return await self.hold.way()

    def is_disobeyed(self) -> None:
        """A node is Ready against the Stage, and stays so."""
        for _ in range(10):
            self.hold.disobeyed(NODE)
            self.seconds += 1
        assert DISOBEYED_AFTER < 10 < DISOBEYED_WITHIN

    def lease(self) -> dict[str, Any] | None:
        return self.server.objects(LEASES).get(NODE)

    def somebody_has_the_lease(self, holder: str, *, owner: str = "") -> None:
        owners = [{"kind": "KwokNodeGroup", "name": GROUP, "uid": owner}] if owner else []
        metadata = {"name": NODE, "ownerReferences": owners}
        self.server.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": holder}})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as server:
        server.documents[REVIEWS] = '{"status":{"allowed":false}}'
        async with KubeClient(connection=server.connection(), sleep=no_wait) as client:
            yield World(server, client)


async def no_wait(seconds: float) -> None:
    pass


class TestWay:
    async def test_the_stage_where_it_is_there(self, world: World) -> None:
        world.install_stage()
        assert await world.hold.way() is Hold.STAGE
        assert world.server.calls["create", REVIEWS] == 0

    @pytest.mark.parametrize("crd", [True, False])
    async def test_leases_where_there_is_no_stage(self, world: World, crd: bool) -> None:
        if crd:
            world.server.serve(STAGES, kind="Stage")
        world.may_create_leases()
        assert await world.hold.way() is Hold.LEASE

    async def test_leases_where_the_stage_may_not_be_seen(self, world: World) -> None:
        world.install_stage()
        world.server.fail(403, resource="stages", reason="Forbidden")
        world.may_create_leases()
        assert await world.hold.way() is Hold.LEASE

    async def test_nothing_where_neither_is_given(self, world: World) -> None:
        assert await world.hold.way() is Hold.NONE

    async def test_the_question_about_leases_is_the_one_that_matters(self, world: World) -> None:
        await world.hold.way()
        (review,) = [seen for seen in world.server.seen if seen.resource == REVIEWS]
        asked = yaml.safe_load(review.body)["spec"]["resourceAttributes"]
        assert asked == {
            "group": "coordination.k8s.io",
            "resource": "leases",
            "namespace": "kube-node-lease",
            "verb": "create",
        }

    async def test_it_is_looked_at_seldom(self, world: World) -> None:
        await world.hold.way()
        before = world.asked()
        assert await world.way_after(STAGE_KNOWN_FOR - 1) is Hold.NONE
        assert world.asked() == before
        world.install_stage()
        assert await world.way_after(1) is Hold.STAGE
        assert world.asked() == before + 1

    async def test_the_right_is_asked_for_more_seldom_still(self, world: World) -> None:
        for _ in range(int(RIGHT_KNOWN_FOR / STAGE_KNOWN_FOR)):
            await world.way_after(STAGE_KNOWN_FOR)
        assert world.server.calls["create", REVIEWS] == 1
        world.may_create_leases()
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.LEASE

    async def test_in_trouble_what_was_known_stands(self, world: World) -> None:
        world.install_stage()
        await world.hold.way()
        world.server.fail(500, times=3)
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE
        world.server.delete(STAGES, HOLD_STAGE)
        assert await world.way_after(module.ASK_AGAIN_AFTER) is Hold.NONE

    async def test_before_anything_is_known_nothing_is_held(self, world: World) -> None:
        world.install_stage()
        world.server.fail(503, times=3)
        assert await world.hold.way() is Hold.NONE
        _, _, message = world.hold.condition(wanted=True, outage_or_flapping=False)
        assert "has not yet said" in message
        assert await world.way_after(module.ASK_AGAIN_AFTER) is Hold.STAGE


class TestDisobeyed:
    async def test_once_it_has_lasted_the_stage_counts_for_nothing_for_a_while(
        self, world: World
    ) -> None:
        world.install_stage()
        await world.hold.way()
        world.is_disobeyed()
        assert await world.hold.way() is Hold.NONE
        status, reason, message = world.hold.condition(wanted=True, outage_or_flapping=True)
        assert (status, reason) == (False, "NotHeld")
        assert "although the Stage kwok-operator-hold is there" in message
        assert "--enable-crds=Stage" in message
        assert await world.way_after(DISOBEYED_FOR - STAGE_KNOWN_FOR) is Hold.NONE
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE
        assert world.hold.condition(wanted=True, outage_or_flapping=True)[:2] == (
            True,
            "HeldByStage",
        )

    async def test_leases_hold_then_for_those_who_may_create_them(self, world: World) -> None:
        world.install_stage()
        await world.hold.way()
        world.is_disobeyed()
        world.may_create_leases()
        assert await world.hold.way() is Hold.LEASE

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
        assert await world.hold.way() is Hold.STAGE
        start = world.seconds
        for at in seen_at:
            world.seconds = start + at
            world.hold.disobeyed(NODE)
        assert await world.hold.way() is Hold.STAGE

    async def test_different_nodes_are_no_disobedience(self, world: World) -> None:
        world.install_stage()
        assert await world.hold.way() is Hold.STAGE
        for number in range(20):
            world.hold.disobeyed(f"web-{number}")
            world.seconds += 1
        assert await world.hold.way() is Hold.STAGE

    async def test_without_the_stage_nobody_disobeys_it(self, world: World) -> None:
        await world.hold.way()
        world.is_disobeyed()
        world.install_stage()
        assert await world.way_after(STAGE_KNOWN_FOR) is Hold.STAGE


class TestTold:
    async def test_nothing_to_hold(self, world: World) -> None:
        await world.hold.way()
        told = world.hold.condition(wanted=False, outage_or_flapping=False)
        assert told[:2] == (True, "NothingToHold")

    @pytest.mark.parametrize("outage", [False, True])
    async def test_the_stage_holds_whatever_is_wanted(self, world: World, outage: bool) -> None:
        world.install_stage()
        await world.hold.way()
        told = world.hold.condition(wanted=True, outage_or_flapping=outage)
        assert told[:2] == (True, "HeldByStage")

    async def test_leases_hold_the_first_boot_and_what_they_can_not_show_is_told(
        self, world: World
    ) -> None:
        world.may_create_leases()
        await world.hold.way()
        status, reason, message = world.hold.condition(wanted=True, outage_or_flapping=False)
        assert (status, reason) == (True, "HeldByLease")
        assert "from False to Unknown" in message

    async def test_leases_do_not_hold_an_outage(self, world: World) -> None:
        world.may_create_leases()
        await world.hold.way()
        status, reason, message = world.hold.condition(wanted=True, outage_or_flapping=True)
        assert (status, reason) == (False, "NotHeld")
        assert "outages and flapping" in message
        assert "kubectl apply -f deploy/components/hold-stage/" in message

    async def test_nothing_holds_and_the_remedy_is_named(self, world: World) -> None:
        await world.hold.way()
        status, reason, message = world.hold.condition(wanted=True, outage_or_flapping=False)
        assert (status, reason) == (False, "NotHeld")
        assert "there is no Stage kwok-operator-hold" in message
        assert "kubectl apply -f deploy/components/hold-stage/" in message

    async def test_a_stage_that_may_not_be_seen_is_told_apart(self, world: World) -> None:
        world.install_stage()
        world.server.fail(403, resource="stages", reason="Forbidden")
        await world.hold.way()
        _, _, message = world.hold.condition(wanted=True, outage_or_flapping=False)
        assert "may not see whether there is a Stage" in message

    def test_the_remedies_exist(self) -> None:
        files = [word for word in module.REMEDY.split() if word.startswith("deploy/")]
        assert len(files) == 2
        for file in files:
            assert (DEPLOY.parent / file.rstrip(",")).is_file()


class TestLease:
    async def test_it_is_ours_for_long_and_goes_with_the_group(self, world: World) -> None:
        await world.hold.take(NODE, group=GROUP, uid=UID)
        lease = world.lease()
        assert lease is not None
        assert lease["spec"]["holderIdentity"] == LEASE_HOLDER
        assert lease["spec"]["leaseDurationSeconds"] >= 24 * 3600
        assert lease["spec"]["renewTime"] == "2026-01-02T03:04:05.000000Z"
        (owner,) = lease["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "kwok-operator.io/v1alpha1",
            "kind": "KwokNodeGroup",
            "name": GROUP,
            "uid": UID,
        }

    async def test_taken_twice_it_stays_as_it_is(self, world: World) -> None:
        await world.hold.take(NODE, group=GROUP, uid=UID)
        before = world.lease()
        await world.hold.take(NODE, group=GROUP, uid=UID)
        assert world.lease() == before

    async def test_one_that_kwok_has_is_left_to_it(self, world: World) -> None:
        world.somebody_has_the_lease(KWOK)
        before = world.lease()
        await world.hold.take(NODE, group=GROUP, uid=UID)
        assert world.lease() == before

    async def test_one_of_a_group_of_that_name_that_is_gone_is_replaced(self, world: World) -> None:
        """The garbage collector is about to delete it."""
        world.somebody_has_the_lease(LEASE_HOLDER, owner="uid-of-a-former-web")
        await world.hold.take(NODE, group=GROUP, uid=UID)
        lease = world.lease()
        assert lease is not None
        assert [owner["uid"] for owner in lease["metadata"]["ownerReferences"]] == [UID]

    async def test_a_right_that_is_gone_lets_the_node_come_all_the_same(self, world: World) -> None:
        world.may_create_leases()
        assert await world.hold.way() is Hold.LEASE
        world.server.fail(403, verb="create", resource="leases", reason="Forbidden")
        await world.hold.take(NODE, group=GROUP, uid=UID)
        assert world.lease() is None
        assert await world.hold.way() is Hold.NONE

    async def test_trouble_is_for_the_caller_to_have_done_again(self, world: World) -> None:
        world.server.fail(503, verb="create", resource="leases")
        with pytest.raises(ServerError):
            await world.hold.take(NODE, group=GROUP, uid=UID)


class TestRelease:
    async def test_ours_is_deleted(self, world: World) -> None:
        world.may_create_leases()
        await world.hold.take(NODE, group=GROUP, uid=UID)
        await world.hold.release(NODE)
        assert world.lease() is None

    async def test_kwoks_is_not(self, world: World) -> None:
        world.may_create_leases()
        world.somebody_has_the_lease(KWOK)
        await world.hold.release(NODE)
        assert world.lease() is not None
        assert world.server.calls["delete", "leases"] == 0

    async def test_one_that_kwok_takes_at_that_moment_is_left_to_it(self, world: World) -> None:
        world.may_create_leases()
        await world.hold.take(NODE, group=GROUP, uid=UID)
        deleted = world.server.hold(verb="delete", resource="leases")

        release = asyncio.create_task(world.hold.release(NODE))
        await until(lambda: world.server.calls["delete", "leases"] == 1)
        world.server.patch(LEASES, NODE, {"spec": {"holderIdentity": KWOK}})
        deleted.set()
        await release
        lease = world.lease()
        assert lease is not None and lease["spec"]["holderIdentity"] == KWOK

    async def test_one_that_is_gone_is_fine(self, world: World) -> None:
        world.may_create_leases()
        await world.hold.release(NODE)
        assert world.server.calls["delete", "leases"] == 0

    async def test_a_lease_from_before_the_stage_is_given_up_too(self, world: World) -> None:
        world.may_create_leases()
        await world.hold.take(NODE, group=GROUP, uid=UID)
        world.install_stage()
        assert await world.hold.way() is Hold.STAGE
        await world.hold.release(NODE)
        assert world.lease() is None

    async def test_it_costs_nothing_where_no_lease_can_be_ours(self, world: World) -> None:
        await world.hold.way()
        before = world.asked()
        for _ in range(100):
            await world.hold.release(NODE)
        assert world.asked() == before


def test_the_stage_selects_what_the_operator_labels() -> None:
    text = (DEPLOY / "components/hold-stage/stage.yaml").read_text()
    stages = {stage["metadata"]["name"]: stage for stage in yaml.safe_load_all(text)}
    assert stages[HOLD_STAGE]["spec"]["selector"] == {"matchLabels": {HOLD_LABEL: HOLD_LABEL_VALUE}}
