"""Puts a cluster that this package made back into an earlier state, within seconds and without a
trace of later objects.

    Rewinder(cluster): note all keys of etcd -> ... -> rewind:
        kill controllers, scheduler, kwok -> restore the noted keys -> start these three anew

etcd and the API server go on running: they remember nothing but what etcd holds, and take 5 s to
start. The other three have memories of their own (back-off of pods, expectations, the delays of
Stages), so they are started anew. All other programs that write into the cluster must have ended.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.controlplane import processes
from kwok_operator.controlplane.cluster import Cluster
from kwok_operator.controlplane.errors import ClusterError

CAN_REWIND: Final = sys.platform == "linux"
"""Whether a cluster can be put back on this machine: it needs /proc."""
_RESTARTED: Final = ("kube-controller-manager", "kube-scheduler", "kwok-controller")
_PORT_FLAGS: Final = ("--secure-port=", "--server-address=")
_ALL: Final = "/registry/"
_LEASES: Final = "/registry/leases/"
_OF_THE_API_SERVER: Final = tuple(
    f"/registry/{what}"
    for what in ("masterleases/", "peerserverleases/", "leases/kube-system/apiserver-")
)
"""Keys that a running API server writes for itself, every few seconds."""
_NEVER_KEPT: Final = ("/registry/events/", "/registry/leases/kube-node-lease/")
"""Prefixes of keys that are no part of a state that is put back: Events expire, and kwok makes the
Leases of nodes. If it starts and these exist, it may try to create them and then ignore the nodes
for 50 s, as it does not wait until its informer has listed them (node_lease_controller.go, sync).
"""
_OPERATIONS: Final = 100
"""The most operations of one transaction: less than etcd's --max-txn-ops, which is 128."""
_CHARACTERS: Final = 1_300_000
"""The most base64 of one transaction: as bytes, less than etcd's --max-request-bytes, 1.5 MiB."""
_REQUEST_SECONDS: Final = 30.0
_ROUNDS: Final = 20
_READY_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Started:
    """How a component was started, so that it can be started the same way again."""

    command: list[str]
    environment: dict[str, str]
    port: int


class Rewinder:
    """Puts one cluster back into the state that `note` has noted. The methods raise ClusterError,
    and block for seconds."""

    def __init__(self, cluster: Cluster) -> None:
        if cluster.directory is None:
            raise ClusterError(f"rewinding cluster {cluster.name}: it is not run by us")
        self._cluster = cluster
        self._directory = cluster.directory
        self._etcd = _flag(_command(cluster.pid("kube-apiserver")), "--etcd-servers=")
        self._components = {name: _started(cluster.pid(name)) for name in _RESTARTED}
        self._children: list[subprocess.Popen[bytes]] = []
        self._kept: dict[str, tuple[str, int]] = {}
        """Key -> its value (base64) and revision in the state that was noted."""

    def note(self) -> None:
        """Notes the present state, to which `rewind` will return. Leases are left out: their
        holders will have ended, and the next holders would have to wait until they expire."""
        self._kept = {
            key: (kv["value"], _revision(kv))
            for key, kv in self._read(values=True)
            if not key.startswith(_LEASES)
        }

    def noted(self) -> dict[str, tuple[str, int]]:
        """Returns the state that `note` has noted, as JSON can encode it, for `take` of another
        Rewinder."""
        return self._kept

    def take(self, noted: Mapping[str, Sequence[Any]]) -> None:
        """Makes this the noted state. `noted` is what another Rewinder of this cluster returned."""
        self._kept = {key: (str(value), int(revision)) for key, (value, revision) in noted.items()}

    def count(self) -> int:
        """Returns the number of keys in etcd, including Events and Leases of nodes, which `rewind`
        always deletes."""
        return int(self._request("range", {**_range(_ALL), "count_only": True}).get("count", 0))

    def rewind(self) -> None:
        """Returns the cluster to the state that was noted, and waits until it works again."""
        self._end_components()
        for _ in range(_ROUNDS):
            if not (operations := list(self._differing())):
                break
            for transaction in _transactions(operations):
                self._request("txn", {"success": transaction})
            if any("request_put" in each for each in operations):
                self._recognise()
        else:
            raise ClusterError(
                f"rewinding cluster {self._cluster.name}: something goes on writing into it:"
                f" {', '.join(self.differences()[:3])}"
            )
        self._start_components()

    def reap(self) -> None:
        """Waits for the end of the components' processes that `rewind` has started, so that no
        zombies stay. To be called once the cluster is removed."""
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_READY_SECONDS)
        self._children.clear()

    def differences(self) -> list[str]:
        """Returns the keys (in etcd) of objects that were made, changed or deleted since the state
        was noted."""
        there = {key: _revision(kv) for key, kv in self._read(values=False)}
        kept = {key: revision for key, (_, revision) in self._kept.items()}
        return sorted(key for key in {*there, *kept} if there.get(key) != kept.get(key))

    def _recognise(self) -> None:
        """Notes the present revision of each key whose value equals the noted one, so that the key
        doesn't count as changed."""
        for key, kv in self._read(values=True):
            if key in self._kept and kv["value"] == self._kept[key][0]:
                self._kept[key] = (kv["value"], _revision(kv))

    def _differing(self) -> Iterator[Mapping[str, Any]]:
        """Yields the etcd operations that undo all differences, and delete all Events and Leases of
        nodes."""
        used = {_resource(key) for key in self._kept}
        emptied = set(_NEVER_KEPT)
        for prefix in _NEVER_KEPT:
            if self._request("range", {**_range(prefix), "limit": 1}).get("kvs"):
                yield {"request_delete_range": _range(prefix)}
        for key in self.differences():
            resource = _resource(key)
            if key in self._kept:
                yield {"request_put": {"key": _packed(key), "value": self._kept[key][0]}}
            elif resource in used or resource == _LEASES or not key.startswith(resource):
                yield {"request_delete_range": {"key": _packed(key)}}
            elif resource not in emptied:
                emptied.add(resource)
                yield {"request_delete_range": _range(resource)}

    def _read(self, *, values: bool) -> Iterator[tuple[str, dict[str, Any]]]:
        answer = self._request("range", {**_range(_ALL), "keys_only": not values})
        for kv in answer.get("kvs", ()):
            key = base64.b64decode(kv["key"]).decode()
            if not key.startswith((*_OF_THE_API_SERVER, *_NEVER_KEPT)):
                yield key, kv

    def _request(self, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sends a request to etcd's JSON gateway. Raises ClusterError."""
        request = urllib.request.Request(
            f"{self._etcd}/v3/kv/{what}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        # Ignores proxies of the environment, as etcd runs on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_REQUEST_SECONDS) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        except (OSError, ValueError) as err:
            said = err.read().decode(errors="replace") if hasattr(err, "read") else ""
            raise ClusterError(
                f"rewinding cluster {self._cluster.name}: asking etcd: {err} {said[:300]}"
            ) from err

    def _end_components(self) -> None:
        for name in _RESTARTED:
            with contextlib.suppress(ClusterError, ProcessLookupError):
                os.kill(self._cluster.pid(name), signal.SIGKILL)
        for child in self._children:
            child.wait()
        self._children.clear()
        deadline = time.monotonic() + _READY_SECONDS
        programs = tuple(started.command[0] for started in self._components.values())
        while any(
            line.startswith(programs) for line in processes.running(self._directory).values()
        ):
            if time.monotonic() > deadline:
                raise ClusterError(f"rewinding cluster {self._cluster.name}: {programs} don't end")
            time.sleep(_POLL_SECONDS)

    def _start_components(self) -> None:
        for name, started in self._components.items():
            with (self._directory / "logs" / f"{name}.log").open("ab") as log:
                child = subprocess.Popen(
                    started.command,
                    cwd=self._directory,
                    env=started.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self._children.append(child)
            (self._directory / "pids" / f"{name}.pid").write_text(str(child.pid), encoding="ascii")
        deadline = time.monotonic() + _READY_SECONDS
        waiting = {name: started.port for name, started in self._components.items()}
        while waiting:
            waiting = {name: port for name, port in waiting.items() if not _listens(port)}
            self._cluster.check()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"rewinding cluster {self._cluster.name}: {', '.join(waiting)} not ready after"
                    f" {_READY_SECONDS:g} s; the logs: {self._directory / 'logs'}"
                )
            time.sleep(_POLL_SECONDS)


def _transactions(
    operations: Iterable[Mapping[str, Any]],
) -> Iterator[list[Mapping[str, Any]]]:
    """Splits the operations so that etcd accepts each part as one transaction."""
    part, size = list[Mapping[str, Any]](), 0
    for each in operations:
        more = len(each.get("request_put", {}).get("value", ""))
        if part and (len(part) == _OPERATIONS or size + more > _CHARACTERS):
            yield part
            part, size = [], 0
        part.append(each)
        size += more
    if part:
        yield part


def _command(pid: int) -> list[str]:
    return [os.fsdecode(each) for each in _proc(pid, "cmdline").split(b"\0") if each]


def _started(pid: int) -> _Started:
    variables = (os.fsdecode(each).partition("=") for each in _proc(pid, "environ").split(b"\0"))
    command = _command(pid)
    port = next(filter(None, (_flag(command, name) for name in _PORT_FLAGS)), "")
    environment = {name: value for name, equals, value in variables if equals}
    return _Started(command, environment, int(port.rpartition(":")[2]))


def _proc(pid: int, what: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{what}", "rb") as file:
            return file.read()
    except OSError as err:
        raise ClusterError(f"looking at a component: {err}; this needs Linux") from err


def _flag(command: Sequence[str], name: str) -> str:
    """Returns the value of a flag; if it is given twice, the last one counts."""
    return next(
        (each.removeprefix(name) for each in reversed(command) if each.startswith(name)), ""
    )


def _listens(port: int) -> bool:
    with socket.socket() as caller:
        caller.settimeout(1.0)
        return caller.connect_ex(("127.0.0.1", port)) == 0


def _resource(key: str) -> str:
    """Returns the prefix of all keys of a kind: /registry/pods/ of /registry/pods/default/a."""
    parts = key.split("/")
    # For a CRD's kind, the API group comes before the plural.
    return "/".join(parts[: 4 if "." in parts[2] else 3]) + "/"


def _range(prefix: str) -> dict[str, str]:
    return {"key": _packed(prefix), "range_end": _packed(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


def _packed(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _revision(kv: Mapping[str, Any]) -> int:
    return int(kv["mod_revision"])
