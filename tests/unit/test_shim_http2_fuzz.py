"""Any bytes: never an exception, and what is answered is always HTTP/2."""

from itertools import pairwise

import h2.connection
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.shim.http2.connection import (
    ConnectionEnded,
    Event,
    Http2Connection,
    Limits,
    RequestReceived,
)
from kwok_operator.shim.http2.frames import GOAWAY, frame
from kwok_operator.shim.http2.headers import encode
from tests.fakes.http2 import HELLO, REQUEST, Client, block, connection, parts

STREAMS = st.integers(0, 9)
NUMBERS = st.sampled_from([0, 1, 4, 100, 16_384, 65_536, 2**31 - 1])
ANY_FRAMES = st.builds(frame, st.integers(0, 11), st.integers(0, 255), STREAMS, st.binary())
HEADERS = st.builds(
    frame,
    st.just(1),
    st.sampled_from([4, 5]),
    st.sampled_from([1, 3, 5, 7, 9]),
    st.sampled_from([block(), encode(REQUEST), encode([(b"x", b"1")])]),
)
WINDOWS = st.builds(frame, st.just(8), st.just(0), STREAMS, NUMBERS.map(lambda n: n.to_bytes(4)))
SETTINGS = st.builds(
    lambda key, value: frame(4, 0, 0, key.to_bytes(2) + value.to_bytes(4)),
    st.integers(0, 8),
    NUMBERS,
)
DATA = st.builds(frame, st.just(0), st.sampled_from([0, 1]), STREAMS, st.binary(max_size=50))
CONVERSATIONS = st.lists(HEADERS | DATA | WINDOWS | SETTINGS | ANY_FRAMES, max_size=12)


def answer(server: Http2Connection, events: list[Event]) -> None:
    """Some large, some small, some in parts, some without a body, some never."""
    for event in events:
        if not isinstance(event, RequestReceived):
            continue
        stream_id, head, end = (
            event.stream_id,
            encode([(b":status", b"200")]),
            encode([(b"a", b"")]),
        )
        match stream_id % 5:
            case 0:
                server.respond(stream_id, head=head, body=b"x" * 100_000, trailers=end)
            case 1:
                server.respond(stream_id, head=head, body=b"x", trailers=end)
            case 2:
                server.end_stream(stream_id, head)
            case 3:
                server.send_headers(stream_id, head)
                server.send_data(stream_id, b"x" * 20_000)
                server.consumed(stream_id, 10)
                server.send_data(stream_id, b"y")
                server.end_stream(stream_id, end)


def talk(server: Http2Connection, pieces: list[bytes]) -> None:
    """Fails on an exception, on bytes that are no frames, on a connection that goes on too long."""
    ended, out = False, b""
    for piece in pieces:
        events = server.receive(piece)
        if ended:
            assert events == []
        ended = ended or any(isinstance(event, ConnectionEnded) for event in events)
        answer(server, events)
        sent = b""
        while data := server.data_to_send():
            sent += data
        out += sent
    found = parts(out)
    goaways = [number for number, each in enumerate(found) if each[0] == GOAWAY]
    assert goaways == ([len(found) - 1] if ended else [])
    if ended:
        assert server.idle


@given(st.lists(st.binary(), max_size=5), st.booleans())
def test_any_bytes(pieces: list[bytes], greeted: bool) -> None:
    talk(connection(), [HELLO, *pieces] if greeted else pieces)


@given(CONVERSATIONS, st.integers(1, 2_000))
def test_any_frames(frames: list[bytes], size: int) -> None:
    data = HELLO + b"".join(frames)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    talk(connection(Limits(streams=3, idle_frames=20)), pieces)


def conversation() -> bytes:
    """What h2 sends for three calls, answers taken and one cancelled; windows, settings, a ping."""
    client, sent = Client(), b""
    real = client.server.receive

    def recording(data: bytes) -> list[Event]:
        nonlocal sent
        sent += data
        return real(data)

    client.server.receive = recording  # type: ignore[method-assign]
    for size in (0, 300, 16_000):
        client.request(b"x" * size)
        answer(client.server, client.exchange())
        client.exchange()
    client.h2.ping(b"12345678")
    last = client.request()
    client.exchange()
    client.h2.reset_stream(last)
    client.exchange()
    return sent


VALID = conversation()
PLACES = st.integers(0, len(VALID) - 1) | st.integers(0, 400)


@given(st.lists(st.tuples(PLACES, st.integers(0, 255), st.sampled_from("cid")), max_size=4))
def test_a_conversation_with_mistakes(mistakes: list[tuple[int, int, str]]) -> None:
    data = bytearray(VALID)
    for place, byte, kind in mistakes:
        match kind:
            case "c":
                data[place : place + 1] = bytes([byte])
            case "i":
                data[place:place] = bytes([byte])
            case "d":
                del data[place : place + 1]
    talk(connection(), [bytes(data[at : at + 1_000]) for at in range(0, len(data), 1_000)])


@given(st.lists(st.integers(0, len(VALID)), max_size=30))
def test_cuts_mean_nothing(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(VALID)]
    server, events = connection(), []
    for start, end in pairwise(places):
        events += server.receive(VALID[start:end])
    assert events == connection().receive(VALID)
    assert not any(isinstance(event, ConnectionEnded) for event in events)


@given(CONVERSATIONS)
def test_h2_understands_all_that_is_answered(frames: list[bytes]) -> None:
    # h2 as a client that is a little confused: it has opened the streams, whatever we were sent.
    server = connection(Limits(idle_frames=20))
    out = b""
    for each in [HELLO, *frames]:
        answer(server, server.receive(each))
        while data := server.data_to_send():
            out += data
    client = h2.connection.H2Connection()
    client.initiate_connection()
    client.max_inbound_frame_size = 2**24 - 1
    client.increment_flow_control_window(2**30)
    for stream_id in range(1, 10, 2):
        client.send_headers(stream_id, REQUEST)
        client.increment_flow_control_window(2**30, stream_id)
    for kind, flags, stream_id, payload in parts(out):
        if kind in (0, 1, 3, 8) or stream_id == 0:
            client.receive_data(frame(kind, flags, stream_id, payload))
