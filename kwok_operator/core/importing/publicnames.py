"""Names that say nothing of whoever uses them: those of Kubernetes, clouds and well-known programs.

Everything that isn't known to be one of them is taken for private. A public key may have a private
value, as a node group's name is.
"""

import re
from typing import Final

from kwok_operator import constants

_DOMAINS: Final = frozenset(
    """kubernetes.io k8s.io x-k8s.io kwok-operator.io
    amazonaws.com aws.amazon.com aws.com k8s.aws eksctl.io karpenter.sh
    cloud.google.com gke.io google.com azure.com
    alibabacloud.com aliyun aliyun.com cloud.tencent.com oraclecloud.com ibm.com yandex.cloud
    digitalocean.com civo.com scaleway.com linode.com vultr.com exoscale.net coreweave.com
    openshift.io openstack.org vmware.com nutanix.com gardener.cloud cattle.io k3s.io rke2.io
    talos.dev metal3.io rook.io openebs.io longhorn.io topolvm.io
    nvidia.com amd.com intel.com habana.ai xilinx.com rdma qualcomm.com
    kubevirt.io cilium.io projectcalico.org istio.io linkerd.io antrea.io ovn.org
    helm.sh argoproj.io fluxcd.io cert-manager.io prometheus.io grafana.com
    volcano.sh koordinator.sh yunikorn.apache.org ray.io kubeflow.org kyverno.io keda.sh
    kubernetes-sigs.io descheduler.alpha.kubernetes.io""".split()
)
"""Each with the domains below it."""

_ANY_NAME_BELOW: Final = (
    "node-role.kubernetes.io",
    "node-restriction.kubernetes.io",
    "node.cluster.x-k8s.io",
)
"""Public domains under which people make keys of their own."""

_WORDS: Final = frozenset(
    """app k8s-app name instance version release chart heritage tier component part-of managed-by
    role env environment team zone region type arch os pool nodepool agentpool node-lifecycle
    accelerator workload dedicated CriticalAddonsOnly gpu sku
    worker infra master control-plane etcd controlplane storage ingress egress
    job-name controller-uid pod-template-hash""".split()
) | {constants.GUARD_TAINT_KEY}
"""Keys without a domain, and roles of nodes, that thousands of clusters have."""

_VALUES: Final = frozenset(
    """true false True False yes no on off enabled disabled none default any all
    linux windows amd64 arm64 ppc64le s390x spot on-demand ON_DEMAND SPOT preemptible regular
    reserved standard NoSchedule PreferNoSchedule NoExecute present nvidia Helm""".split()
) | {""}

_AMOUNT = re.compile(r"[-+]?[0-9.]{1,30}([numkMGTPEi]{1,2}|[eE][-+]?[0-9]{1,3})?")
_NUMBER = re.compile(r"[-+]?[0-9]{1,7}(\.[0-9]{1,6})?([a-zA-Z]{1,2}|%)?")

_KEYS_OF_PUBLIC_VALUES = re.compile(
    "|".join(
        re.escape(key).replace(r"\*", ".*")
        for key in """topology.kubernetes.io/zone topology.kubernetes.io/region
        topology.*.csi.aws.com/zone topology.*.csi.azure.com/zone topology.gke.io/zone
        topology.k8s.aws/zone-id failure-domain.beta.kubernetes.io/zone
        failure-domain.beta.kubernetes.io/region
        node.kubernetes.io/instance-type beta.kubernetes.io/* kubernetes.io/arch kubernetes.io/os
        node.kubernetes.io/windows-build karpenter.sh/capacity-type
        karpenter.k8s.aws/instance-* karpenter.azure.com/sku-* karpenter.k8s.gcp/instance-*
        eks.amazonaws.com/capacityType eks.amazonaws.com/compute-type k8s.amazonaws.com/accelerator
        cloud.google.com/machine-family cloud.google.com/gke-accelerator*
        cloud.google.com/gke-provisioning cloud.google.com/gke-os-distribution
        cloud.google.com/gke-boot-disk cloud.google.com/gke-container-runtime
        cloud.google.com/gke-gpu* cloud.google.com/gke-tpu* cloud.google.com/gke-stack-type
        cloud.google.com/gke-logging-variant
        kubernetes.azure.com/scalesetpriority kubernetes.azure.com/mode kubernetes.azure.com/role
        kubernetes.azure.com/os-sku kubernetes.azure.com/storageprofile
        kubernetes.azure.com/storagetier kubernetes.azure.com/accelerator
        kubernetes.azure.com/nodepool-type accelerator node-lifecycle
        ibm-cloud.kubernetes.io/machine-type ibm-cloud.kubernetes.io/os
        node.alibabacloud.com/instance-charge-type oci.oraclecloud.com/fault-domain
        nvidia.com/gpu nvidia.com/gpu.* nvidia.com/cuda.* nvidia.com/mig.capable
        nvidia.com/mig.strategy amd.com/gpu amd.com/gpu.*
        feature.node.kubernetes.io/cpu-*""".split()
    )
)

_RESOURCES = re.compile(
    r"(requests\.|limits\.)?(cpu|memory|ephemeral-storage|storage|hugepages-[0-9A-Za-z]+)"
    r"|pods|services(\.loadbalancers|\.nodeports)?|secrets|configmaps|persistentvolumeclaims"
    r"|replicationcontrollers|resourcequotas|attachable-volumes-[a-z-]+"
    r"|count/[a-z]+(\.(apps|batch|policy|autoscaling|extensions|([a-z.-]+\.)?k8s\.io))?"
)

NAMES: Final = frozenset(
    """default kube-system kube-public kube-node-lease
    system-cluster-critical system-node-critical fake linux windows""".split()
)
"""Of objects that every cluster has, and of those that an import makes."""

OWN_NAME = re.compile(r"[ci][0-9]{1,4}")
"""What an import calls containers."""

KINDS: Final = frozenset(
    """Node Pod Deployment StatefulSet DaemonSet ReplicaSet ReplicationController Job CronJob
    Namespace PriorityClass RuntimeClass PodDisruptionBudget ResourceQuota LimitRange ConfigMap
    PersistentVolume PersistentVolumeClaim StorageClass CSINode HorizontalPodAutoscaler
    KwokNodeGroup KwokCapacityPool MachineDeployment MachineSet MachinePool NodePool ScalingGroup
    Rollout CloneSet Workflow RayCluster RayJob PyTorchJob MPIJob""".split()
)
"""Of objects; a custom resource may be called after a product that nobody knows of yet."""

KEYS_OF_NAMES: Final = frozenset(
    {
        "kubernetes.io/metadata.name",
        constants.NODE_GROUP_LABEL,
        constants.CA_NODE_GROUP_ANNOTATION,
        "metadata.name",
    }
)
"""Whose values are names of objects."""


def is_public_domain(domain: str) -> bool:
    """Its own, or one above it, is known."""
    parts = domain.split(".")
    return any(".".join(parts[start:]) in _DOMAINS for start in range(len(parts)))


def is_public_key(key: str) -> bool:
    """Of a label, an annotation or a taint."""
    domain, slash, name = key.rpartition("/")
    if not slash:
        return key in _WORDS or key in KEYS_OF_NAMES
    if domain in _ANY_NAME_BELOW:
        return name in _WORDS
    return is_public_domain(domain)


def is_public_value(key: str, value: str) -> bool:
    """Of a label, an annotation or a taint."""
    return is_harmless(value) or _KEYS_OF_PUBLIC_VALUES.fullmatch(key) is not None


def is_harmless(text: str) -> bool:
    """A number, an amount, a short time or a word that everybody uses."""
    return text in _VALUES or _NUMBER.fullmatch(text) is not None


def is_amount(text: str) -> bool:
    """Of a resource: as long as it likes."""
    return _AMOUNT.fullmatch(text) is not None


def is_public_resource(name: str) -> bool:
    """Of a container, a node or a quota."""
    domain, slash, _ = name.removeprefix("requests.").removeprefix("limits.").rpartition("/")
    if _RESOURCES.fullmatch(name):
        return True
    return bool(slash) and domain != "count" and is_public_domain(domain)
