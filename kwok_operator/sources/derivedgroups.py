"""Applies groups that are derived from a provider config or another object, if they have changed.

It remembers the last applied manifests, so an unchanged group costs no request. A group that has
another owner is never changed.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kwok_operator import constants
from kwok_operator.errors import REFUSED, ApiError, ApiUnreachableError, ConflictError
from kwok_operator.formats.words import Problem
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.sources.groupwriter import DerivedGroupWriter

logger = logging.getLogger(__name__)

FAILURES: Final = 3
"""After so many groups in a row that can't be written, the others are not tried."""
_OF_TARGETS = (constants.CAPI_FOLLOWED_ANNOTATION, constants.DESIRED_COUNT_ANNOTATION)
"""Annotations that are written after the apply, together with a target size. A change of theirs
causes no further apply."""

G = TypeVar("G")
T = TypeVar("T")
Failure = ApiError | ApiUnreachableError
Complete = Callable[[Mapping[str, Any]], Awaitable[None]]
"""A function that makes further writes after the apply; it gets the group as it is then."""


async def apply_each(
    groups: Sequence[G], apply: Callable[[G], Awaitable[T]], *, at_once: int = 1
) -> list[T | Failure]:
    """Applies each group. Returns for each the result, or the error why it can't be written.

    One group's failure doesn't stop the others. But if `FAILURES` groups in a row fail, the API
    server seems to be in trouble, and one of their errors is raised. Errors of other types are
    raised at once.
    """
    ends: list[T | Failure] = []
    in_a_row = 0
    for at in range(0, len(groups), at_once):
        some = await asyncio.gather(*map(apply, groups[at : at + at_once]), return_exceptions=True)
        for end in some:
            if isinstance(end, BaseException) and not isinstance(end, Failure):
                raise end
            ends.append(end)
        failed = [end for end in some if isinstance(end, BaseException)]
        in_a_row = in_a_row + len(failed) if len(failed) == len(some) else 0
        if in_a_row >= FAILURES:
            raise failed[0]
    return ends


@dataclass(frozen=True, slots=True)
class _Written:
    """The manifest that was applied last, and the fields of the group that the operator owned after
    that.

    A change of these fields causes a new apply; other changes, such as scaling, do not.
    """

    manifest: str
    ours: tuple[object, ...]
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, manifest: str, group: Group, problems: tuple[Problem, ...] = ()) -> "_Written":
        spec = group.spec
        marks = sorted(each for each in group.annotations.items() if each[0] not in _OF_TARGETS)
        ours = (group.uid, spec.template, spec.autoscaling, spec.guard_taint, *marks)
        return cls(manifest, ours, problems)


class DerivedGroups:
    """Applies groups that are made from other objects, their owners. `mark` is the annotation of a
    group that names its owner.

    `maker` says in messages what makes the groups; `changed` is called when another pass is needed.
    """

    def __init__(
        self,
        *,
        groups: GroupStore,
        writer: DerivedGroupWriter,
        mark: str,
        maker: str,
        changed: Callable[[], None],
    ) -> None:
        self._groups = groups
        self._writer = writer
        self._mark = mark
        self._maker = maker
        self._changed = changed
        self._written: dict[str, _Written] = {}
        self._not_ours: set[str] = set()
        """Names of groups that somebody else made, or that are being deleted."""

    def begin(self) -> None:
        """Begins a pass over the groups, which checks again which of them somebody else made."""
        self._not_ours.clear()

    def forget(self) -> None:
        """Has the next pass apply every group again, even if nothing has changed: the owner of a
        field can change without an event.
        """
        self._written.clear()

    def group_changed(self, name: str) -> None:
        """Calls `changed` if the group is gone or differs from what was applied."""
        group = self._groups.get(name)
        written = self._written.get(name)
        if group is None:
            self._written.pop(name, None)
            if written is not None or name in self._not_ours:
                self._changed()
        elif written is not None and written.ours != _Written.of("", group).ours:
            self._changed()

    async def apply(
        self, manifest: Mapping[str, Any], *, owner: str, value: str, complete: Complete
    ) -> list[Problem]:
        """Applies a group unless somebody else made it, then calls `complete` with the group that
        the API server returns. Returns the problems.
        """
        name = manifest["metadata"]["name"]
        known = self._groups.get(name)
        if known is not None and known.deleting:
            self._not_ours.add(name)
            return []
        text, written = json.dumps(manifest), self._written.get(name)
        if known is not None and written is not None:
            now = _Written.of(text, known)
            if (now.manifest, now.ours) == (written.manifest, written.ours):
                return list(written.problems)
        uid = known.uid if known is not None else None
        if known is None or known.annotations.get(self._mark) != owner:
            current = await self._writer.read(name)
            if current is not None and (has := self._owner(current)) != owner:
                self._not_ours.add(name)
                return [self._taken(name, value, has)]
            uid = current["metadata"]["uid"] if current else None
        try:
            applied = await self._writer.apply(manifest, uid=uid)
        except ConflictError as error:
            logger.info("group has changed meanwhile: group=%s error=%s", name, error)
            self._changed()
            return []
        except REFUSED as error:
            message = f"group {name}: the API server refuses it: {error.message}"
            return [Problem("GroupRefused", message)]
        if uid is None:
            logger.info("derived: group=%s value=%s", name, value)
        await complete(applied.body)
        problems = tuple(self._conflict(name, conflict) for conflict in applied.conflicts)
        # A group that this version can't read, because a newer CRD allows more, is applied in each
        # pass.
        with suppress(ValueError):
            self._written[name] = _Written.of(text, Group.parse(applied.body), problems)
        return list(problems)

    def _owner(self, body: Mapping[str, Any]) -> str:
        annotations = body["metadata"].get("annotations") or {}
        return str(annotations.get(self._mark) or "")

    def _taken(self, name: str, value: str, owner: str) -> Problem:
        made = f"is of {self._maker} {owner}" if owner else "was made by somebody else"
        message = (
            f"group {name}, which {value!r} stands for, {made} and is left alone; "
            "delete or rename it, or set another value"
        )
        return Problem("NameTaken", message, blocks=False)

    def _conflict(self, name: str, conflict: str) -> Problem:
        message = f"group {name}, {conflict}: that value stays, {self._maker}'s waits"
        return Problem("FieldOwned", message, blocks=False)
