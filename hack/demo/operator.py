"""The operator as a process that goes on running when the demo has ended.

It logs in as its service account, with the rights that deploy/ gives and no others, and listens on
a free port. Its kubeconfig and its log are in one directory. keeper.py ends it when the kubeconfig
is gone, and holds a lock there until it has ended.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hack.demo.errors import DemoError
from hack.demo.kubectl import CHECKOUT, Kubectl
from hack.demo.screen import Screen

ACCOUNT = NAMESPACE = "kwok-operator"
_READY_SECONDS = 60.0
_END_SECONDS = 30.0
_POLL_SECONDS = 0.1


class Operator:
    """The operator of one cluster, as far as its directory tells."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "operator.kubeconfig"
        self.log = directory / "operator.log"
        self._lock = directory / "operator.lock"
        self.address = ""
        self._keeper: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the operator of this directory, if there is one, and wait until it has ended."""
        self.kubeconfig.unlink(missing_ok=True)
        if self._lock.exists():
            self._wait_until_ended()
        if self._keeper is not None:
            self._keeper.wait()

    def start(self, kubectl: Kubectl, screen: Screen) -> None:
        """Start it, and return once it is ready."""
        self._log_in(kubectl)
        self.address = f"127.0.0.1:{_free_port()}"
        flags = ["run", f"--kubeconfig={self.kubeconfig}", f"--listen={self.address}"]
        screen.command(f"{shlex.join(['kwok-operator', *flags])} &")
        command = [sys.executable, "-m", "kwok_operator", *flags]
        with self.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [
                    *(sys.executable, "-m", "hack.demo.keeper"),
                    *(str(self.kubeconfig), str(self._lock), *command),
                ],
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C is for the demo, not for what it leaves running.
                start_new_session=True,
            )
        self._wait_until_ready()

    def check(self) -> None:
        """Raise an error if the operator that was started here has ended."""
        if self._keeper is not None and self._keeper.poll() is not None:
            raise DemoError(f"the operator has ended: {self._last_words()} ({self.log})")

    def _wait_until_ended(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        with self._lock.open("rb") as file:
            while True:
                try:
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return
                except BlockingIOError as err:
                    if time.monotonic() > deadline:
                        why = f"an operator does not end, its log is {self.log}"
                        raise DemoError(why) from err
                time.sleep(_POLL_SECONDS)

    def _log_in(self, kubectl: Kubectl) -> None:
        token = ("create", "token", ACCOUNT, f"--namespace={NAMESPACE}", "--duration=720h")
        config = kubectl.json("config", "view", "--raw", "--minify", "--flatten")
        user = {"name": ACCOUNT, "user": {"token": kubectl.read(*token).strip()}}
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(_as_user(config, user)), encoding="utf-8")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not self._ready():
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the operator is not ready after {_READY_SECONDS:.0f} s: {self.log}"
                )
            time.sleep(_POLL_SECONDS)

    def _ready(self) -> bool:
        # Not urllib: a proxy in the environment is not for this machine.
        connection = http.client.HTTPConnection(self.address, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _as_user(config: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    (context,) = config["contexts"]
    identity = {"user": user["name"], "namespace": NAMESPACE}
    as_user = {**context, "context": {**context["context"], **identity}}
    return {**config, "users": [user], "contexts": [as_user]}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
