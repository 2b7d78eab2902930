"""TLS connections that share a small buffer: they take less memory, and as much gets through.

Both programs ask for it before anything else.
"""

import argparse
import asyncio
import ssl
import tracemalloc
from asyncio import sslproto
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube import tlsbuffers
from kwok_operator.operator.run import run as run_operator
from kwok_operator.settings import add_run_flags, run_settings
from kwok_operator.shim.run import run as run_shim
from kwok_operator.shim.settings import add_shim_flags, shim_settings
from tests.fakes.certificates import SERVER_NAME, Certificates, make_certificates

CONNECTIONS = 4
USUAL = sslproto.SSLProtocol
MUCH = 8 * tlsbuffers.READ_BUFFER + 1


@pytest.fixture(autouse=True)
def buffers_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have made them small."""
    monkeypatch.setattr(sslproto, "SSLProtocol", USUAL)


@dataclass
class Server:
    """It sends each connection as much as MUCH, of a byte that no other connection gets."""

    certificates: Certificates
    within: bool = False
    """Whether each connection becomes a TLS connection within the TLS connection."""

    def __post_init__(self) -> None:
        self.bytes = count()
        self.context = ssl.create_default_context(cafile=self.certificates.path("ca.crt"))

    async def answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.within:
            await writer.start_tls(self.certificates.server_context())
        writer.write(bytes([next(self.bytes)]) * MUCH)
        await writer.drain()

    async def connect(self, host: str, port: int) -> asyncio.StreamWriter:
        """Returns a connection that has had its answer."""
        reader, writer = await asyncio.open_connection(
            host, port, ssl=self.context, server_hostname=SERVER_NAME
        )
        if self.within:
            await writer.start_tls(self.context, server_hostname=SERVER_NAME)
        answer = await reader.readexactly(MUCH)
        assert answer == answer[:1] * MUCH
        return writer


async def held(directory: Path, *, within: bool = False) -> float:
    """Bytes of memory for a connection's two ends, once each has had its answer."""
    server = Server(make_certificates(directory), within=within)
    listening = await asyncio.start_server(
        server.answer, "127.0.0.1", 0, ssl=server.certificates.server_context()
    )
    async with listening:
        address = listening.sockets[0].getsockname()
        tracemalloc.start()
        try:
            writers = await asyncio.gather(*(server.connect(*address) for _ in range(CONNECTIONS)))
            found = tracemalloc.get_traced_memory()[0] / CONNECTIONS
        finally:
            tracemalloc.stop()
        for writer in writers:
            writer.close()
            await writer.wait_closed()
    return found


@pytest.mark.parametrize("within", [False, True])
async def test_connections_share_one_buffer(tmp_path: Path, within: bool) -> None:
    before = await held(tmp_path, within=within)
    tlsbuffers.make_small()
    assert await held(tmp_path, within=within) < before / 15


async def test_both_programs_have_it(tmp_path: Path) -> None:
    missing = f"--kubeconfig={tmp_path / 'missing'}"
    operator, shim = argparse.ArgumentParser(), argparse.ArgumentParser()
    add_run_flags(operator)
    add_shim_flags(shim)
    for program in (
        run_operator(run_settings(operator.parse_args([missing]), {})),
        run_shim(shim_settings(shim.parse_args([missing]), {})),
    ):
        sslproto.SSLProtocol = USUAL  # type: ignore[misc]
        with pytest.raises(KwokOperatorError):
            await program
        assert sslproto.SSLProtocol.max_size == tlsbuffers.READ_BUFFER
