"""A wire that can be cut: bytes between the operator and a port, and nothing known about them.

Cut: every connection ends with a reset. Unplugged: nobody listens. Stuck: connections stay and
nothing goes through, as where a firewall has forgotten them.
"""

import asyncio
import contextlib

from tests.e2e.ports import free_port

CHUNK = 2**16


class Cutter:
    """Belongs to one event loop. `port` is where it listens, from `start` on, for ever the same:
    none that the system gives to anybody's connections while it is unplugged.
    """

    def __init__(self, *, to_port: int) -> None:
        self.port = free_port()
        self.connections = 0
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, "127.0.0.1", self.port, limit=CHUNK
            )

    async def unplug(self) -> None:
        """Nobody listens any more, and whoever was connected is cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def cut(self) -> None:
        for end in tuple(self._ends):
            end.transport.abort()

    async def block(self) -> None:
        """Nothing goes through until `flow`."""
        self._flows.clear()

    async def flow(self) -> None:
        self._flows.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, far_writer}
        self._ends |= ends
        try:
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            await self._flows.wait()
            writer.write(chunk)
            await writer.drain()
        with contextlib.suppress(OSError, NotImplementedError):
            writer.write_eof()
        if not writer.can_write_eof():
            writer.close()
