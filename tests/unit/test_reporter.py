"""What is said while it takes long."""

import io

import pytest

from kwok_operator.reporter import Reporter, elapsed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_every_few_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    reporter = Reporter(stream, clock=clock)
    for second in range(12):
        clock.now = 100 + second
        reporter.update(f"after {second}s")
    reporter.say("done")
    assert stream.getvalue() == "after 5s\nafter 10s\ndone\n"


def test_one_line_on_a_terminal() -> None:
    stream, clock = Terminal(), Clock()
    reporter = Reporter(stream, clock=clock)
    for second in (1, 2):
        clock.now = 100 + second
        reporter.update(f"after {second}s")
    reporter.say("done")
    reporter.say("more")
    assert stream.getvalue() == "\r\x1b[Kafter 1s\r\x1b[Kafter 2s\r\x1b[Kdone\nmore\n"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59.9, "59s"), (187, "3m07s")])
def test_durations(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text
