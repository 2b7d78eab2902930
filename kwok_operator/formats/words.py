"""Parts of sentences for people: lists of names, problems, differences.

They stay short, however many names there are and whatever these contain.
"""

import difflib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from kwok_operator.constants import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, NODE_POOL_LABEL, ZONE_LABEL
from kwok_operator.errors import one_line

MANY: Final = 20
FEW: Final = 5
_CHARACTERS: Final = 100
"""The most characters of each name, as some names are users' input."""


def names_in_words(names: Sequence[str], *, most: int = MANY) -> str:
    """Lists names, in the order given: `a, b and 40 more`."""
    first = ", ".join(one_line(name, limit=_CHARACTERS) for name in names[:most])
    more = len(names) - most
    return f"{first} and {more} more" if more > 0 else first


def counted(number: int, noun: str) -> str:
    """Returns a number of things: `1 pod`, `2,000 pods`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(value: object) -> str:
    """Quotes users' input for a sentence about it."""
    return one_line(repr(value), limit=_CHARACTERS)


def few_names(names: Collection[str]) -> str:
    """Lists names in sorted order, and fewer of them than `names_in_words`: for messages of
    conditions and Events, which kubectl shows in a table.
    """
    return names_in_words(sorted(names), most=FEW)


def nearest(word: str, known: Collection[str]) -> str | None:
    """Returns the known word closest to a mistyped one; None if none is close."""
    by_lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word[:_CHARACTERS].lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[matches[0]] if matches else None


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem of a provider config or a derived group: `reason` is one word for programs,
    `message` a sentence: field, value, remedy.

    `blocks` means that a part of the config could not be read or used, or a group not be written.
    Then sources/provider.py neither removes nor annotates the groups that are no longer derived.
    """

    reason: str
    message: str
    blocks: bool = True


MAX_PATHS: Final = 5
MAX_KEYS: Final = 15
_USEFUL: Final = (
    INSTANCE_TYPE_LABEL,
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    NODE_POOL_LABEL,
    "kops.k8s.io/instancegroup",
    ZONE_LABEL,
)
_USELESS: Final = frozenset({HOSTNAME_LABEL, "kubectl.kubernetes.io/last-applied-configuration"})


def differing_paths(one: Any, other: Any) -> list[str]:
    """Returns the first few paths at which two values differ, such as `status.capacity.cpu`."""
    return list(islice(_differences(one, other, ""), MAX_PATHS))


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted(one.keys() | other.keys()):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(one.get(key), other.get(key), below)
    elif one != other:
        yield path


def useful_keys(maps: Sequence[object]) -> list[str]:
    """Returns keys that a message can suggest for grouping nodes, from their labels or annotations:
    those that often name groups first, then those that most nodes have."""
    count: Counter[str] = Counter()
    for texts in maps:
        if isinstance(texts, Mapping):
            count.update(str(key) for key, value in texts.items() if value)
    order = {key: place for place, key in enumerate(_USEFUL)}
    keys = sorted(count.keys() - _USELESS, key=lambda k: (order.get(k, len(order)), -count[k], k))
    return keys[:MAX_KEYS]
