"""Batches of serials: instances that were requested together and don't all exist yet.

A *serial* is the number of an instance, at the end of its node's name. A batch is a range of
serials without those that will never exist. Which of them exist is not recorded, as the nodes show
it. So the record stays small, and shrinks as nodes are created. Sets of serials are text in status:
ranges ("3,10-19") if people can read those, else a bitmap ("0+eNpjZGBgAAA...").
"""

import base64
import binascii
import re
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any, Final

from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE

MAX_BATCHES = 50
"""More batches than this are merged in pairs, so that status stays small despite many small
requests."""

LONGEST_GAP: Final = 2_000
"""The longest gap between serials in one batch. If another group holds a large block of addresses,
2**47 serials are skipped, and a set of those would fit into no memory."""

_LONGEST_RANGE = 10_000_000
_RANGES = re.compile(r"([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?")


def runs(serials: Iterable[int]) -> list[tuple[int, int]]:
    """Returns first and last of each run of consecutive serials: `{5, 17, 18, 19}` -> `[(5, 5),
    (17, 19)]`."""
    found: list[tuple[int, int]] = []
    for serial in sorted(set(serials)):
        if found and serial == found[-1][1] + 1:
            found[-1] = (found[-1][0], serial)
        else:
            found.append((serial, serial))
    return found


def format_ranges(serials: Iterable[int]) -> str:
    """Writes serials as ranges: `{5, 17, 18, 19}` -> `"5,17-19"`."""
    return _as_text(runs(serials))


def _as_text(pairs: Iterable[tuple[int, int]]) -> str:
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs)


class Serials(Set[int]):
    """A set of serials that stores only the ranges or the bitmap of its text, not each serial. Set
    operations, such as `&`, return ordinary sets."""

    __slots__ = ()

    @classmethod
    def _from_iterable(cls, it: Iterable[int]) -> frozenset[int]:  # type: ignore[override]
        return frozenset(it)

    def __and__(self, other: Set[Any]) -> frozenset[int]:
        if len(self) <= len(other):
            return frozenset(serial for serial in self if serial in other)
        return frozenset(serial for serial in other if serial in self)

    __rand__ = __and__


class Ranges(Serials):
    """A set read from text such as "3,10-19". Raises ValueError for text that `format_ranges`
    never writes; a range is at most 10 million long."""

    __slots__ = ("_ends", "_size", "_starts")

    def __init__(self, text: str) -> None:
        if not _RANGES.fullmatch(text):
            raise ValueError(f"not ranges of serials: {text[:40]!r}")
        parts = (part.partition("-") for part in text.split(",") if part)
        pairs = [(int(first), int(last or first)) for first, _, last in parts]
        self._starts = [first for first, _ in pairs]
        self._ends = [last for _, last in pairs]
        apart = all(one[1] + 1 < other[0] for one, other in pairwise(pairs))
        if not apart or any(first > last for first, last in pairs) or _as_text(pairs) != text:
            raise ValueError(f"not ranges in order: {text[:40]!r}")
        if any(last - first > _LONGEST_RANGE for first, last in pairs):
            raise ValueError(f"a range longer than any batch: {text[:40]!r}")
        self._size = sum(self._ends) - sum(self._starts) + len(pairs)

    def __contains__(self, serial: object) -> bool:
        if not isinstance(serial, int):
            return False
        place = bisect_right(self._starts, serial) - 1
        return place >= 0 and serial <= self._ends[place]

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(map(range, self._starts, (end + 1 for end in self._ends)))

    def __len__(self) -> int:
        return self._size

    def is_within(self, first: int, last: int) -> bool:
        """Whether all serials are within `first..last`."""
        return not self._starts or (first <= self._starts[0] and self._ends[-1] <= last)


class _Bitmap(Serials):
    """A set of serials as a bitmap: those from `first` on whose bit is set."""

    __slots__ = ("_bits", "_first", "_size")

    def __init__(self, first: int, bits: bytes) -> None:
        self._first, self._bits = first, bits
        self._size = int.from_bytes(bits).bit_count()

    def __contains__(self, serial: object) -> bool:
        if not isinstance(serial, int):
            return False
        place, bit = divmod(serial - self._first, 8)
        return 0 <= place < len(self._bits) and self._bits[place] >> bit & 1 == 1

    def __iter__(self) -> Iterator[int]:
        for place, byte in enumerate(self._bits):
            start = self._first + 8 * place
            yield from (start + bit for bit in range(8) if byte >> bit & 1) if byte else ()

    def __len__(self) -> int:
        return self._size


@dataclass(frozen=True, slots=True)
class Batch:
    """Instances that were requested together: the serials `first..last` (both included) except
    `spent`, which will never exist (again). `requested_at` is RFC 3339."""

    first: int
    last: int
    requested_at: str
    spent: frozenset[int] = frozenset()

    def __contains__(self, serial: int) -> bool:
        return self.first <= serial <= self.last and serial not in self.spent

    def __iter__(self) -> Iterator[int]:
        serials = range(self.first, self.last + 1)
        # Usually `spent` is empty, and a pass iterates over tens of thousands of serials several
        # times.
        return (s for s in serials if s not in self.spent) if self.spent else iter(serials)


def _within(serials: Set[int], first: int, last: int) -> frozenset[int]:
    return frozenset(s for s in serials if first <= s <= last)


def compact(batches: Sequence[Batch], *, here: Set[int], gone: Set[int]) -> tuple[Batch, ...]:
    """Returns the batches without serials that need no record: those in `here` exist as nodes,
    those in `gone` never will (again).

    A batch then ends at its last missing instance. Serials in the middle that exist stay in its
    range, as their nodes show that they exist. More than MAX_BATCHES batches are merged.
    """
    kept: list[Batch] = []
    for batch in batches:
        missing = [s for s in batch if s not in here and s not in gone]
        if missing:
            first, last = missing[0], missing[-1]
            spent = _within(batch.spent | gone, first, last)
            kept.append(Batch(first, last, batch.requested_at, spent))
    while len(kept) > MAX_BATCHES:
        fewer = _merged_pairwise(kept)
        if len(fewer) == len(kept):
            break
        kept = fewer
    return tuple(kept)


def in_batches(serials: Iterable[int], *, requested_at: str) -> tuple[Batch, ...]:
    """Packs ascending serials into batches. A new batch begins after each gap that is longer than
    LONGEST_GAP."""
    parts: list[list[int]] = []
    for serial in serials:
        if not parts or serial - parts[-1][-1] > LONGEST_GAP:
            parts.append([])
        parts[-1].append(serial)
    return tuple(
        Batch(part[0], part[-1], requested_at, frozenset(range(part[0], part[-1])) - {*part})
        for part in parts
    )


def _merged_pairwise(batches: Sequence[Batch]) -> list[Batch]:
    merged: list[Batch] = []
    rest = deque(batches)
    while rest:
        older = rest.popleft()
        if rest and rest[0].first - older.last <= LONGEST_GAP:
            newer = rest.popleft()
            spent = older.spent | newer.spent | frozenset(range(older.last + 1, newer.first))
            older = Batch(older.first, newer.last, older.requested_at, spent)
        merged.append(older)
    return merged


MAX_RANGES_LENGTH: Final = 200
"""Ranges as text longer than this become a bitmap if that is shorter."""
_MAX_BITMAP_BYTES: Final = 2 * MAX_TARGET_SIZE // 8
_MAX_FIRST_DIGITS: Final = 18


def names_serial(text: str | None, serial: int) -> bool:
    """Whether a set of serials, as written in a spec, contains `serial`."""
    return text is not None and any(a <= serial <= b for a, b in ranges_of(text))


@lru_cache(maxsize=256)
def ranges_of(text: str) -> tuple[tuple[int, int], ...]:
    """Returns first and last of each range in serials as written in a spec ("3,10-19")."""
    parts = (part.partition("-") for part in text.split(","))
    return tuple((int(first), int(last or first)) for first, _, last in parts)


def pack(serials: Set[int]) -> str:
    """Writes serials as ranges while these are short enough for people to read, else as ranges or a
    bitmap, whichever is shorter."""
    ranges = format_ranges(serials)
    if len(ranges) <= MAX_RANGES_LENGTH:
        return ranges
    first = min(serials)
    size = (max(serials) - first) // 8 + 1
    if size >= _MAX_BITMAP_BYTES:
        return ranges
    bitmap = bytearray(size)
    for serial in serials:
        bitmap[(serial - first) // 8] |= 1 << (serial - first) % 8
    text = f"{first}+{deflated(bytes(bitmap))}"
    return min(ranges, text, key=len)


def unpack(text: str) -> Set[int]:
    """Reads what `pack` writes. Raises ValueError for anything else."""
    start, plus, packed = text.partition("+")
    if not plus:
        return Ranges(text)
    if not (start.isascii() and start.isdigit() and len(start) <= _MAX_FIRST_DIGITS):
        raise ValueError(f"not a first serial: {start[:40]!r}")
    return _Bitmap(int(start), inflated(packed, most=_MAX_BITMAP_BYTES))


def deflated(data: bytes) -> str:
    """Writes bytes as a short text, which `inflated` reads."""
    return base64.b64encode(zlib.compress(data, 9)).decode()


def inflated(text: str, *, most: int) -> bytes:
    """Returns the bytes from which `deflated` made `text`. Raises ValueError if they are more than
    `most`, or `deflated` can't have written the text."""
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text, validate=True), most)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError(f"not packed: {error}") from None
    if not inflate.eof:
        raise ValueError("not packed: it is cut off, or too long")
    return data
