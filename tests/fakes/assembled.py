"""An operator as it is put together, with the API server of its cluster; nothing of it runs yet."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kwok_operator.kube.client import KubeClient
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator.assembly import Assembly
from kwok_operator.operator.process import Operator
from kwok_operator.settings import add_run_flags, run_settings
from tests.fakes.apiserver import FakeApiServer


@dataclass
class Assembled:
    server: FakeApiServer
    parts: Assembly
    operator: Operator


@asynccontextmanager
async def assembled() -> AsyncIterator[Assembled]:
    """Ends what was begun."""
    parser = argparse.ArgumentParser()
    add_run_flags(parser)
    settings = run_settings(parser.parse_args(["--listen=0"]), {"POD_NAMESPACE": "ops"})
    async with (
        FakeApiServer() as server,
        KubeClient(connection=server.connection()) as client,
    ):
        metrics = Metrics()
        parts = Assembly(settings, metrics, namespace="ops", groups=client, nodes=client)
        operator = Operator(
            settings, client.connection, metrics, client=client, parts=parts, elector=None
        )
        yield Assembled(server, parts, operator)
        await operator.stop()
