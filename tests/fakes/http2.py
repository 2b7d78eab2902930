"""The h2 library as a client of our HTTP/2, without sockets; and frames by hand, right or wrong."""

from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
import hpack

from kwok_operator.shim.http2.connection import Event, Http2Connection, Limits
from kwok_operator.shim.http2.frames import PREFACE, SETTINGS, frame

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/package.Service/Method"),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
]
HELLO = PREFACE + frame(SETTINGS, 0, 0)


def block(fields: list[tuple[bytes, bytes]] | None = None) -> bytes:
    """A header block that changes no table."""
    encoder = hpack.Encoder()
    return encoder.encode([(*field, True) for field in fields or REQUEST], huffman=False)


def connection(
    limits: Limits | None = None, *, clock: Callable[[], float] = lambda: 0.0
) -> Http2Connection:
    return Http2Connection(clock=clock, limits=limits)


def parts(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload of each frame. Fails where they aren't well-formed."""
    found = []
    while data:
        assert len(data) >= 9
        length, kind, flags = int.from_bytes(data[:3], "big"), data[3], data[4]
        stream_id = int.from_bytes(data[5:9], "big")
        assert len(data) >= 9 + length
        found.append((kind, flags, stream_id, data[9 : 9 + length]))
        data = data[9 + length :]
    return found


class Client:
    """h2's client and a connection of ours, in step."""

    def __init__(self, server: Http2Connection | None = None) -> None:
        self.server = server or connection()
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(client_side=True, header_encoding=None)
        )
        self.h2.initiate_connection()
        self.seen: list[h2.events.Event] = []
        self.bodies: dict[int, bytes] = {}
        self.trailers: dict[int, dict[bytes, bytes]] = {}
        self.heads: dict[int, dict[bytes, bytes]] = {}
        self.acknowledge = True

    def exchange(self) -> list[Event]:
        """Both sides say what they have to say; what the server's got."""
        events = self.server.receive(self.h2.data_to_send() or b"")
        while data := self.server.data_to_send():
            for event in self.h2.receive_data(data):
                self._note(event)
            events += self.server.receive(self.h2.data_to_send() or b"")
        return events

    def open(self) -> int:
        """A stream without an end."""
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, REQUEST)
        self.exchange()
        return stream_id

    def request(
        self, body: bytes = b"", *, headers: list[tuple[bytes, bytes]] | None = None
    ) -> int:
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, headers or REQUEST)
        self.h2.send_data(stream_id, body, end_stream=True)
        return stream_id

    def _note(self, event: h2.events.Event) -> None:
        self.seen.append(event)
        if isinstance(event, h2.events.ResponseReceived):
            self.heads[event.stream_id] = dict(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            self.trailers[event.stream_id] = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
            if self.acknowledge:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
