"""Interrupts machines, as a cloud does that reclaims spot machines; or loses machines, as happens
when hardware fails.

A node of a KwokNodeGroup gets the annotations by which its simulated cloud ends it with notice. For
a node of Karpenter the NodeClaim is deleted, as Karpenter itself does at a notice: it drains the
node. Nodes that aren't drained when the notice is over are lost.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from kwok_operator.cloud.api.cloud import DEFAULT_NOTICE
from kwok_operator.cloud.draws import SECOND, milliseconds
from kwok_operator.constants import (
    GROUPS_PATH,
    NODE_CLAIMS_PATH,
    NODE_GROUP_LABEL,
    NODE_POOL_LABEL,
    NODES_PATH,
)
from kwok_operator.errors import ConflictError, NotFoundError
from kwok_operator.formats.untyped import text_at
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.kube.resources import NODES
from kwok_operator.kube.retry import RETRIES
from kwok_operator.rehearsal.kubectl import CommandError
from kwok_operator.rehearsal.machines import (
    Machine,
    drawn,
    noticed_now,
    read_machine,
)
from kwok_operator.rehearsal.scenario.timeline import InterruptStep, MachinesStep

_MOST_AT_ONCE: Final = 20
_LOOK_SECONDS: Final = 0.2


class Interrupter:
    """Plays the steps of one run that interrupt machines (with notice) or lose them (without).
    `seed` is the scenario's. With `of_groups`, takes only nodes with the label of a group.
    """

    def __init__(self, client: KubeClient, *, seed: str, of_groups: bool) -> None:
        self._client = client
        self._seed = seed
        self._of_groups = of_groups
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)
        self._ends: list[tuple[float, Machine]] = []
        """Machines under notice, each with the end of its notice on the monotonic clock."""

    @property
    def going_on(self) -> bool:
        """Whether any machine is still under notice: it is interrupted, but hasn't ended yet."""
        return bool(self._ends)

    async def play(self, number: int, step: MachinesStep) -> str:
        """Plays step `number` of the timeline. Returns in words how many machines were interrupted
        or lost, and of how many.

        Raises CommandError if the step has a `count` and there is no machine to take; also
        ApiError, ApiUnreachableError.
        """
        interrupts = isinstance(step, InterruptStep)
        machines = await self._machines(*_selectors(step, of_groups=self._of_groups))
        machines = [each for each in machines if step.group in (None, each.group)]
        if interrupts:
            machines = [each for each in machines if each.simulated or each.claim]
        if not machines and step.count is not None:
            raise CommandError(
                "no machine is there to take; let the step come later, or name others"
            )
        some = drawn(machines, step, seed=self._seed, what=f"timeline/{number}")
        if isinstance(step, InterruptStep):
            notices = await self._notices(step, {each.group for each in some})
            await self.interrupt([(each, notices[each.group]) for each in some])
        else:
            await self._each(some, self._lose)
        short = f"; {step.count} were to go" if len(some) < (step.count or 0) else ""
        return f"{len(some)} of {len(machines)} machines{short}"

    async def keep(self) -> NoReturn:
        """Never returns: ends each machine of Karpenter whose notice is over before Karpenter has
        drained it.
        """
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            due = [machine for at, machine in self._ends if at <= now]
            self._ends = [(at, machine) for at, machine in self._ends if at > now]
            await self._each((each for each in due if not each.simulated), self._lose)

    async def claimed(self) -> list[Machine]:
        """Returns the machines of Karpenter that aren't interrupted yet."""
        return [each for each in await self._machines(NODE_POOL_LABEL) if each.claim]

    def under_notice(self) -> Counter[str]:
        """Returns how many machines of each group are interrupted, but haven't ended yet."""
        return Counter(machine.group for _, machine in self._ends)

    async def interrupt(self, machines: Sequence[tuple[Machine, int]]) -> None:
        """Interrupts machines, each given with the length of its notice in milliseconds."""
        notices = {machine.uid: notice for machine, notice in machines}
        some = (machine for machine, _ in machines)
        await self._each(some, lambda each: self._interrupt(each, notices[each.uid]))

    async def _machines(self, *selectors: str) -> list[Machine]:
        """Returns the machines whose Nodes have these labels, except those that are interrupted
        already.
        """
        nodes = await NODES.metadata(self._client, labelSelector=",".join(selectors))
        now = _now()
        machines = [read_machine(metadata, now=now) for metadata in nodes]
        noticed = {machine.uid for _, machine in self._ends}
        return [each for each in machines if each and each.uid not in noticed]

    async def _notices(self, step: InterruptStep, groups: Iterable[str]) -> dict[str, int]:
        """Returns the length of the notice for machines of each group, in milliseconds."""
        if step.notice is not None:
            return dict.fromkeys(groups, round(step.notice * SECOND))
        return {name: await self._notice_of(name) for name in groups}

    async def _notice_of(self, group: str) -> int:
        body: Any = {}
        if group:
            with suppress(NotFoundError):
                body = await self._client.get_json(f"{GROUPS_PATH}/{group}", retries=RETRIES)
        given = text_at(body, "spec", "cloud", "interruptions", "notice")
        return milliseconds(given or DEFAULT_NOTICE)

    async def _interrupt(self, machine: Machine, notice: int) -> None:
        self._ends.append((time.monotonic() + notice / SECOND, machine))
        if machine.simulated:
            annotations = noticed_now(machine, notice=notice, now=_now())
            await self._patch(machine, {"annotations": annotations})
            return
        await self._client.request("DELETE", f"{NODE_CLAIMS_PATH}/{machine.claim}", retries=RETRIES)

    async def _lose(self, machine: Machine) -> None:
        if not machine.simulated:
            # Otherwise Karpenter's finalizer would drain it first.
            await self._patch(machine, {"finalizers": None})
        await self._client.request(
            "DELETE",
            f"{NODES_PATH}/{machine.name}",
            body={"preconditions": {"uid": machine.uid}},
            retries=RETRIES,
        )

    async def _patch(self, machine: Machine, metadata: dict[str, Any]) -> None:
        await self._client.request(
            "PATCH",
            f"{NODES_PATH}/{machine.name}",
            body={"metadata": {"uid": machine.uid, **metadata}},
            content_type=MERGE_PATCH,
            retries=RETRIES,
        )

    async def _each(
        self, machines: Iterable[Machine], end: Callable[[Machine], Awaitable[None]]
    ) -> None:
        """Calls `end` for each machine, for several at a time. Ignores machines that are gone."""

        async def one(machine: Machine) -> None:
            async with self._slots:
                with suppress(NotFoundError, ConflictError):
                    await end(machine)

        await asyncio.gather(*map(one, machines))


def _selectors(step: MachinesStep, *, of_groups: bool) -> Iterator[str]:
    if step.group is not None or of_groups:
        yield NODE_GROUP_LABEL
    if step.node_pool is not None:
        yield f"{NODE_POOL_LABEL}={step.node_pool}"
    if step.selector is not None:
        yield step.selector


def _now() -> int:
    """Returns this machine's time in milliseconds; the operator uses the same clock."""
    return time.time_ns() // 1_000_000
