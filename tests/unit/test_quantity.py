"""Quantities, read and written as the API server does."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.formats.quantity import format_quantity, parse_quantity

# Every one was put to ParseQuantity of apimachinery v0.36.
GOOD = {
    "0": 0, "4": 4, "+4": 4, "-4": -4, "00012": 12, "5.": 5,
    ".5": Fraction(1, 2), "+.5": Fraction(1, 2), "1.5": Fraction(3, 2),
    "500m": Fraction(1, 2), "0.5m": Fraction(1, 2000), "1u": Fraction(1, 10**6),
    "1n": Fraction(1, 10**9), "1k": 10**3, "1M": 10**6, "1G": 10**9, "1T": 10**12,
    "1P": 10**15, "1E": 10**18, "12E": 12 * 10**18,
    "1Ki": 2**10, "1Mi": 2**20, "16Gi": 2**34, "1.Gi": 2**30, "1.5Gi": 3 * 2**29,
    "-.5Gi": -(2**29), "1Ti": 2**40, "1Pi": 2**50, "1Ei": 2**60,
    "1e3": 1000, "1E3": 1000, "1e+3": 1000, "1e-3": Fraction(1, 1000), "5.e3": 5000,
    "1.5e3": 1500, "1e22": 10**22, "9223372036854775808": 2**63,
}  # fmt: skip
BAD = [
    "", " ", " 1", "1 ", "1\n", "\n1", "1 Gi", "1K", "1ki", "1KI", "1mi", "1p", "1g", "1GiB", "1i",
    ".5i", "-3.01i", "-3.01e-", "1e", "1e1.5", "1e2m", "1e5Gi", "1Ki5", "--1", "+-1", "1_000",
    "1,000", "1.1.1", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "0x10", "٣", "500µ", "nan", "inf",
    "Infinity", "true", "null", "aoeu", "8 cores",
    "1e999999999999999999999",
]  # fmt: skip
STRICTER = [".", "+", "-", "Gi", ".Gi", "+.m", "1e100", "1e-100", "1e0003", "1e99999999999"]


def test_what_the_api_server_takes_is_read_exactly() -> None:
    assert {text: parse_quantity(text) for text in GOOD} == GOOD


@pytest.mark.parametrize("text", [*BAD, *STRICTER])
def test_what_the_api_server_refuses_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ValueError, match="such as 4, 500m or 16Gi"):
        parse_quantity(text)


@pytest.mark.parametrize("value", [True, False, None, [], {}, ["4"], b"4"])
def test_what_is_neither_number_nor_text_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a number or a string"):
        parse_quantity(value)


def test_json_numbers_are_quantities_too() -> None:
    numbers = {4: 4, 0: 0, -1: -1, 0.5: Fraction(1, 2), 1e22: 10**22, 1e-07: Fraction(1, 10**7)}
    assert {number: parse_quantity(number) for number in numbers} == numbers
    for number in (float("nan"), float("inf"), 1e300):
        with pytest.raises(ValueError, match="is not a quantity"):
            parse_quantity(number)


def test_a_text_of_any_length_is_read_or_refused() -> None:
    assert parse_quantity("9" * 32 + "Gi") == (10**32 - 1) * 2**30
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity("9" * 10_000)


@pytest.mark.parametrize(
    ("whole", "part", "left"),
    [
        ("4", "500m", "3500m"),
        ("3500m", "500m", "3"),
        ("4", "1", "3"),
        ("4", "4", "0"),
        ("0", "0", "0"),
        ("1", "100u", "999900u"),
        ("100u", "50u", "50u"),
        ("1", "1n", "999999999n"),
        ("0.5", "0.25", "250m"),
        ("16Gi", "2Gi", "14Gi"),
        ("16Gi", "512Mi", "15872Mi"),
        ("1.5Gi", "1Gi", "512Mi"),
        ("1Ei", "512Pi", "512Pi"),
        ("2Ei", "1Ei", "1Ei"),
        ("16Gi", "16Gi", "0"),
        ("16Gi", "500M", "16679869184"),
        ("16Gi", "1", "17179869183"),
        ("16G", "1G", "15000000000"),
        ("32880772Ki", "100Mi", "32778372Ki"),
        ("17179869184", "1Gi", "16106127360"),
        ("1e3", "1", "999"),
        ("9" * 29 + "Gi", "1Gi", "9" * 28 + "8Gi"),
    ],
)
def test_a_difference_is_written_like_the_whole(whole: str, part: str, left: str) -> None:
    difference = parse_quantity(whole) - parse_quantity(part)
    assert format_quantity(difference, like=whole) == left


def test_the_notation_of_a_json_number_is_plain() -> None:
    assert format_quantity(parse_quantity(3), like=4) == "3"


def test_less_than_a_nanopart_is_rounded_up_as_the_api_server_does() -> None:
    assert format_quantity(Fraction(1, 10**10), like="1") == "1n"


quick = settings(deadline=None, max_examples=60)
suffixes = st.sampled_from(["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"])
quantities = st.builds(lambda number, suffix: f"{number}{suffix}", st.integers(0, 10**15), suffixes)


@given(whole=quantities, part=quantities)
@quick
def test_a_written_difference_is_exact(whole: str, part: str) -> None:
    difference = parse_quantity(whole) - parse_quantity(part)
    if difference >= 0:
        assert parse_quantity(format_quantity(difference, like=whole)) == difference


@given(text=quantities)
@quick
def test_nothing_taken_away_is_the_same_amount(text: str) -> None:
    assert parse_quantity(format_quantity(parse_quantity(text), like=text)) == parse_quantity(text)
