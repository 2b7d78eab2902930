"""What keeps a pod off nodes, in words. That the reasons are the scheduler's is tested on a cluster
(tests/e2e/test_why_live.py)."""

from typing import Any

import pytest

from kwok_operator.causes.fit import NOT_NAMED, Fit, FitClaim, fit
from kwok_operator.causes.nodematch import FitNode
from kwok_operator.causes.podsonnodes import REQUIRED, PodNeeds, PodsOnNodes
from kwok_operator.constants import HOSTNAME_LABEL, ZONE_LABEL
from kwok_operator.formats import schedulertexts as texts

Json = dict[str, Any]
WEB = {"matchLabels": {"app": "web"}}


def node(name: str, *, zone: str = "a", **spec: Any) -> FitNode:
    labels = {HOSTNAME_LABEL: name, ZONE_LABEL: zone}
    status = {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "2"}}
    return FitNode.of(
        {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
    )


def pod(*, on: str = "", app: str = "web", namespace: str = "shop", **spec: Any) -> Json:
    container: Json = {"resources": {"requests": {"cpu": spec.pop("cpu", "1")}}}
    ports = [
        {"hostPort": port} if isinstance(port, int) else port for port in spec.pop("ports", ())
    ]
    container |= {"ports": ports}
    return {
        "metadata": {"name": "p", "namespace": namespace, "labels": {"app": app}},
        "spec": {"containers": [container], "nodeName": on, **spec},
        "status": {"phase": spec.pop("phase", "Running")},
    }


def tried(wanted: Json, *there: Json, claims: tuple[FitClaim, ...] = (), nodes: Any = None) -> Fit:
    spaces = {"shop": {"team": "one"}, "bank": {"team": "two"}}
    pods = PodsOnNodes(PodNeeds.of(wanted), spaces)
    for each in there:
        pods.add(each)
    return fit(pods, nodes or [node("n1"), node("n2", zone="b")], claims)


def affinity(kind: str, key: str, *before: Json, **term: Any) -> Json:
    term = {"topologyKey": key, "labelSelector": WEB, **term}
    return {"affinity": {kind: {REQUIRED: [*before, term]}}}


def selected(*terms: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [*terms]}}}}


def named(*names: str, operator: str = "In") -> Json:
    return {"key": "metadata.name", "operator": operator, "values": [*names]}


def tolerating(**toleration: str) -> Json:
    return {"tolerations": [toleration]}


def spread(**rule: Any) -> Json:
    whole = {"maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**whole, "labelSelector": WEB, **rule}]}


SPREAD = spread()
ZONAL = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": ["b"]}]}
    ]
}
GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
ZONE_A = {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": ["a"]}]}
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
BARE = FitNode("bare", {ZONE_LABEL: "b"}, allocatable={"cpu": 2_000.0, "pods": 2.0})
NOWHERE = FitNode("nowhere", {}, allocatable={"cpu": 2_000.0, "pods": 9.0})
DB: Json = {"topologyKey": ZONE_LABEL, "labelSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("wanted", "there", "how", "reason", "detail"),
    [
        (pod(), (), {"nodes": [node("n1", unschedulable=True)]}, texts.UNSCHEDULABLE, "cordoned"),
        (
            pod(),
            (),
            {"nodes": [node("n1", taints=[GPU])]},
            texts.TAINTS,
            "dedicated=gpu:NoSchedule",
        ),
        (
            pod(nodeSelector={ZONE_LABEL: "b"}),
            (),
            {},
            texts.NODE_AFFINITY,
            f"nodeSelector {ZONE_LABEL}=b",
        ),
        (
            pod(affinity={"nodeAffinity": {REQUIRED: ZONAL}}),
            (),
            {},
            texts.NODE_AFFINITY,
            f"node affinity {ZONE_LABEL} In [b]",
        ),
        (
            pod(**selected({"matchFields": [named("n1", "n2"), named("n2", "n3")]})),
            (),
            {},
            NOT_NAMED,
            "the pod is for n2",
        ),
        (pod(ports=[80]), (pod(on="n1", ports=[80]),), {}, texts.PORTS, "port 80/TCP is in use"),
        (
            pod(),
            (),
            {"claims": (FitClaim("c", affinity=ZONAL),)},
            texts.VOLUME_NODE,
            f"claim c: {ZONE_LABEL} In [b]",
        ),
        (
            pod(),
            (),
            {"claims": (FitClaim("c", labels={ZONE_LABEL: "b__c"}),)},
            texts.VOLUME_ZONE,
            f"claim c: {ZONE_LABEL}=b__c",
        ),
        (
            pod(**SPREAD),
            (pod(on="n1"),),
            {},
            texts.SPREAD,
            f"{ZONE_LABEL}=a has 1 such pods, the least is 0, maxSkew is 1",
        ),
        (
            pod(**affinity("podAntiAffinity", ZONE_LABEL)),
            (pod(on="n1"),),
            {},
            texts.ANTI_AFFINITY,
            f"a pod that it must be apart from is in {ZONE_LABEL}=a",
        ),
        (
            pod(),
            (pod(on="n1", **affinity("podAntiAffinity", HOSTNAME_LABEL)),),
            {},
            texts.EXISTING_ANTI_AFFINITY,
            f"a pod in {HOSTNAME_LABEL}=n1 shuns this one",
        ),
        (
            pod(**affinity("podAffinity", ZONE_LABEL)),
            (pod(on="n2"),),
            {},
            texts.POD_AFFINITY,
            f"no pod that it wants to be near is in {ZONE_LABEL}=a",
        ),
    ],
)
def test_the_first_node_is_out_for_one_reason(
    wanted: Json, there: tuple[Json, ...], how: Json, reason: str, detail: str
) -> None:
    found = tried(wanted, *there, **how)
    (kept,) = found.kept_off
    assert (kept.reason, kept.detail, kept.nodes, kept.example) == (reason, detail, 1, "n1")
    assert (found.takes, found.example) == ((1, "n2") if found.nodes == 2 else (0, ""))


ADDRESS = {"hostPort": 80, "hostIP": "10.0.0.1"}
SIDECAR = {"restartPolicy": "Always", "ports": [{"hostPort": 80}]}
GOING = pod(on="n1")
TAKEN_BY: dict[str, tuple[Json, tuple[Json, ...], Json, list[str]]] = {
    "requests that add up": (
        pod(),
        (pod(on="nowhere", cpu="600m"), pod(on="nowhere", cpu="600m")),
        {"nodes": [NOWHERE]},
        [],
    ),
    "a port of another address": (
        pod(ports=[ADDRESS]),
        (pod(on="n1", ports=[{**ADDRESS, "hostIP": "10.0.0.2"}]), pod(on="n2", ports=[80])),
        {},
        ["n1"],
    ),
    "a port of another protocol": (
        pod(ports=[80]),
        (pod(on="n1", ports=[{"hostPort": 80, "protocol": "UDP"}]),),
        {},
        ["n1", "n2"],
    ),
    "a sidecar's port": (
        pod(ports=[80]),
        (pod(on="n1", initContainers=[SIDECAR, {"ports": [{"hostPort": 81}]}]),),
        {},
        ["n2"],
    ),
    "a port of a container that ends": (
        pod(ports=[81]),
        (pod(on="n1", initContainers=[SIDECAR, {"ports": [{"hostPort": 81}]}]),),
        {},
        ["n1", "n2"],
    ),
    "a volume's zone by an old label": (
        pod(),
        (),
        {"claims": (FitClaim("c", labels={OLD_ZONE: "b"}),)},
        ["n2"],
    ),
    "a volume's zone, and a node of none": (
        pod(),
        (),
        {"claims": (FitClaim("c", labels={ZONE_LABEL: "a"}),), "nodes": [BARE, NOWHERE]},
        ["nowhere"],
    ),
    "a cordon": (
        pod(**tolerating(key="node.kubernetes.io/unschedulable", operator="Exists")),
        (),
        {"nodes": [node("n1", unschedulable=True)]},
        ["n1"],
    ),
    "a taint that only deters": (
        pod(),
        (),
        {"nodes": [node("n1", taints=[{**GPU, "effect": "PreferNoSchedule"}])]},
        ["n1"],
    ),
    **{
        f"a taint: {toleration}": (
            pod(**tolerating(**toleration)),
            (),
            {"nodes": [node("n1", taints=[GPU])]},
            ["n1"] if tolerates else [],
        )
        for toleration, tolerates in (
            ({"key": "dedicated", "value": "gpu"}, True),
            ({"key": "dedicated", "value": "gpu", "effect": "NoExecute"}, False),
            ({"key": "other", "operator": "Exists"}, False),
            ({"operator": "Exists"}, True),
            ({"key": "dedicated", "value": "cpu"}, False),
            ({"key": "dedicated"}, False),
        )
    },
    "a name or a label": (
        pod(**selected({"matchFields": [named("n2")]}, ZONE_A)),
        (),
        {},
        ["n1", "n2"],
    ),
    "all but a name": (
        pod(**selected({"matchFields": [named("n1", operator="NotIn")]})),
        (),
        {},
        ["n2"],
    ),
    "an empty term": (pod(**selected({})), (), {}, []),
    "a spread over more zones than there are": (
        pod(**spread(minDomains=3)),
        (pod(on="n1"), pod(on="n2")),
        {},
        [],
    ),
    "a spread that the pod doesn't count in": (
        pod(app="db", **SPREAD),
        (pod(on="n1"),),
        {},
        ["n1", "n2"],
    ),
    "a spread that only deters": (
        pod(**spread(whenUnsatisfiable="ScheduleAnyway")),
        (pod(on="n1"),),
        {},
        ["n1", "n2"],
    ),
    "a spread of nothing": (pod(**spread(labelSelector={})), (pod(on="n1"),), {}, ["n1", "n2"]),
    "a spread of those alike": (
        pod(
            **spread(
                labelSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                matchLabelKeys=["app"],
            )
        ),
        (pod(on="n1", app="db"),),
        {},
        ["n1", "n2"],
    ),
    "a spread beside a pod that goes": (
        pod(**SPREAD),
        ({**GOING, "metadata": {**GOING["metadata"], "deletionTimestamp": "now"}},),
        {},
        ["n1", "n2"],
    ),
    "a spread beside a pod of others": (
        pod(**SPREAD),
        (pod(on="n1", namespace="bank"),),
        {},
        ["n1", "n2"],
    ),
    "a spread over the zones that are selected": (
        pod(nodeSelector={ZONE_LABEL: "a"}, **SPREAD),
        (pod(on="n1"),),
        {},
        ["n1"],
    ),
    "a spread over all zones": (
        pod(nodeSelector={ZONE_LABEL: "a"}, **spread(nodeAffinityPolicy="Ignore")),
        (pod(on="n1"),),
        {},
        [],
    ),
    "a spread over a tainted zone": (
        pod(**SPREAD),
        (pod(on="n1"),),
        {"nodes": [node("n1"), node("n2", zone="b", taints=[GPU])]},
        [],
    ),
    "a spread over zones without taints": (
        pod(**spread(nodeTaintsPolicy="Honor")),
        (pod(on="n1"),),
        {"nodes": [node("n1"), node("n2", zone="b", taints=[GPU])]},
        ["n1"],
    ),
    "a spread over two levels, of which a node has one": (
        pod(
            topologySpreadConstraints=[
                *SPREAD["topologySpreadConstraints"],
                *spread(topologyKey=HOSTNAME_LABEL)["topologySpreadConstraints"],
            ]
        ),
        (pod(on="n1", app="db"),),
        {"nodes": [node("n1"), BARE]},
        ["n1"],
    ),
    "near to a pod by a label that a node lacks": (
        pod(**affinity("podAffinity", HOSTNAME_LABEL)),
        (),
        {"nodes": [node("n1"), BARE]},
        ["n1"],
    ),
    "near to one of two": (
        pod(**affinity("podAffinity", ZONE_LABEL, DB)),
        (pod(on="n1"), pod(on="n2", app="db")),
        {},
        [],
    ),
    "apart from the second of two": (
        pod(**affinity("podAntiAffinity", HOSTNAME_LABEL, DB)),
        (pod(on="n1"),),
        {},
        ["n2"],
    ),
}


@pytest.mark.parametrize("rule", TAKEN_BY)
def test_a_rule_keeps_the_pod_off_no_other_nodes(rule: str) -> None:
    wanted, there, how, names = TAKEN_BY[rule]
    nodes = how.get("nodes") or [node("n1"), node("n2", zone="b")]
    found = tried(wanted, *there, **how)
    out = {kept.example for kept in found.kept_off}
    assert found.takes == len(names)
    assert found.example == (names[0] if names else "")
    assert out.isdisjoint(names) and out <= {each.name for each in nodes}


def test_a_node_has_the_reason_of_the_first_rule_in_the_schedulers_order() -> None:
    wrong: list[tuple[str, Json, Json, tuple[FitClaim, ...]]] = [
        (NOT_NAMED, selected({"matchFields": [named("n9")]}), {}, ()),
        (texts.UNSCHEDULABLE, {}, {"unschedulable": True}, ()),
        (texts.TAINTS, {}, {"taints": [GPU]}, ()),
        (texts.NODE_AFFINITY, {"nodeSelector": {"disk": "ssd"}}, {}, ()),
        (texts.PORTS, {"ports": [80]}, {}, ()),
        (texts.insufficient("cpu"), {"cpu": "3"}, {}, ()),
        (texts.VOLUME_NODE, {}, {}, (FitClaim("c", affinity=ZONAL),)),
        (texts.VOLUME_ZONE, {}, {}, (FitClaim("d", labels={ZONE_LABEL: "b"}),)),
        (texts.SPREAD, SPREAD, {}, ()),
        (texts.EXISTING_ANTI_AFFINITY, {}, {}, ()),
    ]
    there = pod(on="n1", ports=[80], **affinity("podAntiAffinity", HOSTNAME_LABEL))
    for place, (reason, *_) in enumerate(wrong):
        left = wrong[place:]
        spec = {key: value for row in left for key, value in row[1].items()}
        shut = {key: value for row in left for key, value in row[2].items()}
        claims = tuple(claim for row in left for claim in row[3])
        nodes = [node("n1", **shut), node("n2", zone="b")]
        found = tried(pod(**spec), there, claims=claims, nodes=nodes).kept_off
        assert {each.reason for each in found if each.example == "n1"} == {reason}


def test_the_reason_of_most_nodes_comes_first() -> None:
    cordoned = [node(name, unschedulable=True) for name in ("n2", "n3")]
    found = tried(pod(), nodes=[node("n1", taints=[GPU]), *cordoned])
    assert [*found.reasons().items()] == [(texts.UNSCHEDULABLE, 2), (texts.TAINTS, 1)]


def test_of_a_resource_the_most_that_is_free_counts() -> None:
    there = [pod(on="n1", cpu="500m"), pod(on="n2", cpu="1500m"), pod(cpu="2")]
    ended = {**pod(on="n1", cpu="2"), "status": {"phase": "Succeeded"}}
    (kept,) = tried(pod(cpu="1600m"), *there, ended).kept_off
    assert (kept.reason, kept.nodes, kept.free, kept.most) == ("Insufficient cpu", 2, 1_500, 2_000)
    found = tried(pod(cpu="16"), *there, pod(on="n1"), pod(on="n2"))
    assert found.reasons() == {"Insufficient cpu": 2, texts.TOO_MANY_PODS: 2}


def test_what_is_counted_before_there_is_another_pod() -> None:
    near = pod(**affinity("podAffinity", ZONE_LABEL))
    assert tried(near).takes == 2, "the first of pods that want to be near each other"
    assert tried({**near, "metadata": {"namespace": "shop", "labels": {}}}).takes == 0
    even = tried(pod(**SPREAD), pod(on="n1"), pod(on="n2"))
    assert even.takes == 2, "each zone has one, so a second one is no skew"


@pytest.mark.parametrize(
    ("scope", "theirs", "own"),
    [
        ({}, 2, 1),
        ({"namespaces": ["bank"]}, 1, 2),
        ({"namespaceSelector": {}}, 1, 1),
        ({"namespaceSelector": {"matchLabels": {"team": "two"}}}, 1, 2),
        ({"namespaceSelector": {"matchLabels": {"team": "one"}}}, 2, 1),
    ],
    ids=["own", "named", "all", "selected", "another"],
)
def test_pods_of_which_namespaces_count(scope: Json, theirs: int, own: int) -> None:
    wanted = pod(**affinity("podAntiAffinity", HOSTNAME_LABEL, **scope))
    assert tried(wanted, pod(on="n1", namespace="bank")).takes == theirs
    assert tried(wanted, pod(on="n1")).takes == own


def test_a_claim_without_a_volume_is_the_pods_problem() -> None:
    missing = 'persistentvolumeclaim "c" not found'
    assert tried(pod(), claims=(FitClaim("c", missing),)) == Fit(2, pod=missing)
