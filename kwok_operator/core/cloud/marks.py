"""What a Node says of itself as an instance of a simulated cloud: labels and annotations of ours.

    labels, annotations  --mark_of-->  Mark, or None for a Node that nothing was decided about

Parsed once, when the Node is decoded. Whoever may write nodes can write anything here: what is no
record counts as not there.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kwok_operator import constants
from kwok_operator.core.cloud.life import Life
from kwok_operator.core.cloud.liferecord import load_life
from kwok_operator.core.cloud.times import parse_time

_KEYS = frozenset(
    {
        constants.LIFE_ANNOTATION,
        constants.SHOWN_ANNOTATION,
        constants.NOTICED_AT_ANNOTATION,
        constants.DELETE_AT_ANNOTATION,
    }
)
PERFECT: Final = Life(born=0)


@dataclass(frozen=True, slots=True)
class Mark:
    """`life` is None on a Node of a perfect cloud; times are milliseconds.

    `shown` is what of its life the Node was last brought to show, "" for nothing; `noticed_at` is
    when it was given notice where others decided on that; `delete_at` is when it goes, of a Node
    that is stuck in deletion. `hold` means that it carries the label that keeps it not Ready.
    """

    life: Life | None = None
    shown: str = ""
    noticed_at: int | None = None
    delete_at: int | None = None
    hold: bool = False

    def lived(self, *, capped: bool) -> Life:
        """The life that it leads: with notice as it was given, where `capped` lets some wait."""
        life = PERFECT if self.life is None else self.life
        if self.noticed_at is not None:
            return life.noticed(self.noticed_at)
        return life.noticed(None) if capped else life


def mark_of(*, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Mark | None:
    """None for most nodes, and at little cost."""
    hold = constants.HOLD_LABEL in labels
    if not hold and _KEYS.isdisjoint(annotations):
        return None
    return Mark(
        life=_life(annotations.get(constants.LIFE_ANNOTATION)),
        shown=annotations.get(constants.SHOWN_ANNOTATION, ""),
        noticed_at=_time(annotations.get(constants.NOTICED_AT_ANNOTATION)),
        delete_at=_time(annotations.get(constants.DELETE_AT_ANNOTATION)),
        hold=hold,
    )


def _life(text: str | None) -> Life | None:
    if text is not None:
        with suppress(ValueError):
            return load_life(text)
    return None


def _time(text: str | None) -> int | None:
    if text is not None:
        with suppress(ValueError, OverflowError):
            return parse_time(text)
    return None
