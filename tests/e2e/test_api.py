"""What the API server alone answers to people who write groups; no operator is needed.

- small manifests are whole groups, and nothing is added to them
- every rule is refused with its sentence, by apply, patch and scale alike
- bounds may be moved past a target; a target may not be moved past its bound
- unknown fields are refused or dropped, but kept in a pasted node
- hostile input: names, sizes, quantities and lists that are too long
- leaving targetSize out: what apply, server-side apply and replace do with the one that is there
- server-side apply may empty any part of a manifest
"""

from collections.abc import Iterator
from typing import Any

import pytest

from kwok_operator.constants import MAX_NODES_TO_DELETE
from kwok_operator.models.crd import custom_resource_definition, pool_definition
from tests.cloudmanifests import BAD as CLOUD_BAD
from tests.e2e.groups import group_manifest
from tests.e2e.kubectl import Kubectl, as_text
from tests.manifests import BAD

pytestmark = pytest.mark.usefixtures("harness")  # nothing else answers

NO_NAME = "name-of-no-group"
ABOVE_MAX = "targetSize must not be greater than autoscaling.maxSize: ask for fewer nodes"
RESERVED = "must not be greater than shape."
QUANTITY = "must be a quantity and not negative, such as 8, 500m or 32Gi"
LABEL = "must begin and end with a letter or a digit"


def shape(**fields: Any) -> dict[str, Any]:
    return {"template": {"shape": fields}}


def stored_spec(kubectl: Kubectl, name: str) -> Any:
    return kubectl.json("get", "kng", name)["spec"]


@pytest.mark.parametrize(
    "spec",
    [
        {"targetSize": 10},
        {},
        {"targetSize": 0},
        {"targetSize": 1_000_000},
        {"autoscaling": {"minSize": 3}},
        {"targetSize": 1, "autoscaling": {"minSize": 3, "maxSize": 3}},
        {"paused": True, "autoscaling": {"minSize": 0}},
        shape(cpu=8, memory="32Gi", reserved={"cpu": "8", "memory": "1Gi"}),
        shape(cpu="0.5", reserved={"cpu": "500m", "ephemeralStorage": "1Gi"}),
        shape(gpu={"count": 8}, resources={"example.com/fpga": 2, "hugepages-2Mi": "1Gi"}),
        shape(labels={"example.com/pool": "", "a": "b"}, zone="eu-west-1b", instanceType="m7i.x"),
        shape(taints=[{"key": "a", "effect": e} for e in ("NoSchedule", "NoExecute")]),
        {"guardTaint": {"enabled": False}, "scaleDown": {"order": "OldestFirst"}},
    ],
    ids=str,
)
def test_accepted_as_it_is(kubectl: Kubectl, crds: None, spec: dict[str, Any]) -> None:
    answer = kubectl.json(
        "apply", "-f-", "--dry-run=server", stdin=as_text(group_manifest(NO_NAME, **spec))
    )
    assert answer["spec"] == spec


def test_a_group_without_spec_gets_an_empty_one(kubectl: Kubectl, group_name: str) -> None:
    manifest = group_manifest(group_name)
    del manifest["spec"]
    kubectl.apply(manifest)
    assert stored_spec(kubectl, group_name) == {}
    kubectl("scale", "kng", group_name, "--replicas=2")
    assert stored_spec(kubectl, group_name) == {"targetSize": 2}


def test_an_empty_autoscaling_has_its_minimum(kubectl: Kubectl, crds: None) -> None:
    manifest = group_manifest(NO_NAME, autoscaling={})
    answer = kubectl.json("apply", "-f-", "--dry-run=server", stdin=as_text(manifest))
    assert answer["spec"] == {"autoscaling": {"minSize": 0}}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"autoscaling": {"minSize": 3, "maxSize": 2}},
        "spec.autoscaling.minSize",
        "autoscaling.minSize must not be greater than autoscaling.maxSize: lower minSize or raise",
    ),
    ({"targetSize": 3, "autoscaling": {"maxSize": 2}}, "spec.targetSize", ABOVE_MAX),
    ({"targetSize": -1}, "spec.targetSize", "greater than or equal to 0"),
    ({"targetSize": 1_000_001}, "spec.targetSize", "less than or equal to 1000000"),
    ({"targetSize": 10**30}, "spec.targetSize", "less than or equal to 1e+06"),
    ({"targetSize": "5"}, "spec.targetSize", "must be of type integer"),
    ({"scaleDown": {"order": "Random"}}, "spec.scaleDown.order", '"NewestFirst", "OldestFirst"'),
    ({"scaleDown": {"pods": "Evict"}}, "spec.scaleDown.pods", '"Leave", "Delete"'),
    ({"scaleDown": {"nodesToDelete": ["a" * 64]}}, "nodesToDelete[0]", "more than 63"),
    ({"guardTaint": {"effect": "NoScheduel"}}, "spec.guardTaint.effect", '"NoSchedule"'),
    ({"guardTaint": {"key": "a b"}}, "spec.guardTaint.key", "such as gpu or example.com/gpu"),
    ({"guardTaint": {"value": "a b"}}, "spec.guardTaint.value", LABEL),
    (shape(cpu="10Gib"), "spec.template.shape.cpu", QUANTITY),
    (shape(memory=-1), "spec.template.shape.memory", QUANTITY),
    (shape(memory="-0"), "spec.template.shape.memory", QUANTITY),
    (shape(cpu=""), "spec.template.shape.cpu", QUANTITY),
    (shape(cpu="4" * 33), "spec.template.shape.cpu", "more than 32"),
    (shape(cpu=0.5), "spec.template.shape.cpu", "must be of type integer,string"),
    (shape(cpu=4, reserved={"cpu": "4001m"}), "shape.reserved.cpu", RESERVED + "cpu"),
    (shape(memory="1Gi", reserved={"memory": "1G1"}), "shape.reserved.memory", QUANTITY),
    (shape(memory="1G", reserved={"memory": "1Gi"}), "reserved.memory", RESERVED + "memory"),
    (
        shape(ephemeralStorage=1, reserved={"ephemeralStorage": 2}),
        "spec.template.shape.reserved.ephemeralStorage",
        RESERVED + "ephemeralStorage",
    ),
    (shape(maxPods=-1), "spec.template.shape.maxPods", "greater than or equal to 0"),
    (shape(zone="-a"), "spec.template.shape.zone", LABEL),
    (shape(labels={"a": "b c"}), "spec.template.shape.labels[a]", LABEL),
    (shape(labels={"a b": ""}), "spec.template.shape.labels", "a key must be a name"),
    (
        shape(labels={"kubernetes.io/hostname": "a"}),
        "spec.template.shape.labels",
        "shape.labels must set neither kubernetes.io/hostname nor kwok-operator.io/node-group",
    ),
    (shape(labels={f"k{i}": "" for i in range(129)}), "shape.labels", "at most 128"),
    (shape(resources={"cpu": 4}), "spec.template.shape.resources", "the others are shape.cpu"),
    (shape(resources={"a.b/c": "x"}), "spec.template.shape.resources[a.b/c]", QUANTITY),
    (shape(gpu={"type": "gpu", "count": 1}), "shape.gpu.type", "with its domain"),
    (shape(gpu={"type": "nvidia.com/gpu"}), "spec.template.shape.gpu.count", "Required"),
    (
        shape(gpu={"count": 1}, resources={"nvidia.com/gpu": 2}),
        "spec.template.shape.resources",
        "shape.gpu and shape.resources set the same resource",
    ),
    (shape(taints=[{"key": "a"}]), "spec.template.shape.taints[0].effect", "Required"),
    (
        shape(taints=[{"key": "a", "value": v, "effect": "NoSchedule"} for v in "xy"]),
        "spec.template.shape.taints[1]",
        "Duplicate value",
    ),
]


@pytest.mark.parametrize(
    ("spec", "field", "sentence"), REFUSED, ids=[f"{f}-{i}" for i, (_, f, _) in enumerate(REFUSED)]
)
def test_refused_with_the_field_and_a_sentence(
    kubectl: Kubectl, crds: None, spec: dict[str, Any], field: str, sentence: str
) -> None:
    said = kubectl.fails("apply", "-f-", "--dry-run=server", stdin=group_manifest(NO_NAME, **spec))
    assert f"{field}:" in said
    assert sentence in said


def test_no_rule_goes_untested() -> None:
    def rules(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
            for value in schema.values():
                yield from rules(value)
        elif isinstance(schema, list):
            for value in schema:
                yield from rules(value)

    tested = [sentence for _, _, sentence in REFUSED]
    tested += [sentence for _, sentence in (BAD | CLOUD_BAD).values()]  # by test_accepted_by_api.py
    definitions = [custom_resource_definition(), pool_definition()]
    messages = {m for m in rules(definitions) if not m.startswith("metadata.name")}
    assert [m for m in messages if not any(sentence in m for sentence in tested)] == []


def test_a_name_has_fifty_characters(kubectl: Kubectl, crds: None) -> None:
    dry = ("apply", "-f-", "--dry-run=server")
    kubectl.apply(group_manifest("n" * 50), "--dry-run=server")
    said = kubectl.fails(*dry, stdin=group_manifest("n" * 51))
    assert "metadata.name must have at most 50 characters" in said
    assert "hostname label holds 63" in said


def test_a_target_is_held_to_its_bound_however_it_is_set(kubectl: Kubectl, group_name: str) -> None:
    kubectl.apply(group_manifest(group_name, targetSize=4, autoscaling={"maxSize": 5}))
    patch = '{"spec": {"targetSize": 6}}'
    for command in (
        ("scale", "kng", group_name, "--replicas=6"),
        ("patch", "kng", group_name, "--type=merge", f"--patch={patch}"),
    ):
        assert ABOVE_MAX in kubectl.fails(*command)
    said = kubectl.fails("scale", "kng", group_name, "--replicas=1000001")
    assert "spec.targetSize: Invalid value: 1000001" in said
    kubectl("scale", "kng", group_name, "--replicas=5")
    assert stored_spec(kubectl, group_name)["targetSize"] == 5


def test_bounds_may_be_moved_past_a_target(kubectl: Kubectl, group_name: str) -> None:
    kubectl.apply(group_manifest(group_name, targetSize=10))
    moved = {"targetSize": 10, "autoscaling": {"maxSize": 4}}
    kubectl.apply(group_manifest(group_name, **moved))
    # The target stays as it was, so other changes are free; a new one has to fit.
    kubectl.apply(group_manifest(group_name, **moved, paused=True))
    assert ABOVE_MAX in kubectl.fails("scale", "kng", group_name, "--replicas=9")
    kubectl("scale", "kng", group_name, "--replicas=3")
    assert stored_spec(kubectl, group_name)["targetSize"] == 3
    # A target below the floor is no mistake: the operator keeps minSize all the same.
    kubectl.apply(group_manifest(group_name, targetSize=1, autoscaling={"minSize": 2}))


def test_scale_works_where_no_target_was_ever_set(kubectl: Kubectl, group_name: str) -> None:
    kubectl.apply(group_manifest(group_name, autoscaling={"maxSize": 5}))
    # Reading the scale, which a precondition needs, is an error until there is a target.
    said = kubectl.fails("scale", "kng", group_name, "--current-replicas=0", "--replicas=4")
    assert 'the spec replicas field ".spec.targetSize" does not exist' in said
    assert ABOVE_MAX in kubectl.fails("scale", "kng", group_name, "--replicas=6")
    kubectl("scale", "kng", group_name, "--replicas=4")
    assert stored_spec(kubectl, group_name)["targetSize"] == 4
    kubectl("scale", "kng", group_name, "--current-replicas=4", "--replicas=5")
    scale = kubectl.json("get", "kng", group_name, "--subresource=scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (5, 0)


@pytest.mark.parametrize(
    "spec",
    [{"tergetSize": 3}, shape(reserved={"gpu": 1}), {"autoscaling": {"maxsize": 3}}],
    ids=str,
)
def test_misspelt_fields_are_refused_or_dropped(
    kubectl: Kubectl, crds: None, spec: dict[str, Any]
) -> None:
    manifest = group_manifest(NO_NAME, **spec)
    said = kubectl.fails("apply", "-f-", "--dry-run=server", "--validate=strict", stdin=manifest)
    assert "unknown field" in said
    lenient = ("apply", "-f-", "--dry-run=server", "--validate=ignore")
    answer = kubectl.json(*lenient, stdin=as_text(manifest))
    for misspelt in ("tergetSize", "gpu", "maxsize"):
        assert f"'{misspelt}'" not in str(answer["spec"])


def test_a_pasted_node_keeps_all_of_its_fields(kubectl: Kubectl, group_name: str) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "worker-1", "labels": {"a": "b"}, "uid": "x", "managedFields": [{}]},
        "spec": {"podCIDRs": ["10.0.0.0/24"], "fieldOfTomorrow": {"deep": [{"er": 1}]}},
        "status": {"capacity": {"cpu": "4"}, "nodeInfo": {"kubeletVersion": "v1.36.0"}},
    }
    kubectl.apply(group_manifest(group_name, template={"node": node}), "--validate=strict")
    assert stored_spec(kubectl, group_name)["template"]["node"] == node


def test_nodes_to_delete_are_limited(kubectl: Kubectl, group_name: str) -> None:
    def naming(count: int) -> dict[str, Any]:
        names = [f"{group_name}-{i:07d}" for i in range(count)]
        return group_manifest(group_name, paused=True, scaleDown={"nodesToDelete": names})

    said = kubectl.fails("create", "-f-", stdin=naming(MAX_NODES_TO_DELETE + 1))
    assert f"must have at most {MAX_NODES_TO_DELETE} items" in said
    # Created and not applied: `kubectl apply` keeps a second copy in an annotation of 256 KiB.
    kubectl("create", "-f-", stdin=as_text(naming(MAX_NODES_TO_DELETE)))
    kept = stored_spec(kubectl, group_name)["scaleDown"]["nodesToDelete"]
    assert len(kept) == MAX_NODES_TO_DELETE


def test_a_manifest_without_target_leaves_the_one_of_others(
    kubectl: Kubectl, group_name: str
) -> None:
    for options in ((), ("--server-side", "--force-conflicts")):
        kubectl.apply(group_manifest(group_name), *options)
        kubectl("scale", "kng", group_name, "--replicas=4")
        kubectl.apply(group_manifest(group_name, paused=True), *options)
        assert stored_spec(kubectl, group_name) == {"paused": True, "targetSize": 4}


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_a_manifest_takes_back_the_target_it_gave(
    kubectl: Kubectl, group_name: str, options: tuple[str, ...]
) -> None:
    kubectl.apply(group_manifest(group_name, targetSize=4), *options)
    kubectl.apply(group_manifest(group_name), *options)
    assert stored_spec(kubectl, group_name) == {}


def test_a_target_that_others_took_over_stays(kubectl: Kubectl, group_name: str) -> None:
    kubectl.apply(group_manifest(group_name, targetSize=4), "--server-side")
    kubectl("scale", "kng", group_name, "--replicas=6")
    assert "conflict" in kubectl.fails(
        "apply", "-f-", "--server-side", stdin=group_manifest(group_name, targetSize=4)
    )
    kubectl.apply(group_manifest(group_name), "--server-side")
    assert stored_spec(kubectl, group_name) == {"targetSize": 6}


def test_replace_removes_what_it_does_not_name(kubectl: Kubectl, group_name: str) -> None:
    kubectl.apply(group_manifest(group_name, targetSize=4))
    kubectl("replace", "-f-", stdin=as_text(group_manifest(group_name)))
    assert stored_spec(kubectl, group_name) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"targetSize": 1}, {}),
        ({"autoscaling": {"maxSize": 5}}, {"autoscaling": {}}),
        (shape(zone="a"), {}),
        (shape(zone="a"), {"template": {}}),
        (shape(zone="a"), shape()),
        (shape(cpu=2, reserved={"cpu": 1}), shape(cpu=2, reserved={})),
        (shape(cpu=2, labels={"a": "b"}), shape(cpu=2, labels={})),
        (shape(gpu={"count": 1}, resources={"a.b/c": 1}), shape(gpu={"count": 1}, resources={})),
        (shape(taints=[{"key": "a", "effect": "NoSchedule"}]), shape(taints=[])),
        ({"template": {"node": {"metadata": {}}}}, {"template": {"node": {}}}),
        ({"guardTaint": {"enabled": False}}, {"guardTaint": {}}),
        ({"scaleDown": {"nodesToDelete": ["a"]}}, {"scaleDown": {"nodesToDelete": []}}),
        ({"scaleDown": {"order": "OldestFirst"}}, {"scaleDown": {}}),
        ({"cloud": {"stock": 5}}, {"cloud": {}}),
        ({"cloud": {"failures": {"creation": [{"serials": "1"}]}}}, {"cloud": {"failures": {}}}),
        ({"cloud": {"interruptions": {"atATime": 1}}}, {"cloud": {"interruptions": {}}}),
    ],
    ids=lambda spec: str(spec),
)
def test_server_side_apply_may_empty_any_part(
    kubectl: Kubectl, group_name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    kubectl.apply(group_manifest(group_name, **before), "--server-side")
    kubectl.apply(group_manifest(group_name, **after), "--server-side")
    assert ("autoscaling" in stored_spec(kubectl, group_name)) == ("autoscaling" in after)
    kubectl("scale", "kng", group_name, "--replicas=1")
