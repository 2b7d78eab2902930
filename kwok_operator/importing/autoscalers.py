"""Reads the bounds of node groups from cluster-autoscaler, Cluster API and Karpenter.

A group without bounds just keeps its size. So bounds that can't be read are only noted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kwok_operator.formats.untyped import as_map, text_at, value_at
from kwok_operator.importing.cluster import ClusterClient, Unreadable
from kwok_operator.importing.ledger import Unread
from kwok_operator.importing.nodes.bounds import Bounds
from kwok_operator.importing.nodes.castatus import flags_of
from kwok_operator.nodegroups.naming import is_object_name

STATUS: Final = "cluster-autoscaler-status"
PROVIDER_CONFIG: Final = "kwok-provider-config"
TEMPLATES: Final = "kwok-provider-templates"
DEFAULT_NAMESPACE: Final = "kube-system"
SCALABLES: Final = ("machinedeployments", "machinesets", "machinepools")
CAPI: Final = "cluster.x-k8s.io"
KARPENTER: Final = "karpenter.sh"


def namespaces_of(body: Any) -> set[str]:
    """Returns the namespaces in which the cluster-autoscaler of this Deployment may keep its
    status; none if the Deployment runs another program.
    """
    flags = flags_of(body)
    if flags is None:
        return set()
    own = text_at(body, "metadata", "namespace")
    named = [own, *(value for flag, value in flags if flag == "namespace")]
    return {name for name in named if is_object_name(name)}


async def read_bounds(
    cluster: ClusterClient, bounds: Bounds, *, namespaces: Iterable[str]
) -> list[Unread]:
    """Adds to `bounds` the minimum and maximum sizes of node groups, as far as the cluster shows
    them. Returns what can't be read. `namespaces` are those in which cluster-autoscaler may keep
    its status.
    """
    unread: list[Unread] = []
    for namespace in sorted({DEFAULT_NAMESPACE, *namespaces}):
        await _configmaps(cluster, bounds, unread, namespace)
    kinds: list[tuple[str, str, Callable[[Any], None]]] = [
        *((CAPI, resource, bounds.add_scalable) for resource in SCALABLES),
        (KARPENTER, "nodepools", bounds.node_pools.add),
    ]
    versions: dict[str, str] = {}
    for group, resource, add in kinds:
        if group not in versions:
            versions[group] = await _version(cluster, group)
        if not versions[group]:
            continue
        path = f"/apis/{group}/{versions[group]}/{resource}"
        try:
            async for page in cluster.pages(path):
                for item in page:
                    add(item)
        except Unreadable as error:
            if error.status != 404:
                unread.append(Unread(resource, path, error.reason, needed=False))
    return unread


async def _configmaps(
    cluster: ClusterClient, bounds: Bounds, unread: list[Unread], namespace: str
) -> None:
    data_of: dict[str, Mapping[str, Any]] = {}
    for name in (STATUS, PROVIDER_CONFIG, TEMPLATES):
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        try:
            data = (await cluster.get(path)).get("data")
        except Unreadable as error:
            if error.status != 404:
                unread.append(Unread("ConfigMap", path, error.reason, needed=False))
            continue
        data_of[name] = as_map(data)
    add_configs(bounds, data_of)


def add_configs(bounds: Bounds, data: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds the bounds in cluster-autoscaler's ConfigMaps; `data` has their data by name."""
    if STATUS in data:
        bounds.add_status(data[STATUS].get("status"))
    if PROVIDER_CONFIG in data:
        bounds.add_provider_config(data[PROVIDER_CONFIG].get("config"), data.get(TEMPLATES))


async def _version(cluster: ClusterClient, group: str) -> str:
    """Returns the version of an API group that the API server prefers; empty if the server lacks
    the group.
    """
    try:
        answer = await cluster.get(f"/apis/{group}")
    except Unreadable:
        return ""
    return str(value_at(answer, "preferredVersion", "version") or "")
