"""Everything at once: two replicas behind a bad wire, in a cluster that dies and is put back, with
hostile groups and somebody's webhooks beside two good groups.

    rounds(seed) ──> blows, under a storm of refused requests ──> calm: all that must hold, holds

In the last part of the time no blow kills a replica on purpose, so that one lives long enough to
show whether its memory grows.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.chaos.exact import inexact
from tests.chaos.faults import API_SERVER, ETCD
from tests.chaos.hostile import FEW, GREEDY, MODES, STAYS, UNLIMITED, specs
from tests.chaos.invariants import IN_FLIGHT, Census
from tests.chaos.plans import ROUGH, SIZES, Blow, rounds
from tests.chaos.proxy import ALL, WATCHES, WRITES, Fault
from tests.chaos.replicas import Replicas
from tests.chaos.watcher import Watcher
from tests.chaos.webhook import Webhook
from tests.chaos.world import MORE_MEMORY, World, manifest
from tests.e2e.api import GROUPS, NODES, Refused
from tests.e2e.kubectl import eventually
from tests.e2e.watching import Watch

CEILING = 300
"""--max-total-nodes: room for all but the greedy group."""
FLAGS = (
    f"--max-total-nodes={CEILING}",
    "--leader-elect-lease-duration=20",
    "--leader-elect-renew-deadline=15",
)
SLACK = IN_FLIGHT
"""Creates that a dead leader has left in flight, of which the next knows nothing yet."""
ROUGH_PART = 0.6
LEASES = "/apis/coordination.k8s.io"
STATUS = frozenset({"PATCH"})
SHARES = (0.0, 0.01, 0.02, 0.05)
FIERCE = 0.3
CLOCKS = (72_000.0, -72_000.0, 3_600.0, -90.0, 0.0)
STORM = (
    Fault("refused", STATUS, status=404, path="/status"),
    Fault("refused", status=404),
    Fault("refused", status=409),
    Fault("refused", status=429),
    Fault("refused", status=429, retry_after=1),
    Fault("refused", status=500),
    Fault("refused", status=503),
    Fault("lost", WRITES),
    Fault("half", ALL - WATCHES),
    Fault("late", seconds=0.7),
    Fault("history-gone", WATCHES),
)


class Everything:
    """What is done to the world, and what has been."""

    def __init__(
        self, world: World, replicas: Replicas, webhook: Webhook, watches: list[Watch], clock: Path
    ) -> None:
        self.world, self.replicas, self.webhook = world, replicas, webhook
        self.good = [world.name, f"{world.name}-x-visited"]
        self.hostile = specs(victims=[f"{world.name}-zzzz-000000", "real"])
        self.blows: Counter[str] = Counter()
        self._watches = watches
        self._clock = clock
        self._snapshot: Path | None = None
        self._targets: dict[str, int] = {}

    def name_of(self, kind: str) -> str:
        return f"{self.world.name}-x-{kind}"

    def begin(self) -> None:
        world = self.world
        self.webhook.modes |= {self.name_of(kind): mode for kind, mode in MODES.items()}
        self.webhook.register(world.api, condition="request.name.contains('-x-')")
        shape = {"cpu": 4, "labels": {"team": "good"}}
        for group in self.good:
            world.ledger.asked(group, 20)
            spec = {
                "targetSize": 20,
                "template": {"shape": shape},
                "updateStrategy": {"type": "InPlace"},
            }
            world.api.create(GROUPS, manifest(group, spec))
        world.groups = set(self.good)
        for kind in self.hostile:
            self._create(kind)

    def end(self) -> None:
        """No webhook, and no hostile group."""
        self.webhook.withdraw(self.world.api)
        for kind in self.hostile:
            self.world.api.delete(f"{GROUPS}/{self.name_of(kind)}")

    def left(self, names: set[str]) -> list[str]:
        """Those that Kubernetes or the operator should have deleted with their groups: not those
        that a webhook took from their owner just before the operator died.
        """
        disowned = tuple(
            self.name_of(k) for k, m in MODES.items() if m in ("strip-owner", "strip-all")
        )
        return [name for name in names if not name.startswith(disowned)]

    def storm(self, draw: random.Random, *, gentle: bool) -> tuple[Fault, ...]:
        """Some of all faults, and much of one; a gentle one costs nobody the Lease."""
        shares = [draw.choice(SHARES) for _ in STORM]
        shares[draw.randrange(len(shares))] = FIERCE
        return tuple(
            replace(fault, share=share, spared=LEASES if gentle else None)
            for fault, share in zip(STORM, shares, strict=True)
        )

    def prepare(self, blows: list[Blow]) -> None:
        """What can be put back in this round is what there is now."""
        if any(blow.kind == "restore" for blow in blows):
            found, _ = self.world.api.list(GROUPS)
            self._targets = {g["metadata"]["name"]: g["spec"]["targetSize"] for g in found}
            self._snapshot = self.world.faults.snapshot()

    def strike(self, blow: Blow) -> None:
        time.sleep(blow.pause)
        self.replicas.restart_ended()
        self.blows[blow.kind] += 1
        getattr(self, "_" + blow.kind.replace("-", "_"))(blow)

    def calm(self) -> None:
        """Everybody is well again, and the good groups are exact, whatever is beside them."""
        world = self.world
        self._scale_to(self.name_of(GREEDY), FEW)
        self.replicas.leader()  # those that have ended are started anew by whoever asks for it
        world.groups_converge()
        world.take(self.replicas.leader())
        world.converges()
        for group in self.good:
            eventually(
                partial(inexact, world.api, group),
                lambda wrong: not wrong,
                describe=f"{group} is as its template says",
            )
        assert not [log for log in self.replicas.logs() if "Traceback" in log]

    # -- what a replica suffers

    def _kill(self, blow: Blow) -> None:
        self.replicas.kill(round(blow.which))

    def _kill_all(self, blow: Blow) -> None:
        for place in range(len(self.replicas.processes)):
            self.replicas.kill(place)

    def _freeze(self, blow: Blow) -> None:
        with self.replicas.frozen(round(blow.which)):
            time.sleep(blow.seconds * 3)

    def _jump(self, blow: Blow) -> None:
        self._clock.write_text(str(CLOCKS[int(blow.which * len(CLOCKS))]))

    # -- what the wire and the cluster suffer

    def _unplug(self, blow: Blow) -> None:
        self.world.ledger.crashed()
        with self.world.wire.unplugged():
            time.sleep(blow.seconds)

    def _stick(self, blow: Blow) -> None:
        with self.world.wire.stuck():
            time.sleep(blow.seconds)
        self._cut(blow)

    def _cut(self, blow: Blow) -> None:
        self.world.ledger.crashed()
        self.world.wire.cut()

    def _cut_watches(self, blow: Blow) -> None:
        self.world.wire.cut_watches()

    def _kill_api_server(self, blow: Blow) -> None:
        self.world.ledger.crashed()
        with self.world.faults.killed(API_SERVER):
            time.sleep(blow.seconds / 2)

    def _freeze_etcd(self, blow: Blow) -> None:
        with self.world.faults.frozen(ETCD):
            time.sleep(blow.seconds)

    def _freeze_kwok(self, blow: Blow) -> None:
        with self.world.faults.kwok_frozen():
            time.sleep(blow.seconds)

    def _restore(self, blow: Blow) -> None:
        assert self._snapshot is not None
        with self.world.faults.restored(self._snapshot):
            for group, target in self._targets.items():
                self.world.ledger.asked(group, target)
            self.world.ledger.restored()
            for watch in self._watches:
                watch.forget()

    # -- what users do

    def _scale(self, blow: Blow) -> None:
        sizes = SIZES if self.world.scope.minutes > 1 else SIZES[:-1]
        size = sizes[int(blow.which * len(sizes))]
        self._scale_to(self.good[int(blow.which * 1_000) % 2], size)

    def _template(self, blow: Blow) -> None:
        spec = {"template": {"shape": {"cpu": 2 + int(blow.which * 30)}}}
        self.world.api.patch(f"{GROUPS}/{self.world.name}", {"spec": spec})

    def _lose(self, blow: Blow) -> None:
        for node in self._some(blow):
            self.world.api.delete(f"{NODES}/{node}")

    def _victims(self, blow: Blow) -> None:
        spec = {"scaleDown": {"nodesToDelete": self._some(blow)}}
        self.world.api.patch(f"{GROUPS}/{self.world.name}", {"spec": spec})

    def _some(self, blow: Blow) -> list[str]:
        names = self.world.ledger.names_of(self.world.name)
        first = int(blow.which * len(names))
        return names[first : first + 3]

    def _greedy(self, blow: Blow) -> None:
        self._scale_to(self.name_of(GREEDY), UNLIMITED)

    def _hostile(self, blow: Blow) -> None:
        """One of them goes, comes, or changes its size."""
        kinds = [kind for kind in self.hostile if kind != GREEDY]
        kind = kinds[int(blow.which * len(kinds))]
        name, there = self.name_of(kind), self._create(kind)
        if not there:
            return
        if int(blow.which * 1_000) % 3 == 0 and kind not in STAYS:
            self.world.api.delete(f"{GROUPS}/{name}")
            return
        try:
            self._scale_to(name, int(blow.which * 10_000) % (2 * FEW))
        except Refused as error:
            if error.status != 404:  # it was deleted before, and has gone just now
                raise

    def _webhook(self, blow: Blow) -> None:
        """A good group is denied its nodes, or has to wait for each."""
        visited = self.good[1]
        self.webhook.modes[visited] = "slow" if blow.which < 0.5 else "deny-all"
        self._scale_to(visited, 30 if self.world.ledger.count(visited) < 20 else 10)
        time.sleep(blow.seconds)
        del self.webhook.modes[visited]

    def _create(self, kind: str) -> bool:
        """Whether the group was there already."""
        name, spec = self.name_of(kind), self.hostile[kind]
        self.world.ledger.asked(name, spec["targetSize"])
        try:
            self.world.api.create(GROUPS, manifest(name, spec))
        except Refused as error:
            if error.status != 409:
                raise
            return True
        return False

    def _scale_to(self, group: str, size: int) -> None:
        self.world.ledger.asked(group, size)
        self.world.api.patch(f"{GROUPS}/{group}", {"spec": {"targetSize": size}})


@pytest.fixture
def census(world: World) -> Iterator[tuple[Census, Watch]]:
    census = Census(world.name, but=world.foreigners.names)
    with Watch(world.api, NODES, listed=census.listed, seen=census.seen, metadata=True) as watch:
        yield census, watch


@pytest.fixture
def everything(
    world: World, watcher: Watcher, census: tuple[Census, Watch], tmp_path: Path
) -> Iterator[Everything]:
    world.stop()
    clock = tmp_path / "clock"
    clock.write_text("0")
    replicas = Replicas(
        kubeconfig=world.wire.kubeconfig(world.kubeconfig, tmp_path / "wired.kubeconfig"),
        directory=tmp_path,
        ledger=world.ledger,
        flags=FLAGS,
        clock=clock,
    )
    webhook = Webhook(directory=tmp_path, name=world.name)
    world.wire.run(webhook.start())
    everything = Everything(world, replicas, webhook, [watcher, census[1]], clock)
    world.ledger.slack = IN_FLIGHT
    everything.begin()
    yield everything
    world.ledger.slack = 0
    everything.end()
    replicas.stop()
    for name in census[0].names:
        world.api.delete(f"{NODES}/{name}")
    world.wire.run(webhook.stop())


# The API server dies while it speaks with the webhook, whose connections nobody closes then.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_good_groups_are_exact_after_everything_at_once(
    world: World, everything: Everything, census: tuple[Census, Watch]
) -> None:
    try:
        _go_on(world, everything, census[0])
    finally:
        _report(world, everything, census[0])


def _go_on(world: World, everything: Everything, census: Census) -> None:
    plan = rounds(random.Random(world.draw.random()), blows=world.scope.blows)
    started, seconds = time.monotonic(), world.scope.minutes * 60
    memory: list[tuple[int, float, float]] = []
    everything.calm()
    while (elapsed := time.monotonic() - started) < seconds or not memory:
        gentle = elapsed > ROUGH_PART * seconds
        blows, faults = next(plan), everything.storm(world.draw, gentle=gentle)
        if gentle:
            blows = [blow for blow in blows if blow.kind not in ROUGH]
        everything.prepare(blows)
        with world.wire.suffering(*faults):
            for blow in blows:
                everything.strike(blow)
                assert not world.ledger.violations
                assert census.most <= CEILING + SLACK
        everything.calm()
        elapsed = time.monotonic() - started
        memory.append((world.operator.pid, elapsed, world.memory()))
        print(f"{elapsed:.0f} s: {memory[-1]}, {dict(everything.blows)}", flush=True)
    everything.end()
    good = {name for group in everything.good for name in world.ledger.names_of(group)}
    eventually(
        lambda: everything.left(census.names - good),
        lambda names: not names,
        describe="no node is left of groups that are gone",
        timeout=world.scope.patience,
    )
    world.is_quiet()
    of_last = [mb for pid, _, mb in memory if pid == memory[-1][0]]
    third = len(of_last) // 3
    if third:
        first, last = sorted(of_last[:third]), sorted(of_last[-third:])
        grown = last[third // 2] - first[third // 2]
        print(f"memory of the last leader grew by {grown:.1f} MB over {len(of_last)} rounds")
        assert grown <= MORE_MEMORY


def _report(world: World, everything: Everything, census: Census) -> None:
    proxy = world.wire.proxy
    print(f"requests: {dict(proxy.requests)}, faults: {dict(proxy.hits)}")
    print(f"blows: {dict(everything.blows)}, webhooks: {dict(everything.webhook.done)}")
    print(
        f"nodes: {census.made} came, {census.lost} went, at most {census.most} at a time,"
        f" {world.ledger.names} names; {len(everything.replicas.past)} replicas ended"
    )
