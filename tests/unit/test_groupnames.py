"""Names of groups: a function of the value alone, always valid, and readable."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kwok_operator.nodegroups.naming import group_name, is_group_name, is_object_name


@pytest.mark.parametrize("value", ["m5.large", "a", "pool-1", "a" * 50, "0"])
def test_a_good_name_stays(value: str) -> None:
    assert group_name(value) == value


# Written out: a name that changed would be another group.
@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("Standard_D4s_v3", "standard-d4s-v3-"),
        ("standard_d4s_v3", "standard-d4s-v3-"),
        ("eu/west 1 (b)", "eu-west-1-b-"),
        ("-a-", "a-"),
        ("a..b", "a-b-"),
        ("a" * 51, "a" * 44 + "-"),
        ("_", "group-"),
        ("日本", "group-"),
        ("", "group-"),
        ("\ud800", "group-"),
    ],
)
def test_any_other_value_becomes_readable(value: str, name: str) -> None:
    assert group_name(value)[:-5] == name
    assert is_group_name(group_name(value))


def test_the_hash_never_changes() -> None:
    assert group_name("Standard_D4s_v3") == "standard-d4s-v3-rjwx5"


def test_a_name_has_at_most_50_characters() -> None:
    assert is_group_name("a" * 50)
    assert not is_group_name("a" * 51)
    assert is_object_name("a" * 51)
    assert not is_object_name("a" * 254)
    assert not is_object_name("a\n")


@given(value=st.text(), other=st.text())
def test_any_value_has_a_valid_name_of_its_own(value: str, other: str) -> None:
    assume(value != other)
    assert is_group_name(group_name(value))
    assert group_name(value) == group_name(value)
    assert group_name(value) != group_name(other)
