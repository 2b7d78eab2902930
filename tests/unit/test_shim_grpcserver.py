"""The server with grpcio's clients, the blocking one and the asyncio one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from tests.fakes.slow import Slow

MESSAGES: list[tuple[str, int | bool]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
]
LONG: Final = 60.0
"""Seconds for what takes none: machines are busy."""
OBSERVED = list[tuple[str, StatusCode]]


def refuse(_: bytes) -> bytes:
    raise RpcError(StatusCode.FAILED_PRECONDITION, "100 % schön:\nno")


async def refuse_later(_: bytes) -> bytes:
    await asyncio.sleep(0)
    raise RpcError(StatusCode.NOT_FOUND, "no such group")


def mistake(_: bytes) -> bytes:
    raise ZeroDivisionError("a secret")


async def mistake_later(_: bytes) -> bytes:
    raise ZeroDivisionError("a secret")


async def later(message: bytes) -> bytes:
    await asyncio.sleep(0)
    return message[::-1]


class Serving:
    """A server with the methods of these tests, and what it has observed."""

    def __init__(self) -> None:
        self.slow = Slow()
        self.observed: OBSERVED = []
        handlers: dict[str, Handler] = {
            "/test.Test/Echo": lambda message: message,
            "/test.Test/Later": later,
            "/test.Test/Slow": self.slow,
            "/test.Test/Refuse": refuse,
            "/test.Test/RefuseLater": refuse_later,
            "/test.Test/Mistake": mistake,
            "/test.Test/MistakeLater": mistake_later,
        }
        self.server = GrpcServer(handlers, observe=self._observe)
        self.target = ""

    def _observe(self, method: str, code: StatusCode, seconds: float) -> None:
        assert 0 <= seconds < 60
        self.observed.append((method, code))


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """On TCP."""
    found = Serving()
    found.target = f"127.0.0.1:{await found.server.listen_tcp('127.0.0.1', 0)}"
    yield found
    await found.server.stop(0)


@pytest.fixture
async def channel(serving: Serving) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(serving.target, options=MESSAGES) as found:
        yield found


def unary(channel: grpc.aio.Channel, name: str) -> Any:
    return channel.unary_unary(f"/test.Test/{name}", bytes, bytes)


async def status_of(call: Awaitable[bytes]) -> tuple[grpc.StatusCode, str | None]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code(), error.value.details()


async def test_unary(channel: grpc.aio.Channel) -> None:
    for message in (b"", b"x", b"x" * 300, bytes(3 * 2**20)):
        assert await unary(channel, "Echo")(message) == message
        assert await unary(channel, "Later")(message) == message[::-1]


async def test_refusals_are_sent_and_observed(channel: grpc.aio.Channel, serving: Serving) -> None:
    for name, code, sentence in (
        ("Refuse", grpc.StatusCode.FAILED_PRECONDITION, "100 % schön:\nno"),
        ("RefuseLater", grpc.StatusCode.NOT_FOUND, "no such group"),
        ("Nothing", grpc.StatusCode.UNIMPLEMENTED, "there is no method /test.Test/Nothing here"),
    ):
        assert await status_of(unary(channel, name)(b"")) == (code, sentence)
    assert await unary(channel, "Later")(b"") == b"", "still there"
    assert serving.observed == [
        ("/test.Test/Refuse", StatusCode.FAILED_PRECONDITION),
        ("/test.Test/RefuseLater", StatusCode.NOT_FOUND),
        ("unknown", StatusCode.UNIMPLEMENTED),
        ("/test.Test/Later", StatusCode.OK),
    ]


async def test_a_handlers_exception_is_logged_and_not_sent(
    channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("Mistake", "MistakeLater"):
        caplog.clear()
        for _ in range(2):
            code, sentence = await status_of(unary(channel, name)(b""))
            assert code == grpc.StatusCode.INTERNAL
            assert "secret" not in (sentence or "")
        ours = [record for record in caplog.records if record.name.startswith("kwok_operator")]
        assert [bool(record.exc_info) for record in ours] == [True, False]
        assert all(f"method=/test.Test/{name}" in record.getMessage() for record in ours)


async def test_a_deadline(channel: grpc.aio.Channel, serving: Serving) -> None:
    seconds = 0.05
    while not serving.slow.started.is_set():  # a deadline may pass on the way
        code, _ = await status_of(unary(channel, "Slow")(b"", timeout=seconds))
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        seconds *= 2
    await asyncio.wait_for(serving.slow.cancelled.wait(), LONG)
    assert await unary(channel, "Echo")(b"x", timeout=LONG) == b"x"


async def test_cancelling(channel: grpc.aio.Channel, serving: Serving) -> None:
    call = unary(channel, "Slow")(b"")
    await serving.slow.started.wait()
    call.cancel()
    await asyncio.wait_for(serving.slow.cancelled.wait(), LONG)
    assert serving.observed == [("/test.Test/Slow", StatusCode.CANCELLED)]


async def test_too_long_a_message(channel: grpc.aio.Channel) -> None:
    code, sentence = await status_of(unary(channel, "Echo")(bytes(4 * 2**20 + 1)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "4194305 bytes; at most 4194304" in (sentence or "")
    assert len(await unary(channel, "Echo")(bytes(4 * 2**20))) == 4 * 2**20


async def test_compression_is_refused(serving: Serving) -> None:
    gzip = grpc.Compression.Gzip
    async with grpc.aio.insecure_channel(serving.target, compression=gzip) as channel:
        code, _ = await status_of(unary(channel, "Echo")(b"x" * 1000))
    assert code == grpc.StatusCode.UNIMPLEMENTED


async def test_many_calls_at_once(channel: grpc.aio.Channel) -> None:
    for name, size in (("Echo", 10), ("Later", 70_000)):
        sent = [bytes([number % 256]) * size for number in range(300)]
        assert await asyncio.gather(*(unary(channel, name)(each) for each in sent)) == sent


async def test_the_blocking_client_from_many_threads(serving: Serving) -> None:
    def calls(number: int) -> bool:
        with grpc.insecure_channel(serving.target) as channel:
            call = channel.unary_unary("/test.Test/Later", bytes, bytes)
            sent = [b"%d %d" % (number, turn) for turn in range(50)]
            return [call(each, timeout=LONG) for each in sent] == [each[::-1] for each in sent]

    with ThreadPoolExecutor(8) as pool:
        loop = asyncio.get_running_loop()
        assert all(await asyncio.gather(*(loop.run_in_executor(pool, calls, n) for n in range(8))))
