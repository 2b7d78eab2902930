"""Serials as text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.nodegroups.serials import names_serial, pack, unpack


@pytest.mark.parametrize(
    ("text", "serials"),
    [("3", {3}), ("3,10-12", {3, 10, 11, 12}), ("5-4,7", {7}), ("1-9,2,2", set(range(1, 10)))],
)
def test_what_people_write(text: str, serials: set[int]) -> None:
    assert {serial for serial in range(30) if names_serial(text, serial)} == serials
    assert not names_serial(None, 0)


def test_a_range_costs_nothing_however_long_it_is() -> None:
    assert names_serial("0-999999999", 123_456_789)


# The latter become a bitmap.
SETS = st.sets(st.integers(0, 5_000)) | st.integers(0, 2**32).map(
    lambda seed: set(random.Random(seed).sample(range(600), 300))
)


@given(SETS, SETS)
def test_there_and_back(serials: set[int], others: set[int]) -> None:
    read = unpack(pack(serials))
    assert read == serials
    assert (len(read), sorted(read)) == (len(serials), sorted(serials))
    assert read & others == others & read == serials & others
    assert others - read == others - serials


def test_serials_that_are_far_apart_are_no_bitmap() -> None:
    serials = {*range(0, 400, 2), 2**47}
    assert unpack(pack(serials)) == serials


def test_what_can_be_read_stays_readable() -> None:
    assert pack({5, 17, 18, 19}) == "5,17-19"
    assert pack(set()) == ""
    assert pack(set(range(10**5))) == "0-99999"


@pytest.mark.parametrize("first", [0, 123_456])
def test_half_of_two_thousand_at_random_is_short(first: int) -> None:
    draw = random.Random(7)
    serials = {first + n for n in range(2_000) if draw.random() < 0.5}
    assert len(pack(serials)) < 400
    assert unpack(pack(serials)) == serials


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1+AAAA", "0+", "0+not base64!", "0+AAAA", "²+AAAA", "1" * 30 + "+AAAA"]
)
def test_nothing_else_is_taken(text: str) -> None:
    with pytest.raises(ValueError, match="not "):
        unpack(text)


def test_a_bitmap_that_would_fill_the_memory_is_refused() -> None:
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(bytes(2**22))).decode()
    with pytest.raises(ValueError, match="too long"):
        unpack(f"0+{bomb}")
