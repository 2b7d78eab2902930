"""A connection with the h2 library as the client."""

import gc

import h2.events
import h2.settings

from kwok_operator.shim.http2 import frames, headers
from kwok_operator.shim.http2.connection import DataReceived, Limits, RequestReceived, StreamReset
from kwok_operator.shim.http2.frames import ErrorCode
from kwok_operator.shim.http2.outgoing import Stream
from tests.fakes.http2 import HELLO, REQUEST, Client, block, connection, parts

HEAD = headers.encode([(b":status", b"200"), (b"content-type", b"application/grpc")])
END = headers.encode([(b"grpc-status", b"0")])


def test_a_request_and_its_answer() -> None:
    client = Client()
    stream_id = client.request(b"question", headers=[*REQUEST, (b"k", b"1"), (b"k", b"2")])
    request, data = client.exchange()
    assert request == RequestReceived(stream_id, {**dict(REQUEST), b"k": b"1, 2"}, False)
    assert data == DataReceived(stream_id, b"question", True)
    client.server.respond(stream_id, head=HEAD, body=b"answer", trailers=END)
    client.exchange()
    assert client.heads[stream_id] == {b":status": b"200", b"content-type": b"application/grpc"}
    assert client.bodies[stream_id] == b"answer"
    assert client.trailers[stream_id] == {b"grpc-status": b"0"}
    assert client.server.idle
    another = client.request()
    client.exchange()
    client.server.respond(another, head=HEAD, body=b"answer", trailers=END)
    kinds = [kind for kind, *_ in parts(client.server.data_to_send())]
    assert kinds == [frames.HEADERS, frames.DATA, frames.HEADERS], "and nothing else"


def test_many_requests_with_a_table_and_without() -> None:
    client = Client()
    for number in range(50):
        value = b"%d" % (number % 7)
        stream_id = client.request(headers=[*REQUEST, (b"x", value), (b"grpc-timeout", b"5S")])
        (request, _) = client.exchange()
        assert isinstance(request, RequestReceived)
        assert request.head == {**dict(REQUEST), b"x": value, b"grpc-timeout": b"5S"}
        client.server.respond(stream_id, head=HEAD, body=b"", trailers=END)
    # h2 takes the offer of no table.
    assert client.h2.remote_settings.header_table_size == 0


def test_a_remembered_head_is_not_confused_with_another() -> None:
    # The same bytes name another field in a table that has moved: nothing may be remembered.
    one, two = (block() + b"\x40\x01x\x01" + value for value in (b"1", b"2"))
    newest = block() + b"\xbe"
    server, seen = connection(), []
    server.receive(HELLO)
    for number, each in enumerate([one, newest, two, newest]):
        (event,) = server.receive(frames.frame(frames.HEADERS, 5, 2 * number + 1, each))
        assert isinstance(event, RequestReceived)
        seen.append(event.head[b"x"])
    assert seen == [b"1", b"1", b"2", b"2"]


def test_a_large_answer_waits_for_the_client() -> None:
    client = Client()
    client.acknowledge = False
    stream_id = client.request()
    client.exchange()
    answer = bytes(range(256)) * 1024
    client.server.respond(stream_id, head=HEAD, body=answer, trailers=END)
    client.exchange()
    assert client.bodies[stream_id] == answer[:65_535]
    client.h2.increment_flow_control_window(100_000, stream_id)
    client.exchange()
    assert len(client.bodies[stream_id]) == 65_535
    client.h2.increment_flow_control_window(70_000)
    client.exchange()
    assert len(client.bodies[stream_id]) == 135_535
    client.h2.increment_flow_control_window(1_000_000, stream_id)
    client.h2.increment_flow_control_window(1_000_000)
    client.exchange()
    assert client.bodies[stream_id] == answer
    assert client.trailers[stream_id] == {b"grpc-status": b"0"}


def test_a_small_answer_overtakes_a_large_one() -> None:
    client = Client()
    client.acknowledge = False
    large, small = client.request(), client.request()
    client.exchange()
    client.h2.increment_flow_control_window(1_000)
    client.server.respond(large, head=HEAD, body=b"l" * 100_000, trailers=END)
    client.exchange()
    client.h2.increment_flow_control_window(1_000)
    client.server.respond(small, head=HEAD, body=b"s", trailers=END)
    client.exchange()
    assert client.bodies[small] == b"s"
    assert small in client.trailers and large not in client.trailers


def test_streams_take_turns() -> None:
    client = Client()
    first, second = client.request(), client.request()
    client.exchange()
    for stream_id in (first, second):
        client.server.respond(stream_id, head=HEAD, body=b"x" * 30_000, trailers=END)
    order = [stream for kind, _, stream, _ in parts(client.server.data_to_send()) if kind == 0]
    assert order == [first, second, first, second]


def test_one_write_is_bounded() -> None:
    client = Client()
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**24})
    client.h2.increment_flow_control_window(2**24)
    ids = [client.request() for _ in range(3)]
    client.exchange()
    for stream_id in ids:
        client.server.respond(stream_id, head=HEAD, body=b"x" * 10**6, trailers=END)
    writes = []
    while data := client.server.data_to_send():
        writes.append(len(data))
    assert max(writes) < 400_000
    assert sum(writes) > 3_000_000


def test_a_change_of_the_window_counts_for_open_streams() -> None:
    client = Client()
    client.acknowledge = False
    stream_id = client.request()
    client.exchange()
    client.server.respond(stream_id, head=HEAD, body=b"x" * 65_000, trailers=END)
    client.exchange()
    other = client.request()
    client.h2.increment_flow_control_window(100_000)
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    client.exchange()
    client.server.respond(other, head=HEAD, body=b"y" * 30, trailers=END)
    client.exchange()
    assert client.bodies[other] == b"y" * 10
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 30})
    client.exchange()
    assert client.bodies[other] == b"y" * 30


def test_the_last_of_many_windows_counts() -> None:
    server = connection()
    server.receive(HELLO + frames.frame(frames.HEADERS, 5, 1, block()))
    values = b"".join(b"\0\4" + size.to_bytes(4, "big") for size in [*range(2_000), 7])
    server.receive(frames.frame(frames.SETTINGS, 0, 0, values))
    server.respond(1, head=HEAD, body=b"x" * 100, trailers=END)
    sent = [len(data) for kind, *_, data in parts(server.data_to_send()) if kind == frames.DATA]
    assert sent == [7]


def test_frames_grow_as_the_client_allows() -> None:
    client = Client()
    client.h2.update_settings({h2.settings.SettingCodes.MAX_FRAME_SIZE: 40_000})
    stream_id = client.request()
    client.exchange()
    client.server.respond(stream_id, head=HEAD, body=b"x" * 60_000, trailers=END)
    sizes = [len(data) for kind, *_, data in parts(client.server.data_to_send()) if kind == 0]
    assert sizes == [40_000, 20_000]


def test_a_large_request_goes_on_as_it_is_consumed() -> None:
    client, limits = Client(), Limits()
    stream_id = client.open()
    sent, got = 0, 0
    while sent < 3 * 2**20:
        size = min(client.h2.local_flow_control_window(stream_id), 16_384)
        assert size > 0
        client.h2.send_data(stream_id, b"x" * size)
        sent += size
        for event in client.exchange():
            assert isinstance(event, DataReceived)
            got += len(event.data)
            client.server.consumed(stream_id, len(event.data))
        client.exchange()
    assert got == sent > limits.connection_window > limits.stream_window


def test_what_is_not_consumed_stops_the_client() -> None:
    client, limits = Client(), Limits()
    stream_id = client.open()
    sent = 0
    while size := min(client.h2.local_flow_control_window(stream_id), 16_384):
        client.h2.send_data(stream_id, b"x" * size)
        client.exchange()
        sent += size
    assert sent == limits.stream_window


def test_padding_is_neither_data_nor_lost_to_the_window() -> None:
    client = Client()
    stream_id = client.open()
    for _ in range(2_000):
        client.h2.send_data(stream_id, b"ab", pad_length=255)
        (event,) = client.exchange()
        assert event == DataReceived(stream_id, b"ab", False)
    assert client.h2.local_flow_control_window(stream_id) > 2**16


def test_a_header_in_continuations_with_padding_and_priority() -> None:
    whole = block()
    server = connection()
    server.receive(HELLO)
    first = b"\x03" + b"\0\0\0\0\x10" + whole[:10] + b"\0\0\0"
    data = frames.frame(frames.HEADERS, 0x1 | 0x8 | 0x20, 1, first)
    data += frames.frame(frames.CONTINUATION, 0, 1, whole[10:20])
    assert server.receive(data) == []
    data = frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, whole[20:])
    assert server.receive(data) == [RequestReceived(1, dict(REQUEST), True)]


def test_trailers_end_a_request() -> None:
    client = Client()
    stream_id = client.open()
    client.h2.send_data(stream_id, b"data")
    client.h2.send_headers(stream_id, [(b"x-checksum", b"1")], end_stream=True)
    *_, end = client.exchange()
    assert end == DataReceived(stream_id, b"", True)


def test_settings_and_pings_are_acknowledged() -> None:
    client = Client()
    client.exchange()
    client.h2.ping(b"12345678")
    client.exchange()
    kinds = {type(event) for event in client.seen}
    assert {h2.events.SettingsAcknowledged, h2.events.PingAckReceived} <= kinds
    assert client.h2.remote_settings.max_concurrent_streams == 1000


def test_a_cancelled_stream_is_reset_and_answered_no_more() -> None:
    client = Client()
    stream_id = client.request()
    client.exchange()
    client.server.respond(stream_id, head=HEAD, body=b"x" * 100_000, trailers=END)
    client.server.data_to_send()
    client.h2.reset_stream(stream_id, ErrorCode.CANCEL)
    assert client.exchange() == [StreamReset(stream_id, ErrorCode.CANCEL)]
    client.server.respond(stream_id, head=HEAD, body=b"late", trailers=END)
    client.server.send_headers(stream_id, HEAD)
    client.server.send_data(stream_id, b"late")
    client.server.end_stream(stream_id, END)
    client.server.consumed(stream_id, 10)
    assert client.server.data_to_send() == b""


def test_of_a_cancelled_stream_nothing_stays() -> None:
    client = Client()
    client.acknowledge = False
    for _ in range(100):
        stream_id = client.request()
        client.exchange()
        client.server.respond(stream_id, head=HEAD, body=bytes(100_000), trailers=END)
        client.exchange()
        client.h2.reset_stream(stream_id, ErrorCode.CANCEL)
        client.exchange()
    assert client.server.unsent == 0
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, Stream)]


def test_an_answer_before_the_request_has_ended_ends_it() -> None:
    client = Client()
    stream_id = client.open()
    client.server.end_stream(stream_id, END)
    sent = parts(client.server.data_to_send())
    assert [kind for kind, *_ in sent] == [frames.HEADERS, frames.RST_STREAM]
    # The client has not heard of it yet.
    client.h2.send_data(stream_id, b"more", end_stream=True)
    assert client.exchange() == []


def test_streams_over_the_limit_are_refused_and_the_rest_go_on() -> None:
    client = Client(connection(Limits(streams=2)))
    first, _, third = (client.request() for _ in range(3))
    client.exchange()
    (reset,) = [event for event in client.seen if isinstance(event, h2.events.StreamReset)]
    assert (reset.stream_id, reset.error_code) == (third, ErrorCode.REFUSED_STREAM)
    client.server.respond(first, head=HEAD, body=b"answer", trailers=END)
    client.exchange()
    assert client.bodies[first] == b"answer"


def test_leaving_ends_what_is_open_and_refuses_the_rest() -> None:
    client = Client()
    stream_id = client.request()
    client.exchange()
    client.server.leave("going")
    late = client.request()
    events = client.server.receive(client.h2.data_to_send())
    assert events == []
    client.server.respond(stream_id, head=HEAD, body=b"answer", trailers=END)
    sent = parts(client.server.data_to_send())
    goaway = next(payload for kind, *_, payload in sent if kind == frames.GOAWAY)
    assert goaway == stream_id.to_bytes(4, "big") + b"\0\0\0\0going"
    assert (frames.RST_STREAM, 0, late, b"\0\0\0\x07") in sent
    assert client.server.idle
