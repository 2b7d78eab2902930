"""The shim's metrics: calls by method and code, sizes of its store, and the age of its watches."""

from collections.abc import Callable

from prometheus_client import Counter, Histogram

from kwok_operator.observability.metrics import ProcessMetrics
from kwok_operator.shim.grpcwire import StatusCode

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class ShimMetrics(ProcessMetrics):
    """The shim's metrics, in one registry."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = Histogram(
            "kwok_operator_shim_call_duration_seconds",
            "Time of cluster-autoscaler's calls, by method and status code.",
            ["method", "code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._troubles = Counter(
            "kwok_operator_shim_api_troubles",
            "Calls that --api-trouble has touched, by method and by what it did.",
            ["method", "kind"],
            registry=self.registry,
        )
        self._calls_known: dict[tuple[str, StatusCode], Histogram] = {}

    def call(self, method: str, code: StatusCode, seconds: float) -> None:
        """Counts a call; `method` is its full name."""
        calls = self._calls_known.get((method, code))
        if calls is None:
            name = method.rpartition("/")[2]
            calls = self._calls_known[method, code] = self._calls.labels(name, code.name)
        calls.observe(seconds)

    def trouble(self, method: str, kind: str) -> None:
        """Counts a call with simulated trouble; `kind` is latency, error or timeout."""
        self._troubles.labels(method, kind).inc()

    def watch_store(
        self, *, sizes: Callable[[], tuple[int, int, int]], synced: Callable[[], bool]
    ) -> None:
        """Adds gauges of the store. `sizes` returns how many groups CA may drive, how many groups
        there are, and how many nodes; `synced` returns whether groups and nodes have been listed.
        """
        text = "Groups that cluster-autoscaler may drive."
        self._gauge("kwok_operator_shim_groups_served", text, lambda: sizes()[0])
        self._gauge("kwok_operator_shim_groups", "Groups that are known.", lambda: sizes()[1])
        self._gauge(
            "kwok_operator_shim_nodes", "Nodes of groups that are known.", lambda: sizes()[2]
        )
        text = "1 once groups and nodes have been listed; until then calls are refused."
        self._gauge("kwok_operator_shim_synced", text, synced)
