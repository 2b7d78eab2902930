"""The status of a group: read back by the operator, and written as the API server wants it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.nodegroups.api.status import (
    Condition,
    ConditionType,
    KwokNodeGroupStatus,
    PendingBatch,
)

NOW = "2026-01-02T03:04:05Z"

FULL: dict[str, Any] = {
    "replicas": 3,
    "readyReplicas": 2,
    "updatedReplicas": 1,
    "pendingReplicas": 4,
    "failedReplicas": 5,
    "targetSize": 8,
    "observedGeneration": 7,
    "selector": "kwok-operator.io/node-group=a",
    "nextSerial": 21,
    "cloud": {
        "terms": [{"since": NOW, "cloud": {"seed": "a"}}],
        "refused": [
            {
                "serials": "1-2",
                "since": NOW,
                "pool": "zone-b",
                "reason": "PoolExhausted",
                "class": "OutOfResources",
                "code": "NoCapacity",
                "message": "zone-b is sold out",
            }
        ],
        "instances": [
            {
                "state": "Failed",
                "reason": "PoolExhausted",
                "count": 2,
                "serials": "1-2",
                "since": NOW,
                "message": "zone-b is sold out",
            }
        ],
    },
    "pending": [
        {"first": 1, "last": 20, "requestedAt": NOW, "except": "5,17-20"},
        {"first": 21, "last": 21, "requestedAt": NOW},
    ],
    "topology": {
        "domain": "a",
        "pending": [{"serials": "21", "places": "4"}],
        "nextPlace": 5,
    },
    "resolvedTemplate": {"metadata": {"creationTimestamp": None}, "status": {"a": [None]}},
    "templateHash": "abcdef0123",
    "templateSource": "Default",
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Creating",
            "message": "3 of 8 nodes exist",
            "observedGeneration": 7,
            "lastTransitionTime": NOW,
        }
    ],
}


@pytest.mark.parametrize("value", [None, {}, {"pending": None, "unknown": 1}])
def test_a_missing_status_is_an_empty_one(value: Any) -> None:
    status = KwokNodeGroupStatus.model_validate(value)
    assert status == KwokNodeGroupStatus()
    assert status.dump() == {
        "replicas": 0,
        "readyReplicas": 0,
        "updatedReplicas": 0,
        "pendingReplicas": 0,
        "failedReplicas": 0,
        "nextSerial": 0,
        "pending": [],
        "conditions": [],
    }


def test_names_on_the_wire() -> None:
    status = KwokNodeGroupStatus.model_validate(FULL)
    assert status.dump() == FULL
    assert set(FULL) == {f.alias for f in KwokNodeGroupStatus.model_fields.values()}
    assert status.pending[0].except_ == "5,17-20"
    assert status.conditions[0].type == ConditionType.READY
    assert status.target_size == 8


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_batch_without_exceptions_has_no_such_field(nothing: str | None) -> None:
    batch = PendingBatch(first=1, last=2, requested_at=NOW, except_=nothing)
    assert batch.dump() == {"first": 1, "last": 2, "requestedAt": NOW}


def test_condition_types_are_those_of_the_contract_and_each_is_explained() -> None:
    contract = "Ready Reconciling Stalled TemplateResolved ScalingLimited Paused Autoscalable"
    assert set(contract.split()) < {str(kind) for kind in ConditionType}
    explained = Condition.model_fields["type"].description or ""
    assert [kind for kind in ConditionType if kind not in explained] == []


@given(
    counts=st.lists(st.integers(0, 10**6), min_size=6, max_size=6),
    target=st.none() | st.integers(0, 10**6),
    exceptions=st.none()
    | st.from_regex(r"[0-9]{1,7}(,[0-9]{1,7}-[0-9]{1,7}){0,3}", fullmatch=True),
    kind=st.sampled_from(ConditionType),
)
def test_a_status_survives_the_way_out_and_in(
    counts: list[int], target: int | None, exceptions: str | None, kind: ConditionType
) -> None:
    replicas, ready, updated, pending, failed, serial = counts
    status = KwokNodeGroupStatus(
        replicas=replicas,
        ready_replicas=ready,
        updated_replicas=updated,
        pending_replicas=pending,
        failed_replicas=failed,
        next_serial=serial,
        target_size=target,
        pending=(PendingBatch(first=0, last=serial, requested_at=NOW, except_=exceptions),),
        conditions=(Condition(type=kind, status="Unknown", reason="R", last_transition_time=NOW),),
    )
    assert KwokNodeGroupStatus.model_validate(status.dump()) == status
