"""Keeps one control plane for many rehearsals, and resets it to its first state before each.

    KeptClusters.get: one that lives, or a new one --> CRDs, rights --> its state is noted
    KeptCluster.fresh: puts back the noted state, if a rehearsal has used the control plane since
    reused_cluster: the control plane that an earlier process left, put back, or a new one

If all rehearsals begin with the same objects, the first rehearsal notes the state again once the
cluster is steady, so that later rehearsals need not wait for nodes and pods. The control plane has
the version of Kubernetes and the flags of its components from the scenario. The operator, the shim
and the scenario's processes aren't kept: each rehearsal starts its own.

The control plane of `reused_cluster` stays when the process ends, with its noted state in a file
beside its kubeconfig. `controlplane/rewinding.py` notes states and puts them back.
"""

import asyncio
import dataclasses
import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

from kwok_operator import controlplane
from kwok_operator.formats.manifests import Manifest
from kwok_operator.rehearsal.installing import install, manifests
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.preloading import Preloaded
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.scenario.model import Component, Scenario
from kwok_operator.signals import to_its_end
from kwok_operator.userfiles import write_secretly

_PORTS: Final = (20_000, 30_000)
_REUSED: Final = "rehearsals"
"""The names of the clusters that stay begin with it."""
_NOTED: Final = "noted.json"
_KUBECONFIG: Final = "noted.kubeconfig"
OPERATORS_KUBECONFIG: Final = "operator.kubeconfig"
"""The name of the kubeconfig of the operator's service account, beside that of a cluster."""
CLEAR: Final = "kwok-operator rehearse --clear --reuse"
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
        self._digest = hashlib.sha256(json.dumps(installed, sort_keys=True).encode()).hexdigest()
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
        """Resets the cluster to the noted state for a run, which will change it. Raises
        ControlPlaneError.
        """
        await self.reset()
        self._is_used = True

    async def reset(self) -> None:
        """Resets the cluster to the noted state, if a run has used it since. Raises
        ControlPlaneError.
        """
        await self.commands.start()
        try:
            # What a run wrote into these two would reach the next run.
            write_secretly(self.cluster.kubeconfig, self._kubeconfig)
            shutil.rmtree(self.cluster.kubectl_cache, ignore_errors=True)
            if self._is_used:
                # A thread can't be cancelled, and must not start components of a deleted cluster.
                await to_its_end(asyncio.to_thread(self._rewinder.rewind))
        except OSError as error:
            where = self.cluster.kubeconfig.parent
            raise controlplane.ClusterError(f"resetting the cluster of {where}: {error}") from error
        self._is_used = False

    def save(self, path: Path) -> None:
        """Writes the noted state into a file, for `load`. Raises ClusterError."""
        noted = {"installed": self._digest, "keys": self._rewinder.noted()}
        try:
            write_secretly(path.with_name(_KUBECONFIG), self._kubeconfig)
            write_secretly(path, json.dumps(noted).encode())
        except OSError as error:
            raise controlplane.ClusterError(f"writing {path}: {error}") from error

    def load(self, path: Path) -> None:
        """Reads the noted state, to which the next `fresh` will reset the cluster. Raises
        ClusterError if it can't be read, or is that of another version of the operator."""
        try:
            noted = json.loads(path.read_bytes())
            if noted["installed"] != self._digest:
                raise ValueError("another version of the operator is installed")
            self._rewinder.take(noted["keys"])
            # A token in it may have expired. The next rehearsal writes a new one.
            path.with_name(OPERATORS_KUBECONFIG).unlink(missing_ok=True)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise controlplane.ClusterError(f"reading {path}: {error}") from error
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
    # With Stages as objects, so that pod profiles take effect.
    return controlplane.async_temporary(
        prefix,
        keep=keep,
        numbered=numbered,
        settings=_settings(scenario, first_port),
        stages=True,
        flags=_flags(scenario),
    )


async def kubectl_of(scenario: Scenario) -> AsyncKubectl:
    """Returns the kubectl of the scenario's control plane, for what needs no cluster. Raises
    ControlPlaneError.
    """
    find = partial(
        controlplane.find_tools,
        _settings(scenario, None),
        reporter=controlplane.Reporter(sys.stderr),
    )
    kubectl = (await controlplane.in_thread(find))["kubectl"]
    # Without KUBECONFIG it would read a file in the working directory.
    return AsyncKubectl(kubectl, {**os.environ, "KUBECONFIG": os.devnull})


def _settings(scenario: Scenario, first_port: int | None) -> controlplane.Settings:
    version = {"KUBERNETES_VERSION": v} if (v := scenario.cluster.kubernetes) else {}
    ports = {controlplane.PORTS_VARIABLE: str(first_port)} if first_port else {}
    return controlplane.Settings.from_environ({**ports, **os.environ, **version})


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
    making = making_of(scenario, prefix, first_port=_first_port())
    async with AsyncExitStack() as afterwards, making as cluster:
        kept = KeptCluster(cluster, manifests(()), same_beginning=same_beginning)
        # The processes of its components are waited for once they have been ended.
        afterwards.callback(kept.reap)
        try:
            await _install_in(kept)
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

    async def get(self, scenario: Scenario, report: Report) -> KeptCluster:
        """Returns the control plane. Makes it if there is none, or in place of one that is too old,
        or of which a run has ended a component, such as the API server. Raises KwokOperatorError.
        """
        now = time.monotonic()
        if self._kept and (dead := self._kept.cluster.dead()):
            report(f"another control plane is made: {' and '.join(dead)} ended")
            await self.aclose()
        elif now - self._made > self._oldest:
            await self.aclose()
        if self._kept is None:
            making = kept_cluster(scenario, self._prefix, same_beginning=self._same_beginning)
            self._made, self._kept = now, await self.enter_async_context(making)
            self.callback(setattr, self, "_kept", None)
        return self._kept


@asynccontextmanager
async def reused_cluster(scenario: Scenario, *, report: Report) -> AsyncIterator[KeptCluster]:
    """Yields a control plane that stays for the next rehearsal: one that an earlier rehearsal left,
    or a new one. No other process uses it meanwhile. Raises KwokOperatorError, ControlPlaneError.
    """
    settings = dataclasses.replace(_settings(scenario, _first_port()), borrowed_kubeconfig=None)
    with controlplane.free_name(_REUSED, settings=settings) as name:
        create = partial(
            controlplane.create,
            name,
            stays=True,
            stages=True,
            flags=_flags(scenario),
            settings=settings,
        )
        kept = None
        while kept is None:
            # A process was killed while it made the cluster, or it can't be put back.
            reuse = not _is_half_made(name, settings)
            cluster = await controlplane.in_thread(
                partial(create, reuse=reuse), undo=partial(_drop, settings=settings)
            )
            kept = await _left(cluster, report, settings)
        try:
            yield kept
        finally:
            await kept.commands.stop()


def _is_half_made(name: str, settings: controlplane.Settings) -> bool:
    """Returns whether there is a cluster of this name whose first state wasn't noted. Otherwise
    puts its kubeconfig back, as the cluster wouldn't answer if a scenario has changed it."""
    try:
        kubeconfig = controlplane.get(name, settings=settings).kubeconfig
    except controlplane.ControlPlaneError:
        return False
    noted = kubeconfig.with_name(_KUBECONFIG)
    if not (noted.is_file() and kubeconfig.with_name(_NOTED).is_file()):
        return True
    try:
        write_secretly(kubeconfig, noted.read_bytes())
    except OSError as error:
        raise controlplane.ClusterError(f"writing {kubeconfig}: {error}") from error
    return False


def _drop(cluster: controlplane.Cluster, *, settings: controlplane.Settings) -> None:
    """Deletes a cluster whose first state wasn't noted, as it would run on for nothing."""
    if not cluster.kubeconfig.with_name(_NOTED).is_file():
        with suppress(controlplane.ControlPlaneError):
            controlplane.delete(cluster.name, settings=settings)


async def _left(
    cluster: controlplane.Cluster, report: Report, settings: controlplane.Settings
) -> KeptCluster | None:
    """Returns the kept cluster, new or reset to its noted state. If it can't be reset, deletes the
    noted state, and returns None. Deletes a new cluster that doesn't become complete."""
    path, kept = cluster.kubeconfig.with_name(_NOTED), None
    try:
        kept = KeptCluster(cluster, manifests(()))
        if path.exists():
            report(f"putting cluster {cluster.name} back")
            await to_its_end(asyncio.to_thread(kept.load, path))
            await kept.reset()
        else:
            await _install_in(kept)
            await to_its_end(asyncio.to_thread(kept.save, path))
            report(f"cluster {cluster.name} stays for the next --reuse; to delete it: {CLEAR}")
    except BaseException as error:
        if kept is not None:
            await kept.commands.stop()
        if not path.exists():
            with suppress(controlplane.ControlPlaneError):
                delete = partial(controlplane.delete, cluster.name, settings=settings)
                await to_its_end(asyncio.to_thread(delete))
            raise
        if not isinstance(error, controlplane.ControlPlaneError):
            raise
        report(f"making cluster {cluster.name} anew: {error}")
        path.unlink()
        return None
    return kept


def clear_reused() -> tuple[list[str], list[str]]:
    """Deletes the control planes that stay and aren't in use. Returns their names, and the names of
    those in use."""
    settings = controlplane.Settings.from_environ(os.environ)
    return controlplane.remove_unused(_REUSED, settings=settings)


async def _install_in(kept: KeptCluster) -> None:
    environment = {**os.environ, **kept.cluster.environment}
    await kept.commands.start()
    await install(AsyncKubectl(kept.cluster.kubectl, environment), kept.installed)
    await kept.note()


def _first_port() -> int:
    """Returns a port that kwokctl wouldn't take for another cluster: it takes the highest free
    ones, even those of components that are being restarted."""
    return random.SystemRandom().randrange(*_PORTS)
