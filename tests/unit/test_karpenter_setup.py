"""What groups are to Karpenter: instance types, NodePools, the class of its nodes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.template import resolve
from kwok_operator.rehearsal.karpenter.groups import GroupOffering, offering_of
from kwok_operator.rehearsal.karpenter.instancetypes import as_json, types_of
from kwok_operator.rehearsal.karpenter.nodepools import completed, misfit, pools_of
from kwok_operator.rehearsal.karpenter.setup import KarpenterSetupError, renamed, set_up
from kwok_operator.rehearsal.scenario.karpentertypes import InstanceTypesError, read_types
from tests.fakes.karpenter import pool

NO_GUARD = {"enabled": False}
CAPACITY = "karpenter.sh/capacity-type"
ZONE = "topology.kubernetes.io/zone"
GROUP = "kwok-operator.io/node-group"
SPOT = {"key": CAPACITY, "operator": "In", "values": ["spot"]}


def group(name: str = "a", **spec: Any) -> GroupOffering:
    given = {"autoscaling": {"maxSize": 10}, "price": {"hourly": "0.5"}, "guardTaint": NO_GUARD}
    whole = KwokNodeGroupSpec.model_validate(given | spec)
    return offering_of(name, whole, resolve(whole.template, guard=whole.guard_taint))


def shape(**fields: Any) -> dict[str, Any]:
    return {"shape": {"cpu": 4, "memory": "16Gi", **fields}}


AMOUNTS = st.sampled_from(["1", "500m", "3920m", "0.25", "16", "1e3"])
SIZES = st.sampled_from(["1Gi", "3500Mi", "16Gi", "1e9", "7.5G", "123456789"])


@given(AMOUNTS, SIZES, st.sampled_from([{}, {"nvidia.com/gpu": "4"}]))
def test_a_node_has_the_allocatable_of_its_group(
    cpu: str, memory: str, resources: dict[str, str]
) -> None:
    made = group(template={"shape": {"cpu": cpu, "memory": memory, "resources": resources}})
    (written,) = json.loads(as_json(types_of([made])))
    overhead = {"cpu": parse_quantity("100m"), "memory": parse_quantity("10Mi")}
    left = {
        name: parse_quantity(amount) - overhead.get(name, 0)
        for name, amount in written["resources"].items()
    }
    assert left == {name: parse_quantity(v) for name, v in made.allocatable.items()}


def test_a_node_has_what_its_group_has() -> None:
    labels = {"team": "x", "karpenter.sh/nodepool": "old", CAPACITY: "spot"}
    made = group(template=shape(zone="z", instanceType="m5.xlarge", labels=labels))
    (found,) = types_of([made])
    assert (found.name, found.systems, found.architecture) == ("m5.xlarge", ("linux",), "amd64")
    (offering,) = found.offerings
    assert offering.price == 0.5
    assert {key: offering.labels[key] for key in ("team", ZONE, GROUP, CAPACITY)} == {
        "team": ("x",),
        ZONE: ("z",),
        GROUP: ("a",),
        CAPACITY: ("spot",),
    }
    assert "karpenter.sh/nodepool" not in offering.labels, "Karpenter sets it"


def test_a_node_has_a_zone_without_which_it_is_never_consolidated() -> None:
    (found,) = types_of([group(template=shape())])
    assert [len(each.labels[ZONE]) for each in found.offerings] == [1]


def test_a_type_for_each_shape_and_an_offering_for_each_group() -> None:
    small = [group("a", template=shape(zone="z")), group("b", template=shape(zone="y"))]
    big = group("c", template=shape(cpu=8))
    twin = group("d", template=shape(cpu="16", instanceType="m5"))
    other = group("e", template=shape(cpu="2", instanceType="m5"))
    found = types_of([*small, big, twin, other])
    names = ["4-cpu-16-gi", "8-cpu-16-gi", "m5", "m5-2"]
    assert [each.name for each in found] == names
    assert [len(each.offerings) for each in found] == [2, 1, 1, 1]


def test_machines_of_a_type_that_differ_a_little_are_one_type() -> None:
    def types(a: str, b: str, instance_type: str = "m5") -> list[str]:
        some = [
            group(n, template=shape(memory=memory, instanceType=instance_type))
            for n, memory in (("a", a), ("b", b))
        ]
        found = types_of(some)
        assert [len(each.offerings) for each in found] in ([2], [1, 1])
        return [each.resources["memory"] for each in found]

    assert types("15900Mi", "16000Mi") == types("16000Mi", "15900Mi") == ["15910Mi"]
    assert types("15800Mi", "16000Mi") == ["15810Mi", "16010Mi"]
    a, b = (group(n, template=shape(memory=f"{m}Mi")) for n, m in (("a", 16000), ("b", 15999)))
    assert len(types_of([a, b])) == 2, "they have no instance type"


def test_no_other_type_has_the_name_of_a_groups_instance_type() -> None:
    kinds = [
        ("a", "m5", 4),
        ("b", "m5", 8),
        ("c", "", 2),
        ("d", "m5-2", 4),
        ("e", "2-cpu-16-gi", 4),
    ]
    found = types_of(
        [
            group(n, template=shape(cpu=cpu, **({"instanceType": k} if k else {})))
            for n, k, cpu in kinds
        ]
    )
    assert [each.name for each in found] == ["m5", "m5-3", "2-cpu-16-gi-2", "m5-2", "2-cpu-16-gi"]


def test_a_pool_finds_the_second_type_of_a_name() -> None:
    some = [group(n, template=shape(memory=m, instanceType="m5")) for n, m in ("a1", "b2", "c3")]
    types = types_of(some)
    wanted = [{"key": GROUP, "operator": "In", "values": ["b"]}]
    wanted.append({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5"]})
    made = completed(pool("own", *wanted), types)
    assert misfit(made, types) is None
    assert made["spec"]["template"]["spec"]["requirements"][1]["values"] == ["m5", "m5-2", "m5-3"]
    (caveat,) = renamed(types)
    assert "m5-2 of b, m5-3 of c" in caveat


def test_a_pool_for_each_set_of_taints_with_the_bounds_of_its_groups() -> None:
    gpu = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    groups = [
        group("a", autoscaling={"maxSize": 10, "minSize": 2}),
        group("b", autoscaling={"maxSize": 5}, targetSize=1),
        group("c", template=shape(taints=gpu), autoscaling={}),
    ]
    plain, tainted = pools_of(groups, disruption={"budgets": [{"nodes": "5"}]})
    assert plain["metadata"]["name"] == "default"
    spec = plain["spec"]["template"]["spec"]
    assert spec["requirements"][0] == {"key": GROUP, "operator": "In", "values": ["a", "b"]}
    # Nodes that the groups keep count against their bounds.
    assert plain["spec"]["limits"]["nodes"] == "12"
    assert "limits" not in tainted["spec"], "a group without a bound"
    assert tainted["metadata"]["name"] == "gpu-present"
    assert tainted["spec"]["template"]["spec"]["taints"] == gpu
    # Before 1.14 it must stand beside budgets.
    assert plain["spec"]["disruption"]["consolidateAfter"] == "0s"


def test_names_of_pools_can_be_told_apart() -> None:
    taints = [[{"key": k, "effect": "NoSchedule"}] for k in ("a.b/x_y", "c.d/x_y", "X" * 60)]
    some = [group(f"g{n}", template=shape(taints=each)) for n, each in enumerate(taints)]
    names = [each["metadata"]["name"] for each in pools_of(some)]
    assert names == ["x" * 30, "x-y", "x-y-2"]
    (guarded,) = pools_of([group(guardTaint={})])
    assert guarded["metadata"]["name"] == "default"


@pytest.mark.parametrize(
    "given",
    [
        [],
        [{"key": CAPACITY, "operator": "In", "values": ["spot", "on-demand"]}],
        [{"key": CAPACITY, "operator": "NotIn", "values": ["reserved"]}],
    ],
)
def test_a_users_pool_is_completed(given: list[dict[str, Any]]) -> None:
    made = completed(pool("own", *given), types_of([group()]))
    spec = made["spec"]["template"]["spec"]
    assert spec["nodeClassRef"] == {
        "group": "karpenter.kwok.sh",
        "kind": "KWOKNodeClass",
        "name": "default",
    }
    # Karpenter would replace nodes by spot ones, and its provider crash.
    only = [{"key": CAPACITY, "operator": "In", "values": ["on-demand"]}]
    assert spec["requirements"] == only


@pytest.mark.parametrize(
    ("key", "operator", "values", "fits"),
    [
        (ZONE, "In", ["z", "y"], True),
        (ZONE, "In", ["y"], False),
        (ZONE, "NotIn", ["z"], False),
        (ZONE, "NotIn", ["y"], True),
        (ZONE, "Exists", [], True),
        (ZONE, "DoesNotExist", [], False),
        ("generation", "Gt", ["4"], True),
        ("generation", "Gt", ["5"], False),
        ("generation", "Gte", ["5"], True),
        ("generation", "Lt", ["5"], False),
        # A label that the NodePool itself gives, and ones that a provider would have to know.
        ("example.com/team", "In", ["x"], True),
        ("karpenter.k8s.aws/instance-category", "In", ["m"], False),
        ("karpenter.k8s.aws/instance-category", "NotIn", ["m"], True),
        ("topology.kubernetes.io/region", "Exists", [], False),
        ("karpenter.kwok.sh/instance-cpu", "In", ["4"], True),
    ],
)
def test_which_pools_have_a_type(key: str, operator: str, values: list[str], fits: bool) -> None:
    types = types_of([group(template=shape(zone="z", labels={"generation": "5"}))])
    wanted = pool("own", {"key": key, "operator": operator, "values": values})
    assert (misfit(wanted, types) is None) == fits


def test_no_one_type_has_it_all() -> None:
    types = types_of([group("a", template=shape(zone="z")), group("b", template=shape(cpu=8))])
    both = [{"key": GROUP, "operator": "In", "values": ["b"]}]
    both.append({"key": ZONE, "operator": "In", "values": ["z"]})
    assert misfit(pool("own", *both), types) is not None


@pytest.mark.parametrize(
    ("key", "most"),
    [
        (ZONE, 2),
        ("node.kubernetes.io/instance-type", 3),
        # What only offerings have, the provider doesn't count.
        ("team", 0),
    ],
)
def test_a_pool_may_want_as_many_values_as_the_types_have_that_fit(key: str, most: int) -> None:
    def made(name: str, cpu: int, zone: str) -> GroupOffering:
        return group(name, template=shape(cpu=cpu, zone=zone, labels={"team": name}))

    types = types_of([made("a", 2, "z"), made("b", 4, "y"), made("c", 8, "y"), made("d", 9, "x")])
    fits = {"key": GROUP, "operator": "NotIn", "values": ["d"]}
    for count in range(1, 5):
        wanted = {"key": key, "operator": "Exists", "minValues": count}
        assert (misfit(pool("own", fits, wanted), types) is None) == (count <= most)


def test_what_nothing_takes_off_is_a_caveat() -> None:
    tainted = pool()
    taint = {"key": "agent", "effect": "NoSchedule"}
    tainted["spec"]["template"]["spec"]["startupTaints"] = [taint]
    (caveat,) = set_up({}, types=types_of([group()]), own=[tainted, pool("other")]).caveats
    assert "startupTaints agent of NodePool pool" in caveat


def test_what_karpenter_could_do_nothing_with() -> None:
    types = types_of([group()])
    elsewhere = completed(pool(), types)
    elsewhere["spec"]["template"]["spec"]["nodeClassRef"]["name"] = "other"
    for own in ([], [elsewhere]):
        with pytest.raises(KarpenterSetupError):
            set_up({}, types=types, own=own)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                "name architecture operatingSystems resources offerings Price price Requirements"
                " key operator values cpu memory".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@given(JSON)
def test_any_json_is_refused_in_a_sentence(value: Any) -> None:
    with pytest.raises(InstanceTypesError) as refused:
        read_types(json.dumps(value))
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 1_000


def test_what_is_written_is_read() -> None:
    types = types_of([group("a", template=shape(zone="z")), group("b", template=shape(cpu=8))])
    assert read_types(as_json(types)) == types


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"name": "a/b"}, "[0].name"),
        ({"operatingSystems": []}, "[0].operatingSystems"),
        ({"resources": {"cpu": "50m", "memory": "1Gi"}}, "[0].resources.cpu"),
        ({"resources": {"cpu": "4", "memory": "lots"}}, "[0].resources.memory"),
        ({"resource": {}}, "[0].resource"),
        (
            {"offerings": [{"price": 1, "Requirements": [SPOT], "zone": "a"}]},
            "[0].offerings[0].zone",
        ),
        (
            {"offerings": [{"Price": 1, "Requirements": [SPOT] * 2}]},
            "[0].offerings[0].Requirements",
        ),
        ({"offerings": [{"Price": -1, "Requirements": []}]}, "[0].offerings[0].Price"),
        ({"offerings": [{"Price": 1, "Requirements": []}]}, "[0].offerings[0].Requirements"),
    ],
)
def test_which_field_of_a_file_is_wrong(changed: dict[str, Any], field: str) -> None:
    (value,) = json.loads(as_json(types_of([group()])))
    with pytest.raises(InstanceTypesError) as refused:
        read_types(json.dumps([value | changed]))
    assert str(refused.value).startswith(f"{field}:")
