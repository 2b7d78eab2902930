"""A few lines of HTTP with the API server, as the cluster's admin.

The faults are for the operator: what looks at it, and what plays its users, must neither share its
code nor pay for a kubectl each time. One `Api` belongs to one thread.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kwok_operator.constants import API_GROUP, API_VERSION, PLURAL

GROUPS: Final = f"/apis/{API_GROUP}/{API_VERSION}/{PLURAL}"
NODES: Final = "/api/v1/nodes"
MERGE_PATCH: Final = "application/merge-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Refused(Exception):
    """The API server has answered, and said no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message}")
        self.status = status


class Unreachable(Exception):
    """There was no answer, or half of one."""


class Api:
    """Asks one API server; raises Refused or Unreachable."""

    def __init__(self, server: str, pki: Path) -> None:
        self.server = server
        self._pki = pki
        self._address = urlsplit(server).netloc
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
        self._connection: http.client.HTTPSConnection | None = None

    def another(self) -> "Api":
        """The same for another thread."""
        return Api(self.server, self._pki)

    def get(self, path: str, *, accept: str = "application/json", **params: str) -> Any:
        return json.loads(self.text(path, accept=accept, **params))

    def text(self, path: str, *, accept: str = "*/*", **params: str) -> str:
        return self._ask("GET", _with(path, params), None, {"Accept": accept}).decode()

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        return json.loads(self._ask("POST", path, json.dumps(body).encode(), headers))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        headers = {"Content-Type": MERGE_PATCH}
        return json.loads(self._ask("PATCH", path, json.dumps(body).encode(), headers))

    def delete(self, path: str) -> None:
        """What isn't there needs no deletion."""
        try:
            self._ask("DELETE", path, None, {})
        except Refused as error:
            if error.status != 404:
                raise

    def list(
        self, path: str, *, selector: str = "", metadata: bool = False
    ) -> tuple[list[Any], str]:
        """All objects at once, with `metadata` nothing else of them, and the list's version."""
        accept = METADATA_LIST if metadata else "application/json"
        params = {"labelSelector": selector} if selector else {}
        found = self.get(path, accept=accept, **params)
        return found.get("items") or [], found["metadata"]["resourceVersion"]

    def watch(self, path: str, *, version: str, seconds: int, **params: str) -> Iterator[Any]:
        """The events since a version, of metadata alone, until the server ends the watch."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        address = _with(path, {**query, "timeoutSeconds": str(seconds), **params})
        connection = self._open(timeout=75)  # a bookmark comes each minute
        try:
            connection.request("GET", address, headers={"Accept": METADATA})
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(answer.status, answer.read().decode(errors="replace"))
            while line := answer.readline():
                yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"watching {path}: {error!r}") from error
        finally:
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, *, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, context=self._tls, timeout=timeout)

    def _ask(
        self, method: str, address: str, body: bytes | None, headers: Mapping[str, str]
    ) -> bytes:
        fresh = self._connection is None
        connection = self._connection = self._connection or self._open(timeout=30)
        try:
            connection.request(method, address, body=body, headers=dict(headers))
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if method == "GET" and not fresh:  # a kept connection that the server has closed
                return self._ask(method, address, body, headers)
            raise Unreachable(f"{method} {address}: {error!r}") from error
        if answer.status >= 400:
            message = content.decode(errors="replace")
            with contextlib.suppress(ValueError, KeyError, TypeError):
                message = json.loads(content)["message"]
            raise Refused(answer.status, message)
        return content


def _with(path: str, params: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(params)}" if params else path
