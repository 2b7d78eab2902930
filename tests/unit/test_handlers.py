"""What kopf is told: how long it goes on asking an API server that fails, and what it leaves alone.

- it asks soon at first, at least every ten seconds later, and never gives up
- its end is not the program's
- of its requests, those whose errors it leaves to nobody make no traceback, and all else does
"""

import asyncio
import gc
import logging
from itertools import islice

import kopf
import pytest
from kopf._cogs.clients.errors import APIConflictError

from kwok_operator.operator.handlers import (
    FIRST_BACKOFFS,
    LAST_BACKOFF,
    log_forgotten,
    make_settings,
)


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


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (APIConflictError("no", status=409, headers={}), logging.DEBUG),
        (ConnectionResetError(), logging.DEBUG),
        (KeyError("a defect"), logging.ERROR),
    ],
)
async def test_requests_that_kopf_forgets_make_no_traceback(
    error: Exception, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> None:
        raise error

    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_exception_handler(log_forgotten)
    task = asyncio.create_task(ask())
    await asyncio.wait({task})
    del task
    gc.collect()
    assert [r.levelno for r in caplog.records] == [level]
    assert (caplog.records[0].exc_info is None) == (level == logging.DEBUG)
