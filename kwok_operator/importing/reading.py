"""Collects what is read of a cluster, from an API server or from files.

    importer (live), incidents/dump.py (files)  --take-->  Reading: Nodes, Workloads, Bounds, facts

Reading decides which namespaces are wanted, and passes each object to the collector of its kind.
Kinds must be added in the order of KINDS, as owners come before the objects that they own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.formats.untyped import text_at
from kwok_operator.importing.autoscalers import namespaces_of
from kwok_operator.importing.dumpfacts import DumpFacts
from kwok_operator.importing.ledger import Unread
from kwok_operator.importing.nodes.bounds import Bounds
from kwok_operator.importing.nodes.castatus import flags_of
from kwok_operator.importing.nodes.grouping import Nodes
from kwok_operator.importing.notes import Note
from kwok_operator.importing.pods.workloads import Workloads
from kwok_operator.importing.settings import ImportSettings

_NAMESPACE: Final = "Namespace"


@dataclass(slots=True)
class Reading:
    """Collects the objects that were read of a cluster, and notes on what could not be read."""

    settings: ImportSettings
    nodes: Nodes = field(default_factory=Nodes)
    workloads: Workloads = field(init=False)
    bounds: Bounds = field(init=False)
    unread: list[Unread] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """Notes that belong to no collector: kinds that aren't imported, files of different times."""
    autoscaler_flags: dict[str, str] = field(default_factory=dict)
    """The flags of cluster-autoscaler, from its pod or Deployment."""
    autoscalers: set[str] = field(default_factory=set)
    """The namespaces in which cluster-autoscaler runs."""
    anything: bool = False
    namespaces: set[str] = field(default_factory=set)
    """Namespaces that have any object, whether it is imported or not."""
    facts: DumpFacts = field(default_factory=DumpFacts)
    """Facts that only files have; empty if an API server is read."""

    def __post_init__(self) -> None:
        settings = self.settings
        self.workloads = Workloads(keep_images=settings.keep_images, hpas=settings.hpas)
        self.bounds = Bounds(max_size=settings.max_size)

    def take(self, kind: str, body: Any) -> bool:
        """Adds an object of a kind in KINDS, or a Node, if its namespace is wanted. Returns whether
        it was added. `kind` is a parameter, as items in the API server's lists don't have the field
        `kind`.
        """
        self.namespaces.add(_namespace_of(kind, body))
        wanted = self.wants(kind, body)
        if wanted:
            self._add(kind, body)
        return wanted

    def wants(self, kind: str, body: Any) -> bool:
        """Whether to import an object: the flags include its namespace and don't exclude it, or the
        object has none.
        """
        namespace, settings = _namespace_of(kind, body), self.settings
        if not namespace:
            return True
        wanted = not settings.namespaces or namespace in settings.namespaces
        return wanted and namespace not in settings.excluded_namespaces

    def add_autoscaler(self, kind: str, body: Any) -> None:
        """Adds what the flags of a Deployment or Pod show, if it runs cluster-autoscaler."""
        if (flags := flags_of(body)) is None:
            return
        # A flag without a value is a switch, whatever follows it.
        self.autoscaler_flags |= {
            name: "true" if value[:2] in ("", "--") else value for name, value in flags
        }
        # A snapshot has pods only; in a cluster, the Deployment has the same flags.
        if kind == "Deployment" or self.settings.dumps:
            self.bounds.add_autoscaler({**body, "kind": kind})
            self.autoscalers |= namespaces_of(body)

    def note_namespaces_not_there(self) -> Iterable[Unread]:
        """Notes and returns the namespaces that the user named, but in which nothing was found."""
        empty = [
            Unread(
                _NAMESPACE,
                f"/api/v1/namespaces/{name}",
                f"{flag} {name}: nothing was found in a namespace of this name; correct it",
                needed=flag == "--namespace",
            )
            for flag, names in (
                ("--namespace", self.settings.namespaces),
                ("--exclude-namespace", self.settings.excluded_namespaces),
            )
            for name in sorted(names - self.namespaces)
        ]
        self.unread += empty
        return empty

    def _add(self, kind: str, body: Any) -> None:
        if kind == "Node":
            self.nodes.add(body)
            return
        self.workloads.add(kind, body)
        if kind in ("Deployment", "Pod") and not self.settings.dumps:
            self.add_autoscaler(kind, body)


def _namespace_of(kind: str, body: Any) -> str:
    return text_at(body, "metadata", "name" if kind == _NAMESPACE else "namespace")
