"""The state of one group's companions: which it should have, which exist, what is reported.

    spec.template, Copy  --recompile-->  Companions
    counts of a survey, Trouble  --judge-->  verdict (a condition), and whether it is new

Nothing is read or written here: companions/keeper.py does that.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.companions.copying import Copy
from kwok_operator.companions.desired import (
    ABOUT_TO_BE_WRITTEN,
    OF_SOME,
    REMOVING,
    Companion,
    Trouble,
    asks_for_companions,
    compile_companions,
    verdict,
)
from kwok_operator.companions.livecompanions import CopiedCompanions
from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.api.status import ConditionType, Verdict
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.observation import Openings

GATHER_FOR: Final = 0.05
"""Seconds for which changes of a group's nodes are collected before a pass."""
SHARE_OF_TIME: Final = 0.05
"""The most of the time, as a share, that passes over one group take: each looks at all of its
nodes."""


@dataclass(slots=True)
class GroupCompanions:
    """The state of a group whose template has, or had, companions."""

    uid: str
    made_from: tuple[int, CopiedCompanions | None] = (-1, None)
    """What `companions` were compiled from: the spec's generation, and what was copied."""
    companions: tuple[Companion, ...] = ()
    copy: Copy = field(default_factory=Copy)
    invalid: Trouble | None = None
    under_way: set[str] = field(default_factory=set)
    """uids of nodes whose companions are just being made by `CompanionKeeper.born`."""
    counts: tuple[int, int] = (0, 0)
    """The number of owners (nodes, perhaps the group), and the number of those that lack
    companions."""
    complete: set[str] = field(default_factory=set)
    """Names of the nodes that lack no companion."""
    taken: set[str] = field(default_factory=set)
    """Names of companions that foreign objects have."""
    trouble: Trouble | None = None
    """Why the last write failed."""
    repairs: Openings = field(default_factory=Openings)
    verdict: Verdict | None = None
    """The condition to report; None before the first pass, and if no companions are left or
    wanted."""
    reported: Verdict | None = None
    """The verdict that the group's status has, or is about to get."""
    nodes: int = 0
    """How many nodes the last pass looked at, to see whether new nodes have come since."""
    held: int = 0
    """How many nodes lack only companions that the simulated cloud delays."""
    took: float = 0.0
    """Seconds that the last survey (comparison of nodes and companions) took."""
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once there is a verdict, or the group is gone and there will be none."""

    @property
    def gathered_for(self) -> float:
        """The seconds from a change to the pass that handles it, so that one pass handles all
        changes of these seconds."""
        return max(GATHER_FOR, self.took / SHARE_OF_TIME)

    @property
    def stopped(self) -> bool:
        """Whether nothing may be written before the next pass, as there was no pass yet, or the
        last one could write nothing."""
        return not self.looked.is_set() or bool(self.failing and self.failing not in OF_SOME)

    @property
    def failing(self) -> str:
        """The reason of the condition CompanionsPresent if its status is False, else ""."""
        found = self.verdict
        return found.reason if found is not None and found.text == "False" else ""

    def recompile(self, group: Group) -> None:
        """Compiles the companions again if the group, or the node that it copies, has changed."""
        made_from = group.generation, self.copy.companions
        if self.made_from == made_from:
            return
        self.invalid = None
        devices = group.spec.cloud.devices if group.spec.cloud is not None else None
        try:
            self.companions = compile_companions(
                group.spec.template,
                group=group.name,
                tainted=devices is not None and devices.failures is not None,
                copied=self.copy.companions,
            )
        except TemplateError as error:
            self.invalid = Trouble("TemplateInvalid", f"{error}.")
        # Set last: after another error, the group must not count as one without companions.
        self.made_from = made_from

    def judge(self, trouble: Trouble | None, *, left: bool, paused: bool) -> bool:
        """Makes the condition CompanionsPresent (`verdict`); returns whether it has another status
        or reason than the reported one. `left` says that companions of the group exist."""
        owners, lacking = self.counts
        if self.companions or trouble is not None:
            self.verdict = verdict(
                owners=owners, missing=lacking, trouble=trouble, paused=paused, held=self.held
            )
        else:
            self.verdict = REMOVING if left and not paused else None
        self.looked.set()
        now, before = self.verdict, self.reported
        return (before and (before.text, before.reason)) != (now and (now.text, now.reason))


def asks(group: Group) -> bool:
    """Whether a group's template has companions, or some of an earlier template are left."""
    asked = asks_for_companions(group.spec.template)
    return asked or group.condition(ConditionType.COMPANIONS_PRESENT) is not None


def last_verdict(group: Group) -> Verdict | None:
    """Returns the condition CompanionsPresent in the group's status as a Verdict, which is used
    until the first pass makes one; None if the group has neither the condition nor companions."""
    said = group.condition(ConditionType.COMPANIONS_PRESENT)
    if said is None:
        return ABOUT_TO_BE_WRITTEN if asks(group) else None
    known = said.status != "Unknown"
    return Verdict(said.status == "True", said.reason, said.message, known=known)
