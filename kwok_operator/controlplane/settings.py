"""The environment variables of this package, read in one place, and the layout of its cache.

Nothing else in this package reads environment variables: the command line and the public functions
make one `Settings` and pass it on. Everything that is built, downloaded or started is below
`Settings.cache`, outside the checkout, so `git clean` costs nothing and checkouts share the tools:

    tools/<set>/<version>/<tool>    executables; a file there is complete and has the right version
    go/                             a Go toolchain, when the machine has none
    logs/                           logs of builds and of kwokctl
    clusters/<name>/                kubeconfig and settings of a cluster
    kwok/                           kwokctl's own working directory
    *.lock                          see lock.py
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kwok_operator.controlplane.errors import ControlPlaneError

DEFAULT_KUBERNETES_VERSION = "1.36"

CACHE_VARIABLE = "KWOK_OPERATOR_CACHE"
KUBECONFIG_VARIABLE = "KWOK_OPERATOR_TEST_KUBECONFIG"
VERSION_VARIABLE = "KUBERNETES_VERSION"
PORTS_VARIABLE = "KWOK_OPERATOR_PORTS_FROM"
"""The variable for the lowest port that a cluster may take, for programs that run several clusters.

Without it kwokctl takes any free port, also the port of a component that is stopped for a moment.
"""

SETS_DIRECTORY = Path(__file__).resolve().parent / "gomodules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where to search for tools, where to write, and which existing cluster to use instead of a new
    one, if any."""

    cache: Path
    kubernetes_version: str = DEFAULT_KUBERNETES_VERSION
    search_path: tuple[Path, ...] = ()
    borrowed_kubeconfig: Path | None = None
    first_port: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    sets_directory: Path = SETS_DIRECTORY

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read every variable that this package honours."""
        home = Path(environ.get("HOME") or Path.home())
        base = Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "kwok-operator"
        places = [environ.get("KUBEBUILDER_ASSETS", ""), *environ.get("PATH", "").split(os.pathsep)]
        borrowed = environ.get(KUBECONFIG_VARIABLE)
        return cls(
            cache=Path(environ.get(CACHE_VARIABLE) or base).expanduser().absolute(),
            kubernetes_version=environ.get(VERSION_VARIABLE) or DEFAULT_KUBERNETES_VERSION,
            search_path=tuple(Path(place) for place in places if place),
            borrowed_kubeconfig=Path(borrowed).expanduser().absolute() if borrowed else None,
            first_port=_port(environ.get(PORTS_VARIABLE) or None),
            environ=dict(environ),
        )

    @property
    def elsewhere(self) -> str:
        """The remedy for a cache that can't be written, such as that of a full disk."""
        return f"{CACHE_VARIABLE} can name another directory than {self.cache}"

    def tool_directory(self, *, set_name: str, version: str) -> Path:
        """Return where the executables of one version of one tool set are kept."""
        return self.cache / "tools" / set_name / f"v{version}"

    def log(self, name: str) -> Path:
        """Return the path of a log, and make its directory."""
        directory = self.cache / "logs"
        directory.mkdir(parents=True, exist_ok=True)
        return directory / f"{name}.log"


def _port(text: str | None) -> int | None:
    if text is not None and not (text.isdecimal() and 0 < int(text) < 1 << 16):
        raise ControlPlaneError(f"reading {PORTS_VARIABLE}: {text!r} is no port, as 20000 is one")
    return int(text) if text else None
