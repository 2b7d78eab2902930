"""The sentences of two conditions of a group with spec.cloud: Provisioned and Outage.

    phases by serial                 --provisioned-->  Verdict
    spec.cloud.outage, pools in one  --outage-->       Verdict

A reason is a word for programs and for the table that kubectl prints. Counts in a message change
all the time; a caller that writes seldom looks at the status and the reason alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kwok_operator.core.cloud.states import Fault, Phase, State
from kwok_operator.core.cloud.stock import OUT_OF_STOCK, OUTAGE, POOL_EXHAUSTED, POOL_MISSING
from kwok_operator.core.words import few_names
from kwok_operator.errors import one_line

ALL_ARRIVED: Final = "AllArrived"
PROVISIONING: Final = "Provisioning"
"""The reason while nothing is wrong, and instances are under way."""
FAILURES: Final = (
    POOL_MISSING,
    OUT_OF_STOCK,
    POOL_EXHAUSTED,
    "CreationFailed",
    "NeverRegisters",
)
"""Reasons of instances that don't come by themselves, or not in time."""

_ORDER: Final = (*FAILURES, OUTAGE, PROVISIONING)
"""Of reasons that hold at once: by how many they hold for, the first would change all the time."""

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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a condition says; `message` is a sentence for people, and what to do about it."""

    status: bool
    reason: str
    message: str


def provisioned(phases: Mapping[int, Phase]) -> Verdict:
    """Whether every instance that was asked for has its Node; those that have one don't count.

    The reason is the first in order, whatever the counts, and Provisioning where there is no other.
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


def outage(own: bool, pools: Sequence[str]) -> Verdict:
    """Whether the group is out: by its own spec, or because of pools that it draws from, which are
    named."""
    effect = "no Node of the group is Ready, and no instance comes."
    if own:
        return Verdict(True, "SpecOutage", f"spec.cloud.outage is true: {effect}")
    if pools:
        where = f"spec.outage of KwokCapacityPool {few_names(pools)} is true"
        return Verdict(True, "PoolOutage", f"{where}: {effect}")
    return Verdict(False, "NoOutage", "Neither the group nor a pool that it draws from is out.")


def _reason(phase: Phase) -> str:
    known = phase.reason in FAILURES or phase.reason == OUTAGE
    return phase.reason if known else PROVISIONING


def _said(phases: Iterable[Phase], reason: str) -> str:
    """What the cloud says to most of those with this reason."""
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
