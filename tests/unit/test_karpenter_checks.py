"""Karpenter in a scenario: what is wrong with it is one sentence, before anything starts."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwok_operator.rehearsal.karpenter.crds import KarpenterCrds
from tests.fakes.karpenter import CLAIMS, CLASSES, CRDS, POOLS, as_text, crd, group, pool
from tests.fakes.scenarios import GROUP, Told, checked, fields, scenario

TYPES = [
    {
        "name": "m.4",
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "4100m", "memory": "16394Mi"},
        "offerings": [
            {
                "Price": 0.192,
                "Requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
                ],
            }
        ],
    }
]
IN_ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
ANY: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
STATIC: dict[str, Any] = pool()
STATIC["spec"]["replicas"] = 3
OVERLAYS = crd("karpenter.sh", "NodeOverlay", "v1alpha1", ANY)
OVERLAY = {
    "apiVersion": "karpenter.sh/v1alpha1",
    "kind": "NodeOverlay",
    "metadata": {"name": "cheap"},
    "spec": {"price": "0.1"},
}
BUFFERS = crd("autoscaling.x-k8s.io", "CapacityBuffer", "v1", ANY)
BUFFERS["spec"]["scope"] = "Namespaced"
BUFFER = {
    "apiVersion": "autoscaling.x-k8s.io/v1",
    "kind": "CapacityBuffer",
    "metadata": {"name": "spare", "namespace": "a/../b"},
}
WITH_FILE = {"instanceTypesFrom": "types.json", "nodePools": ["pools.yaml"]}


def around(**more: str) -> Told:
    files = {"crds": as_text(*CRDS), "types.json": json.dumps(TYPES), "pools.yaml": as_text(pool())}
    return Told(files={**files, **more})


def played(*groups: Any, process: Any = None, **karpenter: Any) -> dict[str, Any]:
    preset = {"name": "karpenter", "karpenter": karpenter}
    applied = [{"object": each} for each in groups or (group(),)]
    return scenario(apply=applied, processes=[preset | (process or {})])


def older(crd: dict[str, Any]) -> dict[str, Any]:
    changed = deepcopy(crd)
    changed["spec"]["versions"][0]["name"] = "v1beta1"
    return changed


def without_delay() -> dict[str, Any]:
    changed = deepcopy(CLASSES)
    (version,) = changed["spec"]["versions"]
    del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return changed


@pytest.mark.parametrize(
    "karpenter", [{}, {"crds": "crds"}, WITH_FILE, {"nodePools": ["pools.yaml"]}]
)
def test_nothing_is_wrong_with_what_is_right(karpenter: dict[str, Any]) -> None:
    assert checked(played(**karpenter), around()).findings == ()


@pytest.mark.parametrize(
    ("given", "files", "field", "said"),
    [
        ({"binary": "gone"}, {}, "binary", "is no program"),
        ({"crds": "nowhere"}, {}, "crds", "isn't there"),
        ({}, {"crds": as_text(POOLS)}, "crds", "has no CRD nodeclaims.karpenter.sh"),
        (
            {},
            {"crds": as_text(older(POOLS), CLAIMS, CLASSES)},
            "crds",
            "serves NodePool as v1beta1",
        ),
        ({}, {"crds": as_text(POOLS, CLAIMS, without_delay())}, "crds", "older than 1.4"),
        ({"featureGates": {"NodeOverlay": True}}, {}, "crds", "has no CRD nodeoverlays"),
        (
            {"disruption": {"consolidationPolicy": "Balanced"}},
            {},
            "crds",
            "NodePool default would not be accepted: spec.disruption.consolidationPolicy",
        ),
        ({"disruption": {"budgets": [{"nodes": "5"}]}}, {}, "crds", "spec.disruption.budgets"),
        (WITH_FILE, {"types.json": "[{}]"}, "instanceTypesFrom", "[0].name: is missing"),
        (
            {"nodePools": [{"object": pool("a", IN_ZONE)}]},
            {},
            "nodePools",
            "NodePool a: spec.template.spec.requirements[0]: no instance type fits",
        ),
        ({"nodePools": [{"object": CLASSES}]}, {}, "", "is nothing that Karpenter takes"),
        (
            {"nodePools": ["pools.yaml"]},
            {"pools.yaml": as_text({"apiVersion": "karpenter.sh/v1", "kind": "NodePool"})},
            "",
            "metadata.name",
        ),
        ({"nodePools": [{"object": pool("a/../b")}]}, {}, "", "metadata.name: 'a/../b'"),
        ({"nodePools": [{"object": pool("a" * 80)}]}, {}, "", "metadata.name: 'aaa"),
        (
            {"nodePools": ["pools.yaml"], "featureGates": {"CapacityBuffer": True}},
            {"pools.yaml": as_text(pool(), BUFFER), "crds": as_text(*CRDS, BUFFERS)},
            "",
            "metadata.namespace: 'a/../b'",
        ),
        ({"nodePools": [{"object": pool()}] * 2}, {}, "", "NodePool pool is there twice"),
        (
            {"nodePools": ["pools.yaml"]},
            {"pools.yaml": as_text(pool(), OVERLAY), "crds": as_text(*CRDS, OVERLAYS)},
            "",
            "kind: NodeOverlay has no effect without the feature gate NodeOverlay",
        ),
        (
            {"nodePools": [{"object": STATIC}]},
            {"crds": as_text(crd("karpenter.sh", "NodePool", "v1", ANY), CLAIMS, CLASSES)},
            "",
            "spec.replicas: has no effect without the feature gate StaticCapacity",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(
    given: dict[str, Any], files: dict[str, str], field: str, said: str
) -> None:
    found = checked(played(**given), around(**files)).findings
    assert len(found) == 1, found
    assert said in found[0].message
    if field:
        assert fields(found) == [f"processes[0].karpenter.{field}"]


def program(*own: dict[str, Any], package: str = "kwok/cloudprovider") -> bytes:
    """A program with these CRDs, each with the end that controller-gen writes."""
    found = b"\x7fELF\0sigs.k8s.io/karpenter/" + package.encode()
    for each in own:
        whole = deepcopy(each)
        whole["spec"]["versions"][0]["subresources"] = {"scale": {"a": "b"}, "status": {}}
        found += b"\0---\n" + as_text(whole).encode() + b"x: {\0\xff"
    return found


def pools_with(**fields: Any) -> dict[str, Any]:
    changed = deepcopy(POOLS)
    (version,) = changed["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"] |= fields
    return changed


NESTED = {"type": "array", "items": {"type": "object", "properties": {"of": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("content", "crds", "field", "said"),
    [
        (program(), CRDS, "", ""),
        (program(*CRDS), CRDS, "", ""),
        (program(OVERLAYS, *CRDS), CRDS, "", ""),
        (b"\x7fELF\0", (), "binary", "is no Karpenter; build"),
        (program(package="pkg/operator"), (), "binary", "is Karpenter with another provider"),
        (
            program(CLAIMS, pools_with(weight=NESTED), CLASSES),
            CRDS,
            "crds",
            "another version than this Karpenter: it lacks spec.weight of NodePool",
        ),
        (program(*CRDS), (pools_with(weight=NESTED), CLAIMS, CLASSES), "crds", "has spec.weight"),
        (
            program(pools_with(weight=NESTED)),
            (pools_with(weight={"type": "array"}), CLAIMS, CLASSES),
            "crds",
            "lacks spec.weight.of of NodePool",
        ),
        (
            program(pools_with(weight={"type": "string", "enum": ["a", "b"]})),
            (pools_with(weight={"type": "string", "enum": ["a"]}), CLAIMS, CLASSES),
            "crds",
            "lacks spec.weight 'b' of NodePool",
        ),
    ],
)
def test_a_program_that_is_another_one_is_one_sentence(
    content: bytes, crds: tuple[dict[str, Any], ...], field: str, said: str
) -> None:
    there = around(crds=as_text(*crds))
    there.content = content
    found = checked(played(), there).findings
    assert fields(found) == ([f"processes[0].karpenter.{field}"] if field else [])
    assert all(said in each.message for each in found)


def test_a_gate_that_a_program_would_ignore() -> None:
    there = around()
    for known, expected in (
        (b"", ["processes[0].karpenter.featureGates"]),
        (b"StaticCapacity", []),
    ):
        there.content = program() + known
        gates = {"StaticCapacity": True, "NodeRepair": False}
        assert fields(checked(played(featureGates=gates), there).findings) == expected


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"autoscaling": None}, "no group has spec.autoscaling"),
        ({"price": None}, "KwokNodeGroup batch has no spec.price"),
    ],
)
def test_groups_that_give_no_types(spec: dict[str, Any], said: str) -> None:
    found = checked(played(group(**spec)), around()).findings
    assert fields(found) == ["processes[0].karpenter.instanceTypesFrom"]
    assert said in found[0].message
    # Elsewhere it doesn't matter.
    assert checked(played(group(**spec), **WITH_FILE), around()).findings == ()


def test_templates_that_only_a_cluster_has_are_left_to_the_start() -> None:
    copied: dict[str, Any] = {"template": {"from": {"nodes": {"name": "a"}}}}
    wrong = [{"object": pool("a", IN_ZONE)}]
    assert checked(played(group(**copied), nodePools=wrong), around()).findings == ()


@pytest.mark.parametrize(
    ("process", "field"),
    [
        ({"env": {"METRICS_PORT": 8080}}, "processes[0].env.METRICS_PORT"),
        ({"command": ["tool"]}, "processes[0]"),
    ],
)
def test_what_the_process_may_not_have_beside_it(process: dict[str, Any], field: str) -> None:
    assert fields(checked(played(process=process), around()).findings) == [field]


@pytest.mark.parametrize(
    ("karpenter", "pool", "said"),
    [
        ({}, "default", ""),
        ({}, "defaults", "is no NodePool that is applied; did you mean default?"),
        (WITH_FILE, "pool", ""),
        (WITH_FILE, "default", "is no NodePool that is applied; there is"),
    ],
)
def test_figures_of_its_node_pools(karpenter: dict[str, Any], pool: str, said: str) -> None:
    names = ("nodeClaims.neverRegistered", "disruptions.Expired", "cost")
    expect = [{"figure": name, "of": {"nodePool": pool}, "atMost": 1} for name in names]
    found = checked({**played(**karpenter), "expect": expect}, around()).findings
    assert all(said in each.message for each in found)
    assert len(found) == (len(names) if said else 0)


def test_there_is_one_karpenter() -> None:
    whole = played()
    (process,) = whole["processes"]
    two = whole | {"processes": [process, process | {"name": "other"}]}
    assert fields(checked(two, around()).findings) == ["processes[1].karpenter"]


@pytest.mark.parametrize("late", [{}, {"starts": "byTimeline"}])
def test_cluster_autoscaler_beside_it_is_started_by_the_timeline(late: dict[str, str]) -> None:
    whole = played()
    ca = {"name": "ca", "clusterAutoscaler": {"binary": "ca"}, **late}
    whole["processes"] = [ca, *whole["processes"]]
    if late:
        whole["timeline"] = [{"at": 1, "start": "ca"}]
    found = fields(checked(whole, around()).findings)
    assert found == ([] if late else ["processes[1].karpenter"])


def test_on_a_cluster_of_others_instance_types_are_those_of_groups() -> None:
    borrowed = around()
    borrowed.own_cluster = False
    expect = [{"figure": "nodeClaims.neverRegistered", "equals": 0}]
    assert checked({**played(), "expect": expect}, borrowed).findings == ()
    found = checked(played(**WITH_FILE), borrowed).findings
    assert fields(found) == ["processes[0].karpenter.instanceTypesFrom"]


def test_what_has_no_effect_on_its_nodes_is_named() -> None:
    slow: dict[str, Any] = {"cloud": {"provisioningDelay": {"fixed": "40s"}, "stock": 3}}
    same = {"cloud": {"provisioningDelay": {"fixed": "40s"}}}
    assert checked(played(group("a", **same), group("b", **same)), around()).ignored == ()
    assert checked(played(group("a", **slow), group("b", **same)), around()).ignored == (
        "spec.cloud.stock of a",
    )
    # One constant for all nodes is all that there can be.
    unlike = checked(played(group("a", **slow), group("b")), around()).ignored
    assert unlike == ("spec.cloud.stock of a", "spec.cloud.provisioningDelay of a")
    no_autoscaling = GROUP | {"spec": slow}
    assert checked(played(group("a"), no_autoscaling), around()).ignored == ()
    spot = {"cloud": {"interruptions": {"hourlyRate": "0.1"}}}
    outage = {"timeline": [{"at": 1, "outage": {"group": "a"}}]}
    assert checked(played(group("a", **spot)) | outage, around()).ignored == ()
    some = checked(played(group("a"), group("b")) | outage, around()).ignored
    assert some == ("timeline[0].outage",)
    zones = [group(name, template={"shape": {"cpu": 4, "zone": name}}) for name in "ab"]
    outage = {"timeline": [{"at": 1, "outage": {"zone": zone}} for zone in "ab"]}
    assert checked(played(*zones) | outage, around()).ignored == ()
    outage["timeline"].pop()
    assert checked(played(*zones) | outage, around()).ignored == ("timeline[0].outage",)


def test_an_outage_of_racks_has_no_effect_on_its_nodes() -> None:
    topology = {"levels": [{"label": "example.com/rack", "of": 2}]}
    racked = group("a", template={"shape": {"cpu": 4}, "topology": topology})
    outage = {"timeline": [{"at": 1, "outage": {"topology": {"level": "example.com/rack"}}}]}
    ignored = checked(played(racked) | outage, around()).ignored
    assert ignored == ("timeline[0].outage.topology",)


def test_a_patch_that_has_no_effect_on_its_nodes_is_named() -> None:
    cloud = {"stock": 3, "interruptions": {"hourlyRate": "0.1"}}
    spec = {"targetSize": 2, "price": {"hourly": "0.3"}, "cloud": cloud}
    patch = {"what": "kwoknodegroup/batch", "patch": {"spec": spec}}
    found = checked(played() | {"timeline": [{"at": 1, "patch": patch}]}, around())
    assert found.ignored == (
        "timeline[0].patch of spec.price",
        "timeline[0].patch of spec.targetSize",
        "timeline[0].patch of spec.cloud.stock",
    )
    assert found.findings == ()
    other = patch | {"what": "kng/" + GROUP["metadata"]["name"]}
    of_another = checked(
        played(group(), GROUP) | {"timeline": [{"at": 1, "patch": other}]},
        around(),
    )
    assert of_another.ignored == ()


def test_what_a_step_applies_may_need_a_feature_gate() -> None:
    step = {"timeline": [{"at": 1, "apply": [{"object": STATIC}]}]}
    (finding,) = checked(played() | step, around()).findings
    assert "spec.replicas" in finding.message and "StaticCapacity" in finding.message
    on = played(featureGates={"StaticCapacity": True})
    assert checked(on | step, around()).findings == ()


@pytest.mark.parametrize("step", [{"scale": {"replicas": 6}}, {"delete": {}}])
def test_steps_of_groups_of_which_it_makes_nodes_are_named(step: dict[str, Any]) -> None:
    ((action, fields_),) = step.items()

    def ignored(name: str) -> tuple[str, ...]:
        timeline = [{action: fields_ | {"what": f"kng/{name}"}}]
        return checked(played(group("a"), GROUP) | {"timeline": timeline}, around()).ignored

    assert ignored("a") == (f"timeline[0].{action} of KwokNodeGroup a",)
    assert ignored("batch") == (), "no autoscaler scales it"


def test_a_group_that_is_applied_after_its_start_is_named() -> None:
    timeline = {"timeline": [{"at": 1, "apply": [{"object": group("later")}]}]}
    late = {"starts": "byTimeline"}
    assert checked(played() | timeline, around()).ignored == (
        "timeline[0].apply of KwokNodeGroup later",
    )
    timeline["timeline"].append({"at": 2, "start": "karpenter"})
    assert checked(played(process=late) | timeline, around()).ignored == ()


def test_types_that_share_a_name_are_unlike_those_of_the_groups() -> None:
    some = [
        group(name, template={"shape": {"cpu": 4, "memory": memory, "instanceType": "m5.xlarge"}})
        for name, memory in (("a", "16Gi"), ("b", "15Gi"))
    ]
    (sentence,) = checked(played(*some), around()).unlike
    assert "m5.xlarge-2" in sentence
    assert checked(played(some[0]), around()).unlike == ()


WORDS = (
    "apiVersion kind metadata name spec template requirements key operator values nodeClassRef"
    " group names versions served schema openAPIV3Schema properties type items required enum v1"
    " NodePool KWOKNodeClass karpenter.sh/v1 karpenter.sh karpenter.kwok.sh In Exists"
    " nodepools.karpenter.sh nodeclaims.karpenter.sh kwoknodeclasses.karpenter.kwok.sh"
).split()
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(WORDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6)
        | st.fixed_dictionaries({"template": st.fixed_dictionaries({"spec": inner})})
    ),
    max_leaves=25,
)


ODD = {"template": {"spec": {"requirements": [{"key": "kubernetes.io/odd", "operator": []}]}}}


@example(ODD, "spec", True)
@given(ANYTHING, st.sampled_from(("spec", "metadata", "kind")), st.booleans())
def test_whatever_a_node_pool_is_it_is_reported(value: Any, part: str, with_program: bool) -> None:
    there = around()
    there.programs = frozenset({"karpenter"} if with_program else ())
    found = checked(played(nodePools=[{"object": pool() | {part: value}}]), there).findings
    assert all("\n" not in str(each) and len(str(each)) < 2_000 for each in found)


@given(ANYTHING, st.sampled_from(("spec", "metadata", "schema", "kind")))
def test_whatever_a_crd_is_it_is_reported(value: Any, part: str) -> None:
    changed = deepcopy(POOLS)
    if part == "schema":
        changed["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": value}
    else:
        changed[part] = value
    found = checked(played(), around(crds=as_text(changed, CLAIMS, CLASSES))).findings
    assert all("\n" not in str(each) and len(str(each)) < 2_000 for each in found)


def test_a_kind_of_the_same_name_is_of_no_concern() -> None:
    other = crd("example.com", "NodePool", "v1", ANY)
    other["spec"]["names"]["plural"] = "pools"
    other["metadata"]["name"] = "pools.example.com"
    crds = KarpenterCrds.of([*CRDS, other])
    assert crds.path_of(pool("a")) == "/apis/karpenter.sh/v1/nodepools/a"
