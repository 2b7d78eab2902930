"""Names the objects that a failed expectation is about: pending pods, the longest waits, the last
evictions with the budgets that they broke.

The objects are those of the ledger when the expectation is judged. The ledger keeps only the last
few of past events.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.formats.words import FEW, few_names
from kwok_operator.rehearsal.judge.figures import (
    NODE_CLAIM_LEVELS,
    NODE_LEVELS,
    FigureReading,
    Place,
    Tally,
    in_words,
)
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.measures import Waits
from kwok_operator.rehearsal.scenario.expectation import Compared

_MOST_TEXT: Final = 400
_INSTEAD: Final = {"running": "pending", "succeeded": "pending", "ready": "notReady"}
"""The level of objects that are missing at another level."""
_IN_WORDS: Final = {"notReady": "not ready", "underWay": "under way", "total": "there"}


def objects_of(
    ledger: ClusterLedger,
    each: Compared,
    tally: Tally,
    read: FigureReading,
    *,
    events: Sequence[str] = (),
    others: Sequence[str] = (),
) -> str:
    """Returns which objects are the reason that a figure is outside its bounds, as a clause such as
    `pending: default/a and 3 more`; empty if none can be named. `events` are the last counted
    Events; `others` are Events that differ from the expected ones only in their message.
    """
    figure, value = each.measured, read.value or 0.0
    above, below = _beyond(each, value)
    if figure.waits is not None and (above or read.incomplete):
        nowhere = tally.wide.pending if tally.wide else Waits()
        return _of_waits(each, figure.waits(tally), nowhere)
    if figure.counts:
        last = list(events) or [
            what for name in figure.counts for what in reversed(tally.last[name])
        ]
        if below and others:
            return _few("instead", others, len(others))
        return _few("the last", last, round(value)) if above else ""
    kind, _, rest = figure.name.partition(".")
    level = "total" if rest == "final" else rest.removesuffix(".final")
    if below:
        level = _INSTEAD.get(level, "")
    elif not above or figure.lower_is_better is False:
        return ""
    names = _at_level(ledger, tally, kind, level)
    return f"{_IN_WORDS.get(level, level)}: {few_names(names)}" if names else ""


def _beyond(each: Compared, value: float) -> tuple[bool, bool]:
    """Returns whether a value is above what the bounds allow, and whether it is below."""
    most, least = (each.equals if b is None else b for b in (each.at_most, each.at_least))
    return most is not None and value > most, least is not None and value < least


def _of_waits(each: Compared, waits: Waits, nowhere: Waits) -> str:
    """Names pods that still wait, pods whose wait never ends, and pods that waited too long.
    `nowhere` has the waits of pods without a node, which may yet get one of the scope's nodes.
    """
    long = [
        f"{name} ({in_words(seconds, 's')})"
        for seconds, name in waits.longest
        if _beyond(each, seconds)[0]
    ]
    still = few_names({*waits.open, *nowhere.open})
    parts = (
        f"still wait: {still}" if still else "",
        _few("never end", [*waits.given_up, *nowhere.given_up], waits.never + nowhere.never),
        _few("the longest", long, len(long)),
    )
    return "; ".join(filter(None, parts))


def _few(label: str, names: Sequence[str], number: int) -> str:
    """Lists a few of the names; `number` is how many there are."""
    shown = list(dict.fromkeys(names))[:FEW]
    more = number - len(shown)
    text = ", ".join(one_line(name, limit=_MOST_TEXT) for name in shown)
    return f"{label}: {text}{f' and {more:,} more' if more > 0 else ''}" if shown else ""


def _at_level(ledger: ClusterLedger, tally: Tally, kind: str, level: str) -> list[str]:
    if kind == "pods":
        pods = ledger.pods.live.items()
        return [name for name, pod in pods if pod.level == level and tally in pod.tallies]
    kinds: dict[str, tuple[Any, Any]] = {
        "nodes": (NODE_LEVELS, ledger.nodes),
        "nodeClaims": (NODE_CLAIM_LEVELS, ledger.claims.live),
    }
    levels, there = kinds.get(kind, ({}, {}))
    counts: Callable[[Any], bool] | None = levels.get(level)
    return [
        name
        for name, each in there.items()
        if counts is not None and counts(each)
        if tally in ledger.tallies(Place(group=each.group, zone=each.zone, node_pool=each.pool))
    ]
