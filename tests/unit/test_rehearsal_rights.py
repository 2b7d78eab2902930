"""The rights that a rehearsal's operator gets besides those of the base."""

from typing import Any

import pytest

from kwok_operator.rehearsal.installing import hold_stages, manifests, rights_of
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.rights import COMPONENTS, component_of, needed_rights

CONFIG = "{apiVersion: v1alpha1, cluster: {secretName: other}}"


def group(**spec: Any) -> dict[str, Any]:
    return {"kind": "KwokNodeGroup", "metadata": {"name": "a"}, "spec": spec}


def rights(*objects: dict[str, Any], **parts: Any) -> Any:
    given = {"name": "a", "expect": [{"figure": "cost", "atMost": 1}], **parts}
    return needed_rights(Scenario.model_validate(given), objects)


def from_nodes(**source: Any) -> dict[str, Any]:
    return group(template={"from": {"nodes": source}})


@pytest.mark.parametrize(
    ("manifest", "needed"),
    [
        (group(), ""),
        (group(scaleDown={"pods": "Leave"}), ""),
        (group(scaleDown={"pods": "Delete"}), "delete-pods"),
        (group(cloud={"startupDelay": "5s"}), "hold-stage"),
        (group(template={"companions": {"csiNode": {}}}), "companions"),
        (group(template={"shape": {"gpu": {"dra": True}}}), "companions"),
        (from_nodes(companions=True), "companions"),
        (from_nodes(cluster={"secretName": "other"}), "remote-templates"),
        ({"kind": "ConfigMap", "data": {"config": CONFIG}}, "remote-templates"),
        ({"kind": "ConfigMap", "data": {"config": "{"}}, ""),
        ({"kind": "KwokPodProfile", "spec": {}}, "pod-profiles"),
        ({"kind": "Deployment", "spec": {"scaleDown": {"pods": "Delete"}}}, ""),
        ({"kind": "KwokNodeGroup", "spec": None}, ""),
    ],
)
def test_an_object_needs_the_rights_of_its_options(manifest: dict[str, Any], needed: str) -> None:
    found = rights(group(), manifest)
    assert (found.needed, found.possible) == ({needed} - {""}, frozenset())


def test_a_patch_and_a_flag_need_them_too() -> None:
    patch = {"what": "kng/a", "patch": {"spec": {"scaleDown": {"pods": "Delete"}}}}
    assert rights(timeline=[{"at": 1, "patch": patch}]).needed == {"delete-pods"}
    for mode in ("emulate", "mirror"):
        cluster = {"flags": {"kwok-operator": {"clusterapi": mode}}}
        assert f"clusterapi-{mode}" in rights(cluster=cluster).needed


def test_an_outage_keeps_nodes_from_being_made_ready() -> None:
    assert rights(timeline=[{"at": 1, "outage": {"zone": "a"}}]).needed == {"hold-stage"}
    stages = {each["metadata"]["name"] for each in hold_stages()}
    assert "kwok-operator-hold" in stages


def test_what_a_program_applies_cannot_be_known() -> None:
    step = {"at": 1, "run": {"command": ["kubectl"]}}
    found = rights(group(scaleDown={"pods": "Delete"}), timeline=[step])
    assert found.needed == {"delete-pods"}
    assert {"companions", "pod-profiles"} <= found.possible
    assert rights(processes=[{"name": "p", "command": ["p"]}]).possible


def test_each_component_of_deploy_is_decided_upon() -> None:
    assert {component_of(each) for each in rights_of(*COMPONENTS)} == COMPONENTS
    base = manifests(())
    assert not [each for each in base if component_of(each) in COMPONENTS]
    assert len(manifests(COMPONENTS)) == len(base) + 2 * len(COMPONENTS)
