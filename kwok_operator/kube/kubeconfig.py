"""Reads kubeconfig files, merges them as kubectl does, and picks one context.

It doesn't log in. The result is what the files say about one cluster and one user, with absolute
paths. Every mistake in a file is a ConnectionConfigError that names the place.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kwok_operator.errors import ConnectionConfigError, one_line
from kwok_operator.userfiles import read_bytes

MAX_NAMES: Final = 20
"""The most names that an error about an unknown name lists."""

_SECTIONS: Final = ("contexts", "clusters", "users")
_PATHS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(frozen=True, slots=True)
class Choice:
    """One context, with its cluster and user."""

    name: str
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The sections of kubeconfig files (contexts, clusters, users), each by name."""

    current_context: str
    contexts: Mapping[str, Mapping[str, Any]]
    clusters: Mapping[str, Mapping[str, Any]]
    users: Mapping[str, Mapping[str, Any]]


def read_kubeconfig(path: Path) -> Kubeconfig:
    """Reads one file, which may be empty, and makes the paths in it absolute."""
    try:
        text = read_bytes(path, given=True).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectionConfigError(f"{path} can't be read: {error}") from error
    config = parse_kubeconfig(text, where=str(path))
    directory = path.absolute().parent
    contexts, clusters, users = (
        {name: _absolute(dict(body), directory) for name, body in bodies.items()}
        for bodies in (config.contexts, config.clusters, config.users)
    )
    return Kubeconfig(config.current_context, contexts, clusters, users)


def parse_kubeconfig(text: str, *, where: str) -> Kubeconfig:
    """Parses the text of a file; leaves relative paths as they are."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConnectionConfigError(f"{where} is not YAML: {one_line(error, limit=300)}") from error
    return make_kubeconfig(content, where=where)


def make_kubeconfig(content: object, *, where: str) -> Kubeconfig:
    """Checks and sorts the content of a file that has been read as YAML."""
    if not isinstance(content, dict | None):
        raise ConnectionConfigError(f"{where} is not a kubeconfig: it has no fields")
    content = content or {}
    contexts, clusters, users = (
        dict(_entries(content.get(section), section, where)) for section in _SECTIONS
    )
    return Kubeconfig(str(content.get("current-context") or ""), contexts, clusters, users)


def merge(configs: Iterable[Kubeconfig]) -> Kubeconfig:
    """Merges files as kubectl does: of entries with the same name, that of the first file
    counts."""
    current = ""
    contexts: dict[str, Mapping[str, Any]] = {}
    clusters: dict[str, Mapping[str, Any]] = {}
    users: dict[str, Mapping[str, Any]] = {}
    for config in configs:
        current = current or config.current_context
        contexts = {**config.contexts, **contexts}
        clusters = {**config.clusters, **clusters}
        users = {**config.users, **users}
    return Kubeconfig(current, contexts, clusters, users)


def pick(config: Kubeconfig, context: str | None) -> Choice:
    """Returns a context, the current one if none is named, with its cluster and user."""
    name = context or config.current_context
    if not name:
        raise ConnectionConfigError(
            f"no current-context is set: give --context, one of: {_names(config.contexts)}"
        )
    body = _get(config.contexts, name, "context")
    cluster = _get(config.clusters, str(body.get("cluster") or ""), "cluster")
    if not cluster.get("server"):
        raise ConnectionConfigError(f"the cluster of context {name} has no server")
    user = str(body.get("user") or "")
    return Choice(
        name=name,
        namespace=str(body.get("namespace") or "default"),
        cluster=cluster,
        user=_get(config.users, user, "user") if user else {},
    )


def _get(section: Mapping[str, Mapping[str, Any]], name: str, kind: str) -> Mapping[str, Any]:
    if name not in section:
        raise ConnectionConfigError(f"there is no {kind} {name!r}, only: {_names(section)}")
    return section[name]


def _names(section: Mapping[str, object]) -> str:
    names = sorted(section)
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (", ".join(names[:MAX_NAMES]) or "none") + more


def _entries(section: object, kind: str, where: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yields (name, body) of each entry of a section, the last entry first: in a dict made of them,
    the first of two entries with the same name then remains."""
    if not isinstance(section, list | None):
        raise ConnectionConfigError(f"{where}: {kind} is not a list")
    for entry in reversed(section or []):
        body = entry.get(kind[:-1]) if isinstance(entry, dict) else None
        if not (isinstance(body, dict | None) and isinstance(entry, dict) and entry.get("name")):
            raise ConnectionConfigError(f"{where}: an entry of {kind} has no name, or no fields")
        yield str(entry["name"]), {k: v for k, v in (body or {}).items() if v is not None}


def _absolute(body: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Makes paths absolute. In the file they are relative to its directory, as is a plugin's
    command that contains a slash."""
    for key in _PATHS:
        if body.get(key):
            body[key] = str(directory / str(body[key]))
    plugin = body.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        body["exec"] = {**plugin, "command": str(directory / plugin["command"])}
    return body
