"""The shim's gRPC server as its settings want it: what it serves besides CloudProvider's calls."""

import argparse

import grpc
import grpc.aio
import pytest

from kwok_operator.shim.describe import HEALTH_CHECK, REFLECTIONS
from kwok_operator.shim.metrics import ShimMetrics
from kwok_operator.shim.run import server_of
from kwok_operator.shim.settings import Selector, add_shim_flags, shim_settings
from kwok_operator.shim.store import Store


@pytest.mark.parametrize(
    ("flags", "code"),
    [([], grpc.StatusCode.UNIMPLEMENTED), (["--grpc-reflection"], grpc.StatusCode.OK)],
)
async def test_reflection_is_served_where_it_is_asked_for(
    flags: list[str], code: grpc.StatusCode
) -> None:
    parser = argparse.ArgumentParser()
    add_shim_flags(parser)
    server = server_of(
        {},
        shim_settings(parser.parse_args(flags), {}),
        store=Store(selector=Selector(), provider_id_prefix="kwok:"),
        metrics=ShimMetrics(),
    )
    port = await server.listen_tcp("127.0.0.1", 0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for path in REFLECTIONS:
            # A stream of one message is on the wire what a unary call is.
            assert await channel.unary_unary(path, bytes, bytes)(b"", timeout=5).code() == code
        assert await channel.unary_unary(HEALTH_CHECK, bytes, bytes)(b"", timeout=5)
    await server.stop(0)
