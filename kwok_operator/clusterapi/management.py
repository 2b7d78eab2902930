"""Reads the management cluster: scalables (MachineDeployments, MachineSets, MachinePools), and the
infrastructure templates that they name.

    discovery ──> reflectors ──> Scalables ┐
    a reference of theirs ──> a reflector ──> templates, or why there are none ┘──> changed()

This module only gets, lists and watches objects. An API group that isn't served yet, or a missing
right, is logged once and tried again.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kwok_operator.api.base import is_api_group
from kwok_operator.clusterapi.derive import CapiTemplates
from kwok_operator.clusterapi.keys import Keys
from kwok_operator.clusterapi.scalable import InfrastructureRef, Kind, Scalable, read_scalable
from kwok_operator.clusterapi.settings import ClusterApiSettings
from kwok_operator.errors import (
    ApiError,
    ApiUnreachableError,
    ConnectionConfigError,
    ForbiddenError,
    ManifestError,
    NotFoundError,
)
from kwok_operator.formats.untyped import as_map
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.connection import ApiConnection
from kwok_operator.kube.decode import Decoder
from kwok_operator.kube.reflector import Reflector
from kwok_operator.kube.retry import PATIENT

logger = logging.getLogger(__name__)

LOOK_AGAIN: Final = 5.0
"""Seconds until a group, version or template that isn't served is looked for again."""
KINDS_AGAIN: Final = 60.0
"""Seconds until kinds that were not served are looked for again."""
_WORD: Final = re.compile(r"[a-z0-9]{1,63}")
HANGS: Final = "cluster-autoscaler waits for it without an end"
TRIES: Final = 3
"""After so many temporary errors in a row, templates count as unreadable."""


async def management_connection(
    settings: ClusterApiSettings,
    *,
    workload: ApiConnection,
    load: Callable[..., Awaitable[ApiConnection]] = load_connection,
) -> ApiConnection:
    """Returns the connection to the cluster that has Cluster API's objects. It is chosen by the
    same flags as in CA.

    Raises ConnectionConfigError.
    """
    flag = "--cloud-config" if settings.cloud_config else "--clusterapi-cloud-config-authoritative"
    try:
        if settings.cloud_config is not None:
            return await load(kubeconfig=settings.cloud_config, flag=flag)
        if settings.authoritative:
            return await load(in_cluster=True)
    except ConnectionConfigError as error:
        raise ConnectionConfigError(f"management cluster ({flag}): {error}") from error
    return workload


@dataclass(frozen=True, slots=True)
class _Template:
    """The parts of an infrastructure template that are used."""

    namespace: str
    name: str
    status: Mapping[str, Any]


T = TypeVar("T", Scalable, _Template)


class _Store(Generic[T]):
    """Objects by namespace and name. Objects that can't be parsed are left out."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.items: dict[tuple[str, str], T] = {}

    def replace(self, items: Sequence[T | None], resource_version: int) -> None:
        self.items = {(item.namespace, item.name): item for item in items if item is not None}
        self._changed()

    def upsert(self, item: T | None) -> None:
        if item is not None and self.items.get((item.namespace, item.name)) != item:
            self.items[item.namespace, item.name] = item
            self._changed()

    def remove(self, item: T | None) -> None:
        if item is not None and self.items.pop((item.namespace, item.name), None) is not None:
            self._changed()


class _Templates:
    """The infrastructure templates of one kind. `trouble` says why they could not be listed so far;
    None if nothing has prevented that.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.store: _Store[_Template] = _Store(changed)
        self.synced = False
        self.trouble: str | None = None

    @property
    def settled(self) -> bool:
        return self.synced or self.trouble is not None

    def fail(self, trouble: str) -> None:
        if trouble != self.trouble:
            logger.warning("infrastructure templates: %s", trouble)
            self.trouble = trouble
            self._changed()


class Management:
    """Follows the scalables and templates of one API server, in `namespace`; empty means all
    namespaces.

    `version` is that of Cluster API's kinds; empty means the server's preferred one.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        keys: Keys,
        version: str,
        namespace: str,
        changed: Callable[[], None],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._keys = keys
        self._version = version
        self._place = f"/namespaces/{namespace}" if namespace else ""
        self._changed = changed
        self._sleep = sleep
        self._scalables: dict[Kind, _Store[Scalable]] = {}
        self._templates: dict[tuple[str, str, str], _Templates] = {}
        self._reflectors: dict[Kind, Reflector[Scalable | None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def complete(self) -> bool:
        """Whether all kinds that are served have been listed."""
        reflectors = self._reflectors.values()
        return bool(reflectors) and all(reflector.synced.is_set() for reflector in reflectors)

    @property
    def kinds(self) -> set[Kind]:
        """The kinds that are served and listed. After an outage a kind is left out until it is
        listed again, as the cluster may have been restored."""
        return {kind for kind, reflector in self._reflectors.items() if reflector.version}

    def scalables(self) -> list[Scalable]:
        return [item for store in self._scalables.values() for item in store.items.values()]

    def templates(self, scalables: Iterable[Scalable]) -> CapiTemplates | None:
        """Returns the templates of these scalables; None while some are still being read.

        Starts to follow each kind of template that the scalables name for the first time.
        """
        templates: dict[tuple[str, InfrastructureRef], Mapping[str, Any]] = {}
        trouble: dict[InfrastructureRef, str] = {}
        settled = True
        for scalable in scalables:
            ref = scalable.infrastructure
            if ref is None:
                continue
            kind = self._of_kind(ref)
            settled = settled and kind.settled
            if kind.trouble is not None:
                trouble[ref] = kind.trouble
            elif template := kind.store.items.get((scalable.namespace, ref.name)):
                templates[scalable.namespace, ref] = {"status": template.status}
        return CapiTemplates(templates, trouble) if settled else None

    async def run(self) -> None:
        """Follows all scalables and their templates until cancelled. A second call lists them all
        again."""
        self._templates.clear()
        self._reflectors.clear()
        async with asyncio.TaskGroup() as self._tasks:
            version = await self._discover()
            base = f"/apis/{self._keys.group}/{version}"
            while True:
                for kind in await self._kinds(base):
                    if kind not in self._reflectors:
                        self._follow(kind, base)
                await self._sleep(KINDS_AGAIN if self._reflectors else LOOK_AGAIN)

    async def _discover(self) -> str:
        """Waits until Cluster API is served, and returns the version of its kinds."""
        group, warned = self._keys.group, ""
        while True:
            try:
                api_group = await self._client.get_json(f"/apis/{group}")
            except NotFoundError:
                why = f"{group} is not served: is Cluster API installed? CAPI_GROUP names another"
            except (ApiError, ApiUnreachableError) as error:
                why = str(error)
            else:
                served = [str(each["version"]) for each in api_group["versions"]]
                version = self._version or str(api_group["preferredVersion"]["version"])
                if version in served:
                    logger.info("Cluster API: group=%s version=%s", group, version)
                    return version
                why = f"{group} is served in {', '.join(served)}, not in {version}: CAPI_VERSION"
            if why != warned:
                logger.warning("waiting for Cluster API: %s", why)
                warned = why
            await self._sleep(LOOK_AGAIN)

    async def _kinds(self, base: str) -> list[Kind]:
        try:
            served = await self._client.get_json(base, retries=PATIENT)
        except (ApiError, ApiUnreachableError) as error:
            # If kinds are followed already, their reflectors log the trouble.
            level = logging.DEBUG if self._reflectors else logging.WARNING
            logger.log(level, "looking for Cluster API's kinds: error=%s", error)
            return []
        plurals = {str(each["name"]) for each in served["resources"]}
        return [kind for kind in Kind if kind.plural in plurals]

    def _follow(self, kind: Kind, base: str) -> None:
        store = self._scalables[kind] = _Store[Scalable](self._changed)

        def read(body: dict[str, Any]) -> Scalable | None:
            try:
                return read_scalable({**body, "kind": kind}, self._keys)
            except ManifestError:
                return None

        self._reflectors[kind] = Reflector(
            client=self._client,
            path=f"{base}{self._place}/{kind.plural}",
            decoder=Decoder(dict[str, Any], read),
            sink=store,
        )
        self._start(self._reflectors[kind].run())

    def _of_kind(self, ref: InfrastructureRef) -> _Templates:
        key = ref.group, ref.version, ref.resource
        if key not in self._templates:
            self._templates[key] = _Templates(self._changed)
            self._start(self._follow_templates(self._templates[key], ref))
        return self._templates[key]

    async def _follow_templates(self, templates: _Templates, ref: InfrastructureRef) -> None:
        failures = 0
        while (path := await self._readable(templates, ref, last=failures == TRIES)) is None:
            failures = min(failures + 1, TRIES)
            await self._sleep(LOOK_AGAIN)
        reflector: Reflector[_Template] = Reflector(
            client=self._client,
            path=path,
            decoder=Decoder(dict[str, Any], _read_template),
            sink=templates.store,
        )
        self._start(reflector.run())
        await reflector.synced.wait()
        templates.synced, templates.trouble = True, None
        self._changed()

    async def _readable(
        self, templates: _Templates, ref: InfrastructureRef, *, last: bool
    ) -> str | None:
        """Returns the path to list templates. If they can't be listed, logs why and returns None.

        After a server's temporary error, they count as unreadable only at the `last` try, as
        existing nodes would lose what the template gives them.
        """
        name = f"{ref.resource}.{ref.group}"
        try:
            if (version := await self._version_of(ref)) is not None:
                path = f"/apis/{ref.group}/{version}{self._place}/{ref.resource}"
                await self._client.request("GET", path, params={"limit": "1"}, retries=2)
                return path
        except ForbiddenError as error:
            rights = "grant list and watch, as deploy/components/clusterapi-mirror does for some"
            templates.fail(f"can't be read ({error.message}): {HANGS}; {rights}")
            return None
        except NotFoundError:
            pass
        except (ApiError, ApiUnreachableError) as error:
            if last and isinstance(error, ApiError):
                templates.fail(f"can't be read ({error}): {HANGS}")
            return None
        templates.fail(f"is not served as {name}: {HANGS}; install it, or correct the reference")
        return None

    async def _version_of(self, ref: InfrastructureRef) -> str | None:
        """Returns the version that serves the kind; None if none does, or the name is invalid."""
        words = (ref.version or "v1", ref.resource)
        if not is_api_group(ref.group) or not all(map(_WORD.fullmatch, words)):
            return None
        group = await self._client.get_json(f"/apis/{ref.group}", retries=2)
        preferred = str(group["preferredVersion"]["version"])
        others = [str(each["version"]) for each in group["versions"]]
        for version in [ref.version] if ref.version else dict.fromkeys([preferred, *others]):
            api = await self._client.get_json(f"/apis/{ref.group}/{version}", retries=2)
            if any(each["name"] == ref.resource for each in api["resources"]):
                return version
        return None

    def _start(self, work: Any) -> None:
        assert self._tasks is not None
        self._tasks.create_task(work)


def _read_template(body: Mapping[str, Any]) -> _Template:
    metadata, status = body["metadata"], as_map(body.get("status"))
    return _Template(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        status={part: status.get(part) for part in ("capacity", "nodeInfo")},
    )
