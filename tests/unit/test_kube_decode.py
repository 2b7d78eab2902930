"""From bytes to small values."""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwok_operator.errors import DecodeError, GoneError, ServerError
from kwok_operator.kube.decode import LEASES, NODES, OBJECTS, NodeView, decode_dict
from kwok_operator.sources.nodechoice import live_node

NODE: dict[str, Any] = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {
        "name": "a-1",
        "uid": "u-1",
        "resourceVersion": "42",
        "creationTimestamp": "1970-01-01T01:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"zone": "b"},
        "annotations": {"kwok.x-k8s.io/node": "fake"},
        "ownerReferences": [{"uid": "o-1", "kind": "KwokNodeGroup"}, {"uid": "o-2"}],
        "finalizers": ["f/1"],
        "managedFields": [{"fieldsV1": {"f:status": {}}}],
    },
    "spec": {"providerID": "kwok:a-1", "taints": []},
    "status": {
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True"},
        ],
        "addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "Hostname", "address": "kwok"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10247}},
        "images": [{"names": ["x"], "sizeBytes": 1}],
    },
}

VIEW = NodeView(
    name="a-1",
    uid="u-1",
    resource_version=42,
    created=3600.0,
    labels={"zone": "b"},
    annotations={"kwok.x-k8s.io/node": "fake"},
    owner_uids=("o-1", "o-2"),
    finalizers=("f/1",),
    deleting=True,
    ready=True,
    addresses=(("InternalIP", "10.0.0.1"), ("Hostname", "kwok")),
    kubelet_port=10247,
    provider_id="kwok:a-1",
)

NOTHING = NodeView("", "", 0, 0.0, {}, {}, (), (), False, False, (), 0, "")


def dumps(value: object) -> bytes:
    return json.dumps(value).encode()


def line(kind: str, item: object) -> bytes:
    return dumps({"type": kind, "object": item})


def test_a_node_alone_in_a_list_and_in_a_watch_gives_the_same_view() -> None:
    assert NODES.one(dumps(NODE)) == VIEW
    metadata = {"resourceVersion": "99", "continue": "tok"}
    page = NODES.page(dumps({"metadata": metadata, "items": [NODE, NODE]}))
    assert (page.items, page.resource_version, page.continue_token) == ([VIEW, VIEW], 99, "tok")
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        event = NODES.event(line(kind, NODE))
        assert (event.type, event.item, event.resource_version) == (kind, VIEW, 42)
        assert event.error is None
    names = NODES.then(lambda node: node.name)
    assert names.one(dumps(NODE)) == names.event(line("DELETED", NODE)).item == "a-1"
    assert names.page(dumps({"items": [NODE]})).items == ["a-1"]


def test_empty_pages() -> None:
    for answer in ({}, {"items": None, "metadata": None}, {"metadata": {"continue": ""}}):
        page = NODES.page(dumps(answer))
        assert (page.items, page.resource_version, page.continue_token) == ([], 0, "")


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {}, "spec": {}, "status": {}},
        {
            "metadata": {
                "labels": None,
                "annotations": None,
                "ownerReferences": None,
                "finalizers": None,
                "creationTimestamp": None,
                "deletionTimestamp": None,
                "resourceVersion": None,
            },
            "spec": {"providerID": None, "podCIDRs": None},
            "status": {"conditions": None, "addresses": None, "daemonEndpoints": None},
        },
        {"metadata": {"resourceVersion": "not-a-number"}, "future": [1, {"x": None}]},
        {"status": {"daemonEndpoints": {"kubeletEndpoint": None}}},
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": None}}}},
    ],
    ids=["nothing", "nulls", "empty", "deep-nulls", "future", "no-endpoint", "no-port"],
)
def test_odd_nodes(node: object) -> None:
    assert NODES.one(dumps(node)) == NOTHING
    assert NODES.event(line("ADDED", node)).item == NOTHING
    assert NODES.page(dumps({"items": [node]})).items == [NOTHING]


def test_ready_and_the_not_ready_taint() -> None:
    for conditions, ready in [
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "NotReady", "status": "True"}], False),
        ([{"status": "True"}, {"type": "Ready"}], False),
        ([{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}], False),
        ([{"type": "Ready", "status": "True", "lastHeartbeatTime": None}], True),
    ]:
        assert NODES.one(dumps({"status": {"conditions": conditions}})).ready is ready, conditions
    for taints, there in [
        ([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}], True),
        ([{"key": "node.kubernetes.io/unreachable"}, {}, {"key": ""}], False),
        (None, False),
    ]:
        assert NODES.one(dumps({"spec": {"taints": taints}})).not_ready_taint is there, taints


def test_bookmark_has_no_item() -> None:
    event = NODES.event(line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": "7"}}))
    assert (event.type, event.item, event.resource_version) == ("BOOKMARK", None, 7)


@pytest.mark.parametrize(("code", "kind"), [(410, GoneError), (500, ServerError)])
@pytest.mark.parametrize("decoder", [NODES, OBJECTS], ids=["nodes", "objects"])
def test_error_event(decoder: Any, code: int, kind: type[Exception]) -> None:
    status = {"kind": "Status", "status": "Failure", "code": code, "message": "m", "metadata": {}}
    event = decoder.event(line("ERROR", status))
    assert event.item is None
    assert type(event.error) is kind
    assert str(event.error).endswith("m")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"<html>",
        b"[]",
        b"null",
        line("FUTURE", {}),
        line("ADDED", []),
        line("ADDED", {"metadata": {"labels": ["x"]}}),
        line("ERROR", "text"),
        b'{"type": "ADDED"}',
    ],
)
def test_no_event_at_all(body: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        NODES.event(body)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("decoding an answer: ")


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.just("9" * 5_000),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["resourceVersion", "causes", "code"]), inner)
    ),
    max_leaves=6,
)
odd = st.fixed_dictionaries({}, optional=dict.fromkeys(("metadata", "details", "code"), anything))


@given(odd | anything, st.sampled_from(["ADDED", "DELETED", "BOOKMARK", "ERROR"]))
@example({"metadata": []}, "ADDED")
@example({"metadata": "text"}, "BOOKMARK")
@example({"metadata": {"resourceVersion": 7}}, "MODIFIED")
@example({"metadata": {"resourceVersion": "9" * 5_000}}, "ADDED")
@example({"code": 500, "details": ["text"]}, "ERROR")
@example({"code": 500, "details": {"causes": ["text"]}}, "ERROR")
@example({"code": float("inf")}, "ERROR")
def test_whatever_another_cluster_sends_is_an_event_or_none(body: object, kind: str) -> None:
    """Its objects are taken as they come, and any error but this one would end the watch."""
    for decoder in (NODES, LEASES, OBJECTS, OBJECTS.then(live_node)):
        with contextlib.suppress(DecodeError):
            decoder.event(line(kind, body))
        with contextlib.suppress(DecodeError):
            decoder.page(dumps({"items": [body], "metadata": body}))


def test_of_an_object_with_odd_metadata_the_rest_is_read() -> None:
    event = OBJECTS.event(line("ADDED", {"metadata": ["odd"], "spec": {}}))
    assert (event.item, event.resource_version) == ({"metadata": ["odd"], "spec": {}}, 0)


def test_error_names_the_place() -> None:
    with pytest.raises(DecodeError, match=r"items\.1\.metadata\.labels: Input should be"):
        NODES.page(dumps({"items": [NODE, {"metadata": {"labels": 3}}]}))


def test_lease() -> None:
    lease = LEASES.one(
        dumps(
            {
                "metadata": {"name": "a-1", "resourceVersion": "5"},
                "spec": {
                    "holderIdentity": "kwok",
                    "leaseDurationSeconds": 40,
                    "renewTime": "2026-01-02T03:04:05.678901Z",
                },
            }
        )
    )
    assert (lease.name, lease.resource_version, lease.holder) == ("a-1", 5, "kwok")
    assert lease.duration_seconds == 40
    assert lease.renew_time == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def test_lease_without_a_holder() -> None:
    for spec in (None, {}, {"holderIdentity": None, "renewTime": None}):
        lease = LEASES.one(dumps({"metadata": {"name": "a"}, "spec": spec}))
        assert (lease.holder, lease.duration_seconds, lease.renew_time) == ("", 0, None)


def test_plain_dicts() -> None:
    assert decode_dict(dumps(NODE)) == NODE
    assert OBJECTS.one(dumps(NODE)) == NODE
    event = OBJECTS.event(line("ADDED", NODE))
    assert (event.item, event.resource_version) == (NODE, 42)
    for body in (b"{", b"[]"):
        with pytest.raises(DecodeError):
            decode_dict(body)
