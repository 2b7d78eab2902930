"""Checks whether a rehearsal may run in a cluster that isn't its own, before anything is written.

Only `check_kwok` writes: it creates a node to see whether kwok is alive. So it is called after the
rehearsal has claimed the cluster (borrowed.py).
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kwok_operator.constants import (
    API_GROUP,
    GUARD_TAINT_EFFECT,
    GUARD_TAINT_KEY,
    KWOK_NODE_ANNOTATION,
    KWOK_NODE_ANNOTATION_VALUE,
    NODE_GROUP_LABEL,
    NODES_PATH,
    REHEARSAL_LABEL,
)
from kwok_operator.errors import KwokOperatorError, NotFoundError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.kube.access import AccessRight, missing_rights
from kwok_operator.kube.client import ACCEPT_METADATA, KubeClient
from kwok_operator.kube.resources import ApiResources
from kwok_operator.kube.retry import RETRIES
from kwok_operator.rehearsal.clearing import in_words
from kwok_operator.rehearsal.judge.clocks import ClockOffset, DatedAnswer, offset_of
from kwok_operator.rehearsal.scenario.borrowing import (
    REHEARSAL_NAMESPACE,
    SCOUT,
    is_same_crd,
    labels_of_pods,
    selects,
)
from kwok_operator.settings import DEFAULT_PROVIDER_CONFIG

_SELECTING: Final = (
    ("", "v1", "services"),
    ("", "v1", "replicationcontrollers"),
    ("apps", "v1", "replicasets"),
    ("policy", "v1", "poddisruptionbudgets"),
)
"""Group, version and plural of kinds that select pods by their labels."""
_NEEDED: Final = tuple(
    AccessRight(group, resource, verb)
    for group, resource, verbs in (
        ("", "namespaces", "get create delete"),
        ("", "nodes", "create list delete"),
        ("", "pods", "create list delete"),
        ("", "serviceaccounts", "create"),
        ("", "serviceaccounts/token", "create"),
        ("apiextensions.k8s.io", "customresourcedefinitions", "get create delete"),
        ("rbac.authorization.k8s.io", "clusterroles", "create delete"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "create delete"),
        ("rbac.authorization.k8s.io", "roles", "create delete"),
        ("rbac.authorization.k8s.io", "rolebindings", "create delete"),
        ("coordination.k8s.io", "leases", "list"),
        ("apps", "deployments", "list"),
        ("apps", "statefulsets", "list"),
        ("apps", "daemonsets", "list"),
        ("batch", "jobs", "list"),
        *((group, plural, "list") for group, _, plural in _SELECTING),
        (API_GROUP, "kwoknodegroups", "create list delete"),
    )
    for verb in verbs.split()
)
_LEASES_PATH: Final = "/apis/coordination.k8s.io/v1/leases"
_CRDS_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_OPERATOR: Final = "kwok-operator"
_SCOUT_WITHIN: Final = 15.0
_LONGEST_LEASE: Final = 60.0
_LOOK_SECONDS: Final = 0.3
_VERSION_PATH: Final = "/version"
_DATES: Final = 10
_DATED_WITHIN: Final = 1.0
_MOST_OFFSET: Final = 60.0


class BorrowedClusterError(KwokOperatorError):
    """The rehearsal can't run in this cluster. The message says why, and what to do."""


async def check_claim(client: KubeClient) -> None:
    """Checks that no other rehearsal runs in this cluster, or has left anything."""
    try:
        namespace = await client.get_json(f"/api/v1/namespaces/{REHEARSAL_NAMESPACE}")
    except NotFoundError:
        return
    name = as_map(namespace["metadata"].get("labels")).get(REHEARSAL_LABEL)
    begun = namespace["metadata"].get("creationTimestamp")
    whose = f"The rehearsal {name}, begun at {begun}," if name else "A rehearsal"
    raise BorrowedClusterError(
        f"{whose} is under way in this cluster, or has left things in it (namespace"
        f" {REHEARSAL_NAMESPACE}); if none runs, `kwok-operator rehearse --clear` with the same"
        " --kubeconfig and --context takes them away"
    )


async def check_clock(client: KubeClient) -> ClockOffset | None:
    """Measures the offset of the cluster's clock. Raises BorrowedClusterError if it is more than
    _MOST_OFFSET seconds; returns None if answers have no Date.
    """
    answers = []
    for _ in range(_DATES):
        sent = time.time()
        await client.request("GET", _VERSION_PATH)
        received = time.time()
        if (said := client.server_clock.said) is not None:
            answers.append(DatedAnswer(sent, said, received))
        await asyncio.sleep(_DATED_WITHIN / _DATES)
    offset = offset_of(answers)
    if offset is not None and abs(offset.ahead) > _MOST_OFFSET:
        raise BorrowedClusterError(
            f"the cluster's clock is {offset}; a rehearsal converts its times, but by no more than"
            f" {_MOST_OFFSET:g} s: set both clocks, with NTP or by hand"
        )
    return offset


async def check_rights(
    client: KubeClient, served: ApiResources, objects: Iterable[Manifest]
) -> None:
    """Checks the rights to create, list and delete these objects, and the rights that the rehearsal
    itself needs.
    """
    kinds = {resource for each in objects if (resource := served.of(each)) is not None}
    rights = [
        AccessRight(kind.group, kind.plural, verb)
        for kind in sorted(kinds)
        for verb in ("create", "list", "delete")
    ]
    if missing := await missing_rights(client, dict.fromkeys([*_NEEDED, *rights])):
        raise BorrowedClusterError(
            f"this account may not: {', '.join(map(str, missing))}. Use one that may, such as a"
            " cluster-admin's, or leave --kubeconfig out"
        )


async def check_operators(client: KubeClient) -> None:
    """Checks that no operator runs: a leader renews its Lease every few seconds. Clocks may differ,
    so the check waits and sees whether the Lease changes.
    """

    async def held() -> dict[str, Any]:
        params = {"fieldSelector": f"metadata.name={_OPERATOR}"}
        leases = await client.get_json(_LEASES_PATH, params)
        return {
            each["metadata"]["namespace"]: each["spec"]
            for each in leases["items"]
            if as_map(each.get("spec")).get("holderIdentity")
        }

    first = await held()
    seconds = (spec.get("leaseDurationSeconds") or 0 for spec in first.values())
    until = time.monotonic() + min(max(seconds, default=0), _LONGEST_LEASE)
    while first and time.monotonic() < until:
        await asyncio.sleep(_LOOK_SECONDS)
        for namespace, spec in (await held()).items():
            if spec != first.get(namespace):
                raise BorrowedClusterError(
                    f"an operator is at work in this cluster, {spec['holderIdentity']} (Lease"
                    f" {_OPERATOR} in namespace {namespace}): it would do the work of the"
                    " rehearsal's; stop it meanwhile, as `kubectl scale deployment"
                    f" {_OPERATOR} --replicas=0 -n {namespace}` does"
                )


async def check_crds(client: KubeClient, crds: Sequence[Manifest]) -> None:
    """Checks that existing CRDs are the same as ours, as they won't be changed."""
    for ours in crds:
        name = ours["metadata"]["name"]
        try:
            there = await client.get_json(f"{_CRDS_PATH}/{name}")
        except NotFoundError:
            continue
        if not is_same_crd(there, ours):
            raise BorrowedClusterError(
                f"the CRD {name} is there in another version; use the kwok-operator of that"
                " version, or upgrade the one in the cluster"
            )


async def check_groups(client: KubeClient, served: ApiResources) -> None:
    """Checks that there are no groups, nodes of groups or provider config: the rehearsal's operator
    would manage them.
    """
    for kind in served.deletable:
        existing = await kind.metadata(client) if kind.group == API_GROUP else ()
        if existing:
            raise BorrowedClusterError(
                f"{kind.kind} {in_words(each['name'] for each in existing)}: the operator of the"
                " rehearsal would take care of what is there already; delete it, or use"
                " another cluster"
            )
    params = {"labelSelector": NODE_GROUP_LABEL, "limit": "1"}
    for node in (await client.get_json(NODES_PATH, params))["items"]:
        raise BorrowedClusterError(
            f"Node {node['metadata']['name']} is of a group that is gone; delete such nodes:"
            f" kubectl delete nodes --selector={NODE_GROUP_LABEL}"
        )
    path = f"/api/v1/namespaces/{_OPERATOR}/configmaps/{DEFAULT_PROVIDER_CONFIG}"
    try:
        await client.request("GET", path, accept=ACCEPT_METADATA)
    except NotFoundError:
        return
    raise BorrowedClusterError(
        f"ConfigMap {_OPERATOR}/{DEFAULT_PROVIDER_CONFIG}: the operator of the rehearsal would"
        " make groups of it; delete it, or use another cluster"
    )


async def check_selectors(client: KubeClient, objects: Iterable[Manifest]) -> None:
    """Checks that no Service, controller or PodDisruptionBudget that is in the cluster would select
    the rehearsal's pods.
    """
    pods: dict[str, dict[frozenset[tuple[str, str]], str]] = {}
    for each in objects:
        metadata = as_map(each.get("metadata"))
        for labels in labels_of_pods(each):
            namespace = str(metadata.get("namespace") or "default")
            whose = f"{each.get('kind')} {metadata.get('name')}"
            pods.setdefault(namespace, {}).setdefault(frozenset(labels.items()), whose)
    for namespace, of in pods.items():
        for group, version, plural in _SELECTING:
            root = f"/apis/{group}/{version}" if group else f"/api/{version}"
            listed = await client.get_json(f"{root}/namespaces/{namespace}/{plural}")
            for body in listed["items"]:
                taken = [whose for labels, whose in of.items() if selects(body, dict(labels))]
                if taken:
                    raise BorrowedClusterError(
                        f"{plural} {namespace}/{body['metadata']['name']}: it would take the pods"
                        f" of {in_words(taken)} for its own, by their labels; give these another"
                        " name, other labels or another namespace in the scenario"
                    )


def scout() -> Manifest:
    """Returns the Node by which `check_kwok` sees whether kwok is alive; no pod fits on it."""
    room = {"pods": "0"}
    annotations = {KWOK_NODE_ANNOTATION: KWOK_NODE_ANNOTATION_VALUE}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": SCOUT, "annotations": annotations},
        "spec": {"taints": [{"key": GUARD_TAINT_KEY, "effect": GUARD_TAINT_EFFECT}]},
        "status": {"allocatable": room, "capacity": room},
    }


async def check_kwok(client: KubeClient, node: Manifest) -> None:
    """Checks that kwok is alive: creates a node, waits until kwok has made it Ready, and deletes
    it.
    """
    await client.request("POST", NODES_PATH, body=node, retries=RETRIES)
    until = time.monotonic() + _SCOUT_WITHIN
    while time.monotonic() < until:
        await asyncio.sleep(_LOOK_SECONDS)
        scout_node = await client.get_json(f"{NODES_PATH}/{SCOUT}", retries=RETRIES)
        conditions = as_list(as_map(scout_node.get("status")).get("conditions"))
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            await client.request("DELETE", f"{NODES_PATH}/{SCOUT}", retries=RETRIES)
            return
    raise BorrowedClusterError(
        f"no kwok controller keeps nodes in this cluster: a node was not Ready within"
        f" {_SCOUT_WITHIN:g} s; start one that manages nodes with the annotation"
        f" {KWOK_NODE_ANNOTATION}={KWOK_NODE_ANNOTATION_VALUE}"
    )
