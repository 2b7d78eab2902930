"""Who leads: what a replica makes of a Lease, as pure decisions.

In a world in which clocks differ and drift, answers are late or lost, writes arrive long after they
were given up, replicas stand still for any time, die and start anew:

- two replicas never both believe that they may write
- and when all is quiet again, one leads soon

Besides, what is written: holder, times, how often the Lease has changed hands; who may take what
when; that nothing of somebody else's in a Lease is lost.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kwok_operator.operator.election import Candidate, Lease, LeaseTerms

TERMS = LeaseTerms(lease_duration=10, renew_deadline=7.0, retry_period=2.0)
WALL = "2026-01-02T03:04:05.000006Z"
LATER = "2026-01-02T03:04:07.000006Z"


@dataclass(eq=False)
class Write:
    """A write on its way: it may arrive at any time, or never."""

    lease: Lease
    sent_at: float
    releases: bool
    answer: Lease | None = None
    arrived: bool = False


@dataclass(eq=False)
class Replica:
    """`offset` and `rate` make its clock of the world's time."""

    offset: float
    rate: float
    runs: int = 0
    candidate: Candidate = field(init=False)
    waits_for: Write | None = None
    read: Lease | None = None
    has_read: bool = False
    released: bool = False

    def start(self, name: str) -> None:
        self.runs += 1
        self.candidate = Candidate(f"{name}_{self.runs}", TERMS)
        self.waits_for, self.has_read, self.released = None, False, False

    def clock(self, now: float) -> float:
        return self.offset + now * self.rate

    def may_write(self, now: float) -> bool:
        return self.clock(now) < self.candidate.leads_until


class World(RuleBasedStateMachine):
    """An API server with one Lease, and three replicas that want it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 0
        self.stored: Lease | None = None
        self.flying: list[Write] = []
        self.replicas: list[Replica] = []

    @initialize(
        offsets=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
        rates=st.lists(st.sampled_from([0.9, 1.0, 1.1]), min_size=3, max_size=3),
    )
    def starts(self, offsets: list[float], rates: list[float]) -> None:
        self.begin(offsets, rates)

    def begin(self, offsets: list[float], rates: list[float]) -> None:
        self.replicas = [Replica(o, r) for o, r in zip(offsets, rates, strict=True)]
        for number, replica in enumerate(self.replicas):
            replica.start(f"r{number}")

    @rule(seconds=st.sampled_from([0.1, 5.0, 10.1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=st.integers(0, 2))
    def reads(self, number: int) -> None:
        """The API server answers; the answer is on its way."""
        replica = self.replicas[number]
        replica.read, replica.has_read = self.stored, True

    @rule(number=st.integers(0, 2))
    def sees(self, number: int) -> None:
        replica = self.replicas[number]
        if replica.has_read and not replica.released:
            replica.candidate.see(replica.read, now=replica.clock(self.now))
            replica.has_read = False

    @rule(number=st.integers(0, 2))
    def claims(self, number: int) -> None:
        """As a standby that may take it, or as a leader that renews."""
        replica = self.replicas[number]
        clock, candidate = replica.clock(self.now), replica.candidate
        if replica.waits_for is None and not replica.released and candidate.wait(clock) == 0:
            self._send(replica, Write(candidate.claim(wall=str(self.now)), clock, releases=False))

    @rule(number=st.integers(0, 2))
    def releases(self, number: int) -> None:
        replica = self.replicas[number]
        if replica.may_write(self.now):
            replica.released = True
            lease = replica.candidate.release(wall=str(self.now))
            self._send(replica, Write(lease, replica.clock(self.now), releases=True))

    @rule(number=st.integers(0, 2))
    def tries_without_a_hitch(self, number: int) -> None:
        self.reads(number)
        self.sees(number)
        self.claims(number)
        write = self.replicas[number].waits_for
        if write in self.flying:
            self._arrives(write)
        self.is_answered(number)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def arrives(self, data: st.DataObject) -> None:
        self._arrives(data.draw(st.sampled_from(self.flying)))

    def _arrives(self, write: Write) -> None:
        """Stored only if it was made of what is, as a PUT with a resourceVersion."""
        self.flying.remove(write)
        write.arrived = True
        based_on = write.lease.metadata.get("resourceVersion")
        current = self.stored.metadata["resourceVersion"] if self.stored else None
        if based_on == current:
            self.version += 1
            metadata = {"resourceVersion": str(self.version)}
            self.stored = write.answer = Lease(write.lease.spec, metadata)

    @rule(number=st.integers(0, 2))
    def is_answered(self, number: int) -> None:
        replica = self.replicas[number]
        write = replica.waits_for
        if write is None or not write.arrived:
            return
        replica.waits_for = None
        # An answer after the deadline finds the fence shut, and the replica ends.
        late = not replica.may_write(self.now) and replica.candidate.leads_until > float("-inf")
        if write.answer is not None and not write.releases and not late:
            replica.candidate.won(write.answer, sent_at=write.sent_at)

    @rule(number=st.sampled_from([0, 0, 1, 1, 2]), then=st.sampled_from([0.1, 5.0, 10.1]))
    def tries_and_time_passes(self, number: int, then: float) -> None:
        self.tries_without_a_hitch(number)
        self.time_passes(then)

    @rule(number=st.integers(0, 2))
    def gives_up_waiting(self, number: int) -> None:
        """The write may arrive all the same."""
        self.replicas[number].waits_for = None

    @rule(number=st.integers(0, 2))
    def dies_and_starts_anew(self, number: int) -> None:
        self.replicas[number].start(f"r{number}")

    @invariant()
    def one_leads_at_most(self) -> None:
        leaders = [r.candidate.identity for r in self.replicas if r.may_write(self.now)]
        assert len(leaders) <= 1

    def teardown(self) -> None:
        """Left alone, with all that flies lost, one leads within a Lease and two looks."""
        self.flying.clear()
        until = self.now + TERMS.lease_duration * 1.1 / 0.9 + 2
        while self.replicas and not any(r.may_write(self.now) for r in self.replicas):
            assert self.now < until
            self.now += 0.5
            for number, replica in enumerate(self.replicas):
                if replica.released or replica.candidate.leads_until > float("-inf"):
                    replica.start(f"r{number}")
                self.gives_up_waiting(number)
                self.tries_without_a_hitch(number)

    def _send(self, replica: Replica, write: Write) -> None:
        replica.waits_for = write
        self.flying.append(write)


def test_two_replicas_never_both_believe_that_they_lead() -> None:
    run_state_machine_as_test(
        World, settings=settings(max_examples=80, stateful_step_count=40, deadline=None)
    )


@given(
    tries=st.lists(
        st.tuples(st.sampled_from([0, 0, 1]), st.sampled_from([0.1, 1.0, 3.0, 6.5, 10.1])),
        min_size=3,
        max_size=8,
    ),
    offsets=st.lists(st.sampled_from([-1e6, 0.0, 1e6]), min_size=3, max_size=3),
)
@settings(deadline=None, max_examples=200)
def test_whoever_stops_trying_has_stopped_writing_when_the_next_one_leads(
    tries: list[tuple[int, float]], offsets: list[float]
) -> None:
    world = World()
    world.begin(offsets, [1.0, 1.0, 1.0])
    for number, pause in tries:
        world.tries_without_a_hitch(number)
        world.one_leads_at_most()
        world.time_passes(pause)


def held(holder: str, *, version: str = "7", **spec: Any) -> Lease:
    """A Lease as somebody has written it."""
    fields = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 20,
        "acquireTime": WALL,
        "renewTime": WALL,
        "leaseTransitions": 3,
        **spec,
    }
    return Lease(fields, {"resourceVersion": version, "labels": {"mine": "yes"}})


@pytest.fixture
def candidate() -> Candidate:
    return Candidate("me", TERMS)


def test_without_a_lease_one_is_created(candidate: Candidate) -> None:
    candidate.see(None, now=5)
    assert candidate.wait(5) == 0
    claim = candidate.claim(wall=WALL)
    assert "resourceVersion" not in claim.metadata
    assert claim.spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 10,
        "acquireTime": WALL,
        "renewTime": WALL,
        "leaseTransitions": 0,
    }


def test_anothers_lease_is_waited_for_since_its_last_change(
    candidate: Candidate,
) -> None:
    """For as long as it says itself; what time it is in it does not matter."""
    candidate.see(held("you", renewTime="1999-01-01T00:00:00.000000Z"), now=100)
    assert candidate.holder == "you"
    assert candidate.wait(100) == 20
    candidate.see(held("you", renewTime="1999-01-01T00:00:00.000000Z"), now=115)
    assert candidate.wait(115) == 5
    candidate.see(held("you", renewTime=LATER), now=119)
    assert candidate.wait(119) == 20
    assert candidate.wait(139) == 0


def test_metadata_that_changes_is_no_sign_of_life(candidate: Candidate) -> None:
    candidate.see(held("you", version="7"), now=100)
    candidate.see(held("you", version="8"), now=119)
    assert candidate.wait(119) == 1
    assert candidate.claim(wall=LATER).metadata["resourceVersion"] == "8"


def test_a_released_lease_is_taken_at_once(candidate: Candidate) -> None:
    candidate.see(held("you"), now=100)
    candidate.see(held(""), now=101)
    assert candidate.wait(101) == 0
    claim = candidate.claim(wall=LATER)
    assert (claim.spec["acquireTime"], claim.spec["leaseTransitions"]) == (LATER, 4)


def test_a_lease_that_vanishes_is_not_released(candidate: Candidate) -> None:
    candidate.see(held("you"), now=100)
    candidate.see(None, now=105)
    assert candidate.wait(105) == 15
    assert "resourceVersion" not in candidate.claim(wall=LATER).metadata


def test_a_lease_without_a_duration_is_held_for_ours(candidate: Candidate) -> None:
    candidate.see(held("you", leaseDurationSeconds=None), now=100)
    assert candidate.wait(100) == 10


def test_a_renewal_changes_the_time_and_leaves_the_rest(candidate: Candidate) -> None:
    candidate.see(held("me", leaseDurationSeconds=10, strategy="OldestEmulationVersion"), now=100)
    claim = candidate.claim(wall=LATER)
    assert claim.metadata == {"resourceVersion": "7", "labels": {"mine": "yes"}}
    assert claim.spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 10,
        "acquireTime": WALL,
        "renewTime": LATER,
        "leaseTransitions": 3,
        "strategy": "OldestEmulationVersion",
    }


def test_a_lead_counts_from_when_the_renewal_was_sent(candidate: Candidate) -> None:
    """Not from the answer: what is stored in between is seen by others before."""
    candidate.see(None, now=5)
    candidate.won(held("me"), sent_at=5)
    assert candidate.leads_until == 12
    assert candidate.claim(wall=LATER).spec["leaseTransitions"] == 3


def test_a_release_leaves_nobody_to_wait_for(candidate: Candidate) -> None:
    candidate.see(None, now=5)
    candidate.won(held("me", version="9"), sent_at=5)
    lease = candidate.release(wall=LATER)
    assert candidate.leads_until == float("-inf")
    assert lease.metadata["resourceVersion"] == "9"
    assert (lease.holder, lease.spec["leaseDurationSeconds"]) == ("", 1)
    assert lease.spec["leaseTransitions"] == 3
