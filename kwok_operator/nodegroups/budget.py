"""The limit on the nodes of all groups together (--max-total-nodes).

First come, first served: a group keeps the nodes that it was granted, and later groups wait for
room. So a typo in one group's target harms only groups that grow later.
"""

from collections.abc import Callable


class NodeBudget:
    """Shares `limit` nodes among groups. When a group gives up nodes, `freed(name)` is called for
    each group that wants more nodes."""

    def __init__(self, *, limit: int, freed: Callable[[str], None]) -> None:
        self.limit = limit
        self._freed = freed
        self._granted: dict[str, int] = {}
        self._waiting: set[str] = set()

    def room(self, name: str) -> int:
        """Returns how many nodes a group may have, including those that it has."""
        others = sum(granted for other, granted in self._granted.items() if other != name)
        return max(0, self.limit - others)

    @property
    def granted(self) -> int:
        """The number of nodes that all groups have, or are going to have."""
        return sum(self._granted.values())

    @property
    def waiting(self) -> int:
        """The number of groups that want more nodes than they may have."""
        return len(self._waiting)

    def grant(self, name: str, nodes: int, *, wants_more: bool) -> None:
        """Records how many nodes a group has or is going to have, and whether it wants more. If the
        number has fallen, calls `freed` for each other group that wants more."""
        before = self._granted.get(name, 0)
        self._granted[name] = nodes
        if wants_more:
            self._waiting.add(name)
        else:
            self._waiting.discard(name)
        if nodes < before:
            self._wake(but=name)

    def release(self, name: str) -> None:
        """Frees the nodes of a deleted group, and calls `freed` for each group that wants more."""
        self._waiting.discard(name)
        if self._granted.pop(name, 0):
            self._wake(but=name)

    def _wake(self, *, but: str) -> None:
        for name in self._waiting - {but}:
            self._freed(name)
