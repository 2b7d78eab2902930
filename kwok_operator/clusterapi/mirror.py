"""Makes groups of Cluster API's scalables, and keeps them as cluster-autoscaler (CA) sees them.

    Management ──(changed)──> pass: derive (pure) ──> apply by server-side apply, never forced
                                      └──> findings: Events on the groups

A scalable is a MachineDeployment, MachineSet or MachinePool. No group is removed until all of the
management cluster is listed. With --clusterapi=emulate, this module makes the groups, too, and
emulate.py their Machines.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.clusterapi.derive import CapiFleet, CapiGroup, CapiTemplates, Offer, derive
from kwok_operator.clusterapi.discovery import namespace_watched
from kwok_operator.clusterapi.management import Management
from kwok_operator.clusterapi.scalable import CapiFinding, Kind, Scalable
from kwok_operator.clusterapi.settings import ClusterApiSettings, Mode, Replicas
from kwok_operator.formats.words import few_names
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import EventType, Recorder
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.sources.derivedgroups import DerivedGroups, apply_each
from kwok_operator.sources.groupwriter import DerivedGroupWriter

logger = logging.getLogger(__name__)

MANAGER: Final = "kwok-operator-clusterapi"
SETTLE: Final = 0.2
"""Seconds for which changes are collected before a pass."""
AT_ONCE: Final = 10
"""The most groups that are written at a time: enough to be fast, and few compared to writes of
nodes."""
HIDDEN: Final = "Hidden"
MOST_HIDDEN: Final = 25
"""The most groups that get an Event with this reason: one annotation can hide all groups from
CA."""
_SIMULATED: Final = (Kind.MACHINE_DEPLOYMENT, Kind.MACHINE_SET)

_Notice = tuple[str, EventType, str, str]
"""An Event: the uid of a group, the type, the reason, the message."""


class Mirror:
    """Derives groups: `follow()` watches the management cluster, `run()` makes a pass after each
    change. If one of the two fails, the caller has to restart it."""

    def __init__(
        self,
        settings: ClusterApiSettings,
        *,
        management: KubeClient,
        groups: GroupStore,
        client: KubeClient,
        recorder: Recorder,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._writer = DerivedGroupWriter(client=client, manager=MANAGER)
        self._recorder = recorder
        self._sleep = sleep
        self._dirty = asyncio.Event()
        self._namespace = namespace_watched(settings.discoveries)
        self._source = settings.keys.group
        if settings.mode is Mode.MIRROR:
            self._source += f" of {management.connection.server}"
        self._management = Management(
            client=management,
            keys=settings.keys,
            version=settings.version,
            namespace=self._namespace,
            changed=self._dirty.set,
        )
        self._derived = DerivedGroups(
            groups=groups,
            writer=self._writer,
            mark=constants.CAPI_ANNOTATION,
            maker="Cluster API",
            changed=self._dirty.set,
        )
        self._announced: frozenset[_Notice] = frozenset()
        self._targets: dict[str, int] = {}
        """Group's name -> its target when it was applied. Whether CA sees the group depends on
        it."""
        self._summary = ""
        self._logged: frozenset[CapiFinding] = frozenset()

    def group_changed(self, name: str) -> None:
        """Plans a pass if a group that this mirror has derived is gone or has changed."""
        group = self._groups.get(name)
        if group is None or constants.CAPI_ANNOTATION in group.annotations:
            self._derived.group_changed(name)
            if group is not None and _target(group) != self._targets.get(name):
                self._dirty.set()

    def recheck(self) -> None:
        """Plans a pass that applies all groups again: another client can become owner of a field
        without an event.
        """
        self._derived.forget()
        self._dirty.set()

    async def run(self) -> None:
        """Makes a pass after each change, until cancelled."""
        self._dirty.set()
        while True:
            await self._dirty.wait()
            await self._sleep(SETTLE)
            self._dirty.clear()
            if self._management.complete:
                await self._pass()

    async def follow(self) -> None:
        """Follows the management cluster, until cancelled."""
        await self._management.run()

    async def _pass(self) -> None:
        # Both are read before any await: a kind that is listed during the pass has objects that
        # this pass has not considered.
        scalables, kinds = self._management.scalables(), self._management.kinds
        if self._settings.mode is Mode.EMULATE:
            scalables = [each for each in scalables if each.kind in _SIMULATED]
        templates = self._management.templates(scalables)
        if templates is None:
            return
        fleet = await asyncio.to_thread(
            self._derive, scalables, templates, owned=set(self._owned().values())
        )
        self._derived.begin()
        findings: dict[str, list[CapiFinding]] = {}
        for finding in fleet.findings:
            findings.setdefault(finding.about, []).append(finding)
        notices: set[_Notice] = set()
        ends = await apply_each(
            fleet.groups,
            lambda each: self._apply(each, fleet, findings.get(each.scalable.id, ())),
            at_once=AT_ONCE,
        )
        trouble = next((end for end in ends if isinstance(end, BaseException)), None)
        notices = notices.union(*(end for end in ends if not isinstance(end, BaseException)))
        await self._retire(scalables, kinds)
        self._announce(notices)
        if trouble is not None:
            raise trouble
        self._summarise(fleet)

    def _derive(
        self, scalables: Sequence[Scalable], templates: CapiTemplates, *, owned: set[str]
    ) -> CapiFleet:
        """Derives the groups of the scalables that the user's flags select. Groups of scalables
        that the flags no longer select are derived, too: they stay, but CA no longer sees them.
        """
        keys, arch, flags = (
            self._settings.keys,
            self._settings.default_arch,
            self._settings.discoveries,
        )
        fleet = derive(scalables, templates, keys=keys, discoveries=flags, default_arch=arch)
        if not flags:
            return fleet
        selected = {group.scalable.id for group in fleet.groups}
        left = [each for each in scalables if each.id in owned - selected]
        former = derive(left, templates, keys=keys, default_arch=arch).groups
        unseen = tuple(replace(group, offer=Offer.NEVER) for group in former)
        return replace(fleet, groups=fleet.groups + unseen)

    def _owned(self) -> dict[str, str]:
        """Returns, for each derived group by name, the id of the object from which it was made."""
        groups = filter(None, map(self._groups.get, self._groups.names()))
        owned = {group.name: group.annotations.get(constants.CAPI_ANNOTATION) for group in groups}
        return {name: of for name, of in owned.items() if of}

    async def _apply(
        self, derived: CapiGroup, fleet: CapiFleet, findings: Iterable[CapiFinding]
    ) -> set[_Notice]:
        """Applies a group; returns the Events to emit about it."""
        group = self._groups.get(derived.name)
        target = _target(group)
        if target is None or self._follows(derived, group.annotations if group else {}):
            target = derived.size or 0
        self._targets[derived.name] = target
        problems = await self._derived.apply(
            self._manifest(derived, target),
            owner=derived.scalable.id,
            value=derived.scalable.id,
            complete=partial(self._complete, derived),
        )
        group = self._groups.get(derived.name)
        if group is None:
            # Without its uid, which the watch reports later, a group can't get Events.
            for problem in problems:
                logger.warning("%s: %s", derived.scalable.id, problem.message)
            return set()
        uid = group.uid
        notices: set[_Notice] = {(uid, "Warning", each.reason, each.message) for each in problems}
        if fleet.hidden and derived.scalable.id not in fleet.hidden:
            message = f"cluster-autoscaler sees no node group at all: correct {fleet.hidden[0]}"
            notices.add((uid, "Warning", HIDDEN, message))
        for each in findings:
            notices.add((uid, "Normal" if each.note else "Warning", each.reason, each.message))
        return notices

    def _manifest(self, derived: CapiGroup, target: int) -> dict[str, Any]:
        emulates = self._settings.mode is Mode.EMULATE
        manifest = derived.manifest(target=target, offered=not emulates)
        annotations, scalable = manifest["metadata"]["annotations"], derived.scalable
        annotations[constants.CAPI_SOURCE_ANNOTATION] = self._source
        if emulates:
            place = f"{self._settings.keys.group}/{scalable.namespace}"
            annotations[constants.MACHINES_ANNOTATION] = place
        elif (size := derived.size) is not None:
            annotations[constants.CAPI_REPLICAS_ANNOTATION] = str(size)
        return manifest

    def _follows(self, derived: CapiGroup, annotations: Mapping[str, str]) -> bool:
        """Whether the target of a group must be set now, because the replicas of its scalable have
        changed.
        """
        size, settings = derived.size, self._settings
        if settings.mode is Mode.EMULATE or settings.replicas is Replicas.ONCE or size is None:
            return False
        return annotations.get(constants.CAPI_FOLLOWED_ANNOTATION) != str(size)

    async def _complete(self, derived: CapiGroup, body: Mapping[str, Any]) -> None:
        metadata, size = body["metadata"], derived.size
        annotations, uid = metadata.get("annotations") or {}, metadata["uid"]
        if self._settings.mode is Mode.EMULATE or size is None:
            return
        if self._follows(derived, annotations):
            mark = constants.CAPI_FOLLOWED_ANNOTATION
            logger.info("followed: group=%s replicas=%d", derived.name, size)
            await self._writer.set_target(derived.name, uid=uid, size=size, mark=mark)
        elif (
            self._settings.replicas is Replicas.ONCE
            and body.get("spec", {}).get("targetSize") is None
            and constants.DESIRED_COUNT_ANNOTATION not in annotations
        ):
            await self._writer.set_first_target(derived.name, uid=uid, size=size)

    async def _retire(self, scalables: Iterable[Scalable], kinds: Set[str]) -> None:
        """Deletes derived groups whose scalable is gone, as with a real Cluster API its machines
        would be gone, too.

        Groups from kinds other than `kinds`, other namespaces or other clusters stay, as nothing is
        known about their scalables.
        """
        alive = {each.id for each in scalables if not each.deployment}
        for name, of in self._owned().items():
            kind, _, place = of.partition("/")
            namespace = place.partition("/")[0]
            if of in alive or kind not in kinds or self._namespace not in ("", namespace):
                continue
            group = self._groups.get(name)
            if group is None or group.deleting:
                continue
            if group.annotations.get(constants.CAPI_SOURCE_ANNOTATION) == self._source:
                logger.info("its object is gone, removed: group=%s object=%s", name, of)
                await self._writer.delete(name, uid=group.uid)

    def _announce(self, notices: set[_Notice]) -> None:
        """Emits those of the Events `notices` that are new: of those that say that CA sees no group
        (HIDDEN), at most MOST_HIDDEN.
        """
        groups = {g.uid: g for name in self._groups.names() if (g := self._groups.get(name))}
        said: Counter[str] = Counter()
        for uid, kind, reason, message in sorted(notices - self._announced):
            said[reason] += 1
            if uid in groups and (reason != HIDDEN or said[reason] <= MOST_HIDDEN):
                self._recorder.emit(groups[uid], kind, reason, f"{message}.")
        self._announced = frozenset(notices)

    def _summarise(self, fleet: CapiFleet) -> None:
        names = few_names([group.name for group in fleet.groups])
        summary = f"groups={len(fleet.groups)} names={names or 'none'}"
        if fleet.hidden:
            summary += f" hidden by={few_names(fleet.hidden)}"
        if summary != self._summary:
            self._summary = summary
            logger.info("Cluster API: %s", summary)
        known = {group.scalable.id for group in fleet.groups}
        findings = frozenset(f for f in fleet.findings if f.about not in known and not f.note)
        for finding in sorted(findings - self._logged):
            logger.warning("%s: %s", finding.about, finding.message)
        self._logged = findings


def _target(group: Group | None) -> int | None:
    return group.spec.target_size if group is not None else None
