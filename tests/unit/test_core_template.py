"""The node that new nodes copy: template.node cleaned, template.shape and the guard taint over it.

- with nothing given: 32 CPU, 256Gi, 110 pods, linux/amd64; what is given takes a default's place
- the shape wins over the node: resources, reserved, gpu, labels, taints, arch, os, zone, type
- a guard taint unless switched off, never twice; taints of one key and effect are merged
- bad and negative quantities, and more reserved than there is, name field and value
- the hash changes when the node does; the source is told in a word

That any JSON at all is a node or a TemplateError is in test_core_template_any.py.
"""

import json
from typing import Any

import pytest

from kwok_operator.core.template import (
    MAX_RESOLVED_BYTES,
    resolve,
    source,
    template_hash,
)
from kwok_operator.errors import TemplateError
from kwok_operator.models.template import GuardTaint, Template
from tests.fakes.rows import each_row

GUARD = GuardTaint()
NO_GUARD = GuardTaint(enabled=False)
GUARD_TAINT = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}


def resolved(
    node: dict[str, Any] | None = None,
    shape: dict[str, Any] | None = None,
    *,
    guard: GuardTaint = GUARD,
) -> dict[str, Any]:
    """The resolved node, as it comes out of JSON."""
    template = Template.model_validate({"node": node, "shape": shape})
    answer = json.loads(json.dumps(resolve(template, guard=guard)))
    assert isinstance(answer, dict)
    return answer


def resources(node: dict[str, Any] | None, shape: dict[str, Any] | None) -> tuple[Any, Any]:
    status = resolved(node, shape)["status"]
    return status["capacity"], status["allocatable"]


def labels(node: dict[str, Any] | None, shape: dict[str, Any] | None) -> dict[str, Any]:
    answer = resolved(node, shape)["metadata"]["labels"]
    assert isinstance(answer, dict)
    return answer


def test_with_nothing_given_a_node_is_what_kwokctl_makes() -> None:
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    assert resolved() == {
        "metadata": {
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            },
            "annotations": {},
        },
        "spec": {"taints": [GUARD_TAINT]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": "fake",
                "containerRuntimeVersion": "fake",
                "kernelVersion": "fake",
                "kubeProxyVersion": "fake",
            },
        },
    }


class TestResources:
    def test_a_default_fills_only_what_nobody_gave(self) -> None:
        node = {"status": {"capacity": {"cpu": "4", "example.com/fpga": "2"}}}
        whole = {"cpu": "4", "memory": "256Gi", "pods": "110", "example.com/fpga": "2"}
        assert resources(node, None) == (whole, whole)

    def test_a_node_that_is_only_part_allocatable_keeps_the_difference(self) -> None:
        node = {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3920m"}}}
        capacity, allocatable = resources(node, None)
        assert (capacity["cpu"], allocatable["cpu"]) == ("4", "3920m")

    def test_what_is_only_allocatable_is_the_capacity_too(self) -> None:
        capacity, allocatable = resources({"status": {"allocatable": {"cpu": "3"}}}, None)
        assert (capacity["cpu"], allocatable["cpu"]) == ("3", "3")

    def test_the_shape_wins_over_both_amounts_of_the_node(self) -> None:
        node = {
            "status": {
                "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
                "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "58"},
            }
        }
        shape = {"cpu": 8, "memory": "32Gi", "ephemeralStorage": "100Gi", "maxPods": 250}
        want = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "250"}
        assert resources(node, shape) == (want, want)

    def test_a_shape_of_zero_is_something_given(self) -> None:
        capacity, _ = resources({"status": {"capacity": {"pods": "58"}}}, {"maxPods": 0})
        assert capacity["pods"] == "0"

    def test_gpus_and_further_resources_are_added_to_those_of_the_node(self) -> None:
        node = {"status": {"capacity": {"example.com/fpga": "1", "example.com/nic": "4"}}}
        shape = {
            "gpu": {"count": 8},
            "resources": {"example.com/fpga": 2, "hugepages-2Mi": "1Gi"},
        }
        capacity, allocatable = resources(node, shape)
        assert capacity == allocatable
        assert capacity["nvidia.com/gpu"] == "8"
        assert (capacity["example.com/fpga"], capacity["example.com/nic"]) == ("2", "4")
        assert capacity["hugepages-2Mi"] == "1Gi"

    def test_a_gpu_of_another_make(self) -> None:
        capacity, _ = resources(None, {"gpu": {"type": "amd.com/gpu", "count": 1}})
        assert capacity["amd.com/gpu"] == "1"
        assert "nvidia.com/gpu" not in capacity

    def test_what_is_reserved_is_capacity_that_pods_do_not_get(self) -> None:
        reserved = {"cpu": "500m", "memory": "2Gi", "ephemeralStorage": "10Gi"}
        shape = {"cpu": 4, "memory": "16Gi", "ephemeralStorage": "100Gi", "reserved": reserved}
        capacity, allocatable = resources(None, shape)
        assert capacity == {
            "cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "110"
        }  # fmt: skip
        assert allocatable == {
            "cpu": "3500m", "memory": "14Gi", "ephemeral-storage": "90Gi", "pods": "110"
        }  # fmt: skip

    def test_reserved_takes_from_the_nodes_capacity_and_from_the_defaults(self) -> None:
        node = {"status": {"capacity": {"cpu": 4}, "allocatable": {"cpu": "3920m"}}}
        _, allocatable = resources(node, {"reserved": {"cpu": 1, "memory": "6Gi"}})
        assert (allocatable["cpu"], allocatable["memory"]) == ("3", "250Gi")

    def test_all_of_it_may_be_reserved(self) -> None:
        _, allocatable = resources(None, {"cpu": 4, "reserved": {"cpu": "4000m"}})
        assert allocatable["cpu"] == "0"

    def test_nothing_reserved_of_what_a_node_does_not_have_is_nothing(self) -> None:
        capacity, allocatable = resources(None, {"reserved": {"ephemeralStorage": "0"}})
        assert "ephemeral-storage" not in capacity
        assert "ephemeral-storage" not in allocatable

    @pytest.mark.parametrize(
        ("shape", "field", "value"),
        [
            ({"cpu": 1, "reserved": {"cpu": "1001m"}}, "cpu", "1001m"),
            ({"reserved": {"cpu": 33}}, "cpu", "33"),
            ({"reserved": {"memory": "257Gi"}}, "memory", "257Gi"),
            ({"reserved": {"ephemeralStorage": "1Gi"}}, "ephemeralStorage", "1Gi"),
        ],
    )
    def test_more_reserved_than_there_is_names_field_and_value(
        self, shape: dict[str, Any], field: str, value: str
    ) -> None:
        with pytest.raises(TemplateError, match="more than the capacity") as refused:
            resolved(None, shape)
        assert refused.value.field == f"spec.template.shape.reserved.{field}"
        assert refused.value.value == value
        assert refused.value.remedy

    @each_row("where", ["capacity", "allocatable"])
    @each_row(
        "value problem",
        [
            ("10Gib", "is not a quantity"),
            ("", "is not a quantity"),
            ("-1", "must not be negative"),
            (-1, "must not be negative"),
            (True, "is not a number or a string"),
            (None, "is not a number or a string"),
            ({}, "is not a number or a string"),
        ],
    )
    def test_a_bad_quantity_names_field_and_value(
        self, where: str, value: object, problem: str
    ) -> None:
        with pytest.raises(TemplateError, match=problem) as refused:
            resolved({"status": {where: {"memory": value}}})
        assert refused.value.field == f"spec.template.node.status.{where}.memory"
        assert refused.value.value == value

    @pytest.mark.parametrize(
        ("shape", "field"),
        [
            ({"cpu": "1e100"}, "cpu"),
            ({"ephemeralStorage": "1e100"}, "ephemeralStorage"),
            ({"resources": {"example.com/fpga": "1e100"}}, "resources.example.com/fpga"),
            ({"reserved": {"ephemeralStorage": "1e100"}}, "reserved.ephemeralStorage"),
        ],
    )
    def test_a_bad_quantity_of_the_shape_has_the_name_that_users_wrote(
        self, shape: dict[str, Any], field: str
    ) -> None:
        # The schema lets exponents through that are beyond reason.
        with pytest.raises(TemplateError) as refused:
            resolved(None, shape)
        assert refused.value.field == f"spec.template.shape.{field}"

    @pytest.mark.parametrize("where", ["capacity", "allocatable"])
    def test_resources_that_are_no_object_are_an_error(self, where: str) -> None:
        with pytest.raises(TemplateError) as refused:
            resolved({"status": {where: [{"cpu": "4"}]}})
        assert refused.value.field == f"spec.template.node.status.{where}"

    def test_quantities_beyond_all_machines_are_reckoned_with(self) -> None:
        shape = {"memory": "9" * 29 + "Gi", "reserved": {"memory": "1Gi"}}
        _, allocatable = resources(None, shape)
        assert allocatable["memory"] == "9" * 28 + "8Gi"


class TestLabels:
    def test_arch_and_os_are_label_and_node_info_alike(self) -> None:
        node = resolved(None, {"arch": "arm64", "os": "windows"})
        assert (
            node["metadata"]["labels"].items()
            >= {
                "kubernetes.io/arch": "arm64",
                "kubernetes.io/os": "windows",
            }.items()
        )
        info = node["status"]["nodeInfo"]
        assert (info["architecture"], info["operatingSystem"]) == ("arm64", "windows")

    @pytest.mark.parametrize(
        "node",
        [
            {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}},
            {"status": {"nodeInfo": {"architecture": "arm64"}}},
            {
                "metadata": {"labels": {"kubernetes.io/arch": "arm64"}},
                "status": {"nodeInfo": {"architecture": "s390x"}},
            },
        ],
        ids=["label", "node-info", "label-first"],
    )
    def test_an_arch_of_the_node_is_taken_over(self, node: dict[str, Any]) -> None:
        answer = resolved(node)
        assert answer["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
        assert answer["status"]["nodeInfo"]["architecture"] == "arm64"

    def test_the_shape_wins_over_the_nodes_labels(self) -> None:
        node = {
            "metadata": {
                "labels": {
                    "kubernetes.io/arch": "amd64",
                    "topology.kubernetes.io/zone": "a",
                    "node.kubernetes.io/instance-type": "small",
                    "example.com/pool": "a",
                    "example.com/kept": "yes",
                }
            }
        }
        shape = {
            "arch": "arm64",
            "zone": "b",
            "instanceType": "large",
            "labels": {"example.com/pool": "b", "example.com/empty": ""},
        }
        assert labels(node, shape) == {
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": "b",
            "node.kubernetes.io/instance-type": "large",
            "example.com/pool": "b",
            "example.com/kept": "yes",
            "example.com/empty": "",
            "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        }

    def test_a_field_of_the_shape_wins_over_its_label_in_the_shape(self) -> None:
        shape = {"zone": "b", "labels": {"topology.kubernetes.io/zone": "a"}}
        assert labels(None, shape)["topology.kubernetes.io/zone"] == "b"

    def test_without_a_zone_there_is_no_label_for_one(self) -> None:
        assert "topology.kubernetes.io/zone" not in labels(None, {"cpu": 1})

    @pytest.mark.parametrize("value", ["", "false"])
    def test_no_load_balancer_ever_sends_traffic_there(self, value: str) -> None:
        key = "node.kubernetes.io/exclude-from-external-load-balancers"
        assert labels({"metadata": {"labels": {key: value}}}, None)[key] == "true"
        assert labels(None, {"labels": {key: value}})[key] == "true"

    def test_the_kubelet_is_fake_whatever_was_pasted(self) -> None:
        node = resolved({"status": {"nodeInfo": {"kubeletVersion": "v1.34.2"}}})
        assert node["status"]["nodeInfo"]["kubeletVersion"] == "fake"

    def test_other_versions_are_fake_only_where_there_are_none(self) -> None:
        # As kwok has it: nodes that it initialises and nodes that are born Ready are then alike.
        node = resolved(
            {"status": {"nodeInfo": {"kernelVersion": "6.8.0", "kubeProxyVersion": ""}}}
        )
        info = node["status"]["nodeInfo"]
        assert info["kernelVersion"] == "6.8.0"
        assert (info["kubeProxyVersion"], info["containerRuntimeVersion"]) == ("fake", "fake")


class TestTaints:
    def taints(self, node: Any, shape: Any, guard: GuardTaint = GUARD) -> list[dict[str, Any]]:
        answer = resolved(node, shape, guard=guard)["spec"]["taints"]
        assert isinstance(answer, list)
        return answer

    def test_the_guard_can_be_another_taint(self) -> None:
        guard = GuardTaint.model_validate({"key": "fake", "value": "", "effect": "NoExecute"})
        (taint,) = self.taints(None, None, guard)
        assert (taint["key"], taint.get("value", ""), taint["effect"]) == ("fake", "", "NoExecute")

    def test_the_guard_can_be_switched_off(self) -> None:
        assert self.taints(None, None, NO_GUARD) == []

    def test_node_then_shape_then_guard(self) -> None:
        node = {"spec": {"taints": [{"key": "a", "value": "1", "effect": "NoSchedule"}]}}
        shape = {"taints": [{"key": "b", "effect": "NoExecute"}]}
        assert self.taints(node, shape) == [
            {"key": "a", "value": "1", "effect": "NoSchedule"},
            {"key": "b", "effect": "NoExecute"},
            GUARD_TAINT,
        ]

    @pytest.mark.parametrize("value", ["true", "false", None])
    def test_the_guard_is_never_there_twice(self, value: str | None) -> None:
        # A node that is copied from a fake one has it already.
        taint = {"key": "kwok-provider", "effect": "NoSchedule"} | (
            {"value": value} if value else {}
        )
        assert self.taints({"spec": {"taints": [taint]}}, None) == [GUARD_TAINT]
        assert self.taints(None, {"taints": [taint]}) == [GUARD_TAINT]

    def test_a_taint_of_the_guards_key_and_another_effect_stays(self) -> None:
        taint = {"key": "kwok-provider", "value": "true", "effect": "NoExecute"}
        assert self.taints(None, {"taints": [taint]}) == [taint, GUARD_TAINT]

    def test_a_taint_of_the_shape_takes_the_place_of_the_nodes(self) -> None:
        node = {"spec": {"taints": [{"key": "pool", "value": "a", "effect": "NoSchedule"}]}}
        shape = {"taints": [{"key": "pool", "value": "b", "effect": "NoSchedule"}]}
        assert self.taints(node, shape, NO_GUARD) == shape["taints"]


def test_a_node_that_is_too_large_for_status_is_refused() -> None:
    annotations = {"example.com/large": "x" * MAX_RESOLVED_BYTES}
    with pytest.raises(TemplateError, match="are too many") as refused:
        resolved({"metadata": {"annotations": annotations}})
    assert refused.value.field == "spec.template"
    assert refused.value.remedy


def test_the_hash_does_not_depend_on_the_order_of_fields() -> None:
    one = resolved({"metadata": {"labels": {"a": "1", "b": "2"}}})
    other = resolved({"metadata": {"labels": {"b": "2", "a": "1"}}})
    assert template_hash(one) == template_hash(other)


def test_the_hash_of_a_node_never_changes() -> None:
    # Nodes carry it: with another one, all that exist would count as made from an old template.
    assert template_hash({"metadata": {"labels": {"a": "b"}}, "spec": {}}) == "1a0d001bc7"


@pytest.mark.parametrize(
    "shape",
    [{"cpu": 33}, {"labels": {"a": "b"}}, {"taints": [{"key": "a", "effect": "NoSchedule"}]}],
)
def test_the_hash_changes_with_the_node(shape: dict[str, Any]) -> None:
    assert template_hash(resolved(None, shape)) != template_hash(resolved())
    assert template_hash(resolved(guard=NO_GUARD)) != template_hash(resolved())


@each_row(
    "template word",
    [
        ({}, "Default"),
        ({"node": {}, "shape": {}}, "Default"),
        ({"node": {"metadata": {}}}, "Node"),
        ({"shape": {"cpu": 1}}, "Shape"),
        ({"node": {"kind": "Node"}, "shape": {"cpu": 1}}, "Node+Shape"),
    ],
)
def test_where_the_node_comes_from_is_told_in_a_word(template: dict[str, Any], word: str) -> None:
    assert source(Template.model_validate(template)) == word
