"""What the shim's /metrics tells: calls by method and code, requests to the API server."""

from prometheus_client import CollectorRegistry, Histogram

from kwok_operator.shim.status import StatusCode

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class ShimMetrics:
    """One registry with the shim's metrics in it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Histogram(
            "kwok_operator_shim_call_duration_seconds",
            "Time of cluster-autoscaler's calls, by method and status code.",
            ["method", "code"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._requests = Histogram(
            "kwok_operator_api_request_duration_seconds",
            "Time of requests to the API server; code 0 is no answer.",
            ["method", "code"],
            registry=self.registry,
        )
        self._known: dict[tuple[str, StatusCode], Histogram] = {}

    def call(self, method: str, code: StatusCode, seconds: float) -> None:
        """Notes one call; `method` is its full name."""
        found = self._known.get((method, code))
        if found is None:
            name = method.rpartition("/")[2]
            found = self._known[method, code] = self._calls.labels(name, code.name)
        found.observe(seconds)

    def request(self, method: str, code: int, seconds: float) -> None:
        """Notes one exchange with the API server."""
        self._requests.labels(method, str(code)).observe(seconds)
