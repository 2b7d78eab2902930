"""Two operators, of which one leads; what has ended is started anew, as a kubelet would."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.invariants import Ledger
from tests.e2e.kubectl import eventually
from tests.e2e.operator import Process

LEADS = "kwok_operator_leader 1.0"
FLAGS = ("--leader-elect", "--max-qps=150")
COUNT = 2


def off_by(clock: Path) -> dict[str, str]:
    """The environment of a process whose wall clock is off by the seconds in a file."""
    path = os.pathsep.join([str(Path(__file__).parent / "clock"), os.environ.get("PYTHONPATH", "")])
    return {"CHAOS_CLOCK": str(clock), "PYTHONPATH": path}


class Replicas:
    """The replicas of one Deployment; the clock of the first is off where `clock` is given."""

    def __init__(
        self,
        *,
        kubeconfig: Path,
        directory: Path,
        ledger: Ledger,
        flags: Sequence[str] = (),
        clock: Path | None = None,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._directory = directory
        self._ledger = ledger
        self._flags = (*FLAGS, *flags)
        self._clock = clock
        self._number = 0
        self.past: list[Process] = []
        self.processes = [self._start(place) for place in range(COUNT)]

    def leader(self, *, but: Process | None = None) -> Process:
        """Waits for one; `but` is not asked."""
        return eventually(lambda: self._leading(but), describe="somebody leads")[0]

    def kill_leader(self) -> Process:
        leader = self.leader()
        self.kill(self.processes.index(leader))
        return leader

    def kill(self, place: int) -> None:
        """The replica in this place, whether it leads or not."""
        self._ledger.crashed()
        self.processes[place].kill()
        self.restart_ended()

    @contextmanager
    def leader_frozen(self) -> Iterator[Process]:
        with self.frozen(self.processes.index(self.leader())) as leader:
            yield leader

    @contextmanager
    def frozen(self, place: int) -> Iterator[Process]:
        """It stands still, and goes on after the block as if nothing had been."""
        process = self.processes[place]
        self._ledger.crashed()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield process
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def restart_ended(self) -> None:
        for place, process in enumerate(self.processes):
            if not process.running:
                self.past.append(process)
                self.processes[place] = self._start(place)

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

    def _start(self, place: int) -> Process:
        self._number += 1
        return Process(
            kubeconfig=self._kubeconfig,
            log=self._directory / f"replica-{self._number}.log",
            flags=self._flags,
            environ=off_by(self._clock) if self._clock is not None and place == 0 else None,
        )


def wait_for_another(replicas: Replicas, former: Process) -> float:
    """Seconds until another one leads."""
    started = time.monotonic()
    replicas.leader(but=former)
    return time.monotonic() - started
