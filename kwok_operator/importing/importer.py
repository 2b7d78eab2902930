"""Imports a cluster: reads it, and writes the folder that recreates it in another cluster.

    ClusterClient, or files (incidents/)  -->  Reading  -->  manifests, notes  -->  folder.write

If a kind can't be read, this is noted, and the other kinds are imported.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kwok_operator.constants import NODES_PATH
from kwok_operator.errors import KwokOperatorError, SettingsError, one_line
from kwok_operator.importing import folder
from kwok_operator.importing.anonymizing import Names, anonymized, check_table
from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.autoscalers import read_bounds
from kwok_operator.importing.cluster import ClusterClient, Sleep, Unreadable, open_cluster
from kwok_operator.importing.incidents.deciding import read_decision
from kwok_operator.importing.incidents.dump import count_line, read_dump
from kwok_operator.importing.incidents.placement import ImportedPlacement, as_json, placement_of
from kwok_operator.importing.incidents.replaycopy import copy_of
from kwok_operator.importing.incidents.replaying import ReplayCopy, replay_of
from kwok_operator.importing.incidents.scenario import ScenarioParts, scenario_of
from kwok_operator.importing.kinds import HPA, KINDS
from kwok_operator.importing.ledger import Ledger, Unread, ledger_of
from kwok_operator.importing.nodes import nodepools
from kwok_operator.importing.nodes.prices import Prices, read_prices
from kwok_operator.importing.notes import Note, Reason
from kwok_operator.importing.reading import Reading
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.reporter import Reporter
from kwok_operator.signals import cancelled_by_signals
from kwok_operator.userfiles import read_bytes

_Copied = Callable[[Iterable[str], Anonymizer | None], ReplayCopy]


class NoClusterError(KwokOperatorError):
    """Nothing of the cluster can be read."""


async def run_import(
    settings: ImportSettings, *, reporter: Reporter, sleep: Sleep = asyncio.sleep
) -> Ledger:
    """Imports a cluster and returns the ledger. Raises KwokOperatorError if nothing was written."""
    folder.check_output(settings.output)
    if settings.anonymize:
        check_table(settings)
    prices = _prices(settings.prices)
    with cancelled_by_signals():
        if settings.dumps:
            reading = Reading(settings)
            await read_dump(settings.dumps, reading, reporter=reporter)
        else:
            reading = await _read_cluster(settings, reporter, sleep)
        for nowhere in reading.note_namespaces_not_there():
            reporter.say(one_line(nowhere.reason))
        decision = await read_decision(settings.logs, reading, reporter=reporter)
        # There is no await from here on, so a signal can't interrupt the writing.
        manifests, notes, read, placement, copied = _made(reading, settings, prices)
        for flags in sorted({n.detail for n in notes if n.reason is Reason.SEVERAL_RACKS}):
            reporter.say(
                one_line(f"a group has nodes of several racks; to keep racks apart: {flags}")
            )
        unread, anonymizer = reading.unread, None
        if settings.anonymize:
            names = Names(settings.output, settings.anonymize_table)
            anonymizer = names.anonymizer
            manifests, notes, unread, placement = anonymized(
                manifests, notes, unread, placement, anonymizer
            )
        parts = ScenarioParts()
        if decision is not None and decision.known:
            parts = replay_of(decision, copied(decision.named, anonymizer))
            reporter.say(parts.teaches)
        if settings.anonymize:
            names.save()
        ledger = ledger_of(read=read, manifests=manifests, notes=notes, unread=unread)
        reporter.say(f"writing {settings.output}")
        files = folder.files_of(manifests, ledger)
        scenario = scenario_of(files, placement=placement, parts=parts)
        files |= folder.scenario_files(scenario, as_json(placement))
        folder.write(settings.output, files)
    return ledger


async def _read_cluster(settings: ImportSettings, reporter: Reporter, sleep: Sleep) -> Reading:
    async with open_cluster(
        kubeconfig=settings.kubeconfig,
        context=settings.context,
        requests_per_second=settings.requests_per_second,
        sleep=sleep,
        log=lambda line: reporter.say(one_line(line)),
    ) as cluster:
        reporter.say(one_line(f"reading {cluster.description}"))
        return await _read(cluster, settings, reporter)


async def _read(cluster: ClusterClient, settings: ImportSettings, reporter: Reporter) -> Reading:
    try:
        await cluster.get("/version")
    except Unreadable as error:
        if error.status not in (403, 404):
            raise NoClusterError(f"{cluster.description}: {error.reason}") from error
    reading = Reading(settings)
    await _kind(cluster, reading, reporter, kind="Node", paths=[NODES_PATH])
    for kind in KINDS.values():
        # Permissions in the namespaces that the user named are enough.
        namespaces = sorted(settings.namespaces) if kind.namespaced else []
        paths = [kind.collection(each) for each in namespaces] or [kind.path]
        await _kind(cluster, reading, reporter, kind=kind.name, paths=paths)
    if not reading.anything and reading.unread:
        raise NoClusterError(f"nothing could be read: {reading.unread[0].reason}")
    reading.unread += await read_bounds(cluster, reading.bounds, namespaces=reading.autoscalers)
    return reading


async def _kind(
    cluster: ClusterClient,
    reading: Reading,
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
                count += sum(reading.take(kind, item) for item in page)
                reporter.update(count_line(kind, count))
        except Unreadable as error:
            served = error.status != 404
            needed = served and (kind != HPA or reading.settings.hpas)
            reading.unread.append(Unread(kind, path, error.reason, needed=needed))
            reading.workloads.not_whole(kind)
            if served:
                reporter.say(one_line(f"{kind}: {error.reason}"))
        else:
            reading.anything = True
    reporter.say(count_line(kind, count))


def _made(
    reading: Reading, settings: ImportSettings, prices: Prices | None
) -> tuple[list[dict[str, Any]], list[Note], Mapping[str, int], ImportedPlacement, _Copied]:
    grouped = reading.nodes.finish(group_by=settings.group_by, prices=prices, bounds=reading.bounds)
    imported = reading.workloads.finish(places=grouped.places)
    node_pools = reading.bounds.node_pools
    pools, about_pools = node_pools.finish(grouped.labels)
    placement, about_places = placement_of(
        imported.locations, nth=grouped.nth, barriers=grouped.barriers
    )
    notes = [*reading.notes, *grouped.notes, *about_pools, *imported.notes, *about_places]
    read = {"Node": grouped.read, **imported.read}
    if node_pools.read:
        read[nodepools.KIND] = node_pools.read

    def copied(ca_names: Iterable[str], anonymizer: Anonymizer | None) -> ReplayCopy:
        scaled = {m["metadata"]["name"] for m in grouped.manifests if "autoscaling" in m["spec"]}
        return copy_of(
            [group for group in grouped.groups if group.name in scaled],
            ca_names=ca_names,
            nth=grouped.nth,
            workloads=imported.locations,
            anonymizer=anonymizer,
        )

    return [*grouped.manifests, *pools, *imported.manifests], notes, read, placement, copied


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
