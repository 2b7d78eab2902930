"""Bounds of imported groups, from what cluster-autoscaler (CA) says where they come from."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.importing.nodes.bounds import Bounds, ImportedGroup
from kwok_operator.importing.nodes.grouping import Nodes
from kwok_operator.importing.nodes.maxsize import MaxSize
from kwok_operator.importing.nodes.pools import names_of_scaling_group
from kwok_operator.importing.notes import Reason
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE
from kwok_operator.schema.check import check_group
from tests.corpusnodes import NODES
from tests.manifests import group as manifest
from tests.scalables import OPTION, SIZE
from tests.scalables import body as scalable

STATUS = """\
time: 2026-11-20 10:00:00.5 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health: {status: Healthy, minSize: 7}
nodeGroups:
- name: web
  health: {status: Healthy, cloudProviderTarget: 3, minSize: 1, maxSize: 10}
- name: idle
  health: {status: Healthy, maxSize: 5}
"""
OLD_STATUS = """\
Cluster-autoscaler status at 2022-01-01 10:00:00 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=5 unready=0 registered=5 longUnregistered=0)
               LastProbeTime: 2022-01-01 10:00:00 +0000 UTC

NodeGroups:
  Name:        web
  Health:      Healthy (ready=3 unready=0 cloudProviderTarget=3 (minSize=1, maxSize=10))
               LastProbeTime: 2022-01-01 10:00:00 +0000 UTC
  ScaleUp:     NoActivity (ready=3 cloudProviderTarget=3)

  Name:        idle
  Health:      Healthy (ready=0 unready=0 cloudProviderTarget=0 (minSize=0, maxSize=5))
"""
CONFIG = """\
apiVersion: v1alpha1
readNodesFrom: configmap
nodegroups: {fromNodeLabelKey: pool}
configmap: {name: kwok-provider-templates}
"""
TEMPLATES = """\
apiVersion: v1
kind: Node
metadata:
  name: web
  labels: {pool: web}
  annotations:
    cluster-autoscaler.kwok.nodegroup/min-count: "1"
    cluster-autoscaler.kwok.nodegroup/max-count: "10"
status: {capacity: {cpu: 4, memory: 16Gi}}
"""

SCALE_SETS = "providers/Microsoft.Compute/virtualMachineScaleSets"
OWNER_KIND = "cluster.x-k8s.io/owner-kind"
OWNED = {
    "cluster.x-k8s.io/owner-name": "md-0-x7k4p",
    "cluster.x-k8s.io/cluster-namespace": "ns",
}


def autoscaler(*args: Any, command: Any = ("./cluster-autoscaler",), **of: Any) -> dict[str, Any]:
    container = {"name": "x", "command": list(command), "args": list(args), **of}
    template = {"spec": {"containers": [{"name": "sidecar", "image": "proxy"}, container]}}
    return {"metadata": {"name": "ca", "namespace": "kube-system"}, "spec": {"template": template}}


def group(name: str = "web", size: int = 3, **of: Any) -> ImportedGroup:
    given = {"pool": name, "zone": "", "known_as": frozenset(), **of}
    return ImportedGroup(name=name, size=size, **given)


def settled(bounds: Bounds, *groups: ImportedGroup) -> dict[str, Any]:
    """As group -> (min, max) or with options as a third."""
    found, _ = bounds.settle(groups or [group()])
    for name, autoscaling in found.items():
        assert check_group(manifest({"autoscaling": autoscaling}, name=name)) == []
    return {
        name: (a["minSize"], a["maxSize"], *([a["options"]] if "options" in a else []))
        for name, a in found.items()
    }


def reasons(bounds: Bounds, *groups: ImportedGroup) -> list[Reason]:
    return [note.reason for note in bounds.settle(groups or [group()])[1]]


def with_flags(*args: Any, **of: Any) -> Bounds:
    bounds = Bounds()
    bounds.add_autoscaler(autoscaler(*args, **of))
    return bounds


def with_groups(**bounds_of: tuple[int, int]) -> Bounds:
    return with_flags(*(f"--nodes={a}:{b}:{name}" for name, (a, b) in bounds_of.items()))


@pytest.mark.parametrize(
    "bounds",
    [
        with_flags("--v=4", "--nodes=1:10:web", "--cloud-provider=aws"),
        with_flags("-nodes=1:10:web"),
        with_flags("--nodes", "1:10:web"),
        with_flags(command=["cluster-autoscaler", "--nodes=1:10:web"]),
        with_flags(
            "--nodes=1:10:web", command=[], image="registry.k8s.io/cluster-autoscaler:v1.36"
        ),
        with_flags(command=["sh", "-c", "exec ./cluster-autoscaler --v=4 '--nodes=1:10:web' 2>&1"]),
        with_flags("--nodes=1:10:https://example.com/projects/p/zones/a/instanceGroups/web"),
    ],
)
def test_flags_in_all_their_spellings(bounds: Bounds) -> None:
    assert settled(bounds) == {"web": (1, 10)}
    assert reasons(bounds) == []


@pytest.mark.parametrize(
    "body",
    [
        autoscaler("--nodes=1:10:web", command=["./something-else"]),
        autoscaler(
            "--nodes=1:10:web", command=[], image="registry/other@sha256:cluster-autoscaler"
        ),
        autoscaler("--nodes=1:10:web", "--name=cluster-autoscaler", command=["./something-else"]),
        {"spec": {"containers": [{"command": "cluster-autoscaler"}]}},
        {"spec": {"template": {"spec": {"containers": "x"}}}},
        None,
    ],
)
def test_what_is_no_autoscaler_is_left_alone(body: Any) -> None:
    bounds = Bounds()
    bounds.add_autoscaler(body)
    assert reasons(bounds) == [Reason.NO_BOUNDS]


def test_options_of_the_flags_hold_for_all_groups() -> None:
    bounds = with_flags(
        "--nodes=1:10:web",
        "--scale-down-utilization-threshold=0.7",
        "--scale-down-gpu-utilization-threshold",
        ".25",
        "--scale-down-unneeded-time=90s",
        "--scale-down-unneeded-time=1h30m0.5s",
        "--scale-down-unready-time=20m",
        "--max-node-provision-time=15m",
        "--ignore-daemonsets-utilization",
        "--scale-down-delay-after-add=1m",
    )
    options = {
        "scaleDownUtilizationThreshold": "0.7",
        "scaleDownGpuUtilizationThreshold": "0.25",
        "scaleDownUnneededTime": "5401s",
        "scaleDownUnreadyTime": "1200s",
        "maxNodeProvisionTime": "900s",
        "ignoreDaemonSetsUtilization": True,
    }
    assert settled(bounds) == {"web": (1, 10, options)}
    bounds.add_autoscaler(autoscaler("--scale-down-utilization-threshold=0.7"))
    in_both = {"scaleDownUtilizationThreshold": "0.7"}
    assert settled(bounds) == {"web": (1, 10, in_both)}, "two that don't agree"


def test_a_switch_takes_no_word_after_it() -> None:
    bounds = with_flags("--ignore-daemonsets-utilization=false", "--nodes=1:10:web")
    assert settled(bounds) == {"web": (1, 10, {"ignoreDaemonSetsUtilization": False})}
    assert settled(with_flags("--ignore-daemonsets-utilization", "--nodes=1:10:web"))["web"][2]


@pytest.mark.parametrize("text", [STATUS, OLD_STATUS])
def test_the_status_of_either_form(text: str) -> None:
    bounds = Bounds()
    bounds.add_status(text)
    assert settled(bounds, group(), group("idle", size=0)) == {"web": (1, 10), "idle": (0, 5)}
    assert reasons(bounds, group(), group("idle", size=0)) == []


def test_a_provider_config_with_its_templates() -> None:
    bounds = Bounds()
    bounds.add_provider_config(CONFIG, {"templates": TEMPLATES, "binary": 3})
    assert settled(bounds) == {"web": (1, 10)}


def test_objects_of_cluster_api() -> None:
    annotations = {f"{SIZE}min-size": "1", f"{SIZE}max-size": "10"}
    bounds = Bounds()
    bounds.add_scalable(
        scalable("md-0", annotations=annotations | {f"{OPTION}scaledownunneededtime": "5m"})
    )
    bounds.add_scalable(scalable("none", annotations={}))
    bounds.add_scalable(scalable("bad", annotations={f"{SIZE}min-size": "x"}))
    bounds.add_autoscaler(autoscaler("--scale-down-unneeded-time=9m"))
    groups = group("md-0"), group("none"), group("bad")
    assert Reason.BOUNDS_UNREADABLE in reasons(bounds, *groups)
    assert settled(bounds, *groups) == {"md-0": (1, 10, {"scaleDownUnneededTime": "300s"})}


def test_the_first_that_speaks_of_a_group_counts() -> None:
    bounds = with_groups(web=(2, 20))
    bounds.add_status(STATUS)
    assert settled(bounds) == {"web": (2, 20)}


@pytest.mark.parametrize(
    ("name", "pools", "wanted"),
    [
        ("web", ["web", "api"], "web"),
        ("eks-web-8cc1d1a6-5d3d-0d3f-2b6d-1f8d2ba4c9d1", ["web", "eks"], "web"),
        ("eks-web-spot-8cc1d1a6-5d3d-0d3f-2b6d-1f8d2ba4c9d1", ["web", "web-spot"], "web-spot"),
        ("eksctl-shop-nodegroup-web-NodeGroup-1ABCXYZ", ["web", "shop"], "web"),
        ("gke-shop-live-web-pool-a71c04e9-grp", ["web-pool", "pool", "shop-live"], "web-pool"),
        ("aks-web-31415926-vmss", ["web", "aks"], "web"),
        ("web.k8s.example.com", ["web", "k8s.example"], "web"),
        ("terraform-web-2023", ["web", "eb"], "web"),
        ("terraform-web-spot-2023", ["web", "web-spot"], "web-spot"),
        ("cobweb-1", ["web"], None),
        ("MachineDeployment/prod/web", ["web"], "web"),
        ("x", ["."], None),
    ],
)
def test_which_group_a_scaling_group_is(name: str, pools: list[str], wanted: str | None) -> None:
    groups = [group(pool) for pool in pools]
    bounds = with_groups(**{name: (1, 10)})
    assert list(settled(bounds, *groups)) == ([wanted] if wanted else [])
    assert (Reason.BOUNDS_UNMATCHED in reasons(bounds, *groups)) is (wanted is None)


def test_what_the_nodes_give_away_goes_before_names() -> None:
    groups = group("a", known_as=frozenset({"gke-web-a71c04e9-grp"})), group("web")
    bounds = with_groups(**{"https://x/zones/a/instanceGroups/GKE-web-a71c04e9-grp": (1, 10)})
    assert settled(bounds, *groups) == {"a": (1, 10)}


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("gke-standard", "https://x/zones/europe-west4-b/instanceGroups/gke-web-default-pool-a71c04e9-grp"),
        ("aks-vmss-gpu", "aks-a100-97531086-vmss"),
        ("kubeadm-worker-calico", "MachineSet//dc2-md-0-x7k4p"),
        ("kubeadm-worker-calico", "MachineDeployment/metal/dc2-md-0"),
        ("openshift-worker", "MachineSet/openshift-machine-api/shop-9k2vd-infra-eu-north-1c"),
        ("oke-worker", "ocid1.nodepool.oc1.eu-frankfurt-1.examplepool"),
        ("alibaba", "np4e9a17c0b5d2f8361c7e0d94fa25b83d"),
        ("eks-managed", "eks-general-8cc1d1a6-5d3d-0d3f-2b6d-1f8d2ba4c9d1"),
    ],
)  # fmt: skip
def test_nodes_of_clouds_and_their_scaling_groups(corpus: str, name: str) -> None:
    nodes = Nodes()
    nodes.add(NODES[corpus])
    nodes.add(NODES["talos-worker"])
    found = nodes.finish(bounds=with_groups(**{name: (1, 10)}))
    bounds = [m["spec"].get("autoscaling") for m in found.manifests]
    assert sorted(map(str, bounds)) == ["None", "{'minSize': 1, 'maxSize': 10}"]


@pytest.mark.parametrize(
    ("name", "annotations", "provider_id", "wanted"),
    [
        ("gke-a-web-a71c04e9-3hmd", {}, "gce://p/z/gke-a-web", "gke-a-web-a71c04e9-grp"),
        ("ip-10-0-0-1", {}, "aws:///eu-1a/i-1", None),
        ("x", {}, f"azure:///s/{SCALE_SETS}/aks-a-1-vmss/virtualMachines/1", "aks-a-1-vmss"),
        ("x", {"machine.openshift.io/machine": "ns/infra-7mz4q"}, None, "MachineSet/ns/infra"),
        ("x", OWNED | {OWNER_KIND: "MachineSet"}, 5, "MachineDeployment/ns/md-0"),
        ("x", OWNED | {OWNER_KIND: "MachineSet"}, 5, "MachineSet/ns/md-0-x7k4p"),
        ("x", OWNED | {OWNER_KIND: "MachinePool"}, 5, "MachinePool/ns/md-0-x7k4p"),
    ],
)
def test_what_nodes_give_away(
    name: str, annotations: dict[str, str], provider_id: Any, wanted: str | None
) -> None:
    found = names_of_scaling_group(
        name=name, labels={}, annotations=annotations, provider_id=provider_id
    )
    assert found >= {wanted} if wanted else not found


@pytest.mark.parametrize(
    ("bounds", "sizes", "shares"),
    [
        ((0, 12), (5, 1, 0), [(0, 5), (0, 4), (0, 3)]),
        ((4, 30), (5, 1, 0), [(3, 10), (1, 10), (0, 10)]),
        ((9, 9), (5, 1, 0), [(5, 5), (2, 2), (2, 2)]),
        ((0, 3), (5, 1, 0), [(0, 5), (0, 1), (0, 1)]),
        ((2, 100), (5, 5, 5), [(1, 34), (1, 33), (0, 33)]),
    ],
)
def test_one_scaling_group_of_several_zones_is_dealt_out(
    bounds: tuple[int, int], sizes: tuple[int, ...], shares: list[tuple[int, int]]
) -> None:
    groups = [group(f"web-{z}", n, pool="web", zone=z) for z, n in zip("abc", sizes, strict=True)]
    found = settled(with_groups(web=bounds), *groups)
    assert list(found.values()) == shares
    assert Reason.BOUNDS_SPLIT in reasons(with_groups(web=bounds), *groups)


@given(
    least=st.integers(0, 60),
    more=st.integers(0, 60),
    sizes=st.lists(st.integers(0, 20), min_size=2, max_size=5),
)
def test_shares_are_the_whole(least: int, more: int, sizes: list[int]) -> None:
    groups = [group(f"web-{n}", size, pool="web", zone=str(n)) for n, size in enumerate(sizes)]
    found = settled(with_groups(web=(least, least + more)), *groups)
    lows, highs = zip(*found.values(), strict=True)
    assert all(most >= size for most, size in zip(highs, sizes, strict=True))
    assert sum(lows) == least
    if sum(sizes) <= least + more:
        assert sum(highs) == least + more
    if least <= sum(sizes):
        assert all(low <= size for low, size in zip(lows, sizes, strict=True))


def test_scaling_groups_of_single_zones() -> None:
    bounds = with_groups(**{"web-asg-a": (1, 10), "web-asg-b": (2, 20)})
    groups = [group(f"web-{z}", 1, pool="web", zone=z) for z in "ab"]
    assert settled(bounds, *groups) == {"web-a": (1, 10), "web-b": (2, 20)}
    assert Reason.BOUNDS_SPLIT not in reasons(bounds, *groups)


def test_several_scaling_groups_of_one_group_are_summed() -> None:
    assert settled(with_groups(**{"x-web-1": (1, 10), "x-web-2": (2, 20)})) == {"web": (3, 30)}


def test_a_maximum_below_what_is_there_is_widened_and_reported() -> None:
    bounds = with_groups(web=(1, 2))
    assert settled(bounds) == {"web": (1, 3)}
    assert reasons(bounds) == [Reason.BOUNDS_WIDENED]


@pytest.mark.parametrize(
    "nodes_flag",
    ["1:web", "a:1:web", "2:1:web", "1:2:", "-1:2:web", "1:99999999:web", ""],
)
def test_flags_that_no_autoscaler_would_take(nodes_flag: str) -> None:
    bounds = with_flags(f"--nodes={nodes_flag}", "--scale-down-unready-time=soon")
    unreadable = [Reason.BOUNDS_UNREADABLE] * 2
    assert reasons(bounds) == [*unreadable, Reason.NO_BOUNDS]


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("add_status", None),
        ("add_status", "nodeGroups: [{name: web, health: {minSize: 3, maxSize: 1}}]"),
        ("add_status", "Cluster-wide:\n  Name:  web\n  Health: Healthy (minSize=3, maxSize=1)\n"),
        ("add_status", "["),
        ("add_status", "x" * 5_000_000),
        ("add_provider_config", None),
        ("add_provider_config", "apiVersion: v2"),
        ("add_provider_config", CONFIG),
        ("add_scalable", None),
        ("add_scalable", {"kind": "MachineDeployment", "metadata": {}}),
    ],
)
def test_unreadable_bounds_are_reported(method: str, given: Any) -> None:
    bounds = Bounds()
    getattr(bounds, method)(given)
    assert reasons(bounds) == [Reason.BOUNDS_UNREADABLE, Reason.NO_BOUNDS]


def test_counts_that_are_none_are_reported() -> None:
    bounds = Bounds()
    bounds.add_provider_config(CONFIG, {"templates": TEMPLATES.replace('"10"', '"many"')})
    assert reasons(bounds) == [Reason.BOUNDS_UNREADABLE, Reason.NO_BOUNDS]


def test_a_group_of_karpenter_may_be_scaled_without_bounds() -> None:
    bounds = Bounds()
    bounds.node_pools.add({"metadata": {"name": "web"}, "spec": {}})
    groups = [group(name, node_pool=name) for name in ("web", "gone")]
    settled, notes = bounds.settle(groups)
    assert settled == {"web": {"minSize": 0}}
    found = [(note.reason, note.ref.name) for note in notes]
    assert found == [(Reason.SCALED_BY_KARPENTER, "web"), (Reason.NO_BOUNDS, "gone")]


@pytest.mark.parametrize(
    ("wanted", "sizes"),
    [
        (MaxSize(times=Fraction(2)), {0: 2, 1: 2, 3: 6}),
        (MaxSize(times=Fraction("1.5")), {0: 2, 1: 2, 3: 5}),
        (MaxSize(number=2), {0: 2, 1: 2, 3: 3}),
        (MaxSize(times=Fraction(MAX_TARGET_SIZE)), {3: MAX_TARGET_SIZE}),
    ],
)
def test_a_maximum_is_chosen_where_nobody_knows_one(wanted: MaxSize, sizes: dict[int, int]) -> None:
    bounds = Bounds(max_size=wanted)
    bounds.node_pools.add({"metadata": {"name": "web"}, "spec": {}})
    bounds.add_status(STATUS)  # of web only
    unknown = {f"group-{size}": most for size, most in sizes.items()}
    groups = [group("web", node_pool="web"), *(group(f"group-{n}", size=n) for n in sizes)]
    found, notes = bounds.settle(groups)
    assert found.pop("web")["maxSize"] == 10
    assert found == {name: {"minSize": 0, "maxSize": most} for name, most in unknown.items()}
    chosen = [note.ref.name for note in notes if note.reason is Reason.MAX_SIZE]
    assert chosen == list(unknown)
