"""A program of the demo that is kept running by keeper.py, for as long as its kubeconfig is there.

All that is known of it lies in one directory: its kubeconfig, its log, and a lock that is held
until it has ended. So the next demo finds what the last one has left, and ends it.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hack.demo.errors import DemoError
from hack.demo.kubectl import CHECKOUT

_READY_SECONDS = 60.0
_END_SECONDS = 30.0
_POLL_SECONDS = 0.1
_FATAL = re.compile(r"F\d{4} |unknown flag|panic:")


class Process:
    """One program, by name; `what` is how sentences call it."""

    def __init__(self, directory: Path, name: str, *, what: str) -> None:
        self.kubeconfig = directory / f"{name}.kubeconfig"
        self.log = directory / f"{name}.log"
        self._lock = directory / f"{name}.lock"
        self._what = what
        self._keeper: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], *, config: Mapping[str, Any]) -> None:
        """Start it; `config` is what is in its kubeconfig."""
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(config), encoding="utf-8")
        keeper = (sys.executable, "-m", "hack.demo.keeper", str(self.kubeconfig), str(self._lock))
        with self.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [*keeper, *command],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demo, not for what it leaves running.
                start_new_session=True,
            )

    def stop(self) -> None:
        """End what runs in this directory, if anything does, and wait until it has ended."""
        self.kubeconfig.unlink(missing_ok=True)
        if self._lock.exists():
            self._wait_until_ended()
        if self._keeper is not None:
            self._keeper.wait()
            self._keeper = None

    def check(self) -> None:
        """Raise an error if what was started here has ended."""
        if self._keeper is not None and self._keeper.poll() is not None:
            raise DemoError(f"{self._what} has ended: {self._last_words()} ({self.log})")

    def wait_until_ready(self, address: str) -> None:
        """Return once it says, at this address, that it is ready."""
        deadline = time.monotonic() + _READY_SECONDS
        while not _ready(address):
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(
                    f"{self._what} is not ready after {_READY_SECONDS:.0f} s: {self.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _wait_until_ended(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        with self._lock.open("rb") as file:
            while True:
                try:
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError as err:
                    if time.monotonic() > deadline:
                        why = f"{self._what} does not end, its log is {self.log}"
                        raise DemoError(why) from err
                time.sleep(_POLL_SECONDS)

    def _last_words(self) -> str:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        # Go programs go on after it, with stacks or with all their flags.
        fatal = [line for line in lines if _FATAL.match(line)]
        return (fatal or lines or ["it said nothing"])[-1]


def free_address() -> str:
    """An address of this machine where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def _ready(address: str) -> bool:
    # Not urllib: a proxy in the environment is not for this machine.
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
