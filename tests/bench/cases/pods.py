"""With pods: a Deployment whose pods wait for nodes, run on them as they come, and lose them.

Each node takes as many pods as there are for it, so all of the nodes are needed. The pods are there
before the nodes are asked for. Each turn has a fresh cluster.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.bench.actors import Actor, Ceiling, Operator, running
from tests.bench.cluster import BenchCluster
from tests.bench.context import Context
from tests.bench.measures import CEILING, abba
from tests.bench.observer import BOUND, EXISTS, RUNNING, USABLE, Observer, Sight, pods_of
from tests.bench.progress import Progress
from tests.bench.runs import all_usable, find_concurrency, patience, warm_up

_NAME = "bench"
_PODGC_SECONDS = 600.0


def run(context: Context) -> None:
    options = context.options
    rivals = options.rivals("operator", "ceiling")
    turns = abba(rivals, max(1, options.rounds // 2))
    progress = context.progress(len(turns) + sum(who == "ceiling" for _, who in turns))
    for each, who in turns:
        try:
            with context.cluster(f"{context.case}-{each}-{who}") as bench:
                actor = _actor(context, bench, who)
                if isinstance(actor, Ceiling):
                    find_concurrency(context, bench, progress, actor)
                progress.step(f"{options.pods:,} pods on {options.pod_nodes:,} nodes by {who}")
                _turn(context, bench, progress, actor)
        except Exception as error:
            context.failed(f"{who}, round {each + 1}", error)
    progress.end()


def _actor(context: Context, bench: BenchCluster, who: str) -> Actor:
    per_node = context.options.pods // context.options.pod_nodes
    if who == "ceiling":
        return Ceiling(bench, max_pods=per_node)
    spec = {"template": {"shape": {"maxPods": per_node}}}
    return Operator(bench, flags=context.options.operator_flags, spec=spec)


def _turn(context: Context, bench: BenchCluster, progress: Progress, actor: Actor) -> None:
    options = context.options
    with watched(bench) as pods, running(actor):
        warm_up(bench, progress, actor)
        let_wait(bench, pods, progress, options.pods)
        bench.nodes.sight.forget_times()
        told = actor.scale(options.pod_nodes)
        note_runs(context, bench, pods, progress, who=actor.name, began=told.began)
        actor.settle()
        bench.nodes.expect(all_usable(0))
        pods.expect(lambda sight: sight.count[RUNNING] == 0)
        told = actor.scale(0)
        done = bench.nodes.wait(patience(options.pod_nodes), tick=teller(bench, pods, progress))
        _note(context, actor.name, "until all nodes are gone", done - told.began, work="nodes go")
        actor.settle()
        done = pods.wait(
            _PODGC_SECONDS + patience(options.pods), tick=teller(bench, pods, progress)
        )
        _note(context, actor.name, "until no pod runs", done - told.began, work="nodes go")


@contextmanager
def watched(bench: BenchCluster) -> Iterator[Observer[Sight]]:
    """The pods of the namespace default, as long as the block."""
    pods = pods_of(bench.api)
    try:
        pods.wait_synced()
        yield pods
    finally:
        pods.close()


def let_wait(
    bench: BenchCluster, pods: Observer[Sight], progress: Progress, count: int, *, cpu: str = "0"
) -> None:
    """Make pods that have no node yet; returns when all of them are there."""
    bench.kubectl.apply(deployment(count, cpu=cpu))
    pods.expect(lambda sight: sight.present == count)
    pods.wait(patience(count), tick=teller(bench, pods, progress))
    pods.expect(lambda sight: sight.count[RUNNING] == count)


def note_runs(
    context: Context,
    bench: BenchCluster,
    pods: Observer[Sight],
    progress: Progress,
    *,
    who: str,
    began: float,
    reference: str = CEILING,
) -> None:
    """Wait until all pods run, and note when the last node and the last pod were how far."""
    options = context.options
    wait = patience(options.pods) + patience(options.pod_nodes)
    done = pods.wait(wait, tick=teller(bench, pods, progress))
    nodes, of_pods = bench.nodes.sight, pods.sight
    for figure, at in (
        ("until the first node is there", min(nodes.first[EXISTS].values())),
        ("until the last node is usable", nodes.last(USABLE)),
        ("until the last pod is bound", of_pods.last(BOUND)),
        ("until the last pod runs", done),
    ):
        _note(context, who, figure, at - began, work="nodes come", reference=reference)


def _note(
    context: Context, who: str, figure: str, value: float, *, work: str, reference: str = CEILING
) -> None:
    n = context.options.pod_nodes
    context.add(who, figure, value, work=work, n=n, unit="s", reference=reference)


def teller(
    bench: BenchCluster, pods: Observer[Sight], progress: Progress
) -> Callable[[Sight], None]:
    """Tells of nodes and pods, whichever of them is waited for."""
    return lambda _: progress.tick(f"nodes: {bench.nodes.sight}; pods: {pods.sight}")


def deployment(replicas: int, *, cpu: str) -> dict[str, Any]:
    """Pods that tolerate the guard taint."""
    labels = {"app": _NAME}
    pod = {
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"key": "kwok-provider", "operator": "Exists"}],
        "containers": [
            {"name": "main", "image": "pause:3.10", "resources": {"requests": {"cpu": cpu}}}
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": _NAME, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
