"""Nodes of another cluster, as groups."""

import copy
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.importing.nodes.grouping import Grouped, Nodes
from kwok_operator.importing.nodes.prices import Prices
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.binding import NAME_FIELD, bind_to_groups, require
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.cleaning import clean_node
from kwok_operator.nodegroups.template import resolve
from kwok_operator.schema.check import check_group
from tests.corpusnodes import NAMES, NODES, damaged_nodes

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TYPE = "node.kubernetes.io/instance-type"
READY = [{"type": "Ready", "status": "True"}]
DROPPED = {
    "eks-karpenter-disrupted": Reason.NODE_TERMINATING,
    "k3s-server": Reason.CONTROL_PLANE_NODE,
    "kind-control-plane": Reason.CONTROL_PLANE_NODE,
    "kubeadm-control-plane": Reason.CONTROL_PLANE_NODE,
}


def node(name: str = "a", **parts: Any) -> dict[str, Any]:
    """A node that is well; labels, annotations, taints, cpu, memory ... as parts of it."""
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110", **parts.get("capacity", {})}
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **parts.get("labels", {})},
            "annotations": parts.get("annotations", {}),
            **parts.get("metadata", {}),
        },
        "spec": {"taints": parts.get("taints", []), **parts.get("spec", {})},
        "status": {
            "capacity": capacity,
            "allocatable": {**capacity, **parts.get("allocatable", {})},
            "conditions": parts.get("conditions", READY),
        },
    }


def grouped(*bodies: Any, **terms: Any) -> Grouped:
    nodes = Nodes()
    for body in bodies:
        nodes.add(copy.deepcopy(body))
    return nodes.finish(**terms)


def sizes(found: Grouped) -> dict[str, int]:
    return {m["metadata"]["name"]: m["spec"]["targetSize"] for m in found.manifests}


def groups_of(found: Grouped) -> dict[str, str]:
    return {n: g for (key, n), groups in found.places.items() if key == NAME_FIELD for g in groups}


def told(found: Grouped, reason: Reason) -> list[tuple[str, str, int]]:
    return [(n.ref.name, n.field, n.count) for n in found.notes if n.reason is reason]


def resolved(template: dict[str, Any]) -> dict[str, Any]:
    return resolve(Template.model_validate(template), guard=GuardTaint())


def amounts(resources: dict[str, Any]) -> dict[str, Any]:
    """Without those of which there is none."""
    return {k: amount for k, v in resources.items() if (amount := parse_quantity(v))}


def taints(of: dict[str, Any]) -> list[tuple[str, str, str]]:
    return sorted((t["key"], t.get("value", ""), t["effect"]) for t in of["spec"]["taints"])


def is_whole(found: Grouped) -> None:
    """Every node is in one group, or told; nothing is refused by an API server."""
    for manifest in found.manifests:
        assert check_group(manifest) == []
        resolved(manifest["spec"]["template"])
    of_groups = sizes(found)
    assert len(of_groups) == len(found.manifests)
    gone = sum(note.count for note in found.notes if note.dropped)
    assert sum(of_groups.values()) + gone == found.read
    members = list(groups_of(found).values())
    assert {name: members.count(name) for name in members} == of_groups


def test_the_corpus_as_one_cluster() -> None:
    found = grouped(*NODES.values())
    is_whole(found)
    gone = {note.ref.name: note.reason for note in found.notes if note.dropped}
    assert gone == {NODES[name]["metadata"]["name"]: why for name, why in DROPPED.items()}
    assert sizes(found).keys() >= {"general", "m6i.large", "default-pool", "dc2-md-0", "ci-spot"}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in DROPPED])
def test_the_nodes_of_a_group_are_what_the_real_one_was(name: str) -> None:
    found = grouped(NODES[name])
    is_whole(found)
    (manifest,) = found.manifests
    again = resolved(manifest["spec"]["template"])
    real = resolved({"node": clean_node(NODES[name], field="node")})
    assert (
        again["metadata"]["labels"]
        | {
            # Every node gets these two.
            "beta.kubernetes.io/arch": again["metadata"]["labels"]["kubernetes.io/arch"],
            "beta.kubernetes.io/os": again["metadata"]["labels"]["kubernetes.io/os"],
        }
        == real["metadata"]["labels"]
    )
    assert taints(again) == taints(real)
    for part in ("capacity", "allocatable"):
        assert amounts(again["status"][part]) == amounts(real["status"][part])


KINDS = st.sampled_from(
    [
        node(labels={ZONE: zone, TYPE: kind, **pool})
        for zone in ("a", "b")
        for kind in ("m5.large", "m5.xlarge")
        for pool in (
            {},
            {"eks.amazonaws.com/nodegroup": "web"},
            {"karpenter.sh/nodepool": "web"},
            {"karpenter.sh/nodepool": "web", "karpenter.sh/capacity-type": "spot"},
            {"team": "x"},
        )
    ]
)


@given(
    bodies=st.lists(KINDS | damaged_nodes() | st.integers() | st.just({"metadata": {}})),
    seed=st.integers(),
    by=st.sampled_from([[], ["team"], [TYPE, "team"]]),
)
@settings(deadline=None, max_examples=60)
def test_whatever_there_is_in_any_order(bodies: list[Any], seed: int, by: list[str]) -> None:
    bodies = [copy.deepcopy(body) for body in bodies]
    for number, body in enumerate(bodies):
        if (
            isinstance(body, dict)
            and isinstance(metadata := body.get("metadata"), dict)
            and metadata
        ):
            metadata["name"] = f"node-{number}"
    found = grouped(*bodies, group_by=by)
    is_whole(found)
    assert found.read == len(bodies)
    random.Random(seed).shuffle(bodies)
    assert grouped(*bodies, group_by=by) == found


@pytest.mark.parametrize(
    ("parts", "group"),
    [
        ({"labels": {"eks.amazonaws.com/nodegroup": "web"}}, "web"),
        ({"labels": {"alpha.eksctl.io/nodegroup-name": "web"}}, "web"),
        ({"labels": {"cloud.google.com/gke-nodepool": "web"}}, "web"),
        ({"labels": {"kubernetes.azure.com/agentpool": "web", "agentpool": "x"}}, "web"),
        ({"labels": {"karpenter.sh/nodepool": "web"}}, "web"),
        ({"labels": {"kops.k8s.io/instancegroup": "web"}}, "web"),
        ({"labels": {"doks.digitalocean.com/node-pool": "web"}}, "web"),
        ({"labels": {"oke.oraclecloud.com/pool.name": "web"}}, "web"),
        ({"labels": {"alibabacloud.com/nodepool-id": "np1"}}, "np1"),
        ({"labels": {"kwok-operator.io/node-group": "web"}}, "web"),
        (
            {
                "labels": {"eks.amazonaws.com/nodegroup": "real"},
                "annotations": {"cluster-autoscaler.kwok.nodegroup/name": "fake"},
            },
            "fake",
        ),
        (
            {
                "annotations": {
                    "cluster.x-k8s.io/owner-kind": "MachineSet",
                    "cluster.x-k8s.io/owner-name": "md-0-x7k4p",
                }
            },
            "md-0",
        ),
        (
            {
                "annotations": {
                    "cluster.x-k8s.io/owner-kind": "MachinePool",
                    "cluster.x-k8s.io/owner-name": "mp-x7k4p",
                }
            },
            "mp-x7k4p",
        ),
        (
            {"annotations": {"machine.openshift.io/machine": "machines/infra-1c-7mz4q"}},
            "infra-1c",
        ),
        ({"labels": {TYPE: "m5.large"}}, "m5.large"),
        ({}, "4cpu-16gi"),
        ({"labels": {"eks.amazonaws.com/nodegroup": "Web_1"}}, "web-1-sp2mr"),
    ],
)
def test_what_names_a_group(parts: dict[str, Any], group: str) -> None:
    assert list(sizes(grouped(node(**parts)))) == [group]


def in_pool(name: str, **labels: str) -> dict[str, Any]:
    return node(name, labels={"eks.amazonaws.com/nodegroup": "web", **labels})


def test_a_group_a_zone_where_zones_differ() -> None:
    zone_of_old = {"failure-domain.beta.kubernetes.io/zone": "eu-1b"}
    found = grouped(
        in_pool("a", **{ZONE: "eu-1a"}),
        in_pool("b", **zone_of_old),
        in_pool("c", **{ZONE: "eu-1a"}),
    )
    assert sizes(found) == {"web-eu-1a": 2, "web-eu-1b": 1}
    assert groups_of(found) == {"a": "web-eu-1a", "b": "web-eu-1b", "c": "web-eu-1a"}
    assert sizes(grouped(in_pool("a", **{ZONE: "eu-1a"}))) == {"web": 1}
    found = grouped(in_pool("a", **{ZONE: "eu-1a"}), in_pool("b"))
    assert sizes(found) == {"web-eu-1a": 1, "web": 1}


def test_pools_of_karpenter_mix_kinds_of_nodes() -> None:
    def of(name: str, kind: str, capacity: str) -> dict[str, Any]:
        labels = {
            "karpenter.sh/nodepool": "web",
            TYPE: kind,
            "karpenter.sh/capacity-type": capacity,
        }
        return node(name, labels=labels)

    found = grouped(
        of("a", "m5.large", "spot"), of("b", "m5.large", "on-demand"), of("c", "c5.large", "spot")
    )
    assert set(sizes(found)) == {"web-m5.large-spot", "web-m5.large-on-demand", "web-c5.large-spot"}


def test_groups_by_the_keys_of_group_by() -> None:
    bodies = (
        in_pool("a", team="red", tier="1"),
        in_pool("b", team="red"),
        node("c", annotations={"tier": "1"}),
        in_pool("d"),
    )
    assert sizes(grouped(*bodies, group_by=["team"])) == {"red": 2, "web": 1, "4cpu-16gi": 1}
    assert sizes(grouped(*bodies, group_by=["team", "tier"])) == {
        "red-1": 1,
        "red": 1,
        "1": 1,
        "web": 1,
    }


def test_keys_that_no_node_has_are_reported() -> None:
    found = grouped(in_pool("a", team="red"), group_by=["taem", "team"])
    assert told(found, Reason.NO_SUCH_KEY) == [("", "metadata.labels[taem]", 1)]


def test_by_shape_nodes_that_are_alike_are_one_group() -> None:
    def same(number: int, **parts: Any) -> dict[str, Any]:
        memory = f"{16_000_000 + number * 3_000}Ki"
        labels = {"rack-unit": str(number), **parts.pop("labels", {})}
        capacity = {"memory": memory, **parts.pop("capacity", {})}
        return node(f"node-{number}", capacity=capacity, labels=labels, **parts)

    alike = [same(number) for number in range(6)]
    assert list(sizes(grouped(*alike)).values()) == [6]
    for other in (
        same(6, labels={"pool": "x"}),
        same(6, taints=[{"key": "x", "effect": "NoSchedule"}]),
        same(6, capacity={"nvidia.com/gpu": "1"}),
        same(6, capacity={"cpu": "8"}),
        same(6, capacity={"memory": "17000000Ki"}),
        same(6, labels={"kubernetes.io/arch": "arm64"}),
        same(6, labels={TYPE: "m5.large"}),
    ):
        assert sorted(sizes(grouped(*alike, other)).values()) == [1, 6]


def test_by_shape_a_place_is_no_shape() -> None:
    region = "topology.kubernetes.io/region"
    bodies = [node(z, labels={ZONE: f"eu-1{z}", region: f"eu-{z}"}) for z in "ab"]
    assert sizes(grouped(*bodies)) == {"4cpu-16gi-eu-1a": 1, "4cpu-16gi-eu-1b": 1}


def test_few_nodes_with_labels_of_their_own_are_groups_of_their_own() -> None:
    bodies = [node(f"node-{pool}", labels={"pool": pool}) for pool in "abc"]
    assert list(sizes(grouped(*bodies)).values()) == [1, 1, 1]


def test_the_template_is_the_most_common_node_and_differences_are_reported() -> None:
    found = grouped(
        in_pool("a", image="new", only="here"),
        in_pool("b", image="old"),
        in_pool("c", image="old"),
        in_pool("d", image="new", rack="1"),
        in_pool("e", image="old", rack="2"),
    )
    (manifest,) = found.manifests
    labels = manifest["spec"]["template"]["shape"]["labels"]
    assert labels == {"eks.amazonaws.com/nodegroup": "web", "image": "old"}
    assert told(found, Reason.NODES_DIFFER) == [
        ("web", "metadata.labels[image]", 2),
        ("web", "metadata.labels[only]", 1),
        ("web", "metadata.labels[rack]", 2),
    ]


def test_racks_of_one_pool_are_reported_with_the_flags_that_keep_them_apart() -> None:
    racks = {f"{rack}{number}": rack for rack in "ab" for number in range(3)}
    bodies = [in_pool(name, rack=rack, serial=name) for name, rack in racks.items()]
    found = grouped(*bodies)
    (note,) = (note for note in found.notes if note.reason is Reason.SEVERAL_RACKS)
    assert (note.field, note.count) == ("metadata.labels[rack]", 3)
    assert note.detail == "--group-by eks.amazonaws.com/nodegroup --group-by rack"
    apart = grouped(*bodies, group_by=note.detail.split()[1::2])
    assert sizes(apart) == {"web-a": 3, "web-b": 3}
    assert told(apart, Reason.SEVERAL_RACKS) == []


def test_what_most_nodes_lack_the_template_lacks() -> None:
    found = grouped(*map(in_pool, "abc"), in_pool("d", zz="1"), in_pool("e", zz="1"))
    assert "zz" not in found.manifests[0]["spec"]["template"]["shape"]["labels"]
    assert told(found, Reason.NODES_DIFFER) == [("web", "metadata.labels[zz]", 2)]


def test_differences_in_every_part_are_reported() -> None:
    other = node(
        "c",
        labels={"eks.amazonaws.com/nodegroup": "web"},
        annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
        taints=[{"key": "x", "effect": "NoSchedule"}],
        capacity={"cpu": "8"},
        allocatable={"memory": "15Gi"},
    )
    found = grouped(in_pool("a"), in_pool("b"), other)
    assert [field for _, field, _ in told(found, Reason.NODES_DIFFER)] == [
        "metadata.annotations[cluster-autoscaler.kubernetes.io/scale-down-disabled]",
        "spec.taints",
        "status.allocatable[cpu]",
        "status.allocatable[memory]",
        "status.capacity[cpu]",
    ]  # fmt: skip


def test_what_a_shape_cannot_say_stands_in_the_node() -> None:
    taint = [{"key": f"key-{n}", "effect": "NoSchedule"} for n in range(70)]
    body = node(
        capacity={"attachable-volumes-x": "39", "example.com/nic": "2"},
        allocatable={"cpu": "3500m", "example.com/nic": "1"},
        labels={f"label-{n}": "x" for n in range(140)},
        annotations={
            "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
            "karpenter.sh/do-not-disrupt": "true",
            "karpenter.sh/nodepool-hash": "1",
            "note": "private",
        },
        taints=taint,
    )
    found = grouped(body)
    is_whole(found)
    template = found.manifests[0]["spec"]["template"]
    assert template["shape"]["reserved"] == {"cpu": "500m"}
    again = resolved(template)
    assert set(again["metadata"]["annotations"]) == {
        "cluster-autoscaler.kubernetes.io/scale-down-disabled",
        "karpenter.sh/do-not-disrupt",
    }
    assert again["status"]["allocatable"]["example.com/nic"] == "1"
    assert again["status"]["capacity"]["attachable-volumes-x"] == "39"
    assert len(again["spec"]["taints"]) == 71
    assert sum(key.startswith("label-") for key in again["metadata"]["labels"]) == 140


@pytest.mark.parametrize(
    "allocatable",
    [{"cpu": "5"}, {"pods": "50"}, {"cpu": "3.9999999995"}, {"memory": "3"}, {"x.io/nic": "2"}],
)
def test_what_can_be_allocated_is_exact(allocatable: dict[str, str]) -> None:
    body = node(capacity={"ephemeral-storage": "100Gi"}, allocatable=allocatable)
    found = grouped(body)
    is_whole(found)
    (manifest,) = found.manifests
    status = resolved(manifest["spec"]["template"])["status"]
    assert amounts(status["allocatable"]) == amounts(body["status"]["allocatable"])
    assert amounts(body["status"]["capacity"]).items() <= amounts(status["capacity"]).items()


def test_a_template_says_no_more_than_it_must() -> None:
    usual = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    more = grouped(node(labels=usual, capacity={"hugepages-2Mi": "0"}, allocatable={"cpu": "5"}))
    assert more.manifests[0]["spec"]["template"] == {
        "shape": {"memory": "16Gi", "maxPods": 110},
        "node": {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "5"}}},
    }


def test_the_architecture_that_only_the_kubelet_has() -> None:
    body = node()
    body["status"]["nodeInfo"] = {"architecture": "arm64", "operatingSystem": "linux"}
    labels = resolved(grouped(body).manifests[0]["spec"]["template"])["metadata"]["labels"]
    assert labels["kubernetes.io/arch"] == "arm64"


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"conditions": [{"type": "Ready", "status": "Unknown"}]}, Reason.NODE_NOT_READY),
        ({"conditions": []}, Reason.NODE_NOT_READY),
        ({"spec": {"unschedulable": True}}, Reason.NODE_CORDONED),
        (
            {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            Reason.NODE_SURPLUS,
        ),
        (
            {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "NoSchedule"}]},
            Reason.NODE_SURPLUS,
        ),
    ],
)
def test_unwell_nodes_count_and_are_reported(parts: dict[str, Any], reason: Reason) -> None:
    well = node("a", labels={TYPE: "m5.large"})
    found = grouped(well, node("b", labels={TYPE: "m5.large"}, **parts))
    assert sizes(found) == {"m5.large": 2}
    states = [note for note in found.notes if note.field == "spec.targetSize"]
    assert states == [Note(states[0].ref, reason, "spec.targetSize", "b", 1)]
    assert told(found, Reason.NODES_DIFFER) == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (node(metadata={"deletionTimestamp": "2026-03-03T19:47:28Z"}), Reason.NODE_TERMINATING),
        (
            node(taints=[{"key": "node-role.kubernetes.io/master", "effect": "NoExecute"}]),
            Reason.CONTROL_PLANE_NODE,
        ),
        (node(capacity={"cpu": "0"}), Reason.NO_CAPACITY),
        (node(capacity={"memory": "a lot"}), Reason.NO_CAPACITY),
        (node(taints="none"), Reason.NO_CAPACITY),
        ({"metadata": {"name": "a"}}, Reason.NO_CAPACITY),
        ({"metadata": {"name": "../a"}}, Reason.NO_OBJECT),
        (None, Reason.NO_OBJECT),
    ],
)
def test_what_no_group_can_be_made_of(body: Any, reason: Reason) -> None:
    found = grouped(body)
    is_whole(found)
    assert [(note.reason, note.dropped) for note in found.notes] == [(reason, True)]


def test_a_control_plane_that_takes_pods_is_a_node_as_any_other() -> None:
    role = "node-role.kubernetes.io/control-plane"
    body = node(labels={role: ""}, taints=[{"key": role, "effect": "PreferNoSchedule"}])
    found = grouped(body)
    assert sizes(found) == {"4cpu-16gi": 1}
    assert told(found, Reason.LABEL_DROPPED) == [("4cpu-16gi", f"metadata.labels[{role}]", 1)]


def test_a_node_without_capacity_counts_in_its_pool() -> None:
    found = grouped(in_pool("a"), {"metadata": in_pool("b")["metadata"]})
    assert sizes(found) == {"web": 2}
    assert told(found, Reason.NODES_DIFFER) == []


def test_a_node_that_is_read_again_takes_the_place_of_the_former() -> None:
    found = grouped(in_pool("a"), node("a", labels={TYPE: "m5.large"}))
    assert (sizes(found), found.read) == ({"m5.large": 1}, 1)


def test_labels_that_a_machine_takes_with_it_are_reported() -> None:
    found = grouped(in_pool("a", **{"alpha.eksctl.io/instance-id": "i-1"}), in_pool("b"))
    lost = [("web", "metadata.labels[alpha.eksctl.io/instance-id]", 1)]
    assert told(found, Reason.LABEL_DROPPED) == lost


OF_MACHINES = {
    "kubernetes.io/hostname": st.sampled_from(["ip-10-0-0-1", "ip-10-0-0-2"]),
    "topology.topolvm.io/node": st.sampled_from(["ip-10-0-0-1", "ip-10-0-0-2"]),
    "openebs.io/nodename": st.sampled_from(["a", "b", "c", "d"]),
    "rack": st.sampled_from(["r1", "r2", "r3", "r4", "r5"]),
    "disk": st.sampled_from(["ssd", "hdd"]),
    ZONE: st.sampled_from(["eu-1a", "eu-1b"]),
    "eks.amazonaws.com/nodegroup": st.sampled_from(["web", "db"]),
    "kwok-operator.io/node-group": st.sampled_from(["web", "db"]),
}


@given(
    labels=st.lists(st.fixed_dictionaries({}, optional=OF_MACHINES), min_size=1, max_size=4),
    key=st.sampled_from(["metadata.name", *OF_MACHINES]),
    data=st.data(),
    as_selector=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_labels_that_select_a_node_select_its_group(
    labels: list[dict[str, str]], key: str, data: st.DataObject, as_selector: bool
) -> None:
    """Host names and names may differ, and labels of machines don't come along."""
    nodes = [
        node(metadata={"name": f"node-000{n}", "uid": f"u{n}", "labels": each})
        for n, each in enumerate(labels)
    ]
    found = grouped(*nodes)
    texts = [{"metadata.name": f"node-000{n}", **each} for n, each in enumerate(labels)]
    values = {each["metadata.name"]: each[key] for each in texts if key in each}
    value = data.draw(st.sampled_from(sorted(values.values()) or [""]))
    shape: dict[str, Any] = {"nodeSelector": {key: value}}
    if not as_selector or key == "metadata.name":
        shape = {}
        require(shape, [[{"key": key, "operator": "In", "values": [value]}]])
    bind_to_groups(shape, places=found.places, ref=Ref("Pod", "", "a"))
    wanted = {groups_of(found)[name] for name in values if values[name] == value}
    there = {
        manifest["metadata"]["name"]: resolved(manifest["spec"]["template"])["metadata"]["labels"]
        | {"kwok-operator.io/node-group": manifest["metadata"]["name"]}
        for manifest in found.manifests
    }
    fits = {name for name in there if is_asked_for(shape, there[name])}
    assert (fits & wanted) or not values, shape


def is_asked_for(shape: dict[str, Any], labels: dict[str, str]) -> bool:
    affinity = shape.get("affinity", {}).get("nodeAffinity", {})
    (term,) = affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [{}])
    asked = [{"key": k, "values": [v]} for k, v in shape.get("nodeSelector", {}).items()]
    asked += [*term.get("matchExpressions", ()), *term.get("matchFields", ())]
    return bool(asked) and all(labels.get(each["key"]) in each["values"] for each in asked)


def test_of_a_taint_only_what_is_known_is_kept() -> None:
    taint = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}
    odd = {**taint, "timeAdded": "2026-01-01T00:00:00Z", "new": "canary"}
    (made,) = grouped(node(taints=[odd])).manifests
    assert made["spec"]["template"]["shape"]["taints"] == [taint]


def test_prices() -> None:
    prices = Prices({("m5.large", "", ""): "0.1", ("m5.large", "b", ""): "0.2"})
    bodies = [
        node("a", labels={TYPE: "m5.large", ZONE: "a"}),
        node("b", labels={TYPE: "m5.large", ZONE: "b"}),
        node("c"),
    ]
    found = grouped(*bodies, prices=prices)
    hourly = [m["spec"].get("price", {}).get("hourly") for m in found.manifests]
    assert hourly == [None, "0.1", "0.2"]
    assert told(found, Reason.NO_PRICE) == [("4cpu-16gi", "spec.price", 1)]
    assert told(grouped(*bodies), Reason.NO_PRICE) == []


def test_what_is_kept_of_thousands_of_nodes_is_little() -> None:
    nodes = Nodes()
    for number in range(200):
        nodes.add(json.loads(json.dumps(in_pool(f"node-{number}"))))
    assert len({id(each.kept) for each in nodes._nodes.values()}) == 1
