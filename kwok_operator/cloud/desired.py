"""Computes how each Node of a group should be now in the simulated cloud, and which are to go.

    marks (what is recorded on the Nodes) + outage + now  --Upkeep.find-->  DesiredNodes
    Nodes whose notice is due + how many are under notice  --give_notice-->  serials

A pass looks at thousands of nodes, so each result is cached until the time at which it changes.
A Node under notice is soon taken back. If the group limits how many Nodes are under notice at a
time, this module decides which Nodes get notice; the time is written on the Node, and fixes its
end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kwok_operator.cloud.annotations import PERFECT, Mark
from kwok_operator.cloud.life import DesiredNode, Life


@dataclass(frozen=True, slots=True)
class DesiredNodes:
    """How a group's Nodes should be now, by serial: those on which the simulated cloud has recorded
    something; in an outage, all.

    `lives` are the recorded lives; `ended` are to be deleted. `noticed` says when Nodes got notice
    of their end, if the group limits how many have notice, and the time isn't written on the Node
    yet. `until` is when to look again, None for never. Times are milliseconds.
    """

    desired: Mapping[int, DesiredNode] = field(default_factory=dict)
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
    desired: DesiredNode


class Upkeep:
    """Computes how one group's nodes should be, and caches the result for each."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def find(
        self,
        marks: Mapping[int, Mark | None],
        *,
        at_a_time: int | None,
        out: Mapping[int, int],
        now: int,
    ) -> DesiredNodes:
        """Computes how nodes should be. `marks` has, by serial, what the simulated cloud recorded
        on nodes; in an outage also None for each other node. `out` says since when nodes are in an
        outage, in milliseconds. `at_a_time` is how many may be under notice (None: any number)."""
        capped = at_a_time is not None
        self._known = {
            serial: self._find(serial, mark, capped=capped, outage_since=out.get(serial), now=now)
            for serial, mark in marks.items()
        }
        due = self._give_notice(at_a_time, now=now) if at_a_time is not None else None
        times = [k.desired.until for k in self._known.values() if k.desired.until is not None]
        return DesiredNodes(
            desired={serial: known.desired for serial, known in self._known.items()},
            lives={s: k.life for s, k in self._known.items() if k.mark is not None and k.mark.life},
            ended=frozenset(s for s, known in self._known.items() if known.desired.gone),
            noticed={s: at for s, known in self._known.items() if (at := _unwritten(known))},
            until=min(times if due is None else [*times, due], default=None),
        )

    def _find(
        self, serial: int, mark: Mark | None, *, capped: bool, outage_since: int | None, now: int
    ) -> _Known:
        known = self._known.get(serial)
        if known is not None and _holds(known, mark, capped=capped, outage_since=outage_since):
            if known.desired.until is None or now < known.desired.until:
                return known
            life = known.life
        else:
            life = PERFECT if mark is None else mark.lived(capped=capped)
        desired = life.desired(now, outage_since=outage_since)
        return _Known(mark, capped, outage_since, life, desired)

    def _give_notice(self, at_a_time: int, *, now: int) -> int | None:
        """Gives notice of their end to the Nodes for which it is due, as far as the limit allows;
        returns when to try again."""
        waiting: dict[int, Life] = {}
        under_way = 0
        for serial, known in self._known.items():
            if known.life.end is None:
                if _life(known.mark).end is not None:
                    waiting[serial] = _life(known.mark)
            elif not known.desired.gone:
                under_way += 1
        given = give_notice(waiting, at_a_time=at_a_time, under_way=under_way, now=now)
        for serial in given:
            known = self._known[serial]
            known.life = waiting.pop(serial).noticed(now)
            known.desired = known.life.desired(now, outage_since=known.outage_since)
        under_way += len(given)
        return next_notice(waiting, at_a_time=at_a_time, under_way=under_way, now=now)


def _life(mark: Mark | None) -> Life:
    return PERFECT if mark is None or mark.life is None else mark.life


def _holds(known: _Known, mark: Mark | None, *, capped: bool, outage_since: int | None) -> bool:
    """Whether the result in `known` was computed from what holds now: the same records on the Node
    (`mark`), `capped` and outage. The caller checks that the result hasn't expired."""
    same = known.mark is mark or known.mark == mark
    return same and known.capped is capped and known.outage_since == outage_since


def _unwritten(known: _Known) -> int | None:
    """Returns the time at which a Node got notice of its end, if it is still to be written on the
    Node; else None."""
    if not known.capped or known.mark is None or known.mark.noticed_at is not None:
        return None
    return known.life.notice_at


def give_notice(
    lives: Mapping[int, Life], *, at_a_time: int, under_way: int, now: int
) -> tuple[int, ...]:
    """Returns the serials of Nodes that get notice of their end now, in the order in which the
    notices were due.

    `lives` are those of Nodes without notice; `under_way` is how many Nodes have notice and still
    exist.
    """
    due = sorted(
        (life.notice_at, serial)
        for serial, life in lives.items()
        if life.notice_at is not None and life.notice_at <= now
    )
    return tuple(serial for _, serial in due[: max(0, at_a_time - under_way)])


def next_notice(
    lives: Mapping[int, Life], *, at_a_time: int, under_way: int, now: int
) -> int | None:
    """Returns when to call `give_notice` again (sooner once a Node under notice is gone).

    None if notice is never due for any of the `lives`, or as many Nodes as allowed are under
    notice.
    """
    if under_way >= at_a_time:
        return None
    times = [life.notice_at for life in lives.values() if life.notice_at is not None]
    return max(min(times), now) if times else None
