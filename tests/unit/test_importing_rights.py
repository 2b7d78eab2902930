"""The rights that deploy/import gives are those that import uses: to get and list what it reads."""

from pathlib import Path
from typing import Any

import yaml

from kwok_operator.constants import NODES_PATH
from kwok_operator.importing import autoscalers
from kwok_operator.importing.kinds import KINDS

FOLDER = Path(__file__).parents[2] / "deploy" / "import"


def rules(file: str, kind: str) -> list[dict[str, Any]]:
    objects = yaml.safe_load_all((FOLDER / file).read_text())
    return [rule for each in objects if each["kind"] == kind for rule in each["rules"]]


def test_what_is_read_is_granted_and_nothing_else() -> None:
    granted = {
        (group, resource)
        for rule in rules("rbac.yaml", "ClusterRole")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    paths = [NODES_PATH, *(each.path for each in KINDS.values())]
    read = {(*path.split("/")[2:-2], path.rpartition("/")[2]) for path in paths}
    core = {("", *place) if len(place) == 1 else place for place in read}
    assert granted == core | {
        *((autoscalers.CAPI, resource) for resource in autoscalers.SCALABLES),
        (autoscalers.KARPENTER, "nodepools"),
    }
    assert {tuple(rule["verbs"]) for rule in rules("rbac.yaml", "ClusterRole")} == {("get", "list")}


def test_config_maps_are_read_by_name() -> None:
    (rule,) = rules("autoscaler.yaml", "Role")
    names = {autoscalers.STATUS, autoscalers.PROVIDER_CONFIG, autoscalers.TEMPLATES}
    assert (rule["resources"], rule["verbs"]) == (["configmaps"], ["get"])
    assert set(rule["resourceNames"]) == names
