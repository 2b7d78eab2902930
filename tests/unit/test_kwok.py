"""What is known about kwok: whether it lives, and what to write into a node that is born Ready.

Time stands still unless a test moves it.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from kwok_operator.errors import ApiUnreachableError, NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups import kwok as module
from kwok_operator.nodegroups.kwok import (
    FIRST_LEASE_WITHIN,
    LOOK_EVERY,
    SCOUT_AGAIN_AFTER,
    TRUSTED_FOR,
    KwokLink,
)
from kwok_operator.nodegroups.template import KubeletEndpoint

ENDPOINT = KubeletEndpoint((("Hostname", "localhost"),), 10247)
OTHER = KubeletEndpoint((("InternalIP", "10.0.0.9"),), 32769)
NODES = ["web-0", "web-1", "web-2"]
DURATION = 40


class World:
    """Time, and the Leases of nodes: who holds each, and when it was renewed by kwok's clock."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.kwoks_clock = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.version = 0
        self.leases: dict[str, tuple[str, int, datetime | None]] = {}
        self.asked: list[str] = []
        self.unreachable = False
        self.latency = 0.0
        self.hangs = False
        self.kwok = KwokLink(client=cast(KubeClient, self), clock=self.monotonic)

    def monotonic(self) -> float:
        return self.seconds

    def renew(self, *nodes: str, holder: str = "kwok-a") -> None:
        for node in nodes:
            self.version += 1
            renewed = self.kwoks_clock + timedelta(seconds=self.seconds)
            self.leases[node] = (holder, self.version, renewed)

    async def pass_by(self, seconds: float, *, renewing: bool) -> None:
        """Time goes by, and the nodes are looked at now and then; kwok renews each quarter."""
        until = self.seconds + seconds
        while self.seconds < until:
            self.seconds += 5.0
            if renewing and self.seconds % (DURATION / 4) == 0:
                self.renew(*NODES)
            await self.kwok.look(NODES)

    async def request(self, method: str, path: str, *, retries: int = 0) -> bytes:
        """The part of KubeClient that is used."""
        assert method == "GET"
        node = path.removeprefix(f"{module.LEASES_PATH}/")
        self.asked.append(node)
        self.seconds += self.latency
        await (asyncio.Event().wait() if self.hangs else asyncio.sleep(0))
        if self.unreachable:
            raise ApiUnreachableError(server="https://k8s", cause="connection refused")
        if node not in self.leases:
            raise NotFoundError("no such lease", status=404)
        holder, version, renewed = self.leases[node]
        spec = {"holderIdentity": holder, "leaseDurationSeconds": DURATION}
        if renewed is not None:
            spec["renewTime"] = renewed.isoformat()
        return json.dumps(
            {"metadata": {"name": node, "resourceVersion": str(version)}, "spec": spec}
        ).encode()


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCOUT_ANSWER_WITHIN", 0.01)


@pytest.fixture
def world() -> World:
    return World()


def posting(
    kwok: KwokLink, name: str, *, answer: KubeletEndpoint | None
) -> Callable[[], Awaitable[bool]]:
    """A POST after which kwok answers with this endpoint, or never."""

    async def post() -> bool:
        if answer is not None:
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: kwok.initialised(name, answer, group="web", first_sight=False))
        return True

    return post


async def taught(
    world: World, *, endpoint: KubeletEndpoint = ENDPOINT, holder: str = "kwok-a"
) -> None:
    """A scout is answered, and kwok takes its Lease."""
    world.renew("web-0", holder=holder)
    await world.kwok.scout("web-0", posting(world.kwok, "web-0", answer=endpoint))


@pytest.mark.parametrize("leases", [[], NODES], ids=["nothing", "a live lease alone"])
async def test_nothing_is_known_at_first(world: World, leases: list[str]) -> None:
    # After a restart: kwok lives, but where it serves the kubelet API is to be learned.
    world.renew(*leases)
    assert await world.kwok.endpoint(leases) is None
    assert world.kwok.wants_scout()
    assert world.kwok.problem is None


class TestScout:
    async def test_answered_it_teaches_the_endpoint(self, world: World) -> None:
        await taught(world)
        assert await world.kwok.endpoint([]) == ENDPOINT
        assert world.kwok.problem is None

    async def test_kwok_may_answer_before_the_post_does(self, world: World) -> None:
        async def post() -> bool:
            world.kwok.initialised("web-0", ENDPOINT, group="web", first_sight=True)
            return True

        await world.kwok.scout("web-0", post)
        assert await world.kwok.endpoint([]) == ENDPOINT

    async def test_not_answered_kwok_is_silent_and_asked_later(self, world: World) -> None:
        await world.kwok.scout("web-0", posting(world.kwok, "web-0", answer=None))
        assert await world.kwok.endpoint([]) is None
        assert world.kwok.problem is not None
        assert "the node web-0 was not initialised in 0.01 s" in world.kwok.problem
        assert "annotation kwok.x-k8s.io/node=fake" in world.kwok.problem
        world.seconds += SCOUT_AGAIN_AFTER - 1
        assert not world.kwok.wants_scout()
        world.seconds += 1
        assert world.kwok.wants_scout()
        await world.kwok.scout("web-1", posting(world.kwok, "web-1", answer=OTHER))
        assert await world.kwok.endpoint([]) == OTHER

    async def test_not_answered_a_fresh_lease_does_not_count(self, world: World) -> None:
        await taught(world)
        world.renew(*NODES)
        world.seconds += 1
        await world.kwok.scout("web-3", posting(world.kwok, "web-3", answer=None))
        world.seconds += TRUSTED_FOR
        await world.kwok.look(NODES)
        assert world.kwok.problem is not None
        world.renew("web-2")
        world.seconds += LOOK_EVERY
        await world.kwok.look(NODES)
        assert world.kwok.problem is None

    async def test_answered_late_it_teaches_all_the_same(self, world: World) -> None:
        await world.kwok.scout("web-0", posting(world.kwok, "web-0", answer=None))
        world.seconds += 60.0
        world.kwok.initialised("web-0", ENDPOINT, group="web", first_sight=False)
        assert world.kwok.problem is None
        assert await world.kwok.endpoint([]) == ENDPOINT
        assert world.kwok.wants_scout()

    @pytest.mark.parametrize("renewed", [["web-2"], ["web-3"]], ids=["with-others", "with-it"])
    async def test_kwok_that_is_busy_is_not_silent(self, world: World, renewed: list[str]) -> None:
        world.renew(*NODES)
        await world.kwok.look(NODES)

        async def post() -> bool:
            world.seconds += 1
            world.renew(*renewed)
            return True

        await world.kwok.scout("web-3", post)
        assert world.kwok.problem is None
        assert not world.kwok.wants_scout()

    async def test_not_answered_kwok_may_still_be_renewing(self, world: World) -> None:
        """With 10,000 nodes to renew, kwok may take its time for a new one."""
        world.renew(*NODES)
        await world.kwok.look(NODES)
        for _ in range(2):
            assert world.kwok.problem is None
            await world.kwok.scout("web-3", posting(world.kwok, "web-3", answer=None))
            await world.pass_by(DURATION / 2, renewing=False)
        assert world.kwok.problem is not None
        assert "web-3 was not initialised" in world.kwok.problem

    async def test_whose_name_is_taken_is_not_waited_for(self, world: World) -> None:
        async def post() -> bool:
            return False

        await world.kwok.scout("web-0", post)
        assert world.kwok.problem is None
        assert world.kwok.wants_scout()
        # The node of that name is somebody else's and teaches nothing.
        world.kwok.initialised("web-0", ENDPOINT, group="web", first_sight=True)
        assert await world.kwok.endpoint([]) is None

    async def test_that_can_not_be_posted_is_its_senders_error(self, world: World) -> None:
        async def post() -> bool:
            raise ApiUnreachableError(server="https://k8s", cause="connection refused")

        with pytest.raises(ApiUnreachableError):
            await world.kwok.scout("web-0", post)
        assert world.kwok.problem is None
        assert world.kwok.wants_scout()


class TestLease:
    async def test_a_sign_of_life_is_good_for_a_moment(self, world: World) -> None:
        await taught(world)
        world.asked.clear()
        world.seconds += TRUSTED_FOR - 1
        assert await world.kwok.endpoint(NODES) == ENDPOINT
        assert world.asked == []
        world.seconds += 1
        assert await world.kwok.endpoint(NODES) == ENDPOINT
        assert world.asked != []

    @pytest.mark.parametrize("ahead", [-3_600, -45, 45, 3_600])
    async def test_clocks_that_differ_mean_nothing(self, world: World, ahead: float) -> None:
        world.kwoks_clock += timedelta(seconds=ahead)
        await taught(world)
        await world.pass_by(100.0, renewing=True)
        assert (await world.kwok.endpoint(NODES), world.kwok.problem) == (ENDPOINT, None)
        await world.pass_by(DURATION, renewing=False)
        assert await world.kwok.endpoint(NODES) is None
        assert world.kwok.problem is None
        await world.pass_by(DURATION, renewing=False)
        assert world.kwok.problem is not None

    async def test_a_clock_that_is_put_right_is_no_sign_of_death(self, world: World) -> None:
        await taught(world)
        await world.pass_by(100.0, renewing=True)
        world.kwoks_clock -= timedelta(hours=1)
        await world.pass_by(100.0, renewing=True)
        assert (await world.kwok.endpoint(NODES), world.kwok.problem) == (ENDPOINT, None)

    async def test_the_first_sight_of_it_shows_nothing(self, world: World) -> None:
        """After a restart: kwok may be gone for an hour, or have renewed it a moment ago."""
        world.renew(*NODES)
        await world.kwok.look(NODES)
        assert world.kwok.problem is None
        await taught(world)
        world.seconds += TRUSTED_FOR
        assert await world.kwok.endpoint(NODES) == ENDPOINT

    async def test_renewed_while_nobody_looked_a_scout_has_to_tell(self, world: World) -> None:
        await taught(world)
        world.seconds += TRUSTED_FOR
        assert await world.kwok.endpoint(NODES) == ENDPOINT
        world.seconds += 3_600
        world.renew(*NODES)
        assert await world.kwok.endpoint(NODES) is None
        assert world.kwok.problem is None
        assert world.kwok.wants_scout()

    async def test_unchanged_kwok_is_silent_until_it_renews(self, world: World) -> None:
        await taught(world)
        world.renew(*NODES)
        world.seconds += TRUSTED_FOR
        await world.kwok.look(NODES)
        await world.pass_by(DURATION, renewing=False)
        assert world.kwok.problem is None
        await world.pass_by(DURATION, renewing=False)
        assert await world.kwok.endpoint(NODES) is None
        before = world.kwok.problem
        assert "the Lease of web-2 was last renewed at 2026-01-02T03:20:45Z" in str(before)
        # It is part of the status, which is only written when it changes.
        await world.pass_by(300.0, renewing=False)
        assert world.kwok.problem == before
        await world.pass_by(DURATION / 2, renewing=True)
        assert (await world.kwok.endpoint(NODES), world.kwok.problem) == (ENDPOINT, None)
        assert world.kwok.wants_scout()

    @pytest.mark.parametrize("alive", [True, False])
    async def test_many_groups_are_as_soon_known(self, world: World, *, alive: bool) -> None:
        """Each group that looks has a Lease that is newer than the one that was read before."""
        groups = [f"group-{n:03}-0" for n in range(500)]
        await taught(world)
        world.renew(*groups)
        ended = world.seconds
        while world.kwok.problem is None and world.seconds < ended + 10 * DURATION:
            world.seconds += 1
            now = int(world.seconds)
            if alive:
                world.renew(*groups[now % 10 :: 10])
            await world.kwok.look([groups[now % len(groups)]])
        assert (world.kwok.problem is None) == alive
        assert alive or world.seconds - ended <= 1.5 * DURATION
        for _ in range(DURATION):
            world.seconds += 1
            world.renew("another-0")
            await world.kwok.look(["another-0"])
        assert world.kwok.problem is None

    async def test_in_time_it_says_more_than_a_scout(self, world: World) -> None:
        world.renew(*NODES)
        await world.kwok.look(NODES)
        await world.pass_by(0.8 * DURATION, renewing=False)
        await world.kwok.scout("web-3", posting(world.kwok, "web-3", answer=None))
        assert "was not initialised" in str(world.kwok.problem)
        await world.pass_by(DURATION, renewing=False)
        assert "was last renewed at" in str(world.kwok.problem)

    async def test_of_a_node_that_is_gone_it_shows_nothing(self, world: World) -> None:
        world.renew(*NODES)
        await world.kwok.look(NODES)
        del world.leases["web-2"]
        world.seconds += 3_600
        await world.kwok.look(NODES[:2])
        assert world.kwok.problem is None
        await world.pass_by(DURATION + TRUSTED_FOR, renewing=False)
        assert world.kwok.problem is not None

    @pytest.mark.parametrize("leases", [{}, dict.fromkeys(NODES, ("kwok-a", 1, None))], ids=bool)
    async def test_untaken_kwok_is_silent(self, world: World, leases: dict[str, Any]) -> None:
        """One that was never renewed is none."""
        world.leases = leases
        await world.kwok.look(NODES)
        world.seconds += FIRST_LEASE_WITHIN - 1
        await world.kwok.look(NODES)
        assert world.kwok.problem is None
        world.seconds += 1
        await world.kwok.look(NODES)
        assert "nobody has taken the Lease of web-0" in str(world.kwok.problem)

    @pytest.mark.parametrize("quiet", [0.75, 2], ids=["untold", "told"])
    async def test_one_look_for_all_while_quiet(self, world: World, quiet: float) -> None:
        await taught(world)
        await world.pass_by(quiet * DURATION + TRUSTED_FOR, renewing=False)
        assert (world.kwok.problem is not None, world.kwok.alive) == (quiet > 1, False)
        world.seconds += LOOK_EVERY
        world.asked.clear()
        world.latency = LOOK_EVERY
        await asyncio.gather(*(world.kwok.look([f"group-{number}-0"]) for number in range(10)))
        assert 0 < len(world.asked) <= 4, "one look, which all wait for"
        world.renew("web-0", "web-2")
        world.seconds += LOOK_EVERY
        await world.kwok.look(NODES)
        assert world.kwok.problem is None

    async def test_a_kwok_that_takes_none_is_known_by_its_answers(self, world: World) -> None:
        await world.kwok.scout("web-0", posting(world.kwok, "web-0", answer=ENDPOINT))
        for _ in range(3):
            world.seconds += FIRST_LEASE_WITHIN
            await world.kwok.look(NODES)
        assert world.kwok.problem is None

    async def test_a_kwok_that_is_behind_is_known_by_what_it_takes(self, world: World) -> None:
        # It takes Leases in the order of nodes, and renews none meanwhile.
        nodes = [f"web-{n}" for n in range(1_000)]
        await taught(world)
        for taken in range(100, 1_000, 100):
            world.seconds += 10
            world.renew(*nodes[taken - 100 : taken])
            world.asked.clear()
            assert await world.kwok.endpoint(nodes) == ENDPOINT
            assert len(world.asked) <= 14, "of a thousand nodes"
        await world.pass_by(DURATION, renewing=False)
        assert await world.kwok.endpoint(nodes) is None

    async def test_those_that_another_kwok_left_are_passed_over(self, world: World) -> None:
        """The Lease that was read first is nobody's any more; kwok goes on with another node."""
        world.renew(*NODES)
        await world.kwok.look(NODES[:1])
        for _ in range(20):
            world.seconds += DURATION / 4
            world.renew("web-2")
            await world.kwok.look(NODES)
        assert world.kwok.problem is None

    async def test_an_api_server_without_an_answer_is_not_kwoks_silence(self, world: World) -> None:
        world.unreachable = True
        await world.kwok.look([])  # nothing to ask about
        with pytest.raises(ApiUnreachableError):
            await world.kwok.look(NODES)
        assert world.kwok.problem is None


class TestAnotherKwok:
    async def test_another_holder_calls_for_a_scout_which_teaches(self, world: World) -> None:
        await taught(world)
        world.seconds += TRUSTED_FOR
        await world.kwok.look(NODES)
        world.seconds += TRUSTED_FOR
        world.renew(*NODES, holder="kwok-b")
        assert await world.kwok.endpoint(NODES) is None
        assert world.kwok.wants_scout()
        assert world.kwok.problem is None
        await taught(world, endpoint=OTHER, holder="kwok-b")
        for _ in range(20):
            world.seconds += TRUSTED_FOR
            world.renew(*NODES, holder="kwok-b")
            assert await world.kwok.endpoint(NODES) == OTHER

    async def test_no_other_node_teaches(self, world: World) -> None:
        # Its addresses may be of a kwok that is gone.
        world.kwok.initialised("web-1", ENDPOINT, group="web", first_sight=True)
        world.kwok.initialised("web-2", ENDPOINT, group="web", first_sight=False)
        assert await world.kwok.endpoint([]) is None

    async def test_another_endpoint_on_a_node_calls_for_a_scout_once(self, world: World) -> None:
        # Two kwoks, or a node that keeps an old address, must not make each node a scout.
        await taught(world)
        world.kwok.initialised("web-1", ENDPOINT, group="web", first_sight=False)
        world.kwok.initialised("web-2", OTHER, group="web", first_sight=True)
        assert await world.kwok.endpoint(NODES) == ENDPOINT, "no news"
        world.kwok.initialised("web-1", OTHER, group="web", first_sight=False)
        assert await world.kwok.endpoint(NODES) is None
        assert world.kwok.wants_scout()
        await taught(world)
        world.kwok.initialised("web-2", OTHER, group="web", first_sight=False)
        assert await world.kwok.endpoint(NODES) == ENDPOINT


async def test_nodes_of_users_stages_only_show_that_kwok_lives(
    world: World,
) -> None:
    client, clock = cast(KubeClient, world), world.monotonic
    kwok = world.kwok = KwokLink(client=client, clock=clock, born_ready=lambda name: name == "web")
    kwok.initialised("own-0", OTHER, group="own", first_sight=True)
    assert not kwok.alive
    kwok.initialised("own-0", OTHER, group="own", first_sight=False)
    assert kwok.alive
    assert await kwok.endpoint(NODES) is None
    await taught(world)
    for port in range(1, 5):
        each = KubeletEndpoint((("InternalIP", f"10.1.0.{port}"),), port)
        kwok.initialised(f"own-{port}", each, group="own", first_sight=False)
        assert await kwok.endpoint(NODES) == ENDPOINT


async def test_each_turn_is_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await taught(world)
    await world.pass_by(300.0, renewing=False)
    await world.pass_by(300.0, renewing=True)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "kubelet endpoint learned",
        "kwok controller does not answer",
        "kwok controller is back",
    ]


async def test_a_hung_lease_blocks_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_WITHIN", 0.01)
    world.hangs = True
    await asyncio.gather(*(world.kwok.look([node]) for node in NODES))
    assert len(world.asked) == 1
    assert not world.kwok.alive and world.kwok.problem is None
