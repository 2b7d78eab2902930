"""Imports a cluster: reads it, and writes the folder that recreates it in another.

    ClusterClient  --pages-->  Nodes, Workloads, Bounds  -->  manifests, notes  -->  folder.write

A kind that can't be read is noted, and the others are imported.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import KwokOperatorError, SettingsError, one_line
from kwok_operator.formats.untyped import text_at
from kwok_operator.importing import folder
from kwok_operator.importing.anonymizing import Names, anonymized, check_table
from kwok_operator.importing.autoscalers import namespaces_of, read_bounds
from kwok_operator.importing.cluster import ClusterClient, Sleep, Unreadable, open_cluster
from kwok_operator.importing.incidents.placement import ImportedPlacement, as_json, placement_of
from kwok_operator.importing.incidents.scenario import ScenarioParts, scenario_of
from kwok_operator.importing.kinds import HPA, KINDS
from kwok_operator.importing.ledger import Ledger, Unread, ledger_of
from kwok_operator.importing.nodes import nodepools
from kwok_operator.importing.nodes.bounds import Bounds
from kwok_operator.importing.nodes.grouping import Nodes
from kwok_operator.importing.nodes.prices import Prices, read_prices
from kwok_operator.importing.notes import Note
from kwok_operator.importing.pods.workloads import Workloads
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.reporter import Reporter
from kwok_operator.signals import cancelled_by_signals
from kwok_operator.userfiles import read_bytes

_NAMESPACE: Final = "Namespace"


class NoClusterError(KwokOperatorError):
    """The cluster can't be read at all."""


@dataclass(slots=True)
class Reading:
    """Collects what has been read of a cluster, and notes on what could not be."""

    nodes: Nodes
    workloads: Workloads
    bounds: Bounds = field(default_factory=Bounds)
    unread: list[Unread] = field(default_factory=list)
    autoscalers: set[str] = field(default_factory=set)
    """Namespaces in which cluster-autoscaler was found."""
    anything: bool = False
    namespaces: set[str] = field(default_factory=set)
    """Namespaces with any object, whether it is imported or not."""

    def add(self, kind: str, body: Any) -> None:
        """Adds an item of a list; items don't state their kind."""
        if kind == "Node":
            self.nodes.add(body)
            return
        self.workloads.add(kind, body)
        if kind == "Deployment" and isinstance(body, Mapping):
            deployment = {**body, "kind": kind}
            self.bounds.add_autoscaler(deployment)
            self.autoscalers |= namespaces_of(deployment)


async def run_import(
    settings: ImportSettings, *, reporter: Reporter, sleep: Sleep = asyncio.sleep
) -> Ledger:
    """Imports a cluster and returns the ledger. Raises KwokOperatorError if nothing was written."""
    folder.check_output(settings.output)
    if settings.anonymize:
        check_table(settings)
    prices = _prices(settings.prices)
    with cancelled_by_signals():
        async with open_cluster(
            kubeconfig=settings.kubeconfig,
            context=settings.context,
            requests_per_second=settings.requests_per_second,
            sleep=sleep,
            log=lambda line: reporter.say(one_line(line)),
        ) as cluster:
            reporter.say(one_line(f"reading {cluster.description}"))
            reading = await _read(cluster, settings, reporter)
        # What a signal finds being written is brought to its end.
        manifests, notes, read, placement = _made(reading, settings, prices)
        unread = reading.unread
        if settings.anonymize:
            names = Names(settings.output, settings.anonymize_table)
            manifests, notes, unread, placement = anonymized(
                manifests, notes, unread, placement, names.anonymizer
            )
            names.save()
        ledger = ledger_of(read=read, manifests=manifests, notes=notes, unread=unread)
        reporter.say(f"writing {settings.output}")
        files = folder.files_of(manifests, ledger)
        scenario = scenario_of(files, placement=placement, parts=ScenarioParts())
        files |= folder.scenario_files(scenario, as_json(placement))
        folder.write(settings.output, files)
    return ledger


async def _read(cluster: ClusterClient, settings: ImportSettings, reporter: Reporter) -> Reading:
    try:
        await cluster.get("/version")
    except Unreadable as error:
        if error.status not in (403, 404):
            raise NoClusterError(f"{cluster.description}: {error.reason}") from error
    workloads = Workloads(keep_images=settings.keep_images, hpas=settings.hpas)
    reading = Reading(Nodes(), workloads, Bounds(max_size=settings.max_size))

    await _kind(cluster, reading, settings, reporter, kind="Node", paths=[NODES_PATH])
    for kind in KINDS.values():
        # Rights in the namespaces that the user named are enough.
        namespaces = sorted(settings.namespaces) if kind.namespaced else []
        paths = [kind.collection(each) for each in namespaces] or [kind.path]
        await _kind(cluster, reading, settings, reporter, kind=kind.name, paths=paths)
    if not reading.anything and reading.unread:
        raise NoClusterError(f"nothing could be read: {reading.unread[0].reason}")
    for nowhere in _not_there(reading, settings):
        reporter.say(one_line(nowhere.reason))
        reading.unread.append(nowhere)
    reading.unread += await read_bounds(cluster, reading.bounds, namespaces=reading.autoscalers)
    return reading


async def _kind(
    cluster: ClusterClient,
    reading: Reading,
    settings: ImportSettings,
    reporter: Reporter,
    *,
    kind: str,
    paths: Sequence[str],
) -> None:
    count = 0
    for path in paths:
        before = count
        try:
            async for page in cluster.pages(path):
                count = before if page.first else count
                for item in page:
                    namespace = _namespace_of(kind, item)
                    reading.namespaces.add(namespace)
                    if _wanted(namespace, settings):
                        reading.add(kind, item)
                        count += 1
                reporter.update(_counted(kind, count))
        except Unreadable as error:
            served = error.status != 404
            needed = served and (kind != HPA or settings.hpas)
            reading.unread.append(Unread(kind, path, error.reason, needed=needed))
            reading.workloads.not_whole(kind)
            if served:
                reporter.say(one_line(f"{kind}: {error.reason}"))
        else:
            reading.anything = True
    reporter.say(_counted(kind, count))


def _counted(kind: str, count: int) -> str:
    return f"  {count:>9,}  {kind}"


def _namespace_of(kind: str, body: Any) -> str:
    """Returns an object's namespace, or a Namespace's own name; empty if there is none."""
    return text_at(body, "metadata", "name" if kind == _NAMESPACE else "namespace")


def _wanted(namespace: str, settings: ImportSettings) -> bool:
    if not namespace:
        return True
    wanted = not settings.namespaces or namespace in settings.namespaces
    return wanted and namespace not in settings.excluded_namespaces


def _not_there(reading: Reading, settings: ImportSettings) -> list[Unread]:
    """Returns the namespaces that the user named, but in which nothing was found."""
    return [
        Unread(
            _NAMESPACE,
            f"/api/v1/namespaces/{name}",
            f"{flag} {name}: nothing was found in a namespace of this name; correct it",
            needed=flag == "--namespace",
        )
        for flag, names in (
            ("--namespace", settings.namespaces),
            ("--exclude-namespace", settings.excluded_namespaces),
        )
        for name in sorted(names - reading.namespaces)
    ]


def _made(
    reading: Reading, settings: ImportSettings, prices: Prices | None
) -> tuple[list[dict[str, Any]], list[Note], Mapping[str, int], ImportedPlacement]:
    grouped = reading.nodes.finish(group_by=settings.group_by, prices=prices, bounds=reading.bounds)
    imported = reading.workloads.finish(places=grouped.places)
    node_pools = reading.bounds.node_pools
    pools, about_pools = node_pools.finish(grouped.labels)
    placement, about_places = placement_of(
        imported.standing, nth=grouped.nth, barriers=grouped.barriers
    )
    notes = [*grouped.notes, *about_pools, *imported.notes, *about_places]
    read = {"Node": grouped.read, **imported.read}
    if node_pools.read:
        read[nodepools.KIND] = node_pools.read
    return [*grouped.manifests, *pools, *imported.manifests], notes, read, placement


def _prices(path: Path | None) -> Prices | None:
    if path is None:
        return None
    try:
        text = read_bytes(path, given=True).decode()
    except OSError as error:
        raise SettingsError(f"--prices: {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"--prices: {path} is not UTF-8 text") from error
    return read_prices(text, where=str(path))
