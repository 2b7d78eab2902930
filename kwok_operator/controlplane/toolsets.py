"""Which tools there are, in which versions: read from the go.mod files in gomodules/.

A tool set is a directory with a go.mod whose `tool` directives name the programs to build; the
version of one module in it is the version of all of them. The go.mod is the only place that has a
version: it decides which release is downloaded, and which program on PATH is accepted. `load`
returns the sets that a cluster of a Kubernetes version needs. Sets that only tests need are left
out; tests name the directories of those sets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kwok_operator.controlplane.errors import UnknownVersion
from kwok_operator.controlplane.settings import SETS_DIRECTORY

Version = tuple[int, ...]

_PREFIX = "kubernetes-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a tool set's go.mod doesn't say: how its tools are built, and which versions may be
    used.

    With `exact`, a tool must have the same version as the set; with `at_least`, that version or a
    newer one; otherwise the same minor version. The linker writes the version into Kubernetes'
    usual variables of the packages `stamps`, or into the variable `stamp`. `released`: kwokctl
    knows where the tools' releases are. `library`: the module's version 0.313.5 stands for release
    3.13.5 of the tools.
    """

    module: str
    tools: tuple[str, ...]
    exact: bool = False
    at_least: Version = ()
    built_as: str = ""
    stamps: tuple[str, ...] = ()
    stamp: str = ""
    tags: str = ""
    released: bool = True
    library: bool = False


FAMILIES = {
    "kwok": Family(module="sigs.k8s.io/kwok", tools=("kwokctl", "kwok"), exact=True),
    # The package's name is server, and `go build` names the program like the package.
    "etcd": Family(module="go.etcd.io/etcd/server/v3", tools=("etcd",), built_as="server"),
    # Without these stamps a binary reports v0.0.0-master as its version, also to its clients.
    "kubernetes": Family(
        module="k8s.io/kubernetes",
        tools=("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        stamps=("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
    ),
    # Service discovery in clouds is half of the code to compile, and tests don't need it.
    "prometheus": Family(
        module="github.com/prometheus/prometheus",
        tools=("prometheus", "promtool"),
        at_least=(2, 40, 0),
        stamp="github.com/prometheus/common/version.Version",
        tags="remove_all_sd",
        released=False,
        library=True,
    ),
    # It is released only as images.
    "metrics-server": Family(
        module="sigs.k8s.io/metrics-server",
        tools=("metrics-server",),
        stamps=("k8s.io/client-go/pkg/version",),
        released=False,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSet:
    """The tools that one go.mod builds, and the version they all have."""

    name: str
    directory: Path
    version: str
    go: Version
    family: Family

    @property
    def tools(self) -> tuple[str, ...]:
        return self.family.tools

    def accepts(self, version: Version) -> bool:
        """Return whether a tool that reports this version may be used instead of one that we
        build."""
        wanted = parse(self.version)
        if self.family.at_least:
            return version >= self.family.at_least
        return version == wanted if self.family.exact else version[:2] == wanted[:2]

    @property
    def wanted(self) -> str:
        """The versions that `accepts` accepts, for messages."""
        if self.family.at_least:
            return f"{'.'.join(str(part) for part in self.family.at_least)} or newer"
        return self.version if self.family.exact else ".".join(self.version.split(".")[:2])

    @property
    def ldflags(self) -> str:
        """Return linker flags that make the tools small, and let them report their version."""
        major, minor, _ = self.version.split(".")
        values = {"gitVersion": f"v{self.version}", "gitMajor": major, "gitMinor": minor}
        stamps = [
            f"-X {package}.{key}={value}"
            for package in self.family.stamps
            for key, value in {**values, "gitTreeState": "clean"}.items()
        ]
        if self.family.stamp:
            stamps.append(f"-X {self.family.stamp}={self.version}")
        return " ".join(["-s", "-w", *stamps])


def parse(text: str) -> Version:
    """Return the first x.y.z in a text; the empty version if there is none."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(int(part) for part in match.groups()) if match else ()


def of_family(name: str) -> str:
    """Return a tool set's name without the version: the name of its family, as in FAMILIES."""
    return re.sub(r"-[\d.]+$", "", name)


def read(directory: Path) -> ToolSet:
    """Read the tool set of one directory."""
    family = FAMILIES[of_family(directory.name)]
    text = (directory / "go.mod").read_text(encoding="utf-8")
    module = re.search(rf"^\s*{re.escape(family.module)} v(\d+\.\d+\.\d+)\b", text, re.MULTILINE)
    go = re.search(r"^go (\S+)$", text, re.MULTILINE)
    if module is None or go is None:
        raise ValueError(f"reading {directory / 'go.mod'}: no {family.module} or no go line in it")
    return ToolSet(
        name=directory.name,
        directory=directory,
        version=_released_as(module.group(1)) if family.library else module.group(1),
        go=parse(go.group(1)),
        family=family,
    )


def _released_as(version: str) -> str:
    _, minor, patch = parse(version)
    return f"{minor // 100}.{minor % 100}.{patch}"


def known_versions(sets_directory: Path = SETS_DIRECTORY) -> list[str]:
    """List the Kubernetes minor versions that have a tool set."""
    names = [path.name.removeprefix(_PREFIX) for path in sets_directory.glob(f"{_PREFIX}*/")]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def load(*, sets_directory: Path, kubernetes_version: str) -> list[ToolSet]:
    """Return the tool sets that a cluster needs. The set of kwok comes first, because kwokctl knows
    where the tools of the other sets are released."""
    known = known_versions(sets_directory)
    wanted = kubernetes_version.removeprefix("v")
    if wanted not in known:
        raise UnknownVersion(
            f"choosing a Kubernetes version: {kubernetes_version!r} is not known; "
            f"choose {' or '.join(known)}"
        )
    return [read(sets_directory / name) for name in ("kwok", "etcd", f"{_PREFIX}{wanted}")]
