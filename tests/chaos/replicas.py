"""Two operators, of which one leads; what has ended is started anew, as a kubelet would."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.invariants import Ledger
from tests.e2e.kubectl import eventually
from tests.e2e.operator import Process

LEADS = "kwok_operator_leader 1.0"
FLAGS = ("--leader-elect", "--max-qps=150")
COUNT = 2


class Replicas:
    """The replicas of one Deployment."""

    def __init__(self, *, kubeconfig: Path, directory: Path, ledger: Ledger) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._ledger = ledger
        self._number = 0
        self.past: list[Process] = []
        self.processes = [self._start() for _ in range(COUNT)]

    def leader(self, *, but: Process | None = None) -> Process:
        """Waits for one; `but` is not asked."""
        return eventually(lambda: self._leading(but), describe="somebody leads", timeout=60)[0]

    def kill_leader(self) -> None:
        leader = self.leader()
        self._ledger.crashed()
        leader.kill()
        self.restart_ended()

    @contextmanager
    def leader_frozen(self) -> Iterator[Process]:
        """It stands still, and goes on after the block as if nothing had been."""
        leader = self.leader()
        self._ledger.crashed()
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            yield leader
        finally:
            os.kill(leader.pid, signal.SIGCONT)

    def restart_ended(self) -> None:
        for place, process in enumerate(self.processes):
            if not process.running:
                self.past.append(process)
                self.processes[place] = self._start()

    def logs(self) -> list[str]:
        """Of all that ever ran."""
        return [process.log() for process in (*self.past, *self.processes)]

    def stop(self) -> None:
        for process in self.processes:
            if process.running:
                process.terminate()

    def _leading(self, but: Process | None) -> list[Process]:
        self.restart_ended()
        return [p for p in self.processes if p is not but and LEADS in p.get("/metrics")[1]]

    def _start(self) -> Process:
        self._number += 1
        log = self._directory / f"replica-{self._number}.log"
        return Process(kubeconfig=self._kubeconfig, log=log, flags=FLAGS)


def wait_for_another(replicas: Replicas, former: Process) -> float:
    """Seconds until another one leads."""
    started = time.monotonic()
    replicas.leader(but=former)
    return time.monotonic() - started
