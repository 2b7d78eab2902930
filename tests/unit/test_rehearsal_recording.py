"""Recordings of rehearsals, as files."""

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import RecordingError
from kwok_operator.rehearsal.judge.recording import (
    EventLine,
    RecordingHeader,
    RecordingReader,
    WaitLine,
    encode,
)
from kwok_operator.rehearsal.judge.verdict import judged
from kwok_operator.rehearsal.scenario.expectation import Expectation
from tests.fakes.rehearsed import NAME, content, random_run, reader, run

HEADER = encode(RecordingHeader())


def read(data: bytes, chunk: int = 2**16) -> list[Any]:
    return list(reader(data, chunk=chunk).lines())


@pytest.mark.parametrize(
    ("zipped", "chunk"), [(False, 1), (False, 2**16), (True, 7), (True, 2**16)]
)
def test_what_is_written_is_read(zipped: bool, chunk: int) -> None:
    lines = [
        *random_run(1, nodes=3, pods=5)[:-1],
        *run(EventLine(100.0, reason="é\n", component="c"), WaitLine(100.0, 2, True, "met")),
    ]
    data = content(lines, expect=[{"figure": "cost", "atMost": 1}], seed="s", versions={"a": "1"})
    recording = reader(gzip.compress(data) if zipped else data, chunk=chunk)
    assert recording.header == RecordingHeader(
        scenario="test",
        seed="s",
        versions={"a": "1"},
        expect=(Expectation(figure="cost", at_most=1.0),),
    )
    found = list(recording.lines())
    assert [encode(line) for line in found] == [encode(line) for line in lines]
    assert not recording.cut


@given(share=st.floats(0.02, 0.999), zipped=st.booleans())
@settings(max_examples=40)
def test_cut_anywhere_it_is_read_up_to_there(share: float, zipped: bool) -> None:
    lines = random_run(2, nodes=4, pods=10)
    data = content(lines)
    data = gzip.compress(data) if zipped else data
    cut = data[: int(len(data) * share)]
    try:
        recording = reader(cut)
    except RecordingError as error:
        assert not read_header_of(cut, zipped), error
        return
    found = list(recording.lines())
    assert [encode(line) for line in found] == [encode(line) for line in lines[: len(found)]]
    # Between two lines of plain text nothing shows but that there is no end.
    assert recording.cut or (not zipped and cut.endswith((b"\n", b"}")))


def test_a_file_that_is_still_written_is_cut_wherever_its_lines_end() -> None:
    lines = random_run(3, nodes=2, pods=2)
    packed = zlib.compressobj(wbits=31)
    recording = reader(packed.compress(content(lines)) + packed.flush(zlib.Z_SYNC_FLUSH))
    assert len(list(recording.lines())) == len(lines)
    assert recording.cut


def read_header_of(cut: bytes, zipped: bool) -> bool:
    text = zlib.decompressobj(wbits=31).decompress(cut) if zipped else cut
    return b"\n" in text


def test_a_verdict_without_an_end_has_failed_and_says_so() -> None:
    data = content(random_run(3)[:-1])
    found = judged(reader(data), name=NAME)
    assert not found.passed
    assert found.broken_off


@pytest.mark.parametrize(
    ("text", "where", "field"),
    [
        ("", NAME, "the file"),
        ("not JSON", f"{NAME}:1", "the line"),
        ("[1]", f"{NAME}:1", "the line"),
        ('{"t": 0}', f"{NAME}:1", "header"),
        ('{"t": 0, "header": {"format": 2}}', f"{NAME}:1", "header.format"),
        ('{"t": 0, "header": {"format": 1, "expect": {}}}', f"{NAME}:1", "header.expect"),
        (f'{HEADER}\n{{"t": -1, "node": "a"}}\n', f"{NAME}:2", "t"),
        (f'{HEADER}\n{{"node": "a"}}\n', f"{NAME}:2", "t"),
        (f'{HEADER}\n{{"t": NaN, "node": "a"}}\n', f"{NAME}:2", "t"),
        (f'{HEADER}\n{{"t": 1e999, "node": "a"}}\n', f"{NAME}:2", "t"),
        (f"{HEADER}\n{'[' * 100_000}\n", f"{NAME}:2", "the line"),
        (f'{HEADER}\n\n{{"t": 1, "node": 7}}\n', f"{NAME}:3", "node"),
        (f'{HEADER}\n{{"t": 1, "node": "a", "is": []}}\n', f"{NAME}:2", "is"),
        (
            f'{HEADER}\n{{"t": 1, "node": "a", "is": {{"allocatable": {{"cpu": "4"}}}}}}\n',
            f"{NAME}:2",
            "is.allocatable.cpu",
        ),
        (
            f'{HEADER}\n{{"t": 1, "node": "a", "is": {{"price": -1}}}}\n',
            f"{NAME}:2",
            "is.price",
        ),
        (
            f'{HEADER}\n{{"t": 9, "end": {{}}}}\n{{"t": 1, "end": {{}}}}\n',
            f"{NAME}:3",
            "t",
        ),
    ],
)
def test_what_is_no_recording_is_refused(text: str, where: str, field: str) -> None:
    with pytest.raises(RecordingError) as caught:
        read(text.encode())
    assert (caught.value.where, caught.value.field) == (where, field)
    assert caught.value.remedy


def test_times_never_go_back() -> None:
    lines = "".join(f'{{"t": {t}, "mark": {{"what": "m"}}}}\n' for t in (2.0, 1.5, 3.0))
    assert [line.t for line in read(f"{HEADER}\n{lines}".encode())] == [2.0, 2.0, 3.0]


def test_damaged_gzip_is_refused() -> None:
    data = bytearray(gzip.compress(content(random_run(4))))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(RecordingError):
        read(bytes(data))


def test_lines_and_keys_that_are_not_known_are_left_alone() -> None:
    more = '{"t": 1, "new": {}}\n{"t": 2, "node": "a", "is": {"new": 1}}\n'
    (line,) = read(f"{HEADER}\n{more}".encode())
    assert line.name == "a"


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["cpu", "t", "is", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = """t node pod group object event call mark wait end is workload created bound phase price
    allocatable requests states restarts why ready reason about count message from method argument
    expect held detail what healthy desired wanted succeeded done target""".split()


@st.composite
def _lines(draw: st.DrawFn) -> dict[str, Any]:
    inner = st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=5)
    key = draw(st.sampled_from(_KEYS))
    name = draw(st.just("a/b/c") | _VALUES)
    told = {"t": 1, key: name, "is": draw(inner | st.none())}
    return told if key != "event" else {"t": 1, key: draw(inner)}


@given(st.lists(_lines(), max_size=6), st.lists(_VALUES, max_size=2))
@settings(max_examples=150)
def test_whatever_is_in_it_there_is_a_verdict_or_one_error(
    lines: list[dict[str, Any]], expect: list[Any]
) -> None:
    first = {"t": 0, "header": {"format": 1, "expect": expect}}
    text = "\n".join(json.dumps(line) for line in (first, *lines)) + "\n"
    try:
        judged(RecordingReader(iter([text.encode()]), name=NAME), name=NAME)
    except RecordingError as error:
        assert "\n" not in str(error)
