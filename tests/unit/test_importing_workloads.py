"""Workloads of another cluster: what is kept of them, and what never is."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.notes import Reason, Ref
from kwok_operator.importing.pods.shape import pod_shape, tolerates_guard
from kwok_operator.importing.pods.workloads import Imported, Workloads
from tests.importedpods import (
    CONSTRAINTS,
    GROUP,
    REQUIRED,
    RESOURCES,
    SELECTOR,
    body_of,
    found,
    imported,
    owned_by,
    pod,
    reasons,
    required_of,
    volume,
    with_claim,
)

CANARY = "CANARY"
REF = Ref("Pod", "shop", "a")

CLAIMS = [{"metadata": {"name": "data"}}]
PORT = {"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}


def planted(*names: str) -> dict[str, Any]:
    """Every field with a canary in each place where a string can be."""
    nested = {CANARY: CANARY, "name": CANARY, "value": CANARY, "list": [CANARY, {"x": CANARY}]}
    return {name: [CANARY, nested, nested] for name in names} | {
        f"{name}Object": nested for name in names
    }


OF_A_CONTAINER = planted(
    *"""env envFrom command args workingDir livenessProbe readinessProbe startupProbe lifecycle
    volumeMounts volumeDevices securityContext terminationMessagePath resizePolicy stdin tty
    new""".split()
)
LIVE_CONTAINER: dict[str, Any] = {
    "name": CANARY,
    "image": CANARY,
    "resources": {**RESOURCES, "claims": [{"name": CANARY}]},
    "ports": [{**PORT, "name": CANARY}, {"containerPort": 90, "name": CANARY}],
    **OF_A_CONTAINER,
}
OF_A_POD = planted(
    *"""volumes serviceAccountName serviceAccount securityContext hostAliases hostname subdomain
    dnsConfig dnsPolicy imagePullSecrets ephemeralContainers resourceClaims schedulingGates
    readinessGates nodeName overhead hostPID new""".split()
)
LIVE_POD: dict[str, Any] = {
    **OF_A_POD,
    **CONSTRAINTS,
    "containers": [LIVE_CONTAINER],
    "initContainers": [{**LIVE_CONTAINER, "restartPolicy": "Always"}],
}
LIVE_METADATA: dict[str, Any] = {
    "labels": {"app": "web"},
    "annotations": {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "kubectl.kubernetes.io/last-applied-configuration": CANARY,
        CANARY: CANARY,
    },
    **planted("managedFields", "ownerReferencesOf", "finalizers", "generateName", "selfLink"),
}


def some_of(fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sets(st.sampled_from(sorted(fields))).map(
        lambda names: {name: copy.deepcopy(fields[name]) for name in sorted(names)}
    )


def of_kind(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """An object of that kind, with pods of that spec if it has any."""
    where = {"name": "a", "namespace": "shop"}
    body: dict[str, Any] = {"metadata": {**metadata, **where}, "spec": spec, "data": CANARY}
    if kind == "Pod":
        return {**body, "status": {"phase": "Running", "message": CANARY}}
    template = {"metadata": metadata, "spec": spec}
    body["spec"] = {
        "template": template,
        "jobTemplate": {"metadata": metadata, "spec": {"template": template, "new": CANARY}},
        "selector": SELECTOR,
        "schedule": "@daily",
        "volumeClaimTemplates": [{"metadata": {"name": CANARY}, "spec": CANARY}],
        "hard": {"pods": "5"},
        "limits": [{"type": "Pod", "max": {"cpu": "9"}, "new": CANARY}],
        **planted("new"),
    }
    return {**body, "value": 5, "description": CANARY, "handler": CANARY, "status": [CANARY]}


def shown(result: Imported) -> str:
    return json.dumps(result.manifests) + repr(result.notes)


@given(
    kind=st.sampled_from([*KINDS]),
    metadata=some_of(LIVE_METADATA),
    spec=some_of(LIVE_POD),
)
def test_what_must_not_leak_does_not(
    kind: str, metadata: dict[str, Any], spec: dict[str, Any]
) -> None:
    assert CANARY not in shown(imported((kind, of_kind(kind, metadata, spec))))


@given(owner=st.sampled_from(["SparkApplication", "Node"]), spec=some_of(LIVE_POD))
def test_gathered_pods_do_not_leak_either(owner: str, spec: dict[str, Any]) -> None:
    body = of_kind("Pod", LIVE_METADATA, spec | {"nodeName": "n"})
    body["metadata"]["ownerReferences"] = [owned_by(owner, "o")]
    result = imported(("Pod", body), groups_of={"n": "g"})
    assert len(result.manifests) == 2, "a namespace, and what makes the pods"
    assert CANARY not in shown(result)


def test_containers_keep_resources_and_host_ports() -> None:
    live = {**OF_A_POD, "containers": [LIVE_CONTAINER, {"resources": RESOURCES}]}
    shape, _ = pod_shape(live, ref=REF)
    assert [c["resources"] for c in shape["containers"]] == [RESOURCES, RESOURCES]
    assert shape["containers"][0]["ports"] == [PORT]
    assert tolerates_guard(shape["tolerations"])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(data=st.data(), kind=st.sampled_from([*KINDS]))
def test_any_answer_of_an_api_server_is_taken(data: st.DataObject, kind: str) -> None:
    body: Any = copy.deepcopy(of_kind(kind, LIVE_METADATA, LIVE_POD))
    place, parent = body, None
    key: Any = None
    for _ in range(data.draw(st.integers(0, 8), label="depth")):
        if not isinstance(place, dict | list) or not place:
            break
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        parent, key = place, data.draw(st.sampled_from(keys), label="step")
        place = parent[key]
    odd = data.draw(JSON_VALUES, label="odd value")
    if parent is None:
        body = odd
    else:
        parent[key] = odd
    result = imported((kind, body))
    assert result.read == {kind: 1}
    assert CANARY not in shown(result)


def of_template(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"selector": SELECTOR, "template": {"spec": {"containers": list(containers), **spec}}}


def test_pods_of_known_controllers_are_not_imported_again() -> None:
    template = of_template({"resources": RESOURCES})
    result = imported(
        ("Deployment", body_of("web", {"replicas": 2, **template})),
        ("ReplicaSet", body_of("web-1", template, owner=owned_by("Deployment", "web"))),
        pod("web-1-a", owner=owned_by("ReplicaSet", "web-1")),
        pod(
            "web-1-b", owner=owned_by("ReplicaSet", "web-1"), phase="Pending", spec={"nodeName": ""}
        ),
        pod("web-1-c", owner=owned_by("ReplicaSet", "web-1"), phase="Pending"),
        pod("came-since", owner=owned_by("ReplicaSet", "web-2")),
    )
    assert [m["kind"] for m in result.manifests] == ["Namespace", "Deployment"]
    assert reasons(result) == {Reason.OWNER_CAME_OR_WENT: 1}


def test_pods_whose_replica_set_could_not_be_read_come_once() -> None:
    """Their Deployment makes them; those of a ReplicaSet that nobody owns are kept."""
    workloads = Workloads()
    workloads.add("Deployment", body_of("web", of_template({})))
    workloads.not_whole("ReplicaSet")
    for name, labels in (("web-6d4", {"pod-template-hash": "6d4"}), ("web-old", {"app": "web"})):
        owner = owned_by("ReplicaSet", name)
        workloads.add(*pod(f"{name}-x", owner=owner, labels=labels))
    result = workloads.finish(places={})
    assert len(found(result, "Deployment")) == 1
    (alone,) = found(result, "ReplicaSet")
    assert alone["metadata"]["name"].startswith("replicaset-web-old-")


MAIN: dict[str, Any] = {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}
SIDECAR: dict[str, Any] = {"resources": {"requests": {"cpu": "100m"}}}
AS_PODS_COME: dict[str, Any] = {
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
}


@given(
    pods=st.lists(st.sampled_from(["plain", "sidecar", "old"]), max_size=7),
    kind=st.sampled_from(["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"]),
)
def test_templates_get_the_requests_of_most_pods(pods: list[str], kind: str) -> None:
    """Not for what those of an earlier template do; an API server takes limits for requests."""
    shapes = {"plain": [AS_PODS_COME], "sidecar": [AS_PODS_COME, SIDECAR], "old": [SIDECAR] * 3}
    objects = [(kind, body_of("web", of_template(MAIN)))]
    for name, containers in (("new", [MAIN]), ("old", shapes["old"])):
        owner = owned_by("Deployment", "web")
        of_sets = body_of(f"web-{name}", of_template(*containers), owner=owner)
        objects += [("ReplicaSet", of_sets)] if kind == "Deployment" else []
    for number, which in enumerate(pods):
        of_set = owned_by("ReplicaSet", "web-old" if which == "old" else "web-new")
        owner = of_set if kind == "Deployment" else owned_by(kind, "web")
        spec: dict[str, Any] = {"containers": shapes[which]}
        if which == "sidecar":
            spec |= {"initContainers": [SIDECAR], "nodeSelector": {"disk": "ssd"}}
        if which != "old" or kind == "Deployment":
            objects.append(pod(f"web-{number}", owner=owner, spec=spec))
    result = imported(*objects)
    (made,) = found(result, kind)
    spec = made["spec"]["template"]["spec"]
    changed = pods.count("sidecar") > pods.count("plain")
    asked = [container["resources"] for container in spec["containers"]]
    assert asked == [c["resources"] for c in ([AS_PODS_COME, SIDECAR] if changed else [MAIN])]
    assert ("initContainers" in spec, "nodeSelector" in spec) == (changed, changed)
    told = {note.field.rpartition(".")[2] for note in result.notes if note.detail.endswith("pods")}
    assert told == ({"containers", "initContainers", "nodeSelector"} if changed else set())


@given(spec=some_of(LIVE_POD), template=some_of(LIVE_POD))
def test_what_pods_ask_for_does_not_leak(spec: dict[str, Any], template: dict[str, Any]) -> None:
    body = of_kind("Pod", LIVE_METADATA, spec)
    body["metadata"] |= {"ownerReferences": [owned_by("StatefulSet", "web")]}
    result = imported(("StatefulSet", body_of("web", of_template(**template))), ("Pod", body))
    assert CANARY not in shown(result)


def test_pods_of_an_unknown_owner_are_as_many_replicas() -> None:
    large = {"containers": [{"resources": {"requests": {"cpu": "9"}}}]}
    owner = owned_by("SparkApplication", "etl")
    result = imported(
        *(pod(f"e{i}", owner=owner, labels={"app": "etl", "index": str(i)}) for i in range(3)),
        pod("driver", owner=owner, spec=large, labels={"app": "etl"}),
        pod("elsewhere", owner=owner, namespace="other"),
    )
    sets = found(result, "ReplicaSet")
    assert sorted(s["spec"]["replicas"] for s in sets) == [1, 1, 3]
    assert len({(s["metadata"]["namespace"], s["metadata"]["name"]) for s in sets}) == 3
    (three,) = (s for s in sets if s["spec"]["replicas"] == 3)
    labels = three["spec"]["template"]["metadata"]["labels"]
    assert three["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert labels["app"] == "etl" and "index" not in labels


def test_replica_sets_of_an_unknown_owner_stay() -> None:
    rollout = owned_by("Rollout", "r")
    result = imported(
        ("ReplicaSet", body_of("now", {"replicas": 2, "selector": SELECTOR}, owner=rollout)),
        ("ReplicaSet", body_of("before", {"replicas": 0, "selector": SELECTOR}, owner=rollout)),
        pod("a", owner=owned_by("ReplicaSet", "now")),
    )
    assert [m["metadata"]["name"] for m in found(result, "ReplicaSet")] == ["now"]
    assert found(result, "Pod") == []


def test_static_pods_run_on_the_groups_of_their_nodes() -> None:
    result = imported(
        *(
            pod(f"proxy-n{i}", owner=owned_by("Node", f"n{i}"), spec={"nodeName": f"n{i}"})
            for i in range(3)
        ),
        pod("etcd-master", owner=owned_by("Node", "master"), spec={"nodeName": "master"}),
        groups_of={"n0": "a", "n1": "b", "n2": "b"},
    )
    (proxy,) = found(result, "DaemonSet")
    assert required_of(proxy) == [{"key": GROUP, "operator": "In", "values": ["a", "b"]}]
    assert [n.count for n in result.notes if n.reason is Reason.PODS_OF_NODES_ELSEWHERE] == [1]


def test_pods_alone_stay_pods_unless_they_ended() -> None:
    result = imported(
        pod("alone"),
        pod("done", phase="Succeeded"),
        pod("broken", phase="Failed"),
        pod("going", deletionTimestamp="2026-01-01T00:00:00Z"),
        pod("alone"),
    )
    assert [m["metadata"]["name"] for m in found(result, "Pod")] == ["alone"]
    assert "nodeName" not in found(result, "Pod")[0]["spec"]
    assert reasons(result) == {Reason.ENDED: 2, Reason.TERMINATING: 1}
    assert result.read == {"Pod": 4}, "what comes twice counts once"


def test_volumes_say_where_pods_are() -> None:
    template = {"spec": with_claim("shared")}
    result = imported(
        volume("v1", "shared", "b"),
        volume("v2", "data-db-0", "a"),
        volume("v3", "data-db-1", "b"),
        volume("v4", "local", "n1", key="kubernetes.io/hostname"),
        volume("v5", "log-queue-0", "n1", key="kubernetes.io/hostname"),
        ("Deployment", body_of("web", {"selector": SELECTOR, "template": template})),
        (
            "StatefulSet",
            body_of("db", {"selector": SELECTOR, "volumeClaimTemplates": CLAIMS}),
        ),
        (
            "StatefulSet",
            body_of(
                "queue",
                {"selector": SELECTOR, "volumeClaimTemplates": [{"metadata": {"name": "log"}}]},
            ),
        ),
        pod("cache", spec=with_claim("local")),
        pod("lost", spec=with_claim("gone")),
        groups_of={"n1": "pool-a"},
    )
    (web,), (db, queue), (cache, lost) = (
        found(result, kind) for kind in ("Deployment", "StatefulSet", "Pod")
    )
    assert required_of(web) == [{"key": "zone", "operator": "In", "values": ["b"]}]
    assert required_of(db) == [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
    for on_node in (cache, queue):
        assert required_of(on_node) == [{"key": GROUP, "operator": "In", "values": ["pool-a"]}]
    assert "affinity" not in lost["spec"]
    bound = {n.ref.name for n in result.notes if n.reason is Reason.BOUND_BY_VOLUME}
    assert bound == {"web", "db", "queue", "cache"}
    assert Reason.VOLUMES_IN_SEVERAL_PLACES in reasons(result)


def test_where_a_pod_was_is_no_label_of_its_own() -> None:
    """The API server copies the node's zone to each pod that it binds."""
    labels = {
        "app": "web",
        "topology.kubernetes.io/zone": "a",
        "topology.kubernetes.io/region": "r",
    }
    bound, waiting = (
        pod("bound", labels=labels),
        pod("waiting", labels=labels, spec={"nodeName": ""}),
    )
    result = imported(bound, waiting)
    of = {m["metadata"]["name"]: m["metadata"]["labels"] for m in found(result, "Pod")}
    assert of == {"bound": {"app": "web"}, "waiting": labels}


@pytest.mark.parametrize("operator", ["In", "NotIn"])
def test_a_node_by_name_is_its_group(operator: str) -> None:
    field = {"key": "metadata.name", "operator": operator, "values": ["n1"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    host = {"nodeSelector": {"kubernetes.io/hostname": "n1", "disk": "ssd"}}
    result = imported(
        pod("by-field", spec={"affinity": affinity}),
        pod("by-host", spec=host),
        pod("elsewhere", spec={"nodeSelector": {"kubernetes.io/hostname": "n9"}}),
        groups_of={"n1": "pool"},
    )
    by_field, by_host, elsewhere = found(result, "Pod")
    if operator == "In":
        assert required_of(by_field) == [{"key": GROUP, "operator": "In", "values": ["pool"]}]
    else:
        assert REQUIRED not in by_field["spec"]["affinity"]["nodeAffinity"]
    assert by_host["spec"]["nodeSelector"] == {"disk": "ssd", GROUP: "pool"}
    assert "nodeSelector" not in elsewhere["spec"]


@pytest.mark.parametrize("kind", ["Deployment", "Job", "CronJob"])
def test_pods_to_come_on_a_node_come_on_its_group(kind: str) -> None:
    """A template that names its node needs no scheduler; a pod was given its node by one."""
    spec = {"selector": SELECTOR, "template": {"spec": {"nodeName": "n1", "containers": [{}]}}}
    spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}} if kind == "CronJob" else spec
    groups_of = {"n1": "pool"}
    result = imported(
        (kind, body_of("a", spec)), pod("b", spec={"nodeName": "n1"}), groups_of=groups_of
    )
    (made,), (alone,) = found(result, kind), found(result, "Pod")
    made = made["spec"]["jobTemplate"] if kind == "CronJob" else made
    assert required_of(made) == [{"key": GROUP, "operator": "In", "values": ["pool"]}]
    assert "affinity" not in alone["spec"]


def test_jobs_have_the_rest_to_do() -> None:
    template = {"metadata": {"labels": {"app": "x", "job-name": "old"}}, "spec": {}}
    spec = {"completions": 10, "parallelism": 3, "template": template}
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    result = imported(
        ("CronJob", body_of("nightly", {"schedule": "@daily", "jobTemplate": {"spec": spec}})),
        (
            "Job",
            body_of("run", spec, status={"succeeded": 4}, owner=owned_by("CronJob", "nightly")),
        ),
        ("Job", body_of("over", spec, status=done)),
        pod("run-1", owner=owned_by("Job", "run")),
    )
    (job,), (cron,) = found(result, "Job"), found(result, "CronJob")
    assert job["metadata"]["name"] == "run" and job["spec"]["completions"] == 6
    assert job["spec"]["template"]["metadata"] == {"labels": {"app": "x"}}
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert cron["spec"]["suspend"] is True


def test_what_would_refuse_the_pods_goes() -> None:
    enforce = "pod-security.kubernetes.io/enforce"
    hard = {"requests.cpu": "5", "pods": "9", "secrets": "3", "requests.storage": "1Gi"}
    result = imported(
        ("Namespace", body_of("shop", labels={"team": "a", enforce: "restricted"})),
        ("Namespace", body_of("kube-system")),
        ("ResourceQuota", body_of("q", {"hard": hard})),
        ("ResourceQuota", body_of("objects", {"hard": {"count/secrets": "3"}})),
        ("PriorityClass", {"metadata": {"name": "high"}, "value": 9}),
        ("PriorityClass", {"metadata": {"name": "system-node-critical"}, "value": 9}),
        pod("a", spec={"priorityClassName": "high", "runtimeClassName": "kata"}),
        pod("b", spec={"priorityClassName": "gone", "preemptionPolicy": "Never"}),
        pod("c", spec={"priorityClassName": "system-node-critical"}),
    )
    assert [m["metadata"] for m in found(result, "Namespace")] == [
        {"name": "shop", "labels": {"team": "a"}}
    ]
    (quota,) = found(result, "ResourceQuota")
    assert quota["spec"]["hard"] == {"requests.cpu": "5", "pods": "9"}
    assert [m["metadata"]["name"] for m in found(result, "PriorityClass")] == ["high"]
    kept = {m["metadata"]["name"]: m["spec"].get("priorityClassName") for m in found(result, "Pod")}
    assert kept == {"a": "high", "b": None, "c": "system-node-critical"}
    assert not any("runtimeClassName" in m["spec"] for m in found(result, "Pod"))
    assert not any("preemptionPolicy" in m["spec"] for m in found(result, "Pod"))


def test_nothing_takes_the_place_of_what_every_cluster_has() -> None:
    """An imported CoreDNS would else stop that of the cluster it goes to."""
    near = [{"labelSelector": SELECTOR, "topologyKey": "zone", "namespaces": ["kube-system", "b"]}]
    result = imported(
        ("Namespace", body_of("kube-system")),
        volume("v", "data", "b", namespace="kube-system"),
        (
            "Deployment",
            body_of(
                "coredns",
                {"selector": SELECTOR, "template": {"spec": with_claim("data")}},
                namespace="kube-system",
            ),
        ),
        pod("a", namespace="default", spec={"affinity": {"podAffinity": {REQUIRED: near}}}),
    )
    assert [m["metadata"]["name"] for m in found(result, "Namespace")] == ["imported-kube-system"]
    assert Reason.NAMESPACE_MOVED in reasons(result)
    (coredns,), (beside,) = found(result, "Deployment"), found(result, "Pod")
    assert coredns["metadata"]["namespace"] == "imported-kube-system"
    assert required_of(coredns) == [{"key": "zone", "operator": "In", "values": ["b"]}]
    (term,) = beside["spec"]["affinity"]["podAffinity"][REQUIRED]
    assert term["namespaces"] == ["imported-kube-system", "b"]


def test_ports_of_the_host_are_those_that_the_scheduler_sees() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9000}]
    for on_host, wanted in ((False, [9000]), (True, [80, 9000])):
        live = {"hostNetwork": on_host, "containers": [{"ports": copy.deepcopy(ports)}]}
        shape, _ = pod_shape(live, ref=REF)
        assert [port["hostPort"] for port in shape["containers"][0]["ports"]] == wanted
        assert "hostNetwork" not in shape


def test_images_are_kept_with_keep_images() -> None:
    live = {"containers": [{"image": "web:1"}, {}]}
    for asked, wanted in ((False, ["fake", "fake"]), (True, ["web:1", "fake"])):
        shape, _ = pod_shape(live, ref=REF, keep_images=asked)
        assert [c["image"] for c in shape["containers"]] == wanted


def test_an_import_is_the_same_whatever_the_order_of_pages() -> None:
    objects = [
        pod(f"p{i}", owner=owned_by("Custom", f"o{i % 3}"), labels={"a": "b"}) for i in range(9)
    ]
    forward, backward = imported(*objects), imported(*reversed(objects))
    assert forward == backward
