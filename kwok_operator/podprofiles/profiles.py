"""Keeps the Stages of the KwokPodProfiles up to date, and writes the profiles' status.

    events, lists (profiles) ────┬──> compiled, by rank ──> KwokObjects ──> Stages, usage
    Namespaces, if selected by ──┘            └──> status, Events

No pod is watched or written here, whatever their number: kwok carries the Stages out. Each pass
looks at all profiles again, so it repairs what was lost or edited meanwhile. If the CRD is not
installed, there are no profiles, and no requests are made.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from kwok_operator.constants import API_GROUP, API_VERSION, PROFILE_KIND, PROFILES_PATH
from kwok_operator.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    KwokOperatorError,
    NotFoundError,
    one_line,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.followed import FollowedKind
from kwok_operator.kube.reflector import RIGHTS_WITHIN
from kwok_operator.nodegroups.statuswriter import put_status
from kwok_operator.podprofiles.api import (
    KwokPodProfileSpec,
    KwokPodProfileStatus,
    ProfileCondition,
)
from kwok_operator.podprofiles.compile import (
    STAGE_KIND,
    Compiled,
    Profile,
    ProfileProblem,
    compile_profile,
)
from kwok_operator.podprofiles.kwokobjects import KwokObjects, Present
from kwok_operator.podprofiles.namespaces import Namespaces
from kwok_operator.podprofiles.status import (
    NAMESPACES_UNKNOWN,
    NO_DEFAULT_STAGES,
    NO_STAGES,
    NO_USAGE_KIND,
    NOT_ALLOWED,
    USAGE_TOO_LARGE,
    name_taken,
    profile_status,
)
from kwok_operator.podprofiles.usage import USAGE_KIND, compile_usage, without_usage

logger = logging.getLogger(__name__)

GATHER_FOR: Final = 0.2
"""Seconds for which changes are collected before a pass."""
LOOK_AGAIN_AFTER: Final = 60.0
LOOK_FOR_RIGHTS_AFTER: Final = RIGHTS_WITHIN
"""Seconds between passes while rights to write are missing. A reflector waits as long after a
403."""
TRY_AGAIN_AFTER: Final = 10.0
_REFUSALS: Final = (400, 403, 409, 413, 422)
"""HTTP statuses of answers that concern one object only: other profiles are still handled."""


@dataclass(frozen=True, slots=True)
class StoredProfile:
    """A profile as the API server has it. If it can't be read, `spec` is None and `problem` says
    why."""

    name: str
    uid: str
    resource_version: int
    generation: int
    spec: KwokPodProfileSpec | None
    problem: str
    status: Mapping[str, Any]
    conditions: tuple[ProfileCondition, ...]

    @property
    def reference(self) -> dict[str, str]:
        return {
            "apiVersion": f"{API_GROUP}/{API_VERSION}",
            "kind": PROFILE_KIND,
            "name": self.name,
            "uid": self.uid,
        }


def stored_profile(raw: Mapping[str, Any]) -> StoredProfile:
    metadata, status = raw["metadata"], raw.get("status") or {}
    spec, problem = None, ""
    try:
        spec = KwokPodProfileSpec.model_validate(raw.get("spec") or {})
    except ValueError as error:
        problem = one_line(error, limit=500)
    conditions: tuple[ProfileCondition, ...] = ()
    with suppress(ValueError):
        conditions = KwokPodProfileStatus.model_validate(status).conditions
    return StoredProfile(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=int(metadata.get("resourceVersion") or 0),
        generation=metadata.get("generation") or 0,
        spec=spec,
        problem=problem,
        status=status,
        conditions=conditions,
    )


class Profiles:
    """Follows the profiles. `now()` returns the time in RFC 3339 and whole seconds."""

    def __init__(self, *, client: KubeClient, recorder: Recorder, now: Callable[[], str]) -> None:
        self._client = client
        self._recorder = recorder
        self._now = now
        self._objects = KwokObjects(client=client)
        self._news = asyncio.Event()
        self._namespaces = Namespaces(client=client, changed=self._news.set)
        self.objects = FollowedKind(stored_profile, self._seen)
        self._leftovers = False
        """Whether Stages of deleted profiles may still exist."""
        self._look_again_after = LOOK_AGAIN_AFTER

    def _seen(self, old: StoredProfile | None, new: StoredProfile | None) -> None:
        self._leftovers = True
        if old is None or new is None or (old.uid, old.generation) != (new.uid, new.generation):
            self._news.set()

    async def run(self) -> None:
        """Keeps kwok's objects and the profiles' status up to date, for ever."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        self._look_again_after if self.objects.all() else None
                    ):
                        await self._news.wait()
                await asyncio.sleep(GATHER_FOR)
                self._news.clear()
                try:
                    await self._reconcile()
                except KwokOperatorError as error:
                    logger.warning("pod profiles: %s", error)
                    await asyncio.sleep(TRY_AGAIN_AFTER)
                    self._news.set()
        finally:
            await self._namespaces.stop()

    async def _reconcile(self) -> None:
        stored = self.objects.all()
        if not stored and not self._leftovers:
            return
        asks = any(p.spec and p.spec.namespace_selector for p in stored.values())
        await (self._namespaces.start() if asks else self._namespaces.stop())
        ranked = sorted(self._profiles(stored), key=lambda profile: profile.rank)
        compiled: dict[str, Compiled] = {}
        for place, each in enumerate(ranked):
            compiled[each.name] = compile_profile(each, above=ranked[:place])
            await asyncio.sleep(0)  # a hundred profiles take a second; lets other tasks run
        lacking = await self._keep(stored, ranked, compiled)
        refused = any(NOT_ALLOWED in each for each in lacking.values())
        self._look_again_after = LOOK_FOR_RIGHTS_AFTER if refused else LOOK_AGAIN_AFTER
        self._leftovers = bool(stored)
        for profile in stored.values():
            await self._write_status(profile, ranked, compiled, lacking.get(profile.name, []))

    def _profiles(self, stored: Mapping[str, StoredProfile]) -> Iterator[Profile]:
        for each in stored.values():
            if each.spec is None:
                continue
            selector = each.spec.namespace_selector
            names = None if selector is None else self._namespaces.selected(selector)
            yield Profile.of(each.name, each.spec, namespaces=names)

    async def _keep(
        self,
        stored: Mapping[str, StoredProfile],
        ranked: Sequence[Profile],
        compiled: Mapping[str, Compiled],
    ) -> dict[str, list[ProfileProblem]]:
        """Writes kwok's objects; returns, by profile, why some of them are missing or have no
        effect."""
        lacking: dict[str, list[ProfileProblem]] = {name: [] for name in stored}
        try:
            stages = await self._objects.list(STAGE_KIND)
        except (NotFoundError, ForbiddenError) as error:
            missing = NO_STAGES if isinstance(error, NotFoundError) else NOT_ALLOWED
            return {name: [missing] for name in stored}
        wanted = set[str]()
        for name, result in compiled.items():
            for manifest in result.stages:
                wanted.add(manifest["metadata"]["name"])
                owners = {name: stored[name].uid}
                lacking[name] += await self._apply(manifest, owners, stages)
            if not stages.others_for_pods:
                lacking[name].append(NO_DEFAULT_STAGES)
            await asyncio.sleep(0)
        await self._sweep(STAGE_KIND, stages, wanted)
        users = {
            p.name: stored[p.name].uid for p in ranked if p.spec.usage.cpu or p.spec.usage.memory
        }
        if users or self._leftovers:
            await self._keep_usage(compile_usage(ranked), users, lacking)
            for name in without_usage(ranked):
                lacking[name].append(USAGE_TOO_LARGE)
        if self._namespaces.trouble is not None:
            for profile in ranked:
                if profile.spec.namespace_selector is not None:
                    lacking[profile.name].append(NAMESPACES_UNKNOWN)
        return lacking

    async def _keep_usage(
        self,
        manifest: dict[str, Any] | None,
        users: Mapping[str, str],
        lacking: dict[str, list[ProfileProblem]],
    ) -> None:
        try:
            present = await self._objects.list(USAGE_KIND)
        except (NotFoundError, ForbiddenError) as error:
            missing = NO_USAGE_KIND if isinstance(error, NotFoundError) else NOT_ALLOWED
            for name in users:
                lacking[name].append(missing)
            return
        wanted = set[str]()
        if manifest is not None:
            wanted.add(manifest["metadata"]["name"])
            for problem in await self._apply(manifest, users, present):
                for name in users:
                    lacking[name].append(problem)
        await self._sweep(USAGE_KIND, present, wanted)

    async def _apply(
        self, manifest: dict[str, Any], owners: Mapping[str, str], there: Present
    ) -> list[ProfileProblem]:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if name in there.foreign:
            return [name_taken(kind, name)]
        try:
            written = await self._objects.apply(manifest, owners=owners, there=there)
        except ApiError as error:
            if isinstance(error, ForbiddenError) and not error.by_policy:
                return [NOT_ALLOWED]
            if error.status not in _REFUSALS:
                raise
            return [ProfileProblem("Refused", f"{kind} {name}: {one_line(error, limit=300)}")]
        if written:
            logger.info("%s applied: name=%s profiles=%s", kind, name, ",".join(sorted(owners)))
        return []

    async def _sweep(self, kind: str, present: Present, wanted: set[str]) -> None:
        for name in present.ours.keys() - wanted:
            with suppress(ForbiddenError):
                await self._objects.delete(kind, name, uid=present.ours[name].uid)
                logger.info("%s deleted: name=%s", kind, name)

    async def _write_status(
        self,
        profile: StoredProfile,
        ranked: Sequence[Profile],
        compiled: Mapping[str, Compiled],
        lacking: Sequence[ProfileProblem],
    ) -> None:
        lacking = list(dict.fromkeys(lacking))
        result = compiled.get(profile.name)
        if result is None:
            result = Compiled(problems=(ProfileProblem("Unreadable", profile.problem),))
        scopes = {each.name: each.scope.namespaces for each in ranked}
        names = scopes.get(profile.name)
        status = profile_status(
            result,
            namespaces=None if names is None else len(names),
            lacking=lacking,
            generation=profile.generation,
            previous=profile.conditions,
            now=self._now(),
        )
        dumped = status.dump()
        if dumped == profile.status:
            return
        for problem in (*result.problems, *lacking):
            self._recorder.emit(profile, "Warning", problem.reason, problem.message)
        path = f"{PROFILES_PATH}/{profile.name}"
        # If the profile is gone, or another one has its name, the next pass handles that.
        with suppress(NotFoundError, InvalidError):
            await put_status(self._client, path, uid=profile.uid, status=dumped)
        present = self.objects.get(profile.name)
        if present is not None and present.uid == profile.uid:
            self.objects.wrote(replace(present, status=dumped, conditions=status.conditions))
