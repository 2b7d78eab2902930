"""The maximum size that users choose by --max-size, for groups whose maximum is unknown."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil


@dataclass(frozen=True, slots=True)
class MaxSize:
    """The maximum of groups whose own is unknown: a number, or a multiple of their size."""

    number: int | None = None
    times: Fraction = Fraction(1)

    def of(self, size: int) -> int:
        """Returns the maximum of a group of this size: at least the size, and at least 1."""
        least = max(size, 1)
        return max(least, ceil(least * self.times) if self.number is None else self.number)
