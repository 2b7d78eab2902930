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
    container |= {"ports": [{"hostPort": port} for port in spec.pop("ports", ())]}
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


def affinity(kind: str, key: str, **term: Any) -> Json:
    term = {"topologyKey": key, "labelSelector": WEB, **term}
    return {"affinity": {kind: {REQUIRED: [term]}}}


SPREAD: Json = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": ZONE_LABEL,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": WEB,
        }
    ]
}
ZONAL = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": ["b"]}]}
    ]
}
GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
NAMED = {"key": "metadata.name", "operator": "In", "values": ["n2"]}


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
            pod(
                affinity={
                    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [NAMED]}]}}
                }
            ),
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
    ("scope", "takes"),
    [
        ({}, 2),
        ({"namespaces": ["bank"]}, 1),
        ({"namespaceSelector": {}}, 1),
        ({"namespaceSelector": {"matchLabels": {"team": "two"}}}, 1),
        ({"namespaceSelector": {"matchLabels": {"team": "one"}}}, 2),
    ],
    ids=["own", "named", "all", "selected", "another"],
)
def test_pods_of_which_namespaces_count(scope: Json, takes: int) -> None:
    wanted = pod(**affinity("podAntiAffinity", HOSTNAME_LABEL, **scope))
    assert tried(wanted, pod(on="n1", namespace="bank")).takes == takes


def test_a_claim_without_a_volume_is_the_pods_problem() -> None:
    missing = 'persistentvolumeclaim "c" not found'
    assert tried(pod(), claims=(FitClaim("c", missing),)) == Fit(2, pod=missing)
