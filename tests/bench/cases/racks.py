"""Pods that the scheduler binds in a second, plain and by topology, with nodes in 50 racks.

Nodes and gangs are as in Kubernetes' own benchmark of topology-aware scheduling (kubernetes PR
140611), which has more pods, the API server in the scheduler's process, and no nodes that live. All
ways to ask for a rack have their turns on the same nodes. The scheduler is halted while pods are
created; the rate is counted from the first binding to the last.
"""

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from tests.bench.actors import Operator, running
from tests.bench.cases.pods import watched
from tests.bench.cluster import FEW_HEARTBEATS, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba
from tests.bench.observer import BOUND, NODES, PODS, Observer, Sight
from tests.bench.progress import Progress
from tests.bench.runs import patience, timed

RACKS: Final = 50
RACK: Final = "example.com/rack"
GANG: Final = 4
PODS_OF_A_TURN: Final = 600
PLAIN, SPREAD, AFFINITY, GANGS = "plain", "spread", "affinity", "gangs"
_GATES: Final = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
_GROUPS: Final = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
_CREATORS: Final = 8
_PUBLISHED: Final = (
    "kubernetes PR 140611, 5,000 nodes in 50 racks, gangs of 4: 492 to 630 pods/s where few racks"
    " are scored, 104 to 114 where all are, as in 1.36"
)


def run(context: Context) -> None:
    options = context.options
    turns = abba((PLAIN, SPREAD, AFFINITY, GANGS), max(1, options.rounds // 2))
    sizes = [size for size in options.sizes if size % RACKS == 0]
    progress = context.progress(len(sizes) * len(turns))
    gates = {"feature-gates": ",".join(f"{gate}=true" for gate in _GATES)}
    served = {"runtime-config": "api/legacy=true,scheduling.k8s.io/v1alpha2=true"}
    # With the scheduler's own limit, 50 requests a second, each way would bind 50 pods a second.
    flags = {"kube-apiserver": gates | served, "kube-scheduler": gates}
    with context.cluster(extra_args=FEW_HEARTBEATS, raised=True, flags=flags) as bench:
        for size in sizes:
            levels = [{"label": RACK, "of": size // RACKS}]
            spec = {"template": {"topology": {"levels": levels}}}
            actor = Operator(bench, flags=options.operator_flags, spec=spec)
            with running(actor), watched(bench) as pods:
                timed(bench, progress, lambda: actor.scale(size), size=size, nodes=size)  # noqa: B023
                for each, way in turns:
                    progress.step(f"{size:,} nodes, {way}, round {each + 1}")
                    try:
                        _turn(context, bench, pods, progress, way=way, size=size, number=each)
                    except Exception as error:
                        context.failed(f"{size:,} nodes, {way}, round {each + 1}", error)
                    pods.expect(lambda sight: sight.present == 0)
                    bench.api.request("DELETE", f"{PODS}?gracePeriodSeconds=0")
                    pods.wait(patience(size))
            bench.clear(progress.tick)
    context.note("limits of Kubernetes' clients: raised, in any case")
    context.note(_PUBLISHED)
    progress.end()


def _turn(
    context: Context,
    bench: BenchCluster,
    pods: Observer[Sight],
    progress: Progress,
    *,
    way: str,
    size: int,
    number: int,
) -> None:
    count = PODS_OF_A_TURN
    gangs = [f"{way}-{number}-{size}-{n}" for n in range(count // GANG)]
    bench.quiet(progress.tick)
    pods.sight.forget_times()
    with _halted_scheduler(bench):
        if way == GANGS:
            _create(bench, _GROUPS, map(_group, gangs))
        _create(bench, PODS, (_pod(gang, n, way=way) for gang in gangs for n in range(GANG)))
        before = bench.cpu()["kube-scheduler"]
        pods.expect(lambda sight: sight.count[BOUND] == count)
    last = pods.wait(patience(4 * count), tick=lambda sight: progress.tick(str(sight)))
    used = bench.cpu()["kube-scheduler"] - before
    rate = (count - 1) / (last - min(pods.sight.first[BOUND].values()))
    for figure, value, unit in (("pods/s", rate, ""), ("CPU of kube-scheduler", used, "s")):
        context.add(way, figure, value, work=f"{count:,} pods", n=size, unit=unit, reference=PLAIN)
    _check(bench, way)


@contextmanager
def _halted_scheduler(bench: BenchCluster) -> Iterator[None]:
    pid = bench.cluster.pid("kube-scheduler")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _create(bench: BenchCluster, path: str, bodies: Iterator[Mapping[str, Any]]) -> None:
    every = list(bodies)

    def create(part: int) -> None:
        api = bench.api.another()
        for body in every[part::_CREATORS]:
            api.request("POST", path, body=body)
        api.close()

    with ThreadPoolExecutor(_CREATORS) as pool:
        list(pool.map(create, range(_CREATORS)))


def _group(gang: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": gang},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": GANG}},
            "schedulingConstraints": {"topology": [{"key": RACK}]},
        },
    }


def _pod(gang: str, number: int, *, way: str) -> Mapping[str, Any]:
    term = {"topologyKey": RACK, "labelSelector": {"matchLabels": {"gang": gang}}}
    skew = {
        "maxSkew": 1,
        "topologyKey": RACK,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "bench"}},
    }
    rack: Mapping[str, Mapping[str, Any]] = {
        SPREAD: {"topologySpreadConstraints": [skew]},
        AFFINITY: {
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        },
        GANGS: {"schedulingGroup": {"podGroupName": gang}},
    }
    requests = {"cpu": "100m", "memory": "500Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{gang}-{number}", "labels": {"app": "bench", "gang": gang}},
        "spec": {
            "tolerations": [{"key": "kwok-provider", "operator": "Exists"}],
            "containers": [
                {"name": "main", "image": "pause:3.10", "resources": {"requests": requests}}
            ],
            **rack.get(way, {}),
        },
    }


def _check(bench: BenchCluster, way: str) -> None:
    """Raises AssertionError unless pods stand as they asked for: else the rate is of nothing."""
    nodes, pods = bench.api.json(NODES)["items"], bench.api.json(PODS)["items"]
    rack_of = {node["metadata"]["name"]: node["metadata"]["labels"][RACK] for node in nodes}
    assert len(set(rack_of.values())) == RACKS
    racks = defaultdict[str, set[str]](set)
    for pod in pods:
        racks[pod["metadata"]["labels"]["gang"]].add(rack_of[pod["spec"]["nodeName"]])
    if way in (AFFINITY, GANGS):
        assert all(len(each) == 1 for each in racks.values()), f"{way}: gangs in several racks"
    if way == SPREAD:
        each = Counter(rack_of[pod["spec"]["nodeName"]] for pod in pods)
        assert max(each.values()) - min(each.values()) <= 1, f"{way}: {each}"
