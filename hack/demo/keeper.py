"""Runs a program, such as the operator, for as long as its kubeconfig is there.

    python -m hack.demo.keeper KUBECONFIG LOCK COMMAND...

The demo leaves a cluster and an operator that goes on running. The operator's kubeconfig lies in
the cluster's directory, so whatever removes the cluster, by whichever way, ends the operator too,
and nobody has to remember a process. The lock is held all the while: who gets it knows that the
program runs no more.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kwok_operator.controlplane.lock import exclusive
from kwok_operator.controlplane.progress import Reporter

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 15.0


def keep(command: Sequence[str], *, kubeconfig: Path, lock: Path) -> int:
    """Run a command until it ends or the kubeconfig is gone; return its exit status."""
    with exclusive(lock, purpose="which runs a program of the demo", reporter=Reporter(sys.stderr)):
        process = subprocess.Popen(command)
        try:
            while process.poll() is None and kubeconfig.exists():
                time.sleep(_POLL_SECONDS)
        finally:
            process.terminate()
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        return process.returncode


if __name__ == "__main__":
    # As an exception, so that the program does not outlive this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(keep(sys.argv[3:], kubeconfig=Path(sys.argv[1]), lock=Path(sys.argv[2])))
