"""Reading a provider config: every key and spelling, and everything that is wrong at once."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import ManifestError
from kwok_operator.sources.api.providerconfig import KeyKind, ProviderConfig, ReadNodesFrom
from kwok_operator.sources.api.source import RemoteCluster
from kwok_operator.sources.providerconfig import (
    KWOK_NOTE,
    ProviderConfigError,
    read_config,
    templates_key,
)

WHERE = "ConfigMap ns/kwok-provider-config, key config"
LABEL = {"fromNodeLabelKey": "pool"}


def config_text(**changes: Any) -> str:
    """A good config with changes; None takes a key away."""
    config: dict[str, Any] = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": LABEL,
        "configmap": {"name": "templates"},
    }
    config.update(changes)
    return yaml.safe_dump({k: v for k, v in config.items() if v is not None})


def of_cluster(cluster: Any) -> str:
    return config_text(readNodesFrom="cluster", cluster=cluster)


def read(text: str) -> ProviderConfig:
    return read_config(text, where=WHERE)


def problems(text: str) -> list[tuple[str, str]]:
    """Reason and sentence of each."""
    with pytest.raises(ProviderConfigError) as caught:
        read(text)
    error = caught.value
    assert isinstance(error, ManifestError)
    assert str(error).startswith(WHERE)
    assert len(error.fields) == len(error.problems) > 0
    assert all(problem.blocks for problem in error.problems)
    return [(problem.reason, problem.message) for problem in error.problems]


def test_the_shortest_config() -> None:
    config = read(config_text())
    assert config == ProviderConfig(
        read_nodes_from=ReadNodesFrom.CONFIGMAP,
        key_kind=KeyKind.LABEL,
        group_key="pool",
        configmap_name="templates",
    )


def test_every_key_is_read() -> None:
    text = """
    # A comment.
    apiVersion: "v1alpha1"
    readNodesFrom: 'both'
    nodegroups:
      fromNodeAnnotationKey: "example.com/pool"
    nodes:
      skipTaint: true
      keepControlPlane: true
      gpuConfig:
        gpuLabelKey: "k8s.amazonaws.com/accelerator"
        availableGPUTypes:
          "nvidia-tesla-k80": {}
          "nvidia-tesla-p100": {}
    configmap: {name: templates, key: nodes.yaml}
    cluster: {secretName: prod, key: admin.conf, copySizes: true}
    kwok: {install: true, release: v0.7.0}
    prune: true
    """
    assert read(text) == ProviderConfig(
        read_nodes_from=ReadNodesFrom.BOTH,
        key_kind=KeyKind.ANNOTATION,
        group_key="example.com/pool",
        skip_taint=True,
        keep_control_plane=True,
        gpu_label_key="k8s.amazonaws.com/accelerator",
        gpu_types=("nvidia-tesla-k80", "nvidia-tesla-p100"),
        configmap_name="templates",
        configmap_key="nodes.yaml",
        cluster=RemoteCluster(secret_name="prod", key="admin.conf"),
        copy_sizes=True,
        prune=True,
        notes=(KWOK_NOTE,),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": {}, "kwok": {}},
        {"nodes": {"skipTaint": None, "gpuConfig": None}, "kwok": None},
        {"nodes": {"gpuConfig": {}}},
        {"prune": False},
    ],
    ids=["empty", "null", "empty gpuConfig", "default"],
)
def test_sections_may_be_empty(changes: dict[str, Any]) -> None:
    config = read(config_text(**changes))
    assert (config.skip_taint, config.gpu_label_key, config.prune) == (False, None, False)
    assert config.keep_control_plane is None


def test_null_sections() -> None:
    assert read(config_text() + "nodes:\nkwok: ~\nprune:\n") == read(config_text())


def test_the_cluster_needs_no_configmap() -> None:
    config = read(config_text(readNodesFrom="cluster", configmap=None))
    assert config.read_nodes_from is ReadNodesFrom.CLUSTER
    assert (config.read_nodes_from.static, config.read_nodes_from.live) == (False, True)


@pytest.mark.parametrize(
    "nodegroups",
    [
        {"fromNodeAnnotation": "a/b"},
        {"fromNodeAnnotationKey": "a/b"},
        {"fromNodeAnnotation": "a/b", "fromNodeAnnotationKey": "a/b", "fromNodeLabelKey": None},
    ],
    ids=["old", "new", "both alike"],
)
def test_both_spellings_of_the_annotation_key(nodegroups: dict[str, Any]) -> None:
    config = read(config_text(nodegroups=nodegroups))
    assert (config.key_kind, config.group_key) == (KeyKind.ANNOTATION, "a/b")


GPU: dict[str, Any] = {"gpuLabelKey": "gpu", "availableGPUTypes": {"k80": {}, "p100": None}}


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": {"gpuConfig": GPU}},
        {"gpuConfig": GPU},
        GPU,
        {"nodes": {"gpuConfig": {"gpuLabelKey": "gpu"}}, "availableGPUTypes": ["k80", "p100"]},
        {"nodes": {"gpuConfig": GPU}, "gpuConfig": GPU},
    ],
)
def test_gpu_config_wherever_the_samples_have_it(changes: dict[str, Any]) -> None:
    config = read(config_text(**changes))
    assert (config.gpu_label_key, config.gpu_types) == ("gpu", ("k80", "p100"))
    assert config.notes == ()


def test_a_gpu_type_that_no_node_can_have_is_reported_and_left_out() -> None:
    gpu = GPU | {"availableGPUTypes": {"k80": {}, "a b": {}, "": {}, "p100\n": {}}}
    config = read(config_text(nodes={"gpuConfig": gpu}))
    assert config.gpu_types == ("k80",)
    where = "nodes.gpuConfig.availableGPUTypes"
    said = "'', 'a b', 'p100\\n' can't be the value of a label: no effect"
    assert config.notes == (f"{where}: {said}",)


@pytest.mark.parametrize(
    ("text", "reason", "sentence"),
    [
        ("", "InvalidYAML", "is empty; it begins with apiVersion: v1alpha1"),
        ("[]", "InvalidYAML", "is no object of keys and values"),
        ("{}\n---\n{}", "InvalidYAML", "has 2 documents, and must be one"),
        ("a: [", "InvalidYAML", "line 2, column 1: is not YAML"),
        ("a: 1\na: 2", "InvalidYAML", "line 2, column 1: the key 'a' stands here twice"),
        (config_text(apiVersion=None), "MissingKey", "apiVersion: is missing; write apiVersion"),
        (config_text(apiVersion="v1"), "InvalidValue", "apiVersion: 'v1' is not known; write"),
        (config_text(readNodesFrom=None), "MissingKey", "readNodesFrom: is missing; it is one of"),
        (config_text(readNodesFrom="configMap"), "InvalidValue", "did you mean configmap?"),
        (config_text(readNodesFrom=["cluster"]), "InvalidValue", "readNodesFrom: ['cluster'] is"),
        (
            of_cluster("prod"),
            "InvalidValue",
            "cluster: 'prod' must be an object of keys and values",
        ),
        (of_cluster({}), "MissingKey", "cluster.secretName: is missing; it names the Secret"),
        (of_cluster({"secretName": "a_b"}), "InvalidValue", "cluster.secretName: 'a_b' is not the"),
        (of_cluster({"secretName": 1}), "InvalidValue", "cluster.secretName: 1 must be text"),
        (of_cluster({"secretName": "a", "key": "/"}), "InvalidValue", "cluster.key: '/' is not a"),
        (
            config_text(nodes={"keepControlPlane": "yes"}),
            "InvalidValue",
            "nodes.keepControlPlane: 'yes' must be true or false",
        ),
        (
            of_cluster({"secretName": "a", "copySizes": 1}),
            "InvalidValue",
            "cluster.copySizes: 1 must be true or false",
        ),
        (
            config_text(cluster={"secretName": "a"}),
            "InvalidValue",
            "cluster: its nodes are not read with readNodesFrom: configmap; write readNodesFrom:"
            " cluster or both, or remove it",
        ),
        (config_text(nodegroups=None), "MissingKey", "nodegroups: has no key to group nodes by"),
        (config_text(nodegroups={}), "MissingKey", "nodegroups: has no key to group nodes by"),
        (
            config_text(nodegroups=LABEL | {"fromNodeAnnotation": "b"}),
            "BothKeys",
            "has fromNodeLabelKey and fromNodeAnnotation, and nodes are grouped by one of them",
        ),
        (
            config_text(nodegroups={"fromNodeAnnotation": "a", "fromNodeAnnotationKey": "b"}),
            "BothKeys",
            "'a' and fromNodeAnnotationKey 'b' are two spellings of one key, and differ",
        ),
        (
            config_text(nodegroups={"fromNodeLabelKey": "kubernetes.io/hostname"}),
            "HostnameKey",
            "each node would be a group of its own and cluster-autoscaler would scale them without",
        ),
        (
            config_text(nodegroups={"fromNodeLabelKey": "a b"}),
            "InvalidValue",
            "nodegroups.fromNodeLabelKey: 'a b' is not the key of a label",
        ),
        (config_text(nodegroups={"fromNodeLabelKey": ""}), "InvalidValue", "is empty; remove it"),
        (config_text(nodegroups={"fromNodeLabelKey": 5}), "InvalidValue", "5 must be text"),
        (config_text(nodegroups="pool"), "InvalidValue", "'pool' must be an object"),
        (config_text(configmap=None), "MissingKey", "configmap.name: is missing; with readNodes"),
        (config_text(configmap={"key": "a"}), "MissingKey", "configmap.name: is missing"),
        (config_text(readNodesFrom="both", configmap={}), "MissingKey", "with readNodesFrom: both"),
        (config_text(configmap={"name": "A_b"}), "InvalidValue", "'A_b' is not the name of a Conf"),
        (
            config_text(configmap={"name": "a", "key": "b/c"}),
            "InvalidValue",
            "configmap.key: 'b/c' is not a key of a ConfigMap",
        ),
        (config_text(nodes={"skipTaint": "true"}), "InvalidValue", "nodes.skipTaint: 'true' must"),
        (config_text(prune="no"), "InvalidValue", "prune: 'no' must be true or false"),
        (config_text(kwok=[]), "InvalidValue", "kwok: [] must be an object of keys and values"),
        (
            config_text(nodes={"gpuConfig": {"gpuLabelKey": "gpu"}}),
            "MissingKey",
            "nodes.gpuConfig.availableGPUTypes: is missing; gpuConfig has gpuLabelKey and avail",
        ),
        (
            config_text(nodes={"gpuConfig": GPU | {"availableGPUTypes": "k80"}}),
            "InvalidValue",
            "nodes.gpuConfig.availableGPUTypes: 'k80' must be an object",
        ),
        (
            config_text(nodes={"gpuConfig": GPU | {"availableGPUTypes": [*map(str, range(101))]}}),
            "InvalidValue",
            "nodes.gpuConfig.availableGPUTypes: has 101 types; at most 100 are known",
        ),
        (
            config_text(nodes={"gpuConfig": GPU | {"gpuLabelKey": "a b"}}),
            "InvalidValue",
            "nodes.gpuConfig.gpuLabelKey: 'a b' is not the key of a label",
        ),
        (
            config_text(nodes={"gpuConfig": GPU}, gpuLabelKey="other"),
            "BothKeys",
            "gpuLabelKey: is given twice, and differs; remove one",
        ),
    ],
)
def test_each_mistake_is_reported_once(text: str, reason: str, sentence: str) -> None:
    ((found, message),) = problems(text)
    assert found == reason
    assert sentence in message


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        (config_text() + "readNodeFrom: a\n", "readNodeFrom", "did you mean readNodesFrom?"),
        (
            config_text(nodegroups={"fromNodeLabel": "a"}),
            "nodegroups.fromNodeLabel",
            "did you mean fromNodeLabelKey?",
        ),
        (config_text() + "configMap: {name: a}\n", "configMap", "did you mean configmap?"),
        (config_text() + "skipTaint: true\n", "skipTaint", "write nodes.skipTaint"),
        (config_text() + "fromNodeLabelKey: a\n", "fromNodeLabelKey", "write nodegroups.fromNode"),
        (config_text() + "secretName: a\n", "secretName", "write cluster.secretName"),
        (config_text() + "key: a\n", "key", "write configmap.key"),
        (config_text(nodes={"prune": 1}), "nodes.prune", "prune stands at the top level"),
        (
            config_text(nodes={"gpuLabelKey": 1}),
            "nodes.gpuLabelKey",
            "write nodes.gpuConfig.gpuLab",
        ),
        (
            config_text(nodes={"gpuConfig": {"x": 1}}),
            "nodes.gpuConfig.x",
            "known here: gpuLabelKey, ",
        ),
    ],
)
def test_the_right_key_is_named(text: str, key: str, remedy: str) -> None:
    start = f"{key}: there is no such key; {remedy}"
    assert any(reason == "UnknownKey" and said.startswith(start) for reason, said in problems(text))


def test_a_misspelt_key_is_not_missing_as_well() -> None:
    text = "apiVersion: v1alpha1\nreadnodesfrom: cluster\nnodeGroups: {fromNodeLabelKey: a}\n"
    assert [reason for reason, _ in problems(text)] == ["UnknownKey", "UnknownKey"]


def test_all_problems_come_at_once() -> None:
    text = "apiVersion: v2\nreadNodesFrom: label\nprune: 1\nx: y\n"
    reasons = sorted(reason for reason, _ in problems(text))
    assert reasons == ["InvalidValue", "InvalidValue", "InvalidValue", "MissingKey", "UnknownKey"]


def test_sentences_stay_short() -> None:
    text = config_text(apiVersion="x" * 5_000, **{"y" * 5_000: 1})
    assert all(len(sentence) <= 800 for _, sentence in problems(text))


@pytest.mark.parametrize(
    ("key", "present", "read_key"),
    [
        (None, {"config"}, "config"),
        (None, {"templates"}, "templates"),
        (None, {"config", "templates"}, "config"),
        ("config", {"config", "templates"}, "config"),
        ("a.yaml", {"a.yaml", "templates"}, "a.yaml"),
        ("a.yaml", {"templates"}, "templates"),
    ],
)
def test_the_key_of_the_templates(key: str | None, present: set[str], read_key: str) -> None:
    config = read(config_text(configmap={"name": "t"} | ({"key": key} if key else {})))
    assert templates_key(config, present) == read_key


def test_a_configmap_without_the_key() -> None:
    config = read(config_text())
    with pytest.raises(ManifestError, match="has no key config or templates, it has a, b; put"):
        templates_key(config, {"b", "a"})
    with pytest.raises(ManifestError, match="has no key config or templates, it is empty"):
        templates_key(config, ())


words = st.sampled_from(
    "apiVersion v1alpha1 readNodesFrom cluster both nodegroups fromNodeLabelKey pool nodes"
    " skipTaint keepControlPlane gpuConfig gpuLabelKey availableGPUTypes configmap name key kwok"
    " prune".split()
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(words | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=15,
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "apiVersion": st.just("v1alpha1") | values,
        "readNodesFrom": st.sampled_from(["cluster", "configmap", "both"]) | values,
        "nodegroups": st.just(LABEL) | values,
        "configmap": st.just({"name": "t"}) | values,
        "nodes": values,
        "kwok": values,
        "gpuConfig": values,
        "prune": values,
    },
)


@given(text=configs.map(yaml.safe_dump) | values.map(yaml.safe_dump) | st.text())
@settings(deadline=None, max_examples=200)
def test_any_text_is_a_config_or_has_problems(text: str) -> None:
    try:
        config = read(text)
    except ProviderConfigError as error:
        assert error.problems
        assert all(p.message and "\n" not in p.message for p in error.problems)
        return
    assert config.group_key
    assert config.configmap_name or not config.read_nodes_from.static
