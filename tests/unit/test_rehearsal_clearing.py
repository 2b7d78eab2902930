"""What a rehearsal has made in a cluster of others goes again, and nothing else."""

import json
from typing import Any

import pytest

from kwok_operator.constants import (
    DERIVED_LABEL,
    NODE_GROUP_LABEL,
    NODE_POOL_LABEL,
    REHEARSAL_LABEL,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.resources import ApiResource
from kwok_operator.rehearsal import clearing
from kwok_operator.rehearsal.clearing import Clearing
from kwok_operator.rehearsal.scenario.borrowing import (
    PART_OF,
    PART_OF_LABEL,
    REHEARSAL_NAMESPACE,
    SCOUT,
    Turn,
)
from tests.fakes.apiserver import GROUPS, NODES, FakeApiServer

PODS = "/api/v1/pods"
NAMESPACES = "/api/v1/namespaces"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
KINDS = {
    PODS: "Pod",
    NAMESPACES: "Namespace",
    CRDS: "CustomResourceDefinition",
    POOLS: "NodePool",
    CLAIMS: "NodeClaim",
}
SERVED = {NODES: "Node", GROUPS: "KwokNodeGroup", **KINDS}
NAMESPACED = (PODS,)
CRD = "kwoknodegroups.kwok-operator.io"
OURS = {REHEARSAL_LABEL: "it"}
INSTALLED = {**OURS, PART_OF_LABEL: PART_OF}


class Cluster(FakeApiServer):
    """Pods are where no namespace is, as this server knows none."""

    def __init__(self) -> None:
        super().__init__()
        for path, kind in KINDS.items():
            self.serve(path, kind=kind)
        groups: dict[str, dict[str, Any]] = {}
        for path, kind in SERVED.items():
            *root, version, plural = path.strip("/").split("/")
            name = "" if root[0] == "api" else root[1]
            found = groups.setdefault(
                name, {"metadata": {"name": name}, "versions": [{"version": version}]}
            )
            found["versions"][0].setdefault("resources", []).append(
                {
                    "resource": plural,
                    "responseKind": {"kind": kind},
                    "scope": "Namespaced" if path in NAMESPACED else "Cluster",
                    "verbs": ["list", "delete"],
                }
            )
        self.documents["/api"] = json.dumps({"items": [groups.pop("")]})
        self.documents["/apis"] = json.dumps({"items": list(groups.values())})

    def put(self, path: str, name: str, /, labels: dict[str, str], **rest: Any) -> None:
        metadata = {"name": name, "labels": labels, **rest.pop("metadata", {})}
        self.create(path, {"metadata": metadata, **rest})

    @property
    def names(self) -> set[str]:
        return {name for path in SERVED for name in self.objects(path)}

    def deleted(self) -> list[str]:
        return [seen.name for seen in self.seen if seen.verb == "delete"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        ("_ALL_WITHIN", 20),
        ("_OTHERS_HAVE", 0.1),
        ("_LOOK_SECONDS", 0.01),
        ("_KARPENTER_HAS", 0.2),
    ):
        monkeypatch.setattr(clearing, name, seconds)


async def cleared(
    cluster: Cluster, *, karpenter_lives: bool = False
) -> tuple[list[str], list[str]]:
    """What is left, and what was told."""
    told: list[str] = []
    async with cluster, KubeClient(connection=cluster.connection()) as client:
        made = Clearing(client, report=told.append, karpenter_lives=lambda: karpenter_lives)
        left = await made.clear(Turn)
    return left, told


async def test_what_is_marked_goes_in_turn_and_nothing_else() -> None:
    cluster = Cluster()
    cluster.put(NAMESPACES, REHEARSAL_NAMESPACE, INSTALLED)
    cluster.put(NAMESPACES, "kwok-operator", INSTALLED)
    cluster.put(NAMESPACES, "shop", {"a": "b"})
    cluster.put(CRDS, CRD, INSTALLED)
    cluster.put(CRDS, "others.example.com", {})
    cluster.put(PODS, "web", OURS)
    cluster.put(PODS, "cart", {})
    cluster.put(GROUPS, "a", OURS)
    owner = [{"apiVersion": "v1", "kind": "KwokNodeGroup", "name": "a", "uid": "1"}]
    cluster.put(NODES, "a-1", {NODE_GROUP_LABEL: "a"}, metadata={"ownerReferences": owner})
    cluster.put(NODES, "bare", OURS)
    cluster.put(NODES, "real", {})
    cluster.put(PODS, "agent", {}, spec={"nodeName": "a-1"})
    only_there = {"matchFields": [{"key": "metadata.name", "values": [SCOUT]}]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only_there]}
    }
    cluster.put(PODS, "waits", {}, spec={"affinity": {"nodeAffinity": required}})
    left, told = await cleared(cluster)
    assert (left, told) == ([], [])
    assert cluster.names == {"shop", "others.example.com", "cart", "real"}
    order = list(dict.fromkeys(cluster.deleted()))
    assert order[:3] == ["web", "a", "a-1"]
    assert set(order[3:6]) == {"bare", "agent", "waits"}
    assert order[-1] == REHEARSAL_NAMESPACE


async def test_where_nobody_has_rehearsed_nothing_goes() -> None:
    cluster = Cluster()
    cluster.put(GROUPS, "theirs", {DERIVED_LABEL: "true"})
    cluster.put(NODES, "theirs-1", {NODE_GROUP_LABEL: "theirs"})
    cluster.put(NODES, "of-a-group-that-is-gone", {NODE_GROUP_LABEL: "gone"})
    assert await cleared(cluster) == ([], [])
    assert cluster.deleted() == []


async def test_what_others_use_stays() -> None:
    cluster = Cluster()
    cluster.put(NAMESPACES, REHEARSAL_NAMESPACE, INSTALLED)
    cluster.put(CRDS, CRD, INSTALLED)
    cluster.put(GROUPS, "a", OURS)
    cluster.put(GROUPS, "theirs", {})
    cluster.put(NODES, "theirs-1", {NODE_GROUP_LABEL: "theirs"})
    cluster.put(NODES, "a-1", {NODE_GROUP_LABEL: "a"})
    left, told = await cleared(cluster)
    assert left == []
    assert cluster.names == {CRD, "theirs", "theirs-1"}
    assert cluster.objects(CRDS)[CRD]["metadata"]["labels"] == {PART_OF_LABEL: PART_OF}
    assert any("theirs" in line for line in told)


async def test_what_cannot_be_deleted_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "_ALL_WITHIN", 1)
    cluster = Cluster()
    cluster.put(NAMESPACES, REHEARSAL_NAMESPACE, INSTALLED)
    cluster.put(PODS, "web", OURS)
    cluster.put(GROUPS, "a", OURS)
    cluster.fail(403, times=1_000, verb="delete", resource="pods", message="the webhook says no")
    left, _ = await cleared(cluster)
    assert len(left) == 1
    assert "Pod web (403 the webhook says no)" in left[0]
    assert cluster.names == {"web", REHEARSAL_NAMESPACE}


async def test_nodes_of_karpenter_go_before_groups_and_without_it_if_it_has_ended() -> None:
    cluster = Cluster()
    cluster.put(NAMESPACES, REHEARSAL_NAMESPACE, INSTALLED)
    cluster.put(PODS, "web", OURS)
    cluster.put(POOLS, "general", OURS)
    cluster.put(POOLS, "theirs", {})
    cluster.put(GROUPS, "a", OURS)
    labels = {**OURS, NODE_GROUP_LABEL: "a", NODE_POOL_LABEL: "general"}
    held = {"finalizers": ["karpenter.sh/termination"]}
    cluster.put(CLAIMS, "general-1", labels, metadata=held)
    cluster.put(NODES, "kwok-general-1", labels, metadata=held)
    left, told = await cleared(cluster)
    assert left == []
    assert cluster.names == {"theirs"}
    assert len(told) == 1
    order = list(dict.fromkeys(cluster.deleted()))
    assert order[0] == "web"
    assert {*order[1:4]} == {"general", "general-1", "kwok-general-1"}


async def test_no_finalizer_of_others_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "_ALL_WITHIN", 1)
    cluster = Cluster()
    theirs = {"finalizers": ["example.com/theirs", "karpenter.sh/termination"]}
    cluster.put(CLAIMS, "general-1", OURS, metadata=theirs)
    left, _ = await cleared(cluster)
    assert left == ["NodeClaim general-1"]
    metadata = cluster.objects(CLAIMS)["general-1"]["metadata"]
    assert metadata["finalizers"] == ["example.com/theirs"]


HELD: dict[str, Any] = {"finalizers": ["karpenter.sh/termination"]}


async def test_what_karpenter_holds_is_left_to_it_while_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clearing, "_ALL_WITHIN", 2)
    monkeypatch.setattr(clearing, "_WITHOUT_KARPENTER", 1)
    cluster = Cluster()
    cluster.put(CLAIMS, "general-1", OURS, metadata=HELD)
    left, told = await cleared(cluster, karpenter_lives=True)
    assert (left, cluster.names) == ([], {"general-1"})
    assert any(line.startswith("Karpenter is ended") for line in told)


async def test_no_machine_of_a_cloud_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearing, "_ALL_WITHIN", 1)
    cluster = Cluster()
    for name, group in ("theirs", "karpenter.k8s.aws"), ("fake", "karpenter.kwok.sh"):
        cluster.put(CLAIMS, name, OURS, metadata=HELD, spec={"nodeClassRef": {"group": group}})
    for name, provider in ("real", "aws:///i-1"), ("kwok", "kwok://kwok"):
        labels = {**OURS, NODE_POOL_LABEL: "general"}
        cluster.put(NODES, name, labels, metadata=HELD, spec={"providerID": provider})
    left, _ = await cleared(cluster)
    assert set(left) == {"NodeClaim theirs", "Node real"}
    assert [seen.verb for seen in cluster.seen if seen.name == "theirs"].count("get") == 1


def test_nothing_is_stuck_while_something_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 0.0, 29.0, 31.0, 60.0, 62.0))
    monkeypatch.setattr(clearing.__name__ + ".time.monotonic", lambda: next(clock))
    monkeypatch.setattr(clearing, "_KARPENTER_HAS", 30)
    kind = ApiResource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", False, frozenset())
    a, b = (
        clearing._Made(kind, {"name": uid, "uid": uid, "deletionTimestamp": "now"}) for uid in "ab"
    )
    patience = clearing._Patience()
    looks = [patience.over(there) for there in ([a, b], [a, b], [b], [b], [b])]
    assert looks == [[], [], [], [], [b]]
