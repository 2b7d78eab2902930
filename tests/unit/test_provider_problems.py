"""What is wrong with a provider config is told."""

import logging
from collections.abc import AsyncIterator

import pytest

from kwok_operator.sources.provider import MAX_EVENTS
from tests.fakes.provider import CONFIG, TEMPLATES, ProviderWorld, config, template
from tests.fakes.recording import Said

MISSPELT = config(nodegroup={})
CONFLICT = 'spec.autoscaling.maxSize: conflict with "kubectl"'


@pytest.fixture
async def world() -> AsyncIterator[ProviderWorld]:
    async with ProviderWorld().running() as world:
        yield world


async def configured(world: ProviderWorld, text: str) -> None:
    world.configure(text, template("batch"))
    await world.quiet()


class TestProblems:
    async def test_are_reported_once(self, world: ProviderWorld) -> None:
        await configured(world, MISSPELT)
        await world.settled()
        (event,) = world.events.said
        assert (event.about, event.kind, event.reason) == (CONFIG, "Warning", "UnknownKey")
        assert "nodegroup" in event.message and "did you mean nodegroups?" in event.message
        assert world.problems() == {"UnknownKey": 1}

    async def test_that_are_new_are_reported_alone(self, world: ProviderWorld) -> None:
        await configured(world, MISSPELT)
        await configured(world, config(nodegroup={}, prune="yes"))
        assert world.events.reasons == ["UnknownKey", "InvalidValue"]
        assert world.problems() == {"UnknownKey": 1, "InvalidValue": 1}

    async def test_that_come_back_are_reported_again(self, world: ProviderWorld) -> None:
        for text in (MISSPELT, config(), MISSPELT):
            await configured(world, text)
        assert world.events.reasons == ["UnknownKey", "ProviderConfigValid", "UnknownKey"]

    async def test_are_all_reported_at_once(self, world: ProviderWorld) -> None:
        await configured(world, config(apiVersion="v2", readNodesFrom="nowhere", nodegroups={}))
        assert len(world.events.said) == sum(world.problems().values()) == 3

    async def test_are_reported_again_of_a_new_configmap(self, world: ProviderWorld) -> None:
        await configured(world, MISSPELT)
        world.configmap(CONFIG, uid="another", config=MISSPELT)
        await world.quiet()
        assert world.events.reasons == ["UnknownKey"] * 2

    async def test_end_with_good_news(self, world: ProviderWorld) -> None:
        await configured(world, MISSPELT)
        await configured(world, config())
        await world.settled()
        message = "Nothing is wrong with the provider config any more."
        assert world.events.said[1:] == [Said(CONFIG, "Normal", "ProviderConfigValid", message)]
        assert world.problems() == {}

    async def test_end_silently_with_the_configmap(self, world: ProviderWorld) -> None:
        await configured(world, MISSPELT)
        world.forget(CONFIG)
        await world.quiet()
        assert (world.events.reasons, world.problems()) == (["UnknownKey"], {})

    async def test_none_where_all_is_well(self, world: ProviderWorld) -> None:
        world.configmap("another", config="x")
        await world.settled()
        assert (world.events.said, world.problems(), world.metrics.passes > 0) == ([], {}, True)
        await configured(world, config())
        assert (world.events.said, world.problems()) == ([], {})

    async def test_of_very_many_the_rest_is_counted(self, world: ProviderWorld) -> None:
        many = [template(f"p{n:02}", cpu="x") for n in range(MAX_EVENTS + 5)]
        world.configure(config(), *many)
        await world.quiet()
        assert world.problems()["InvalidTemplate"] == MAX_EVENTS + 5
        assert world.events.reasons == ["InvalidTemplate"] * MAX_EVENTS + ["ManyProblems"]

    async def test_of_a_key_that_is_called_otherwise(self, world: ProviderWorld) -> None:
        world.configmap(CONFIG, b="", a="")
        await world.quiet()
        (event,) = world.said("MissingKey")
        assert "has no key config, only: a, b; rename it" in event.message

    async def test_of_missing_templates_name_the_configmap(self, world: ProviderWorld) -> None:
        world.configure(config())
        await world.quiet()
        (event,) = world.said("InvalidTemplates")
        assert f"ConfigMap ops/{TEMPLATES}, which configmap.name names, does not" in event.message

    async def test_of_templates_are_healed_there(self, world: ProviderWorld) -> None:
        world.configmap(TEMPLATES, templates="{")
        world.configure(config())
        await world.quiet()
        assert world.problems() == {"InvalidTemplates": 1}
        await configured(world, config())
        assert (world.problems(), list(world.groups.bodies)) == ({}, ["batch"])


class TestFieldsOfOthers:
    async def test_are_reported_once_and_as_long_as_it_lasts(self, world: ProviderWorld) -> None:
        world.groups.conflicts["batch"] = (CONFLICT,)
        await configured(world, config())
        world.written()
        for _ in range(2):
            await world.settled()
        world.provider.recheck()
        await world.quiet()
        message = f"group batch, {CONFLICT}: that value stays, the provider config's waits."
        assert world.events.said == [Said(CONFIG, "Warning", "FieldOwned", message)]
        assert world.problems() == {"FieldOwned": 1}
        assert world.written() == [("apply", "batch")], "by the recheck, and by nothing else"

    async def test_are_ours_again_when_they_are_given_up(self, world: ProviderWorld) -> None:
        world.groups.conflicts["batch"] = (CONFLICT,)
        await configured(world, config())
        world.groups.conflicts.clear()
        world.provider.recheck()
        await world.quiet()
        assert world.events.reasons == ["FieldOwned", "ProviderConfigValid"]
        assert world.problems() == {}

    async def test_do_not_keep_other_groups_from_being_marked(self, world: ProviderWorld) -> None:
        world.groups.conflicts["batch"] = (CONFLICT,)
        world.configure(config(), template("batch"), template("web"))
        await world.quiet()
        world.written()
        await configured(world, config())
        assert world.written() == [("annotate", "web")]


def leftover(name: str) -> dict[str, object]:
    annotations = {
        "kwok.x-k8s.io/node": "fake",
        "cluster-autoscaler.kwok.nodegroup/name": "m5.large",
    }
    return {"metadata": {"name": name, "annotations": annotations}}


async def test_leftovers_of_cas_provider_are_reported(
    world: ProviderWorld,
) -> None:
    await configured(world, config())
    world.live(leftover("m5-b"), leftover("m5-a"))
    await world.quiet()
    (event,) = world.events.said
    assert (event.kind, event.reason) == ("Warning", "LeftoverNodes")
    assert event.message.startswith("m5-a, m5-b: made by cluster-autoscaler's own kwok provider.")
    world.configure(config(), template("web"))
    await world.quiet()
    assert ("annotate", "batch") in world.written(), "nothing else waits for them"
    world.live()
    await world.quiet()
    assert world.events.reasons == ["LeftoverNodes", "ProviderConfigValid"]


async def test_a_key_without_effect_is_reported_once(world: ProviderWorld) -> None:
    await configured(world, config(kwok={}))
    await world.settled()
    (event,) = world.events.said
    assert (event.kind, event.reason) == ("Normal", "NoEffect")
    assert event.message.startswith("kwok: has no effect")
    assert world.problems() == {}
    await configured(world, config())
    await configured(world, config(kwok={}))
    assert world.events.reasons == ["NoEffect"] * 2


async def test_what_comes_out_is_logged_when_it_changes(
    world: ProviderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kwok_operator.sources.provider")
    await configured(world, config())
    await world.settled()
    world.configure(config(), template("batch"), template("web"))
    await world.quiet()
    world.forget(CONFIG)
    await world.settled()
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if text.startswith("provider config")] == [
        f"provider config: configmap=ops/{CONFIG} groups=1 names=batch",
        f"provider config: configmap=ops/{CONFIG} groups=2 names=batch, web",
        f"provider config is gone, groups stay: configmap=ops/{CONFIG}",
    ]
