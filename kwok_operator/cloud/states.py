"""The states of an instance, from when it is asked for until it is gone.

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
    """Down to Due there is no Node, from Starting on there is one."""

    WAITING = "Waiting"
    """Not decided, or held up: an outage, or a pool that isn't there."""
    CREATING = "Creating"
    FAILED = "Failed"
    UNREGISTERED = "Unregistered"
    DUE = "Due"
    """The Node is to be created now."""
    STARTING = "Starting"
    """Not Ready for the first time yet, or without pods as every new Node: nodegroups/usable.py."""
    INITIALIZING = "Initializing"
    """Ready, with startup taints, or without all of its resources."""
    READY = "Ready"
    NOT_READY = "NotReady"
    INTERRUPTED = "Interrupted"
    """Under notice."""
    DELETING = "Deleting"
    """To be deleted, and stuck in it."""
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class Fault:
    """What the cloud says; `code` is never empty."""

    error_class: ErrorClass
    code: str
    message: str

    @classmethod
    def of(cls, error: CloudError, *, cause: str) -> "Fault":
        """As configured; `cause` is the message where none is."""
        return cls(error.error_class, error.code or error.error_class.value, error.message or cause)


@dataclass(frozen=True, slots=True)
class Phase:
    """A state from `since` on, before `until` (milliseconds; None: for good).

    Looked at again at `until`, and not before: nothing changes in between. `tries` is how often
    the instance has failed to be created.
    """

    state: State
    since: int
    until: int | None
    reason: str
    fault: Fault | None = None
    tries: int = 0
