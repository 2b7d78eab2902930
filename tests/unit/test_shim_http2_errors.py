"""What clients may not do, and how it ends: with the code that RFC 9113 names."""

import pytest

from kwok_operator.shim.http2.connection import (
    ConnectionEnded,
    DataReceived,
    Http2Connection,
    Limits,
    RequestReceived,
    StreamReset,
)
from kwok_operator.shim.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITIZED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    ErrorCode,
    frame,
)
from kwok_operator.shim.http2.headers import encode
from tests.fakes.http2 import HELLO, REQUEST, block, connection, parts
from tests.fakes.recording import Clock

OPEN = frame(HEADERS, END_HEADERS, 1, block())
WHOLE = frame(HEADERS, END_HEADERS | END_STREAM, 1, block())
RESET = frame(RST_STREAM, 0, 1, b"\0\0\0\x08")


def setting(key: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, key.to_bytes(2, "big") + value.to_bytes(4, "big"))


def opened(fields: bytes, *, stream: int = 1, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, fields)


CONTINUED = HELLO + opened(block(), flags=0)

CONNECTION_ERRORS: dict[ErrorCode, dict[str, bytes]] = {
    ErrorCode.PROTOCOL_ERROR: {
        "HTTP/1.1": b"GET / HTTP/1.1\r\n\r\n",
        "TLS without TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        "no settings first": PREFACE + frame(PING, 0, 0, bytes(8)),
        "an ack first": PREFACE + frame(SETTINGS, 1, 0),
        "data on stream 0": HELLO + frame(DATA, 0, 0, b"x"),
        "data on an idle stream": HELLO + frame(DATA, 0, 1, b"x"),
        "padding too long": HELLO + OPEN + frame(DATA, PADDED, 1, b"\x04abc"),
        "headers on stream 0": HELLO + opened(block(), stream=0),
        "headers on an even stream": HELLO + opened(block(), stream=2),
        "CONTINUATION of nothing": HELLO + frame(CONTINUATION, 4, 1, b""),
        "CONTINUATION of another": CONTINUED + frame(CONTINUATION, 4, 3),
        "a ping in a header": CONTINUED + frame(PING, 0, 0, bytes(8)),
        "an unknown frame in a header": CONTINUED + frame(99, 0, 0),
        "settings on a stream": HELLO + frame(SETTINGS, 0, 1),
        "push neither on nor off": HELLO + setting(2, 2),
        "frames too small": HELLO + setting(5, 16_383),
        "frames too large": HELLO + setting(5, 2**24),
        "the window opened by 0": HELLO + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
        "a window of an idle stream": HELLO + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"),
        "a push by a client": HELLO + OPEN + frame(PUSH_PROMISE, 4, 1, bytes(4)),
        "a ping on a stream": HELLO + frame(PING, 0, 1, bytes(8)),
        "a reset of an idle stream": HELLO + RESET,
        "a reset of no stream": HELLO + frame(RST_STREAM, 0, 0, bytes(4)),
        "a priority for no stream": HELLO + frame(PRIORITY, 0, 0, bytes(5)),
        "GOAWAY on a stream": HELLO + frame(GOAWAY, 0, 1, bytes(8)),
    },
    ErrorCode.FRAME_SIZE_ERROR: {
        "a frame too large": HELLO + b"\0\x40\x01\0\0\0\0\0\x01",
        "padding of nothing": HELLO + OPEN + frame(DATA, PADDED, 1),
        "a priority cut short": HELLO + opened(b"\0\0", flags=END_HEADERS | PRIORITIZED),
        "settings cut short": HELLO + frame(SETTINGS, 0, 0, b"12345"),
        "an ack that says more": HELLO + frame(SETTINGS, 1, 0, bytes(6)),
        "a window cut short": HELLO + frame(WINDOW_UPDATE, 0, 0, b"\0"),
        "a ping cut short": HELLO + frame(PING, 0, 0, bytes(7)),
        "a reset cut short": HELLO + OPEN + frame(RST_STREAM, 0, 1),
        "a priority of 4 bytes": HELLO + frame(PRIORITY, 0, 1, bytes(4)),
        "GOAWAY cut short": HELLO + frame(GOAWAY, 0, 0, bytes(7)),
    },
    ErrorCode.STREAM_CLOSED: {
        "data after a reset": HELLO + OPEN + RESET + frame(DATA, 0, 1),
        "stream ids that shrink": HELLO + opened(block(), stream=5) + opened(block(), stream=3),
        "headers after a reset": HELLO + OPEN + RESET + OPEN,
    },
    ErrorCode.COMPRESSION_ERROR: {
        "a broken header": HELLO + opened(b"\xff\xff\xff\xff\xff\xff"),
        "an unknown index": HELLO + opened(b"\xbe"),
        "a string cut short": HELLO + opened(b"\x00\x05ab"),
        "no Huffman code": HELLO + opened(b"\x00\x82\xff\xff\x00"),
        "a table too large": HELLO + opened(b"\x3f\xe2\x1f"),
        "a table not given up": HELLO + frame(SETTINGS, 1, 0) + opened(block()),
        "a table resized after a field": HELLO + opened(block() + b"\x20"),
        "a table too large later": HELLO + frame(SETTINGS, 1, 0) + opened(b"\x21" + block()),
    },
    ErrorCode.ENHANCE_YOUR_CALM: {
        "a header too large": HELLO + opened(b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000 + b"\xbe" * 6),
        "CONTINUATION without end": HELLO
        + opened(block(), flags=0)
        + frame(CONTINUATION, 0, 1) * 17,
        "CONTINUATION too large": HELLO
        + opened(block(), flags=0)
        + frame(CONTINUATION, 0, 1, bytes(16_384)),
    },
    ErrorCode.FLOW_CONTROL_ERROR: {
        "a window too large": HELLO + setting(4, 2**31),
        "an open window too large": HELLO
        + OPEN
        + frame(WINDOW_UPDATE, 0, 1, b"\0\1\0\0")
        + setting(4, 2**31 - 1),
        "the window too large": HELLO + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    },
}


@pytest.mark.parametrize(
    ("code", "data"),
    [
        pytest.param(code, data, id=name)
        for code, cases in CONNECTION_ERRORS.items()
        for name, data in cases.items()
    ],
)
def test_the_connection_ends(code: ErrorCode, data: bytes) -> None:
    server = connection()
    *_, last = server.receive(data)
    assert isinstance(last, ConnectionEnded)
    assert last.code == code
    *_, (kind, _, stream, payload) = parts(server.data_to_send())
    assert (kind, stream) == (GOAWAY, 0)
    assert payload[4:8] == code.to_bytes(4, "big")
    assert payload[8:].decode() == last.reason != ""
    assert server.receive(HELLO) == []
    assert server.data_to_send() == b""
    assert server.idle


def test_goaway_names_the_last_stream() -> None:
    server = connection()
    server.receive(HELLO + opened(block(), stream=7) + frame(PUSH_PROMISE, 0, 7))
    *_, goaway = parts(server.data_to_send())
    assert goaway[3][:4] == b"\0\0\0\x07"


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in REQUEST if field[0] != name]


MALFORMED = {
    "no method": without(b":method"),
    "no path": without(b":path"),
    "an empty path": [*without(b":path"), (b":path", b"")],
    "no scheme": without(b":scheme"),
    "a pseudo-header twice": [(b":path", b"/"), *REQUEST],
    "a pseudo-header after a field": [*without(b":path"), (b":path", b"/")],
    "a response's pseudo-header": [(b":status", b"200"), *REQUEST],
    "upper case": [*REQUEST, (b"Name", b"value")],
    "a name with a space": [*REQUEST, (b"na me", b"value")],
    "a name that is empty": [*REQUEST, (b"", b"value")],
    "a line break": [*REQUEST, (b"name", b"value\r\nother: value")],
    "a null": [*REQUEST, (b"name", b"a\0b")],
    "space around": [*REQUEST, (b"name", b" value")],
    "connection": [*REQUEST, (b"connection", b"close")],
    "transfer-encoding": [*REQUEST, (b"transfer-encoding", b"chunked")],
    "te": [*without(b"te"), (b"te", b"gzip")],
    "a length that is none": [*REQUEST, (b"content-length", b"-1")],
}

_LENGTH = encode([*REQUEST, (b"content-length", b"3")])

STREAM_ERRORS = {
    "data after the end": (WHOLE + frame(DATA, 0, 1, b"x"), ErrorCode.STREAM_CLOSED),
    "headers after the end": (WHOLE + OPEN, ErrorCode.STREAM_CLOSED),
    "headers amid the body": (OPEN + OPEN, ErrorCode.PROTOCOL_ERROR),
    "trailers with a path": (OPEN + WHOLE, ErrorCode.PROTOCOL_ERROR),
    "a window opened by 0": (OPEN + frame(WINDOW_UPDATE, 0, 1, bytes(4)), ErrorCode.PROTOCOL_ERROR),
    "a window too large": (
        OPEN + frame(WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "more than the window": (
        OPEN + frame(DATA, 0, 1, bytes(16_384)) * 17,
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "more than the length": (
        opened(_LENGTH) + frame(DATA, 0, 1, b"four"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "less than the length": (
        opened(_LENGTH) + frame(DATA, END_STREAM, 1, b"2b"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    **{
        name: (opened(encode(fields)), ErrorCode.PROTOCOL_ERROR)
        for name, fields in MALFORMED.items()
    },
}


@pytest.mark.parametrize(("data", "code"), STREAM_ERRORS.values(), ids=STREAM_ERRORS)
def test_the_stream_ends_and_others_go_on(data: bytes, code: ErrorCode) -> None:
    server = connection()
    events = server.receive(HELLO + data)
    was_open = any(isinstance(event, RequestReceived) for event in events)
    assert (StreamReset(1, code) in events) == was_open
    assert (RST_STREAM, 0, 1, code.to_bytes(4, "big")) in parts(server.data_to_send())
    # What the client had already sent is no mistake of its.
    more = frame(DATA, 0, 1, b"late") + frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1") + RESET
    assert server.receive(more) == []
    other = server.receive(opened(block(), stream=3) + frame(DATA, END_STREAM, 3, b"fine"))
    assert other == [RequestReceived(3, dict(REQUEST), False), DataReceived(3, b"fine", True)]


def test_more_than_the_connections_window() -> None:
    server = connection(Limits(connection_window=65_535, stream_window=2**20))
    server._window = 1_000
    *_, last = server.receive(HELLO + OPEN + frame(DATA, 0, 1, bytes(1_001)))
    assert isinstance(last, ConnectionEnded)
    assert last.code == ErrorCode.FLOW_CONTROL_ERROR


@pytest.mark.parametrize(
    "data",
    [
        frame(99, 255, 0, b"unknown"),
        frame(99, 255, 1, b"unknown"),
        frame(PRIORITY, 0, 1, bytes(5)),
        frame(PRIORITY, 0, 9, bytes(5)),
        setting(0x99, 1),
        frame(SETTINGS, 1, 0),
        frame(PING, 1, 0, bytes(8)),
        frame(GOAWAY, 0, 0, bytes(8) + b"bye"),
        frame(PING, 0xFE, 0x80000000, bytes(8)),
    ],
)
def test_odd_but_allowed(data: bytes) -> None:
    server = connection()
    assert len(server.receive(HELLO + OPEN)) == 1
    assert server.receive(data) == []
    assert server.receive(frame(DATA, END_STREAM, 1, b"x")) == [DataReceived(1, b"x", True)]


FLOODS = {
    "pings": frame(PING, 0, 0, bytes(8)),
    "pings of ours": frame(PING, 1, 0, bytes(8)),
    "settings": frame(SETTINGS, 0, 0),
    "empty data": frame(DATA, 0, 1),
    "priorities": frame(PRIORITY, 0, 1, bytes(5)),
    "resets": frame(RST_STREAM, 0, 1, bytes(4)),
    "unknown frames": frame(77, 0, 1),
    "GOAWAY": frame(GOAWAY, 0, 0, bytes(8)),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_ends_the_connection(flood: bytes) -> None:
    limits, clock = Limits(idle_frames=100), Clock()
    server = connection(limits, clock=clock)
    server.receive(HELLO + OPEN)
    clock.now += limits.period - 1
    for _ in range(99):
        assert not any(isinstance(event, ConnectionEnded) for event in server.receive(flood))
    (last,) = server.receive(flood)
    assert isinstance(last, ConnectionEnded)
    assert last.code == ErrorCode.ENHANCE_YOUR_CALM


def test_as_many_frames_over_a_long_time_are_no_flood() -> None:
    limits, clock = Limits(idle_frames=100), Clock()
    server = connection(limits, clock=clock)
    server.receive(HELLO)
    for _ in range(1_000):
        clock.now += 1.0
        assert server.receive(FLOODS["pings"]) == []


def test_streams_opened_and_reset_end_the_connection() -> None:
    """Reset by the client, or by us, because they break a rule."""
    for end in (frame(RST_STREAM, 0, 0, b"\0\0\0\x08"), frame(WINDOW_UPDATE, 0, 0, bytes(4))):
        server, last = connection(Limits(idle_frames=100)), None
        server.receive(HELLO)
        for stream in range(1, 200, 2):
            on_stream = end[:5] + stream.to_bytes(4, "big") + end[9:]
            *_, last = server.receive(opened(block(), stream=stream) + on_stream)
        assert isinstance(last, ConnectionEnded)


def answer(server: Http2Connection, stream: int) -> None:
    server.respond(stream, head=encode([(b":status", b"200")]), body=b"", trailers=encode([]))


def test_a_ping_with_each_call_is_no_flood() -> None:
    server = connection(Limits(idle_frames=100))
    server.receive(HELLO)
    for stream in range(1, 2_000, 2):
        data = frame(PING, 0, 0, bytes(8)) + opened(block(), stream=stream, flags=5)
        (event,) = server.receive(data)
        assert isinstance(event, RequestReceived)
        answer(server, stream)
        server.data_to_send()
