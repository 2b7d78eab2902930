"""What must hold all the way, whatever is done to the operator: a ledger of every node event.

    asked(group, target) ──┐
    node events ───────────┴──> Ledger ──> violations

Never more than was asked for. At any instant a group has at most as many nodes that are not
terminating as the highest target since it was last at rest. A crash may leave IN_FLIGHT more for a
moment, and only once the target has been lowered and raised again: serials are recorded before
their nodes are created, so that the next operator counts a create that its predecessor left in
flight as an instance that is still to come; but a lower target takes such an instance back, the
create may land all the same, and a target that is raised again asks for new serials meanwhile. A
dead or frozen operator leaves no more than the calls it may have in flight. What a killed one has
sent ends within the API server's time-out of a request, and the next one needs longer than a create
to start, so that what several of them leave does not add up.

No name twice: a name belongs to one uid for ever, also where its group is deleted and made again.

Nothing here does I/O. Nodes of a group are told apart by the uid that their annotation names, so
that a group that was made again has a count of its own. What only looks like ours is in
foreign.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL, NODE_GROUP_UID_ANNOTATION
from kwok_operator.settings import DEFAULT_NODE_CONCURRENCY

IN_FLIGHT: Final = DEFAULT_NODE_CONCURRENCY
"""Creates that one operator has in flight at most."""

Owner = tuple[str, str]
"""A group's name and uid."""


@dataclass(slots=True)
class _Asked:
    """The targets of a group since it was last at rest."""

    last: int
    highest: int
    wavered: bool = False
    lowered: bool = False

    def ask(self, target: int) -> None:
        self.wavered |= self.lowered and target > self.last
        self.lowered |= target < self.last
        self.last, self.highest = target, max(self.highest, target)


class Ledger:
    """Who tells it of a new target does so before the API server learns of it."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.most: dict[str, int] = defaultdict(int)
        """The most nodes that each group had at a time."""
        self.slack = 0
        """Nodes that a group may have beyond, where answers lie: a 404 for a node that is there has
        the operator replace it, until it sees it.
        """
        self._asked: dict[str, _Asked] = {}
        self._crashes = 0
        self._uids: dict[str, str] = {}
        self._live: dict[Owner, set[str]] = defaultdict(set)
        self._owner: dict[str, Owner] = {}

    @property
    def names(self) -> int:
        """How many names were ever used."""
        return len(self._uids)

    def asked(self, group: str, target: int) -> None:
        """Somebody is about to ask for so many nodes."""
        known = self._asked.setdefault(group, _Asked(target, target))
        known.ask(target)

    def limited(self, group: str, most: int) -> None:
        """Somebody is about to allow no more than so many nodes."""
        known = self._asked.get(group)
        if known is not None:
            known.ask(min(known.last, most))

    def rest(self, group: str) -> None:
        """The group has exactly what was asked for last, and nothing is in flight."""
        asked = self._asked.get(group)
        if asked is not None:
            self._asked[group] = _Asked(asked.last, asked.last)

    def crashed(self) -> None:
        """An operator was killed or frozen, or its answers were lost."""
        self._crashes += 1

    def restored(self) -> None:
        """The cluster has forgotten names; an operator that dies then can't know them either."""
        self._uids.clear()
        self.crashed()

    def bound(self, group: str) -> int:
        """As many nodes as the group may have now."""
        asked = self._asked.get(group)
        if asked is None:
            return 0
        return asked.highest + max(self.slack, IN_FLIGHT if asked.wavered and self._crashes else 0)

    def count(self, group: str) -> int:
        """How many nodes there are under the group's name that are not terminating."""
        return sum(len(live) for (name, _), live in list(self._live.items()) if name == group)

    def names_of(self, group: str) -> list[str]:
        """Their names, in order."""
        owners = [owner for owner in list(self._live) if owner[0] == group]
        return sorted(name for owner in owners for name in set(self._live[owner]))

    def replace(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Exactly these nodes exist."""
        gone = set(self._owner)
        for node in nodes:
            self.seen(node)
            gone.discard(node["metadata"]["name"])
        for name in gone:
            self._drop(name)

    def seen(self, node: Mapping[str, Any]) -> None:
        """This node is there."""
        meta = node["metadata"]
        owner = _owner(meta)
        if owner is None:
            return
        name, uid = meta["name"], meta["uid"]
        first = self._uids.setdefault(name, uid)
        if first != uid:
            self.violations.append(f"the name {name} was used twice: by {first} and {uid}")
            self._uids[name] = uid
        if "deletionTimestamp" in meta:
            self._drop(name)
            return
        self._owner[name] = owner
        live = self._live[owner]
        if name not in live:
            live.add(name)
            self._check(owner, len(live))

    def gone(self, node: Mapping[str, Any]) -> None:
        """This node is no more."""
        self._drop(node["metadata"]["name"])

    def _check(self, owner: Owner, count: int) -> None:
        group = owner[0]
        self.most[group] = max(self.most[group], count)
        if count > self.bound(group):
            self.violations.append(f"{group} has {count} nodes, of at most {self.bound(group)}")

    def _drop(self, name: str) -> None:
        owner = self._owner.pop(name, None)
        if owner is not None:
            self._live[owner].discard(name)


class Census:
    """How many nodes there are at a time whose names begin so, whatever else they carry."""

    def __init__(self, prefix: str, *, but: Iterable[str]) -> None:
        self.most = self.made = self.lost = 0
        self._prefix = prefix
        self._but = frozenset(but)
        self._live: set[str] = set()

    @property
    def names(self) -> set[str]:
        """Of those that are there now."""
        return set(self._live)

    def listed(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Exactly these nodes exist."""
        gone = set(self._live)
        for node in nodes:
            self.seen("ADDED", node)
            gone.discard(node["metadata"]["name"])
        self._lose(gone)

    def seen(self, event: str, node: Mapping[str, Any]) -> None:
        meta = node["metadata"]
        name = meta["name"]
        if not name.startswith(self._prefix) or name in self._but:
            return
        if event == "DELETED" or "deletionTimestamp" in meta:
            self._lose(self._live & {name})
            return
        self.made += name not in self._live
        self._live.add(name)
        self.most = max(self.most, len(self._live))

    def _lose(self, names: set[str]) -> None:
        self.lost += len(names)
        self._live -= names


def _owner(meta: Mapping[str, Any]) -> Owner | None:
    """Whose node this is; None where nobody of ours claims to have made it."""
    group = (meta.get("labels") or {}).get(NODE_GROUP_LABEL)
    uid = (meta.get("annotations") or {}).get(NODE_GROUP_UID_ANNOTATION)
    owned = [o.get("uid") for o in meta.get("ownerReferences") or ()]
    return (group, uid) if group and uid and uid in owned else None
