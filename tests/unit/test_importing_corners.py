"""What real API servers answer that one wouldn't think of, and what becomes of it."""

import copy
from typing import Any

import pytest
import yaml

from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.fields import POD
from kwok_operator.importing.pods.objects import clean_object
from kwok_operator.importing.pods.shape import pod_shape
from kwok_operator.importing.pods.workloads import Workloads
from tests.importedpods import (
    CONSTRAINTS,
    GROUP,
    IN_ZONE,
    REQUIRED,
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

REF = Ref("Pod", "shop", "a")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPECS: dict[str, dict[str, Any]] = yaml.safe_load("""
Deployment:
  replicas: 0
  selector: &selector
    matchLabels: {app: web}
    matchExpressions: [{key: a, operator: NotIn, values: [x, "y"]}]
  minReadySeconds: 700
  progressDeadlineSeconds: 900
  strategy: {type: x, rollingUpdate: {maxSurge: 30%, maxUnavailable: 1}}
StatefulSet:
  replicas: 3
  selector: {matchLabels: {app: web}}
  minReadySeconds: 1
  serviceName: s
  podManagementPolicy: Parallel
  ordinals: {start: 3}
DaemonSet: {selector: {matchLabels: {app: web}}, minReadySeconds: 1}
ReplicaSet: {replicas: 3, selector: {matchLabels: {app: web}}, minReadySeconds: 1}
ReplicationController: {replicas: 3, selector: {a: b}, minReadySeconds: 1}
Job:
  parallelism: 3
  completions: 4
  completionMode: Indexed
  backoffLimit: 0
  activeDeadlineSeconds: 5
  ttlSecondsAfterFinished: 6
  suspend: false
CronJob: {schedule: "@daily", timeZone: Etc/UTC, concurrencyPolicy: Forbid}
PodDisruptionBudget:
  selector: *selector
  minAvailable: 1
  maxUnavailable: 5%
  unhealthyPodEvictionPolicy: AlwaysAllow
ResourceQuota:
  hard: {limits.memory: 1Gi, requests.nvidia.com/gpu: "4", count/pods: 5}
  scopes: [BestEffort]
  scopeSelector:
    matchExpressions: [{scopeName: PriorityClass, operator: In, values: [h]}]
LimitRange:
  limits:
  - &limit
    type: Pod
    min: {cpu: "1"}
    max: {cpu: "2"}
    default: {cpu: "3"}
    defaultRequest: {cpu: "4"}
    maxLimitRequestRatio: {cpu: "5"}
  - {<<: *limit, type: Container}
""")


def cleaned(kind: str, spec: Any) -> tuple[Any, list[Note]]:
    manifest, notes = clean_object(kind, body_of("a", copy.deepcopy(spec)))
    if manifest is not None:
        for name in ("template", "jobTemplate"):
            manifest["spec"].pop(name, None)
    return manifest and manifest["spec"], notes


@pytest.mark.parametrize("kind", sorted(SPECS))
def test_what_scales_and_limits_is_kept_as_it_is(kind: str) -> None:
    spec, _ = cleaned(kind, SPECS[kind])
    assert spec == SPECS[kind] | ({"suspend": True} if kind == "CronJob" else {})


def test_every_constraint_is_kept_as_it_is() -> None:
    assert CONSTRAINTS.keys() == POD.keys()
    live = copy.deepcopy({**CONSTRAINTS, "containers": [{}]})
    shape, notes = pod_shape(live, ref=REF)
    assert shape == {
        **CONSTRAINTS,
        "containers": [{"name": "c0", "image": "fake"}],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    assert notes == []


@pytest.mark.parametrize("name", [*sorted(POD), "containers", "initContainers"])
def test_a_value_of_a_wrong_type_is_left_out_and_reported(name: str) -> None:
    for odd in (5.5, ["x"], {"x": 5}, [None], True):
        live = copy.deepcopy({**CONSTRAINTS, "containers": [{}], name: odd})
        shape, notes = pod_shape(live, ref=REF)
        told = [n.field for n in notes if n.reason in (Reason.INVALID_FIELD, Reason.UNKNOWN_FIELDS)]
        assert len(told) == 1 and told[0].startswith(f"spec.{name}"), odd
        if Reason.INVALID_FIELD in [n.reason for n in notes] and "ontainers" not in name:
            rest = [t for t in shape.get(name, []) if t["key"] != "kwok-provider"]
            assert (name == "tolerations" and not rest) or name not in shape
    assert shape["containers"] == [{"name": "c0", "image": "fake"}]


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "kwok-provider", "operator": "Exists"}, True),
        ({"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}, True),
        ({"key": "kwok-provider", "value": "false"}, False),
        ({"key": "kwok-provider"}, False),
        ({"key": "kwok-provider", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_the_guard_taint_is_tolerated_by_one_toleration(
    toleration: dict[str, str], fits: bool
) -> None:
    shape, _ = pod_shape({"tolerations": [dict(toleration)]}, ref=REF)
    own = {"key": "kwok-provider", "operator": "Exists"}
    assert shape["tolerations"] == [toleration] if fits else [toleration, own]


def test_lost_fields_are_reported_by_known_names() -> None:
    container = {"name": "x", "image": "x", "env": [{"name": "secret"}], "command": [], "secret": 1}
    live = {"containers": [container], "initContainers": [{"args": ["secret"]}], "nodeName": "n"}
    live |= {"volumes": [{}], "hostAliases": None, "dnsPolicy": "x", "secret": "x"}
    live |= {"schedulingGates": [{}], "readinessGates": [{}], "resourceClaims": [{}]}
    _, notes = pod_shape(live, ref=REF)
    *apart, rest = notes
    assert {n.field for n in apart} == {
        "spec.schedulingGates",
        "spec.readinessGates",
        "spec.resourceClaims",
    }
    assert rest.reason is Reason.NOT_SCHEDULING and rest.detail == (
        "containers[].env, containers[].image, containers[].others, initContainers[].args,"
        " others, volumes"
    )


def test_an_object_that_is_read_is_not_changed() -> None:
    spec = {**CONSTRAINTS, "nodeSelector": {"kubernetes.io/hostname": "n1"}, "containers": [{}]}
    labels = {"app": "web"}
    live = pod("a", spec=spec, labels=labels)
    before = copy.deepcopy(live)
    imported(live, groups_of={"n1": "g"})
    assert live == before


def test_only_sidecars_say_when_they_restart() -> None:
    one = {"restartPolicy": "Always"}
    shape, _ = pod_shape({"initContainers": [one], "containers": [one]}, ref=REF)
    assert [c.get("restartPolicy") for c in (shape["initContainers"] + shape["containers"])] == [
        "Always",
        None,
    ]


def test_what_the_api_server_merged_into_selectors_goes() -> None:
    """It takes no new pod whose selectors have one of its matchLabelKeys."""
    merged = {"key": "k", "operator": "In", "values": ["v"]}
    own = {"key": "o", "operator": "In", "values": ["v"]}
    term = {
        "labelSelector": {"matchExpressions": [own, merged]},
        "matchLabelKeys": ["k"],
        "topologyKey": "zone",
    }
    weighed = {"weight": 1, "podAffinityTerm": term}
    live = {
        "affinity": {"podAffinity": {PREFERRED: [weighed]}, "podAntiAffinity": {REQUIRED: [term]}},
        "topologySpreadConstraints": [term],
    }
    shape, _ = pod_shape(copy.deepcopy(live), ref=REF)
    affinity = shape["affinity"]
    terms = [
        affinity["podAffinity"][PREFERRED][0]["podAffinityTerm"],
        affinity["podAntiAffinity"][REQUIRED][0],
        shape["topologySpreadConstraints"][0],
    ]
    assert [t["labelSelector"]["matchExpressions"] for t in terms] == [[own]] * 3


def test_annotations_of_a_list_are_kept() -> None:
    kept = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
        "descheduler.alpha.kubernetes.io/evict": "",
        "controller.kubernetes.io/pod-deletion-cost": "5",
        "scheduling.k8s.io/group-name": "gang",
        "scheduling.volcano.sh/queue-name": "q",
    }
    lost = {"kubernetes.io/config.mirror": "x", "xkarpenter.sh/a": "b", "karpenter.sh/": "c"}
    lost["controller.kubernetes.io/pod-deletion-cost-x"] = "5"
    result = imported(pod("a", annotations=kept | lost), pod("b", annotations={**kept, **lost}))
    assert [m["metadata"]["annotations"] for m in found(result, "Pod")] == [kept, kept]
    odd = imported(pod("a", annotations={"karpenter.sh/do-not-disrupt": True}))
    assert "annotations" not in found(odd, "Pod")[0]["metadata"]
    assert Reason.INVALID_FIELD in reasons(odd)


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        ("PodDisruptionBudget", {"selector": {"matchLabels": {"a": 5}}}),
        ("ResourceQuota", {"scopes": "BestEffort"}),
        ("LimitRange", {"limits": [None]}),
        ("Deployment", {"selector": 5}),
        ("StatefulSet", {"selector": None}),
        ("ReplicaSet", {"selector": {}}),
    ],
)
def test_what_would_be_about_other_pods_goes(kind: str, odd: dict[str, Any]) -> None:
    spec, notes = cleaned(kind, {**SPECS[kind], **odd})
    assert spec is None
    assert [(n.reason, n.dropped) for n in notes] == [(Reason.INVALID_FIELD, True)]
    spec, notes = cleaned(kind, {**SPECS[kind], "brandNew": 5})
    assert spec == SPECS[kind]


def test_limits_of_claims_limit_nothing() -> None:
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]
    spec, notes = cleaned("LimitRange", {"limits": [*SPECS["LimitRange"]["limits"], *limits]})
    assert spec == SPECS["LimitRange"]
    assert [n.reason for n in notes] == [Reason.QUOTA_UNUSED]
    spec, notes = cleaned("LimitRange", {"limits": limits})
    assert spec is None and [(n.reason, n.dropped) for n in notes] == [(Reason.NOTHING_LEFT, True)]


def test_a_job_restarts_as_jobs_may() -> None:
    for policy, wanted in (("OnFailure", "OnFailure"), ("Always", "Never"), (None, "Never")):
        spec = {"template": {"spec": {"restartPolicy": policy}}}
        (job,) = found(imported(("Job", body_of("a", spec))), "Job")
        assert job["spec"]["template"]["spec"]["restartPolicy"] == wanted


def test_jobs_that_ended_are_not_run_again() -> None:
    def ended(what: str) -> dict[str, Any]:
        return {"conditions": [None, {"type": what, "status": "True"}]}

    result = imported(
        ("Job", body_of("complete", {}, status=ended("Complete"))),
        ("Job", body_of("failed", {}, status=ended("Failed"))),
        ("Job", body_of("all", {"completions": 2}, status={"succeeded": 2})),
        ("Job", body_of("suspended", {"completions": 2}, status=ended("Suspended"))),
        ("Job", body_of("not-yet", status={"conditions": [{"type": "Failed", "status": "False"}]})),
    )
    assert [m["metadata"]["name"] for m in found(result, "Job")] == ["not-yet", "suspended"]
    assert [n.dropped for n in result.notes if n.reason is Reason.ENDED] == [True] * 3


def test_an_operator_that_owns_what_it_made_makes_it_nowhere_else() -> None:
    operator = owned_by("Deployment", "operator")
    result = imported(
        ("Deployment", body_of("operator", {"selector": SELECTOR})),
        ("DaemonSet", body_of("agent", {"selector": SELECTOR}, owner=operator)),
        pod("agent-1", owner=owned_by("DaemonSet", "agent")),
        pod("helper", owner=operator),
        ("Job", body_of("by-hand", owner=owned_by("Workflow", "w"))),
    )
    kinds = [m["kind"] for m in result.manifests]
    assert kinds == ["Namespace", "Deployment", "DaemonSet", "ReplicaSet", "Job"]
    told = [n.ref.name for n in result.notes if n.reason is Reason.OWNER_UNKNOWN]
    assert told[:2] == ["agent", "by-hand"] and told[2].startswith("deployment-operator-")


def test_jobs_of_a_cronjob_come_without_a_word() -> None:
    nightly = owned_by("CronJob", "nightly")
    result = imported(
        ("CronJob", body_of("nightly", {"schedule": "@daily"})),
        ("Job", body_of("nightly-1", owner=nightly)),
    )
    assert found(result, "Job") and Reason.OWNER_UNKNOWN not in reasons(result)


def test_pods_of_a_kind_that_was_read_in_part_come_once() -> None:
    workloads = Workloads()
    workloads.add("StatefulSet", body_of("a", {"selector": SELECTOR}))
    workloads.not_whole("StatefulSet")
    for name in ("a", "b"):
        workloads.add(*pod(f"{name}-0", owner=owned_by("StatefulSet", name)))
    made = [(m["kind"], m["metadata"]["name"]) for m in workloads.finish(places={}).manifests]
    assert made == [("Namespace", "shop"), ("StatefulSet", "a"), ("StatefulSet", "b")]


def test_two_that_would_have_one_name_are_reported() -> None:
    """A cluster that was imported into has both namespaces."""
    both = ("kube-system", "imported-kube-system")
    web = [body_of("web", {"selector": SELECTOR}, namespace=each, uid=each) for each in both]
    result = imported(*(("Deployment", each) for each in web))
    assert len(found(result, "Deployment")) == 1
    assert reasons(result)[Reason.NAME_TAKEN] == 1


def test_what_is_in_a_namespace_that_goes_goes() -> None:
    result = imported(
        ("Namespace", body_of("old", deletionTimestamp="2026-01-01T00:00:00Z")),
        ("Deployment", body_of("web", {"selector": SELECTOR}, namespace="old")),
        pod("a", namespace="old"),
    )
    assert result.manifests == []
    assert [(n.count, n.dropped) for n in result.notes] == [(1, True)] * 3


def test_pods_that_a_controller_ties_to_nodes_are_alike_on_one_group() -> None:
    def on(node: str) -> dict[str, Any]:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
            {"matchFields": [field]}
        ]}}}}  # fmt: skip

    owner = owned_by("AdvancedDaemonSet", "agent")
    of_one = """pod-template-hash controller-revision-hash controller-uid job-name
    apps.kubernetes.io/pod-index statefulset.kubernetes.io/pod-name""".split()
    labels = {"app": "agent", **dict.fromkeys(of_one, "x")}
    result = imported(
        *(
            pod(f"a{i}", owner=owner, spec=on(f"n{i}"), labels={**labels, "index": str(i)})
            for i in range(3)
        ),
        groups_of={"n0": "large", "n1": "small", "n2": "small"},
    )
    sets = {s["spec"]["replicas"]: s for s in found(result, "ReplicaSet")}
    assert {count: required_of(s) for count, s in sets.items()} == {
        1: [{"key": GROUP, "operator": "In", "values": ["large"]}],
        2: [{"key": GROUP, "operator": "In", "values": ["small"]}],
    }
    differ = [(n.field, n.count) for n in result.notes if n.reason is Reason.LABELS_DIFFER]
    assert differ == [("metadata.labels.index", 2)]
    alone = sets[1]["spec"]["template"]["metadata"]["labels"]
    assert alone.items() >= {"app": "agent", "index": "0"}.items()
    assert not set(of_one) & alone.keys()


def test_the_order_of_labels_is_their_own() -> None:
    """Folders of one cluster have the same bytes."""
    labels = {key: "x" for key in "hgfedcba"}
    owner = owned_by("Custom", "c")
    (made,) = found(
        imported(*(pod(f"p{i}", owner=owner, labels=labels) for i in range(2))), "ReplicaSet"
    )
    assert list(made["spec"]["template"]["metadata"]["labels"])[:8] == sorted(labels)


def test_names_of_gathered_pods_are_taken_by_nobody_else() -> None:
    owner = owned_by("Custom", "A_b." + "x" * 300)
    (first,) = found(imported(pod("p", owner=owner)), "ReplicaSet")
    name = first["metadata"]["name"]
    assert len(name) <= 63 and name.startswith("custom-a-b-x")
    result = imported(("ReplicaSet", body_of(name, {"selector": SELECTOR})), pod("p", owner=owner))
    assert len(found(result, "ReplicaSet")) == 2


def test_the_claim_knows_its_volume_better_than_a_volume_that_was_released() -> None:
    result = imported(
        volume("old", "c", "a"),
        volume("new", "c", "b"),
        ("PersistentVolumeClaim", body_of("c", {"volumeName": "new"})),
        volume("last", "c", "z"),
        pod("p", spec=with_claim("c")),
    )
    (made,) = found(result, "Pod")
    assert required_of(made)[0]["values"] == ["b"]


def test_labels_of_old_volumes_say_their_zones() -> None:
    labels = {"topology.kubernetes.io/zone": "a__b", "topology.kubernetes.io/region": "r"}
    spec = {"claimRef": {"namespace": "shop", "name": "c"}}
    result = imported(
        ("PersistentVolume", body_of("v", spec, labels=labels)), pod("p", spec=with_claim("c"))
    )
    (made,) = found(result, "Pod")
    assert required_of(made) == [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]},
        {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["r"]},
    ]


def test_volumes_that_can_not_be_read_are_reported() -> None:
    result = imported(
        ("PersistentVolume", body_of("v", {"nodeAffinity": "x", "claimRef": {"name": 5}})),
        ("PersistentVolumeClaim", body_of("c", {"volumeName": ["v"]})),
    )
    assert [(n.ref.kind, n.field) for n in result.notes] == [
        ("PersistentVolume", "spec.claimRef.name"),
        ("PersistentVolume", "spec.nodeAffinity"),
        ("PersistentVolumeClaim", "spec.volumeName"),
    ]


def test_claims_of_another_set_or_namespace_say_nothing() -> None:
    claims = [{"metadata": {"name": "data"}}]
    result = imported(
        volume("v1", "data-db-0", "a"),
        volume("v2", "data-db-x-0", "b"),
        volume("v3", "data-db-1", "c", namespace="other"),
        volume("v4", "data-db-", "d"),
        ("StatefulSet", body_of("db", {"selector": SELECTOR, "volumeClaimTemplates": claims})),
    )
    (db,) = found(result, "StatefulSet")
    assert required_of(db)[0]["values"] == ["a"]
    assert Reason.VOLUMES_IN_SEVERAL_PLACES not in reasons(result)


@pytest.mark.parametrize("operator", [None, "NotIn"])
def test_one_volume_that_may_be_anywhere_lets_all_pods_of_a_set_be_anywhere(
    operator: str | None,
) -> None:
    kind, other = volume("v2", "data-db-1", "b")
    if operator is None:
        del other["spec"]["nodeAffinity"]
    else:
        (term,) = other["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        term["matchExpressions"][0]["operator"] = operator
    claims = [{"metadata": {"name": "data"}}]
    result = imported(
        volume("v1", "data-db-0", "a"),
        (kind, other),
        ("StatefulSet", body_of("db", {"selector": SELECTOR, "volumeClaimTemplates": claims})),
    )
    (db,) = found(result, "StatefulSet")
    assert "affinity" not in db["spec"]["template"]["spec"]


def test_what_nothing_fits_is_not_made_to_fit() -> None:
    """An empty term fits no node; one that asks for a node by name and lost it would fit all."""

    def terms_of(*terms: Any) -> Any:
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
        spec = {**with_claim("c"), "affinity": affinity}
        (made,) = found(
            imported(volume("v", "c", "x", key="rack"), pod("p", spec=copy.deepcopy(spec))), "Pod"
        )
        kept = made["spec"]["affinity"]["nodeAffinity"].get(REQUIRED)
        return kept and [
            [r["key"] for r in term.get("matchExpressions", [])]
            for term in kept["nodeSelectorTerms"]
        ]

    gone = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
    assert terms_of({}) == [[]]
    assert terms_of({}, IN_ZONE) == [["zone", "rack"]]
    assert terms_of({**gone, **IN_ZONE}, IN_ZONE) == [["zone", "rack"], ["zone", "rack"]]


def test_a_node_that_is_gone_leaves_no_condition_that_fits_more_than_one_alternative() -> None:
    gone = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [gone, IN_ZONE, {}]}}}
    result = imported(pod("p", spec={"affinity": affinity}))
    (made,) = found(result, "Pod")
    assert REQUIRED not in made["spec"]["affinity"]["nodeAffinity"]
    assert reasons(result)[Reason.NODE_UNKNOWN] == 1


def test_too_many_alternatives_leave_out_the_volume() -> None:
    many = [{"matchExpressions": [{"key": f"k{i}", "operator": "Exists"}]} for i in range(33)]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": many}}}
    for count, told in ((32, False), (33, True)):
        affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] = many[:count]
        spec = copy.deepcopy({**with_claim("c"), "affinity": affinity})
        result = imported(volume("v", "c", "a"), pod("p", spec=spec))
        (made,) = found(result, "Pod")
        terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert {len(term["matchExpressions"]) for term in terms} == {1 if told else 2}
        assert (Reason.TOO_MANY_PLACES in reasons(result)) is told


def test_a_place_is_required_once() -> None:
    spec = with_claim("a")
    spec["volumes"] += with_claim("b")["volumes"]
    (made,) = found(
        imported(volume("v1", "a", "x"), volume("v2", "b", "x"), pod("p", spec=spec)), "Pod"
    )
    assert required_of(made) == [{"key": "zone", "operator": "In", "values": ["x"]}]


def test_wishes_for_nodes_are_wishes_for_groups() -> None:
    def wish(operator: str, *values: str) -> dict[str, Any]:
        asked: dict[str, Any] = {"key": "kubernetes.io/hostname", "operator": operator}
        asked |= {"values": list(values)} if values else {}
        return {"weight": 1, "preference": {"matchExpressions": [asked]}}

    wishes = [wish("In", "n1"), wish("In", "gone"), wish("NotIn", "n1"), wish("Exists")]
    spec = {"affinity": {"nodeAffinity": {PREFERRED: wishes}}}
    result = imported(pod("p", spec=spec), groups_of={"n1": "g"})
    kept = found(result, "Pod")[0]["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert [k["preference"]["matchExpressions"] for k in kept] == [
        [{"key": GROUP, "operator": "In", "values": ["g"]}],
        [{"key": "kubernetes.io/hostname", "operator": "Exists"}],
    ]
    assert reasons(result)[Reason.NODE_UNKNOWN] == 2


@pytest.mark.parametrize("kind", ["Deployment", "Custom"])
def test_only_pods_and_jobs_end(kind: str) -> None:
    """The API server takes nothing else in what makes pods that are to run for good."""
    ends = {"restartPolicy": "Never", "activeDeadlineSeconds": 5, "containers": [{}]}
    if kind == "Deployment":
        result = imported((kind, body_of("a", {"selector": SELECTOR, "template": {"spec": ends}})))
    else:
        result = imported(pod("a", spec=ends, owner=owned_by(kind, "o")))
    assert not ends.keys() - {"containers"} & result.manifests[1]["spec"]["template"]["spec"].keys()


def test_pods_that_are_alike_are_reported_once() -> None:
    owner = owned_by("Custom", "c")
    result = imported(
        *(
            pod(
                f"p{i}",
                owner=owner,
                labels=labels,
                annotations={"karpenter.sh/a": "x", "karpenter.sh/b": str(i)},
                spec={"volumes": [{}]},
            )
            for i, labels in enumerate(({"a": "x"}, {"a": "y", "b": "x"}, {"c": "x"}))
        )
    )
    metadata = found(result, "ReplicaSet")[0]["spec"]["template"]["metadata"]
    assert metadata["annotations"] == {"karpenter.sh/a": "x"}
    told = [(n.reason, n.field, n.count) for n in result.notes]
    assert told == [
        (Reason.LABELS_DIFFER, "metadata.labels.a", 3),
        (Reason.LABELS_DIFFER, "metadata.labels.b", 3),
        (Reason.LABELS_DIFFER, "metadata.labels.c", 3),
        (Reason.NOT_SCHEDULING, "", 3),
        (Reason.OWNER_UNKNOWN, "", 3),
    ]


def test_the_owner_of_pods_is_their_controller_of_its_api_group() -> None:
    """Other projects have a StatefulSet, too; whoever only wants pods to be collected with it
    doesn't make them."""
    own = ("StatefulSet", body_of("db", {"selector": SELECTOR}))
    other = {**owned_by("StatefulSet", "x"), "apiVersion": "apps.kruise.io/v1beta1"}
    result = imported(own, pod("x-0", owner=other))
    assert len(found(result, "ReplicaSet")) == 1
    result = imported(own, pod("p", owner={**owned_by("Custom", "c"), "controller": False}))
    assert len(found(result, "Pod")) == 1


def test_gathered_pods_are_where_their_volumes_are() -> None:
    owner = owned_by("Cluster", "pg")
    result = imported(
        *(volume(f"v{i}", f"pg-{i}", zone) for i, zone in enumerate("abb")),
        *(pod(f"pg-{i}", owner=owner, spec=with_claim(f"pg-{i}")) for i in range(3)),
    )
    places = {s["spec"]["replicas"]: required_of(s)[0] for s in found(result, "ReplicaSet")}
    assert {count: place["values"] for count, place in places.items()} == {1: ["a"], 2: ["b"]}


def test_namespaces_that_are_selected_by_name_are_those_that_moved() -> None:
    key = "kubernetes.io/metadata.name"
    asked = {"key": key, "operator": "In", "values": ["kube-system", "shop"]}
    selector = {"matchLabels": {key: "kube-system"}, "matchExpressions": [asked, {"key": key}]}
    terms = [{"namespaceSelector": selector, "topologyKey": "zone"}]
    live = {"affinity": {"podAffinity": {REQUIRED: terms}}}
    shape, _ = pod_shape(copy.deepcopy(live), ref=REF)
    (term,) = shape["affinity"]["podAffinity"][REQUIRED]
    assert term["namespaceSelector"]["matchLabels"] == {key: "imported-kube-system"}
    assert [e.get("values") for e in term["namespaceSelector"]["matchExpressions"]] == [
        ["imported-kube-system", "shop"],
        None,
    ]


def test_labels_of_a_namespace_that_every_cluster_has_are_reported() -> None:
    own = {"tier": "base", "kubernetes.io/metadata.name": "default"}
    labelled = imported(("Namespace", {"metadata": {"name": "default", "labels": own}}))
    assert [(n.reason, n.detail) for n in labelled.notes] == [(Reason.NAMESPACE_LABELS, "tier")]
    assert not imported(("Namespace", {"metadata": {"name": "default"}})).notes
