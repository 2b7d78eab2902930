"""A cluster that isn't the rehearsal's own: it is checked first, and left as it was.

    check   refuses what would affect objects of others, before anything is written
    claim   creates a namespace as the sign of a rehearsal
    install checks that kwok is alive, then creates CRDs and rights
    marked  labels what the scenario creates, and keeps its pods on nodes of groups
    clear   deletes everything with the label (clearing.py), and nothing that was there before

Programs get a kubeconfig that knows only this cluster, so none acts on another by mistake.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import REHEARSAL_LABEL
from kwok_operator.errors import ConflictError, KwokOperatorError, NotFoundError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.untyped import as_map
from kwok_operator.kube.client import ACCEPT_METADATA, KubeClient
from kwok_operator.kube.config import load_connection
from kwok_operator.kube.resources import ApiResource, ApiResources, discover
from kwok_operator.kube.retry import RETRIES
from kwok_operator.rehearsal.clearing import Clearing, in_words
from kwok_operator.rehearsal.installing import crds, missing_grants, read_objects
from kwok_operator.rehearsal.judge.clocks import ClockOffset
from kwok_operator.rehearsal.kubectl import AsyncKubectl, CommandError
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.refusals import (
    BorrowedClusterError,
    check_claim,
    check_clock,
    check_crds,
    check_groups,
    check_kwok,
    check_operators,
    check_rights,
    check_selectors,
    scout,
)
from kwok_operator.rehearsal.scenario.borrowing import (
    PART_OF,
    PART_OF_LABEL,
    REHEARSAL_NAMESPACE,
    Turn,
    marked,
    workload_objects,
)
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.rehearsal.settings import RehearseSettings
from kwok_operator.signals import to_its_end
from kwok_operator.userfiles import write_secretly

_FEW: Final = 5


class BorrowedCluster:
    """The cluster that --kubeconfig or --context names. `folder` is the folder of the scenario."""

    def __init__(
        self, client: KubeClient, kubectl: AsyncKubectl, scenario: Scenario, *, folder: Path
    ) -> None:
        self._client = client
        self._kubectl = kubectl
        self._scenario = scenario
        self._folder = folder
        self.clock: ClockOffset | None = None
        """The offset of the cluster's clock. None before `check`, or if answers have no Date."""

    def marked(self, manifest: Mapping[str, Any]) -> Manifest:
        return marked(manifest, self._scenario.name)

    async def objects_of(self, sources: Sequence[ApplySource]) -> list[Manifest]:
        """Returns the objects to apply with the rehearsal's label, without namespaces that exist
        already.

        Raises BorrowedClusterError if another object with the same name exists already.
        """
        objects = await self.read(sources)
        there = await self._in_the_way(await discover(self._client), objects)
        return [
            self.marked(each)
            for each in objects
            if each.get("kind") != "Namespace" or _name(each) not in there
        ]

    async def to_create(self, objects: Sequence[Manifest]) -> list[Manifest]:
        """Returns the objects with the rehearsal's label. Raises BorrowedClusterError if an object
        with the same name exists already.
        """
        await self._in_the_way(await discover(self._client), objects)
        return [self.marked(each) for each in objects]

    async def read(self, sources: Sequence[ApplySource]) -> list[Manifest]:
        """Reads the objects to apply. Raises CommandError."""
        return await read_objects(
            self._kubectl, sources, folder=self._folder, label=self._scenario.name
        )

    async def check(self, manifests: Sequence[Manifest], applied: Sequence[Manifest]) -> None:
        """Checks that `manifests` can be installed, and that the scenario can be played here.

        Raises BorrowedClusterError, ApiError, CommandError. Nothing is written.
        """
        served = await discover(self._client)
        objects = [*applied, *workload_objects(self._scenario)]
        await check_rights(self._client, served, objects)
        if missing := await missing_grants(self._client, manifests):
            raise BorrowedClusterError(
                f"this account may not grant the operator what the scenario needs:"
                f" {', '.join(map(str, missing))}. Use one that may, such as a cluster-admin's, or"
                " leave --kubeconfig out"
            )
        await check_claim(self._client)
        self.clock = await check_clock(self._client)
        await check_operators(self._client)
        await check_crds(self._client, crds(manifests))
        await check_groups(self._client, served)
        await self._in_the_way(served, objects)
        await check_selectors(self._client, objects)
        for number, step in enumerate(self._scenario.timeline):
            target = step.scale or step.patch or step.delete
            if target is not None and await self._is_there(target.what, target.namespace):
                raise BorrowedClusterError(
                    f"timeline[{number}], {step.action}: {target.what} in namespace"
                    f" {target.namespace} is there already, and a rehearsal changes nothing of"
                    " yours; apply a copy of another name in the scenario, and name that"
                )

    async def claim(self) -> None:
        """Creates the namespace that keeps other rehearsals away. It is the first write."""
        body = self.marked(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": REHEARSAL_NAMESPACE, "labels": {PART_OF_LABEL: PART_OF}},
            }
        )
        try:
            await self._client.request("POST", "/api/v1/namespaces", body=body)
        except ConflictError:
            await check_claim(self._client)
            raise

    async def install(self, manifests: Iterable[Manifest]) -> None:
        """Checks that kwok is alive, then creates the objects in this order. Existing objects stay
        unchanged.
        """
        await check_kwok(self._client, self.marked(scout()))
        served = await discover(self._client)
        for each in manifests:
            resource = served.of(each)
            assert resource is not None, "kinds that every cluster has"
            path = resource.path(each["metadata"].get("namespace", ""))
            try:
                await self._client.request("POST", path, body=self.marked(each), retries=RETRIES)
            except ConflictError:
                continue

    async def _in_the_way(self, served: ApiResources, objects: Iterable[Manifest]) -> set[str]:
        """Returns the names of those Namespaces among `objects` that exist in the cluster. Raises
        BorrowedClusterError if any other of the objects exists there. Ignores what is
        there with the rehearsal's label.
        """
        wanted: dict[tuple[ApiResource, str], dict[str, Manifest]] = {}
        for each in objects:
            resource = served.of(each)
            if resource is not None:
                place = as_map(each.get("metadata")).get("namespace") or "default"
                key = resource, str(place) if resource.namespaced else ""
                wanted.setdefault(key, {})[_name(each)] = each
        namespaces, others = set[str](), list[str]()
        for (resource, place), named in wanted.items():
            for metadata in await self._present(resource, place, named):
                if REHEARSAL_LABEL in as_map(metadata.get("labels")):
                    continue
                if resource.kind == "Namespace":
                    namespaces.add(metadata["name"])
                else:
                    others.append(f"{resource.kind} {place and f'{place}/'}{metadata['name']}")
        if others:
            raise BorrowedClusterError(
                f"there already: {in_words(others)}; a rehearsal changes nothing of yours: delete"
                " what isn't needed, or rename it in the scenario"
            )
        return namespaces

    async def _present(
        self, resource: ApiResource, namespace: str, names: Iterable[str]
    ) -> list[dict[str, Any]]:
        names = set(names)
        if len(names) > _FEW:
            there = await resource.metadata(self._client)
            return [
                each
                for each in there
                if each["name"] in names and each.get("namespace", "") == namespace
            ]
        present = []
        for name in sorted(names):
            try:
                answer = await self._client.request(
                    "GET", resource.path(namespace, name), accept=ACCEPT_METADATA, retries=RETRIES
                )
            except NotFoundError:
                continue
            present.append(json.loads(answer)["metadata"])
        return present

    async def _is_there(self, what: str, namespace: str) -> bool:
        try:
            return bool(
                await self._kubectl(
                    "get", what, f"--namespace={namespace}", "--ignore-not-found", "--output=name"
                )
            )
        except CommandError:
            return False  # the cluster doesn't serve this kind yet


@asynccontextmanager
async def borrow(
    cluster: BorrowedCluster,
    manifests: Sequence[Manifest],
    *,
    applied: Sequence[Manifest],
    clearing: Clearing,
    keep: bool,
    report: Report,
) -> AsyncIterator[None]:
    """Checks and claims the cluster, and installs `manifests`. After the block, clears the cluster
    unless `keep` is set.

    Raises KwokOperatorError, also if only the clearing failed.
    """
    failing = True
    await cluster.check(manifests, applied)
    try:
        await to_its_end(cluster.claim())
    except asyncio.CancelledError:  # to_its_end has completed the claim nevertheless
        await clear(clearing, Turn, report=report)
        raise
    try:
        await cluster.install(manifests)
        yield
        failing = False
    finally:
        if keep:
            report("what was made stays; `kwok-operator rehearse --clear` takes it away")
        elif not await clear(clearing, Turn, report=report) and not failing:
            raise BorrowedClusterError(
                "the cluster is not as it was before; `kwok-operator rehearse --clear` takes away"
                " what is left, which is told above"
            )


async def clear(clearing: Clearing, turns: Iterable[Turn], *, report: Report) -> bool:
    """Deletes what the rehearsal created, even if interrupted meanwhile. Reports what is left, and
    why. Returns whether everything is gone.
    """
    return await to_its_end(_clear(clearing, turns, report=report))


async def _clear(clearing: Clearing, turns: Iterable[Turn], *, report: Report) -> bool:
    try:
        left = await clearing.clear(turns)
    except KwokOperatorError as error:
        report(f"not all could be taken away: {error}; try `kwok-operator rehearse --clear`")
        return False
    if left:
        report(f"still there: {in_words(left)}; try `kwok-operator rehearse --clear`")
    return not left


@asynccontextmanager
async def only_this_cluster(kubectl: Path, settings: RehearseSettings) -> AsyncIterator[Path]:
    """Yields a kubeconfig that knows only this cluster. Raises ConnectionConfigError, CommandError.

    Objects without a namespace go into `default`, whatever namespace the context has.
    """
    # KubeClient's errors explain best what is wrong with a kubeconfig.
    await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    given = {"KUBECONFIG": settings.kubeconfig} if settings.kubeconfig else {}
    view = AsyncKubectl(kubectl, {**os.environ, **given}, settings.context)
    text = await view("config", "view", "--minify", "--flatten", "--raw", "--output=json")
    config = json.loads(text)
    (context,) = config["contexts"]
    context["context"]["namespace"] = "default"
    with tempfile.TemporaryDirectory(prefix="kwok-rehearsal-") as folder:
        path = Path(folder) / "kubeconfig"
        write_secretly(path, json.dumps(config).encode())
        yield path


async def clear_cluster(*, kubeconfig: str | None, context: str | None, report: Report) -> bool:
    """Deletes what rehearsals have left in a cluster. Returns whether nothing is left."""
    connection = await load_connection(kubeconfig=kubeconfig, context=context)
    async with KubeClient(connection=connection) as client:
        return await _clear(Clearing(client, report=report), Turn, report=report)


def _name(manifest: Mapping[str, Any]) -> str:
    return str(as_map(manifest.get("metadata")).get("name"))
