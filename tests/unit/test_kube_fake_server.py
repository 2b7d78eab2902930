"""The fake API server does what the real one does, where tests rely on it."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from kwok_operator.errors import ApiError, ConflictError, InvalidError, NotFoundError
from kwok_operator.kube.client import (
    ACCEPT_METADATA,
    ACCEPT_METADATA_LIST,
    APPLY,
    JSON_PATCH,
    MERGE_PATCH,
    KubeClient,
)
from tests.fakes.apiserver import GROUPS, LEASES, NODES, FakeApiServer
from tests.fakes.store import merge_patch, selects
from tests.fakes.waiting import until

GROUP = {"metadata": {"name": "g"}, "spec": {"targetSize": 1}, "status": {"replicas": 9}}


async def patch(
    client: KubeClient, path: str, body: Any, content_type: str = MERGE_PATCH
) -> dict[str, Any]:
    answer = await client.request("PATCH", path, body=body, content_type=content_type)
    patched: dict[str, Any] = json.loads(answer)
    return patched


async def test_create(server: FakeApiServer, client: KubeClient) -> None:
    new = json.loads(await client.request("POST", GROUPS, body=GROUP))
    assert (new["kind"], new["apiVersion"]) == ("KwokNodeGroup", "kwok-operator.io/v1alpha1")
    assert new["metadata"]["resourceVersion"] == str(server.store.version)
    assert new["metadata"]["generation"] == 1
    assert "status" not in new
    with pytest.raises(ConflictError):
        await client.request("POST", GROUPS, body=GROUP)
    with pytest.raises(InvalidError):
        await client.request("POST", GROUPS, body={})
    dry = {"metadata": {"name": "dry"}}
    await client.request("POST", GROUPS, params={"dryRun": "All"}, body=dry)
    assert set(server.objects(GROUPS)) == {"g"}
    node = json.loads(await client.request("POST", NODES, body=GROUP))
    assert node["status"] == {"replicas": 9}
    assert server.calls["create", "kwoknodegroups"] == 4


async def test_spec_and_status_are_apart(server: FakeApiServer, client: KubeClient) -> None:
    server.create(GROUPS, GROUP)
    both = {"spec": {"targetSize": 2}, "status": {"replicas": 5}}
    spec = await patch(client, f"{GROUPS}/g", both)
    assert (spec["spec"], spec.get("status")) == ({"targetSize": 2}, None)
    assert spec["metadata"]["generation"] == 2
    status = await patch(
        client, f"{GROUPS}/g/status", {"spec": {"targetSize": 7}, "status": {"replicas": 5}}
    )
    assert (status["spec"], status["status"]) == ({"targetSize": 2}, {"replicas": 5})
    assert status["metadata"]["generation"] == 2
    assert server.calls["patch", "kwoknodegroups/status"] == 1


async def test_patch_that_changes_nothing(server: FakeApiServer, client: KubeClient) -> None:
    before = server.create(GROUPS, GROUP)
    assert await patch(client, f"{GROUPS}/g", {"spec": {"targetSize": 1}}) == before


async def test_versions_guard(server: FakeApiServer, client: KubeClient) -> None:
    old = server.create(GROUPS, GROUP)
    server.patch(GROUPS, "g", {"spec": {"targetSize": 2}})
    with pytest.raises(ConflictError):
        await client.request("PUT", f"{GROUPS}/g", body=old)
    for wanted in ({"uid": "other"}, {"resourceVersion": "1"}):
        with pytest.raises(ConflictError):
            await client.request("DELETE", f"{GROUPS}/g", body={"preconditions": wanted})
    uid = {"preconditions": {"uid": old["metadata"]["uid"]}}
    await client.request("DELETE", f"{GROUPS}/g", body=uid)
    with pytest.raises(NotFoundError):
        await client.request("DELETE", f"{GROUPS}/g")


async def test_finalizers(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, {"metadata": {"name": "a", "finalizers": ["f"]}})
    for _ in range(2):
        answer = json.loads(await client.request("DELETE", f"{NODES}/a"))
        assert "deletionTimestamp" in answer["metadata"]
    await patch(client, f"{NODES}/a", {"metadata": {"finalizers": []}})
    assert server.objects(NODES) == {}


async def test_unknown_things_are_refused(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, {"metadata": {"name": "a"}})
    for method, path, status in (
        ("GET", "/apis/unknown/v1/things", 404),
        ("DELETE", NODES, 405),
        ("PATCH", f"{NODES}/a", 415),
    ):
        with pytest.raises(ApiError) as caught:
            await client.request(method, path, body={}, content_type=APPLY)
        assert caught.value.status == status


def test_merge_patch() -> None:
    for target, change, result in [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ]:
        assert merge_patch(target, change) == result, change


async def test_json_patch(server: FakeApiServer, client: KubeClient) -> None:
    target = {"a": {"x/y": 1}, "l": [1, 2]}
    server.create(LEASES, {"metadata": {"name": "n"}})
    rows: list[tuple[list[dict[str, Any]], Any]] = [
        ([{"op": "test", "path": "/a/x~1y", "value": 1}], target),
        ([{"op": "add", "path": "/b", "value": 3}], target | {"b": 3}),
        ([{"op": "add", "path": "/l/-", "value": 3}], target | {"l": [1, 2, 3]}),
        ([{"op": "add", "path": "/l/0", "value": 3}], target | {"l": [3, 1, 2]}),
        ([{"op": "replace", "path": "/a", "value": 0}], target | {"a": 0}),
        ([{"op": "remove", "path": "/l/0"}, {"op": "remove", "path": "/a"}], {"l": [2]}),
        ([{"op": "test", "path": "/l", "value": [1]}], None),
        ([{"op": "replace", "path": "/none", "value": 1}], None),
        ([{"op": "remove", "path": "/l/2"}], None),
        ([{"op": "add", "path": "/none/x", "value": 1}], None),
    ]
    for operations, result in rows:
        server.patch(LEASES, "n", {"spec": None})
        server.patch(LEASES, "n", {"spec": target})
        inner = [{**o, "path": f"/spec{o['path']}"} for o in operations]
        if result is None:
            with pytest.raises(InvalidError):
                await patch(client, f"{LEASES}/n", inner, JSON_PATCH)
        else:
            assert (await patch(client, f"{LEASES}/n", inner, JSON_PATCH))["spec"] == result


def test_selectors() -> None:
    for selector in ("", "a", "a=1", "a==1", "!b,a!=2"):
        assert selects(selector, {"metadata": {"labels": {"a": "1"}}}), selector
        assert not selects(selector, None)
    for selector in ("a=2", "b", "a=1,b", "!a"):
        assert not selects(selector, {"metadata": {"labels": {"a": "1"}}}), selector


async def test_pages_show_one_moment(server: FakeApiServer, client: KubeClient) -> None:
    for name in "abc":
        server.create(NODES, {"metadata": {"name": name}})
    first = await client.get_json(NODES, {"limit": "2"})
    server.create(NODES, {"metadata": {"name": "d"}})
    rest = {"limit": "2", "continue": first["metadata"]["continue"]}
    second = await client.get_json(NODES, rest)
    assert [item["metadata"]["name"] for item in first["items"] + second["items"]] == [
        "a",
        "b",
        "c",
    ]
    assert second["metadata"] == {"resourceVersion": first["metadata"]["resourceVersion"]}
    assert first["kind"] == "NodeList"


async def test_metadata_only(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, {"metadata": {"name": "a"}, "spec": {"x": 1}})
    one = json.loads(await client.request("GET", f"{NODES}/a", accept=ACCEPT_METADATA))
    many = json.loads(await client.request("GET", NODES, accept=ACCEPT_METADATA_LIST))
    assert many["kind"] == "PartialObjectMetadataList"
    assert many["items"] == [one]
    assert set(one) == {"kind", "apiVersion", "metadata"}


async def test_watch_follows_labels(server: FakeApiServer, client: KubeClient) -> None:
    told: list[tuple[str, str]] = []

    async def watch() -> None:
        params = {"watch": "1", "labelSelector": "on", "resourceVersion": "1000"}
        async with contextlib.aclosing(client.lines(NODES, params)) as lines:
            async for line in lines:
                event = json.loads(line)
                told.append((event["type"], event["object"]["metadata"]["resourceVersion"]))

    server.create(NODES, {"metadata": {"name": "a"}})
    task = asyncio.create_task(watch())
    for labels in ({"on": ""}, {"x": ""}, {"on": None}, {"on": ""}):
        server.patch(NODES, "a", {"metadata": {"labels": labels}})
    await until(lambda: server.watchers)
    server.delete(NODES, "a")
    server.end_watches()
    await task
    assert told == [
        ("ADDED", "1002"),
        ("MODIFIED", "1003"),
        ("DELETED", "1004"),
        ("ADDED", "1005"),
        ("DELETED", "1006"),
    ]


async def test_it_comes_back_with_all_it_stored(server: FakeApiServer, client: KubeClient) -> None:
    server.create(NODES, {"metadata": {"name": "a"}})
    await server.stop()
    await server.start()
    assert len((await client.get_json(NODES))["items"]) == 1
