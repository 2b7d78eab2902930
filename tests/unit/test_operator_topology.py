"""Nodes in racks while people edit: the annotation, the levels, another group's levels."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.constants import NODE_GROUP_LABEL, PLACE_ANNOTATION
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, Json, World
from tests.fakes.waiting import until

RACK = "example.com/rack"
SIZE = 7


def template(domain: str = "pool", *, of: int = 3, label: str = RACK) -> Json:
    return {"topology": {"domain": domain, "levels": [{"label": label, "of": of}]}}


class Racks(World):
    """One group with racks of three."""

    def edit(self, **spec: Any) -> None:
        self.server.patch(GROUPS, NAME, {"spec": spec})

    def standing(self) -> dict[str, tuple[str, str]]:
        """Annotation and rack of each node."""
        return {
            name: (
                node["metadata"]["annotations"].get(PLACE_ANNOTATION, ""),
                node["metadata"]["labels"].get(RACK, ""),
            )
            for name, node in self.server.objects(NODES).items()
        }

    def condition(self, name: str, kind: str) -> Json:
        status = self.server.objects(GROUPS)[name].get("status", {})
        found: Json = {c["type"]: c for c in status.get("conditions", ())}.get(kind, {})
        return found


@pytest.fixture
async def world() -> AsyncIterator[Racks]:
    async with Racks().running() as world:
        spec = {"targetSize": SIZE, "template": template()}
        world.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": spec})
        await world.settled(SIZE)
        yield world


def places(domain: str, size: int, *, of: int = 3) -> list[tuple[str, str]]:
    return [(f"{domain}/{place}", f"{domain}-{place // of}") for place in range(size)]


@pytest.mark.parametrize("edited", [None, "pool/0", "pool/99", "other/4", "nonsense"])
async def test_an_edited_place_is_put_back(world: Racks, edited: str | None) -> None:
    before = world.standing()
    assert sorted(before.values()) == places("pool", SIZE)
    name = sorted(before)[4]
    annotations = {"metadata": {"annotations": {PLACE_ANNOTATION: edited}}}
    world.server.patch(NODES, name, annotations)
    world.edit(targetSize=SIZE + 1)
    await until(lambda: world.standing().get(name) == before[name])
    await world.settled(SIZE + 1)
    assert sorted(world.standing().values()) == places("pool", SIZE + 1)


async def test_nodes_move_in_place(world: Racks) -> None:
    world.edit(template=template(of=2), updateStrategy={"type": "InPlace"})
    await until(lambda: sorted(world.standing().values()) == places("pool", SIZE, of=2))
    world.edit(template=template("other", of=2))
    await until(lambda: sorted(world.standing().values()) == places("other", SIZE, of=2))
    assert world.serials() == list(range(SIZE))


@pytest.mark.parametrize("pause", [0.0, 0.002, 0.004, 0.006, 0.008])
async def test_of_two_groups_that_come_together_one_must_agree(pause: float) -> None:
    async with Racks().running() as world:
        for name, of in (("one", 4), ("another", 3)):
            spec = {"targetSize": 2, "template": template(of=of)}
            world.server.create(GROUPS, {"metadata": {"name": name}, "spec": spec})
            await asyncio.sleep(pause)

        def resolved() -> list[str]:
            groups = world.server.objects(GROUPS)
            return sorted(
                world.condition(name, "TemplateResolved").get("status", "") for name in groups
            )

        await until(lambda: "" not in resolved())
        assert resolved() == ["False", "True"]


async def another_clashes(world: Racks) -> None:
    spec = {"targetSize": 2, "template": template(of=4)}
    world.server.create(GROUPS, {"metadata": {"name": "another"}, "spec": spec})
    await until(lambda: world.condition("another", "TemplateResolved").get("status") == "False")


@pytest.mark.parametrize("corrected", [True, False])
async def test_a_clash_ends_when_the_group_in_the_way_changes_or_goes(
    world: Racks, corrected: bool
) -> None:
    await another_clashes(world)
    if corrected:
        world.edit(template=template(of=4))
    else:
        world.server.delete(GROUPS, NAME)
    await until(lambda: world.condition("another", "TemplateResolved").get("status") == "True")
    await until(lambda: len([name for name in world.standing() if "another" in name]) == 2)


async def test_the_group_that_comes_second_must_agree(world: Racks) -> None:
    await another_clashes(world)
    message = world.condition("another", "TemplateResolved")["message"]
    assert "spec.template.topology.levels" in message and f"group {NAME}" in message
    assert world.condition(NAME, "TemplateResolved")["status"] == "True"
    world.server.patch(GROUPS, "another", {"spec": {"template": template()}})
    await until(lambda: len(world.standing()) == SIZE + 2)
    assert sorted(world.standing().values()) == places("pool", SIZE + 2)


@pytest.mark.parametrize("domain", ["pool", "other"])
async def test_on_delete_leaves_existing_nodes_where_they_are(world: Racks, domain: str) -> None:
    before = world.standing()
    world.edit(template=template(domain, of=2), targetSize=SIZE + 1)
    await world.settled(SIZE + 1)
    world.edit(targetSize=SIZE + 2)
    await world.settled(SIZE + 2)
    assert before.items() <= world.standing().items()


async def test_nodes_without_a_topology_get_none_by_on_delete() -> None:
    async with Racks().running() as world:
        world.scale(SIZE)
        await world.settled(SIZE)
        world.edit(template=template(), targetSize=SIZE + 1)
        await world.settled(SIZE + 1)
        assert sorted(world.standing().values()) == [("", "")] * SIZE + [("pool/0", "pool-0")]


async def test_an_update_in_place_does_not_believe_an_edited_place(world: Racks) -> None:
    name = sorted(world.standing())[4]
    edit = {"metadata": {"annotations": {PLACE_ANNOTATION: "pool/0"}}}
    world.server.patch(NODES, name, edit)
    await until(lambda: world.standing()[name] == ("pool/4", "pool-1"))
    # So soon after the first time, it isn't put back at once.
    world.server.patch(NODES, name, edit)
    await until(lambda: world.cache.group(NAME)[name].place == ("pool", 0))
    world.edit(template=template(of=2), updateStrategy={"type": "InPlace"})
    await until(lambda: world.standing()[name][1] != "pool-1")
    assert world.standing()[name] == ("pool/4", "pool-2")
    await world.settled(SIZE)
    assert sorted(world.standing().values()) == places("pool", SIZE, of=2)


async def test_a_group_without_nodes_shows_the_next_place_of_its_domain(world: Racks) -> None:
    def shown() -> int | None:
        status = world.server.objects(GROUPS)["another"].get("status", {})
        place: int | None = status.get("topology", {}).get("nextPlace")
        return place

    spec = {"targetSize": 0, "template": template(), "autoscaling": {"minSize": 0, "maxSize": 9}}
    world.server.create(GROUPS, {"metadata": {"name": "another"}, "spec": spec})
    await until(lambda: shown() == SIZE)
    world.edit(targetSize=SIZE + 3)
    await until(lambda: shown() == SIZE + 3)
    world.edit(targetSize=2)
    await until(lambda: shown() == 2)
    world.edit(cloud={"outageUnits": ["pool-0"]})
    await until(lambda: shown() == 3)


@pytest.mark.parametrize("unit", [None, RACK])
@pytest.mark.parametrize("gone", [True, False])
async def test_nodes_that_go_while_another_is_looked_for_leave_holes(
    world: Racks, unit: str | None, gone: bool
) -> None:
    """Also if that one has only lost its label."""
    if unit:
        world.edit(cloud={"unit": unit})
        await world.settled(SIZE)
    first, *others = sorted(world.standing())[3:6]
    release = world.server.hold(verb="get", resource="nodes", name=first)
    if gone:
        world.server.delete(NODES, first)
    else:
        world.server.patch(NODES, first, {"metadata": {"labels": {NODE_GROUP_LABEL: None}}})
    await until(lambda: any(s.verb == "get" and s.name == first for s in world.server.seen))
    for name in others:
        world.server.delete(NODES, name)
    await until(lambda: all(name not in world.cache for name in others))
    release.set()
    await world.settled(SIZE)
    assert sorted(world.standing().values()) == places("pool", SIZE)
    assert gone or world.standing()[first] == ("pool/3", "pool-1")
