"""The page that stands for the dashboard in the docs, and the dashboard itself:

- every panel has its place, its title and its lines; what gives no data says so
- axes begin at 0 and end at a round number; values are printed with their unit
- legends are text, whatever is in them; of many lines the highest are drawn
- the dashboard's queries name metrics that are told, or cluster-autoscaler's
- the picture in the docs is one of it, and small
"""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.e2e.prometheus import dashboard, panels
from tests.metrics import operator_metrics, shim_metrics
from tests.monitoring.page import MAX_LINES, Line, Shown, clock, draw, number, scale

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "dashboard.svg"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.text]


def plot(*lines: Line, kind: str = "timeseries") -> Shown:
    return Shown("Groups", "Nodes", kind, "short", lines)


def test_a_panel_has_title_axes_legend_and_a_line() -> None:
    svg = draw([plot(Line("web", [(0, 0), (30, 10), (60, 5)]))], seconds=60)
    assert {"Groups", "Nodes", "web", "0:00", "1:00", "10"} <= set(texts(svg))
    (line,) = [e.get("d", "") for e in ET.fromstring(svg).iter() if e.get("stroke-width") == "1.6"]
    assert line.count("L") == 2


def test_no_data_is_said() -> None:
    assert "No data" in texts(draw([plot()], seconds=60))
    assert "No data" in texts(draw([plot(kind="stat")], seconds=60))


def test_a_stat_shows_the_last_value() -> None:
    svg = draw([plot(Line("nodes", [(0, 1), (60, 42)]), kind="stat")], seconds=60)
    assert "42" in texts(svg)


def test_many_lines_are_cut_and_counted() -> None:
    lines = [Line(f"group-{n}", [(0, n)]) for n in range(MAX_LINES + 3)]
    told = texts(draw([plot(*lines)], seconds=60))
    assert "and 3 more" in told
    assert [f"group-{n}" in told for n in range(5)] == [False, False, False, True, True]


def test_a_legend_is_text() -> None:
    svg = draw([plot(Line('<script>"&', [(0, 1)]))], seconds=60)
    assert '<script>"&' in texts(svg)


def test_an_axis_begins_at_zero_and_ends_at_a_round_number() -> None:
    tops = {0: 1, 0.003: 0.004, 1: 1, 7: 8, 41: 50, 200: 200, 1001: 2000}
    assert {largest: scale(largest)[-1] for largest in tops} == pytest.approx(tops)
    assert {scale(largest)[0] for largest in tops} == {0}


def test_values_are_printed_with_their_unit() -> None:
    amounts = [(0.0042, "s"), (2.5, "s"), (12_500, "short"), (0.3, "percentunit"), (0, "reqps")]
    texts = [number(value, unit) for value, unit in [*amounts, (120 * 2**20, "bytes")]]
    assert texts == ["4.2 ms", "2.5 s", "12.5k", "30 %", "0", "120 MiB"]
    assert clock(185) == "3:05"


def test_queries_name_metrics_that_are_told() -> None:
    told = {
        sample.name
        for registry in (operator_metrics(), shim_metrics())
        for family in registry.collect()
        for sample in family.samples
    }
    asked = {
        name
        for panel in panels()
        for query, _ in panel.queries
        for name in re.findall(r"\b((?:kwok_operator|process|cluster_autoscaler)_\w+)", query)
    }
    assert {name for name in asked if not name.startswith("cluster_autoscaler_")} <= told
    assert "$" not in "".join(query for panel in panels() for query, _ in panel.queries)


def test_panels_have_ids_and_places_of_their_own() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in every]
    assert len(set(places)) == len(places)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in every)


def test_the_picture_in_the_docs_is_one_of_the_dashboard() -> None:
    assert PICTURE.stat().st_size < 300_000
    told = texts(PICTURE.read_text(encoding="utf-8"))
    assert {panel.title for panel in panels()} <= set(told)
