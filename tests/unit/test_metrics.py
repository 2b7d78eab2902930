"""What /metrics tells, apart from HTTP."""

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kwok_operator import __version__
from kwok_operator.cloud.api.cloud import ErrorClass
from kwok_operator.cloud.states import State
from kwok_operator.observability.cloudmetrics import (
    ERROR_CLASSES,
    INSTANCE_STATES,
    INTERRUPTION_REASONS,
    OTHERS,
    CloudNumbers,
    PoolCollector,
    PoolNumbers,
)
from kwok_operator.observability.groupmetrics import CONDITIONS, NODE_STATES, GroupCollector
from kwok_operator.observability.metrics import Metrics, memory_limit, resource_of
from tests.metrics import operator_metrics, shim_metrics

DOC = Path(__file__).parents[2] / "docs" / "monitoring.md"
PER_GROUP = 1 + len(NODE_STATES) + 1 + len(CONDITIONS) + 3
PER_CLOUD = len(INSTANCE_STATES) + len(ERROR_CLASSES) + len(INTERRUPTION_REASONS)

_ROW = re.compile(r"^\| `(kwok_operator_\w+)` \| (.*?) \|", re.MULTILINE)


def exported(registry: CollectorRegistry) -> dict[str, set[str]]:
    """Our metrics under the names of their series, with the names of their labels."""
    found: dict[str, set[str]] = {}
    for family in registry.collect():
        if family.name.startswith("kwok_operator_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for sample in family.samples for label in sample.labels}
            found[name] = labels - {"le"}
    return found


def test_every_metric_is_documented() -> None:
    exported_by_all = {**exported(operator_metrics()), **exported(shim_metrics())}
    described = {
        name: set(re.findall(r"`(\w+)`", labels)) for name, labels in _ROW.findall(DOC.read_text())
    }
    assert described == exported_by_all


def test_both_programs_export_build_info_and_the_process() -> None:
    for registry in (operator_metrics(), shim_metrics()):
        names = {family.name for family in registry.collect()}
        assert {"process_resident_memory_bytes", "process_cpu_seconds"} <= names
        (build,) = (f for f in registry.collect() if f.name == "kwok_operator_build_info")
        assert build.samples[0].labels["version"] == __version__
        assert build.samples[0].value == 1


def test_no_series_comes_with_the_time_it_began() -> None:
    text = generate_latest(operator_metrics()).decode()
    assert "kwok_operator_api_request_duration_seconds_sum" in text
    assert "kwok_operator_api_request_duration_seconds_created" not in text


class Groups:
    """A collector for three groups, read as samples."""

    def __init__(self, *, limit: int = 3) -> None:
        self.metrics = Metrics()
        self.collector = GroupCollector(clock=lambda: 1_000.0, limit=limit)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def put(self, name: str, **numbers: int) -> None:
        found = self.collector.of(name)
        found.target = numbers.get("target", 1)
        found.nodes = (numbers.get("ready", 1), 0, 0, 0, 0)
        found.requested_at = numbers.get("requested_at")

    def put_instances(self, name: str, *, ready: int) -> None:
        instances = tuple(ready if state == "Ready" else 0 for state in INSTANCE_STATES)
        self.collector.of(name).cloud = CloudNumbers(instances)

    def value(self, metric: str, group: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"kwok_operator_{metric}", {"group": group, **labels})

    def series(self) -> list[str]:
        return [
            sample.labels["group"]
            for family in self.registry.collect()
            for sample in family.samples
            if "group" in sample.labels
        ]


def test_each_group_has_the_same_few_series() -> None:
    groups = Groups()
    groups.put("a")
    groups.put("b")
    assert groups.series().count("a") == groups.series().count("b") == PER_GROUP
    assert OTHERS not in groups.series()


def test_those_that_are_too_many_share() -> None:
    groups = Groups()
    for place, name in enumerate("abcde"):
        groups.put(name, target=10 + place, ready=place)
        groups.collector.counting(name).created += 2
    assert set(groups.series()) == {"a", "b", "c", OTHERS}
    assert groups.value("group_target_nodes", OTHERS) == 13 + 14
    assert groups.value("group_nodes", OTHERS, state="ready") == 3 + 4
    assert groups.value("nodes_created_total", OTHERS) == 4
    assert groups.registry.get_sample_value("kwok_operator_groups") == 5


def test_the_shared_count_never_falls_and_groups_keep_their_place() -> None:
    groups = Groups(limit=1)
    for name in "ab":
        groups.put(name)
        groups.collector.counting(name).created += 1
    groups.collector.forget("a")
    groups.put("b")
    assert set(groups.series()) == {OTHERS}
    groups.put("c")
    groups.collector.forget("b")
    groups.collector.counting("b").created += 1  # a write of it that ends late
    assert set(groups.series()) == {"c", OTHERS}
    assert groups.value("nodes_created_total", OTHERS) == 2


def test_the_oldest_that_waits_gives_the_age() -> None:
    groups = Groups(limit=1)
    groups.put("a", requested_at=940)
    groups.put("b", requested_at=900)
    groups.put("c", requested_at=990)
    groups.put("d")
    assert groups.value("group_pending_age_seconds", "a") == 60
    assert groups.value("group_pending_age_seconds", OTHERS) == 100
    groups.put("a")
    assert groups.value("group_pending_age_seconds", "a") == 0


def test_a_group_has_its_numbers_until_it_is_forgotten() -> None:
    metrics = Metrics()
    metrics.group(
        "web",
        target=7,
        nodes={"ready": 3, "not_ready": 1, "pending": 2, "failed": 1, "terminating": 5},
        conditions=["Stalled", "Reconciling"],
        oldest_pending="not a time",
    )
    value = metrics.registry.get_sample_value
    assert value("kwok_operator_group_target_nodes", {"group": "web"}) == 7
    nodes = [
        value("kwok_operator_group_nodes", {"group": "web", "state": state})
        for state in NODE_STATES
    ]
    assert nodes == [3, 1, 2, 1, 5]
    true = {"group": "web", "condition": "Stalled"}
    assert value("kwok_operator_group_condition", true) == 1
    assert value("kwok_operator_group_condition", true | {"condition": "Ready"}) == 0
    assert value("kwok_operator_group_pending_age_seconds", {"group": "web"}) == 0
    metrics.forget("web")
    assert value("kwok_operator_group_target_nodes", {"group": "web"}) is None


class TestSimulatedCloud:
    def test_every_state_and_every_kind_of_error_has_a_series(self) -> None:
        assert set(INSTANCE_STATES) == set(State) - {State.GONE}
        assert set(ERROR_CLASSES) == set(ErrorClass)

    def test_only_groups_that_have_one_have_its_series(self) -> None:
        groups = Groups()
        groups.put("a")
        groups.put("b")
        groups.collector.of("b").cloud = CloudNumbers()
        assert groups.series().count("a") == PER_GROUP
        assert groups.series().count("b") == PER_GROUP + PER_CLOUD

    def test_a_group_has_its_instances_as_long_as_it_has_a_cloud(self) -> None:
        metrics = Metrics()
        metrics.cloud("web", {State.CREATING: 3, State.READY: 2, State.GONE: 1})
        value = metrics.registry.get_sample_value
        counts = {
            state: value("kwok_operator_instances", {"group": "web", "state": state})
            for state in INSTANCE_STATES
        }
        assert counts == dict.fromkeys(INSTANCE_STATES, 0) | {"Creating": 3, "Ready": 2}
        metrics.cloud("web", {State.READY: 5})
        creating = {"group": "web", "state": "Creating"}
        assert value("kwok_operator_instances", creating) == 0
        metrics.cloud("web", None)
        assert value("kwok_operator_instances", creating) is None

    def test_failures_and_interruptions_are_counted_by_kind(self) -> None:
        metrics = Metrics()
        metrics.instance_failed("web", ErrorClass.QUOTA_EXCEEDED, 2)
        metrics.instance_failed("web", ErrorClass.QUOTA_EXCEEDED)
        metrics.interrupted("web", "MaxLifetime", 4)
        metrics.interrupted("web", "whatever somebody wrote on a node")
        metrics.cloud("web", {})
        value = metrics.registry.get_sample_value
        failures = {
            kind: value("kwok_operator_instance_failures_total", {"group": "web", "class": kind})
            for kind in ERROR_CLASSES
        }
        assert failures == {"OutOfResources": 0, "QuotaExceeded": 3, "Other": 0}
        reasons = {
            reason: value("kwok_operator_interruptions_total", {"group": "web", "reason": reason})
            for reason in INTERRUPTION_REASONS
        }
        assert reasons == {"Interrupted": 1, "MaxLifetime": 4}
        metrics.forget("web")
        assert value("kwok_operator_instances", {"group": "web", "state": "Ready"}) is None

    def test_those_that_are_too_many_share_and_the_count_never_falls(self) -> None:
        groups = Groups(limit=1)
        for name, ready in (("a", 1), ("b", 2), ("c", 4)):
            groups.put(name)
            groups.put_instances(name, ready=ready)
            groups.collector.counting_cloud(name).failures["Other"] += ready
        assert groups.value("instances", "a", state="Ready") == 1
        assert groups.value("instances", OTHERS, state="Ready") == 2 + 4
        groups.collector.forget("b")
        assert groups.value("instances", OTHERS, state="Ready") == 4
        failures = groups.value("instance_failures_total", OTHERS, **{"class": "Other"})
        assert failures == 2 + 4


class TestPools:
    def test_a_pool_has_its_numbers_until_it_is_forgotten(self) -> None:
        metrics = Metrics()
        metrics.pool("zone-b", used=40, limit=50, refused=3)
        metrics.pool("by-vcpu", used=7, limit=None, refused=0)
        value = metrics.registry.get_sample_value
        assert value("kwok_operator_pool_instances", {"pool": "zone-b"}) == 40
        assert value("kwok_operator_pool_instances_limit", {"pool": "zone-b"}) == 50
        assert value("kwok_operator_pool_instances_refused", {"pool": "zone-b"}) == 3
        assert value("kwok_operator_pool_instances_limit", {"pool": "by-vcpu"}) == float("inf")
        metrics.forget_pool("zone-b")
        assert value("kwok_operator_pool_instances", {"pool": "zone-b"}) is None

    def test_pools_that_are_too_many_share_and_keep_their_place(self) -> None:
        pools = PoolCollector(most=1)
        registry = CollectorRegistry()
        registry.register(pools)

        def used() -> dict[str, float]:
            (family,) = (f for f in registry.collect() if f.name == "kwok_operator_pool_instances")
            return {sample.labels["pool"]: sample.value for sample in family.samples}

        for name, instances in (("a", 1), ("b", 2), ("c", 4)):
            pools.put(name, PoolNumbers(instances, 10.0, 0))
        assert used() == {"a": 1, OTHERS: 6}
        pools.forget("a")
        pools.put("b", PoolNumbers(3, 10.0, 0))
        assert used() == {OTHERS: 7}


def test_a_pass_that_fails_is_counted_and_raised() -> None:
    metrics, ticks = Metrics(), iter((1.0, 3.0))
    with pytest.raises(KeyError), metrics.reconciling(lambda: next(ticks)):
        raise KeyError
    value = metrics.registry.get_sample_value
    assert value("kwok_operator_reconcile_errors_total") == 1
    assert value("kwok_operator_reconcile_duration_seconds_sum") == 2.0


def test_the_resource_of_a_path() -> None:
    resources = {
        "/api/v1/nodes": "nodes",
        "/api/v1/nodes/web-1": "nodes",
        "/api/v1/namespaces/default/events/web.1": "events",
        "/api/v1/namespaces/default/pods": "pods",
        "/api/v1/namespaces/default": "namespaces",
        "/apis/kwok-operator.io/v1alpha1/kwoknodegroups/web/status": "kwoknodegroups",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n": "leases",
        **dict.fromkeys(("/apis/example.com/v1/namespaces/x/anything/y", "/readyz"), "other"),
        **dict.fromkeys(("/", "/apis"), "other"),
    }
    assert {path: resource_of(path) for path in resources} == resources


def test_the_limit_of_memory(tmp_path: Path) -> None:
    second, first = tmp_path / "v1", tmp_path / "v2"
    assert memory_limit((first, second)) == float("inf")
    second.write_text("1000\n")
    assert memory_limit((first, second)) == 1000
    first.write_text("max\n")
    assert memory_limit((first,)) == float("inf")
