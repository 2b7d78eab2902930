"""Gets every tool that a cluster needs, from the cheapest source that has it.

For each tool the sources are, in this order: the cache, the search path, the release site, a build
from source. After the first run all tools are in the cache, and no program is started to look for
them. Downloads and builds happen under one lock; a process that has waited for the lock first
checks the cache again. kwokctl comes first, because it knows where the other tools are released.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kwok_operator.controlplane import locate
from kwok_operator.controlplane.download import Sites, kwokctl_url, release_urls
from kwok_operator.controlplane.errors import ControlPlaneError, DownloadError
from kwok_operator.controlplane.gobuild import Builder
from kwok_operator.controlplane.golang import find_go
from kwok_operator.controlplane.lock import exclusive
from kwok_operator.controlplane.settings import Settings
from kwok_operator.controlplane.toolsets import ToolSet, load, of_family, read
from kwok_operator.reporter import Reporter

_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Tools:
    """The paths of all tools by name, and the versions of their tool sets."""

    paths: Mapping[str, Path]
    versions: Mapping[str, str]

    def __getitem__(self, name: str) -> Path:
        return self.paths[name]


def find_tools(settings: Settings, *, reporter: Reporter) -> Tools:
    """Return all tools that a cluster needs. Missing ones are downloaded or built."""
    toolsets = load(
        sets_directory=settings.sets_directory, kubernetes_version=settings.kubernetes_version
    )
    return _find(toolsets, settings=settings, reporter=reporter)


def find_set(directory: Path, *, settings: Settings, reporter: Reporter) -> Tools:
    """Return the tools of the tool set in `directory`. Missing ones are downloaded or built."""
    try:
        toolset = read(directory)
    except (OSError, KeyError, ValueError) as err:
        raise ControlPlaneError(
            f"reading {directory}: it is no directory with the go.mod of a known tool set ({err})"
        ) from err
    return _find([toolset], settings=settings, reporter=reporter)


def _find(toolsets: list[ToolSet], *, settings: Settings, reporter: Reporter) -> Tools:
    try:
        return _Finder(toolsets, settings=settings, reporter=reporter).find()
    except OSError as err:
        raise ControlPlaneError(f"getting the tools: {err}; {settings.elsewhere}") from err


def find_kubectl(settings: Settings) -> Path:
    """Return any kubectl, for a cluster that this package didn't make. Nothing is downloaded or
    built."""
    if path := locate.anywhere("kubectl", settings=settings):
        return path
    cached = settings.cache.glob("tools/kubernetes-*/v*/kubectl")
    for path in sorted(cached, reverse=True):
        return path
    raise ControlPlaneError("finding kubectl: it is not on PATH; install it")


class _Finder:
    """One search for tools, with the paths of the tools that it has so far."""

    def __init__(self, toolsets: list[ToolSet], *, settings: Settings, reporter: Reporter) -> None:
        self._toolsets = toolsets
        self._settings = settings
        self._reporter = reporter
        self._paths: dict[str, Path] = {}
        self._sites = Sites(reporter=reporter)
        self._urls: Mapping[str, str] | None = None
        self._builder: Builder | None = None

    def find(self) -> Tools:
        self._look_in_cache()
        for toolset in self._toolsets:
            for tool in self._missing(toolset):
                if path := locate.on_path(
                    tool, toolset=toolset, settings=self._settings, reporter=self._reporter
                ):
                    self._paths[tool] = path
        if any(self._missing(toolset) for toolset in self._toolsets):
            lock = self._settings.cache / "tools.lock"
            with exclusive(lock, purpose="which gets the tools", reporter=self._reporter):
                self._look_in_cache()
                for toolset in self._toolsets:
                    self._get(toolset)
        return Tools(
            paths={tool: self._paths[tool] for toolset in self._toolsets for tool in toolset.tools},
            versions={of_family(toolset.name): toolset.version for toolset in self._toolsets},
        )

    def _missing(self, toolset: ToolSet) -> list[str]:
        return [tool for tool in toolset.tools if tool not in self._paths]

    def _look_in_cache(self) -> None:
        for toolset in self._toolsets:
            for tool in self._missing(toolset):
                path = locate.in_cache(tool, toolset=toolset, settings=self._settings)
                if path is not None:
                    self._paths[tool] = path

    def _get(self, toolset: ToolSet) -> None:
        for tool in self._missing(toolset) if toolset.family.released else ():
            try:
                self._download(tool, toolset=toolset)
            except DownloadError as err:
                self._reporter.say(f"{err}: building {toolset.name} instead")
                break
        if self._missing(toolset):
            if self._builder is None:
                minimum = max(each.go for each in self._toolsets)
                go = find_go(minimum=minimum, settings=self._settings, reporter=self._reporter)
                self._builder = Builder(go=go, settings=self._settings, reporter=self._reporter)
            self._builder.build(toolset)
            self._look_in_cache()

    def _download(self, tool: str, *, toolset: ToolSet) -> None:
        url = self._url(tool, toolset=toolset)
        target = self._settings.tool_directory(set_name=toolset.name, version=toolset.version)
        fresh = target / ".tmp-download" / tool
        try:
            self._sites.fetch(url, destination=fresh)
            version = locate.reported_version(fresh)
            if not toolset.accepts(version):
                got = ".".join(str(part) for part in version) or "none"
                raise DownloadError(
                    f"downloading {url}: it reports version {got}, not {toolset.wanted}"
                )
            self._paths[tool] = fresh.replace(target / tool)
        finally:
            shutil.rmtree(fresh.parent, ignore_errors=True)
        self._reporter.say(f"downloaded {tool} {toolset.version}")

    def _url(self, tool: str, *, toolset: ToolSet) -> str:
        environ = self._settings.environ
        if tool == "kwokctl":
            machine = platform.machine().lower()
            system = (sys.platform, _ARCHITECTURES.get(machine, machine))
            return kwokctl_url(version=toolset.version, platform=system, environ=environ)
        if self._urls is None:
            versions = {of_family(each.name): each.version for each in self._toolsets}
            self._urls = release_urls(
                self._paths["kwokctl"],
                kubernetes=versions["kubernetes"],
                etcd=versions["etcd"],
                environ=environ,
            )
        if tool not in self._urls:
            raise DownloadError(f"downloading {tool}: kwokctl names no release of it")
        return self._urls[tool]
