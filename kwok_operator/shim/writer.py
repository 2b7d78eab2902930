"""Changes groups: decides on a group as the store has it, and writes the decision only if the group
is unchanged in the API server; else reads the group and decides again.

    change(group, decide) ──> the group's turn ──> decide(fleet) ──> JSON Patch, if unchanged
                           (several at once)        ^──── read again ──┘ if changed

A change is written only to the generation that it was decided on. So no increase and no node to
delete is lost or counted twice, even if others write, too. Writes of the status don't change the
generation, so they never cause a conflict. Calls about a group that arrive during a write to it
wait; then they are decided together, and written with one patch.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kwok_operator.constants import GROUPS_PATH
from kwok_operator.errors import (
    InvalidError,
    KwokOperatorError,
    NotFoundError,
)
from kwok_operator.kube.client import JSON_PATCH, KubeClient
from kwok_operator.nodegroups.autoscaler import Change, Fleet
from kwok_operator.nodegroups.client import GROUPS, Group, scaling_patch
from kwok_operator.shim.store import Store

logger = logging.getLogger(__name__)

FIELD_MANAGER: Final = "kwok-operator-shim"
PATIENCE: Final = 4.0
"""The most seconds for one call: cluster-autoscaler gives up after 5."""
SHORTEST_REQUEST: Final = 0.3
FIRST_PAUSE: Final = 0.01
LAST_PAUSE: Final = 0.2

Decide = Callable[[Fleet], Change | None]


class NotServedError(KwokOperatorError):
    """The group does not exist, or cluster-autoscaler may not scale it."""


class BusyError(KwokOperatorError):
    """Other programs changed the group again and again, for as long as cluster-autoscaler waits."""


@dataclass(slots=True)
class _Call:
    decide: Decide
    done: asyncio.Future[Change | None]


@dataclass(slots=True)
class _Turn:
    """The calls that wait for a write to one group, and whether a task is writing."""

    waiting: list[_Call] = field(default_factory=list)
    writing: bool = False


class TargetWriter:
    """Writes spec.targetSize and spec.scaleDown.nodesToDelete, and nothing else."""

    def __init__(
        self,
        *,
        client: KubeClient,
        store: Store,
        clock: Callable[[], float],
        patience: float = PATIENCE,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._patience = patience
        self._sleep = sleep
        self._draw = draw
        self._turns: dict[str, _Turn] = {}

    async def change(self, group: str, decide: Decide) -> Change | None:
        """Writes the change that `decide` makes of a group. Returns the change (None: nothing to
        change) once the API server has it and the store knows it.

        Raises what `decide` raises, NotServedError, BusyError, and KwokOperatorError if the API
        server doesn't answer: then it is unknown whether the change was made.
        """
        turn = self._turns.setdefault(group, _Turn())
        done: asyncio.Future[Change | None] = asyncio.get_running_loop().create_future()
        turn.waiting.append(_Call(decide, done))
        if not turn.writing:
            turn.writing = True
            task = asyncio.create_task(self._take_turns(group, turn), name=f"write {group}")
            task.add_done_callback(_log_failure)
        return await done

    async def _take_turns(self, group: str, turn: _Turn) -> None:
        # Waits one turn of the event loop, so that calls which came together are written together.
        await asyncio.sleep(0)
        try:
            while turn.waiting:
                calls, turn.waiting = turn.waiting, []
                try:
                    await self._write(group, calls)
                except Exception as error:
                    for call in calls:
                        if not call.done.done():
                            call.done.set_exception(error)
        finally:
            turn.writing = False
            if self._turns.get(group) is turn:
                del self._turns[group]

    async def _write(self, name: str, calls: list[_Call]) -> None:
        give_up = self._clock() + self._patience
        pause = FIRST_PAUSE
        while True:
            group = self._store.served(name)
            if group is None:
                raise NotServedError(f"there is no group {name} that may be scaled")
            fleet = self._store.fleet(group)
            accepted, after = _decide(fleet, [call for call in calls if not call.done.done()])
            patch = scaling_patch(
                group,
                target=after.spec.target_size,
                names=after.spec.scale_down.nodes_to_delete,
            )
            refusal = await self._patch(group, patch, until=give_up) if patch else None
            if refusal is None:
                for call, change in accepted:
                    if not call.done.done():  # else its caller gave up
                        call.done.set_result(change)
                return
            if self._clock() >= give_up:
                raise BusyError(f"group {name} was changed by others again and again; try again")
            await self._read(group, until=give_up)
            now = self._store.known(name)
            if now is not None and (now.uid, now.generation) == (group.uid, group.generation):
                raise refusal  # the change itself is refused
            await self._sleep(pause * (0.5 + self._draw()))
            pause = min(LAST_PAUSE, 2 * pause)

    async def _patch(
        self, group: Group, patch: list[dict[str, Any]], *, until: float
    ) -> InvalidError | None:
        """Sends a patch. Returns the API server's error if it refuses the patch, usually because
        the group has changed meanwhile; else None."""
        try:
            answer = await self._client.request(
                "PATCH",
                f"{GROUPS_PATH}/{group.name}",
                params={"fieldManager": FIELD_MANAGER},
                body=patch,
                content_type=JSON_PATCH,
                timeout=self._left(until),
                # If an answer was lost, a second patch would find the first one's change, take it
                # for somebody else's, and add to it.
                resend=False,
            )
        except NotFoundError as error:
            raise NotServedError(f"group {group.name} is gone") from error
        except InvalidError as error:
            return error
        self._store.put_group(GROUPS.one(answer))
        return None

    def _left(self, until: float) -> float:
        """Returns the time-out, in seconds, of a request that must end by `until`; at least
        SHORTEST_REQUEST."""
        return max(SHORTEST_REQUEST, until - self._clock())

    async def _read(self, group: Group, *, until: float) -> None:
        path = f"{GROUPS_PATH}/{group.name}"
        try:
            answer = await self._client.request("GET", path, timeout=self._left(until))
        except NotFoundError as error:
            self._store.drop_group(group)
            raise NotServedError(f"group {group.name} is gone") from error
        self._store.put_group(GROUPS.one(answer))


def _decide(fleet: Fleet, calls: list[_Call]) -> tuple[list[tuple[_Call, Change | None]], Fleet]:
    """Decides the calls in order, each on the group as the earlier calls left it.

    A call that is refused fails at once, and leaves the group unchanged for the calls after it.
    """
    accepted: list[tuple[_Call, Change | None]] = []
    for call in calls:
        try:
            change = call.decide(fleet)
        except KwokOperatorError as error:
            call.done.set_exception(error)
            continue
        accepted.append((call, change))
        if change is not None:
            fleet = _changed(fleet, change)
    return accepted, fleet


def _changed(fleet: Fleet, change: Change) -> Fleet:
    spec = fleet.spec.model_copy(update={"target_size": change.target})
    if change.names is not None:
        scale_down = spec.scale_down.model_copy(update={"nodes_to_delete": change.names})
        spec = spec.model_copy(update={"scale_down": scale_down})
    return replace(fleet, spec=spec)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("writing has failed", exc_info=task.exception())
