"""The plots of the benchmarks: what is in them, and that they can be committed as they are."""

from pathlib import Path
from xml.etree import ElementTree

from tests.bench import plots
from tests.bench.measures import Measure

SVG = "{http://www.w3.org/2000/svg}"


def line(case: str, work: str, figure: str, who: str, **values: float) -> list[Measure]:
    return [
        Measure(
            case=case, work=work, figure=figure, who=who, unit="", n=int(n[1:]), values=(value,)
        )
        for n, value in values.items()
    ]


EVERYTHING = [
    *line("usable", "create", "seconds", "operator", n1000=2.5, n10000=26.0),
    *line("usable", "create", "seconds", "ceiling", n1000=2.0, n10000=25.0),
    *line("usable", "create", "seconds", "kwokctl", n1000=14.0, n10000=250.0),
    *line("usable", "delete", "seconds", "operator", n1000=2.5, n10000=26.0),
    *line("memory", "with nodes", "memory", "operator", n1000=80, n10000=110, n50000=300),
    *line("memory", "with nodes", "memory", "kwok-controller", n1000=90, n10000=400),
    *line("shim", "with nodes", "memory", "shim", n1000=70, n10000=90),
    *line("shim", "with nodes", "memory", "kwok-controller", n1000=1, n10000=2),
    *line("calls", "create", "API calls", "operator", n100=107, n1000=1007),
    *line("calls", "delete", "API calls", "<b>&", n100=107, n1000=1007),
]


def texts(file: Path) -> list[str]:
    return [element.text or "" for element in ElementTree.parse(file).iter(f"{SVG}text")]


def test_there_is_a_plot_of_time_of_memory_and_of_calls(tmp_path: Path) -> None:
    written = plots.write(EVERYTHING, tmp_path)
    assert [path.name for path in written] == ["time.svg", "memory.svg", "calls.svg"]
    assert {"operator", "ceiling", "kwokctl", "1k", "10k"} <= set(texts(tmp_path / "time.svg"))
    assert {"operator", "shim", "kwok-controller"} <= set(texts(tmp_path / "memory.svg"))
    assert "<b>&" in texts(tmp_path / "calls.svg")


def test_only_what_was_measured_is_drawn(tmp_path: Path) -> None:
    written = plots.write(EVERYTHING[:2], tmp_path)
    assert [path.name for path in written] == ["time.svg"]
    assert plots.write([], tmp_path / "none") == []


def test_a_line_has_the_medians_in_the_order_of_the_sizes() -> None:
    measures = [
        Measure(case="c", work="w", figure="f", unit="", who="a", n=n, values=values)
        for n, values in ((10, (5.0, 1.0, 3.0)), (2, (2.0,)), (0, (9.0,)))
    ]
    assert plots.lines(measures, case="c", work="w", figure="f") == {"a": [(2, 2.0), (10, 3.0)]}
