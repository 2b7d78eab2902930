"""What a group's status says of what is known: counts, conditions, and when they changed."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.formats.words import few_names
from kwok_operator.nodegroups.api.nodegroup import UpdateStrategyType
from kwok_operator.nodegroups.api.status import (
    Condition,
    ConditionType,
    KwokNodeGroupStatus,
    Verdict,
)
from kwok_operator.nodegroups.plan import Limit, Rollout, Target
from kwok_operator.nodegroups.serials import Batch
from kwok_operator.nodegroups.status import Facts, batches_of, make_status
from tests.fakes.facts import AT_REST

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:09:00Z"
MIN_SIZE = Limit("MinSize", "autoscaling.minSize is 3; 1 would be fewer.")
MAX_SIZE = Limit("MaxSize", "autoscaling.maxSize is 3; 9 would be more.")
NODE_LIMIT = Limit("NodeLimit", "All groups together may have --max-total-nodes; 6 of 9 wait.")
OF_THE_CLOUD = {
    ConditionType.PROVISIONED: Verdict(False, "PoolExhausted", "2 instances have no Node yet."),
    ConditionType.OUTAGE: Verdict(False, "NoOutage", "It is not out."),
    ConditionType.CLOUD_SIMULATED: Verdict(True, "HeldByStage", "A Stage holds them."),
}
ONLY_SOMETIMES = {
    ConditionType.AUTOSCALABLE,
    ConditionType.COMPANIONS_PRESENT,
    *OF_THE_CLOUD,
}
ALL = [str(kind) for kind in ConditionType if kind not in ONLY_SOMETIMES]
IN_PLACE = {"rollout": Rollout(UpdateStrategyType.IN_PLACE), "updated": 1}
ROLLING = {"rollout": Rollout(UpdateStrategyType.ROLLING_UPDATE, 2), "updated": 1}
HELD = {"rollout": Rollout(UpdateStrategyType.ROLLING_UPDATE, 2, held=True), "updated": 1}


def target(value: int, limit: Limit | None = None) -> dict[str, Any]:
    return {"target": Target(value, value, limit)}


def status_of(
    facts: Facts,
    *,
    previous: KwokNodeGroupStatus | None = None,
    resolved: tuple[dict[str, object], str, str] | None = None,
    now: str = NOW,
) -> KwokNodeGroupStatus:
    return make_status(
        facts, group="web", previous=previous or KwokNodeGroupStatus(), resolved=resolved, now=now
    )


def conditions(**changes: Any) -> dict[str, Condition]:
    """The conditions of a group at rest, but for these facts."""
    status = status_of(dataclasses.replace(AT_REST, **changes))
    return {condition.type: condition for condition in status.conditions}


def verdict(kind: str, **changes: Any) -> tuple[str, str]:
    condition = conditions(**changes)[kind]
    return condition.status, condition.reason


def test_counts_and_bookkeeping_are_told_as_they_are() -> None:
    facts = dataclasses.replace(
        AT_REST,
        target=Target(9, 12),
        replicas=6,
        ready=4,
        updated=2,
        pending=3,
        failed=1,
        batches=(Batch(4, 9, NOW, frozenset({5, 6})),),
        next_serial=10,
    )
    status = status_of(facts)
    counts = status.dump()
    del counts["conditions"]
    assert counts == {
        "replicas": 6,
        "readyReplicas": 4,
        "updatedReplicas": 2,
        "pendingReplicas": 3,
        "failedReplicas": 1,
        "targetSize": 9,
        "observedGeneration": 7,
        "selector": "kwok-operator.io/node-group=web",
        "nextSerial": 10,
        "pending": [{"first": 4, "last": 9, "requestedAt": NOW, "except": "5-6"}],
    }


def test_the_template_in_use_stays_where_there_is_no_new_one() -> None:
    # So a group can scale from zero with a template whose source is gone or broken now.
    node: dict[str, object] = {"metadata": {"labels": {"a": "b"}}}
    before = status_of(AT_REST, resolved=(node, "abcdef0123", "Node"))
    after = status_of(AT_REST, previous=before, resolved=None)
    assert (after.resolved_template, after.template_hash) == (node, "abcdef0123")
    assert after.template_source == "Node"
    other = status_of(AT_REST, previous=after, resolved=({}, "0000000000", "Default"))
    assert (other.resolved_template, other.template_hash) == ({}, "0000000000")


VERDICTS: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    "Ready": [
        ({}, "True", "Ready"),
        (target(0) | {"replicas": 0, "ready": 0}, "True", "Ready"),
        (target(5), "False", "ScalingUp"),
        (target(2), "False", "ScalingDown"),
        ({"leaving": 1}, "False", "ScalingUp"),
        (target(2) | {"leaving": 1}, "False", "ScalingDown"),
        ({"ready": 2}, "False", "NodesNotReady"),
        (target(5) | {"paused": True}, "False", "Paused"),
        (target(1) | {"paused": True}, "False", "Paused"),
        ({"paused": True}, "True", "Ready"),
        ({"paused": True, "ready": 2}, "False", "NodesNotReady"),
        (target(3, MIN_SIZE), "True", "Ready"),
        (target(3, MAX_SIZE), "True", "Ready"),
        (target(3, NODE_LIMIT), "False", "NodeLimit"),
        (target(5, NODE_LIMIT), "False", "NodeLimit"),
        ({"template_error": "broken"}, "False", "TemplateInvalid"),
        (target(5) | {"template_error": "broken"}, "False", "TemplateInvalid"),
        (target(5) | {"refusal": "no"}, "False", "Refused"),
        ({"ready": 2, "kwok_silent": "silent"}, "False", "KwokNotResponding"),
        (target(5) | {"ready": 2, "kwok_silent": "silent"}, "False", "KwokNotResponding"),
        ({"kwok_silent": "silent"}, "True", "Ready"),
        ({"foreign": ["a"]}, "True", "Ready"),
        ({"terminating": ["a"]}, "True", "Ready"),
        ({"updated": 0}, "True", "Ready"),
        (IN_PLACE, "False", "Updating"),
        (ROLLING | {"ready": 2, "leaving": 1}, "False", "Updating"),
        (ROLLING | target(3, NODE_LIMIT), "False", "NodeLimit"),
        (IN_PLACE | {"paused": True}, "False", "Paused"),
        (IN_PLACE | {"refusal": "no"}, "False", "Refused"),
        (ROLLING | {"ready": 2, "kwok_silent": "silent"}, "False", "KwokNotResponding"),
    ],
    "Reconciling": [
        ({}, "False", "Settled"),
        (target(5), "True", "ScalingUp"),
        (target(2), "True", "ScalingDown"),
        ({"leaving": 1}, "True", "ScalingUp"),
        ({"ready": 2}, "True", "NodesNotReady"),
        (target(5) | {"paused": True}, "False", "Paused"),
        (target(3, MAX_SIZE), "False", "Settled"),
        (target(3, NODE_LIMIT), "False", "Settled"),
        # The brake leaves room for two more, and these are under way.
        (target(5, NODE_LIMIT), "True", "NodeLimit"),
        (target(3, NODE_LIMIT) | {"ready": 2}, "True", "NodeLimit"),
        (target(5) | {"template_error": "broken"}, "False", "Stalled"),
        (target(5) | {"refusal": "no"}, "False", "Stalled"),
        ({"ready": 2, "kwok_silent": "silent"}, "False", "Stalled"),
        (IN_PLACE, "True", "Updating"),
        (ROLLING | {"ready": 2}, "True", "Updating"),
    ],
    "Stalled": [
        ({}, "False", "Progressing"),
        (target(5), "False", "Progressing"),
        ({"ready": 2}, "False", "Progressing"),
        ({"template_error": "broken"}, "True", "TemplateInvalid"),
        ({"refusal": "no"}, "True", "Refused"),
        ({"kwok_silent": "silent"}, "False", "Progressing"),
        ({"kwok_silent": "silent", "ready": 2}, "True", "KwokNotResponding"),
        ({"template_error": "broken", "refusal": "no"}, "True", "TemplateInvalid"),
        ({"refusal": "no", "kwok_silent": "silent", "ready": 2}, "True", "Refused"),
    ],
}
OTHERS = [
    ("TemplateResolved", {}, "True", "Resolved"),
    ("TemplateResolved", {"template_error": "broken"}, "False", "TemplateInvalid"),
    ("ScalingLimited", {}, "False", "WithinLimits"),
    ("ScalingLimited", target(3, MIN_SIZE), "True", "MinSize"),
    ("ScalingLimited", target(3, MAX_SIZE), "True", "MaxSize"),
    ("ScalingLimited", target(3, NODE_LIMIT), "True", "NodeLimit"),
    ("Paused", {}, "False", "NotPaused"),
    ("Paused", {"paused": True}, "True", "SpecPaused"),
    ("ForeignNodes", {}, "False", "NoForeignNodes"),
    ("ForeignNodes", {"foreign": ["a"]}, "True", "NotOurs"),
    ("ForeignNodes", {"terminating": ["a"]}, "False", "NoForeignNodes"),
    ("Reconciling", {"terminating": ["a"]}, "False", "NodesTerminating"),
    ("Ready", {"terminating": ["a"]}, "True", "Ready"),
    ("Reconciling", target(5) | {"terminating": ["a"]}, "True", "ScalingUp"),
]


@pytest.mark.parametrize(
    ("kind", "facts", "status", "reason"),
    [*((kind, *row) for kind, rows in VERDICTS.items() for row in rows), *OTHERS],
)
def test_which_conditions_hold_and_why(
    kind: str, facts: dict[str, Any], status: str, reason: str
) -> None:
    assert verdict(kind, **facts) == (status, reason)


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("Ready", {}, ["3 of 3 nodes are usable"]),
        ("Ready", target(5), ["3 of 5 nodes are usable"]),
        ("Ready", target(1) | {"leaving": 2}, ["3 of 1", "2 are leaving"]),
        ("Ready", target(5) | {"paused": True}, ["3 of 5", "spec.paused"]),
        ("Ready", target(3, NODE_LIMIT), ["--max-total-nodes", "6 of 9 wait"]),
        ("Ready", {"template_error": "field x is wrong"}, ["field x is wrong"]),
        ("Ready", IN_PLACE, ["1 of 3 nodes have the present template (InPlace)"]),
        ("Reconciling", ROLLING, ["1 of 3", "(RollingUpdate, at most 2 unavailable)"]),
        ("Ready", HELD, ["1 of 3", "RollingUpdate waits", "--max-total-nodes"]),
        ("Reconciling", {"refusal": "quota exceeded"}, ["quota exceeded"]),
        ("Stalled", {"kwok_silent": "No kwok", "ready": 0}, ["No kwok"]),
        ("TemplateResolved", {"template_error": "field x is wrong"}, ["field x is wrong"]),
        ("ScalingLimited", target(3, MAX_SIZE), ["is 3: autoscaling.maxSize is 3"]),
        ("Paused", {"paused": True}, ["until spec.paused is false"]),
        ("ForeignNodes", {"foreign": ["b", "a"]}, ["a, b", "Remove the label", "delete it"]),
        ("Reconciling", {"terminating": ["c"]}, ["c", "finalizer", "not counted"]),
    ],
)
def test_sentences_say_what_to_do(kind: str, facts: dict[str, Any], words: list[str]) -> None:
    message = conditions(**facts)[kind].message
    assert [word for word in words if word not in message] == []


anything = st.builds(
    Facts,
    generation=st.integers(1, 9),
    target=st.builds(
        Target,
        st.integers(0, 5),
        st.integers(0, 9),
        st.sampled_from([None, MIN_SIZE, MAX_SIZE, NODE_LIMIT]),
    ),
    paused=st.booleans(),
    replicas=st.just(0),
    ready=st.just(0),
    updated=st.just(0),
    pending=st.integers(0, 3),
    failed=st.integers(0, 3),
    leaving=st.just(0),
    terminating=st.lists(st.just("t"), max_size=1).map(tuple),
    foreign=st.lists(st.just("f"), max_size=1).map(tuple),
    next_serial=st.integers(0, 9),
    batches=st.just(()),
    template_error=st.none() | st.just("broken"),
    kwok_silent=st.none() | st.just("silent"),
    refusal=st.none() | st.just("refused"),
    rollout=st.none() | st.just(Rollout(UpdateStrategyType.ROLLING_UPDATE, 2)),
)


@st.composite
def facts_of_a_group(draw: st.DrawFn) -> Facts:
    facts, replicas = draw(anything), draw(st.integers(0, 6))
    ready, leaving = draw(st.integers(0, replicas)), draw(st.integers(0, replicas))
    return dataclasses.replace(facts, replicas=replicas, ready=ready, leaving=leaving)


quick = settings(deadline=None, max_examples=200)


@given(facts=facts_of_a_group())
@quick
def test_each_condition_is_there_once_and_contradicts_no_other(facts: Facts) -> None:
    status = status_of(facts)
    assert [c.type for c in status.conditions] == ALL
    for condition in status.conditions:
        assert condition.observed_generation == facts.generation
        assert condition.reason.isalnum()
        assert condition.message
    holds = {c.type for c in status.conditions if c.status == "True"}
    assert not {"Ready", "Reconciling"} <= holds
    assert not {"Reconciling", "Stalled"} <= holds
    assert not {"Reconciling", "Paused"} <= holds
    if "Ready" in holds:
        assert facts.replicas == facts.ready == facts.target.value
        assert not facts.leaving
        assert not facts.rollout
        assert "TemplateResolved" in holds


@given(facts=facts_of_a_group(), other=facts_of_a_group())
@quick
def test_a_condition_is_dated_when_its_status_changed(facts: Facts, other: Facts) -> None:
    before = status_of(facts, now=NOW)
    after = status_of(other, previous=before, now=LATER)
    for old, new in zip(before.conditions, after.conditions, strict=True):
        assert new.last_transition_time == (NOW if old.status == new.status else LATER)


@given(facts=facts_of_a_group(), other=facts_of_a_group())
@quick
def test_equal_facts_give_an_equal_status_whatever_the_time(facts: Facts, other: Facts) -> None:
    first = status_of(facts, previous=status_of(other), now=NOW)
    again = status_of(facts, previous=first, now=LATER)
    assert again == first
    # After a restart the previous status comes from the API server.
    read = KwokNodeGroupStatus.model_validate(first.dump())
    assert status_of(facts, previous=read, now=LATER) == read


def test_conditions_that_somebody_else_wrote_don_t_stay() -> None:
    odd = Condition(type="Odd", status="True", reason="Odd", last_transition_time=NOW)
    status = status_of(AT_REST, previous=KwokNodeGroupStatus(conditions=(odd,)))
    assert [c.type for c in status.conditions] == ALL


def test_a_condition_without_a_date_change_still_gets_the_new_generation() -> None:
    # `kubectl wait --for=condition=Ready` must not be fooled by the condition of an older spec.
    before = status_of(AT_REST, now=NOW)
    newer = dataclasses.replace(AT_REST, generation=8)
    after = status_of(newer, previous=before, now=LATER)
    assert {c.observed_generation for c in after.conditions} == {8}
    assert {c.last_transition_time for c in after.conditions} == {NOW}


@given(
    spans=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 1)), max_size=4)
)
@quick
def test_batches_come_back_from_the_api_server_as_they_were(
    spans: list[tuple[int, int, int]],
) -> None:
    batches, first = [], 0
    for gap, length, spent in spans:
        last = first + length
        batches.append(
            Batch(first, last, NOW, frozenset(range(first + 1, last)) if spent else frozenset())
        )
        first = last + gap
    status = status_of(dataclasses.replace(AT_REST, batches=tuple(batches)))
    assert batches_of(status) == tuple(batches)
    assert batches_of(KwokNodeGroupStatus.model_validate(status.dump())) == tuple(batches)


@pytest.mark.parametrize(
    "record",
    [
        {"first": 5, "last": 4},
        {"first": -1, "last": 4},
        {"first": 0, "last": 10**12},
        {"first": 10**18 - 2, "last": 10**18},
        {"first": 0, "last": 9, "except": "a"},
        {"first": 0, "last": 9, "except": "3,2"},
        {"first": 0, "last": 9, "except": "0-99999999999999"},
        {"first": 5, "last": 9, "except": "4"},
        {"first": 5, "last": 9, "except": "6,8-10"},
        *(
            {"first": 0, "last": 9, "requestedAt": time}
            for time in (
                "2026-01-01T00:00:00z",
                "2026-01-01T00:00:00x5Z",
                "2026-01-01T00:00:00+99:99",
                "0001-01-01T00:00:00+23:59",
                "9999-12-31T23:59:59-23:59",
            )
        ),
    ],
)
def test_a_batch_that_we_can_t_have_written_is_left_out(record: dict[str, Any]) -> None:
    """The API server takes all of these times for a date-time."""
    good = {"first": 20, "last": 21, "requestedAt": NOW}
    status = KwokNodeGroupStatus.model_validate({"pending": [{"requestedAt": NOW, **record}, good]})
    assert batches_of(status) == (Batch(20, 21, NOW),)


@pytest.mark.parametrize(("target", "read"), [(1_000_000, [1_500_000, 9]), (5, [9])])
def test_all_batches_together_are_no_more_than_a_group_can_have(
    target: int, read: list[int]
) -> None:
    """The last count first, as that is what was asked for anew where others were left out."""
    record = {"first": 0, "last": 1_500_000, "requestedAt": NOW}
    small = {"first": 0, "last": 9, "requestedAt": NOW}
    pending = [record] * 50 + [small]
    status = KwokNodeGroupStatus.model_validate({"pending": pending, "targetSize": target})
    assert [batch.last for batch in batches_of(status)] == read


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], ""),
        (["b", "a"], "a, b"),
        (list("edcba"), "a, b, c, d, e"),
        (list("gfedcba"), "a, b, c, d, e and 2 more"),
    ],
)
def test_a_few_names_are_shown_and_the_rest_counted(names: list[str], words: str) -> None:
    assert few_names(names) == words


def test_the_conditions_of_a_simulated_cloud_are_told_where_there_is_one() -> None:
    told = conditions(conditions=OF_THE_CLOUD)
    assert {kind: told[kind].status for kind in OF_THE_CLOUD} == {
        ConditionType.PROVISIONED: "False",
        ConditionType.OUTAGE: "False",
        ConditionType.CLOUD_SIMULATED: "True",
    }
    assert told[ConditionType.PROVISIONED].message == "2 instances have no Node yet."
    assert not OF_THE_CLOUD.keys() & conditions().keys()


def test_a_group_is_not_ready_for_the_reason_for_which_instances_do_not_come() -> None:
    scaling = {"replicas": 1, "ready": 1, "pending": 2}
    assert verdict("Ready", **scaling, conditions=OF_THE_CLOUD) == ("False", "PoolExhausted")
    under_way = {ConditionType.PROVISIONED: Verdict(False, "Provisioning", "2 are on their way.")}
    assert verdict("Ready", **scaling, conditions=under_way) == ("False", "ScalingUp")
    template = {"template_error": "bad", "template_reason": "TemplateInvalid"}
    told = verdict("Ready", **scaling, **template, conditions=OF_THE_CLOUD)
    assert told == ("False", "TemplateInvalid")


def test_in_an_outage_nodes_are_not_ready_because_of_it() -> None:
    out = {ConditionType.OUTAGE: Verdict(True, "SpecOutage", "spec.cloud.outage is true.")}
    assert verdict("Ready", ready=1, out=1, conditions=out) == ("False", "Outage")
    assert verdict("Ready", ready=1, conditions=out) == ("False", "NodesNotReady")
    assert verdict("Ready", conditions=out) == ("True", "Ready")
