"""Assembles the parts that work on groups: gives each part the other parts and the callbacks that
it needs.

    kopf (handlers.py) ─┐                         ┌──> reconciler ──> nodes, status, Events
    reflector ──────────┼──> store, cache ──> queue
    resync ─────────────┤
    sources ────────────┘ <── ConfigMaps, real nodes ──> provider config ──> groups

Nothing runs yet: process.py starts and stops the parts. Until `begin()` no group is worked on,
whatever the watches report. So a standby can run these watches.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kwok_operator import constants
from kwok_operator.cloud.clouds import Clouds
from kwok_operator.cloud.hold import HoldLink
from kwok_operator.cloud.pools import Pools
from kwok_operator.cloud.step import CloudStep, read_mark
from kwok_operator.clusterapi.crds import VERSIONS
from kwok_operator.clusterapi.machines import EmulationTerms
from kwok_operator.clusterapi.settings import ClusterApiSettings, Mode
from kwok_operator.companions.copying import read_companions
from kwok_operator.companions.keeper import CompanionKeeper
from kwok_operator.companions.step import CompanionStep
from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.kube.followed import list_into
from kwok_operator.kube.gathering import GATHER, GATHER_AT_REST
from kwok_operator.kube.pacing import Pace
from kwok_operator.kube.reflector import Reflector
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.budget import NodeBudget
from kwok_operator.nodegroups.client import Group, UnreadableGroup
from kwok_operator.nodegroups.creation import NodePoster
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.kwok import KwokLink
from kwok_operator.nodegroups.nodecache import NodeCache, NodeRecord
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.parts import Clock, Parts
from kwok_operator.nodegroups.queue import WorkQueue
from kwok_operator.nodegroups.reconciler import NOT_READY_RECHECK, Reconciler
from kwok_operator.nodegroups.statuswriter import StatusWriter
from kwok_operator.nodegroups.steps import GroupStep
from kwok_operator.nodegroups.templates import Templates
from kwok_operator.nodegroups.unmarked import find_unmarked
from kwok_operator.observability.metrics import Metrics
from kwok_operator.podprofiles.profiles import Profiles
from kwok_operator.settings import RunSettings
from kwok_operator.sources.configmaps import ConfigMaps
from kwok_operator.sources.groupwriter import DerivedGroupWriter
from kwok_operator.sources.livenodes import NodeLink
from kwok_operator.sources.nodechoice import LiveNode
from kwok_operator.sources.provider import Provider
from kwok_operator.sources.references import Sources
from kwok_operator.topology.step import TopologyStep

if TYPE_CHECKING:
    from kwok_operator.clusterapi.emulate import Emulation
    from kwok_operator.clusterapi.mirror import Mirror

logger = logging.getLogger(__name__)

WAKE_COALESCING = 0.05
"""Seconds within which changes of a group's nodes are handled in one pass."""
DOUBT = 0.5
"""If the known groups may be out of date, all are listed after so many seconds."""
CONFIGMAPS_PAGE = 20
"""Objects per page of a list. A ConfigMap may have 1 MiB, and a page is decoded at once."""


class Assembly:
    """The parts of the operator. Groups and nodes have one client each, as they may be in two
    clusters; `namespace` is the operator's own."""

    def __init__(
        self,
        settings: RunSettings,
        metrics: Metrics,
        *,
        namespace: str,
        groups: KubeClient,
        nodes: KubeClient,
        clock: Clock | None = None,
        executor: Executor | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._namespace = namespace
        self._groups = groups
        self._nodes = nodes
        self.mirror: Mirror | None = None
        self.playing: Emulation | None = None
        self._metrics = metrics
        self.list_followed_anew: Callable[[], None] = lambda: None
        """Has kopf list again everything that it watches."""
        self._draw = draw
        clock = clock or Clock(time.monotonic, nodes.server_clock.now)
        self._listed, self._kopf_listed = asyncio.Event(), asyncio.Event()
        self._doubted_at = 0.0
        self.store = GroupStore(clock=time.monotonic, unreadable=self._unreadable)
        self.queue = WorkQueue(
            lambda name: self.reconciler.reconcile(name), draw=draw, wish=self.store.wish
        )
        self._set_up_cache(nodes, clock=clock)
        pace = Pace(most=settings.node_concurrency, qps=settings.max_qps)
        executor = self._executor = executor or Executor(pace, metrics=metrics)
        count_request, refused = executor.count_request, self._pods_refused
        self._set_up_clouds(groups=groups, metrics=metrics, clock=clock)
        writer = NodeWriter(
            client=nodes, cache=self.cache, count_request=count_request, pods_refused=refused
        )
        self.recorder = Recorder(client=groups, clock=clock.monotonic, wall=clock.wall)
        self._set_up_sources(groups=groups, nodes=nodes, metrics=metrics, clock=clock)
        # In the nodes' cluster, as its kwok carries out their Stages.
        self.profiles = Profiles(client=nodes, recorder=self.recorder, now=clock.now)
        self._set_up_companions(nodes, clock=clock)
        self.status = StatusWriter(client=groups)
        self.budget = NodeBudget(limit=settings.max_total_nodes, freed=self._wake_anew)
        self._steps = self._make_steps(nodes, writer=writer, metrics=metrics, clock=clock)
        self._templates = Templates(
            writer=writer,
            sources=self.sources,
            provider_id_prefix=settings.provider_id_prefix,
            steps=self._steps,
            clock=clock.monotonic,
            draw=draw,
        )
        self.reconciler: Reconciler = self._make_reconciler(writer, metrics=metrics, clock=clock)
        self.node_reflector = self._node_reflector(nodes)
        self.store.changed += [self.companions.group_changed, self.provider.group_changed]
        self._export(metrics)

    def _make_reconciler(self, writer: NodeWriter, *, metrics: Metrics, clock: Clock) -> Reconciler:
        parts = Parts(
            store=self.store,
            cache=self.cache,
            writer=writer,
            templates=self._templates,
            kwok=self.kwok,
            recorder=self.recorder,
            executor=self._executor,
            budget=self.budget,
            status=self.status,
            metrics=metrics,
            clock=clock,
            steps=self._steps,
            provider_id_prefix=self._settings.provider_id_prefix,
        )
        poster = NodePoster(
            client=self._nodes,
            cache=self.cache,
            writer=writer,
            count_request=self._executor.count_request,
        )
        return Reconciler(parts, poster, wake=self.queue.add, sure=self._is_sure)

    def _set_up_cache(self, client: KubeClient, *, clock: Clock) -> None:
        self.kwok = KwokLink(
            client=client, clock=clock.monotonic, born_ready=self.store.are_born_ready
        )
        self.cache = NodeCache(
            changed=self._nodes_changed, initialised=self.kwok.initialised, read_mark=read_mark
        )

    def _make_steps(
        self, client: KubeClient, *, writer: NodeWriter, metrics: Metrics, clock: Clock
    ) -> tuple[GroupStep, ...]:
        """Returns the features' steps (nodegroups/steps.py) that take part in each pass, in the
        order of their calls."""
        cloud = CloudStep(
            clouds=self.clouds,
            hold=HoldLink(client=client, clock=clock.monotonic),
            writer=writer,
            executor=self._executor,
            kwok=self.kwok,
            recorder=self.recorder,
            metrics=metrics,
            clock=clock,
        )
        topology = TopologyStep(
            store=self.store,
            cache=self.cache,
            writer=writer,
            executor=self._executor,
            clock=clock,
            wake=self.queue.add,
            try_anew=self._try_template,
        )
        self.clouds.places_of = topology.places_of
        return CompanionStep(self.companions), topology, cloud

    def set_up_clusterapi(self, settings: ClusterApiSettings, management: KubeClient) -> None:
        """Sets up groups that are derived from Cluster API's objects; `management` is the client
        that reads these objects."""
        # Imported late, as most operators don't need these modules, which take 0.6 MB.
        from kwok_operator.clusterapi.emulate import Emulation
        from kwok_operator.clusterapi.mirror import Mirror

        self.mirror = Mirror(
            settings,
            management=management,
            groups=self.store,
            client=self._groups,
            recorder=self.recorder,
        )
        self.store.changed.append(self.mirror.group_changed)
        if settings.mode is Mode.EMULATE:
            self.playing = Emulation(
                EmulationTerms(
                    keys=settings.keys,
                    version=settings.version or VERSIONS[-1],
                    style=settings.failures,
                    provider_id_prefix=self._settings.provider_id_prefix,
                ),
                client=self._groups,
                store=self.store,
                cache=self.cache,
                clouds=self.clouds,
                executor=self._executor,
                recorder=self.recorder,
                wake=self.queue.add,
                sure=self._is_sure,
                draw=self._draw,
            )
            self.store.changed.append(self.playing.group_changed)

    async def take_over(self) -> None:
        """Lists and stores all existing objects, and counts the nodes that an earlier operator
        granted to groups against --max-total-nodes."""
        await self._list_followed(all_or_none=True)
        groups, _ = await self.status.groups()
        for group in groups:
            self.store.put(group)
            target = group.status.target_size if isinstance(group, Group) else None
            held = max(target or 0, self.cache.count(group.name))
            self.budget.grant(group.name, held, wants_more=False)

    def kopf_listed(self, again: bool) -> None:
        """Called when kopf has listed a kind, with `again` if not for the first time. No event
        reports objects that were deleted before the list, so the operator makes a list, too."""
        if again:
            self.store.doubted.set()
        else:
            self._kopf_listed.set()

    async def list_after_kopf(self) -> None:
        """Lists everything once more after kopf's first lists, as objects may be deleted between
        `take_over` and kopf's first watches."""
        while True:
            await self._kopf_listed.wait()
            await asyncio.sleep(DOUBT)
            self._kopf_listed.clear()
            await self._list_followed()

    async def _list_followed(self, *, all_or_none: bool = False) -> None:
        """Lists the kinds that kopf watches, except groups, to learn which objects were deleted
        while no watch was open.

        If a kind can't be listed, what is known of it stays; with `all_or_none` it raises
        KwokOperatorError instead.
        """
        for client, path, known in (
            (self._groups, constants.POOLS_PATH, self.pools.objects),
            (self._nodes, constants.PROFILES_PATH, self.profiles.objects),
            (self._groups, self.configmaps.path, self.configmaps.objects),
        ):
            try:
                await list_into(client, path, known, page_size=CONFIGMAPS_PAGE)
            except KwokOperatorError as error:
                if all_or_none:
                    raise
                logger.warning("listing failed, what is known stays: path=%s error=%s", path, error)

    async def unmarked(self) -> list[NodeRecord]:
        """Returns records of the nodes that have lost the label or annotation of their group."""
        return await find_unmarked(self._nodes, cache=self.cache, store=self.store)

    def begin(self, unmarked: Iterable[NodeRecord] = ()) -> None:
        """Starts the work on groups, at once on all known ones. `unmarked` are nodes that lost the
        label or annotation of their group, which the reconciler restores."""
        self.cache.keeps_strays = True
        self.queue.open()
        self.companion_queue.open()
        for record in unmarked:
            self.cache.lost(record)
        for name in self.store.names():
            self.queue.add(name)
            self.companions.group_changed(name)

    def _try_template(self, name: str) -> None:
        """Schedules a pass over a group in which the API server checks the group's template
        again."""
        self._templates.forget(name)
        self.queue.add(name)

    def _wake_anew(self, name: str) -> None:
        """Schedules a pass at once, even over a group that failed, as the cause may be gone."""
        self.queue.add(name, anew=True)

    def _unreadable(self, group: UnreadableGroup) -> None:
        sentence = f"{group.why}; it stays as it was last read, if it was"
        self.recorder.emit(group, "Warning", "Unreadable", sentence)

    async def resync(self) -> None:
        """Lists all groups and schedules passes over them: at intervals, and when the known groups
        may be out of date."""
        while True:
            pause = self._settings.resync_interval * random.uniform(0.8, 1.2)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.store.doubted.wait()
                await asyncio.sleep(DOUBT)
            try:
                await self._look_at_all()
            except Exception:
                self.store.doubted.set()
                raise

    async def _look_at_all(self) -> None:
        names = await self.store.list_anew(self.status.groups)
        if names is None:
            return
        await self._list_followed()
        for name in names:
            self._try_template(name)
        self._listed.set()
        await self.sources.keep_only(self.store.names())
        self.provider.recheck()
        if self.mirror is not None:
            self.mirror.recheck()

    async def recheck(self) -> None:
        """After each list of groups, checks whether nodes of others that had the names of our nodes
        are gone.

        This is a task of its own: reading a node may take long, and an urgent list of groups must
        not wait for it.
        """
        while True:
            await self._listed.wait()
            self._listed.clear()
            for name in self.store.names():
                await self.reconciler.recheck_taken(name)

    def _node_reflector(self, nodes: KubeClient) -> Reflector[NodeRecord]:
        return Reflector(
            client=nodes,
            path=constants.NODES_PATH,
            decoder=self.cache.decoder,
            params={"labelSelector": constants.NODE_GROUP_LABEL},
            sink=self.cache,
            on_page=self.cache.page,
            on_restart=self._nodes_restarted,
            on_restored=self._restored,
            gather_for=lambda: GATHER_AT_REST if self._at_rest() else GATHER,
        )

    def _export(self, metrics: Metrics) -> None:
        """Connects /metrics with the values that are computed when it is read."""
        metrics.watch_queue(lambda: self.queue.depth)
        metrics.watch_kwok(lambda: self.kwok.problem is None)
        metrics.watch_total(
            nodes=lambda: len(self.cache),
            limit=self._settings.max_total_nodes,
            waiting=lambda: self.budget.waiting,
        )
        metrics.watch_contact(constants.NODES_PATH, lambda: self.node_reflector.last_contact)

    def _set_up_companions(self, client: KubeClient, *, clock: Clock) -> None:
        """Sets up companions, in the nodes' cluster and with the nodes' executor."""
        self.companion_queue = WorkQueue(
            lambda name: self.companions.look_at(name), draw=self._draw, wish=self.store.wish
        )
        self.companions = CompanionKeeper(
            client=client,
            store=self.store,
            cache=self.cache,
            executor=self._executor,
            wake=self.companion_queue.add,
            changed=self.queue.add,
            cloud=lambda group: self.clouds.in_force(group),
            read=lambda source: read_companions(self.sources, source),
            monotonic=clock.monotonic,
            wall=lambda: clock.wall().timestamp(),
        )

    def _set_up_clouds(self, *, groups: KubeClient, metrics: Metrics, clock: Clock) -> None:
        """Sets up the simulated clouds, and the KwokCapacityPools that they share."""
        self.clouds = Clouds(store=self.store, cache=self.cache, seed=self._settings.cloud_seed)
        self.pools = self.clouds.pools = Pools(
            client=groups,
            changed=self._pools_changed,
            use=self.clouds.use,
            refused=self.clouds.refused,
            now=clock.now,
            metrics=metrics,
        )

    def _set_up_sources(
        self, *, groups: KubeClient, nodes: KubeClient, metrics: Metrics, clock: Clock
    ) -> None:
        """Sets up the sources that templates are copied from, and the part that reads the config
        of cluster-autoscaler's kwok provider."""
        settings = self._settings
        self.configmaps = ConfigMaps(
            namespace=settings.provider_config_namespace or self._namespace,
            recorder=self.recorder,
            changed=self._configmap_changed,
        )
        link = NodeLink(
            client=nodes,
            place="this cluster",
            changed=self._live_nodes_changed,
            clock=clock.monotonic,
        )
        self.sources = Sources(
            configmaps=self.configmaps,
            local=link,
            secrets=groups,
            namespace=self._namespace,
            wake=self._wake_anew,
            fleet_changed=lambda: self.provider.changed(),
            clock=clock.monotonic,
        )
        self.provider = Provider(
            name=settings.provider_config,
            configmaps=self.configmaps,
            local=link,
            fleet=self.sources.fleet,
            groups=self.store,
            writer=DerivedGroupWriter(client=groups),
            recorder=self.recorder,
            metrics=metrics,
            now=clock.now,
        )

    async def nodes_version(self) -> int:
        """Returns the current resourceVersion of the nodes."""
        params = {"limit": "1", "labelSelector": constants.NODE_GROUP_LABEL}
        answer = await self._nodes.request(
            "GET", constants.NODES_PATH, params=params, retries=PATIENT
        )
        return self.cache.decoder.page(answer).resource_version

    def _nodes_restarted(self, path: str, cause: str) -> None:
        self._metrics.watch_restarted(path, cause)
        if not self.node_reflector.version:
            self.store.doubted.set()
            heard = self.node_reflector.last_contact
            if heard != self._doubted_at:  # once per outage, not at each list that fails
                self._doubted_at = heard
                self.list_followed_anew()

    def _restored(self) -> None:
        self.cache.forget_versions()
        self._doubt_all()

    def _doubt_all(self) -> None:
        """Requests new lists of groups and of all that kopf watches, after an outage of the API
        server: watches may have missed events, or etcd may have been restored from a backup."""
        self.store.doubted.set()
        self.list_followed_anew()

    def _is_sure(self) -> bool:
        """Whether groups and nodes may be acted on. After an outage of the API server, what is
        known of them may be from different times, until both are listed."""
        return self.store.sure and bool(self.node_reflector.version)

    def _nodes_changed(self, group: str) -> None:
        self.queue.add(group, WAKE_COALESCING)
        self.companions.nodes_changed(group)
        if self.playing is not None:
            self.playing.group_changed(group)

    def _configmap_changed(self, name: str) -> None:
        self.sources.configmap_changed(name)
        self.provider.configmap_changed(name)

    def _live_nodes_changed(self, nodes: Sequence[LiveNode]) -> None:
        self.sources.nodes_changed(None, nodes)
        self.provider.changed()

    def _pools_changed(self, pools: Collection[str]) -> None:
        for name in self.clouds.naming(pools):
            self._wake_anew(name)

    def _pods_refused(self, name: str, sentence: str) -> None:
        group = self.store.get(name)
        if group is not None:
            self.recorder.emit(group, "Warning", "PodsNotDeleted", sentence)
        else:
            logger.warning("PodsNotDeleted: group=%s %s", name, sentence)

    def _at_rest(self) -> bool:
        return self.queue.is_open and not self.queue.busy(within=NOT_READY_RECHECK)
