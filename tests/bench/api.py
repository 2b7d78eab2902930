"""The bench's own connection to the API server, as admin: for measuring, never for a rival.

Plain and blocking, with the client certificate that kwokctl made. Each thread has an `Api` of its
own, since one connection serves one request at a time.
"""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT = 120.0
_CHUNK = 1 << 18


class ApiError(Exception):
    """An answer that is not a success."""


class Api:
    """Requests to one API server over one connection."""

    def __init__(self, *, server: str, certificates: Path) -> None:
        parts = urlsplit(server)
        assert parts.hostname is not None
        self.server = server
        self._address = (parts.hostname, parts.port or 443)
        self._certificates = certificates
        self._tls = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._tls.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
        self._connection: http.client.HTTPSConnection | None = None

    def another(self) -> "Api":
        """The same with a connection of its own, for another thread."""
        return Api(server=self.server, certificates=self._certificates)

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of the answer; raises ApiError for all but 2xx."""
        response = self._send(method, path, body=body, content_type=content_type)
        answer = response.read()
        if not 200 <= response.status < 300:
            raise ApiError(f"{method} {path}: HTTP {response.status}: {answer[:500].decode()}")
        return answer

    def json(self, path: str) -> Any:
        return json.loads(self.request("GET", path))

    def scale(self, group_path: str, replicas: int) -> None:
        """What `kubectl scale` does, without kubectl."""
        self.request(
            "PATCH",
            f"{group_path}/scale",
            body={"spec": {"replicas": replicas}},
            content_type="application/merge-patch+json",
        )

    def metrics(self) -> str:
        """What the API server tells of itself."""
        return self.request("GET", "/metrics").decode()

    def chunks(self, path: str) -> Iterator[bytes]:
        """The answer as it arrives, for a watch; ends when the API server ends it."""
        response = self._send("GET", path, body=None, content_type="application/json", timeout=None)
        if response.status != 200:
            raise ApiError(f"GET {path}: HTTP {response.status}: {response.read(500).decode()}")
        while chunk := response.read1(_CHUNK):
            yield chunk

    def close(self) -> None:
        """Ends the connection, also under the feet of a thread that reads from it."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.sock is not None:
            connection.sock.close()

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None,
        content_type: str,
        timeout: float | None = _TIMEOUT,
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        for attempt in (1, 2):
            if self._connection is None:
                self._connection = http.client.HTTPSConnection(
                    *self._address, context=self._tls, timeout=timeout
                )
            try:
                self._connection.request(method, path, body=data, headers=headers)
                return self._connection.getresponse()
            except (http.client.HTTPException, OSError):
                # An idle connection that the API server has closed shows only now.
                self._connection.close()
                self._connection = None
                if attempt == 2:
                    raise
        raise AssertionError("unreachable")
