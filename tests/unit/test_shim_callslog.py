"""What cluster-autoscaler asks for stands in a file, and a file that is full costs no call."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.shim.callslog import CallsLog
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb

INCREASE = pb.NodeGroupIncreaseSizeRequest(id="a", delta=3).SerializeToString()
DELETE = pb.NodeGroupDeleteNodesRequest(
    id="b", nodes=[pb.ExternalGrpcNode(name=f"n{i}") for i in range(60)]
).SerializeToString()


def refused(_: bytes) -> bytes:
    raise RpcError(StatusCode.OUT_OF_RANGE, "no more")


def by_default(_: bytes) -> bytes:
    raise RpcError(StatusCode.UNIMPLEMENTED, "as you have it")


async def late(_: bytes) -> bytes:
    await asyncio.sleep(0)
    return b"late"


async def refused_late(_: bytes) -> bytes:
    await asyncio.sleep(0)
    raise RpcError(StatusCode.UNAVAILABLE, "not now")


async def never(_: bytes) -> bytes:
    await asyncio.Event().wait()
    return b""


def answered(_: bytes) -> bytes:
    return b"ok"


async def asked(log: CallsLog, method: str, handler: Handler, request: bytes = b"") -> Any:
    """What the caller gets: bytes or a code."""
    (call,) = log.wrap({f"/p.Service/{method}": handler}).values()
    try:
        answer: bytes | Awaitable[bytes] = call(request)
        return answer if isinstance(answer, bytes) else await answer
    except RpcError as error:
        return error.code


def lines_of(path: Path) -> list[tuple[Any, ...]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(c["method"], c.get("group"), c.get("argument"), c["code"]) for c in found]


async def test_changes_failures_and_each_refresh_are_logged(
    tmp_path: Path,
) -> None:
    log = CallsLog(str(tmp_path / "calls"))
    assert await asked(log, "Refresh", answered) == b"ok"
    assert await asked(log, "NodeGroups", answered) == b"ok"
    assert await asked(log, "NodeGroupGetOptions", by_default) is StatusCode.UNIMPLEMENTED
    assert await asked(log, "NodeGroupForNode", refused) is StatusCode.OUT_OF_RANGE
    assert await asked(log, "NodeGroupIncreaseSize", late, INCREASE) == b"late"
    assert await asked(log, "NodeGroupIncreaseSize", refused_late, b"\xff") == (
        StatusCode.UNAVAILABLE
    )
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asked(log, "NodeGroupDeleteNodes", never, DELETE), 0.01)
    log.close()
    names = ", ".join(f"n{i}" for i in range(50)) + " and 10 more"
    assert lines_of(tmp_path / "calls") == [
        ("Refresh", None, None, "OK"),
        ("NodeGroupForNode", None, None, "OUT_OF_RANGE"),
        ("NodeGroupIncreaseSize", "a", 3, "OK"),
        ("NodeGroupIncreaseSize", None, None, "UNAVAILABLE"),
        ("NodeGroupDeleteNodes", "b", names, "CANCELLED"),
    ]


async def test_a_full_disk_costs_no_call(caplog: pytest.LogCaptureFixture) -> None:
    log = CallsLog("/dev/full")
    for _ in range(3):
        assert await asked(log, "Refresh", answered) == b"ok"
    log.close()
    assert len([r for r in caplog.records if "logged no more" in r.message]) == 1
