"""Decides how long Karpenter's nodes live, by spec.cloud.interruptions of their groups.

The operator doesn't manage these nodes. The n-th node of a group gets the life that the operator
would draw for its serial number n, so that cluster-autoscaler and Karpenter meet the same
interruptions. When a node gets its notice, Karpenter drains it and deletes it at once, before the
notice is over. So Karpenter's nodes get their notice only at the moment when the cloud would take
away the operator's node. This way the cloud takes equally many machines under cluster-autoscaler
and under Karpenter.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kwok_operator.cloud.api.cloud import Cloud
from kwok_operator.cloud.desired import give_notice
from kwok_operator.cloud.draws import instance_seed
from kwok_operator.cloud.life import Life, draw_life
from kwok_operator.formats.times import parse_time
from kwok_operator.rehearsal.machines import Machine


@dataclass(frozen=True, slots=True)
class _Lived:
    machine: Machine
    number: int
    life: Life


@dataclass(slots=True)
class NodeLives:
    """Knows when each existing node will be interrupted. That time is drawn when the node is first
    seen.
    """

    _lived: dict[str, _Lived] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)
    """How many nodes of each group have been seen so far."""

    def due(
        self,
        machines: Iterable[Machine],
        clouds: Mapping[str, Cloud],
        *,
        under_notice: Mapping[str, int],
        now: int,
    ) -> list[tuple[Machine, int]]:
        """Returns the machines to interrupt now, each with the length of its notice in
        milliseconds.

        `machines` are those that aren't interrupted yet, `clouds` are the groups' clouds, and
        `under_notice` is the number of machines of each group that are interrupted, but haven't
        ended.
        """
        there = sorted(machines, key=lambda each: (each.created, each.name))
        self._lived = {m.uid: self._lived.get(m.uid) or self._born(m, clouds) for m in there}
        due = []
        for group, cloud in clouds.items():
            mine = {each.number: each for each in self._of(group)}
            noticed = under_notice.get(group, 0)
            cap = cloud.interruptions.at_a_time if cloud.interruptions is not None else None
            lives = {number: each.life for number, each in mine.items()}
            most = noticed + len(mine) if cap is None else cap
            for number in give_notice(lives, at_a_time=most, under_way=noticed, now=now):
                end = lives[number].end
                assert end is not None
                due.append((mine[number].machine, end.notice))
        return due

    def _born(self, machine: Machine, clouds: Mapping[str, Cloud]) -> _Lived:
        number = self._numbers[machine.group]
        self._numbers[machine.group] += 1
        born, cloud = parse_time(machine.created), clouds.get(machine.group)
        if cloud is None:
            return _Lived(machine, number, Life(born))
        who = instance_seed(cloud, group=machine.group, serial=number)
        life = draw_life(cloud, who, born=born)
        at_its_end = life.noticed(born + life.end.gone_after) if life.end is not None else life
        return _Lived(machine, number, at_its_end)

    def _of(self, group: str) -> Iterable[_Lived]:
        return (each for each in self._lived.values() if each.machine.group == group)
