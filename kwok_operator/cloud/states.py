"""The states of an instance, from its request until it is gone.

    Waiting ──> Creating ──> Failed ──> Creating ──> ...
                   │
                   ├──> Unregistered                        no Node ever comes
                   └──> Due ══ Node ══> Starting ──> Initializing ──> Ready <──> NotReady
                                                          Interrupted ──> Gone

Names are for status, Events and metrics; `summary` has those that cluster-autoscaler knows.
"""

from dataclasses import dataclass
from enum import StrEnum

from kwok_operator.cloud.api.cloud import CloudError, ErrorClass


class State(StrEnum):
    """The state of an instance. Down to DUE it has no Node, from STARTING on it has one."""

    WAITING = "Waiting"
    """Undecided or held up, by an outage or by a pool that doesn't exist."""
    CREATING = "Creating"
    FAILED = "Failed"
    UNREGISTERED = "Unregistered"
    DUE = "Due"
    """The Node is to be created now."""
    STARTING = "Starting"
    """Never Ready so far, or not yet usable by pods, as any new Node: nodegroups/usable.py."""
    INITIALIZING = "Initializing"
    """Ready, but with startup taints left, or with resources missing."""
    READY = "Ready"
    NOT_READY = "NotReady"
    INTERRUPTED = "Interrupted"
    """Under notice: it goes soon."""
    DELETING = "Deleting"
    """Stuck in deletion."""
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Fault:
    """The error with which the cloud refuses an instance; `code` is never empty."""

    error_class: ErrorClass
    code: str
    message: str

    @classmethod
    def of(cls, error: CloudError, *, cause: str) -> "Fault":
        """Makes a Fault of an error in spec.cloud; without a message, `cause` is its message."""
        return cls(error.error_class, error.code or error.error_class.value, error.message or cause)


@dataclass(frozen=True, slots=True)
class Phase:
    """The state of an instance from `since` until before `until` (milliseconds; None: for good).

    Nothing changes before `until`, so that it need not be computed again earlier. `tries` is how
    often the creation of the instance has failed.
    """

    state: State
    since: int
    until: int | None
    reason: str
    fault: Fault | None = None
    tries: int = 0
