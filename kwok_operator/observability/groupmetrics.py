"""The metrics of groups: numbers that each pass of the reconciler sets, and that are exported when
/metrics is requested.

The first groups have series of their own; the others share one set, so that the number of series is
bounded. A group keeps its series as long as it exists, so that counters never fall and sums are
right.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kwok_operator.observability.cloudmetrics import OTHERS, CloudNumbers, cloud_series

MAX_GROUPS: Final = 1_000
"""The most groups with series of their own. All others share one set of series."""
NODE_STATES: Final = ("ready", "not_ready", "pending", "failed", "terminating")
CONDITIONS: Final = ("Ready", "Stalled", "TemplateResolved", "ScalingLimited", "Paused")


@dataclass(slots=True)
class GroupNumbers:
    """The numbers of a group as of its last reconcile pass, or the sums of several groups.

    `nodes` are in the order of NODE_STATES, `conditions` in that of CONDITIONS. `requested_at` is
    when the oldest instance without a Node was requested, in seconds since the epoch.
    """

    target: int = 0
    nodes: tuple[int, ...] = (0,) * len(NODE_STATES)
    conditions: tuple[int, ...] = (0,) * len(CONDITIONS)
    requested_at: float | None = None
    created: int = 0
    updated: int = 0
    deleted: int = 0
    cloud: CloudNumbers | None = None
    """The numbers of the group's simulated cloud; None if it has no spec.cloud."""

    def add(self, other: "GroupNumbers") -> None:
        """Adds another group's present numbers to these. Leaves out counters, whose sums are in
        `GroupCollector.counted`."""
        self.target += other.target
        self.nodes = tuple(a + b for a, b in zip(self.nodes, other.nodes, strict=True))
        pairs = zip(self.conditions, other.conditions, strict=True)
        self.conditions = tuple(a + b for a, b in pairs)
        times = [at for at in (self.requested_at, other.requested_at) if at is not None]
        self.requested_at = min(times, default=None)
        if other.cloud is not None:
            self.cloud = self.cloud or CloudNumbers()
            self.cloud.add(other.cloud)


@dataclass(eq=False, slots=True)
class GroupCollector(Collector):
    """The metrics of groups. At most `limit` groups have series of their own, the others are summed
    in one set of series. As long as a group exists, it doesn't move between the two."""

    clock: Callable[[], float] = time.time
    limit: int = MAX_GROUPS
    own: dict[str, GroupNumbers] = field(default_factory=dict)
    sharing: dict[str, GroupNumbers] = field(default_factory=dict)
    counted: GroupNumbers = field(default_factory=GroupNumbers)
    """The counters of all groups without series of their own. They never decrease, even if such a
    group is deleted."""

    def of(self, name: str) -> GroupNumbers:
        """Returns a group's numbers, for the operator to set at each reconcile pass. They are all 0
        for a new group."""
        numbers = self.own.get(name) or self.sharing.get(name)
        if numbers is None:
            place = self.own if len(self.own) < self.limit else self.sharing
            numbers = place[name] = GroupNumbers()
        return numbers

    def counting(self, name: str) -> GroupNumbers:
        """Returns the counters of a group's writes: its own, or those shared by all groups without
        series of their own."""
        return self.own.get(name, self.counted)

    def counting_cloud(self, name: str) -> CloudNumbers:
        """Returns the counters of a group's failures and interruptions: its own, or the shared
        ones."""
        self.of(name)
        numbers = self.counting(name)
        numbers.cloud = numbers.cloud or CloudNumbers()
        return numbers.cloud

    def forget(self, name: str) -> None:
        self.own.pop(name, None)
        self.sharing.pop(name, None)

    def collect(self) -> Iterable[Metric]:
        groups = list(self.own.items())  # copied, as another thread may be reading
        shared, sharing = GroupNumbers(), list(self.sharing.values())
        for each in sharing:
            shared.add(each)
        if sharing or self.counted != GroupNumbers():
            shared.created, shared.updated = self.counted.created, self.counted.updated
            shared.deleted = self.counted.deleted
            if self.counted.cloud is not None:
                counted, shared.cloud = self.counted.cloud, shared.cloud or CloudNumbers()
                shared.cloud.failures = counted.failures
                shared.cloud.interruptions = counted.interruptions
            groups.append((OTHERS, shared))
        yield self._total(len(self.own) + len(sharing))
        yield from self._sizes(groups)
        yield from _counts(groups)
        yield from cloud_series([(name, of.cloud) for name, of in groups if of.cloud])

    def _total(self, groups: int) -> Metric:
        text = "Groups that the operator has looked at."
        return GaugeMetricFamily("kwok_operator_groups", text, value=groups)

    def _sizes(self, groups: list[tuple[str, GroupNumbers]]) -> Iterator[Metric]:
        target = GaugeMetricFamily(
            "kwok_operator_group_target_nodes",
            "Nodes that a group aims at: its targetSize within all limits.",
            labels=["group"],
        )
        nodes = GaugeMetricFamily(
            "kwok_operator_group_nodes",
            "Nodes of a group by state; each is in one. Pending and failed ones don't exist yet.",
            labels=["group", "state"],
        )
        age = GaugeMetricFamily(
            "kwok_operator_group_pending_age_seconds",
            "How long the oldest node has been asked for that does not exist yet.",
            labels=["group"],
        )
        condition = GaugeMetricFamily(
            "kwok_operator_group_condition",
            "1 while a condition of a group is True.",
            labels=["group", "condition"],
        )
        now = self.clock()
        for name, of in groups:
            target.add_metric([name], of.target)
            for state, count in zip(NODE_STATES, of.nodes, strict=True):
                nodes.add_metric([name, state], count)
            age.add_metric(
                [name], 0.0 if of.requested_at is None else max(0.0, now - of.requested_at)
            )
            for kind, true in zip(CONDITIONS, of.conditions, strict=True):
                condition.add_metric([name, kind], true)
        yield from (target, nodes, age, condition)


def _counts(groups: list[tuple[str, GroupNumbers]]) -> Iterator[Metric]:
    texts = {
        "created": "Nodes created.",
        "updated": "Nodes patched because their template had changed.",
        "deleted": "Nodes deleted.",
    }
    for what, text in texts.items():
        family = CounterMetricFamily(f"kwok_operator_nodes_{what}", text, labels=["group"])
        for name, numbers in groups:
            family.add_metric([name], getattr(numbers, what))
        yield family
