"""How far a rehearsal is, on a terminal and elsewhere."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.rehearsal.judge.recording import EventLine, RecordingHeader, WaitLine
from kwok_operator.rehearsal.progress import Report, RunProgress, Show, in_lines, screen
from kwok_operator.rehearsal.recorder import RunCourse
from kwok_operator.rehearsal.scenario.expectation import ScenarioCondition
from tests.fakes.rehearsed import gone, node, pod

EXPECT: list[Any] = [
    {"figure": "nodes.total", "atMost": 1, "when": "always"},
    {"wait": "kng/a --for=condition=Ready"},
    {"figure": "pods.running", "atLeast": 1},
]
HIDDEN, SHOWN = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def progress(tmp_path: Path) -> RunProgress:
    header = RecordingHeader(scenario="test", expect=tuple(EXPECT))
    course = RunCourse(tmp_path / "recording", header, [])
    for line in (
        node(1, "n-1", "\x1b[31ma"),
        node(2, "n-2", "\x1b[31ma", ready=False),
        node(2, "n-3", "b"),
        pod(3, "web-1", created=1, bound=2, running=3, phase="Running"),
        pod(3, "web-2", created=1),
        gone(4, "n-3"),
        WaitLine(5, 1, True, "condition met"),
    ):
        course.write(line)
    course.mark("scale", "web to 5")
    course.close()
    return course.progress()


def test_progress_is_what_the_lines_say(progress: RunProgress) -> None:
    assert (progress.ready, progress.nodes) == (1, 2)
    assert (progress.running, progress.pending) == (1, 1)
    assert progress.groups == {"\x1b[31ma": (1, 2)}
    assert progress.mark.startswith("scale web to 5")
    assert [(each.held, each.t) for each in progress.decided] == [(True, 5), (False, 2)]
    assert progress.expected == 3


def test_a_condition_counts_its_own_events(tmp_path: Path) -> None:
    late = ScenarioCondition.model_validate({"event": {"reason": "Late"}, "atLeast": 2})
    course = RunCourse(tmp_path / "recording", RecordingHeader(), [late])
    holds = []
    for reason in ("Other", "Late", "Other", "Late"):
        course.write(EventLine(1.0, reason=reason))
        holds.append(course.holds(late))
    course.close()
    assert holds == [False, False, False, True]


def on_terminal(play: Callable[[Report, Show], None], **environ: str) -> str:
    """What a terminal gets to see of it."""
    parent, child = pty.openpty()
    seen = list[bytes]()

    def read() -> None:
        try:
            while piece := os.read(parent, 65_536):
                seen.append(piece)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(child, "w") as stream:
            try:
                with screen(stream, lambda line: print(line, file=stream), environ=environ) as (
                    report,
                    show,
                    _,
                ):
                    play(report, show)
            except KeyboardInterrupt:
                pass
    finally:
        reader.join(60)
        os.close(parent)
    return b"".join(seen).decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def play(what: Callable[[Report, Show], None], **environ: str) -> str:
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        return on_terminal(what, **environ)

    return play


@pytest.mark.parametrize("how", ["ends", "interrupted", "never shown"])
def test_a_terminal_is_left_as_it_was(
    progress: RunProgress, terminal: Callable[..., str], how: str
) -> None:
    def play(tell: Report, show: Show) -> None:
        tell("creating cluster \x1b]0;x\x07")
        if how != "never shown":
            show(progress)
            show(progress)
        if how == "interrupted":
            raise KeyboardInterrupt

    seen = terminal(play, TERM="xterm-256color", COLUMNS="100")
    assert "creating cluster" in seen
    assert seen.count(HIDDEN) == seen.count(SHOWN)
    assert seen.rfind(HIDDEN) <= seen.rfind(SHOWN)
    assert "\x1b]" not in seen
    if how == "never shown":
        return
    text = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", seen)
    for part in (
        "1 running, 1 pending",
        "1 of 2 ready",
        "?[31ma: 1 of 2",
        "scale web to 5",
        "2 of 3 expectations",
    ):
        assert part in text
    assert "31mFAILED" in seen and "32mheld" in seen


@pytest.mark.parametrize(
    ("environ", "table"),
    [
        ({"TERM": "xterm", "NO_COLOR": "1"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_what_the_terminal_asks_for(
    progress: RunProgress, terminal: Callable[..., str], environ: Mapping[str, str], table: bool
) -> None:
    seen = terminal(lambda _, show: [show(progress) for _ in range(2)] and None, **environ)
    assert not re.search("\x1b\\[[0-9;]*3[0-9][0-9;]*m", seen)
    assert ("FAILED" in seen) == table
    assert ("\x1b" in seen) == table


def test_without_rich_there_are_lines(
    progress: RunProgress, terminal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    seen = terminal(lambda report, show: report("here"), TERM="xterm")
    assert seen.split() == ["here"]


def test_a_line_says_what_is_waited_for_and_how_long_at_most(progress: RunProgress) -> None:
    from dataclasses import replace

    waits = replace(progress, t=12.0, waits_for="quiet, 2 of 40 s", left=1_288.0)
    assert str(waits).endswith("1 pending; waits for quiet, 2 of 40 s; at most 1,288 s left")
    assert str(replace(progress, t=12.0)).endswith("1 pending")


def test_lines_come_now_and_then(progress: RunProgress) -> None:
    told = list[str]()
    show = in_lines(told.append)
    from dataclasses import replace

    for t in (0.5, 4.9, 5.0, 5.5, 9.9, 10.4):
        show(replace(progress, t=t))
    assert [line.split()[0] for line in told] == ["5", "10"]
    for t in (0.0, 3.0, 5.1):  # of another run
        show(replace(progress, t=t))
    assert [line.split()[0] for line in told] == ["5", "10", "5"]


def test_a_pipe_imports_nothing_of_rich() -> None:
    code = (
        "import os, sys\n"
        "from kwok_operator.rehearsal import runner\n"
        "from kwok_operator.rehearsal.progress import screen\n"
        "with screen(sys.stderr, print, environ={'TERM': 'xterm'}) as found: found[2]('x')\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'rich']\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.PIPE, timeout=60)
