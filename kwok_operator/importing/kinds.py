"""The kinds of objects that are imported, recorded and replayed, and their API paths."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ImportedKind:
    """A kind of object. `traced` kinds are recorded and replayed, too. `size` is the field of the
    spec that says how many pods an object has.
    """

    name: str
    api_version: str
    plural: str
    namespaced: bool = True
    traced: bool = False
    size: str = ""

    @property
    def path(self) -> str:
        """The API path of all objects of the kind."""
        root = "/apis" if "/" in self.api_version else "/api"
        return f"{root}/{self.api_version}/{self.plural}"

    def collection(self, namespace: str) -> str:
        start, _, plural = self.path.rpartition("/")
        return f"{start}/namespaces/{namespace}/{plural}" if namespace else self.path


HPA: Final = "HorizontalPodAutoscaler"
KINDS: Final = {
    kind.name: kind
    for kind in (
        ImportedKind("Namespace", "v1", "namespaces", namespaced=False),
        ImportedKind(
            "PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", False, traced=True
        ),
        ImportedKind("RuntimeClass", "node.k8s.io/v1", "runtimeclasses", False, traced=True),
        ImportedKind("PersistentVolume", "v1", "persistentvolumes", namespaced=False),
        ImportedKind("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
        ImportedKind("ResourceQuota", "v1", "resourcequotas"),
        ImportedKind("LimitRange", "v1", "limitranges"),
        ImportedKind("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
        ImportedKind("Deployment", "apps/v1", "deployments", traced=True, size="replicas"),
        ImportedKind("StatefulSet", "apps/v1", "statefulsets", traced=True, size="replicas"),
        ImportedKind("DaemonSet", "apps/v1", "daemonsets", traced=True),
        ImportedKind("ReplicaSet", "apps/v1", "replicasets", traced=True, size="replicas"),
        ImportedKind(
            "ReplicationController", "v1", "replicationcontrollers", True, True, "replicas"
        ),
        ImportedKind("CronJob", "batch/v1", "cronjobs"),
        ImportedKind("Job", "batch/v1", "jobs", traced=True, size="parallelism"),
        ImportedKind("Pod", "v1", "pods", traced=True),
        ImportedKind(HPA, "autoscaling/v2", "horizontalpodautoscalers"),
    )
}
"""All kinds, in the order in which they are read and created: owners before what they own."""

TRACED: Final = {name: kind for name, kind in KINDS.items() if kind.traced}
"""Kinds that are recorded and replayed. CronJobs aren't, as the Jobs that they create are."""
