"""cluster-autoscaler, where this machine has one, and the shim between it and the groups.

    pods without a node -> cluster-autoscaler -> the shim -> a group -> the operator -> nodes

Both run with the rights of who runs the demo, and only for a while. Both see the demo's groups and
no others: a cluster that was chosen may have groups that people need.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hack.demo.errors import DemoError
from hack.demo.kubectl import CHECKOUT, Kubectl
from hack.demo.process import Process, free_address
from hack.demo.screen import Screen

VARIABLE = "CLUSTER_AUTOSCALER"
_NAME = "cluster-autoscaler"
_PROVIDER = "externalgrpc"
_MOST_HELP = 1 << 20

_FLAGS = (
    "--leader-elect=false",
    "--address=127.0.0.1:0",
    "--kube-client-qps=100",
    "--kube-client-burst=200",
    # A demo is over long before the ten minutes that CA waits elsewhere.
    "--scan-interval=1s",
    "--scale-down-unneeded-time=5s",
    "--scale-down-delay-after-add=5s",
    "--unremovable-node-recheck-timeout=5s",
    "--node-delete-delay-after-taint=0s",
)


class NoAutoscaler(Exception):
    """There is none that could be used; the text says why, in one line."""


def find(environ: Mapping[str, str], *, seconds: float = 60.0) -> Path:
    """Return the program that the environment names, or that PATH has, if it can be used."""
    named = environ.get(VARIABLE, "")
    # Not every shell expands the ~ of `make demo CLUSTER_AUTOSCALER=~/...`.
    found = shutil.which(os.path.expanduser(named) or _NAME, path=environ.get("PATH"))
    if found is None:
        what = f"{VARIABLE}={named} is no program" if named else f"PATH has no {_NAME}"
        raise NoAutoscaler(what)
    program = Path(found).absolute()
    try:
        said = _help(program, seconds=seconds)
    except OSError as err:
        raise NoAutoscaler(f"{program} can't be run: {err.strerror}") from err
    if said is None:
        raise NoAutoscaler(f"{program} has not answered --help in {seconds:g} s")
    if "--cloud-provider" not in said or _PROVIDER not in said:
        raise NoAutoscaler(f"{program} --help names no provider {_PROVIDER}")
    return program


def _help(program: Path, *, seconds: float) -> str | None:
    """What `--help` prints, whatever its exit status, or None where that takes too long."""
    process = subprocess.Popen(
        [str(program), "--help"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    late = threading.Event()

    def end() -> None:
        # With its children, who would keep the pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def give_up() -> None:
        late.set()
        end()

    limit = threading.Timer(seconds, give_up)
    limit.start()
    assert process.stdout is not None
    try:
        said = process.stdout.read(_MOST_HELP)
    finally:
        limit.cancel()
        end()
        process.communicate()
    return None if late.is_set() else said.decode("utf-8", "replace")


class Autoscaler:
    """The shim and cluster-autoscaler of one cluster, as far as their directory tells."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._shim = Process(directory, "shim", what="the shim")
        self._autoscaler = Process(directory, _NAME, what=_NAME)

    @contextmanager
    def running(
        self, program: Path, kubectl: Kubectl, screen: Screen, *, namespace: str, groups: str
    ) -> Iterator[None]:
        """Run both for the groups with these labels, showing how."""
        try:
            address = self._start_shim(kubectl, screen, groups=groups)
            config = self._write_config(screen, address=address)
            flags = [
                f"--cloud-provider={_PROVIDER}",
                f"--cloud-config={config}",
                f"--kubeconfig={self._autoscaler.kubeconfig}",
                f"--namespace={namespace}",
                *_FLAGS,
            ]
            screen.command(" \\\n  ".join([_NAME, *map(shlex.quote, flags)]) + " &")
            self._autoscaler.run([str(program), *flags], config=kubectl.config())
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """End both; cluster-autoscaler first, which says goodbye to the shim."""
        try:
            self._autoscaler.stop()
        finally:
            self._shim.stop()

    def check(self) -> None:
        """Raise an error if one of them has ended."""
        self._shim.check()
        self._autoscaler.check()

    @property
    def log(self) -> Path:
        """What cluster-autoscaler says."""
        return self._autoscaler.log

    def _start_shim(self, kubectl: Kubectl, screen: Screen, *, groups: str) -> str:
        address, health = free_address(), free_address()
        flags = [
            "shim",
            f"--listen={address}",
            f"--kubeconfig={self._shim.kubeconfig}",
            f"--metrics-listen={health}",
            f"--node-group-auto-discovery=kwok:{groups}",
        ]
        screen.command(f"{shlex.join(['kwok-operator', *flags])} &")
        self._shim.run([sys.executable, "-m", "kwok_operator", *flags], config=kubectl.config())
        self._shim.wait_until_ready(health)
        return address

    def _write_config(self, screen: Screen, *, address: str) -> Path:
        config = self._directory / "cloud-config.yaml"
        flags: Sequence[str] = ("cloud-config", f"--listen={address}")
        screen.command(f"{shlex.join(['kwok-operator', *flags])} > {shlex.quote(str(config))}")
        done = subprocess.run(
            [sys.executable, "-m", "kwok_operator", *flags],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise DemoError(f"kwok-operator cloud-config failed: {done.stderr.strip()}")
        config.write_text(done.stdout, encoding="utf-8")
        return config
