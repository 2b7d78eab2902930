"""Decides which names are public: those of Kubernetes, clouds and well-known programs.

All other names count as private. People define their own keys below public domains, too, so a key
is public only if all words in it are known. A public key may have a private value, such as a node
group's name.
"""

import re
from typing import Final

from kwok_operator import constants
from kwok_operator.importing import kinds
from kwok_operator.importing.pods.fields import LABELS_OF_ONE_POD
from kwok_operator.importing.pods.podautoscalers import USAGE

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
"""Public domains; the domains below each of them are public, too."""

_TERMS: Final = frozenset(
    """accelerator additional agent agentpool alpha app arch attached autoscaler autoscaling
    azure balancers batch beta block blockvolume boot build by capable capacity category
    charge chart cinder civo class client cloud cloudprovider cluster cni component compute
    consolidate container controller cost count cpu csi cuda dedicated delay deletion
    descheduler devices disabled disk diskplugin disrupt disrupted disruption distribution
    do doks domain down dra driver ebs ec2nodeclass ecs efa efs egress eks eksctl enabled
    enforce eni ephemeral evict eviction exclude external failure family fault fpga from
    gaudi gb gce generation gke gpu group has host hostname hypervisor i915 iaas iam ibm id
    identity image impending imported index infra initialized instance instancegroup
    instancepool internal interruptible ip job k8s karpenter kernel kops kubelet kueue kubernetes
    kvm launch lifecycle lke load local logging machine magnum major managed manufacturer
    max member memory metadata mig mode model name net netd network neuron neuroncore
    neurondevice no node nodeclass nodegroup nodename nodepool not nvme oci of oke os part
    per plan pod pods podset policy pool prefer preferred present pressure priority private product
    properties provider provisioner provisioning queue rack ready region registered release
    replayed required reservation rke role runtime safe scale scalesetpriority scaling scheduling
    security server service shared sigs size sku slice source spot stack state statefulset storage
    storageprofile storagetier strategy subblock subnet template termination tier tke to
    topology tpu trunk tun type unavailable unconstrained uninitialized unreachable unschedulable up
    utilization variant vendor version vhost vke vm volumes vpc windows worker xe zone""".split()
)
"""Public words in keys and resources below these domains. Any other word may be a team or a
product.
"""
_NUMBER_IN_A_KEY = re.compile(r"[0-9]{1,3}(g|gb)?")

_ANY_NAME_BELOW: Final = (
    "node-role.kubernetes.io",
    "node-restriction.kubernetes.io",
    "node.cluster.x-k8s.io",
)
"""Public domains below which people define keys of their own."""

_WORDS: Final = frozenset(
    """app k8s-app name instance version release chart heritage tier component part-of managed-by
    role env environment team zone region type arch os pool nodepool agentpool node-lifecycle
    accelerator workload dedicated CriticalAddonsOnly gpu sku
    worker infra master control-plane etcd controlplane storage ingress egress""".split()
) | {constants.GUARD_TAINT_KEY}
"""Keys without a domain, and roles of nodes, that thousands of clusters have."""

_VALUES: Final = frozenset(
    """true false True False yes no on off enabled disabled none default any all
    linux windows amd64 arm64 ppc64le s390x spot on-demand ON_DEMAND SPOT preemptible regular
    reserved standard NoSchedule PreferNoSchedule NoExecute present nvidia Helm""".split()
) | {""}

_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""A key whose values are numbers of any length: if one were renamed, the API server would refuse
the pod.
"""
_AMOUNT = re.compile(r"[-+]?[0-9.]{1,30}([numkMGTPEi]{1,2}|[eE][-+]?[0-9]{1,3})?")
_NUMBER = re.compile(r"[-+]?[0-9]{1,7}(\.[0-9]{1,6})?([a-zA-Z]{1,2}|%)?")

_KEYS_OF_PUBLIC_VALUES = re.compile(
    "|".join(
        re.escape(key).replace(r"\*", ".*")
        for key in """topology.kubernetes.io/zone topology.kubernetes.io/region
        topology.*.csi.*/zone topology.gke.io/zone
        topology.k8s.aws/zone-id failure-domain.beta.kubernetes.io/zone
        failure-domain.beta.kubernetes.io/region
        node.kubernetes.io/instance-type beta.kubernetes.io/instance-type
        beta.kubernetes.io/arch beta.kubernetes.io/os kubernetes.io/arch kubernetes.io/os
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
        nvidia.com/mig.strategy amd.com/gpu amd.com/gpu.*""".split()
    )
)

_RESOURCES = re.compile(
    r"(requests\.|limits\.)?(cpu|memory|ephemeral-storage|storage|hugepages-[0-9]{1,6}[KMGT]i)"
    r"|services(\.loadbalancers|\.nodeports)|attachable-volumes-(aws-ebs|gce-pd|azure-disk|cinder)"
    r"|(count/)?(pods|services|secrets|configmaps|persistentvolumeclaims|replicationcontrollers"
    r"|resourcequotas)|count/(deployments|replicasets|statefulsets|daemonsets)\.apps"
    r"|count/(jobs|cronjobs)\.batch|count/poddisruptionbudgets\.policy"
    r"|count/horizontalpodautoscalers\.autoscaling|count/(ingresses|networkpolicies)"
    r"\.(networking\.k8s\.io|extensions)"
)

NAMES: Final = frozenset(
    """default kube-system kube-public kube-node-lease
    system-cluster-critical system-node-critical fake linux windows""".split()
)
"""Names of objects that every cluster has, or that an import makes."""

OWN_NAME = re.compile(r"[ci][0-9]{1,4}")
"""Names that an import gives containers."""

KINDS: Final = frozenset(kinds.KINDS) | frozenset(
    """Node ConfigMap StorageClass CSINode KwokNodeGroup KwokCapacityPool
    MachineDeployment MachineSet MachinePool NodePool ScalingGroup Rollout CloneSet Workflow
    RayCluster RayJob PyTorchJob MPIJob""".split()
)
"""Public kinds of objects; a custom resource may be named after a secret product."""

KEYS_OF_NAMES: Final = frozenset(
    {
        "kubernetes.io/metadata.name",
        constants.NODE_GROUP_LABEL,
        constants.CA_NODE_GROUP_ANNOTATION,
        constants.NODE_POOL_LABEL,
        "metadata.name",
    }
)
"""Keys whose values are names of objects."""


def is_public_key(key: str) -> bool:
    """Whether the key of a label, an annotation or a taint is public."""
    domain, slash, name = key.rpartition("/")
    if key in LABELS_OF_ONE_POD or key in KEYS_OF_NAMES or key in USAGE.values():
        return True  # a controller sets it on its pods, so selectors must keep it
    if not slash:
        return key in _WORDS
    if domain in _ANY_NAME_BELOW:
        return name in _WORDS
    return _is_below_public_domain(domain, name)


def _is_below_public_domain(domain: str, name: str) -> bool:
    """Whether a label's domain is a public domain or below one, and all other words in the domain
    and the name are known.
    """
    parts = domain.split(".")
    start = next((at for at in range(len(parts)) if ".".join(parts[at:]) in _DOMAINS), None)
    return start is not None and all(map(_is_of_terms, (*parts[:start], name)))


def _is_of_terms(text: str) -> bool:
    words = re.split(r"[._-]", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower())
    return all(word in _TERMS or _NUMBER_IN_A_KEY.fullmatch(word) for word in words)


def is_public_value(key: str, value: str) -> bool:
    """Whether the value of a label, an annotation or a taint is public."""
    if is_harmless(value) or (key == _DELETION_COST and is_amount(value)):
        return True
    return _KEYS_OF_PUBLIC_VALUES.fullmatch(key) is not None and is_public_key(key)


def is_harmless(text: str) -> bool:
    """Whether a text can't be private: a number, an amount, a short time, or a word that everybody
    uses.
    """
    return text in _VALUES or _NUMBER.fullmatch(text) is not None


def is_amount(text: str) -> bool:
    """Whether a text is an amount of a resource, such as 500m or 16Gi, even one with many
    digits.
    """
    return _AMOUNT.fullmatch(text) is not None


def is_public_resource(name: str) -> bool:
    """Whether the name of a resource of a container, a node or a quota is public."""
    if _RESOURCES.fullmatch(name):
        return True
    domain, slash, last = name.removeprefix("requests.").removeprefix("limits.").rpartition("/")
    return bool(slash) and _is_below_public_domain(domain, last)
