"""The shim's certificates, which are renewed in place while it runs.

    files ──look, every few seconds──> a context ──> each new connection

Files that don't fit each other, as when one of them is renewed and the other is not yet, change
nothing: the last ones that did stay. Connections that are open keep what they have.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from kwok_operator.errors import SettingsError
from kwok_operator.shim.settings import Certificates

logger = logging.getLogger(__name__)

CHECK_INTERVAL: Final = 10.0
"""Seconds between two looks at the files."""


class Tls:
    """Mutual TLS with the files as they are now. Raises SettingsError where they can't be used."""

    def __init__(self, certificates: Certificates) -> None:
        self._certificates = certificates
        self._stamp = _stamp(certificates)
        self._current = _context(certificates)
        self.context = _context(certificates)
        """What a server listens with, for good."""
        # Called for clients that send no name, too. A context can be given new certificates, but
        # neither can a CA be taken from it nor a certificate be put back that had no key.
        self.context.sni_callback = self._choose

    def look(self) -> None:
        """Takes the files over if they have changed."""
        now = _stamp(self._certificates)
        if now == self._stamp:
            return
        try:
            self._current = _context(self._certificates)
        except SettingsError as error:
            logger.warning("certificates not renewed, the old ones stay: error=%s", error)
        else:
            self._stamp = now
            logger.info("certificates renewed")

    async def keep_looking(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.look()

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        connection.context = self._current


def _context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(certificates.cert, certificates.key)
        context.load_verify_locations(certificates.cacert)
    except (OSError, ValueError) as error:
        raise SettingsError(f"--cert, --key, --cacert: can't be used: {error}") from error
    return context


def _stamp(certificates: Certificates) -> tuple[int, ...]:
    return tuple(
        _changed_at(Path(file))
        for file in (certificates.cert, certificates.key, certificates.cacert)
    )


def _changed_at(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
