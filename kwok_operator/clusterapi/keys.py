"""Names of labels and annotations that cluster-autoscaler and Cluster API rely on.

Those in `Keys` begin with the API group (CAPI_GROUP); the constants don't change with it.
"""

from dataclasses import dataclass
from typing import Final

DEFAULT_GROUP: Final = "cluster.x-k8s.io"
PAUSED: Final = "cluster.x-k8s.io/paused"
DEPLOYMENT_NAME: Final = "cluster.x-k8s.io/deployment-name"
SET_NAME: Final = "cluster.x-k8s.io/set-name"
REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"

KARPENTER_MEMBER: Final = "node.cluster.x-k8s.io/karpenter-member"
"""The label of MachineDeployments that Karpenter's provider for Cluster API scales."""

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
CPU: Final = f"{CAPACITY}cpu"
MEMORY: Final = f"{CAPACITY}memory"
DISK: Final = f"{CAPACITY}ephemeral-disk"
GPU_TYPE: Final = f"{CAPACITY}gpu-type"
GPU_COUNT: Final = f"{CAPACITY}gpu-count"
MAX_PODS: Final = f"{CAPACITY}maxPods"
LABELS: Final = f"{CAPACITY}labels"
TAINTS: Final = f"{CAPACITY}taints"
DRA_DRIVER: Final = f"{CAPACITY}dra-driver"
CSI_DRIVER: Final = f"{CAPACITY}csi-driver"
_OF_CAPACITY: Final = (
    *(CPU, MEMORY, DISK, GPU_TYPE, GPU_COUNT, MAX_PODS, LABELS, TAINTS, DRA_DRIVER, CSI_DRIVER),
)

SHARES: Final = {
    "scaledownutilizationthreshold": "scaleDownUtilizationThreshold",
    "scaledowngpuutilizationthreshold": "scaleDownGpuUtilizationThreshold",
}
TIMES: Final = {
    "scaledownunneededtime": "scaleDownUnneededTime",
    "scaledownunreadytime": "scaleDownUnreadyTime",
    "maxnodeprovisiontime": "maxNodeProvisionTime",
}
STARTUP_TIME: Final = "maxnodestartuptime"
"""An autoscaling option that can't be copied to a group, as the shim's protocol has no field for
it."""

GPU_LABEL: Final = "cluster-api/accelerator"
"""The label by whose value cluster-autoscaler's provider clusterapi distinguishes types of GPUs."""

_NAMES: Final = (
    *("cluster-api-autoscaler", "cluster-autoscaler-node-group"),
    *("autoscaling-option", "autoscaler-option"),
)
"""How the names of its annotations begin, and likely misspellings of that."""

_MANAGED_DOMAINS: Final = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of labels and annotations that begin with Cluster API's API group."""

    group: str = DEFAULT_GROUP

    @property
    def min_size(self) -> str:
        return f"{self.group}/cluster-api-autoscaler-node-group-min-size"

    @property
    def max_size(self) -> str:
        return f"{self.group}/cluster-api-autoscaler-node-group-max-size"

    @property
    def options(self) -> str:
        """The prefix that the keys of autoscaling options have in common."""
        return f"{self.group}/autoscaling-options-"

    @property
    def of_autoscaler(self) -> tuple[str, ...]:
        """All annotations of a scalable (MachineDeployment, MachineSet, MachinePool) that
        cluster-autoscaler reads."""
        options = (f"{self.options}{option}" for option in (*SHARES, *TIMES, STARTUP_TIME))
        return (self.min_size, self.max_size, *options, *_OF_CAPACITY)

    @property
    def delete_machine(self) -> str:
        return f"{self.group}/delete-machine"

    @property
    def cluster_name(self) -> str:
        return f"{self.group}/cluster-name"


def is_meant_for_autoscaler(key: str) -> bool:
    """Whether the name of an annotation, in any domain, looks as if it was for
    cluster-autoscaler."""
    domain, _, name = key.rpartition("/")
    return name.startswith(_NAMES) or domain.startswith("capacity.cluster-autoscaler")


def is_managed(label: str) -> bool:
    """Whether Cluster API copies this label from a Machine to its Node."""
    domain = label.partition("/")[0]
    if domain == "node-role.kubernetes.io":
        return True
    return any(domain == each or domain.endswith(f".{each}") for each in _MANAGED_DOMAINS)
