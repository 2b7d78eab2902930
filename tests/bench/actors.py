"""The rivals: each makes and removes nodes in its way, when told to.

    Operator   kwok-operator as its service account; told with `kubectl scale`, or, with several
               groups, by as many plain HTTP requests at once
    Ceiling    the load generator as a service account with the same rights; told over a pipe
    Kwokctl    `kwokctl scale node`, always as admin: one process each time it is told

`scale` returns at once with the moment at which the rival was told; who wants to know when it is
done asks the observer, which is the same for all. `settle` waits until the rival has nothing more
to do. An actor runs only during its own turns, so none takes CPU from another.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from kwok_operator.constants import GROUPS_PATH, PLURAL
from kwok_operator.nodegroups.template import KubeletEndpoint
from tests.bench import body, prometheus
from tests.bench.cluster import CEILING, OPERATOR, BenchCluster
from tests.bench.observer import NODES, READY
from tests.bench.procfs import Usage, usage
from tests.e2e.operator import Process

ROOT: Final = Path(__file__).resolve().parents[2]
GROUP: Final = "bench"
MAX_TOTAL_NODES: Final = "--max-total-nodes=200000"
LAG: Final = "kwok_operator_event_loop_lag_seconds"
_OTHER_GROUP = "ceiling"
_SECONDS = 1800.0
_ACCEPTED_SECONDS = 30.0
_END_SECONDS = 20.0


class ActorError(Exception):
    """A rival that did not do what it was told."""


@dataclass(frozen=True, slots=True)
class Told:
    """When a rival was told, by the monotonic clock.

    The teller (kubectl, say) began and had ended; the API server had accepted it in between.
    """

    began: float
    accepted: float
    ended: float


def end(process: "subprocess.Popen[Any]", *, ask: bool = True) -> None:
    """End a process, by force where it takes long; `ask` it to, unless it knows already."""
    if ask:
        process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Actor(Protocol):
    """A rival."""

    name: str

    def start(self) -> None: ...
    def scale(self, size: int) -> Told: ...
    def settle(self) -> None: ...
    def stop(self) -> None: ...
    def usage(self) -> Usage | None: ...


class Operator:
    """kwok-operator, with one group or several."""

    name = "operator"

    def __init__(
        self,
        bench: BenchCluster,
        *,
        flags: tuple[str, ...] = (),
        groups: int = 1,
        spec: dict[str, Any] | None = None,
    ) -> None:
        self._bench = bench
        self._flags = flags
        self._spec = spec or {}
        self.groups = [GROUP] if groups == 1 else [f"{GROUP}-{each:02d}" for each in range(groups)]
        self._runs = 0
        self.process: Process | None = None

    def start(self) -> None:
        for group in self.groups:
            self._bench.apply_group(group, **{"targetSize": 0, **self._spec})
        self.launch()

    def launch(self) -> float:
        """The process alone; returns the seconds until it is ready."""
        self._runs += 1
        started = time.monotonic()
        self.process = Process(
            kubeconfig=self._bench.kubeconfig(OPERATOR),
            log=self._bench.directory / f"operator-{self._runs}.log",
            flags=(MAX_TOTAL_NODES, *self._flags),
        )
        self.process.wait_ready()
        return time.monotonic() - started

    def scale(self, size: int) -> Told:
        share, rest = divmod(size, len(self.groups))
        if rest:
            raise ValueError(f"{size} nodes can't be shared by {len(self.groups)} groups")
        if len(self.groups) > 1:
            return self._patch_all(share)
        targets = self._bench.targets
        targets.expect(lambda view: view.targets.get(self.groups[0]) == size)
        began = time.monotonic()
        self._bench.kubectl("scale", PLURAL, self.groups[0], f"--replicas={size}")
        ended = time.monotonic()
        return Told(began, targets.wait(_ACCEPTED_SECONDS), ended)

    def patch(self, size: int) -> Told:
        """As `scale` without kubectl, by a plain HTTP request; for one group."""
        began = time.monotonic()
        self._bench.api.scale(f"{GROUPS_PATH}/{self.groups[0]}", size)
        ended = time.monotonic()
        return Told(began, ended, ended)

    def _patch_all(self, share: int) -> Told:
        # kubectl would ask for one group after the other, for seconds.
        def tell(group: str) -> None:
            api = self._bench.api.another()
            api.scale(f"{GROUPS_PATH}/{group}", share)
            api.close()

        with ThreadPoolExecutor(len(self.groups)) as pool:
            began = time.monotonic()
            list(pool.map(tell, self.groups))
        ended = time.monotonic()
        return Told(began, ended, ended)

    def settle(self) -> None:
        if self.process is not None and not self.process.running:
            raise ActorError(f"the operator has ended:\n{self.process.log()[-2000:]}")

    def stop(self) -> None:
        if self.process is not None and self.process.running:
            try:
                self.process.terminate()
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process = None

    def usage(self) -> Usage:
        assert self.process is not None
        return usage(self.process.pid)

    def largest_lag(self) -> float | None:
        """The longest that its event loop stood still, in seconds, where it tells."""
        assert self.process is not None
        status, text = self.process.get("/metrics")
        return prometheus.largest(text, LAG) if status == 200 else None


class Ceiling:
    """The load generator."""

    name = "ceiling"

    def __init__(
        self,
        bench: BenchCluster,
        *,
        max_pods: int | None = None,
        companions: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._bench = bench
        self._max_pods = max_pods
        self._companions = companions
        self._popen: subprocess.Popen[str] | None = None
        self._parts: Callable[[int], list[str]] = lambda nodes: []
        self._size = 0
        self._next = 0
        self._pending: str | None = None
        self.concurrency = {"create": 32, "delete": 32}

    def start(self) -> None:
        self._bench.apply_group(_OTHER_GROUP, paused=True)
        path = f"{GROUPS_PATH}/{_OTHER_GROUP}"
        uid = self._bench.api.json(path)["metadata"]["uid"]
        endpoint = learn_endpoint(self._bench)
        self._parts = lambda nodes: body.parts(
            group=_OTHER_GROUP, uid=uid, endpoint=endpoint, max_pods=self._max_pods, nodes=nodes
        )
        self._popen = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.generator",
                str(self._bench.kubeconfig(CEILING)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is for the bench, which then closes its input.
            start_new_session=True,
        )
        self._size = 0
        self._pending = "ready"
        self.settle()

    def scale(self, size: int) -> Told:
        count = abs(size - self._size)
        work = "create" if size >= self._size else "delete"
        # The oldest go first: which ones does not matter to the API server.
        first = self._next if work == "create" else self._next - self._size
        command = {
            "do": work,
            "prefix": "ceiling-abcd-",
            "first": first,
            "count": count,
            "concurrency": self.concurrency[work],
        }
        if work == "create":
            parts = self._parts(size)
            command |= {"parts": parts, "patch": body.patch_parts(parts)}
            command |= {"companions": self._companions, "marks": [body.NAME, body.UID]}
        self._next += count if work == "create" else 0
        self._size = size
        now = time.monotonic()
        self._send(json.dumps(command))
        self._pending = work
        return Told(now, now, now)

    def settle(self) -> None:
        """Raises ActorError where an answer was no success."""
        if self._pending is None:
            return
        answers = self._answer().get("answers", {})
        # 422: of a few nodes at a time, kube-controller-manager has taken the taint off before.
        expected = {"create": {"201", "200", "422"}, "delete": {"200"}}.get(self._pending, set())
        if set(answers) - expected:
            raise ActorError(f"the load generator got {answers}")
        self._pending = None

    def find_concurrency(self, choices: tuple[int, ...], *, burst: int) -> dict[str, Any]:
        """Try each with a burst of nodes, and keep the quickest for creating and for deleting."""
        seconds: dict[str, dict[int, float]] = {"create": {}, "delete": {}}
        for each in (*choices, *reversed(choices)):
            self.concurrency = {"create": each, "delete": each}
            for work, size in (("create", burst), ("delete", 0)):
                self.scale(size)
                answer = self._answer()
                self._pending = None
                if answer["answers"].get("422", 0) > burst / 2:
                    raise ActorError(f"the taint is not where it is expected: {answer['answers']}")
                taken = float(answer["seconds"])
                seconds[work][each] = min(taken, seconds[work].get(each, taken))
        self.concurrency = {
            work: min(found, key=lambda c, found=found: found[c])  # type: ignore[misc]
            for work, found in seconds.items()
        }
        return {"tried": seconds, "best": self.concurrency}

    def stop(self) -> None:
        if self._popen is not None:
            assert self._popen.stdin is not None
            with suppress(BrokenPipeError):
                self._popen.stdin.close()
            end(self._popen, ask=False)
            assert self._popen.stdout is not None
            self._popen.stdout.close()
        self._popen = None

    def usage(self) -> Usage:
        assert self._popen is not None
        return usage(self._popen.pid)

    def _send(self, line: str) -> None:
        assert self._popen is not None and self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n")
        self._popen.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._popen is not None and self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise ActorError("the load generator has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class Kwokctl:
    """`kwokctl scale node`, for one set of nodes or for several at once."""

    bench: BenchCluster
    groups: int = 1
    name: str = "kwokctl"
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Nothing: each time it is told, it is a new process."""

    def scale(self, size: int) -> Told:
        settings, cluster = self.bench.settings, self.bench.cluster
        environ = {k: v for k, v in settings.environ.items() if not k.startswith("KWOK_")}
        environ["KWOK_WORKDIR"] = str(settings.cache / "kwok")
        environ["PATH"] = f"{cluster.kubectl.parent}:{environ.get('PATH', '')}"
        share = size // self.groups
        began = time.monotonic()
        with (self.bench.directory / "kwokctl.log").open("ab") as log:
            for each in range(self.groups):
                command = [str(cluster.kwokctl), "scale", "node", f"peer-{each:02d}"]
                command += [f"--replicas={share}", f"--name={cluster.name}"]
                self._running.append(subprocess.Popen(command, env=environ, stdout=log, stderr=log))
        return Told(began, began, began)

    def settle(self) -> None:
        """Raises ActorError where it has failed."""
        for process in self._running:
            if process.wait(_SECONDS):
                log = (self.bench.directory / "kwokctl.log").read_text()
                raise ActorError(f"kwokctl scale node failed:\n{log[-1000:]}")
        self._running.clear()

    def stop(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()

    def usage(self) -> None:
        """It does not live long enough to be asked."""


@contextmanager
def running(actor: Actor) -> Iterator[None]:
    """An actor that is there as long as the block."""
    try:
        actor.start()
        yield
    finally:
        actor.stop()


def learn_endpoint(bench: BenchCluster) -> KubeletEndpoint:
    """Where kwok serves the kubelet API, from a node that it has initialised."""
    name = f"probe-{time.monotonic_ns()}"
    annotations = {"kwok.x-k8s.io/node": "fake"}
    metadata = {"name": name, "annotations": annotations}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    key = name.encode()
    bench.nodes.expect(lambda sight: key in sight.first[READY])
    bench.api.request("POST", NODES, body=node)
    bench.nodes.wait(60)
    status = bench.api.json(f"{NODES}/{name}")["status"]
    bench.nodes.expect(lambda sight: sight.present == 0)
    bench.api.request("DELETE", f"{NODES}/{name}")
    bench.nodes.wait(60)
    return KubeletEndpoint(
        addresses=tuple((each["type"], each["address"]) for each in status["addresses"]),
        port=status["daemonEndpoints"]["kubeletEndpoint"]["Port"],
    )
