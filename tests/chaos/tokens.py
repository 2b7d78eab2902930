"""Tokens of the operator's service account that end when we say so.

A token that is bound to a Secret is worth nothing once that Secret is gone; the API server believes
it for as long as it remembers its last look, ten seconds. Written to the file that a kubeconfig
names, as a kubelet does it: under another name, and then moved there.
"""

import json
import secrets
from pathlib import Path

from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import ACCOUNT, NAMESPACE


class Tokens:
    """Writes tokens to one file."""

    def __init__(self, kubectl: Kubectl, file: Path) -> None:
        self._kubectl = kubectl
        self.file = file
        self._tokens: dict[str, str] = {}

    def kubeconfig(self, original: Path, changed: Path) -> Path:
        """The same cluster, with whatever token is in the file."""
        config = json.loads(original.read_text())
        config["users"][0]["user"] = {"tokenFile": str(self.file)}
        changed.write_text(json.dumps(config))
        return changed

    def renew(self, *, duration: str = "1h") -> str:
        """Puts a new token there; returns the name of what it is bound to."""
        name = f"chaos-{secrets.token_hex(4)}"
        namespace = f"--namespace={NAMESPACE}"
        self._kubectl("create", "secret", "generic", name, namespace)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={name}")
        token = self._kubectl(
            "create", "token", ACCOUNT, namespace, f"--duration={duration}", *bound
        ).strip()
        self._tokens[name] = token
        fresh = self.file.with_suffix(".new")
        fresh.write_text(token)
        fresh.replace(self.file)
        return name

    def lose(self) -> None:
        """The file is empty."""
        self.file.write_text("")

    def end(self, name: str) -> None:
        """Returns once the API server refuses the token that is bound to this."""
        token = self._tokens.pop(name)
        self._kubectl("delete", "secret", name, f"--namespace={NAMESPACE}")
        eventually(lambda: not self._accepted(token), describe="the token has ended")

    def _accepted(self, token: str) -> bool:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        made = self._kubectl.json("create", "--filename=-", stdin=json.dumps(review))
        return bool(made["status"].get("authenticated"))
