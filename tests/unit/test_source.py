"""Where a template may come from, as users write it.

- every form is read, with defaults; names are checked as those of objects, keys as those of data
- models that read what is stored refuse nothing that breaks a rule of the schema
- a cluster and a source are values: the same Secret is the same cluster
"""

from typing import Any

from kwok_operator.api.selectors import SelectorOperator, SelectorRequirement
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.sources.api.source import (
    ConfigMapSource,
    NodeSelector,
    RemoteCluster,
    TemplateSource,
)

Json = dict[str, Any]


def read(**fields: Any) -> TemplateSource:
    source = Template.model_validate({"from": fields}).source
    assert source is not None
    return source


def test_a_configmap() -> None:
    source = read(configMap={"name": "templates", "key": "nodes.yaml", "node": "m5.large"})
    assert source.config_map == ConfigMapSource(name="templates", key="nodes.yaml", node="m5.large")
    assert source.nodes is None


def test_a_configmap_by_name_alone() -> None:
    found = read(configMap={"name": "templates"}).config_map
    assert found == ConfigMapSource(name="templates", key=None, node=None)


def test_nodes_by_name_in_another_cluster() -> None:
    found = read(nodes={"name": "web-1", "cluster": {"secretName": "prod", "key": "value"}}).nodes
    assert found is not None
    assert (found.name, found.selector, found.annotation) == ("web-1", None, None)
    assert found.cluster == RemoteCluster(secret_name="prod", key="value")


def test_nodes_by_selector() -> None:
    expression = {"key": "gpu", "operator": "NotIn", "values": ["a100", ""]}
    selector = {"matchLabels": {"pool": "batch"}, "matchExpressions": [expression]}
    found = read(nodes={"selector": selector}).nodes
    assert found is not None and found.cluster is None
    requirement = SelectorRequirement(
        key="gpu", operator=SelectorOperator.NOT_IN, values=("a100", "")
    )
    assert found.selector == NodeSelector(
        match_labels={"pool": "batch"}, match_expressions=(requirement,)
    )


def test_an_empty_selector_is_one() -> None:
    found = read(nodes={"selector": {}}).nodes
    assert found is not None and found.selector == NodeSelector()


def test_no_source_is_none() -> None:
    assert Template.model_validate({}).source is None
    assert Template.model_validate({"from": None}).source is None


def test_it_is_written_as_it_was_read() -> None:
    annotation, cluster = {"key": "team", "value": "ads"}, {"secretName": "prod"}
    written = {
        "configMap": {"name": "templates", "key": "nodes"},
        "nodes": {"annotation": annotation, "cluster": cluster, "companions": True},
    }
    assert read(**written).dump() == written


def test_the_same_secret_is_the_same_cluster() -> None:
    links = {RemoteCluster(secret_name="prod"): "a"}
    assert links[RemoteCluster.model_validate({"secretName": "prod"})] == "a"
    assert RemoteCluster(secret_name="prod", key="value") not in links
