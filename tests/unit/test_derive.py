"""From a provider config, templates and live nodes to groups."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.formats.documents import NodeDocuments
from kwok_operator.formats.words import Problem
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.naming import group_name
from kwok_operator.schema.check import check_group
from kwok_operator.sources.api.providerconfig import KeyKind, ProviderConfig, ReadNodesFrom
from kwok_operator.sources.api.source import RemoteCluster
from kwok_operator.sources.derive import ConfigMapTemplates, Derivation, derive
from kwok_operator.sources.nodechoice import LiveNode, matches

KEY = "pool"
MIN = "cluster-autoscaler.kwok.nodegroup/min-count"
MAX = "cluster-autoscaler.kwok.nodegroup/max-count"
DESIRED = "cluster-autoscaler.kwok.nodegroup/desired-count"
NAME = "cluster-autoscaler.kwok.nodegroup/name"
CAPACITY = {"cpu": "8", "memory": "32Gi"}


def node(
    name: str | None = "a",
    pool: Any = "batch",
    *,
    capacity: Mapping[str, Any] | None = CAPACITY,
    annotations: Mapping[str, Any] | None = None,
    **labels: Any,
) -> dict[str, Any]:
    """A template; pool None means that it has no such label."""
    own = {} if pool is None else {KEY: pool}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            **({} if name is None else {"name": name}),
            "labels": own | labels,
            "annotations": dict(annotations or {}),
        },
        "status": {} if capacity is None else {"capacity": dict(capacity)},
    }


def live(name: str = "real", pool: str | None = "batch", **fields: Any) -> LiveNode:
    values: dict[str, Any] = {
        "uid": name,
        "resource_version": 1,
        "created": 1.0,
        "ready": True,
        "schedulable": True,
        "has_capacity": True,
        "fake": False,
        "labels": {} if pool is None else {KEY: pool},
        "annotations": {},
        "digest": "",
    }
    return LiveNode(name=name, **(values | fields))


def config(source: ReadNodesFrom = ReadNodesFrom.BOTH, **fields: Any) -> ProviderConfig:
    values: dict[str, Any] = {"key_kind": KeyKind.LABEL, "group_key": KEY, "configmap_name": "t"}
    return ProviderConfig(read_nodes_from=source, **(values | fields))


def templates(*nodes: dict[str, Any]) -> ConfigMapTemplates:
    return ConfigMapTemplates("t", "templates", NodeDocuments(nodes))


def derived(
    *nodes: dict[str, Any], real: list[LiveNode] | None = None, using: ProviderConfig | None = None
) -> Derivation:
    """Of templates alone, unless there are real nodes."""
    source = ReadNodesFrom.CONFIGMAP if real is None else ReadNodesFrom.BOTH
    return derive(
        using or config(source), owner="ns/config", templates=templates(*nodes), live=real
    )


def only_problem(derivation: Derivation, *, groups: int = 0) -> Problem:
    (problem,) = derivation.problems
    assert len(derivation.groups) == groups
    return problem


ROLE = "node-role.kubernetes.io/control-plane"


@pytest.mark.parametrize(("keep", "told"), [(None, ["ControlPlane"]), (True, []), (False, [])])
def test_a_control_plane_keeps_pods_off_with_keep_control_plane(keep: Any, told: list[str]) -> None:
    template = node()
    template["metadata"]["labels"] |= {ROLE: "", "role": "x"}
    taint = {"key": ROLE, "effect": "NoSchedule"}
    template["spec"] = {"taints": [taint, {"key": "a", "effect": "NoSchedule"}]}
    found = derived(
        template,
        node("b", "other"),
        using=config(ReadNodesFrom.CONFIGMAP, keep_control_plane=keep),
    )
    assert [(problem.reason, problem.blocks) for problem in found.problems] == [
        (reason, False) for reason in told
    ]
    shapes = {each.name: each.manifest["spec"]["template"].get("shape") for each in found.groups}
    kept = {"labels": {ROLE: ""}, "taints": [taint]} if keep else None
    assert shapes == {"batch": kept, "other": None}


def test_a_template_gives_a_whole_manifest() -> None:
    derivation = derived(node("m5", "Standard_D4s_v3", annotations={MIN: "2", MAX: "20"}))
    (group,) = derivation.groups
    assert derivation.problems == ()
    assert (group.value, group.source, group.desired) == ("Standard_D4s_v3", "configmap", None)
    assert group.manifest == {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {
            "name": group.name,
            "labels": {"kwok-operator.io/derived": "true"},
            "annotations": {
                "kwok-operator.io/provider-config": "ns/config",
                "kwok-operator.io/provider-config-value": "Standard_D4s_v3",
                "kwok-operator.io/provider-config-source": "configmap",
            },
        },
        "spec": {
            "template": {"from": {"configMap": {"name": "t", "key": "templates", "node": "m5"}}},
            "autoscaling": {"minSize": 2, "maxSize": 20},
        },
    }
    assert group.name.startswith("standard-d4s-v3-")


def test_live_nodes_are_followed_by_label() -> None:
    using = config(ReadNodesFrom.CLUSTER)
    (group,) = derived(node(), real=[live(), live("other")], using=using).groups
    assert group.source == "cluster"
    assert group.manifest["spec"] == {
        "template": {"from": {"nodes": {"selector": {"matchLabels": {KEY: "batch"}}}}},
        "autoscaling": {"minSize": 0, "maxSize": 200},
    }


def test_live_nodes_are_followed_by_annotation() -> None:
    using = config(ReadNodesFrom.CLUSTER, key_kind=KeyKind.ANNOTATION)
    real = [live(pool=None, annotations={KEY: "any text"})]
    (group,) = derived(real=real, using=using).groups
    nodes = group.manifest["spec"]["template"]["from"]["nodes"]
    assert nodes == {"annotation": {"key": KEY, "value": "any text"}}


@pytest.mark.parametrize("kind", KeyKind)
def test_nodes_of_another_cluster_are_named_with_it(kind: KeyKind) -> None:
    prod = RemoteCluster(secret_name="prod", key="k")
    using = config(ReadNodesFrom.CLUSTER, key_kind=kind, cluster=prod)
    far = live(labels={KEY: "batch"}, annotations={KEY: "batch"})
    (group,) = derived(real=[far], using=using).groups
    source = KwokNodeGroupSpec.model_validate(group.manifest["spec"]).template.source
    assert source is not None and source.nodes is not None
    assert (source.nodes.cluster, matches(far, source.nodes)) == (prod, True)
    problem = only_problem(derived(real=[], using=using))
    assert (problem.reason, "of the cluster of Secret prod" in problem.message) == (
        "KeyNotFound",
        True,
    )


@pytest.mark.parametrize(
    ("sizes", "annotations", "first", "told"),
    [
        (False, {}, None, False),
        (True, {}, 3, False),
        (True, {DESIRED: "0"}, 0, False),
        (True, {MIN: "5"}, 5, False),
        (True, {MAX: "2"}, 2, True),
    ],
)
def test_copy_sizes_begins_with_the_nodes_that_are_there(
    sizes: bool, annotations: dict[str, str], first: int | None, told: bool
) -> None:
    using = config(ReadNodesFrom.CLUSTER, cluster=RemoteCluster(secret_name="a"), copy_sizes=sizes)
    nodes = [live(name, annotations=annotations, ready=name == "a") for name in "abc"]
    derivation = derived(real=[*nodes, live("d", fake=True)], using=using)
    assert [group.desired for group in derivation.groups] == [first]
    found = [(problem.reason, problem.blocks) for problem in derivation.problems]
    assert found == [("InvalidCount", False)] * told


def test_one_value_can_have_both_sources() -> None:
    derivation = derived(node(), node("b", "static"), real=[live(), live("x", "live")])
    assert [(g.value, g.source) for g in derivation.groups] == [
        ("batch", "both"),
        ("live", "cluster"),
        ("static", "configmap"),
    ]
    source = derivation.groups[0].manifest["spec"]["template"]["from"]
    assert source.keys() == {"configMap", "nodes"}
    assert derivation.problems == ()


def test_only_what_the_config_reads_is_looked_at() -> None:
    static = derived(node(), real=[live("x", "live")], using=config(ReadNodesFrom.CONFIGMAP))
    cluster = derived(node(), real=[live("x", "live")], using=config(ReadNodesFrom.CLUSTER))
    assert [g.value for g in static.groups] == ["batch"]
    assert [g.value for g in cluster.groups] == ["live"]


def test_fake_nodes_give_no_group() -> None:
    problem = only_problem(derived(real=[live(fake=True)], using=config(ReadNodesFrom.CLUSTER)))
    assert problem.reason == "KeyNotFound"
    assert "there is no real node" in problem.message


def test_the_annotation_of_a_group_wins_over_the_label() -> None:
    (group,) = derived(node("a", "batch", annotations={NAME: "other"})).groups
    assert group.value == "other"


def test_a_node_without_a_name_is_the_only_one() -> None:
    (group,) = derived(node(None)).groups
    source = group.manifest["spec"]["template"]["from"]["configMap"]
    assert source == {"name": "t", "key": "templates"}


def test_the_guard_taint_is_switched_off() -> None:
    using = config(ReadNodesFrom.CONFIGMAP, skip_taint=True)
    (group,) = derived(node(), using=using).groups
    assert group.manifest["spec"]["guardTaint"] == {"enabled": False}


def test_the_gpu_label_and_types_are_known_to_the_groups() -> None:
    using = config(ReadNodesFrom.CONFIGMAP, gpu_label_key="a.b/gpu", gpu_types=("b", "a"))
    (group,) = derived(node(), using=using).groups
    gpus = {"gpuLabel": "a.b/gpu", "gpuTypes": ["b", "a"]}
    assert group.manifest["spec"]["autoscaling"] == {"minSize": 0, "maxSize": 200} | gpus


def test_two_values_of_one_name() -> None:
    name = group_name("Standard_D4s_v3")
    derivation = derived(node("a", "Standard_D4s_v3"), node("b", name))
    problem = only_problem(derivation, groups=1)
    assert derivation.groups[0].value == "Standard_D4s_v3"
    assert problem.reason == "NameCollision"
    assert f"'Standard_D4s_v3' and '{name}' both give the group name {name}" in problem.message


@pytest.mark.parametrize(
    ("given_templates", "real"),
    [(None, None), (None, [live()]), (templates(node()), None)],
    ids=["neither", "no templates", "no live nodes"],
)
def test_half_of_what_is_read_makes_no_group(
    given_templates: ConfigMapTemplates | None, real: list[LiveNode] | None
) -> None:
    both = derive(config(), owner="o", templates=given_templates, live=real)
    assert both == Derivation((), ())


class TestCounts:
    def test_bad_counts_leave_their_group_out(self) -> None:
        problem = only_problem(derived(node(annotations={MIN: "few"}), node("b", "fine")), groups=1)
        assert problem.reason == "InvalidCount"
        assert problem.message.startswith(f"Node a: annotation {MIN}: 'few' is not a number")

    def test_those_of_the_newest_usable_live_node(self) -> None:
        real = [
            live("old", created=1.0, annotations={MAX: "1"}),
            live("new", created=2.0, annotations={MAX: "2"}),
            live("newest", created=3.0, ready=False, annotations={MAX: "3"}),
        ]
        (group,) = derived(real=real, using=config(ReadNodesFrom.CLUSTER)).groups
        assert group.manifest["spec"]["autoscaling"]["maxSize"] == 2

    def test_the_configmap_wins_over_live_nodes(self) -> None:
        real = [live(annotations={MAX: "5", MIN: "1"})]
        (group,) = derived(node(annotations={MAX: "9"}), real=real).groups
        assert group.manifest["spec"]["autoscaling"] == {"minSize": 1, "maxSize": 9}


class TestSeveralTemplates:
    def test_the_first_by_name_is_taken(self) -> None:
        (group,) = derived(node("b", annotations={MAX: "9"}), node("a")).groups
        assert group.manifest["spec"]["template"]["from"]["configMap"]["node"] == "a"
        assert group.manifest["spec"]["autoscaling"]["maxSize"] == 200

    def test_alike_but_for_what_belongs_to_a_machine(self) -> None:
        host: Any = {"kubernetes.io/hostname": "a"}
        other_host: Any = {"kubernetes.io/hostname": "b"}
        one, other = node("a", **host), node("b", annotations={NAME: "batch"}, **other_host)
        assert derived(one, other).problems == ()

    def test_differences_are_reported_and_stop_nothing(self) -> None:
        other = node("b", capacity={"cpu": "9", "memory": "32Gi"}, tier="x")
        third = node("c", annotations={MAX: "9"})
        problem = only_problem(derived(node("a"), other, third), groups=1)
        assert (problem.reason, problem.blocks) == ("TemplatesDiffer", False)
        assert "Nodes a, b, c are of one group and differ in" in problem.message
        for path in ("metadata.labels.tier", "status.capacity.cpu", f"metadata.annotations.{MAX}"):
            assert path in problem.message


class TestWithoutTheKey:
    def test_templates_are_named_with_the_keys_that_there_are(self) -> None:
        labels: Any = {"node.kubernetes.io/instance-type": "m5", "kubernetes.io/hostname": "h"}
        derivation = derived(node("a"), node("b", None, zone="x", **labels), node("c", ""))
        problem = only_problem(derivation, groups=1)
        assert problem.reason == "KeyNotFound"
        assert problem.message == (
            "ConfigMap t, key templates: Node b, c have no label pool; there are"
            " node.kubernetes.io/instance-type, zone; add it, or choose another"
            " nodegroups.fromNodeLabelKey"
        )

    def test_no_template_has_it(self) -> None:
        problem = only_problem(derived(node("a", None), node("b", None)))
        assert "none of its 2 Nodes has the label pool; they have no labels" in problem.message

    def test_no_live_node_has_it(self) -> None:
        real = [live(pool=None, labels={"tier": "x"})]
        problem = only_problem(derived(real=real, using=config(ReadNodesFrom.CLUSTER)))
        assert problem.reason == "KeyNotFound"
        assert "none of the 1 real nodes has the label pool; there are tier" in problem.message

    def test_live_nodes_may_lack_what_templates_have(self) -> None:
        assert derived(node(), real=[live(pool=None)]).problems == ()

    def test_few_keys_are_named(self) -> None:
        many: Any = {f"k{i:02}": "x" for i in range(40)}
        message = only_problem(derived(node("a", None, **many))).message
        assert "k14" in message
        assert "k15" not in message


class TestWhatIsLeftOut:
    @pytest.mark.parametrize(
        ("bad", "reason", "sentence"),
        [
            (node("x", "bad", capacity=None), "NoCapacity", "Node x (group bad): status.capacity"),
            (node("x", "bad", capacity={"cpu": 1}), "NoCapacity", "lacks cpu or memory"),
            (
                node("x", "bad", capacity={"cpu": "8 cores", "memory": 1}),
                "InvalidTemplate",
                "Node x.status.capacity.cpu: '8 cores' is not a quantity",
            ),
            (node("x", 5), "InvalidTemplate", "Node x.metadata.labels.pool: 5 is not a string"),
            (node("x", "a b"), "InvalidValue", "Node x: label pool: 'a b' is not the value of a"),
            (node("x", "a" * 64), "InvalidValue", "is not the value of a label"),
            (
                node("x", "bad", annotations={NAME: "y" * 4_097}),
                "InvalidValue",
                "has 4097 characters; at most 4096 can be kept",
            ),
            (
                {"apiVersion": "v1", "kind": "Node", "metadata": []},
                "InvalidTemplate",
                "metadata: [] must be an object",
            ),
            (node("x" * 254, "bad"), "InvalidTemplate", "is longer than 253 characters"),
        ],
    )
    def test_a_bad_template(self, bad: dict[str, Any], reason: str, sentence: str) -> None:
        derivation = derived(node("a", "fine"), bad)
        problem = only_problem(derivation, groups=1)
        assert problem.reason == reason
        assert sentence in problem.message

    def test_one_bad_template_of_two(self) -> None:
        bad = node("b", annotations={"x": 5})
        assert only_problem(derived(node("a"), bad)).reason == "InvalidTemplate"

    def test_capacity_can_come_from_a_live_node(self) -> None:
        derivation = derived(node(capacity=None), real=[live()])
        assert [g.source for g in derivation.groups] == ["both"]
        assert derivation.problems == ()

    def test_capacity_can_come_from_allocatable(self) -> None:
        template = node(capacity=None) | {"status": {"allocatable": CAPACITY}}
        assert len(derived(template).groups) == 1

    @pytest.mark.parametrize("lack", ["ready", "schedulable", "has_capacity"])
    def test_live_nodes_that_are_not_usable(self, lack: str) -> None:
        state: Any = {lack: False}
        real = [live(**state), live("other", "fine")]
        problem = only_problem(derived(real=real, using=config(ReadNodesFrom.CLUSTER)), groups=1)
        assert (problem.reason, problem.blocks) == ("NoUsableNode", False)
        assert "label pool=batch: of its nodes (1) none is Ready" in problem.message

    def test_a_live_node_that_rests_changes_no_template(self) -> None:
        usable = derived(node(), real=[live()])
        resting = derived(node(), real=[live(ready=False)])
        assert resting.groups == usable.groups


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
texts = st.dictionaries(
    st.sampled_from([KEY, NAME, MIN, MAX, DESIRED, "zone"]), st.text(max_size=6) | anything
)
nodes = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("Node")},
    optional={
        "metadata": anything
        | st.fixed_dictionaries(
            {"name": st.text(max_size=4)}, optional={"labels": texts, "annotations": texts}
        ),
        "spec": anything,
        "status": anything | st.just({"capacity": CAPACITY}),
    },
)
plain = st.dictionaries(st.sampled_from([KEY, MIN, "zone"]), st.text(max_size=6))
real_nodes = st.builds(
    live,
    name=st.text(max_size=4),
    pool=st.just(None),
    ready=st.booleans(),
    labels=st.dictionaries(st.sampled_from([KEY, "zone"]), st.sampled_from(["a", "B_c", "", "x"])),
    annotations=plain,
)


@given(
    static=st.lists(nodes, max_size=4),
    real=st.lists(real_nodes, max_size=4),
    source=st.sampled_from(ReadNodesFrom),
    kind=st.sampled_from(KeyKind),
)
@settings(deadline=None, max_examples=200)
def test_whatever_the_nodes_are_groups_can_be_applied(
    static: list[dict[str, Any]], real: list[LiveNode], source: ReadNodesFrom, kind: KeyKind
) -> None:
    derivation = derived(*static, real=real, using=config(source, key_kind=kind))
    for problem in derivation.problems:
        assert "\n" not in problem.message
    assert len({group.name for group in derivation.groups}) == len(derivation.groups)
    for group in derivation.groups:
        assert check_group(group.manifest) == []
        KwokNodeGroupSpec.model_validate(group.manifest["spec"])
        assert "targetSize" not in group.manifest["spec"]
