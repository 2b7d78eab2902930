"""Finds the sources that `template.from` names, and wakes groups when these change.

    ConfigMaps, real nodes, Secrets ──find──> Found, a version of a source ──load──> the nodes

A source in another cluster is followed while a group or the provider config needs it.
"""

import base64
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import (
    ForbiddenError,
    ManifestError,
    NotFoundError,
)
from kwok_operator.formats.documents import node_name, pick
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import decode_dict
from kwok_operator.kube.remote import remote_endpoint
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.template import SourceNode, template_hash
from kwok_operator.nodegroups.templates import Found, SourceMissingError
from kwok_operator.sources.api.source import (
    DEFAULT_KUBECONFIG_KEYS,
    ConfigMapSource,
    NodesSource,
    RemoteCluster,
    TemplateSource,
)
from kwok_operator.sources.configmaps import ConfigMaps, only_key
from kwok_operator.sources.livenodes import LiveNodes, NodeLink, RemoteLink
from kwok_operator.sources.nodechoice import LiveNode, choose, in_words, matches

Link = NodeLink | RemoteLink

SECRETS_REMEDY: Final = "kubectl apply -f deploy/components/remote-templates/rbac.yaml"
"""The command that grants the right to read Secrets, which the operator doesn't have by default."""


class Sources:
    """Finds the sources of templates of groups. `wake(group)` plans a pass over a group;
    `fleet_changed` is called when nodes have changed in the other cluster that the provider config
    reads.

    `local` follows the nodes of this cluster once they are needed; `secrets` reads Secrets of
    `namespace`.
    """

    def __init__(
        self,
        *,
        configmaps: ConfigMaps,
        local: NodeLink,
        secrets: KubeClient,
        namespace: str,
        wake: Callable[[str], None],
        fleet_changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._configmaps = configmaps
        self._secrets = secrets
        self._namespace = namespace
        self._wake = wake
        self._fleet_changed = fleet_changed
        self._fleet: RemoteCluster | None = None
        self._clock = clock
        self._followers: dict[str, TemplateSource] = {}
        self._remote: dict[RemoteCluster, RemoteLink] = {}
        self._local = local

    async def find(self, group: Group) -> Found:
        """Finds the source from which a group's template copies at present: a node, a ConfigMap's
        Node, or both. Remembers the source, so that its changes wake the group.
        """
        source = group.spec.template.source
        if source is None:
            self._followers.pop(group.name, None)
            return Found("", "", _nothing)
        self._followers[group.name] = source
        try:
            parts = [await self._find_node(source.nodes)] if source.nodes else []
            if source.config_map:
                parts.append(await self._find_in_configmap(source.config_map))
        except SourceMissingError as error:
            return Found("", "", _nothing, error.missing)

        async def load() -> tuple[SourceNode, ...]:
            return tuple([node for part in parts for node in await part.load()])

        return Found(
            version="+".join(part.version for part in parts),
            origin=" and ".join(part.origin for part in parts),
            load=load,
        )

    async def keep_only(self, groups: Collection[str]) -> None:
        """Forgets all groups but these, and stops following clusters that no group needs."""
        self._followers = {n: s for n, s in self._followers.items() if n in groups}
        wanted = {s.nodes.cluster for s in self._followers.values() if s.nodes} | {self._fleet}
        for cluster in self._remote.keys() - wanted:
            await self._remote.pop(cluster).close()

    async def close(self) -> None:
        """Stops following the nodes of this cluster and of all others."""
        self._fleet = None
        await self.keep_only(())
        await self._local.close()

    def fleet(self, cluster: RemoteCluster | None) -> Link:
        """Returns the link to the nodes that the provider config reads. These nodes are followed
        until the config names another cluster."""
        self._fleet = cluster
        link = self._link(cluster)
        link.start()
        return link

    def configmap_changed(self, name: str) -> None:
        """Wakes the groups that copy from a ConfigMap."""
        for group, source in self._followers.items():
            if source.config_map is not None and source.config_map.name == name:
                self._wake(group)

    def nodes_changed(self, cluster: RemoteCluster | None, nodes: Sequence[LiveNode]) -> None:
        """Wakes the groups that could copy from one of these nodes of `cluster`; without nodes, all
        groups that copy from that cluster. Reports the change if the provider config reads the
        cluster."""
        if cluster is not None and cluster == self._fleet:
            self._fleet_changed()
        for group, source in self._followers.items():
            wanted = source.nodes
            if wanted is None or wanted.cluster != cluster:
                continue
            if not nodes or any(matches(node, wanted) for node in nodes):
                self._wake(group)

    async def choose(self, source: NodesSource) -> tuple[LiveNode, Link]:
        """Returns the node that a source describes, and the link to its cluster. Raises
        SourceMissingError."""
        link = self._link(source.cluster)
        link.start()
        if link.problem is None:
            await link.nodes.wait_synced()
        if (problem := link.problem) is not None:
            raise SourceMissingError("SourceUnreachable", f"the nodes of {link.place}: {problem}")
        if not link.nodes.synced.is_set():
            raise SourceMissingError("SourceUnreachable", f"{link.place} is still being listed")
        node = choose(link.nodes, source)
        if node is None:
            raise SourceMissingError("NodeNotFound", _none_fits(link.nodes, source, link.place))
        return node, link

    async def _find_node(self, source: NodesSource) -> Found:
        node, link = await self.choose(source)
        origin = f"node {node.name} of {link.place}"

        async def load() -> tuple[SourceNode, ...]:
            raw = await link.get(f"{NODES_PATH}/{node.name}")
            if raw is None:
                raise SourceMissingError("NodeNotFound", f"{origin} has gone")
            return (SourceNode(f"Node {node.name}", raw),)

        return Found(node.digest, origin, load)

    async def _find_in_configmap(self, source: ConfigMapSource) -> Found:
        place = f"ConfigMap {self._configmaps.namespace}/{source.name}"
        configmap = self._configmaps.get(source.name)
        if configmap is None:
            raise SourceMissingError("ConfigMapNotFound", f"{place} does not exist")
        try:
            key = only_key(configmap, source.key)
            documents = await self._configmaps.nodes(configmap, key)
            node = pick(documents, source.node, where=f"{place}, key {key}")
        except ManifestError as error:
            raise SourceMissingError("ConfigMapInvalid", str(error)) from error
        name = node_name(node) or "without a name"

        async def load() -> tuple[SourceNode, ...]:
            return (SourceNode(f"{place}, Node {name}", node),)

        return Found(template_hash(node), f"Node {name} of {place}", load)

    def _link(self, cluster: RemoteCluster | None) -> Link:
        if cluster is None:
            return self._local
        link = self._remote.get(cluster)
        if link is None:
            link = self._remote[cluster] = RemoteLink(
                name=cluster.secret_name,
                read=lambda: self._kubeconfig(cluster),
                parse=lambda text: remote_endpoint(text, where=f"Secret {cluster.secret_name}"),
                changed=lambda nodes: self.nodes_changed(cluster, nodes),
                clock=self._clock,
            )
        return link

    async def _kubeconfig(self, cluster: RemoteCluster) -> str:
        name = cluster.secret_name
        where = f"Secret {self._namespace}/{name}"
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{name}"
        try:
            data = decode_dict(await self._secrets.request("GET", path, retries=2)).get("data")
        except NotFoundError as error:
            raise ManifestError(f"{where} does not exist") from error
        except ForbiddenError as error:
            raise ManifestError(
                f"{where} may not be read (403: {error.message}); to allow it: {SECRETS_REMEDY}"
            ) from error
        for key in (cluster.key,) if cluster.key else DEFAULT_KUBECONFIG_KEYS:
            if data and key in data:
                try:
                    return base64.b64decode(data[key]).decode()
                except ValueError as error:
                    raise ManifestError(f"{where}, key {key}, is not text: {error}") from error
        wanted = cluster.key or " nor ".join(DEFAULT_KUBECONFIG_KEYS)
        there = ", ".join(sorted(data or {})) or "none"
        raise ManifestError(f"{where} has no key {wanted}, only: {there}")


async def _nothing() -> tuple[SourceNode, ...]:
    return ()


def _none_fits(nodes: LiveNodes, source: NodesSource, place: str) -> str:
    fitting = [node for node in nodes if matches(node, source)]
    if not fitting:
        return f"no node of {place} is {in_words(source)} (fake nodes don't count)"
    if len(fitting) == 1:
        return (
            f"node {fitting[0].name} of {place} fits, but isn't Ready and schedulable, or doesn't "
            "state its capacity"
        )
    return (
        f"{len(fitting)} nodes of {place} are {in_words(source)}, but none is Ready, schedulable "
        "and states its capacity"
    )
