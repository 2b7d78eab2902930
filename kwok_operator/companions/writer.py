"""Creates and deletes single companions, and interprets the API server's answers.

An object is never changed, but deleted and created again: most fields of a CSINode can't be
changed, and a ResourceSlice that was edited has another generation.
"""

from collections.abc import Callable, Mapping

from kwok_operator.companions.companioncache import CompanionCache, CompanionRecord
from kwok_operator.companions.desired import Companion, CompanionKind, CompanionOwner
from kwok_operator.errors import ConflictError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, KubeClient
from kwok_operator.nodegroups.nodewriter import FIELD_MANAGER


class CompanionWriter:
    """Writes companions, each with one or a few requests. `count_request()` is called before each
    request, to count it, but not before the `first` request of a job, which the executor has
    counted."""

    def __init__(
        self,
        *,
        client: KubeClient,
        caches: Mapping[CompanionKind, CompanionCache],
        count_request: Callable[[], None],
    ) -> None:
        self._client = client
        self._caches = caches
        self._count_request = count_request

    async def make(self, companion: Companion, owner: CompanionOwner, *, first: bool) -> bool:
        """Creates a companion; returns False if an object that is not its owner's has its name."""
        cache = self._caches[companion.kind]
        known = cache.group(owner.group).get(companion.name(owner.base))
        if known is not None and is_ours(known, owner) and known.digest == companion.digest:
            return True  # made by an earlier try of this job, of which a later request failed
        if not first:
            self._count_request()
        try:
            answer = await self._client.request(
                "POST",
                companion.kind.path,
                params={"fieldManager": FIELD_MANAGER},
                body=companion.body(owner),
            )
        except ConflictError:
            self._count_request()
            path = f"{companion.kind.path}/{companion.name(owner.base)}"
            try:
                found = cache.decoder.one(await self._client.request("GET", path))
            except NotFoundError:
                return True  # deleted meanwhile: the watch reports it, and the next pass creates it
            if not is_ours(found, owner):
                return False
            cache.put(found)
        else:
            cache.put(cache.decoder.one(answer))
        return True

    async def delete(self, kind: CompanionKind, kept: CompanionRecord, *, first: bool) -> None:
        """Deletes an object, by its uid. It may be gone already."""
        if not first:
            self._count_request()
        try:
            await self._client.request(
                "DELETE",
                f"{kind.path}/{kept.name}",
                body={"preconditions": {"uid": kept.uid}},
                accept=ACCEPT_METADATA,
            )
        except (NotFoundError, ConflictError):
            pass
        self._caches[kind].discard(kept)


def is_ours(kept: CompanionRecord, owner: CompanionOwner) -> bool:
    """Whether an object with the name of a companion was made for this owner (a Node, or the
    group)."""
    return kept.group == owner.group and kept.owner == owner.uid
