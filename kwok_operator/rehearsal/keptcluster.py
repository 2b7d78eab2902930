"""Keeps one control plane for many rehearsals, and resets it to its first state before each.

    KeptClusters: none yet, or it is dead: make it -> install the CRDs and rights -> note the state
      fresh(): nothing was played since then, or the state is put back (controlplane/rewinding.py)

If all rehearsals begin with the same objects, the first rehearsal notes the state again once the
cluster is steady, so that later rehearsals need not wait for nodes and pods. The control plane has
the version of Kubernetes and the flags of its components from the scenario. The operator, the shim
and the scenario's processes aren't kept: each rehearsal starts its own.
"""

import asyncio
import os
import random
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from math import inf
from typing import Final

from kwok_operator import controlplane
from kwok_operator.formats.manifests import Manifest
from kwok_operator.rehearsal.installing import install, manifests
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.preloading import Preloaded
from kwok_operator.rehearsal.scenario.model import Component, Scenario
from kwok_operator.signals import to_its_end

_PORTS: Final = (20_000, 30_000)
_MOST_OBJECTS: Final = 30_000
"""A beginning with more objects isn't noted, as all are kept in memory: 10 kB each."""


class KeptCluster:
    """A control plane that is kept. `installed` are the operator's manifests that it has.

    With `same_beginning`, all rehearsals apply the same, and begin once the cluster is steady.
    """

    def __init__(
        self,
        cluster: controlplane.Cluster,
        installed: Sequence[Manifest],
        *,
        same_beginning: bool = False,
    ) -> None:
        self.cluster = cluster
        self.installed = installed
        self.has_begun = False
        """Whether the noted state is that of a steady cluster, with all that rehearsals apply."""
        self.same_beginning = same_beginning
        self._rewinder = controlplane.Rewinder(cluster)
        self._is_used = False
        self._kubeconfig = cluster.kubeconfig.read_bytes()
        self.commands = Preloaded()
        """Starts the operator and the shim of each rehearsal."""
        self.version = ""
        """The version of Kubernetes, once it is known."""

    async def note(self) -> None:
        """Notes the present state as that of a new cluster. Raises ControlPlaneError."""
        await asyncio.to_thread(self._rewinder.note)

    async def note_beginning(self) -> None:
        """Notes the present state as the beginning of all rehearsals, unless it has too many
        objects. If noting fails, the next rehearsal applies all objects anew.
        """
        with suppress(controlplane.ControlPlaneError):
            if await asyncio.to_thread(self._rewinder.count) <= _MOST_OBJECTS:
                await self.note()
                self.has_begun = True

    async def fresh(self) -> None:
        """Resets the cluster to the noted state. Raises ControlPlaneError."""
        await self.commands.start()
        # What a run wrote into these two would reach the next run.
        self.cluster.kubeconfig.write_bytes(self._kubeconfig)
        shutil.rmtree(self.cluster.kubectl_cache, ignore_errors=True)
        if self._is_used:
            # A thread can't be cancelled, and must not start components of a cluster that is gone.
            await to_its_end(asyncio.to_thread(self._rewinder.rewind))
        self._is_used = True

    def differences(self) -> list[str]:
        """Returns the keys in etcd whose values differ from the noted state."""
        return self._rewinder.differences()

    def reap(self) -> None:
        """Waits for the ended processes of the components, once the cluster is deleted."""
        self._rewinder.reap()

    def to_install(self, wanted: Sequence[Manifest]) -> list[Manifest]:
        """Returns which of these manifests are not installed yet."""
        return [each for each in wanted if each not in self.installed]


def making_of(
    scenario: Scenario,
    prefix: str,
    *,
    keep: bool = False,
    numbered: bool = True,
    first_port: int | None = None,
) -> AbstractAsyncContextManager[controlplane.Cluster]:
    """Returns a context manager: it makes a control plane with the scenario's version and flags."""
    version = {"KUBERNETES_VERSION": v} if (v := scenario.cluster.kubernetes) else {}
    ports = {controlplane.PORTS_VARIABLE: str(first_port)} if first_port else {}
    # With Stages as objects, so that pod profiles take effect.
    return controlplane.async_temporary(
        prefix,
        keep=keep,
        numbered=numbered,
        settings=controlplane.Settings.from_environ({**ports, **os.environ, **version}),
        stages=True,
        flags=_flags(scenario),
    )


def _flags(scenario: Scenario) -> dict[str, dict[str, str]]:
    """Returns the flags of the control plane's components. The operator isn't one of them."""
    return {
        component.value: dict(given)
        for component, given in scenario.cluster.flags.items()
        if component is not Component.OPERATOR
    }


def same_control_plane(one: Scenario, other: Scenario) -> bool:
    """Returns whether both scenarios can be played on one control plane."""
    same_version = one.cluster.kubernetes == other.cluster.kubernetes
    return same_version and _flags(one) == _flags(other)


@asynccontextmanager
async def kept_cluster(
    scenario: Scenario, prefix: str, *, same_beginning: bool = False
) -> AsyncIterator[KeptCluster]:
    """Makes a control plane that is kept. Raises KwokOperatorError, ControlPlaneError."""
    # kwokctl takes the highest free ports for other clusters, even those of components that are
    # being restarted.
    first_port = random.SystemRandom().randrange(*_PORTS)
    making = making_of(scenario, prefix, first_port=first_port)
    async with AsyncExitStack() as afterwards, making as cluster:
        kept = KeptCluster(cluster, manifests(()), same_beginning=same_beginning)
        # The processes of its components are waited for once they have been ended.
        afterwards.callback(kept.reap)
        try:
            await kept.commands.start()
            kubectl = AsyncKubectl(cluster.kubectl, {**os.environ, **cluster.environment})
            await install(kubectl, kept.installed)
            await kept.note()
            yield kept
        finally:
            await kept.commands.stop()


class KeptClusters(AsyncExitStack):
    """Keeps one control plane, for scenarios that have the `same_control_plane`. With
    `same_beginning`, they must have the same `apply` and `placement`, too. Once it is older than
    `oldest` seconds, it is replaced. `aclose` deletes it: the next scenario gets another one.
    """

    def __init__(self, prefix: str, *, same_beginning: bool = False, oldest: float = inf) -> None:
        super().__init__()
        self._prefix, self._same_beginning, self._oldest = prefix, same_beginning, oldest
        self._made = 0.0
        self._kept: KeptCluster | None = None

    async def get(self, scenario: Scenario) -> KeptCluster:
        """Returns the control plane. Makes it if there is none, or in place of one that is too old,
        or of which a run has ended a component, such as the API server. Raises KwokOperatorError.
        """
        now = time.monotonic()
        if self._kept and (now - self._made > self._oldest or self._kept.cluster.dead()):
            await self.aclose()
        if self._kept is None:
            making = kept_cluster(scenario, self._prefix, same_beginning=self._same_beginning)
            self._made, self._kept = now, await self.enter_async_context(making)
            self.callback(setattr, self, "_kept", None)
        return self._kept
