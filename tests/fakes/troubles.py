"""Faults of the API server that every write must survive."""

from tests.fakes.apiserver import FakeApiServer
from tests.fakes.operator import Json

TROUBLES: dict[str, Json] = {
    "429-storm": {"status": 429, "retry_after": 0},
    "429-without-retry-after": {"status": 429},
    "500": {"status": 500},
    "504-carried-out": {"status": 504, "carried_out": True},
    "cut": {},
    "answer-lost": {"carried_out": True},
}


def cause(server: FakeApiServer, trouble: str, *, verb: str, times: int = 12) -> None:
    fields = TROUBLES[trouble]
    happen = server.fail if "status" in fields else server.cut
    happen(times=times, verb=verb, **fields)
