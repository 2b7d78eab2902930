"""The whole loop of watch, plan and writes, all but kopf, against an API server in trouble.

Whatever goes wrong, a group ends with exactly its nodes, each asked for once, and a true status.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kwok_operator.constants import (
    NODE_GROUP_LABEL,
    NODE_GROUP_UID_ANNOTATION,
    TEMPLATE_HASH_ANNOTATION,
)
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.podwriter import PODS_PATH
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer
from tests.fakes.operator import NAME, STATUS, WATCHES, Json, World
from tests.fakes.troubles import TROUBLES, cause
from tests.fakes.waiting import until

SIZE = 16
"""More than the eight that are written at once."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World().running() as world:
        yield world


async def settled_at(world: World, size: int) -> None:
    """Brings a group to a size while all is well."""
    world.scale(size)
    await world.settled(size)


async def test_all_is_well(world: World) -> None:
    """What the others are measured by: one request for each node, and little else."""
    await settled_at(world, SIZE)
    assert world.serials() == list(range(SIZE))
    assert world.status["nextSerial"] == SIZE
    made = [s for s in world.server.seen if (s.verb, s.resource) == ("create", "nodes")]
    first = next(s for s in made if "dryRun" not in s.query)
    before = world.server.seen[: world.server.seen.index(first)]
    assert STATUS in [s.resource for s in before], "requests are recorded first"
    await settled_at(world, 6)
    assert world.serials() == list(range(6))
    # One dry run for the template.
    assert world.server.calls["create", "nodes"] == SIZE + 1
    assert world.server.calls["delete", "nodes"] == SIZE - 6
    assert world.server.calls["patch", STATUS] < 12
    assert world.naps.slept == world.pauses.slept == []


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_creates_in_trouble_make_each_node_once(world: World, trouble: str) -> None:
    await settled_at(world, 0)
    cause(world.server, trouble, verb="create")
    world.scale(SIZE)
    await world.settled(SIZE)
    assert world.serials() == list(range(SIZE)), "no serial is spent by trouble"
    assert world.status["nextSerial"] == SIZE


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_deletes_in_trouble_end_at_the_target(world: World, trouble: str) -> None:
    await settled_at(world, SIZE)
    creates = world.server.calls["create", "nodes"]
    cause(world.server, trouble, verb="delete")
    world.scale(5)
    await world.settled(5)
    assert world.serials() == list(range(5))
    assert world.server.calls["create", "nodes"] == creates, "none too many was deleted"


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_status_writes_in_trouble_lose_nothing(world: World, trouble: str) -> None:
    cause(world.server, trouble, verb="patch")
    await settled_at(world, SIZE)
    assert world.serials() == list(range(SIZE))
    assert world.status["nextSerial"] == SIZE


@pytest.mark.parametrize("trouble", ["429-storm", "500", "cut"])
async def test_reads_in_trouble_are_repeated(world: World, trouble: str) -> None:
    for verb in ("get", "list"):
        cause(world.server, trouble, verb=verb)
    world.server.cut_watches()
    await settled_at(world, SIZE)
    assert world.serials() == list(range(SIZE))


@pytest.mark.parametrize(("verb", "size"), [("create", SIZE), ("patch", SIZE), ("delete", 3)])
async def test_lost_answer_is_asked_for_again_and_is_no_failure(
    world: World, verb: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    await settled_at(world, 8)
    cause(world.server, "answer-lost", verb=verb, times=2)
    world.scale(size)
    await world.settled(size)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == []


async def test_retry_after_is_waited_for(world: World) -> None:
    await settled_at(world, 2)
    world.server.fail(429, retry_after=7, times=8, verb="create", resource="nodes")
    world.scale(SIZE)
    await world.settled(SIZE)
    assert world.server.calls["create", "nodes"] == SIZE + 1 + 8, "each was tried once more"
    assert sum(world.pauses.slept) >= 7


async def test_trouble_on_every_request_at_random(world: World) -> None:
    chance = random.Random(7)
    for size in (SIZE, 4, 10, 0, 5):
        for _ in range(10):
            verb = chance.choice(["create", "delete", "patch", "get", "list"])
            trouble = chance.choice(list(TROUBLES))
            cause(world.server, trouble, verb=verb, times=chance.randrange(1, 6))
            if chance.random() < 0.2:
                world.server.cut_watches()
        world.scale(size)
        await world.settled(size)
    assert world.status["nextSerial"] == SIZE + 6 + 5


def delete_some(server: FakeApiServer) -> None:
    for name in sorted(server.objects(NODES))[:5]:
        server.delete(NODES, name)


async def cut(world: World) -> None:
    world.server.cut_watches()
    delete_some(world.server)


async def cut_in_the_middle_of_a_line(world: World) -> None:
    world.server.cut_watches(leaving=b'{"type":"ADDED","object":{"metadata"')
    delete_some(world.server)


async def error_event(world: World) -> None:
    world.server.send_error(500)
    delete_some(world.server)


async def gone_as_status(world: World) -> None:
    world.server.cut_watches()
    delete_some(world.server)
    world.server.compact()


async def gone_as_event(world: World) -> None:
    world.server.gone_as_event = True
    await gone_as_status(world)


@pytest.mark.parametrize(
    "happens",
    [cut, cut_in_the_middle_of_a_line, error_event, gone_as_status, gone_as_event],
    ids=lambda happens: happens.__name__,
)
async def test_unseen_losses_are_replaced(world: World, happens: Callable[[World], Any]) -> None:
    await settled_at(world, SIZE)
    await happens(world)
    await world.settled(SIZE)
    assert world.serials() == list(range(5, SIZE + 5))


@pytest.mark.parametrize("size", [SIZE, 4], ids=["up", "down"])
async def test_watch_that_is_cut_in_the_middle_of_scaling(world: World, size: int) -> None:
    await settled_at(world, 20 - size)
    verb = "create" if size == SIZE else "delete"
    before = world.server.calls[verb, "nodes"]
    world.scale(size)
    await until(lambda: world.server.calls[verb, "nodes"] > before + 5)
    world.server.cut_watches()
    world.server.compact()
    await world.settled(size)
    assert world.serials() == list(range(size))


async def test_api_server_that_is_away_in_the_middle_of_scaling(world: World) -> None:
    await settled_at(world, 0)
    world.scale(40)
    await until(lambda: len(world.server.objects(NODES)) > 5)
    await world.server.stop()
    await until(world.missed)
    assert len(world.server.objects(NODES)) < 40, "it was interrupted"
    await world.server.start()
    await world.settled(40)
    assert world.serials() == list(range(40))


@pytest.mark.parametrize("others", [0, 500], ids=["older", "overtaken"])
async def test_what_was_stored_before_is_put_back(world: World, others: int) -> None:
    """Nodes and edits from after that are gone, and versions begin anew, unless others write."""
    await settled_at(world, SIZE)
    saved = world.server.snapshot()
    delete_some(world.server)
    await settled_at(world, SIZE + 10)
    world.scale(3)
    await world.settled(3)
    await world.server.restore(saved, missed=world.missed, others=others)
    await until(lambda: world.watched == WATCHES)
    await world.settled(SIZE)
    world.scale(SIZE + 20)
    await world.settled(SIZE + 20)
    # Those that were given out after the snapshot are not given out again.
    assert world.serials() == [*range(SIZE), *range(SIZE + 15, SIZE + 35)]


@pytest.mark.parametrize("code", [400, 403, 422])
async def test_refusal_is_told_and_ends_with_its_reason(world: World, code: int) -> None:
    await settled_at(world, 0)
    world.server.fail(code, times=3, verb="create", resource="nodes", message="no more today")
    world.scale(SIZE)
    refused = "no more today"
    await until(lambda: refused in str(world.status["conditions"]))
    await world.settled(SIZE)
    assert world.serials() == list(range(SIZE))
    assert refused not in str(world.status["conditions"])


async def test_a_status_that_is_not_found_is_no_end_of_its_group(world: World) -> None:
    """A proxy answers 404, too. Only a list of all groups says that one is gone."""
    await settled_at(world, 8)
    world.server.fail(404, times=2, verb="patch", resource=STATUS)
    lists = world.server.calls["list", "kwoknodegroups"]
    world.scale(SIZE)
    await until(lambda: world.server.calls["list", "kwoknodegroups"] >= lists + 2)
    await world.settled(SIZE)
    assert world.serials() == list(range(SIZE))
    assert world.server.calls["delete", "nodes"] == 0


@pytest.mark.parametrize("verb", ["delete", "patch"])
async def test_a_404_is_no_end_of_a_node(world: World, verb: str) -> None:
    """A proxy answers 404, too: the node would be forgotten, and another one made for it."""
    await settled_at(world, 8)
    if verb == "delete":
        world.server.fail(404, times=3, verb=verb, resource="nodes")
        world.scale(4)
    else:
        world.server.patch(GROUPS, NAME, {"spec": {"updateStrategy": {"type": "InPlace"}}})
        world.server.fail(404, times=3, verb=verb, resource="nodes")
        world.server.patch(GROUPS, NAME, {"spec": {"template": {"shape": {"cpu": 3}}}})
    size = 4 if verb == "delete" else 8
    await world.settled(size)
    assert world.serials() == list(range(size))


def lose_label(body: Json) -> None:
    del body["metadata"]["labels"][NODE_GROUP_LABEL]


def lose_owner(body: Json) -> None:
    del body["metadata"]["ownerReferences"]


@pytest.mark.parametrize("lose", [lose_label, lose_owner])
@pytest.mark.parametrize("dry_runs", [True, False])
async def test_nodes_that_lose_their_marks_are_not_made_without_end(
    world: World, lose: Callable[[Json], None], dry_runs: bool
) -> None:
    there: list[int] = []

    def admit(body: Json, dry_run: bool) -> None:
        if body["kind"] == "Node" and (dry_runs or not dry_run):
            there.append(len(world.server.objects(NODES)))
            lose(body)

    def stalled() -> bool:
        conditions = {c["type"]: c for c in world.status.get("conditions", [])}
        return "webhook" in conditions.get("Stalled", {}).get("message", "")

    world.server.admit = admit
    world.scale(6)
    await until(stalled)
    await until(lambda: not world.server.objects(NODES))
    assert max(there, default=0) <= 6
    world.server.admit = lambda body, dry_run: None
    world.scale(7)
    await world.settled(7)


def drop_hash(body: Json) -> None:
    body["metadata"]["annotations"].pop(TEMPLATE_HASH_ANNOTATION, None)


def rewrite_hash(body: Json) -> None:
    body["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION] = "rewritten"


def altered_on_the_way(world: World) -> bool:
    conditions = {c["type"]: c for c in world.status.get("conditions", [])}
    return TEMPLATE_HASH_ANNOTATION in conditions.get("Stalled", {}).get("message", "")


async def updated(world: World) -> None:
    """Until all nodes have the present template."""
    await until(
        lambda: (
            {world.status["templateHash"]}
            == {
                node["metadata"]["annotations"].get(TEMPLATE_HASH_ANNOTATION)
                for node in world.server.objects(NODES).values()
            }
        )
    )


@pytest.mark.parametrize("lose", [drop_hash, rewrite_hash])
@pytest.mark.parametrize("dry_runs", [True, False])
async def test_nodes_that_lose_their_template_hash_are_not_replaced_without_end(
    world: World, lose: Callable[[Json], None], dry_runs: bool
) -> None:
    def admit(body: Json, dry_run: bool) -> None:
        if body["kind"] == "Node" and (dry_runs or not dry_run):
            lose(body)

    await settled_at(world, 6)
    first = set(world.server.objects(NODES))
    world.server.patch(GROUPS, NAME, {"spec": {"updateStrategy": {"type": "RollingUpdate"}}})
    world.server.admit = admit
    world.server.patch(GROUPS, NAME, {"spec": {"template": {"shape": {"cpu": 3}}}})
    await until(lambda: altered_on_the_way(world))
    assert len(first & set(world.server.objects(NODES))) >= 5, "at most one is unavailable"
    world.server.admit = lambda body, dry_run: None
    world.scale(7)
    await world.settled(7)
    await updated(world)


@pytest.mark.parametrize("lose", [drop_hash, rewrite_hash])
async def test_nodes_that_lose_their_template_hash_are_not_patched_without_end(
    world: World, lose: Callable[[Json], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.server.store.update

    def update(collection: Any, name: str, body: Json, *, subresource: str = "") -> Any:
        if collection.kind == "Node" and not subresource:
            lose(body)
        return real(collection, name, body, subresource=subresource)

    await settled_at(world, 3)
    world.server.patch(GROUPS, NAME, {"spec": {"updateStrategy": {"type": "InPlace"}}})
    monkeypatch.setattr(world.server.store, "update", update)
    before = world.server.calls["patch", "nodes"]
    world.server.patch(GROUPS, NAME, {"spec": {"template": {"shape": {"labels": {"a": "b"}}}}})
    await until(lambda: altered_on_the_way(world))
    assert world.server.calls["patch", "nodes"] - before <= 5 * 3, "in few passes"
    monkeypatch.undo()
    world.scale(4)
    await world.settled(4)
    await updated(world)


def labels(world: World) -> list[str]:
    nodes = world.server.objects(NODES).values()
    return [str(node["metadata"]["labels"].get(NODE_GROUP_LABEL)) for node in nodes]


LATER: dict[str, Json] = {
    "dropped": {"annotations": {TEMPLATE_HASH_ANNOTATION: None}},
    "rewritten": {"annotations": {TEMPLATE_HASH_ANNOTATION: "rewritten"}},
    "with the label": {
        "annotations": {TEMPLATE_HASH_ANNOTATION: None},
        "labels": {NODE_GROUP_LABEL: None},
    },
}


@pytest.mark.parametrize("strategy", ["RollingUpdate", "InPlace"])
@pytest.mark.parametrize("how", LATER)
async def test_template_hashes_that_are_taken_off_later_are_put_back_and_no_node_is_replaced(
    world: World, strategy: str, how: str
) -> None:
    there, rounds, hurt = set[str](), 0, True

    async def strip() -> None:
        nonlocal rounds
        while True:
            nodes, rounds = world.server.objects(NODES), rounds + 1
            there.update(nodes)
            for name in list(nodes) if hurt else ():
                world.server.patch(NODES, name, {"metadata": LATER[how]})
            await asyncio.sleep(0.005)

    world.scale(6)
    world.server.patch(GROUPS, NAME, {"spec": {"updateStrategy": {"type": strategy}}})
    await world.settled(6)
    first = set(world.server.objects(NODES))
    stripping = asyncio.create_task(strip())
    await until(lambda: altered(world))
    before, patched = rounds, world.server.calls["patch", "nodes"]
    await until(lambda: rounds > before + 20)
    assert there == first
    assert world.server.calls["patch", "nodes"] <= patched + 12, "each is tried again after seconds"
    hurt = False
    for size in (7, 8):  # labels first
        world.later += 100  # seconds after which it is tried again
        world.scale(size)
        await until(lambda: "None" not in labels(world))
    await world.settled(8)
    await updated(world)
    assert first < set(world.server.objects(NODES))
    stripping.cancel()


TAKEN_OFF: dict[str, Json] = {
    "label": {"labels": {NODE_GROUP_LABEL: None}},
    "another group's label": {"labels": {NODE_GROUP_LABEL: "other"}},
    "owner": {"ownerReferences": None},
    "annotation": {"annotations": {NODE_GROUP_UID_ANNOTATION: None}},
}


def altered(world: World) -> bool:
    conditions = {c["type"]: c for c in world.status.get("conditions", [])}
    return bool(conditions.get("Stalled", {}).get("reason") == "NodesAltered")


@pytest.mark.parametrize("mark", TAKEN_OFF)
async def test_lost_marks_are_restored_and_no_node_is_made(world: World, mark: str) -> None:
    there, rounds = 0, 0

    async def strip() -> None:
        nonlocal there, rounds
        while True:
            nodes = world.server.objects(NODES)
            there, rounds = max(there, len(nodes)), rounds + 1
            for name in list(nodes):
                world.server.patch(NODES, name, {"metadata": TAKEN_OFF[mark]})
            await asyncio.sleep(0.005)

    stripping = asyncio.create_task(strip())
    world.scale(6)
    await until(lambda: altered(world))
    before = rounds
    await until(lambda: rounds > before + 20)
    assert there <= 6
    stripping.cancel()
    uids = {n["metadata"]["uid"] for n in world.server.objects(NODES).values()}
    world.later += 100  # seconds after which it is tried again
    world.scale(7)
    await world.settled(7)
    now = {n["metadata"]["uid"] for n in world.server.objects(NODES).values()}
    assert uids < now, "the nodes are the same"


async def test_a_stray_that_is_not_found_once_is_no_reason_to_make_another(world: World) -> None:
    """A proxy answers 404, too."""
    await settled_at(world, 3)
    name, creates = min(world.server.objects(NODES)), world.server.calls["create", "nodes"]
    world.server.fail(404, times=1, verb="get", name=name)
    world.server.patch(NODES, name, {"metadata": TAKEN_OFF["label"]})
    await until(lambda: any(s.verb == "get" and s.name == name for s in world.server.seen))
    await until(lambda: NODE_GROUP_LABEL in world.server.objects(NODES)[name]["metadata"]["labels"])
    assert world.server.calls["create", "nodes"] == creates


@pytest.mark.parametrize("dry_runs", [True, False])
async def test_renamed_nodes_are_not_made_without_end(world: World, dry_runs: bool) -> None:
    names = map("renamed-{}".format, itertools.count())

    def admit(body: Json, dry_run: bool) -> None:
        if body["kind"] == "Node" and (dry_runs or not dry_run):
            body["metadata"]["name"] = next(names)

    world.server.admit = admit
    world.scale(6)
    await until(lambda: "its name" in str(world.status.get("conditions")))
    # A pass that tries again makes one, and deletes it.
    await until(lambda: not world.server.objects(NODES))
    world.server.admit = lambda body, dry_run: None
    world.scale(7)
    await world.settled(7)


async def test_altered_nodes_that_can_not_be_deleted_are_counted(world: World) -> None:
    def admit(body: Json, dry_run: bool) -> None:
        if body["kind"] == "Node" and not dry_run:
            lose_label(body)

    world.server.admit = admit
    world.server.fail(403, times=10_000, verb="delete", resource="nodes")
    world.server.fail(403, times=10_000, verb="patch", resource="nodes")
    for size in range(5, 10):
        world.scale(size)
        await world.heard()
        await until(lambda: altered(world))
    assert len(world.server.objects(NODES)) <= 5
    world.server.heal()
    world.server.admit = lambda body, dry_run: None
    world.later += 100
    world.scale(7)
    await world.settled(7)


async def test_a_group_of_the_same_name_begins_with_a_first_node_of_its_own(world: World) -> None:
    await settled_at(world, 2)
    await world.parts.queue.close(grace=1.0)
    old = world.group["metadata"]["uid"]
    world.server.delete(GROUPS, NAME)
    world.scale(1)
    await until(lambda: (world.store.wish(NAME) or (old,))[0] != old)
    for _ in range(3):
        await world.parts.reconciler.reconcile(NAME)
    assert [serial for serial in world.serials() if serial is not None] == [0]


async def test_an_owner_that_goes_takes_its_mark_off_and_it_is_not_put_back(world: World) -> None:
    """`--cascade=orphan`, of which the operator hears late."""
    await settled_at(world, 3)
    name, node = next(iter(world.server.objects(NODES).items()))
    uid = node["metadata"]["uid"]
    released = world.server.hold(verb="get", resource="nodes", name=name)
    world.server.patch(NODES, name, {"metadata": TAKEN_OFF["owner"]})
    await until(lambda: any(s.verb == "get" and s.name == name for s in world.server.seen))
    world.server.delete(GROUPS, NAME)
    released.set()
    await until(lambda: len(world.server.objects(NODES)) == 1)
    [left] = world.server.objects(NODES).values()
    assert left["metadata"]["uid"] == uid
    assert not left["metadata"].get("ownerReferences")


@pytest.mark.parametrize("lose", [lose_label, lose_owner])
async def test_a_node_without_its_marks_does_not_stay_where_the_answer_was_lost(
    world: World, lose: Callable[[Json], None]
) -> None:
    """The second POST finds the name taken, by a node that only its manager's name gives away."""

    def admit(body: Json, dry_run: bool) -> None:
        if body["kind"] == "Node" and not dry_run:
            lose(body)

    await settled_at(world, 0)
    world.server.admit = admit
    world.server.cut(times=3, verb="create", resource="nodes", carried_out=True)
    world.server.fail(404, times=2, verb="get", resource="nodes")
    world.scale(3)
    await until(lambda: world.server.calls["create", "nodes"] > 6)
    world.server.admit = lambda body, dry_run: None
    world.scale(4)
    await world.settled(4)
    assert len(world.server.objects(NODES)) == 4


async def test_a_node_that_may_not_be_deleted_holds_up_no_other(world: World) -> None:
    await settled_at(world, 5)
    names = sorted(world.server.objects(NODES))
    world.server.fail(403, times=10_000, verb="delete", name=names[1])
    world.server.patch(GROUPS, NAME, {"spec": {"scaleDown": {"nodesToDelete": names[:3]}}})
    world.scale(8)
    await until(lambda: world.serials() == [1, *range(3, 11)])
    world.server.heal()
    await world.settled(8)


async def test_a_node_whose_delete_always_fails_holds_up_no_other(world: World) -> None:
    """A webhook that is down for one node, say."""
    await settled_at(world, 5)
    names = sorted(world.server.objects(NODES))
    world.server.fail(500, times=10_000, verb="delete", name=names[1], message="webhook down")
    world.server.patch(
        GROUPS, NAME, {"spec": {"targetSize": 10, "scaleDown": {"nodesToDelete": [names[1]]}}}
    )
    await until(lambda: world.serials() == list(range(11)))
    await until(lambda: "webhook down" in str(world.status["conditions"]))
    world.server.heal()
    await world.settled(10)
    assert "webhook down" not in str(world.status["conditions"])


async def test_a_group_made_again_has_its_nodes_though_one_of_the_old_can_not_go(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await settled_at(world, 5)
    protected = min(world.server.objects(NODES))
    world.server.fail(403, times=10_000, verb="delete", name=protected)
    world.server.delete(GROUPS, NAME)
    world.scale(5)
    uid = world.group["metadata"]["uid"]

    def mine() -> int:
        annotations = [n["metadata"]["annotations"] for n in world.server.objects(NODES).values()]
        return sum(a[NODE_GROUP_UID_ANNOTATION] == uid for a in annotations)

    await until(lambda: world.server.calls["delete", "nodes"] > 0)
    deletes = world.server.calls["delete", "nodes"]
    await until(lambda: mine() == 5)
    assert world.server.calls["delete", "nodes"] <= deletes + 10, "it was made in the first pass"
    deletes = world.server.calls["delete", "nodes"]
    world.later += 5  # seconds after which it is tried again
    await until(lambda: world.server.calls["delete", "nodes"] > deletes)
    assert "reconciling failed" not in caplog.text, "nor does it wait later"
    world.server.heal()
    world.later += 10
    await world.settled(5)


async def test_pods_go_though_the_garbage_collector_was_quicker_with_their_nodes(
    world: World,
) -> None:
    world.server.serve(PODS_PATH, kind="Pod")
    await settled_at(world, 3)
    world.server.patch(GROUPS, NAME, {"spec": {"scaleDown": {"pods": "Delete"}}})
    await world.heard()
    world.store.remove(name=NAME, uid=world.group["metadata"]["uid"])
    nodes = list(world.server.objects(NODES))
    for name in nodes:
        world.server.delete(NODES, name)

    def looked_for() -> list[str]:
        lists = [s.query for s in world.server.seen if (s.verb, s.resource) == ("list", "pods")]
        return sorted(query["fieldSelector"] for query in lists)

    await until(lambda: len(looked_for()) >= 3)
    assert looked_for() == [f"spec.nodeName={name}" for name in sorted(nodes)]


def patches(world: World, name: str) -> int:
    return sum(seen.verb == "patch" and seen.name == name for seen in world.server.seen)


async def test_a_node_that_others_write_all_the_time_holds_up_no_other(world: World) -> None:
    await settled_at(world, 10)
    names = sorted(world.server.objects(NODES))
    world.server.patch(GROUPS, NAME, {"spec": {"updateStrategy": {"type": "InPlace"}}})
    for name in names[:5]:
        world.server.fail(409, times=10_000, verb="patch", name=name)
    before = patches(world, names[0])
    world.server.patch(GROUPS, NAME, {"spec": {"template": {"shape": {"labels": {"a": "b"}}}}})

    def labelled() -> list[str]:
        nodes = world.server.objects(NODES)
        return [name for name in names if "a" in nodes[name]["metadata"]["labels"]]

    await until(lambda: labelled() == names[5:])
    assert patches(world, names[0]) - before <= 2 * 5, "it took two passes at most"
    world.server.heal()
    await world.settled(10)
    await updated(world)


async def test_a_stray_that_goes_while_its_marks_are_put_back_fails_no_pass(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await settled_at(world, 3)
    name = min(world.server.objects(NODES))
    before = patches(world, name)
    world.server.fail(404, times=1, verb="patch", name=name)
    world.server.patch(NODES, name, {"metadata": TAKEN_OFF["label"]})
    await until(lambda: patches(world, name) > before)
    world.server.delete(NODES, name)
    world.later += 100
    world.scale(4)
    await world.settled(4)
    assert not [r for r in caplog.records if "reconciling failed" in r.getMessage()]


@pytest.mark.parametrize(
    "written",
    [
        {"nextSerial": 2**63 - 10},
        {"pending": [{"first": 10**18, "last": 10**18 + 5, "requestedAt": "2026-01-01T00:00:00Z"}]},
    ],
    ids=["next", "pending"],
)
async def test_no_nodes_without_end_by_a_foreign_status(world: World, written: Json) -> None:
    await settled_at(world, 5)
    world.server.patch(GROUPS, NAME, {"status": written}, subresource="status")
    await settled_at(world, 8)
    assert world.serials() == list(range(8))


@pytest.mark.parametrize(
    "mark",
    [
        {"labels": {NODE_GROUP_LABEL: None}},
        {"labels": {NODE_GROUP_LABEL: "another"}},
        {"annotations": {NODE_GROUP_UID_ANNOTATION: None}},
    ],
    ids=["label", "another label", "uid"],
)
async def test_marks_that_go_while_no_operator_looks_are_put_back(mark: Json) -> None:
    before, after = World(), World()
    async with before.running():
        await settled_at(before, SIZE)
    server = after.server
    server.store = before.server.store
    ours = list(server.objects(NODES))
    for name in ours:
        server.patch(NODES, name, {"metadata": mark})
    names = NodeNames.of(NAME, after.group["metadata"]["uid"])
    server.create(NODES, {"metadata": {"name": names.name(SIZE + 5)}})
    async with after.running():
        await until(lambda: after.status.get("readyReplicas") == SIZE)
        after.scale(SIZE - 1)
        await until(lambda: after.status["replicas"] == SIZE - 1)
        assert set(server.objects(NODES)) == {*ours[:-1], names.name(SIZE + 5)}
        assert server.calls["create", "nodes"] <= 1, "the dry run"
        foreign = server.objects(NODES)[names.name(SIZE + 5)]
        assert not foreign["metadata"].get("labels")
