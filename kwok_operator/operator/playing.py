"""`--clusterapi emulate`, put together: consent, Machines, and what runs of it.

    objects ──> Mirror ──> groups ──> the engine ──> Nodes ──> Emulation ──> Machines

What is started when is for run.py.
"""

import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kwok_operator.cloud.clouds import Clouds
from kwok_operator.clusterapi.consent import Consent
from kwok_operator.clusterapi.emulate import Emulation, EmulationTerms
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.executor import Executor
from kwok_operator.nodegroups.groupstore import GroupStore
from kwok_operator.nodegroups.nodecache import NodeCache
from kwok_operator.nodegroups.parts import Clock
from kwok_operator.nodegroups.queue import WorkQueue

GRACE: Final = 2.0
"""Seconds for what is in flight at the end."""

Part = tuple[str, Callable[[], Awaitable[None]]]


class Playing:
    """`client` is that of groups; all else belongs to the engine."""

    def __init__(
        self,
        terms: EmulationTerms,
        *,
        client: KubeClient,
        store: GroupStore,
        cache: NodeCache,
        clouds: Clouds,
        executor: Executor,
        recorder: Recorder,
        group_seen: Callable[[Mapping[str, Any], bool], None],
        sure: Callable[[], bool],
    ) -> None:
        clock = Clock(time.monotonic, client.server_clock.now)
        self._begun = False
        self.api_group = terms.keys.group
        self.consent = Consent(client=client, group=terms.keys.group)
        self._emulation = Emulation(
            terms,
            client=client,
            store=store,
            cache=cache,
            phases=clouds.phases,
            executor=executor,
            recorder=recorder,
            wake=self._wake,
            group_seen=group_seen,
            sure=sure,
            monotonic=clock.monotonic,
            now=clock.now,
        )
        self._queue = WorkQueue(self._emulation.reconcile, draw=random.random, wish=store.wish)

    @property
    def watches(self) -> list[Part]:
        """What runs in a standby, too."""
        emulation = self._emulation
        return [
            ("watch machines", emulation.machine_reflector.run),
            *(("watch scalables", each.run) for each in emulation.scalable_reflectors),
        ]

    async def begin(self) -> None:
        """From now on it is played."""
        await self._emulation.wait_synced()
        self._begun = True
        self._emulation.begin()

    def group_changed(self, name: str) -> None:
        self._emulation.group_changed(name)

    def nodes_changed(self, group: str) -> None:
        self._emulation.group_changed(group)

    async def close(self) -> None:
        self._emulation.close()
        await self._queue.close(grace=GRACE)

    def _wake(self, group: str, delay: float) -> None:
        if self._begun:
            self._queue.add(group, delay=delay)
