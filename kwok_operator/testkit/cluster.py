"""The cluster that a test sees."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kwok_operator.errors import KwokOperatorError, one_line
from kwok_operator.testkit import processes


class KubectlError(KwokOperatorError):
    """kubectl failed or took too long; the sentence says what it said."""


class HostError(KwokOperatorError):
    """There is no cluster; the sentence says why."""


@dataclass(frozen=True, slots=True)
class KwokCluster:
    """A control plane with kwok and the operator, and no nodes but those of groups."""

    kubeconfig: Path
    folder: Path
    """Has operator.log."""
    _program: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment for programs that are to use it: KUBECONFIG, and kubectl on PATH."""
        return {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
            "PATH": f"{self._program.parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def kubectl(self, *arguments: str, stdin: str = "", timeout: float = 300) -> str:
        """Returns what it prints. Raises KubectlError."""
        __tracebackhide__ = True
        shown = one_line(" ".join(["kubectl", *arguments]), limit=200)
        try:
            done = subprocess.run(
                [str(self._program), *arguments],
                input=stdin,
                env=self.env,
                timeout=timeout,
                capture_output=True,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise KubectlError(f"{shown}: it has not ended in {timeout:g} s") from None
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip())[-2_000:]
            raise KubectlError(f"{shown}: exit status {done.returncode}: {said}")
        return done.stdout


@contextmanager
def hosted(folder: Path) -> Iterator[KwokCluster]:
    """A cluster for the length of the block; its logs go to the folder. Raises HostError."""
    log = folder / "host.log"
    with log.open("w", encoding="utf-8") as stderr:
        process = processes.start(
            ["kwok_operator.testkit.host", str(folder)], cwd=folder, stderr=stderr
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = json.loads(line) if line else {"error": f"it ended at once; see {log}"}
        if "error" in found:
            raise HostError(found["error"])
        yield KwokCluster(Path(found["kubeconfig"]), folder, Path(found["kubectl"]))
    finally:
        processes.end(process)
