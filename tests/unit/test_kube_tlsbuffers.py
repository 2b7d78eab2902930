"""TLS connections with small buffers: asyncio has the one to make small, and much gets through."""

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.kube import tlsbuffers
from tests.fakes.certificates import SERVER_NAME, make_certificates


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size)
    tlsbuffers.make_small()
    yield


async def test_a_connection_reads_more_than_its_buffer_holds(tmp_path: Path) -> None:
    certificates, much = make_certificates(tmp_path), bytes(8 * tlsbuffers.READ_BUFFER + 1)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(much)
        await writer.drain()
        writer.close()

    context = ssl.create_default_context(cafile=certificates.path("ca.crt"))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificates.server_context())
    async with server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname=SERVER_NAME
        )
        tls: Any = writer.transport
        assert len(tls._ssl_protocol._ssl_buffer) == tlsbuffers.READ_BUFFER
        assert await reader.read() == much
        writer.close()
