"""Makes a cluster, and removes it without a trace.

    create: find tools -> remove the cluster of that name -> kwokctl create -> wait until usable
    delete: kill its processes -> remove its directories

Besides kwokctl's directory, each cluster has one of our own: its kubeconfig, the configuration for
kwokctl, and `state.json`, the tools and options that it was made with. `create(reuse=True)`
compares these tools and options with those of the call. Clusters are created one at a time, as two
at once would pick the same free ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kwok_operator.controlplane import processes
from kwok_operator.controlplane.cluster import Cluster
from kwok_operator.controlplane.errors import ClusterError, ControlPlaneError, TooSlowError
from kwok_operator.controlplane.kwokctl import (
    FROM_THE_API,
    Flags,
    Kwokctl,
    checked,
    cluster_directory,
    configuration,
)
from kwok_operator.controlplane.lock import exclusive
from kwok_operator.controlplane.settings import KUBECONFIG_VARIABLE, Settings
from kwok_operator.controlplane.tools import Tools, find_kubectl, find_tools
from kwok_operator.reporter import Reporter

DEFAULT_NAME = "kwok-operator"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_ANSWER_SECONDS = 20.0
_POLL_SECONDS = 0.1


def create(
    name: str = DEFAULT_NAME,
    *,
    reuse: bool = False,
    stays: bool = False,
    manage_all_nodes: bool = False,
    raised_limits: bool = True,
    stages: bool = False,
    flags: Flags | None = None,
    extra_args: Sequence[str] = (),
    settings: Settings | None = None,
    reporter: Reporter | None = None,
) -> Cluster:
    """Create a cluster and wait until it can be used.

    With `reuse`, a cluster of that name that answers and was made with the same options is returned
    as it is. `stays` marks a new one as of `free_name`. `manage_all_nodes` makes kwok manage also
    nodes without its annotation. Without `raised_limits`, controllers, scheduler and kwok keep
    their default limits, as in most clusters. With `stages`, kwok reads its Stages from the API, as
    with kwok's own manifests, and its own Stages are applied. `flags` are those of the cluster's
    components, `extra_args` those of `kwokctl create cluster`.
    """
    settings = settings or Settings.from_environ(os.environ)
    if settings.borrowed_kubeconfig is not None:
        return _borrowed(settings)
    checked_name(name)
    chosen: dict[str, Any] = {
        "manage_all_nodes": manage_all_nodes,
        "raised_limits": raised_limits,
        "flags": checked(flags or {}),
    }
    reporter = reporter or Reporter(sys.stderr)
    tools = find_tools(settings, reporter=reporter)
    versions = {each: tools.versions[each] for each in ("kubernetes", "kwok")}
    options = {**versions, **chosen, "stages": stages, "extra_args": list(extra_args)}

    def started_anew() -> Cluster:
        remove(name, settings=settings)
        reporter.say(f"creating cluster {name}")
        config = configuration(**chosen, first_port=settings.first_port)
        return _started(name, config, options, mark=stays, tools=tools, settings=settings)

    try:
        with creating(name, settings=settings, reporter=reporter):
            _claim(name, stays=stays, settings=settings)
            if reuse and _home(name, settings=settings).exists():
                cluster, made_with = _noted(name, settings=settings)
                why = _unusable(cluster, fits=made_with == options)
                if cluster and not why:
                    return cluster
                reporter.say(f"replacing cluster {name}: {why}")
            try:
                return started_anew()
            except TooSlowError:
                reporter.say("a component gave up waiting for another, as if the machine were busy")
                return started_anew()
    except OSError as err:
        raise ClusterError(f"creating cluster {name}: {err}; {settings.elsewhere}") from err


def _claim(name: str, *, stays: bool, settings: Settings) -> None:
    """Make what there is of a cluster the caller's. Raise an error if it is somebody else's, and
    the caller wants one that stays."""
    mark = stays_mark(name, settings=settings)
    if not stays:
        mark.unlink(missing_ok=True)
    elif _home(name, settings=settings).exists() and not mark.exists():
        raise ClusterError(
            f"creating cluster {name}: somebody has just made one of this name; try again"
        )


def _started(
    name: str, config: str, options: dict[str, Any], *, mark: bool, tools: Tools, settings: Settings
) -> Cluster:
    home = _home(name, settings=settings)
    home.parent.mkdir(parents=True, exist_ok=True)
    if mark:
        stays_mark(name, settings=settings).touch()
    home.mkdir()
    path = home / "kwokctl.yaml"
    path.write_text(config, encoding="utf-8")
    # The link's path contains the cluster's name. If this program is killed, a later one finds
    # kwokctl's process by it.
    program = home / "kwokctl"
    program.symlink_to(tools["kwokctl"])
    paths = {"kwokctl": str(program), "kubectl": str(tools["kubectl"])}
    state = json.dumps({"options": options, **paths}, indent=2)
    (home / "state.json").write_text(state, encoding="utf-8")
    cluster = get(name, settings=settings)
    kwokctl = _kwokctl(cluster, settings=settings)
    extra: list[str] = options["extra_args"]
    given: dict[str, Any] = {"tools": tools, "kubeconfig": cluster.kubeconfig, "config": path}
    try:
        stages = home / "stages.yaml" if options["stages"] else None
        if stages is not None:
            text = kwokctl.own_stages(name, extra=extra, **given)
            stages.write_text(text, encoding="utf-8")
            extra = [*extra, FROM_THE_API]
        kwokctl.create(name, extra=extra, check=cluster.check, **given)
        cluster.wait_until_usable(stages)
    except BaseException:
        processes.kill_all(home, cluster_directory(name, settings=settings))
        raise
    return cluster


def delete(name: str = DEFAULT_NAME, *, settings: Settings | None = None) -> None:
    """Remove a cluster, its processes and its files. It is no error if there is none. A borrowed
    cluster is left alone."""
    settings = settings or Settings.from_environ(os.environ)
    if settings.borrowed_kubeconfig is not None:
        return
    checked_name(name)
    try:
        with creating(name, settings=settings, reporter=Reporter(sys.stderr)):
            remove(name, settings=settings)
            owner_lock(name, settings=settings).unlink(missing_ok=True)
    except OSError as err:
        raise ClusterError(f"deleting cluster {name}: {err}") from err


def removal(name: str) -> str:
    """Return the shell command that deletes a cluster."""
    return f"{sys.executable} -m {__package__} down --name {name}"


def names(*, settings: Settings | None = None) -> list[str]:
    """Return the names of the clusters that have files in the cache of `settings`, running or
    not."""
    settings = settings or Settings.from_environ(os.environ)
    return sorted(path.name for path in (settings.cache / "clusters").glob("*/"))


def get(name: str = DEFAULT_NAME, *, settings: Settings | None = None) -> Cluster:
    """Return a cluster that was created before, running or not."""
    settings = settings or Settings.from_environ(os.environ)
    if settings.borrowed_kubeconfig is not None:
        return _borrowed(settings)
    checked_name(name)
    cluster, _ = _noted(name, settings=settings)
    if cluster is None:
        raise ClusterError(
            f"finding cluster {name}: there is none that works; `up --name={name}` creates it"
        )
    return cluster


def revive(cluster: Cluster, *, settings: Settings | None = None) -> None:
    """Start those components of a cluster that were killed."""
    settings = settings or Settings.from_environ(os.environ)
    if cluster.directory is None:
        raise ClusterError(f"reviving cluster {cluster.name}: it is not run by us")
    for attempt in range(3):
        # If another process has the number in a pid file, kwokctl takes it for the component.
        processes.forget_the_dead(cluster.directory)
        try:
            _kwokctl(cluster, settings=settings).start(cluster.name, check=cluster.check)
            cluster.wait_until_usable()
            return
        except ClusterError:
            # A process that was killed a moment ago may still be listed.
            if attempt == 2 or not cluster.dead():
                raise


def restart(cluster: Cluster, component: str, *, settings: Settings | None = None) -> None:
    """Kill a component, even if it is stopped (SIGSTOP), and start it again."""
    settings = settings or Settings.from_environ(os.environ)
    # Under this lock no other cluster is created, which could take the component's port.
    with creating(cluster.name, settings=settings, reporter=Reporter(sys.stderr)):
        os.kill(cluster.pid(component), signal.SIGKILL)
        deadline = time.monotonic() + _ANSWER_SECONDS
        while component not in cluster.dead():
            if time.monotonic() > deadline:
                raise ClusterError(f"ending {component} of cluster {cluster.name}: it still runs")
            time.sleep(_POLL_SECONDS)
        revive(cluster, settings=settings)


def checked_name(name: str) -> str:
    """Return the name. Raise an error if a cluster can't have this name."""
    if not _NAME.fullmatch(name):
        raise ControlPlaneError(
            f"naming a cluster {name!r}: up to 40 lower-case letters, digits and dashes, please"
        )
    return name


def _borrowed(settings: Settings) -> Cluster:
    kubeconfig = settings.borrowed_kubeconfig
    if kubeconfig is None or not kubeconfig.is_file():
        raise ClusterError(f"reading {KUBECONFIG_VARIABLE}: there is no file {kubeconfig}")
    return Cluster(name="borrowed", kubeconfig=kubeconfig, kubectl=find_kubectl(settings))


def _home(name: str, *, settings: Settings) -> Path:
    return settings.cache / "clusters" / name


def owner_lock(name: str, *, settings: Settings) -> Path:
    """Return the path of the lock that the program which owns a cluster holds. If no program holds
    it, the cluster has no owner."""
    return settings.cache / "clusters" / f"{name}.owner"


def user_lock(name: str, *, settings: Settings) -> Path:
    """Return the path of the lock that a program holds while it uses a cluster that outlives the
    program."""
    return settings.cache / "clusters" / f"{name}.used"


def stays_mark(name: str, *, settings: Settings) -> Path:
    """Return the path of the file that tells a cluster of `free_name` from one that somebody made
    under the same name."""
    return settings.cache / "clusters" / f"{name}.stays"


def _noted(name: str, *, settings: Settings) -> tuple[Cluster | None, object]:
    """Return a cluster and the options that it was made with, as in its `state.json`; None if that
    is missing or damaged."""
    home = _home(name, settings=settings)
    try:
        state = json.loads((home / "state.json").read_text(encoding="utf-8"))
        cluster = Cluster(
            name=name,
            kubeconfig=home / "kubeconfig.yaml",
            kubectl=Path(state["kubectl"]),
            kwokctl=Path(state["kwokctl"]),
            directory=cluster_directory(name, settings=settings),
            kubernetes_version=state["options"]["kubernetes"],
        )
        return cluster, state["options"]
    except (FileNotFoundError, IsADirectoryError, ValueError, LookupError, TypeError):
        return None, None


def _kwokctl(cluster: Cluster, *, settings: Settings) -> Kwokctl:
    if cluster.kwokctl is None:
        raise ClusterError(f"finding kwokctl: cluster {cluster.name} is not run by us")
    return Kwokctl(
        program=cluster.kwokctl,
        kubectl=cluster.kubectl,
        kubernetes_version=cluster.kubernetes_version,
        settings=settings,
    )


def creating(
    name: str, *, settings: Settings, reporter: Reporter
) -> contextlib.AbstractContextManager[None]:
    lock = settings.cache / "clusters.lock"
    return exclusive(lock, purpose=f"which is busy with cluster {name}", reporter=reporter)


def _unusable(cluster: Cluster | None, *, fits: bool) -> str:
    """Return why a cluster of ours can't be used as it is; "" if it can. `fits`: whether it was
    made with the options of the call."""
    if cluster is None:
        return "its state.json is missing or damaged"
    if not fits:
        return "it has other versions or flags"
    if dead := cluster.dead():
        return f"{' and '.join(dead)} ended"
    if cluster.directory is None or not processes.recorded(cluster.directory):
        return "it does not run"
    for pid in processes.running(cluster.directory):
        # A test that was killed may have left a component stopped (SIGSTOP).
        os.kill(pid, signal.SIGCONT)
    # On a busy machine it may answer late, and the cluster may contain somebody's work.
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not cluster.answers():
        if time.monotonic() > deadline:
            return f"it does not answer within {_ANSWER_SECONDS:g} s"
        time.sleep(_POLL_SECONDS)
    return ""


def remove(name: str, *, settings: Settings) -> None:
    """Remove a cluster. The caller makes sure that no other process uses this name."""
    # kwokctl isn't used: it trusts pid files, and its program may be gone.
    directories = (cluster_directory(name, settings=settings), _home(name, settings=settings))
    processes.kill_all(*directories)
    for path in directories:
        if path.exists():
            shutil.rmtree(path)
    # Last, so that `remove_unused` finds what a killed process leaves.
    stays_mark(name, settings=settings).unlink(missing_ok=True)
    settings.log(f"kwokctl-{name}").unlink(missing_ok=True)
