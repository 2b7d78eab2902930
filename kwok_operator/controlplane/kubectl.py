"""Runs kubectl with the kubeconfig of one cluster, and waits until it has ended."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kwok_operator.errors import KwokOperatorError, one_line

_SECONDS = 300.0


class KubectlError(KwokOperatorError):
    """kubectl failed or took too long. The message has its output; `stderr` has its
    standard error.
    """

    def __init__(self, sentence: str, stderr: str = "") -> None:
        super().__init__(sentence)
        self.stderr = stderr


class Kubectl:
    """kubectl for one cluster. Each cluster should have its own cache directory: kubectl's default
    cache is by host and port, which the next cluster may reuse."""

    def __init__(self, *, program: Path, kubeconfig: Path, cache: Path | None = None) -> None:
        self._program = program
        self.kubeconfig = kubeconfig
        self._cache = {"KUBECACHEDIR": str(cache)} if cache else {}

    @property
    def environ(self) -> dict[str, str]:
        """The environment variables for programs that use the cluster."""
        search_path = f"{self._program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        own = {"KUBECONFIG": str(self.kubeconfig), "PATH": search_path}
        return {**os.environ, **own, **self._cache}

    def __call__(self, *arguments: str, stdin: str = "", timeout: float = _SECONDS) -> str:
        """Runs kubectl and returns its standard output. Raises KubectlError."""
        __tracebackhide__ = True
        shown = one_line(" ".join(["kubectl", *arguments]), limit=200)
        try:
            done = subprocess.run(
                [str(self._program), *arguments],
                input=stdin,
                env=self.environ,
                timeout=timeout,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise KubectlError(f"{shown}: it has not ended in {timeout:g} s") from None
        except OSError as error:
            raise KubectlError(f"{shown}: {error}") from error
        if done.returncode:
            printed = (done.stderr.strip() or done.stdout.strip())[-2_000:]
            sentence = f"{shown}: exit status {done.returncode}: {printed}"
            raise KubectlError(sentence, done.stderr)
        return done.stdout
