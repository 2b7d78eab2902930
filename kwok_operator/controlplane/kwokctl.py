"""The one place that runs kwokctl: its flags, its environment, its configuration file.

kwokctl picks free ports, makes certificates and starts the components of a cluster as processes
that outlive it. It gets the tools as paths, so it downloads nothing, and a working directory in the
cache, so ~/.kwok is not touched. Its output goes to a log file, as it is long and, when not on a
terminal, JSON; `_complaints` extracts the errors from it.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kwok_operator.controlplane import processes
from kwok_operator.controlplane.errors import ClusterError, hint
from kwok_operator.controlplane.processes import watch
from kwok_operator.controlplane.settings import PORTS_VARIABLE, Settings
from kwok_operator.controlplane.tools import Tools

MANAGED_NODES = "kwok.x-k8s.io/node=fake"

FROM_THE_API = "--enable-crds=Stage,ClusterResourceUsage,ResourceUsage,Metric"
"""With this flag kwok reads its Stages from the API only, so it has none until some are applied."""

COMPONENTS = {
    "etcd": "etcd",
    "kube-apiserver": "kube-apiserver",
    "kube-controller-manager": "kube-controller-manager",
    "kube-scheduler": "kube-scheduler",
    "kwok-controller": "kwok",
}
"""The components of a cluster by kwokctl's names, and the program that each of them runs."""

Flags = Mapping[str, Mapping[str, str]]
"""Flags by component, without dashes, such as {"kube-scheduler": {"v": "2"}}."""

_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")

_COMMAND_SECONDS = 180

_CONFIG_API = "config.kwok.x-k8s.io/v1alpha1"
_CONFIGURATION: dict[str, Any] = {
    "apiVersion": _CONFIG_API,
    "kind": "KwokctlConfiguration",
    # Not 0.0.0.0: fake clusters must not be reachable from outside.
    "options": {"bindAddress": "127.0.0.1"},
}
_MANAGE_ANNOTATED_NODES = {
    "manage-all-nodes": "false",
    "manage-nodes-with-annotation-selector": MANAGED_NODES,
}
# Each of these runs only once. With leader election it would exit if it renewed its Lease late on a
# busy machine.
_NO_ELECTION = {"leader-elect": "false"}
_CLIENTS = ("kube-controller-manager", "kube-scheduler")
# kwokctl's --disable-qps-limits is not used: it also switches off the API server's priority and
# fairness.
_RAISED_CLIENT_LIMITS = {"kube-api-qps": "1000", "kube-api-burst": "2000"}
_RAISED_KWOK_LIMITS = {
    "apiVersion": _CONFIG_API,
    "kind": "KwokConfiguration",
    "options": {
        "podPlayStageParallelism": 16,
        "nodePlayStageParallelism": 16,
        # The other options have kwok's defaults, as kwok sets none of these once any option is
        # given.
        "cidr": "10.0.0.0/24",
        "enableDebuggingHandlers": True,
        "enablePodsOnNodeSyncListPager": True,
        "enableProfilingHandler": True,
        "nodeLeaseParallelism": 4,
        "podsOnNodeSyncParallelism": 1,
    },
}


_PORTS = (
    "etcdPeerPort",
    "etcdPort",
    "kubeApiserverPort",
    "kubeControllerManagerPort",
    "kubeSchedulerPort",
    "kwokControllerPort",
)


def _free_ports(first: int) -> dict[str, int]:
    """Return a free port for each component, from `first` upwards."""
    with ExitStack() as stack:
        free: list[int] = []
        for port in range(first, min(first + 1000, 1 << 16)):
            try:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            free.append(port)
            if len(free) == len(_PORTS):
                return dict(zip(_PORTS, free, strict=True))
    raise ClusterError(
        f"looking for free ports: there are not {len(_PORTS)} from {first} upwards; "
        f"{PORTS_VARIABLE} can name another"
    )


def checked(flags: Flags) -> dict[str, dict[str, str]]:
    """Return a copy of the flags. Raise an error for a component that no cluster has, or for a name
    or value that no flag can have. Whether the program knows the flag isn't checked."""
    for component, those in flags.items():
        if component not in COMPONENTS:
            raise ClusterError(
                f"setting flags of {component!r}: a cluster has {', '.join(COMPONENTS)}, no other"
            )
        for flag, value in those.items():
            if not _FLAG.fullmatch(flag):
                raise ClusterError(
                    f"setting flag {flag!r} of {component}: write its name alone, without dashes "
                    "before it and without its value"
                )
            if "\0" in value:
                raise ClusterError(f"setting flag {flag} of {component}: {value!r} has a NUL in it")
    return {component: dict(those) for component, those in flags.items()}


def configuration(
    *,
    manage_all_nodes: bool,
    raised_limits: bool,
    flags: Flags,
    first_port: int | None = None,
) -> str:
    """Return the configuration of a cluster, for kwokctl and for kwok.

    `raised_limits` raises default limits that would slow the components down: 20 requests a second
    of each controller, 50 of the scheduler, four pods at a time of kwok. With `first_port` the
    components get the first free ports from this one on, else kwokctl chooses. `flags` override all
    of these settings.
    """
    patches = [_patch(component, _NO_ELECTION) for component in _CLIENTS]
    if not manage_all_nodes:
        patches.append(_patch("kwok-controller", _MANAGE_ANNOTATED_NODES))
    options = _CONFIGURATION["options"] | (_free_ports(first_port) if first_port else {})
    documents = [_CONFIGURATION | {"options": options, "componentsPatches": patches}]
    if raised_limits:
        patches += [_patch(component, _RAISED_CLIENT_LIMITS) for component in _CLIENTS]
        documents.append(_RAISED_KWOK_LIMITS)
    patches += [_patch(component, those) for component, those in flags.items()]
    return "---\n".join(json.dumps(each, indent=2) + "\n" for each in documents)


def _patch(component: str, flags: Mapping[str, str]) -> dict[str, Any]:
    # These follow kwokctl's own flags: if a flag is given twice, the last one counts.
    arguments = [{"key": key, "value": value} for key, value in flags.items()]
    return {"name": component, "extraArgs": arguments}


class _Begun(Exception):
    """Raised to stop kwokctl once the cluster's directory contains kwok's own Stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kwokctl:
    """A kwokctl program, with the paths and settings that its commands need."""

    program: Path
    kubectl: Path
    kubernetes_version: str
    settings: Settings

    def create(
        self,
        name: str,
        *,
        tools: Tools,
        kubeconfig: Path,
        config: Path,
        extra: Sequence[str],
        check: Callable[[], None],
    ) -> None:
        """Create and start a cluster, and add a context for it to the kubeconfig file. This doesn't
        wait until the cluster can be used; `Cluster.wait_until_usable` does.

        `check` is called repeatedly while kwokctl runs; it raises an error to end the wait, if the
        cluster can't come up any more.
        """
        flags = ["--runtime", "binary"]
        flags += ["--config", str(config), "--kubeconfig", str(kubeconfig)]
        for component, tool in COMPONENTS.items():
            flags += [f"--{component}-binary", str(tools[tool])]
        self._run("create", name=name, flags=[*flags, *extra], check=check)

    def own_stages(self, name: str, *, extra: Sequence[str], **given: Any) -> str:
        """Return, as YAML, the Stages of a kwok that doesn't read them from the API.

        kwokctl writes them only into the directory of a new cluster, as its first step. So this
        method begins to create a cluster with these arguments, and stops kwokctl once the Stages
        are written.
        """
        directory = cluster_directory(name, settings=self.settings)
        # Another kubeconfig: if kwokctl is stopped while it writes that file, it leaves an empty
        # one, and a lock.
        given["kubeconfig"] = given["kubeconfig"].with_name("discarded.yaml")
        stages = ""

        def check() -> None:
            nonlocal stages
            before, stages = stages, _stages(directory)
            # kwokctl writes the file in several steps, so it is complete when two readings are the
            # same.
            if stages and stages == before:
                raise _Begun

        try:
            with contextlib.suppress(_Begun):
                self.create(name, extra=extra, check=check, **given)
                stages = _stages(directory)
        finally:
            processes.kill_all(self.program.parent, directory)
            shutil.rmtree(directory, ignore_errors=True)
        if not stages:
            raise ClusterError(f"asking {self.program} for kwok's own Stages: it wrote none")
        return stages

    def start(self, name: str, *, check: Callable[[], None]) -> None:
        """Start those components of a cluster that have no pid file. `check` is as in `create`."""
        self._run("start", name=name, flags=[], check=check)

    def _run(
        self,
        verb: str,
        *,
        name: str,
        flags: list[str],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        environ = self.settings.environ
        env = {
            # kwokctl takes options from KWOK_*: the user's must not change the cluster.
            **{key: value for key, value in environ.items() if not key.startswith("KWOK_")},
            "KWOK_WORKDIR": str(self.settings.cache / "kwok"),
            "KWOK_KUBE_VERSION": f"v{self.kubernetes_version}",
            # kwokctl runs kubectl by its name.
            "PATH": f"{self.kubectl.parent}:{environ.get('PATH', '')}",
        }
        log = self.settings.log(f"kwokctl-{name}")
        log.write_bytes(b"")
        what = f"running kwokctl {verb} cluster {name}"

        def tick(seconds: float) -> None:
            check()
            if seconds > _COMMAND_SECONDS:
                raise ClusterError(f"{what}: no end after {_COMMAND_SECONDS} s, see {log}")

        status = watch(
            [str(self.program), verb, "cluster", "--name", name, *flags],
            cwd=self.settings.cache,
            env=env,
            stdout=log,
            stderr=log,
            tick=tick,
        )
        if status:
            text = _complaints(log)
            raise ClusterError(f"{what}: it failed{hint(text)}\n{text}\n  the whole log: {log}")


def cluster_directory(name: str, *, settings: Settings) -> Path:
    """Return the directory in which kwokctl keeps a cluster: pid files, logs, certificates,
    data."""
    return settings.cache / "kwok" / "clusters" / name


def _stages(directory: Path) -> str:
    """Return the Stages in the configuration that kwokctl has written so far, as YAML."""
    try:
        documents = (directory / "kwok.yaml").read_text(encoding="utf-8").split("\n---\n")
    except FileNotFoundError:
        return ""
    return "\n---\n".join(text for text in documents if "\nkind: Stage\n" in f"\n{text}\n")


def _complaints(log: Path) -> str:
    """Return the errors in kwokctl's log, one per line."""
    errors = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            errors.append(line)
            continue
        if isinstance(entry, dict) and entry.get("level") in ("ERROR", "WARN"):
            errors.append(f"{entry.get('msg')}: {entry.get('err', '')}")
    return "\n".join(f"  {line[:300]}" for line in errors[-15:])
