"""What tests of the reflector put around it: a sink, sleeps without time, a client by script."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kwok_operator.errors import ApiUnreachableError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import NODES as NODE_DECODER
from kwok_operator.kube.reflector import Reflector
from tests.fakes.apiserver import NODES, FakeApiServer

Start = Callable[..., Reflector[str]]


class Names:
    """A sink that knows which nodes there are, and counts what it was told."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.log: list[str] = []
        self.replaced = 0
        self.version = 0

    def replace(self, items: Sequence[str], resource_version: int) -> None:
        assert len(items) == len(set(items))
        self.names = set(items)
        self.version = resource_version
        self.replaced += 1

    def upsert(self, item: str) -> None:
        self.names.add(item)
        self.log.append(f"+{item}")

    def remove(self, item: str) -> None:
        self.names.discard(item)
        self.log.append(f"-{item}")


class Naps:
    """Sleeps that take no time, but the loop's turn."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


class Script:
    """A client whose watches do as they are told, on a clock of their own. Where a stream is None,
    the server can't be reached."""

    def __init__(self, *streams: Callable[["Script"], AsyncGenerator[bytes, None]] | None) -> None:
        self.now = 0.0
        self.look_seconds = 0.0
        self.streams = list(streams)
        self.lists = 0
        self.looks = 0
        self.version = 5
        self.done = asyncio.Event()

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str], **_: Any
    ) -> bytes:
        if params["limit"] == "1":
            self.looks += 1
            self.now += self.look_seconds
        else:
            self.lists += 1
        return b'{"metadata": {"resourceVersion": "%d"}, "items": []}' % self.version

    async def lines(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as KubeClient has it
        inactivity: float = 70.0,
        on_open: Callable[[], None] | None = None,
        gather_for: Callable[[], float] = lambda: 0.0,
    ) -> AsyncGenerator[bytes, None]:
        if not self.streams:
            self.done.set()
            await asyncio.sleep(3600)
        stream = self.streams.pop(0)
        if stream is None:
            raise ApiUnreachableError(server="s", cause="refused")
        if on_open is not None:
            on_open()
        async for line in stream(self):
            yield line


@asynccontextmanager
async def reflecting(*, server: FakeApiServer, sink: Names, naps: Naps) -> AsyncIterator[Start]:
    """Give a function that starts a reflector of nodes; all are stopped in the end."""
    tasks: list[asyncio.Task[None]] = []
    async with KubeClient(connection=server.connection()) as client:

        def start(**options: Any) -> Reflector[str]:
            options = {"client": client, "draw": lambda: 0.5, "sleep": naps, **options}
            reflector = Reflector(
                path=NODES, sink=sink, decoder=NODE_DECODER.then(lambda node: node.name), **options
            )
            tasks.append(asyncio.create_task(reflector.run()))
            return reflector

        yield start
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results), results
