"""With pods: a Deployment whose pods wait for nodes, run on them as they come, and lose them.

Each node takes as many pods as there are for it, so all of the nodes are needed. Scheduler and
controllers run without their limits on requests a second, or those limits would be all that is
measured. Each turn has a fresh cluster.
"""

from typing import Any

from tests.bench.actors import Actor, Ceiling, Operator, Told, running
from tests.bench.cluster import BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba
from tests.bench.observer import Observer, Sight, Unfinished, pods_of
from tests.bench.progress import Progress
from tests.bench.runs import all_ready, find_concurrency, patience, warm_up

_NAME = "bench"
_UNLIMITED = ("--disable-qps-limits",)
_PODGC_SECONDS = 600.0


def run(context: Context) -> None:
    options = context.options
    rivals = options.rivals("operator", "ceiling")
    turns = abba(rivals, max(1, options.rounds // 2))
    progress = context.progress(len(turns) + sum(who == "ceiling" for _, who in turns))
    for each, who in turns:
        try:
            with context.cluster(f"pods-{each}-{who}", extra_args=_UNLIMITED) as bench:
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
    pods = pods_of(bench.api)
    try:
        pods.wait_synced()
        with running(actor):
            warm_up(bench, progress, actor)
            bench.kubectl.apply(deployment(options.pods))
            pods.expect(lambda sight: sight.present == options.pods)
            pods.wait(patience(options.pods), tick=lambda s: progress.tick(f"{s.present:,} pods"))
            bench.nodes.expect(all_ready(options.pod_nodes))
            pods.expect(lambda sight: sight.ready == options.pods)
            told = actor.scale(options.pod_nodes)
            _wait(context, bench, pods, progress, actor, told, work="nodes come")
            bench.nodes.expect(all_ready(0))
            pods.expect(lambda sight: sight.ready == 0)
            told = actor.scale(0)
            _wait(context, bench, pods, progress, actor, told, work="nodes go")
    finally:
        pods.close()


def _wait(
    context: Context,
    bench: BenchCluster,
    pods: Observer[Sight],
    progress: Progress,
    actor: Actor,
    told: Told,
    *,
    work: str,
) -> None:
    options = context.options

    def tick(sight: Sight) -> None:
        progress.tick(f"{bench.nodes.sight.present:,} nodes, {pods.sight.ready:,} pods running")

    figures = {
        "nodes come": ("until all nodes are Ready", "until all pods run"),
        "nodes go": ("until all nodes are gone", "until no pod runs"),
    }[work]
    n = options.pod_nodes
    done = bench.nodes.wait(patience(n), tick=tick)
    context.add(actor.name, figures[0], done - told.began, work=work, n=n, unit="s")
    actor.settle()
    try:
        done = pods.wait(_PODGC_SECONDS + patience(options.pods), tick=tick)
    except Unfinished as error:
        context.note(f"{actor.name}, {work}: {error}")
        return
    context.add(actor.name, figures[1], done - told.began, work=work, n=n, unit="s")


def deployment(replicas: int) -> dict[str, Any]:
    """Pods that tolerate the guard taint."""
    labels = {"app": _NAME}
    pod = {
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"key": "kwok-provider", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "pause:3.10"}],
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
