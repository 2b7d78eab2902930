"""What can go wrong when a cluster is created or used, one exception class per cause.

    ControlPlaneError
    ├── UnknownVersion      no tool set has that Kubernetes version
    ├── DownloadError       one file could not be had from one site (the next source is tried)
    ├── ToolchainError      there is no Go, and none could be installed
    ├── BuildError          Go is there, and the build failed
    └── ClusterError        the tools are there, and the cluster does not come, go or answer
        └── TooSlowError    a component gave up waiting for another; the next try may succeed

Every message stands on its own, so that the command line prints it and nothing else. `hint` finds
signs of well-known troubles of the machine in a log, and returns a clause for such a message.
"""

from __future__ import annotations

import re
from pathlib import Path

from kwok_operator.errors import KwokOperatorError

_HINTS = (
    ("no space left on device", "the disk is full"),
    ("disk quota exceeded", "the disk quota is used up"),
    ("file too large", "a limit forbids such large files: `ulimit -f`"),
    ("address already in use", "a port is taken by another process"),
    ("get unused port", "no free port between 10000 and 32767 was found"),
    ("cannot allocate memory", "the machine is out of memory"),
    ("signal: killed", "a process was killed, often because the machine is out of memory"),
)

_CAUSE = re.compile(
    r"^.*(?:(?:unknown|undefined) flag|flag provided but not defined|invalid .* for .*flag"
    r"|(?i:no space left on device|disk quota exceeded|file too large)).*$",
    re.MULTILINE,
)


class ControlPlaneError(KwokOperatorError):
    """The base class. Its text is a complete message for the user."""


class UnknownVersion(ControlPlaneError):
    """There is no tool set for this Kubernetes version."""


class DownloadError(ControlPlaneError):
    """A file that one site doesn't have, or sends damaged."""


class ToolchainError(ControlPlaneError):
    """There is no Go toolchain that is new enough: neither on PATH nor from PyPI."""


class BuildError(ControlPlaneError):
    """`go build` failed; the message ends with the last lines of its log."""


class ClusterError(ControlPlaneError):
    """A cluster does not start, does not answer, or does not exist."""


class TooSlowError(ClusterError):
    """A component has ended because another one was late, as on a busy machine."""


def hint(log: str) -> str:
    """Return, as ` (...)`, the known problem of the machine that a log shows; else ""."""
    lowered = log.lower()
    for needle, meaning in _HINTS:
        if needle in lowered:
            return f" ({meaning})"
    return ""


def tail(path: Path, *, lines: int = 15) -> str:
    """Return the last lines of a text file, indented; "" if there is no file.

    If the program has refused a flag, or the disk is full, return only the line that says so: the
    other lines list all flags, or the program's stack.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    last = [match[0]] if (match := _CAUSE.search(text)) else text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in last)
