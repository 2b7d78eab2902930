"""Which transitions of a group become an Event, and that each is told once."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kwok_operator.cloud.checks import cautions
from kwok_operator.cloud.step import MAX_NODES_REPORTED, announce_notice
from kwok_operator.kube.events import Recorder
from kwok_operator.nodegroups.announcements import announce
from kwok_operator.nodegroups.api.status import Condition, ConditionType, KwokNodeGroupStatus
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.plan import Limit, Plan, Target
from kwok_operator.nodegroups.status import make_status
from tests.fakes.facts import AT_REST

NOW = "2026-01-02T03:04:05Z"
GROUP = Group.parse({"metadata": {"name": "web", "uid": "u-1"}})
SETTLED = dataclasses.replace(AT_REST, generation=1, next_serial=3)
NO_PLAN = Plan(Target(3, 3), pending=(), create=(), delete=(), batches=(), next_serial=3)
MAX_SIZE = Limit("MaxSize", "autoscaling.maxSize is 3; 9 would be more.")


class Events:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self.logged: list[dict[str, str]] = []
        self.told_to_nodes: list[tuple[str, str, str, str]] = []

    def emit(self, group: Group, kind: str, reason: str, message: str, *, log: Any = None) -> None:
        assert group.name == GROUP.name
        self.logged += [log] if log and (kind == "Warning" or "over" in log) else []
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
        self.logged: list[dict[str, str]] = []

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
        todo = dataclasses.replace(
            NO_PLAN, target=self.facts.target, next_serial=self.facts.next_serial, **(plan or {})
        )
        events = Events()
        announce(cast(Recorder, events), GROUP, before=self.status, after=after, plan=todo)
        self.status = after
        self.logged += events.logged
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
    def test_asking_for_nodes_is_told_once_and_that_they_are_there(self, passes: Passes) -> None:
        asked: dict[str, Any] = {"target": Target(5, 5), "pending": 2, "next_serial": 5}
        told = passes.events(plan=UP, generation=2, **asked)
        assert told == [("Normal", "ScalingUp", "Scaling up from 3 to 5: 2 nodes to create.")]
        assert passes.next(plan=UP) == []
        more = {"pending": (3, 4, 5), "create": (3, 4, 5)}
        told = passes.events(plan=more, target=Target(6, 6), pending=3, next_serial=6)
        assert told == [("Normal", "ScalingUp", "Scaling up from 3 to 6: 1 node to create.")]
        late = {"pending": (5,), "create": (5,)}
        assert passes.next(plan=late, replicas=5, ready=4, pending=1) == []
        assert passes.next(replicas=6, ready=5, pending=0) == []
        assert passes.next(ready=6) == [("Normal", "Ready")]

    def test_deleting_nodes_is_told_once(self, passes: Passes) -> None:
        down = {"delete": ("web-2", "web-1")}
        told = passes.events(plan=down, target=Target(1, 1), leaving=2, generation=2)
        assert told == [("Normal", "ScalingDown", "Scaling down from 3 to 1: 2 nodes to delete.")]
        assert passes.next(plan=down, refusal="forbidden") == [("Warning", "Refused")]
        for _ in range(3):
            assert passes.next(plan=down) == []
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


def test_another_template_is_news_and_the_first_one_is_not(passes: Passes) -> None:
    assert passes.template("aaa") == []
    assert passes.template("bbb", updated=1) == [
        (
            "Normal",
            "TemplateChanged",
            "New nodes are made from template bbb. 2 nodes of a former one: kept as they are"
            " (OnDelete).",
        )
    ]
    assert passes.template("bbb") == []
    ((_, _, message),) = passes.template("ccc", replicas=0, ready=0, updated=0)
    assert message == "New nodes are made from template ccc."


def test_names_that_name_nothing_are_told_once_per_generation(passes: Passes) -> None:
    unknown = {"unknown": ("web-000099", "web-000098")}
    ((kind, reason, message),) = passes.events(plan=unknown, generation=2)
    assert (kind, reason) == ("Warning", "UnknownNodes")
    assert "web-000098, web-000099" in message
    assert passes.next(plan=unknown) == []
    many = {"unknown": tuple(f"web-{n:06}" for n in range(5_000))}
    ((_, _, message),) = passes.events(plan=many, generation=3)
    assert "and 4995 more" in message
    passes.next(plan={"delete": ("web-2",)}, target=Target(2, 2), leaving=1, generation=4)
    told = passes.next(plan={"unknown": ("web-2",)}, replicas=2, ready=2, leaving=0)
    assert told == [("Normal", "Ready")], "it was there"


TURNS: list[tuple[dict[str, Any], list[tuple[str, str]], dict[str, Any], list[str]]] = [
    ({"paused": True}, [("Normal", "SpecPaused")], {"paused": False}, ["Resumed"]),
    (
        {"target": Target(3, 9, MAX_SIZE)},
        [("Normal", "MaxSize")],
        {"target": Target(3, 3)},
        ["WithinLimits"],
    ),
    (
        {"foreign": ("real-node",)},
        [("Warning", "NotOurs")],
        {"foreign": ()},
        ["NoForeignNodes"],
    ),
    ({"refusal": "forbidden"}, [("Warning", "Refused")], {"refusal": None}, ["Recovered"]),
    (
        {"kwok_silent": "silent", "ready": 2},
        [("Warning", "KwokNotResponding")],
        {"kwok_silent": None, "ready": 3},
        ["KwokResponding", "Ready"],
    ),
    # One cause that turns two conditions.
    (
        {"template_error": "broken"},
        [("Warning", "TemplateInvalid")],
        {"template_error": None},
        ["TemplateResolved", "Ready"],
    ),
    (
        {"autoscaled": True, "hindrance": ("TooMany", "too many")},
        [("Warning", "TooMany")],
        {"hindrance": None},
        ["Drivable"],
    ),
    (
        {"autoscaled": True, "paused": True, "hindrance": ("SpecPaused", "the group is paused")},
        [("Normal", "SpecPaused")],
        {"paused": False, "hindrance": None},
        ["Resumed"],
    ),
]
"""What turns a condition and what is told then, what turns it back and the reasons told then."""


class TestConditions:
    @pytest.mark.parametrize("turn", TURNS, ids=lambda turn: turn[1][0][1])
    def test_each_turn_is_one_event_also_after_a_restart(self, passes: Passes, turn: Any) -> None:
        changes, told, back, over = turn
        for fields, events in ((changes, told), (back, [("Normal", reason) for reason in over])):
            assert passes.next(**fields) == events
            assert passes.next() == []
            passes.restart()
            assert passes.next() == []
            assert passes.next(generation=passes.facts.generation + 1) == []
        warned, ended = (
            {log[key] for log in passes.logged if key in log} for key in ("trouble", "over")
        )
        assert warned <= ended
        assert bool(warned) is (told[0][0] == "Warning")

    def test_the_sentence_is_that_of_the_condition(self, passes: Passes) -> None:
        ((_, _, message),) = passes.events(template_error="field x is wrong")
        assert message == "field x is wrong"

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
        announce(cast(Recorder, events), GROUP, before=self.status, after=after, plan=NO_PLAN)
        self.status = KwokNodeGroupStatus.model_validate(after.dump())
        return [(kind, reason) for kind, reason, _ in events.told[before:]]


TRUE = ("AllArrived", "SpecOutage", "PoolOutage", "HeldByStage")
FAILURES = ("CreationFailed", "OutOfStock", "PoolExhausted", "PoolMissing", "NeverRegisters")


class TestSimulatedCloud:
    @pytest.mark.parametrize("reason", FAILURES)
    def test_instances_that_do_not_come_are_told_once_and_that_they_came(self, reason: str) -> None:
        cloud = Cloud()
        assert cloud.turn() == []
        assert {c.type for c in cloud.status.conditions} <= set(ConditionType)
        assert cloud.turn(Provisioned=reason) == [("Warning", reason)]
        assert cloud.turn(Provisioned=reason) == []
        assert cloud.turn(Provisioned="AllArrived") == [("Normal", "AllArrived")]
        assert cloud.turn() == []

    def test_those_that_take_their_time_are_no_news_but_for_an_end_of_what_failed(self) -> None:
        cloud = Cloud()
        steps = ["Provisioning", "AllArrived", "CreationFailed", "OutOfStock", "Provisioning"]
        told = [cloud.turn(Provisioned=reason) for reason in [*steps, "AllArrived", *steps[:2]]]
        failed = [[("Warning", "CreationFailed")], [("Warning", "OutOfStock")]]
        assert told == [[], [], *failed, [], [("Normal", "AllArrived")], [], []]

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


def noticed(*names: str, group: Group = SPOT, reason: str = "Interrupted") -> Events:
    events = Events()
    announce_notice(cast(Recorder, events), group, names, reason=reason)
    return events


def test_notice_is_told_in_one_event_of_the_group_and_in_one_of_each_node() -> None:
    three = noticed("web-3", "web-1", "web-2")
    assert three.told == [
        ("Normal", "Interrupted", "3 nodes get notice and go in 30s: web-1, web-2, web-3.")
    ]
    assert [name for name, *_ in three.told_to_nodes] == ["web-3", "web-1", "web-2"]
    one = noticed("web-1")
    assert one.told[0][2] == "1 node gets notice and goes in 30s: web-1."
    why = "The simulated cloud takes the node back in 30s, by an interruption."
    assert one.told_to_nodes == [("web-1", "Warning", "Interrupted", why)]
    assert noticed("web-1", group=GROUP).told[0][2] == "1 node gets notice and goes soon: web-1."
    aged = noticed("web-1", reason="MaxLifetime")
    assert aged.told[0][2] == "1 node has reached the maximum lifetime and goes in 30s: web-1."
    assert "at the end of its maximum lifetime" in aged.told_to_nodes[0][3]
    many = noticed(*(f"web-{n:06}" for n in range(5_000)))
    assert "and 4995 more" in many.told[0][2]
    assert len(many.told_to_nodes) == MAX_NODES_REPORTED
    assert noticed().told == []


def test_what_goes_badly_together_is_told_when_it_is_new() -> None:
    spec = {
        "autoscaling": {"options": {"scaleDownUnneededTime": "1m"}},
        "cloud": {"readinessDelay": {"fixed": "5m"}},
    }
    group = Group.parse({"metadata": {"name": "web", "uid": "u-1"}, "spec": spec})
    events = Events()
    after = KwokNodeGroupStatus(observed_generation=1)
    for before in (KwokNodeGroupStatus(), after):
        steps: Any = {"before": before, "after": after, "plan": NO_PLAN}
        announce(cast(Recorder, events), group, **steps, cautions=cautions(group.spec))
        assert len(events.told) == 1
    ((kind, reason, message),) = events.told
    assert (kind, reason) == ("Warning", "Caution")
    assert "cloud.readinessDelay" in message
