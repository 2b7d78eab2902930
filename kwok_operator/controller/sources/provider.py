"""The provider config: its groups are kept as it says, and what is wrong with it is told.

    ConfigMaps, real nodes, groups ──(changed)──> pass: read ──> derive (pure) ──> apply
                                                              └──> problems: Event, log, metric

A pass begins with what is there and needs no memory but of what it said and wrote last. While
anything can't be read, what is missing means nothing: no group is marked or removed then. Deriving
never touches a group that somebody made by hand.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.controller.observed.groupstore import GroupStore
from kwok_operator.controller.sources.configmaps import ConfigMap, ConfigMaps
from kwok_operator.controller.sources.groupwriter import DerivedGroupWriter
from kwok_operator.controller.sources.livenodes import NodeLink
from kwok_operator.controller.writers.events import Recorder
from kwok_operator.core.derive import ConfigMapTemplates, Derivation, DerivedGroup, derive
from kwok_operator.core.providerconfig import ProviderConfigError, read_config, templates_key
from kwok_operator.core.words import Problem, few_names
from kwok_operator.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    ManifestError,
)
from kwok_operator.kube.groups import Group
from kwok_operator.models.providerconfig import ProviderConfig
from kwok_operator.observability.metrics import Metrics

logger = logging.getLogger(__name__)

CONFIG_KEY: Final = "config"
SETTLE: Final = 0.5
"""Seconds in which several changes make one pass."""
MAX_TOLD: Final = 25
"""Most problems of one pass that are told one by one: 1 MiB of templates can have thousands."""


@dataclass(frozen=True, slots=True)
class _Written:
    """What was applied to a group last, and what of it is ours to look at: the same needs no write.

    Who scales the group, or sets another field, is none of our concern.
    """

    manifest: str
    ours: tuple[object, ...]
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, manifest: str, group: Group, problems: tuple[Problem, ...] = ()) -> "_Written":
        spec, marks = group.spec, sorted(group.annotations.items())
        ours = (group.uid, spec.template, spec.autoscaling, spec.guard_taint, *marks)
        return cls(manifest, ours, problems)


class Provider:
    """Derives groups. `run()` does it, whenever `changed()` was called.

    `name` is that of the ConfigMap; `link` follows the nodes of this cluster; `now` is RFC 3339.
    """

    def __init__(
        self,
        *,
        name: str,
        configmaps: ConfigMaps,
        link: NodeLink,
        groups: GroupStore,
        writer: DerivedGroupWriter,
        recorder: Recorder,
        metrics: Metrics,
        now: Callable[[], str],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._configmaps = configmaps
        self._link = link
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
        self._written: dict[str, _Written] = {}
        self._not_ours: set[str] = set()
        """Names that somebody else's groups have, or groups on their way out."""
        self._notes: tuple[str, ...] = ()
        self._summary = ""

    def changed(self) -> None:
        """Something that a pass looks at is different."""
        self._dirty.set()

    def configmap_changed(self, name: str) -> None:
        if name in (self._name, self._templates):
            self.changed()

    def group_changed(self, name: str) -> None:
        """A group was written or has gone, by us or by somebody else."""
        group = self._groups.get(name)
        written = self._written.get(name)
        if group is None:
            self._written.pop(name, None)
            if written is not None or name in self._not_ours:
                self.changed()
        elif written is not None and written.ours != _Written.of("", group).ours:
            self.changed()

    def recheck(self) -> None:
        """Applies everything once more: who owns which field can change without a trace."""
        self._written.clear()
        self.changed()

    async def run(self) -> None:
        """Makes a pass after each change, until cancelled; after an error it is to be run again."""
        await self._configmaps.synced.wait()
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
            self._tell(None, [])
            return
        problems: list[Problem] = []
        try:
            config = await self._read(configmap)
        except ProviderConfigError as error:
            self._tell(configmap, error.problems)
            return
        self._note(configmap, config)
        self._link.start()
        self._not_ours.clear()
        derivation = await self._derive(config, problems)
        problems += derivation.problems
        for group in derivation.groups:
            problems += await self._apply(group)
        if not any(problem.blocks for problem in problems):
            await self._retire({group.name for group in derivation.groups}, prune=config.prune)
        problems += self._leftovers()
        self._tell(configmap, problems)
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

    async def _derive(self, config: ProviderConfig, problems: list[Problem]) -> Derivation:
        """What comes out, of what can be read; what can't is added to `problems`."""
        templates = None
        if config.read_nodes_from.static:
            try:
                templates = await self._read_templates(config)
            except ManifestError as error:
                problems.append(Problem("InvalidTemplates", str(error)))
        live = None
        if config.read_nodes_from.live:
            if await self._link.nodes.wait_synced():
                live = list(self._link.nodes)
            else:
                why = self._link.problem or "they are still being listed"
                problems.append(Problem("NodesUnreadable", f"the nodes of the cluster: {why}"))
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
        """Makes a group what the config says, if it is ours to make; tells what it can't."""
        known = self._groups.get(derived.name)
        if known is not None and known.deleting:
            self._not_ours.add(derived.name)
            return []
        manifest, written = json.dumps(derived.manifest), self._written.get(derived.name)
        if known is not None and written is not None:
            now = _Written.of(manifest, known)
            if (now.manifest, now.ours) == (written.manifest, written.ours):
                return list(written.problems)
        current = await self._writer.read(derived.name)
        if current is not None and _owner(current) != self._owner:
            self._not_ours.add(derived.name)
            return [self._taken(derived, _owner(current))]
        uid = current["metadata"]["uid"] if current else None
        try:
            applied = await self._writer.apply(derived.manifest, uid=uid)
        except ConflictError as error:
            logger.info("group has changed meanwhile: group=%s error=%s", derived.name, error)
            self.changed()
            return []
        except (BadRequestError, ForbiddenError, InvalidError) as error:
            message = f"group {derived.name}: the API server refuses it: {error.message}"
            return [Problem("GroupRefused", message)]
        body = applied.body
        if current is None:
            logger.info("derived: group=%s value=%s", derived.name, derived.value)
        await self._complete(derived, body)
        problems = tuple(self._conflict(derived, conflict) for conflict in applied.conflicts)
        # One that only another version's CRD allows can't be read, and is applied each time.
        with suppress(ValueError):
            self._written[derived.name] = _Written.of(manifest, Group.parse(body), problems)
        return list(problems)

    async def _complete(self, derived: DerivedGroup, body: Mapping[str, Any]) -> None:
        """What is no part of the apply: the first target, and the end of a mark."""
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
        """Marks, or with `prune` removes, groups of ours that came from a ConfigMap and don't now.

        A group of live nodes stays as it is: scale from zero has to go on when its nodes are gone.
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
        names = [node.name for node in self._link.nodes.leftovers]
        if not names:
            return []
        message = (
            f"{few_names(names)}: made by cluster-autoscaler's own kwok provider. They are "
            "left alone and not counted. If it still runs, stop it, because it deletes our nodes "
            "too when it exits; then delete what it left behind"
        )
        return [Problem("LeftoverNodes", message, blocks=False)]

    def _taken(self, derived: DerivedGroup, owner: str) -> Problem:
        made = f"is of the provider config {owner}" if owner else "was made by somebody else"
        message = (
            f"group {derived.name}, which {derived.value!r} stands for, {made} and is left alone; "
            "delete or rename it, or set another value"
        )
        return Problem("NameTaken", message, blocks=False)

    def _conflict(self, derived: DerivedGroup, conflict: str) -> Problem:
        message = f"group {derived.name}, {conflict}: that value stays, the provider config's waits"
        return Problem("FieldOwned", message, blocks=False)

    def _tell(self, configmap: ConfigMap | None, problems: Iterable[Problem]) -> None:
        """Says what is new; sets the metric to what there is."""
        uid = configmap.uid if configmap else ""
        there = frozenset((uid, problem) for problem in problems)
        new = sorted(problem for _, problem in there - self._reported)
        if configmap is not None:
            for problem in new[:MAX_TOLD]:
                self._recorder.emit(configmap, "Warning", problem.reason, f"{problem.message}.")
            if len(new) > MAX_TOLD:
                message = f"{len(new) - MAX_TOLD} more: `kwok-operator validate` lists them all."
                self._recorder.emit(configmap, "Warning", "ManyProblems", message)
        if self._reported and not there and configmap is not None:
            message = "Nothing is wrong with the provider config any more."
            self._recorder.emit(configmap, "Normal", "ProviderConfigValid", message)
        self._reported = there
        self._metrics.provider_problems(Counter(problem.reason for _, problem in there))

    def _note(self, configmap: ConfigMap, config: ProviderConfig) -> None:
        """Says what is accepted and does nothing, once."""
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


def _owner(body: Mapping[str, Any]) -> str:
    annotations = body["metadata"].get("annotations") or {}
    return str(annotations.get(constants.PROVIDER_CONFIG_ANNOTATION) or "")
