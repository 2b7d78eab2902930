"""Keeps which places of topology domains are taken. A place is a number that stands for a spot in a
data centre, such as a slot of a rack, with room for one node.

    annotation of a node  ──NodePlace.parse──>  OccupiedPlaces ──> numbers taken in a domain

A node keeps its place until it is gone, also while it is being deleted. topology/ decides what a
place means, and which node gets which.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple, Self

MOST_PLACES_OF_A_DOMAIN: Final = 10_000_000
"""The operator gives no place from here on; an annotation that says so is somebody else's."""
_PLACE: Final = re.compile(r"([^/\s]{1,63})/(0|[1-9][0-9]{0,6})")


class NodePlace(NamedTuple):
    """The place of a node in a topology domain; `number` counts from 0."""

    domain: str
    number: int

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Returns the place in an annotation; None if the operator can't have written it."""
        found = _PLACE.fullmatch(text) if text else None
        return None if found is None else cls(found[1], int(found[2]))

    def __str__(self) -> str:
        return f"{self.domain}/{self.number}"


@dataclass(frozen=True, slots=True)
class PlaceRanges:
    """Numbers of places in a domain, as ranges that ascend and don't overlap."""

    ranges: tuple[range, ...] = ()

    @classmethod
    def union(cls, ranges: Iterable[range]) -> Self:
        """Returns the places that are in any of these ranges."""
        merged = list[range]()
        for each in sorted(ranges, key=attrgetter("start")):
            if merged and each.start <= merged[-1].stop:
                each = range(merged[-1].start, max(merged.pop().stop, each.stop))
            merged.append(each)
        return cls(tuple(merged))

    def __contains__(self, place: int | None) -> bool:
        if place is None:
            return False
        before = bisect_right(self.ranges, place, key=attrgetter("start"))
        return before > 0 and place in self.ranges[before - 1]


NO_PLACES: Final = PlaceRanges()


class OccupiedPlaces:
    """The places of nodes, by the node's name. Two nodes may name the same place, as anybody can
    edit the annotation."""

    def __init__(self) -> None:
        self._standing: dict[str, NodePlace] = {}
        self._numbers: dict[str, Counter[int]] = {}

    def put(self, name: str, place: NodePlace | None) -> None:
        if self._standing.get(name) != place:
            self.remove(name)
            if place is not None:
                self._standing[name] = place
                self._numbers.setdefault(place.domain, Counter())[place.number] += 1

    def remove(self, name: str) -> None:
        place = self._standing.pop(name, None)
        if place is not None:
            numbers = self._numbers[place.domain]
            numbers[place.number] -= 1
            if not numbers[place.number]:
                del numbers[place.number]
            if not numbers:
                del self._numbers[place.domain]

    def of(self, domain: str) -> Set[int]:
        """Returns the numbers of the places in a domain that nodes take."""
        return self._numbers.get(domain, {}).keys()
