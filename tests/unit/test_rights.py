"""The rights in deploy/, as they are written."""

from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import yaml

from kwok_operator.clusterapi.keys import DEFAULT_GROUP
from kwok_operator.operator import preflight
from kwok_operator.operator.preflight import (
    NEEDED,
    NEEDED_FOR_CSI_NODES,
    NEEDED_FOR_ELECTION,
    needed_for_emulation,
)
from tests.e2e.grants import CLUSTERAPI, COMPANIONS, DEPLOY, FILES, PROFILES, granted
from tests.e2e.rights import NAMESPACE, OPERATOR, SHIM

GRANTS = granted() + granted({OPERATOR: (*CLUSTERAPI, COMPANIONS, PROFILES)})
ALL_FILES = [
    *(file for files in FILES.values() for file in files),
    *CLUSTERAPI,
    COMPANIONS,
    PROFILES,
]
EMULATE, MIRROR = "kwok-operator-clusterapi-emulate", "kwok-operator-clusterapi-mirror"
OBJECTS = [item for file in ALL_FILES for item in yaml.safe_load_all((DEPLOY / file).read_text())]


def test_what_is_checked_at_the_start_is_what_the_base_grants() -> None:
    base = {g for g in GRANTS if g.account == OPERATOR and g.role == OPERATOR}
    rights = {(g.group, g.resource, g.verb) for g in base if g.resource != "events"}
    assert rights == {*NEEDED, *NEEDED_FOR_ELECTION}
    events = {(g.namespace, g.verb) for g in base if g.resource == "events"}
    assert events == {(place, verb) for place in ("default", NAMESPACE) for verb in EVENT_VERBS}


EVENT_VERBS = ("create", "patch")


async def test_the_lease_is_checked_by_name_but_its_creation_which_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = AsyncMock(return_value=[])
    monkeypatch.setattr(preflight, "missing_rights", checked)
    await preflight.check_permissions(AsyncMock(), namespace=NAMESPACE, lease=("ops", "leader"))
    rights = [right for right in checked.call_args.args[1] if right.namespace == "ops"]
    assert {r.verb: r.name for r in rights} == {"get": "leader", "create": "", "update": "leader"}


def test_nothing_is_granted_by_wildcard() -> None:
    assert [g for g in GRANTS if "*" in (g.group, g.resource, g.verb)] == []


def test_no_right_becomes_another() -> None:
    powers = {"escalate", "bind", "impersonate", "approve", "sign", "deletecollection"}
    doors = {"pods/exec", "pods/attach", "nodes/proxy", "serviceaccounts/token", "rolebindings"}
    assert [g for g in GRANTS if g.verb in powers or g.resource in doors] == []


def test_what_only_an_option_needs_is_a_component() -> None:
    apart = (OPERATOR, SHIM, EMULATE, MIRROR)
    optional = {(g.role, g.resource, g.namespace) for g in GRANTS if g.role not in apart}
    assert optional == {
        ("kwok-operator-companions", "csinodes", ""),
        ("kwok-operator-companions", "resourceslices", ""),
        ("kwok-operator-delete-pods", "pods", ""),
        ("kwok-operator-hold-stage", "stages", ""),
        ("kwok-operator-pod-profiles", "clusterresourceusages", ""),
        ("kwok-operator-pod-profiles", "namespaces", ""),
        ("kwok-operator-pod-profiles", "stages", ""),
        ("kwok-operator-remote-templates", "secrets", NAMESPACE),
    }


def test_emulation_may_do_what_is_checked_and_mirroring_may_read() -> None:
    emulate = {(g.group, g.resource, g.verb) for g in GRANTS if g.role == EMULATE}
    assert emulate == {*needed_for_emulation(DEFAULT_GROUP), *NEEDED_FOR_CSI_NODES}
    mirror = {g for g in GRANTS if g.role == MIRROR}
    assert {g.verb for g in mirror} == {"get", "list", "watch"}
    scalables = {"machinedeployments", "machinesets", "machinepools"}
    assert {g.resource for g in mirror if g.group == DEFAULT_GROUP} == scalables
    templates = {(g.group, g.resource) for g in mirror if g.group != DEFAULT_GROUP}
    for group, resource in templates:
        assert (group, resource[-16:]) == (f"infrastructure.{DEFAULT_GROUP}", "machinetemplates")


def test_secrets_are_read_by_name_in_the_own_namespace() -> None:
    found = {(g.namespace, g.verb) for g in GRANTS if g.resource == "secrets"}
    assert found == {(NAMESPACE, "get")}


def test_the_shim_writes_groups_and_no_nodes() -> None:
    writes = {
        (g.resource, g.verb)
        for g in GRANTS
        if g.account == SHIM and g.verb not in ("get", "list", "watch")
    }
    assert writes == {("kwoknodegroups", "patch")}


@pytest.mark.parametrize("file", ALL_FILES)
def test_what_is_bound_is_ours(file: str) -> None:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / file).read_text()))
    roles = {
        (o["kind"], o["metadata"]["name"], o["metadata"].get("namespace"))
        for o in objects
        if o["kind"].endswith("Role")
    }
    bindings = [o for o in objects if o["kind"].endswith("RoleBinding")]
    assert len(bindings) == len(roles)
    for binding in bindings:
        role = binding["roleRef"]
        assert (role["kind"], role["name"], binding["metadata"].get("namespace")) in roles
        (subject,) = binding["subjects"]
        assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
        assert subject["name"] in (OPERATOR, SHIM)


def test_files_with_rights_are_all_known() -> None:
    """But for cluster-autoscaler's own, and those of what people run: import, record and replay."""
    found = {
        str(path.relative_to(DEPLOY))
        for path in DEPLOY.rglob("*.yaml")
        if path.parent.name not in ("import", "record", "replay")
        and ("kind: ClusterRole\n" in _text(path) or "kind: Role\n" in _text(path))
    }
    assert found - {"components/cluster-autoscaler/rbac.yaml"} == set(ALL_FILES)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
