"""TLS connections with small buffers: they take less memory, and as much gets through.

Both programs ask for them before anything else.
"""

import argparse
import asyncio
import ssl
import tracemalloc
from asyncio import sslproto
from pathlib import Path

import pytest

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube import tlsbuffers
from kwok_operator.operator.run import run as run_operator
from kwok_operator.settings import add_run_flags, run_settings
from kwok_operator.shim.run import run as run_shim
from kwok_operator.shim.settings import add_shim_flags, shim_settings
from tests.fakes.certificates import SERVER_NAME, make_certificates

CONNECTIONS = 4
MUCH = bytes(8 * tlsbuffers.READ_BUFFER + 1)


@pytest.fixture(autouse=True)
def buffers_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have made them small."""
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 2**18)


async def held(directory: Path) -> float:
    """Bytes of memory for a connection's two ends, once each has had its answer."""
    certificates, gone = make_certificates(directory), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(MUCH)
        await writer.drain()
        await gone.wait()
        writer.close()

    context = ssl.create_default_context(cafile=certificates.path("ca.crt"))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificates.server_context())
    async with server:
        host, port = server.sockets[0].getsockname()
        open_connections = []
        tracemalloc.start()
        try:
            for _ in range(CONNECTIONS):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=context, server_hostname=SERVER_NAME
                )
                assert await reader.readexactly(len(MUCH)) == MUCH
                open_connections.append((reader, writer))
            found = tracemalloc.get_traced_memory()[0] / CONNECTIONS
        finally:
            tracemalloc.stop()
        gone.set()
        for _, writer in open_connections:
            writer.close()
            await writer.wait_closed()
    return found


async def test_connections_take_a_fraction_of_the_memory(tmp_path: Path) -> None:
    before = await held(tmp_path)
    tlsbuffers.make_small()
    assert await held(tmp_path) < before / 2


async def test_both_programs_have_them(tmp_path: Path) -> None:
    missing = f"--kubeconfig={tmp_path / 'missing'}"
    operator, shim = argparse.ArgumentParser(), argparse.ArgumentParser()
    add_run_flags(operator)
    add_shim_flags(shim)
    usual = sslproto.SSLProtocol.max_size
    for program in (
        run_operator(run_settings(operator.parse_args([missing]), {})),
        run_shim(shim_settings(shim.parse_args([missing]), {})),
    ):
        sslproto.SSLProtocol.max_size = usual
        with pytest.raises(KwokOperatorError):
            await program
        assert sslproto.SSLProtocol.max_size == tlsbuffers.READ_BUFFER
