"""Which real node a template is copied from, and what is kept of each."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.sources.api.source import NodesSource
from kwok_operator.sources.nodechoice import (
    LiveNode,
    choose,
    in_words,
    is_fake,
    is_leftover,
    live_node,
    matches,
)
from tests.fakes.store import merge_patch

Json = dict[str, Any]


def raw(name: str = "web-1", **patch: Any) -> Json:
    """A real node that may be copied, with `patch` merged over it."""
    node = {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"pool": "batch"},
            "annotations": {"example.com/team": "search"},
        },
        "spec": {"providerID": f"aws:///eu-1a/i-{name}"},
        "status": {
            "capacity": {"cpu": "8", "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.34.0", "architecture": "amd64"},
        },
    }
    result: Json = merge_patch(node, patch)
    return result


def kept(name: str = "web-1", **patch: Any) -> LiveNode:
    return live_node(raw(name, **patch))


def at(time: str) -> Json:
    return {"creationTimestamp": time}


def source(**fields: Any) -> NodesSource:
    return NodesSource.model_validate(fields)


ANY = source(selector={})


class TestChoosing:
    def test_takes_the_newest(self) -> None:
        old, new = (
            kept("a", metadata=at("2026-01-01T00:00:00Z")),
            kept("b", metadata=at("2026-01-02T00:00:00Z")),
        )
        assert choose([old, new], ANY) is new
        assert choose([new, old], ANY) is new

    def test_of_equals_the_first_by_name(self) -> None:
        nodes = [kept("c"), kept("a"), kept("b")]
        assert choose(nodes, ANY) is nodes[1]

    def test_takes_nothing_where_there_is_nothing(self) -> None:
        assert choose([], ANY) is None
        assert choose([kept()], source(name="other")) is None

    @pytest.mark.parametrize(
        "patch",
        [
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
            {"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}},
            {"status": {"conditions": None}},
            {"spec": {"unschedulable": True}},
            {"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}},
            {"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized"}]}},
            {"metadata": {"deletionTimestamp": "2026-01-03T00:00:00Z"}},
            {"status": {"capacity": {"cpu": None}}},
            {"status": {"capacity": {"memory": None}}},
            {"status": None},
        ],
    )
    def test_leaves_out_what_is_no_example(self, patch: Json) -> None:
        metadata = at("2026-02-01T00:00:00Z") | patch.get("metadata", {})
        newer = kept("new", **{**patch, "metadata": metadata})
        old = kept("old")
        assert matches(newer, ANY)
        assert not newer.usable
        assert choose([newer, old], ANY) is old

    @pytest.mark.parametrize("taint", ["gpu", "node.kubernetes.io/disk-pressure"])
    def test_other_taints_are_no_hindrance(self, taint: str) -> None:
        assert kept(spec={"taints": [{"key": taint, "effect": "NoSchedule"}]}).usable


def selected(labels: dict[str, str], **selector: Any) -> bool:
    node = kept(metadata={"labels": {"pool": None, **labels}})
    return matches(node, source(selector=selector))


def expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


class TestDescribing:
    def test_by_labels(self) -> None:
        wanted = {"matchLabels": {"a": "1", "b": "2"}}
        assert all(selected({"a": "1", "b": "2", **more}, **wanted) for more in ({}, {"c": "3"}))
        assert not any(selected(few, **wanted) for few in ({"a": "1"}, {"a": "1", "b": "1"}, {}))
        assert selected({}), "an empty selector means any"

    @pytest.mark.parametrize(
        ("operator", "values", "fits"),
        [
            # With a=1, with a=2, with an empty a, without a.
            ("In", ["1", "3"], [True, False, False, False]),
            ("In", [""], [False, False, True, False]),
            ("NotIn", ["1", "3"], [False, True, True, True]),
            ("Exists", [], [True, True, True, False]),
            ("DoesNotExist", [], [False, False, False, True]),
        ],
    )
    def test_by_expressions(self, operator: str, values: list[str], fits: list[bool]) -> None:
        labels: tuple[dict[str, str], ...] = ({"a": "1"}, {"a": "2"}, {"a": ""}, {})
        assert [selected(one, **expression("a", operator, *values)) for one in labels] == fits

    def test_by_labels_and_expressions_together(self) -> None:
        wanted = {"matchLabels": {"a": "1"}, **expression("b", "DoesNotExist")}
        found = [selected(labels, **wanted) for labels in ({"a": "1"}, {"a": "1", "b": "2"}, {})]
        assert found == [True, False, False]

    def test_by_name_by_annotation_and_by_nothing(self) -> None:
        assert matches(kept("a"), source(name="a"))
        assert not matches(kept("ab"), source(name="a"))
        wanted = {"key": "example.com/team", "value": "search"}
        assert matches(kept(), source(annotation=wanted))
        assert not matches(kept(), source(annotation={**wanted, "value": "ads"}))
        without = kept(metadata={"annotations": None})
        assert not matches(without, source(annotation={**wanted, "value": ""}))
        # The API server refuses it, but what it had stored before may be like that.
        assert not matches(kept(), source())

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"name": "web-1"}, "called web-1"),
            ({"annotation": {"key": "team", "value": "ads"}}, "annotated team=ads"),
            ({"selector": {"matchLabels": {"a": "1", "b": "2"}}}, "labelled a=1, b=2"),
            ({"selector": expression("a", "NotIn", "1", "2")}, "labelled a NotIn (1, 2)"),
            ({"selector": expression("a", "Exists")}, "labelled a Exists"),
            ({"selector": {}}, "at all"),
        ],
    )
    def test_in_words(self, fields: Json, words: str) -> None:
        assert in_words(source(**fields)) == words


FAKES: dict[str, Json] = {
    "kwok's annotation": {"metadata": {"annotations": {"kwok.x-k8s.io/node": "fake"}}},
    "our label": {"metadata": {"labels": {"kwok-operator.io/node-group": "web"}}},
    "kwokctl's label": {"metadata": {"labels": {"type": "kwok"}}},
    "a providerID of ours": {"spec": {"providerID": "kwok:web-1"}},
    "a providerID with slashes": {"spec": {"providerID": "kwok://web-1"}},
    "no kubelet": {"status": {"nodeInfo": {"kubeletVersion": "fake"}}},
}
LEFTOVER = merge_patch(
    FAKES["a providerID of ours"],
    {"metadata": {"annotations": {"cluster-autoscaler.kwok.nodegroup/name": "m5.large"}}},
)


class TestFakes:
    @pytest.mark.parametrize("why", FAKES)
    def test_are_never_copied(self, why: str) -> None:
        assert is_fake(raw(**FAKES[why]))
        node = kept("a", **FAKES[why])
        assert (node.usable, node.digest) == (False, "")
        assert choose([node], source(name="a")) is None

    @pytest.mark.parametrize(
        "patch",
        [
            {},
            {"spec": {"providerID": None}},
            {"spec": {"providerID": "aws:///kwok"}},
            {"metadata": {"labels": {"type": "gpu"}}},
            {"metadata": {"annotations": {"example.com/kwok.x-k8s.io": "fake"}}},
        ],
    )
    def test_real_ones_are_not_taken_for_them(self, patch: Json) -> None:
        assert kept(**patch).usable

    def test_leftovers_of_cluster_autoscalers_provider(self) -> None:
        assert is_leftover(kept(**LEFTOVER))

    @pytest.mark.parametrize(
        "patch",
        [
            FAKES["a providerID of ours"],
            merge_patch(LEFTOVER, FAKES["our label"]),
            {"metadata": LEFTOVER["metadata"]},
        ],
        ids=["another's fake node", "a fake node of ours", "a real node with the annotation"],
    )
    def test_are_no_others(self, patch: Json) -> None:
        assert not is_leftover(kept(**patch))


NO_NEWS: dict[str, Json] = {
    "a new version": {"metadata": {"resourceVersion": "8"}},
    "managed fields": {"metadata": {"managedFields": [{"manager": "kubelet"}]}},
    "a heartbeat": {
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-05T00:00:00Z"}
            ]
        }
    },
    "not Ready": {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    "an image": {"status": {"images": [{"names": ["registry/app:1"], "sizeBytes": 5}]}},
    "an address": {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.77"}]}},
    "a volume": {"status": {"volumesInUse": ["vol-1"]}},
    "a cordon": {"spec": {"unschedulable": True}},
    "a taint that passes": {
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}
    },
}
NEWS: dict[str, Json] = {
    "capacity": {"status": {"capacity": {"cpu": "16"}}},
    "a new resource": {"status": {"capacity": {"nvidia.com/gpu": "1"}}},
    "allocatable": {"status": {"allocatable": {"cpu": "7"}}},
    "a label": {"metadata": {"labels": {"pool": "web"}}},
    "a label that is gone": {"metadata": {"labels": {"pool": None}}},
    "an annotation": {"metadata": {"annotations": {"example.com/team": "ads"}}},
    "a taint": {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}},
    "another architecture": {"status": {"nodeInfo": {"architecture": "arm64"}}},
}


class TestDigest:
    @pytest.mark.parametrize("what", NO_NEWS)
    def test_is_not_changed_by(self, what: str) -> None:
        assert kept(**NO_NEWS[what]).digest == kept().digest

    @pytest.mark.parametrize("what", NEWS)
    def test_is_changed_by(self, what: str) -> None:
        assert kept(**NEWS[what]).digest != kept().digest

    def test_is_that_of_every_machine_of_a_kind(self) -> None:
        assert kept("ip-10-0-0-1").digest == kept("ip-10-0-0-2").digest

    def test_of_a_node_that_is_no_template_changes_with_each_version(self) -> None:
        wrong: Json = {"metadata": {"labels": {"pool": 5}}}
        one = kept(**wrong)
        assert kept(**wrong).digest == one.digest
        later: Json = merge_patch(wrong, {"metadata": {"resourceVersion": "8"}})
        assert kept(**later).digest != one.digest

    def test_of_a_node_that_is_too_large_for_a_template_is_not_worked_out(self) -> None:
        labels = {f"label-{i}": "x" * 30 for i in range(10_000)}
        assert kept(metadata={"labels": labels}).digest.startswith("unusable")


def test_what_is_kept() -> None:
    node = kept()
    assert (node.name, node.uid, node.resource_version) == ("web-1", "uid-of-web-1", 7)
    assert node.created == 1_767_225_600.0
    assert (node.labels, node.annotations) == ({"pool": "batch"}, {"example.com/team": "search"})
    assert node.usable


def test_of_next_to_nothing() -> None:
    node = live_node({})
    assert (node.name, node.resource_version, node.created, node.usable) == ("", 0, 0.0, False)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def part(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of these fields, each as it should be or anything at all."""
    return st.fixed_dictionaries({}, optional={k: v | anything for k, v in fields.items()})


texts = st.dictionaries(st.sampled_from(["a", "type"]), st.text(max_size=6) | anything, max_size=2)
times = st.sampled_from(["0001-01-01T00:00:00", "9999-12-31T23:59:59Z", "2026-13-01T00:00:00Z"])
odd_nodes = part(
    metadata=part(
        name=st.text(max_size=6),
        resourceVersion=st.sampled_from(["7", "-7", "x", "²"]),
        creationTimestamp=times,
        labels=texts,
        annotations=texts,
    ),
    spec=part(
        taints=st.lists(part(key=st.text(max_size=3)) | anything, max_size=2),
        providerID=st.text(max_size=6),
    ),
    status=part(
        capacity=part(cpu=st.just("8"), memory=st.just("1Gi")),
        conditions=st.lists(part(type=st.just("Ready"), status=st.just("True")) | anything),
        nodeInfo=part(kubeletVersion=st.text(max_size=6)),
    ),
)


@given(odd_nodes)
def test_something_is_kept_of_the_oddest_node(node: Json) -> None:
    before = copy.deepcopy(node)
    seen = live_node(node)
    assert repr(node) == repr(before)
    assert all(
        isinstance(text, str) for text in (*seen.labels.values(), *seen.annotations.values())
    )
    choose([seen], ANY)
    is_leftover(seen)
