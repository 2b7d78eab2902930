"""The metrics of the simulated cloud: a group's instances by state, and the capacity pools that
groups share.

    CloudNumbers (of a group with spec.cloud)  --cloud_series-->  samples
    PoolCollector  <--put-- a pool's numbers at each pass; read when /metrics is requested

Only groups with spec.cloud have these metrics. The number of series is bounded: states, kinds of
errors and reasons are fixed; groupmetrics.py bounds the groups, and pools are bounded in the same
way.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MAX_POOLS: Final = 1_000
"""The most pools with series of their own. All others share one set of series."""
OTHERS: Final = "(others)"
"""The label of the set of series that further groups or pools share. No group or pool can have this
name."""
INSTANCE_STATES: Final = (
    "Waiting",
    "Creating",
    "Failed",
    "Unregistered",
    "Due",
    "Starting",
    "Initializing",
    "Ready",
    "NotReady",
    "Interrupted",
    "Deleting",
)
ERROR_CLASSES: Final = ("OutOfResources", "QuotaExceeded", "Other")
INTERRUPTED: Final = "Interrupted"
INTERRUPTION_REASONS: Final = (INTERRUPTED, "MaxLifetime")


@dataclass(slots=True)
class CloudNumbers:
    """The numbers of a group's simulated cloud, or the sums of several groups'.

    `instances` are in the order of INSTANCE_STATES, as of the last reconcile pass. Failures and
    interruptions are counters; all possible ones are exported from the start, with 0.
    """

    instances: tuple[int, ...] = (0,) * len(INSTANCE_STATES)
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ERROR_CLASSES, 0))
    interruptions: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(INTERRUPTION_REASONS, 0)
    )

    def add(self, other: "CloudNumbers") -> None:
        """Adds another group's present instances to these. Leaves out counters, whose sums are in
        `GroupCollector.counted`."""
        pairs = zip(self.instances, other.instances, strict=True)
        self.instances = tuple(a + b for a, b in pairs)


def cloud_series(groups: Sequence[tuple[str, CloudNumbers]]) -> Iterator[Metric]:
    """Yields the metrics of groups that have a spec.cloud."""
    instances = GaugeMetricFamily(
        "kwok_operator_instances",
        "Instances of a group with spec.cloud by state; each is in one, with a node or without.",
        labels=["group", "state"],
    )
    failures = CounterMetricFamily(
        "kwok_operator_instance_failures",
        "Instances that the simulated cloud did not give, each time it was tried.",
        labels=["group", "class"],
    )
    interruptions = CounterMetricFamily(
        "kwok_operator_interruptions",
        "Nodes that were given notice by the simulated cloud.",
        labels=["group", "reason"],
    )
    for name, numbers in groups:
        for state, count in zip(INSTANCE_STATES, numbers.instances, strict=True):
            instances.add_metric([name, state], count)
        for error_class, count in numbers.failures.items():
            failures.add_metric([name, error_class], count)
        for reason, count in numbers.interruptions.items():
            interruptions.add_metric([name, reason], count)
    yield from (instances, failures, interruptions)


@dataclass(slots=True)
class PoolNumbers:
    """The numbers of a KwokCapacityPool when it was last counted, or the sums of several pools."""

    instances: int = 0
    limit: float = 0.0
    refused: int = 0

    def add(self, other: "PoolNumbers") -> None:
        self.instances += other.instances
        self.limit += other.limit
        self.refused += other.refused


@dataclass(eq=False, slots=True)
class PoolCollector(Collector):
    """The metrics of pools. At most `most` pools have series of their own, the others are summed in
    one set of series. As long as a pool exists, it doesn't move between the two."""

    most: int = MAX_POOLS
    own: dict[str, PoolNumbers] = field(default_factory=dict)
    sharing: dict[str, PoolNumbers] = field(default_factory=dict)

    def put(self, name: str, numbers: PoolNumbers) -> None:
        """Sets a pool's numbers."""
        shares = name in self.sharing or (name not in self.own and len(self.own) >= self.most)
        (self.sharing if shares else self.own)[name] = numbers

    def forget(self, name: str) -> None:
        self.own.pop(name, None)
        self.sharing.pop(name, None)

    def collect(self) -> Iterable[Metric]:
        pools, sharing = list(self.own.items()), list(self.sharing.values())
        if sharing:  # `pools` and `sharing` are copies, as another thread may be reading
            shared = PoolNumbers()
            for each in sharing:
                shared.add(each)
            pools.append((OTHERS, shared))
        families = {
            "instances": "Instances that draw from a KwokCapacityPool.",
            "instances_limit": "Most instances of a pool; +Inf where it does not limit them.",
            "instances_refused": "Instances that found no room in a pool, and wait.",
        }
        used, limit, refused = (
            GaugeMetricFamily(f"kwok_operator_pool_{name}", text, labels=["pool"])
            for name, text in families.items()
        )
        for name, numbers in pools:
            used.add_metric([name], numbers.instances)
            limit.add_metric([name], numbers.limit)
            refused.add_metric([name], numbers.refused)
        yield from (used, limit, refused)
