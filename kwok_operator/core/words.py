"""Lists of names that fit into a sentence, however many they are and whatever is in them."""

from collections.abc import Collection, Sequence
from typing import Final

from kwok_operator.errors import one_line

MANY: Final = 20
FEW: Final = 5
_CHARACTERS: Final = 100
"""Of each name: some are users' input."""


def names_in_words(names: Sequence[str], *, most: int = MANY) -> str:
    """`a, b and 40 more`, in the order given."""
    shown = ", ".join(one_line(name, limit=_CHARACTERS) for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def few_names(names: Collection[str]) -> str:
    """The same, sorted and shorter, for conditions and Events, which are read in a table."""
    return names_in_words(sorted(names), most=FEW)
