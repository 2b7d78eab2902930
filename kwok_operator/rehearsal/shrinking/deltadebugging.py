"""Delta debugging: finds a small part of something that still has a property, by testing parts.

    items --minimized-->    which of them are needed
    numbers --lowered-->    how small each of them can be

Both functions are generators. They yield a part to try; the caller sends True if this part has the
property; they return the smallest part that has it. They don't know how a try is made. The caller
can stop at any time: the last part that was answered with True is the smallest so far. The whole
must have the property, and isn't tried. Zeller and Hildebrandt, "Simplifying and Isolating
Failure-Inducing Input" (2002), where the first is called ddmin.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)

Tries = Generator[T, bool, T]
"""Yields what to try, is sent the answer, and returns the smallest."""


def minimized(items: Sequence[T], *, singly: bool = False) -> Tries[tuple[T, ...]]:
    """Returns a part of the items that has the property, and loses it if any one item is left out.

    The empty tuple is tried first, as mostly no item is needed. With `singly`, for items that are
    probably all needed, only single items are left out: larger parts would be tried in vain.
    """
    left = tuple(items)
    if not left or (not singly and (yield ())):
        return ()
    pieces = len(left) if singly else 2
    while len(left) > 1:
        parts = _split(left, pieces)
        for part in parts if pieces == 2 else ():
            if (yield part):
                left, pieces = part, 2
                break
        else:
            # With two parts, the rest of one is the other, which was tried.
            for place in range(len(parts) if pieces > 2 else 0):
                rest = tuple(x for n, part in enumerate(parts) if n != place for x in part)
                if (yield rest):
                    left, pieces = rest, max(pieces - 1, 2)
                    break
            else:
                if pieces >= len(left):
                    break
                pieces = min(2 * pieces, len(left))
    return () if singly and len(left) == 1 and (yield ()) else left


def _split(items: tuple[T, ...], pieces: int) -> list[tuple[T, ...]]:
    """Splits the items into `pieces` parts of nearly the same size, none of them empty."""
    size, more = divmod(len(items), pieces)
    ends = [n * size + min(n, more) for n in range(pieces + 1)]
    return [items[a:b] for a, b in pairwise(ends)]


def lowered(
    numbers: Mapping[K, int], least: Mapping[K, int], *, singly: bool = False
) -> Tries[dict[K, int]]:
    """Returns the numbers, each between its `least` and its first value.

    It first tries to set all numbers to their least, then as many of them as possible. Then it
    lowers each remaining number alone, by bisection, until the next lower value is answered with
    False. Bisection assumes that a larger number has the property if a smaller one has it. With
    `singly`, for numbers that probably can't be lowered, the first try for each is the next lower
    value.
    """
    now = dict(numbers)
    large = tuple(key for key in numbers if numbers[key] > least[key])

    def only(kept: tuple[K, ...]) -> dict[K, int]:
        return {key: least[key] if key in large and key not in kept else now[key] for key in now}

    needed = large if singly else (yield from _translated(minimized(large), only))
    now = only(needed)
    for key in needed:
        # `low` is too low, and `high` is not.
        low, high = least[key], now[key]
        if singly:
            if not (yield {**now, key: high - 1}):
                continue
            low, high = low - 1, high - 1
        while high - low > 1:
            middle = (low + high) // 2
            if (yield {**now, key: middle}):
                high = middle
            else:
                low = middle
        now[key] = high
    return now


def _translated(tries: Tries[T], what: Callable[[T], U]) -> Generator[U, bool, T]:
    """Yields what `tries` yields, translated by `what`; sends the caller's answers to `tries`.
    Returns the result of `tries`, untranslated.
    """
    try:
        each = next(tries)
        while True:
            each = tries.send((yield what(each)))
    except StopIteration as end:
        result: T = end.value
        return result
