"""Instances in few words: for people in status, and for cluster-autoscaler.

    phases by serial  --rows-->  at most 20 rows of state, reason, count and serials
                      --told-->  Creating or Running, with the error it has met, if any

What is left out of the rows is counted in the last; nothing is worked out from them again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from kwok_operator.core.cloud.states import Fault, Phase, State
from kwok_operator.core.cloud.times import format_time
from kwok_operator.core.serials import format_ranges
from kwok_operator.models.cloudstatus import MAX_ROWS, InstanceCounts, InstanceRow

MAX_SERIALS_LENGTH: Final = 60
_MAX_MESSAGE_LENGTH = 160
_MORE = "..."


class InstanceState(StrEnum):
    """The states that cluster-autoscaler knows."""

    CREATING = "Creating"
    RUNNING = "Running"
    DELETING = "Deleting"


_TOLD: Final[Mapping[State, InstanceState]] = {
    State.WAITING: InstanceState.CREATING,
    State.CREATING: InstanceState.CREATING,
    # It reacts to errors of instances that are being created, and to no others.
    State.FAILED: InstanceState.CREATING,
    State.DUE: InstanceState.CREATING,
    State.STARTING: InstanceState.CREATING,
    State.DELETING: InstanceState.DELETING,
    State.GONE: InstanceState.DELETING,
}


def told(state: State, fault: Fault | None) -> tuple[InstanceState, Fault | None]:
    """What cluster-autoscaler is told; a fault only while the instance is failed."""
    return _TOLD.get(state, InstanceState.RUNNING), fault if state is State.FAILED else None


def counts(phases: Iterable[Phase]) -> dict[State, int]:
    """How many are in each state; states with none are left out."""
    return dict(Counter(phase.state for phase in phases))


def told_counts(states: Mapping[State, int]) -> InstanceCounts:
    """For status."""
    of = states.get
    return InstanceCounts(
        waiting=of(State.WAITING, 0),
        creating=of(State.CREATING, 0) + of(State.DUE, 0),
        failed=of(State.FAILED, 0),
        unregistered=of(State.UNREGISTERED, 0),
        starting=of(State.STARTING, 0),
        initializing=of(State.INITIALIZING, 0),
        ready=of(State.READY, 0),
        not_ready=of(State.NOT_READY, 0),
        interrupted=of(State.INTERRUPTED, 0),
        deleting=of(State.DELETING, 0),
    )


def failures_since(
    before: Mapping[int, Phase], now: Mapping[int, Phase], *, first_new: int
) -> Mapping[str, int]:
    """What has failed since `before`; what was not known then is counted only if it is new, so that
    a restart counts nothing twice.
    """
    failed: Counter[str] = Counter()
    for serial, phase in now.items():
        if phase.state is State.FAILED and phase.fault is not None:
            old = before.get(serial)
            news = serial >= first_new if old is None else old.since != phase.since
            failed[phase.fault.error_class.value] += news
    return +failed


def next_look(phases: Iterable[Phase]) -> int | None:
    """When the first of them changes; None where none does by itself."""
    return min((phase.until for phase in phases if phase.until is not None), default=None)


def rows(phases: Mapping[int, Phase]) -> tuple[InstanceRow, ...]:
    """Those with the most instances first."""
    groups: dict[tuple[State, str, Fault | None], list[int]] = {}
    for serial in sorted(phases):
        phase = phases[serial]
        groups.setdefault((phase.state, phase.reason, phase.fault), []).append(serial)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[1][0]))
    shown = ordered if len(ordered) <= MAX_ROWS else ordered[: MAX_ROWS - 1]
    found = [
        InstanceRow(
            state=state.value,
            reason=reason,
            count=len(serials),
            serials=_shortened(serials),
            since=_first_since(phases, serials),
            message=fault.message[:_MAX_MESSAGE_LENGTH] if fault else None,
        )
        for (state, reason, fault), serials in shown
    ]
    rest = [serial for _, serials in ordered[len(shown) :] for serial in serials]
    if rest:
        found.append(
            InstanceRow(
                state="Various",
                reason="Various",
                count=len(rest),
                serials=_shortened(rest),
                since=_first_since(phases, rest),
            )
        )
    return tuple(found)


def _first_since(phases: Mapping[int, Phase], serials: Iterable[int]) -> str:
    return format_time(min(phases[serial].since for serial in serials))


def _shortened(serials: Iterable[int]) -> str:
    text = format_ranges(serials)
    if len(text) <= MAX_SERIALS_LENGTH:
        return text
    whole, _, _ = text[: MAX_SERIALS_LENGTH - len(_MORE)].rpartition(",")
    return f"{whole},{_MORE}"
