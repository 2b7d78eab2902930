"""The nodes of tests/corpus, and the same with anything put anywhere into them."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

CORPUS = Path(__file__).parent / "corpus"
CLEAN = ".clean.yaml"
NAMES = sorted(p.stem for p in CORPUS.glob("*.yaml") if not p.name.endswith(CLEAN))


def load(file_name: str) -> dict[str, Any]:
    node = yaml.safe_load((CORPUS / file_name).read_text())
    assert isinstance(node, dict)
    return node


NODES = {name: load(f"{name}.yaml") for name in NAMES}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


keys_anywhere = st.text(max_size=6) | st.sampled_from(
    ["key", "uid", "name", "taints", "addresses", "providerID", "podCIDRs", "labels", "machineID"]
)


def places(value: object) -> Iterator[dict[str, Any] | list[Any]]:
    """The objects and lists of a node, but for those that are long and dropped without a look."""
    if isinstance(value, dict):
        yield value
        for key, below in value.items():
            if key not in ("managedFields", "conditions", "images"):
                yield from places(below)
    elif isinstance(value, list):
        yield value
        for below in value:
            yield from places(below)


@st.composite
def damaged_nodes(draw: st.DrawFn) -> dict[str, Any]:
    node = copy.deepcopy(NODES[draw(st.sampled_from(NAMES))])
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.sampled_from(list(places(node))))
        if isinstance(place, list):
            place.insert(draw(st.integers(0, len(place))), draw(anything))
        else:
            there = st.sampled_from(sorted(place)) if place else keys_anywhere
            place[draw(there | keys_anywhere)] = draw(anything)
    return node
