"""Certificates for tests: a CA, a server's that is good for `k8s.test` only, a client's."""

import base64
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

SERVER_NAME = "k8s.test"
_YESTERDAY = datetime.now(UTC) - timedelta(days=1)
_LONG_AGO = _YESTERDAY - timedelta(days=365)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where they are: `ca.crt`, `server.crt`, `server.key`, `client.crt`, `client.key`, and those
    of a client whose certificate has expired: `expired.crt`, `expired.key`.
    """

    directory: Path

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def relative(self, name: str, directory: Path) -> str:
        return os.path.relpath(self.directory / name, directory)

    def text(self, name: str) -> str:
        return (self.directory / name).read_text()

    def data(self, name: str) -> str:
        """As kubeconfigs hold it."""
        return base64.b64encode((self.directory / name).read_bytes()).decode()

    def server_context(self, *, ask_for_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.crt"), self.path("server.key"))
        if ask_for_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path("ca.crt"))
        return context


def make_certificates(directory: Path) -> Certificates:
    """Makes them anew."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.crt")
    issued = {
        "server": authority.issue_cert(SERVER_NAME, common_name="server"),
        "client": authority.issue_cert(SERVER_NAME, common_name="client"),
        "expired": authority.issue_cert(
            SERVER_NAME, common_name="expired", not_before=_LONG_AGO, not_after=_YESTERDAY
        ),
    }
    for who, certificate in issued.items():
        certificate.cert_chain_pems[0].write_to_path(directory / f"{who}.crt")
        certificate.private_key_pem.write_to_path(directory / f"{who}.key")
    return Certificates(directory)
