"""report.html in a real browser, a headless Chromium."""

import gzip
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from hack.chromium import ALIVE, BrowserPage, browser
from hack.reportpicture import PICTURE, main
from kwok_operator.rehearsal.judge.recording import (
    CallLine,
    EventLine,
    GroupLine,
    GroupState,
    MarkLine,
    RecordedLine,
)
from kwok_operator.rehearsal.judge.verdict import Judged, verdict_json
from kwok_operator.rehearsal.outputs import page_script
from kwok_operator.rehearsal.report.page import page
from tests.fakes.rehearsed import NAME, content, judge, node, pod, random_run, run
from tests.reportpages import HOSTILE

INK: Final = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let ink = 0;
  for (let at = 3; at < data.length; at += 4) ink += data[at] > 0;
  return ink;
}"""
"""How many pixels of a canvas are not empty."""
MOST_SECONDS: Final = 10.0
"""For 5,000 nodes, on a busy machine. On a quiet one it is below one."""


def growth(nodes: int, pods: int, *, name: str = "n") -> list[RecordedLine]:
    """One group grows, for pods of two workloads."""
    size, autoscaler = str(nodes), ("cluster-autoscaler", "up")
    lines: list[RecordedLine] = [
        GroupLine(0, "a", GroupState(price=0.5)),
        MarkLine(1, "scale", "web to many"),
        CallLine(3, "NodeGroupIncreaseSize", "a", size, "Internal", 1.0),
        CallLine(5, "NodeGroupIncreaseSize", "a", size, "OK", 1.0),
        GroupLine(5, "a", GroupState(target=nodes, states={"Creating": nodes}, price=0.5)),
        *(
            EventLine(6, "Normal", "TriggeredScaleUp", f"Pod/default/web-{n}", *autoscaler)
            for n in (1, pods - 1)
        ),
        CallLine(90, "NodeGroupDeleteNodes", "a", f"{name}-0", "OK", 1.0),
    ]
    for n in range(nodes):
        came = 10 + 20 * n / nodes
        lines += [
            node(came, f"{name}-{n}", ready=False, price=0.5, created=came, requested=5.0),
            node(came + 5, f"{name}-{n}", price=0.5, created=came, requested=5.0),
        ]
    for n in range(pods):
        told: dict[str, Any] = {"created": 2, "why": "0/1 nodes are available"}
        bound = 40 + n / pods
        lines.append(pod(2, f"web-{n}", **told))
        on: dict[str, Any] = {"node": f"{name}-{n % nodes}", "bound": bound, "running": bound + 1}
        lines.append(pod(bound + 1, f"web-{n}", phase="Running", **told, **on))
    return run(*lines)


def written(found: Judged, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(page(found, page_script()), encoding="utf-8", errors="replace")
    return path


def hostile() -> list[RecordedLine]:
    lines = growth(3, 9, name=HOSTILE)
    return [replace(line, group=HOSTILE) if isinstance(line, CallLine) else line for line in lines]


@pytest.mark.parametrize(
    "lines",
    [growth(9, 40), random_run(3), hostile(), run()],
    ids=["growth", "random", "hostile", "nothing"],
)
async def test_all_is_drawn_and_nothing_goes_wrong(
    tmp_path: Path, lines: list[RecordedLine]
) -> None:
    found = judge(lines, expect=[{"figure": "pods.running", "atLeast": 1}], scenario=HOSTILE)
    async with browser() as chromium, chromium.page(written(found, tmp_path)) as shown:
        await shown.until(ALIVE)
        await shown.painted()
        inks = await shown.look(f'[...document.querySelectorAll("canvas")].map({INK})')
        charts = await shown.look('document.querySelectorAll("#plots .uplot").length')
        assert charts == await shown.look('document.querySelectorAll("#plots figure").length') >= 3
        lanes = bool(found.story.lanes.nodes)
        assert len(inks) == charts + lanes and min(inks) > 500
        # Nodes are areas, pods are lines.
        assert not lanes or inks[0] > 2 * inks[1]
        assert not await shown.look('document.querySelectorAll("main script[src], img").length')
        await _same_figures(shown, verdict_json(found))
        assert shown.problems == []


async def _same_figures(shown: BrowserPage, verdict: dict[str, Any]) -> None:
    """Each figure's exact value is that of verdict.json, and it can be seen."""
    figures = await shown.look(
        'document.querySelector("details").open = true;'
        '[...document.querySelectorAll("data[data-figure]")].map((each) =>'
        " ({...each.dataset, value: each.value, text: each.innerText,"
        " seen: each.getClientRects().length > 0}))"
    )
    assert {each["figure"] for each in figures} == set(verdict["figures"])
    for each in figures:
        of = next((key for key in ("group", "nodepool", "workload") if key in each), "")
        parts = {"group": "groups", "nodepool": "nodePools", "workload": "workloads"}
        known = verdict[parts[of]][each[of]] if of else verdict["figures"]
        wanted = known.get(each["figure"])
        assert each["value"] == ("" if wanted is None else json.dumps(wanted)), each
        assert each["seen"] and each["text"]


PICTURES: Final = "[...document.querySelectorAll('main canvas')].map((each) => each.toDataURL())"
MARKED: Final = "[...document.querySelectorAll('tr.picked')].map((row) => row.innerText).join()"


def row(subject: str) -> str:
    """JavaScript for the first row that shows this."""
    wanted = json.dumps(subject)
    return (
        "[...document.querySelectorAll('tr[data-is]')].find("
        f"(row) => JSON.parse(row.dataset.is).includes({wanted}))"
    )


@pytest.mark.parametrize(
    ("picked", "also"),
    [
        ("mark:1", "web to many"),
        ("pod:default/web-39", "on n-3"),
        ("pod:default/web-39", "TriggeredScaleUp"),
        ("group:a", "asks for more"),
        ("workload:Deployment/default/web", "default/web-38"),
    ],
)
async def test_what_is_picked_is_marked_everywhere(tmp_path: Path, picked: str, also: str) -> None:
    found = judge(growth(9, 40))
    async with browser() as chromium, chromium.page(written(found, tmp_path)) as shown:
        await shown.until(ALIVE)
        await shown.painted()
        before = await shown.look(PICTURES)
        await shown.look(f"{row(picked)}.click()")
        await shown.painted()
        assert also in await shown.look(MARKED)
        current = "document.querySelectorAll('[aria-current=true]').length"
        assert await shown.look(f"{current} == document.querySelectorAll('tr.picked').length")
        after = await shown.look(PICTURES)
        assert all(one != other for one, other in zip(before, after, strict=True))
        await shown.key("Escape", 27)
        await shown.painted()
        assert not await shown.look(MARKED) and not await shown.look(current)
        await shown.look(f"{row(picked)}.focus()")
        await shown.key("Enter", 13)
        assert also in await shown.look(MARKED)
        assert shown.problems == []


async def test_the_mouse_reads_zooms_and_picks(tmp_path: Path) -> None:
    found = judge(growth(9, 40))
    async with browser() as chromium, chromium.page(written(found, tmp_path)) as shown:
        await shown.until(ALIVE)
        place = "(() => { const { left, top, width, height } = %s.getBoundingClientRect();"
        place += " return [left, top, width, height]; })()"
        over = "document.querySelector('.u-over')"
        await shown.look(f"{over}.scrollIntoView({{block: 'center'}})")
        left, top, width, height = await shown.look(place % over)
        await shown.mouse("mouseMoved", left + width * 0.9, top + height / 2)
        await shown.painted()
        values = "[...document.querySelectorAll('.u-legend')].map((each) => each.innerText)"
        at = await shown.look(values)
        assert len(at) >= 4 and all("1:30 min" in each or "1:29 min" in each for each in at)
        assert "9" in at[0] and "40" in at[1]
        whole = await shown.look(PICTURES)
        await shown.mouse("mouseMoved", left + width * 0.2, top + height / 2)
        await shown.mouse("mousePressed", left + width * 0.2, top + height / 2)
        await shown.mouse("mouseMoved", left + width * 0.5, top + height / 2)
        await shown.mouse("mouseReleased", left + width * 0.5, top + height / 2)
        await shown.painted()
        zoomed = await shown.look(PICTURES)
        assert all(one != other for one, other in zip(whole, zoomed, strict=True))
        assert not await shown.look(MARKED)  # to drag is not to pick
        await shown.look(f"{over}.dispatchEvent(new MouseEvent('dblclick'))")
        await shown.mouse("mouseMoved", left + width * 0.9, top + height / 2)
        await shown.painted()
        assert await shown.look(PICTURES) == whole
        await shown.mouse("mousePressed", left + width * 0.9, top + height * 0.8)
        await shown.mouse("mouseReleased", left + width * 0.9, top + height * 0.8)
        assert "deletes nodes" in await shown.look(MARKED)
        assert shown.problems == []


async def test_the_cursor_reads_what_was_at_its_time(tmp_path: Path) -> None:
    nodes = [node(90, f"n-{n}", created=90.0, price=36.0) for n in range(5)]
    lines = run(*nodes, pod(1, "web-1", created=1), GroupLine(0, "a", GroupState()))
    path = written(judge(lines), tmp_path)
    async with browser() as chromium, chromium.page(path) as shown:
        await shown.until(ALIVE)
        legend = "charts.map((each) => each.root.querySelector('.u-legend').textContent)"
        for t, values in (
            (60, ("a0", "0", "none", "0", "0")),
            (96, ("a5", "1", "0", "0.3", "180")),
        ):
            place = (
                f"charts[0].setCursor({{left: charts[0].valToPos({t}, 'x'), top: 10}}, true, true)"
            )
            at, *rest = await shown.look(f"{place}, {legend}")
            assert values[0] in at and ("1:00 min" if t == 60 else "1:3") in at
            for text, value in zip(rest, values[1:], strict=True):
                assert value in text, (t, text)
        assert shown.problems == []


async def test_the_lanes_say_what_a_node_had(tmp_path: Path) -> None:
    found = judge(growth(300, 40))
    async with browser() as chromium, chromium.page(written(found, tmp_path)) as shown:
        await shown.until(ALIVE)
        await shown.look("document.querySelector('.rows').focus()")
        said = "document.querySelector('.said').textContent"
        for _ in range(2):
            await shown.key("ArrowDown", 40)
        told = await shown.look(said)
        assert told.startswith("Node n-1, of a, requested at 5 s, came at 10.1 s, ready at 15.1 s")
        assert "1 pods: default/web-1" in told
        await shown.key("Enter", 13)
        assert "node n-1" in await shown.look("document.querySelector('#picked').textContent")
        await shown.look(f"{row('pod:default/web-39')}.click()")
        assert "Pod default/web-39, on n-39" in await shown.look(said)
        assert await shown.look("document.querySelector('.rows').scrollTop") > 0
        assert shown.problems == []


@pytest.mark.serial
async def test_five_thousand_nodes_open_soon(tmp_path: Path) -> None:
    found = judge(growth(5_000, 30_000))
    path = written(found, tmp_path)
    assert path.stat().st_size <= 500_000
    async with browser() as chromium:
        began = time.monotonic()
        async with chromium.page(path) as shown:
            await shown.until(ALIVE)
            await shown.painted()
            took = time.monotonic() - began
            print(
                f"5,000 nodes and 30,000 pods: {path.stat().st_size:,} bytes, open in {took:.2f} s"
            )
            assert took < MOST_SECONDS
            end = "document.querySelector('.rows').scrollTop = 1e9"
            before = await shown.look(PICTURES)
            await shown.look(end)
            await shown.painted()
            assert (await shown.look(PICTURES))[-1] != before[-1]
            assert shown.problems == []


@pytest.mark.parametrize(
    "lines",
    [growth(9, 40), random_run(3), hostile()],
    ids=["growth", "random", "hostile"],
)
async def test_nothing_is_wider_than_a_narrow_page(
    tmp_path: Path, lines: list[RecordedLine]
) -> None:
    found = judge(lines, expect=[{"figure": "pods.running", "atLeast": 1}], scenario=HOSTILE)
    path = written(found, tmp_path)
    async with browser() as chromium, chromium.page(path, width=400) as shown:
        await shown.until(ALIVE)
        await shown.look("document.querySelector('details').open = true")
        wide = "[...document.querySelectorAll('body *')].filter((each) => %s)"
        wide += ".map((each) => each.tagName + '.' + each.className)"
        assert await shown.look("document.documentElement.scrollWidth") == 400
        assert await shown.look(wide % "each.getBoundingClientRect().right > 400.5") == []
        inside = (
            "each.matches('td, th, dd, p, h1, .wide') && each.scrollWidth > each.clientWidth + 1"
        )
        assert await shown.look(wide % inside) == []


@pytest.mark.parametrize("width", [1200, 400])
async def test_keyboard_and_screen_reader_reach_the_tables(tmp_path: Path, width: int) -> None:
    path = written(judge(growth(2, 2)), tmp_path)
    async with browser() as chromium, chromium.page(path, width=width) as shown:
        await shown.until(ALIVE)
        await shown.look("document.querySelectorAll('details').forEach((each) => each.open = true)")
        tables = await shown.look("document.querySelectorAll('.wide > table').length")
        tree = (await shown.call("Accessibility.getFullAXTree"))["nodes"]
        roles = Counter(each["role"]["value"] for each in tree if not each["ignored"])
        cells = await shown.look("document.querySelectorAll('.wide td').length")
        assert tables > 5 and roles["region"] == roles["caption"] == tables
        # What is empty is not shown on a narrow page.
        charts = await shown.look("document.querySelectorAll('#plots figure').length")
        named = "document.querySelectorAll('#plots canvas[role=img][aria-label]').length"
        assert await shown.look(named) == charts
        stops = await shown.look("document.querySelectorAll('tr[tabindex=\"0\"]').length")
        assert 0 < stops <= tables
        assert roles["table"] >= tables and roles["cell"] + roles["rowheader"] > cells * 0.9 > 100
        reached = "[...document.querySelectorAll('.wide')].indexOf(document.activeElement)"
        seen = set()
        for _ in range(100):
            await shown.key("Tab", 9)
            seen.add(await shown.look(reached))
        assert seen >= set(range(tables))
        await shown.look(f"{row('pod:default/web-0')}.parentElement.rows[0].focus()")
        active = "document.activeElement.dataset.is"
        first = await shown.look(active)
        await shown.key("ArrowDown", 40)
        assert await shown.look(active) != first
        await shown.key("ArrowUp", 38)
        assert await shown.look(active) == first


async def test_without_a_script_there_are_pictures(tmp_path: Path) -> None:
    path = written(judge(growth(9, 40)), tmp_path)
    async with browser() as chromium, chromium.page(path, scripts=False) as shown:
        heights = "[...document.querySelectorAll('figure > svg')].map((each) => each.clientHeight)"
        found = await shown.look(heights)
        assert len(found) == 5 and min(found) > 99
        assert await shown.look("document.querySelectorAll('canvas').length") == 0


def test_the_picture_for_the_docs_is_drawn(tmp_path: Path) -> None:
    recording, path = tmp_path / NAME, tmp_path / "report.webp"
    recording.write_bytes(gzip.compress(content(growth(9, 40))))
    assert main([str(recording)], path=path) == 0
    assert path.read_bytes()[:4] == b"RIFF" and 20_000 < path.stat().st_size < 150_000
    assert PICTURE.stat().st_size < 150_000
