"""YAML that users wrote: values that JSON has, or one sentence with line and column."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.errors import ManifestError
from kwok_operator.formats.documents import NodeDocuments, nodes_of, pick
from kwok_operator.formats.yamltext import MAX_DEPTH, DocumentError, load_documents, read_documents

WHERE = "ConfigMap ns/templates, key config"


def load(text: str) -> list[Any]:
    return load_documents(text, where=WHERE)


def refusal(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        load(text)
    sentence = str(caught.value)
    assert sentence.startswith(WHERE)
    return sentence.removeprefix(f"{WHERE}, ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("5", 5),
        ("-5", -5),
        ("0x1F", 31),
        ("010", 8),
        ("1_000", 1000),
        ("1.5", 1.5),
        ("1e3", 1000),
        ("1.0", 1),
        ("1e100", 1e100),
        ("1:30", "1:30"),
        ("500m", "500m"),
        ("16Gi", "16Gi"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01", "2024-01-01"),
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("N", False),
        ("~", None),
        ('"5"', "5"),
        ("!!str 5", "5"),
        ("! 5", "5"),
        ("!!int '5'", 5),
        ("0x", "0x"),
        ("-", [None]),
        (".", "."),
        ("|\n a\n b\n", "a\nb\n"),
        ("{5: x, true: z, y: 1}", {"5": "x", "true": "z", "y": 1}),
        ("\ufeffa: 1", {"a": 1}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (r'["\\\\\ud83d\ude00"]', ["\\\\\U0001f600"]),
        ('{\n\t"a":\t1\n}', {"a": 1}),
        ("a: &x {k: 1, j: 2}\nb: {<<: *x, j: 3}", {"a": {"k": 1, "j": 2}, "b": {"k": 1, "j": 3}}),
        ("[&x a, *x, {*x : 1}]", ["a", "a", {"a": 1}]),
    ],
)
def test_values_are_those_of_json(text: str, value: Any) -> None:
    (read,) = load(text)
    assert read == value
    assert type(read) is type(value)
    json.dumps(read, allow_nan=False)


def test_any_number_of_documents() -> None:
    assert load("a: 1\n---\n---\n# nothing\n---\nb: 2\n") == [{"a": 1}, None, None, {"b": 2}]
    assert load("") == load("# nothing") == []


def test_aliases_give_values_of_their_own() -> None:
    ((first, second),) = load("[&x {a: []}, *x]")
    first["a"].append(1)
    assert second == {"a": []}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "line 2, column 11: b: the key 'c' stands here twice"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' stands here twice; remove one"),
        ("{5: a, '5': b}", "line 1, column 8: the key '5' stands here twice; remove one"),
        ("a:\n\t- b", "line 2, column 1: is not YAML: a tab stands where YAML wants spaces"),
        ("a: b: c", "line 1, column 5: is not YAML: mapping values are not allowed"),
        ("a: [1", "is not YAML: did not find expected"),
        (
            "a:\n  b: .nan",
            "line 2, column 6: a.b: .nan is not a number that JSON has; write another",
        ),
        ("a: [1, -.inf]", "line 1, column 8: a[1]: -.inf is not a number that JSON has"),
        ("a: 1e999", "line 1, column 4: a: 1e999 is too large a number; write a smaller"),
        ("a: " + "9" * 5000, "line 1, column 4: a: a number has too many digits"),
        ("a: !!set {x}", "line 1, column 4: a: has the tag tag:yaml.org,2002:set; take it out"),
        ("a: !!binary aGk=", "a: 'aGk=' has the tag tag:yaml.org,2002:binary; take it out"),
        ("a: !!int x", "a: 'x' has the tag tag:yaml.org,2002:int"),
        ("a: !!float yes", "a: 'yes' has the tag tag:yaml.org,2002:float"),
        ("a: !!python/name:os.system x", "has the tag tag:yaml.org,2002:python/name:os.system"),
        ("? [a]\n: b", "line 1, column 3: a key must be text"),
        ("{{ .Values.x }}", "line 1, column 2: a key must be text; braces need quotes"),
        ("[&x 1, {*x : b}]", "a key must be text"),
        ("{<<: 5}", "<< merges objects, and this is none"),
        ("a: *b", "line 1, column 4: a: the alias *b refers to itself, or to no anchor before it"),
        ("&a [*a]", "line 1, column 5: [0]: the alias *a refers to itself"),
        ("--- &a 1\n--- *a", "line 2, column 5: the alias *a refers to itself, or to no anchor"),
        ("a: 'x\x00'", "line 1, column 6: the character '\\x00' can't stand in YAML; take it out"),
        ("a\n\ud800", "line 2, column 1: the character '\\ud800' can't stand in YAML"),
    ],
)
def test_what_is_refused_has_a_place(text: str, sentence: str) -> None:
    assert sentence in refusal(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_no_depth_is_too_much(text: str) -> None:
    assert f"is more than {MAX_DEPTH} levels deep" in refusal(text)
    assert len(refusal(text)) < 300


def test_depth_counts_through_aliases() -> None:
    lines = ["a0: &a0 " + "[" * 90 + "]" * 90]
    lines += [f"a{i}: &a{i} {'[' * 50}*a{i - 1}{']' * 50}" for i in range(1, 100)]
    assert "levels deep" in refusal("\n".join(lines))


def test_a_few_lines_that_mean_terabytes_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    assert "aliases repeat too much" in refusal("\n".join(lines))
    text = f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 1_000)}]"
    assert "aliases repeat too much" in refusal(text)


def test_lines_of_parts_are_known() -> None:
    text = (
        "# c\nkind: ConfigMap\ndata:\n  config: |\n    a: 1\n    b: 2\n  l:\n  - x: 1\n  - {y: 2}\n"
    )
    (document,) = read_documents(text, where=WHERE)
    assert document.lines[("kind",)] == 2
    assert document.lines[("data", "config")] == 4
    assert document.lines[("data", "l", 1)] == document.lines[("data", "l", 1, "y")] == 9
    assert document.blocks == {("data", "config"): 5}


def test_a_mistake_knows_its_line() -> None:
    with pytest.raises(DocumentError) as caught:
        load("a: 1\nb: {a: 1, a: 2}")
    assert (caught.value.line, caught.value.column) == (2, 11)


keys = st.text(max_size=80)  # YAML allows 1,024 bytes, escapes counted
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)


@given(value=json_values)
@settings(deadline=None)
def test_json_is_yaml(value: Any) -> None:
    text = json.dumps(value)
    if isinstance(value, dict | list):
        assert load(text) == [value]


@given(text=st.text(alphabet="ab:-[]{}&*!|>#'\"\n\t ,?%<~0x.", max_size=40) | st.text())
@settings(deadline=None, max_examples=200)
def test_any_text_is_values_or_one_line(text: str) -> None:
    try:
        values = load(text)
    except ManifestError as error:
        assert "\n" not in str(error)
        return
    json.dumps(values, allow_nan=False)


def node(name: str | None = None, **more: Any) -> dict[str, Any]:
    metadata = {} if name is None else {"metadata": {"name": name}}
    return {"apiVersion": "v1", "kind": "Node", **metadata, **more}


def names_of(documents: NodeDocuments) -> list[Any]:
    return [n.get("metadata", {}).get("name") for n in documents.nodes]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([node("a")], ["a"]),
        ([node("b"), None, node("a")], ["b", "a"]),
        ([{"apiVersion": "v1", "kind": "List", "items": [node("a"), node("b")]}], ["a", "b"]),
        ([{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "a"}}]}], ["a"]),
        (
            [
                {
                    "apiVersion": "v1",
                    "kind": "List",
                    "items": [{"apiVersion": "v1", "kind": "List", "items": [node("a")]}],
                },
                node("b"),
            ],
            ["a", "b"],
        ),
        ([node()], [None]),
    ],
)
def test_nodes_are_found_in_every_form(values: list[Any], names: list[str | None]) -> None:
    documents = nodes_of(values, where=WHERE)
    assert (names_of(documents), documents.others) == (names, ())


def test_what_is_no_node_is_named() -> None:
    values = [
        node("a"),
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}},
        {"metadata": {"name": "b"}, "status": {}},
        {"kind": "Node", "metadata": {"name": "c"}},
        {"hello": "world"},
        "text",
    ]
    assert nodes_of(values, where=WHERE).others == (
        "Deployment web",
        "document 3 (no kind; write apiVersion: v1 and kind: Node)",
        "document 4 (Node c; write apiVersion: v1)",
        "document 5 (no kind)",
        "document 6 (no object)",
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "has no Node (apiVersion: v1, kind: Node), it is empty"),
        ([None], "has no Node (apiVersion: v1, kind: Node), it is empty"),
        (
            [{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}}],
            "has no Node (apiVersion: v1, kind: Node); it has Pod p",
        ),
        ([node("a"), node("b"), node("a")], "two Nodes are called 'a'; rename or remove one"),
        ([node("a"), node()], "Node 2 of 2 has no metadata.name; give it one"),
        ([node(metadata={"name": 5})], "metadata.name of a Node is 5, and must be text"),
        ([node("a" * 254)], "metadata.name of a Node has 254 characters"),
    ],
)
def test_nodes_that_no_group_could_name(values: list[Any], sentence: str) -> None:
    with pytest.raises(ManifestError, match=r"^ConfigMap ns/templates") as caught:
        nodes_of(values, where=WHERE)
    assert sentence in str(caught.value)


def test_odd_nodes_are_taken_as_they_are() -> None:
    odd = node(metadata="x", spec=[])
    assert nodes_of([odd], where=WHERE).nodes == (odd,)


def test_a_node_is_picked_by_name_or_because_it_is_alone() -> None:
    two = nodes_of([node("b"), node("a")], where=WHERE)
    assert pick(two, "a", where=WHERE) == node("a")
    assert pick(nodes_of([node()], where=WHERE), None, where=WHERE) == node()
    with pytest.raises(ManifestError, match="has no Node 'c'; there is a, b"):
        pick(two, "c", where=WHERE)
    with pytest.raises(ManifestError, match=r"has 2 Nodes.* names none; there is a, b"):
        pick(two, None, where=WHERE)


def test_a_long_list_of_names_is_cut() -> None:
    many = nodes_of([node(f"n{i:03}") for i in range(100)], where=WHERE)
    with pytest.raises(ManifestError, match="n019 and 80 more"):
        pick(many, "x", where=WHERE)
