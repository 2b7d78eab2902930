"""What a pasted node loses, whole as `kubectl get node -o yaml` prints it, and what it keeps.

The samples are nodes of EKS (with Karpenter), GKE, AKS and kubeadm, each in some trouble.

- nothing by which the machine is known, or that is its state or history, survives anywhere
- what the nodes of its group have in common survives: type, zone, pool, resources, ordinary taints
- the images stay where they are asked for
- what was given is never changed, and what is clean stays as it is

The rules one by one are in test_core_cleaning_rules.py, what holds for every node of the corpus in
test_core_corpus.py.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.core.cleaning import clean_node

FIELD = "spec.template.node"
CORPUS = Path(__file__).parents[1] / "corpus"
SAMPLES = {
    "eks": "eks-karpenter-disrupted",
    "gke": "gke-scaling-down",
    "aks": "aks-spot-starting",
    "kubeadm": "kubeadm-control-plane",
}
CLOUDS = tuple(SAMPLES)

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
    node = yaml.safe_load((CORPUS / f"{SAMPLES[cloud]}.yaml").read_text())
    assert isinstance(node, dict)
    return node


def clean(node: dict[str, Any]) -> dict[str, Any]:
    return clean_node(node, field=FIELD)


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


@pytest.mark.parametrize("cloud", CLOUDS)
def test_images_stay_as_they_are_where_they_are_asked_for(cloud: str) -> None:
    node = sample(cloud)
    kept = clean_node(node, field=FIELD, keep_images=True)
    assert kept["status"].pop("images") == node["status"]["images"]
    assert kept == clean(node)


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
