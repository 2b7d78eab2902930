"""Finds tools that exist already: in the cache first, then on the search path.

Tools in the cache are complete and have the right version, as tools.py puts no others there. Tools
on the search path ($KUBEBUILDER_ASSETS, then PATH) are run to report their version, and used where
they are if it fits. If it doesn't, a message says so and the tool isn't used: an old kubectl in
/usr/bin must not affect tests.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.toolsets import ToolSet, Version, parse
from kwok_operator.reporter import Reporter

_ASK_SECONDS = 20


def reported_version(path: Path) -> Version:
    """Ask a program for its version. If it does not start or answer, the version is empty."""
    question = ["version", "--client"] if path.name.startswith("kubectl") else ["--version"]
    try:
        answer = subprocess.run(
            [path, *question], capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return parse(answer.stdout) if answer.returncode == 0 else ()


def executable(path: Path) -> bool:
    """Return whether there is a file that may be executed."""
    return path.is_file() and os.access(path, os.X_OK)


def in_cache(tool: str, *, toolset: ToolSet, settings: Settings) -> Path | None:
    """Return the path of the tool in the cache; None if it is not there."""
    directory = settings.tool_directory(set_name=toolset.name, version=toolset.version)
    path = directory / tool
    return path if executable(path) else None


def on_path(tool: str, *, toolset: ToolSet, settings: Settings, reporter: Reporter) -> Path | None:
    """Return the first program of that name on the search path that has the right version."""
    refused: set[Path] = set()
    for directory in settings.search_path:
        path = directory / tool
        if not executable(path) or path.resolve() in refused:
            continue
        version = reported_version(path)
        if toolset.accepts(version):
            return path.absolute()
        refused.add(path.resolve())
        reported = ".".join(str(part) for part in version) or "not known"
        reporter.say(f"not using {path}: its version is {reported}, wanted is {toolset.wanted}")
    return None


def anywhere(name: str, *, settings: Settings) -> Path | None:
    """Return the first program of that name on the search path, whatever its version."""
    for directory in settings.search_path:
        if executable(directory / name):
            return (directory / name).absolute()
    return None
