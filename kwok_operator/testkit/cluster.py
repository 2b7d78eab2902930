"""The cluster that a test uses, with its kubeconfig and kubectl."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kwok_operator.controlplane.kubectl import Kubectl, KubectlError
from kwok_operator.errors import KwokOperatorError
from kwok_operator.testkit import processes

__all__ = ["HostError", "KubectlError", "KwokCluster", "hosted"]


class HostError(KwokOperatorError):
    """The cluster could not be started. The message says why."""


@dataclass(frozen=True, slots=True)
class KwokCluster:
    """A control plane with kwok and the operator. It has no nodes but those of groups."""

    kubeconfig: Path
    folder: Path
    """The folder that contains operator.log."""
    _program: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment variables for programs that use the cluster: KUBECONFIG, and PATH with
        kubectl."""
        return self._kubectl.environ

    def kubectl(self, *arguments: str, stdin: str = "", timeout: float = 300) -> str:
        """Runs kubectl and returns its standard output. Raises KubectlError."""
        __tracebackhide__ = True
        return self._kubectl(*arguments, stdin=stdin, timeout=timeout)

    @property
    def _kubectl(self) -> Kubectl:
        cache = self.folder / "kubectl-cache"
        return Kubectl(program=self._program, kubeconfig=self.kubeconfig, cache=cache)


@contextmanager
def hosted(folder: Path) -> Iterator[KwokCluster]:
    """Yields a cluster for the length of the block; its logs are in the folder. Raises
    HostError.
    """
    log = folder / "host.log"
    with log.open("w", encoding="utf-8") as stderr:
        process = processes.start(
            ["kwok_operator.testkit.host", str(folder)], cwd=folder, stderr=stderr
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended at once; see {log}"}
        if "error" in answer:
            raise HostError(answer["error"])
        yield KwokCluster(Path(answer["kubeconfig"]), folder, Path(answer["kubectl"]))
    finally:
        processes.end(process)
