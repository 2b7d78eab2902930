"""What /metrics tells: every metric's name, unit and labels.

Labels are bounded: methods, codes, groups; never a node's name.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """One registry with the operator's metrics in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Histogram(
            "kwok_operator_api_request_duration_seconds",
            "Time of requests to the API server; code 0 is no answer.",
            ["method", "code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._reconciles = Histogram(
            "kwok_operator_reconcile_duration_seconds",
            "Time of one pass over one group.",
            buckets=(*_SECONDS, 60.0, 300.0),
            registry=self.registry,
        )
        self.nodes_created = Counter(
            "kwok_operator_nodes_created",
            "Nodes created.",
            ["group"],
            registry=self.registry,
        )
        self.nodes_updated = Counter(
            "kwok_operator_nodes_updated",
            "Nodes patched because their template had changed.",
            ["group"],
            registry=self.registry,
        )
        self.nodes_deleted = Counter(
            "kwok_operator_nodes_deleted",
            "Nodes deleted.",
            ["group"],
            registry=self.registry,
        )
        self._sizes = Gauge(
            "kwok_operator_group_nodes",
            "Nodes of a group: target, replicas, ready, pending.",
            ["group", "state"],
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
        """What tells whether the API server, or the operator itself, is slow."""
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
            "How long the event loop was busy in one turn, and heard nobody.",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
            registry=self.registry,
        )
        self._longest_lag = Gauge(
            "kwok_operator_event_loop_lag_longest_seconds",
            "The longest turn of the event loop since the start: as time passed, and of the CPU.",
            ["clock"],
            registry=self.registry,
        )
        self._longest = {"wall": 0.0, "cpu": 0.0}

    def provider_problems(self, counts: Mapping[str, int]) -> None:
        """Sets the number of problems of the provider config; what is not named is none."""
        self._provider_problems.clear()
        for reason, count in counts.items():
            self._provider_problems.labels(reason).set(count)

    def watch_queue(self, depth: Callable[[], int]) -> None:
        """Tells the number of groups that wait or are worked on, whenever it is asked for."""
        gauge = Gauge(
            "kwok_operator_queue_depth",
            "Groups that wait for a pass or are in one.",
            registry=self.registry,
        )
        gauge.set_function(depth)

    def watch_write_limit(self, limit: Callable[[], int]) -> None:
        """Tells how many nodes may be written at once, whenever it is asked for."""
        gauge = Gauge(
            "kwok_operator_node_write_limit",
            "Writes of nodes that may be in flight: --node-concurrency, less when throttled.",
            registry=self.registry,
        )
        gauge.set_function(limit)

    def request(self, method: str, code: int, seconds: float) -> None:
        """Notes one exchange with the API server."""
        self._requests.labels(method, str(code)).observe(seconds)

    def loop_turn(self, wall: float, cpu: float) -> None:
        """Notes one turn of the event loop: seconds that passed, and seconds of the CPU."""
        self._loop_lag.observe(wall)
        for clock, seconds in (("wall", wall), ("cpu", cpu)):
            if seconds > self._longest[clock]:
                self._longest[clock] = seconds
                self._longest_lag.labels(clock).set(seconds)

    def reconciled(self, seconds: float) -> None:
        """Notes one pass over a group."""
        self._reconciles.observe(seconds)

    def group(self, name: str, *, target: int, replicas: int, ready: int, pending: int) -> None:
        """Sets a group's sizes."""
        sizes = {"target": target, "replicas": replicas, "ready": ready, "pending": pending}
        for state, nodes in sizes.items():
            self._sizes.labels(name, state).set(nodes)

    def forget(self, name: str) -> None:
        """Takes out a group that is gone."""
        for state in ("target", "replicas", "ready", "pending"):
            with suppress(KeyError):
                self._sizes.remove(name, state)
        for counter in (self.nodes_created, self.nodes_updated, self.nodes_deleted):
            with suppress(KeyError):
                counter.remove(name)
