"""What groups say of cluster-autoscaler, in an operator that runs against a small API server."""

from collections.abc import AsyncIterator

import pytest

from kwok_operator.nodegroups import autoscalable
from tests.fakes.apiserver import GROUPS
from tests.fakes.operator import STATUS, Json, World
from tests.fakes.waiting import until


class Labelled(World):
    """Several groups of no nodes."""

    def create(self, name: str, **spec: object) -> None:
        self.server.create(GROUPS, {"metadata": {"name": name}, "spec": {"targetSize": 0, **spec}})

    def patch(self, name: str, **spec: object) -> None:
        self.server.patch(GROUPS, name, {"spec": spec})

    def conditions(self, name: str) -> dict[str, Json]:
        status = self.server.objects(GROUPS)[name].get("status", {})
        return {c["type"]: c for c in status.get("conditions", [])}

    async def says(self, name: str, reason: str | None) -> str:
        """The sentence, once the group's condition has that reason; None is that it has none.

        Whatever it says, the group is Ready.
        """

        def said() -> bool:
            found = self.conditions(name)
            ready = found.get("Ready", {}).get("status") == "True"
            return ready and found.get("Autoscalable", {}).get("reason") == reason

        await until(said)
        return str(self.conditions(name)["Autoscalable"]["message"]) if reason else ""


@pytest.fixture
async def world() -> AsyncIterator[Labelled]:
    async with Labelled().running() as world:
        yield world


def gpu(label: str) -> Json:
    return {"gpuLabel": label}


async def test_a_label_turns_the_others_and_back(world: Labelled) -> None:
    world.create("a", autoscaling=gpu("x"))
    world.create("b", autoscaling=gpu("x"))
    world.create("plain", autoscaling={})
    for name in ("a", "b", "plain"):
        await world.says(name, "Drivable")
    world.patch("b", autoscaling=gpu("y"))
    for name, other in (("a", "b"), ("b", "a")):
        sentence = await world.says(name, "GPULabelsDisagree")
        assert "is told x, that of group a" in sentence
        assert f"another is set by {other}." in sentence
    world.patch("b", autoscaling=gpu("x"))
    for name in ("a", "b"):
        await world.says(name, "Drivable")
    assert world.conditions("plain")["Autoscalable"]["reason"] == "Drivable"


@pytest.mark.parametrize("end", ["deleted", "paused", "without consent"])
async def test_a_group_that_is_not_driven_disagrees_with_nobody(world: Labelled, end: str) -> None:
    world.create("a", autoscaling=gpu("x"))
    world.create("b", autoscaling=gpu("y"))
    await world.says("a", "GPULabelsDisagree")
    if end == "deleted":
        world.server.delete(GROUPS, "b")
    else:
        world.patch("b", **({"paused": True} if end == "paused" else {"autoscaling": None}))
    await world.says("a", "Drivable")


async def test_groups_that_agree_leave_each_other_alone(world: Labelled) -> None:
    for name in ("a", "b", "c"):
        world.create(name, autoscaling=gpu("x"))
    for name in ("a", "b", "c"):
        await world.says(name, "Drivable")
    writes = world.server.calls["patch", STATUS]
    world.create("d", autoscaling=gpu("x"))
    await world.says("d", "Drivable")
    assert world.server.calls["patch", STATUS] == writes + 1


async def test_it_comes_and_goes_with_the_consent(world: Labelled) -> None:
    world.create("a")
    await world.says("a", None)
    world.patch("a", autoscaling={})
    await world.says("a", "Drivable")
    world.patch("a", paused=True)
    assert "Set spec.paused to false" in await world.says("a", "SpecPaused")
    world.patch("a", paused=False, autoscaling=None)
    await world.says("a", None)


async def test_what_the_protocol_cant_carry_from_zero_is_told(world: Labelled) -> None:
    companions = {"csiNode": {"drivers": [{"name": "csi.example.com"}]}}
    world.create("a", autoscaling={}, targetSize=0, template={"companions": companions})
    assert "minSize to 1" in await world.says("a", "FromOneNode")


async def test_instances_are_counted(world: Labelled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 MiB, what four instances of this group take."""
    most = autoscalable.answer_size(4, id_length=len("kwok:a-0000-000000"))
    monkeypatch.setattr(autoscalable, "MAX_ANSWER", most)
    world.create("a", autoscaling={})
    world.patch("a", targetSize=4)
    await world.says("a", "Drivable")
    world.patch("a", targetSize=5)
    assert "ask for at most 4." in await world.says("a", "TooManyInstances")
