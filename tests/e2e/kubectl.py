"""How the e2e tests talk to a cluster: kubectl as people use it, and a poll with a memory.

`Kubectl` runs one command with one kubeconfig and gives back what it prints; a refusal is a
`KubectlError` with the command and what kubectl said. `eventually` asks again until the answer
fits, and on time-out tells the last one it got.

Nothing here knows groups or the operator, or reads the environment.
"""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

Manifest = str | Mapping[str, Any]
"""YAML or JSON text, or an object."""


class KubectlError(Exception):
    """kubectl exited with an error."""

    def __init__(self, *, arguments: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        self.stderr = stderr
        said = "\n".join(part.strip() for part in (stdout, stderr) if part.strip())
        super().__init__(f"running `kubectl {' '.join(arguments)}` ended with {code}:\n{said}")


class Kubectl:
    """kubectl with the kubeconfig of one cluster."""

    def __init__(self, *, program: Path, kubeconfig: Path, cache: Path) -> None:
        # A cache of its own: kubectl's is kept by host and port, and the next cluster on the same
        # port would be taken for this one.
        self._command = [str(program), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}"]

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float = 60) -> str:
        """What the command prints."""
        done = subprocess.run(
            [*self._command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(
                arguments=arguments,
                code=done.returncode,
                stdout=done.stdout,
                stderr=done.stderr,
            )
        return done.stdout

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        """What the command prints with `-o json`, read."""
        return json.loads(self(*arguments, "--output=json", stdin=stdin))

    def apply(self, manifest: Manifest, *options: str) -> str:
        return self("apply", "--filename=-", *options, stdin=as_text(manifest))

    def fails(self, *arguments: str, stdin: Manifest | None = None) -> str:
        """What a command that is refused prints on stderr."""
        text = None if stdin is None else as_text(stdin)
        try:
            output = self(*arguments, stdin=text)
        except KubectlError as err:
            return err.stderr
        raise AssertionError(f"`kubectl {' '.join(arguments)}` was not refused:\n{output}")


def as_text(manifest: Manifest) -> str:
    return manifest if isinstance(manifest, str) else json.dumps(manifest)


def eventually(
    read: Callable[[], T],
    until: Callable[[T], object] = bool,
    *,
    describe: str,
    timeout: float = 60,
    interval: float = 0.1,
) -> T:
    """The first answer of `read` that fits `until`; without `until`, the first that is true.

    What isn't there yet is no failure: a failing kubectl, key or assertion is asked again.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            answer = read()
            if until(answer):
                return answer
            last = repr(answer)
        except (AssertionError, KubectlError, LookupError) as err:
            last = f"{type(err).__name__}: {err}"
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {timeout} s until {describe}; last seen: {last}")
        time.sleep(interval)
