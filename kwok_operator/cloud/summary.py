"""Summarizes a group's instances for status, conditions and cluster-autoscaler.

    phases by serial  --rows-->              at most 20 rows of state, reason, count, serials
                      --provisioned-->       Verdict of the condition Provisioned
    state, fault      --autoscaler_state-->  Creating or Running, and the error, if any
    outage, pools     --outage-->            Verdict of the condition Outage

The last row counts the instances that have no row of their own; the rows are only shown, never read
back. A reason is a word for programs and for the table that kubectl prints. Counts in a message
change often; a caller that wants to write seldom should compare only status and reason.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from pydantic.alias_generators import to_camel

from kwok_operator.cloud.api.cloudstatus import MAX_ROWS, InstanceCounts, InstanceRow
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.errors import one_line
from kwok_operator.formats.times import format_time
from kwok_operator.formats.words import few_names
from kwok_operator.nodegroups.api.status import (
    ALL_ARRIVED,
    FAILURES,
    OUTAGE,
    POOL_MISSING,
    PROVISIONING,
    UNIT_OUTAGE,
    Verdict,
)
from kwok_operator.nodegroups.serials import format_ranges

MAX_SERIALS_LENGTH: Final = 60
_MAX_MESSAGE_LENGTH = 160
_MORE = "..."
COUNTED: Final[Mapping[str, State]] = {
    key: State(f"{key[0].upper()}{key[1:]}") for key in map(to_camel, InstanceCounts.model_fields)
}
"""The states that are counted in status.cloud.counts, by their keys there."""


class InstanceState(StrEnum):
    """The states that cluster-autoscaler knows."""

    CREATING = "Creating"
    RUNNING = "Running"
    DELETING = "Deleting"


_AUTOSCALER_STATES: Final[Mapping[State, InstanceState]] = {
    State.WAITING: InstanceState.CREATING,
    State.CREATING: InstanceState.CREATING,
    # It reacts to errors of instances that are being created, and to no others.
    State.FAILED: InstanceState.CREATING,
    State.DUE: InstanceState.CREATING,
    State.STARTING: InstanceState.CREATING,
    State.DELETING: InstanceState.DELETING,
    State.GONE: InstanceState.DELETING,
}


def autoscaler_state(state: State, fault: Fault | None) -> tuple[InstanceState, Fault | None]:
    """Returns a state as cluster-autoscaler knows it, and the fault if the instance is FAILED."""
    return _AUTOSCALER_STATES.get(
        state, InstanceState.RUNNING
    ), fault if state is State.FAILED else None


def counts(phases: Iterable[Phase]) -> dict[State, int]:
    """Counts the instances in each state; states with none are left out."""
    return dict(Counter(phase.state for phase in phases))


def instance_counts(states: Mapping[State, int]) -> InstanceCounts:
    """Makes status.cloud.counts; DUE counts as creating."""
    found = {key: states.get(state, 0) for key, state in COUNTED.items()}
    found["creating"] += states.get(State.DUE, 0)
    return InstanceCounts.model_validate(found)


def failures_since(
    before: Mapping[int, Phase], now: Mapping[int, Phase], *, first_new: int
) -> Mapping[str, int]:
    """Counts the instances that failed since `before`, by class of error.

    An instance that is not in `before` counts only if its serial is new (`first_new` or later), so
    that a restart counts nothing twice.
    """
    failed: Counter[str] = Counter()
    for serial, phase in now.items():
        if phase.state is State.FAILED and phase.fault is not None:
            old = before.get(serial)
            news = serial >= first_new if old is None else old.since != phase.since
            failed[phase.fault.error_class.value] += news
    return +failed


def next_look(phases: Iterable[Phase]) -> int | None:
    """Returns when the first of the phases changes; None if none changes by itself."""
    return min((phase.until for phase in phases if phase.until is not None), default=None)


def rows(phases: Mapping[int, Phase]) -> tuple[InstanceRow, ...]:
    """Makes the rows of status.cloud.instances, those with the most instances first."""
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


_ORDER: Final = (*FAILURES, OUTAGE, PROVISIONING)
"""If several reasons hold, the first in this order is shown: by counts it would change often."""

_WITHOUT_NODE: Final = frozenset(
    {State.WAITING, State.CREATING, State.FAILED, State.UNREGISTERED, State.DUE}
)
_FAULT_CHARACTERS: Final = 160
_POOL_MISSING: Final = "Create the KwokCapacityPools that spec.cloud.capacityPools names."
_NOT_AGAIN: Final = (
    "What has failed is not tried again (retryAfter is Never) until it is taken back:"
    " by cluster-autoscaler, by a lower spec.targetSize or by its name."
)
_NEVER_REGISTERS: Final = (
    "What never registers stays so until it is taken back: by cluster-autoscaler, by a lower"
    " spec.targetSize or by its name."
)


def provisioned(phases: Mapping[int, Phase]) -> Verdict:
    """The condition Provisioned: whether every requested instance has its Node.

    If instances lack their Nodes for several reasons, the condition has the one that is first in
    `_ORDER`, however many instances have it.
    """
    missing = [phase for phase in phases.values() if phase.state in _WITHOUT_NODE]
    if not missing:
        return Verdict(True, ALL_ARRIVED, "Every instance that was asked for has its Node.")
    counts = Counter(_reason(phase) for phase in missing)
    ordered = sorted(counts, key=_ORDER.index)
    parts = ", ".join(f"{counts[reason]} {reason}{_said(missing, reason)}" for reason in ordered)
    have = "instance has" if len(missing) == 1 else "instances have"
    sentences = (f"{len(missing)} {have} no Node yet: {parts}.", *_remedies(counts, missing))
    return Verdict(False, ordered[0], " ".join(sentences))


def outage(own: bool, pools: Sequence[str], units: Sequence[str] = ()) -> Verdict:
    """Returns the condition Outage: True if the group's spec demands an outage (`own`), or if there
    are `pools` or `units`, the names of those that are out."""
    effect = "no Node of the group is Ready, and no instance comes."
    if own:
        return Verdict(True, "SpecOutage", f"spec.cloud.outage is true: {effect}")
    if pools:
        where = f"spec.outage of KwokCapacityPool {few_names(pools)} is true"
        return Verdict(True, "PoolOutage", f"{where}: {effect}")
    if units:
        where = f"spec.cloud.outageUnits has {few_names(units)}"
        return Verdict(True, UNIT_OUTAGE, f"{where}: no Node there is Ready, and none comes there.")
    return Verdict(False, "NoOutage", "Neither the group nor a pool that it draws from is out.")


def _reason(phase: Phase) -> str:
    known = phase.reason in FAILURES or phase.reason == OUTAGE
    return phase.reason if known else PROVISIONING


def _said(phases: Iterable[Phase], reason: str) -> str:
    """Returns the most frequent error of the instances with this reason, in parentheses; "" if no
    instance has one."""
    faults = Counter(phase.fault for phase in phases if phase.reason == reason and phase.fault)
    if not faults:
        return ""
    fault = min(faults, key=lambda fault: (-faults[fault], fault.code, fault.message))
    return f" ({_in_words(fault)})"


def _in_words(fault: Fault) -> str:
    return one_line(f"{fault.code}: {fault.message}", limit=_FAULT_CHARACTERS)


def _remedies(counts: Mapping[str, int], phases: Iterable[Phase]) -> Iterable[str]:
    if POOL_MISSING in counts:
        yield _POOL_MISSING
    if any(phase.state is State.FAILED and phase.until is None for phase in phases):
        yield _NOT_AGAIN
    if "NeverRegisters" in counts:
        yield _NEVER_REGISTERS
