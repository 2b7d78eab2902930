"""Where the gRPC server listens, and how it stops."""

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from kwok_operator.shim.grpcserver import GrpcServer
from tests.fakes.certificates import SERVER_NAME, Certificates, make_certificates
from tests.fakes.slow import Slow
from tests.fakes.waiting import until

LONG: Final = 60.0
"""Seconds for what takes none: machines are busy."""


def echo(message: bytes) -> bytes:
    return message


def server(handler: Callable[[bytes], bytes | Awaitable[bytes]] = echo) -> GrpcServer:
    return GrpcServer({"/test.Test/Echo": handler})


async def call(target: str, message: bytes = b"x") -> bytes:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        answer: bytes = await channel.unary_unary("/test.Test/Echo", bytes, bytes)(message)
        return answer


async def test_a_unix_socket_has_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    for modes, expected in (({}, 0o660), ({"mode": 0o600}, 0o600)):
        running = server()
        with socket.socket(socket.AF_UNIX) as dead:  # what it leaves is replaced
            dead.bind(str(path))
        before = os.umask(0o077)
        try:
            await running.listen_unix(path, **modes)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == expected
        assert await call(f"unix:{path}", b"hello") == b"hello"
        await running.stop(1)
        assert not path.exists()


async def test_what_is_in_use_is_left_alone(tmp_path: Path) -> None:
    path, precious = tmp_path / "s.sock", tmp_path / "precious"
    first, second = server(), server()
    await first.listen_unix(path)
    port = await first.listen_tcp("127.0.0.1", 0)
    with pytest.raises(OSError, match="another server listens"):
        await second.listen_unix(path)
    with pytest.raises(OSError, match="in use"):
        await second.listen_tcp("127.0.0.1", port)
    precious.write_text("data")
    with pytest.raises(FileExistsError, match="no socket"):
        await second.listen_unix(precious)
    assert precious.read_text() == "data"
    await second.stop(0)
    assert await call(f"unix:{path}") == b"x"
    await first.stop(0)


async def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path, first, second = tmp_path / "s.sock", server(), server()
    await first.listen_unix(path)
    path.rename(tmp_path / "moved")
    await second.listen_unix(path)
    await first.stop(0)
    assert await call(f"unix:{path}") == b"x"
    await second.stop(0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


async def secure_call(target: str, credentials: grpc.ChannelCredentials, message: bytes) -> bytes:
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.enable_retries", 0)]
    async with grpc.aio.secure_channel(target, credentials, options=options) as channel:
        answer: bytes = await channel.unary_unary("/test.Test/Echo", bytes, bytes)(
            message, timeout=LONG
        )
        return answer


async def test_tls_on_both_sides(certificates: Certificates) -> None:
    running = server()
    context = certificates.server_context(ask_for_client=True)
    context.set_alpn_protocols(["h2"])
    target = f"127.0.0.1:{await running.listen_tcp('127.0.0.1', 0, ssl=lambda: context)}"
    known = grpc.ssl_channel_credentials(
        *(certificates.text(name).encode() for name in ("ca.crt", "client.key", "client.crt"))
    )
    message = bytes(3 * 2**20)
    assert await secure_call(target, known, message) == message

    unknown = grpc.ssl_channel_credentials(certificates.text("ca.crt").encode())
    for stranger in (secure_call(target, unknown, b"x"), call(target)):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stranger
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    await running.stop(1)


async def test_stopping_lets_calls_end(tmp_path: Path) -> None:
    slow = Slow()
    running = server(slow)
    target = f"unix:{tmp_path}/s.sock"
    await running.listen_unix(tmp_path / "s.sock")
    under_way = asyncio.create_task(call(target))
    await slow.started.wait()
    stopping = asyncio.create_task(running.stop(LONG))
    await until(lambda: not (tmp_path / "s.sock").exists())
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call(target)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert not stopping.done()
    slow.go_on.set()
    assert await under_way == b"x"
    await asyncio.wait_for(stopping, LONG)


async def test_stopping_cuts_off_what_does_not_end() -> None:
    slow = Slow()
    running = server(slow)
    target = f"127.0.0.1:{await running.listen_tcp('127.0.0.1', 0)}"
    under_way = asyncio.create_task(call(target))
    await slow.started.wait()
    await asyncio.wait_for(running.stop(0.05), LONG)
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await under_way
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_stopping_with_idle_clients_is_quick() -> None:
    running = server()
    target = f"127.0.0.1:{await running.listen_tcp('127.0.0.1', 0)}"
    async with grpc.aio.insecure_channel(target) as channel:
        await channel.unary_unary("/test.Test/Echo", bytes, bytes)(b"x")
        await asyncio.wait_for(running.stop(10 * LONG), LONG)
