"""The session that kopf gets:

- it logs in, and each exchange is observed: what, how it ended, and how long it took
- a watch that is begun anew is told, the first one isn't
"""

import aiohttp
import pytest

from kwok_operator.kube.session import open_session
from tests.fakes.apiserver import NODES, FakeApiServer


async def test_what_is_asked_is_observed() -> None:
    observed: list[tuple[str, str, int]] = []
    restarted: list[tuple[str, str]] = []
    async with FakeApiServer() as server:
        connection = server.connection()
        async with open_session(
            connection,
            observe=lambda method, path, code, _: observed.append((method, path, code)),
            on_restart=lambda path, cause: restarted.append((path, cause)),
        ) as session:
            for query in ("", "?watch=true", "?watch=true"):
                async with session.get(f"{connection.server}{NODES}{query}") as answer:
                    assert answer.status == 200
            assert restarted == [(NODES, "closed")]
            server.cut()
            with pytest.raises(aiohttp.ClientError):
                await session.post(f"{connection.server}{NODES}", json={})
    watches = [("WATCH", NODES, 200)] * 2
    assert observed == [("GET", NODES, 200), *watches, ("POST", NODES, 0)]
