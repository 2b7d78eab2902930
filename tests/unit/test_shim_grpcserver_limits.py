"""What clients can't have of the server, on both loops, with frames by hand."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from kwok_operator.shim import grpcconnection
from kwok_operator.shim.grpcserver import GrpcServer
from kwok_operator.shim.grpcwire import OK_TRAILERS, Handler, StatusCode
from kwok_operator.shim.http2 import frames
from kwok_operator.shim.http2.frames import ErrorCode
from tests.fakes.certificates import make_certificates
from tests.fakes.http2 import REQUEST, block

BIG = 100_000

Frame = tuple[int, int, int, bytes]
Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with asyncio.Runner(loop_factory=request.param) as runner:

        async def bounded(work: Awaitable[None]) -> None:
            await asyncio.wait_for(work, 60)

        yield lambda work: runner.run(bounded(work))


class Raw:
    """A client that sends what it is told to, and acknowledges nothing by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, *data: bytes) -> None:
        self._writer.write(b"".join(data))

    def greet(self, *, window: int = frames.DEFAULT_WINDOW) -> None:
        settings = frames.settings_frame({frames.Setting.INITIAL_WINDOW_SIZE: window})
        self.send(frames.PREFACE, settings)

    def call(self, stream: int, path: str, *messages: bytes, **fields: str) -> None:
        head = {**dict(REQUEST), b":path": path.encode()}
        head |= {name.replace("_", "-").encode(): text.encode() for name, text in fields.items()}
        body = b"".join(b"\0" + len(each).to_bytes(4, "big") + each for each in messages)
        self.send(
            frames.frame(frames.HEADERS, frames.END_HEADERS, stream, block(list(head.items()))),
            frames.frame(frames.DATA, frames.END_STREAM, stream, body),
        )

    def open_window(self, increment: int, *streams: int) -> None:
        self.send(*(frames.window_frame(stream, increment) for stream in streams))

    async def frame(self) -> Frame:
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
        return head[3], head[4], int.from_bytes(head[5:], "big"), payload

    async def until(self, kind: int, *, flags: int | None = None) -> Frame:
        while True:
            found = await self.frame()
            if found[0] == kind and flags in (None, found[1]):
                return found

    async def heard(self) -> list[Frame]:
        """What comes before the server has nothing else to do."""
        found = []
        for number in range(5):
            payload = number.to_bytes(8, "big")
            self.send(frames.frame(frames.PING, 0, 0, payload))
            while (each := await self.frame()) != (frames.PING, frames.ACK, 0, payload):
                found.append(each)
        return found

    async def closed(self) -> None:
        """Returns when the server has closed the connection."""
        try:
            while await self._reader.read(2**16):
                pass
        except ConnectionError:
            pass

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass


class Serving:
    def __init__(self, port: int) -> None:
        self.observed: list[tuple[str, StatusCode]] = []
        self._port = port
        self._clients: list[Raw] = []

    async def client(self, *, window: int | None = None) -> Raw:
        """One that has greeted, where its window is given."""
        client = Raw(*await asyncio.open_connection("127.0.0.1", self._port))
        self._clients.append(client)
        if window is not None:
            client.greet(window=window)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def serving(
    context: ssl.SSLContext | None = None, *, handlers: dict[str, Handler] | None = None
) -> AsyncIterator[Serving]:
    async def big_later(message: bytes) -> bytes:
        return message * BIG

    server = GrpcServer(
        {
            "/t/Echo": lambda message: message,
            "/t/Big": lambda message: message * BIG,
            "/t/BigLater": big_later,
        }
        | (handlers or {}),
        observe=lambda method, code, _: found.observed.append((method, code)),
    )
    tls = (lambda: context) if context else None
    found = Serving(await server.listen_tcp("127.0.0.1", 0, ssl=tls))
    try:
        yield found
    finally:
        await found.close()
        await server.stop(0)


def test_an_answer_that_is_not_taken_ends_with_its_deadline(run: Run) -> None:
    async def work() -> None:
        async with serving() as served:
            client = await served.client(window=10)
            client.call(1, "/t/Big", b"x", grpc_timeout="50m")
            assert (await client.until(frames.DATA))[3] == b"\0" + BIG.to_bytes(4, "big")
            reset = await client.until(frames.RST_STREAM)
            assert reset[2:] == (1, ErrorCode.CANCEL.to_bytes(4, "big"))
            client.open_window(2**20, 0)
            client.call(3, "/t/Echo", b"x")
            assert {stream for kind, _, stream, _ in await client.heard() if not kind} <= {3}
            assert served.observed == [
                ("/t/Big", StatusCode.DEADLINE_EXCEEDED),
                ("/t/Echo", StatusCode.OK),
            ]

    run(work())


def test_calls_wait_for_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "MAX_UNSENT", 3 * BIG)

    begun = []

    def big(message: bytes) -> bytes:
        begun.append(message)
        return message * BIG

    async def work() -> None:
        async with serving(handlers={"/t/Big": big}) as served:
            client = await served.client(window=0)
            streams = range(1, 21, 2)
            for stream in streams:
                client.call(stream, "/t/Big", b"x")
            heads = [each for each in await client.heard() if each[0] == frames.HEADERS]
            assert [stream for _, _, stream, _ in heads] == [1, 3, 5]
            client.call(21, "/t/Big", b"y", grpc_timeout="50m")
            late = await client.until(frames.HEADERS)
            assert late[2] == 21
            assert b"the deadline has passed" in late[3]
            client.call(23, "/t/Big", b"z")
            client.send(frames.reset_frame(23, ErrorCode.CANCEL))
            client.open_window(2**21, 0, *streams)
            end = frames.END_HEADERS | frames.END_STREAM
            ends = [await client.until(frames.HEADERS, flags=end) for _ in streams]
            assert {stream: block for _, _, stream, block in ends} == dict.fromkeys(
                streams, OK_TRAILERS
            )
            assert await client.heard() == []
            assert begun == [b"x"] * len(streams)

    run(work())


def test_waiting_is_bounded_over_all(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "MAX_UNSENT", 3 * BIG)

    async def work() -> None:
        async with serving() as served:
            begun = []
            for _ in range(4):
                slow = await served.client(window=0)
                for stream in (1, 3, 5):
                    slow.call(stream, "/t/Big", b"x")
                begun.append([kind for kind, *_ in await slow.heard()].count(frames.HEADERS))
            assert begun == [3, 1, 1, 1]
            good = await served.client(window=2**20)
            for stream in (1, 3, 5):
                good.call(stream, "/t/Big", b"x")
            good.open_window(2**20, 0)
            for _ in range(3):
                await good.until(frames.HEADERS, flags=frames.END_HEADERS | frames.END_STREAM)

    run(work())


def test_a_reset_makes_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "MAX_UNSENT", BIG)

    async def work() -> None:
        async with serving() as served:
            client = await served.client(window=0)
            client.call(1, "/t/Big", b"x")
            client.call(3, "/t/Big", b"x")
            assert 3 not in {stream for _, _, stream, _ in await client.heard()}
            client.send(frames.reset_frame(1, ErrorCode.CANCEL))
            assert (await client.until(frames.HEADERS))[2] == 3
            assert served.observed == [("/t/Big", StatusCode.CANCELLED)]

    run(work())


def test_others_have_their_turn_between_large_answers(run: Run) -> None:
    turns = []

    def big(message: bytes) -> bytes:
        turns.append("large answer")
        asyncio.get_running_loop().call_soon(turns.append, "others")
        return message * BIG

    async def work() -> None:
        async with serving(handlers={"/t/Turns": big}) as served:
            client = await served.client(window=2**20)
            for stream in (1, 3, 5):
                client.call(stream, "/t/Turns", b"x")
            await client.heard()
            assert turns == ["large answer", "others"] * 3

    run(work())


def test_answers_that_come_later_are_bounded(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their calls began when there was room for each."""
    monkeypatch.setattr(grpcconnection, "MAX_UNSENT", 3 * BIG)

    async def work() -> None:
        async with serving() as served:
            client = await served.client(window=0)
            streams = range(1, 21, 2)
            for stream in streams:
                client.call(stream, "/t/BigLater", b"x")
            client.call(21, "/t/Echo", b"small")
            heads = [each for each in await client.heard() if each[0] == frames.HEADERS]
            waiting = {stream for _, flags, stream, _ in heads if not flags & frames.END_STREAM}
            refused = [block for _, flags, _, block in heads if flags & frames.END_STREAM]
            assert waiting == {1, 3, 5, 21}
            assert all(b"too much waits" in block for block in refused)
            assert len(refused) == 7
            # What waited is there, and then there is room again.
            client.open_window(2**20, 0, 1, 3, 5, 21)
            for _ in waiting:
                await client.until(frames.HEADERS, flags=frames.END_HEADERS | frames.END_STREAM)
            client.call(23, "/t/BigLater", b"x")
            assert (await client.until(frames.HEADERS))[1:3] == (frames.END_HEADERS, 23)

    run(work())


def test_connections_that_say_nothing_make_room(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "MAX_CONNECTIONS", 3)

    async def work() -> None:
        async with serving() as served:
            first = await served.client()
            first.greet()
            await first.heard()
            silent = [await served.client() for _ in range(5)]
            for each in silent[:3]:
                await each.closed()
            for each in silent[3:]:
                each.greet()
                await each.heard()
            late = await served.client()
            await late.closed()
            await first.heard()

    run(work())


def test_silence_is_closed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "FIRST_FRAME_TIMEOUT", 0.1)
    context = make_certificates(tmp_path).server_context()

    async def work() -> None:
        for encryption, said in ((None, b""), (None, frames.PREFACE), (context, b"")):
            async with serving(encryption) as served:
                client = await served.client()
                client.send(said)
                await client.closed()

    run(work())


def test_idle_ones_are_pinged_and_dead_ones_go(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "FIRST_FRAME_TIMEOUT", 0.3)
    monkeypatch.setattr(grpcconnection, "IDLE_BEFORE_PING", 0.01)
    monkeypatch.setattr(grpcconnection, "PING_TIMEOUT", 0.5)

    async def work() -> None:
        async with serving() as served:
            client = await served.client()
            client.greet()
            _, flags, _, payload = await client.until(frames.PING)
            assert not flags
            client.send(frames.frame(frames.PING, frames.ACK, 0, payload))
            monkeypatch.setattr(grpcconnection, "PING_TIMEOUT", 0.01)
            await client.until(frames.PING)
            await client.closed()

    run(work())


class Failing(asyncio.Transport):
    """Its first write finds the client gone."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1

    def is_closing(self) -> bool:
        return self.writes > 0


async def test_nothing_is_written_once_a_write_has_failed() -> None:
    service = grpcconnection.Service(
        handlers={b"/t/Big": ("/t/Big", lambda _: bytes(2**20))},
        observe=None,
    )
    client, transport = grpcconnection.GrpcConnection(service), Failing()
    greeting = frames.settings_frame({frames.Setting.INITIAL_WINDOW_SIZE: 2**20})
    head = block([*REQUEST[:2], (b":path", b"/t/Big"), *REQUEST[3:]])
    client.data_received(
        frames.PREFACE
        + greeting
        + frames.window_frame(0, 2**21)
        + frames.frame(frames.HEADERS, frames.END_HEADERS, 1, head)
        + frames.frame(frames.DATA, frames.END_STREAM, 1, bytes(5))
    )
    client.connection_made(transport)
    assert transport.writes == 1
    client.connection_lost(None)
