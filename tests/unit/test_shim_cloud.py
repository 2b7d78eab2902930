"""What cluster-autoscaler (CA) is told of a simulated cloud, and what it does then."""

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator import constants
from kwok_operator.cloud import arrival, record
from kwok_operator.cloud.annotations import dump_life
from kwok_operator.cloud.api.cloud import Cloud, ErrorClass
from kwok_operator.cloud.checks import cautions
from kwok_operator.cloud.life import ComingResource, End, Life, PassingTaint
from kwok_operator.cloud.record import CloudRecord, Refusal
from kwok_operator.cloud.states import Fault
from kwok_operator.cloud.summary import autoscaler_state
from kwok_operator.cloud.terms import History
from kwok_operator.cloud.units import NO_OUTAGE
from kwok_operator.formats.times import format_time, parse_time
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.status import batches_of
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import SERVICE
from tests.fakes.apiserver import GROUPS
from tests.fakes.protobuf import put
from tests.fakes.shimcalls import STATES, Clock, Shim, options_are_given
from tests.fakes.shimstore import group_of, node_of, pending
from tests.fakes.shimstory import Story, story
from tests.unit.clouds import CLOUDS, QUICK, cloud

__all__ = ["story"]

T0 = parse_time(pending(0, 0)["requestedAt"])
"""When what is `pending` was asked for."""
SLOW = {"provisioningDelay": {"fixed": "1h"}}
SOME_FAIL = {"failures": {"creation": [{"serials": "1-2", "code": "SoldOut"}]}}
SOLD_OUT = Fault(ErrorClass.OUT_OF_RESOURCES, "NoCapacity", "zone-b is sold out")


def status_of(spec: Cloud, *refusals: Refusal) -> dict[str, Any]:
    """status.cloud as the operator writes it when it asks for instances."""
    history = History().revised(spec, group="web", now=T0, oldest=T0)
    return CloudRecord(history, refusals).dump().dump()


def waiting(spec: dict[str, Any] | Cloud, *refusals: Refusal, count: int = 1, **more: Any) -> Group:
    """A group that waits for so many instances."""
    model = spec if isinstance(spec, Cloud) else cloud(**spec)
    status = {"pending": [pending(0, count - 1)], "nextSerial": count}
    status |= {"targetSize": count, "cloud": status_of(model, *refusals)}
    return group_of(status=status, **{"autoscaling": {"maxSize": 10_000}, **more})


def refusal(*serials: int, fault: Fault | None = SOLD_OUT) -> Refusal:
    return Refusal(frozenset(serials), T0, "zone-b", "PoolExhausted", fault)


def fails(**failure: Any) -> dict[str, Any]:
    return {"failures": {"creation": [{"serials": "0", **failure}]}}


Instance = tuple[str, tuple[str, str, int] | None]
"""The state, and the code, the message and the class of its error."""


def read(group: Group, answer: Any) -> dict[int, Instance]:
    """By serial."""
    found: dict[int, Instance] = {}
    for instance in answer.instances:
        serial = group.names.serial(instance.id.removeprefix("kwok:"))
        assert serial is not None
        assert serial not in found, "told once"
        error, has = instance.status.errorInfo, instance.status.HasField("errorInfo")
        told_error = (error.errorCode, error.errorMessage, error.instanceErrorClass)
        found[serial] = STATES[instance.status.instanceState], told_error if has else None
    return found


def instances(shim: Shim) -> dict[int, Instance]:
    group = shim.store.served("web")
    assert group is not None
    request = pb.NodeGroupNodesRequest(id="web")
    return read(group, shim.ask("NodeGroupNodes", request, pb.NodeGroupNodesResponse))


def target(shim: Shim) -> int:
    request = pb.NodeGroupTargetSizeRequest(id="web")
    return int(shim.ask("NodeGroupTargetSize", request, pb.NodeGroupTargetSizeResponse).targetSize)


@pytest.fixture
def clock() -> Clock:
    """At T0."""
    clock = Clock()
    assert clock.now * 1_000 == T0
    return clock


class TestInstanceStates:
    def test_of_an_instance_without_a_node(self, clock: Clock) -> None:
        cases: list[tuple[dict[str, Any], list[Refusal], Instance]] = [
            (SLOW, [], ("Creating", None)),
            ({}, [], ("Creating", None)),
            ({"failures": {"neverRegisters": {"serials": "0"}}}, [], ("Running", None)),
            ({}, [refusal(0)], ("Creating", ("NoCapacity", "zone-b is sold out", 1))),
            ({}, [refusal(0, fault=None)], ("Creating", None)),
        ]
        for name, number in {"OutOfResources": 1, "QuotaExceeded": 1, "Other": 99}.items():
            told_so = fails(code="Broken", message="no host", **{"class": name})
            cases.append((told_so, [], ("Creating", ("Broken", "no host", number))))
            # An error without a code would be none.
            message = "the simulated cloud did not create the instance"
            silent = fails(**{"class": name})
            cases.append((silent, [], ("Creating", (name, message, number))))
        for spec, refusals, expected in cases:
            assert instances(Shim(waiting(spec, *refusals), clock=clock)) == {0: expected}, spec

    def test_an_error_shows_when_it_happens(self, clock: Clock) -> None:
        shim = Shim(waiting(fails(after={"fixed": "20s"})), clock=clock)
        assert instances(shim)[0] == ("Creating", None)
        clock.now += 19
        assert instances(shim)[0][1] is None
        clock.now += 1
        assert instances(shim)[0][1] is not None

    def test_an_error_ends_with_the_next_try(self, clock: Clock) -> None:
        drawn = {**fails(times=1), "retryAfter": "1m", **SLOW}
        decided = {"retryAfter": "1m"}
        by_draws = Shim(waiting(drawn), clock=clock)
        by_others = Shim(waiting(decided, refusal(0)), clock=clock)
        assert instances(by_draws)[0][1] is not None
        clock.now += 61
        assert instances(by_draws)[0] == ("Creating", None)
        assert instances(by_others)[0][1] is not None, "until that is written down"
        by_others.store.put_group(waiting(decided))
        assert instances(by_others)[0] == ("Creating", None)

    def test_a_node_that_is_stuck_is_deleting_and_counts_no_more(self, clock: Clock) -> None:
        group = group_of(targetSize=1, status={"nextSerial": 2})
        shim = Shim(group, clock=clock)
        going, odd = node_of(group, 0), node_of(group, 1)
        going.annotations[constants.DELETE_AT_ANNOTATION] = format_time(T0 + 60_000)
        odd.annotations[constants.DELETE_AT_ANNOTATION] = "soon"
        for view in (going, odd):
            shim.store.put_node(view)
        assert instances(shim) == {0: ("Deleting", None), 1: ("Running", None)}
        assert shim.store.fleet(group).staying == target(shim) == 1

    def test_a_node_that_the_cloud_takes_back_is_deleting_and_replaced(self, clock: Clock) -> None:
        """At that very moment; where others must wait, only with notice of its own."""
        for at_a_time, noticed, over in ((None, False, True), (2, False, False), (2, True, True)):
            spec = {"interruptions": {"lifetime": {"fixed": "1m"}, "atATime": at_a_time}}
            group = group_of(targetSize=1, status={"nextSerial": 1, "targetSize": 1}, cloud=spec)
            shim, view = Shim(group, clock=clock), node_of(group, 0)
            clock.now = T0 / 1_000 + 59
            view.annotations[constants.LIFE_ANNOTATION] = dump_life(
                Life(T0, end=End(60_000, 20_000, "Interrupted"))
            )
            if noticed:
                view.annotations[constants.NOTICED_AT_ANNOTATION] = format_time(T0 + 40_000)
            shim.store.put_node(view)
            assert instances(shim) == {0: ("Running", None)}
            clock.now += 1
            ended = {0: ("Deleting", None), 1: ("Creating", None)}
            assert instances(shim) == (ended if over else {0: ("Running", None)})
            assert target(shim) == 1

    def test_dates_that_the_operator_did_not_write(self, clock: Clock) -> None:
        batches = [pending(0, 0) | {"requestedAt": "yesterday"}, pending(1, 1)]
        status = {"pending": batches, "nextSerial": 2, "targetSize": 2}
        status |= {"cloud": status_of(cloud(failures={"creation": [{"probability": "1"}]}))}
        found = instances(Shim(group_of(status=status), clock=clock))
        assert found.keys() == {1, 2}, "the first is asked for anew, under another name"
        assert found[2] == ("Creating", None)
        assert found[1][1] is not None

    def test_a_group_without_a_record_has_no_errors(self, clock: Clock) -> None:
        """Also where it had one: spec.cloud was taken away."""
        shim = Shim(waiting(fails()), clock=clock)
        assert instances(shim)[0][1] is not None
        status = {"pending": [pending(0, 0)], "nextSerial": 1, "targetSize": 1}
        shim.store.put_group(group_of(status=status))
        assert instances(shim)[0] == ("Creating", None)


class TestAgreement:
    @QUICK
    @given(
        spec=CLOUDS,
        count=st.integers(1, 30),
        there=st.sets(st.integers(0, 29)),
        seconds=st.lists(st.integers(0, 3_000), min_size=1, max_size=4),
        refused=st.sets(st.integers(0, 29)),
    )
    def test_instances_are_as_many_as_the_target_for_any_cloud(
        self, spec: Cloud, count: int, there: set[int], seconds: list[int], refused: set[int]
    ) -> None:
        """Of the same record, read back, at any times, in any order."""
        clock = Clock()
        refusals = [refusal(*refused)] if refused else []
        group = waiting(spec, *refusals, count=count)
        shim, arrived = Shim(group, clock=clock), {s for s in there if s < count}
        for serial in arrived:
            shim.store.put_node(node_of(group, serial))
        assert group.status.cloud is not None
        kept = CloudRecord.read(group.status.cloud, batches_of(group.status))
        for second in seconds:
            clock.now = T0 / 1_000 + second
            found = instances(shim)
            staying = [1 for state, _ in found.values() if state != "Deleting"]
            assert len(staying) == len(found) == target(shim) == count
            steps = kept.walk("web", out=NO_OUTAGE, now=int(clock.now * 1_000))
            for serial in set(range(count)) - arrived:
                *_, phase = steps(serial, T0, None)
                state, fault = autoscaler_state(phase.state, phase.fault)
                assert found[serial][0] == state
                assert (found[serial][1] or ("",))[0] == (fault.code if fault else "")


class TestKeptPhases:
    @pytest.fixture
    def drawn(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Serials, one for each time that a phase was worked out."""
        found: list[int] = []

        def counted(history: Any, who: Any, **more: Any) -> Any:
            found.append(who.serial)
            return arrival.walk(history, who, **more)

        monkeypatch.setattr(record, "walk", counted)
        return found

    def test_thousands_that_wait_are_drawn_once(self, clock: Clock, drawn: list[int]) -> None:
        shim = Shim(waiting(SLOW, count=2_000), clock=clock)
        for _ in range(5):
            clock.now += 10
            assert len(instances(shim)) == 2_000
        assert sorted(drawn) == list(range(2_000))

    def test_draws_let_others_run(self, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(record, "TRIES_AT_ONCE", 100)
        shim = Shim(waiting(SLOW, count=2_000), clock=clock)
        call: Any = shim.calls[f"{SERVICE}NodeGroupNodes"](put(1, "web"))
        turns = 0
        with pytest.raises(StopIteration):
            while True:
                call.send(None)
                turns += 1
        assert turns > 10

    def test_arrivals_keep_the_draws_of_others_and_a_new_request_is_drawn_anew(
        self, clock: Clock, drawn: list[int]
    ) -> None:
        shim = Shim(waiting(SLOW, count=5), clock=clock)
        instances(shim)
        later = {**pending(4, 4), "requestedAt": format_time(T0 + 60_000)}
        status = {"pending": [pending(2, 3), later], "nextSerial": 5, "targetSize": 5}
        group = group_of(status=status | {"cloud": status_of(cloud(**SLOW))})
        shim.store.put_group(group)
        for arrived in (0, 1):
            shim.store.put_node(node_of(group, arrived))
        assert instances(shim).keys() == {0, 1, 2, 3, 4}
        assert sorted(drawn) == [0, 1, 2, 3, 4, 4]

    def test_an_edit_holds_at_once(self, clock: Clock) -> None:
        shim = Shim(waiting(SLOW), clock=clock)
        assert instances(shim)[0] == ("Creating", None)
        shim.store.put_group(waiting(fails()))
        assert instances(shim)[0][1] is not None

    def test_nothing_of_groups_that_are_gone(self, clock: Clock) -> None:
        shim = Shim(clock=clock)
        for turn in range(5):
            group = waiting(SLOW, count=3, uid=f"uid-{turn}")
            shim.store.put_group(group)
            shim.loop()
            instances(shim)
            states: Any = vars(shim.provider)["_states"]
            assert len(states.known) == 1
            shim.store.drop_group(group)
            shim.loop()
            assert states.known == []


def wait_for(story: Story, spec: dict[str, Any], *, last: int, first: int = 0) -> None:
    """The operator asks its cloud for these."""
    story.give_out(first, last, cloud=status_of(cloud(**spec)))


def add_group(story: Story, name: str) -> None:
    """Another one, without nodes."""
    body = {
        "apiVersion": "kwok-operator.io/v1alpha1",
        "kind": "KwokNodeGroup",
        "metadata": {"name": name},
        "spec": {"targetSize": 0, "autoscaling": {}},
    }
    story.server.create(GROUPS, body)
    story.store.put_group(Group.parse(story.server.objects(GROUPS)[name]))


async def errors(story: Story) -> dict[int, str]:
    """Codes by serial."""
    answer = await story.raw("NodeGroupNodes", put(1, "web"))
    found = read(story.group, pb.NodeGroupNodesResponse.FromString(answer))
    return {serial: error[0] for serial, (_, error) in found.items() if error}


class TestStories:
    """As CA goes on; whatever it gives back is named, so that the operator asks for no more."""

    async def test_what_failed_is_given_back_and_another_group_is_taken(self, story: Story) -> None:
        """Within one loop: the placeholders go, and then the same pods scale up another group."""
        await story.increase(3)
        wait_for(story, SOME_FAIL, last=2)
        assert await story.target() == len(await story.instances()) == 3
        assert await errors(story) == {1: "SoldOut", 2: "SoldOut"}
        await story.give_back(1, 2, reason="create-error")
        assert (await story.target(), await story.instances()) == (1, {0: "Creating"})
        assert story.named() == story.names(1, 2), "not to be tried again"
        assert await errors(story) == {}
        add_group(story, "db")
        await story.raw("NodeGroupIncreaseSize", put(1, 2) + put(2, "db"))
        assert story.server.objects(GROUPS)["db"]["spec"]["targetSize"] == 2
        story.come(0)
        assert (await story.target(), await story.instances()) == (1, {0: "Running"})

    async def test_an_older_look_at_what_failed_takes_nothing_more(self, story: Story) -> None:
        """CA looks at a group's instances every two minutes only."""
        await story.increase(3)
        wait_for(story, SOME_FAIL, last=2)
        for _ in range(2):
            await story.give_back(1, 2, reason="create-error")
            assert await story.target() == 1
        await story.increase(2)
        await story.give_back(1, 2, reason="create-error")
        assert await story.target() == 3

    async def test_at_the_minimum_what_failed_goes_all_the_same(self, story: Story) -> None:
        story.change(targetSize=3, autoscaling={"minSize": 3, "maxSize": 9})
        wait_for(story, SOME_FAIL, last=2)
        await story.give_back(1, 2, reason="create-error")
        creating = dict.fromkeys([0, 3, 4], "Creating")
        assert (await story.target(), await story.instances()) == (3, creating)

    async def test_what_never_registers_times_out(self, story: Story) -> None:
        """Running and without a Node: after --max-node-provision-time CA gives it back."""
        await story.increase(2)
        wait_for(story, {"failures": {"neverRegisters": {"serials": "1"}}}, last=1)
        story.come(0)
        assert await story.instances() == {0: "Running", 1: "Running"}
        name = story.names(1)[0]
        placeholder = put(1, put(1, f"kwok:{name}") + put(2, f"kwok:{name}"))
        owner = await story.raw("NodeGroupForNode", placeholder)
        assert pb.NodeGroupForNodeResponse.FromString(owner).nodeGroup.id == "web"
        await story.give_back(1, reason="unregistered")
        assert (await story.target(), await story.instances()) == (1, {0: "Running"})

    async def test_by_number_what_has_not_arrived_is_taken_back(self, story: Story) -> None:
        """As CA does at a time-out, before it gives them back by name: which then does nothing."""
        spec = {
            "failures": {"neverRegisters": {"serials": "1"}},
            "provisioningDelay": {"fixed": "1h"},
        }
        await story.increase(4)
        wait_for(story, spec, last=3)
        story.come(0)
        await story.decrease(-4)
        assert (await story.target(), await story.instances()) == (1, {0: "Running"})
        await story.give_back(1, 2, 3, reason="unregistered")
        assert await story.target() == 1

    async def test_some_of_a_request_come_and_some_fail(self, story: Story) -> None:
        """Calls of CA come at once, and nobody counts twice."""
        await story.increase(20)
        wait_for(story, {"failures": {"creation": [{"serials": "12-19"}]}}, last=19)
        assert len(await errors(story)) == 8
        await asyncio.gather(*(story.give_back(s, reason="create-error") for s in range(12, 20)))
        assert await story.target() == len(await story.instances()) == 12


class TestOptionsGiveWay:
    """CA 1.35 and later would ask for another node in the place of one that starts."""

    def test_while_a_ready_node_is_being_initialized(self, clock: Clock) -> None:
        lives = (
            (Life(T0, taints=(PassingTaint("agent", "", "NoSchedule", 40_000),)), False),
            (Life(T0, resources=(ComingResource("nvidia.com/gpu", "1", 40_000),)), False),
            (None, True),  # a record that is none
        )
        for life, told_at_once in lives:
            group = group_of(autoscaling={"options": {"scaleDownUnneededTime": "5m"}})
            shim = Shim(group, clock=clock)
            clock.now = T0 / 1_000
            view = node_of(group, 0, created=clock.now)
            view.annotations[constants.LIFE_ANNOTATION] = dump_life(life) if life else "{}"
            shim.store.put_node(view)
            assert options_are_given(shim) is told_at_once
            clock.now += 40
            shim.store.put_node(view)
            assert options_are_given(shim)

    def test_but_not_while_an_instance_has_waited_for_long(self, clock: Clock) -> None:
        """The first serials may have been asked for anew, when there was room for them."""
        later = {**pending(0, 0), "requestedAt": format_time(T0 + 899_000)}
        status = {"pending": [later, pending(1, 1)], "nextSerial": 3}
        group = group_of(autoscaling={"options": {"maxNodeProvisionTime": "1h"}}, status=status)
        shim = Shim(group, clock=clock)
        clock.now += 899
        shim.store.put_node(node_of(group, 2, created=clock.now, ready=False))
        assert not options_are_given(shim)
        clock.now += 2
        assert options_are_given(shim)


class TestCautions:
    def test_settings_that_conflict_are_logged(self) -> None:
        soon, slow = {"after": {"fixed": "1s"}}, {"readinessDelay": {"fixed": "20s"}}
        taint = {"key": "a", "effect": "NoSchedule", "removedAfter": {"fixed": "1s"}}
        later = {
            "lateResources": [{"name": "nvidia.com/gpu", **soon}],
            "startupTaints": [taint],
        }
        unneeded, hasty = {"scaleDownUnneededTime": "5m"}, {"maxNodeProvisionTime": "2m"}
        long = {"provisioningDelay": {"lognormal": {"p50": "40s", "p99": "3m"}}}
        cases: list[tuple[Any, Any, list[str]]] = [
            (slow, unneeded, ["readinessDelay"]),
            (later, unneeded, ["startupTaints and lateResources"]),
            (long, hasty, ["maxNodeProvisionTime is 2m", "180s"]),
            ({"provisioningDelay": {"fixed": "1m"}}, hasty, []),
            (slow, {}, []),
            (slow, None, []),
        ]
        for spec, options, words in cases:
            autoscaling = {"options": options}
            given_spec = {"cloud": spec, "autoscaling": autoscaling}
            sentences = " ".join(cautions(KwokNodeGroupSpec.model_validate(given_spec)))
            assert all(word in sentences for word in words), sentences
            assert bool(sentences) is bool(words)

    def test_it_is_logged_once_for_each_change(self, caplog: pytest.LogCaptureFixture) -> None:
        def group(**delay: str) -> Group:
            autoscaling = {"options": {"scaleDownUnneededTime": "5m"}}
            return group_of(autoscaling=autoscaling, cloud=delay and {"readinessDelay": delay})

        caplog.set_level(logging.WARNING)
        shim = Shim(group(fixed="20s"))
        for _ in range(3):
            shim.loop()
        assert [r.getMessage().split(":")[0] for r in caplog.records] == ["group=web"]
        shim.store.put_group(group())
        shim.loop()
        shim.store.put_group(group(fixed="30s"))
        shim.loop()
        assert len(caplog.records) == 2


def test_a_group_without_a_cloud_has_the_same_states() -> None:
    group = group_of(status={"pending": [pending(1, 1)], "nextSerial": 2}, targetSize=2)
    shim = Shim(group)
    shim.store.put_node(node_of(group, 0))
    assert instances(shim) == {0: ("Running", None), 1: ("Creating", None)}
