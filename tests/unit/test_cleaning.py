"""Which parts of a node belong to one machine: the rules one by one.

Whole nodes are in test_corpus.py: keys that stay or go there are not here.
"""

from typing import Any

import pytest

from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.cleaning import clean_node, merge_taints

FIELD = "spec.template.node"


def clean(node: dict[str, Any]) -> dict[str, Any]:
    return clean_node(node, field=FIELD)


def pasted(**metadata: Any) -> dict[str, Any]:
    """A node as the API server has it: with a uid, and a hostname label that is its name."""
    labels = {"kubernetes.io/hostname": "worker-17", **metadata.pop("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "worker-17", "uid": "3b7a1f52-09c5", "labels": labels, **metadata},
        "spec": {"providerID": "cloud:///zone-a/i-0f3c1a7b"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.41.137"}]},
    }


@pytest.mark.parametrize(
    "key",
    """
        kubernetes.io/hostname hostname alpha.eksctl.io/instance-id alibabacloud.com/ecs-instance-id
        container.googleapis.com/instance_id aws-node-termination-handler/action-time
        cloud.google.com/gce-topology-host displayName doks.digitalocean.com/node-id
        ibm-cloud.kubernetes.io/worker-id ibm-cloud.kubernetes.io/instance-id
        ibm-cloud.kubernetes.io/vpc-instance-id ibm-cloud.kubernetes.io/internal-ip
        ibm-cloud.kubernetes.io/external-ip internal_addr k3s.io/hostname k3s.io/internal-ip
        k8s.scaleway.com/node linbit.com/hostname metal3.io/uuid minikube.k8s.io/updated_at
        node-name node.cluster.x-k8s.io/esxi-host node.gardener.cloud/machine-name
        nvidia.com/gfd.timestamp nvidia.com/gpu-driver-upgrade-state openebs.io/nodeid
        plan.upgrade.cattle.io/server-plan rke.cattle.io/machine example.com/nodename
        example.com/machine-id node-role.kubernetes.io/control-plane
        node-role.kubernetes.io/controlplane topology.hostpath.csi/node topology.topolvm.io/node
    """.split(),
)
def test_a_label_of_one_instance_goes_whatever_it_says(key: str) -> None:
    node = {"metadata": {"labels": {key: "x", "tier": "batch"}}}
    assert clean(node)["metadata"]["labels"] == {"tier": "batch"}


@pytest.mark.parametrize(
    "key",
    """
        doks.digitalocean.com/node-pool-id example.com/hostname-policy
        feature.node.kubernetes.io/cpu-model.id karpenter.k8s.aws/capacity-reservation-id
        kubernetes.io/role node-role.kubernetes.io/node node.cluster.x-k8s.io/tier type
    """.split(),
)
def test_a_label_of_the_group_stays(key: str) -> None:
    assert clean({"metadata": {"labels": {key: "x"}}})["metadata"]["labels"] == {key: "x"}


@pytest.mark.parametrize(
    "value",
    ["worker-17", "10.0.41.137", "i-0f3c1a7b"],
    ids=["name", "address", "end-of-provider-id"],
)
def test_a_label_with_a_value_of_the_machine_goes_whatever_its_key(value: str) -> None:
    node = pasted(labels={"example.com/where": value, "example.com/pool": "worker"})
    assert clean(node)["metadata"]["labels"] == {"example.com/pool": "worker"}


@pytest.mark.parametrize(
    ("provider_id", "value"),
    [
        ("aws:///eu-west-1b/i-0f3c1a7be94d", "i-0f3c1a7be94d"),
        ("cn-hangzhou.i-bp1c7e0d94fa", "i-bp1c7e0d94fa"),
        ("k3s://box-1.example.internal", "box-1.example.internal"),
    ],
)
def test_the_id_that_a_cloud_gave_a_machine_is_its_own(provider_id: str, value: str) -> None:
    labels = {"example.com/machine": value, "example.com/network": "internal"}
    node = {"metadata": {"labels": labels}, "spec": {"providerID": provider_id}}
    assert clean(node)["metadata"]["labels"] == {"example.com/network": "internal"}


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("key", ["kwok-nodegroup", "example.com/pool", "pool-name"])
def test_a_pool_that_is_called_like_its_first_node_stays(part: str, key: str) -> None:
    # With kind, people group by the names of the nodes that they have.
    node = pasted(**{part: {key: "worker-17"}})
    assert clean(node)["metadata"][part] == {key: "worker-17"}


def test_the_host_name_of_a_real_node_is_its_own_even_where_its_name_is_another() -> None:
    node = pasted(annotations={"example.com/seen-as": "worker-17.example.com"})
    node["metadata"]["name"] = "i-0f3c1a7b.internal"
    assert clean(node)["metadata"]["annotations"] == {}


def test_the_host_name_of_a_fake_node_says_nothing() -> None:
    # The kwok provider of cluster-autoscaler gives it to all nodes of a group.
    node = pasted(
        labels={"kubernetes.io/hostname": "standard", "example.com/tier": "standard"},
        annotations={"kwok.x-k8s.io/node": "fake"},
    )
    assert clean(node)["metadata"]["labels"] == {"example.com/tier": "standard"}


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_null_stays_to_take_a_key_away_from_another_node(part: str) -> None:
    node = pasted(**{part: {"pool": None, "example.com/machine": None}})
    assert clean(node)["metadata"][part] == {"pool": None, "example.com/machine": None}


def test_addresses_without_end_are_not_all_looked_for() -> None:
    """Each costs a search through all annotations, which took seconds."""
    addresses = [{"type": "InternalIP", "address": f"192.0.2.{i}/x"} for i in range(15_000)]
    node = pasted(annotations={"first": "at 192.0.2.3/x", "late": "at 192.0.2.14000/x"})
    node["status"]["addresses"] = addresses
    annotations = clean(node)["metadata"]["annotations"]
    assert "first" not in annotations and "late" in annotations


def test_an_annotation_that_mentions_the_machine_goes() -> None:
    node = pasted(
        annotations={
            "csi.example.com/ids": '{"a":"i-0f3c1a7b"}',
            "example.com/routes": "via 10.0.41.137",
            "example.com/seen-as": "worker-17.example.com",
            "example.com/owner": "team batch",
        }
    )
    assert clean(node)["metadata"]["annotations"] == {"example.com/owner": "team batch"}


@pytest.mark.parametrize(
    "key",
    """
        kubectl.kubernetes.io/last-applied-configuration csi.volume.kubernetes.io/nodeid
        alpha.kubernetes.io/provided-node-ip kubeadm.alpha.kubernetes.io/cri-socket
        metrics.k8s.io/resource-metrics-path node.alpha.kubernetes.io/ttl
        cloud.network.openshift.io/egress-ipconfig cluster.talos.dev/node-id
        cluster.x-k8s.io/machine container.googleapis.com/instance_id
        etcd.k3s.cattle.io/node-address flannel.alpha.coreos.com/public-ip
        io.cilium.network.ipv4-health-ip k3s.io/node-args k8s.aliyun.com/trunk-on
        k8s.ovn.org/node-subnets kube-router.io/pod-cidr machine.openshift.io/machine
        machineconfiguration.openshift.io/currentConfig management.cattle.io/pod-limits
        metal3.io/BareMetalHost network.cilium.io/ipv4-pod-cidr networking.gke.io/nic-info
        networking.talos.dev/self-ips nfd.node.kubernetes.io/feature-labels
        gpu.nfd.node.kubernetes.io/feature-labels node.antrea.io/mac-address
        nvidia.com/gpu-driver-upgrade-enabled ovn.kubernetes.io/ip_address
        projectcalico.org/IPv4Address rke2.io/node-config-hash talos.dev/owned-labels
        weave.works/kured-reboot-in-progress
    """.split(),
)
def test_an_annotation_of_one_instance_goes_whatever_it_says(key: str) -> None:
    assert clean({"metadata": {"annotations": {key: "x"}}})["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    "key",
    """
        cluster-autoscaler.kubernetes.io/scale-down-disabled extensions.talos.dev/schematic
    """.split(),
)
def test_an_annotation_that_all_nodes_of_a_group_have_stays(key: str) -> None:
    node = {"metadata": {"annotations": {key: "x"}}}
    assert clean(node)["metadata"]["annotations"] == {key: "x"}


@pytest.mark.parametrize(
    "key",
    [
        "kwok-operator.io/node-group",
        "kwok-operator.io/node-group-uid",
        "kwok-operator.io/template-hash",
        "cluster-autoscaler.kwok.nodegroup/name",
        "cluster-autoscaler.kwok.nodegroup/min-count",
        "cluster-autoscaler.kwok.nodegroup/max-count",
        "cluster-autoscaler.kwok.nodegroup/desired-count",
    ],
)
def test_what_says_whose_a_node_of_ours_is_is_not_copied(key: str) -> None:
    node = {"metadata": {"labels": {key: "other"}, "annotations": {key: "other"}}}
    assert clean(node)["metadata"] == {"labels": {}, "annotations": {}}


def test_a_label_that_says_what_a_node_written_by_hand_is_called_stays() -> None:
    # Such a name is its writer's, and often that of the group: no machine was ever called so.
    node = {
        "metadata": {
            "name": "gpu-pool-a",
            "labels": {"kubernetes.io/hostname": "gpu-pool-a", "example.com/pool": "gpu-pool-a"},
            "annotations": {"example.com/note": "for gpu-pool-a only"},
        }
    }
    assert clean(node)["metadata"] == {
        "labels": {"example.com/pool": "gpu-pool-a"},
        "annotations": {"example.com/note": "for gpu-pool-a only"},
    }


def test_a_short_name_is_not_looked_for_in_other_values() -> None:
    # "node1" is part of much that has nothing to do with the machine.
    node = pasted(annotations={"example.com/rack": "rack-1-node1x"})
    node["metadata"] |= {"name": "node1", "labels": {"kubernetes.io/hostname": "node1"}}
    assert clean(node)["metadata"]["annotations"] == {"example.com/rack": "rack-1-node1x"}


@pytest.mark.parametrize(
    "key",
    """
        node.cloudprovider.kubernetes.io/shutdown node.kubernetes.io/memory-pressure
        node.kubernetes.io/pid-pressure node.kubernetes.io/out-of-service karpenter.sh/disruption
        karpenter.sh/unregistered startup-taint.cluster-autoscaler.kubernetes.io/driver
        ignore-taint.cluster-autoscaler.kubernetes.io/driver cni.istio.io/not-ready medik8s.io/drain
        node-role.kubernetes.io/controlplane node.cluster.x-k8s.io/uninitialized
        node.gardener.cloud/critical-components-not-ready
    """.split(),
)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "PreferNoSchedule"])
def test_a_taint_that_comes_and_goes_is_left_out(key: str, effect: str) -> None:
    stays = {"key": "dedicated", "value": "gpu", "effect": effect}
    taints = [{"key": key, "value": "1", "effect": effect}, stays]
    assert clean({"spec": {"taints": taints}})["spec"]["taints"] == [stays]


def test_a_taint_of_the_group_stays() -> None:
    taint = {"key": "node.kubernetes.io/os", "value": "x", "effect": "NoSchedule"}
    assert clean({"spec": {"taints": [taint]}})["spec"]["taints"] == [taint]


def test_the_time_at_which_a_taint_was_added_is_dropped() -> None:
    taint = {"key": "a", "effect": "NoExecute", "timeAdded": "2026-03-02T17:31:07Z"}
    assert clean({"spec": {"taints": [taint]}})["spec"]["taints"] == [
        {"key": "a", "effect": "NoExecute"}
    ]


def test_of_two_taints_of_one_key_and_effect_the_later_stays() -> None:
    first = {"key": "a", "value": "1", "effect": "NoSchedule"}
    other = {"key": "a", "value": "2", "effect": "NoExecute"}
    again = {"key": "a", "value": "3", "effect": "NoSchedule"}
    assert merge_taints([first, other, again]) == [again, other]
    assert clean({"spec": {"taints": [first, other, again]}})["spec"]["taints"] == [again, other]


def test_what_is_misspelt_stays_for_the_strict_dry_run_to_name() -> None:
    node = {
        "metdata": {"labels": {"a": "b"}},
        "metadata": {"lables": {"a": "b"}},
        "spec": {"taint": [], "taints": [{"key": "a", "efect": "NoSchedule"}]},
        "status": {"capacty": {"cpu": "4"}, "nodeInfo": {"archtecture": "arm64"}},
    }
    cleaned = clean(node)
    assert cleaned["metdata"] == {"labels": {"a": "b"}}
    assert cleaned["metadata"]["lables"] == {"a": "b"}
    assert cleaned["spec"] == {"taint": [], "taints": [{"key": "a", "efect": "NoSchedule"}]}
    assert cleaned["status"]["capacty"] == {"cpu": "4"}
    assert cleaned["status"]["nodeInfo"] == {"archtecture": "arm64"}


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("value", [1, True, ["x"]])
def test_values_that_are_no_strings_are_named(part: str, value: object) -> None:
    # YAML makes numbers and booleans of 5 and true; the API server names neither key nor value.
    with pytest.raises(TemplateError) as caught:
        clean({"metadata": {part: {"version": value}}})
    assert caught.value.field.endswith(f".metadata.{part}.version")
    assert caught.value.value == value


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("key", [1, True, None])
def test_keys_that_are_no_strings_are_named(part: str, key: object) -> None:
    with pytest.raises(TemplateError, match="not a string; put it in quotes") as caught:
        clean({"metadata": {part: {key: "x"}}})
    assert caught.value.field.endswith(f".metadata.{part}.{key}")


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"kind": "NodeList", "items": []}, "kind"),
        ({"kind": None}, "kind"),
        ({"apiVersion": "v2"}, "apiVersion"),
        ({"metadata": []}, "metadata"),
        ({"metadata": "a"}, "metadata"),
        ({"spec": 1}, "spec"),
        ({"status": True}, "status"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels"),
        ({"metadata": {"annotations": "a=b"}}, "metadata.annotations"),
        ({"status": {"nodeInfo": []}}, "status.nodeInfo"),
        ({"spec": {"taints": "a:NoSchedule"}}, "spec.taints"),
        ({"spec": {"taints": ["a:NoSchedule"]}}, "spec.taints"),
        ({"spec": {"taints": {"key": "a"}}}, "spec.taints"),
    ],
)
def test_what_is_no_node_is_an_error_that_names_the_field(node: dict[str, Any], field: str) -> None:
    with pytest.raises(TemplateError) as refused:
        clean(node)
    assert refused.value.field == f"{FIELD}.{field}"
    assert str(refused.value).startswith(f"{FIELD}.{field}: ")


def test_a_node_that_nests_beyond_reason_is_an_error_and_not_a_crash() -> None:
    inner: dict[str, Any] = {}
    for _ in range(2_000):
        inner = {"a": inner}
    with pytest.raises(TemplateError, match="too deep"):
        clean({"status": inner})


@pytest.mark.parametrize(
    "node",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"metadata": {"labels": None, "annotations": None}, "status": {"nodeInfo": None}},
        {"spec": {"taints": None}, "status": {"addresses": None}},
        {"metadata": {"name": 7, "uid": ["x"]}, "spec": {"providerID": {}, "podCIDR": 1}},
        {"status": {"addresses": {"a": 1}, "nodeInfo": {"machineID": 5, "swap": {}}}},
        {"status": {"addresses": ["10.0.0.1", {"address": None}, {"type": []}]}},
    ],
)
def test_a_node_with_next_to_nothing_in_it_is_an_empty_one(node: dict[str, Any]) -> None:
    cleaned = clean(node)
    assert cleaned["metadata"] == {"labels": {}, "annotations": {}}
    assert cleaned["spec"] == {"taints": []}
    assert cleaned["status"] == {"nodeInfo": {}}
