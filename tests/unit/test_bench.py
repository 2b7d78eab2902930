"""What the benchmarks make of what they measure, without a cluster and without a clock."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kwok_operator.nodegroups.template import KubeletEndpoint
from kwok_operator.nodegroups.usable import untaint
from tests.bench import audit, body, measures, prometheus, results
from tests.bench.cases import changes
from tests.bench.generator import joined, spread, uid_of
from tests.bench.measures import Measure
from tests.bench.observer import (
    BOUND,
    EXISTS,
    NODE_STATES,
    POD_STATES,
    READY,
    RUNNING,
    USABLE,
    Sight,
    Targets,
)
from tests.bench.options import parse
from tests.bench.procfs import Usage
from tests.bench.procfs import parse as parse_usage
from tests.bench.runs import all_usable

FACTS = {"machine": {"cores": 2}, "versions": {"kwok": "v1"}}
CASES = {"scale": "up and down", "one": "one more"}


def measure(who: str, *values: float, n: int = 1000, **fields: Any) -> Measure:
    given = {"case": "scale", "work": "create", "figure": "seconds", "unit": "s", **fields}
    return Measure(who=who, n=n, values=values, **given)


class TestMeasures:
    def test_a_ratio_is_of_medians(self) -> None:
        operator, ceiling = measure("operator", 3.0, 90.0, 1.0), measure("ceiling", 2.0, 1.0, 9.0)
        assert measures.ratio(operator, [operator, ceiling]) == 1.5
        shim, go = measure("shim", 3.0, reference="go"), measure("go", 1.0, reference="go")
        assert measures.ratio(shim, [shim, go, ceiling]) == 3.0

    def test_only_the_same_is_compared_and_nothing_with_itself_or_with_nothing(self) -> None:
        operator, ceiling = measure("operator", 3.0), measure("ceiling", 2.0)
        assert measures.ratio(ceiling, [operator, ceiling]) is None
        assert measures.ratio(operator, [operator, measure("ceiling", 0.0)]) is None
        others = [measure("ceiling", 2.0, n=10), measure("ceiling", 2.0, work="delete")]
        others += [measure("ceiling", 2.0, figure="CPU"), measure("ceiling", 2.0, case="groups")]
        for other in others:
            assert measures.ratio(operator, [operator, other]) is None, other

    def test_rounds_go_there_and_back_and_are_joined(self) -> None:
        order = [who for _, who in measures.abba(["a", "b", "c"], 3)]
        assert order == ["a", "b", "c", "c", "b", "a", "a", "b", "c"]
        (joined,) = measures.gathered([measure("operator", 2.0), measure("operator", 1.0)])
        assert joined.values == (2.0, 1.0)

    def test_percentiles_are_values_that_were_there(self) -> None:
        hundred = [float(each) for each in range(100, 0, -1)]
        expected = {0.5: 50, 0.99: 99, 0.991: 100, 1.0: 100, 0.0: 1}
        assert {share: measures.percentile(hundred, share) for share in expected} == expected
        assert measures.percentile([7.0], 0.99) == 7.0

    def test_the_cost_of_one_more_node_and_what_comes_on_top(self) -> None:
        slope, constant = measures.line_through([(100, 107), (1000, 1007), (10_000, 10_007)])
        assert (round(slope, 9), round(constant, 6)) == (1.0, 7.0)
        assert measures.line_through([(100, 107)]) == (1.07, 0.0)


def test_a_table_has_rivals_together_with_rate_and_ratio() -> None:
    found = [measure("operator", 2.0, 4.0), measure("peer", 30.0), measure("ceiling", 2.0)]
    found.insert(1, measure("operator", 1.0, work="delete"))
    head, operator, peer, ceiling, delete = (s.split() for s in measures.table(found).splitlines())
    assert head == ["work", "nodes", "figure", "who", "median", "spread", "nodes/s", "ratio"]
    assert (
        operator == "create 1,000 seconds operator 3.00 s 2.00 to 4.00 333 1.50 x ceiling".split()
    )
    assert peer == "peer 30.0 s 33.3 15.00 x ceiling".split()
    assert ceiling == "ceiling 2.00 s 500".split()
    assert delete[0] == "delete"
    texts = {0.01234: "0.0123", 1.234: "1.23", 12.34: "12.3", 1234.5: "1,234", 0.0: "0.0000"}
    assert {value: measures.shown(value) for value in texts} == texts


class TestResults:
    def found(self, *found: Measure) -> results.Found:
        return results.Found(
            title="t", began="now", seconds=61.0, options={}, notes=["a note"], measures=found
        )

    def test_a_case_alone_leaves_the_others(self, tmp_path: Path) -> None:
        for case in ("scale", "one", "scale"):
            found = self.found(measure("operator", 1.5, 2.0, case=case, reference="go"))
            results.store(tmp_path, facts=FACTS, case=case, found=found)
        assert results.load(tmp_path / results.FILE) == [
            measure("operator", 1.5, 2.0, case=case, reference="go") for case in ("scale", "one")
        ]
        assert json.loads((tmp_path / results.FILE).read_text())["machine"] == {"cores": 2}

    def test_results_of_another_format_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "r.json").write_text('{"format": 0, "cases": {}}')
        with pytest.raises(ValueError, match="format 0, not 1"):
            results.load(tmp_path / "r.json")


class TestOptions:
    def test_they_are_read(self) -> None:
        assert parse([], cases=CASES).cases == ("scale", "one")
        assert parse(["one", "one"], cases=CASES).cases == ("one",)
        assert parse(["--sizes", "10000,1_000"], cases=CASES).sizes == (1_000, 10_000)
        flags = parse(["--operator-flags", "--log-level debug"], cases=CASES).operator_flags
        assert flags == ("--log-level", "debug")
        limits = [parse(["--limits", given], cases=CASES).limits for given in ("raised", "both")]
        assert limits == [("raised",), ("default", "raised")]
        quick = parse(["--quick", "--rounds", "7"], cases=CASES)
        assert quick.rounds == 7 and max(quick.sizes) <= 100

    @pytest.mark.parametrize(
        ("argv", "complaint"),
        [
            (["scales"], "no case scales; there are scale, one"),
            (["--sizes", "0"], "less than 1"),
            (["--sizes", "many"], "--sizes"),
            (["--pods", "10", "--pod-nodes", "3"], "not a multiple"),
            (["--idle", "-1"], "not a time"),
            (["--skip", "operator"], "operator"),
        ],
    )
    def test_what_makes_no_sense(
        self, argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            parse(argv, cases=CASES)
        assert complaint in capsys.readouterr().err


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def event(kind: str, name: str = "n-1", *, ready: bool = False, tainted: bool = False) -> bytes:
    """A line of a watch, as the API server writes it."""
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    conditions.append({"type": "Ready", "status": "True" if ready else "Unknown"})
    written = {"f:status": {'k:{"type":"Ready","status":"True"}': "x"}}
    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": "u", "managedFields": [{"fieldsV1": written}]},
        "spec": {"taints": [NOT_READY] if tainted else []},
        "status": {"conditions": conditions},
    }
    return json.dumps({"type": kind, "object": node}, separators=(",", ":")).encode()


class TestSight:
    def see(self, *lines: bytes) -> Sight:
        sight = Sight(NODE_STATES)
        for now, line in enumerate(lines):
            sight.line(line, float(now))
        return sight

    def test_nodes_come_and_turn_ready(self) -> None:
        sight = self.see(
            event("ADDED"), event("ADDED", "n-2", ready=True), event("MODIFIED", ready=True)
        )
        assert (sight.present, sight.count[READY]) == (2, 2)
        assert sight.first[EXISTS] == {b"n-1": 0.0, b"n-2": 1.0}
        assert sight.first[READY] == {b"n-1": 2.0, b"n-2": 1.0}
        assert sight.last(READY) == 2.0

    def test_a_node_is_usable_once_it_is_ready_and_free_of_the_taint(self) -> None:
        born = event("ADDED", ready=True, tainted=True)
        sight = self.see(born, event("ADDED", "n-2"))
        assert (sight.count[READY], sight.count[USABLE]) == (1, 0)
        sight = self.see(born, event("MODIFIED", ready=True))
        assert (sight.count[USABLE], sight.first[USABLE]) == (1, {b"n-1": 1.0})
        assert sight.first[READY] == {b"n-1": 0.0}

    def test_a_heartbeat_changes_nothing(self) -> None:
        sight = self.see(*[event("ADDED", ready=True), *[event("MODIFIED", ready=True)] * 3])
        assert (sight.present, sight.count[READY]) == (1, 1)
        assert sight.first[READY] == {b"n-1": 0.0}

    def test_what_is_in_managed_fields_is_no_condition(self) -> None:
        assert self.see(event("ADDED")).count[READY] == 0

    def test_nodes_turn_unready_and_go(self) -> None:
        sight = self.see(event("ADDED", ready=True), event("MODIFIED"))
        assert (sight.present, sight.count[READY], sight.count[USABLE]) == (1, 0, 0)
        sight = self.see(event("ADDED", ready=True), event("DELETED", ready=True))
        assert (sight.present, sight.count[READY], sight.count[USABLE]) == (0, 0, 0)

    def test_pods_are_bound_and_run(self) -> None:
        sight = Sight(POD_STATES)
        for place, (node, phase) in enumerate(
            (("", "Pending"), ("n-1", "Pending"), ("n-1", "Running"))
        ):
            spec = {"nodeName": node} if node else {}
            pod = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}
            line = json.dumps({"type": "MODIFIED", "object": pod}, separators=(",", ":"))
            sight.line(line.encode(), float(place))
        assert (sight.last(BOUND), sight.last(RUNNING)) == (1.0, 2.0)

    def test_a_watch_that_begins_anew_knows_when_it_saw_what(self) -> None:
        before = self.see(event("ADDED", ready=True), event("ADDED", "n-2"))
        sight = before.anew()
        assert (sight.present, sight.count[READY]) == (0, 0)
        sight.line(event("ADDED", ready=True), 9.0)
        assert (sight.present, sight.count[READY]) == (1, 1)
        assert sight.first[READY] == {b"n-1": 0.0}

    def test_it_is_synced_at_the_bookmark(self) -> None:
        bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"annotations":{"%s":"true"}}}}'
        assert not self.see(bookmark % b"other").synced
        synced = self.see(bookmark % b"k8s.io/initial-events-end")
        assert synced.synced
        assert all_usable(0)(synced)
        assert not all_usable(0)(synced.anew())

    def test_an_error_ends_the_watch(self) -> None:
        for view in (Sight(NODE_STATES), Targets()):
            with pytest.raises(ValueError, match="too old"):
                view.line(b'{"type":"ERROR","object":{"message":"too old"}}', 0.0)


def test_the_target_of_each_group() -> None:
    view = Targets()
    for name, spec in (("a", {"targetSize": 3}), ("b", {}), ("a", {"targetSize": 5})):
        group = {"metadata": {"name": name}, "spec": spec}
        view.line(json.dumps({"type": "MODIFIED", "object": group}).encode(), 0.0)
    assert view.targets == {"a": 5, "b": -1}


class TestMetrics:
    TEXT = """\
# HELP apiserver_request_total Requests.
apiserver_request_total{code="201",resource="nodes",verb="POST",v="a} b\\"c"} 20
apiserver_request_total{code="409",resource="nodes",verb="POST"} 1.5e+01
apiserver_request_total{code="200",resource="pods",verb="POST"} 7
apiserver_request_total_other{resource="nodes",verb="POST"} 100
plain 3
"""

    def test_samples_are_summed_by_label(self) -> None:
        metric = "apiserver_request_total"
        assert prometheus.total(self.TEXT, metric, verb="POST", resource="nodes") == 35
        assert prometheus.total(self.TEXT, metric) == 42
        assert prometheus.total(self.TEXT, "plain") == 3
        assert prometheus.total(self.TEXT, "absent") == 0

    def test_the_largest_of_a_gauge(self) -> None:
        assert prometheus.largest('lag{a="1"} 0.1\nlag{a="2"} 0.3\n', "lag") == 0.3

    def test_the_largest_of_a_histogram_is_the_bound_of_its_bucket(self) -> None:
        rows = ((0.1, 5), (0.25, 9), (1.0, 9), ("+Inf", 9))
        text = "".join(f'lag_bucket{{le="{le}"}} {count}\n' for le, count in rows)
        assert prometheus.largest(text, "lag") == 0.25

    def test_nothing_observed_is_not_zero(self) -> None:
        assert prometheus.largest("", "lag") is None
        assert prometheus.largest('lag_bucket{le="+Inf"} 0\n', "lag") is None


def audited(agent: str, verb: str, resource: str, **fields: Any) -> bytes:
    """A line of the audit log."""
    code = fields.pop("code", 200)
    target = {"resource": resource, **fields}
    event = {"verb": verb, "userAgent": agent, "objectRef": target}
    return json.dumps({**event, "responseStatus": {"code": code}}).encode()


def test_who_wrote_what() -> None:
    manager = "kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/$Format"
    found = audit.writes(
        [
            audited("kwok-operator/0.1.0", "create", "nodes"),
            audited("kwok-operator/0.1.0", "create", "nodes"),
            audited("bench-ceiling", "delete", "nodes"),
            audited(f"{manager}/ttl-controller", "patch", "nodes", code=404),
            audited("kwok-controller/v0.8.0 (linux/amd64)", "patch", "nodes", subresource="status"),
            audited(f"{manager}/leader-election", "update", "leases", namespace="kube-system"),
        ]
    )
    assert found == {
        ("kwok-operator", "create nodes"): 2,
        ("bench-ceiling", "delete nodes"): 1,
        ("kube-controller-manager: ttl-controller", "patch nodes, HTTP 404"): 1,
        ("kwok-controller", "patch nodes/status"): 1,
    }


def test_memory_and_cpu_of_a_process_with_blanks_in_its_name() -> None:
    status = "Name:\ta) b\nVmHWM:\t   20480 kB\nVmRSS:\t   10240 kB\n"
    stat = "7 (a) b) S 1 7 7 0 -1 4194304 900 0 0 0 150 50 0 0 20 0 3 0 12345"
    assert parse_usage(status=status, stat=stat, ticks=100) == Usage(rss=10, peak=20, cpu=2)


class TestLoad:
    def test_the_load_generator_posts_the_operators_node(self) -> None:
        endpoint = KubeletEndpoint(addresses=(("Hostname", "localhost"),), port=1234)
        parts = body.parts(group="ceiling", uid="u-1", endpoint=endpoint, max_pods=10, nodes=1)
        node = json.loads(joined([part.encode() for part in parts], b"ceiling-0001"))
        assert node["metadata"]["name"] == "ceiling-0001"
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "ceiling-0001"
        assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
        assert node["metadata"]["ownerReferences"][0]["uid"] == "u-1"
        assert node["spec"]["providerID"] == "kwok:ceiling-0001"
        assert node["status"]["capacity"]["pods"] == "10"
        assert {"Ready": "True"}.items() <= {
            c["type"]: c["status"] for c in node["status"]["conditions"]
        }.items()

    def test_the_load_generator_takes_the_taint_off_as_the_operator_does(self) -> None:
        endpoint = KubeletEndpoint(addresses=(("Hostname", "localhost"),), port=1234)
        parts = body.parts(group="ceiling", uid="owner", endpoint=endpoint, max_pods=10, nodes=1)
        node = json.loads(body.NAME.join(parts))
        # As the API server answers.
        node["metadata"] = {"name": "n", "uid": "u-1", **node["metadata"]}
        node["spec"]["taints"].append(NOT_READY)
        uid = uid_of(json.dumps(node, separators=(",", ":")).encode())
        patch = joined([part.encode() for part in body.patch_parts(parts)], uid)
        assert json.loads(patch) == untaint(node)

    async def test_so_many_calls_at_once_and_one_for_each_name(self) -> None:
        running, most, called = 0, 0, Counter[str]()

        async def call(name: str) -> list[int]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            called[name] += 1
            return [201, 200] if name != "n7" else [409]

        names = [f"n{each}" for each in range(50)]
        assert await spread(names, call, concurrency=8) == {201: 49, 200: 49, 409: 1}
        assert (most, set(called.values()), len(called)) == (8, {1}, 50)

    def test_a_target_changes_ten_times_and_ends_where_it_should(self) -> None:
        assert len(changes.UP) == len(changes.DOWN) == 10
        assert (changes.UP[-1], changes.DOWN[-1]) == (1.0, 0.0)
