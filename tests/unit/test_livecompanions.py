"""What belongs to a real node, made to what belongs to nodes that are copied from it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.companions.desired import (
    CompanionKind,
    CompanionOwner,
    compile_companions,
    digest_of,
)
from kwok_operator.companions.livecompanions import CopiedCompanions, clean_companions
from kwok_operator.nodegroups.api.template import Template
from kwok_operator.nodegroups.naming import longest_name
from tests.fakes.store import Json

NODE = "ip-10-0-0-1.ec2.internal"
DRIVER = "gpu.nvidia.com"
COPYING = Template.model_validate({"from": {"nodes": {"name": NODE, "companions": True}}})
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


def uuid(number: int) -> str:
    return f"{number:08x}-1111-2222-3333-444444444444"


def device(number: int, *, partitioned: bool = False) -> Json:
    attributes = {
        "uuid": {"string": f"GPU-{uuid(number)}"},
        "parentUUID": {"string": f"GPU-{uuid(number // 2)}"},
        "host": {"string": NODE},
        "cudaComputeCapability": {"version": "9.0.0"},
        "index": {"int": number},
    }
    taken = {"counterSet": "gpu-0-counter-set", "counters": {"memory": {"value": "1Gi"}}}
    return {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": "80Gi"}},
        "taints": [{"key": "gpu.nvidia.com/xid", "effect": "NoExecute"}],
        "nodeName": NODE,
        **({"consumesCounters": [taken]} if partitioned else {}),
    }


def published(
    *parts: Json, node: str = NODE, pool: str = NODE, generation: int = 7, count: int | None = None
) -> list[Json]:
    of_pool = {"name": pool, "generation": generation, "resourceSliceCount": count or len(parts)}
    return [
        {
            "metadata": {"name": f"{node}-x{place}", "uid": "u"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": of_pool, **part},
        }
        for place, part in enumerate(parts)
    ]


def made(
    copied: CopiedCompanions, template: Template = COPYING, *, node: str = "web-a1b2-000007"
) -> list[Json]:
    found = compile_companions(template, group="web", copied=copied)
    bodies = [json.loads(each.body(CompanionOwner(node, f"{node:u<36}", "web"))) for each in found]
    for each, body in zip(found, bodies, strict=True):
        assert digest_of(each.kind, body) == each.digest
    return bodies


def copied(slices: list[Json], csi_node: Json | None = None) -> CopiedCompanions:
    return clean_companions(NODE, csi_node=csi_node, slices=slices)


@given(st.integers(1, 200), st.booleans(), st.sampled_from([NODE, "west", f"{NODE}/numa-0"]))
def test_devices_are_all_there_and_nobody_elses(size: int, partitioned: bool, pool: str) -> None:
    counters = [{"name": "gpu-0-counter-set", "counters": {"memory": {"value": "80Gi"}}}]
    devices = [device(number, partitioned=partitioned) for number in range(size)]
    parts: list[Json] = [{"devices": devices[i : i + 50]} for i in range(0, size, 50)]
    parts += [{"sharedCounters": counters}] if partitioned else []
    bodies = made(copied(published(*parts, pool=pool)))
    specs = [body["spec"] for body in bodies]
    found = [each for spec in specs for each in spec.get("devices", ())]
    assert [each["name"] for each in found] == [each["name"] for each in devices]
    for each, was in zip(found, devices, strict=True):
        assert "taints" not in each and "nodeName" not in each
        assert each["capacity"] == was["capacity"]
        assert each.get("consumesCounters") == was.get("consumesCounters")
        assert each["attributes"]["index"] == was["attributes"]["index"]
        assert all(len(a.get("string", "")) <= 64 for a in each["attributes"].values())
    most = 64 if partitioned else 128
    assert all(len(spec.get("devices", ())) <= most for spec in specs)
    assert [each for spec in specs for each in spec.get("sharedCounters", ())] == (
        counters if partitioned else []
    )
    pools = {json.dumps(spec["pool"], sort_keys=True) for spec in specs}
    (of_pool,) = [json.loads(each) for each in pools]
    assert (of_pool["generation"], of_pool["resourceSliceCount"]) == (1, len(specs))
    assert "web-a1b2-000007" in of_pool["name"]
    text = json.dumps(bodies)
    assert NODE not in text and "1111-2222" not in text
    uuids = [each["attributes"]["uuid"]["string"] for each in found]
    assert len(set(uuids)) == size
    parents = [each["attributes"]["parentUUID"]["string"] for each in found]
    assert parents == [uuids[number // 2] for number in range(size)]
    others = made(copied(published(*parts, pool=pool)), node="web-a1b2-000008")
    assert not {b["metadata"]["name"] for b in others} & {b["metadata"]["name"] for b in bodies}
    assert json.dumps(others).count(uuids[0]) == 0


def test_a_csi_node_keeps_what_is_the_drivers() -> None:
    drivers: list[Json] = [
        {
            "name": "ebs.csi.aws.com",
            "nodeID": "i-0123456789",
            "topologyKeys": ["topology.ebs.csi.aws.com/zone"],
            "allocatable": {"count": 25},
        },
        {"name": "pd.csi.storage.gke.io", "nodeID": f"zones/z/instances/{NODE}"},
    ]
    (body,) = made(
        copied([], {"metadata": {"name": NODE}, "spec": {"drivers": drivers}}), node="web-7"
    )
    assert body["kind"] == "CSINode"
    assert body["spec"]["drivers"] == [
        {**drivers[0], "nodeID": "web-7"},
        {**drivers[1], "nodeID": "zones/z/instances/web-7", "topologyKeys": []},
    ]


@given(st.integers(1, 52), st.text("aé", max_size=64))
def test_what_gets_too_long_by_the_names_of_nodes_is_left_out(length: int, text: str) -> None:
    attributes = {"where": {"string": f"{text}/{NODE}"}, "was": {"string": text[:32]}}
    slices = published({"devices": [{"name": "gpu-0", "attributes": attributes}]})
    drivers = [{"name": "a.b", "nodeID": f"{text * 2}/{NODE}"}]
    group = "a" * length
    node = longest_name(group)
    found = compile_companions(
        COPYING, group=group, copied=copied(slices, {"spec": {"drivers": drivers}})
    )
    csi_node, of_driver = (
        json.loads(each.body(CompanionOwner(node, "u", group)))["spec"] for each in found
    )
    whole = f"{text * 2}/{node}"
    (driver,), (device,) = csi_node["drivers"], of_driver["devices"]
    assert driver["nodeID"] == (whole if len(whole.encode()) <= 192 else node)
    where = f"{text}/{node}"
    expected = {"where": {"string": where}} if len(where.encode()) <= 64 else {}
    assert device["attributes"] == expected | {"was": {"string": text[:32]}}


def test_what_is_not_the_nodes_or_not_whole_is_left_out() -> None:
    part: Json = {"devices": [device(0)]}
    for slices in (
        published(part, node="another.ec2.internal"),
        published(part, count=2),
        published({"devices": []}),
        [{"spec": {"driver": "../x", "nodeName": NODE, "pool": {"name": NODE}, **part}}],
    ):
        assert copied(slices).pools == ()
    old = published({"devices": [device(8)]}, generation=6)
    (pool,) = copied([*old, *published(part)]).pools
    assert [each["name"] for each in pool.devices] == ["gpu-0"]


def test_several_pools_of_a_driver_stay_apart() -> None:
    slices = [
        each
        for number, pool in enumerate(("numa-0", "numa-1"))
        for each in published({"devices": [device(number)]}, pool=pool)
    ]
    bodies = made(copied(slices))
    assert len({body["metadata"]["name"] for body in bodies}) == 2
    assert [body["spec"]["pool"] for body in bodies] == [
        {"name": f"web-a1b2-000007/{pool}", "generation": 1, "resourceSliceCount": 1}
        for pool in ("numa-0", "numa-1")
    ]


@given(ANYTHING, st.lists(ANYTHING, max_size=3), ANYTHING)
def test_what_is_odd_does_no_harm(csi_node: Any, slices: list[Any], part: Any) -> None:
    odd = [*slices, *published({"devices": part, "sharedCounters": [part]}), {"spec": part}]
    odd += published({"devices": [{**device(0), "attributes": part}, part]})
    odd += published({"devices": [{**device(0), "attributes": {"a": part}}]}, pool="p")
    made(clean_companions(NODE, csi_node={"spec": {"drivers": [csi_node]}}, slices=odd))


def test_what_the_template_says_holds_instead() -> None:
    found = copied(published({"devices": [device(0)]}), {"spec": {"drivers": [{"name": "a.b"}]}})
    own: Json = {
        "csiNode": {"drivers": [{"name": "own.x"}]},
        "resourceSlices": [{"driver": DRIVER, "devices": [{"name": "own"}]}],
    }
    template = COPYING.model_copy(
        update={"companions": Template.model_validate({"companions": own}).companions}
    )
    csi_node, of_driver = made(found, template)
    assert csi_node["kind"] == CompanionKind.CSI_NODE.kind
    assert [each["name"] for each in csi_node["spec"]["drivers"]] == ["own.x"]
    assert [each["name"] for each in of_driver["spec"]["devices"]] == ["own"]
