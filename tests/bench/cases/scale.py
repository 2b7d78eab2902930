"""0 to N nodes, until all are usable, and back: operator, load generator, `kwokctl scale node`.

In one group, or in 20 at once: 20 requests to the API server and 20 processes of kwokctl at the
same time; the load generator knows no groups and does what it always does.
"""

from typing import Final

from tests.bench.actors import Ceiling
from tests.bench.cluster import FEW_HEARTBEATS
from tests.bench.context import Context
from tests.bench.measures import abba
from tests.bench.runs import find_concurrency, up_and_down

GROUPS: Final = 20


def one_group(context: Context) -> None:
    _run(context, groups=1)


def twenty_groups(context: Context) -> None:
    _run(context, groups=GROUPS)


def _run(context: Context, *, groups: int) -> None:
    options = context.options
    sizes = sorted({max(size - size % groups, groups) for size in options.sizes})
    rivals = options.rivals("operator", "ceiling", "kwokctl")
    turns = [
        (size, each, who)
        for size in sizes
        for each, who in abba(rivals, options.rounds)
        if who != "kwokctl" or each < options.kwokctl_rounds
    ]
    progress = context.progress(len(turns) + ("ceiling" in rivals))
    with context.cluster(extra_args=FEW_HEARTBEATS) as bench:
        actors = {who: context.actor(who, bench, groups=groups) for who in rivals}
        for actor in actors.values():
            if isinstance(actor, Ceiling):
                find_concurrency(context, bench, progress, actor)
        for size, each, who in turns:
            what = f"{size:,} nodes by {who}, round {each + 1} of {options.rounds}"
            with context.turn(what, bench, progress):
                up_and_down(context, bench, progress, actors[who], size=size)
    progress.end()
