"""Simulates trouble of the cloud's API: calls that are late, fail, or get no answer.

    handlers ──ApiTrouble.wrap──> handlers that answer, wait, fail or stay silent, as the plan says

It shows how cluster-autoscaler (CA) copes with such trouble. It needs a plan, which is the file of
the shim's flag --api-trouble, and groups with spec.cloud.apiTrouble. A call about a group is
affected if that group has this field; a call about all groups, if all served groups have it; a call
about a node of no group never.

What happens to a call is drawn from the plan's seed, the call's name, the group, and how many such
calls came before, so that a run can be repeated. A call that is to fail fails before anything is
written.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from google.protobuf.message_factory import GetMessageClass

from kwok_operator.cloud.draws import SECOND, InstanceSeed
from kwok_operator.constants import CA_NODE_GROUP_ANNOTATION
from kwok_operator.nodegroups.client import Group
from kwok_operator.shim import messages
from kwok_operator.shim.grpcwire import Handler, RpcError, StatusCode
from kwok_operator.shim.proto import externalgrpc_pb2 as pb
from kwok_operator.shim.service import instance_name
from kwok_operator.shim.store import Store
from kwok_operator.shim.troublefile import ANY, CALLS, LONGEST, OF_NO_GROUP, TroublePlan

_NAMING: Final = {
    name: GetMessageClass(method.input_type)
    for name, method in CALLS.items()
    if "id" in method.input_type.fields_by_name
}
"""Name of a call -> the type of its request, for calls that name a group."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one call: it waits `latency` seconds, then fails with `error`, if there is
    one. A `silent` call gets no answer; `happens` says whether it is carried out nevertheless."""

    latency: float = 0.0
    error: tuple[StatusCode, str] | None = None
    silent: bool = False
    happens: bool = False


def fate(plan: TroublePlan, *, rpc: str, group: str, number: int) -> Fate:
    """Draws the fate of a call; `number` counts the calls with this name about this group."""
    rule = plan.rule(rpc, group)
    if rule is None:
        return Fate()
    who = InstanceSeed(plan.seed, f"{rpc}/{group}", number)
    latency = 0.0
    if rule.latency is not None:
        latency = rule.latency.milliseconds(who.draw("api-latency")) / SECOND
    draw, total = who.draw("api-outcome"), 0.0
    if rule.timeout is not None:
        total += rule.timeout.probability
        if draw < total:
            return Fate(latency, silent=True, happens=rule.timeout.after)
    for error in rule.errors:
        total += error.probability
        if draw < total:
            return Fate(latency, error=(StatusCode[error.code], error.message))
    return Fate(latency)


class ApiTrouble:
    """Wraps handlers so that calls are late, fail or get no answer, as `plan` says. `count` gets
    the name of each affected call, and what happens to it: latency, error or timeout."""

    def __init__(
        self, plan: TroublePlan, *, store: Store, count: Callable[[str, str], None]
    ) -> None:
        self._plan = plan
        self._store = store
        self._count = count
        self._calls: Counter[tuple[str, str]] = Counter()
        self._stopping = asyncio.Event()

    def wrap(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Returns the handlers, by the same paths, wrapped so that the plan's trouble happens to
        their calls."""
        return {path: self._wrap(path, handler) for path, handler in handlers.items()}

    def stop(self) -> None:
        """Ends all waits: late calls are answered now, calls without an answer fail."""
        self._stopping.set()

    def _wrap(self, path: str, handler: Handler) -> Handler:
        rpc = path.rpartition("/")[2]
        if not any(rule.name in (ANY, rpc) for rule in self._plan.rpcs):
            return handler

        def call(request: bytes) -> bytes | Awaitable[bytes]:
            group = self._group(rpc, request)
            if group is None:
                return handler(request)
            number = self._calls[rpc, group]
            self._calls[rpc, group] += 1
            drawn = fate(self._plan, rpc=rpc, group=group, number=number)
            if drawn == Fate():
                return handler(request)
            return self._touched(rpc, drawn, handler, request)

        return call

    async def _touched(self, rpc: str, drawn: Fate, handler: Handler, request: bytes) -> bytes:
        if drawn.latency:
            self._count(rpc, "latency")
            await self._wait(drawn.latency)
        if drawn.error is not None:
            self._count(rpc, "error")
            raise RpcError(*drawn.error)
        if drawn.silent:
            self._count(rpc, "timeout")
            if drawn.happens:
                # The answer is dropped, even if it is an error.
                with suppress(RpcError):
                    await _answer(handler, request)
            await self._wait(LONGEST / SECOND)
            raise RpcError(StatusCode.UNAVAILABLE, "no answer, as --api-trouble has it")
        return await _answer(handler, request)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    def _group(self, rpc: str, request: bytes) -> str | None:
        """Returns the name of the group that a call is about, or "" for a call about all groups.
        Returns None for a call without simulated trouble, which its handler gets at once."""
        if not self._store.synced:
            return None
        if rpc in OF_NO_GROUP:
            served = list(self._store.all_served())
            return "" if served and all(map(_takes_part, served)) else None
        try:
            group = self._named(rpc, request)
        except RpcError:
            return None  # the handler reports the malformed request
        return group.name if group is not None and _takes_part(group) else None

    def _named(self, rpc: str, request: bytes) -> Group | None:
        if rpc == "NodeGroupForNode":
            node = messages.read(pb.NodeGroupForNodeRequest, request).node
            return self._store.group_for(node.providerID, instance_name(self._store, node))
        if rpc == "PricingNodePrice":
            node = messages.read(pb.PricingNodePriceRequest, request).node
            return self._store.served(node.annotations.get(CA_NODE_GROUP_ANNOTATION, ""))
        return self._store.served(messages.read(_NAMING[rpc], request).id)  # type: ignore[attr-defined]


async def _answer(handler: Handler, request: bytes) -> bytes:
    answer = handler(request)
    return answer if isinstance(answer, bytes) else await answer


def _takes_part(group: Group) -> bool:
    return group.spec.cloud is not None and group.spec.cloud.api_trouble
