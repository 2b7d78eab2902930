"""Times as people write them, in seconds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from kwok_operator.formats.times import parse_duration
from kwok_operator.nodegroups.api.autoscaling import Duration


def test_times() -> None:
    times = {"0s": 0, "90s": 90, "10m": 600, "1h30m": 5400, "1h1m1s": 3661, "2h5s": 7205}
    times |= {"007m": 420, "99999h": 359_996_400}
    assert {text: parse_duration(text) for text in times} == times


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "m", "-5m", "+5m", "5 m", "5m ", "5m\n", "30s5m", "5m5m", "1.5h", "500ms"),
        *("5M", "\u0665m"),
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time such as 90s, 10m or 1h30m"):
        parse_duration(text)


@given(st.from_type(int).filter(lambda n: 0 <= n < 10**9))
def test_any_number_of_seconds(seconds: int) -> None:
    assert parse_duration(f"{seconds}s") == seconds


@given(st.from_regex(r"^([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?\Z").filter(lambda t: len(t) > 1))
def test_what_a_group_may_say_is_read_and_fits_the_protocol(text: str) -> None:
    taken = TypeAdapter(Duration).validate_python(text)
    assert 0 <= parse_duration(taken) * 10**9 < 2**63
