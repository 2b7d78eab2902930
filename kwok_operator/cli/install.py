"""`kwok-operator install` and `uninstall`: print manifests, apply them, or delete their objects.

    manifests/crds.yaml + manifests/OVERLAY.yaml --> formats/manifests.py --> objects
    --clusterapi-crds --> clusterapi/crds.py --> objects
    objects --as_yaml--> standard output
    objects --apply-->   server-side apply as MANAGER; one line for each
    objects --remove-->  deletes those that MANAGER has applied: CRDs first, then the nodes of
                         groups; the namespace last

The manifests are those of deploy/, rendered by `make manifests`. Before anything is written, the
cluster is checked for every kind of object. A namespace that existed before is neither changed nor
deleted.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import yaml

from kwok_operator.cli.install_settings import CRDS, DIRECTORY, InstallSettings, overlays
from kwok_operator.clusterapi.crds import emulated_crds, is_marked
from kwok_operator.constants import API_GROUP, KIND, NODE_GROUP_LABEL, PLURAL
from kwok_operator.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    KwokOperatorError,
    NotFoundError,
    one_line,
)
from kwok_operator.formats.manifests import (
    CRD,
    Manifest,
    applied_by,
    condition_is_true,
    group_of,
    identity,
    in_order,
    is_rolled_out,
    name_of,
    read_manifests,
    reference,
    with_image,
)
from kwok_operator.kube.client import APPLY, KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.decode import decode_dict
from kwok_operator.kube.resources import NODES
from kwok_operator.kube.retry import RETRIES

MANAGER: Final = "kwok-operator-install"
"""The field manager that `kubectl get --show-managed-fields` shows for applied objects."""

_POLL: Final = 0.5
_AT_ONCE: Final = 20
_CRD_OF_GROUPS: Final = f"{PLURAL}.{API_GROUP}"
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


async def install(settings: InstallSettings) -> None:
    """Prints the manifests or applies them; raises KwokOperatorError."""
    if settings.clusterapi_group is not None:
        wanted = emulated_crds(settings.clusterapi_group)
    else:
        wanted = manifests(settings.overlay, image=settings.image)
    if not settings.apply:
        sys.stdout.write(as_yaml(wanted))
        return
    async with await _client(settings) as client:
        installer = _installer(settings, client)
        await installer.apply(wanted)
        if settings.wait:
            await installer.wait_until_available(wanted)


async def uninstall(settings: InstallSettings) -> None:
    """Deletes what `install` applied; raises KwokOperatorError."""
    group = settings.clusterapi_group
    async with await _client(settings) as client:
        wanted = all_manifests() if group is None else emulated_crds(group)
        await _installer(settings, client).remove(wanted)


def manifests(overlay: str, *, image: str | None = None) -> list[Manifest]:
    """Returns the objects of one overlay, in the order of their creation."""
    packaged = [*_packaged(CRDS), *_packaged(overlay)]
    return in_order(with_image(packaged, image) if image else packaged)


def all_manifests() -> list[Manifest]:
    """Returns the objects of all overlays, each only once."""
    packaged = (m for name in (CRDS, *overlays()) for m in _packaged(name))
    return in_order({identity(manifest): manifest for manifest in packaged}.values())


def as_yaml(objects: list[Manifest]) -> str:
    """Returns the objects as text for `kubectl apply --filename=-`."""
    return "".join(
        "---\n" + yaml.dump(item, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=100)
        for item in objects
    )


def _packaged(name: str) -> list[Manifest]:
    file = DIRECTORY / f"{name}.yaml"
    return read_manifests(file.read_text(encoding="utf-8"), where=f"manifests/{name}.yaml")


async def _client(settings: InstallSettings) -> KubeClient:
    connection = await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    return KubeClient(connection=connection)


def _installer(settings: InstallSettings, client: KubeClient) -> "Installer":
    return Installer(
        client=client,
        say=lambda line: print(line, flush=True),
        timeout=settings.timeout,
        force=settings.force,
    )


class InstallError(KwokOperatorError):
    """An object can't be applied or deleted. The message names it, and says what to do."""

    def __str__(self) -> str:
        return one_line(super().__str__())


class _Resource(NamedTuple):
    plural: str
    namespaced: bool


class Installer:
    """Applies objects to a cluster or deletes them, and reports what it does."""

    def __init__(
        self,
        *,
        client: KubeClient,
        say: Callable[[str], None],
        timeout: float,
        force: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._say = say
        self._timeout = timeout
        self._force = force
        self._sleep = sleep
        self._known: dict[str, dict[str, _Resource]] = {}

    async def apply(self, manifests: Sequence[Manifest]) -> None:
        """Applies objects in the given order. Raises KwokOperatorError at the first failure."""
        missing = [m for m in manifests if await self._path(m) is None]
        if missing:
            kinds = sorted({f"{m['kind']} ({m['apiVersion']})" for m in missing})
            raise InstallError(
                f"applying {reference(missing[0])}: the cluster has no {', '.join(kinds)}: install "
                "what brings it, or choose another --overlay; nothing was changed"
            )
        for manifest in manifests:
            await self._spare_clusterapi(manifest)
        for manifest in manifests:
            await self._apply(manifest)
        for manifest in manifests:
            if manifest["kind"] == CRD:
                await self._until(
                    manifest,
                    lambda crd: crd is not None and condition_is_true(crd, "Established"),
                    "is not served",
                )

    async def _spare_clusterapi(self, manifest: Manifest) -> None:
        """Refuses, even with --force, to change a CRD of Cluster API that this program didn't make:
        real machines, which cost money, may depend on it."""
        if not is_marked(manifest):
            return
        crd = await self._get(manifest)
        if crd is not None and not is_marked(crd):
            raise InstallError(
                f"applying {reference(manifest)}: one is there that `kwok-operator install` did not"
                " bring, as with a real Cluster API; use another cluster, or another group with"
                " --clusterapi-crds=GROUP and CAPI_GROUP; nothing was changed"
            )

    async def _apply(self, manifest: Manifest) -> None:
        if manifest["kind"] == "Namespace":
            before = await self._get(manifest)
            if before is not None and not applied_by(before, MANAGER):
                self._say(f"{reference(manifest)} left as it is: it was there before")
                return
        params = {"fieldManager": MANAGER} | ({"force": "true"} if self._force else {})
        await self._request(
            "PATCH", manifest, "applying", params=params, body=manifest, content_type=APPLY
        )
        self._say(f"{reference(manifest)} applied")

    async def wait_until_available(self, manifests: Sequence[Manifest]) -> None:
        """Waits until all Deployments are available. Raises InstallError if one isn't in time."""
        for manifest in (m for m in manifests if m["kind"] == "Deployment"):
            await self._until(
                manifest,
                lambda deployment: deployment is not None and is_rolled_out(deployment),
                "is not available",
                f"; `kubectl --namespace={manifest['metadata'].get('namespace')} describe pods` "
                "tells why",
            )
            self._say(f"{reference(manifest)} available")

    async def remove(self, manifests: Sequence[Manifest]) -> None:
        """Deletes the objects that `apply` has applied."""
        first = [manifest for manifest in manifests if manifest["kind"] == CRD]
        rest = [manifest for manifest in reversed(manifests) if manifest["kind"] != CRD]
        deleted = [manifest for manifest in first if await self._delete(manifest)]
        for manifest in deleted:
            await self._until(manifest, lambda crd: crd is None, "is still there")
        if any(name_of(crd) == _CRD_OF_GROUPS for crd in deleted):
            await self._delete_nodes()
        for manifest in rest:
            if await self._delete(manifest) and manifest["kind"] == "Namespace":
                await self._until(manifest, lambda namespace: namespace is None, "is still there")

    async def _delete(self, manifest: Manifest) -> bool:
        """Deletes an object. Returns whether it is being deleted now."""
        obj = await self._get(manifest)
        if obj is None:
            return False
        name = reference(manifest)
        if manifest["kind"] == CRD:
            await self._read_once(manifest)
        if not applied_by(obj, MANAGER):
            self._say(f"{name} left as it is: `kwok-operator install` did not apply it")
            return False
        precondition = {"preconditions": {"uid": obj["metadata"]["uid"]}}
        try:
            await self._request("DELETE", manifest, "deleting", body=precondition)
        except NotFoundError:
            return False
        self._say(f"{name} deleted")
        return True

    async def _read_once(self, crd: Manifest) -> None:
        """Lists the objects of a kind before its CRD is deleted, so that the API server has them in
        its cache.

        Without an earlier list, Kubernetes 1.36 says that it "could not list instances: storage is
        (re)initializing", and may take minutes to try again.
        """
        spec = crd["spec"]
        for version in spec["versions"]:
            path = f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"
            with suppress(NotFoundError):
                await self._client.get_json(path, {"limit": "1"}, retries=RETRIES)

    async def _delete_nodes(self) -> None:
        """Deletes the nodes of groups, and waits for their end for at most `timeout` seconds. The
        groups were deleted with their CRD. The operator deletes their nodes only until it notices
        that the CRD is gone. The garbage collector may not delete them, as it no longer knows the
        kind of their owners.
        """
        waited, slots = 0.0, asyncio.Semaphore(_AT_ONCE)
        while left := await self._nodes_of_groups():
            if not waited:
                self._say("deleting the nodes of the groups")
            if waited >= self._timeout:
                self._say("nodes are still there: something keeps them, such as a finalizer")
                return
            await asyncio.gather(*(self._delete_node(metadata, slots) for metadata in left))
            await self._sleep(_POLL)
            waited += _POLL

    async def _nodes_of_groups(self) -> list[dict[str, Any]]:
        """Returns the metadata of the nodes that a group owns. Leaves out nodes that a deletion
        with `--cascade=orphan` has kept, as they have no owner.
        """
        return [
            metadata
            for metadata in await NODES.metadata(self._client, labelSelector=NODE_GROUP_LABEL)
            if any(owner.get("kind") == KIND for owner in metadata.get("ownerReferences") or ())
        ]

    async def _delete_node(self, metadata: dict[str, Any], slots: asyncio.Semaphore) -> None:
        if metadata.get("deletionTimestamp"):
            return
        body = {"preconditions": {"uid": metadata["uid"]}}
        path = NODES.path(name=metadata["name"])
        async with slots:
            with suppress(NotFoundError, ConflictError):
                await self._client.request("DELETE", path, body=body, retries=RETRIES)

    async def _until(
        self,
        manifest: Manifest,
        holds: Callable[[dict[str, Any] | None], bool],
        problem: str,
        remedy: str = "",
    ) -> None:
        waited = 0.0
        while not holds(await self._get(manifest)):
            if waited >= self._timeout:
                raise InstallError(
                    f"{reference(manifest)} {problem} after {self._timeout:g} s"
                    f"{remedy or '; run the command again, or give it more --timeout'}"
                )
            await self._sleep(_POLL)
            waited += _POLL

    async def _get(self, manifest: Manifest) -> dict[str, Any] | None:
        """Returns the object in the cluster; None if it, or its kind, doesn't exist."""
        if await self._path(manifest) is None:
            return None
        try:
            return decode_dict(await self._request("GET", manifest, "reading"))
        except NotFoundError:
            return None

    async def _request(self, method: str, manifest: Manifest, doing: str, **request: Any) -> bytes:
        path = await self._path(manifest)
        assert path is not None, "kinds are looked up before any other request"
        place = manifest["metadata"].get("namespace")
        what = f"{doing} {reference(manifest)}{f' in {place}' if place else ''}"
        try:
            return await self._client.request(method, path, retries=RETRIES, **request)
        except NotFoundError:
            if method == "PATCH":
                raise InstallError(f"{what}: there is no namespace {place}; create it") from None
            raise
        except ConflictError as error:
            remedy = "; --force-conflicts takes these fields over" if method == "PATCH" else ""
            raise InstallError(f"{what}: {error.message}{remedy}") from error
        except ForbiddenError as error:
            raise InstallError(
                f"{what}: {error.message}; use an account that may, such as a cluster-admin's"
            ) from error
        except ApiError as error:
            raise InstallError(f"{what}: {error}") from error

    async def _path(self, manifest: Manifest) -> str | None:
        """Returns the API path of an object; None if the cluster doesn't know its kind."""
        version = str(manifest["apiVersion"])
        root = f"/apis/{version}" if group_of(manifest) else f"/api/{version}"
        if root not in self._known:
            self._known[root] = await self._discover(root)
        resource = self._known[root].get(str(manifest["kind"]))
        if resource is None:
            return None
        if resource.namespaced:
            root += f"/namespaces/{manifest['metadata'].get('namespace') or 'default'}"
        return f"{root}/{resource.plural}/{name_of(manifest)}"

    async def _discover(self, root: str) -> dict[str, _Resource]:
        try:
            answer = await self._client.get_json(root, retries=RETRIES)
        except NotFoundError:
            return {}
        return {
            entry["kind"]: _Resource(entry["name"], bool(entry["namespaced"]))
            for entry in answer.get("resources") or ()
            if "/" not in entry["name"]
        }
