"""The template in use by a group.

- it is tried once per generation, in a dry run, and not again until it is forgotten
- whatever the API server refuses, by whatever status, is told with its words and a remedy
- an API server that can't be asked is not a verdict: the error goes on to whoever tries again
- one that was accepted before, by the group's own status, is not tried again after a restart
"""

import pytest

from kwok_operator.controller.groups import Group
from kwok_operator.controller.templates import Templates
from kwok_operator.errors import (
    ApiError,
    BadRequestError,
    ErrorCause,
    ForbiddenError,
    InvalidError,
    ServerError,
)


class DryRuns:
    """Stands in for NodeWriter: counts the dry runs, and answers with `refusal` if there is one."""

    def __init__(self) -> None:
        self.count = 0
        self.refusal: ApiError | None = None

    async def check(self, body: bytes) -> None:
        self.count += 1
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def dry_runs() -> DryRuns:
    return DryRuns()


@pytest.fixture
def templates(dry_runs: DryRuns) -> Templates:
    return Templates(writer=dry_runs, provider_id_prefix="kwok:")  # type: ignore[arg-type]


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


async def test_it_is_tried_again_when_it_was_forgotten(
    templates: Templates, dry_runs: DryRuns
) -> None:
    await templates.resolve(group())
    templates.forget("web")
    await templates.resolve(group())
    assert dry_runs.count == 2


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


async def test_fields_are_named_as_users_write_them(
    templates: Templates, dry_runs: DryRuns
) -> None:
    cause = ErrorCause(field="metadata.taints[0].effect", message="Unsupported value", reason="")
    dry_runs.refusal = InvalidError("invalid", status=422, details=(cause,))
    resolution = await templates.resolve(group())
    assert "spec.taints[0].effect: Unsupported value" in str(resolution.error)


async def test_an_api_server_in_trouble_gives_no_verdict(
    templates: Templates, dry_runs: DryRuns
) -> None:
    dry_runs.refusal = ServerError("etcd is away", status=500)
    with pytest.raises(ServerError):
        await templates.resolve(group())
    dry_runs.refusal = None
    assert (await templates.resolve(group())).node is not None


async def test_what_was_accepted_before_a_restart_is_not_tried_again(
    templates: Templates, dry_runs: DryRuns
) -> None:
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
