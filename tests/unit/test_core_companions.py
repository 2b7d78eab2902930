"""What belongs to a node, made from the template alone."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.companions.desired import CompanionOwner, compile_companions, digest_of
from kwok_operator.companions.deviceslices import FIELD
from kwok_operator.errors import TemplateError
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import resolve
from tests.fakes.store import Json

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
KEYS = st.lists(NAMES, unique=True, max_size=3)
DRIVERS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "nodeID": st.text(min_size=1, max_size=20).map(lambda text: f"{text}{{node}}"),
            "topologyKeys": KEYS,
            "allocatable": st.none() | st.fixed_dictionaries({"count": st.integers(0, 1_000_000)}),
        },
    ),
    unique_by=lambda driver: str(driver["name"]),
    max_size=3,
)


def made(companions: Any, node: str = "web-a1b2-000007") -> list[tuple[Any, Json]]:
    found = compile_companions(Template.model_validate({"companions": companions}), group="web")
    return [(each, json.loads(each.body(CompanionOwner(node, "u-1", "web")))) for each in found]


@given(DRIVERS, st.sampled_from(["web-a1b2-000007", "a.b-zzzz-123456"]))
def test_what_was_made_is_recognised(drivers: list[Json], node: str) -> None:
    ((companion, body),) = made({"csiNode": {"drivers": drivers}}, node)
    assert body["metadata"]["name"] == node
    assert {d["name"] for d in body["spec"]["drivers"]} == {d["name"] for d in drivers}
    assert digest_of(companion.kind, body) == companion.digest
    body["spec"]["drivers"].reverse()
    for driver in body["spec"]["drivers"]:
        driver["topologyKeys"] = driver["topologyKeys"] or None  # as the API server returns it
    assert digest_of(companion.kind, body) == companion.digest


@given(DRIVERS.filter(bool))
def test_whatever_is_changed_is_seen(drivers: list[Json]) -> None:
    ((companion, body),) = made({"csiNode": {"drivers": drivers}})
    driver = body["spec"]["drivers"][0]
    for changed in (
        {**driver, "nodeID": "other"},
        {**driver, "topologyKeys": [*driver["topologyKeys"], "zz"]},
        {**driver, "allocatable": {"count": -1}},
        {**driver, "name": "other.example.com"},
    ):
        spec = {"drivers": [changed, *body["spec"]["drivers"][1:]]}
        assert digest_of(companion.kind, {**body, "spec": spec}) != companion.digest
    assert digest_of(companion.kind, {"metadata": body["metadata"]}) != companion.digest


def test_text_is_text() -> None:
    nasty = '"}],"x":[{"{node}{uid}\\'
    ((_, body),) = made({"csiNode": {"drivers": [{"name": "a", "nodeID": nasty}]}}, "n")
    assert body["spec"]["drivers"][0]["nodeID"] == nasty.replace("{node}", "n")
    assert body["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def of(**more: Any) -> Json:
    devices = [{"name": "gpu", "count": 2, "attributes": {"id": {"string": "{node}/{index}"}}}]
    return {"resourceSlices": [{"driver": "gpu.example.com", "devices": devices, **more}]}


@given(st.lists(st.integers(1, 300), min_size=1, max_size=4), st.booleans(), st.integers(0, 20))
def test_no_device_is_lost_or_doubled(counts: list[int], tainted: bool, sets: int) -> None:
    taints = [{"key": "sick", "effect": "NoSchedule"}] if tainted else []
    devices = [{"name": f"d{i}", "count": n, "taints": taints} for i, n in enumerate(counts)]
    counters = {"name": "c", "count": sets, "counters": {"memory": {"value": "1Gi"}}}
    shared = [counters] if sets else []
    specs = [body["spec"] for _, body in made(of(devices=devices, sharedCounters=shared), "n-1")]
    found = [device["name"] for spec in specs for device in spec.get("devices", ())]
    assert found == [f"d{i}-{place}" for i, n in enumerate(counts) for place in range(n)]
    most = 64 if tainted else 128
    assert [len(s["devices"]) for s in specs if "devices" in s][:-1] == [most] * (
        (sum(counts) - 1) // most
    )
    assert sum(len(spec.get("sharedCounters", ())) for spec in specs) == sets
    for spec in specs:
        assert spec["pool"] == {"name": "n-1", "generation": 1, "resourceSliceCount": len(specs)}
        assert spec["nodeName"] == "n-1"
        assert ("devices" in spec) is not ("sharedCounters" in spec)


def test_each_device_has_its_number() -> None:
    ((companion, body),) = made(of(), "n-1")
    values = [device["attributes"]["id"]["string"] for device in body["spec"]["devices"]]
    assert values == ["n-1/0", "n-1/1"]
    body["metadata"]["generation"] = 1
    assert digest_of(companion.kind, body) == companion.digest
    body["metadata"]["generation"] = 2
    assert digest_of(companion.kind, body) != companion.digest


MISTAKES: dict[str, tuple[Json, str]] = {
    "an attribute's name": (
        of(devices=[{"name": "a", "attributes": {"a-b": {"bool": True}}}]),
        "devices[0].attributes",
    ),
    "two values": (
        of(devices=[{"name": "a", "attributes": {"b": {"bool": True, "int": 1}}}]),
        "devices[0].attributes.b",
    ),
    "too many values": (
        of(
            devices=[
                {
                    "name": "a",
                    "attributes": {f"a{i}": {"int": i} for i in range(20)},
                    "capacity": {f"c{i}": {"value": i} for i in range(20)},
                }
            ]
        ),
        "devices[0]",
    ),
    "a name twice": (of(devices=[{"name": "a", "count": 2}, {"name": "a-1"}]), "devices"),
    "too many": (of(devices=[{"name": f"a{i}", "count": 1024} for i in range(3)]), "devices"),
    "a domain with a hole": (
        of(devices=[{"name": "a", "attributes": {"a..b/c": {"bool": True}}}]),
        "devices[0].attributes",
    ),
    "a version of two numbers": (
        of(devices=[{"name": "a", "attributes": {"b": {"version": "12.4"}}}]),
        "devices[0].attributes.b.version",
    ),
    "text too long with the node's name": (
        of(devices=[{"name": "a", "attributes": {"b": {"string": "{node}" * 5}}}]),
        "devices[a].attributes.b.string",
    ),
    "text of too many bytes": (
        of(devices=[{"name": "a", "attributes": {"b": {"string": "\N{SNOWMAN}" * 22}}}]),
        "devices[a].attributes.b.string",
    ),
    "a counter set twice": (
        of(
            sharedCounters=[{"name": "c", "count": 1, "counters": {"m": {"value": 1}}}],
            devices=[
                {
                    "name": "a",
                    "consumesCounters": [
                        {"counterSet": name, "counters": {"m": {"value": 1}}}
                        for name in ("c-0", "c-{index}")
                    ],
                }
            ],
        ),
        "devices[a].consumesCounters",
    ),
    "a counter of none": (
        of(
            devices=[
                {
                    "name": "a",
                    "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": 1}}}],
                }
            ]
        ),
        "devices[a].consumesCounters",
    ),
}


@pytest.mark.parametrize(("spec", "field"), MISTAKES.values())
def test_a_mistake_names_the_field(spec: Json, field: str) -> None:
    with pytest.raises(TemplateError) as caught:
        made(spec)
    assert caught.value.field == f"{FIELD}[gpu.example.com].{field}"
    assert caught.value.remedy


@pytest.mark.parametrize("counters", [{}, {"counters": {}}])
def test_without_counters_it_is_their_entry_that_goes(counters: Json) -> None:
    sets = {"sharedCounters": [{"name": "c", **counters}]}
    taken = {"name": "a", "consumesCounters": [{"counterSet": "c", **counters}]}
    for spec in (of(**sets), of(devices=[taken])):
        with pytest.raises(TemplateError, match="or take out the entry that it is in"):
            made(spec)


def test_what_a_driver_calls_a_node_fits_with_the_nodes_name() -> None:
    with pytest.raises(TemplateError) as caught:
        made({"csiNode": {"drivers": [{"name": "a", "nodeID": "{node}" * 13}]}})
    assert caught.value.field == "spec.template.companions.csiNode.drivers[a].nodeID"
    assert caught.value.remedy


def test_a_text_of_a_shared_pool_fits_with_the_pools_name() -> None:
    """Which is longer than the group's."""
    text = {"string": "{node}" + "x" * (64 - len("web-a1b2"))}
    fits = of(pool="Shared", devices=[{"name": "a", "attributes": {"a": text}}])
    assert made(fits, "web-a1b2")
    text["string"] += "x"
    with pytest.raises(TemplateError):
        made(fits)


def test_what_the_api_server_takes_is_no_mistake() -> None:
    versions = ["12.4.0", "0.0.0", "1.0.0-rc.1", "1.2.3-0a.x-y+001"]
    texts = ["é" * 32, "{node}/{index}", "x" * 28 + "{uid}", "x" * 20 + "{node}"]
    attributes = [{"version": each} for each in versions] + [{"string": each} for each in texts]
    named = {f"dra.example.com/a{place}": each for place, each in enumerate(attributes)}
    assert len(made(of(devices=[{"name": "a", "attributes": named}]), "n-1")) == 1


def of_gpus(**gpu: Any) -> list[Json]:
    template = Template.model_validate({"shape": {"gpu": {"dra": True, **gpu}}})
    owner = CompanionOwner("web-a1b2-000007", "u-1", "web")
    assert "nvidia.com/gpu" not in resolve(template, guard=GuardTaint())["status"]["capacity"]
    return [json.loads(each.body(owner)) for each in compile_companions(template, group="web")]


def test_whole_gpus_are_devices_of_their_node() -> None:
    (body,) = of_gpus(count=8)
    assert body["spec"]["driver"] == "gpu.nvidia.com"
    devices = body["spec"]["devices"]
    assert [each["name"] for each in devices] == [f"gpu-{n}" for n in range(8)]
    uuids = [each["attributes"]["uuid"]["string"] for each in devices]
    assert uuids[3] == "GPU-u-1-3" and len(set(uuids)) == 8
    roots = [each["attributes"]["resource.kubernetes.io/pcieRoot"]["string"] for each in devices]
    assert (roots[0], roots[7], len(set(roots))) == ("pci0000:44", "pci0000:bb", 8)


def test_with_nvlink_a_node_can_be_of_a_domain() -> None:
    gpus, domain = of_gpus(count=8, profile="H100-NVLink")
    assert [gpus["spec"]] == [body["spec"] for body in of_gpus(count=8)]
    assert domain["spec"]["driver"] == "compute-domain.nvidia.com"
    kinds = {each["name"]: each["attributes"]["type"] for each in domain["spec"]["devices"]}
    assert kinds == {"channel-0": {"string": "channel"}, "daemon-0": {"string": "daemon"}}
    assert all(each["attributes"]["id"] == {"int": 0} for each in domain["spec"]["devices"])


def test_a_tray_of_nvl72_publishes_what_the_drivers_do() -> None:
    gpus, domain = of_gpus(count=4, profile="GB200")
    assert (
        domain["spec"]["devices"] == of_gpus(count=8, profile="H100-NVLink")[1]["spec"]["devices"]
    )
    devices = gpus["spec"]["devices"]
    assert {device["capacity"]["memory"]["value"] for device in devices} == {"189471Mi"}
    # nvidia-smi prints 00000018:01:00.0, and the driver leaves out the first four zeros.
    key = "resource.kubernetes.io/pciBusID"
    assert [device["attributes"].pop(key)["string"] for device in devices] == [
        "0008:01:00.0",
        "0009:01:00.0",
        "0018:01:00.0",
        "0019:01:00.0",
    ]
    assert devices[3]["attributes"] == {
        "type": {"string": "gpu"},
        "uuid": {"string": "GPU-u-1-3"},
        "productName": {"string": "NVIDIA GB200"},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Blackwell"},
        "cudaComputeCapability": {"version": "10.0.0"},
        "driverVersion": {"version": "580.173.2"},
        "cudaDriverVersion": {"version": "13.0.0"},
        "addressingMode": {"string": "ATS"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0019:00"},
    }


def fits(devices: list[Json], left: dict[str, dict[str, Fraction]]) -> list[str]:
    """The devices that can be allocated one after the other, each as long as there is one."""
    allocated = []
    for device in devices:
        (taken,) = device["consumesCounters"]
        counters = left[taken["counterSet"]]
        wanted = {key: parse_quantity(each["value"]) for key, each in taken["counters"].items()}
        if all(counters[key] >= value for key, value in wanted.items()):
            counters.update({key: counters[key] - value for key, value in wanted.items()})
            allocated.append(device["name"])
    return allocated


@pytest.mark.parametrize(
    ("profile", "many"),
    [
        ("gpu", 1),
        ("1g.10gb", 7),
        ("1g.10gb+me", 1),
        ("1g.20gb", 4),
        ("2g.20gb", 3),
        ("3g.40gb", 2),
        ("4g.40gb", 1),
        ("7g.80gb", 1),
    ],
)
def test_of_each_partition_as_many_fit_as_the_guide_says(profile: str, many: int) -> None:
    specs = [body["spec"] for body in of_gpus(count=2, profile="H100-MIG")]
    assert {spec["pool"]["resourceSliceCount"] for spec in specs} == {len(specs)}
    devices = [each for spec in specs for each in spec.get("devices", ())]
    sets = [each for spec in specs for each in spec.get("sharedCounters", ())]
    left = {
        each["name"]: {k: parse_quantity(v["value"]) for k, v in each["counters"].items()}
        for each in sets
    }
    of_profile = [
        each
        for each in devices
        if profile == each["attributes"].get("profile", {"string": "gpu"})["string"]
    ]
    found = fits(of_profile, left)
    assert [sum(name.startswith(f"gpu-{n}") for name in found) for n in (0, 1)] == [many, many]
    assert profile == "gpu" or not fits([d for d in devices if d["name"] == "gpu-0"], left)


def test_no_driver_publishes_the_same_twice() -> None:
    slices = [{"driver": "gpu.nvidia.com", "devices": [{"name": "a"}]}]
    template = {
        "shape": {"gpu": {"count": 1, "dra": True}},
        "companions": {"resourceSlices": slices},
    }
    with pytest.raises(TemplateError, match=r"gpu\.nvidia\.com"):
        compile_companions(Template.model_validate(template), group="web")
