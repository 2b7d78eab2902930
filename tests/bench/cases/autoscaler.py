"""The whole way with cluster-autoscaler: pods wait, it is started, and they run.

    pods without a node -> cluster-autoscaler -> the shim, a group, the operator -> nodes
                                              -> its own kwok provider           -> nodes

Both ways it is the same program with the same flags but for the provider, all others as they are by
default, as admin. Operator and shim run before it does, as people have them; its own provider is
part of it. Nodes are alike in capacity and labels, and pods ask for so much CPU that all nodes are
needed: not by the number of pods, as that provider takes it that a pod of kube-proxy is on each
node. Each turn has a fresh cluster, and the clock runs from the start of cluster-autoscaler.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import NODE_GROUP_LABEL
from kwok_operator.nodegroups.template import DEFAULT_CAPACITY, KubeletEndpoint
from tests.bench import body
from tests.bench.actors import GROUP, Operator, end, running
from tests.bench.cases.pods import let_wait, note_runs, watched
from tests.bench.cases.shim import ShimProcess
from tests.bench.cluster import NAMESPACE, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba
from tests.e2e.ports import free_address

IN_TREE: Final = "in-tree"
_PROVIDER: Final = """\
apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups: {fromNodeLabelKey: %s}
configmap: {name: kwok-templates}
"""
_KUBE_PROXY_MILLIS = 100


def run(context: Context) -> None:
    options = context.options
    if not options.cluster_autoscaler:
        context.note("left out: --cluster-autoscaler names no program")
        return
    turns = abba(options.rivals("operator", IN_TREE), max(1, options.rounds // 2))
    progress = context.progress(len(turns))
    for each, who in turns:
        progress.step(f"{options.pods:,} pods on {options.pod_nodes:,} nodes by {who}")
        try:
            with context.cluster(f"{context.case}-{each}-{who}") as bench, watched(bench) as pods:
                provider = _shim if who == "operator" else _in_tree
                with provider(context, bench) as (flags, environ):
                    let_wait(bench, pods, progress, options.pods, cpu=_share(context))
                    bench.nodes.sight.forget_times()
                    began = time.monotonic()
                    with _autoscaler(context, bench, flags=flags, environ=environ):
                        note_runs(
                            context,
                            bench,
                            pods,
                            progress,
                            who=who,
                            began=began,
                            reference=IN_TREE,
                        )
        except Exception as error:
            context.failed(f"{who}, round {each + 1}", error)
    progress.end()


def _share(context: Context) -> str:
    """The CPU of each pod: as many as there are for a node fit beside kube-proxy, and no more."""
    cores = int(DEFAULT_CAPACITY["cpu"])
    per_node = context.options.pods // context.options.pod_nodes
    return f"{(1000 * cores - _KUBE_PROXY_MILLIS) // per_node}m"


Way = tuple[list[str], dict[str, str]]


@contextmanager
def _shim(context: Context, bench: BenchCluster) -> Iterator[Way]:
    """The operator with one group, and the shim that serves it."""
    options = context.options
    spec = {"autoscaling": {"minSize": 0, "maxSize": options.pod_nodes}}
    operator = Operator(bench, flags=options.operator_flags, spec=spec)
    # Not in the results folder: the path of a socket file has to be short.
    with tempfile.TemporaryDirectory(prefix="bench-") as short, running(operator):
        listen = Path(short, "shim.sock")
        config = bench.directory / "cloud-config.yaml"
        config.write_text(json.dumps({"address": f"unix:{listen}", "grpc_timeout": "5s"}))
        shim = ShimProcess(bench, socket=listen)
        try:
            shim.launch()
            yield ["--cloud-provider=externalgrpc", f"--cloud-config={config}"], {}
        finally:
            shim.stop()


@contextmanager
def _in_tree(context: Context, bench: BenchCluster) -> Iterator[Way]:
    """The ConfigMaps that its own kwok provider reads."""
    templates = {"apiVersion": "v1", "kind": "List", "items": [_template(context)]}
    for name, data in (
        ("kwok-provider-config", {"config": _PROVIDER % NODE_GROUP_LABEL}),
        ("kwok-templates", {"templates": json.dumps(templates)}),
    ):
        metadata = {"name": name, "namespace": NAMESPACE}
        bench.kubectl.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        )
    environ = {
        "KWOK_PROVIDER_MODE": "local",
        "KUBECONFIG": str(bench.cluster.kubeconfig),
        "POD_NAMESPACE": NAMESPACE,
    }
    yield ["--cloud-provider=kwok"], environ


def _template(context: Context) -> dict[str, Any]:
    """The operator's node as one of that provider's templates."""
    options = context.options
    parts = body.parts(
        group=GROUP,
        uid="",
        endpoint=KubeletEndpoint((), 0),
        max_pods=None,
        nodes=options.pod_nodes,
    )
    node = json.loads(body.NAME.join(parts))
    maximum = {"cluster-autoscaler.kwok.nodegroup/max-count": str(options.pod_nodes)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": GROUP, "labels": node["metadata"]["labels"], "annotations": maximum},
        "spec": {},
        "status": {key: node["status"][key] for key in ("capacity", "allocatable", "nodeInfo")},
    }


@contextmanager
def _autoscaler(
    context: Context, bench: BenchCluster, *, flags: list[str], environ: dict[str, str]
) -> Iterator[None]:
    command = [context.options.cluster_autoscaler, f"--kubeconfig={bench.cluster.kubeconfig}"]
    command += [f"--namespace={NAMESPACE}", "--leader-elect=false", f"--address={free_address()}"]
    log = bench.directory / "cluster-autoscaler.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--v=2", *flags], env={**os.environ, **environ}, stdout=output, stderr=output
        )
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"cluster-autoscaler has ended: {log.read_text()[-300:]}")
    finally:
        end(process)
