"""What must fit together in a scenario, found before anything starts."""

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.rehearsal.judge.figures import EVENT_COUNT, FIGURES
from kwok_operator.rehearsal.judge.ledger import ClusterLedger
from kwok_operator.rehearsal.judge.recording import RecordedTopology
from kwok_operator.rehearsal.scenario.expectation import ScenarioCondition
from kwok_operator.rehearsal.scenario.racks import recorded
from kwok_operator.rehearsal.scenario.waits import wait_problem
from tests.fakes.scenarios import GROUP, RUNNING, WEB, Told, checked, fields, scenario
from tests.randomrecording import random_recording

CA = {"name": "ca", "clusterAutoscaler": {"binary": "ca"}}
TOOL = {"name": "tool", "command": ["tool"]}
WARNINGS = {"figure": "warnings", "equals": 0}
POOLED = GROUP | {"spec": {"cloud": {"capacityPools": ["zone-b"]}}}
IN_A_ZONE = GROUP | {"spec": {"template": {"shape": {"zone": "zone-a"}}}}
SCALE = {"at": 1, "scale": {"what": "deployment/web", "replicas": 70}}


TOPOLOGY = "timeline[0].outage.topology"


def out_in_racks(**topology: Any) -> dict[str, Any]:
    """A step that takes racks out; there is one group with two racks in each block."""
    levels = [{"label": "kueue/block", "of": 2}, {"label": "example.com/rack", "of": 18}]
    spec = {"template": {"topology": {"levels": levels}}}
    group = GROUP | {"metadata": {"name": "racked"}, "spec": spec}
    return {
        "apply": [{"object": group}],
        "timeline": [{"at": 1, "outage": {"topology": topology}}],
    }


def arriving(**arrivals: Any) -> list[dict[str, Any]]:
    return [WEB | {"kind": "Pods", "arrivals": arrivals}]


def test_nothing_is_wrong_with_what_is_right() -> None:
    steps = [
        SCALE,
        {"after": RUNNING | {"of": {"workload": "web"}}, "cordon": {"group": "batch"}},
        {"at": 2, "scale": {"what": "kng/batch", "replicas": 1}},
        {"at": 3, "delete": {"what": "job/queue-0001"}},
        {"at": 3, "delete": {"what": "configmap/anything"}},
        {"at": 5, "stop": "ca"},
        {"at": 6, "start": "ca"},
    ]
    queue = {"name": "queue", "kind": "Job", "count": 6, "each": 3, "pods": {"cpu": 1}}
    workloads = [WEB, WEB | {"name": "web-2024"}, queue]
    found = checked(scenario(processes=[CA], workloads=workloads, timeline=steps))
    assert found.findings == ()


@pytest.mark.parametrize(
    "topology",
    [
        {"level": "example.com/rack", "count": 2},
        {"level": "kueue/block"},
        {"level": "cloud.provider.com/topology-block"},
        {"values": ["racked-7", "racked-0-1"]},
    ],
)
def test_units_are_named_as_the_topology_names_them(topology: dict[str, Any]) -> None:
    assert checked(scenario(**out_in_racks(**topology))).findings == ()


@pytest.mark.parametrize(
    ("parts", "field", "said"),
    [
        ({"cluster": {"kubernetes": "1.20"}}, "cluster.kubernetes", "1.35, 1.36"),
        (
            {"cluster": {"flags": {"kwok-operator": {"log-format": "text"}}}},
            "cluster.flags.kwok-operator.log-format",
            "given by the rehearsal",
        ),
        ({"cluster": {"flags": {"etcd": {"--v": 1}}}}, "cluster.flags.etcd.--v", "without dashes"),
        (
            {"cluster": {"flags": {"kwok-operator": {"log-level": "error"}}}},
            "cluster.flags.kwok-operator.log-level",
            "reads warnings in the log",
        ),
        (
            {
                "processes": [
                    CA
                    | {"clusterAutoscaler": {"binary": "ca", "flags": {"logging_format": "json"}}}
                ]
            },
            "processes[0].clusterAutoscaler.flags.logging_format",
            "reads warnings in the log",
        ),
        ({"apply": ["nowhere.yaml"]}, "apply[0]", "isn't there"),
        ({"apply": [{"object": {}}]}, "apply[0].object", "it has no kind"),
        (
            {"apply": [{"object": GROUP | {"spec": {"targetSize": -1}}}]},
            "apply[0].object",
            "spec.targetSize: -1 must be",
        ),
        ({"processes": [CA, CA]}, "processes[1].name", "rename one"),
        ({"processes": [CA | {"name": "operator"}]}, "processes[0].name", "rename it"),
        (
            {"processes": [CA], "expect": [WARNINGS | {"of": {"program": "cb"}}]},
            "expect[0].of.program",
            "there is ca, operator, shim",
        ),
        ({"expect": [WARNINGS | {"of": {"program": "shim"}}]}, "expect[0].of.program", "operator"),
        ({"expect": [WARNINGS | {"of": {"group": "a"}}]}, "expect[0].of.group", "by program only"),
        ({"processes": [{"name": "a", "command": ["gone"]}]}, "processes[0].command", "'gone'"),
        (
            {"processes": [{"name": "a", "clusterAutoscaler": {"binary": "gone"}}]},
            "processes[0].clusterAutoscaler.binary",
            "is no program",
        ),
        (
            {"processes": [CA | {"clusterAutoscaler": {"binary": "ca", "flags": {"address": 1}}}]},
            "processes[0].clusterAutoscaler.flags.address",
            "given by the rehearsal",
        ),
        (
            {"processes": [CA | {"clusterAutoscaler": {"binary": "ca", "apiTrouble": {"a": 1}}}]},
            "processes[0].clusterAutoscaler.apiTrouble",
            "has no rpcs",
        ),
        (
            {"timeline": [{"at": 1, "run": {"command": ["gone"]}}]},
            "timeline[0].run.command",
            "is no program",
        ),
        ({"workloads": [WEB, WEB]}, "workloads[0].name", "rename one"),
        (
            {"expect": [RUNNING | {"of": {"namespace": "defualt"}}]},
            "expect[0].of.namespace",
            "did you mean default?",
        ),
        (
            {"workloads": [WEB | {"each": 1, "count": 20}, WEB | {"name": "web-0012"}]},
            "workloads[1].name",
            "is an object of web",
        ),
        (
            {"workloads": [WEB | {"count": 90_000}, WEB | {"name": "b", "count": 90_000}]},
            "workloads",
            "180,000 pods",
        ),
        ({"timeline": [{"at": 1, "stop": "cb"}], "processes": [CA]}, "timeline[0].stop", "ca"),
        (
            {"processes": [CA | {"starts": "byTimeline"}]},
            "processes[0].starts",
            "no step starts it",
        ),
        (
            {"processes": [CA], "timeline": [{"at": 1, "start": "ca"}]},
            "processes[0].name",
            "byTimeline",
        ),
        ({"timeline": [SCALE | {"at": "11m"}]}, "timeline[0].at", "raise until.atMost"),
        (
            {"timeline": [{"scale": SCALE["scale"], "settledFor": "11m"}]},
            "timeline[0].settledFor",
            "raise until.atMost",
        ),
        ({"until": {"settledFor": "9m", "atMost": "5m"}}, "until.settledFor", "lower it"),
        ({"expect": [RUNNING | {"when": {"at": "1h"}}]}, "expect[0].when", "after the end"),
        ({"workloads": arriving(rate="1/m")}, "workloads[0].arrivals", "end after 2,940 s"),
        (
            {"workloads": arriving(wave={"size": 1, "every": "1m"})},
            "workloads[0].arrivals",
            "fewer",
        ),
        (
            {"workloads": [{"name": "t", "arrivals": {"trace": "gone"}}]},
            "workloads[0].arrivals.trace",
            "can't be played",
        ),
        (
            {"timeline": [{"at": 1, "outage": {"group": "bach", "for": "1m"}}]},
            "timeline[0].outage.group",
            "did you mean batch?",
        ),
        (
            {"timeline": [{"at": 1, "interrupt": {"group": "bach", "share": 0.5}}]},
            "timeline[0].interrupt.group",
            "did you mean batch?",
        ),
        (
            {"timeline": [{"at": 1, "lose": {"nodePool": "web"}}]},
            "timeline[0].lose.nodePool",
            "there is none",
        ),
        (
            {"timeline": [{"at": 1, "outage": {"pool": "zone-b"}}]},
            "timeline[0].outage.pool",
            "there is none",
        ),
        (
            {
                "apply": [{"object": IN_A_ZONE}],
                "timeline": [{"at": 1, "outage": {"zone": "zone-x"}}],
            },
            "timeline[0].outage.zone",
            "did you mean zone-a?",
        ),
        (
            out_in_racks(level="example.com/row"),
            f"{TOPOLOGY}.level",
            "did you mean example.com/rack?",
        ),
        (out_in_racks(values=["batch-0"]), f"{TOPOLOGY}.values[0]", "such as racked-0"),
        (out_in_racks(values=["racked-0-2"]), f"{TOPOLOGY}.values[0]", "can have"),
        (out_in_racks(level="kueue/block", count=0), f"{TOPOLOGY}.count", "must be 1 or more"),
        (out_in_racks(values=["racked-0"], count=2), TOPOLOGY, "count is for level"),
        (out_in_racks(), TOPOLOGY, "needs one of level and values"),
        (
            {"timeline": [{"at": 1, "scale": {"what": "deploy/wbe", "replicas": 1}}]},
            "timeline[0].scale.what",
            "there is web",
        ),
        (
            {"timeline": [{"at": 1, "patch": {"what": "kng/a", "patch": {"spec": {}}}}]},
            "timeline[0].patch.what",
            "'a' is no kng;",
        ),
        (
            {"timeline": [{"at": 1, "delete": {"what": "deployment/web", "namespace": "b"}}]},
            "timeline[0].delete.what",
            "of namespace b",
        ),
        ({"apply": [{"object": POOLED}]}, "apply", "the pool zone-b, which is nowhere"),
        ({"expect": [{"figure": "pods.runing", "equals": 1}]}, "expect[0].figure", "pods.running?"),
        (
            {"expect": [{"figure": "nodeHours", "atMost": 1, "of": {"workload": "web"}}]},
            "expect[0].of.workload",
            "by group, nodePool, zone only",
        ),
        (
            {"expect": [RUNNING | {"of": {"workload": "wob"}}]},
            "expect[0].of.workload",
            "there is web",
        ),
        (
            {"expect": [{"figure": "nodes.total", "atMost": 1, "of": {"group": "b"}}]},
            "expect[0].of.group",
            "there is batch",
        ),
        (
            {"expect": [{"figure": "utilisation.cpu", "atLeast": 80}]},
            "expect[0].atLeast",
            "write 0.8",
        ),
        (
            {"expect": [{"figure": "utilisation.cpu", "atMost": "500m"}]},
            "expect[0].atMost",
            "is a time, which utilisation.cpu is not",
        ),
        (
            {"expect": [RUNNING | {"of": {"workload": "web", "namespace": "kube-system"}}]},
            "expect[0].of.namespace",
            "namespace of web",
        ),
        (
            {
                "workloads": [WEB, WEB | {"name": "j", "kind": "Job"}],
                "expect": [{"figure": "gangs.unfinished", "equals": 0, "of": {"workload": "web"}}],
            },
            "expect[0].figure",
            "there is no Job called web",
        ),
        (
            {"expect": [{"wait": "kng/bacht --for=delete"}]},
            "expect[0].wait",
            "there is never a bacht; did you mean batch?",
        ),
        (
            {"expect": [{"wait": "pods --selector=app=typo --for=delete"}]},
            "expect[0].wait",
            "what selects nothing is deleted",
        ),
        (
            {"expect": [{"figure": "pods.pending", "atLeast": 0}]},
            "expect[0].atLeast",
            "0 can't fail: pods.pending is never below 0; write more than 0, or atMost",
        ),
        (
            {"expect": [{"event": {"type": "Warning"}, "atLeast": 0}]},
            "expect[0].atLeast",
            "0 can't fail: the number of Events",
        ),
        (
            {"timeline": [SCALE | {"at": None, "after": RUNNING | {"atLeast": 71}}]},
            "timeline[0].after.atLeast",
            "there are 70 pods at most",
        ),
        (
            {"until": {"condition": RUNNING | {"atLeast": 51, "of": {"workload": "web"}}}},
            "until.condition.atLeast",
            "there are 50 pods at most",
        ),
        ({"expect": [{"wait": "kng/batch"}]}, "expect[0].wait", "has no --for"),
    ],
)
def test_what_can_t_be_is_reported(parts: dict[str, Any], field: str, said: str) -> None:
    found = checked(scenario(**parts))
    about = [each for each in found.findings if each.message.partition(":")[0] == field]
    assert [each for each in about if said in each.message], [str(f) for f in found.findings]
    assert all(each.line for each in about)


UNKNOWN = {
    "timeline": [
        {"at": 1, "outage": {"group": "b"}},
        {"at": 1, "scale": {"what": "deployment/b", "replicas": 1}},
    ],
    "expect": [RUNNING | {"atLeast": 500, "of": {"workload": "b"}}],
}
STEP = {"at": 2, "run": {"command": ["tool"]}}
TRACE = {"name": "t", "arrivals": {"trace": "day.jsonl"}}
CONFIG = {
    "apiVersion": "v1alpha1",
    "readNodesFrom": "cluster",
    "nodegroups": {"fromNodeLabelKey": "a"},
}


@pytest.mark.parametrize(
    ("parts", "around"),
    [
        ({"processes": [TOOL]}, Told()),
        ({"timeline": [*UNKNOWN["timeline"], STEP]}, Told()),
        ({"workloads": [WEB, TRACE]}, Told()),
        ({}, Told(own_cluster=False)),
        ({"apply": ["a"]}, Told(files={"a": yaml.safe_dump(GROUP)}, complete=False)),
        ({"apply": ["a"]}, Told(files={"a": yaml.safe_dump(CONFIG)})),
    ],
)
def test_where_others_may_come_nothing_is_missing(parts: dict[str, Any], around: Told) -> None:
    assert len(checked(scenario(**UNKNOWN), Told()).findings) == 3
    assert checked(scenario(**(UNKNOWN | parts)), around).findings == ()


def test_a_cluster_that_is_there_is_not_made() -> None:
    found = checked(scenario(cluster={"kubernetes": "1.36"}), Told(own_cluster=False))
    assert fields(found.findings) == ["cluster"]
    found = checked(scenario(workloads=[TRACE]), Told(own_cluster=False))
    assert fields(found.findings) == ["workloads[0].arrivals.trace"]
    assert "put pods in its place" in found.findings[0].message
    assert checked(scenario(workloads=[WEB]), Told(own_cluster=False)).findings == ()


def test_objects_are_looked_at_where_they_stand() -> None:
    wrong = GROUP | {"spec": {"targetSize": -1, "templat": {}}}
    around = Told(
        files={"groups.yaml": "\n\n" + yaml.safe_dump(wrong | {"metadata": {"name": "b"}})}
    )
    found = checked(scenario(apply=["groups.yaml", {"object": wrong}]), around)
    places = {(each.file, each.line) for each in found.findings}
    assert {file for file, _ in places} == {"a.yaml", "groups.yaml"}
    text = yaml.safe_dump(scenario(apply=["groups.yaml", {"object": wrong}]), sort_keys=False)
    line = next(n for n, each in enumerate(text.splitlines(), start=1) if "targetSize" in each)
    assert ("a.yaml", line) in places


def test_a_step_may_change_what_was_applied() -> None:
    later = [{"at": 1, "apply": [{"object": GROUP | {"spec": {"targetSize": 9}}}]}]
    assert checked(scenario(timeline=later)).findings == ()
    twice = checked(scenario(apply=[{"object": GROUP}, {"object": GROUP}]))
    assert "already" in twice.findings[0].message


def test_a_step_may_bring_what_is_named() -> None:
    other = replace(Told(), files={"b.yaml": yaml.safe_dump(GROUP | {"metadata": {"name": "b"}})})
    steps = [{"at": 1, "apply": ["b.yaml"]}, {"at": 2, "cordon": {"group": "b"}}]
    assert checked(scenario(timeline=steps), other).findings == ()
    assert fields(checked(scenario(timeline=steps[1:]), other).findings) == [
        "timeline[0].cordon.group"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kng/batch --for=condition=Ready", ""),
        ("pods --all -n shop --for condition=Ready", ""),
        ("-n shop deployment -l app=a --for=jsonpath='{.status.x}'=1", ""),
        ("--for=delete job/a", ""),
        ("kng/batch", "has no --for"),
        ("--for=create", "names no object"),
        ("pods --for=condition=Ready", "--all or --selector"),
        ("kubectl wait kng/a --for=create", "begins with the command"),
        ("kng/a --for=create --timeout=5s", "write within"),
        ("kng/a --for=create --help", "waits for nothing"),
        ("kng/a --for=create --kubeconfig x", "given by the rehearsal"),
        ("kng/a '--for=create", "close the quotes"),
    ],
)
def test_what_is_asked_of_kubectl_wait(text: str, said: str) -> None:
    assert said in wait_problem(text)
    assert bool(said) == bool(wait_problem(text))


@given(st.text(alphabet="ab-/='\"\\ \n", max_size=30))
def test_any_text_can_be_asked(text: str) -> None:
    assert "\x00" not in wait_problem(text)


CLOUD = GROUP | {"spec": {"targetSize": 3, "cloud": {"stock": 2}, "price": {"hourly": "1"}}}
ZONED = GROUP | {"spec": {"template": {"shape": {"zone": "region-1a"}}}}
COPIED = GROUP | {"spec": {"template": {"from": {"nodes": {"name": "real"}}}}}
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {}},
}
NODE_CLAIM = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "c"}}
NODE_POOL = {**NODE_CLAIM, "kind": "NodePool", "metadata": {"name": "batch"}}
POOLED_BY_KARPENTER = [{"object": CLOUD}, {"object": NODE_POOL}]
QUEUE = {"name": "queue", "kind": "Job", "count": 1, "pods": {"cpu": 1}}
PATCH = {"at": 1, "patch": {"what": "kng/batch", "patch": {"spec": {"cloud": {"stock": 1}}}}}


@pytest.mark.parametrize(
    ("figure", "of", "parts", "said"),
    [
        ("instances.Failed", {}, {}, "no group that is applied has spec.cloud; give it one"),
        ("instances.Failed", {"group": "batch"}, {}, "the group batch has no spec.cloud"),
        ("instances.Failed", {}, {"apply": [{"object": CLOUD}]}, ""),
        ("instances.Failed", {}, {"timeline": [PATCH]}, ""),
        ("cost", {}, {}, "no group that is applied has spec.price; give it one"),
        ("cost", {}, {"apply": [{"object": CLOUD}]}, ""),
        ("cost", {}, {"processes": [TOOL]}, ""),
        ("disruptions.beyondBudget", {}, {}, "no PodDisruptionBudget is applied; apply one"),
        ("disruptions.beyondBudget", {}, {"apply": [{"object": BUDGET}]}, ""),
        (
            "disruptions.beyondBudget",
            {"namespace": "kube-system"},
            {"apply": [{"object": BUDGET}]},
            "applied in the namespace kube-system",
        ),
        ("gangs.unfinished", {}, {}, "there is no Job; add one"),
        ("gangs.completionSeconds.max", {}, {"workloads": [QUEUE]}, ""),
        ("gangs.unfinished", {}, {"timeline": [{"at": 1, "run": {"command": ["tool"]}}]}, ""),
        ("nodeClaims.neverRegistered", {}, {}, "nothing makes NodeClaims here; add Karpenter"),
        ("disruptions.Empty", {}, {}, "nothing makes NodeClaims here; add Karpenter"),
        ("disruptions.Empty", {}, {"processes": [TOOL]}, ""),
        ("nodeClaims.underWay", {}, {"apply": [{"object": NODE_CLAIM}]}, ""),
        ("nodes.total", {"nodePool": "batch"}, {}, "is no NodePool that is applied; there is none"),
        ("cost", {"nodePool": "batches"}, {"apply": POOLED_BY_KARPENTER}, "did you mean batch?"),
        ("cost", {"nodePool": "batch"}, {"apply": POOLED_BY_KARPENTER}, ""),
        ("nodes.total", {"zone": "region-1b"}, {"apply": [{"object": ZONED}]}, "region-1a?"),
        ("nodes.total", {"zone": "region-1a"}, {"apply": [{"object": ZONED}]}, ""),
        ("nodes.total", {"zone": "region-1b"}, {"apply": [{"object": COPIED}]}, ""),
    ],
)
def test_a_figure_of_which_no_line_can_be_is_refused(
    figure: str, of: dict[str, str], parts: dict[str, Any], said: str
) -> None:
    expect = {"figure": figure, "of": of, "atMost": 0}
    found = checked(scenario(**parts, expect=[expect])).findings
    texts = [finding.message for finding in found]
    if said:
        (text,) = texts
        assert said in text and text.startswith("expect[0].")
    else:
        assert texts == []


@pytest.mark.parametrize("figure", ["nodeClaims.neverRegistered", "disruptions.Drifted"])
def test_node_claims_of_a_cluster_of_others_are_recorded_for_a_karpenter_only(figure: str) -> None:
    """Else the figure would be 0 whatever happens, though a NodePool is applied there."""
    parts = {"apply": [{"object": NODE_CLAIM}], "processes": [TOOL]}
    expect = [{"figure": figure, "equals": 0}]
    found = checked(scenario(**parts, expect=expect), Told(own_cluster=False)).findings
    assert fields(found) == ["expect[0].figure"]


BLOCK, RACK = "example.com/block", "example.com/rack"


@pytest.mark.parametrize(
    ("topology", "figure", "field", "says"),
    [
        ({"levels": [RACK, RACK]}, "racks.free", "topology", "has example.com/rack twice"),
        ({"levels": []}, "racks.free", "topology.levels", ""),
        ({"levels": [RACK], "pod": {"cpu": 0}}, "racks.free", "topology", "requests 0 of cpu"),
        ({}, "nodes.total", "topology", "no group has a topology; name labels"),
        (None, "racks.free", "expect[0].figure", "name them in topology.levels"),
        ({"levels": [RACK]}, "largestGang.block", "expect[0].figure", "put a wider one before it"),
        ({"levels": [RACK]}, "gangs.broken", "expect[0].figure", "there is no Job"),
    ],
)
def test_racks_need_labels(topology: Any, figure: str, field: str, says: str) -> None:
    about = {"workloads": [WEB], "topology": topology}
    found = checked(scenario(**about, expect=[{"figure": figure, "equals": 0}])).findings
    assert fields(found) == [field]
    assert says in str(found[0])


def test_levels_of_groups_are_measured_by_the_labels_that_nodes_carry() -> None:
    spec = {"template": {"topology": {"levels": [{"label": "gke/block"}, {"label": RACK}]}}}
    topology = recorded(None, [spec])
    assert topology is not None
    assert topology.levels == ("cloud.google.com/gce-topology-block", RACK)


@pytest.mark.parametrize(
    "labels", [{"scheduling.x-k8s.io/pod-group": "g"}, {"kueue.x-k8s.io/pod-group-name": "g"}]
)
def test_pods_that_name_a_gang_are_one(labels: dict[str, str]) -> None:
    workload = {"name": "train", "kind": "Pods", "pods": {"cpu": 1, "labels": labels}}
    expect = [{"figure": "gangs.waitingSeconds.max", "atMost": "5s"}]
    assert not checked(scenario(workloads=[workload], expect=expect)).findings


BOUNDS = st.integers(0, 12).map(lambda quarters: quarters / 4)
BOUNDED = st.one_of(
    BOUNDS.map(lambda n: {"equals": n}),
    BOUNDS.map(lambda n: {"atLeast": n}),
    BOUNDS.map(lambda n: {"atMost": n}),
    st.tuples(BOUNDS, BOUNDS).map(sorted).map(lambda n: {"atLeast": n[0], "atMost": n[1]}),
)


@given(
    name=st.sampled_from([*FIGURES, "Events"]),
    bounds=BOUNDED,
    when=st.sampled_from(["end", "always", {"at": "1s"}]),
)
def test_each_expectation_can_hold_and_can_fail(
    name: str, bounds: dict[str, float], when: Any
) -> None:
    """Refused are those that no value can break, or none can meet, and no others."""
    figure = FIGURES.get(name, EVENT_COUNT)
    what = {"figure": name} if name in FIGURES else {"event": {"type": "Warning"}}
    about = {
        "apply": [{"object": each} for each in (CLOUD, BUDGET, NODE_CLAIM)],
        "workloads": [WEB, QUEUE],
        "topology": {"levels": [BLOCK, RACK]},
    }
    refused = checked(scenario(**about, expect=[what | bounds | {"when": when}])).findings
    judged = ScenarioCondition.model_validate(what | bounds)
    values = range(6) if figure.whole else [n / 8 for n in range(40)]
    can_hold = any(map(judged.holds, [0] if figure.grows and when == "always" else values))
    can_fail = not all(map(judged.holds, values))
    percent = figure.unit == "share" and max(bounds.values()) > 1
    assert bool(refused) is (percent or not (can_hold and can_fail)), (judged, refused)
    assert len(refused) <= 1


def test_figures_keep_to_their_range() -> None:
    fractions, shrink = set[str](), set[str]()
    for seed in range(40):
        topology = RecordedTopology((BLOCK, RACK))
        ledger, before = ClusterLedger(topology=topology), dict.fromkeys(FIGURES, 0.0)
        for line in random_recording(seed):
            ledger.apply(line)
            for name, figure in FIGURES.items():
                value = figure.reading(ledger.all, line.t).value or 0
                assert value >= 0, name
                fractions |= {name} if value != int(value) else set()
                shrink |= {name} if value < before[name] else set()
                before[name] = value
    assert fractions == {name for name, figure in FIGURES.items() if not figure.whole}
    assert shrink.isdisjoint(name for name, figure in FIGURES.items() if figure.grows)
