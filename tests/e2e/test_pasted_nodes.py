"""A node pasted into template.node as `kubectl get node -o yaml` prints it.

- of three managed clouds, of kubeadm, and one of our own: nothing of the one machine is left in the
  nodes or in status, and what describes its kind is
- a node that was lost, cordoned and about to be deleted makes nodes that pods run on
"""

import json
from typing import Any

import pytest
import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.groups import apply_group, group_of, nodes_of, status_of, wait_ready
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

GUARD = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}
DEDICATED = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}

EKS = """
apiVersion: v1
kind: Node
metadata:
  annotations:
    alpha.kubernetes.io/provided-node-ip: 192.168.57.201
    csi.volume.kubernetes.io/nodeid: '{"ebs.csi.aws.com":"i-0f6dbbd5a8b1c7e42"}'
    example.com/team: platform
    node.alpha.kubernetes.io/ttl: "0"
    volumes.kubernetes.io/controller-managed-attach-detach: "true"
  creationTimestamp: "2023-02-14T10:04:11Z"
  deletionGracePeriodSeconds: 0
  deletionTimestamp: "2023-02-15T09:24:11Z"
  finalizers: [karpenter.sh/termination]
  labels:
    alpha.eksctl.io/instance-id: i-0f6dbbd5a8b1c7e42
    alpha.eksctl.io/nodegroup-name: workers
    beta.kubernetes.io/instance-type: m5.2xlarge
    eks.amazonaws.com/nodegroup: workers
    eks.amazonaws.com/nodegroup-image: ami-0a1b2c3d4e5f60718
    kubernetes.io/arch: arm64
    kubernetes.io/hostname: ip-192-168-57-201.eu-west-1.compute.internal
    kubernetes.io/os: linux
    node.kubernetes.io/instance-type: m5.2xlarge
    topology.ebs.csi.aws.com/zone: eu-west-1b
    topology.kubernetes.io/region: eu-west-1
    topology.kubernetes.io/zone: eu-west-1b
  managedFields:
  - apiVersion: v1
    fieldsType: FieldsV1
    fieldsV1: {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {"f:status": {}}}}}
    manager: kubelet-on-that-machine
    operation: Update
    subresource: status
    time: "2023-02-15T09:21:44Z"
  name: ip-192-168-57-201.eu-west-1.compute.internal
  ownerReferences:
  - apiVersion: karpenter.sh/v1
    blockOwnerDeletion: true
    kind: NodeClaim
    name: default-x7k2p
    uid: 1f1de5c8-6f0e-4c6f-9d5e-0f3ad2b2c9aa
  resourceVersion: "1049238410"
  uid: 8d6c4a52-1c0b-4e65-a2a3-2f4b6c1d7e90
spec:
  podCIDR: 10.244.3.0/24
  podCIDRs: [10.244.3.0/24]
  providerID: aws:///eu-west-1b/i-0f6dbbd5a8b1c7e42
  taints:
  - {effect: NoSchedule, key: dedicated, value: batch}
  - {effect: NoSchedule, key: node.kubernetes.io/unreachable, timeAdded: "2023-02-15T09:23:01Z"}
  - {effect: NoExecute, key: node.kubernetes.io/unreachable, timeAdded: "2023-02-15T09:23:06Z"}
  - {effect: NoSchedule, key: node.kubernetes.io/not-ready}
  - {effect: NoSchedule, key: node.kubernetes.io/unschedulable}
  - {effect: NoSchedule, key: node.cloudprovider.kubernetes.io/uninitialized, value: "true"}
  - {effect: NoSchedule, key: ToBeDeletedByClusterAutoscaler, value: "1676452921"}
  - {effect: PreferNoSchedule, key: DeletionCandidateOfClusterAutoscaler, value: "1676452321"}
  unschedulable: true
status:
  addresses:
  - {address: 192.168.57.201, type: InternalIP}
  - {address: 34.241.17.83, type: ExternalIP}
  - {address: ip-192-168-57-201.eu-west-1.compute.internal, type: InternalDNS}
  - {address: ip-192-168-57-201.eu-west-1.compute.internal, type: Hostname}
  allocatable:
    {attachable-volumes-aws-ebs: "25", cpu: 7910m, memory: 31482140Ki, pods: "58"}
  capacity: {attachable-volumes-aws-ebs: "25", cpu: "8", memory: 32498972Ki, pods: "58"}
  conditions:
  - lastHeartbeatTime: "2023-02-15T09:21:44Z"
    lastTransitionTime: "2023-02-15T09:23:01Z"
    message: Kubelet stopped posting node status.
    reason: NodeStatusUnknown
    status: Unknown
    type: Ready
  - lastHeartbeatTime: "2023-02-15T09:21:44Z"
    lastTransitionTime: "2023-02-15T09:21:44Z"
    reason: KubeletHasDiskPressure
    status: "True"
    type: DiskPressure
  daemonEndpoints: {kubeletEndpoint: {Port: 10250}}
  images:
  - names: [602401143452.dkr.ecr.eu-west-1.amazonaws.com/amazon-k8s-cni:v1.12.2]
    sizeBytes: 108423791
  nodeInfo:
    architecture: arm64
    bootID: 3f0f8a4e-53a0-4f2c-8d4e-9b8f0a6f1b11
    containerRuntimeVersion: containerd://1.6.6
    kernelVersion: 5.10.165-143.735.amzn2.x86_64
    kubeProxyVersion: v1.25.6-eks-48e63af
    kubeletVersion: v1.25.6-eks-48e63af
    machineID: ec2a9c1d8f0b4e6d9c1f7a2b3c4d5e6f
    operatingSystem: linux
    osImage: Amazon Linux 2
    systemUUID: ec2a9c1d-8f0b-4e6d-9c1f-7a2b3c4d5e6f
  volumesAttached:
  - {devicePath: "", name: kubernetes.io/csi/ebs.csi.aws.com^vol-0c9e8f7a6b5d4c3b2}
  volumesInUse: [kubernetes.io/csi/ebs.csi.aws.com^vol-0c9e8f7a6b5d4c3b2]
"""
GKE = """
apiVersion: v1
kind: Node
metadata:
  annotations:
    container.googleapis.com/instance_id: "5348291847563829104"
    csi.volume.kubernetes.io/nodeid: '{"pd.csi.storage.gke.io":
      "projects/p/zones/europe-west1-b/instances/gke-prod-pool-3f2a1b4c-x7k2"}'
  labels:
    cloud.google.com/gke-nodepool: pool
    cloud.google.com/gke-boot-disk: pd-balanced
    kubernetes.io/hostname: gke-prod-pool-3f2a1b4c-x7k2
    topology.kubernetes.io/zone: europe-west1-b
  name: gke-prod-pool-3f2a1b4c-x7k2
  uid: 4be1d5f0-77a2-4a53-9a43-d2c1b0a9f8e7
spec:
  podCIDR: 10.4.2.0/24
  providerID: gce://my-project/europe-west1-b/gke-prod-pool-3f2a1b4c-x7k2
  taints: [{effect: NoSchedule, key: dedicated, value: batch}]
status:
  addresses: [{address: 10.132.0.47, type: InternalIP}]
"""
AKS = """
apiVersion: v1
kind: Node
metadata:
  annotations:
    csi.volume.kubernetes.io/nodeid: '{"disk.csi.azure.com":"aks-pool-12345678-vmss000000"}'
  labels:
    kubernetes.azure.com/agentpool: pool
    kubernetes.io/hostname: aks-pool-12345678-vmss000000
    kubernetes.io/role: agent
    node-role.kubernetes.io/agent: ""
    topology.kubernetes.io/zone: westeurope-1
  name: aks-pool-12345678-vmss000000
  uid: 0cb7e4a3-1d96-4c58-8f02-6e5d4c3b2a19
spec:
  providerID: azure:///subscriptions/0b1f6471-1bf0-4dda-aec3-cb9272f09590/resourceGroups/\
mc/providers/Microsoft.Compute/virtualMachineScaleSets/aks-pool-vmss/virtualMachines/0
  taints: [{effect: NoSchedule, key: dedicated, value: batch}]
status:
  addresses: [{address: 10.224.0.4, type: InternalIP}]
"""
KUBEADM = """
apiVersion: v1
kind: Node
metadata:
  annotations:
    kubeadm.alpha.kubernetes.io/cri-socket: unix:///run/containerd/containerd.sock
    flannel.alpha.coreos.com/public-ip: 172.18.0.2
    projectcalico.org/IPv4Address: 172.18.0.2/16
  labels:
    kubernetes.io/hostname: control-1
    node-role.kubernetes.io/control-plane: ""
    node-role.kubernetes.io/worker: ""
    tier: batch
  name: control-1
  uid: 5a6b7c8d-9e0f-4a1b-8c2d-3e4f5a6b7c8d
spec:
  taints:
  - {effect: NoSchedule, key: node-role.kubernetes.io/control-plane}
  - {effect: NoSchedule, key: dedicated, value: batch}
status:
  addresses: [{address: 172.18.0.2, type: InternalIP}]
"""
IDENTITIES = {
    "EKS": """192.168.57.201 192-168-57-201 34.241.17.83 i-0f6dbbd5a8b1c7e42 10.244.3.0 aws://
        8d6c4a52- 1f1de5c8- NodeClaim karpenter 1049238410 kubelet-on-that-machine amazon-k8s-cni
        3f0f8a4e- ec2a9c1d vol-0c9e8f7a6b5d4c3b2 2023- KubeletHasDiskPressure
        unreachable uninitialized unschedulable ToBeDeleted DeletionCandidate""",
    "GKE": "5348291847563829104 3f2a1b4c-x7k2 4be1d5f0- 10.4.2.0 gce:// 10.132.0.47",
    "AKS": "aks-pool-12345678-vmss000000 0cb7e4a3- azure:// 10.224.0.4",
    "KUBEADM": "172.18.0.2 control-1 control-plane cri-socket flannel calico 5a6b7c8d-",
}
KINDS = {
    "EKS": {
        "eks.amazonaws.com/nodegroup": "workers",
        "eks.amazonaws.com/nodegroup-image": "ami-0a1b2c3d4e5f60718",
        "kubernetes.io/arch": "arm64",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
        "topology.ebs.csi.aws.com/zone": "eu-west-1b",
        "topology.kubernetes.io/region": "eu-west-1",
        "topology.kubernetes.io/zone": "eu-west-1b",
    },
    "GKE": {
        "cloud.google.com/gke-nodepool": "pool",
        "cloud.google.com/gke-boot-disk": "pd-balanced",
        "topology.kubernetes.io/zone": "europe-west1-b",
    },
    "AKS": {
        "kubernetes.azure.com/agentpool": "pool",
        "kubernetes.io/role": "agent",
        "topology.kubernetes.io/zone": "westeurope-1",
    },
    "KUBEADM": {"tier": "batch", "node-role.kubernetes.io/worker": ""},
}
PASTED = {"EKS": EKS, "GKE": GKE, "AKS": AKS, "KUBEADM": KUBEADM}


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def settled_nodes(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    wait_ready(kubectl, name)
    return nodes_of(kubectl, name)


def run_pods(kubectl: Kubectl, group: str) -> None:
    """A DaemonSet runs a pod on each node of a group, with no more than the usual tolerations."""
    labels = {"app": group}
    tolerated = ("kwok-provider", "dedicated")
    spec = {
        "nodeSelector": {NODE_GROUP_LABEL: group},
        "tolerations": [{"key": key, "operator": "Exists"} for key in tolerated],
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}}],
    }
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": group},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    kubectl.apply(manifest)
    try:
        eventually(
            lambda: kubectl.json("get", "daemonset", group)["status"]["numberReady"],
            lambda ready: ready == 2,
            describe="a pod runs on each node",
        )
    finally:
        kubectl("delete", "daemonset", group)


@pytest.mark.parametrize("cloud", PASTED)
def test_nothing_of_the_machine_is_left(
    kubectl: Kubectl, operator: Process, group_name: str, cloud: str
) -> None:
    pasted = yaml.safe_load(PASTED[cloud])
    apply_group(kubectl, group_name, targetSize=2, template={"node": pasted})
    nodes = settled_nodes(kubectl, group_name)
    resolved = status_of(kubectl, group_name)["resolvedTemplate"]
    for identity in IDENTITIES[cloud].split():
        assert identity not in compact(resolved)
        assert identity not in compact(nodes)
    for node in nodes:
        name = node["metadata"]["name"]
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == name
        assert KINDS[cloud].items() <= node["metadata"]["labels"].items()
        assert node["spec"] == {"providerID": f"kwok:{name}", "taints": [DEDICATED, GUARD]}
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "fake"
        owners = [o["uid"] for o in node["metadata"]["ownerReferences"]]
        assert owners == [group_of(kubectl, group_name)["metadata"]["uid"]]
    run_pods(kubectl, group_name)


def test_what_describes_its_kind_is_kept(
    kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    pasted = yaml.safe_load(EKS)
    apply_group(kubectl, group_name, targetSize=2, template={"node": pasted})
    info = pasted["status"]["nodeInfo"]
    for node in settled_nodes(kubectl, group_name):
        assert node["metadata"]["annotations"]["example.com/team"] == "platform"
        assert node["status"]["capacity"] == pasted["status"]["capacity"]
        assert node["status"]["allocatable"] == pasted["status"]["allocatable"]
        for key in ("architecture", "operatingSystem", "osImage", "kernelVersion"):
            assert node["status"]["nodeInfo"][key] == info[key]


def test_one_of_our_own_nodes(kubectl: Kubectl, operator: Process, group_name: str) -> None:
    first, second = f"{group_name}-a", f"{group_name}-b"
    shape = {"cpu": 4, "zone": "z1", "labels": {"tier": "batch"}}
    apply_group(kubectl, first, targetSize=1, template={"shape": shape})
    (pasted,) = settled_nodes(kubectl, first)
    apply_group(kubectl, second, targetSize=2, template={"node": pasted})
    nodes = settled_nodes(kubectl, second)
    for mark in (first, group_of(kubectl, first)["metadata"]["uid"]):
        assert mark not in compact(nodes)
        assert mark not in compact(status_of(kubectl, second)["resolvedTemplate"])
    for node in nodes:
        assert node["spec"]["taints"] == [GUARD]
        assert node["metadata"]["labels"]["tier"] == "batch"
        assert node["status"]["capacity"] == pasted["status"]["capacity"]
    assert [n["metadata"]["labels"][NODE_GROUP_LABEL] for n in nodes] == [second] * 2
    assert len(nodes_of(kubectl, first)) == 1
    run_pods(kubectl, second)
