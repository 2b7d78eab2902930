"""The Nodes of a group in the simulated cloud: how each should be now, and which are to go.

    marks of the Nodes + outage + now  --Upkeep.look-->  Sight: views, ends, notices, what is next

A view holds until its `until`, and thousands of nodes are looked at in each pass; so what was found
is kept while it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kwok_operator.core.cloud.interruptions import give_notice, next_notice
from kwok_operator.core.cloud.life import Life, View
from kwok_operator.core.cloud.marks import PERFECT, Mark


@dataclass(frozen=True, slots=True)
class Sight:
    """`views` are those of nodes about which there is something to tell, by serial, and `lives` the
    lives that they are of, where something was decided; `ended` the serials that are to go.

    `noticed` is when notice was given to those that had to wait for others, and whose Nodes don't
    say so yet. `until` (milliseconds) is when to look again, None for never.
    """

    views: Mapping[int, View] = field(default_factory=dict)
    lives: Mapping[int, Life] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()
    noticed: Mapping[int, int] = field(default_factory=dict)
    until: int | None = None


@dataclass(slots=True)
class _Known:
    mark: Mark | None
    capped: bool
    outage_since: int | None
    life: Life
    view: View


class Upkeep:
    """The views of one group's nodes, as found last."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def look(
        self,
        marks: Mapping[int, Mark | None],
        *,
        at_a_time: int | None,
        outage_since: int | None,
        now: int,
    ) -> Sight:
        """All nodes that have a mark; in an outage, all nodes. `now` is milliseconds."""
        capped = at_a_time is not None
        self._known = {
            serial: self._find(serial, mark, capped=capped, outage_since=outage_since, now=now)
            for serial, mark in marks.items()
        }
        due = self._give_notice(at_a_time, now=now) if at_a_time is not None else None
        times = [k.view.until for k in self._known.values() if k.view.until is not None]
        return Sight(
            views={serial: known.view for serial, known in self._known.items()},
            lives={s: k.life for s, k in self._known.items() if k.mark is not None and k.mark.life},
            ended=frozenset(s for s, known in self._known.items() if known.view.gone),
            noticed={s: at for s, known in self._known.items() if (at := _unwritten(known))},
            until=min(times if due is None else [*times, due], default=None),
        )

    def _find(
        self, serial: int, mark: Mark | None, *, capped: bool, outage_since: int | None, now: int
    ) -> _Known:
        known = self._known.get(serial)
        if known is not None and _holds(known, mark, capped=capped, outage_since=outage_since):
            if known.view.until is None or now < known.view.until:
                return known
            life = known.life
        else:
            life = PERFECT if mark is None else mark.lived(capped=capped)
        view = life.view(now, outage_since=outage_since)
        return _Known(mark, capped, outage_since, life, view)

    def _give_notice(self, at_a_time: int, *, now: int) -> int | None:
        """Gives notice where it is due and there is room; returns when to look again for that."""
        waiting: dict[int, Life] = {}
        under_way = 0
        for serial, known in self._known.items():
            if known.life.end is None:
                if _life(known.mark).end is not None:
                    waiting[serial] = _life(known.mark)
            elif not known.view.gone:
                under_way += 1
        given = give_notice(waiting, at_a_time=at_a_time, under_way=under_way, now=now)
        for serial in given:
            known = self._known[serial]
            known.life = waiting.pop(serial).noticed(now)
            known.view = known.life.view(now, outage_since=known.outage_since)
        under_way += len(given)
        return next_notice(waiting, at_a_time=at_a_time, under_way=under_way, now=now)


def _life(mark: Mark | None) -> Life:
    return PERFECT if mark is None or mark.life is None else mark.life


def _holds(known: _Known, mark: Mark | None, *, capped: bool, outage_since: int | None) -> bool:
    """Whether nothing has changed but the time."""
    same = known.mark is mark or known.mark == mark
    return same and known.capped is capped and known.outage_since == outage_since


def _unwritten(known: _Known) -> int | None:
    """When notice was given that the Node doesn't tell of yet."""
    if not known.capped or known.mark is None or known.mark.noticed_at is not None:
        return None
    return known.life.notice_at
