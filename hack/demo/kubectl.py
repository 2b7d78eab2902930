"""kubectl as if it was typed: the command is shown, then what it prints.

`show` is for what the person watching should learn; `read` is for checks, and shows nothing. A
command that fails ends the demo with the command and kubectl's own words; one that must fail is
`refused`. Paths in commands are relative to the checkout, where commands are run.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hack.demo.errors import DemoError
from hack.demo.screen import Screen

CHECKOUT = Path(__file__).resolve().parents[2]
_SECONDS = 120


class Kubectl:
    """kubectl for one cluster."""

    def __init__(
        self,
        program: Path,
        *,
        kubeconfig: Path,
        cache: Path,
        environ: Mapping[str, str],
        screen: Screen,
    ) -> None:
        self._program = program
        self._screen = screen
        # Its cache goes by host and port, and the next cluster may have this one's port.
        self._environ = {**environ, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": str(cache)}

    def show(self, *arguments: str, last: int | None = None) -> str:
        """Run a command; show its output, or only the last lines of it."""
        self._screen.command(_typed(arguments))
        done = self._run(arguments)
        if done.returncode:
            raise _failed(arguments, done.stderr)
        lines = (done.stdout + done.stderr).splitlines()
        self._screen.output(lines if last is None else lines[len(lines) - last :])
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """Show a command that has to fail, and run it; return what it prints, which is long."""
        self._screen.command(_typed(arguments))
        done = self._run(arguments)
        if not done.returncode:
            raise DemoError(f"`{_typed(arguments)}` should have been refused, and was not")
        return done.stdout + done.stderr

    def read(self, *arguments: str) -> str:
        """Run a command for its output only."""
        done = self._run(arguments)
        if done.returncode:
            raise _failed(arguments, done.stderr)
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Run a command for the object that it prints with `-o json`."""
        return json.loads(self.read(*arguments, "--output=json"))

    def config(self) -> dict[str, Any]:
        """Return the kubeconfig in use, with all that it refers to."""
        config: dict[str, Any] = self.json("config", "view", "--raw", "--minify", "--flatten")
        return config

    @contextmanager
    def watch(self, *arguments: str, seconds: float) -> Iterator[Iterator[str]]:
        """Run a command that goes on printing; give its lines, for some seconds at most."""
        process = subprocess.Popen(
            [str(self._program), *arguments, "--watch"],
            cwd=CHECKOUT,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        limit = threading.Timer(seconds, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            yield iter(process.stdout)
        finally:
            limit.cancel()
            process.kill()
            process.communicate()

    def _run(self, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [str(self._program), *arguments],
                cwd=CHECKOUT,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as err:
            raise DemoError(f"`{_typed(arguments)}` did not end in {_SECONDS} s") from err


def on_search_path(program: Path, *, environ: Mapping[str, str]) -> bool:
    """Say whether typing kubectl runs this kubectl's directory."""
    return str(program.parent) in environ.get("PATH", "").split(os.pathsep)


def _typed(arguments: tuple[str, ...]) -> str:
    return shlex.join(["kubectl", *arguments])


def _failed(arguments: tuple[str, ...], stderr: str) -> DemoError:
    said = [line.strip() for line in stderr.splitlines() if line.strip()]
    return DemoError(f"`{_typed(arguments)}` failed: {said[-1] if said else 'it did not say why'}")
