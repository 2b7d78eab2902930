"""Which transitions of a group become an Event, and that each is told once.

- a batch that is asked for, nodes that are deleted, names that name nothing
- conditions that turn: bad ones are warnings; that they have ended is told in words of their own
- one cause that turns several conditions is told once
- nothing new is nothing to tell: not in the next pass, and not after a restart
- instances that don't come, outages, and that kwok undoes what the simulated cloud shows
- nodes that get notice: one Event of the group, and one of each of the first of them
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kwok_operator.controller.reconcile.announcements import (
    MAX_NODES_TOLD,
    announce,
    announce_notice,
)
from kwok_operator.controller.writers.events import Recorder
from kwok_operator.core.plan import Limit, Plan, Target
from kwok_operator.core.status import make_status
from kwok_operator.kube.groups import Group
from kwok_operator.models.status import Condition, ConditionType, KwokNodeGroupStatus
from tests.fakes.facts import AT_REST

NOW = "2026-01-02T03:04:05Z"
GROUP = Group.parse({"metadata": {"name": "web", "uid": "u-1"}})
SETTLED = dataclasses.replace(AT_REST, generation=1, next_serial=3)
MAX_SIZE = Limit("MaxSize", "autoscaling.maxSize is 3; 9 would be more.")


class Events:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.told_to_nodes: list[tuple[str, str, str, str]] = []

    def emit(self, group: Group, kind: str, reason: str, message: str) -> None:
        assert group.name == GROUP.name
        self.told.append((kind, reason, message))

    def last_said(self, group: Group, reasons: Sequence[str]) -> str | None:
        told = (reason for _, reason, _ in reversed(self.told) if reason in reasons)
        return next(told, None)

    def emit_for_node(self, name: str, kind: str, reason: str, message: str) -> bool:
        self.told_to_nodes.append((name, kind, reason, message))
        return True


class Passes:
    """A group from pass to pass: what each of them announces."""

    def __init__(self) -> None:
        self.facts = SETTLED
        self.status = KwokNodeGroupStatus()

    def template(self, name: str, **changes: Any) -> list[tuple[str, str, str]]:
        """A pass in which nodes are made from another template."""
        return self.events(resolved=({}, name, "Inline"), **changes)

    def next(self, *, plan: dict[str, Any] | None = None, **changes: Any) -> list[tuple[str, str]]:
        """The kinds and reasons told of a pass that found these changes."""
        return [(kind, reason) for kind, reason, _ in self.events(plan=plan, **changes)]

    def events(
        self,
        *,
        plan: dict[str, Any] | None = None,
        resolved: tuple[dict[str, object], str, str] | None = None,
        **changes: Any,
    ) -> list[tuple[str, str, str]]:
        self.facts = dataclasses.replace(self.facts, **changes)
        after = make_status(
            self.facts, group="web", previous=self.status, resolved=resolved, now=NOW
        )
        todo = Plan(
            target=self.facts.target,
            pending=(),
            create=(),
            delete=(),
            batches=(),
            next_serial=self.facts.next_serial,
        )
        events = Events()
        announce(
            cast(Recorder, events),
            GROUP,
            before=self.status,
            after=after,
            plan=dataclasses.replace(todo, **(plan or {})),
        )
        self.status = after
        return events.told

    def restart(self) -> None:
        """What the operator knows comes from the API server again."""
        self.status = KwokNodeGroupStatus.model_validate(self.status.dump())


@pytest.fixture
def passes() -> Passes:
    """A group that has been Ready for a while."""
    passes = Passes()
    assert passes.next() == [("Normal", "Ready")]
    return passes


def test_a_group_at_rest_has_nothing_to_tell(passes: Passes) -> None:
    assert passes.next() == []


UP: dict[str, Any] = {"pending": (3, 4), "create": (3, 4)}


class TestScaling:
    def test_asking_for_nodes_is_told_once(self, passes: Passes) -> None:
        asked: dict[str, Any] = {
            "target": Target(5, 5),
            "pending": 2,
            "next_serial": 5,
            "generation": 2,
        }
        ((kind, reason, message),) = passes.events(plan=UP, **asked)
        assert (kind, reason) == ("Normal", "ScalingUp")
        assert message == "Scaling up from 3 to 5: 2 nodes to create."
        assert passes.next(plan=UP) == []
        assert passes.next(plan={"pending": (4,), "create": (4,)}, replicas=4, pending=1) == []

    def test_arriving_is_told_as_ready(self, passes: Passes) -> None:
        passes.next(plan=UP, target=Target(5, 5), pending=2, next_serial=5)
        assert passes.next(replicas=5, ready=4, pending=0) == []
        assert passes.next(ready=5) == [("Normal", "Ready")]

    def test_only_what_is_new_is_counted(self, passes: Passes) -> None:
        passes.next(plan=UP, target=Target(5, 5), pending=2, next_serial=5)
        more = {"pending": (3, 4, 5), "create": (3, 4, 5)}
        ((_, _, message),) = passes.events(plan=more, target=Target(6, 6), pending=3, next_serial=6)
        assert message == "Scaling up from 3 to 6: 1 node to create."

    def test_deleting_nodes_is_told_once(self, passes: Passes) -> None:
        down = {"delete": ("web-2", "web-1")}
        ((kind, reason, message),) = passes.events(
            plan=down, target=Target(1, 1), leaving=2, generation=2
        )
        assert (kind, reason) == ("Normal", "ScalingDown")
        assert message == "Scaling down from 3 to 1: 2 nodes to delete."
        assert passes.next(plan={"delete": ("web-1",)}, replicas=2, ready=2, leaving=1) == []

    def test_replacing_named_nodes_is_told_once(self, passes: Passes) -> None:
        # The target stays, so the group is not scaling down but up again while they leave.
        both = {"delete": ("web-0",), "pending": (3,), "create": (3,)}
        told = passes.next(plan=both, leaving=1, pending=1, next_serial=4, generation=2)
        assert told == [("Normal", "ScalingUp"), ("Normal", "ScalingDown")]
        assert passes.next(plan=both) == []

    def test_what_the_simulated_cloud_takes_back_is_no_scaling(self, passes: Passes) -> None:
        both = {"delete": ("web-0",), "ended": 1, "pending": (3,), "create": (3,)}
        assert passes.next(plan=both, leaving=1, pending=1, next_serial=4) == []
        more = {**both, "pending": (4, 5), "create": (4, 5)}
        told = passes.events(plan=more, target=Target(4, 4), pending=2, next_serial=6)
        assert told == [("Normal", "ScalingUp", "Scaling up from 3 to 4: 1 node to create.")]

    def test_deletes_that_fail_again_and_again_are_told_once(self, passes: Passes) -> None:
        down = {"delete": ("web-2", "web-1")}
        passes.next(plan=down, target=Target(1, 1), leaving=2, generation=2)
        assert passes.next(plan=down, refusal="forbidden") == [("Warning", "Refused")]
        for _ in range(3):
            assert passes.next(plan=down) == []


class TestTemplate:
    def test_the_first_one_is_no_news_and_another_one_is(self, passes: Passes) -> None:
        assert passes.template("aaa") == []
        ((kind, reason, message),) = passes.template("bbb", updated=1)
        assert (kind, reason) == ("Normal", "TemplateChanged")
        assert message == (
            "New nodes are made from template bbb. 2 nodes of a former one: kept as they are"
            " (OnDelete)."
        )
        assert passes.template("bbb") == []

    def test_without_nodes_there_is_nothing_to_say_of_them(self, passes: Passes) -> None:
        passes.template("aaa")
        ((_, _, message),) = passes.template("bbb", replicas=0, ready=0, updated=0)
        assert message == "New nodes are made from template bbb."


class TestNamesThatNameNothing:
    def test_they_are_reported_once_per_generation(self, passes: Passes) -> None:
        unknown = {"unknown": ("web-000099", "web-000098")}
        ((kind, reason, message),) = passes.events(plan=unknown, generation=2)
        assert (kind, reason) == ("Warning", "UnknownNodes")
        assert "web-000098, web-000099" in message
        assert passes.next(plan=unknown) == []
        assert passes.next(plan=unknown, generation=3) == [("Warning", "UnknownNodes")]

    def test_a_named_node_that_is_gone_afterwards_is_not_reported(self, passes: Passes) -> None:
        passes.next(plan={"delete": ("web-2",)}, target=Target(2, 2), leaving=1, generation=2)
        told = passes.next(plan={"unknown": ("web-2",)}, replicas=2, ready=2, leaving=0)
        assert told == [("Normal", "Ready")]

    def test_thousands_of_them_are_told_in_a_few_words(self, passes: Passes) -> None:
        names = tuple(f"web-{n:06}" for n in range(5_000))
        ((_, _, message),) = passes.events(plan={"unknown": names}, generation=2)
        assert "and 4995 more" in message


class TestWhatKeepsClusterAutoscalerAway:
    def test_a_hindrance_is_told_once(self, passes: Passes) -> None:
        why = ("GPULabelsDisagree", "another group sets another")
        assert passes.next(autoscaled=True, hindrance=why) == [("Warning", "GPULabelsDisagree")]
        assert passes.next() == []

    def test_a_pause_is_told_as_a_pause(self, passes: Passes) -> None:
        why = ("SpecPaused", "the group is paused")
        paused = passes.next(autoscaled=True, paused=True, hindrance=why)
        assert paused == [("Normal", "SpecPaused")]


class TestConditions:
    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"paused": True}, ("Normal", "SpecPaused")),
            ({"target": Target(3, 9, MAX_SIZE)}, ("Normal", "MaxSize")),
            ({"foreign": ("real-node",)}, ("Warning", "NotOurs")),
            ({"refusal": "forbidden"}, ("Warning", "Refused")),
            ({"kwok_silent": "silent", "ready": 2}, ("Warning", "KwokNotResponding")),
            ({"template_error": "broken"}, ("Warning", "TemplateInvalid")),
        ],
        ids=lambda value: value[1] if isinstance(value, tuple) else "",
    )
    def test_what_turns_is_told_once_also_after_a_restart(
        self, passes: Passes, changes: dict[str, Any], told: tuple[str, str]
    ) -> None:
        # An unusable template turns two conditions, for one reason.
        assert passes.next(**changes) == [told]
        assert passes.next() == []
        passes.restart()
        assert passes.next() == []
        assert passes.next(generation=9) == []

    def test_the_sentence_is_that_of_the_condition(self, passes: Passes) -> None:
        ((_, _, message),) = passes.events(template_error="field x is wrong")
        assert message == "field x is wrong"

    @pytest.mark.parametrize(
        ("changes", "back", "told"),
        [
            ({"paused": True}, {"paused": False}, ["Resumed"]),
            ({"foreign": ("real-node",)}, {"foreign": ()}, ["NoForeignNodes"]),
            ({"target": Target(3, 9, MAX_SIZE)}, {"target": Target(3, 3)}, ["WithinLimits"]),
            ({"template_error": "broken"}, {"template_error": None}, ["TemplateResolved", "Ready"]),
            ({"refusal": "no"}, {"refusal": None}, ["Recovered"]),
            (
                {"kwok_silent": "silent", "ready": 2},
                {"kwok_silent": None, "ready": 3},
                ["KwokResponding", "Ready"],
            ),
            (
                {"autoscaled": True, "hindrance": ("TooMany", "too many")},
                {"hindrance": None},
                ["Drivable"],
            ),
        ],
        ids=lambda value: value[0] if isinstance(value, list) else "",
    )
    def test_what_ends_is_told_once_also_after_a_restart(
        self, passes: Passes, changes: dict[str, Any], back: dict[str, Any], told: list[str]
    ) -> None:
        passes.next(**changes)
        assert passes.next(**back) == [("Normal", reason) for reason in told]
        passes.restart()
        assert passes.next() == []

    def test_a_pause_that_kept_cluster_autoscaler_away_ends_once(self, passes: Passes) -> None:
        passes.next(autoscaled=True, paused=True, hindrance=("SpecPaused", "the group is paused"))
        assert passes.next(paused=False, hindrance=None) == [("Normal", "Resumed")]

    def test_nobody_says_that_kwok_is_back_where_nobody_knows(self, passes: Passes) -> None:
        passes.next(kwok_silent="silent", ready=2)
        assert ("Normal", "KwokResponding") not in passes.next(replicas=0, ready=0)

    def test_another_reason_is_told_anew(self, passes: Passes) -> None:
        passes.next(kwok_silent="silent", ready=2)
        assert passes.next(refusal="forbidden") == [("Warning", "Refused")]


class Cloud:
    """A group in a simulated cloud, from pass to pass: its conditions, and what is told of them."""

    def __init__(self) -> None:
        self.status = KwokNodeGroupStatus()
        self.events = Events()
        self.turn(Provisioned="AllArrived", Outage="NoOutage", CloudSimulated="HeldByStage")

    def turn(self, **reasons: str) -> list[tuple[str, str]]:
        """The kinds and reasons told of a pass that found these reasons, by condition."""
        conditions = {c.type: c for c in self.status.conditions}
        for kind, reason in reasons.items():
            conditions[kind] = Condition(
                type=kind,
                status="True" if reason in TRUE else "False",
                reason=reason,
                message=f"{reason} in a sentence.",
                last_transition_time=NOW,
            )
        after = self.status.model_copy(update={"conditions": tuple(conditions.values())})
        events, before = self.events, len(self.events.told)
        plan = Plan(
            target=Target(3, 3), pending=(), create=(), delete=(), batches=(), next_serial=3
        )
        announce(cast(Recorder, events), GROUP, before=self.status, after=after, plan=plan)
        self.status = KwokNodeGroupStatus.model_validate(after.dump())
        return [(kind, reason) for kind, reason, _ in events.told[before:]]


TRUE = ("AllArrived", "SpecOutage", "PoolOutage", "HeldByStage")
FAILURES = ("CreationFailed", "OutOfStock", "PoolExhausted", "PoolMissing", "NeverRegisters")


class TestSimulatedCloud:
    def test_a_group_that_begins_well_has_nothing_to_tell(self) -> None:
        cloud = Cloud()
        assert cloud.turn() == []
        assert {c.type for c in cloud.status.conditions} <= set(ConditionType)

    @pytest.mark.parametrize("reason", FAILURES)
    def test_instances_that_do_not_come_are_told_once_and_that_they_came(self, reason: str) -> None:
        cloud = Cloud()
        assert cloud.turn(Provisioned=reason) == [("Warning", reason)]
        assert cloud.turn(Provisioned=reason) == []
        assert cloud.turn(Provisioned="AllArrived") == [("Normal", "AllArrived")]
        assert cloud.turn() == []

    def test_another_reason_is_told_anew(self) -> None:
        cloud = Cloud()
        cloud.turn(Provisioned="CreationFailed")
        assert cloud.turn(Provisioned="OutOfStock") == [("Warning", "OutOfStock")]

    def test_instances_that_take_their_time_are_no_news(self) -> None:
        cloud = Cloud()
        assert cloud.turn(Provisioned="Provisioning") == []
        assert cloud.turn(Provisioned="AllArrived") == []

    def test_what_failed_comes_after_it_was_under_way_again(self) -> None:
        cloud = Cloud()
        cloud.turn(Provisioned="CreationFailed")
        assert cloud.turn(Provisioned="Provisioning") == []
        assert cloud.turn(Provisioned="AllArrived") == [("Normal", "AllArrived")]
        cloud.turn(Provisioned="Provisioning")
        assert cloud.turn(Provisioned="AllArrived") == []

    def test_an_outage_is_told_when_it_begins_and_when_it_is_over(self) -> None:
        cloud = Cloud()
        out = cloud.turn(Outage="SpecOutage", Provisioned="Outage")
        assert out == [("Warning", "Outage")]
        assert cloud.turn() == []
        over = cloud.turn(Outage="NoOutage", Provisioned="AllArrived")
        assert over == [("Normal", "OutageOver")]

    def test_what_kwok_undoes_is_told_and_that_it_is_held_again(self) -> None:
        cloud = Cloud()
        assert cloud.turn(CloudSimulated="NotHeld") == [("Warning", "NotHeld")]
        assert cloud.turn(CloudSimulated="HeldByStage") == [("Normal", "Held")]

    def test_without_a_simulated_cloud_it_is_not_over_but_gone(self) -> None:
        cloud = Cloud()
        cloud.turn(Provisioned="CreationFailed", Outage="SpecOutage")
        cloud.status = cloud.status.model_copy(update={"conditions": ()})
        assert cloud.turn() == []


SPOT = Group.parse(
    {
        "metadata": {"name": "web", "uid": "u-1"},
        "spec": {"cloud": {"interruptions": {"hourlyRate": "0.1", "notice": "30s"}}},
    }
)


class TestNotice:
    def noticed(self, *names: str, group: Group = SPOT, reason: str = "Interrupted") -> Events:
        events = Events()
        announce_notice(cast(Recorder, events), group, names, reason=reason)
        return events

    def test_the_group_tells_of_all_in_one_event(self) -> None:
        events = self.noticed("web-3", "web-1", "web-2")
        assert events.told == [
            (
                "Normal",
                "Interrupted",
                "3 nodes get notice and go in 30s: web-1, web-2, web-3.",
            )
        ]

    def test_each_node_tells_of_itself(self) -> None:
        events = self.noticed("web-1")
        assert events.told_to_nodes == [
            (
                "web-1",
                "Warning",
                "Interrupted",
                "The simulated cloud takes the node back in 30s, by an interruption.",
            )
        ]
        assert events.told[0][2] == "1 node gets notice and goes in 30s: web-1."

    def test_the_end_of_a_life_is_told_as_that(self) -> None:
        events = self.noticed("web-1", reason="MaxLifetime")
        assert events.told[0][2] == (
            "1 node has reached the maximum lifetime and goes in 30s: web-1."
        )
        assert "at the end of its maximum lifetime" in events.told_to_nodes[0][3]

    def test_thousands_are_told_in_a_few_words_and_by_a_few_nodes(self) -> None:
        events = self.noticed(*(f"web-{n:06}" for n in range(5_000)))
        assert "and 4995 more" in events.told[0][2]
        assert len(events.told_to_nodes) == MAX_NODES_TOLD

    def test_nobody_knows_when_a_node_goes_once_the_spec_is_silent(self) -> None:
        events = self.noticed("web-1", group=GROUP)
        assert events.told[0][2] == "1 node gets notice and goes soon: web-1."

    def test_nobody_is_nothing_to_tell(self) -> None:
        assert self.noticed().told == []


def test_what_goes_badly_together_is_told_when_it_is_new() -> None:
    spec = {
        "autoscaling": {"options": {"scaleDownUnneededTime": "1m"}},
        "cloud": {"readinessDelay": {"fixed": "5m"}},
    }
    group = Group.parse({"metadata": {"name": "web", "uid": "u-1"}, "spec": spec})
    events = Events()
    after = KwokNodeGroupStatus(observed_generation=1)
    for before in (KwokNodeGroupStatus(), after):
        plan = Plan(
            target=Target(3, 3), pending=(), create=(), delete=(), batches=(), next_serial=3
        )
        announce(cast(Recorder, events), group, before=before, after=after, plan=plan)
    ((kind, reason, message),) = events.told
    assert (kind, reason) == ("Warning", "Caution")
    assert "cloud.readinessDelay" in message
