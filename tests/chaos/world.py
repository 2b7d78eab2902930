"""What the scenarios are written in: groups that are scaled, an operator that suffers, and in the
end a world that is as it should be.

    with world.scaling(to=300):
        with world.faults.frozen(API_SERVER):
            time.sleep(8)
    world.converges()

`converges` is where all is asked: every group has exactly its nodes and says so, the operator is
the same process as before the fault, its log has no traceback, nobody touched a foreign node, and
the ledger that was kept all the while has no violation.
"""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kwok_operator.constants import API_GROUP, API_VERSION, KIND, NODE_GROUP_LABEL
from tests.bench.procfs import usage
from tests.chaos.faults import Faults
from tests.chaos.foreign import Foreigners
from tests.chaos.invariants import Ledger
from tests.chaos.plans import Scope, effective
from tests.chaos.wire import Wire
from tests.e2e.api import GROUPS, NODES, Api, Refused, Unreachable
from tests.e2e.kubectl import eventually
from tests.e2e.operator import Harness, Process

QUIET_SECONDS = 3.0
MORE_MEMORY = 24.0
"""MB that the same work may take more the second time: freed memory goes back late."""
NOT_TOO_QUICK = "--max-qps=150"
MANY = 1000
ONLY_OURS = {"kwoknodegroups": ("POST", "PUT", "PATCH", "DELETE"), "nodes": ("POST", "DELETE")}
"""Writes that nobody but the operator makes in a cluster at rest."""


class World:
    """One test's view of the cluster: its groups, its operator, its chance."""

    def __init__(
        self,
        *,
        api: Api,
        ledger: Ledger,
        faults: Faults,
        harness: Harness,
        wire: Wire,
        scope: Scope,
        draw: random.Random,
        name: str,
    ) -> None:
        self.api, self.ledger, self.faults, self.wire = api, ledger, faults, wire
        self.scope, self.draw, self.name = scope, draw, name
        self.groups: set[str] = {name}
        self._harness = harness
        self.foreigners = Foreigners(api, name)
        self._operator: Process | None = None

    @property
    def operator(self) -> Process:
        assert self._operator is not None, "the test has started an operator"
        return self._operator

    @property
    def kubeconfig(self) -> Path:
        """That of the operator, with its service account."""
        return self._harness.kubeconfig

    def start(
        self,
        *flags: str,
        wired: bool = False,
        ready: bool = True,
        kubeconfig: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Process:
        """A new operator; `wired` has it reach the API server through the wire."""
        kubeconfig = kubeconfig or self.kubeconfig
        if wired:
            kubeconfig = self.wire.kubeconfig(kubeconfig, kubeconfig.with_name("wired.kubeconfig"))
        self._operator = self._harness.start(
            *flags, kubeconfig=kubeconfig, ready=ready, environ=environ
        )
        return self._operator

    def go_on(self, *, wired: bool = False) -> Process:
        """An operator that is not too quick; the last that ran, where that is one.

        So faults meet one that has been through others, and nobody waits for it.
        """
        last, mark = self._harness.process, {"CHAOS_WIRED": str(wired)}
        known = last is not None and last.running and last.environ == mark
        if last is None or not known or "Traceback" in last.log():
            return self.start(NOT_TOO_QUICK, wired=wired, environ=mark)
        self._operator = last
        return last

    def stop(self) -> None:
        """No operator runs."""
        self._harness.stop()

    def take(self, operator: Process) -> None:
        """Goes on with an operator that another test has started."""
        self._operator = operator

    def kill(self) -> None:
        """SIGKILL to the operator."""
        assert self.operator.running, self.operator.log()
        self.ledger.crashed()
        self.operator.kill()
        assert "Traceback" not in self.operator.log(), self.operator.log()

    def ways(self) -> list[int]:
        """The sizes on the way there, and, where there is time for it, back."""
        there, back = self.scope.nodes, self.scope.nodes // 10
        return [there, back] if self.scope.nodes >= MANY else [there]

    def scale(self, to: int, *, group: str | None = None) -> None:
        """Asks for so many nodes; makes the group where there is none."""
        group = group or self.name
        self.groups.add(group)
        self.ledger.asked(group, to)
        try:
            self.api.patch(f"{GROUPS}/{group}", {"spec": {"targetSize": to}})
        except Refused as error:
            if error.status != 404:
                raise
            self.api.create(GROUPS, manifest(group, {"targetSize": to}))

    @contextmanager
    def scaling(self, *, to: int) -> Iterator[None]:
        """In the middle of it: a part of the nodes, drawn, is written when the block begins."""
        before = self.ledger.count(self.name)
        self.scale(to)
        part = self.draw.uniform(0.05, 0.6)
        self.under_way(int(abs(to - before) * part) + 1, since=before)
        yield

    def under_way(self, least: int, *, since: int) -> None:
        """Returns once so many nodes have come or gone."""
        eventually(
            lambda: abs(self.ledger.count(self.name) - since),
            lambda done: done >= least,
            describe=f"{least} nodes have come or gone since there were {since}",
            timeout=self.scope.patience,
            interval=0.01,
        )

    def converges(self, *, timeout: float | None = None) -> None:
        """Returns once everything is as it was asked for; see above."""
        self.groups_converge(timeout=timeout)
        assert self.operator.running, f"the operator has ended:\n{self.operator.log()}"
        self.holds()
        for group in self.groups:
            self.ledger.rest(group)

    def groups_converge(self, *, timeout: float | None = None) -> None:
        """Returns once all groups are right, whichever operator saw to it."""
        timeout = timeout or self.scope.patience
        started = time.monotonic()
        for group in sorted(self.groups):
            left = max(5.0, timeout - (time.monotonic() - started))
            self._group_converges(group, left)

    def holds(self) -> None:
        """What must be so at any time."""
        log = self.operator.log()
        assert "Traceback" not in log, log
        assert not self.foreigners.touched()
        assert not self.ledger.violations, self.ledger.violations

    def _group_converges(self, group: str, timeout: float) -> None:
        def look() -> list[str]:
            with _answers():
                return troubles(self.api, group)

        def watched() -> bool:
            return self.ledger.count(group) == self._size(group)

        eventually(
            look,
            lambda found: not found,
            describe=f"{group} is right",
            timeout=timeout,
            interval=0.2,
        )
        eventually(watched, describe=f"the watcher has seen {group} so")

    def _size(self, group: str) -> int:
        try:
            found = self.api.get(f"{GROUPS}/{group}")
        except Refused:
            return 0
        return wanted(found)

    def is_quiet(self) -> None:
        """Nothing is written where nothing changes."""

        def written() -> float:
            before = self._written()
            time.sleep(QUIET_SECONDS)
            return self._written() - before

        eventually(written, lambda n: n == 0, describe="nothing is written")

    def _written(self) -> float:
        """Writes that the API server has served, of what only the operator writes here."""
        total = 0.0
        for line in self.api.text("/metrics").splitlines():
            if line.startswith("apiserver_request_total{") and 'dry_run=""' in line:
                for resource, verbs in ONLY_OURS.items():
                    if f'resource="{resource}"' in line:
                        total += sum(
                            float(line.rpartition(" ")[2]) for v in verbs if f'verb="{v}"' in line
                        )
        return total

    def memory(self) -> float:
        """MB of the operator."""
        return usage(self.operator.pid).rss

    @contextmanager
    def memory_flat(self) -> Iterator[None]:
        """The operator needs no more after than before, in the same state."""
        before = self.memory()
        yield
        after = self.memory()
        print(f"memory: {before:.0f} MB before, {after:.0f} MB after")
        assert after <= before + MORE_MEMORY, f"{before:.0f} MB have become {after:.0f} MB"

    def close(self) -> None:
        """Leaves nothing behind; waits for many nodes to go, which would keep kwok busy, and not
        for few.
        """
        for group in self.groups:
            self.api.delete(f"{GROUPS}/{group}")
        self.foreigners.remove()
        if self.scope.nodes >= MANY:
            eventually(
                lambda: sum(map(self.ledger.count, self.groups)),
                lambda left: left == 0,
                describe="the nodes are gone",
                timeout=self.scope.patience,
            )


def manifest(group: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": {"name": group},
        "spec": dict(spec),
    }


def wanted(group: Mapping[str, Any]) -> int:
    """The nodes that a group should have; its status tells where its spec doesn't."""
    held = (group.get("status") or {}).get("targetSize") or 0
    return effective(group["spec"], held=held)


def troubles(api: Api, name: str) -> list[str]:
    """In sentences, what is not yet as it should be with a group; nothing may be left of one that
    is gone.
    """
    found = api.list(NODES, selector=f"{NODE_GROUP_LABEL}={name}", metadata=True)[0]
    try:
        group = api.get(f"{GROUPS}/{name}")
    except Refused as error:
        if error.status != 404:
            raise
        left = [n for n in found if n["metadata"].get("ownerReferences")]
        return [f"{len(left)} nodes of a group that is gone"] if left else []
    meta, status, size = group["metadata"], group.get("status") or {}, wanted(group)
    ours = [
        n["metadata"]
        for n in found
        if [o["uid"] for o in n["metadata"].get("ownerReferences", ())] == [meta["uid"]]
    ]
    going = sum("deletionTimestamp" in m for m in ours)
    wrong = []
    if len(ours) != size or going:
        wrong.append(f"{len(ours)} nodes ({going} going), not {size}")
    for key in ("replicas", "readyReplicas", "targetSize"):
        if (status.get(key) or 0) != size:
            wrong.append(f"status.{key} is {status.get(key)}, not {size}")
    if status.get("pending") or status.get("observedGeneration") != meta["generation"]:
        wrong.append("the status is of yesterday")
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        wrong.append(f"not Ready: {ready.get('reason')} {ready.get('message')}")
    return wrong


@contextmanager
def _answers() -> Iterator[None]:
    """What the API server can't tell now is asked again."""
    try:
        yield
    except (Refused, Unreachable) as error:
        raise LookupError(str(error)) from error
