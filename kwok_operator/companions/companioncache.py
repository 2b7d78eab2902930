"""Caches the companions of one kind: the objects with our label. It watches them only while a group
has companions.

    reflector ──replace, upsert, remove──> CompanionCache ──> CompanionKeeper
    our own writes ──put, discard──────^

Of each object, it keeps only the fields that show its owner and whether it is up to date.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.companions.desired import (
    CompanionKind,
    Trouble,
    digest_of,
    gated_of,
    not_allowed,
    not_served,
)
from kwok_operator.errors import ForbiddenError, NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import OBJECTS, Decoder
from kwok_operator.kube.reflector import Reflector
from kwok_operator.kube.retry import PATIENT

TRY_AGAIN_AFTER: Final = 10.0
"""Seconds after which a kind that isn't served, or may not be read, is tried again."""


@dataclass(frozen=True, slots=True)
class CompanionRecord:
    """The cached fields of one object; `owner` is the uid in its first ownerReference."""

    name: str
    uid: str
    version: int
    group: str
    owner: str
    digest: str
    gated: frozenset[str]
    deleting: bool


def decoder(kind: CompanionKind) -> Decoder[CompanionRecord]:
    def kept(body: Mapping[str, Any]) -> CompanionRecord:
        metadata = body["metadata"]
        version = str(metadata.get("resourceVersion", ""))
        owners: Sequence[Mapping[str, str]] = metadata.get("ownerReferences") or ({},)
        return CompanionRecord(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            version=int(version) if version.isdecimal() else 0,
            group=intern((metadata.get("labels") or {}).get(constants.NODE_GROUP_LABEL, "")),
            owner=intern(owners[0].get("uid", "")),
            digest=intern(digest_of(kind, body)),
            gated=gated_of(kind, body),
            deleting=metadata.get("deletionTimestamp") is not None,
        )

    return OBJECTS.then(kept)


class CompanionCache:
    """Caches the companions of one kind. `changed(group)` is called when an object of a group has
    changed."""

    def __init__(
        self,
        kind: CompanionKind,
        *,
        client: KubeClient,
        changed: Callable[[str], None],
        monotonic: Callable[[], float],
    ) -> None:
        self.kind = kind
        self.decoder = decoder(kind)
        self._client = client
        self._changed = changed
        self._groups: dict[str, dict[str, CompanionRecord]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._monotonic = monotonic
        self._trouble: Trouble | None = None
        self._again_at = 0.0
        self._blind = False
        """Whether the watch has trouble, so that its objects may be out of date."""
        self._starting = asyncio.Lock()

    def group(self, name: str) -> Mapping[str, CompanionRecord]:
        return self._groups.get(name, {})

    @property
    def watching(self) -> bool:
        return self._watch is not None and not self._watch.done()

    async def start(self) -> Trouble | None:
        """Starts the watch. Returns None once all objects are listed, else why they can't be
        watched."""
        async with self._starting:
            if self.watching and not self._blind:
                return None
            now = self._monotonic()
            if self._trouble is None or now >= self._again_at:
                self._trouble = await self._find_trouble()
                self._again_at = now + TRY_AGAIN_AFTER
            if self._trouble is not None or self.watching:
                return self._trouble
            reflector = Reflector(
                client=self._client,
                path=self.kind.path,
                params={"labelSelector": constants.NODE_GROUP_LABEL},
                decoder=self.decoder,
                sink=self,
                on_trouble=self._in_trouble,
                on_restored=self._groups.clear,
            )
            self._watch = asyncio.create_task(reflector.run(), name=f"watch {self.kind.path}")
            await reflector.synced.wait()
            return None

    def _in_trouble(self, trouble: str | None) -> None:
        self._blind = trouble is not None
        for name in self._groups:
            self._changed(name)

    async def _find_trouble(self) -> Trouble | None:
        try:
            await self._client.request(
                "GET", self.kind.path, params={"limit": "1"}, retries=PATIENT
            )
        except NotFoundError:
            return not_served(self.kind)
        except ForbiddenError:
            return not_allowed(self.kind)
        return None

    async def stop(self, *, unless: Callable[[], bool] = lambda: False) -> None:
        async with self._starting:
            if self._watch is not None and not unless():
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)
                self._watch, self._groups, self._blind = None, {}, False

    def replace(self, items: Sequence[CompanionRecord], resource_version: int) -> None:
        """Takes a full list. Objects newer than the list stay."""
        late = [k for kept in self._groups.values() for k in kept.values()]
        groups = set(self._groups)
        self._groups = {}
        for item in (*items, *(kept for kept in late if kept.version > resource_version)):
            self._groups.setdefault(item.group, {})[item.name] = item
        for name in groups | set(self._groups):
            self._changed(name)

    def upsert(self, item: CompanionRecord) -> None:
        known = self.group(item.group).get(item.name)
        if known is None or known.version < item.version:
            self._groups.setdefault(item.group, {})[item.name] = item
            if known is None or known.digest != item.digest or known.owner != item.owner:
                self._changed(item.group)

    def remove(self, item: CompanionRecord) -> None:
        known = self.group(item.group).get(item.name)
        if known is not None and known.uid == item.uid:
            self.discard(known)
            self._changed(item.group)

    def put(self, item: CompanionRecord) -> None:
        """Caches an object that the operator created, or that already existed when it tried to."""
        known = self.group(item.group).get(item.name)
        if known is None or known.version < item.version:
            self._groups.setdefault(item.group, {})[item.name] = item

    def discard(self, item: CompanionRecord) -> None:
        """Removes an object that the operator deleted."""
        kept = self._groups.get(item.group, {})
        kept.pop(item.name, None)
        if not kept:
            self._groups.pop(item.group, None)
