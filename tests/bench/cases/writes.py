"""Every write that the life of a node causes, and by whom, as the API server's audit log has it.

A life is: created and usable, idle for a while, deleted. To each belongs what comes within half a
minute, as kube-controller-manager looks at all nodes now and then and works at its own pace.
"""

import json
import time
from typing import BinaryIO, Final

from tests.bench.actors import Actor, running
from tests.bench.audit import POLICY, writes
from tests.bench.cluster import BenchCluster
from tests.bench.context import Context
from tests.bench.progress import Progress
from tests.bench.runs import timed, warm_up

NODES: Final = 100
_AFTERMATH_SECONDS = 30.0


def run(context: Context) -> None:
    rivals = context.options.rivals("operator", "ceiling", "kwokctl")
    progress = context.progress(len(rivals))
    directory = context.directory / "logs" / context.case
    directory.mkdir(parents=True, exist_ok=True)
    policy = directory / "audit-policy.json"
    policy.write_text(json.dumps(POLICY))
    with context.cluster(extra_args=(f"--kube-audit-policy={policy}",)) as bench:
        assert bench.cluster.directory is not None
        log = bench.cluster.directory / "logs" / "audit.log"
        for who in rivals:
            actor = context.actor(who, bench)
            with (
                context.turn(f"{NODES} nodes by {who}", bench, progress),
                running(actor),
                log.open("rb") as reader,
            ):
                _live(context, bench, progress, actor, reader)
    progress.end()


def _live(
    context: Context, bench: BenchCluster, progress: Progress, actor: Actor, log: BinaryIO
) -> None:
    warm_up(bench, progress, actor)
    time.sleep(_AFTERMATH_SECONDS)
    log.seek(0, 2)
    for work, size in (("created and usable", NODES), ("idle", None), ("deleted", 0)):
        if size is None:
            time.sleep(context.options.idle)
        else:
            timed(bench, progress, lambda size=size: actor.scale(size), size=size, nodes=NODES)  # type: ignore[misc]
            actor.settle()
            time.sleep(_AFTERMATH_SECONDS)
        for write, count in sorted(writes(log.readlines()).items()):
            context.add(
                write.who,
                write.what,
                count / NODES,
                work=f"{actor.name}: {work}",
                n=NODES,
                unit="a node",
            )
