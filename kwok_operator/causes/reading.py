"""Reads from a live cluster what explains one pod: by get and list only, and never Secrets.

    path --ClusterReader--> the fields in use, or a note on what can't be known and why

What can't be read is noted, with the permission that is missing, and reading goes on. Only fields
that are used are decoded: no environment, command or image of containers. Lists are read in pages,
and each object is passed on at once, so memory doesn't grow with the cluster's pods.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kwok_operator.errors import (
    ForbiddenError,
    GoneError,
    KwokOperatorError,
    NotFoundError,
    UnauthorizedError,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import OBJECTS, Decoder, only
from kwok_operator.kube.retry import RETRIES

Body = dict[str, Any]

PAGE: Final = 500
_MOST_PAGES: Final = 400
_TIMEOUT: Final = 60.0


def _as_it_is(raw: Body) -> Body:
    return raw


def _list_of(part: Any) -> Any:
    return list[part] | None


def _decoder(**parts: Any) -> Decoder[Body]:
    return Decoder(only("", metadata=_METADATA, **parts), _as_it_is)


_METADATA: Final = only(
    "name generateName namespace uid creationTimestamp deletionTimestamp labels annotations"
    " ownerReferences"
)
_CONTAINERS: Final = _list_of(only("name resources ports restartPolicy"))
_POD_SPEC: Final = only(
    "nodeName schedulerName schedulingGates priority overhead resources nodeSelector tolerations"
    " affinity topologySpreadConstraints resourceClaims volumes",
    containers=_CONTAINERS,
    initContainers=_CONTAINERS,
)
_POD_STATUS: Final = only(
    "phase reason conditions nominatedNodeName containerStatuses initContainerStatuses"
)
_PLACED_SPEC: Final = only(
    "nodeName overhead resources affinity", containers=_CONTAINERS, initContainers=_CONTAINERS
)

POD: Final = _decoder(spec=_POD_SPEC, status=_POD_STATUS)
PLACED: Final = _decoder(spec=_PLACED_SPEC)
"""Decodes of a pod only the fields that say what it uses of its node."""
NAMED: Final = _decoder()
NODE: Final = _decoder(spec=only("taints unschedulable"), status=only("allocatable conditions"))
STATUS_MAP: Final = _decoder(data=only("status") | None)
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

        If it doesn't exist, `missing` is called. If it can't be read, a note is added that names
        what the object `shows`. Without `optional`, both cases raise the error of the request.
        """
        try:
            return decoder.one(await self._request(path, {}, retries=RETRIES if optional else 0))
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
        self, path: str, params: Mapping[str, str], *, retries: int = RETRIES
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
