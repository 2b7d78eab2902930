"""What is run for ever."""

import pytest

from kwok_operator.errors import KwokOperatorError, TooManyRequestsError
from kwok_operator.operator.restarting import GOOD_AFTER, LONGEST_PAUSE, keep_running
from tests.fakes.reflecting import Naps


async def test_what_fails_is_begun_anew_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    naps, now = Naps(), [0.0]
    lives = [*[1.0] * 6, GOOD_AFTER, 0.0, 0.0]

    async def part() -> None:
        now[0] += lives.pop(0)
        if len(lives) == 8:
            raise ValueError("a mistake")
        if len(lives) == 1:
            raise TooManyRequestsError("away", status=429, retry_after=7.0)
        if lives:
            raise KwokOperatorError("away")

    await keep_running("the part", part, clock=lambda: now[0], sleep=naps, draw=lambda: 1.0)
    assert naps.slept == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE, 0.5, 7.0]
    first, *others = caplog.records
    assert first.message == "the part: retry_in=0.5s error=ValueError('a mistake')"
    assert first.exc_info
    assert all("away" in record.message for record in others)
    assert not any(record.exc_info for record in others)
