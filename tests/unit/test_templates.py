"""The template in use by a group."""

import pytest

from kwok_operator.errors import (
    ApiError,
    BadRequestError,
    ErrorCause,
    ForbiddenError,
    InvalidError,
    ServerError,
)
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.template import SourceNode
from kwok_operator.nodegroups.templates import Missing, Resolution, Templates
from tests.fakes.apiserver import GROUPS, NODES
from tests.fakes.operator import NAME, World
from tests.fakes.recording import Clock
from tests.fakes.sources import ScriptedSources
from tests.fakes.waiting import until


class DryRuns:
    """Stands in for NodeWriter: counts the dry runs, and answers with `refusal` if there is one."""

    def __init__(self) -> None:
        self.count = 0
        self.refusal: ApiError | None = None

    async def check(self, name: str, body: bytes, **_: str) -> None:
        self.count += 1
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dry_runs() -> DryRuns:
    return DryRuns()


@pytest.fixture
def sources() -> ScriptedSources:
    return ScriptedSources()


@pytest.fixture
def templates(dry_runs: DryRuns, sources: ScriptedSources, clock: Clock) -> Templates:
    return Templates(
        writer=dry_runs,  # type: ignore[arg-type]
        sources=sources.as_sources(),
        provider_id_prefix="kwok:",
        clock=clock,
        draw=lambda: 1.0,
    )


def group(*, generation: int = 1, **status: object) -> Group:
    metadata = {"name": "web", "uid": "u", "generation": generation, "resourceVersion": "1"}
    return Group.parse({"metadata": metadata, "spec": {}, "status": status})


async def test_it_is_tried_once_per_generation(templates: Templates, dry_runs: DryRuns) -> None:
    first = await templates.resolve(group())
    assert await templates.resolve(group()) == first
    assert first.node is not None
    assert dry_runs.count == 1
    await templates.resolve(group(generation=2))
    assert dry_runs.count == 2
    templates.forget("web")
    await templates.resolve(group(generation=2))
    assert dry_runs.count == 3


@pytest.mark.parametrize(
    ("kind", "status"), [(BadRequestError, 400), (ForbiddenError, 403), (InvalidError, 422)]
)
async def test_a_refusal_is_told_with_the_api_servers_words(
    templates: Templates, dry_runs: DryRuns, kind: type[ApiError], status: int
) -> None:
    dry_runs.refusal = kind("no such nodes in this cluster", status=status)
    resolution = await templates.resolve(group())
    assert resolution.node is None
    assert "no such nodes in this cluster" in str(resolution.error)
    assert "Correct spec.template" in str(resolution.error)


async def test_fields_have_the_users_names(templates: Templates, dry_runs: DryRuns) -> None:
    cause = ErrorCause(field="metadata.taints[0].effect", message="Unsupported value", reason="")
    dry_runs.refusal = InvalidError("invalid", status=422, details=(cause,))
    resolution = await templates.resolve(group())
    assert "spec.taints[0].effect: Unsupported value" in str(resolution.error)


async def test_an_api_server_in_trouble_gives_no_verdict(
    templates: Templates, dry_runs: DryRuns, clock: Clock
) -> None:
    dry_runs.refusal = ServerError("etcd is away", status=500)
    waits = list[float]()
    for _ in range(9):
        untried = await templates.resolve(group())
        assert untried.node is None
        assert "etcd is away" in str(untried.error)
        assert untried.retry_in is not None
        assert await templates.resolve(group()) == untried
        waits.append(untried.retry_in)
        clock.now += untried.retry_in
    assert dry_runs.count == len(waits)
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    await templates.resolve(group(generation=2))
    assert dry_runs.count == len(waits) + 1
    dry_runs.refusal = None
    clock.now += 60
    resolution = await templates.resolve(group(generation=2))
    assert (resolution.node is not None, resolution.retry_in) == (True, None)


async def test_a_restart_tries_nothing_again(templates: Templates, dry_runs: DryRuns) -> None:
    accepted = (await templates.resolve(group())).hash
    condition = {
        "type": "TemplateResolved",
        "status": "True",
        "reason": "Resolved",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    restarted = group(generation=2, templateHash=accepted, conditions=[condition])
    await templates.resolve(restarted)
    assert dry_runs.count == 1


async def test_of_a_group_that_is_gone_no_template_is_kept() -> None:
    async with World().running() as world:
        world.scale(1)
        await world.settled(1)
        templates = world.parts._templates
        assert templates._last
        world.server.delete(GROUPS, NAME)
        await until(lambda: not world.server.objects(NODES) and not templates._last)


def machine(cpu: str, *, field: str = "Node web-1") -> SourceNode:
    return SourceNode(field, {"metadata": {"name": "web-1"}, "status": {"capacity": {"cpu": cpu}}})


GONE = Missing("NodeNotFound", "no node of this cluster is labelled a=b")


def cpu(resolution: Resolution) -> str:
    assert resolution.node is not None
    return str(resolution.node["status"]["capacity"]["cpu"])


async def test_it_follows_its_source(
    templates: Templates, sources: ScriptedSources, dry_runs: DryRuns
) -> None:
    sources.nodes, sources.version, sources.origin = (machine("4"),), "one", "node web-1"
    assert cpu(await templates.resolve(group())) == "4"
    sources.origin = "node web-2"
    same = await templates.resolve(group())
    assert (cpu(same), same.origin, sources.loads, dry_runs.count) == ("4", "node web-2", 1, 1)
    sources.nodes, sources.version = (machine("8"),), "two"
    assert cpu(await templates.resolve(group())) == "8"
    assert (sources.loads, dry_runs.count) == (2, 2)


@pytest.mark.parametrize("way", ["not found", "gone when read"])
async def test_the_last_template_stays_when_the_source_has_gone(
    templates: Templates, sources: ScriptedSources, way: str
) -> None:
    sources.nodes, sources.version = (machine("4"),), "one"
    before = await templates.resolve(group())
    assert before.why_last is None
    if way == "not found":
        sources.missing = GONE
    else:
        sources.version, sources.vanished = "two", True
    after = await templates.resolve(group(generation=2))
    assert (after.node, after.hash, after.error) == (before.node, before.hash, None)
    assert after.why_last is not None
    assert after.why_last[0] == "NodeNotFound"
    assert "New nodes copy the last template" in after.why_last[1]
    sources.missing, sources.vanished = None, False
    assert (await templates.resolve(group(generation=2))).why_last is None


async def test_status_keeps_the_last_one(templates: Templates, sources: ScriptedSources) -> None:
    sources.missing = GONE
    node = {"metadata": {}, "spec": {}, "status": {"capacity": {"cpu": "4"}}}
    known = group(resolvedTemplate=node, templateHash="abc", templateSource="Live")
    resolution = await templates.resolve(known)
    assert (cpu(resolution), resolution.hash, resolution.source) == ("4", "abc", "Live")
    assert resolution.why_last is not None


async def test_without_a_last_one(templates: Templates, sources: ScriptedSources) -> None:
    sources.missing = GONE
    resolution = await templates.resolve(group())
    assert (resolution.node, resolution.reason) == (None, "NodeNotFound")
    assert "no node of this cluster is labelled a=b" in str(resolution.error)
    assert resolution.why_last is None


async def test_the_last_template_of_a_former_group_of_that_name_is_not_taken(
    templates: Templates, sources: ScriptedSources
) -> None:
    sources.nodes, sources.version = (machine("4"),), "one"
    await templates.resolve(group())
    sources.missing = GONE
    metadata = {"name": "web", "uid": "another", "generation": 1, "resourceVersion": "9"}
    again = Group.parse({"metadata": metadata, "spec": {}})
    assert (await templates.resolve(again)).node is None


async def test_a_mistake_has_its_place(templates: Templates, sources: ScriptedSources) -> None:
    place = "ConfigMap ops/templates, Node web-1"
    sources.nodes, sources.version = (machine("10Gib", field=place),), "one"
    resolution = await templates.resolve(group())
    assert f"{place}.status.capacity.cpu: '10Gib'" in str(resolution.error)
    assert "Correct it there" in str(resolution.error)


async def test_an_error_that_nobody_expected_is_the_templates(
    templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("kwok_operator.nodegroups.template.resolve", fail)
    answer = await templates.resolve(group())
    assert answer.node is None
    assert "RecursionError: too deep" in (answer.error or "")
