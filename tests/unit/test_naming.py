"""Node names: a group's name, four characters of its uid, a serial."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.constants import MAX_GROUP_NAME_LENGTH
from kwok_operator.nodegroups.naming import NodeNames, uid_hash

UID = "0b5e4b0c-8d5c-4f3e-9a39-6c1c2f1d7e55"
UID_AFTER = "9d1f6a52-33c7-4c0b-8a55-0c6c7d0e4f10"

quick = settings(deadline=None, max_examples=50)
uids = st.uuids().map(str)
serials = st.integers(min_value=0, max_value=9_999_999)
group_names = st.from_regex(
    rf"[a-z0-9]([-a-z0-9]{{0,{MAX_GROUP_NAME_LENGTH - 2}}}[a-z0-9])?", fullmatch=True
)


def test_a_name_is_group_hash_and_zero_padded_serial() -> None:
    names = NodeNames.of("gpu-b", UID)
    assert names.name(7) == f"gpu-b-{uid_hash(UID)}-000007"
    assert names.name(1_234_567) == f"gpu-b-{uid_hash(UID)}-1234567"


def test_the_hash_of_a_uid_never_changes() -> None:
    # It is in the names of nodes that exist: another hash would disown them all.
    assert uid_hash(UID) == "3zid"


@given(uid=uids)
@quick
def test_a_hash_is_four_lower_case_letters_or_digits(uid: str) -> None:
    assert re.fullmatch(r"[a-z2-7]{4}", uid_hash(uid))


@given(group=group_names, uid=uids, serial=serials)
@quick
def test_every_name_is_a_hostname_label_and_has_its_serial(
    group: str, uid: str, serial: int
) -> None:
    names = NodeNames.of(group, uid)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", names.name(serial))
    assert names.serial(names.name(serial)) == serial


@given(a=serials, b=serials)
@quick
def test_two_serials_never_share_a_name(a: int, b: int) -> None:
    names = NodeNames.of("web", UID)
    assert (names.name(a) == names.name(b)) == (a == b)


@given(text=st.text(max_size=12), with_prefix=st.booleans())
@quick
def test_only_what_name_gives_is_a_name(text: str, with_prefix: bool) -> None:
    names = NodeNames.of("web", UID)
    name = names.prefix + text if with_prefix else text
    serial = names.serial(name)
    assert serial is None or names.name(serial) == name


@pytest.mark.parametrize(
    "rest",
    [
        *("", "7", "00007", "0000007", "1" * 5_000, "-00007", "+00007", " 00007", "00_007"),
        *("00007a", "\u0660\u0660\u0660\u0660\u0660\u0667", "\uff10\uff10\uff10\uff10\uff10\uff17"),
    ],
)
def test_what_only_looks_like_a_serial_is_none(rest: str) -> None:
    names = NodeNames.of("web", UID)
    assert names.serial(f"{names.prefix}{rest}") is None


def test_a_name_without_the_prefix_is_not_the_groups() -> None:
    names = NodeNames.of("web", UID)
    assert names.serial("000007") is None
    assert names.serial(f"other-{uid_hash(UID)}-000007") is None
    assert names.serial(f"x{names.name(7)}") is None


def test_a_group_made_again_has_new_names_and_does_not_know_the_old_ones() -> None:
    before, after = NodeNames.of("web", UID), NodeNames.of("web", UID_AFTER)
    assert before.name(0) != after.name(0)
    assert after.serial(before.name(0)) is None


def test_a_group_named_like_another_groups_nodes_does_not_know_them() -> None:
    outer = NodeNames.of("web", UID)
    inner = NodeNames.of(outer.prefix.rstrip("-"), UID_AFTER)
    assert outer.serial(inner.name(3)) is None
    assert inner.serial(outer.name(3)) is None


@given(a=st.integers(0, 999_999), b=st.integers(0, 999_999))
@quick
def test_names_sort_by_age(a: int, b: int) -> None:
    names = NodeNames.of("web", UID)
    assert (names.name(a) < names.name(b)) == (a < b)
