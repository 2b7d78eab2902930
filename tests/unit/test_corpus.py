"""The nodes in tests/corpus, as clouds and installers leave them: what cleaning makes of each.

How to add a node is in tests/corpus/README.md.
"""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings

from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.cleaning import clean_node
from kwok_operator.nodegroups.template import resolve
from tests.corpusnodes import CLEAN, CORPUS, NAMES, NODES, damaged_nodes, load

FIELD = "spec.template.node"

# By which label pods choose the nodes of this pool, and which taints keep other pods away.
POOLS: dict[str, tuple[str, list[str]]] = {
    "aks-spot-starting": (
        "agentpool=spot",
        ["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"],
    ),
    "aks-system-pool": ("agentpool=system", ["CriticalAddonsOnly=true:NoSchedule"]),
    "aks-vmss-gpu": ("agentpool=a100", ["sku=gpu:NoSchedule"]),
    "alibaba": (
        "alibabacloud.com/nodepool-id=np4e9a17c0b5d2f8361c7e0d94fa25b83d",
        ["team=search:NoExecute"],
    ),
    "ca-kwok-leftover": (
        "node.kubernetes.io/instance-type=m6i.large",
        ["kwok-provider=true:NoSchedule", "dedicated=web:NoSchedule"],
    ),
    "eks-eksctl": ("alpha.eksctl.io/nodegroup-name=ci-spot", ["dedicated=ci:NoSchedule"]),
    "eks-karpenter-disrupted": ("karpenter.sh/nodepool=gpu", ["nvidia.com/gpu=true:NoSchedule"]),
    "eks-karpenter-spot": ("karpenter.sh/nodepool=memory", ["workload=analytics:NoSchedule"]),
    "eks-managed": ("eks.amazonaws.com/nodegroup=general", []),
    "gke-gpu-spot": (
        "cloud.google.com/gke-nodepool=l4-spot",
        ["cloud.google.com/gke-spot=true:NoSchedule", "nvidia.com/gpu=present:NoSchedule"],
    ),
    "gke-scaling-down": ("cloud.google.com/gke-nodepool=batch", ["dedicated=batch:NoSchedule"]),
    "gke-standard": ("cloud.google.com/gke-nodepool=default-pool", []),
    "ibm-vpc": ("ibm-cloud.kubernetes.io/worker-pool-name=default", []),
    "k3s-server": ("egress.k3s.io/cluster=true", ["CriticalAddonsOnly=true:NoExecute"]),
    "kind-control-plane": ("ingress-ready=true", []),
    "kind-worker": ("example.com/pool=small", []),
    "kubeadm-control-plane": ("node-role.kubernetes.io/storage=", ["storage-only=:NoSchedule"]),
    "kubeadm-worker-calico": ("example.com/pool=storage-heavy", ["storage-only=:NoSchedule"]),
    "oke-worker": ("oke.oraclecloud.com/pool.name=batch", []),
    "openshift-worker": (
        "node-role.kubernetes.io/infra=",
        ["node-role.kubernetes.io/infra=reserved:NoSchedule"],
    ),
    "talos-worker": ("example.com/nodegroup=workers", ["team=payments:NoSchedule"]),
}
LABELS_OF_A_TYPE = re.compile(
    r".*/(zone|region|instance-type|arch|os|machine-type|machine-family|zone-id)"
    r"|.*(capacity-?type|gke-spot|scalesetpriority|charge-type|lifecycle).*"
    r"|(feature\.node\.kubernetes\.io|karpenter\.k8s\.aws)/.*|.*gpu\.(product|count|memory)",
    re.IGNORECASE,
)
OF_AN_INSTANCE = re.compile(r"(instance|worker)[-_]id$|chassis-id$|displayName|internal_addr")
CONTROL_PLANE = ("control-plane", "controlplane", "master", "etcd")


each_node = pytest.mark.parametrize("name", NAMES)


def clean(node: dict[str, Any]) -> dict[str, Any]:
    return clean_node(node, field=FIELD)


def strings(value: object) -> Iterator[str]:
    """All texts in a value, without the keys above them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


def traces(node: dict[str, Any]) -> set[str]:
    """What no other node has."""
    metadata, spec, status = node["metadata"], node["spec"], node["status"]
    annotations, labels = metadata["annotations"], metadata["labels"]
    info = status["nodeInfo"]
    found = {metadata["name"], metadata["uid"], labels["kubernetes.io/hostname"]}
    found |= {info["machineID"], info["systemUUID"], info["bootID"]}
    found |= {a["address"] for a in status["addresses"]}
    found |= set(spec.get("podCIDRs", []))
    found |= set(strings(json.loads(annotations.get("csi.volume.kubernetes.io/nodeid", "{}"))))
    found |= set(status.get("volumesInUse", []))
    found |= {owner["uid"] for owner in metadata.get("ownerReferences", [])}
    found |= {text for key, text in {**annotations, **labels}.items() if OF_AN_INSTANCE.search(key)}
    if "providerID" in spec:
        found |= {spec["providerID"], re.split(r"[/:]|\.(?=i-)", spec["providerID"])[-1]}
    return found


def test_every_node_stands_beside_its_clean_self_and_in_the_table() -> None:
    assert sorted(p.name for p in CORPUS.glob(f"*{CLEAN}")) == [f"{name}{CLEAN}" for name in NAMES]
    assert sorted(POOLS) == NAMES


@each_node
def test_the_result_is_what_stands_beside_the_node(name: str) -> None:
    node = copy.deepcopy(NODES[name])
    cleaned = clean(node)
    assert cleaned == load(f"{name}{CLEAN}")
    assert clean(cleaned) == cleaned, "as when it is pasted from a status"
    cleaned["metadata"]["labels"]["new"] = cleaned["status"]["capacity"]["cpu"] = "1"
    assert node == NODES[name], "what is given is not changed"


@each_node
def test_nothing_of_the_machine_is_left(name: str) -> None:
    node = load(f"{name}{CLEAN}")
    text = json.dumps(node)
    # Azure's providerID ends in a number, which is an identity only together with what is before.
    assert {trace for trace in traces(NODES[name]) if len(trace) > 2 and trace in text} == set()
    assert not re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text), "a time of day"
    assert set(node["metadata"]) == {"labels", "annotations"}
    assert set(node["spec"]) == {"taints"}
    known = {"allocatable", "capacity", "nodeInfo", "features", "runtimeHandlers"}
    assert set(node["status"]) <= known
    keys = {*node["metadata"]["labels"], *(taint["key"] for taint in node["spec"]["taints"])}
    assert keys.isdisjoint(f"node-role.kubernetes.io/{role}" for role in CONTROL_PLANE)


@each_node
def test_what_the_pool_has_in_common_is_left(name: str) -> None:
    before, after = NODES[name], load(f"{name}{CLEAN}")
    for part in ("capacity", "allocatable"):
        assert after["status"][part] == before["status"][part]
    labels = after["metadata"]["labels"]
    key, _, value = POOLS[name][0].partition("=")
    assert labels[key] == value
    of_the_type = {
        key: value
        for key, value in before["metadata"]["labels"].items()
        if LABELS_OF_A_TYPE.fullmatch(key)
    }
    assert of_the_type and labels.items() >= of_the_type.items()
    taints = after["spec"]["taints"]
    assert [f"{t['key']}={t.get('value', '')}:{t['effect']}" for t in taints] == POOLS[name][1]
    assert all(set(t) <= {"key", "value", "effect"} for t in taints)


@each_node
def test_images_are_left_where_they_are_asked_for(name: str) -> None:
    asked = Template.model_validate({"node": NODES[name], "keepImages": True})
    images = resolve(asked, guard=GuardTaint())["status"].get("images")
    assert images == NODES[name]["status"].get("images")
    kept = clean_node(NODES[name], field=FIELD, keep_images=True)
    assert kept["status"].pop("images", None) == NODES[name]["status"].get("images")
    assert kept == clean(NODES[name])


@each_node
def test_it_is_a_template_with_the_guard_taint_once(name: str) -> None:
    template = resolve(Template.model_validate({"node": NODES[name]}), guard=GuardTaint())
    taints = [(taint["key"], taint["effect"]) for taint in template["spec"]["taints"]]
    assert taints.count(("kwok-provider", "NoSchedule")) == 1
    assert len(taints) == len(set(taints))
    for part in ("capacity", "allocatable"):
        assert template["status"][part] == NODES[name]["status"][part]
    # No condition, address or name: those belong to each node that is made of it.
    assert template["status"].keys().isdisjoint({"conditions", "addresses", "daemonEndpoints"})
    assert "name" not in template["metadata"]


@given(node=damaged_nodes())
@settings(deadline=None, max_examples=200)
def test_whatever_is_put_into_a_node_it_is_cleaned_or_refused(node: dict[str, Any]) -> None:
    try:
        after = clean(node)
    except TemplateError as refused:
        assert refused.field.startswith(FIELD)
        return
    assert json.loads(json.dumps(after)) == after
    assert clean(after) == after
    gone = {"uid", "name", "resourceVersion", "managedFields", "ownerReferences"}
    assert gone.isdisjoint(after["metadata"])
    assert {"providerID", "podCIDR", "podCIDRs", "unschedulable"}.isdisjoint(after["spec"])
    assert {"addresses", "conditions", "images", "volumesInUse"}.isdisjoint(after["status"])
    assert "kubernetes.io/hostname" not in after["metadata"]["labels"]
    taints = [(str(t.get("key")), str(t.get("effect"))) for t in after["spec"]["taints"]]
    assert len(taints) == len(set(taints))
