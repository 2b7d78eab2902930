"""JSON that nests deep."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.kube.shallow import CUT, MOST, OF_LINE, OF_LIST, is_cut, shallow

SCALARS = st.none() | st.booleans() | st.integers() | st.text(alphabet='{}[]"\\ \n\ta\u20ac')
KEYS = st.text(alphabet='{}[]"\\ab', max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8
)
OBJECTS = st.fixed_dictionaries({"metadata": st.dictionaries(KEYS, VALUES), "spec": VALUES})


def text_of(value: Any, levels: int) -> str:
    """An object whose spec has so many levels more; `json` itself could not write it."""
    opening = '{"]":[' * (levels // 2) + "[" * (levels % 2)
    closing = "]" * (levels % 2) + "]}" * (levels // 2)
    return json.dumps({**value, "spec": "?"}).replace('"?"', opening + closing)


@settings(max_examples=30)
@given(item=OBJECTS, spaces=st.booleans())
def test_what_nests_no_deeper_stays_as_it_is(item: Any, spaces: bool) -> None:
    text = json.dumps({"items": [item] * 9}, separators=(", " if spaces else ",", ":")).encode()
    assert shallow(text, objects=OF_LIST) is text


@settings(max_examples=30)
@given(items=st.lists(st.tuples(OBJECTS, st.booleans()), max_size=4))
def test_each_object_of_a_list_says_whether_it_was_cut(items: list[tuple[Any, bool]]) -> None:
    texts = [text_of(item, 3 * MOST) if deep else json.dumps(item) for item, deep in items]
    answer = f'{{"items":[{",".join(texts)}],"metadata":{{}}}}'.encode()
    found = json.loads(shallow(answer, objects=OF_LIST))
    assert found["metadata"] == {}
    assert len(found["items"]) == len(items)
    for (item, deep), seen in zip(items, found["items"], strict=True):
        assert is_cut(seen) == deep
        assert seen["metadata"] == item["metadata"]
        assert deep or seen == item


@pytest.mark.parametrize(
    ("levels", "cut"), [(MOST - 1, False), (MOST, True), (9_000, True), (200_001, True)]
)
def test_a_line_of_a_watch_may_have_so_many_levels(levels: int, cut: bool) -> None:
    text = f'{{"type":"ADDED","object":{text_of({"metadata": {"name": "web"}}, levels)}}}'
    event = json.loads(shallow(text.encode(), objects=OF_LINE))
    assert event["type"] == "ADDED"
    assert event["object"]["metadata"] == {"name": "web"}
    assert (CUT in event["object"]) == cut
