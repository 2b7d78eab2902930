"""The time of day as the API server has it."""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kwok_operator.kube.serverclock import AGREEING, ServerClock

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)


class Machine:
    """Its clocks, in seconds; `passed` is what has really passed."""

    def __init__(self, *, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self.passed = 0.0

    def clock(self) -> ServerClock:
        return ServerClock(
            monotonic=lambda: 1_000.0 + self.passed,
            wall=lambda: NOW.timestamp() + self.passed + self.ahead,
        )

    @property
    def date(self) -> str:
        return format_datetime(NOW + timedelta(seconds=self.passed), usegmt=True)


@pytest.mark.parametrize("ahead", [0.0, -20.0, 20.0])
def test_an_agreeing_clock_holds(ahead: float, caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(ahead=ahead)
    clock = machine.clock()
    for machine.passed in (0.0, 3.5, 86_400.0):
        clock.heard(machine.date)
        assert clock.now() == NOW + timedelta(seconds=machine.passed + ahead)
    assert not caplog.records


@pytest.mark.parametrize("ahead", [-72_000.0, 72_000.0])
def test_a_clock_that_is_wrong_is_replaced_and_its_jumps_change_nothing(
    ahead: float, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(ahead=ahead)
    clock = machine.clock()
    for machine.passed, machine.ahead in ((0.0, ahead), (10.0, 0.0), (20.0, 3_600.0)):
        clock.heard(machine.date)
        clock.heard("tomorrow")
        off = clock.now() - (NOW + timedelta(seconds=machine.passed))
        assert abs(off) <= timedelta(seconds=1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_one_wrong_server_of_several_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    clock = machine.clock()
    for second in range(60):
        machine.passed = float(second)
        wrong = timedelta(hours=20 if second % 3 else 0)
        clock.heard(format_datetime(NOW + timedelta(seconds=second) + wrong, usegmt=True))
        assert clock.now() == NOW + timedelta(seconds=second)
    assert not caplog.records


def test_a_server_whose_clock_is_set_is_believed_once_it_has_said_so_several_times() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.heard(machine.date)
    for second in range(AGREEING):
        assert clock.now() == NOW + timedelta(seconds=machine.passed)
        machine.passed = float(second + 1)
        later = NOW + timedelta(seconds=machine.passed, hours=20)
        clock.heard(format_datetime(later, usegmt=True))
    assert abs(clock.now() - later) <= timedelta(seconds=1)
