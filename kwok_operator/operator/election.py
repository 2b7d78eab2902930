"""Decides which of several replicas leads: what a replica concludes from a Lease, and what it may
do.

    Lease as read ──see──> Candidate ──> wait: may it be taken?  claim: what to write then
    answer to a write ──won──┘      └──> leads_until: when our own lead ends

The rules are those of client-go's leader election (k8s.io/client-go/tools/leaderelection). Clocks
of two machines are never compared: the times in a Lease are for people. Another replica's Lease is
valid for its duration from when a change of it was last *seen* here; our own from when the last
renewal that was answered was *sent*. The API server stores a renewal between its sending and its
answer. So if a leader stops `renew_deadline` after it sent the last renewal, and that is shorter
than the duration, it has stopped before another replica takes the Lease, however late answers come,
whatever the clocks show.

Times are seconds of the replica's own clock, which may start anywhere and never goes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

API_VERSION = "coordination.k8s.io/v1"
RELEASED_FOR = 1
"""The duration in seconds of a released Lease. The field is required, although a Lease without a
holder is free at once."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The times of an election in seconds: retry_period < renew_deadline < lease_duration."""

    lease_duration: int
    renew_deadline: float
    retry_period: float


@dataclass(frozen=True, slots=True)
class Lease:
    """A Lease as read. Only `spec` matters for the election; others may write metadata."""

    spec: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Lease":
        return cls(body.get("spec") or {}, body.get("metadata") or {})

    @property
    def holder(self) -> str:
        """The identity of the replica that holds the Lease; empty if none does."""
        return str(self.spec.get("holderIdentity") or "")


class Candidate:
    """One replica in an election. Each run has its own identity, even runs of the same pod."""

    def __init__(self, identity: str, terms: LeaseTerms) -> None:
        self.identity = identity
        self.leads_until = float("-inf")
        self._terms = terms
        self._seen: Lease | None = None
        self._changed_at = float("-inf")
        self._exists = False

    @property
    def holder(self) -> str:
        """The holder of the Lease when it was last seen; "" if nobody held it."""
        return self._seen.holder if self._seen is not None else ""

    def see(self, lease: Lease | None, *, now: float) -> None:
        """Notes the Lease as just read; `lease` is None if it doesn't exist.

        A Lease that was deleted does not count as released, as its holder may not know yet.
        """
        self._exists = lease is not None
        if lease is None:
            return
        if self._seen is None or lease.spec != self._seen.spec:
            self._changed_at = now
        self._seen = lease

    def wait(self, now: float) -> float:
        """Returns the seconds until the Lease may be taken, if it doesn't change; 0 means now."""
        if self.holder in ("", self.identity):
            return 0.0
        assert self._seen is not None
        duration = self._seen.spec.get("leaseDurationSeconds") or self._terms.lease_duration
        return max(0.0, self._changed_at + float(duration) - now)

    def claim(self, *, wall: str) -> Lease:
        """Returns the Lease to write in order to take or to renew it; `wall` is the time, a
        MicroTime.

        It has the resourceVersion that was seen, so the API server refuses it if another replica
        has written first. Without one, the Lease is to be created.
        """
        before: Mapping[str, Any] = self._seen.spec if self._seen is not None else {}
        spec = {
            **before,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._terms.lease_duration,
            "renewTime": wall,
        }
        if self._seen is None:
            spec |= {"acquireTime": wall, "leaseTransitions": 0}
        elif self.holder != self.identity:
            transitions = int(before.get("leaseTransitions") or 0) + 1
            spec |= {"acquireTime": wall, "leaseTransitions": transitions}
        return Lease(spec, self._metadata())

    def won(self, lease: Lease, *, sent_at: float) -> None:
        """Notes that a claim sent at `sent_at` succeeded, so this replica leads; `lease` is the
        Lease as stored."""
        self.see(lease, now=sent_at)
        self.leads_until = sent_at + self._terms.renew_deadline

    def release(self, *, wall: str) -> Lease:
        """Returns the Lease to write in order to release it. Afterwards this replica may write
        nothing."""
        self.leads_until = float("-inf")
        assert self._seen is not None, "only what is held can be released"
        spec = {
            **self._seen.spec,
            "holderIdentity": "",
            "leaseDurationSeconds": RELEASED_FOR,
            "renewTime": wall,
            "acquireTime": wall,
        }
        return replace(self._seen, spec=spec)

    def _metadata(self) -> Mapping[str, Any]:
        return self._seen.metadata if self._exists and self._seen is not None else {}
