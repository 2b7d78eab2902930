"""0 to N Machines with their Nodes from one PATCH of a MachineDeployment's replicas, and back.

Beside a bare group of as many nodes, in the same run and told by the same kind of request. Machines
are done when all are Running and all Nodes usable. Calls are counted by the API server.
"""

import time
from pathlib import Path
from typing import Any, Final

from kwok_operator.clusterapi.crds import emulated_crds
from tests.bench.actors import Operator, Told, running
from tests.bench.cluster import FEW_HEARTBEATS, OPERATOR, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba
from tests.bench.observer import Events, Observer
from tests.bench.progress import Progress
from tests.bench.runs import patience, timed, warm_up
from tests.e2e.capi import GROUP, deployment
from tests.e2e.kubectl import eventually

BARE: Final = "operator, bare group"
MACHINES: Final = "operator, machines"
DEPLOYMENT: Final = "bench"
_ROOT: Final = f"/apis/{GROUP}/v1beta2"
_DEPLOYMENTS: Final = f"{_ROOT}/namespaces/default/machinedeployments"
_RIGHTS: Final = Path(__file__).parents[3] / "deploy/components/clusterapi-emulate/rbac.yaml"
_AFTERMATH_SECONDS: Final = 3.0


class Running(Events):
    """Which Machines there are, and which run."""

    def __init__(self) -> None:
        super().__init__()
        self.phases: dict[str, str] = {}

    def take(self, body: dict[str, Any], *, deleted: bool, now: float) -> None:
        name = body["metadata"]["name"]
        if deleted:
            self.phases.pop(name, None)
        else:
            self.phases[name] = body.get("status", {}).get("phase", "")

    def all_run(self, size: int) -> bool:
        return len(self.phases) == size and set(self.phases.values()) <= {"Running"}


class Bare(Operator):
    """A group, told without kubectl."""

    name = BARE

    def scale(self, size: int) -> Told:
        return self.patch(size)


class Emulating(Operator):
    """A MachineDeployment."""

    name = MACHINES

    def start(self) -> None:
        self._bench.kubectl.apply(deployment(DEPLOYMENT, replicas=0))
        self.launch()

    def scale(self, size: int) -> Told:
        began = time.monotonic()
        self._bench.api.scale(f"{_DEPLOYMENTS}/{DEPLOYMENT}", size)
        ended = time.monotonic()
        return Told(began, ended, ended)

    def stop(self) -> None:
        self._bench.api.request("DELETE", f"{_DEPLOYMENTS}/{DEPLOYMENT}")
        super().stop()


def run(context: Context) -> None:
    options = context.options
    turns = [
        (size, each, who)
        for size in options.sizes
        for each, who in abba([BARE, MACHINES], options.rounds)
    ]
    progress = context.progress(len(turns))
    with context.cluster(extra_args=FEW_HEARTBEATS) as bench:
        _prepare(bench)
        flags = options.operator_flags
        actors = {
            BARE: Bare(bench, flags=flags),
            MACHINES: Emulating(bench, flags=("--clusterapi=emulate", "--csi-nodes=false", *flags)),
        }
        machines = Observer(bench.api, path=f"{_ROOT}/machines", view=Running())
        try:
            machines.wait_synced()
            for size, each, who in turns:
                what = f"{size:,} by {who}, round {each + 1} of {options.rounds}"
                with context.turn(what, bench, progress), running(actors[who]):
                    _turn(context, bench, progress, actors[who], machines, size=size)
        finally:
            machines.close()
    progress.end()


def _prepare(bench: BenchCluster) -> None:
    bench.kubectl.apply({"apiVersion": "v1", "kind": "List", "items": emulated_crds()})
    bench.kubectl("apply", f"--filename={_RIGHTS}")
    user = f"--as=system:serviceaccount:kwok-operator:{OPERATOR}"
    eventually(
        lambda: bench.kubectl("auth", "can-i", "create", f"machines.{GROUP}", user),
        describe="the operator has its rights",
    )


def _turn(
    context: Context,
    bench: BenchCluster,
    progress: Progress,
    actor: Operator,
    machines: Observer[Running],
    *,
    size: int,
) -> None:
    warm_up(bench, progress, actor)
    for work, target in (("create", size), ("delete", 0)):
        before, cpu = bench.calls(OPERATOR), actor.usage().cpu
        if isinstance(actor, Emulating):
            machines.expect(lambda view, target=target: view.all_run(target))  # type: ignore[misc]
        timing = timed(
            bench,
            progress,
            lambda target=target: actor.scale(target),  # type: ignore[misc]
            size=target,
            nodes=size,
        )
        done = timing.done
        if isinstance(actor, Emulating):
            done = max(done, machines.wait(patience(2 * size)))
        seconds = done - timing.told.began
        context.add(actor.name, "seconds", seconds, work=work, n=size, unit="s", reference=BARE)
        time.sleep(_AFTERMATH_SECONDS)
        figures: dict[str, Any] = {
            "API calls a node": (bench.calls(OPERATOR) - before) / size,
            "CPU": actor.usage().cpu - cpu,
        }
        for figure, value in figures.items():
            context.add(actor.name, figure, value, work=work, n=size, reference=BARE)
        bench.quiet(progress.tick)
