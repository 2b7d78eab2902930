"""Which requested instances have which places, before their nodes exist: `status.topology`.

    TopologyStatus  --read-->  {serial: place}  --dump-->  TopologyStatus

An instance keeps its recorded place; all other instances get the lowest free places (`fill`).
In a batch serials and places both ascend, so that two sets of numbers are enough to record it. If
that would take many batches, as when nodes were freed one by one from the last to the first, there
is one batch instead, which has the places in the order of their serials.
"""

import struct
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count, pairwise
from typing import Final

from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.nodegroups.places import MOST_PLACES_OF_A_DOMAIN, NO_PLACES, PlaceRanges
from kwok_operator.nodegroups.serials import deflated, inflated, pack, unpack
from kwok_operator.nodegroups.status import batches_of
from kwok_operator.topology.api import PlacedBatch, TopologyStatus

MOST_BATCHES: Final = 20
"""No more are written or read."""
_IN_ORDER: Final = "*"
_MOST_BYTES: Final = 4 * MAX_TARGET_SIZE


def fill(
    serials: Iterable[int], taken: Container[int], *, out: PlaceRanges = NO_PLACES
) -> dict[int, int]:
    """Gives each serial, in the given order, the lowest place that is neither taken nor in the
    ranges `out` (units in an outage); returns serial -> place."""
    return dict(zip(serials, _free(taken, out), strict=False))


def _free(taken: Container[int], out: PlaceRanges) -> Iterator[int]:
    first = 0
    for unit in out.ranges:
        yield from (place for place in range(first, unit.start) if place not in taken)
        first = unit.stop
    yield from (place for place in count(first) if place not in taken)


def dump(domain: str, placed: Mapping[int, int], *, next_place: int | None) -> TopologyStatus:
    """Returns the part of a group's status from which `read` reads these places, by serial."""
    return TopologyStatus(domain=domain, pending=_batches(placed), next_place=next_place)


def _batches(placed: Mapping[int, int]) -> tuple[PlacedBatch, ...]:
    batches, ordered = list[list[tuple[int, int]]](), sorted(placed.items())
    for serial, place in ordered:
        for batch in batches:
            if batch[-1][1] < place:
                batch.append((serial, place))
                break
        else:
            batches.append([(serial, place)])
            if len(batches) > MOST_BATCHES:
                places = _in_order([place for _, place in ordered])
                return (PlacedBatch(serials=pack(placed.keys()), places=places),)
    return tuple(
        PlacedBatch(serials=pack({s for s, _ in batch}), places=pack({p for _, p in batch}))
        for batch in batches
    )


def _in_order(places: Sequence[int]) -> str:
    """Encodes places in the order given, as the differences from each place to the next."""
    steps = [b - a for a, b in pairwise([0, *places])]
    return _IN_ORDER + deflated(struct.pack(f"<{len(steps)}i", *steps))


def _places(text: str) -> Collection[int]:
    """Returns the places of a batch, in ascending order of their serials. Raises ValueError for
    text that `dump` never writes."""
    if not text.startswith(_IN_ORDER):
        return unpack(text)
    data = inflated(text.removeprefix(_IN_ORDER), most=_MOST_BYTES)
    return [*accumulate(struct.unpack(f"<{len(data) // 4}i", data[: len(data) // 4 * 4]))]


def read(status: TopologyStatus | None, *, domain: str, most: int) -> dict[int, int]:
    """Returns the places of serials; what the operator can't have written is left out, as if
    nothing was recorded. `most` is how many instances can be recorded."""
    placed = dict[int, int]()
    if status is None or status.domain != domain:
        return placed
    for batch in status.pending[:MOST_BATCHES]:
        try:
            serials, places = unpack(batch.serials), _places(batch.places)
        except ValueError:
            continue
        if len(serials) == len(places) <= most - len(placed):
            placed.update(zip(serials, places, strict=True))
    taken = set[int]()
    sound = dict[int, int]()
    for serial, place in placed.items():
        if 0 <= place < MOST_PLACES_OF_A_DOMAIN and place not in taken:
            taken.add(place)
            sound[serial] = place
    return sound


def recorded_places(status: KwokNodeGroupStatus, *, domain: str | None = None) -> dict[int, int]:
    """Returns the places that a status records for instances without a node, by serial; with
    `domain`, only those in that domain."""
    if status.topology is None:
        return {}
    most = sum(batch.last - batch.first + 1 for batch in batches_of(status))
    return read(status.topology, domain=domain or status.topology.domain, most=most)
