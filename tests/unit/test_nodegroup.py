"""The spec of a group as Python sees it."""

import re
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kwok_operator.cloud.api.capacitypool import KwokCapacityPoolSpec
from kwok_operator.constants import MAX_NODES_TO_DELETE, POOL_KIND
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE, Autoscaling
from kwok_operator.nodegroups.api.nodegroup import (
    DeletedNodePods,
    KwokNodeGroupSpec,
    ScaleDownOrder,
)
from kwok_operator.nodegroups.api.template import Shape, TaintEffect
from tests import cloudmanifests, manifests

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def spec_of(value: Any) -> KwokNodeGroupSpec:
    return KwokNodeGroupSpec.model_validate(value)


@pytest.mark.parametrize(
    "value",
    [
        {},
        None,
        MappingProxyType({"paused": None}),
        {"template": None, "scaleDown": None, "guardTaint": None, "autoscaling": None},
        {"template": {"node": None, "shape": {"reserved": None, "taints": None}}},
        {"aFieldOfTomorrow": {"x": 1}},
    ],
)
def test_nothing_said_gives_defaults(value: Any) -> None:
    spec = spec_of(value)
    assert spec == KwokNodeGroupSpec()
    assert spec.target_size is None
    assert spec.paused is False
    assert spec.template.node == {}
    assert spec.template.shape == Shape()
    assert spec.autoscaling is None
    assert spec.guard_taint.dump() == {
        "enabled": True,
        "key": "kwok-provider",
        "value": "true",
        "effect": "NoSchedule",
    }
    assert spec.scale_down.order is ScaleDownOrder.NEWEST_FIRST
    assert spec.scale_down.pods is DeletedNodePods.LEAVE
    assert spec.scale_down.nodes_to_delete == frozenset()


def test_an_empty_autoscaling_is_not_an_absent_one() -> None:
    assert spec_of({"autoscaling": {}}).autoscaling == Autoscaling(min_size=0, max_size=None)


def test_every_field_is_read() -> None:
    given: dict[str, Any] = {
        "targetSize": 20,
        "paused": True,
        "template": {
            "node": {"metadata": {"labels": {"tier": "batch"}}},
            "shape": {
                "reserved": {"cpu": "500m", "memory": "2Gi", "ephemeralStorage": "1Gi"},
                "gpu": {"type": "nvidia.com/gpu", "count": 8, "dra": True, "profile": "H100"},
                "resources": {"example.com/fpga": "2"},
                "labels": {"example.com/pool": ""},
                "taints": [{"key": "gpu", "value": "", "effect": "NoExecute"}],
            }
            | {"cpu": "8", "memory": "32Gi", "ephemeralStorage": "100Gi", "maxPods": 58}
            | {"arch": "arm64", "os": "linux", "zone": "eu-west-1b", "instanceType": "p4d"},
            "keepImages": True,
            "bornReady": False,
        },
        "guardTaint": {"enabled": False, "key": "k", "value": "", "effect": "NoExecute"},
        "scaleDown": {"order": "OldestFirst", "nodesToDelete": ["b", "a", "b"], "pods": "Delete"},
        "autoscaling": {"minSize": 1, "maxSize": 200, "gpuTypes": ["k80"]},
    }
    dumped = spec_of(given).dump()
    dumped["scaleDown"]["nodesToDelete"].sort()
    given["scaleDown"]["nodesToDelete"] = ["a", "b"]
    assert {key: dumped[key] for key in given} == given


READABLE = """
    name too long, upper-case name, label that is a number, label value, unknown field,
    unknown field inside, unknown option, unknown part of a cloud, unknown kind of delay,
    unknown part of a pool, pool with an upper-case name,
    target that is text, paused that is text, flag that is text, outage that is text,
    instances that are text, outage of a pool,
    target above the bound, bounds that cross, reserved above capacity, reserved memory,
    reserved disk, no range, a prefix with a nought, IPv4 as IPv6,
    range from its middle, nodes from a middle, two addresses,
    units out without a topology, units out of another domain, units out as batch,
    units out as batch-0-4, units out as batch-00, units out as batch-0-0-0, units out as pool-0,
    units out as batch-, units out as batchx-0,
    blocks above the range, blocks below an address, hostname label, group label, key of a label,
    native resource, gpu twice,
    devices of another's GPU, profile of no devices, 65 GPUs as devices,
    taint twice, no source, no node, two ways to a node, In without values, Exists with values,
    delay without a kind, two kinds of delay, uniform upside down, lognormal upside down,
    lognormal of nothing, failure of nobody, never ready; and nobody, late twice,
    two kinds of interruption, a device's attribute with two values, name of a resource,
    resource without a name,
    a level by hostname, a level that is a label, a level twice, a level twice in one,
    a level with a label of ours, a level's second label twice, a unit of another level,
    a unit that is no level, an unknown short form, levels that multiply to too much
"""
"""What the API server alone refuses: names, unknown fields, text for numbers, rules over fields."""


@pytest.mark.parametrize(("name", "manifest"), [*(manifests.GOOD | cloudmanifests.GOOD).items()])
def test_the_models_read_what_the_api_server_takes(name: str, manifest: Any) -> None:
    model = KwokCapacityPoolSpec if manifest["kind"] == POOL_KIND else KwokNodeGroupSpec
    model.model_validate(manifest.get("spec"))


def test_the_models_refuse_what_one_field_says_wrong() -> None:
    """What several fields say together may be stored: bounds can be moved past a target."""
    read = set()
    for name, (manifest, _) in {**manifests.BAD, **cloudmanifests.BAD}.items():
        model = KwokCapacityPoolSpec if manifest["kind"] == POOL_KIND else KwokNodeGroupSpec
        with suppress(ValidationError):
            model.model_validate(manifest["spec"])
            read.add(name.replace(",", ";"))
    assert read == {" ".join(name.split()) for name in READABLE.split(",")}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("scaleDown.nodesToDelete", [f"n{i}" for i in range(MAX_NODES_TO_DELETE + 1)]),
        ("scaleDown.nodesToDelete", ["n" * 64]),
        ("template.shape.cpu", True),
        ("template.shape.maxPods", -1),
        ("template.shape.zone", "-a"),
    ],
)
def test_the_place_of_what_is_refused_is_told(path: str, value: Any) -> None:
    for field in reversed(path.split(".")):
        value = {field: value}
    with pytest.raises(ValidationError) as refused:
        spec_of(value)
    assert refused.value.errors()[0]["loc"][: path.count(".") + 1] == tuple(path.split("."))


@pytest.mark.parametrize(
    "text", ["8", "+8", "500m", "0.5", ".5", "5.", "32Gi", "1e3", "2E-3", "12E", "0"]
)
def test_quantities_of_all_kinds_are_taken_as_they_are(text: str) -> None:
    assert Shape(cpu=text).cpu == text


@given(number=st.integers(min_value=0, max_value=2**63 - 1))
def test_a_quantity_is_text_however_it_was_written(number: int) -> None:
    assert Shape.model_validate({"cpu": number}) == Shape.model_validate({"cpu": str(number)})


@given(node=st.dictionaries(st.text(max_size=8), _JSON, max_size=4))
def test_a_node_is_kept_as_it_is(node: dict[str, Any]) -> None:
    spec = spec_of({"template": {"node": node}})
    assert spec.template.node == node
    assert spec.dump()["template"]["node"] == node


@given(
    target=st.none() | st.integers(0, MAX_TARGET_SIZE),
    bounds=st.none() | st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)),
    names=st.frozensets(st.from_regex(r"[a-z]{1,63}", fullmatch=True), max_size=4),
    labels=st.dictionaries(
        st.text(min_size=1, max_size=9), st.from_regex(r"[a-z0-9]{0,63}", fullmatch=True)
    ),
    effect=st.sampled_from(TaintEffect),
)
def test_a_spec_survives_the_way_out_and_in(
    target: int | None,
    bounds: tuple[int, int | None] | None,
    names: frozenset[str],
    labels: dict[str, str],
    effect: TaintEffect,
) -> None:
    spec = spec_of(
        {
            "targetSize": target,
            "autoscaling": bounds and {"minSize": bounds[0], "maxSize": bounds[1]},
            "scaleDown": {"nodesToDelete": list(names)},
            "template": {"shape": {"labels": labels, "taints": [{"key": "k", "effect": effect}]}},
        }
    )
    assert spec.target_size == target
    assert spec_of(spec.dump()) == spec
    assert all(re.fullmatch(r"[a-z][A-Za-z]*", key) for key in spec.dump())


def test_a_spec_can_be_made_in_snake_case() -> None:
    assert KwokNodeGroupSpec(target_size=3) == spec_of({"targetSize": 3})


def test_a_spec_can_not_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        KwokNodeGroupSpec().target_size = 3
