"""The thread that keeps the ledger: it watches all nodes, beside the faults and all the way.

It asks the API server directly, lists where it has to, and goes on where it was after a cut, so
that only a real loss of history makes a gap (counted in `lists`).
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final

from tests.chaos.api import NODES, Api, Refused, Unreachable
from tests.chaos.invariants import Ledger

AGAIN_AFTER: Final = 0.3
SECONDS: Final = 3600


class Watcher:
    """Feeds a ledger until it is stopped."""

    def __init__(self, api: Api, ledger: Ledger) -> None:
        self.ledger = ledger
        self.lists = 0
        self.failure: BaseException | None = None
        self._api = api
        self._version = ""
        self._ending = threading.Event()
        self._synced = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._synced.wait(60), "the watcher has begun"
        assert self.failure is None, repr(self.failure)

    def forget(self) -> None:
        """Lists anew, after a watch that the caller has ended."""
        self._version = ""

    def stop(self, *, disturb: Callable[[], object]) -> None:
        """Ends it; `disturb` causes an event, for which it waits."""
        self._ending.set()
        with contextlib.suppress(Refused, Unreachable):
            disturb()
        self._thread.join(10)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    if not self._version:
                        self._list()
                    self._watch()
                except Refused as error:
                    if error.status == 410:
                        self._version = ""
                except Unreachable:
                    pass
                time.sleep(AGAIN_AFTER)
        except BaseException as error:
            self.failure = error
        finally:
            self._synced.set()
            self._api.close()

    def _list(self) -> None:
        nodes, version = self._api.list(NODES, metadata=True)
        self.lists += 1
        self.ledger.replace(nodes)
        self._version = version
        self._synced.set()

    def _watch(self) -> None:
        for event in self._api.watch(NODES, version=self._version, seconds=SECONDS):
            if self._ending.is_set():
                return
            node = event["object"]
            if event["type"] == "ERROR":
                raise Refused(node.get("code") or 500, str(node.get("message")))
            if event["type"] == "DELETED":
                self.ledger.gone(node)
            elif event["type"] != "BOOKMARK":
                self.ledger.seen(node)
            self._version = node["metadata"]["resourceVersion"]
