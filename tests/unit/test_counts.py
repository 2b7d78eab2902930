"""How many nodes a derived group has, read from the annotations of templates."""

from typing import Any

import pytest

from kwok_operator.sources.counts import Counts, read_counts

MIN = "cluster-autoscaler.kwok.nodegroup/min-count"
MAX = "cluster-autoscaler.kwok.nodegroup/max-count"
DESIRED = "cluster-autoscaler.kwok.nodegroup/desired-count"


@pytest.mark.parametrize(
    ("annotations", "counts"),
    [
        ({}, Counts(0, 200, None)),
        ({MIN: "3"}, Counts(3, 200, None)),
        ({MIN: "1", MAX: "1000000", DESIRED: "5"}, Counts(1, 1_000_000, 5)),
        ({DESIRED: "0"}, Counts(0, 200, 0)),
        ({MAX: "+7", DESIRED: "007"}, Counts(0, 7, 7)),
        ({MIN: None}, Counts(0, 200, None)),
    ],
)
def test_annotations_and_defaults(annotations: dict[str, Any], counts: Counts) -> None:
    assert read_counts([("Node a", annotations)]) == (counts, ())


def test_the_first_place_that_has_it_counts() -> None:
    places = [("Node a", {MAX: "9"}), ("Node b", {MAX: "5", MIN: "1"})]
    assert read_counts(places) == (Counts(1, 9, None), ())


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({MIN: "few"}, f"Node a: annotation {MIN}: 'few' is not a number of nodes; write one"),
        ({MAX: "1e3"}, "'1e3' is not a number of nodes"),
        ({DESIRED: "-1"}, "'-1' is not a number of nodes"),
        ({MAX: ""}, "'' is not a number of nodes"),
        ({MAX: "٣"}, "is not a number of nodes"),
        ({MAX: 5}, "5 is not a number of nodes"),
        ({MAX: "9" * 5_000}, "is not a number of nodes"),
        (
            {MIN: "201"},
            f"annotation {MIN}: the fewest nodes, 201, are more than the most, 200 (the default);"
            f" lower the first, or raise {MAX}",
        ),
        ({MIN: "5", MAX: "4"}, "the fewest nodes, 5, are more than the most, 4; lower"),
        ({MAX: "1000001"}, "1000001 is too many; the most is 1000000"),
        ({DESIRED: "201"}, f"Node a: annotation {DESIRED}: 201 is not from 0 to 200"),
        ({MIN: "2", DESIRED: "1"}, "1 is not from 2 to 200"),
    ],
)
def test_counts_that_cant_be(annotations: dict[str, Any], sentence: str) -> None:
    counts, (problem,) = read_counts([("Node a", annotations)])
    assert counts is None
    assert sentence in problem


def test_all_that_is_no_number_is_told() -> None:
    assert len(read_counts([("Node a", {MIN: "a", MAX: "b", DESIRED: "c"})])[1]) == 3
