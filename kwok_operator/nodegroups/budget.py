"""The brake: how many nodes all groups together may have.

First come, first served: a group that was granted its nodes keeps them, who comes later waits for
room. A typo in one group's target then costs that group its size, and the cluster nothing.
"""

from collections.abc import Callable


class NodeBudget:
    """Shares `limit` nodes among groups. `freed(name)` is called for those that waited for room."""

    def __init__(self, *, limit: int, freed: Callable[[str], None]) -> None:
        self.limit = limit
        self._freed = freed
        self._granted: dict[str, int] = {}
        self._waiting: set[str] = set()

    def room(self, name: str) -> int:
        """Nodes that this group may have, with those it has."""
        others = sum(granted for other, granted in self._granted.items() if other != name)
        return max(0, self.limit - others)

    @property
    def granted(self) -> int:
        """Nodes that all groups have, or are going to have."""
        return sum(self._granted.values())

    @property
    def waiting(self) -> int:
        """Groups that have less room than they want."""
        return len(self._waiting)

    def grant(self, name: str, nodes: int, *, wants_more: bool) -> None:
        """Books what a group has or is going to have."""
        before = self._granted.get(name, 0)
        self._granted[name] = nodes
        if wants_more:
            self._waiting.add(name)
        else:
            self._waiting.discard(name)
        if nodes < before:
            self._wake(but=name)

    def release(self, name: str) -> None:
        """A group is gone."""
        self._waiting.discard(name)
        if self._granted.pop(name, 0):
            self._wake(but=name)

    def _wake(self, *, but: str) -> None:
        for name in self._waiting - {but}:
            self._freed(name)
