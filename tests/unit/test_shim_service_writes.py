"""The calls of cluster-autoscaler (CA) that change a group, by bytes in and bytes out."""

from collections.abc import Awaitable
from typing import Any

import pytest

from kwok_operator.errors import ApiUnreachableError, ForbiddenError, KwokOperatorError
from kwok_operator.nodegroups.autoscaler import Change
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim.grpcwire import RpcError
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import SERVICE, CloudProvider
from kwok_operator.shim.writer import BusyError, Decide, NotServedError
from tests.fakes.shimstore import group_of, node_of, pending, store_of

REASON = "k8s.io/cluster-autoscaler/fake-node-reason"
REQUESTS: dict[str, Any] = {
    "NodeGroupIncreaseSize": pb.NodeGroupIncreaseSizeRequest,
    "NodeGroupDecreaseTargetSize": pb.NodeGroupDecreaseTargetSizeRequest,
    "NodeGroupDeleteNodes": pb.NodeGroupDeleteNodesRequest,
}


class ScriptedWriter:
    """Decides on the store, and writes down what would be written."""

    def __init__(self, store: Any) -> None:
        self.fails: Exception | None = None
        self.written: list[Change] = []
        self._store = store

    async def change(self, group: str, decide: Decide) -> None:
        if self.fails is not None:
            raise self.fails
        change = decide(self._store.fleet(self._store.served(group)))
        if change is not None:
            self.written.append(change)


class Shim:
    def __init__(self, group: Group, *, nodes: tuple[int, ...] = ()) -> None:
        self.group = group
        self.store = store_of(group)
        for serial in nodes:
            self.store.put_node(node_of(group, serial))
        self.writer = ScriptedWriter(self.store)
        writer: Any = self.writer
        self.calls = CloudProvider(store=self.store, writer=writer).handlers()

    async def raw(self, name: str, request: bytes) -> None:
        answer = self.calls[f"{SERVICE}{name}"](request)
        assert isinstance(answer, Awaitable)
        assert await answer == b""

    async def ask(self, name: str, group: str = "web", **asked: Any) -> None:
        await self.raw(name, REQUESTS[name](id=group, **asked).SerializeToString())

    async def increase(self, delta: int) -> None:
        await self.ask("NodeGroupIncreaseSize", delta=delta)

    async def decrease(self, delta: int) -> None:
        await self.ask("NodeGroupDecreaseTargetSize", delta=delta)

    async def delete(self, *nodes: pb.ExternalGrpcNode) -> None:
        await self.ask("NodeGroupDeleteNodes", nodes=nodes)

    def node(self, serial: int, *, form: str = "kwok:") -> pb.ExternalGrpcNode:
        name = self.group.names.name(serial)
        return pb.ExternalGrpcNode(name=name, providerID=f"{form}{name}")

    def placeholder(self, serial: int, reason: str) -> pb.ExternalGrpcNode:
        node = self.node(serial)
        node.name = node.providerID
        node.annotations[REASON] = reason
        return node

    def names(self, *serials: int) -> frozenset[str]:
        return frozenset(self.group.names.name(serial) for serial in serials)


async def code_of(call: Awaitable[None]) -> str:
    with pytest.raises(RpcError) as refused:
        await call
    assert refused.value.message
    assert "\n" not in refused.value.message
    return refused.value.code.name


def of_three() -> Shim:
    return Shim(group_of(targetSize=3), nodes=(0, 1, 2))


@pytest.mark.parametrize("name", REQUESTS)
class TestEach:
    async def test_a_refused_call_changes_nothing(self, name: str) -> None:
        shim = of_three()
        assert await code_of(shim.raw(name, b"\x12\x7f")) == "INVALID_ARGUMENT", "truncated"
        for group in ("", "db", "web/status", "x" * 10_000):
            assert await code_of(shim.ask(name, group)) == "NOT_FOUND", group
        shim.store.nodes.synced.clear()
        assert await code_of(shim.ask(name)) == "UNAVAILABLE", "before all is listed"
        assert shim.writer.written == []

    async def test_errors_of_the_writer_have_their_codes(self, name: str) -> None:
        shim = of_three()
        for error, code in (
            (NotServedError("group web is gone"), "NOT_FOUND"),
            (BusyError("try again"), "ABORTED"),
            (ForbiddenError("may not", status=403), "PERMISSION_DENIED"),
            (ApiUnreachableError(server="k8s", cause="cut"), "UNAVAILABLE"),
            (KwokOperatorError("any other"), "UNAVAILABLE"),
        ):
            shim.writer.fails = error
            assert await code_of(shim.ask(name)) == code, error


async def test_an_increase_raises_the_target_alone_and_within_bounds() -> None:
    shim = Shim(group_of(targetSize=3))
    await shim.increase(4)
    assert shim.writer.written == [Change(7)]
    for delta, code in ((0, "INVALID_ARGUMENT"), (-1, "INVALID_ARGUMENT"), (8, "OUT_OF_RANGE")):
        assert await code_of(shim.increase(delta)) == code
    assert shim.writer.written == [Change(7)]


async def test_a_group_that_can_make_no_nodes_says_so_at_once() -> None:
    invalid = {
        "type": "TemplateResolved",
        "status": "False",
        "reason": "TemplateInvalid",
        "message": "spec.template.node: capacity is no quantity",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    shim = Shim(group_of(status={"conditions": [invalid]}))
    assert await code_of(shim.increase(1)) == "FAILED_PRECONDITION"
    assert shim.writer.written == []


class TestDeleteNodes:
    async def test_victims_and_target_in_one(self) -> None:
        shim = of_three()
        await shim.delete(shim.node(0), shim.node(2))
        assert shim.writer.written == [Change(1, shim.names(0, 2))]

    async def test_a_placeholder_stands_for_its_instance(self) -> None:
        status = {"nextSerial": 2, "pending": [pending(0, 1)]}
        for reason in ("unregistered", "create-error"):
            shim = Shim(group_of(targetSize=2, status=status))
            await shim.delete(shim.placeholder(1, reason))
            assert shim.writer.written == [Change(1, shim.names(1))], reason

    async def test_a_node_whose_providerid_has_another_form(self) -> None:
        shim = Shim(group_of(targetSize=1))
        node = shim.node(0, form="kwok://")
        shim.store.put_node(node_of(shim.group, 0, provider_id=node.providerID))
        await shim.delete(node)
        assert shim.writer.written == [Change(0, shim.names(0))]

    async def test_at_the_minimum_a_healthy_one_stays_and_a_failed_one_goes(self) -> None:
        status = {"nextSerial": 2, "pending": [pending(1, 1)]}
        bounds = {"minSize": 2}
        shim = Shim(group_of(targetSize=2, autoscaling=bounds, status=status), nodes=(0,))
        assert await code_of(shim.delete(shim.node(0))) == "FAILED_PRECONDITION"
        late = shim.placeholder(1, "unregistered")
        assert await code_of(shim.delete(late)) == "FAILED_PRECONDITION"
        await shim.delete(shim.placeholder(1, "create-error"))
        assert shim.writer.written == [Change(2, shim.names(1))]

    async def test_foreign_nodes_are_refused_and_the_whole_call_with_them(self) -> None:
        shim = of_three()
        ours = [shim.group.names.name(serial) for serial in range(10)]
        for what, name, provider_id in (
            ("a real one", "ip-10-0-0-1", "aws:///eu-west-1b/i-0123"),
            ("nothing", "", ""),
            ("a prefix", "kwok:", "kwok:"),
            ("of another uid", "web-aaaa-000000", "kwok:web-aaaa-000000"),
            ("a real one with our providerID", "ip-10-0-0-1", f"kwok:{ours[0]}"),
            ("our name with another providerID", ours[0], "i-0123"),
            ("never given out", ours[9], f"kwok:{ours[9]}"),
            ("two of ours", ours[1], f"kwok:{ours[0]}"),
        ):
            node = pb.ExternalGrpcNode(name=name, providerID=provider_id)
            assert await code_of(shim.delete(shim.node(2), node)) == "INVALID_ARGUMENT", what
        assert shim.writer.written == []


async def test_a_decrease_takes_back_by_name_what_has_not_come_and_never_a_node() -> None:
    status = {"nextSerial": 4, "pending": [pending(1, 3)]}
    shim = Shim(group_of(targetSize=4, status=status), nodes=(0,))
    await shim.decrease(-2)
    assert shim.writer.written == [Change(2, shim.names(2, 3))]
    shim = Shim(group_of(targetSize=3), nodes=(0, 1))
    await shim.decrease(-5)
    assert shim.writer.written == [Change(2)]
    for delta in (0, 3):
        assert await code_of(shim.decrease(delta)) == "INVALID_ARGUMENT"
