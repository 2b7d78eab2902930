"""A group's template as cluster-autoscaler gets it: a Node in protobuf."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator import constants
from kwok_operator.errors import TemplateError
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import render, resolve
from kwok_operator.shim.proto import kubernetes_pb2 as k8s
from kwok_operator.shim.template import canonical_quantity, encode_node, template_node
from tests.anytemplate import nodes, shapes
from tests.corpusnodes import NODES as CORPUS
from tests.fakes.nodebytes import decode_node

UID = "0c9bd1c2-0000-4000-8000-a1b2c3d4e5f6"
INFO_FIELDS = {field.name for field in k8s.NodeSystemInfo.DESCRIPTOR.fields}


def resolved(**template: Any) -> dict[str, Any]:
    return resolve(Template.model_validate(template), guard=GuardTaint())


def encoded(node: dict[str, Any], group: str = "gpu-b") -> bytes:
    return template_node(node, group=group, uid=UID, provider_id_prefix="kwok:")


def rendered(node: dict[str, Any], group: str = "gpu-b") -> dict[str, Any]:
    """The group's next node, were it called like the template."""
    made = render(node, group=group, uid=UID, provider_id_prefix="kwok:", endpoint=None)
    body = made.body(f"template-{group}", requested_at="t", now="t", ready=False)
    manifest: dict[str, Any] = json.loads(body)
    return manifest


def says_the_same(data: bytes, manifest: dict[str, Any]) -> None:
    """A Node in protobuf and one in JSON are alike in all that a scheduler looks at."""
    found = decode_node(data)
    annotations = dict(manifest["metadata"]["annotations"])
    del annotations[constants.REQUESTED_AT_ANNOTATION]
    labels = manifest["metadata"]["labels"]
    added = {f"beta.{key}": labels[key] for key in ("kubernetes.io/arch", "kubernetes.io/os")}
    assert found["metadata"]["labels"] == labels | added
    assert found["metadata"]["annotations"] == annotations
    assert found["spec"].get("taints", []) == [
        {key: value for key, value in taint.items() if value}
        for taint in manifest["spec"]["taints"]
    ]
    assert found["spec"]["providerID"] == manifest["spec"]["providerID"]
    for kind in ("capacity", "allocatable"):
        amounts = manifest["status"][kind].items()
        expected = {name: canonical_quantity(value) for name, value in amounts}
        assert found["status"].get(kind, {}) == expected
    info = manifest["status"]["nodeInfo"].items()
    known = {key: value for key, value in info if value and key in INFO_FIELDS}
    assert found["status"]["nodeInfo"] == known


GPU = {
    "shape": {
        "cpu": "1.5",
        "memory": "2048Mi",
        "gpu": {"type": "nvidia.com/gpu", "count": 8},
        "reserved": {"cpu": "100m"},
        "zone": "eu-west-1b",
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
    }
}


def test_it_is_what_the_groups_next_node_will_be() -> None:
    node = resolved(**GPU)
    says_the_same(encoded(node), rendered(node))
    found = decode_node(encoded(node))
    assert found["status"]["allocatable"] == {
        "cpu": "1400m",
        "memory": "2Gi",
        "pods": "110",
        "nvidia.com/gpu": "8",
    }
    assert found["metadata"]["labels"]["topology.kubernetes.io/zone"] == "eu-west-1b"
    assert found["metadata"]["labels"][constants.NODE_GROUP_LABEL] == "gpu-b"
    assert found["metadata"]["annotations"][constants.CA_NODE_GROUP_ANNOTATION] == "gpu-b"


def test_it_is_ready_schedulable_and_nobodys_instance() -> None:
    node = k8s.Node.FromString(encoded(resolved()))
    ready = {condition.type: condition.status for condition in node.status.conditions}
    assert ready["Ready"] == "True"
    assert set(ready.values()) == {"True", "False"}
    assert not node.spec.unschedulable
    assert node.metadata.name == "template-gpu-b"
    assert not node.status.addresses
    assert constants.REQUESTED_AT_ANNOTATION not in node.metadata.annotations
    assert not node.metadata.creationTimestamp.seconds
    assert not any(condition.lastTransitionTime.seconds for condition in node.status.conditions)


def test_the_same_template_gives_the_same_bytes_in_any_order() -> None:
    node = resolved(**GPU)
    before, labels = json.dumps(node), node["metadata"]["labels"]
    turned = {**node, "metadata": {**node["metadata"], "labels": dict(reversed(labels.items()))}}
    assert encoded(turned) == encoded(node)
    assert encoded(node) != encoded(resolved())
    assert json.dumps(node) == before, "the template itself is left as it was"


def test_a_template_that_says_nothing_is_not_empty() -> None:
    for node in ({}, {"metadata": {}, "spec": {"taints": None}, "status": {}}):
        found = decode_node(encoded(node))
        assert found["metadata"]["name"] == "template-gpu-b"
        assert found["metadata"]["labels"][constants.NODE_GROUP_LABEL] == "gpu-b"


def test_nodes_of_clouds_and_installers_can_be_templates() -> None:
    for given_node in CORPUS.values():
        node = resolved(node=given_node)
        says_the_same(encoded(node), rendered(node))


@given(node=nodes, shape=shapes)
@settings(deadline=None)
def test_any_template_is_a_node_that_says_the_same(node: Any, shape: Any) -> None:
    try:
        template = resolved(node=node if isinstance(node, dict) else {}, shape=shape)
        data = encoded(template)
    except TemplateError as error:
        assert error.field.startswith(("spec.template.", "status.resolvedTemplate"))
        return
    says_the_same(data, rendered(template))


QUANTITIES = """
0Gi=0 1000=1k 1000m=1 1.5=1500m 1e3=1e3 1.5e4=15e3 12e-1=1200e-3 5E=5E 5000E=5000E 1n=1m
1.0001=1001m 2048Mi=2Gi 1.5Gi=1536Mi 1000Ki=1000Ki 1024=1024 1.5Ki=1536 0.5Ki=512 0.3Ki=307200m
2000.1Ki=2048102400m 9999999Ei=9223372036854775807 -1500m=-1500m -2048Mi=-2Gi
"""


def test_quantities_are_written_as_the_api_server_writes_them() -> None:
    for quantity, _, canonical in (pair.partition("=") for pair in QUANTITIES.split()):
        assert canonical_quantity(quantity) == canonical, quantity
    assert [canonical_quantity(number) for number in (0, 4, 0.5, 1e22)] == "0 4 500m 10e21".split()


quantities = st.builds(
    "{}{}".format,
    st.integers(0, 10**9) | st.decimals(0, 10**6, places=4),
    st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-2"]),
)


@given(quantity=quantities)
def test_a_canonical_quantity_is_as_much_and_stays_as_it_is(quantity: str) -> None:
    canonical = canonical_quantity(quantity)
    more = parse_quantity(canonical) - parse_quantity(quantity)
    assert 0 <= more * 1000 < 1
    assert canonical_quantity(canonical) == canonical


texts = st.text(min_size=1, max_size=8)
moments = (
    st.datetimes()
    .map(lambda t: f"{t.replace(microsecond=0).isoformat()}Z")
    # A Time of zero seconds is none at all.
    .filter(lambda t: t != "1970-01-01T00:00:00Z")
)


def some(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with at least one of these, none of them empty: an empty one means nothing."""
    return st.fixed_dictionaries({}, optional=members).filter(bool)


def many(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, min_size=1, max_size=3)


maps = st.dictionaries(texts, st.text(max_size=8), min_size=1, max_size=3)
resources = st.dictionaries(texts, st.sampled_from(["4", "500m", "2Gi"]), min_size=1, max_size=3)
manifests = some(
    metadata=some(
        name=texts,
        generation=st.integers(1, 2**63 - 1),
        creationTimestamp=moments,
        deletionGracePeriodSeconds=st.integers(0, 60),
        labels=maps,
        annotations=maps,
        finalizers=many(texts),
        ownerReferences=many(some(name=texts, controller=st.booleans())),
    ),
    spec=some(
        podCIDRs=many(texts),
        providerID=texts,
        unschedulable=st.just(True),
        taints=many(some(key=texts, value=texts, effect=texts, timeAdded=moments)),
    ),
    status=some(
        capacity=resources,
        allocatable=resources,
        conditions=many(some(type=texts, lastHeartbeatTime=moments)),
        daemonEndpoints=some(kubeletEndpoint=some(Port=st.integers(1, 65535))),
        nodeInfo=some(machineID=texts, architecture=texts, swap=some(capacity=st.integers(0, 9))),
        images=many(some(names=many(texts), sizeBytes=st.integers(1, 2**40))),
        runtimeHandlers=many(some(name=texts, features=some(userNamespaces=st.booleans()))),
        features=some(supplementalGroupsPolicy=st.booleans()),
        declaredFeatures=many(texts),
    ),
)


@given(manifest=manifests)
@settings(deadline=None)
def test_json_becomes_protobuf_and_comes_back(manifest: dict[str, Any]) -> None:
    assert decode_node(encode_node(manifest)) == manifest


def test_empty_and_unknown_fields_are_left_out() -> None:
    manifest = {
        "kind": "Node",
        "metadata": {"name": "n", "creationTimestamp": None, "labels": {}, "managedFields": [{}]},
        "spec": {"taints": [], "podCIDR": "", "inventedLater": {"a": [1]}},
        "status": {"nodeInfo": {"machineID": ""}, "daemonEndpoints": {"kubeletEndpoint": {}}},
    }
    assert decode_node(encode_node(manifest)) == {"metadata": {"name": "n"}}


def test_times_are_seconds() -> None:
    for moment in ("03:04:05Z", "05:04:05+02:00", "03:04:05.999Z"):
        taint = {"timeAdded": f"2026-01-02T{moment}"}
        node = k8s.Node.FromString(encode_node({"spec": {"taints": [taint]}}))
        assert node.spec.taints[0].timeAdded == k8s.Time(seconds=1767323045), moment


REFUSED: dict[str, dict[str, Any]] = {
    "metadata": {"metadata": "x"},
    "metadata.labels": {"metadata": {"labels": ["x"]}},
    "metadata.labels.a": {"metadata": {"labels": {"a": 5}}},
    "metadata.annotations.a": {"metadata": {"annotations": {"a": "\ud800"}}},
    "metadata.generation": {"metadata": {"generation": 2**63}},
    "metadata.finalizers[0]": {"metadata": {"finalizers": [True]}},
    "metadata.creationTimestamp": {"metadata": {"creationTimestamp": "yesterday"}},
    "metadata.deletionTimestamp": {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05"}},
    "spec.taints": {"spec": {"taints": {"key": "x"}}},
    "spec.taints[1]": {"spec": {"taints": [{"key": "x"}, "x"]}},
    "spec.taints[0].timeAdded": {"spec": {"taints": [{"timeAdded": 5}]}},
    "spec.unschedulable": {"spec": {"unschedulable": "no"}},
    "status.capacity.cpu": {"status": {"capacity": {"cpu": "4 cores"}}},
    "status.images[0].names[0]": {"status": {"images": [{"names": [None]}]}},
}


def test_values_that_do_not_fit_are_refused_with_their_field() -> None:
    for field, manifest in REFUSED.items():
        with pytest.raises(TemplateError) as refused:
            encode_node(manifest)
        assert refused.value.field == f"status.resolvedTemplate.{field}"
    for node in ({"spec": {"taints": "x"}}, {"metadata": {"labels": 5}}):
        with pytest.raises(TemplateError, match=r"^status\.resolvedTemplate\."):
            encoded(node)
