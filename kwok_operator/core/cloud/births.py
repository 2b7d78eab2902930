"""What a Node is when its life begins: drawn when the Node is made.

spec.cloud + serial + since when it is due  --birth--> Birth  --body-->  the JSON of the Node
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kwok_operator.core.cloud.draws import instance
from kwok_operator.core.cloud.life import Life, View, born_at, draw_life
from kwok_operator.core.cloud.shaping import Hold, born
from kwok_operator.models.cloud import Cloud, Interruptions


@dataclass(frozen=True, slots=True)
class Birth:
    """`view` is how the Node is to be in its first write."""

    life: Life
    view: View
    cloud: Cloud

    @classmethod
    def of(
        cls,
        cloud: Cloud,
        *,
        group: str,
        serial: int,
        due: int,
        now: int,
        capacity: Mapping[str, str],
    ) -> "Birth":
        """`due` and `now` are milliseconds; `capacity` is the template's."""
        who = instance(cloud, group=group, serial=serial)
        life = draw_life(cloud, who, born=born_at(due, now=now), capacity=capacity)
        # Notice comes with the next look, also where it is due at once: others may have to wait
        # for it, and it is told of.
        return cls(life, life.noticed(None).view(now), cloud)

    def body(self, plain: bytes, *, hold: Hold, now: str) -> bytes:
        """Of the JSON that the template makes; `now` is RFC 3339."""
        taint = (self.cloud.interruptions or Interruptions()).taint
        return born(
            plain, life=self.life, view=self.view, hold=hold, interruption_taint=taint, now=now
        )
