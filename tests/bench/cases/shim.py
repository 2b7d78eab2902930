"""The shim: memory and CPU while the cluster grows, and its calls beside a Go server's.

The shim serves one group with `spec.autoscaling`; the operator makes its nodes. The calls are
measured by tests/bench/shim, which needs Go and no cluster.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import grpc

from tests.bench.actors import ROOT, Operator, end, running
from tests.bench.cluster import SHIM, BenchCluster
from tests.bench.context import Context
from tests.bench.growth import Growth, steps
from tests.bench.procfs import Usage, usage
from tests.e2e.autoscaler import Autoscaler
from tests.e2e.operator import PROGRAM

_READY_SECONDS = 120.0
_AUTOSCALING: Final = {"autoscaling": {"minSize": 0, "maxSize": 200_000}}


class ShimProcess:
    """`kwok-operator shim` as its service account."""

    name = "shim"

    def __init__(self, bench: BenchCluster, *, socket: Path) -> None:
        self._bench = bench
        self._socket = socket
        self._popen: subprocess.Popen[bytes] | None = None

    def launch(self) -> float:
        """Start it; returns the seconds until it answers cluster-autoscaler's first call."""
        command = [str(PROGRAM), "shim", f"--kubeconfig={self._bench.kubeconfig(SHIM)}"]
        command += [f"--listen=unix:{self._socket}", "--metrics-listen=0"]
        log = self._bench.directory / "shim.log"
        began = time.monotonic()
        with log.open("ab") as output:
            self._popen = subprocess.Popen(command, stdout=output, stderr=output)
        while time.monotonic() - began < _READY_SECONDS:
            if self._popen.poll() is not None:
                break
            if self._answers():
                return time.monotonic() - began
            time.sleep(0.05)
        raise RuntimeError(f"the shim is not ready:\n{log.read_text()[-1000:]}")

    def stop(self) -> None:
        if self._popen is not None:
            end(self._popen)
        self._popen = None

    def usage(self) -> Usage:
        assert self._popen is not None
        return usage(self._popen.pid)

    def _answers(self) -> bool:
        if not self._socket.exists():
            return False
        client = Autoscaler(self._socket)
        try:
            client.refresh()
        except grpc.RpcError:
            return False
        finally:
            client.close()
        return True


def run(context: Context) -> None:
    progress = context.progress(steps(context) + 1)
    # Not in the results folder: the path of a socket file has to be short.
    with tempfile.TemporaryDirectory(prefix="bench-") as short, context.cluster() as bench:
        operator = Operator(bench, flags=context.options.operator_flags, spec=_AUTOSCALING)
        subject = ShimProcess(bench, socket=Path(short, "shim.sock"))
        try:
            with running(operator):
                subject.launch()
                Growth(context, bench, progress, operator, subject).run()
        except Exception as error:
            context.failed("what comes after the last figure", error)
        finally:
            subject.stop()
    progress.step("calls beside a Go server")
    _calls(context)
    progress.end()


def _calls(context: Context) -> None:
    file = context.directory / "logs" / "shim-calls.json"
    log = context.directory / "logs" / "shim-calls.log"
    command = [sys.executable, "-m", "tests.bench.shim.run", f"--json={file}"]
    command += [f"--rounds={5 * context.options.rounds}"]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        try:
            status = process.wait()
        finally:
            end(process)
    if status:
        context.note(f"failed: the calls could not be measured: {log.read_text()[-300:]}")
        return
    _report(context, file)


def _report(context: Context, file: Path) -> None:
    for each in json.loads(file.read_text()):
        work = f"{each['call']} over {each['transport']}"
        for key, figure in (("p50_us", "p50"), ("p99_us", "p99")):
            for value in each["rounds"]:
                context.add(
                    each["server"], figure, value[key], work=work, n=0, unit="us", reference="go"
                )
