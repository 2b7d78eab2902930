"""An import under other names."""

import copy
import ipaddress
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.nodes.grouping import Nodes
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.schema.check import check_group
from tests.corpusnodes import NODES

KEY = b"0" * 32
POD: dict[str, Any] = yaml.safe_load("""
metadata:
  labels: {app: canary-cart, canary.io/tier: canary-1, version: "7"}
  annotations:
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: canary-data
    controller.kubernetes.io/pod-deletion-cost: "-100"
spec:
  containers:
  - name: c0
    image: fake
    resources:
      requests: {cpu: 500m, memory: 128Mi, canary.io/fpga: "1"}
      limits: {nvidia.com/gpu: "1"}
    ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
  initContainers: [{name: i0, image: "canary/image:v1", restartPolicy: Always}]
  os: {name: linux}
  overhead: {podFixed: {cpu: 250m}}
  nodeSelector: {canary.io/disk: canary-ssd, kubernetes.io/arch: amd64}
  priorityClassName: canary-high
  runtimeClassName: canary-gvisor
  schedulerName: my-scheduler
  terminationGracePeriodSeconds: 30
  tolerations:
  - {key: canary.io/dedicated, operator: Equal, value: canary-team}
  - {key: kwok-provider, operator: Exists, effect: NoSchedule}
  - {operator: Exists}
  topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: DoNotSchedule
    matchLabelKeys: [canary-key]
    labelSelector: {matchLabels: {app: canary-cart}}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: canary.io/disk, operator: In, values: [canary-ssd]}
          - {key: canary.io/cores, operator: Gt, values: ["123456789"]}
          - key: kwok-operator.io/node-group
            operator: In
            values: [canary-group, default]
          matchFields: [{key: metadata.name, operator: In, values: [canary-node]}]
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: canary.io/rack
          namespaces: [canary-ns]
          namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: canary-ns}}
          labelSelector: {matchExpressions: [{key: canary-key, operator: Exists}]}
""")


def made(kind: str, api: str = "v1", *, name: str = "canary-cart", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "canary-ns", "labels": {"canary-label": "canary-value"}}
    return copy.deepcopy({"apiVersion": api, "kind": kind, "metadata": metadata, **parts})


SPECS: dict[str, dict[str, Any]] = yaml.safe_load("""
quota:
  hard:
    requests.cpu: "4"
    requests.canary.io/fpga: "2"
    requests.nvidia.com/gpu: "2"
    count/deployments.apps: "5"
    count/widgets.canary.io: "5"
    canary-gold.storageclass.storage.k8s.io/requests.storage: 1Ti
    pods: "10"
  scopes: [NotTerminating]
  scopeSelector:
    matchExpressions: [{scopeName: PriorityClass, operator: In, values: [canary-high]}]
limits:
  limits:
  - {type: Container, max: {cpu: "2", canary.io/fpga: "1"}}
  - {type: Pod, default: {memory: 1Gi}, min: {cpu: 100m}}
budget:
  minAvailable: 50%
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector: {matchLabels: {app: canary-cart}}
deployment:
  replicas: 3
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%}}
  selector: {matchLabels: {app: canary-cart}}
set: {serviceName: canary-service, podManagementPolicy: Parallel}
cron: {schedule: "*/5 * * * *", suspend: true, concurrencyPolicy: Forbid}
""")
JOB = {"completionMode": "Indexed", "template": POD}
MANIFESTS: list[dict[str, Any]] = [
    made("Namespace", name="canary-ns"),
    made(
        "PriorityClass",
        "scheduling.k8s.io/v1",
        name="canary-high",
        value=7,
        preemptionPolicy="Never",
        description="for canary",
    ),
    made(
        "RuntimeClass",
        "node.k8s.io/v1",
        name="canary-gvisor",
        handler="fake",
        overhead={"podFixed": {"cpu": "250m"}},
        scheduling={"nodeSelector": {"canary.io/disk": "canary-ssd"}},
    ),
    *(
        made(kind, api, spec=spec)
        for kind, api, spec in (
            ("ResourceQuota", "v1", SPECS["quota"]),
            ("LimitRange", "v1", SPECS["limits"]),
            ("PodDisruptionBudget", "policy/v1", SPECS["budget"]),
            ("Deployment", "apps/v1", {**SPECS["deployment"], "template": POD}),
            ("StatefulSet", "apps/v1", {**SPECS["set"], "template": POD}),
            ("ReplicationController", "v1", {"selector": {"app": "canary-cart"}, "template": POD}),
            ("CronJob", "batch/v1", {**SPECS["cron"], "jobTemplate": {"spec": JOB}}),
        )
    ),
]


def anonymize(manifests: list[dict[str, Any]], *, key: bytes) -> tuple[list[Any], dict[str, str]]:
    anonymizer = Anonymizer(key)
    return anonymizer.manifests(manifests), anonymizer.table


def of(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next(manifest for manifest in manifests if manifest["kind"] == kind)


def corpus_groups() -> list[dict[str, Any]]:
    nodes = Nodes()
    for body in NODES.values():
        nodes.add(body)
    return nodes.finish().manifests


def test_nothing_private_is_left() -> None:
    renamed, table = anonymize(MANIFESTS, key=KEY)
    assert "canary" not in json.dumps(renamed)
    assert {name for name in table.values() if "canary" in name} >= {"canary-cart", "canary.io"}
    assert "canary-cart" in json.dumps(MANIFESTS), "what is given is not changed"


def test_what_is_public_stays() -> None:
    renamed, _ = anonymize(MANIFESTS, key=KEY)
    pod = of(renamed, "Deployment")["spec"]["template"]
    plain = POD["spec"]
    for field in ("schedulerName", "terminationGracePeriodSeconds", "overhead", "os"):
        assert pod["spec"][field] == plain[field]
    assert pod["spec"]["tolerations"][1:] == plain["tolerations"][1:]
    assert pod["spec"]["nodeSelector"]["kubernetes.io/arch"] == "amd64"
    container = pod["spec"]["containers"][0]
    assert (container["name"], container["image"]) == ("c0", "fake")
    assert container["ports"] == plain["containers"][0]["ports"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    spread = pod["spec"]["topologySpreadConstraints"][0]
    assert spread["topologyKey"] == "topology.kubernetes.io/zone"
    assert spread["whenUnsatisfiable"] == "DoNotSchedule"
    assert pod["metadata"]["labels"]["version"] == "7"
    annotations = pod["metadata"]["annotations"]
    assert annotations["controller.kubernetes.io/pod-deletion-cost"] == "-100"
    assert of(renamed, "CronJob")["spec"]["schedule"] == "*/5 * * * *"
    assert of(renamed, "PodDisruptionBudget")["spec"]["minAvailable"] == "50%"
    hard = of(renamed, "ResourceQuota")["spec"]["hard"]
    public = {"requests.cpu", "requests.nvidia.com/gpu", "count/deployments.apps", "pods"}
    assert public < hard.keys() and len(hard) == 7
    assert of(renamed, "LimitRange")["spec"]["limits"][1] == {
        "type": "Pod",
        "default": {"memory": "1Gi"},
        "min": {"cpu": "100m"},
    }


@pytest.mark.parametrize("which", ["required", "preferred", "slice-required"])
def test_kueue_places_pods_by_the_label_that_nodes_have(which: str) -> None:
    key = f"kueue.x-k8s.io/podset-{which}-topology"
    pod = made("Pod")
    pod["metadata"]["annotations"] = {key: "canary.io/rack"}
    renamed, _ = anonymize([pod], key=KEY)
    label = Anonymizer(KEY).label_key("canary.io/rack")
    assert renamed[0]["metadata"]["annotations"] == {key: label}


def test_the_same_name_everywhere() -> None:
    renamed, _ = anonymize(MANIFESTS, key=KEY)
    namespace = of(renamed, "Namespace")["metadata"]["name"]
    deployment = of(renamed, "Deployment")
    pod = deployment["spec"]["template"]
    term = pod["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ][0]["podAffinityTerm"]
    assert deployment["metadata"]["namespace"] == namespace
    assert term["namespaces"] == [namespace]
    assert list(term["namespaceSelector"]["matchLabels"].values()) == [namespace]
    priority = of(renamed, "PriorityClass")["metadata"]["name"]
    assert pod["spec"]["priorityClassName"] == priority
    scope = of(renamed, "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"][0]
    assert scope == {"scopeName": "PriorityClass", "operator": "In", "values": [priority]}
    runtime = of(renamed, "RuntimeClass")
    assert pod["spec"]["runtimeClassName"] == runtime["metadata"]["name"]
    assert runtime["scheduling"]["nodeSelector"].items() <= pod["spec"]["nodeSelector"].items()
    labels = pod["metadata"]["labels"].items()
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert of(renamed, kind)["spec"]["selector"]["matchLabels"].items() <= labels
    assert of(renamed, "ReplicationController")["spec"]["selector"].items() <= labels
    (fpga,) = [k for k in pod["spec"]["containers"][0]["resources"]["requests"] if "/" in k]
    assert f"requests.{fpga}" in of(renamed, "ResourceQuota")["spec"]["hard"]
    assert fpga in of(renamed, "LimitRange")["spec"]["limits"][0]["max"]


NAMING = ("kubernetes.io/metadata.name", "kwok-operator.io/node-group")
CALLED = ("PriorityClass", "RuntimeClass", "Namespace", "KwokNodeGroup")


@pytest.mark.parametrize("name", ["nvidia", "spot", "true", "42", "canary"])
def test_objects_that_are_called_like_a_word(name: str) -> None:
    terms = [{"scopeName": "PriorityClass", "operator": "In", "values": [name]}]
    renamed, _ = anonymize(
        [
            made("PriorityClass", name=name),
            made("RuntimeClass", name=name),
            made("ResourceQuota", spec={"scopeSelector": {"matchExpressions": terms}}),
            made("Pod", spec={"priorityClassName": name, "runtimeClassName": name}),
            made("Namespace", name=name),
            made("KwokNodeGroup", name=name),
            made("Pod", spec={"nodeSelector": dict.fromkeys(NAMING, name)}),
        ],
        key=KEY,
    )
    names = {manifest["metadata"]["name"] for manifest in renamed if manifest["kind"] in CALLED}
    (new,) = names
    assert renamed[3]["spec"] == {"priorityClassName": new, "runtimeClassName": new}
    assert renamed[-1]["spec"]["nodeSelector"] == dict.fromkeys(NAMING, new)
    assert of(renamed, "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"] == [
        {**terms[0], "values": [new]}
    ]


@pytest.mark.parametrize("address", ["192.168.7.9", "203.0.113.8", "2001:db8::7", "fe80::1%canary"])
def test_addresses_of_machines_become_others(address: str) -> None:
    ports = [{"hostPort": 1, "hostIP": ip} for ip in (address, "0.0.0.0", "::1", address)]
    (pod,), _ = anonymize([made("Pod", spec={"containers": [{"ports": ports}]})], key=KEY)
    found = [port["hostIP"] for port in pod["spec"]["containers"][0]["ports"]]
    assert found[1:3] == ["0.0.0.0", "::1"]
    assert found[0] == found[3] != address
    assert ipaddress.ip_address(found[0]).is_private


def test_groups_of_the_corpus_can_be_applied_and_give_nothing_away() -> None:
    groups = corpus_groups()
    renamed, _ = anonymize(groups, key=KEY)
    text = json.dumps(renamed)
    for private in (
        *("payments", "analytics", "cost-center", "example.com", "storage-heavy"),
        *("MC_erp_live", "np4e9a17c0", "render", "ci-spot", "l4-spot", "dc2-md-0", "default-pool"),
        *("lt-09a7be", "91e0c5a7", "0727-4f0c", "infra-eu-north"),
    ):
        assert private in json.dumps(groups)
        assert private not in text
    for before, after in zip(groups, renamed, strict=True):
        assert check_group(after) == []
        shapes = [group["spec"]["template"]["shape"] for group in (before, after)]
        for field in ("cpu", "memory", "reserved", "zone", "instanceType", "arch"):
            assert shapes[0].get(field) == shapes[1].get(field)
    assert '"topology.ebs.csi.aws.com/zone": "us-east-2b"' in text
    assert '"karpenter.sh/capacity-type": "spot"' in text


PUBLIC = ("labels", "matchLabels", "nodeSelector")


def leaves(value: Any, above: str = "") -> Iterator[tuple[Any, Any]]:
    """Where texts stand: the container, and key or index; without fields whose words are fixed."""
    fixed = {"apiVersion", "kind", "type", "operator", "effect", "protocol", "schedule", "scopes"}
    fixed |= {"schedulerName", "zone", "instanceType", "arch", "os", "cpu", "memory", "scopeName"}
    fixed |= {"ephemeralStorage", "key"}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in items:
        if isinstance(part, dict | list):
            yield from leaves(part, str(key))
        elif isinstance(part, str) and key not in fixed and above not in fixed:
            public = isinstance(key, str) and "/" in key and above in PUBLIC
            if not public and not str(key).endswith("Policy"):
                yield value, key


@given(
    data=st.data(),
    canary=st.sampled_from(["zzcanary", "Zz.Canary_1", "zz-canary/x:y", "zz canary"]),
)
@settings(deadline=None, max_examples=150)
def test_whatever_text_is_private_it_is_replaced(data: st.DataObject, canary: str) -> None:
    manifests = copy.deepcopy(MANIFESTS)
    container, key = data.draw(st.sampled_from(list(leaves(manifests))))
    if data.draw(st.booleans()) and isinstance(key, str) and "/" in key:
        container[f"{canary}.example/x"] = container.pop(key)
    elif key not in ("whenUnsatisfiable", "completionMode"):
        container[key] = canary
    renamed, _ = anonymize(manifests, key=KEY)
    assert "canary" not in json.dumps(renamed).lower()


DOMAINS = st.sampled_from(
    """kubernetes.io node.kubernetes.io node-role.kubernetes.io beta.kubernetes.io k8s.io
    feature.node.kubernetes.io kops.k8s.io eks.amazonaws.com karpenter.sh karpenter.k8s.aws
    cloud.google.com kubernetes.azure.com openshift.io cluster-autoscaler.kubernetes.io helm.sh
    nvidia.com intel.com rdma aliyun topology.csi.aws.com kwok-operator.io""".split()
)
WRITTEN = ["zzcanary", "gpu-zzcanary", "zzcanary.x", "gpuZzcanary", "gke-gpu-zzcanary", "ZZCANARY"]


@given(domain=DOMAINS, word=st.sampled_from(WRITTEN), before=st.booleans())
def test_keys_that_somebody_made_below_a_public_domain_are_private(
    domain: str, word: str, before: bool
) -> None:
    key = f"{word.lower()}.{domain}/zone" if before else f"{domain}/{word}"
    spec = {
        "nodeSelector": {key: "zzcanary"},
        "tolerations": [{"key": key, "operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": key, "matchLabelKeys": [key]}],
        "containers": [{"resources": {"requests": {key: "1"}}}],
    }
    pod = made("Pod", spec=spec)
    pod["metadata"]["annotations"] = {key: "zzcanary"}
    hard = {f"requests.{key}": "1", f"count/{word.lower()}.{domain}": "2"}
    renamed, _ = anonymize([pod, made("ResourceQuota", spec={"hard": hard})], key=KEY)
    assert "canary" not in json.dumps(renamed).lower()
    after = renamed[0]["spec"]
    (selected,) = after["nodeSelector"]
    (annotated,) = renamed[0]["metadata"]["annotations"]
    assert after["tolerations"][0]["key"] == selected == annotated
    fields = [f"metadata.labels[{key}]", f"status.capacity[{key}]", f"spec.hard.requests.{key}"]
    notes = [Note(Ref("Pod", "", ""), Reason.NODES_DIFFER, field) for field in fields]
    assert "canary" not in str(Anonymizer(KEY).notes(notes)).lower()


def test_a_pod_of_a_set_is_called_as_its_set() -> None:
    budget = {"selector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": "canary-cart-2"}}}
    (of_set, of_budget), _ = anonymize(
        [made("StatefulSet", "apps/v1"), made("PodDisruptionBudget", spec=budget)], key=KEY
    )
    (name,) = of_budget["spec"]["selector"]["matchLabels"].values()
    assert name == f"{of_set['metadata']['name']}-2"


def test_what_others_read_keeps_its_key() -> None:
    read = {
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
        "karpenter.sh/do-not-disrupt": "true",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction": "true",
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
        "apps.kubernetes.io/pod-index": "3",
        "batch.kubernetes.io/job-completion-index": "3",
        "kubernetes.azure.com/scalesetpriority": "spot",
        "karpenter.k8s.aws/instance-gpu-name": "a100",
    }
    pod = made("Pod", spec={"matchLabelKeys": ["controller-revision-hash", "pod-template-hash"]})
    pod["metadata"]["annotations"] = read
    (after,), _ = anonymize([pod], key=KEY)
    assert after["metadata"]["annotations"] == read, "an API server refuses another cost"
    assert after["spec"] == pod["spec"]


TEXTS = st.sampled_from(["web", "true", "", "12", "123456789", "eu-1a", "spot", "web-2"])
LABEL_KEYS = st.sampled_from(
    [
        *("app", "private", "example.com/pool", "example.com/other", "other.com/pool"),
        *("topology.kubernetes.io/zone", "karpenter.sh/capacity-type"),
        *("eks.amazonaws.com/nodegroup", "karpenter.sh/nodepool"),
        *("node-role.kubernetes.io/infra", "node-role.kubernetes.io/payments"),
        *("kwok-operator.io/node-group", "kubernetes.io/metadata.name"),
    ]
)  # fmt: skip
LABELS = st.dictionaries(LABEL_KEYS, TEXTS, max_size=6)
REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        LABEL_KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(TEXTS, min_size=1, max_size=3),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        LABEL_KEYS,
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        lambda key, operator, value: {"key": key, "operator": operator, "values": [value]},
        # Nobody compares names of objects as numbers.
        LABEL_KEYS.filter(lambda key: "name" not in key and "node-group" not in key),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["12", "123456788"]),
    ),
)
TAINT = st.builds(
    lambda key, value: {"key": key, "value": value, "effect": "NoSchedule"}, LABEL_KEYS, TEXTS
)
TOLERATION = st.builds(
    lambda taint, operator: (
        {"key": taint["key"], "operator": operator}
        | ({"value": taint["value"]} if operator == "Equal" else {})
    ),
    TAINT,
    st.sampled_from(["Equal", "Exists"]),
)


def meets(labels: dict[str, str], wanted: dict[str, Any]) -> bool:
    value, values = labels.get(wanted["key"]), wanted.get("values", [])
    match wanted["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.isdigit():
        return False
    return (
        int(value) > int(values[0]) if wanted["operator"] == "Gt" else int(value) < int(values[0])
    )


def tolerates(toleration: dict[str, Any], taint: dict[str, Any]) -> bool:
    if toleration["key"] != taint["key"]:
        return False
    return toleration["operator"] == "Exists" or bool(toleration["value"] == taint["value"])


@given(
    nodes=st.lists(st.tuples(LABELS, st.lists(TAINT, max_size=2)), min_size=1, max_size=4),
    requirements=st.lists(REQUIREMENTS, min_size=1, max_size=5),
    selector=LABELS,
    tolerations=st.lists(TOLERATION, max_size=3),
)
@settings(deadline=None, max_examples=300)
def test_what_fitted_fits(
    nodes: list[Any], requirements: list[Any], selector: Any, tolerations: list[Any]
) -> None:
    groups = [
        made("KwokNodeGroup", spec={"template": {"shape": {"labels": labels, "taints": taints}}})
        for labels, taints in nodes
    ]
    terms = [{"matchExpressions": requirements}]
    spec = {"nodeSelector": selector, "tolerations": tolerations, "nodeSelectorTerms": terms}
    renamed, table = anonymize([*groups, made("Pod", spec=spec)], key=KEY)
    after = renamed[-1]["spec"]
    for before, group in zip(nodes, renamed[:-1], strict=True):
        shape = group["spec"]["template"]["shape"]
        assert len(shape["labels"]) == len(before[0])
        fits = [meets(before[0], each) for each in requirements]
        renamed_terms = after["nodeSelectorTerms"][0]["matchExpressions"]
        assert [meets(shape["labels"], each) for each in renamed_terms] == fits
        assert (after["nodeSelector"].items() <= shape["labels"].items()) == (
            selector.items() <= before[0].items()
        )
        for was, now in zip(tolerations, after["tolerations"], strict=True):
            assert [tolerates(now, t) for t in shape["taints"]] == [
                tolerates(was, t) for t in before[1]
            ]
    assert len(set(table.values())) == len(table)


def test_the_same_key_gives_the_same_names() -> None:
    once, table = anonymize(MANIFESTS, key=KEY)
    assert anonymize(MANIFESTS, key=KEY) == (once, table)
    _, other = anonymize(MANIFESTS, key=b"1" * 32)
    assert table.keys().isdisjoint(other)
    assert sorted(table.values()) == sorted(other.values())


def test_the_table_leads_back() -> None:
    renamed, table = anonymize([made("Deployment", "apps/v1")], key=KEY)
    metadata = renamed[0]["metadata"]
    assert table[metadata["name"]] == "canary-cart"
    ((key, value),) = metadata["labels"].items()
    assert (table[key], table[value]) == ("canary-label", "canary-value")


def test_names_that_every_cluster_has_stay() -> None:
    for name in ("default", "kube-system", "system-node-critical"):
        assert anonymize([made("X", name=name)], key=KEY)[0][0]["metadata"]["name"] == name
    for name in ("true", "42", "spot"):
        renamed, _ = anonymize([made("X", name=name)], key=KEY)
        assert renamed[0]["metadata"]["name"] != name, "an object's, though a word as a value"


@pytest.mark.parametrize(
    "field",
    [
        *("spec.targetSize", "metadata.labels", ""),
        *("spec.template.spec.containers[0].env", "spec.containers[].resources"),
        *("metadata.labels[nvidia.com/gpu]", "metadata.labels[node-role.kubernetes.io/infra]"),
        *("status.capacity[cpu]", "spec.hard[requests.nvidia.com/gpu]", "spec.limits[].max"),
    ],
)
def test_paths_of_notes_stay(field: str) -> None:
    (note,) = Anonymizer(KEY).notes([Note(Ref("Pod", "", ""), Reason.NO_OBJECT, field)])
    assert note.field == field


@pytest.mark.parametrize(
    "field",
    [
        "metadata.labels.canary.io/canary",
        "metadata.labels[canary.io/canary]",
        "spec.hard[requests.canary.io/fpga]",
        "spec.limits[].max[canary.io/fpga]",
        "metadata.labels.canary.io/limits.canary",
        "metadata.labels.node-role.kubernetes.io/canary",
        "metadata.annotations.canary",
        "spec.template.spec.nodeSelector.canary.io/x",
        "status.capacity.canary.io/fpga",
        "spec.volumes[canary-1]",
        "spec.volumes.canary-1",
    ],
)
def test_names_in_notes_go(field: str) -> None:
    ref = Ref("CanaryWorkload", "canary-ns", "canary-cart")
    note = Note(ref, Reason.NO_OBJECT, field, detail="it is canary-cart's", count=3, dropped=True)
    (after,) = Anonymizer(KEY).notes([note])
    assert "canary" not in str(after).lower()
    assert (after.reason, after.count, after.dropped) == (note.reason, 3, True)
    assert after.field.partition(".")[0] == field.partition(".")[0]


@pytest.mark.parametrize(
    ("reason", "detail", "wanted"),
    [
        (Reason.NOT_SCHEDULING, "containers[].env, volumes", "containers[].env, volumes"),
        (Reason.OWNER_UNKNOWN, "Rollout", "Rollout"),
        (Reason.OWNER_UNKNOWN, "Canary", ""),
        (Reason.NODE_CORDONED, "canary-node", ""),
    ],
)
def test_details_of_notes(reason: Reason, detail: str, wanted: str) -> None:
    (note,) = Anonymizer(KEY).notes([Note(Ref("Pod", "a", "b"), reason, detail=detail)])
    assert note.detail == wanted


def test_notes_name_what_the_manifests_name() -> None:
    renamed, _ = anonymize([made("Deployment", "apps/v1")], key=KEY)
    ref = Ref("Deployment", "canary-ns", "canary-cart")
    (note,) = Anonymizer(KEY).notes([Note(ref, Reason.NO_OBJECT)])
    metadata = renamed[0]["metadata"]
    assert note.ref == Ref("Deployment", metadata["namespace"], metadata["name"])
