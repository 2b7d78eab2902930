"""Large JSON and YAML, read piece by piece, is what it is read as a whole.

Wherever a text is cut, and into whatever chunks it comes.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.formats.jsonstream import json_pieces
from kwok_operator.formats.pieces import DocumentPiece, PieceError, Streamed
from kwok_operator.formats.yamlstream import yaml_pieces

STREAMED = Streamed(frozenset({"items"}), frozenset({"groups"}))
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=6) | (
    st.sampled_from(["a\n- b\nitems:\n- c\n", " x", "---\n", "#", '"', "\\", "2"])
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.just(-2.5e-7) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
LISTS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "items": st.lists(OBJECTS, max_size=4), "kind": st.just("List")}
)
Read = Callable[[Iterator[str], Streamed], Iterator[DocumentPiece]]


def chunks(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def whole(pieces: Iterator[DocumentPiece]) -> list[Any]:
    """The documents that the pieces are of."""
    documents: list[Any] = []
    now: dict[str, Any] = {}
    for piece in pieces:
        if piece.key is None:
            documents.append({**piece.rest, **now})
            now = {}
        elif piece.name:
            now.setdefault(piece.key, {})[piece.name] = piece.value
        else:
            now.setdefault(piece.key, []).append(piece.value)
    return documents


def without_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k not in ("items", "groups") or v}


@given(st.lists(LISTS, min_size=1, max_size=3), st.sampled_from([1, 2, 7, 1000]), st.booleans())
def test_json_in_pieces_is_the_json(
    documents: list[dict[str, Any]], size: int, pretty: bool
) -> None:
    text = "\n".join(json.dumps(each, indent=2 if pretty else None) for each in documents)
    read = [without_empty(each) for each in whole(json_pieces(chunks(text, size), STREAMED))]
    assert read == [without_empty(each) for each in documents]


@given(LISTS, st.sampled_from([1, 2, 7, 1000]), st.sampled_from([20, 1000]))
def test_yaml_in_pieces_is_the_yaml(document: dict[str, Any], size: int, width: int) -> None:
    text = yaml.safe_dump_all([document, {"kind": "Pod"}], width=width, allow_unicode=True)
    read = [without_empty(each) for each in whole(yaml_pieces(chunks(text, size), STREAMED))]
    assert read == [without_empty(document), {"kind": "Pod"}]


LIST = {"items": [{"a": [1.5, None, "é\\\n", {}]}, {"b": "x"}], "kind": "List"}


@pytest.mark.parametrize("read", [json_pieces, yaml_pieces])
def test_a_text_that_is_cut_off_says_so_after_the_items_that_are_whole(read: Read) -> None:
    text = json.dumps(LIST, indent=1) if read is json_pieces else yaml.safe_dump(LIST)
    begins = text.index('"a"' if read is json_pieces else "- a")
    ends = text.rindex("}" if read is json_pieces else "kind:")
    for cut in range(begins + 1, ends):
        found: list[Any] = []
        with pytest.raises(PieceError) as raised:
            found.extend(piece.value for piece in read(iter([text[:cut]]), STREAMED))
        assert found == LIST["items"][: len(found)]
        # YAML may be cut where it is no YAML any more.
        assert raised.value.cut or read is yaml_pieces


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (json_pieces, '{"a":\n 1 2}', "line 2, column 4: is not JSON: , or }"),
        (json_pieces, '{"items": [NaN]}', "NaN is no number"),
        (json_pieces, "[" * 100_000, "nests too deep"),
        (json_pieces, '{"items": [x' + " " * 99, "line 1, column 12: is not JSON"),
        (yaml_pieces, "items:\n- a: 1\n- b: {\nkind: List\n", "line 4, column 1: is not YAML"),
        (yaml_pieces, "a: 1\nitems:\n- b: 2\nkind: x\nc: [\n", "line 6, column 1: is not YAML"),
        (yaml_pieces, "I0101 log\nof a program", "is no object, but a single value"),
        (yaml_pieces, "data: !!binary c2VjcmV0", "a value has the tag"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(read: Read, text: str, said: str) -> None:
    with pytest.raises(PieceError) as raised:
        list(read(iter([text]), STREAMED))
    assert said in str(raised.value)


LOG = '==== START logs for container c ====\n{"x\n---\n==== END logs for container c ====\n'


@pytest.mark.parametrize("read", [json_pieces, yaml_pieces])
@pytest.mark.parametrize("size", [1, 50, 1000])
def test_logs_between_documents_are_passed_over(read: Read, size: int) -> None:
    one = '{"kind": "Pod"}\n' if read is json_pieces else "kind: Pod\n---\n"
    text = f"{one}{LOG}{LOG}{one}"
    found = [piece.rest for piece in read(chunks(text, size), STREAMED) if piece.rest]
    assert found == [{"kind": "Pod"}] * 2
