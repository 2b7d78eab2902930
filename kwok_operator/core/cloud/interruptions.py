"""Who is given notice, where only so many may be under notice at a time.

    Nodes whose notice is due + how many are under notice  --give_notice-->  those that get it now

The time is then written on the Node, and from there on its end is certain. Without a limit nobody
has to ask: notice is given when it is due.
"""

from collections.abc import Mapping

from kwok_operator.core.cloud.life import Life


def give_notice(
    lives: Mapping[int, Life], *, at_a_time: int | None, under_way: int, now: int
) -> tuple[int, ...]:
    """The serials that get notice now, in the order in which it was due.

    `lives` are those of Nodes that have none yet, `under_way` is how many have and aren't gone.
    """
    due = sorted(
        (life.notice_at, serial)
        for serial, life in lives.items()
        if life.notice_at is not None and life.notice_at <= now
    )
    room = len(due) if at_a_time is None else max(0, at_a_time - under_way)
    return tuple(serial for _, serial in due[:room])


def next_notice(
    lives: Mapping[int, Life], *, at_a_time: int | None, under_way: int, now: int
) -> int | None:
    """When `give_notice` may have something to give, if no Node under notice goes before.

    None where it hasn't: nothing is due ever, or those under notice leave no room.
    """
    if at_a_time is not None and under_way >= at_a_time:
        return None
    times = [life.notice_at for life in lives.values() if life.notice_at is not None]
    return max(min(times), now) if times else None
