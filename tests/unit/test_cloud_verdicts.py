"""What the conditions Provisioned and Outage say."""

import pytest

from kwok_operator.cloud.api.cloud import ErrorClass
from kwok_operator.cloud.states import Fault, Phase, State
from kwok_operator.cloud.summary import outage, provisioned
from kwok_operator.nodegroups.api.status import FAILURES, Verdict

SOLD_OUT = Fault(ErrorClass.OUT_OF_RESOURCES, "SoldOut", "no machines left")
QUOTA = Fault(ErrorClass.QUOTA_EXCEEDED, "Quota", "ask for more")

CREATING = Phase(State.CREATING, 0, 60_000, "Provisioning")
DUE = Phase(State.DUE, 0, None, "Provisioned")
FAILED = Phase(State.FAILED, 0, 60_000, "CreationFailed", SOLD_OUT, 1)
FAILED_FOR_GOOD = Phase(State.FAILED, 0, None, "CreationFailed", QUOTA, 1)
REFUSED = Phase(State.FAILED, 0, 60_000, "PoolExhausted", QUOTA, 1)
NO_POOL = Phase(State.WAITING, 0, None, "PoolMissing")
OUT = Phase(State.WAITING, 0, None, "Outage")
NEVER = Phase(State.UNREGISTERED, 0, None, "NeverRegisters")


def of(*phases: tuple[int, Phase]) -> Verdict:
    """The verdict on so many instances in each of these phases."""
    every = [phase for count, phase in phases for _ in range(count)]
    return provisioned(dict(enumerate(every)))


class TestProvisioned:
    def test_all_have_arrived(self) -> None:
        assert of() == Verdict(
            True, "AllArrived", "Every instance that was asked for has its Node."
        )

    def test_a_node_that_is_stuck_in_deletion_is_not_missing(self) -> None:
        assert of((2, Phase(State.DELETING, 0, 60_000, "SlowDeletion"))).status

    def test_those_under_way(self) -> None:
        assert of((2, CREATING), (1, DUE)) == Verdict(
            False, "Provisioning", "3 instances have no Node yet: 3 Provisioning."
        )

    @pytest.mark.parametrize(
        ("phase", "reason"),
        [
            (FAILED, "CreationFailed"),
            (REFUSED, "PoolExhausted"),
            (NO_POOL, "PoolMissing"),
            (OUT, "Outage"),
            (NEVER, "NeverRegisters"),
        ],
    )
    def test_trouble_counts_more_than_instances_on_the_way(self, phase: Phase, reason: str) -> None:
        assert of((99, CREATING), (1, phase)).reason == reason

    def test_the_reason_stays_whatever_the_counts(self) -> None:
        assert of((2, FAILED), (3, REFUSED)).reason == "PoolExhausted"
        assert of((3, FAILED), (2, REFUSED)).reason == "PoolExhausted"

    def test_what_is_a_failure_is_told_as_one(self) -> None:
        told = {of((1, phase)).reason for phase in (FAILED, REFUSED, NO_POOL, NEVER)}
        assert told == set(FAILURES) - {"OutOfStock"}
        assert not {"Provisioning", "Outage", "AllArrived"} & set(FAILURES)

    def test_the_sentence_counts_all_and_says_what_the_cloud_said_to_most(self) -> None:
        other = Phase(State.FAILED, 0, 60_000, "CreationFailed", QUOTA, 1)
        assert of((300, FAILED), (1, other), (112, CREATING)).message == (
            "413 instances have no Node yet: 301 CreationFailed (SoldOut: no machines left),"
            " 112 Provisioning."
        )

    def test_one_is_one(self) -> None:
        assert of((1, CREATING)).message == "1 instance has no Node yet: 1 Provisioning."

    def test_what_a_cloud_says_at_length_is_cut_and_is_one_line(self) -> None:
        long = Fault(ErrorClass.OTHER, "Long", "a\nb " * 200)
        message = of((1, Phase(State.FAILED, 0, 60_000, "CreationFailed", long, 1))).message
        assert "\n" not in message
        assert len(message) < 300

    def test_a_pool_that_is_missing_is_to_be_created(self) -> None:
        assert "Create the KwokCapacityPools" in of((1, NO_POOL)).message

    def test_what_is_not_tried_again_is_to_be_taken_back(self) -> None:
        assert "is not tried again" in of((1, FAILED_FOR_GOOD)).message
        assert "is not tried again" not in of((1, FAILED)).message
        assert "What never registers stays so" in of((1, NEVER)).message


class TestOutage:
    def test_none(self) -> None:
        assert outage(False, ()).reason == "NoOutage"
        assert not outage(False, ()).status

    def test_that_of_the_group_goes_first(self) -> None:
        assert outage(True, ()) == outage(True, ("zone-b",))
        assert (outage(True, ()).status, outage(True, ()).reason) == (True, "SpecOutage")

    def test_that_of_pools_names_them(self) -> None:
        verdict = outage(False, ("zone-b", "zone-a"))
        assert (verdict.status, verdict.reason) == (True, "PoolOutage")
        assert outage(False, ("zone-b",), ("pool-a-0",)) == outage(False, ("zone-b",))
        assert "KwokCapacityPool zone-a, zone-b" in verdict.message

    def test_units_are_named(self) -> None:
        verdict = outage(False, (), ("pool-a-0-1", "pool-a-0-0"))
        assert verdict == Verdict(
            True,
            "UnitOutage",
            "spec.cloud.outageUnits has pool-a-0-0, pool-a-0-1: no Node there is Ready, and none"
            " comes there.",
        )
