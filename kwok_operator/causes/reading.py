"""Reads from a live cluster what explains one pod: by get and list only, and never Secrets.

    path --ClusterReader--> the fields in use, or a note on what can't be known and why

What can't be read is noted, with the permission that is missing, and reading goes on. Only fields
that are used are decoded: no environment, command or image of containers. Lists are read in pages,
and each object is passed on at once, so memory doesn't grow with the cluster's pods.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from typing_extensions import TypedDict  # pydantic needs this one below Python 3.12

from kwok_operator.errors import (
    ForbiddenError,
    GoneError,
    KwokOperatorError,
    NotFoundError,
    UnauthorizedError,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import OBJECTS, Decoder

Body = dict[str, Any]

PAGE: Final = 500
_MOST_PAGES: Final = 400
_TIMEOUT: Final = 60.0
_RETRIES: Final = 3


class _Metadata(TypedDict, total=False):
    name: Any
    generateName: Any
    namespace: Any
    uid: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: Any
    ownerReferences: Any


class _Container(TypedDict, total=False):
    name: Any
    resources: Any
    ports: Any
    restartPolicy: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    schedulerName: Any
    schedulingGates: Any
    priority: Any
    overhead: Any
    resources: Any
    nodeSelector: Any
    tolerations: Any
    affinity: Any
    topologySpreadConstraints: Any
    resourceClaims: Any
    volumes: Any
    containers: list[_Container] | None
    initContainers: list[_Container] | None


class _PodStatus(TypedDict, total=False):
    phase: Any
    reason: Any
    conditions: Any
    nominatedNodeName: Any
    containerStatuses: Any
    initContainerStatuses: Any


class _PodObject(TypedDict, total=False):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _NamedObject(TypedDict, total=False):
    metadata: _Metadata


class _PlacedSpec(TypedDict, total=False):
    nodeName: Any
    overhead: Any
    resources: Any
    affinity: Any
    containers: list[_Container] | None
    initContainers: list[_Container] | None


class _PlacedObject(TypedDict, total=False):
    metadata: _Metadata
    spec: _PlacedSpec


class _NodeSpec(TypedDict, total=False):
    taints: Any
    unschedulable: Any


class _NodeStatus(TypedDict, total=False):
    allocatable: Any
    conditions: Any


class _NodeObject(TypedDict, total=False):
    metadata: _Metadata
    spec: _NodeSpec
    status: _NodeStatus


class _ConfigData(TypedDict, total=False):
    status: Any


class _ConfigObject(TypedDict, total=False):
    metadata: _Metadata
    data: _ConfigData | None


def _as_it_is(raw: Body) -> Body:
    return raw


POD: Final[Decoder[Body]] = Decoder(_PodObject, _as_it_is)
PLACED: Final[Decoder[Body]] = Decoder(_PlacedObject, _as_it_is)
"""Decodes of a pod only the fields that say what it uses of its node."""
NAMED: Final[Decoder[Body]] = Decoder(_NamedObject, _as_it_is)
NODE: Final[Decoder[Body]] = Decoder(_NodeObject, _as_it_is)
STATUS_MAP: Final[Decoder[Body]] = Decoder(_ConfigObject, _as_it_is)
"""Decodes of a ConfigMap only the entry with cluster-autoscaler's status."""


class ClusterReader:
    """Reads with one client. `unknown` has the notes on what could not be read."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.unknown: list[str] = []

    def note(self, text: str) -> None:
        """Adds a note, unless it is there already."""
        if text not in self.unknown:
            self.unknown.append(text)

    async def get(
        self,
        path: str,
        *,
        shows: str,
        decoder: Decoder[Body] = OBJECTS,
        optional: bool = True,
        missing: Callable[[], object] = bool,
    ) -> Body | None:
        """Returns the object at a path; None if it doesn't exist or can't be read.

        If it doesn't exist, `missing` is called. If it can't be read, a note says so and what the
        object `shows`. Without `optional`, both cases raise the error of the request.
        """
        try:
            return decoder.one(await self._request(path, {}, retries=_RETRIES if optional else 0))
        except UnauthorizedError:
            raise
        except NotFoundError:
            if not optional:
                raise
            missing()
            return None
        except KwokOperatorError as error:
            if not optional:
                raise
            self._miss(path, error, verb="get", shows=shows)
            return None

    async def each(
        self,
        path: str,
        take: Callable[[Body], object],
        *,
        shows: str,
        decoder: Decoder[Body] = OBJECTS,
        fields: str = "",
        quiet: bool = False,
        most: int = _MOST_PAGES,
    ) -> bool:
        """Calls `take` with each object of a kind; returns whether all of them could be read.
        Returns False, too, if the API server doesn't serve the kind. `quiet`: a refusal adds no
        note.
        """
        token = ""
        for _ in range(most):
            params = {"limit": str(PAGE), **({"fieldSelector": fields} if fields else {})}
            params |= {"continue": token} if token else {}
            try:
                page = decoder.page(await self._request(path, params))
            except (UnauthorizedError, NotFoundError) as error:
                if isinstance(error, NotFoundError):
                    return False
                raise
            except KwokOperatorError as error:
                if not quiet:
                    self._miss(path, error, verb="list", shows=shows)
                return False
            for item in page.items:
                take(item)
            token = page.continue_token
            if not token:
                return True
        self.note(f"{shows}: only the first {most * PAGE:,} objects at {path} were read")
        return False

    async def _request(
        self, path: str, params: Mapping[str, str], *, retries: int = _RETRIES
    ) -> bytes:
        return await self._client.request(
            "GET", path, params=params, timeout=_TIMEOUT, retries=retries
        )

    def _miss(self, path: str, error: KwokOperatorError, *, verb: str, shows: str) -> None:
        if isinstance(error, ForbiddenError):
            self.note(f"{shows}: needs the right to {verb} {in_words(path)}")
        elif isinstance(error, GoneError):
            self.note(f"{shows}: the list at {path} changed too fast to be read; try again")
        else:
            self.note(f"{shows}: {error}")


def in_words(path: str) -> str:
    """Returns what a path is about, in kubectl's form: `nodeclaims.karpenter.sh`."""
    parts = path.split("/")
    group = parts[2] if parts[1] == "apis" else ""
    rest = parts[4:] if group else parts[3:]
    place = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        place, rest = f" in namespace {rest[1]}", rest[2:]
    name = f" {rest[1]}" if len(rest) > 1 else ""
    return f"{rest[0]}{f'.{group}' if group else ''}{name}{place}"
