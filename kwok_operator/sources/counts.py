"""The smallest, largest and first number of nodes of a derived group, from its template's
annotations.

The annotations and their defaults are those of cluster-autoscaler's kwok provider.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.constants import (
    CA_DESIRED_COUNT_ANNOTATION,
    CA_MAX_COUNT_ANNOTATION,
    CA_MIN_COUNT_ANNOTATION,
)
from kwok_operator.errors import one_line
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE

COUNT_ANNOTATIONS: Final = (
    CA_MIN_COUNT_ANNOTATION,
    CA_MAX_COUNT_ANNOTATION,
    CA_DESIRED_COUNT_ANNOTATION,
)
DEFAULT_MIN: Final = 0
DEFAULT_MAX: Final = 200
_COUNT = re.compile(r"\+?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Counts:
    """The minimum, maximum and desired number of nodes of a derived group. `desired` is None if no
    node from which the group is derived has an annotation for it.
    """

    minimum: int = DEFAULT_MIN
    maximum: int = DEFAULT_MAX
    desired: int | None = None


def read_counts(
    places: Sequence[tuple[str, Mapping[str, Any]]],
) -> tuple[Counts | None, tuple[str, ...]]:
    """Returns the counts, or None and sentences on why there are none.

    `places` are (description, annotations) of nodes. For each count, the first node that has its
    annotation decides.
    """
    counts: dict[str, tuple[str, int]] = {}
    problems: list[str] = []
    for key in COUNT_ANNOTATIONS:
        given = [(who, a[key]) for who, a in places if a.get(key) is not None][:1]
        for who, text in given:
            if isinstance(text, str) and _COUNT.fullmatch(text):
                counts[key] = who, int(text)
            else:
                shown = one_line(repr(text), limit=100)
                problems.append(
                    f"{who}: annotation {key}: {shown} is not a number of nodes;"
                    ' write one, such as "10"'
                )
    _, low = counts.get(CA_MIN_COUNT_ANNOTATION, ("", DEFAULT_MIN))
    _, high = counts.get(CA_MAX_COUNT_ANNOTATION, ("", DEFAULT_MAX))
    _, desired = counts.get(CA_DESIRED_COUNT_ANNOTATION, ("", None))
    if not problems:
        problems += _conflicts(low, high, desired, counts)
    return (None if problems else Counts(low, high, desired)), tuple(problems)


def _conflicts(
    low: int, high: int, desired: int | None, counts: Mapping[str, tuple[str, int]]
) -> list[str]:
    def at(key: str) -> str:
        return f"{counts[key][0]}: annotation {key}"

    if high > MAX_TARGET_SIZE:
        return [f"{at(CA_MAX_COUNT_ANNOTATION)}: {high} is too many; the most is {MAX_TARGET_SIZE}"]
    if low > high:
        bounds = CA_MIN_COUNT_ANNOTATION, CA_MAX_COUNT_ANNOTATION
        key = next(each for each in bounds if each in counts)
        default = "" if CA_MAX_COUNT_ANNOTATION in counts else " (the default)"
        return [
            f"{at(key)}: the fewest nodes, {low}, are more than the most, {high}{default};"
            f" lower the first, or raise {CA_MAX_COUNT_ANNOTATION}"
        ]
    if desired is not None and not low <= desired <= high:
        return [
            f"{at(CA_DESIRED_COUNT_ANNOTATION)}: {desired} is not from {low} to {high};"
            " change it, or min-count and max-count"
        ]
    return []
