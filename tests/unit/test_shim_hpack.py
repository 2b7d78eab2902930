"""Header blocks, with the hpack library as the other side."""

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.shim.http2.frames import Http2ConnectionError
from kwok_operator.shim.http2.headers import HeaderDecoder, encode

LIMIT = 2**16
NAMES = st.sampled_from([b":path", b"grpc-timeout", b"content-type", b"te", b"x", b"x-long-name"])
FIELDS = st.lists(st.tuples(NAMES | st.binary(max_size=40), st.binary(max_size=300)), max_size=8)


def decoder() -> HeaderDecoder:
    return HeaderDecoder(max_list_size=LIMIT)


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.integers(0, 4096)), max_size=6))
def test_blocks_are_decoded(
    blocks: list[tuple[list[tuple[bytes, bytes]], bool, int]],
) -> None:
    encoder, ours = hpack.Encoder(), decoder()
    for fields, huffman, size in blocks:
        encoder.header_table_size = size
        assert ours.decode(encoder.encode(fields, huffman=huffman)) == fields


@given(st.lists(FIELDS, max_size=4))
def test_our_blocks_are_decoded_by_hpack_and_change_no_table(
    blocks: list[list[tuple[bytes, bytes]]],
) -> None:
    theirs, ours = hpack.Decoder(), decoder()
    for fields in blocks:
        block = encode(fields)
        assert [tuple(field) for field in theirs.decode(block, raw=True)] == fields
        assert ours.decode(block) == fields
    assert not theirs.header_table.dynamic_entries


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes(blocks: list[bytes]) -> None:
    theirs, ours = hpack.Decoder(max_header_list_size=LIMIT), decoder()
    theirs.max_allowed_table_size = 4096
    for block in blocks:
        try:
            fields = ours.decode(block)
        except Http2ConnectionError:
            with pytest.raises(hpack.HPACKError):
                theirs.decode(block, raw=True)
            return
        assert [tuple(field) for field in theirs.decode(block, raw=True)] == fields


def test_a_table_of_size_0_is_no_table() -> None:
    encoder, ours = hpack.Encoder(), decoder()
    assert ours.decode(encoder.encode([(b"x", b"1")])) == [(b"x", b"1")]
    ours.limit_table(0)
    assert not ours.stateless
    encoder.header_table_size = 0
    for _ in range(2):
        assert ours.decode(encoder.encode([(b"x", b"1")])) == [(b"x", b"1")]
    assert ours.stateless
    with pytest.raises(Http2ConnectionError):
        ours.decode(b"\xbe")
