"""What a rehearsal makes in a cluster of others is marked, and its pods stay on nodes of groups."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.constants import NODE_GROUP_LABEL, REHEARSAL_LABEL
from kwok_operator.rehearsal.scenario.borrowing import (
    is_marked,
    is_same_crd,
    labels_of_pods,
    marked,
    selects,
)
from kwok_operator.schema.definitions import definitions

CONTAINERS = {"containers": [{"name": "a"}]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "metadata labels spec template jobTemplate containers affinity nodeAffinity"
                " volumeClaimTemplates a".split()
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def required(spec: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    return found


@given(st.dictionaries(st.sampled_from(["kind", "metadata", "spec", "data"]), JSON))
def test_anything_can_be_marked(manifest: dict[str, Any]) -> None:
    before = copy.deepcopy(manifest)
    found = marked(manifest, "it")
    assert is_marked(found)
    assert manifest == before
    assert marked(found, "it")["metadata"] == found["metadata"]


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "template"),
        ("spec", "jobTemplate", "spec", "template"),
        ("spec", "tasks", 0, "template"),
        (),
    ],
    ids=str,
)
def test_pods_are_labelled_and_stay_on_groups(path: tuple[str | int, ...]) -> None:
    pod: Any = {"metadata": {"labels": {"app": "a"}}, "spec": copy.deepcopy(CONTAINERS)}
    manifest: Any = pod
    for key in reversed(path):
        manifest = [manifest] if key == 0 else {key: manifest}
    found: Any = marked(manifest, "it")
    for key in path:
        found = found[key]
    assert found["metadata"]["labels"] == {"app": "a", REHEARSAL_LABEL: "it"}
    assert found["spec"]["containers"] == CONTAINERS["containers"]
    assert required(found["spec"]) == [
        {"matchExpressions": [{"key": NODE_GROUP_LABEL, "operator": "Exists"}]}
    ]


def test_what_pods_ask_for_besides_holds_still() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}, {"matchFields": []}]
    affinity = {
        "podAffinity": {"a": 1},
        "nodeAffinity": {
            "preferred": 1,
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        },
    }
    spec = {**CONTAINERS, "affinity": affinity}
    found = marked({"kind": "Pod", "spec": spec}, "it")["spec"]
    assert found["affinity"]["podAffinity"] == {"a": 1}
    assert found["affinity"]["nodeAffinity"]["preferred"] == 1
    first, second = required(found)
    assert [each["key"] for each in first["matchExpressions"]] == ["zone", NODE_GROUP_LABEL]
    assert [each["key"] for each in second["matchExpressions"]] == [NODE_GROUP_LABEL]


def test_claims_and_jobs_of_an_object_are_labelled() -> None:
    claims = [{"metadata": {"name": "data"}}]
    found = marked({"spec": {"volumeClaimTemplates": claims, "jobTemplate": {}}}, "it")["spec"]
    assert found["volumeClaimTemplates"][0]["metadata"]["labels"] == {REHEARSAL_LABEL: "it"}
    assert found["jobTemplate"]["metadata"]["labels"] == {REHEARSAL_LABEL: "it"}


def test_nodes_of_a_pool_are_labelled() -> None:
    found = marked({"kind": "NodePool", "spec": {"template": {"spec": {}}}}, "it")
    assert found["spec"]["template"]["metadata"]["labels"] == {REHEARSAL_LABEL: "it"}


def test_what_stands_in_a_schema_is_no_object() -> None:
    schema = {"properties": {"jobTemplate": {"type": "object"}}}
    crd = {"kind": "CustomResourceDefinition", "spec": {"versions": [{"schema": schema}]}}
    assert marked(crd, "it")["spec"] == crd["spec"]


def test_a_crd_is_ours_if_it_was_only_filled_in() -> None:
    for ours in definitions():
        there = copy.deepcopy(ours)
        there["spec"]["conversion"] = {"strategy": "None"}
        there["spec"]["preserveUnknownFields"] = False
        there["status"] = {}
        assert is_same_crd(there, ours)
        there["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["more"] = {}
        assert not is_same_crd(there, ours)
        assert not is_same_crd({**ours, "spec": {**ours["spec"], "scope": "Other"}}, ours)
        assert not is_same_crd({}, ours)


@pytest.mark.parametrize(
    ("selector", "labels", "taken"),
    [
        ({"app": "web"}, {"app": "web", "x": "y"}, True),
        ({"app": "web", "tier": "a"}, {"app": "web"}, False),
        ({}, {"app": "web"}, False),
        (None, {"app": "web"}, False),
        ({"matchLabels": {"app": "web"}}, {"app": "web"}, True),
        ({"matchLabels": {"app": "web", "pod-template-hash": "x"}}, {"app": "web"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"app": "web"}, True),
    ],
)
def test_whose_pods_somebody_would_take(selector: Any, labels: dict[str, str], taken: bool) -> None:
    pod = {"metadata": {"labels": labels}, "spec": {"containers": []}}
    deployment = {"kind": "Deployment", "spec": {"selector": {}, "template": pod}}
    job = {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": pod}}}}
    for manifest in (pod, deployment, job):
        assert list(labels_of_pods(manifest)) == [labels]
    assert selects({"spec": {"selector": selector}}, labels) is taken
