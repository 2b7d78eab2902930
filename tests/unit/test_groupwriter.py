"""How groups of a provider config are written, with an API server by script."""

import copy
import json
from typing import Any, cast

import pytest

from kwok_operator.errors import (
    ConflictError,
    ErrorCause,
    ForbiddenError,
    InvalidError,
    KwokOperatorError,
    NotFoundError,
    ServerError,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.sources.groupwriter import (
    DERIVED_MANAGER,
    DESIRED_COUNT_MANAGER,
    DerivedGroupWriter,
    without_fields,
)

Json = dict[str, Any]
GROUP = "/apis/kwok-operator.io/v1alpha1/kwoknodegroups/web"
MANIFEST: Json = {
    "kind": "KwokNodeGroup",
    "metadata": {
        "name": "web",
        "annotations": {"kwok-operator.io/provider-config": "ops/c", "example.com/a.b": "1"},
    },
    "spec": {
        "template": {"from": {"nodes": {"selector": {"matchLabels": {"a.b/c": "x", "a": "y"}}}}},
        "autoscaling": {"minSize": 0, "maxSize": 9},
    },
}


class ScriptedClient:
    """Gives these answers, one to each request, and keeps the requests."""

    def __init__(self, *answers: Json | KwokOperatorError) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.sent: list[Json] = []

    async def request(self, method: str, path: str, **fields: Any) -> bytes:
        self.asked.append((method, path))
        self.sent.append(copy.deepcopy(fields))
        answer = self._answers.pop(0)
        if isinstance(answer, KwokOperatorError):
            raise answer
        return json.dumps(answer).encode()

    def writer(self) -> DerivedGroupWriter:
        return DerivedGroupWriter(client=cast(KubeClient, self))


def owned(*fields: str, by: str = "kubectl") -> ConflictError:
    message = f'conflict with "{by}"'
    causes = [ErrorCause(field, message, "FieldManagerConflict") for field in fields]
    return ConflictError("Apply failed", status=409, reason="Conflict", details=tuple(causes))


GONE = NotFoundError("no such group", status=404)
ANOTHER = ConflictError("Precondition failed: UID", status=409)


def test_fields_are_left_out_by_path_with_all_that_is_below() -> None:
    before = copy.deepcopy(MANIFEST)
    kept = without_fields(MANIFEST, {".spec.autoscaling.maxSize": ""})
    assert kept["spec"]["autoscaling"] == {"minSize": 0}
    assert kept["metadata"] == MANIFEST["metadata"]
    assert "template" not in without_fields(MANIFEST, {".spec.template": ""})["spec"]
    dotted = (
        ".metadata.annotations.kwok-operator.io/provider-config",
        ".spec.template.from.nodes.selector.matchLabels.a.b/c",
    )
    kept = without_fields(MANIFEST, dict.fromkeys(dotted))
    assert kept["metadata"]["annotations"] == {"example.com/a.b": "1"}
    assert kept["spec"]["template"]["from"]["nodes"]["selector"]["matchLabels"] == {"a": "y"}
    for path in ("", ".spec.auto", "spec.autoscaling", ".spec.autoscaling.x"):
        assert without_fields(MANIFEST, {path: ""}) == MANIFEST == before


class TestApply:
    async def test_sends_the_whole_group_and_forces_nothing(self) -> None:
        client = ScriptedClient({"metadata": {"name": "web", "uid": "u"}})
        applied = await client.writer().apply(MANIFEST, uid=None)
        assert applied.body == {"metadata": {"name": "web", "uid": "u"}}
        assert applied.conflicts == ()
        assert client.asked == [("PATCH", GROUP)]
        assert client.sent[0]["params"] == {
            "fieldManager": DERIVED_MANAGER,
            "fieldValidation": "Strict",
        }
        assert client.sent[0]["content_type"] == "application/apply-patch+yaml"
        assert client.sent[0]["body"] == MANIFEST

    async def test_of_a_group_that_was_read_is_for_that_object_only(self) -> None:
        before = copy.deepcopy(MANIFEST)
        client = ScriptedClient({})
        await client.writer().apply(MANIFEST, uid="u-7")
        assert client.sent[0]["body"]["metadata"]["uid"] == "u-7"
        assert MANIFEST == before

    async def test_leaves_out_fields_of_others_and_names_them(self) -> None:
        client = ScriptedClient(owned(".spec.autoscaling.maxSize"), {"metadata": {}})
        applied = await client.writer().apply(MANIFEST, uid="u")
        assert applied.conflicts == ('spec.autoscaling.maxSize: conflict with "kubectl"',)
        assert client.sent[1]["body"]["spec"]["autoscaling"] == {"minSize": 0}
        assert client.sent[1]["body"]["metadata"]["uid"] == "u"
        assert "force" not in client.sent[1]["params"]

    async def test_names_all_fields_where_owners_change_meanwhile(self) -> None:
        client = ScriptedClient(
            owned(".spec.autoscaling.maxSize"),
            owned(".spec.autoscaling.minSize", by="flux"),
            {},
        )
        applied = await client.writer().apply(MANIFEST, uid=None)
        assert applied.conflicts == (
            'spec.autoscaling.maxSize: conflict with "kubectl"',
            'spec.autoscaling.minSize: conflict with "flux"',
        )
        assert client.sent[2]["body"]["spec"]["autoscaling"] == {}

    async def test_gives_up_where_leaving_out_does_not_help(self) -> None:
        client = ScriptedClient(*[owned(".spec.of.another.shape")] * 10)
        with pytest.raises(ConflictError):
            await client.writer().apply(MANIFEST, uid=None)
        assert len(client.asked) == 4

    @pytest.mark.parametrize(
        "error",
        [ANOTHER, InvalidError("no", status=422), ForbiddenError("no", status=403)],
        ids=lambda error: type(error).__name__,
    )
    async def test_tries_no_more_after_other_answers(self, error: KwokOperatorError) -> None:
        client = ScriptedClient(error)
        with pytest.raises(type(error)):
            await client.writer().apply(MANIFEST, uid="u")
        assert len(client.asked) == 1


async def test_a_group_is_read_whole_or_none_or_nobody_knows() -> None:
    client = ScriptedClient(MANIFEST, GONE, ServerError("away", status=500))
    writer = client.writer()
    assert await writer.read("web") == MANIFEST
    assert client.asked == [("GET", GROUP)]
    assert await writer.read("web") is None
    with pytest.raises(ServerError):
        await writer.read("web")


class TestFirstTarget:
    async def test_is_set_where_there_is_none_and_marked(self) -> None:
        client = ScriptedClient({})
        await client.writer().set_first_target("web", uid="u", size=3)
        assert client.asked == [("PATCH", GROUP)]
        sent = client.sent[0]
        assert sent["params"] == {"fieldManager": DESIRED_COUNT_MANAGER}
        assert sent["content_type"] == "application/json-patch+json"
        mark = "/metadata/annotations/kwok-operator.io~1desired-count-applied"
        assert sent["body"] == [
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/spec/targetSize", "value": None},
            {"op": "add", "path": "/spec/targetSize", "value": 3},
            {"op": "add", "path": mark, "value": "3"},
        ]

    async def test_is_not_ours_to_set_where_somebody_was_faster(self) -> None:
        for answer in (InvalidError("the test failed", status=422), GONE):
            await ScriptedClient(answer).writer().set_first_target("web", uid="u", size=3)

    async def test_that_can_not_be_set_is_an_error(self) -> None:
        client = ScriptedClient(ForbiddenError("no", status=403))
        with pytest.raises(ForbiddenError):
            await client.writer().set_first_target("web", uid="u", size=3)


async def test_annotations_are_set_and_taken_away_on_that_very_object() -> None:
    client = ScriptedClient({})
    await client.writer().annotate("web", uid="u", annotations={"a": "1", "b": None})
    assert client.asked == [("PATCH", GROUP)]
    assert client.sent[0]["content_type"] == "application/merge-patch+json"
    assert client.sent[0]["body"] == {
        "metadata": {"uid": "u", "annotations": {"a": "1", "b": None}}
    }
    assert client.sent[0]["params"]["fieldManager"] not in (DERIVED_MANAGER, DESIRED_COUNT_MANAGER)


@pytest.mark.parametrize("answer", [{}, GONE, ANOTHER], ids=["there", "gone", "another"])
async def test_that_very_object_is_deleted_or_none(answer: Json | KwokOperatorError) -> None:
    client = ScriptedClient(answer)
    await client.writer().delete("web", uid="u")
    assert client.asked == [("DELETE", GROUP)]
    assert client.sent[0]["body"] == {"preconditions": {"uid": "u"}}
