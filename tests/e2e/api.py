"""An API server as the tests ask it: by kubernetes_asyncio, from code that knows nothing of loops.

The operator has a client of its own: what looks at its work, and what plays its users, must not
share it, nor pay for a kubectl each time. Requests run on one event loop, in a thread that lives as
long as the process; an `Api` may be used by any thread, and ends its connections with itself.
"""

import asyncio
import contextlib
import functools
import json
import threading
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.config import load_kube_config

from kwok_operator.constants import (
    GROUPS_PATH,
    NODES_PATH,
    PLURAL,
    POOL_PLURAL,
    POOLS_PATH,
    PROFILES_PATH,
)

T = TypeVar("T")

GROUPS: Final = GROUPS_PATH
NODES: Final = NODES_PATH
POOLS: Final = POOLS_PATH
EVENTS: Final = "/api/v1/events"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON: Final = "application/json-patch+json"

METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LIMITS: Final = aiohttp.ClientTimeout(total=30)

_CLUSTER_SCOPED: Final = {
    "kng": GROUPS,
    PLURAL: GROUPS,
    "kpool": POOLS,
    POOL_PLURAL: POOLS,
    "node": NODES,
    "nodes": NODES,
    "namespaces": "/api/v1/namespaces",
    "kpp": PROFILES_PATH,
    "stage": "/apis/kwok.x-k8s.io/v1alpha1/stages",
}
_NAMESPACED: Final = {
    "configmap": "/api/v1/*/configmaps",
    "events": "/api/v1/*/events",
    "hpa": "/apis/autoscaling/v2/*/horizontalpodautoscalers",
    "job": "/apis/batch/v1/*/jobs",
    "lease": "/apis/coordination.k8s.io/v1/*/leases",
    "leases": "/apis/coordination.k8s.io/v1/*/leases",
    "pod": "/api/v1/*/pods",
    "pods": "/api/v1/*/pods",
    "secret": "/api/v1/*/secrets",
}


class ApiError(Exception):
    """A request without success."""


class Refused(ApiError):
    """The API server has answered, and said no."""

    def __init__(self, status: int, content: str) -> None:
        self.status, self.reason, self.message = status, "", content
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(content)
            self.reason, self.message = said.get("reason", ""), said["message"]
        super().__init__(f"{status} {self.message}")


class Unreachable(ApiError):
    """There was no answer, or half of one."""


def path_of(kind: str, *, namespace: str | None = "default", name: str = "") -> str:
    """Where objects of a kind are, or one of them; without a namespace those of all.

    Raises LookupError for a kind that isn't known here.
    """
    if kind in _CLUSTER_SCOPED:
        path = _CLUSTER_SCOPED[kind]
    else:
        path = _NAMESPACED[kind].replace("/*", f"/namespaces/{namespace}" if namespace else "")
    return f"{path}/{name}" if name else path


class Api:
    """Asks one API server; raises Refused or Unreachable."""

    def __init__(self, kubeconfig: Path) -> None:
        client = self._client = self.run(_connect(kubeconfig))
        weakref.finalize(self, lambda: asyncio.run_coroutine_threadsafe(client.close(), loop()))

    @property
    def server(self) -> str:
        return str(self._client.configuration.host)

    def get(self, path: str, **params: str) -> Any:
        return self.run(self.ask("GET", path, params=params))

    def text(self, path: str) -> str:
        return self.run(self._ask("GET", path, accept="*/*"))

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return self.run(self.ask("POST", path, body=body))

    def patch(self, path: str, body: Any, *, kind: str = MERGE) -> Any:
        return self.run(self.ask("PATCH", path, body=body, content_type=kind))

    def delete(self, path: str) -> None:
        """What isn't there needs no deletion."""
        try:
            self.run(self.ask("DELETE", path))
        except Refused as error:
            if error.status != 404:
                raise

    def list(
        self, path: str, *, selector: str = "", metadata: bool = False
    ) -> tuple[Sequence[Any], str]:
        """All objects at once, with `metadata` nothing else of them, and the list's version."""
        return self.run(self.listed(path, selector=selector, metadata=metadata))

    def names(self, path: str, *, selector: str = "") -> Sequence[str]:
        items, _ = self.list(path, selector=selector, metadata=True)
        return [item["metadata"]["name"] for item in items]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of a coroutine, on the loop."""
        return asyncio.run_coroutine_threadsafe(work, loop()).result()

    async def listed(
        self, path: str, *, selector: str, metadata: bool
    ) -> tuple[Sequence[Any], str]:
        params = {"labelSelector": selector} if selector else {}
        accept = _METADATA_LIST if metadata else "application/json"
        found = await self.ask("GET", path, params=params, accept=accept)
        return found.get("items") or [], found["metadata"]["resourceVersion"]

    async def ask(self, method: str, path: str, **how: Any) -> Any:
        return json.loads(await self._ask(method, path, **how))

    async def _ask(self, method: str, path: str, **how: Any) -> str:
        async with self.opened(method, path, limits=_LIMITS, **how) as answer:
            return await answer.text()

    @asynccontextmanager
    async def opened(
        self,
        method: str,
        path: str,
        *,
        limits: aiohttp.ClientTimeout,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that has begun well."""
        try:
            answer: aiohttp.ClientResponse = await self._client.call_api(
                path,
                method,
                query_params=dict(params or {}),
                header_params={"Accept": accept, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limits,
            )
            async with answer:
                if answer.status >= 400:
                    raise Refused(answer.status, await answer.text(errors="replace"))
                yield answer
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error


async def _connect(kubeconfig: Path) -> ApiClient:
    configuration = Configuration()
    await load_kube_config(
        config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
    )
    configuration.disable_strict_ssl_verification = True  # kwokctl's CA names no key usage
    return ApiClient(configuration)


@functools.cache
def loop() -> asyncio.AbstractEventLoop:
    """Where all requests of this process run."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="api", daemon=True).start()
    return loop
