"""What the API server alone answers to people who write groups; no operator is needed.

Which groups are taken, and why others are refused, is in test_accepted_by_api.py.
"""

from typing import Any

import pytest

from kwok_operator.constants import MAX_NODES_TO_DELETE
from tests.e2e.api import GROUPS
from tests.e2e.groups import group_manifest, group_of
from tests.e2e.kubectl import Kubectl, as_text
from tests.manifests import shape

pytestmark = pytest.mark.usefixtures("harness")  # nothing else answers

ABOVE_MAX = "targetSize must not be greater than autoscaling.maxSize"


def stored_spec(kubectl: Kubectl, name: str) -> Any:
    return group_of(kubectl, name)["spec"]


@pytest.mark.core
def test_a_target_is_held_to_its_bound_however_it_is_set(kubectl: Kubectl, group_name: str) -> None:
    bounds = {"maxSize": 5}
    kubectl.apply(group_manifest(group_name, targetSize=4, autoscaling=bounds))
    over = group_manifest(group_name, targetSize=6, autoscaling=bounds)
    patch = as_text({"spec": {"targetSize": 6}})
    for refusal in (
        kubectl.fails("apply", "--filename=-", stdin=over),
        kubectl.fails("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=over),
        kubectl.fails("replace", "--filename=-", stdin=over),
        kubectl.fails("patch", "kng", group_name, "--type=merge", f"--patch={patch}"),
        kubectl.fails("scale", "kng", group_name, "--replicas=6"),
    ):
        assert ABOVE_MAX in refusal
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


def test_scale_works_where_no_target_was_ever_set(kubectl: Kubectl, group_name: str) -> None:
    bare = group_manifest(group_name)
    del bare["spec"]
    kubectl.apply(bare)
    assert stored_spec(kubectl, group_name) == {}
    # Reading the scale, which a precondition needs, is an error until there is a target.
    said = kubectl.fails("scale", "kng", group_name, "--current-replicas=0", "--replicas=4")
    assert ".spec.targetSize" in said
    kubectl("scale", "kng", group_name, "--replicas=4")
    kubectl("scale", "kng", group_name, "--current-replicas=4", "--replicas=5")
    assert stored_spec(kubectl, group_name) == {"targetSize": 5}
    scale = kubectl.json("get", "kng", group_name, "--subresource=scale")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (5, 0)


def test_misspelt_fields_are_dropped_where_nobody_is_strict(kubectl: Kubectl, crds: None) -> None:
    spec = {"tergetSize": 3, "paused": True, "template": {"shape": {"reserved": {"gpu": 1}}}}
    answer = kubectl.api.create(
        f"{GROUPS}?dryRun=All&fieldValidation=Ignore", group_manifest("misspelt", **spec)
    )
    assert answer["spec"] == {"paused": True, "template": {"shape": {"reserved": {}}}}


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


def test_a_manifest_takes_back_the_target_it_gave(kubectl: Kubectl, group_name: str) -> None:
    for name, options in ((group_name, ()), (f"{group_name}-server", ("--server-side",))):
        kubectl.apply(group_manifest(name, targetSize=4), *options)
        kubectl.apply(group_manifest(name), *options)
        assert stored_spec(kubectl, name) == {}
    kubectl.apply(group_manifest(group_name, targetSize=4))
    kubectl("replace", "-f-", stdin=as_text(group_manifest(group_name)))
    assert stored_spec(kubectl, group_name) == {}


def test_a_target_that_others_took_over_stays(kubectl: Kubectl, group_name: str) -> None:
    kubectl.apply(group_manifest(group_name, targetSize=4), "--server-side")
    kubectl("scale", "kng", group_name, "--replicas=6")
    assert "conflict" in kubectl.fails(
        "apply", "-f-", "--server-side", stdin=group_manifest(group_name, targetSize=4)
    )
    kubectl.apply(group_manifest(group_name), "--server-side")
    assert stored_spec(kubectl, group_name) == {"targetSize": 6}


def in_template(**fields: Any) -> Any:
    return shape(**fields)["spec"]


EMPTIED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"targetSize": 1}, {}),
    ({"autoscaling": {"maxSize": 5}}, {"autoscaling": {}}),
    (in_template(zone="a"), {}),
    (in_template(zone="a"), {"template": {}}),
    (in_template(zone="a"), in_template()),
    (in_template(cpu=2, reserved={"cpu": 1}), in_template(cpu=2, reserved={})),
    (in_template(cpu=2, labels={"a": "b"}), in_template(cpu=2, labels={})),
    (
        in_template(gpu={"count": 1}, resources={"a.b/c": 1}),
        in_template(gpu={"count": 1}, resources={}),
    ),
    (in_template(taints=[{"key": "a", "effect": "NoSchedule"}]), in_template(taints=[])),
    ({"template": {"node": {"metadata": {}}}}, {"template": {"node": {}}}),
    ({"guardTaint": {"enabled": False}}, {"guardTaint": {}}),
    ({"scaleDown": {"nodesToDelete": ["a"]}}, {"scaleDown": {"nodesToDelete": []}}),
    ({"scaleDown": {"order": "OldestFirst"}}, {"scaleDown": {}}),
    ({"cloud": {"stock": 5}}, {"cloud": {}}),
    ({"cloud": {"failures": {"creation": [{"serials": "1"}]}}}, {"cloud": {"failures": {}}}),
    ({"cloud": {"interruptions": {"atATime": 1}}}, {"cloud": {"interruptions": {}}}),
]


def test_server_side_apply_may_empty_any_part(kubectl: Kubectl, group_name: str) -> None:
    names = [f"{group_name}-{i}" for i in range(len(EMPTIED))]
    for specs in zip(*EMPTIED, strict=True):
        groups = [group_manifest(n, **spec) for n, spec in zip(names, specs, strict=True)]
        kubectl.apply({"apiVersion": "v1", "kind": "List", "items": groups}, "--server-side")
    for name, (_, after) in zip(names, EMPTIED, strict=True):
        assert ("autoscaling" in stored_spec(kubectl, name)) == ("autoscaling" in after)
    kubectl("scale", "kng", *names, "--replicas=1")
