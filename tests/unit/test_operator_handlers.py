"""What kopf is told to do, and what becomes of the program where it ends."""

import asyncio
import gc
import logging
from collections.abc import Iterable
from contextlib import suppress
from unittest.mock import patch

import kopf
import pytest
from kopf._cogs.clients.errors import APIConflictError

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.operator import handlers
from tests.fakes.assembled import assembled


def test_kopf_asks_for_a_day() -> None:
    settings = kopf.OperatorSettings()
    handlers.configure(settings)
    waits = settings.networking.error_backoffs
    assert isinstance(waits, Iterable)
    first, *later = waits
    assert first == 1.0
    assert max(later) <= 10.0
    assert sum(later) > 86_400
    assert settings.process.ultimate_exiting_timeout is None, "the program outlives it"


def test_another_operators_finalizer_is_left_alone() -> None:
    settings = kopf.OperatorSettings()
    others = settings.persistence.finalizer
    handlers.configure(settings)
    assert settings.persistence.finalizer != others


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

    asyncio.get_running_loop().set_exception_handler(handlers.log_forgotten)
    gc.collect()  # other tests' tasks
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    task = asyncio.create_task(ask())
    await asyncio.wait({task})
    del task
    gc.collect()
    assert [r.levelno for r in caplog.records] == [level]
    assert (caplog.records[0].exc_info is None) == (level == logging.DEBUG)


async def test_what_overhears_that_it_is_cancelled_is_cancelled_again() -> None:
    cancelled: list[str] = []

    async def overhear() -> None:
        for _ in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append("another")

    async def clean_up() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await other
        cancelled.append("cleaned up")

    other = asyncio.create_task(overhear())
    cleanup = asyncio.create_task(clean_up(), name=handlers.CLEANUP_TASK)
    await asyncio.sleep(0)
    with patch.object(handlers, "CANCEL_AGAIN_AFTER", 0.01):
        await handlers._end({other, cleanup})
    assert cancelled == ["another"] * 3 + ["cleaned up"]
    assert not cleanup.cancelled()


async def test_logins_are_at_once_and_then_rare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(round(seconds))

    async with assembled() as world:
        monkeypatch.setattr(asyncio, "sleep", sleep)
        for _ in range(3):
            await handlers.log_in(memo=kopf.Memo(operator=world.operator))  # type: ignore[call-arg,misc]
    assert [max(0, wait) for wait in waits[:3]] == [
        0,
        handlers.LOGIN_PAUSE,
        2 * handlers.LOGIN_PAUSE,
    ]


async def test_credentials_that_cannot_be_loaded_leave_the_old_in_use(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def reload() -> None:
        raise ConnectionConfigError("the token file is empty")

    async with assembled() as world:
        monkeypatch.setattr(world.operator.connection, "reload", reload)
        answer = await handlers.log_in(memo=kopf.Memo(operator=world.operator))  # type: ignore[call-arg,misc]
        assert isinstance(answer, kopf.AiohttpSession)
        assert answer.server == world.server.url
    assert "the token file is empty" in caplog.text
