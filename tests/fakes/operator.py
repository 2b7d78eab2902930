"""An operator as the program runs it, kopf's part included, with a kwok controller.

    World.running() ──> handlers.run_until_ended() <──> an API server that can be made to fail
                          nodes get Ready, as the kwok ──^ controller would make them

Where the operator ends with an error it is started again, as a kubelet would. Waits are asked for
and not taken, so that a storm of errors lasts a moment.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self
from unittest.mock import AsyncMock, patch

from kwok_operator.errors import KwokOperatorError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.kube.pacing import Pace
from kwok_operator.nodegroups import reconciler
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.parts import Clock
from kwok_operator.observability.metrics import Metrics
from kwok_operator.operator import assembly, handlers, preflight, process
from kwok_operator.operator.assembly import Assembly
from kwok_operator.operator.process import Operator
from kwok_operator.settings import add_run_flags, run_settings
from tests.fakes.apiserver import GROUPS, LEASES, NODES, FakeApiServer
from tests.fakes.discovery import FOLLOWED, serve_followed
from tests.fakes.reflecting import Naps
from tests.fakes.sources import ScriptedSources
from tests.fakes.waiting import until

NAME = "web"
STATUS = "kwoknodegroups/status"
WATCHES = len(FOLLOWED) + 1
"""Of an operator that works: those of kopf, and that on nodes."""
Json = dict[str, Any]


class World:
    """An API server, a kwok controller that is quick, and an operator."""

    parts: Assembly
    operator: Operator

    def __init__(self, *, limit: int = 1000) -> None:
        self.server = FakeApiServer()
        self._limit = limit
        self.naps = Naps()
        """The waits between requests: asked for, but not taken."""
        self.pauses = Naps()
        """Those of node writes, on a clock that they move."""
        self.sources = ScriptedSources()
        self.later = 0.0
        """Seconds by which the operator's clocks are ahead of the test's."""
        self.ends: list[KwokOperatorError] = []
        """Why the operator was started again."""
        self._closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        async with self.assembled() as client:
            tasks = [
                asyncio.create_task(self._be_kwok()),
                asyncio.create_task(self._be_kubelet(client)),
            ]
            await until(lambda: len(self.server.watchers) >= WATCHES)
            yield self
            self._closing = True
            self.operator.end()
            await tasks[1]
            tasks[0].cancel()

    @asynccontextmanager
    async def assembled(self) -> AsyncIterator[KubeClient]:
        """Nothing of it runs yet but the API server."""
        serve_followed(self.server)
        self.server.gone_as_event = True  # as an API server does, and kopf expects
        async with (
            self.server,
            KubeClient(
                connection=self.server.connection(), sleep=self.naps, draw=lambda: 0.5
            ) as client,
        ):
            with _without_waits():
                self._assemble(client)
                yield client

    async def _be_kubelet(self, client: KubeClient) -> None:
        """Runs the operator, again and again until it ends without an error."""
        while not self._closing:
            try:
                return await handlers.run_until_ended(self.operator)
            except KwokOperatorError as error:
                self.ends.append(error)
                await until(lambda: self.server.serving)
                self._assemble(client)

    def _assemble(self, client: KubeClient) -> None:
        parser = argparse.ArgumentParser()
        add_run_flags(parser)
        flags = ["--listen=0", f"--max-total-nodes={self._limit}", "--csi-nodes=false"]
        settings = run_settings(parser.parse_args(flags), {"POD_NAMESPACE": "ops"})
        metrics = Metrics()
        self.parts = Assembly(
            settings,
            metrics,
            namespace="ops",
            groups=client,
            nodes=client,
            clock=Clock(
                lambda: time.monotonic() + self.later,
                lambda: datetime.now(UTC) + timedelta(seconds=self.later),
            ),
            executor=Executor(
                Pace(most=8),
                metrics=metrics,
                clock=lambda: time.monotonic() + sum(self.pauses.slept),
                sleep=self.pauses,
                draw=lambda: 0.5,
            ),
            # It makes a hundredth of the waits before a failed pass is tried again.
            draw=lambda: -0.98,
        )
        sources: Any = self.parts.sources
        sources.find = self.sources.find
        self.parts.companions._read = self.sources.companions
        self.operator = Operator(
            settings, client.connection, metrics, client=client, parts=self.parts, elector=None
        )
        self.operator.sessions._sleep = self.naps

    @property
    def store(self) -> GroupStore:
        return self.parts.store

    @property
    def cache(self) -> NodeCache:
        return self.parts.cache

    @property
    def watched(self) -> int:
        """How many kinds are watched."""
        return len({watcher.path for watcher in self.server.watchers})

    def missed(self) -> bool:
        """Whether it is known that the server is away, and all has to be listed."""
        return not self.parts.node_reflector.version

    def room(self, name: str) -> int:
        """That the limit leaves for a group."""
        return self.parts.budget.room(name)

    async def _be_kwok(self) -> None:
        """Initialises the nodes that aren't Ready, as the kwok controller does: Lease first."""
        while True:
            for name, node in list(self.server.objects(NODES).items()):
                if not node.get("status", {}).get("daemonEndpoints"):
                    self._initialise(name)
            await asyncio.sleep(0.002)

    def _initialise(self, name: str) -> None:
        if name not in self.server.objects(LEASES):
            renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec = {"holderIdentity": "kwok", "leaseDurationSeconds": 40, "renewTime": renewed}
            self.server.create(LEASES, {"metadata": {"name": name}, "spec": spec})
        status = {
            "addresses": [{"type": "Hostname", "address": "localhost"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10247}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.server.patch(NODES, name, {"status": status}, subresource="status")

    def scale(self, size: int) -> None:
        if NAME in self.server.objects(GROUPS):
            self.server.patch(GROUPS, NAME, {"spec": {"targetSize": size}})
        else:
            self.server.create(GROUPS, {"metadata": {"name": NAME}, "spec": {"targetSize": size}})

    @property
    def group(self) -> Json:
        return self.server.objects(GROUPS)[NAME]

    @property
    def status(self) -> Json:
        status: Json = self.group.get("status", {})
        return status

    def serials(self) -> list[int | None]:
        names = NodeNames.of(NAME, self.group["metadata"]["uid"])
        return [names.serial(name) for name in sorted(self.server.objects(NODES))]

    async def heard(self) -> None:
        """Until the operator knows of the last edit."""

        def known() -> bool:
            group = self.store.get(NAME)
            return group is not None and group.generation == self.group["metadata"]["generation"]

        await until(known)

    async def settled(self, size: int) -> None:
        """Until the group has exactly so many nodes, and says so."""

        def told() -> bool:
            conditions = {c["type"]: c["status"] for c in self.status.get("conditions", [])}
            counts = {self.status.get(k, 0) for k in ("replicas", "readyReplicas", "targetSize")}
            observed = self.status.get("observedGeneration")
            return (
                len(self.server.objects(NODES)) == size
                and counts == {size}
                and conditions.get("Ready") == "True"
                and conditions.get("ForeignNodes") == "False"
                and observed == self.group["metadata"]["generation"]
                and not self.status.get("pending")
            )

        await until(told)


def _without_waits() -> ExitStack:
    """Patches what an operator waits for besides, and what the fake server doesn't serve."""
    stack = ExitStack()
    for where, fields in (
        (handlers, {"BACKOFFS": (0.01,) * 10_000, "LOGIN_PAUSE": 0.0}),
        (assembly, {"DOUBT": 0.0, "WAKE_COALESCING": 0.0}),
        (reconciler, {"UNSURE_RECHECK": 0.01}),
        (process, {"SHUTDOWN_GRACE": 1.0, "LAST_EVENTS_WITHIN": 0.0}),
        (preflight, {"check_permissions": AsyncMock(), "_CRD_POLL": 0.01}),
        (Recorder, {"run": _nothing}),
    ):
        stack.enter_context(patch.multiple(where, **fields))
    return stack


async def _nothing(_: Recorder) -> None:
    await asyncio.Event().wait()
