"""Keeps the existing objects of one kind up to date from events and lists, whichever is newer.

kopf's events report changes of each object, but not the deletion of an object before the watch
began. A list shows that.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from kwok_operator.errors import NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import OBJECTS, Decoder, ListPage, decode_dict
from kwok_operator.kube.retry import PATIENT

R = TypeVar("R")


class FollowedObject(Protocol):
    """The fields that every kept object has."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> int: ...


T = TypeVar("T", bound=FollowedObject)


class FollowedKind(Generic[T]):
    """Objects by name, as `read` parses them from the API server's JSON.

    `changed(old, new)` is called for each object that is new (`old` is None), different, or gone
    (`new` is None).
    """

    def __init__(
        self,
        read: Callable[[Mapping[str, Any]], T],
        changed: Callable[[T | None, T | None], None],
    ) -> None:
        self._read = read
        self._changed = changed
        self._objects: dict[str, T] = {}
        self.newest = 0
        """The highest resourceVersion seen. If a list has a lower one, the cluster was restored."""
        self._gone: dict[str, int] = {}
        """Uid of a deleted object -> the resourceVersion of its deletion. A list that is on its way
        may still contain the object."""

    def get(self, name: str) -> T | None:
        return self._objects.get(name)

    def all(self) -> dict[str, T]:
        return dict(self._objects)

    def seen(self, body: Mapping[str, Any], gone: bool) -> None:
        """Enters the object that an event of the watch reports; `gone` means that it was
        deleted."""
        new = self._read(body)
        old = self._objects.get(new.name)
        self.newest = max(self.newest, new.resource_version)
        if gone:
            self._gone[new.uid] = new.resource_version
            if old is not None and old.uid == new.uid:
                self._drop(old)
        elif old is None or old.resource_version < new.resource_version:
            self._put(new)

    def listed(
        self, bodies: Sequence[Mapping[str, Any]], version: int, *, restored: bool = False
    ) -> None:
        """Enters a list of all objects; `version` is its resourceVersion. Objects that newer events
        have reported stay as they are, unless the cluster was restored."""
        items = {
            item.name: item
            for item in map(self._read, bodies)
            if restored or self._gone.get(item.uid, 0) <= version
        }
        for old in [*self._objects.values()]:
            if old.name not in items and (restored or old.resource_version <= version):
                self._drop(old)
        for item in items.values():
            known = self._objects.get(item.name)
            if known is None or restored or known.resource_version <= version:
                self._put(item)
        self._gone.clear()
        self.newest = version if restored else max(self.newest, version)

    def wrote(self, new: T) -> None:
        """Enters the object as the operator has just written it. `changed` is not called."""
        self._objects[new.name] = new
        self.newest = max(self.newest, new.resource_version)

    def _put(self, new: T) -> None:
        old = self._objects.get(new.name)
        self._objects[new.name] = new
        if old != new:
            self._changed(old, new)

    def _drop(self, old: T) -> None:
        del self._objects[old.name]
        self._changed(old, None)


async def pages(
    client: KubeClient,
    path: str,
    decoder: Decoder[R],
    params: Mapping[str, str] | None = None,
    *,
    size: int = 500,
    **request: Any,
) -> AsyncIterator[ListPage[R]]:
    """Lists all objects at a path, page by page; `request` has further arguments of
    KubeClient.request."""
    query = {**(params or {}), "limit": str(size)}
    while True:
        page = decoder.page(await client.request("GET", path, params=query, **request))
        yield page
        if not page.continue_token:
            return
        query["continue"] = page.continue_token


async def list_objects(
    client: KubeClient,
    path: str,
    decoder: Decoder[R],
    *,
    selector: str = "",
    page_size: int = 500,
    retries: int = 4,
) -> tuple[list[R], int]:
    """Lists all objects at a path, or those with certain labels, page by page. Returns them and the
    list's resourceVersion."""
    labels = {"labelSelector": selector} if selector else {}
    items: list[R] = []
    version = 0
    async for page in pages(client, path, decoder, labels, size=page_size, retries=retries):
        items += page.items
        version = version or page.resource_version
    return items, version


async def is_served(client: KubeClient, path: str) -> bool:
    """Whether the API server serves this kind, and its discovery documents contain it.

    A new kind is served before discovery lists it, and kopf reads discovery only once, when it
    begins.
    """
    version_path, _, plural = path.rpartition("/")
    group = version_path.split("/")[2]
    try:
        await client.request("GET", path, params={"limit": "1"}, retries=PATIENT)
        apis = decode_dict(await client.request("GET", "/apis", retries=PATIENT))
        served = decode_dict(await client.request("GET", version_path, retries=PATIENT))
    except NotFoundError:
        return False
    return group in (each.get("name") for each in apis.get("groups", [])) and plural in (
        each.get("name") for each in served.get("resources", [])
    )


async def list_into(
    client: KubeClient, path: str, known: FollowedKind[Any], *, page_size: int
) -> None:
    """Lists a kind, and enters the objects in `known`. If the kind's CRD is missing, `known`
    becomes empty."""
    before = known.newest
    try:
        bodies, version = await list_objects(client, path, OBJECTS, page_size=page_size)
    except NotFoundError:
        known.listed([], known.newest, restored=True)
    else:
        known.listed(bodies, version, restored=version < before)
