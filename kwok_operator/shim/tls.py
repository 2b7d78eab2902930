"""The shim's certificates, which are renewed in place while it runs.

    files ──look, every few seconds──> context() ──> each new connection

While certificate and key don't fit each other, as when only one file is renewed yet, the last pair
that fitted stays in use. Open connections keep their certificates.

No session can be resumed, as that would skip the check of the client's certificate. TLS 1.3 resumes
only by tickets, and the shim issues none. TLS 1.2 can resume without tickets, which Python can't
switch off, so the shim refuses TLS 1.2.

Clients that fail the handshake are logged, because no call of theirs shows up anywhere else.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kwok_operator.errors import SettingsError
from kwok_operator.shim.settings import Certificates

logger = logging.getLogger(__name__)

CHECK_INTERVAL: Final = 10.0
"""Seconds between two checks of the files."""
WARN_INTERVAL: Final = 60.0
"""Seconds for which one cause is logged only once, however many clients fail by it."""


class Tls:
    """Mutual TLS with the files as they are now. Raises SettingsError if they can't be used."""

    def __init__(
        self, certificates: Certificates, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._certificates = certificates
        self._clock = clock
        self._warned: dict[str, float] = {}
        """Cause of a failed handshake -> when it was last logged. OpenSSL knows a few hundred
        causes."""
        self._stamp = self._refused = _stamp(certificates)
        self._current = self._load()

    def context(self) -> ssl.SSLContext:
        """Returns the TLS context for the next connection."""
        return self._current

    def reload_if_changed(self) -> None:
        """Loads the files again if they have changed."""
        now = _stamp(self._certificates)
        if now == self._stamp:
            return
        try:
            self._current = self._load()
        except SettingsError as error:
            if now != self._refused:
                self._refused = now
                logger.warning("certificates not renewed, the old ones stay: error=%s", error)
        else:
            self._stamp = now
            logger.info("certificates renewed")

    async def keep_reloading(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.reload_if_changed()

    def _turned_away(self, error: ssl.SSLError) -> None:
        cause, now = _in_words(error), self._clock()
        if now - self._warned.get(cause, float("-inf")) >= WARN_INTERVAL:
            self._warned[cause] = now
            logger.warning("client turned away: error=%s", cause)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED
        context.set_alpn_protocols(["h2"])
        context.sslobject_class = _reporting(self._turned_away)
        files = self._certificates
        try:
            context.load_cert_chain(files.cert, files.key)
            context.load_verify_locations(files.cacert)
        except (OSError, ValueError) as error:
            raise SettingsError(f"--cert, --key, --cacert: can't be used: {error}") from error
        return context


def _reporting(failed: Callable[[ssl.SSLError], None]) -> type[ssl.SSLObject]:
    """Returns a class of TLS connections that call `failed` with the error of a failed handshake.
    asyncio hides such errors from servers."""

    class Reporting(ssl.SSLObject):
        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                failed(error)
                raise

    return Reporting


def _in_words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate"
    return (error.reason or "the handshake failed").replace("_", " ").lower()


def _stamp(certificates: Certificates) -> tuple[tuple[int, ...], ...]:
    return tuple(
        _state(Path(file)) for file in (certificates.cert, certificates.key, certificates.cacert)
    )


def _state(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_size
