"""What is run for ever:

- what fails is told and begun anew, later and later; after a good time it begins anew as well
- only what nobody expected is told with a traceback
"""

import pytest

from kwok_operator.controller.runtime.keeping import GOOD_AFTER, LONGEST_PAUSE, keep_running
from kwok_operator.errors import KwokOperatorError
from tests.fakes.reflecting import Naps


async def test_what_fails_is_begun_anew_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    naps, now = Naps(), [0.0]
    lives = [*[1.0] * 6, GOOD_AFTER, 0.0]

    async def part() -> None:
        now[0] += lives.pop(0)
        if len(lives) == 7:
            raise ValueError("a mistake")
        if lives:
            raise KwokOperatorError("away")

    await keep_running("the part", part, clock=lambda: now[0], sleep=naps, draw=lambda: 1.0)
    assert naps.slept == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_PAUSE, 0.5]
    first, *others = caplog.records
    assert first.message == "the part: retry_in=0.5s error=ValueError('a mistake')"
    assert first.exc_info
    assert {record.message[-10:] for record in others} == {"error=away"}
    assert not any(record.exc_info for record in others)
