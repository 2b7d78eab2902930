"""0 to N nodes, each with a CSINode and a ResourceSlice of eight devices.

Beside a load generator that writes the same objects, and a group of bare nodes. Done is when all
nodes are usable and all companions are there. How late a companion comes is counted from when its
node was seen Ready.
"""

import time
from pathlib import Path
from typing import Any, Final

from kwok_operator.companions.desired import CompanionKind, CompanionOwner, compile_companions
from kwok_operator.nodegroups.api.template import Template
from tests.bench import body
from tests.bench.actors import Actor, Ceiling, Operator, running
from tests.bench.cluster import CEILING, FEW_HEARTBEATS, NAMESPACE, OPERATOR, BenchCluster
from tests.bench.context import Context
from tests.bench.measures import abba, percentile
from tests.bench.observer import EXISTS, READY, Observer, Sight
from tests.bench.progress import Progress
from tests.bench.runs import patience, timed, warm_up
from tests.e2e.kubectl import eventually

BARE: Final = "operator, bare nodes"
COMPANIONS: Final = "operator"
GENERATOR: Final = "ceiling"
DEVICES: Final = 8
WANTED: Final[dict[str, Any]] = {
    "csiNode": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 25}}]},
    "resourceSlices": [
        {
            "driver": "gpu.example.com",
            "devices": [
                {
                    "name": "gpu",
                    "count": DEVICES,
                    "attributes": {
                        "type": {"string": "gpu"},
                        "productName": {"string": "Sample GPU 80GB"},
                        "uuid": {"string": "{node}-{index}"},
                    },
                    "capacity": {"memory": {"value": "80Gi"}},
                }
            ],
        }
    ],
}
TEMPLATE: Final = Template.model_validate({"companions": WANTED})
_RIGHTS: Final = Path(__file__).parents[3] / "deploy/components/companions/rbac.yaml"
_ROLE: Final = "kwok-operator-companions"
_AFTERMATH_SECONDS: Final = 3.0

Shelves = dict[CompanionKind, Observer[Sight]]


def run(context: Context) -> None:
    options = context.options
    rivals = options.rivals(COMPANIONS, GENERATOR)
    order = abba([BARE, *rivals], options.rounds)
    turns = [(size, each, who) for size in options.sizes for each, who in order]
    progress = context.progress(len(turns))
    with context.cluster(extra_args=FEW_HEARTBEATS) as bench:
        _allow(bench)
        flags = options.operator_flags
        template = {"template": {"companions": WANTED}}
        actors: dict[str, Actor] = {
            BARE: Operator(bench, flags=flags),
            COMPANIONS: Operator(bench, flags=flags, spec=template),
            GENERATOR: Ceiling(bench, companions=_bodies()),
        }
        shelves: Shelves = {
            kind: Observer(bench.api, path=kind.path, view=Sight({EXISTS: lambda line: True}))
            for kind in CompanionKind
        }
        try:
            for shelf in shelves.values():
                shelf.wait_synced()
            for size, each, who in turns:
                what = f"{size:,} by {who}, round {each + 1} of {options.rounds}"
                with context.turn(what, bench, progress):
                    _turn(context, bench, progress, actors[who], who, shelves, size=size)
        finally:
            for shelf in shelves.values():
                shelf.close()
    progress.end()


def _bodies() -> list[tuple[str, str]]:
    """Path and body of what the generator writes for a node: as long as the operator's."""
    owner = CompanionOwner(body.NAME, body.UID, "ceiling")
    compiled = compile_companions(TEMPLATE, group="ceiling")
    return [(each.kind.path, each.body(owner).decode()) for each in compiled]


def _allow(bench: BenchCluster) -> None:
    bench.kubectl("apply", f"--filename={_RIGHTS}")
    account = f"--serviceaccount={NAMESPACE}:{CEILING}"
    bench.kubectl("create", "clusterrolebinding", "writes-too", f"--clusterrole={_ROLE}", account)
    for who in (OPERATOR, CEILING):
        user = f"--as=system:serviceaccount:{NAMESPACE}:{who}"
        eventually(
            lambda user=user: bench.kubectl("auth", "can-i", "create", "resourceslices", user),  # type: ignore[misc]
            describe=f"{who} has its rights",
        )


def _turn(
    context: Context,
    bench: BenchCluster,
    progress: Progress,
    actor: Actor,
    who: str,
    shelves: Shelves,
    *,
    size: int,
) -> None:
    def note(figure: str, value: float, unit: str, reference: str = GENERATOR) -> None:
        context.add(who, figure, value, work="create", n=size, unit=unit, reference=reference)

    with running(actor):
        warm_up(bench, progress, actor)
        _empty(bench, shelves)
        before, calls = actor.usage(), bench.calls(OPERATOR)
        for shelf in shelves.values():
            shelf.sight.forget_times()
            shelf.expect(lambda sight: sight.present == size)
        timing = timed(bench, progress, lambda: _tell(actor, size), size=size, nodes=size)
        done = timing.done
        if who != BARE:
            done = max(done, *(shelf.wait(patience(2 * size)) for shelf in shelves.values()))
            for share, figure in ((0.5, "p50"), (0.99, "p99")):
                late = percentile(_late(bench, shelves), share)
                note(f"companions after Ready, {figure}", late, "s")
        note("seconds", done - timing.told.began, "s")
        time.sleep(_AFTERMATH_SECONDS)
        actor.settle()
        after = actor.usage()
        assert before is not None and after is not None
        note("CPU", after.cpu - before.cpu, "s")
        if isinstance(actor, Operator):
            note("memory for it", after.rss - before.rss, "MB", BARE)
            note("API calls a node", (bench.calls(OPERATOR) - calls) / size, "", BARE)
    _empty(bench, shelves)


def _empty(bench: BenchCluster, shelves: Shelves) -> None:
    # The garbage collector may still be at the Leases of the turn before.
    for kind, shelf in shelves.items():
        shelf.expect(lambda sight: sight.present == 0)
        bench.api.request("DELETE", kind.path)
        shelf.wait(patience(0))


def _tell(actor: Actor, size: int) -> Any:
    return actor.patch(size) if isinstance(actor, Operator) else actor.scale(size)


def _late(bench: BenchCluster, shelves: Shelves) -> list[float]:
    """Of each node, how long after it was Ready the last of its companions came, in seconds."""
    suffixes = {
        each.kind: each.suffix.encode() for each in compile_companions(TEMPLATE, group="bench")
    }
    seen = {kind: shelf.sight.first[EXISTS] for kind, shelf in shelves.items()}
    return [
        max(0.0, *(seen[kind][node + suffix] - ready for kind, suffix in suffixes.items()))
        for node, ready in bench.nodes.sight.first[READY].items()
    ]
