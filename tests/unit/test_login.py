"""How kopf logs in.

- at first, and after credentials that were good for a while, at once
- again and again where what it gets is refused: with pauses that double up to ten seconds
- credentials that can't be loaded are no failure: what is there stays in use
"""

import pytest

from kwok_operator.errors import ConnectionConfigError
from kwok_operator.kube.connection import ApiConnection, Endpoint
from kwok_operator.kube.session import open_session
from kwok_operator.operator.login import GOOD_AFTER, LONGEST_PAUSE, KopfLogin
from tests.fakes.recording import Clock

SERVER = "http://127.0.0.1:1"


def login_at(clock: Clock, *, connection: ApiConnection | None = None) -> KopfLogin:
    connection = connection or ApiConnection(Endpoint(server=SERVER))
    return KopfLogin(
        connection,
        open_session=lambda: open_session(connection),
        clock=clock,
        sleep=clock.sleep,
        draw=lambda: 1.0,
    )


async def take(login: KopfLogin, times: int = 1) -> str:
    server = ""
    for _ in range(times):
        server, session = await login()
        await session.close()
    return server


async def test_the_first_login_is_made_at_once(clock: Clock) -> None:
    assert await take(login_at(clock)) == SERVER
    assert clock.slept == []


async def test_logins_that_are_refused_become_rarer(clock: Clock) -> None:
    await take(login_at(clock), times=9)
    assert clock.slept == [0.5, 1.0, 2.0, 4.0, 8.0, *[LONGEST_PAUSE] * 3]


async def test_credentials_that_were_good_for_a_while_start_a_new_count(clock: Clock) -> None:
    login = login_at(clock)
    await take(login, times=4)
    clock.now += GOOD_AFTER
    await take(login, times=2)
    assert clock.slept == [0.5, 1.0, 2.0, 0.5]


async def test_credentials_that_cannot_be_loaded_leave_the_old_in_use(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def load() -> Endpoint:
        raise ConnectionConfigError("the token file is empty")

    connection = ApiConnection(Endpoint(server=SERVER), load=load, clock=clock)
    assert await take(login_at(clock, connection=connection)) == SERVER
    assert "the token file is empty" in caplog.text
