"""The wire between the operator and the API server, in a thread of its own.

    operator ──> Cutter (bytes) ──> Proxy (requests) ──> API server

`kubeconfig` makes the operator's kubeconfig one that leads here. Faults last as long as a block;
outside of all blocks everything goes through.
"""

import asyncio
import json
import random
import ssl
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.chaos.cutter import Cutter
from tests.chaos.proxy import Fault, Proxy
from tests.e2e.kubectl import eventually
from tests.fakes.certificates import SERVER_NAME, Certificates, make_certificates

T = TypeVar("T")


class Wire:
    """Started by the constructor, ended by `close`."""

    def __init__(self, *, server: str, ca: Path, directory: Path, draw: random.Random) -> None:
        directory.mkdir()
        self._certificates: Certificates = make_certificates(directory)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self.proxy = Proxy(
            server=server,
            trust=ssl.create_default_context(cafile=str(ca)),
            tls=self._certificates.server_context(),
            draw=draw,
        )
        self.run(self.proxy.start())
        self.cutter = self.run(self._make_cutter())

    def kubeconfig(self, original: Path, changed: Path) -> Path:
        """Writes a kubeconfig with the same user whose cluster is here."""
        config = json.loads(original.read_text())
        config["clusters"][0]["cluster"] = {
            "server": f"https://127.0.0.1:{self.cutter.port}",
            "certificate-authority-data": self._certificates.data("ca.crt"),
            "tls-server-name": SERVER_NAME,
        }
        changed.write_text(json.dumps(config))
        return changed

    @contextmanager
    def suffering(self, *faults: Fault) -> Iterator[None]:
        """Requests meet these faults."""
        before, self.proxy.faults = self.proxy.faults, faults
        try:
            yield
        finally:
            self.proxy.faults = before

    def hits(self, least: int) -> None:
        """Cuts watches until so many more requests have met a fault."""
        before = self.proxy.hits.total()

        def more() -> int:
            self.cut_watches()
            return self.proxy.hits.total() - before

        eventually(
            more, lambda n: n >= least, describe=f"{least} requests meet a fault", interval=0.5
        )

    def cut(self) -> None:
        """All connections end with a reset."""
        self.run(self.cutter.cut())

    def cut_watches(self) -> int:
        """All watches end with a reset, and nothing else does."""
        return self.run(self.proxy.cut_watches())

    @contextmanager
    def unplugged(self) -> Iterator[None]:
        """Connections are refused."""
        self.run(self.cutter.unplug())
        try:
            yield
        finally:
            self.run(self.cutter.start())

    @contextmanager
    def stuck(self) -> Iterator[None]:
        """Connections are there, and nothing goes through."""
        self.run(self.cutter.block())
        try:
            yield
        finally:
            self.run(self.cutter.flow())

    def close(self) -> None:
        self.run(self.cutter.unplug())
        self.run(self.proxy.stop())
        self.run(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _make_cutter(self) -> Cutter:
        cutter = Cutter(to_port=self.proxy.port)
        await cutter.start()
        return cutter

    async def _end_tasks(self) -> None:
        tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.3)  # for TLS to say good-bye, which nobody can wait for

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of a coroutine, on the wire's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
