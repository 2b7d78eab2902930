"""The page that stands for the dashboard in the docs, and the dashboard itself."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.e2e.prometheus import dashboard, panels
from tests.metrics import operator_metrics, shim_metrics
from tests.monitoring.page import Line, Shown, draw

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "dashboard.svg"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.text]


def plot(*lines: Line, kind: str = "timeseries") -> Shown:
    return Shown("Groups", "Nodes", kind, "short", lines)


def test_no_data_is_said() -> None:
    assert "No data" in texts(draw([plot()], seconds=60))
    assert "No data" in texts(draw([plot(kind="stat")], seconds=60))


def test_a_legend_is_text() -> None:
    svg = draw([plot(Line('<script>"&', [(0, 1)]))], seconds=60)
    assert '<script>"&' in texts(svg)


def test_queries_name_metrics_that_exist() -> None:
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
