"""Taking, keeping and releasing the Lease, and the fence that refuses writes in time.

On a clock that goes on as the elector sleeps, against an API server with faults.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwok_operator.errors import NotLeadingError
from kwok_operator.kube.client import KubeClient
from kwok_operator.operator import leadership
from kwok_operator.operator.election import LeaseTerms
from kwok_operator.operator.leadership import (
    Elector,
    Fence,
    LeadershipLostError,
    elapsed,
    make_identity,
)
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.recording import Clock
from tests.fakes.waiting import until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"
TERMS = LeaseTerms(lease_duration=10, renew_deadline=7.0, retry_period=2.0)


class Replica:
    """An elector with its own clock and fence."""

    def __init__(self, server: FakeApiServer, client: KubeClient, identity: str) -> None:
        self.clock = Clock()
        self.fence = Fence(self.clock)
        self.elector = Elector(
            client=client,
            namespace="ops",
            name="lead",
            identity=identity,
            terms=TERMS,
            fence=self.fence,
            clock=self.clock,
            wall=self.clock.wall,
            sleep=self.clock.sleep,
        )

    def may_write(self) -> bool:
        try:
            self.fence.check("POST", NODES)
        except NotLeadingError:
            return False
        return True

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[asyncio.Task[None]]:
        """Leads, and goes on to; cancelled in the end."""
        await self.elector.acquire()
        keeping = asyncio.create_task(self.elector.keep())
        yield keeping
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    async def keep(self) -> str:
        """The reason for which the lead ended."""
        with pytest.raises(LeadershipLostError) as lost:
            await self.elector.keep()
        assert not self.may_write() and self.fence.is_shut
        return str(lost.value)


@pytest.fixture
def server(server: FakeApiServer) -> FakeApiServer:
    server.serve(LEASES, kind="Lease")
    return server


@pytest.fixture
def me(server: FakeApiServer, client: KubeClient) -> Replica:
    return Replica(server, client, "me")


def spec(server: FakeApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.objects(LEASES)["lead"]["spec"]
    return found


def hold(server: FakeApiServer, holder: str, **fields: Any) -> None:
    """Somebody else creates the Lease, or changes it."""
    values = {"holderIdentity": holder, "leaseDurationSeconds": 10, **fields}
    if "lead" in server.objects(LEASES):
        server.patch(LEASES, "lead", {"spec": values})
    else:
        server.create(LEASES, {"metadata": {"name": "lead"}, "spec": values})


async def renewals(server: FakeApiServer, count: int) -> None:
    """Returns once that many more have been tried."""
    goal = server.calls["update", "leases"] + count
    await until(lambda: server.calls["update", "leases"] >= goal)


async def test_the_first_one_creates_the_lease(server: FakeApiServer, me: Replica) -> None:
    assert not me.may_write() and not me.fence.is_shut
    await me.elector.acquire()
    assert me.may_write() and me.elector.leading
    started = "1970-01-01T00:16:40.000000Z"
    assert spec(server) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 10,
        "acquireTime": started,
        "renewTime": started,
        "leaseTransitions": 0,
    }
    assert server.objects(LEASES)["lead"]["metadata"]["namespace"] == "ops"


async def test_a_standby_waits_for_the_duration(server: FakeApiServer, me: Replica) -> None:
    hold(server, "you", leaseTransitions=4)
    await me.elector.acquire()
    assert me.clock.now == pytest.approx(1_010)
    assert server.calls["get", "leases"] == pytest.approx(21, abs=1), "two looks a second"
    assert (spec(server)["holderIdentity"], spec(server)["leaseTransitions"]) == ("me", 5)


async def test_a_released_lease_is_taken_at_once(server: FakeApiServer, me: Replica) -> None:
    hold(server, "you")

    async def release(seconds: float) -> None:
        await me.clock.sleep(seconds)
        if me.clock.now >= 1_003:
            hold(server, "", leaseDurationSeconds=1)

    me.elector._sleep = release
    await me.elector.acquire()
    assert me.clock.now == pytest.approx(1_003)


async def test_of_two_replicas_one_gets_it(
    server: FakeApiServer, client: KubeClient, me: Replica
) -> None:
    hold(server, "")
    you = Replica(server, client, "you")
    for _ in range(2):
        server.hold(verb="update").set()
    acquiring = [asyncio.create_task(r.elector.acquire()) for r in (me, you)]
    await until(lambda: me.may_write() or you.may_write())
    # The clock of the other one runs while it looks; its own times prove nothing here.
    assert spec(server)["holderIdentity"] == ("me" if me.may_write() else "you")
    assert me.may_write() != you.may_write()
    for task in acquiring:
        task.cancel()
    await asyncio.gather(*acquiring, return_exceptions=True)


async def test_trouble_while_it_stands_by_is_waited_out(
    server: FakeApiServer, me: Replica, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server.fail(500, times=2)
    server.fail(429, times=2)
    await me.elector.acquire()
    told = [r.getMessage() for r in caplog.records if "reach" in r.getMessage()]
    assert len(told) == 2, "when it begins and when it ends"
    assert me.clock.now == pytest.approx(1_008), "a retry period each"


async def test_a_leader_renews_each_retry_period(server: FakeApiServer, me: Replica) -> None:
    async with me.keeping():
        await renewals(server, 20)
        assert me.may_write()
        made = server.calls["update", "leases"]
        assert me.clock.now - 1_000 == pytest.approx(made * TERMS.retry_period, abs=4)
        assert (spec(server)["holderIdentity"], spec(server)["leaseTransitions"]) == ("me", 0)
        assert spec(server)["acquireTime"] < spec(server)["renewTime"]
    assert me.may_write(), "to be cancelled is no loss: what is in flight may end"


FAULTS: dict[str, dict[str, Any]] = {
    "conflict": {"status": 409},
    "too-many-requests": {"status": 429, "retry_after": 30},
    "server-error": {"status": 500},
    "lost-answer": {"status": 500, "carried_out": True},
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_leader_survives_a_fault(server: FakeApiServer, me: Replica, fault: str) -> None:
    async with me.keeping() as keeping:
        for _ in range(4):
            server.fail(verb="update", times=2, **FAULTS[fault])
            await renewals(server, 6)
            assert me.may_write() and not keeping.done()


async def test_a_deleted_lease_is_created_again_and_what_others_write_there_is_kept(
    server: FakeApiServer, me: Replica
) -> None:
    async with me.keeping():
        server.delete(LEASES, "lead")
        await until(lambda: server.objects(LEASES))
        assert spec(server)["holderIdentity"] == "me" and me.may_write()
        server.patch(LEASES, "lead", {"metadata": {"annotations": {"note": "hands off"}}})
        await renewals(server, 3)
        assert server.objects(LEASES)["lead"]["metadata"]["annotations"] == {"note": "hands off"}


async def test_without_renewal_it_ends_in_time(server: FakeApiServer, me: Replica) -> None:
    await me.elector.acquire()
    server.fail(503, times=100, message="etcd is away")
    reason = await me.keep()
    assert me.clock.now == pytest.approx(1_007)
    assert reason.startswith("lost the Lease ops/lead: not renewed for 7 s (")
    assert "etcd is away" in reason


async def test_a_hung_api_server_ends_it(server: FakeApiServer, client: KubeClient) -> None:
    """In real time: the request is given up when the lead ends."""
    fence = Fence()
    elector = Elector(
        client=client,
        namespace="ops",
        name="lead",
        identity="me",
        terms=LeaseTerms(lease_duration=3, renew_deadline=1.5, retry_period=0.1),
        fence=fence,
    )
    await elector.acquire()
    held = [server.hold(verb="update") for _ in range(50)]
    async with asyncio.timeout(60):
        with pytest.raises(LeadershipLostError, match="no answer within"):
            await elector.keep()
    assert fence.is_shut
    for released in held:
        released.set()


async def test_a_taken_lease_ends_it_at_once(server: FakeApiServer, me: Replica) -> None:
    await me.elector.acquire()
    hold(server, "you")
    assert await me.keep() == "lost the Lease ops/lead: it is held by you"
    assert me.clock.now == pytest.approx(1_002)
    await me.elector.release()
    assert spec(server)["holderIdentity"] == "you"


async def test_so_does_one_that_somebody_else_released(server: FakeApiServer, me: Replica) -> None:
    await me.elector.acquire()
    hold(server, "")
    assert "it is held by nobody: it was released by somebody else" in await me.keep()


async def test_a_frozen_process_writes_no_more(server: FakeApiServer, me: Replica) -> None:
    await me.elector.acquire()
    me.clock.now += 60
    assert not me.may_write(), "before anything else has run"
    assert "not renewed for 7 s" in await me.keep()
    assert server.calls["update", "leases"] == 0, "it does not even try"


async def test_a_late_answer_opens_nothing(server: FakeApiServer, me: Replica) -> None:
    await me.elector.acquire()
    released = server.hold(verb="update")
    keeping = asyncio.create_task(me.keep())
    await until(lambda: server.calls["update", "leases"])
    me.clock.now += 60
    released.set()
    assert (await keeping).startswith("lost the Lease")
    assert not me.may_write()


async def test_the_lead_begins_with_the_request(server: FakeApiServer, me: Replica) -> None:
    released = server.hold(verb="create")
    acquiring = asyncio.create_task(me.elector.acquire())
    await until(lambda: server.calls["create", "leases"])
    me.clock.now += 3  # on its way; standbys count from when it was stored
    released.set()
    await acquiring
    me.clock.now += 3.9
    assert me.may_write()
    me.clock.now += 0.1
    assert not me.may_write()


async def test_a_release_lets_the_next_one_in(
    server: FakeApiServer, client: KubeClient, me: Replica
) -> None:
    await me.elector.acquire()
    await me.elector.release()
    assert not me.may_write() and me.fence.is_shut
    assert (spec(server)["holderIdentity"], spec(server)["leaseDurationSeconds"]) == ("", 1)
    you = Replica(server, client, "you")
    await you.elector.acquire()
    assert you.clock.now == 1_000
    assert (spec(server)["holderIdentity"], spec(server)["leaseTransitions"]) == ("you", 1)


async def test_a_release_beats_a_renewal(server: FakeApiServer, me: Replica) -> None:
    await me.elector.acquire()
    hold(server, "me", renewTime="1970-01-01T00:16:42.000000Z")
    await me.elector.release()
    assert spec(server)["holderIdentity"] == ""


@pytest.mark.parametrize("status", [409, 500])
async def test_a_release_that_fails_is_no_error(
    server: FakeApiServer, me: Replica, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    await me.elector.acquire()
    server.fail(status, verb="update", times=2)
    await me.elector.release()
    assert not me.may_write()
    assert "the Lease was not released: lease=ops/lead" in caplog.text


async def test_a_standby_releases_nothing(server: FakeApiServer, me: Replica) -> None:
    hold(server, "you")
    await me.elector.release()
    assert spec(server)["holderIdentity"] == "you"
    assert server.calls["update", "leases"] == 0


class TestFence:
    def test_it_is_shut_until_it_is_opened(self) -> None:
        fence = Fence(Clock())
        assert not fence.is_open and not fence.is_shut
        with pytest.raises(NotLeadingError, match="POST /api/v1/nodes: only the leader may write"):
            fence.check("POST", NODES)

    def test_its_end_can_be_put_off_until_it_has_come(self) -> None:
        clock = Clock()
        fence = Fence(clock)
        fence.open_until(1_007)
        clock.now = 1_006.9
        fence.open_until(1_013)
        clock.now = 1_012.9
        fence.check("POST", NODES)
        clock.now = 1_013
        assert fence.is_shut
        with pytest.raises(LeadershipLostError):
            fence.open_until(1_020)

    def test_once_shut_it_stays_so(self) -> None:
        fence = Fence(Clock())
        fence.open_until(2_000)
        fence.shut()
        with pytest.raises(LeadershipLostError):
            fence.open_until(3_000)
        assert not fence.is_open


def test_an_identity_names_the_pod_and_is_never_used_twice() -> None:
    identities = {make_identity({"POD_NAME": "operator-7d9c-x2x"}) for _ in range(100)}
    assert len(identities) == 100
    assert all(re.fullmatch(r"operator-7d9c-x2x_[0-9a-f]{16}", each) for each in identities)
    assert make_identity({}).partition("_")[0]


def test_the_clock_of_fences_never_goes_back() -> None:
    times = [elapsed() for _ in range(100)]
    assert times == sorted(times)
    assert leadership.LOOK_EVERY < 1
