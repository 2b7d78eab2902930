"""One node merged over another, and what `template.from` gives as the base of a template."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.merge import merge_nodes
from kwok_operator.nodegroups.template import SourceNode, resolve, source

Json = dict[str, Any]

GPU = {"key": "gpu", "value": "a100", "effect": "NoSchedule"}
SPOT = {"key": "spot", "effect": "NoSchedule"}


def node(
    *, metadata: Json | None = None, spec: Json | None = None, status: Json | None = None
) -> Json:
    return {"metadata": metadata or {}, "spec": spec or {}, "status": status or {}}


ARM = {"nodeInfo": {"architecture": "arm64"}}
LIST_OF_TWO = {"runtimeHandlers": [{"name": "a"}, {"name": "b"}]}


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        ({"a": "1", "b": "2"}, {"a": "3", "c": "4"}, {"a": "3", "b": "2", "c": "4"}),
        ({"x": {"y": {"a": 1, "b": 2}}}, {"x": {"y": {"b": 3}}}, {"x": {"y": {"a": 1, "b": 3}}}),
        ({"a": {"b": "1", "c": "2"}}, {"a": {"b": None, "d": None}}, {"a": {"c": "2"}}),
        (ARM, {"nodeInfo": None}, {}),
        ({}, {"a": {"b": None, "c": "2"}}, {"a": {"c": "2"}}),
        ({"features": "all"}, {"features": {"a": True}}, {"features": {"a": True}}),
        (LIST_OF_TWO, {"runtimeHandlers": [{"name": "c"}]}, {"runtimeHandlers": [{"name": "c"}]}),
    ],
)
def test_maps_are_merged_by_key_and_lists_replaced(base: Json, overlay: Json, result: Json) -> None:
    found = merge_nodes(node(status=base), node(status=overlay))["status"]
    assert {key: value for key, value in found.items() if key in base | overlay} == result


@pytest.mark.parametrize(
    ("base", "overlay", "result"),
    [
        (
            [GPU, SPOT],
            {"taints": [{**GPU, "value": "h100"}, {**GPU, "effect": "NoExecute"}]},
            [{**GPU, "value": "h100"}, SPOT, {**GPU, "effect": "NoExecute"}],
        ),
        ([GPU], {}, [GPU]),
        ([GPU], {"taints": []}, [GPU]),
        ([GPU, SPOT], {"taints": None}, []),
        ([], {"taints": [SPOT]}, [SPOT]),
    ],
)
def test_taints_by_key_and_effect(base: list[Json], overlay: Json, result: list[Json]) -> None:
    assert merge_nodes(node(spec={"taints": base}), node(spec=overlay))["spec"]["taints"] == result


MACHINE = node(
    status={
        "capacity": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
        "allocatable": {"cpu": "7900m", "memory": "30Gi", "nvidia.com/gpu": "4"},
    }
)


@pytest.mark.parametrize(
    ("overlay", "capacity", "allocatable"),
    [
        # Capacity given anew can be used whole, unless allocatable is given too.
        ({"capacity": {"cpu": "16"}}, {"cpu": "16"}, {"cpu": "16"}),
        ({"capacity": {"cpu": "16"}, "allocatable": {"cpu": "15"}}, {"cpu": "16"}, {"cpu": "15"}),
        ({"allocatable": {"cpu": "7"}}, {}, {"cpu": "7"}),
        ({"capacity": {"example.com/x": "2"}}, {"example.com/x": "2"}, {"example.com/x": "2"}),
        (
            {"capacity": {"nvidia.com/gpu": None}},
            {"nvidia.com/gpu": None},
            {"nvidia.com/gpu": None},
        ),
    ],
)
def test_resources(overlay: Json, capacity: Json, allocatable: Json) -> None:
    status = merge_nodes(MACHINE, node(status=overlay))["status"]
    for part, changes in (("capacity", capacity), ("allocatable", allocatable)):
        wanted = MACHINE["status"][part] | changes
        assert status[part] == {name: amount for name, amount in wanted.items() if amount}


names = st.sampled_from(["a", "b", "cpu", "gpu"])
values = st.none() | st.sampled_from(["1", "2", "x"])
maps = st.dictionaries(names, values, max_size=3)
taints = st.lists(
    st.fixed_dictionaries(
        {"key": names, "effect": st.sampled_from(["NoSchedule", "NoExecute"])},
        optional={"value": st.sampled_from(["1", "2"])},
    ),
    max_size=4,
)


def parts(allocatable: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    spec = st.fixed_dictionaries({}, optional={"taints": taints | st.none(), "other": maps})
    status = {"capacity": maps, "allocatable": allocatable, "deep": maps}
    return st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries({"labels": maps}),
            "spec": spec,
            "status": st.fixed_dictionaries({}, optional=status),
        }
    )


overlays = parts(maps)
bases = parts(st.dictionaries(names, st.just("1"))).map(lambda part: merge_nodes(node(), part))
"""As merging leaves them: no nulls, nothing twice, all of capacity in allocatable."""


@given(bases)
def test_merging_nothing_or_itself_changes_nothing(base: Json) -> None:
    for same in ({}, node(), base):
        assert merge_nodes(base, same) == base


@given(bases, overlays)
def test_merging_is_idempotent_and_changes_no_input(base: Json, overlay: Json) -> None:
    before = copy.deepcopy((base, overlay))
    result = merge_nodes(base, overlay)
    assert merge_nodes(result, overlay) == result
    taints = result["spec"]["taints"]
    assert len({(taint["key"], taint["effect"]) for taint in taints}) == len(taints)
    result["metadata"].setdefault("labels", {})["later"] = "x"
    result["status"]["allocatable"]["later"] = "x"
    result["spec"]["taints"].append(GPU)
    assert (base, overlay) == before


def template(**parts: Any) -> Template:
    return Template.model_validate(parts)


def resolved(*sources: SourceNode, **parts: Any) -> Json:
    return resolve(template(**parts), guard=GuardTaint(enabled=False), sources=sources)


LIVE = SourceNode(
    "Node ip-10-0-0-1",
    {
        "metadata": {
            "name": "ip-10-0-0-1",
            "labels": {
                "pool": "live",
                "team": "live",
                "disk": "live",
                "rack": "live",
                "topology.kubernetes.io/zone": "eu-1a",
                "failure-domain.beta.kubernetes.io/zone": "eu-1a",
                "topology.gke.io/zone": "eu-1a",
                "node.kubernetes.io/instance-type": "m5.large",
                "beta.kubernetes.io/instance-type": "m5.large",
                "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/arch": "amd64",
            },
        },
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"},
            "allocatable": {"cpu": "7", "memory": "30Gi", "nvidia.com/gpu": "4"},
            "nodeInfo": {"architecture": "amd64"},
        },
    },
)


def written(**labels: str) -> SourceNode:
    return SourceNode("ConfigMap ops/templates, Node big", {"metadata": {"labels": labels}})


class TestTemplates:
    def test_each_source_goes_over_the_one_before(self) -> None:
        node = resolved(
            LIVE,
            written(team="configmap", disk="configmap", rack="configmap"),
            node={"metadata": {"labels": {"disk": "node", "rack": "node"}}},
            shape={"labels": {"rack": "shape"}},
        )
        labels = node["metadata"]["labels"]
        assert [labels[key] for key in ("pool", "team", "disk", "rack")] == [
            "live",
            "configmap",
            "node",
            "shape",
        ]

    def test_what_the_live_node_keeps_back_goes_with_its_size(self) -> None:
        status = resolved(LIVE, node={"status": {"capacity": {"cpu": "16"}}})["status"]
        assert status["capacity"] == {
            "cpu": "16",
            "memory": "32Gi",
            "nvidia.com/gpu": "4",
            "pods": "110",
        }
        assert (status["allocatable"]["cpu"], status["allocatable"]["memory"]) == ("16", "30Gi")

    def test_null_takes_away_what_a_source_gave(self) -> None:
        node = resolved(
            LIVE,
            node={
                "metadata": {"labels": {"pool": None}},
                "status": {"capacity": {"nvidia.com/gpu": None}},
            },
        )
        assert "pool" not in node["metadata"]["labels"]
        assert "nvidia.com/gpu" not in node["status"]["capacity"]
        assert "nvidia.com/gpu" not in node["status"]["allocatable"]

    def test_null_for_the_taints_takes_the_sources_away(self) -> None:
        tainted = SourceNode("Node a", {"spec": {"taints": [GPU]}})
        assert resolved(tainted)["spec"]["taints"] == [GPU]
        assert resolved(tainted, node={"spec": {"taints": None}})["spec"]["taints"] == []

    def test_null_of_a_resource_that_no_source_gave_is_a_mistake(self) -> None:
        with pytest.raises(TemplateError) as caught:
            resolved(LIVE, node={"status": {"capacity": {"example.com/x": None}}})
        assert caught.value.field == "spec.template.node.status.capacity.example.com/x"

    def test_a_mistake_is_told_with_the_place_of_its_source(self) -> None:
        wrong = SourceNode(
            "ConfigMap ops/t, Node big", {"status": {"capacity": {"cpu": "8 cores"}}}
        )
        with pytest.raises(TemplateError) as caught:
            resolved(LIVE, wrong, node={"metadata": {"labels": {"a": "b"}}})
        assert caught.value.field == "ConfigMap ops/t, Node big.status.capacity.cpu"
        assert "'8 cores'" in str(caught.value)

    def test_labels_that_say_the_same_follow(self) -> None:
        shape = {"zone": "eu-1b", "instanceType": "m5.xlarge", "arch": "arm64"}
        node = resolved(LIVE, shape=shape)
        labels = node["metadata"]["labels"]
        assert labels["topology.kubernetes.io/zone"] == "eu-1b"
        assert labels["failure-domain.beta.kubernetes.io/zone"] == "eu-1b"
        assert labels["topology.gke.io/zone"] == "eu-1b"
        assert "topology.ebs.csi.aws.com/zone" not in labels, "only where the node has them"
        assert labels["node.kubernetes.io/instance-type"] == "m5.xlarge"
        assert labels["beta.kubernetes.io/instance-type"] == "m5.xlarge"
        assert labels["kubernetes.io/arch"] == labels["beta.kubernetes.io/arch"] == "arm64"
        assert node["status"]["nodeInfo"]["architecture"] == "arm64"


NODES: Json = {"nodes": {"name": "a"}}
REMOTE: Json = {"nodes": {"name": "a", "cluster": {"secretName": "prod"}}}
CONFIGMAP: Json = {"configMap": {"name": "t"}}


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({}, "Default"),
        ({"node": {}, "shape": {}}, "Default"),
        ({"shape": {"cpu": 1}}, "Shape"),
        ({"from": NODES}, "Live"),
        ({"from": REMOTE}, "Remote"),
        ({"from": CONFIGMAP}, "ConfigMap"),
        ({"from": NODES | CONFIGMAP}, "Live+ConfigMap"),
        ({"from": REMOTE | CONFIGMAP, "shape": {"cpu": 4}}, "Remote+ConfigMap+Shape"),
        ({"from": CONFIGMAP, "node": {"spec": {}}}, "ConfigMap+Node"),
    ],
)
def test_the_source_in_a_word(parts: Json, word: str) -> None:
    assert source(template(**parts)) == word
