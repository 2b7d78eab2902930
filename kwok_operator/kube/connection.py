"""One API server and the current credentials for it.

An `Endpoint` is the content of a kubeconfig or a service account at one moment: a value.
`ApiConnection` keeps it up to date: it re-reads a token file that rotates, runs the loader again
before a plugin's token expires, and once more when the API server answers 401. config.py finds
endpoints; client.py sends requests.

`ApiConnection.endpoint` has everything that another client needs to log in the same way (kopf, for
its own session); `auth_headers()` renews the credentials first if that is due.
"""

import asyncio
import contextlib
import logging
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from ssl import SSLContext
from typing import Final
from urllib.parse import urlsplit

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.userfiles import read_bytes

logger = logging.getLogger(__name__)

TOKEN_FILE_PERIOD: Final = 60.0
MAX_AHEAD: Final = 60.0
"""Credentials are renewed this many seconds before they expire, or in the last fifth of their life
if that is shorter."""
RETRY_PERIOD: Final = 10.0
MIN_RELOAD_PERIOD: Final = 5.0
"""The least seconds between two reloads. All requests in flight get a 401 together; one run of the
plugin serves them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where an API server is, which CA to trust, and the credentials. PEM data is decoded text."""

    server: str
    description: str = ""
    namespace: str = "default"
    ca_path: str | None = None
    ca_data: str | None = None
    certificate_path: str | None = None
    certificate_data: str | None = None
    private_key_path: str | None = None
    private_key_data: str | None = field(default=None, repr=False)
    insecure: bool = False
    tls_server_name: str | None = None
    proxy: str | None = None
    scheme: str = "Bearer"
    token: str | None = field(default=None, repr=False)
    """The text after the scheme in the Authorization header; for Basic, user and password in
    base64."""
    token_file: str | None = None
    expires: float | None = None
    """Epoch seconds at which the token, or the client certificate, expires."""
    impersonate: Mapping[str, str] = field(default_factory=dict)
    """Headers of impersonation: they make the API server act as another user."""

    def __post_init__(self) -> None:
        # aiohttp refuses user and password in a URL beside a token, and logs show the URL.
        if urlsplit(self.server).username is not None:
            raise ConnectionConfigError(
                "a user or password in the server's URL is not supported; put username and "
                "password, or a token, into the kubeconfig's user"
            )

    def headers(self) -> dict[str, str]:
        """Returns the headers with the credentials."""
        headers = dict(self.impersonate)
        if self.token:
            headers["Authorization"] = f"{self.scheme} {self.token}"
        return headers


class ApiConnection:
    """An endpoint whose credentials are renewed in time."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        load: Callable[[], Awaitable[Endpoint]] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._load = load
        self._clock = clock
        self._lock = asyncio.Lock()
        self._reloaded_at: float | None = None
        self._endpoint = endpoint
        self._headers: Mapping[str, str] = {}
        self._check_at = float("inf")
        self._ssl: SSLContext | None = None
        self._tls: tuple[object, ...] | None = None
        self._use(endpoint)

    @property
    def endpoint(self) -> Endpoint:
        """The present endpoint, with the token as it was last read."""
        return self._endpoint

    @property
    def server(self) -> str:
        return self._endpoint.server

    @property
    def ssl(self) -> SSLContext | None:
        """The TLS settings; None for plain HTTP."""
        return self._ssl

    @property
    def tls_server_name(self) -> str | None:
        return self._endpoint.tls_server_name

    @property
    def proxy(self) -> str | None:
        return self._endpoint.proxy

    @property
    def namespace(self) -> str:
        return self._endpoint.namespace

    @property
    def description(self) -> str:
        """The connection in words, for logs: `context dev at https://...`, `in-cluster at
        https://...`."""
        return self._endpoint.description or self._endpoint.server

    async def auth_headers(self) -> Mapping[str, str]:
        """Returns the headers with the credentials, renewed if that is due. Callers must not
        change them."""
        now = self._clock()
        if now >= self._check_at:
            # Set before the renewal: other requests use the old token meanwhile.
            self._check_at = now + RETRY_PERIOD
            if self._endpoint.token_file is not None:
                self._read_token_file()
            else:
                try:
                    await self.reload()
                except ConnectionConfigError as error:
                    logger.warning("renewing credentials failed, keeping the old: error=%s", error)
        return self._headers

    async def reload(self) -> None:
        """Loads the endpoint again, unless that has just been done.

        Raises ConnectionConfigError if it can't; the old endpoint stays in use.
        """
        async with self._lock:
            now = self._clock()
            last = self._reloaded_at
            if self._load is None or (last is not None and 0 <= now - last < MIN_RELOAD_PERIOD):
                return
            self._reloaded_at = now
            self._use(await self._load())

    def _read_token_file(self) -> None:
        endpoint = self._endpoint
        assert endpoint.token_file is not None
        try:
            token = read_token(endpoint.token_file)
        except ConnectionConfigError as error:
            logger.warning("reading the token again failed, keeping the old: error=%s", error)
            return
        self._check_at = self._clock() + TOKEN_FILE_PERIOD
        if token != endpoint.token:
            self._endpoint = replace(endpoint, token=token)
            self._headers = self._endpoint.headers()

    def _use(self, endpoint: Endpoint) -> None:
        # A new SSL context would need new connections, so it is made only if the settings changed.
        settings = _tls(endpoint)
        if settings != self._tls:
            self._ssl, self._tls = ssl_context(endpoint), settings
        self._endpoint = endpoint
        self._headers = endpoint.headers()
        self._check_at = float("inf")
        if endpoint.token_file is not None:
            self._check_at = self._clock() + TOKEN_FILE_PERIOD
        elif endpoint.expires is not None:
            left = max(0.0, endpoint.expires - self._clock())
            self._check_at = endpoint.expires - min(MAX_AHEAD, left / 5)


def ssl_context(endpoint: Endpoint) -> SSLContext | None:
    """Makes the TLS settings of an endpoint; None for plain HTTP."""
    if not endpoint.server.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_path, cadata=endpoint.ca_data)
        # Python 3.13 refuses CAs without key identifiers. Many clusters have such CAs, and kubectl
        # accepts them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if endpoint.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        with (
            _file(endpoint.certificate_path, endpoint.certificate_data) as certificate,
            _file(endpoint.private_key_path, endpoint.private_key_data) as key,
        ):
            if certificate is not None:
                context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConnectionConfigError(
            f"{endpoint.description or endpoint.server}: "
            f"the CA or the client certificate can't be used: {error}"
        ) from error
    return context


def read_token(path: str) -> str:
    """Reads a file that holds a bearer token, and nothing else."""
    try:
        token = read_bytes(path).decode().strip()
    except (OSError, ValueError) as error:
        raise ConnectionConfigError(f"the token file {path} can't be read: {error}") from error
    if not token:
        raise ConnectionConfigError(f"the token file {path} is empty")
    return token


@contextlib.contextmanager
def _file(path: str | None, data: str | None) -> Iterator[str | None]:
    """Yields the path of a file with the PEM data, as Python loads certificates from files only."""
    if path is not None or data is None:
        yield path
        return
    with tempfile.NamedTemporaryFile("w") as file:  # readable for its owner only
        file.write(data)
        file.flush()
        yield file.name


def _tls(endpoint: Endpoint) -> tuple[object, ...]:
    """Returns everything that the TLS settings depend on, with the times at which the files were
    changed."""
    paths = (endpoint.ca_path, endpoint.certificate_path, endpoint.private_key_path)
    return (
        endpoint.server,
        endpoint.insecure,
        endpoint.ca_data,
        endpoint.certificate_data,
        endpoint.private_key_data,
        *paths,
        *(Path(path).stat().st_mtime_ns for path in paths if path and Path(path).exists()),
    )
