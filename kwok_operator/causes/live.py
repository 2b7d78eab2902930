"""Explains a pod of a live cluster, ours or any other: `kwok-operator why POD --context NAME`.

    the pod, its Events, its claims ─┐
    the autoscaler's Events, status ─┼─ reading.py ─> aslines.py ──> the chain of the pod
    NodePools, NodeClaims, groups   ─┤
    nodes, and the pods on them     ─┘─────────────> fit.py ──────> which nodes would take it now

Reads only what the pod's state makes necessary: nodes, and the pods on them, only if it has no
node.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from kwok_operator.causes.aslines import AsLines
from kwok_operator.causes.fit import Fit, FitClaim, fit
from kwok_operator.causes.livelines import (
    autoscaler_lines,
    fit_lines,
    group_lines,
    pool_lines,
    with_fit,
)
from kwok_operator.causes.model import Chain
from kwok_operator.causes.nodematch import FitNode
from kwok_operator.causes.podsonnodes import PodNeeds, PodsOnNodes
from kwok_operator.causes.reading import (
    NAMED,
    NODE,
    PLACED,
    POD,
    STATUS_MAP,
    Body,
    ClusterReader,
)
from kwok_operator.constants import (
    API_GROUP,
    GROUPS_PATH,
    KIND,
    NODE_CLAIMS_PATH,
    NODE_POOLS_PATH,
    NODES_PATH,
)
from kwok_operator.errors import DecodeError, KwokOperatorError, NotFoundError
from kwok_operator.formats.autoscalertexts import parse_status
from kwok_operator.formats.podparts import dicts
from kwok_operator.formats.times import milliseconds_of
from kwok_operator.formats.untyped import as_texts, text_at, value_at
from kwok_operator.formats.words import few_names, nearest
from kwok_operator.kube.client import KubeClient

STATUS: Final = "cluster-autoscaler-status"
_PODS: Final = "/api/v1/pods"
_PLACED: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_KARPENTER: Final = "karpenter.sh"
_HOME: Final = "kube-system"
_SHARED: Final = "/api/v1/namespaces/default/events"
"""The API path of Events about objects that have no namespace."""
_EVENT_TTL: Final = 3_600.0
"""Seconds that an API server keeps Events by default (kube-apiserver's --event-ttl)."""
_MOST_STATUSES: Final = 4
_FEW_PAGES: Final = 4
_MOST_COMPARED: Final = 5_000
"""The most existing names that are compared with a mistyped name, to suggest one."""


class NoSuchPodError(KwokOperatorError):
    """The cluster has no pod of that name."""


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """The pod's chain of causes, and lines of text on the present state of nodes and
    autoscalers.
    """

    chain: Chain
    live_lines: tuple[str, ...]


async def explain_live(client: KubeClient, *, namespace: str, name: str) -> LiveAnswer:
    """Explains a pod. Raises NoSuchPodError, or the request's error if the pod can't be read."""
    reader = ClusterReader(client)
    pod = await _pod(reader, namespace, name)
    try:
        lines = AsLines(pod, now=milliseconds_of(client.server_clock.now()))
    except ValueError as error:
        raise DecodeError(f"pod {namespace}/{name}: its creationTimestamp {error}") from error
    return await _LivePod(reader, lines, pod, namespace, name).answer()


class _LivePod:
    """Reads the objects that matter for one pod."""

    def __init__(
        self, reader: ClusterReader, lines: AsLines, pod: Body, namespace: str, name: str
    ) -> None:
        self._reader = reader
        self._lines = lines
        self._pod = pod
        self._namespace = namespace
        self._name = name
        self._live_lines: list[str] = []
        self._events = 0
        self._groups: list[Body] = []
        self._pools: list[Body] = []
        self._all_pods = True

    async def answer(self) -> LiveAnswer:
        node = text_at(self._pod, "spec", "nodeName")
        await asyncio.gather(
            self._events_of_pod(),
            self._budgets(),
            self._autoscalers(),
            self._its_node(node) if node else self._nothing(),
        )
        result = None if node else await self._fit()
        chain = self._lines.chain()
        if result is not None and self._all_pods:
            chain = with_fit(chain, result)
        unknown = (*chain.unknown, *self._reader.unknown)
        return LiveAnswer(replace(chain, unknown=unknown), tuple(self._live_lines))

    async def _nothing(self) -> None:
        pass

    async def _events_of_pod(self) -> None:
        uid = text_at(self._pod, "metadata", "uid")

        def take(event: Body) -> None:
            # An earlier pod may have had this name.
            if value_at(event, "involvedObject", "uid") in (uid, None, ""):
                self._events += 1
                self._lines.event(event)

        path = f"/api/v1/namespaces/{self._namespace}/events"
        fields = f"involvedObject.kind=Pod,involvedObject.name={self._name}"
        what = "what scheduler and autoscaler said about the pod"
        read = await self._reader.each(path, take, shows=what, fields=fields)
        self._lines.events_read = read
        if read and not self._events and self._lines.now > _EVENT_TTL:
            self._reader.note(
                "what scheduler and autoscaler said about the pod: its Events are gone; an API"
                " server keeps them for an hour (kube-apiserver's --event-ttl)"
            )

    async def _budgets(self) -> None:
        path = f"/apis/policy/v1/namespaces/{self._namespace}/poddisruptionbudgets"
        what = "which PodDisruptionBudgets cover the pod"
        await self._reader.each(path, self._lines.budget, shows=what)

    async def _its_node(self, name: str) -> None:
        what = "the node of the pod"
        path, gone = f"{NODES_PATH}/{name}", partial(self._lines.lost_node, name)
        body = await self._reader.get(path, shows=what, decoder=NODE, missing=gone)
        if body is not None:
            self._lines.node(body)
        await self._shared_events(f"involvedObject.kind=Node,involvedObject.name={name}")

    async def _autoscalers(self) -> None:
        """Reads the objects of all autoscalers: Karpenter's, cluster-autoscaler's, and our
        KwokNodeGroups.
        """
        answer = await self._reader.get("/apis", shows="which autoscalers there are")
        apis, self._lines.autoscalers_read = answer or {}, answer is not None
        served = {
            text_at(group, "name"): {text_at(each, "version") for each in dicts(versions)}
            for group in dicts(apis.get("groups"))
            if (versions := group.get("versions")) is not None
        }
        if API_GROUP in served:
            what = "what hinders the groups of kwok-operator"
            await self._reader.each(GROUPS_PATH, self._group, shows=what)
            await self._shared_events(f"involvedObject.kind={KIND}")
            self._live_lines += group_lines(self._groups)
        if "v1" in served.get(_KARPENTER, ()):
            await self._karpenter()
        elif _KARPENTER in served:
            self._reader.note("NodePools and NodeClaims: Karpenter is older than 1.0")
            self._lines.autoscalers_read = False
        await self._cluster_autoscaler()
        if self._lines.autoscalers_read and not self._lines.autoscaled:
            self._reader.note(
                f"whether cluster-autoscaler runs: there is no ConfigMap {STATUS} (it has another"
                " name with --status-config-map-name, and none with --write-status-configmap=false)"
            )

    def _group(self, body: Body) -> None:
        self._groups.append(body)
        self._lines.group(body)

    async def _karpenter(self) -> None:
        def take_pool(body: Body) -> None:
            self._pools.append(body)
            self._lines.pool(body)

        what = "what Karpenter's NodePools allow"
        if not await self._reader.each(NODE_POOLS_PATH, take_pool, shows=what):
            self._lines.autoscalers_read = False
        what = "which nodes Karpenter has requested"
        take = self._lines.claim
        self._lines.claims_read = await self._reader.each(NODE_CLAIMS_PATH, take, shows=what)
        await self._shared_events("involvedObject.kind=NodeClaim")
        self._live_lines += pool_lines(self._pools)

    async def _cluster_autoscaler(self) -> None:
        what = "cluster-autoscaler's status"
        path = f"/api/v1/namespaces/{_HOME}/configmaps/{STATUS}"
        at_home = await self._reader.get(path, shows=what, decoder=STATUS_MAP)
        maps = [] if at_home is None else [at_home]
        if not maps:
            where = f"{what} outside of {_HOME}"
            fields, take = f"metadata.name={STATUS}", maps.append
            path = "/api/v1/configmaps"
            if not await self._reader.each(
                path, take, shows=where, decoder=STATUS_MAP, fields=fields
            ):
                self._lines.autoscalers_read = False
        for body in maps[:_MOST_STATUSES]:
            namespace = text_at(body, "metadata", "namespace") or _HOME
            status = parse_status(text_at(body, "data", "status"))
            if status is None:
                self._reader.note(f"{what}: the text in {namespace}/{STATUS} has another form")
                continue
            self._lines.status(status)
            self._live_lines += autoscaler_lines(status, where=f"{namespace}/{STATUS}")
            path = f"/api/v1/namespaces/{namespace}/events"
            fields = f"involvedObject.kind=ConfigMap,involvedObject.name={STATUS}"
            why = "why cluster-autoscaler's scale-ups failed"
            await self._reader.each(path, self._lines.event, shows=why, fields=fields)

    async def _shared_events(self, fields: str) -> None:
        what = f"Events with {fields}"
        take, most = self._lines.event, _FEW_PAGES
        await self._reader.each(_SHARED, take, shows=what, fields=fields, most=most)

    async def _fit(self) -> Fit | None:
        """Checks the pod against each node as it is now; None if the nodes can't be read."""
        needs = PodNeeds.of(self._pod)
        nodes: list[FitNode] = []

        def take(body: Body) -> None:
            nodes.append(FitNode.of(body))
            self._lines.node(body)

        what = "what keeps the pod off which nodes"
        if not await self._reader.each(NODES_PATH, take, shows=what, decoder=NODE):
            return None
        pods = PodsOnNodes(needs, await self._namespaces(needs))
        what = "what other pods take up of the nodes"
        self._all_pods = await self._reader.each(
            _PODS, pods.add, shows=what, decoder=PLACED, fields=_PLACED
        )
        self._notes()
        result = fit(pods, nodes, await self._claims())
        shown = list(fit_lines(result, needs.requests))
        if not self._all_pods:
            shown[0] += " (without regard to other pods)"
        if nominated := text_at(self._pod, "status", "nominatedNodeName"):
            shown.append(f"the scheduler preempts pods on {nominated} for it")
        self._live_lines[:0] = shown
        return result

    async def _namespaces(self, needs: PodNeeds) -> dict[str, dict[str, str]]:
        labels_by_name: dict[str, dict[str, str]] = {}

        def take(body: Body) -> None:
            labels = as_texts(value_at(body, "metadata", "labels"))
            labels_by_name[text_at(body, "metadata", "name")] = labels

        what = "which pods a namespaceSelector selects"
        quiet = not any(term.namespace_selector for term in (*needs.affinity, *needs.anti_affinity))
        path = "/api/v1/namespaces"
        await self._reader.each(path, take, shows=what, decoder=NAMED, quiet=quiet)
        return labels_by_name

    def _notes(self) -> None:
        """Adds a note on each feature that the pod uses and that fit.py doesn't compute."""
        spec, note = self._pod.get("spec"), self._reader.note
        if value_at(spec, "resourceClaims"):
            note(
                "whether devices are free (spec.resourceClaims): only the scheduler's message says"
            )
        scheduler = text_at(spec, "schedulerName") or "default-scheduler"
        if scheduler != "default-scheduler":
            note(
                f"what {scheduler} looks at: the filters of Kubernetes' own scheduler are computed"
            )

    async def _claims(self) -> list[FitClaim]:
        volumes = dicts(value_at(self._pod, "spec", "volumes"))
        return [await self._claim(name) for name in _claim_names(volumes, self._name)]

    async def _claim(self, name: str) -> FitClaim:
        what = f"where the volume of claim {name} is"
        path = f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{name}"
        before = len(self._reader.unknown)
        claim = await self._reader.get(path, shows=what)
        if claim is None:
            missing = f'persistentvolumeclaim "{name}" not found'
            return FitClaim(name, "" if len(self._reader.unknown) > before else missing)
        if volume := text_at(claim, "spec", "volumeName"):
            body = await self._reader.get(f"/api/v1/persistentvolumes/{volume}", shows=what) or {}
            affinity = value_at(body, "spec", "nodeAffinity", "required")
            labels = as_texts(value_at(body, "metadata", "labels"))
            return FitClaim(name, affinity=affinity, labels=labels)
        return await self._unbound_claim(name, text_at(claim, "spec", "storageClassName"))

    async def _unbound_claim(self, name: str, storage_class: str) -> FitClaim:
        what = f"when a volume is made for claim {name}"
        path = f"/apis/storage.k8s.io/v1/storageclasses/{storage_class}"
        before = len(self._reader.unknown)
        body = await self._reader.get(path, shows=what) if storage_class else None
        if len(self._reader.unknown) > before:
            return FitClaim(name)
        if text_at(body, "volumeBindingMode") == "WaitForFirstConsumer":
            self._reader.note(
                f"where a volume can be made for claim {name}: only the scheduler and the"
                f" provisioner of StorageClass {storage_class} know"
            )
            return FitClaim(name)
        return FitClaim(name, "pod has unbound immediate PersistentVolumeClaims")


def _claim_names(volumes: Iterable[dict[str, Any]], pod: str) -> list[str]:
    names = []
    for volume in volumes:
        if claim := text_at(volume, "persistentVolumeClaim", "claimName"):
            names.append(claim)
        elif "ephemeral" in volume:
            names.append(f"{pod}-{text_at(volume, 'name')}")
    return names


async def _pod(reader: ClusterReader, namespace: str, name: str) -> Body:
    path = f"/api/v1/namespaces/{namespace}/pods"
    with suppress(NotFoundError):
        pod = await reader.get(f"{path}/{name}", shows="", decoder=POD, optional=False)
        if pod is not None:
            return pod
    here: list[str] = []
    elsewhere: list[str] = []
    await reader.each(
        path,
        lambda body: here.append(text_at(body, "metadata", "name")),
        shows="",
        decoder=NAMED,
        quiet=True,
    )
    await reader.each(
        _PODS,
        lambda body: elsewhere.append(text_at(body, "metadata", "namespace")),
        shows="",
        decoder=NAMED,
        fields=f"metadata.name={name}",
        quiet=True,
    )
    raise NoSuchPodError(f"there is no pod {namespace}/{name}{_hint(name, here, elsewhere)}")


def _hint(name: str, here: list[str], elsewhere: list[str]) -> str:
    """Returns a hint about the pod `name`, which its namespace lacks: the namespaces that have one
    (`elsewhere`), else similar names among the pods of its namespace (`here`)."""
    if elsewhere:
        return f"; one of that name is in namespace {few_names(elsewhere)}"
    begun = [each for each in here if each.startswith(name)]
    if not begun and (near := nearest(name, here[:_MOST_COMPARED])):
        begun = [near]
    return f"; did you mean {few_names(begun)}?" if begun else ""
