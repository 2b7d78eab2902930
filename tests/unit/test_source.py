"""Where a template may come from, as users write it."""

from typing import Any

import pytest

from kwok_operator.nodegroups.api.template import Template
from kwok_operator.sources.api.source import NodeSelector, RemoteCluster, TemplateSource


def read(**fields: Any) -> TemplateSource:
    source = Template.model_validate({"from": fields}).source
    assert source is not None
    return source


@pytest.mark.parametrize(
    "nodes",
    [
        {"name": "web-1", "cluster": {"secretName": "prod", "key": "value"}},
        {"annotation": {"key": "team", "value": "ads"}, "companions": True},
        {
            "selector": {
                "matchLabels": {"pool": "batch"},
                "matchExpressions": [{"key": "gpu", "operator": "NotIn", "values": ["a100", ""]}],
            }
        },
    ],
    ids="name annotation selector".split(),
)
def test_it_is_written_as_it_was_read(nodes: dict[str, Any]) -> None:
    configmap = {"name": "templates", "key": "nodes.yaml", "node": "m5.large"}
    written = {"configMap": configmap, "nodes": {"companions": False, **nodes}}
    assert read(**written).dump() == written


def test_an_empty_selector_is_one() -> None:
    found = read(nodes={"selector": {}}).nodes
    assert found is not None and found.selector == NodeSelector()


def test_no_source_is_none() -> None:
    assert Template.model_validate({}).source is None
    assert Template.model_validate({"from": None}).source is None


def test_the_same_secret_is_the_same_cluster() -> None:
    links = {RemoteCluster(secret_name="prod"): "a"}
    assert links[RemoteCluster.model_validate({"secretName": "prod"})] == "a"
    assert RemoteCluster(secret_name="prod", key="value") not in links
