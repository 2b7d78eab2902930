"""What is read of a live cluster, from an API server that can be made to refuse."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kwok_operator.causes.live import LiveAnswer, NoSuchPodError, explain_live
from kwok_operator.causes.model import CauseKind
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
OBJECTS: dict[str, Json] = {
    f"{PODS}/web-1": POD,
    f"/api/v1/namespaces/kube-system/configmaps/{STATUS}": CONFIG,
    "/api/v1/namespaces/shop/persistentvolumeclaims/data": {"spec": {"volumeName": "pv"}},
    "/api/v1/persistentvolumes/pv": {"metadata": metadata("pv"), "spec": {}},
    "/apis": {
        "groups": [
            {"name": name, "versions": [{"version": version}]}
            for name, version in (("karpenter.sh", "v1"), ("kwok-operator.io", "v1alpha1"))
        ]
    },
}
UNLIMITED = frozenset({f"{PODS}/web-1", "/apis"})
"""What is needed for an answer, and what every account may read."""


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
    home, everywhere = f"/api/v1/namespaces/kube-system/configmaps/{STATUS}", "/api/v1/configmaps"
    pools, nothing = "/apis/karpenter.sh/v1/nodepools", json.dumps({"metadata": {}, "items": []})
    server.documents |= {everywhere: nothing, pools: nothing}
    server.documents["/api/v1/namespaces/shop/events"] = nothing
    del server.documents[home]
    chain = (await explained(server)).chain
    assert chain.cause.kind is CauseKind.NO_AUTOSCALER
    assert any("there is no ConfigMap" in note for note in chain.unknown)
    for hidden in (everywhere, pools):
        server.heal()
        server.fail(403, times=9, resource=hidden)
        chain = (await explained(server)).chain
        assert chain.cause.kind is CauseKind.UNKNOWN, hidden
        assert not any("there is no ConfigMap" in note for note in chain.unknown)


async def test_names_alike_are_suggested(server: FakeApiServer) -> None:
    with pytest.raises(NoSuchPodError, match=r"no pod shop/wbe-1; did you mean web-1\?"):
        await explained(server, "wbe-1")


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
    server.documents["/api/v1/nodes/n2"] = json.dumps(NODE)
    assert "gone" not in (await explained(server)).chain.cause.sentence
