"""What is known of the companions of one group: what is wanted, what was found, what is reported.

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
"""Seconds in which several changes of a group's nodes make one pass."""
SHARE_OF_TIME: Final = 0.05
"""That passes over a group take at most, while its nodes come and go: each looks at all of them."""


@dataclass(slots=True)
class GroupCompanions:
    """What is known of a group that asks for companions, or did."""

    uid: str
    made_from: tuple[int, CopiedCompanions | None] = (-1, None)
    """The spec's generation, and what was copied."""
    companions: tuple[Companion, ...] = ()
    copy: Copy = field(default_factory=Copy)
    invalid: Trouble | None = None
    under_way: set[str] = field(default_factory=set)
    """uids of nodes that get theirs by the call that made them."""
    counts: tuple[int, int] = (0, 0)
    """Owners, and those of them that lack something."""
    complete: set[str] = field(default_factory=set)
    """Names of the nodes that lack nothing."""
    taken: set[str] = field(default_factory=set)
    """Names that were found to be somebody else's."""
    trouble: Trouble | None = None
    """Of the last write."""
    repairs: Openings = field(default_factory=Openings)
    verdict: Verdict | None = None
    """None where there is nothing left of the companions, and until somebody has looked."""
    reported: Verdict | None = None
    """The verdict that the status has, or is about to have."""
    nodes: int = 0
    """Those that were looked at."""
    held: int = 0
    """Those that lack only what the simulated cloud holds back."""
    took: float = 0.0
    """Seconds, the last time."""
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether there is a verdict, or never will be: the group is gone."""

    @property
    def gathered_for(self) -> float:
        """Seconds until the pass that a change asks for."""
        return max(GATHER_FOR, self.took / SHARE_OF_TIME)

    @property
    def stopped(self) -> bool:
        """Whether a pass has to look first: none has, or the last one could write nothing."""
        return not self.looked.is_set() or bool(self.failing and self.failing not in OF_SOME)

    @property
    def failing(self) -> str:
        """The reason of a verdict that is False."""
        found = self.verdict
        return found.reason if found is not None and found.text == "False" else ""

    def recompile(self, group: Group) -> None:
        """Makes the companions anew, where the group or what is copied has changed."""
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
        # Last: what fails in another way must not pass for a group without companions.
        self.made_from = made_from

    def judge(self, trouble: Trouble | None, *, left: bool, paused: bool) -> bool:
        """Whether the verdict is another than the status has; `left` says that there are objects
        of the group's."""
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
    """Whether nodes are to have companions, or have some that they are not to have any more."""
    asked = asks_for_companions(group.spec.template)
    return asked or group.condition(ConditionType.COMPANIONS_PRESENT) is not None


def last_verdict(group: Group) -> Verdict | None:
    """What the status says until a pass has looked."""
    said = group.condition(ConditionType.COMPANIONS_PRESENT)
    if said is None:
        return ABOUT_TO_BE_WRITTEN if asks(group) else None
    known = said.status != "Unknown"
    return Verdict(said.status == "True", said.reason, said.message, known=known)
