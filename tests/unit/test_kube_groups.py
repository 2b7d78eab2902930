"""KwokNodeGroups from bytes and from objects: what can't be read costs nobody else anything."""

from typing import Any

import pytest

from kwok_operator.errors import DecodeError
from kwok_operator.nodegroups.client import GROUPS, Group, UnreadableGroup, read_group

DEEP, ENDLESS = 300, 5_000
"""The fast parser goes 200 levels, an API server takes 10,000."""


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def group(name: str, spec: str = "{}") -> bytes:
    """As the API server sends it: managedFields nest as deep as the spec."""
    metadata = (
        f'{{"name":"{name}","uid":"u-{name}","resourceVersion":"7","generation":1,'
        f'"annotations":{{"note":"a }} in \\"quotes\\", and [ too"}},'
        f'"managedFields":[{{"fieldsV1":{spec}}}]}}'
    )
    return f'{{"kind":"KwokNodeGroup","metadata":{metadata},"spec":{spec}}}'.encode()


def template(levels: int) -> str:
    return f'{{"targetSize":3,"template":{{"node":{{"metadata":{nested(levels)}}}}}}}'


ODD = {
    "without-end": group("odd", template(ENDLESS)),
    "of-a-newer-crd": group("odd", '{"scaleDown":{"pods":"Teleport"}}'),
    "no-spec-at-all": group("odd", "[1]"),
}


def page(*groups: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"9","continue":"t"},"items":[%b]}' % b", ".join(groups)


def event(kind: str, item: bytes) -> bytes:
    return b'{"type":"%b","object":%b}' % (kind.encode(), item)


def known(each: Group | UnreadableGroup | None) -> tuple[type, str, str, int]:
    assert each is not None
    return type(each), each.name, each.uid, each.resource_version


def test_what_nests_deep_is_read() -> None:
    deep = group("deep", template(DEEP))
    for item in (GROUPS.one(deep), GROUPS.event(event("ADDED", deep)).item):
        assert isinstance(item, Group)
        assert item.spec.target_size == 3


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_unreadable_group_does_not_hide_the_others(odd: bytes) -> None:
    read = GROUPS.page(page(group("a"), odd, group("deep", template(DEEP)), group("z")))
    assert [known(each) for each in read.items] == [
        (Group, "a", "u-a", 7),
        (UnreadableGroup, "odd", "u-odd", 7),
        (Group, "deep", "u-deep", 7),
        (Group, "z", "u-z", 7),
    ]
    assert (read.resource_version, read.continue_token) == (9, "t")


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_its_events_are_heard(odd: bytes, kind: str) -> None:
    heard = GROUPS.event(event(kind, odd))
    assert known(heard.item) == (UnreadableGroup, "odd", "u-odd", 7)
    assert (heard.type, heard.resource_version) == (kind, 7)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"type":"ADDED"}', b'{"type":"FUTURE","object":{}}']
)
def test_what_is_no_event_is_an_error(body: bytes) -> None:
    with pytest.raises(DecodeError):
        GROUPS.event(body)


@pytest.mark.parametrize("body", [{}, {"metadata": 3}, {"metadata": {"name": 5}}], ids=str)
def test_objects_without_a_name_have_none(body: dict[str, Any]) -> None:
    assert isinstance(read_group(body), UnreadableGroup)
