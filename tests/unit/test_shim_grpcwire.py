"""Calls as they stand on the wire: the h2 library as a client that does what grpcio never would."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.shim import grpcconnection
from kwok_operator.shim.grpcconnection import GrpcConnection, Service
from kwok_operator.shim.grpcwire import (
    MessageReader,
    RpcError,
    StatusCode,
    parse_timeout,
    percent_encoded,
    prefix,
)
from kwok_operator.shim.http2.connection import Event, Http2Connection
from tests.fakes.http2 import REQUEST, Client
from tests.fakes.slow import Slow
from tests.fakes.waiting import until

Fields = list[tuple[bytes, bytes]]


class Transport(asyncio.Transport):
    """Remembers what is written, and whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Wire:
    """A connection with its protocol, and h2 at the other end."""

    def __init__(self, handler: Callable[[bytes], bytes | Awaitable[bytes]] = bytes) -> None:
        self.observed: list[StatusCode] = []
        self.transport = Transport()
        self.protocol = GrpcConnection(
            Service(
                handlers={b"/package.Service/Method": ("/package.Service/Method", handler)},
                observe=lambda _, code, __: self.observed.append(code),
                max_message_bytes=100_000,
            )
        )
        # The client speaks to the protocol as it would to a connection.
        self.client = Client(cast(Http2Connection, self))
        self.protocol.connection_made(self.transport)
        self.client.exchange()

    def receive(self, data: bytes) -> list[Event]:
        if data and not self.transport.closed:
            self.protocol.data_received(data)
        return []

    def data_to_send(self) -> bytes:
        data = b"".join(self.transport.written)
        self.transport.written.clear()
        return data

    def call(self, body: bytes = prefix(b""), **changed: str | None) -> int:
        """With header fields changed, or left out where they are None."""
        new = {name.replace("_", "-").encode(): value for name, value in changed.items()}
        new = {b":" + name if b":" + name in dict(REQUEST) else name: new[name] for name in new}
        fields: Fields = [
            (name, (new[name] or "").encode() if name in new else value)
            for name, value in REQUEST
            if new.get(name, "") is not None
        ]
        fields += [(n, v.encode()) for n, v in new.items() if v and n not in dict(REQUEST)]
        return self.client.request(body, headers=fields)

    def status(self, stream_id: int) -> int:
        self.client.exchange()
        found = self.client.trailers.get(stream_id) or self.client.heads[stream_id]
        return int(found[b"grpc-status"])


async def test_one_turn_one_write() -> None:
    wire = Wire()
    for number in range(3):
        wire.call(prefix(b"x") + b"%d" % number)
    wire.protocol.data_received(wire.client.h2.data_to_send())
    assert len(wire.transport.written) == 1
    wire.client.exchange()
    assert wire.client.bodies == {1: b"\0\0\0\0\x010", 3: b"\0\0\0\0\x011", 5: b"\0\0\0\0\x012"}


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"content_type": "application/json"}, b"415"),
        ({"content_type": "application/grpc-web"}, b"415"),
        ({"content_type": None}, b"415"),
        ({"method": "GET"}, b"405"),
    ],
)
async def test_other_requests_are_http_errors(
    changed: dict[str, str | None], status: bytes
) -> None:
    wire = Wire()
    stream_id = wire.call(prefix(b""), **changed)
    wire.client.exchange()
    assert wire.client.heads[stream_id] == {b":status": status}
    assert wire.observed == [StatusCode.UNKNOWN]


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;x"]
)
async def test_content_types_of_grpc(kind: str) -> None:
    wire = Wire()
    assert wire.status(wire.call(content_type=kind, grpc_encoding="identity")) == 0
    stream_id = wire.call(grpc_encoding="gzip")
    assert wire.status(stream_id) == StatusCode.UNIMPLEMENTED
    assert wire.client.heads[stream_id][b"grpc-accept-encoding"] == b"identity"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", StatusCode.INTERNAL),
        (b"\0\0", StatusCode.INTERNAL),
        (b"\0\0\0\0\x05four", StatusCode.INTERNAL),
        (b"\0\0\0\0\x03four", StatusCode.INTERNAL),
        (prefix(b"") * 2, StatusCode.INTERNAL),
        (b"\x01\0\0\0\0", StatusCode.INTERNAL),
        (b"\0\x7f\0\0\0", StatusCode.RESOURCE_EXHAUSTED),
        (b"\0\0\x01\x86\xa1", StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_bodies_that_are_not_one_message(body: bytes, code: StatusCode) -> None:
    wire = Wire()
    assert wire.status(wire.call(body)) == code
    assert wire.status(wire.call(prefix(b"fine") + b"fine")) == 0
    assert wire.observed == [code, StatusCode.OK]


async def test_a_length_is_refused_before_the_bytes_come() -> None:
    wire = Wire()
    stream_id = wire.client.h2.get_next_available_stream_id()
    wire.client.h2.send_headers(stream_id, REQUEST)
    wire.client.h2.send_data(stream_id, b"\0\xff\xff\xff\xff")
    assert wire.status(stream_id) == StatusCode.RESOURCE_EXHAUSTED


def test_units_of_timeouts() -> None:
    units = {b"2H": 7200, b"3M": 180, b"4S": 4, b"5m": 0.005, b"6u": 6e-6, b"7n": 7e-9}
    assert {value: parse_timeout(value) for value in units} == pytest.approx(units)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("0n", StatusCode.DEADLINE_EXCEEDED),
        ("5S", StatusCode.OK),
        ("99999999H", StatusCode.OK),
        ("5", StatusCode.INTERNAL),
        ("123456789n", StatusCode.INTERNAL),
        ("-5S", StatusCode.INTERNAL),
    ],
)
async def test_timeouts(value: str, code: StatusCode) -> None:
    wire = Wire()
    assert wire.status(wire.call(grpc_timeout=value)) == code


async def test_a_deadline_counts_from_the_headers_on() -> None:
    wire = Wire()
    stream_id = wire.client.h2.get_next_available_stream_id()
    wire.client.h2.send_headers(stream_id, [*REQUEST, (b"grpc-timeout", b"10m")])
    wire.client.exchange()
    await until(lambda: wire.observed)
    assert wire.status(stream_id) == StatusCode.DEADLINE_EXCEEDED


async def test_too_much_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "MAX_HELD", 150)
    wire = Wire()
    streams = [wire.client.h2.get_next_available_stream_id()]
    for stream_id in (streams[0], streams[0] + 2):
        wire.client.h2.send_headers(stream_id, REQUEST)
        wire.client.h2.send_data(stream_id, b"\0\0\0\0\x80" + bytes(75))
    assert wire.status(streams[0] + 2) == StatusCode.RESOURCE_EXHAUSTED
    wire.client.h2.send_data(streams[0], bytes(53), end_stream=True)
    assert wire.status(streams[0]) == 0
    assert wire.status(wire.call(prefix(bytes(140)) + bytes(140))) == 0


async def test_too_much_that_waits_on_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcconnection, "MAX_HELD", 150)
    other, wire = Wire(), Wire()
    wire.protocol._service = other.protocol._service
    body = prefix(bytes(100)) + bytes(100)
    stream_id = other.client.h2.get_next_available_stream_id()
    other.client.h2.send_headers(stream_id, REQUEST)
    other.client.h2.send_data(stream_id, body[:-1])
    other.client.exchange()

    def call_in_two_parts() -> int:
        stream_id = wire.client.h2.get_next_available_stream_id()
        wire.client.h2.send_headers(stream_id, REQUEST)
        for part, ends in ((body[:90], False), (body[90:], True)):
            wire.client.h2.send_data(stream_id, part, end_stream=ends)
        return wire.status(stream_id)

    assert call_in_two_parts() == StatusCode.RESOURCE_EXHAUSTED
    other.protocol.connection_lost(None)
    assert call_in_two_parts() == 0


async def test_a_client_that_does_not_read_is_not_read() -> None:
    wire = Wire()
    wire.protocol.pause_writing()
    assert not wire.transport.reading
    stream_id = wire.call()
    wire.protocol.data_received(wire.client.h2.data_to_send())
    assert wire.transport.written == []
    wire.protocol.resume_writing()
    assert wire.transport.reading
    assert wire.status(stream_id) == 0


@pytest.mark.parametrize("how", ["lost", "broken", "cancelled"])
async def test_calls_end_with_their_connection(how: str) -> None:
    slow = Slow()
    wire = Wire(slow)
    stream_id = wire.call()
    wire.client.exchange()
    await asyncio.sleep(0)
    if how == "lost":
        wire.protocol.connection_lost(ConnectionResetError())
    elif how == "broken":
        wire.protocol.data_received(b"\xff" * 9)
        assert wire.transport.closed
    else:
        wire.client.h2.reset_stream(stream_id)
        wire.client.exchange()
    await until(slow.cancelled.is_set)
    assert wire.observed == [StatusCode.CANCELLED]


async def test_a_call_cancelled_in_the_turn_it_came_in() -> None:
    wire = Wire(Slow())
    wire.client.h2.reset_stream(wire.call())
    wire.client.exchange()
    await asyncio.sleep(0)
    assert wire.observed == [StatusCode.CANCELLED]


async def given_up(_: bytes) -> bytes:
    raise asyncio.CancelledError


async def no_bytes(_: bytes) -> bytes:
    return cast(bytes, None)


@pytest.mark.parametrize(
    ("handler", "code"), [(given_up, StatusCode.CANCELLED), (no_bytes, StatusCode.INTERNAL)]
)
async def test_handlers_that_go_wrong(
    handler: Callable[[bytes], Awaitable[bytes]], code: StatusCode
) -> None:
    wire = Wire(handler)
    stream_id = wire.call()
    wire.client.exchange()
    await until(lambda: wire.observed)
    assert wire.status(stream_id) == code


async def test_leaving_sends_what_there_is_before_it_closes() -> None:
    wire = Wire()
    wire.protocol.pause_writing()
    stream_id = wire.call()
    wire.protocol.data_received(wire.client.h2.data_to_send())
    wire.protocol.leave()
    assert not wire.transport.closed
    wire.protocol.resume_writing()
    assert wire.transport.closed
    assert wire.status(stream_id) == 0


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(1, 50))
def test_messages_in_any_pieces(messages: list[bytes], size: int) -> None:
    body = b"".join(prefix(each) + each for each in messages)
    found: list[bytes] = []
    reader = MessageReader(max_bytes=40)
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])
        found += iter(reader.take, None)
    reader.finish()
    assert found == messages


@given(st.binary(max_size=60))
def test_any_body(body: bytes) -> None:
    reader = MessageReader(max_bytes=20)
    try:
        reader.feed(body)
        found = list(iter(reader.take, None))
        reader.finish()
    except RpcError:
        return
    assert b"".join(prefix(each) + each for each in found) == body


@given(st.text(max_size=100))
def test_status_messages(text: str) -> None:
    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")


def test_long_status_messages_are_cut_between_characters() -> None:
    encoded = percent_encoded("ö" * 5_000)
    assert len(encoded) <= 4096
    assert unquote_to_bytes(encoded).decode() == "ö" * (len(encoded) // 6)
