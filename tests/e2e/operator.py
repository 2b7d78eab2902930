"""The operator as people run it: the console script as a process, with its service account.

`Harness` starts, stops and kills it; there is one at a time, because two would fight over the
groups. A test that wants it as usual asks for `operator`; one that wants flags of its own, or its
death, asks for `harness`. Either way the next test finds what it asks for.
"""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.kubectl import PATIENCE, Kubectl, eventually
from tests.e2e.ports import free_port
from tests.e2e.rights import apply_rights, kubeconfig_of

PROGRAM = Path(sys.executable).with_name("kwok-operator")
NAMESPACE = ACCOUNT = "kwok-operator"


class Process:
    """One run of the operator."""

    def __init__(
        self,
        *,
        kubeconfig: Path,
        log: Path,
        flags: tuple[str, ...],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.flags = flags
        self.environ = dict(environ or {})
        self.log_file = log
        self.port = free_port()
        with log.open("w") as output:
            self._popen = subprocess.Popen(
                [
                    str(PROGRAM),
                    "run",
                    f"--kubeconfig={kubeconfig}",
                    f"--listen=127.0.0.1:{self.port}",
                    *flags,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environ},
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def log(self) -> str:
        return self.log_file.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET on the operator's own port."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=30
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self) -> None:
        """Returns once it works; fails with its log where it has ended instead."""

        def ready() -> tuple[int, str]:
            if not self.running:
                raise RuntimeError(f"the operator has ended:\n{self.log()}")
            return self.get("/readyz")

        eventually(ready, lambda r: r[0] == 200, describe="the operator is ready")

    def terminate(self) -> int:
        """SIGTERM; returns the exit code."""
        self._popen.send_signal(signal.SIGTERM)
        return self._popen.wait(PATIENCE)

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    def wait(self) -> int:
        return self._popen.wait(PATIENCE)


class Harness:
    """Runs at most one operator."""

    def __init__(self, *, kubeconfig: Path, directory: Path) -> None:
        self.kubeconfig = kubeconfig
        self._directory = directory
        self._runs = 0
        self.process: Process | None = None

    def start(
        self,
        *flags: str,
        kubeconfig: Path | None = None,
        ready: bool = True,
        environ: Mapping[str, str] | None = None,
    ) -> Process:
        """Stops what runs and starts anew, with these flags and additions to the environment."""
        self.stop()
        self._runs += 1
        self.process = Process(
            kubeconfig=kubeconfig or self.kubeconfig,
            log=self._directory / f"operator-{self._runs}.log",
            flags=flags,
            environ=environ,
        )
        if ready:
            self.process.wait_ready()
        return self.process

    def ensure(self) -> Process:
        """The operator as usual: the one that runs, if it was started without flags."""
        process = self.process
        if process is None or not process.running or process.flags or process.environ:
            self.start()
        assert self.process is not None
        return self.process

    def stop(self) -> None:
        if self.process is not None and self.process.running:
            self.process.terminate()
        self.process = None


@pytest.fixture(scope="package")
def operator_kubeconfig(
    kubectl: Kubectl, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The kubeconfig with which the operator runs."""
    file = tmp_path_factory.mktemp("operator") / "kubeconfig"
    file.write_text(as_service_account(kubectl))
    return file


def as_service_account(kubectl: Kubectl) -> str:
    """A kubeconfig with the token of the service account, which may do what deploy/ says."""
    apply_rights(kubectl)
    return kubeconfig_of(kubectl, ACCOUNT)


@pytest.fixture(scope="package")
def _harness(
    operator_kubeconfig: Path, crds: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    harness = Harness(kubeconfig=operator_kubeconfig, directory=tmp_path_factory.mktemp("logs"))
    yield harness
    harness.stop()


@pytest.fixture
def harness(_harness: Harness) -> Iterator[Harness]:
    """Nothing runs; what the test starts is stopped after it."""
    _harness.stop()
    yield _harness
    _harness.stop()


@pytest.fixture
def operator(_harness: Harness) -> Process:
    """The operator runs, without flags."""
    return _harness.ensure()
