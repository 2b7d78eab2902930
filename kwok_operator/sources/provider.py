"""Keeps the derived groups as the provider config says, and reports its problems.

    ConfigMaps, real nodes, groups ──(changed)──> pass: read ──> derive (pure) ──> apply
                                                              └──> problems: Event, log, metric

While a part of the sources can't be read, no group is removed, or annotated as no longer derived.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.words import Problem, few_names
from kwok_operator.kube.events import Recorder
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.observability.metrics import Metrics
from kwok_operator.sources.api.providerconfig import ProviderConfig
from kwok_operator.sources.api.source import RemoteCluster
from kwok_operator.sources.configmaps import ConfigMap, ConfigMaps
from kwok_operator.sources.derive import ConfigMapTemplates, Derivation, DerivedGroup, derive
from kwok_operator.sources.derivedgroups import DerivedGroups, apply_each
from kwok_operator.sources.groupwriter import DerivedGroupWriter
from kwok_operator.sources.livenodes import NodeLink
from kwok_operator.sources.providerconfig import ProviderConfigError, read_config, templates_key
from kwok_operator.sources.references import Link

logger = logging.getLogger(__name__)

CONFIG_KEY: Final = "config"
SETTLE: Final = 0.5
"""Seconds for which changes are collected before a pass."""
MAX_EVENTS: Final = 25
"""The most Events of one pass: 1 MiB of templates can have thousands of problems."""


class Provider:
    """Derives groups from the provider config: `run()` makes a pass after each call of `changed()`.

    `name` is that of the config's ConfigMap; `local` follows the nodes of this cluster;
    `fleet(cluster)` returns the link to the nodes of the cluster that the config names; `now`
    returns the present time as RFC 3339.
    """

    def __init__(
        self,
        *,
        name: str,
        configmaps: ConfigMaps,
        local: NodeLink,
        fleet: Callable[[RemoteCluster | None], Link],
        groups: GroupStore,
        writer: DerivedGroupWriter,
        recorder: Recorder,
        metrics: Metrics,
        now: Callable[[], str],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._configmaps = configmaps
        self._local = local
        self._fleet = fleet
        self._groups = groups
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._sleep = sleep
        self._owner = f"{configmaps.namespace}/{name}"
        self._dirty = asyncio.Event()
        self._templates = ""
        self._reported: frozenset[tuple[str, Problem]] = frozenset()
        self._derived = DerivedGroups(
            groups=groups,
            writer=writer,
            mark=constants.PROVIDER_CONFIG_ANNOTATION,
            maker="the provider config",
            changed=self.changed,
        )
        self._notes: tuple[str, ...] = ()
        self._summary = ""

    def changed(self) -> None:
        """Requests a pass over all groups. Call it when something that a pass reads has changed."""
        self._dirty.set()

    def configmap_changed(self, name: str) -> None:
        if name in (self._name, self._templates):
            self.changed()

    def group_changed(self, name: str) -> None:
        """Requests a pass if the group is gone or differs from what was applied."""
        self._derived.group_changed(name)

    def recheck(self) -> None:
        """Requests a pass that applies every group again, as the owner of a field can change
        without an event."""
        self._derived.forget()
        self.changed()

    async def run(self) -> None:
        """Makes a pass after each change, until cancelled. If it raises an error, the caller has to
        run it again."""
        self.changed()
        while True:
            await self._dirty.wait()
            await self._sleep(SETTLE)
            self._dirty.clear()
            await self._pass()

    async def _pass(self) -> None:
        configmap = self._configmaps.get(self._name)
        if configmap is None:
            if self._summary:
                logger.info("provider config is gone, groups stay: configmap=%s", self._owner)
            self._summary = ""
            self._report(None, [])
            return
        problems: list[Problem] = []
        try:
            config = await self._read(configmap)
        except ProviderConfigError as error:
            self._report(configmap, error.problems)
            return
        self._note(configmap, config)
        self._local.start()
        derivation = await self._derive(config, problems)
        if derivation is None:
            return
        self._derived.begin()
        problems += derivation.problems
        trouble = None
        ends = await apply_each(derivation.groups, self._apply)
        for group, end in zip(derivation.groups, ends, strict=True):
            if isinstance(end, BaseException):
                trouble = trouble or end
                message = f"group {group.name} can't be written, which is tried again: {end}"
                problems.append(Problem("GroupRefused", one_line(message)))
            else:
                problems += end
        if not any(problem.blocks for problem in problems):
            await self._retire({group.name for group in derivation.groups}, prune=config.prune)
        problems += self._leftovers()
        self._report(configmap, problems)
        if trouble is not None:
            raise trouble
        self._summarise(derivation)

    async def _read(self, configmap: ConfigMap) -> ProviderConfig:
        where = f"ConfigMap {self._owner}, key {CONFIG_KEY}"
        text = configmap.data.get(CONFIG_KEY)
        if text is None:
            keys = ", ".join(sorted(configmap.data)) or "none"
            message = f"ConfigMap {self._owner} has no key {CONFIG_KEY}, only: {keys}; rename it"
            problem = Problem("MissingKey", message)
            raise ProviderConfigError(where=where, problems=(problem,), fields=("",))
        config = await asyncio.to_thread(read_config, text, where=where)
        self._templates = config.configmap_name or ""
        return config

    async def _derive(self, config: ProviderConfig, problems: list[Problem]) -> Derivation | None:
        """Derives the groups. What can't be read is added to `problems`.

        Returns None while real nodes are being listed: the end of the list causes another pass.
        """
        live, link = None, self._fleet(config.cluster)
        if config.read_nodes_from.live:
            if link.problem is None:
                await link.nodes.wait_synced()
            synced, problem = link.nodes.synced.is_set(), link.problem
            if not synced and problem is None:
                return None
            # During an outage of this cluster nothing can be written either, and others report it.
            if problem is not None and (config.cluster or not synced):
                problems.append(_unreadable(link.place, problem, config.cluster))
            else:
                live = list(link.nodes)
        templates = None
        if config.read_nodes_from.static:
            try:
                templates = await self._read_templates(config)
            except ManifestError as error:
                problems.append(Problem("InvalidTemplates", str(error)))
        return await asyncio.to_thread(
            derive, config, owner=self._owner, templates=templates, live=live
        )

    async def _read_templates(self, config: ProviderConfig) -> ConfigMapTemplates:
        name = config.configmap_name or ""
        configmap = self._configmaps.get(name)
        if configmap is None:
            raise ManifestError(
                f"ConfigMap {self._configmaps.namespace}/{name}, which configmap.name names, does "
                "not exist; groups stay as they are until it does"
            )
        key = templates_key(config, configmap.data.keys())
        return ConfigMapTemplates(name, key, await self._configmaps.nodes(configmap, key))

    async def _apply(self, derived: DerivedGroup) -> list[Problem]:
        """Applies a derived group unless somebody else made the group of that name; returns the
        problems."""
        return await self._derived.apply(
            derived.manifest,
            owner=self._owner,
            value=derived.value,
            complete=partial(self._complete, derived),
        )

    async def _complete(self, derived: DerivedGroup, body: Mapping[str, Any]) -> None:
        """Sets the first target size of a new group. Removes the annotation that says since when
        the group wasn't derived, as it is derived now."""
        metadata, uid = body["metadata"], body["metadata"]["uid"]
        annotations = metadata.get("annotations") or {}
        unset = body.get("spec", {}).get("targetSize") is None
        first = constants.DESIRED_COUNT_ANNOTATION not in annotations
        if derived.desired is not None and unset and first:
            await self._writer.set_first_target(derived.name, uid=uid, size=derived.desired)
        if constants.NOT_DERIVED_SINCE_ANNOTATION in annotations:
            mark = {constants.NOT_DERIVED_SINCE_ANNOTATION: None}
            await self._writer.annotate(derived.name, uid=uid, annotations=mark)
            logger.info("derived again: group=%s", derived.name)

    async def _retire(self, derived: set[str], *, prune: bool) -> None:
        """Treats groups that came from a ConfigMap and are no longer derived: annotates them with
        the present time if they lack this annotation; with `prune`, deletes them instead.

        A group that came from real nodes stays as it is, so that it can be scaled from zero after
        its nodes are gone.
        """
        for name in self._groups.names():
            group = self._groups.get(name)
            if group is None or group.deleting or name in derived or not self._is_static(group):
                continue
            if prune:
                logger.info("no longer derived, removed: group=%s", name)
                await self._writer.delete(name, uid=group.uid)
            elif constants.NOT_DERIVED_SINCE_ANNOTATION not in group.annotations:
                logger.info("no longer derived, kept: group=%s", name)
                mark = {constants.NOT_DERIVED_SINCE_ANNOTATION: self._now()}
                await self._writer.annotate(name, uid=group.uid, annotations=mark)

    def _is_static(self, group: Group) -> bool:
        source = group.annotations.get(constants.PROVIDER_CONFIG_SOURCE_ANNOTATION)
        owner = group.annotations.get(constants.PROVIDER_CONFIG_ANNOTATION)
        return owner == self._owner and source == "configmap"

    def _leftovers(self) -> list[Problem]:
        names = [node.name for node in self._local.nodes.leftovers]
        if not names:
            return []
        message = (
            f"{few_names(names)}: made by cluster-autoscaler's own kwok provider. They are "
            "left alone and not counted. If it still runs, stop it, because it deletes our nodes "
            "too when it exits; then delete what it left behind"
        )
        return [Problem("LeftoverNodes", message, blocks=False)]

    def _report(self, configmap: ConfigMap | None, problems: Iterable[Problem]) -> None:
        """Emits Events for new problems, and sets the metric for all."""
        uid = configmap.uid if configmap else ""
        there = frozenset((uid, problem) for problem in problems)
        new = sorted(problem for _, problem in there - self._reported)
        if configmap is not None:
            for problem in new[:MAX_EVENTS]:
                self._recorder.emit(configmap, "Warning", problem.reason, f"{problem.message}.")
            if len(new) > MAX_EVENTS:
                message = f"{len(new) - MAX_EVENTS} more: `kwok-operator validate` lists them all."
                self._recorder.emit(configmap, "Warning", "ManyProblems", message)
        if self._reported and not there and configmap is not None:
            message = "Nothing is wrong with the provider config any more."
            self._recorder.emit(configmap, "Normal", "ProviderConfigValid", message)
        self._reported = there
        self._metrics.provider_problems(Counter(problem.reason for _, problem in there))

    def _note(self, configmap: ConfigMap, config: ProviderConfig) -> None:
        """Emits Events about parts of the config that have no effect, each only once."""
        if config.notes != self._notes:
            self._notes = config.notes
            for note in config.notes:
                self._recorder.emit(configmap, "Normal", "NoEffect", f"{note}.")

    def _summarise(self, derivation: Derivation) -> None:
        names = few_names([group.name for group in derivation.groups])
        summary = f"groups={len(derivation.groups)} names={names or 'none'}"
        if summary != self._summary:
            self._summary = summary
            logger.info("provider config: configmap=%s %s", self._owner, summary)


def _unreadable(place: str, problem: str, cluster: RemoteCluster | None) -> Problem:
    why = f"the nodes of {place}: {one_line(problem, limit=600)}"
    if cluster is not None:
        why = (
            f"cluster.secretName: {why}; groups stay as they are until the kubeconfig in that"
            " Secret gives a cluster whose nodes can be read"
        )
    return Problem("NodesUnreadable", why)
