"""Certificates for tests: a CA, a server's that is good for `k8s.test` only, a client's."""

import base64
import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER_NAME = "k8s.test"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where they are: `ca.crt`, `server.crt`, `server.key`, `client.crt`, `client.key`."""

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
    """Make them with the openssl program; tests are skipped where there is none."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl program is not installed")
    new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    (directory / "names").write_text(f"subjectAltName=DNS:{SERVER_NAME}\n")
    commands = [f"req -x509 {new_key} -keyout ca.key -out ca.crt -subj /CN=ca -days 9"]
    for who in ("server", "client"):
        commands += [
            f"req {new_key} -keyout {who}.key -out {who}.csr -subj /CN={who}",
            f"x509 -req -in {who}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {who}.crt "
            "-days 9 -extfile names",
        ]
    for command in commands:
        subprocess.run(
            ["openssl", *command.split()], cwd=directory, check=True, capture_output=True
        )
    return Certificates(directory)
