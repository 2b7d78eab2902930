"""What is read of a live cluster, from an API server that can be made to refuse."""

import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import pytest

from kwok_operator.causes import reading
from kwok_operator.causes.live import LiveAnswer, NoSuchPodError, explain_live
from kwok_operator.causes.model import CauseKind
from kwok_operator.causes.reading import ClusterReader
from kwok_operator.constants import ZONE_LABEL
from kwok_operator.errors import UnauthorizedError
from kwok_operator.formats.times import format_time
from kwok_operator.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer

Json = dict[str, Any]
PODS = "/api/v1/namespaces/shop/pods"
CREATED = "2026-01-01T00:00:00Z"
SAYS = "0/1 nodes are available: 1 Insufficient cpu."
STATUS = "cluster-autoscaler-status"


def metadata(name: str, namespace: str = "", **more: Any) -> Json:
    return {"name": name, "namespace": namespace, "creationTimestamp": CREATED, **more}


def event(reason: str, message: str, uid: str) -> Json:
    about = {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": uid}
    return {
        "metadata": metadata(f"{reason}-{uid}", "shop"),
        "involvedObject": about,
        "lastTimestamp": "2026-01-01T00:00:05Z",
        "reason": reason,
        "message": message,
    }


POD: Json = {
    "metadata": metadata("web-1", "shop", uid="1"),
    "spec": {
        "containers": [{"resources": {"requests": {"cpu": "8"}}, "env": [{"value": "hidden"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "zone",
                        "namespaceSelector": {"matchLabels": {"team": "one"}},
                        "labelSelector": {},
                    }
                ]
            }
        },
    },
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "message": SAYS,
                "lastTransitionTime": CREATED,
            }
        ],
    },
}
NODE: Json = {
    "metadata": metadata("n1", labels={"zone": "a"}),
    "spec": {},
    "status": {"allocatable": {"cpu": "4", "pods": "9"}},
}
CONFIG: Json = {
    "metadata": metadata(STATUS, "kube-system"),
    "data": {
        "status": "autoscalerStatus: Running\nnodeGroups: [{name: a, health: {cloudProviderTarget:"
        " 3, maxSize: 3}}]"
    },
}
REFUSED = event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient cpu", "1")
ANOTHERS = event("TriggeredScaleUp", "pod triggered scale-up: [{a 0->3 (max: 3)}]", "2")
POOL = {"metadata": metadata("default"), "spec": {"limits": {"cpu": "9"}}, "status": {}}
LISTS: dict[str, list[Json]] = {
    PODS: [POD],
    "/api/v1/pods": [],
    "/api/v1/namespaces": [{"metadata": metadata("shop")}],
    "/api/v1/nodes": [NODE],
    "/api/v1/namespaces/shop/events": [REFUSED, ANOTHERS],
    "/api/v1/namespaces/default/events": [],
    "/api/v1/namespaces/kube-system/events": [],
    "/apis/policy/v1/namespaces/shop/poddisruptionbudgets": [],
    "/apis/karpenter.sh/v1/nodepools": [POOL],
    "/apis/karpenter.sh/v1/nodeclaims": [],
    "/apis/kwok-operator.io/v1alpha1/kwoknodegroups": [],
}
HOME = f"/api/v1/namespaces/kube-system/configmaps/{STATUS}"


def apis(karpenter: str) -> Json:
    versions = {"karpenter.sh": karpenter, "kwok-operator.io": "v1alpha1"}
    return {
        "groups": [{"name": name, "versions": [{"version": v}]} for name, v in versions.items()]
    }


OBJECTS: dict[str, Json] = {
    f"{PODS}/web-1": POD,
    HOME: CONFIG,
    "/api/v1/namespaces/shop/persistentvolumeclaims/data": {"spec": {"volumeName": "pv"}},
    "/api/v1/persistentvolumes/pv": {"metadata": metadata("pv"), "spec": {}},
    "/apis": apis("v1"),
}
UNLIMITED = frozenset({f"{PODS}/web-1", "/apis"})
"""What is needed for an answer, and what every account may read."""


def of_pod(status: Json | None = None, **spec: Any) -> dict[str, Json | None]:
    changed = {"spec": {**POD["spec"], **spec}, "status": {**POD["status"], **(status or {})}}
    return {f"{PODS}/web-1": {**POD, **changed}}


def listed(*items: Json) -> Json:
    return {"metadata": {}, "items": items}


def put(server: FakeApiServer, documents: Mapping[str, Json | None]) -> None:
    """Serves these documents; not those that are None."""
    for path, body in documents.items():
        server.documents[path] = json.dumps(body)
        if body is None:
            del server.documents[path]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        server.store.collections.clear()
        lists = {path: {"metadata": {}, "items": items} for path, items in LISTS.items()}
        for path, body in (lists | OBJECTS).items():
            server.documents[path] = json.dumps(body)
        yield server


async def explained(server: FakeApiServer, name: str = "web-1") -> LiveAnswer:
    async with KubeClient(connection=server.connection()) as client:
        return await explain_live(client, namespace="shop", name=name)


async def test_it_only_gets_and_lists(server: FakeApiServer) -> None:
    answer = await explained(server)
    assert answer.chain.cause.kind is CauseKind.REFUSED
    assert "right" not in "".join(answer.chain.unknown)
    shown = "\n".join(answer.live_lines)
    for part in ("8 CPUs", "a: 0 ready of 3, from 0 to 3 nodes", "NodePool default: 0 of 9 cpu"):
        assert part in shown
    assert {seen.verb for seen in server.seen} == {"get"}
    asked = {seen.resource for seen in server.seen}
    assert asked == {*LISTS, *OBJECTS} - {PODS}
    assert answer.live_lines[0].startswith("1 node: 0 would take the pod")
    chosen = {seen.query["fieldSelector"] for seen in server.seen if "fieldSelector" in seen.query}
    assert {f"involvedObject.kind={kind}" for kind in ("NodeClaim", "KwokNodeGroup")} <= chosen
    assert any("spec.nodeName!=" in each for each in chosen)
    assert not any("secret" in path for path in asked)


async def test_a_missing_right_is_named_and_the_rest_goes_on(server: FakeApiServer) -> None:
    for path in {*LISTS, *OBJECTS} - UNLIMITED - {PODS}:
        server.heal()
        server.fail(403, times=9, resource=path)
        answer = await explained(server)
        assert SAYS in "".join(step.text for step in answer.chain.steps)
        notes = [note for note in answer.chain.unknown if "needs the right to" in note]
        resource = path.rpartition("/")[2]
        assert any(resource in note for note in notes), (path, answer.chain.unknown)


async def test_whether_an_autoscaler_runs_is_said_only_if_it_could_be_looked_for(
    server: FakeApiServer,
) -> None:
    everywhere = "/api/v1/configmaps"
    pools, nothing = "/apis/karpenter.sh/v1/nodepools", json.dumps({"metadata": {}, "items": []})
    server.documents |= {everywhere: nothing, pools: nothing}
    server.documents["/api/v1/namespaces/shop/events"] = nothing
    del server.documents[HOME]
    chain = (await explained(server)).chain
    assert chain.cause.kind is CauseKind.NO_AUTOSCALER
    assert any("there is no ConfigMap" in note for note in chain.unknown)
    for hidden in (everywhere, pools):
        server.heal()
        server.fail(403, times=9, resource=hidden)
        chain = (await explained(server)).chain
        assert chain.cause.kind is CauseKind.UNKNOWN, hidden
        assert not any("there is no ConfigMap" in note for note in chain.unknown)
    server.heal()
    put(server, {"/apis": apis("v1beta1")})
    assert (await explained(server)).chain.cause.kind is CauseKind.UNKNOWN


async def test_names_alike_are_suggested(server: FakeApiServer) -> None:
    with pytest.raises(NoSuchPodError, match=r"no pod shop/wbe-1; did you mean web-1\?"):
        await explained(server, "wbe-1")
    put(server, {PODS: listed(POD, {"metadata": metadata("web-2", "shop")})})
    with pytest.raises(NoSuchPodError, match=r"did you mean web-1.*web-2\?"):
        await explained(server, "web")
    put(server, {"/api/v1/pods": listed({"metadata": metadata("wbe-1", "bank")})})
    with pytest.raises(NoSuchPodError, match="one of that name is in namespace bank"):
        await explained(server, "wbe-1")


VOLUME = "/api/v1/persistentvolumes/pv"
CLAIM = "/api/v1/namespaces/shop/persistentvolumeclaims/data"
CLASS = "/apis/storage.k8s.io/v1/storageclasses/fast"
UNBOUND: dict[str, Json | None] = {CLAIM: {"spec": {"storageClassName": "fast"}}}
LATE = {"volumeBindingMode": "WaitForFirstConsumer"}
BIG = {"labels": {ZONE_LABEL: "a"}, "status": {"allocatable": {"cpu": "16", "pods": "9"}}}


@pytest.mark.parametrize(
    ("documents", "refused", "shown", "note"),
    [
        (of_pod(resourceClaims=[{"name": "gpu"}]), "", "", "spec.resourceClaims"),
        (of_pod(schedulerName="mine"), "", "", "what mine looks at"),
        ({"/apis": apis("v1beta1")}, "", "", "Karpenter is older than 1.0"),
        ({HOME: {**CONFIG, "data": {"status": "["}}}, "", "", "has another form"),
        (of_pod({"nominatedNodeName": "n1"}), "", "preempts pods on n1", ""),
        ({CLAIM: None}, "", 'persistentvolumeclaim "data" not found', ""),
        (of_pod(volumes=[{"name": "v", "ephemeral": {}}]), "", '"web-1-v" not found', ""),
        ({}, CLAIM, "1 node: 1 would take", "persistentvolumeclaims data"),
        (UNBOUND | {CLASS: LATE}, "", "1 node: 1 would take", "StorageClass fast"),
        (UNBOUND | {CLASS: {}}, "", "unbound immediate", ""),
        (UNBOUND | {CLASS: {}}, CLASS, "1 node: 1 would take", "storageclasses.storage.k8s.io"),
        ({VOLUME: {"metadata": {"labels": {ZONE_LABEL: "b"}}}}, "", f"{ZONE_LABEL}=b", ""),
    ],
)
async def test_what_is_shown_and_noted(
    server: FakeApiServer, documents: dict[str, Json | None], refused: str, shown: str, note: str
) -> None:
    node = {**NODE, "metadata": metadata("n1", labels=BIG["labels"]), "status": BIG["status"]}
    put(server, {"/api/v1/nodes": listed(node), **documents})
    if refused:
        server.fail(403, times=9, resource=refused)
    answer = await explained(server)
    assert shown in "".join(answer.live_lines)
    assert note in "".join(answer.chain.unknown)


async def test_without_the_other_pods_no_node_is_said_to_be_free(server: FakeApiServer) -> None:
    node = {**NODE, "status": BIG["status"]}
    put(server, {"/api/v1/nodes": listed(node)})
    answer = await explained(server)
    assert answer.chain.cause.kind is CauseKind.UNSCHEDULED
    server.fail(403, times=9, resource="/api/v1/pods")
    answer = await explained(server)
    assert answer.chain.cause.kind is CauseKind.REFUSED
    assert answer.live_lines[0].endswith("(without regard to other pods)")


@pytest.mark.parametrize("age", [10, 7_200])
async def test_that_events_are_gone_is_said_of_an_old_pod(server: FakeApiServer, age: int) -> None:
    created = format_time(round((time.time() - age) * 1_000))
    pod = {**POD, "metadata": {**POD["metadata"], "creationTimestamp": created}}
    put(server, {f"{PODS}/web-1": pod, "/api/v1/namespaces/shop/events": listed()})
    notes = "".join((await explained(server)).chain.unknown)
    assert ("its Events are gone" in notes) is (age > 3_600)


async def test_an_event_without_a_uid_is_the_pods(server: FakeApiServer) -> None:
    of_nobody = event("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Too many pods", "")
    put(server, {"/api/v1/namespaces/shop/events": listed(of_nobody)})
    assert (await explained(server)).chain.cause.kind is CauseKind.REFUSED


async def test_lists_are_read_in_pages_and_notes_are_made_once(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE", 2)
    del server.documents["/api/v1/nodes"]
    server.store.serve("/api/v1/nodes", kind="Node")
    for name in "abc":
        server.create("/api/v1/nodes", {"metadata": {"name": name}})
    found: list[Json] = []
    async with KubeClient(connection=server.connection()) as client:
        reader = ClusterReader(client)
        each = partial(reader.each, "/api/v1/nodes", found.append, shows="nodes")
        assert await each()
        assert (len(found), reader.unknown) == (3, [])
        for _ in range(2):
            assert not await each(most=1)
        assert len(reader.unknown) == 1 and "only the first 2 objects" in reader.unknown[0]
        for status, quiet, notes in (403, True, 1), (403, False, 2), (410, False, 3):
            server.fail(status, times=9, verb="list", resource="nodes")
            assert not await each(quiet=quiet)
            assert len(reader.unknown) == notes
            server.heal()
        assert "changed too fast" in reader.unknown[-1]
        server.fail(401, times=9)
        with pytest.raises(UnauthorizedError):
            await reader.get("/api/v1/nodes/a", shows="a node")


@pytest.mark.parametrize(
    ("status", "kind"),
    [({}, CauseKind.STARTING), ({"phase": "Running"}, CauseKind.RUNNING)],
    ids=["bound", "running"],
)
async def test_a_node_that_is_not_there_is_said_to_be_gone(
    server: FakeApiServer, status: Json, kind: CauseKind
) -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}
    status = {"conditions": [scheduled], **status}
    pod = {**POD, "spec": {**POD["spec"], "nodeName": "n2"}, "status": status}
    server.documents[f"{PODS}/web-1"] = json.dumps(pod)
    cause = (await explained(server)).chain.cause
    assert cause.kind is kind
    assert re.search("n2.* is gone", cause.sentence), cause
    chosen = [seen.query.get("fieldSelector") for seen in server.seen]
    assert "involvedObject.kind=Node,involvedObject.name=n2" in chosen
    server.documents["/api/v1/nodes/n2"] = json.dumps(NODE)
    assert "gone" not in (await explained(server)).chain.cause.sentence
