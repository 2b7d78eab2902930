"""Makes the manifests of a workload's objects.

    workload, number  --manifest-->  a Deployment, StatefulSet, Job or Pod

Pods tolerate the guard taint, the only thing that keeps pods off fake nodes. They run nothing:
unless the scenario names an image, their image doesn't exist.
"""

from typing import Any, Final

from kwok_operator.constants import GUARD_TAINT_KEY, REHEARSED_LABEL
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.rehearsal.scenario.workload import PodsOfWorkload, ScenarioWorkload, WorkloadKind

APP_LABEL: Final = "app"
_IMAGE: Final = "none"
_DIGITS: Final = 4
_MOST_DIGITS: Final = 9

Manifest = dict[str, Any]


def object_name(workload: ScenarioWorkload, number: int) -> str:
    """Returns the name of an object: the workload's, if it has only one object that isn't a Pod;
    else the name and a number.
    """
    if workload.objects == 1 and workload.kind is not WorkloadKind.PODS:
        return workload.name
    return f"{workload.name}-{number:0{_DIGITS}d}"


def is_object_of(workload: ScenarioWorkload, name: str) -> bool:
    """Whether one of the workload's objects has this name."""
    digits = name.rpartition("-")[2]
    number = int(digits) if digits.isdecimal() and len(digits) < _MOST_DIGITS else 0
    return any(n < workload.objects and object_name(workload, n) == name for n in {0, number})


def manifest(workload: ScenarioWorkload, number: int) -> Manifest:
    """Returns the manifest of the object with this number, from 0."""
    name, pod = object_name(workload, number), _pod(workload)
    metadata: Manifest = {
        "name": name,
        "namespace": workload.namespace,
        "labels": {**workload.labels, REHEARSED_LABEL: workload.name},
    }
    size = workload.pods_of_each
    if workload.kind is WorkloadKind.PODS:
        own = {"name": name, "generateName": f"{workload.name}-", "namespace": workload.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            **pod,
            "metadata": {**pod["metadata"], **own},
        }
    if workload.kind is WorkloadKind.JOB:
        pod["spec"].setdefault("restartPolicy", "Never")
        spec: Manifest = {"parallelism": size, "completions": size, "template": pod}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    # Otherwise several Deployments of one workload would take each other's pods for their own.
    own_label = {APP_LABEL: name}
    pod["metadata"]["labels"] |= own_label
    spec = {"replicas": size, "selector": {"matchLabels": own_label}, "template": pod}
    if workload.kind is WorkloadKind.STATEFUL_SET:
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    return {
        "apiVersion": "apps/v1",
        "kind": workload.kind.value,
        "metadata": metadata,
        "spec": spec,
    }


def _pod(workload: ScenarioWorkload) -> Manifest:
    pods = workload.pods or PodsOfWorkload()
    given = pods.template if pods.template is not None else _in_full(pods)
    metadata, spec = dict(as_map(given.get("metadata"))), dict(as_map(given.get("spec")))
    labels = dict(as_map(metadata.get("labels")))
    metadata["labels"] = {APP_LABEL: workload.name, **labels, REHEARSED_LABEL: workload.name}
    tolerations = as_list(spec.get("tolerations"))
    if not any(_tolerates(each) for each in tolerations):
        tolerations = [*tolerations, {"key": GUARD_TAINT_KEY, "operator": "Exists"}]
    return {"metadata": metadata, "spec": {**spec, "tolerations": tolerations}}


def _tolerates(toleration: object) -> bool:
    fields = as_map(toleration)
    return fields.get("operator") == "Exists" and fields.get("key") in (None, GUARD_TAINT_KEY)


def _in_full(pods: PodsOfWorkload) -> Manifest:
    requests = {"cpu": pods.cpu, "memory": pods.memory, **pods.resources}
    requests = {name: amount for name, amount in requests.items() if amount is not None}
    # Extended resources can't be overcommitted: the API server requires a limit equal to the
    # request.
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    resources = {"requests": requests} | ({"limits": limits} if limits else {})
    spec: Manifest = {"containers": [{"name": "work", "image": _IMAGE, "resources": resources}]}
    if pods.node_selector:
        spec["nodeSelector"] = dict(pods.node_selector)
    if pods.priority_class:
        spec["priorityClassName"] = pods.priority_class
    if pods.scheduler:
        spec["schedulerName"] = pods.scheduler
    metadata: Manifest = {"labels": dict(pods.labels)}
    if pods.annotations:
        metadata["annotations"] = dict(pods.annotations)
    return {"metadata": metadata, "spec": spec}
