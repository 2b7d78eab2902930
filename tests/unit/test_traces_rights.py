"""The rights that deploy/record and deploy/replay give are those that are used, and no others."""

from pathlib import Path

import yaml

from kwok_operator.importing.kinds import TRACED

DEPLOY = Path(__file__).parents[2] / "deploy"


def granted(command: str) -> dict[tuple[str, str], set[str]]:
    objects = yaml.safe_load_all((DEPLOY / command / "rbac.yaml").read_text())
    rules = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def of_kinds(verbs: set[str]) -> dict[tuple[str, str], set[str]]:
    return {
        (kind.api_version.rpartition("/")[0], kind.path.rpartition("/")[2]): verbs
        for kind in TRACED.values()
    }


def test_a_recorder_reads() -> None:
    more = {("", "nodes"): {"get", "list"}, ("", "namespaces"): {"get"}}
    assert granted("record") == of_kinds({"get", "list", "watch"}) | more


def test_a_replay_writes_what_traces_have() -> None:
    more = {
        ("", "pods/status"): {"patch"},
        ("", "serviceaccounts"): {"create"},
        ("", "namespaces"): {"get", "list", "create", "delete"},
    }
    assert granted("replay") == of_kinds({"list", "create", "patch", "delete"}) | more
