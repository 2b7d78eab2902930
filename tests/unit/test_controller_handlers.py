"""What kopf is told: how long it goes on asking an API server that fails, and what it leaves alone.

- it asks soon at first, at least every ten seconds later, and never gives up
- its end is not the program's
"""

from itertools import islice

import kopf

from kwok_operator.controller.runtime.handlers import FIRST_BACKOFFS, LAST_BACKOFF, make_settings


def backoffs(settings: kopf.OperatorSettings) -> list[float]:
    found = settings.networking.error_backoffs
    assert not isinstance(found, float | int)
    return list(islice(found, 10_000))


def test_kopf_never_gives_up_on_the_api_server() -> None:
    waits = backoffs(make_settings())
    assert len(waits) == 10_000
    assert tuple(waits[: len(FIRST_BACKOFFS)]) == FIRST_BACKOFFS
    assert set(waits[len(FIRST_BACKOFFS) :]) == {LAST_BACKOFF}


def test_each_request_begins_with_the_short_ones() -> None:
    settings = make_settings()
    assert backoffs(settings) == backoffs(settings)


def test_the_program_outlives_it() -> None:
    assert kopf.OperatorSettings().process.ultimate_exiting_timeout, "else there is nothing to say"
    assert make_settings().process.ultimate_exiting_timeout is None
