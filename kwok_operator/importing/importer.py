"""Reads a cluster, and writes the folder that brings it into another.

    Cluster  --pages-->  Nodes, Workloads, Bounds (core/importing)  -->  manifests, notes
    manifests, notes, what could not be read  -->  folder.write

One kind that can't be read is told, and the others are imported. What an object becomes is decided
in core/importing; nothing is written before all has been read.
"""

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import NODES_PATH
from kwok_operator.core.importing.ledger import Ledger, Unread, ledger_of
from kwok_operator.core.importing.nodes.bounds import Bounds
from kwok_operator.core.importing.nodes.grouping import Nodes
from kwok_operator.core.importing.nodes.prices import Prices, read_prices
from kwok_operator.core.importing.notes import Note
from kwok_operator.core.importing.pods.workloads import KINDS, Workloads
from kwok_operator.errors import KwokOperatorError, SettingsError
from kwok_operator.importing import folder
from kwok_operator.importing.anonymizing import anonymized, check_table
from kwok_operator.importing.autoscalers import namespaces_of, read_bounds
from kwok_operator.importing.cluster import Cluster, Sleep, Unreadable, open_cluster
from kwok_operator.importing.progress import Progress
from kwok_operator.importing.settings import ImportSettings

_NAMESPACE: Final = "Namespace"


class NoClusterError(KwokOperatorError):
    """Nothing could be read at all."""


@dataclass(slots=True)
class Reading:
    """What has been read, and what could not be."""

    nodes: Nodes
    workloads: Workloads
    bounds: Bounds = field(default_factory=Bounds)
    unread: list[Unread] = field(default_factory=list)
    autoscalers: set[str] = field(default_factory=set)
    """Namespaces of cluster-autoscaler."""
    anything: bool = False

    def add(self, kind: str, body: Any) -> None:
        """An item of a list, which doesn't say its kind."""
        if kind == "Node":
            self.nodes.add(body)
            return
        self.workloads.add(kind, body)
        if kind == "Deployment" and isinstance(body, Mapping):
            deployment = {**body, "kind": kind}
            self.bounds.add_autoscaler(deployment)
            self.autoscalers |= namespaces_of(deployment)


async def run_import(
    settings: ImportSettings, *, progress: Progress, sleep: Sleep = asyncio.sleep
) -> Ledger:
    """Raises KwokOperatorError where nothing was written."""
    folder.check_output(settings.output)
    if settings.anonymize:
        check_table(settings)
    prices = _prices(settings.prices)
    with _ended_by_sigterm():
        async with open_cluster(
            kubeconfig=settings.kubeconfig,
            context=settings.context,
            requests_per_second=settings.requests_per_second,
            sleep=sleep,
            tell=progress.say,
        ) as cluster:
            progress.say(f"reading {cluster.description}")
            reading = await _read(cluster, settings, progress)
    manifests, notes, read = _made(reading, settings, prices)
    unread = reading.unread
    if settings.anonymize:
        manifests, notes, unread = anonymized(manifests, notes, unread, settings)
    ledger = ledger_of(read=read, manifests=manifests, notes=notes, unread=unread)
    progress.say(f"writing {settings.output}")
    folder.write(settings.output, folder.files_of(manifests, ledger))
    return ledger


async def _read(cluster: Cluster, settings: ImportSettings, progress: Progress) -> Reading:
    try:
        await cluster.get("/version")
    except Unreadable as error:
        if error.status not in (403, 404):
            raise NoClusterError(f"{cluster.description}: {error.reason}") from error
    workloads = Workloads(keep_images=settings.keep_images)
    reading = Reading(nodes=Nodes(), workloads=workloads)

    await _kind(cluster, reading, settings, progress, kind="Node", paths=[NODES_PATH])
    for each in KINDS:
        paths = _paths(each.path, each.namespaced, sorted(settings.namespaces))
        await _kind(cluster, reading, settings, progress, kind=each.kind, paths=paths)
    if not reading.anything and reading.unread:
        raise NoClusterError(f"nothing could be read: {reading.unread[0].reason}")
    reading.unread += await read_bounds(cluster, reading.bounds, namespaces=reading.autoscalers)
    return reading


async def _kind(
    cluster: Cluster,
    reading: Reading,
    settings: ImportSettings,
    progress: Progress,
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
                    if _wanted(kind, item, settings):
                        reading.add(kind, item)
                        count += 1
                progress.show(kind, count)
        except Unreadable as error:
            served = error.status != 404
            reading.unread.append(Unread(kind, path, error.reason, needed=served))
            if served:
                progress.say(f"{kind}: {error.reason}")
        else:
            reading.anything = True
    progress.done(kind, count)


def _paths(path: str, namespaced: bool, namespaces: Sequence[str]) -> list[str]:
    """Of the namespaces that were asked for: rights in these are enough then."""
    if not namespaced or not namespaces:
        return [path]
    above, _, resource = path.rpartition("/")
    return [f"{above}/namespaces/{namespace}/{resource}" for namespace in namespaces]


def _wanted(kind: str, body: Any, settings: ImportSettings) -> bool:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    if not isinstance(metadata, Mapping):
        return True  # it will be told that it is none
    namespace = metadata.get("name" if kind == _NAMESPACE else "namespace")
    if not isinstance(namespace, str) or not namespace:
        return True
    wanted = not settings.namespaces or namespace in settings.namespaces
    return wanted and namespace not in settings.excluded_namespaces


def _made(
    reading: Reading, settings: ImportSettings, prices: Prices | None
) -> tuple[list[dict[str, Any]], list[Note], Mapping[str, int]]:
    grouped = reading.nodes.finish(group_by=settings.group_by, prices=prices, bounds=reading.bounds)
    imported = reading.workloads.finish(groups_of=grouped.groups_of)
    notes = [*grouped.notes, *imported.notes]
    read = {"Node": grouped.read, **imported.read}
    return [*grouped.manifests, *imported.manifests], notes, read


def _prices(path: Path | None) -> Prices | None:
    if path is None:
        return None
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise SettingsError(f"--prices: {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"--prices: {path} is not UTF-8 text") from error
    return read_prices(text, where=str(path))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the reading as SIGINT does: in order."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, ValueError, RuntimeError):  # not in every thread
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGTERM)
