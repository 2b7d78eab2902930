"""A scenario in which each pod waits for another reason, and the reason is known beforehand.

    fallback   its first zone is sold out, and it runs in the second one
    stuck      the only group that suits it has no stock: cluster-autoscaler backs off
    apart      must not share a zone with a pod that is in the only zone of its group
    huge       requests more than any group's nodes have
    queue      the only group that suits it is as large as it may be
    patient    its node takes long to boot
    kept       a PodDisruptionBudget keeps its half-empty node from being removed

The pods' names are known: `patient-0`, `kept-0` and so on.
"""

from collections.abc import Iterator
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL

BOOT_SECONDS: Final = 25
BACKOFF: Final = {"initial-node-group-backoff-duration": "10m"}
"""So long that the end of the back-off doesn't come within the run."""
ZONE: Final = "topology.kubernetes.io/zone"
WEB: Final = {"example.com/tier": "web"}
HUGE_CPUS: Final = 64


def objects() -> Iterator[dict[str, Any]]:
    """What is there at the beginning."""
    sold_out = {"instances": 0, "error": {"class": "OutOfResources", "code": "ZonalStockExhausted"}}
    yield _object("KwokCapacityPool", "zone-a", sold_out)
    fast = {"provisioningDelay": {"fixed": "2s"}}
    yield _group("first", "a", price="0.10", labels=WEB, cloud={"capacityPools": ["zone-a"]})
    yield _group("second", "b", price="0.40", labels=WEB, cloud=fast)
    yield _group("scarce", "c", price="0.20", cloud={"stock": 0})
    yield _group("single", "d", price="0.20", size=1)
    yield _group("small", "e", price="0.20", size=1, most=1)
    slow = {"provisioningDelay": {"fixed": f"{BOOT_SECONDS}s"}}
    yield _group("slow", "f", price="0.20", cloud=slow)
    yield _group("guarded", "g", price="0.20", size=2)
    yield _pod("apart-first", cpu="1", group="single", labels={"app": "apart"})
    yield _pod("occupant", cpu="3", group="small", labels={"app": "occupant"})
    yield {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": "default"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "kept"}}},
    }


def workloads() -> Iterator[dict[str, Any]]:
    yield _workload("fallback", {"cpu": "3", "nodeSelector": WEB})
    yield _workload("stuck", {"cpu": "3", "nodeSelector": {NODE_GROUP_LABEL: "scarce"}})
    selector = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": ZONE}
    apart = _pod("apart", cpu="1", group="single", labels={"app": "apart"})
    apart["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}
    }
    template = {"metadata": {"labels": {"app": "apart"}}, "spec": apart["spec"]}
    yield _workload("apart", {"template": template})
    yield _workload("huge", {"cpu": str(HUGE_CPUS)})
    yield _workload("queue", {"cpu": "3", "nodeSelector": {NODE_GROUP_LABEL: "small"}})
    yield _workload("patient", {"cpu": "3", "nodeSelector": {NODE_GROUP_LABEL: "slow"}})
    yield _workload("kept", {"cpu": "1", "nodeSelector": {NODE_GROUP_LABEL: "guarded"}}, count=2)


def _workload(name: str, pods: dict[str, Any], *, count: int = 1) -> dict[str, Any]:
    return {"name": name, "kind": "StatefulSet", "count": count, "pods": pods}


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _group(
    name: str,
    zone: str,
    *,
    price: str,
    size: int = 0,
    most: int = 5,
    labels: dict[str, str] | None = None,
    cloud: dict[str, Any] | None = None,
) -> dict[str, Any]:
    shape: dict[str, Any] = {"cpu": 4, "memory": "16Gi", "zone": f"region-1{zone}"}
    return _object(
        "KwokNodeGroup",
        name,
        {
            "targetSize": size,
            "template": {"shape": shape | ({"labels": labels} if labels else {})},
            "autoscaling": {"minSize": 0, "maxSize": most},
            "price": {"hourly": price},
            **({"cloud": cloud} if cloud else {}),
        },
    )


def _pod(name: str, *, cpu: str, group: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "containers": [
                {"name": "work", "image": "none", "resources": {"requests": {"cpu": cpu}}}
            ],
            "nodeSelector": {NODE_GROUP_LABEL: group},
            "tolerations": [{"key": "kwok-provider", "operator": "Exists"}],
        },
    }
