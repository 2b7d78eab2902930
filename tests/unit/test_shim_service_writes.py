"""The calls of cluster-autoscaler (CA) that change a group, by bytes in and bytes out.

- IncreaseSize, DeleteNodes, DecreaseTargetSize: what they ask for is what is written, and nothing
  where there is nothing to do
- a node is named by its providerID, also by a placeholder; what isn't ours is refused, and with
  it the whole call
- every refusal has its code, and a sentence for CA's events
- what the writer can't do has its code too
"""

from collections.abc import Awaitable
from typing import Any

import pytest

from kwok_operator.core.autoscaler import Change
from kwok_operator.errors import ApiUnreachableError, ForbiddenError, KwokOperatorError
from kwok_operator.kube.groups import Group
from kwok_operator.shim.grpcwire import RpcError
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import SERVICE, CloudProvider
from kwok_operator.shim.writer import BusyError, Decide, NotServedError
from tests.fakes.shimstore import group_of, node_of, pending, store_of

REASON = "k8s.io/cluster-autoscaler/fake-node-reason"


class ScriptedWriter:
    """Decides on the store, and writes down what would be written."""

    def __init__(self, store: Any) -> None:
        self.fails: Exception | None = None
        self.written: list[Change] = []
        self._store = store

    async def ask(self, group: str, decide: Decide) -> None:
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

    async def ask(self, name: str, request: Any) -> None:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        answer = self.calls[f"{SERVICE}{name}"](data)
        assert isinstance(answer, Awaitable)
        assert await answer == b""

    async def increase(self, delta: int, group: str = "web") -> None:
        request = pb.NodeGroupIncreaseSizeRequest(id=group, delta=delta)
        await self.ask("NodeGroupIncreaseSize", request)

    async def decrease(self, delta: int, group: str = "web") -> None:
        request = pb.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta)
        await self.ask("NodeGroupDecreaseTargetSize", request)

    async def delete(self, *nodes: pb.ExternalGrpcNode, group: str = "web") -> None:
        request = pb.NodeGroupDeleteNodesRequest(id=group, nodes=nodes)
        await self.ask("NodeGroupDeleteNodes", request)

    def node(self, serial: int) -> pb.ExternalGrpcNode:
        name = self.group.names.name(serial)
        return pb.ExternalGrpcNode(name=name, providerID=f"kwok:{name}")

    def placeholder(self, serial: int, reason: str = "unregistered") -> pb.ExternalGrpcNode:
        node = self.node(serial)
        node.name = node.providerID
        node.annotations[REASON] = reason
        return node

    def names(self, *serials: int) -> frozenset[str]:
        return frozenset(self.group.names.name(serial) for serial in serials)


async def code_of(call: Awaitable[None]) -> tuple[str, str]:
    with pytest.raises(RpcError) as refused:
        await call
    assert "\n" not in refused.value.message
    return refused.value.code.name, refused.value.message


@pytest.mark.parametrize(
    "name", ["NodeGroupIncreaseSize", "NodeGroupDecreaseTargetSize", "NodeGroupDeleteNodes"]
)
class TestEach:
    async def test_a_truncated_message_changes_nothing(self, name: str) -> None:
        shim = Shim(group_of(targetSize=3), nodes=(0, 1, 2))
        assert (await code_of(shim.ask(name, b"\x12\x7f")))[0] == "INVALID_ARGUMENT"
        assert shim.writer.written == []

    async def test_before_all_is_listed_nothing_is_decided(self, name: str) -> None:
        shim = Shim(group_of(targetSize=3), nodes=(0, 1, 2))
        shim.store.nodes.synced.clear()
        request = pb.NodeGroupIncreaseSizeRequest(id="web")
        assert (await code_of(shim.ask(name, request)))[0] == "UNAVAILABLE"

    @pytest.mark.parametrize("group", ["", "db", "web/status", "x" * 10_000], ids=len)
    async def test_an_unknown_group(self, name: str, group: str) -> None:
        request = pb.NodeGroupIncreaseSizeRequest(id=group, delta=0)
        code, sentence = await code_of(Shim(group_of()).ask(name, request))
        assert (code, "there is no group" in sentence) == ("NOT_FOUND", True)

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (NotServedError("group web is gone"), "NOT_FOUND"),
            (BusyError("try again"), "ABORTED"),
            (ForbiddenError("may not", status=403), "PERMISSION_DENIED"),
            (ApiUnreachableError(server="k8s", cause="cut"), "UNAVAILABLE"),
            (KwokOperatorError("any other"), "UNAVAILABLE"),
        ],
        ids=lambda value: type(value).__name__,
    )
    async def test_what_the_writer_cannot_do(self, name: str, error: Exception, code: str) -> None:
        shim = Shim(group_of(targetSize=3), nodes=(0, 1, 2))
        shim.writer.fails = error
        request = pb.NodeGroupIncreaseSizeRequest(id="web", delta=1)
        if name == "NodeGroupDeleteNodes":
            found = await code_of(shim.ask(name, pb.NodeGroupDeleteNodesRequest(id="web")))
        else:
            found = await code_of(shim.ask(name, request))
        assert found == (code, str(error))


class TestIncreaseSize:
    async def test_the_target_alone_is_raised(self) -> None:
        shim = Shim(group_of(targetSize=3))
        await shim.increase(4)
        assert shim.writer.written == [Change(7)]

    @pytest.mark.parametrize(
        ("delta", "code"), [(0, "INVALID_ARGUMENT"), (-1, "INVALID_ARGUMENT"), (8, "OUT_OF_RANGE")]
    )
    async def test_what_is_no_increase_or_too_much(self, delta: int, code: str) -> None:
        shim = Shim(group_of(targetSize=3))
        assert (await code_of(shim.increase(delta)))[0] == code
        assert shim.writer.written == []

    async def test_a_group_that_can_make_no_nodes_says_so_at_once(self) -> None:
        invalid = {
            "type": "TemplateResolved",
            "status": "False",
            "reason": "TemplateInvalid",
            "message": "spec.template.node: capacity is no quantity",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        shim = Shim(group_of(status={"conditions": [invalid]}))
        code, sentence = await code_of(shim.increase(1))
        assert (code, "capacity is no quantity" in sentence) == ("FAILED_PRECONDITION", True)
        assert shim.writer.written == []


class TestDeleteNodes:
    async def test_victims_and_target_in_one(self) -> None:
        shim = Shim(group_of(targetSize=3), nodes=(0, 1, 2))
        await shim.delete(shim.node(0), shim.node(2))
        assert shim.writer.written == [Change(1, shim.names(0, 2))]

    @pytest.mark.parametrize("reason", ["unregistered", "create-error"])
    async def test_a_placeholder_stands_for_its_instance(self, reason: str) -> None:
        group = group_of(targetSize=2, status={"nextSerial": 2, "pending": [pending(0, 1)]})
        shim = Shim(group)
        await shim.delete(shim.placeholder(1, reason))
        assert shim.writer.written == [Change(1, shim.names(1))]

    async def test_a_node_whose_providerid_has_another_form(self) -> None:
        group = group_of(targetSize=1)
        shim = Shim(group)
        shim.store.put_node(node_of(group, 0, provider_id="kwok://of-old"))
        node = shim.node(0)
        node.providerID = "kwok://of-old"
        await shim.delete(node)
        assert shim.writer.written == [Change(0, shim.names(0))]

    async def test_gone_already_is_fine_and_lowers_nothing(self) -> None:
        shim = Shim(group_of(targetSize=1, status={"nextSerial": 9}), nodes=(3,))
        await shim.delete(shim.node(7))
        assert shim.writer.written == []

    async def test_none_is_fine(self) -> None:
        shim = Shim(group_of(targetSize=1), nodes=(0,))
        await shim.delete()
        assert shim.writer.written == []

    async def test_at_the_minimum_a_healthy_one_stays(self) -> None:
        shim = Shim(group_of(targetSize=1, autoscaling={"minSize": 1}), nodes=(0,))
        code, sentence = await code_of(shim.delete(shim.node(0)))
        assert code == "FAILED_PRECONDITION"
        assert "a minimum of 1" in sentence

    async def test_at_the_minimum_a_failed_one_is_given_back(self) -> None:
        bounds = {"minSize": 1}
        status = {"nextSerial": 1, "pending": [pending(0, 0)]}
        shim = Shim(group_of(targetSize=1, autoscaling=bounds, status=status))
        await shim.delete(shim.placeholder(0, "create-error"))
        assert shim.writer.written == [Change(1, shim.names(0))]

    @pytest.mark.parametrize(
        ("name", "provider_id"),
        [
            ("ip-10-0-0-1", "aws:///eu-west-1b/i-0123"),
            ("", ""),
            ("kwok:", "kwok:"),
            ("web-aaaa-000000", "kwok:web-aaaa-000000"),
            ("ip-10-0-0-1", "kwok:{0}"),
            ("{0}", "i-0123"),
            ("{9}", "kwok:{9}"),
            ("{1}", "kwok:{0}"),
        ],
        ids=[
            "a real one",
            "nothing",
            "a prefix",
            "of another uid",
            "a real one with our providerID",
            "our name with another providerID",
            "never given out",
            "two of ours",
        ],
    )
    async def test_what_is_not_ours_is_refused_with_all_others(
        self, name: str, provider_id: str
    ) -> None:
        shim = Shim(group_of(targetSize=3), nodes=(0, 1, 2))
        ours = [shim.group.names.name(serial) for serial in range(10)]
        node = pb.ExternalGrpcNode(name=name.format(*ours), providerID=provider_id.format(*ours))
        code, sentence = await code_of(shim.delete(shim.node(2), node))
        assert (code, "web" in sentence) == ("INVALID_ARGUMENT", True)
        assert shim.writer.written == []

    async def test_ten_thousand_at_once(self) -> None:
        count = 10_000
        bounds = {"maxSize": count}
        shim = Shim(group_of(targetSize=count, autoscaling=bounds), nodes=tuple(range(count)))
        await shim.delete(*(shim.node(serial) for serial in range(count)))
        assert shim.writer.written == [Change(0, shim.names(*range(count)))]


class TestDecreaseTargetSize:
    async def test_what_has_not_come_is_taken_back_by_name(self) -> None:
        status = {"nextSerial": 4, "pending": [pending(1, 3)]}
        shim = Shim(group_of(targetSize=4, status=status), nodes=(0,))
        await shim.decrease(-2)
        assert shim.writer.written == [Change(2, shim.names(2, 3))]

    async def test_it_never_takes_a_node(self) -> None:
        shim = Shim(group_of(targetSize=3), nodes=(0, 1))
        await shim.decrease(-5)
        assert shim.writer.written == [Change(2)]

    @pytest.mark.parametrize("delta", [0, 3])
    async def test_it_is_negative(self, delta: int) -> None:
        assert (await code_of(Shim(group_of()).decrease(delta)))[0] == "INVALID_ARGUMENT"
