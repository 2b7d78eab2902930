"""What keeps the ledger: a watch of all nodes, beside the faults and all the way.

It asks the API server directly, and goes on where it was after a cut.
"""

from typing import Any

from tests.chaos.invariants import Ledger
from tests.e2e.api import NODES, Api
from tests.e2e.watching import Watch


class Watcher(Watch):
    """Feeds a ledger as long as the block."""

    def __init__(self, api: Api, ledger: Ledger) -> None:
        super().__init__(api, NODES, listed=ledger.replace, seen=self._told, metadata=True)
        self.ledger = ledger

    def _told(self, event: str, node: dict[str, Any]) -> None:
        if event == "DELETED":
            self.ledger.gone(node)
        else:
            self.ledger.seen(node)
