"""When cluster-autoscaler (CA) is told a group's options, and when its own flags hold for a moment.

CA 1.35 and later give nodes no time to become Ready as soon as they are told any options, so there
are none while a node of the group is starting:

- not Ready, or kept off by Kubernetes, for 15 minutes at most; not what is Ready, going, or gone
- one group's nodes are no matter of another's
- but an instance that may take longer than the flags allow is not given up meanwhile
- asked four times for each node, it costs the same however many nodes are starting
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kwok_operator.kube.groups import Group
from kwok_operator.shim.groupnodes import STARTUP_TIME
from kwok_operator.shim.grpcwire import RpcError
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from tests.fakes.shimcalls import NOW, Clock, Shim
from tests.fakes.shimstore import group_of, node_of, pending

"""Epoch seconds of the time at which `pending` was asked for."""
OPTIONS: dict[str, Any] = {"scaleDownUnneededTime": "5m", "maxNodeProvisionTime": "1h"}


@pytest.fixture
def clock() -> Clock:
    return Clock()


def patient(name: str = "web", **more: Any) -> Group:
    """A group with options, whose nodes may take an hour to come."""
    return group_of(name, autoscaling={"options": more.pop("options", OPTIONS)}, **more)


def told(shim: Shim, name: str = "web", *, provision: int = 900) -> bool:
    """Whether the group's options are told; `provision` is CA's flag, in seconds."""
    defaults = pb.NodeGroupAutoscalingOptions()
    defaults.MaxNodeProvisionDuration.FromSeconds(provision)
    request = pb.NodeGroupAutoscalingOptionsRequest(id=name, defaults=defaults)

    try:
        shim.ask("NodeGroupGetOptions", request, pb.NodeGroupAutoscalingOptionsResponse)
    except RpcError as error:
        assert (error.code.name, error.message) == (
            "UNIMPLEMENTED",
            "a node of the group is still starting",
        )
        return False
    return True


class TestWhoIsStarting:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"ready": True}, True),
            ({"ready": False}, False),
            ({"ready": True, "not_ready_taint": True}, False),
            ({"ready": False, "deleting": True}, True),
            ({"ready": False, "owner_uids": ()}, True),
            ({"ready": False, "created": NOW - STARTUP_TIME - 1}, True),
            ({"ready": False, "created": NOW - STARTUP_TIME + 1}, False),
        ],
        ids=["Ready", "not Ready", "tainted", "going", "another's", "too old", "still young"],
    )
    def test_a_node(self, clock: Clock, changes: dict[str, Any], expected: bool) -> None:
        group = patient()
        shim = Shim(group, clock=clock)
        shim.store.put_node(node_of(group, 0, **{"created": NOW, **changes}))
        assert told(shim) is expected

    @pytest.mark.parametrize("end", ["Ready", "deleted", "not in a new list", "old"])
    def test_until(self, clock: Clock, end: str) -> None:
        group = patient()
        shim = Shim(group, clock=clock)
        starting = node_of(group, 0, ready=False, created=NOW)
        shim.store.put_node(starting)
        assert not told(shim)
        if end == "Ready":
            shim.store.put_node(node_of(group, 0, created=NOW))
        elif end == "deleted":
            shim.store.drop_node(starting)
        elif end == "not in a new list":
            shim.store.replace_nodes([], 1)
        else:
            clock.now += STARTUP_TIME
        assert told(shim)

    def test_one_of_many_is_enough_whatever_the_order(self, clock: Clock) -> None:
        group = patient()
        shim = Shim(group, clock=clock)
        for serial, age in enumerate((800, 100, 500)):
            shim.store.put_node(node_of(group, serial, ready=False, created=NOW - age))
        for later, expected in ((0, False), (200, False), (500, False), (801, True)):
            clock.now = NOW + later
            assert told(shim) is expected

    def test_another_group_goes_on(self, clock: Clock) -> None:
        groups = [patient("a"), patient("b")]
        shim = Shim(*groups, clock=clock)
        shim.store.put_node(node_of(groups[0], 0, ready=False, created=NOW))
        assert (told(shim, "a"), told(shim, "b")) == (False, True)


class TestWhoMayTakeLonger:
    """The instance was asked for at NOW, and a node of the group is starting."""

    def ask(self, clock: Clock, later: float, **more: Any) -> bool:
        group = patient(**({"status": {"nextSerial": 2, "pending": [pending(1, 1)]}} | more))
        clock.now = NOW + later
        shim = Shim(group, clock=clock)
        shim.store.put_node(node_of(group, 0, ready=False, created=clock.now))
        return told(shim)

    @pytest.mark.parametrize(("later", "expected"), [(899, False), (901, True), (9_999, True)])
    def test_once_the_flag_would_give_it_up(
        self, clock: Clock, later: float, expected: bool
    ) -> None:
        assert self.ask(clock, later) is expected

    def test_not_where_the_group_is_no_more_patient_than_the_flag(self, clock: Clock) -> None:
        assert not self.ask(clock, 901, options={"maxNodeProvisionTime": "15m"})
        assert not self.ask(clock, 901, options={"scaleDownUnneededTime": "5m"})

    def test_not_where_nothing_is_missing(self, clock: Clock) -> None:
        assert not self.ask(clock, 901, status={"nextSerial": 2})

    @pytest.mark.parametrize("date", ["", "yesterday", "0001-01-01T00:00:00"])
    def test_nor_where_nobody_knows_since_when(self, clock: Clock, date: str) -> None:
        batch = {**pending(1, 1), "requestedAt": date}
        assert not self.ask(clock, 9_999, status={"nextSerial": 2, "pending": [batch]})


def test_it_costs_the_same_however_many_are_starting(clock: Clock) -> None:
    def seconds(starting: int) -> float:
        group = patient()
        shim = Shim(group, clock=clock)
        for serial in range(starting):
            shim.store.put_node(node_of(group, serial, ready=False, created=NOW))
        return min(timed(lambda: shim.store.is_starting(group)) for _ in range(50))

    assert seconds(20_000) < 20 * seconds(1) + 0.0001


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
