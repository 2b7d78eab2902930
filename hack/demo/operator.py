"""The operator as a process that goes on running when the demo has ended.

It logs in as its service account, with the rights that deploy/ gives and no others, and listens on
a free port.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from hack.demo.kubectl import Kubectl
from hack.demo.process import Process, free_address
from hack.demo.screen import Screen

ACCOUNT = NAMESPACE = "kwok-operator"


class Operator(Process):
    """The operator of one cluster, as far as its directory tells."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "operator", what="the operator")
        self.address = ""

    def start(self, kubectl: Kubectl, screen: Screen) -> None:
        """Start it, and return once it is ready."""
        self.address = free_address()
        flags = ["run", f"--kubeconfig={self.kubeconfig}", f"--listen={self.address}"]
        token = ("create", "token", ACCOUNT, f"--namespace={NAMESPACE}", "--duration=720h")
        user = {"name": ACCOUNT, "user": {"token": kubectl.read(*token).strip()}}
        screen.command(f"{shlex.join(['kwok-operator', *flags])} &")
        command = [sys.executable, "-m", "kwok_operator", *flags]
        self.run(command, config=_as_user(kubectl.config(), user))
        self.wait_until_ready(self.address)


def _as_user(config: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    (context,) = config["contexts"]
    identity = {"user": user["name"], "namespace": NAMESPACE}
    as_user = {**context, "context": {**context["context"], **identity}}
    return {**config, "users": [user], "contexts": [as_user]}
