"""One object's failure holds up that object alone, and the status says what doesn't succeed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL, TEMPLATE_HASH_ANNOTATION
from kwok_operator.nodegroups import reconciler
from kwok_operator.nodegroups.nodecache import UNHEARD_OF
from kwok_operator.nodegroups.plan import NO_ADDRESSES
from tests.fakes.apiserver import GROUPS, NODES, Seen
from tests.fakes.operator import NAME, Json, World
from tests.fakes.store import Change, Refused
from tests.fakes.waiting import until
from tests.fakes.wire import Watcher

ALWAYS = 10_000
TAKEN_OFF: dict[str, Json] = {
    "label": {"labels": {NODE_GROUP_LABEL: None}},
    "hash": {"annotations": {TEMPLATE_HASH_ANNOTATION: None}},
}


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(reconciler, "NOT_READY_RECHECK", 0.05)
    monkeypatch.setattr(reconciler, "progress_interval", lambda groups: 0.05)
    async with World().running() as world:
        strategy = {"type": "RollingUpdate"}
        spec = {"targetSize": 10, "updateStrategy": strategy}
        world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
        await world.settled(10)
        yield world


def always(world: World, code: int, **which: str) -> None:
    """Answers with an error status; 0 cuts the connection."""
    if code:
        world.server.fail(code, times=ALWAYS, message="webhook down", **which)
    else:
        world.server.cut(times=ALWAYS, **which)


def condition(world: World, kind: str) -> Json:
    found: Json
    [found] = [c for c in world.status["conditions"] if c["type"] == kind]
    return found


def told(world: World) -> str:
    """Why the group is stalled, of the present spec; "" where it isn't."""
    if world.status["observedGeneration"] != world.group["metadata"]["generation"]:
        return ""
    stalled = condition(world, "Stalled")
    return str(stalled["message"]) if stalled["status"] == "True" else ""


@pytest.mark.parametrize("mark", TAKEN_OFF)
@pytest.mark.parametrize("code", [500, 429, 0])
async def test_a_node_whose_marks_can_not_be_put_back(world: World, mark: str, code: int) -> None:
    name = sorted(world.server.objects(NODES))[3]
    always(world, code, verb="patch", resource="nodes", name=name)
    world.server.patch(NODES, name, {"metadata": TAKEN_OFF[mark]})
    await until(lambda: name in told(world))
    world.scale(20)
    await until(lambda: len(world.server.objects(NODES)) == 20 and name in told(world))
    world.scale(15)
    await until(lambda: world.status["replicas"] == 15 and name in told(world))
    world.server.heal()
    world.later += 100  # seconds after which it is tried again
    await world.settled(15)
    assert name in world.server.objects(NODES)
    await until(lambda: not told(world))


@pytest.mark.parametrize("code", [400, 403])
async def test_a_stray_that_may_not_be_looked_up_is_not_forgotten(world: World, code: int) -> None:
    name, creates = min(world.server.objects(NODES)), world.server.calls["create", "nodes"]
    always(world, code, verb="get", resource="nodes", name=name)
    world.server.patch(NODES, name, {"metadata": TAKEN_OFF["label"]})
    await until(lambda: name in told(world))
    world.server.heal()
    world.later += 100
    await world.settled(10)
    assert world.server.calls["create", "nodes"] == creates


async def test_hashes_that_are_taken_off_one_after_the_other(world: World) -> None:
    """Those that lose it while others are put right are none the less the group's."""
    nodes = world.server.objects(NODES)
    first = sorted(nodes)
    released = world.server.hold(verb="patch", resource="nodes", name=first[0])
    world.server.patch(NODES, first[0], {"metadata": TAKEN_OFF["hash"]})
    await until(lambda: any(s.verb == "patch" and s.name == first[0] for s in world.server.seen))
    for name in first[1:]:
        world.server.patch(NODES, name, {"metadata": TAKEN_OFF["hash"]})
    await until(lambda: all(not r.template_hash for r in world.cache.group(NAME).values()))
    released.set()
    await until(
        lambda: all(
            TEMPLATE_HASH_ANNOTATION in node["metadata"]["annotations"] for node in nodes.values()
        )
    )
    assert sorted(nodes) == first


@pytest.mark.parametrize("code", [0, 401, 409, 410, 429, 451])
async def test_an_undeletable_node_holds_up_no_other(world: World, code: int) -> None:
    """Whatever the status: a webhook may choose any."""
    name = sorted(world.server.objects(NODES))[3]
    always(world, code, verb="delete", resource="nodes", name=name)
    down = {"nodesToDelete": [name]}
    world.server.patch(GROUPS, NAME, {"spec": {"targetSize": 15, "scaleDown": down}})
    await until(lambda: len(world.server.objects(NODES)) == 16 and told(world))
    world.server.heal()
    await until(lambda: len(world.server.objects(NODES)) == 15 and not told(world))


@pytest.mark.parametrize("code", [500, 429, 0])
async def test_an_untried_template_holds_up_no_deletion(world: World, code: int) -> None:
    always(world, code, verb="create", resource="nodes")
    shape = {"template": {"shape": {"cpu": 7}}}
    world.server.patch(GROUPS, NAME, {"spec": {"targetSize": 5, **shape}})
    await until(lambda: len(world.server.objects(NODES)) == 5 and "tried" in told(world))
    await until(lambda: world.status["readyReplicas"] == 5)
    assert condition(world, "Ready")["status"] == "False"
    assert condition(world, "TemplateResolved")["status"] == "Unknown"
    world.server.heal()
    await world.settled(5)
    assert {n["status"]["capacity"]["cpu"] for n in world.server.objects(NODES).values()} == {"7"}


async def test_many_nodes_that_go_at_once_are_looked_for_together(world: World) -> None:
    world.scale(60)
    await world.settled(60)
    first, altered, *gone = sorted(world.server.objects(NODES))[:50]
    released = world.server.hold(verb="get", resource="nodes", name=first)
    world.server.patch(NODES, first, {"metadata": TAKEN_OFF["label"]})
    await until(lambda: world.status["readyReplicas"] == 59)
    world.server.patch(NODES, altered, {"metadata": TAKEN_OFF["label"]})
    for name in gone:
        world.server.delete(NODES, name)
    await until(lambda: world.status["readyReplicas"] == 10)
    before = world.server.calls.copy()
    released.set()
    await world.settled(60)
    assert {first, altered} <= world.server.objects(NODES).keys()
    calls = world.server.calls - before
    assert calls["get", "nodes"] + calls["list", "nodes"] < 10


async def test_many_that_have_their_label_again_are_not_taken_for_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody puts it back before the nodes are listed, and the watch tells of it later."""
    world.server.patch(GROUPS, NAME, {"spec": {"scaleDown": {"order": "OldestFirst"}}})
    world.scale(30)
    await world.settled(30)
    first, creates = set(world.server.objects(NODES)), world.server.calls["create", "nodes"]
    late, respond, tell = list[tuple[Watcher, Change]](), world.server._respond, Watcher.tell

    def tell_later() -> None:
        monkeypatch.setattr(Watcher, "tell", tell)
        for watcher, change in late:
            watcher.tell(change)

    async def put_back(request: Any, seen: Seen, *rest: Any) -> Any:
        if (seen.verb, seen.resource) == ("list", "nodes") and not late:
            monkeypatch.setattr(Watcher, "tell", lambda *told: late.append(told))
            for name in first:
                labels = {"labels": {NODE_GROUP_LABEL: NAME}}
                world.server.patch(NODES, name, {"metadata": labels})
            asyncio.get_running_loop().call_later(0.1, tell_later)
        return await respond(request, seen, *rest)

    monkeypatch.setattr(world.server, "_respond", put_back)
    one = min(first)
    released = world.server.hold(verb="get", resource="nodes", name=one)
    world.server.patch(NODES, one, {"metadata": TAKEN_OFF["label"]})
    await until(lambda: world.status["readyReplicas"] == 29)
    for name in first - {one}:
        world.server.patch(NODES, name, {"metadata": TAKEN_OFF["label"]})
    await until(lambda: not world.cache.group(NAME))
    released.set()
    await until(lambda: late and Watcher.tell is tell)
    await world.settled(30)
    assert set(world.server.objects(NODES)) == first
    assert world.server.calls["create", "nodes"] == creates


@pytest.mark.parametrize("status", [500, 403])
async def test_addresses_of_a_node_that_may_exist_are_held_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(reconciler, "NO_ADDRESSES_RECHECK", 0.05)

    def create(name: str) -> None:
        spec = {"targetSize": 1, "template": {"network": {"podCIDR": "10.0.0.0/24"}}}
        world.server.create(GROUPS, {"metadata": {"name": name}, "spec": spec})

    def says(name: str, text: str) -> bool:
        return text in str(world.server.objects(GROUPS)[name].get("status"))

    def fail(body: Json, dry_run: bool) -> None:
        if body["metadata"]["name"].startswith("first") and not dry_run:
            raise Refused(status, "Injected", "no")

    world.server.admit = fail
    create("first")
    await until(lambda: says("first", "to create nodes"))
    world.server.delete(GROUPS, "first")
    create("second")
    if status == 500:  # a proxy may have sent it, after the API server had created the node
        await until(lambda: says("second", NO_ADDRESSES))
        world.later += UNHEARD_OF
    await until(lambda: len(world.server.objects(NODES)) == 11)
