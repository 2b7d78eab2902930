"""Which unit, such as a rack, an instance of a simulated cloud stands in.

layout of the group's topology + places of instances  --Units.number-->  number of the unit
units that are out (`cloud.outageUnits`) + a place    --Outage.began-->  since when it is out
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.formats.untyped import as_map, value_at
from kwok_operator.nodegroups.places import NodePlace, PlaceRanges
from kwok_operator.topology.layout import Layout


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of a whole group; or, if `places` is set, only of these places (numbers of slots)
    in the topology's `domain`. `since` is in milliseconds, None for no outage."""

    since: int | None = None
    places: PlaceRanges | None = None
    domain: str = ""

    @classmethod
    def of_units(cls, since: int, cloud: Cloud, layout: Layout) -> Self:
        """Returns the outage of the units that are out by `cloud.outageUnits`."""
        return cls(since, layout.units(cloud.outage_units), layout.domain)

    def began(self, place: int | None) -> int | None:
        """Returns since when an instance in this place (a number) is in the outage; None if it
        isn't."""
        return self.since if self.places is None or place in self.places else None


NO_OUTAGE: Final = Outage()


@dataclass(frozen=True, slots=True)
class Units:
    """Where a group's instances stand: their places by serial, and the `layout`, which divides
    places into units such as racks."""

    layout: Layout | None = None
    places: Mapping[int, int] = field(default_factory=dict)
    _sizes: dict[str, int | None] = field(default_factory=dict, compare=False, repr=False)
    """How many places a unit has, by its label: looked up once, not for each instance."""

    @classmethod
    def of(cls, node: Mapping[str, Any] | None, places: Mapping[int, int]) -> "Units":
        """Makes the Units of a group: racks and the like. `node`, to which its template resolved,
        has the layout in an annotation; `places` are those of the instances, by serial."""
        return cls(Layout.read(as_map(value_at(node, "metadata", "annotations"))), places)

    def of_nodes(self, places: Iterable[tuple[int, NodePlace | None]]) -> Self:
        """Returns a copy whose `places`, by serial, are those of these nodes."""
        return replace(self, places={s: place.number for s, place in places if place is not None})

    def number(self, cloud: Cloud, serial: int) -> int | None:
        """Returns the number of the unit (such as a rack) where an instance stands, counted from 0
        in the whole domain. None if the cloud doesn't use units, or the instance has no place."""
        place = self.places.get(serial)
        if place is None or cloud.unit is None or self.layout is None:
            return None
        if cloud.unit not in self._sizes:
            self._sizes[cloud.unit] = self.layout.size(cloud.unit)
        size = self._sizes[cloud.unit]
        return None if size is None else place // size

    def companions(
        self, cloud: Cloud, serials: Sequence[int], *, among: Collection[int]
    ) -> list[int]:
        """Returns those serials in `among` whose instances stand in the same unit (such as a rack)
        as one of the `serials`, without the `serials` themselves."""
        if cloud.unit is None:
            return []
        numbers, known = {self.number(cloud, serial) for serial in serials}, frozenset(serials)
        numbers.discard(None)
        others = (serial for serial in sorted(among) if serial not in known)
        return [serial for serial in others if self.number(cloud, serial) in numbers]

    def whole(self, cloud: Cloud, serials: Sequence[int]) -> list[list[int]]:
        """Splits serials into lists whose instances come together or not at all (the instances of
        one unit), in the order of their first serials."""
        if cloud.unit is None:
            return [[serial] for serial in serials]
        found = dict[object, list[int]]()
        for serial in serials:
            number = self.number(cloud, serial)
            found.setdefault((serial,) if number is None else number, []).append(serial)
        return list(found.values())


ALONE: Final = Units()
"""Each instance is by itself."""
