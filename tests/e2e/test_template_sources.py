"""`template.from`: a Node in a ConfigMap, or a real node of this cluster."""

import json
from typing import Any

import pytest

from tests.e2e.groups import (
    apply_group,
    condition,
    group_of,
    nodes_of,
    scale,
    status_of,
    wait_condition,
    wait_ready,
)
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import NAMESPACE, Process
from tests.e2e.sources import (
    TYPE,
    RealNodes,
    configmap,
    cpu_of,
    documents,
    resolved,
    template,
    wait_cpu,
    wait_reason,
)

ZONE = "topology.kubernetes.io/zone"


def by_type(kind: str, **more: Any) -> dict[str, Any]:
    return {"from": {"nodes": {"selector": {"matchLabels": {TYPE: kind}}}}, **more}


@pytest.fixture
def data(kubectl: Kubectl, group_name: str, operator: Process) -> Any:
    """Sets the data of a ConfigMap that is called like the group."""

    def put(**data: str) -> None:
        kubectl.apply(configmap(group_name, **data))

    yield put
    kubectl("delete", "configmap", group_name, f"--namespace={NAMESPACE}", "--ignore-not-found")


A = template("a", labels={"pool": "a"}, cpu=2)
B = template("b", labels={"pool": "b"}, cpu=6)


@pytest.mark.core
def test_a_node_in_a_config_map(data: Any, kubectl: Kubectl, group_name: str) -> None:
    """An edit is followed; its end leaves the last template."""
    listed = documents({"apiVersion": "v1", "kind": "List", "items": [A, B]})
    data(one=documents(A), listed=listed, several=documents(A, B))
    chosen = {"one": {}, "listed": {"node": "b"}, "several": {"node": "b"}}
    for key, more in chosen.items():
        source = {"configMap": {"name": group_name, "key": key, **more}}
        apply_group(kubectl, f"{group_name}-{key}", targetSize=1, template={"from": source})
    for key, cpu in (("one", "2"), ("listed", "6"), ("several", "6")):
        wait_ready(kubectl, f"{group_name}-{key}")
        (node,) = nodes_of(kubectl, f"{group_name}-{key}")
        assert node["status"]["capacity"]["cpu"] == cpu

    group = f"{group_name}-one"
    assert status_of(kubectl, group)["templateSource"] == "ConfigMap"
    data(one=documents(template("a", labels={}, cpu=12)), other="not for nodes")
    wait_cpu(kubectl, group, "12")
    data(one="kind: [", other="not for nodes")
    wait_reason(kubectl, group, "ConfigMapInvalid", status="Unknown")
    kubectl("delete", "configmap", group_name, f"--namespace={NAMESPACE}")
    wait_reason(kubectl, group, "ConfigMapNotFound", status="Unknown")
    scale(kubectl, group, 2)
    wait_ready(kubectl, group)
    assert nodes_of(kubectl, group)[1]["status"]["capacity"]["cpu"] == "12"


@pytest.mark.core
def test_the_newest_usable_node_is_taken(
    operator: Process, kubectl: Kubectl, group_name: str, real_nodes: RealNodes
) -> None:
    """Age is told in seconds, and of equally new nodes the first by name is the one."""
    labels = {TYPE: group_name}
    real_nodes.add(f"{group_name}-r9", labels=labels, cpu=2)
    apply_group(kubectl, group_name, targetSize=1, template=by_type(group_name))
    wait_ready(kubectl, group_name)
    assert cpu_of(kubectl, group_name) == "2"
    real_nodes.add(f"{group_name}-r1", labels=labels, cpu=4, ready=False)
    real_nodes.add(f"{group_name}-r2", labels=labels, cpu=8, unschedulable=True)
    real_nodes.add(f"{group_name}-r3", labels={TYPE: "another"}, cpu=16)
    real_nodes.add(f"{group_name}-r4", labels=labels, cpu=32)
    wait_cpu(kubectl, group_name, "32")
    kubectl("cordon", f"{group_name}-r4")
    kubectl("uncordon", f"{group_name}-r2")
    wait_cpu(kubectl, group_name, "8")
    assert f"{group_name}-r2" in condition(kubectl, group_name, "TemplateResolved")["message"]


def test_a_node_is_followed_but_not_its_heartbeats(
    operator: Process, kubectl: Kubectl, group_name: str, real_nodes: RealNodes
) -> None:
    name = f"{group_name}-r1"
    real_nodes.add(name, labels={TYPE: group_name}, cpu=4)
    apply_group(kubectl, group_name, targetSize=0, template=by_type(group_name))
    # Kubernetes labels a new node a moment after it has come.
    eventually(
        lambda: "beta.kubernetes.io/arch" in resolved(kubectl, group_name)["metadata"]["labels"],
        describe="the node has all its labels",
    )
    wait_ready(kubectl, group_name)
    before = group_of(kubectl, group_name)["metadata"]["resourceVersion"]
    for second in range(5):
        beat = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        beat["lastHeartbeatTime"] = f"2026-01-02T03:05:{second:02}Z"
        real_nodes.status(name, {"conditions": [beat]})
    # Something that is followed, of another group, shows that the heartbeats have been seen.
    other = f"{group_name}-other"
    apply_group(kubectl, other, targetSize=0, template={"from": {"nodes": {"name": name}}})
    wait_ready(kubectl, other)
    assert group_of(kubectl, group_name)["metadata"]["resourceVersion"] == before

    kubectl("label", "node", name, "example.com/new=yes")
    kubectl("taint", "node", name, "gpu=yes:NoSchedule")
    real_nodes.status(name, {"capacity": {"example.com/fpga": "2"}})
    eventually(
        lambda: resolved(kubectl, group_name),
        lambda node: (
            node["status"]["capacity"].get("example.com/fpga") == "2"
            and node["metadata"]["labels"].get("example.com/new")
            and "gpu" in [t["key"] for t in node["spec"]["taints"]]
        ),
        describe="label, taint and capacity are in the template",
    )


def test_the_last_match_gone_and_scale_from_zero(
    operator: Process, kubectl: Kubectl, group_name: str, real_nodes: RealNodes
) -> None:
    real_nodes.add(f"{group_name}-r1", labels={TYPE: group_name}, cpu=5)
    apply_group(kubectl, group_name, targetSize=1, template=by_type(group_name))
    wait_ready(kubectl, group_name)
    scale(kubectl, group_name, 0)
    wait_ready(kubectl, group_name)
    real_nodes.delete(f"{group_name}-r1")
    gone = wait_reason(kubectl, group_name, "NodeNotFound", status="Unknown")
    scale(kubectl, group_name, 3)
    wait_ready(kubectl, group_name)
    after = condition(kubectl, group_name, "TemplateResolved")
    assert after["lastTransitionTime"] == gone["lastTransitionTime"]
    assert {n["status"]["capacity"]["cpu"] for n in nodes_of(kubectl, group_name)} == {"5"}
    real_nodes.add(f"{group_name}-r2", labels={TYPE: group_name}, cpu=10)
    wait_condition(kubectl, group_name, "TemplateResolved")
    wait_cpu(kubectl, group_name, "10")


def test_like_that_node_but_in_another_zone_and_with_gpus(
    operator: Process, kubectl: Kubectl, group_name: str, real_nodes: RealNodes
) -> None:
    labels = {TYPE: group_name, ZONE: "eu-west-1a", "failure-domain.beta.kubernetes.io/zone": "x"}
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    real_nodes.add(f"{group_name}-r1", labels=labels | {"old": "yes"}, cpu=4, taints=[taint])
    overlay = {
        "metadata": {"labels": {"old": "no", "new": "yes"}},
        "spec": {"taints": [taint | {"value": "b"}]},
    }
    shape = {"zone": "eu-west-1b", "gpu": {"count": 2}}
    text = json.dumps(by_type(group_name, node=overlay, shape=shape))
    apply_group(kubectl, group_name, targetSize=1, template=json.loads(text))
    wait_ready(kubectl, group_name)
    (node,) = nodes_of(kubectl, group_name)
    found = node["metadata"]["labels"]
    assert (found[ZONE], found["failure-domain.beta.kubernetes.io/zone"]) == ("eu-west-1b",) * 2
    assert (found["old"], found["new"]) == ("no", "yes")
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "2"
    assert node["status"]["allocatable"]["cpu"] == "3920m"
    taints = {t["key"]: t.get("value") for t in node["spec"]["taints"]}
    assert (taints["team"], taints["kwok-provider"]) == ("b", "true")
    assert status_of(kubectl, group_name)["templateSource"] == "Live+Node+Shape"


def test_real_nodes_of_three_types(
    operator: Process, provider: Any, kubectl: Kubectl, group_name: str, real_nodes: RealNodes
) -> None:
    """Derived from live nodes: a group for each type; the real nodes are neither counted, nor
    touched, nor deleted, and the group of a type goes on when its nodes are gone."""
    types = [f"{group_name}-t{n}" for n in range(3)]
    for number in range(12):
        name, type_ = f"{group_name}-r{number:02}", number % 3
        real_nodes.add(name, labels={TYPE: types[type_]}, cpu=type_ + 2)
    provider.configure_for(TYPE, read="cluster")
    for kind in types:
        scale_when_there(kubectl, kind, 2)
    for number, kind in enumerate(types):
        wait_ready(kubectl, kind)
        assert status_of(kubectl, kind)["replicas"] == 2
        assert cpu_of(kubectl, kind) == str(number + 2)
    real = kubectl.json(
        "get", "nodes", "--selector=!kwok-operator.io/node-group", "--show-managed-fields"
    )["items"]
    ours = [n for n in real if n["metadata"]["name"] in real_nodes.names]
    assert len(ours) == 12
    for node in ours:
        managers = {m["manager"] for m in node["metadata"]["managedFields"]}
        assert not [m for m in managers if m.startswith("kwok-operator")]
        assert "kwok.x-k8s.io/node" not in node["metadata"]["annotations"]
    scale(kubectl, types[0], 0)
    real_nodes.delete(*real_nodes.names[::3])
    wait_reason(kubectl, types[0], "NodeNotFound", status="Unknown")
    scale(kubectl, types[0], 1)
    wait_ready(kubectl, types[0])
    kubectl("delete", "kng", types[1])
    eventually(lambda: group_of(kubectl, types[1]), describe="it is derived again")


def test_both_static_over_live(
    operator: Process, provider: Any, kubectl: Kubectl, group_name: str, real_nodes: RealNodes
) -> None:
    mixed, static, live = (f"{group_name}-{part}" for part in ("mixed", "static", "live"))
    key = "example.com/pool"
    real_nodes.add(f"{group_name}-r1", labels={key: mixed, "from": "live", "not": "x"}, cpu=4)
    real_nodes.add(f"{group_name}-r2", labels={key: live}, cpu=8)
    bare = template("m", labels={key: mixed, "over": "it", "not": None})  # type: ignore[dict-item]
    del bare["status"]
    provider.templates(bare, template("s", labels={key: static}, cpu=16))
    provider.configure_for(key, read="both")
    for name, cpu in ((mixed, "4"), (static, "16"), (live, "8")):
        scale_when_there(kubectl, name, 1)
        wait_ready(kubectl, name)
        assert cpu_of(kubectl, name) == cpu
    labels = resolved(kubectl, mixed)["metadata"]["labels"]
    assert (labels["from"], labels["over"], "not" in labels) == ("live", "it", False)


def scale_when_there(kubectl: Kubectl, name: str, replicas: int) -> None:
    eventually(lambda: group_of(kubectl, name), describe=f"{name} is derived")
    scale(kubectl, name, replicas)
