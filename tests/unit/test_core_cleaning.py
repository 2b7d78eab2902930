"""What a node that is pasted as `kubectl get node -o yaml` prints it loses, and what it keeps.

The samples in data/ are whole nodes of EKS (with Karpenter), GKE, AKS and kubeadm.

- nothing by which the machine is known, or that is its state or history, survives anywhere
- what the nodes of its group have in common survives: type, zone, pool, resources, ordinary taints
- labels and annotations of one instance go by their key, or by a value that is the machine's own
- a node written by hand has no machine: a label that says what its name says stays
- taints that come and go are left out, two of one key and effect become one
- what is misspelt stays, for the API server to name; what can't be worked with is a TemplateError
- what was given is never changed
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.core.cleaning import clean_node, merge_taints
from kwok_operator.errors import TemplateError

FIELD = "spec.template.node"
DATA = Path(__file__).parent / "data"
CLOUDS = ("eks", "gke", "aks", "kubeadm")

# What no other node has. Written down here: taken from the samples by a program, the program could
# make the same mistake as the one that is tested.
OF_THE_MACHINE = {
    "eks": (
        "ip-10-0-41-137", "10.0.41.137", "54.78.21.190", "54-78-21-190", "i-0f3c1a7be94d20c58",
        "3b7a1f52", "48210377", "gpu-7x2kq", "karpenter.sh/termination", "5d0f3e36",
        "ec2d6f0b1c4e8a57", "ec2d6f0b-1c4e", "10250", "amazon-k8s-cni", "NodeStatusUnknown",
    ),
    "gke": (
        "6f1c2d3e-x7q9", "10.128.0.37", "34.71.202.118", "4825467123456789012", "10.4.7.0",
        "c0f9d1b4", "1792837465", "0b1d7f8a", "5a1f0e2d", "2147483648", "fieldsV1", "10250",
        "calico", "KernelDeadlock",
    ),
    "aks": (
        "vmss00000k", "10.224.0.62", "10.244.5.0", "fd12:3456", "virtualMachines/20", "7d6b2c1e",
        "90114822", "0c4f8a92", "e1c8d4fa", "9f8e7d6c", "27c3a4b5", "pvc-1d0b7f3e", "kube-proxy",
        "10250", "VMEventScheduled", "last-applied-configuration",
    ),
    "kubeadm": (
        "rack4-cp-1", "192.168.40.11", "10.244.0", "d2:5f:0e:7c:91:3a", "f2b0a9d7", "5512093",
        "1a2f7c44", "0d1c2b3a", "4c4c4544", "9x8lm", "containerd.sock", "etcd:3.6.4", "10250",
        "control-plane", "master",
    ),
}  # fmt: skip

LABELS_OF_THE_GROUP = {
    "eks": {
        "beta.kubernetes.io/instance-type": "g5.12xlarge",
        "k8s.io/cloud-provider-aws": "5553ae84a0d29114870f67bbabd07d44",
        "karpenter.k8s.aws/instance-gpu-name": "a10g",
        "karpenter.sh/nodepool": "gpu",
        "node.kubernetes.io/instance-type": "g5.12xlarge",
        "topology.ebs.csi.aws.com/zone": "eu-west-1b",
        "topology.k8s.aws/zone-id": "euw1-az3",
        "topology.kubernetes.io/region": "eu-west-1",
        "topology.kubernetes.io/zone": "eu-west-1b",
    },
    "gke": {
        "cloud.google.com/gke-nodepool": "batch",
        "cloud.google.com/machine-family": "n2",
        "cloud.google.com/private-node": "false",
        "node.kubernetes.io/instance-type": "n2-standard-8",
        "topology.gke.io/zone": "us-central1-c",
        "topology.kubernetes.io/zone": "us-central1-c",
    },
    "aks": {
        "agentpool": "spot",
        "kubernetes.azure.com/agentpool": "spot",
        "kubernetes.azure.com/cluster": "MC_search_prod_westeurope",
        "kubernetes.azure.com/scalesetpriority": "spot",
        "kubernetes.io/arch": "arm64",
        "node.kubernetes.io/instance-type": "Standard_D4ps_v5",
        "team": "search",
        "topology.kubernetes.io/zone": "westeurope-2",
    },
    "kubeadm": {
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/storage": "",
        "topology.kubernetes.io/zone": "rack4",
    },
}

TAINTS_OF_THE_GROUP = {
    "eks": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
    "gke": [{"key": "dedicated", "value": "batch", "effect": "NoSchedule"}],
    "aks": [
        {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}
    ],
    "kubeadm": [{"key": "storage-only", "effect": "NoSchedule"}],
}


def sample(cloud: str) -> dict[str, Any]:
    node = yaml.safe_load((DATA / f"node-{cloud}.yaml").read_text())
    assert isinstance(node, dict)
    return node


def clean(node: dict[str, Any]) -> dict[str, Any]:
    return clean_node(node, field=FIELD)


def pasted(**metadata: Any) -> dict[str, Any]:
    """A node as the API server has it: with a uid, and a hostname label that is its name."""
    labels = {"kubernetes.io/hostname": "worker-17", **metadata.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "worker-17", "uid": "3b7a1f52-09c5", "labels": labels, **metadata},
        "spec": {"providerID": "cloud:///zone-a/i-0f3c1a7b"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.41.137"}]},
    }


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nothing_of_the_machine_survives(cloud: str) -> None:
    before, after = json.dumps(sample(cloud)), json.dumps(clean(sample(cloud)))
    for trace in OF_THE_MACHINE[cloud]:
        assert trace in before, f"the sample lacks {trace}"
        assert trace not in after
    assert not re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", after), "a time of day"


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_is_left_of_a_pasted_node_has_only_these_parts(cloud: str) -> None:
    node = clean(sample(cloud))
    assert set(node) == {"metadata", "spec", "status"}
    assert set(node["metadata"]) == {"labels", "annotations"}
    assert set(node["spec"]) == {"taints"}
    assert set(node["status"]) <= {
        "allocatable", "capacity", "nodeInfo", "features", "runtimeHandlers"
    }  # fmt: skip
    assert set(node["status"]["nodeInfo"]) == {
        "architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
        "kubeletVersion", "operatingSystem", "osImage",
    }  # fmt: skip


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_labels_of_the_group_survive(cloud: str) -> None:
    assert clean(sample(cloud))["metadata"]["labels"].items() >= LABELS_OF_THE_GROUP[cloud].items()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_label_goes_but_those_of_the_machine_and_of_the_control_plane(cloud: str) -> None:
    before = sample(cloud)["metadata"]["labels"]
    gone = before.keys() - clean(sample(cloud))["metadata"]["labels"].keys()
    assert (
        gone
        == {
            "eks": {"kubernetes.io/hostname", "alpha.eksctl.io/instance-id"},
            "gke": {"kubernetes.io/hostname"},
            "aks": {"kubernetes.io/hostname"},
            "kubeadm": {
                "kubernetes.io/hostname",
                "topology.hostpath.csi/node",
                "node-role.kubernetes.io/control-plane",
                "node-role.kubernetes.io/etcd",
                "node-role.kubernetes.io/master",
            },
        }[cloud]
    )


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_taints_of_the_group_survive_alone(cloud: str) -> None:
    assert clean(sample(cloud))["spec"]["taints"] == TAINTS_OF_THE_GROUP[cloud]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_all_resources_survive(cloud: str) -> None:
    before, after = sample(cloud)["status"], clean(sample(cloud))["status"]
    assert after["capacity"] == before["capacity"]
    assert after["allocatable"] == before["allocatable"]


def test_annotations_that_hold_for_all_nodes_of_a_group_survive() -> None:
    annotations = clean(sample("gke"))["metadata"]["annotations"]
    assert annotations["node.gke.io/last-applied-node-taints"] == "dedicated=batch:NoSchedule"


@pytest.mark.parametrize(
    "key",
    [
        "kubernetes.io/hostname",
        "hostname",
        "alpha.eksctl.io/instance-id",
        "alibabacloud.com/ecs-instance-id",
        "container.googleapis.com/instance_id",
        "doks.digitalocean.com/node-id",
        "ibm-cloud.kubernetes.io/worker-id",
        "ibm-cloud.kubernetes.io/internal-ip",
        "ibm-cloud.kubernetes.io/external-ip",
        "k3s.io/hostname",
        "k3s.io/internal-ip",
        "node-name",
        "example.com/nodename",
        "example.com/machine-id",
        "topology.hostpath.csi/node",
    ],
)
def test_a_label_of_one_instance_goes_whatever_it_says(key: str) -> None:
    node = {"metadata": {"labels": {key: "x", "tier": "batch"}}}
    assert clean(node)["metadata"]["labels"] == {"tier": "batch"}


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/instance-type",
        "doks.digitalocean.com/node-pool-id",
        "karpenter.k8s.aws/instance-hypervisor",
        "topology.k8s.aws/zone-id",
        "example.com/hostname-policy",
        "node-role.kubernetes.io/worker",
        "kubernetes.io/role",
        "type",
    ],
)
def test_a_label_of_the_group_stays(key: str) -> None:
    assert clean({"metadata": {"labels": {key: "x"}}})["metadata"]["labels"] == {key: "x"}


@pytest.mark.parametrize(
    "value",
    ["worker-17", "10.0.41.137", "i-0f3c1a7b"],
    ids=["name", "address", "end-of-provider-id"],
)
def test_a_label_with_a_value_of_the_machine_goes_whatever_its_key(value: str) -> None:
    node = pasted(labels={"example.com/where": value, "example.com/pool": "worker"})
    assert clean(node)["metadata"]["labels"] == {"example.com/pool": "worker"}


def test_an_annotation_that_mentions_the_machine_goes() -> None:
    node = pasted(
        annotations={
            "csi.example.com/ids": '{"a":"i-0f3c1a7b"}',
            "example.com/routes": "via 10.0.41.137",
            "example.com/seen-as": "worker-17.example.com",
            "example.com/owner": "team batch",
        }
    )
    assert clean(node)["metadata"]["annotations"] == {"example.com/owner": "team batch"}


@pytest.mark.parametrize(
    "key",
    [
        "kubectl.kubernetes.io/last-applied-configuration",
        "csi.volume.kubernetes.io/nodeid",
        "alpha.kubernetes.io/provided-node-ip",
        "kubeadm.alpha.kubernetes.io/cri-socket",
        "metrics.k8s.io/resource-metrics-path",
        "cluster.x-k8s.io/machine",
        "projectcalico.org/IPv4Address",
        "flannel.alpha.coreos.com/public-ip",
        "network.cilium.io/ipv4-pod-cidr",
        "io.cilium.network.ipv4-health-ip",
        "k3s.io/node-args",
        "rke2.io/node-config-hash",
        "container.googleapis.com/instance_id",
    ],
)
def test_an_annotation_of_one_instance_goes_whatever_it_says(key: str) -> None:
    assert clean({"metadata": {"annotations": {key: "x"}}})["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    "key",
    [
        "kwok-operator.io/node-group",
        "kwok-operator.io/node-group-uid",
        "kwok-operator.io/template-hash",
        "cluster-autoscaler.kwok.nodegroup/name",
    ],
)
def test_what_says_whose_a_node_of_ours_is_is_not_copied(key: str) -> None:
    node = {"metadata": {"labels": {key: "other"}, "annotations": {key: "other"}}}
    assert clean(node)["metadata"] == {"labels": {}, "annotations": {}}


def test_a_label_that_says_what_a_node_written_by_hand_is_called_stays() -> None:
    # Such a name is its writer's, and often that of the group: no machine was ever called so.
    node = {
        "metadata": {
            "name": "gpu-pool-a",
            "labels": {"kubernetes.io/hostname": "gpu-pool-a", "example.com/pool": "gpu-pool-a"},
            "annotations": {"example.com/note": "for gpu-pool-a only"},
        }
    }
    assert clean(node)["metadata"] == {
        "labels": {"example.com/pool": "gpu-pool-a"},
        "annotations": {"example.com/note": "for gpu-pool-a only"},
    }


def test_a_short_name_is_not_looked_for_in_other_values() -> None:
    # "node1" is part of much that has nothing to do with the machine.
    node = pasted(annotations={"example.com/rack": "rack-1-node1x"})
    node["metadata"] |= {"name": "node1", "labels": {"kubernetes.io/hostname": "node1"}}
    assert clean(node)["metadata"]["annotations"] == {"example.com/rack": "rack-1-node1x"}


@pytest.mark.parametrize(
    "key",
    [
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "node-role.kubernetes.io/etcd",
        "karpenter.sh/disrupted",
        "karpenter.sh/unregistered",
    ],
)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_a_taint_that_comes_and_goes_is_left_out(key: str, effect: str) -> None:
    stays = {"key": "dedicated", "value": "gpu", "effect": effect}
    taints = [{"key": key, "value": "1", "effect": effect}, stays]
    assert clean({"spec": {"taints": taints}})["spec"]["taints"] == [stays]


def test_the_time_at_which_a_taint_was_added_is_dropped() -> None:
    taint = {"key": "a", "effect": "NoExecute", "timeAdded": "2026-03-02T17:31:07Z"}
    assert clean({"spec": {"taints": [taint]}})["spec"]["taints"] == [
        {"key": "a", "effect": "NoExecute"}
    ]


def test_of_two_taints_of_one_key_and_effect_the_later_stays() -> None:
    first = {"key": "a", "value": "1", "effect": "NoSchedule"}
    other = {"key": "a", "value": "2", "effect": "NoExecute"}
    again = {"key": "a", "value": "3", "effect": "NoSchedule"}
    assert merge_taints([first, other, again]) == [again, other]
    assert clean({"spec": {"taints": [first, other, again]}})["spec"]["taints"] == [again, other]


def test_what_is_misspelt_stays_for_the_strict_dry_run_to_name() -> None:
    node = {
        "metdata": {"labels": {"a": "b"}},
        "metadata": {"lables": {"a": "b"}},
        "spec": {"taint": [], "taints": [{"key": "a", "efect": "NoSchedule"}]},
        "status": {"capacty": {"cpu": "4"}, "nodeInfo": {"archtecture": "arm64"}},
    }
    cleaned = clean(node)
    assert cleaned["metdata"] == {"labels": {"a": "b"}}
    assert cleaned["metadata"]["lables"] == {"a": "b"}
    assert cleaned["spec"] == {"taint": [], "taints": [{"key": "a", "efect": "NoSchedule"}]}
    assert cleaned["status"]["capacty"] == {"cpu": "4"}
    assert cleaned["status"]["nodeInfo"] == {"archtecture": "arm64"}


def test_values_of_a_wrong_type_stay_for_the_dry_run_to_name() -> None:
    labels = {"a": 1, "b": True, "c": None, "d": ["x"]}
    cleaned = clean({"metadata": {"labels": labels, "annotations": labels}})
    assert cleaned["metadata"] == {"labels": labels, "annotations": labels}


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"kind": "NodeList", "items": []}, "kind"),
        ({"kind": None}, "kind"),
        ({"apiVersion": "v2"}, "apiVersion"),
        ({"metadata": []}, "metadata"),
        ({"metadata": "a"}, "metadata"),
        ({"spec": 1}, "spec"),
        ({"status": True}, "status"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
        ({"metadata": {"annotations": "a=b"}}, "metadata.annotations"),
        ({"status": {"nodeInfo": []}}, "status.nodeInfo"),
        ({"spec": {"taints": "a:NoSchedule"}}, "spec.taints"),
        ({"spec": {"taints": ["a:NoSchedule"]}}, "spec.taints"),
        ({"spec": {"taints": {"key": "a"}}}, "spec.taints"),
    ],
    ids=str,
)
def test_what_is_no_node_is_an_error_that_names_the_field(node: dict[str, Any], field: str) -> None:
    with pytest.raises(TemplateError) as refused:
        clean(node)
    assert refused.value.field == f"{FIELD}.{field}"
    assert str(refused.value).startswith(f"{FIELD}.{field}: ")


def test_a_node_that_nests_beyond_reason_is_an_error_and_not_a_crash() -> None:
    inner: dict[str, Any] = {}
    for _ in range(2_000):
        inner = {"a": inner}
    with pytest.raises(TemplateError, match="too deep"):
        clean({"status": inner})


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"labels": None, "annotations": None}, "status": {"nodeInfo": None}},
        {"spec": {"taints": None}, "status": {"addresses": None}},
        {"metadata": {"name": 7, "uid": ["x"]}, "spec": {"providerID": {}, "podCIDR": 1}},
        {"status": {"addresses": {"a": 1}, "nodeInfo": {"machineID": 5, "swap": {}}}},
        {"status": {"addresses": ["10.0.0.1", {"address": None}, {"type": []}]}},
    ],
    ids=["empty", "nulls", "deep-nulls", "no-taints", "odd-ids", "odd-status", "odd-addresses"],
)
def test_a_node_with_next_to_nothing_in_it_is_an_empty_one(node: dict[str, Any]) -> None:
    cleaned = clean(node)
    assert cleaned["metadata"] == {"labels": {}, "annotations": {}}
    assert cleaned["spec"] == {"taints": []}
    assert cleaned["status"] == {"nodeInfo": {}}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_what_was_given_is_not_changed(cloud: str) -> None:
    node = sample(cloud)
    before = copy.deepcopy(node)
    cleaned = clean(node)
    cleaned["metadata"]["labels"]["new"] = "x"
    cleaned["status"]["capacity"]["cpu"] = "1"
    assert node == before


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_clean_node_stays_as_it_is(cloud: str) -> None:
    # The resolved node is kept in status and may be cleaned again when it is pasted from there.
    once = clean(sample(cloud))
    assert clean(once) == once
