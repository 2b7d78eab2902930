"""Builds a tool set from the sources in Go modules: `go build -o DIR/ tool`.

The programs are built in a temporary directory next to their final place. Each gets its name only
when all of them exist and report the right version. A build that is killed leaves a temporary
directory, which the next build removes, and Go's cache of compiled packages, which the next build
uses.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kwok_operator.controlplane.errors import BuildError, hint, tail
from kwok_operator.controlplane.locate import reported_version
from kwok_operator.controlplane.processes import watch
from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.toolsets import ToolSet
from kwok_operator.reporter import Reporter, elapsed

_TEMPORARY = ".tmp-"


class Builder:
    """Builds tool sets with one Go toolchain."""

    def __init__(self, *, go: Path, settings: Settings, reporter: Reporter) -> None:
        self._go = go
        self._settings = settings
        self._reporter = reporter
        # These variables, set for the user's other builds, could make programs that do not run
        # here.
        foreign = {"GOOS", "GOARCH", "GOROOT", "GOWORK", "GOEXPERIMENT"}
        self._environ = {
            **{key: value for key, value in settings.environ.items() if key not in foreign},
            "HOME": settings.environ.get("HOME") or str(Path.home()),
            "CGO_ENABLED": "0",
            "GOWORK": "off",
        }

    def build(self, toolset: ToolSet) -> None:
        """Build all tools of the set into the cache; the caller holds the lock."""
        started = time.monotonic()
        target = self._settings.tool_directory(set_name=toolset.name, version=toolset.version)
        target.mkdir(parents=True, exist_ok=True)
        for stale in target.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(stale, ignore_errors=True)
        log = self._settings.log(f"build-{toolset.name}")
        log.write_bytes(b"")
        what = f"{toolset.name} {toolset.version} ({', '.join(toolset.tools)})"
        self._reporter.say(f"building {what} with {self._go}; log: {log}")
        with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=target) as directory:
            expected = self._list(toolset, listing=Path(directory) / "packages", log=log)
            output = Path(directory) / "bin"
            output.mkdir()
            self._compile(toolset, output=output, expected=expected, log=log)
            if toolset.family.built_as:
                (output / toolset.family.built_as).rename(output / toolset.tools[0])
            for tool in toolset.tools:
                _check(output / tool, toolset=toolset)
            for tool in toolset.tools:
                (output / tool).replace(target / tool)
        self._reporter.say(f"built {toolset.name} in {elapsed(time.monotonic() - started)}")

    def _list(self, toolset: ToolSet, *, listing: Path, log: Path) -> int:
        """Make Go download the modules, and return how many packages there are to compile."""

        def tick(seconds: float) -> None:
            count = log.read_bytes().count(b"go: downloading ")
            text = f"{toolset.name}: downloading modules, {count} so far, {elapsed(seconds)}"
            self._reporter.update(text)

        command = ["list", "-mod=readonly", "-deps", *_tags(toolset), "tool"]
        self._run(command, toolset=toolset, stdout=listing, log=log, tick=tick)
        return len(listing.read_bytes().splitlines())

    def _compile(self, toolset: ToolSet, *, output: Path, expected: int, log: Path) -> None:
        def tick(seconds: float) -> None:
            count = len(log.read_bytes().splitlines())
            text = f"{toolset.name}: {count} of up to {expected} packages, {elapsed(seconds)}"
            self._reporter.update(text)

        log.write_bytes(b"")
        # -v names each package that is compiled, but none that Go has cached from an earlier build.
        flags = ["-v", "-trimpath", "-buildvcs=false", "-mod=readonly", *_tags(toolset)]
        command = ["build", *flags, f"-ldflags={toolset.ldflags}", "-o", f"{output}/", "tool"]
        self._run(command, toolset=toolset, stdout=log, log=log, tick=tick)

    def _run(
        self,
        arguments: list[str],
        *,
        toolset: ToolSet,
        stdout: Path,
        log: Path,
        tick: Callable[[float], None],
    ) -> None:
        status = watch(
            [self._go, *arguments],
            cwd=toolset.directory,
            env=self._environ,
            stdout=stdout,
            stderr=log,
            tick=tick,
        )
        if status:
            text = tail(log)
            raise BuildError(
                f"building {toolset.name}: `go {arguments[0]}` failed{hint(text)}\n{text}\n"
                f"  the whole log: {log}"
            )


def _tags(toolset: ToolSet) -> list[str]:
    return [f"-tags={toolset.family.tags}"] if toolset.family.tags else []


def _check(path: Path, *, toolset: ToolSet) -> None:
    version = reported_version(path)
    if not toolset.accepts(version):
        got = ".".join(str(part) for part in version) or "none"
        raise BuildError(
            f"building {toolset.name}: {path.name} reports version {got}, not {toolset.wanted}"
        )
