"""What /metrics shows: every metric's name, unit and labels.

    what happens ──> counters, histograms ─┐
    groups: numbers as of the last pass ───┼──> registry ──> /metrics
    gauges: functions called when read ────┘

The number of series is bounded: labels are methods, codes, kinds of objects, conditions and groups
(groupmetrics.py), never a node's name. An event about a node costs one addition.
"""

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from kwok_operator import __version__
from kwok_operator.observability.cloudmetrics import (
    INSTANCE_STATES,
    INTERRUPTED,
    CloudNumbers,
    PoolCollector,
    PoolNumbers,
)
from kwok_operator.observability.groupmetrics import CONDITIONS, NODE_STATES, GroupCollector

RESOURCES: Final = frozenset(
    "configmaps customresourcedefinitions events kwokcapacitypools kwoknodegroups leases"
    " namespaces nodes pods secrets selfsubjectaccessreviews stages".split()
)

_LIMITS = tuple(
    Path("/sys/fs/cgroup") / file for file in ("memory.max", "memory/memory.limit_in_bytes")
)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# The metrics `..._created` would double the number of series, and Prometheus doesn't use them.
disable_created_metrics()  # type: ignore[no-untyped-call]


_Name = TypeVar("_Name", bound=str)


class ProcessMetrics:
    """The metrics that operator and shim have in common, in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Gauge(
            "kwok_operator_build_info",
            "Always 1; the labels name what runs.",
            ["version", "python_version"],
            registry=self.registry,
        )
        build.labels(__version__, platform.python_version()).set(1)
        limit = memory_limit()
        self._gauge(
            "kwok_operator_memory_limit_bytes",
            "The memory that this process may use; +Inf where nothing limits it.",
            lambda: limit,
        )
        self._requests = Histogram(
            "kwok_operator_api_request_duration_seconds",
            "Time of requests to the API server; code 0 is no answer.",
            ["method", "resource", "code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._known: dict[tuple[str, str, int], Histogram] = {}
        self._watch_restarts = Counter(
            "kwok_operator_watch_restarts",
            "Watches that were begun anew: closed by the server as it should, expired, or failed.",
            ["resource", "cause"],
            registry=self.registry,
        )
        self._watch_silence = Gauge(
            "kwok_operator_watch_silence_seconds",
            "Time since a watch last heard something; the API server speaks once a minute.",
            ["resource"],
            registry=self.registry,
        )

    def request(self, method: str, path: str, code: int, seconds: float) -> None:
        """Counts one request to the API server; `code` is 0 if there was no answer."""
        key = method, resource_of(path), code
        series = self._known.get(key)
        if series is None:
            series = self._known[key] = self._requests.labels(key[0], key[1], str(code))
        series.observe(seconds)

    def watch_restarted(self, path: str, cause: str) -> None:
        """Counts a watch that has ended: "closed", "expired" or "failed"."""
        self._watch_restarts.labels(resource_of(path), cause).inc()

    def watch_contact(self, path: str, last_contact: Callable[[], float]) -> None:
        """Exports for how long a watch has been silent. `last_contact` returns when the API server
        last sent something through it, in monotonic seconds."""
        gauge = self._watch_silence.labels(resource_of(path))
        gauge.set_function(lambda: max(0.0, time.monotonic() - last_contact()))

    def _gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(name, text, registry=self.registry).set_function(value)


def memory_limit(files: Sequence[Path] = _LIMITS) -> float:
    """Returns the memory limit of the process's control group (a container's limit), in bytes."""
    for file in files:
        try:
            return float(file.read_text())
        except (OSError, ValueError):  # no such file, or the text "max"
            continue
    return float("inf")


def resource_of(path: str) -> str:
    """Returns the plural of the resource in a path, or "other" for a resource that the operator
    never requests.

    >>> resource_of("/api/v1/namespaces/default/events/web.1")
    'events'
    """
    parts = path.split("/")
    place = 3 if parts[1] == "api" else 4
    if len(parts) > place + 2 and parts[place] == "namespaces":
        place += 2
    plural = parts[place] if len(parts) > place else ""
    return plural if plural in RESOURCES else "other"


class Metrics(ProcessMetrics):
    """The operator's metrics, in one registry."""

    def __init__(self) -> None:
        super().__init__()
        self._groups = GroupCollector()
        self.registry.register(self._groups)
        self._pools = PoolCollector()
        self.registry.register(self._pools)
        self._reconciles = Histogram(
            "kwok_operator_reconcile_duration_seconds",
            "Time of one pass over one group.",
            buckets=(*_SECONDS, 60.0, 300.0),
            registry=self.registry,
        )
        self._reconcile_errors = Counter(
            "kwok_operator_reconcile_errors",
            "Passes over a group that failed, and are tried again.",
            registry=self.registry,
        )
        self._provider_problems = Gauge(
            "kwok_operator_provider_config_problems",
            "What is wrong with the provider config at present, by reason.",
            ["reason"],
            registry=self.registry,
        )
        self._set_up_pace()

    def _set_up_pace(self) -> None:
        """Adds metrics on throttled and repeated writes of nodes, and on delays of the event loop.
        They show whether the API server, or the operator itself, is slow."""
        self.node_writes_throttled = Counter(
            "kwok_operator_node_writes_throttled",
            "Writes of nodes that the API server asked to come back with later.",
            registry=self.registry,
        )
        self.node_write_retries = Counter(
            "kwok_operator_node_write_retries",
            "Writes of nodes that were tried again, for whatever reason.",
            registry=self.registry,
        )
        self._loop_lag = Histogram(
            "kwok_operator_event_loop_lag_seconds",
            "How late the event loop comes to what is due; looked at ten times a second.",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
            registry=self.registry,
        )
        self._longest_lag = Gauge(
            "kwok_operator_event_loop_lag_longest_seconds",
            "The longest such delay since the start: as time passed, and of it the CPU's at most.",
            ["clock"],
            registry=self.registry,
        )
        self._longest = {"wall": 0.0, "cpu": 0.0}

    def provider_problems(self, counts: Mapping[str, int]) -> None:
        """Sets the number of problems of the provider config by reason; removes the series of all
        other reasons."""
        self._provider_problems.clear()
        for reason, count in counts.items():
            self._provider_problems.labels(reason).set(count)

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Exports how many groups wait to be reconciled, or are being reconciled."""
        text = "Groups that wait for a pass or are in one."
        self._gauge("kwok_operator_queue_depth", text, depth)

    def watch_write_limit(self, limit: Callable[[], int]) -> None:
        """Exports how many nodes may be written at once."""
        text = "Writes of nodes that may be in flight: --node-concurrency, less when throttled."
        self._gauge("kwok_operator_node_write_limit", text, limit)

    def watch_leader(self, is_leader: Callable[[], bool]) -> None:
        """Exports whether this replica is the one that writes."""
        text = "1 while this replica is the one that writes."
        self._gauge("kwok_operator_leader", text, is_leader)

    def watch_kwok(self, responds: Callable[[], bool]) -> None:
        """Exports whether a kwok controller still updates the nodes."""
        text = "0 while no kwok controller seems to look after the nodes."
        self._gauge("kwok_operator_kwok_responding", text, responds)

    def watch_total(
        self, *, nodes: Callable[[], int], limit: int, waiting: Callable[[], int]
    ) -> None:
        """Exports the number of all groups' nodes, and its limit, --max-total-nodes."""
        text = "Nodes of all groups, those that are terminating too."
        self._gauge("kwok_operator_nodes", text, nodes)
        self._gauge("kwok_operator_nodes_limit", "--max-total-nodes.", lambda: limit)
        text = "Groups that get fewer nodes than they want, because of --max-total-nodes."
        self._gauge("kwok_operator_groups_waiting_for_room", text, waiting)

    def loop_lag(self, wall: float, cpu: float) -> None:
        """Counts a delay of the event loop: it lasted `wall` seconds, and this thread computed for
        at most `cpu` of them.
        """
        self._loop_lag.observe(wall)
        for clock, seconds in (("wall", wall), ("cpu", cpu)):
            if seconds > self._longest[clock]:
                self._longest[clock] = seconds
                self._longest_lag.labels(clock).set(seconds)

    @contextmanager
    def reconciling(self, clock: Callable[[], float]) -> Iterator[None]:
        """Observes the block, a reconcile pass over one group: how long it takes, and whether it
        fails."""
        started = clock()
        try:
            yield
        except Exception:
            self._reconcile_errors.inc()
            raise
        finally:
            self._reconciles.observe(clock() - started)

    def group(
        self,
        name: str,
        *,
        target: int,
        nodes: Mapping[str, int],
        conditions: Iterable[str],
        oldest_pending: str | None,
    ) -> None:
        """Sets a group's numbers: nodes by state, the conditions that are True, and when the oldest
        instance without a Node was requested (RFC 3339).
        """
        numbers, true = self._groups.of(name), frozenset(conditions)
        numbers.target = target
        numbers.nodes = tuple(nodes[state] for state in NODE_STATES)
        numbers.conditions = tuple(int(kind in true) for kind in CONDITIONS)
        numbers.requested_at = _epoch(oldest_pending) if oldest_pending else None

    def cloud(self, group: str, states: Mapping[_Name, int] | None) -> None:
        """Sets a group's instances by state; `states` is None if the group has no spec.cloud (any
        more)."""
        numbers = self._groups.of(group)
        if states is None:
            numbers.cloud = None
            return
        counts = {str(state): count for state, count in states.items()}
        numbers.cloud = numbers.cloud or CloudNumbers()
        numbers.cloud.instances = tuple(counts.get(state, 0) for state in INSTANCE_STATES)

    def instance_failed(self, group: str, class_: str, count: int = 1) -> None:
        """Counts failed tries to create instances in the simulated cloud, by class of error."""
        self._groups.counting_cloud(group).failures[class_] += count

    def interrupted(self, group: str, reason: str, count: int = 1) -> None:
        """Counts nodes that got an interruption notice. The reason is read from a Node, into which
        any program can write: a reason that the operator doesn't use counts as Interrupted."""
        counts = self._groups.counting_cloud(group).interruptions
        counts[reason if reason in counts else INTERRUPTED] += count

    def pool(self, name: str, *, used: int, limit: int | None, refused: int) -> None:
        """Sets the numbers of a KwokCapacityPool: its instances, its limit (None: no limit), and
        the instances for which it had no room."""
        limited = float("inf") if limit is None else float(limit)
        self._pools.put(name, PoolNumbers(used, limited, refused))

    def forget_pool(self, name: str) -> None:
        """Removes a pool that is gone."""
        self._pools.forget(name)

    def node_created(self, group: str) -> None:
        self._groups.counting(group).created += 1

    def node_updated(self, group: str) -> None:
        self._groups.counting(group).updated += 1

    def node_deleted(self, group: str) -> None:
        self._groups.counting(group).deleted += 1

    def forget(self, name: str) -> None:
        """Removes a group that is gone."""
        self._groups.forget(name)


@lru_cache(maxsize=1_000)
def _epoch(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):  # the status was not written by the operator
        return None
