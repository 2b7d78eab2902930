"""The groups of a provider config, with an API server in trouble."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.errors import (
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    ServerError,
    TooManyRequestsError,
)
from tests.fakes.provider import CONFIG, ProviderWorld, config, template
from tests.fakes.waiting import until

OWNER = "kwok-operator.io/provider-config"


@pytest.fixture
async def world() -> AsyncIterator[ProviderWorld]:
    async with ProviderWorld().running() as world:
        yield world


def _without_trouble(world: ProviderWorld) -> Any:
    async def read(name: str) -> Any:
        return world.groups.bodies.get(name)

    return read


@pytest.mark.parametrize(
    "refusal",
    [
        BadRequestError("unknown field", status=400),
        ForbiddenError("unknown field", status=403),
        InvalidError("unknown field", status=422),
    ],
    ids=lambda error: str(error.status),
)
async def test_a_refused_group_blocks_no_other(world: ProviderWorld, refusal: ApiError) -> None:
    world.groups.refusals["batch"] = refusal
    world.configure(config(), template("batch"), template("web"))
    await world.quiet()
    assert list(world.groups.bodies) == ["web"]
    (event,) = world.said("GroupRefused")
    assert event.message == "group batch: the API server refuses it: unknown field."
    world.groups.refusals.clear()
    await world.settled()
    assert (sorted(world.groups.bodies), world.problems()) == (["batch", "web"], {})


async def test_a_group_that_changes_meanwhile_is_looked_at_again(world: ProviderWorld) -> None:
    world.groups.troubles = [ConflictError("the uid is another", status=409)]
    world.groups.read = _without_trouble(world)  # type: ignore[method-assign]
    world.configure(config(), template("batch"))
    await world.quiet()
    assert (list(world.groups.bodies), world.problems()) == (["batch"], {})


async def test_what_was_under_way_in_a_trouble_is_taken_up_again(
    world: ProviderWorld,
) -> None:
    world.groups.troubles = [ServerError("away", status=500) for _ in range(4)]
    world.configure(config(), template("batch"), template("web"))
    await world.quiet()
    assert len(world.naps) == 2
    assert sorted(world.groups.bodies) == ["batch", "web"]


@pytest.mark.parametrize(
    "error",
    [
        ServerError("webhook down", status=500),
        TooManyRequestsError("later", status=429),
        ApiError("too large", status=413),
    ],
    ids=lambda error: str(error.status),
)
async def test_a_group_that_can_not_be_written_keeps_no_other_from_being_made(
    world: ProviderWorld, error: ApiError
) -> None:
    world.groups.refusals["batch"] = error
    world.configure(config(), template("batch"), template("web"), template("zoo"))
    await until(lambda: len(world.naps) >= 2)
    assert sorted(world.groups.bodies) == ["web", "zoo"]
    (event,) = world.said("GroupRefused")
    assert error.message in event.message
    world.groups.refusals.clear()
    await until(lambda: len(world.groups.bodies) == 3 and not world.problems())


async def test_a_group_that_can_not_be_read_does_not_end_it_all(world: ProviderWorld) -> None:
    world.configure(config(), template("batch"))
    await world.quiet()
    world.written()
    world.groups.put("web", {"metadata": {"annotations": {OWNER: f"ops/{CONFIG}"}}})
    await world.quiet()
    world.groups.put("web", {"spec": {"paused": "as another CRD had it"}})
    world.configure(config(), template("batch", max="3"), template("web"), template("x"))
    await world.quiet()
    assert sorted(world.written()) == [("apply", "batch"), ("apply", "web"), ("apply", "x")]


async def test_what_was_written_before_a_trouble_is_not_written_twice(world: ProviderWorld) -> None:
    world.configure(config(), template("a"))
    await world.quiet()
    world.groups.troubles = [ServerError("away", status=500)]
    world.configure(config(), *[template(pool) for pool in "abc"])
    await world.quiet()
    assert len(world.naps) == 1
    assert world.written() == [("apply", "a"), ("apply", "c"), ("apply", "b")]


@pytest.mark.parametrize(
    ("error", "tried"), [(ServerError("away", status=500), "abc"), (ValueError("a defect"), "a")]
)
async def test_after_three_failures_none(error: Any, tried: str, world: ProviderWorld) -> None:
    world.groups.refusals = dict.fromkeys("abcde", error)
    world.configure(config(), *[template(pool) for pool in "abcde"])
    await until(lambda: world.naps)
    assert world.groups.writes == [("apply", pool) for pool in tried]
