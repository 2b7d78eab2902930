"""The state of one group's companions: which it is to have, which exist, what is reported.

    spec.template, Copy  --recompile-->  Companions
    counts of a survey, Trouble  --judge-->  verdict, and whether it has to be reported

Nothing is read or written here: the keeper does that.
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
"""Seconds in which several changes of a group's nodes are put into one pass."""
SHARE_OF_TIME: Final = 0.05
"""The share of time that passes over a group take at most: each looks at all of its nodes."""


@dataclass(slots=True)
class GroupCompanions:
    """The state of a group whose template has companions, or had."""

    uid: str
    made_from: tuple[int, CopiedCompanions | None] = (-1, None)
    """What `companions` were compiled from: the spec's generation, and what was copied."""
    companions: tuple[Companion, ...] = ()
    copy: Copy = field(default_factory=Copy)
    invalid: Trouble | None = None
    under_way: set[str] = field(default_factory=set)
    """uids of nodes whose companions are just being made by `CompanionKeeper.born`."""
    counts: tuple[int, int] = (0, 0)
    """The number of owners, and of those that lack companions."""
    complete: set[str] = field(default_factory=set)
    """Names of the nodes that lack nothing."""
    taken: set[str] = field(default_factory=set)
    """Names of companions that objects of somebody else have."""
    trouble: Trouble | None = None
    """Why the last write failed."""
    repairs: Openings = field(default_factory=Openings)
    verdict: Verdict | None = None
    """None before the first pass, and if no companions are left or wanted."""
    reported: Verdict | None = None
    """The verdict that the status has, or is about to have."""
    nodes: int = 0
    """How many nodes the last pass looked at."""
    held: int = 0
    """How many nodes lack only companions that the simulated cloud holds back."""
    took: float = 0.0
    """Seconds that the last survey took."""
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once there is a verdict, or there never will be one as the group is gone."""

    @property
    def gathered_for(self) -> float:
        """Seconds from a change to the pass that handles it."""
        return max(GATHER_FOR, self.took / SHARE_OF_TIME)

    @property
    def stopped(self) -> bool:
        """Whether new nodes get no companions before the next pass: there was no pass yet, or the
        last one could write nothing."""
        return not self.looked.is_set() or bool(self.failing and self.failing not in OF_SOME)

    @property
    def failing(self) -> str:
        """The reason of the verdict if it is False, else ""."""
        found = self.verdict
        return found.reason if found is not None and found.text == "False" else ""

    def recompile(self, group: Group) -> None:
        """Compiles the companions again if the group or what it copies has changed."""
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
        # Last: after another error, the group must not count as one without companions.
        self.made_from = made_from

    def judge(self, trouble: Trouble | None, *, left: bool, paused: bool) -> bool:
        """Makes the verdict; returns whether it differs from the one in status. `left` says that
        objects of the group exist."""
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
    """Whether a group's template has companions, or some are left of an earlier template."""
    asked = asks_for_companions(group.spec.template)
    return asked or group.condition(ConditionType.COMPANIONS_PRESENT) is not None


def last_verdict(group: Group) -> Verdict | None:
    """Returns the condition in status as a verdict: it counts before the first pass."""
    said = group.condition(ConditionType.COMPANIONS_PRESENT)
    if said is None:
        return ABOUT_TO_BE_WRITTEN if asks(group) else None
    known = said.status != "Unknown"
    return Verdict(said.status == "True", said.reason, said.message, known=known)
