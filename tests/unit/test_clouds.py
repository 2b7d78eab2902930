"""The simulated cloud of several groups, pass by pass, without an API server."""

import asyncio
import itertools
import random
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from kwok_operator.cloud.annotations import mark_on
from kwok_operator.cloud.api.cloudstatus import CloudStatus, InstanceCounts
from kwok_operator.cloud.arrival import TRIES_AT_ONCE
from kwok_operator.cloud.clouds import CloudDecision
from kwok_operator.formats.times import format_time
from tests.cloudworld import World


@pytest.fixture
def world() -> World:
    return World()


def test_instances_become_nodes_when_they_are_due(world: World) -> None:
    world.apply("a", targetSize=5, cloud={"provisioningDelay": {"fixed": "10s"}})
    first = world.one_pass("a")
    assert first is not None
    assert not first.plan.create
    assert first.look_again == 10.0
    assert world.count("a") == 0
    assert first.status.counts == InstanceCounts(creating=5)
    world.now += 9_999
    world.one_pass("a")
    assert world.count("a") == 0
    world.now += 1
    world.one_pass("a")
    assert world.count("a") == 5
    last = world.one_pass("a")
    assert last is not None
    assert last.status.counts == InstanceCounts(ready=5)


def test_tries_of_days_are_gone_through_with_pauses_for_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = {"creation": [{"probability": "0.9999"}]}
    world.apply("a", targetSize=5, cloud={"failures": failures, "retryAfter": "1s"})
    world.one_pass("a")
    world.restart()
    world.now += 10_000 * 1_000
    pauses = AsyncMock()
    monkeypatch.setattr(asyncio, "sleep", pauses)
    world.one_pass("a")
    walked = sum(phase.tries for phase in world.clouds.phases("a").values())
    assert walked > 5 * TRIES_AT_ONCE
    assert pauses.await_count >= walked // (2 * TRIES_AT_ONCE)


def test_such_tries_are_left_when_the_group_changes_and_gone_on_with() -> None:
    def walked(*stops: bool) -> tuple[int, CloudDecision]:
        """How often others had their turn, and what was decided in the end."""
        world = World()
        cloud = {"failures": {"creation": [{"probability": "0.9999"}]}, "retryAfter": "1s"}
        world.apply("a", targetSize=9, cloud=cloud | {"stock": 8})
        world.one_pass("a")
        world.apply("a", targetSize=9, cloud=cloud | {"stock": 9})
        world.restart()
        world.now += 10_000 * 1_000
        told = iter(stops)
        turns = itertools.count()
        world.stops = (next(told, False) for _ in turns)
        while (turn := world.one_pass("a")) is None:
            pass
        return next(turns), turn

    turns, decided = walked()
    assert turns > 10
    again, after = walked(*[False] * 5, True, *[False] * 3, True)
    assert again <= turns + 2
    assert (after.status, after.plan) == (decided.status, decided.plan)


def test_what_is_left_of_a_cloud_is_not_counted(world: World) -> None:
    world.apply("a", targetSize=2, cloud={"readinessDelay": {"fixed": "1m"}})
    world.one_pass("a")
    starting = world.one_pass("a")
    world.apply("a", cloud=None)
    left = world.one_pass("a")
    assert starting is not None
    assert left is not None, "its nodes are still starting"
    assert starting.status.counts == InstanceCounts(starting=2)
    assert left.status == CloudStatus()


def test_a_group_without_a_cloud_has_no_part_in_it(world: World) -> None:
    world.apply("a", targetSize=5)
    assert world.one_pass("a") is None


def test_a_pool_is_shared_by_the_time_of_the_request(world: World) -> None:
    world.set_pool("zone", instances=5)
    world.apply("b", targetSize=4, cloud={"capacityPools": ["zone"], "retryAfter": "20s"})
    world.one_pass("b")
    world.now += 1_000
    world.apply("a", targetSize=4, cloud={"capacityPools": ["zone"], "retryAfter": "20s"})
    turn = world.one_pass("a")
    assert turn is not None
    assert turn.provisioned.reason == "PoolExhausted"
    assert turn.failed == 3
    assert (world.count("b"), world.count("a")) == (4, 1)
    assert world.clouds.refused("zone") == 3
    assert world.clouds.use().total("zone").instances == 5

    world.apply("b", targetSize=2)
    world.settle(within=25)
    assert (world.count("b"), world.count("a")) == (2, 3)

    world.apply("b", targetSize=2, cloud={"capacityPools": ["another"], "retryAfter": "20s"})
    assert world.clouds.use().total("zone").instances == 3, "its next pass is yet to come"


def test_an_edit_in_the_second_of_a_request_applies_to_it(world: World) -> None:
    for delay in ("60s", "10s"):
        world.apply("a", targetSize=1, cloud={"provisioningDelay": {"fixed": delay}})
        world.one_pass("a")
    world.now += 10_000
    world.one_pass("a")
    assert world.count("a") == 1


def test_a_paused_group_is_granted_nothing(world: World) -> None:
    cloud = {"stock": 1, "retryAfter": "5s"}
    world.apply("a", targetSize=2, cloud=cloud)
    world.one_pass("a")
    world.apply("a", paused=True, cloud=cloud | {"stock": 2})
    world.now += 10_000
    held = world.one_pass("a")
    assert held is not None
    assert held.failed == 1
    world.apply("a", paused=False)
    world.settle(within=2)
    assert world.count("a") == 2


def test_what_a_group_held_is_free_when_it_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.set_pool("quota", resources={"cpu": "16"})
    cloud = {"capacityPools": ["quota"], "retryAfter": "5s"}
    world.apply("a", targetSize=3, cloud=cloud)
    world.settle(within=2)
    world.apply("b", targetSize=3, cloud=cloud)
    world.settle(within=2)
    assert (world.count("a"), world.count("b")) == (3, 1)
    touched = Mock()
    monkeypatch.setattr(world.clouds.pools, "touched", touched)
    world.remove("a")
    assert list(touched.call_args.args[0]) == ["quota"], "its status is written again"
    world.settle(within=8)
    assert world.count("b") == 3


def test_a_pool_that_is_not_there_is_waited_for(world: World) -> None:
    world.apply("a", targetSize=2, cloud={"capacityPools": ["zone"]})
    turn = world.one_pass("a")
    assert turn is not None
    assert turn.provisioned.reason == "PoolMissing"
    assert turn.failed == 0
    world.set_pool("zone", instances=2)
    world.settle(within=1)
    assert world.count("a") == 2


def test_a_deletion_that_is_slow_is_put_off_and_counts_no_more(world: World) -> None:
    slow = {"serials": "1", "delay": {"fixed": "30s"}}
    world.apply("a", targetSize=2, cloud={"failures": {"slowDeletion": slow}})
    world.one_pass("a")
    world.apply("a", targetSize=1)
    turn = world.one_pass("a")
    assert turn is not None
    [(name, at)] = turn.postpone.items()
    assert at == world.now + 30_000
    assert not turn.plan.delete
    turn = world.one_pass("a")
    assert turn is not None
    assert not turn.postpone
    [row] = turn.status.instances
    assert (row.state, row.since) == ("Deleting", format_time(at - 30_000))
    world.apply("a", cloud={})
    edited = world.one_pass("a")
    assert edited is not None
    assert edited.status.instances == turn.status.instances
    world.restart()
    world.now += 1_000
    anew = world.one_pass("a")
    assert anew is not None
    assert anew.status.instances[0].since == format_time(world.now), "since it was seen"
    world.now = at
    world.one_pass("a")
    assert name not in world.nodes


def test_a_node_that_the_cloud_takes_back_goes_in_time_however_slow_deletions_are(
    world: World,
) -> None:
    slow = {"probability": "1", "delay": {"fixed": "30s"}}
    interruptions = {"lifetime": {"fixed": "5s"}, "notice": "1s"}
    cloud = {"failures": {"slowDeletion": slow}, "interruptions": interruptions}
    world.apply("a", targetSize=1, cloud=cloud)
    world.one_pass("a")
    [name] = world.nodes
    world.now += 6_000
    turn = world.one_pass("a")
    assert turn is not None
    assert not turn.postpone
    assert name not in world.nodes


@pytest.mark.parametrize("seed", range(5))
def test_pools_are_never_oversold_and_never_leak(world: World, seed: int) -> None:
    chance = random.Random(seed)
    world.set_pool("zone", instances=12)
    names = ["a", "b", "c"]
    cloud: dict[str, Any] = {
        "capacityPools": ["zone"],
        "provisioningDelay": {"uniform": {"min": "0s", "max": "6s"}},
        "failures": {"creation": [{"probability": "0.3", "times": 2}]},
        "retryAfter": "3s",
        "interruptions": {"lifetime": {"exponential": {"mean": "40s"}}, "notice": "2s"},
    }
    for name in names:
        world.apply(name, targetSize=chance.randint(0, 9), cloud=cloud)
    for _ in range(150):
        step = chance.random()
        name = chance.choice(names)
        if step < 0.15:
            world.apply(name, targetSize=chance.randint(0, 9))
        elif step < 0.2:
            world.restart()
            # Of a node that goes before the new process has seen it, nobody can know.
            world.settle(within=1)
        elif step < 0.25 and world.nodes:
            name = world.nodes[chance.choice(sorted(world.nodes))].group
            world.drop(next(n for n in world.nodes.values() if n.group == name))
        world.one_pass(name)
        world.now += chance.randint(100, 1_500)
        assert world.count(*names) <= 12
        total = world.clouds.use().total("zone").instances
        assert world.count(*names) <= total <= 12, "what is held was granted"

    for name in names:
        world.apply(name, targetSize=4, cloud={**cloud, "interruptions": None, "failures": {}})
    world.settle(within=200)
    assert [world.count(name) for name in names] == [4, 4, 4]
    for name in names:
        world.apply(name, targetSize=0)
    world.settle(within=3)
    assert not world.nodes
    assert world.clouds.use().total("zone").instances == 0


@pytest.mark.parametrize("seed", ["one", "two", "three"])
def test_a_restart_at_any_time_changes_nothing(seed: str) -> None:
    cloud = {
        "seed": seed,
        "provisioningDelay": {"lognormal": {"p50": "8s", "p99": "40s"}},
        "readinessDelay": {"uniform": {"min": "1s", "max": "9s"}},
        "failures": {"creation": [{"probability": "0.4"}], "neverReady": {"probability": "0.1"}},
        "retryAfter": "7s",
        "stock": 9,
        "interruptions": {"lifetime": {"uniform": {"min": "20s", "max": "90s"}}, "notice": "5s"},
    }

    def run(restarts: set[int]) -> list[tuple[int, str, str]]:
        world, told = World(), []
        world.apply("a", targetSize=12, cloud=cloud)
        for second in range(100):
            if second in restarts:
                world.restart()
            world.one_pass("a")
            shown = {n.name: m.shown for n in world.nodes.values() if (m := mark_on(n.mark))}
            told += [(second, name, text) for name, text in sorted(shown.items())]
            world.now += 1_000
        return told

    undisturbed = run(set())
    assert undisturbed == run({3, 4, 11, 30, 31, 57, 80})
    assert undisturbed == run(set(range(100)))
    assert len({text for _, _, text in undisturbed}) > 2


def test_so_many_at_a_time_get_notice(world: World) -> None:
    interruptions = {"lifetime": {"fixed": "5s"}, "notice": "10s", "atATime": 2}
    world.apply("a", targetSize=6, cloud={"interruptions": interruptions})
    world.one_pass("a")
    first = {name for name in world.nodes}
    for _ in range(80):
        world.now += 1_000
        turn = world.one_pass("a")
        assert turn is not None
        under = [v for v in turn.observed.nodes.desired.values() if v.noticed and not v.gone]
        assert len(under) <= 2
        assert world.count("a") == 6
    assert first.isdisjoint(world.nodes)


@pytest.mark.parametrize("of_pool", [True, False])
def test_in_an_outage_nothing_comes_and_no_node_is_ready(world: World, of_pool: bool) -> None:
    world.set_pool("zone", instances=9)
    cloud = {"capacityPools": ["zone"]}
    world.apply("a", targetSize=3, cloud=cloud)
    world.one_pass("a")
    world.set_pool("zone", instances=9, outage=of_pool)
    world.apply("a", targetSize=5, cloud={**cloud, "outage": not of_pool})
    turn = world.one_pass("a")
    assert turn is not None
    assert turn.provisioned.reason == "Outage"
    assert {v.ready for v in turn.observed.nodes.desired.values()} == {False}
    assert world.count("a") == 3
    world.set_pool("zone", instances=9)
    world.apply("a", cloud=cloud)
    world.settle(within=2)
    assert world.count("a") == 5
    assert all(node.ready for node in world.nodes.values())


def test_a_seed_of_all_counts_where_a_group_names_none() -> None:
    """Another one is another run, the same one is the same, and one of the group's own wins."""

    def there_after_a_second(of_all: str, **own: Any) -> list[str]:
        world = World(seed=of_all)
        delay = {"uniform": {"min": "0s", "max": "2s"}}
        world.apply("a", targetSize=50, cloud={"provisioningDelay": delay, **own})
        world.one_pass("a")
        world.now += 1_000
        world.one_pass("a")
        return sorted(world.nodes)

    run = there_after_a_second
    assert run("one") == run("one") != run("two")
    assert run("one", seed="own") == run("two", seed="own") != run("one")
