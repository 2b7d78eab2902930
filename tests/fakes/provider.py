"""A provider config at work without an API server: groups are written to a store by script.

    world = ProviderWorld()
    async with world.running():
        world.configure(config())
        await world.settled()

Writes are seen a moment later, as by a watch, and may be refused. `settled()` returns when all that
has changed has been looked at.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, cast
from unittest.mock import patch

from pydantic import ValidationError

from kwok_operator.errors import KwokOperatorError
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator.restarting import keep_running
from kwok_operator.sources import livenodes
from kwok_operator.sources.configmaps import ConfigMap, ConfigMaps
from kwok_operator.sources.groupwriter import Applied, DerivedGroupWriter
from kwok_operator.sources.livenodes import LiveNodes, NodeLink
from kwok_operator.sources.nodechoice import live_node
from kwok_operator.sources.provider import SETTLE, Provider
from tests.fakes.recording import Clock, RecordedEvents, Said
from tests.fakes.sources import body_of
from tests.fakes.store import Json, merge_patch
from tests.fakes.waiting import until

CONFIG = "kwok-provider-config"
TEMPLATES = "templates"
NOW = "2026-01-02T03:04:05Z"


def config(**fields: Any) -> str:
    """Groups by the label `pool`, of the ConfigMap `templates`, unless said otherwise."""
    body = {
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "nodegroups": {"fromNodeLabelKey": "pool"},
        "configmap": {"name": TEMPLATES},
        **fields,
    }
    return json.dumps(body)


def template(pool: str, *, cpu: str = "8", **annotations: str) -> Json:
    """A Node of one group; annotations are the counts of cluster-autoscaler's provider."""
    prefix = "cluster-autoscaler.kwok.nodegroup"
    counts = {f"{prefix}/{key}-count": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"{pool}-template",
            "labels": {"pool": pool},
            "annotations": counts,
        },
        "status": {
            "capacity": {"cpu": cpu, "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def documents(*nodes: Json) -> str:
    return "\n---\n".join(json.dumps(node) for node in nodes)


class ScriptedGroups:
    """In the place of GroupWriter, and of the API server behind it."""

    def __init__(self, world: "ProviderWorld") -> None:
        self._world = world
        self.bodies: dict[str, Json] = {}
        self.reads = 0
        self.writes: list[tuple[str, str]] = []
        self.uids: list[str | None] = []
        """Which object each apply was meant for."""
        self.conflicts: dict[str, tuple[str, ...]] = {}
        self.refusals: dict[str, KwokOperatorError] = {}
        """Raised by each apply to that group."""
        self.troubles: list[KwokOperatorError] = []
        """Raised by the next requests, one each."""
        self.unseen = 0
        self._version = 100

    def put(self, name: str, patch: Mapping[str, Any]) -> Json:
        """Somebody writes a group, and everybody sees it a moment later."""
        self._version += 1
        fresh = {"metadata": {"name": name, "uid": f"uid-{self._version}"}, "spec": {}}
        body: Json = merge_patch(self.bodies.get(name, fresh), patch)
        body["metadata"]["resourceVersion"] = str(self._version)
        self.bodies[name] = body
        self._tell(name, copy.deepcopy(body))
        return copy.deepcopy(body)

    def remove(self, name: str) -> None:
        body = self.bodies.pop(name)
        self._tell(name, body, gone=True)

    def _tell(self, name: str, body: Json, *, gone: bool = False) -> None:
        self.unseen += 1

        def seen() -> None:
            self.unseen -= 1
            if gone:
                self._world.store.remove(name=name, uid=body["metadata"]["uid"])
            else:
                with suppress(ValidationError):
                    self._world.store.put(Group.parse(body))
            self._world.provider.group_changed(name)

        asyncio.get_running_loop().call_soon(seen)

    def _trouble(self) -> None:
        if self.troubles:
            raise self.troubles.pop(0)

    async def read(self, name: str) -> Json | None:
        self._trouble()
        self.reads += 1
        return copy.deepcopy(self.bodies.get(name))

    async def apply(self, manifest: Mapping[str, Any], *, uid: str | None) -> Applied:
        self._trouble()
        name = manifest["metadata"]["name"]
        self.writes.append(("apply", name))
        self.uids.append(uid)
        if name in self.refusals:
            raise self.refusals[name]
        # What was applied before and isn't now is taken away.
        spec: Json = {"template": None, "autoscaling": None, "guardTaint": None}
        if name in self.bodies:
            self.bodies[name] = merge_patch(self.bodies[name], {"spec": spec})
        return Applied(self.put(name, manifest), self.conflicts.get(name, ()))

    async def set_first_target(self, name: str, *, uid: str, size: int) -> None:
        self._trouble()
        self.writes.append(("first target", name))
        assert self.bodies[name]["metadata"]["uid"] == uid
        mark = {"kwok-operator.io/desired-count-applied": str(size)}
        self.put(name, {"spec": {"targetSize": size}, "metadata": {"annotations": mark}})

    async def annotate(self, name: str, *, uid: str, annotations: Mapping[str, str | None]) -> None:
        self._trouble()
        self.writes.append(("annotate", name))
        assert self.bodies[name]["metadata"]["uid"] == uid
        self.put(name, {"metadata": {"annotations": dict(annotations)}})

    async def delete(self, name: str, *, uid: str) -> None:
        self._trouble()
        self.writes.append(("delete", name))
        assert self.bodies[name]["metadata"]["uid"] == uid
        self.remove(name)


class ScriptedLink:
    """In the place of NodeLink: the nodes are those that a test puts there."""

    def __init__(self, world: "ProviderWorld", *, place: str) -> None:
        self.place = place
        self.nodes = LiveNodes(place=place, changed=lambda _: world.provider.changed())
        self.problem: str | None = None
        self.started = False

    def start(self) -> None:
        self.started = True


class CountingMetrics(Metrics):
    """Knows how often a pass has come to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def provider_problems(self, counts: Mapping[str, int]) -> None:
        super().provider_problems(counts)
        self.passes += 1


class ProviderWorld:
    """See the module."""

    def __init__(self) -> None:
        self.events = RecordedEvents()
        self.metrics = CountingMetrics()
        self.store = GroupStore(clock=Clock())
        self.configmaps = ConfigMaps(
            namespace="ops",
            recorder=self.events.as_recorder(),
            changed=lambda name: self.provider.configmap_changed(name),
        )
        self.link = ScriptedLink(self, place="this cluster")
        self.far = ScriptedLink(self, place="the cluster of Secret prod")
        """The one that a config names."""
        self.groups = ScriptedGroups(self)
        self.begun = self._told = 0
        """Passes."""
        self.naps: list[float] = []
        """Other waits: before it is run again."""
        self._version = 0
        self.provider = Provider(
            name=CONFIG,
            configmaps=self.configmaps,
            local=cast(NodeLink, self.link),
            fleet=lambda cluster: cast(NodeLink, self.far if cluster else self.link),
            groups=self.store,
            writer=cast(DerivedGroupWriter, self.groups),
            recorder=self.events.as_recorder(),
            metrics=self.metrics,
            now=lambda: NOW,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        if seconds == SETTLE:
            self.begun, self._told = self.begun + 1, self.metrics.passes
            await asyncio.sleep(0)
        else:
            self.metrics.passes = self._told  # of a pass that has failed, it is no other
            await asyncio.sleep(0)
            self.naps.append(seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        with patch.object(livenodes, "SYNC_WITHIN", 0.01):
            kept = keep_running(
                "provider config",
                self.provider.run,
                clock=Clock(),
                sleep=self._sleep,
                draw=lambda: 0.4,
            )
            task = asyncio.create_task(kept)
            try:
                yield self
            finally:
                task.cancel()
                (end,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError), end

    def configmap(self, name: str, *, uid: str = "u", **data: str) -> None:
        self._version += 1
        configmap = ConfigMap("ops", name, f"{uid}-{name}", self._version, data)
        self.configmaps.objects.seen(body_of(configmap), gone=False)

    def configure(self, text: str, *nodes: Json) -> None:
        """The config, and the templates that it names where there are some."""
        if nodes:
            self.configmap(TEMPLATES, templates=documents(*nodes))
        self.configmap(CONFIG, config=text)

    async def derived(self, *pools: str, **fields: Any) -> None:
        """Groups of these pools are there, and all is quiet."""
        self.configure(config(**fields), *[template(pool) for pool in pools])
        await self.quiet()
        assert sorted(self.groups.bodies) == sorted(pools)
        self.written()

    def forget(self, name: str) -> None:
        """A ConfigMap is gone."""
        found = self.configmaps.get(name)
        assert found is not None
        self.configmaps.objects.seen(body_of(found), gone=True)

    def live(self, *nodes: Json, link: ScriptedLink | None = None) -> None:
        """Exactly these are the real nodes, of this cluster unless another link is given."""
        (link or self.link).nodes.replace([live_node(node) for node in nodes], 1)

    async def settled(self) -> None:
        """Makes one pass at least, and those that follow from it."""
        self.provider.changed()
        await self.quiet()

    async def quiet(self) -> None:
        """Until all that was changed so far has been looked at, if it has to be."""
        await until(lambda: not self.groups.unseen)
        for _ in range(5):
            await asyncio.sleep(0)
        await until(
            lambda: self.begun == self.metrics.passes + len(self.naps) and not self.groups.unseen
        )

    def problems(self) -> dict[str, float]:
        """The metric: reasons with their numbers."""
        return {
            sample.labels["reason"]: sample.value
            for metric in self.metrics.registry.collect()
            if metric.name == "kwok_operator_provider_config_problems"
            for sample in metric.samples
        }

    def said(self, reason: str) -> list[Said]:
        return [event for event in self.events.said if event.reason == reason]

    def written(self) -> list[tuple[str, str]]:
        """What was written since this was asked last."""
        written, self.groups.writes = self.groups.writes, []
        return written

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.groups.bodies[name]["metadata"].get("annotations", {})
        return found
