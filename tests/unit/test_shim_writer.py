"""Changes of groups, written under a test on what they were decided on."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.errors import ApiUnreachableError, InvalidError
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.autoscaler import (
    Change,
    Fleet,
    RefusedError,
    Victim,
    delete,
    increase,
)
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.store import Store
from kwok_operator.shim.writer import PATIENCE, BusyError, NotServedError, TargetWriter
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.shimstore import store_of

NAME = "web"


class World:
    """An API server with one group of ten nodes, and a shim's store and writer."""

    def __init__(self, server: FakeApiServer, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.store = store_of()
        self.seconds = 0.0
        self.writer = self.another_writer()
        body = {
            "apiVersion": "kwok-operator.io/v1alpha1",
            "kind": "KwokNodeGroup",
            "metadata": {"name": NAME},
            "spec": {"targetSize": 10, "autoscaling": {"minSize": 0, "maxSize": 5000}},
        }
        server.create(GROUPS, body)
        self.take()

    def another_writer(
        self, store: Store | None = None, *, patience: float = PATIENCE
    ) -> TargetWriter:
        async def sleep(_: float) -> None:
            await asyncio.sleep(0)

        return TargetWriter(
            client=self.client,
            store=store or self.store,
            clock=lambda: self.seconds or time.monotonic(),
            patience=patience,
            sleep=sleep,
            draw=lambda: 0.5,
        )

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.store.collections[GROUPS].objects[NAME]
        return found

    def take(self) -> None:
        """As the watch would tell it."""
        body = self.body
        body["status"] = {"nextSerial": 10, "targetSize": 10}
        self.store.put_group(Group.parse(body))

    def patches(self) -> int:
        return self.server.calls["patch", "kwoknodegroups"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with FakeApiServer() as server, KubeClient(connection=server.connection()) as client:
        yield World(server, client)


def victim(world: World, serial: int) -> Victim:
    group = world.store.served(NAME)
    assert group is not None
    return Victim(group.names.name(serial))


async def test_a_change_is_written_and_known_at_once(world: World) -> None:
    await world.writer.change(NAME, lambda fleet: increase(fleet, 5))
    assert world.body["spec"]["targetSize"] == 15
    group = world.store.served(NAME)
    assert group is not None
    assert world.store.fleet(group).target == 15


async def test_only_two_fields_are_written(world: World) -> None:
    fleet = world.store.fleet(world.store.served(NAME))  # type: ignore[arg-type]
    name = fleet.names.name(3)
    await world.writer.change(NAME, lambda _: Change(9, frozenset({name})))
    spec = {"targetSize": 9, "scaleDown": {"nodesToDelete": [name]}}
    assert world.body["spec"] == spec | {"autoscaling": {"minSize": 0, "maxSize": 5000}}
    # Target first, and another node would go; node first, and it would be made again.
    assert world.patches() == 1


async def test_nothing_new_is_not_written(world: World) -> None:
    await world.writer.change(NAME, lambda _: None)
    assert world.patches() == 0


async def test_calls_that_come_together_are_written_together(world: World) -> None:
    asks = [world.writer.change(NAME, lambda fleet: increase(fleet, 1)) for _ in range(50)]
    await asyncio.gather(*asks)
    assert world.body["spec"]["targetSize"] == 60
    assert world.patches() == 1


async def test_a_refused_one_spoils_no_other(world: World) -> None:
    def refused(fleet: Fleet) -> Change | None:
        return delete(fleet, [Victim("not-ours")])

    asks = [lambda fleet: increase(fleet, 1), refused, lambda fleet: increase(fleet, 2)]
    outcomes = await asyncio.gather(
        *(world.writer.change(NAME, ask) for ask in asks), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [Change, RefusedError, Change]
    assert world.body["spec"]["targetSize"] == 13


async def test_twenty_writers_with_stores_of_their_own_lose_nothing(world: World) -> None:
    async def shim(number: int) -> int:
        mine = world.another_writer(store_of(Group.parse(world.body)), patience=60)
        added = 0
        for _ in range(2):
            try:
                await mine.change(NAME, lambda fleet: increase(fleet, number))
            except BusyError:
                continue
            added += number
        return added

    added = sum(await asyncio.gather(*(shim(number) for number in range(1, 21))))
    assert added > 0
    assert world.body["spec"]["targetSize"] == 10 + added


async def test_a_status_storm_is_in_nobodys_way(world: World) -> None:
    async def storm() -> None:
        for number in range(100):
            status = {"status": {"replicas": number}}
            await world.client.request(
                "PATCH",
                f"{GROUPS}/{NAME}/status",
                body=status,
                content_type="application/merge-patch+json",
            )

    async def scale() -> None:
        for _ in range(20):
            await world.writer.change(NAME, lambda fleet: increase(fleet, 1))

    await asyncio.gather(storm(), scale())
    assert world.body["spec"]["targetSize"] == 30
    assert world.server.calls["patch", "kwoknodegroups"] == 20


async def test_it_gives_up_before_cluster_autoscaler_does(world: World) -> None:
    def others_were_faster(fleet: Fleet) -> Change | None:
        world.seconds += 1.0
        metadata = world.body["metadata"]
        metadata["generation"] += 1
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)
        return increase(fleet, 1)

    world.seconds = 1.0
    with pytest.raises(BusyError, match="try again"):
        await world.writer.change(NAME, others_were_faster)
    assert world.seconds <= 7.0


async def test_a_refusal_of_the_api_server_is_raised_at_once(world: World) -> None:
    world.server.fail(422, verb="patch", message="targetSize must not be greater than maxSize")
    with pytest.raises(InvalidError, match="must not be greater than maxSize"):
        await world.writer.change(NAME, lambda fleet: increase(fleet, 1))
    assert world.patches() == 1


async def test_a_lost_answer_is_an_error_and_no_second_write(world: World) -> None:
    world.server.cut(verb="patch", carried_out=True)
    with pytest.raises(ApiUnreachableError):
        await world.writer.change(NAME, lambda fleet: increase(fleet, 5))
    assert world.body["spec"]["targetSize"] == 15
    world.store.put_group(Group.parse(world.body))
    await world.writer.change(NAME, lambda fleet: increase(fleet, 1))
    assert world.body["spec"]["targetSize"] == 16


async def test_a_cancelled_call_cancels_no_others(world: World) -> None:
    """The call's deadline has passed: before the write it counts for nothing, after it as done."""
    early = asyncio.create_task(world.writer.change(NAME, lambda fleet: increase(fleet, 100)))
    other = asyncio.create_task(world.writer.change(NAME, lambda fleet: increase(fleet, 1)))
    await asyncio.sleep(0)
    early.cancel()
    await other
    assert world.body["spec"]["targetSize"] == 11

    def asked(fleet: Fleet) -> Change | None:
        asyncio.get_running_loop().call_soon(late.cancel)
        return increase(fleet, 10)

    late = asyncio.create_task(world.writer.change(NAME, asked))
    with pytest.raises(asyncio.CancelledError):
        await late
    await world.writer.change(NAME, lambda fleet: increase(fleet, 1))
    assert world.body["spec"]["targetSize"] == 22


async def test_a_group_that_is_gone(world: World) -> None:
    with pytest.raises(NotServedError):
        await world.writer.change("another", lambda fleet: increase(fleet, 1))
    del world.server.store.collections[GROUPS].objects[NAME]
    with pytest.raises(NotServedError):
        await world.writer.change(NAME, lambda fleet: increase(fleet, 1))
