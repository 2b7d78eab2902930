"""Templates that can't be used, and templates that change."""

from typing import Any

import pytest

from tests.e2e.groups import (
    apply_group,
    condition,
    events_of,
    group_manifest,
    group_of,
    names_of,
    nodes_of,
    patch_group,
    scale,
    status_of,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Harness, Process

INVALID = "TemplateInvalid"


def node(**parts: Any) -> dict[str, Any]:
    return {"node": parts}


def capacity(**resources: Any) -> dict[str, Any]:
    return node(status={"capacity": resources})


def labels(value: Any) -> dict[str, Any]:
    return node(metadata={"labels": value})


def taints(value: Any) -> dict[str, Any]:
    return node(spec={"taints": value})


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    # By us, for what the API server would say without a name, or not at all.
    "bad-quantity": (capacity(cpu="10Gib"), ["spec.template.node.status.capacity.cpu", "10Gib"]),
    "negative": (capacity(memory=-5), ["spec.template.node.status.capacity.memory", "-5"]),
    "reserved": ({"shape": {"reserved": {"cpu": 64}}}, ["spec.template.shape.reserved.cpu", "64"]),
    "label-number": (labels({"version": 5}), ["metadata.labels.version", "5"]),
    "a-list": (node(kind="List", items=[]), ["spec.template.node.kind", "List"]),
    "too-large": (node(metadata={"annotations": {"large": "x" * 300_000}}), ["spec.template"]),
    # By the API server, which is asked beforehand.
    "fraction": (capacity(**{"nvidia.com/gpu": "0.5"}), ["status.capacity.nvidia.com/gpu"]),
    "misspelt-status": (node(status={"capacityy": {"cpu": 4}}), ["status.capacityy"]),
    "misspelt-metadata": (node(metadata={"lables": {"a": "b"}}), ["metadata.lables"]),
    "misspelt-taint": (taints([{"key": "a", "efect": "NoSchedule"}]), ["spec.taints[0].efect"]),
    "unknown-part": (node(speck={}), ["speck"]),
    "label-key": (labels({"bad key!": "a"}), ["metadata.labels", "bad key!"]),
    "label-too-long": (labels({"a": "x" * 64}), ["metadata.labels", "xxx"]),
    "label-unicode": (labels({"a": "größe"}), ["metadata.labels", "größe"]),
    "label-nul": (labels({"a": "x\0y"}), ["metadata.labels", r"x\x00y"]),
    "info-number": (node(status={"nodeInfo": {"osImage": 5}}), ["status.nodeInfo.osImage"]),
    "taint-effect": (
        taints([{"key": "a", "effect": "NoScheduel"}]),
        ["taints[0].effect", "NoScheduel"],
    ),
    "taint-key": (taints([{"key": "a b", "effect": "NoSchedule"}]), ["taints[0].key", "a b"]),
    "taint-without-effect": (taints([{"key": "a"}]), ["taints[0].effect"]),
}
ACCEPTED: dict[str, dict[str, Any]] = {
    "null": node(metadata=None, spec=None, status=None),
    "numbers": capacity(cpu=4, memory=1.5e9, pods=1e2),
    "any-text": node(metadata={"annotations": {"a": "x\0y ☃ \U0001f600 <<0>> \\u0000 größe"}}),
    "huge": capacity(cpu="9" * 40, memory="1e99"),
    "large": node(metadata={"annotations": {"large": "x" * 100_000}}),
    "what-goes": node(
        metadata={"name": ["a"], "namespace": 5, "uid": {}, "finalizers": "x", "labels": {}},
        spec={"podCIDR": 7, "providerID": 9, "unschedulable": "yes", "taints": None},
        status={"conditions": "x", "addresses": 5, "daemonEndpoints": [], "images": {}},
    ),
    "what-is-new": node(status={"features": {"supplementalGroupsPolicy": True}}),
    "more-than-there-is": node(status={"capacity": {"cpu": 1}, "allocatable": {"cpu": 2}}),
}


VERDICTS = {"TemplateResolved": "False", "Ready": "False", "Stalled": "True"}


def test_every_template_is_refused_with_its_field_or_used(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    """A group for each, all at once; those to be refused want no nodes."""
    refused = {f"{group_name}-{case}": REFUSED[case] for case in REFUSED}
    accepted = {f"{group_name}-{case}": ACCEPTED[case] for case in ACCEPTED}
    items = [
        *(
            group_manifest(n, targetSize=0, template=template)
            for n, (template, _) in refused.items()
        ),
        *(group_manifest(n, targetSize=1, template=template) for n, template in accepted.items()),
    ]
    # Server-side, as a copy of all that is applied does not fit into an annotation.
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items}, "--server-side")
    for name, (_, words) in refused.items():
        message = assert_refused(kubectl, name)
        assert [word for word in words if word not in message] == [], message
        assert len(message) < 2_500, "the value is cut where it is long"
        assert "resolvedTemplate" not in status_of(kubectl, name)
    for name, template in accepted.items():
        wait_ready(kubectl, name)
        (made,) = nodes_of(kubectl, name)
        annotations = (template["node"].get("metadata") or {}).get("annotations", {})
        assert annotations.items() <= made["metadata"]["annotations"].items(), name


def assert_refused(kubectl: Kubectl, name: str) -> str:
    """The group says that its template is bad, with one voice; returns the words."""
    wait_condition(kubectl, name, "TemplateResolved", status="False")
    conditions = {c["type"]: c for c in status_of(kubectl, name)["conditions"]}
    for kind, status in VERDICTS.items():
        assert (conditions[kind]["status"], conditions[kind]["reason"]) == (status, INVALID)
    (message,) = {conditions[kind]["message"] for kind in VERDICTS}
    return str(message)


def uids(kubectl: Kubectl, name: str) -> dict[str, str]:
    return {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes_of(kubectl, name)}


def test_refused_at_every_size_and_reported_once(
    kubectl: Kubectl, harness: Harness, group_name: str
) -> None:
    harness.start()
    apply_group(kubectl, group_name, targetSize=0, template=capacity(cpu="10Gib"))
    assert_refused(kubectl, group_name)
    harness.start()
    scale(kubectl, group_name, 2)
    assert_refused(kubectl, group_name)
    patch_group(kubectl, group_name, template=capacity(cpu="11Gib"))
    eventually(
        lambda: condition(kubectl, group_name, "Stalled")["message"],
        lambda message: "11Gib" in message,
        describe="the new mistake is told",
    )
    assert nodes_of(kubectl, group_name) == []
    told = [(e["type"], e["reason"]) for e in events_of(kubectl, group_name)]
    assert told == [("Warning", INVALID)], "one Event, as it went from good to bad once"


@pytest.mark.core
def test_nodes_stay_while_the_template_is_bad(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3)
    wait_ready(kubectl, group_name)
    good, resolved = uids(kubectl, group_name), status_of(kubectl, group_name)["resolvedTemplate"]

    patch_group(kubectl, group_name, template=taints([{"key": "a", "effect": "NoScheduel"}]))
    assert_refused(kubectl, group_name)
    scale(kubectl, group_name, 5)
    assert_refused(kubectl, group_name)
    assert uids(kubectl, group_name) == good
    status = status_of(kubectl, group_name)
    assert (status["replicas"], status["readyReplicas"], status["targetSize"]) == (3, 3, 5)
    assert status["pendingReplicas"] == 0
    assert status["resolvedTemplate"] == resolved, "the last one that was good"

    scale(kubectl, group_name, 2)
    left = eventually(
        lambda: uids(kubectl, group_name), lambda n: len(n) == 2, describe="surplus nodes go"
    )
    assert left.items() <= good.items()
    assert_refused(kubectl, group_name)

    patch_group(kubectl, group_name, template={"node": None, "shape": {"cpu": 4}}, targetSize=4)
    wait_ready(kubectl, group_name)
    assert left.items() <= uids(kubectl, group_name).items()
    assert len(nodes_of(kubectl, group_name)) == 4
    assert condition(kubectl, group_name, "TemplateResolved")["status"] == "True"
    assert condition(kubectl, group_name, "Stalled")["status"] == "False"
    reasons = [e["reason"] for e in events_of(kubectl, group_name)]
    assert reasons.count(INVALID) == 1


def lasting_spec(node: dict[str, Any]) -> dict[str, Any]:
    """Without the taint that Kubernetes puts on every new node for a moment."""
    taints = [t for t in node["spec"]["taints"] if t["key"] != "node.kubernetes.io/not-ready"]
    return {**node["spec"], "taints": taints}


@pytest.mark.core
def test_a_new_template_is_for_new_nodes(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    apply_group(kubectl, group_name, targetSize=3, template={"shape": {"labels": {"v": "1"}}})
    wait_ready(kubectl, group_name)
    before = {n["metadata"]["name"]: n for n in nodes_of(kubectl, group_name)}
    old_hash = status_of(kubectl, group_name)["templateHash"]
    assert status_of(kubectl, group_name)["updatedReplicas"] == 3

    patch_group(kubectl, group_name, template={"shape": {"labels": {"v": "2"}, "cpu": 4}})
    wait_ready(kubectl, group_name)
    status = status_of(kubectl, group_name)
    assert status["templateHash"] != old_hash
    assert (status["updatedReplicas"], status["replicas"], status["readyReplicas"]) == (0, 3, 3)

    scale(kubectl, group_name, 5)
    wait_ready(kubectl, group_name)
    updated(kubectl, group_name, 2)
    victim = min(before)
    kubectl("delete", "node", victim)
    eventually(
        lambda: names_of(kubectl, group_name),
        lambda names: len(names) == 5 and victim not in names,
        describe="the deleted node is replaced",
    )
    updated(kubectl, group_name, 3)
    for made in nodes_of(kubectl, group_name):
        name = made["metadata"]["name"]
        seen = (made["metadata"]["labels"]["v"], made["status"]["capacity"]["cpu"])
        assert seen == (("1", "32") if name in before else ("2", "4"))
        if name in before:
            assert made["metadata"]["uid"] == before[name]["metadata"]["uid"]
            assert lasting_spec(made) == lasting_spec(before[name])

    patch_group(kubectl, group_name, template={"shape": {"labels": {"v": "1"}, "cpu": None}})
    updated(kubectl, group_name, 2)
    assert group_of(kubectl, group_name)["status"]["templateHash"] == old_hash


def updated(kubectl: Kubectl, name: str, count: int) -> None:
    eventually(
        lambda: status_of(kubectl, name)["updatedReplicas"],
        lambda seen: seen == count,
        describe=f"{count} nodes are counted as made from the present template",
    )
