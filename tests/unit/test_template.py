"""The node that new nodes copy: template.node cleaned, template.shape and the guard taint over it.

That any JSON at all is a node or a TemplateError is in test_template_any.py.
"""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import TemplateError
from kwok_operator.formats.yamltext import is_text_without_quotes
from kwok_operator.nodegroups.api.template import GuardTaint, Template
from kwok_operator.nodegroups.template import MAX_RESOLVED_BYTES, resolve, template_hash

GUARD = GuardTaint()
NO_GUARD = GuardTaint(enabled=False)
GUARD_TAINT = {"key": "kwok-provider", "value": "true", "effect": "NoSchedule"}


STATES = (
    "not-ready unreachable unschedulable network-unavailable memory-pressure disk-pressure"
    " pid-pressure"
).split()


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


MACHINE = {
    "status": {
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58", "example.com/nic": "4"},
        "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "58", "example.com/nic": "4"},
    }
}
RESERVED = {"cpu": "500m", "memory": "2Gi", "ephemeralStorage": "10Gi"}


class TestResources:
    @pytest.mark.parametrize(
        ("node", "shape", "expected"),
        [
            # Each with what there is and what pods get of it.
            ({"status": {"capacity": {"cpu": "4"}}}, {}, {"cpu": ("4", "4"), "pods": ("110",) * 2}),
            ({"status": {"allocatable": {"cpu": "3"}}}, {}, {"cpu": ("3", "3")}),
            (MACHINE, {}, {"cpu": ("4", "3920m"), "memory": ("16Gi", "15Gi"), "pods": ("58",) * 2}),
            (MACHINE, {"cpu": 8}, {"cpu": ("8", "8"), "memory": ("16Gi", "15Gi")}),
            (MACHINE, {"maxPods": 0}, {"pods": ("0", "0")}),
            (MACHINE, {"resources": {"example.com/nic": 2}}, {"example.com/nic": ("2", "2")}),
            (MACHINE, {"gpu": {"count": 8}}, {"nvidia.com/gpu": ("8",) * 2, "cpu": ("4", "3920m")}),
            (MACHINE, {"reserved": {"cpu": 1}}, {"cpu": ("4", "3"), "memory": ("16Gi", "15Gi")}),
            (
                {},
                {"cpu": 4, "memory": "16Gi", "ephemeralStorage": "100Gi", "reserved": RESERVED},
                {
                    "cpu": ("4", "3500m"),
                    "memory": ("16Gi", "14Gi"),
                    "ephemeral-storage": ("100Gi", "90Gi"),
                    "pods": ("110", "110"),
                },
            ),
            ({}, {"reserved": {"memory": "6Gi"}}, {"memory": ("256Gi", "250Gi")}),
            ({}, {"cpu": 4, "reserved": {"cpu": "4000m"}}, {"cpu": ("4", "0")}),
            (
                {},
                {"gpu": {"type": "amd.com/gpu", "count": 1}, "resources": {"hugepages-2Mi": "1Gi"}},
                {"amd.com/gpu": ("1", "1"), "hugepages-2Mi": ("1Gi", "1Gi")},
            ),
            # Beyond all machines, and reckoned with.
            (
                {},
                {"memory": "9" * 29 + "Gi", "reserved": {"memory": "1Gi"}},
                {"memory": ("9" * 29 + "Gi", "9" * 28 + "8Gi")},
            ),
        ],
    )
    def test_the_shape_goes_over_the_node_and_that_over_the_defaults(
        self, node: dict[str, Any], shape: dict[str, Any], expected: dict[str, Any]
    ) -> None:
        capacity, allocatable = resources(node, shape)
        assert {name: (capacity[name], allocatable[name]) for name in expected} == expected
        assert capacity.keys() == allocatable.keys()

    def test_what_a_node_does_not_have_is_not_there(self) -> None:
        capacity, _ = resources(None, {"gpu": {"type": "amd.com/gpu", "count": 1}})
        assert "nvidia.com/gpu" not in capacity
        for amounts in resources(None, {"reserved": {"ephemeralStorage": "0"}}):
            assert "ephemeral-storage" not in amounts

    @pytest.mark.parametrize(
        ("shape", "field", "value"),
        [
            ({"cpu": 1, "reserved": {"cpu": "1001m"}}, "cpu", "1001m"),
            ({"reserved": {"cpu": 33}}, "cpu", "33"),
            ({"reserved": {"memory": "257Gi"}}, "memory", "257Gi"),
            ({"reserved": {"ephemeralStorage": "1Gi"}}, "ephemeralStorage", "1Gi"),
        ],
    )
    def test_too_much_reserved(self, shape: dict[str, Any], field: str, value: str) -> None:
        with pytest.raises(TemplateError, match="more than the capacity") as refused:
            resolved(None, shape)
        assert refused.value.field == f"spec.template.shape.reserved.{field}"
        assert refused.value.value == value
        assert refused.value.remedy

    @pytest.mark.parametrize("where", ["capacity", "allocatable"])
    @pytest.mark.parametrize(
        ("value", "problem"),
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
    def test_a_bad_quantity_of_the_node(self, where: str, value: object, problem: str) -> None:
        with pytest.raises(TemplateError, match=problem) as refused:
            resolved({"status": {where: {"memory": value}}})
        assert refused.value.field == f"spec.template.node.status.{where}.memory"
        assert refused.value.value == value
        with pytest.raises(TemplateError) as refused:
            resolved({"status": {where: [{"cpu": "4"}]}})
        assert refused.value.field == f"spec.template.node.status.{where}"

    @pytest.mark.parametrize(
        ("shape", "field"),
        [
            ({"cpu": "1e100"}, "cpu"),
            ({"ephemeralStorage": "1e100"}, "ephemeralStorage"),
            ({"resources": {"example.com/fpga": "1e100"}}, "resources.example.com/fpga"),
            ({"reserved": {"ephemeralStorage": "1e100"}}, "reserved.ephemeralStorage"),
        ],
    )
    def test_a_bad_quantity_of_the_shape(self, shape: dict[str, Any], field: str) -> None:
        # The schema lets exponents through that are beyond reason.
        with pytest.raises(TemplateError) as refused:
            resolved(None, shape)
        assert refused.value.field == f"spec.template.shape.{field}"


class TestLabels:
    @pytest.mark.parametrize(
        ("node", "shape"),
        [
            ({}, {"arch": "arm64"}),
            ({"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}}, {}),
            ({"status": {"nodeInfo": {"architecture": "arm64"}}}, {}),
            (
                {
                    "metadata": {"labels": {"kubernetes.io/arch": "arm64"}},
                    "status": {"nodeInfo": {"architecture": "s390x"}},
                },
                {"os": "linux"},
            ),
        ],
    )
    def test_arch_and_os_are_in_both(self, node: dict[str, Any], shape: dict[str, Any]) -> None:
        answer = resolved(node, {"os": "windows", **shape})
        labels, info = answer["metadata"]["labels"], answer["status"]["nodeInfo"]
        assert labels["kubernetes.io/arch"] == info["architecture"] == "arm64"
        wanted = shape.get("os", "windows")
        assert labels["kubernetes.io/os"] == info["operatingSystem"] == wanted

    def test_the_shape_wins_over_the_nodes_labels(self) -> None:
        arch, zone = "kubernetes.io/arch", "topology.kubernetes.io/zone"
        kind, pool = "node.kubernetes.io/instance-type", "example.com/pool"
        own = {arch: "amd64", zone: "a", kind: "small", pool: "a", "example.com/kept": "yes"}
        assert zone not in labels(None, {"cpu": 1})
        shape = {
            "arch": "arm64",
            "zone": "b",
            "instanceType": "large",
            "labels": {pool: "b", "example.com/empty": "", zone: "x"},
        }
        assert labels({"metadata": {"labels": own}}, shape) == {
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/exclude-from-external-load-balancers": "true",
        } | {arch: "arm64", zone: "b", kind: "large", pool: "b"} | {
            "example.com/kept": "yes",
            "example.com/empty": "",
        }

    def test_no_load_balancer_ever_sends_traffic_there(self) -> None:
        key = "node.kubernetes.io/exclude-from-external-load-balancers"
        for value in ("", "false"):
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

    @pytest.mark.parametrize(
        "value",
        [
            *("6.1", "2024-02-30", "!!float ''", "[" * 3_000, "a: b", "*x", "yes", "1_0", "0x1F"),
            *("{a: &a [x], b: [*a, *a]}", "1e5", " six", "six\nseven", "1:30", "-", "~"),
        ],
    )
    def test_what_is_no_text_without_quotes_is_refused(self, value: str) -> None:
        with pytest.raises(TemplateError) as refused:
            resolved({"status": {"nodeInfo": {"kernelVersion": value}}})
        assert refused.value.field == "spec.template.node.status.nodeInfo.kernelVersion"

    @given(st.text("0123456789.-+:_ eExab#~ny/[]{}&*!|>'\"%@`,?=<", max_size=8))
    def test_what_is_taken_is_the_same_without_quotes(self, value: str) -> None:
        if is_text_without_quotes(value):
            assert yaml.safe_load(f"key: {value}") == {"key": value}


class TestTaints:
    def taints(self, node: Any, shape: Any, guard: GuardTaint = GUARD) -> list[dict[str, Any]]:
        answer = resolved(node, shape, guard=guard)["spec"]["taints"]
        assert isinstance(answer, list)
        return answer

    def test_the_guard_can_be_another_taint(self) -> None:
        guard = GuardTaint.model_validate({"key": "fake", "value": "", "effect": "NoExecute"})
        (taint,) = self.taints(None, None, guard)
        assert (taint["key"], taint.get("value", ""), taint["effect"]) == ("fake", "", "NoExecute")

    @pytest.mark.parametrize("state", sorted(STATES))
    def test_none_can_be_of_those_that_kubernetes_takes_off_by_itself(self, state: str) -> None:
        key = f"node.kubernetes.io/{state}"
        for field, shape, guard in (
            ("spec.guardTaint.key", None, GuardTaint(key=key)),
            (
                "spec.template.shape.taints",
                {"taints": [{"key": key, "effect": "NoSchedule"}]},
                GUARD,
            ),
        ):
            with pytest.raises(TemplateError) as refused:
                self.taints(None, shape, guard)
            assert (refused.value.field, refused.value.value) == (field, key)

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


@pytest.mark.parametrize(
    "node",
    [
        {"spec": {"taints": [{"key": f"t-{n}", "effect": "NoSchedule"} for n in range(20_000)]}},
        {"metadata": {"labels": {f"example.com/l-{n}": "x" for n in range(20_000)}}},
        {"status": {"capacity": {f"example.com/r-{n}": "1" for n in range(20_000)}}},
    ],
)
def test_huge_ones_are_not_read(node: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template.model_validate({"node": node})
    copy = "kwok_operator.nodegroups.cleaning.copy.deepcopy"
    monkeypatch.setattr(copy, lambda _: pytest.fail("copy"))
    with pytest.raises(TemplateError, match="are too many") as refused:
        resolve(template, guard=GUARD)
    assert refused.value.field == "spec.template.node"


def test_what_a_real_node_has_much_of_does_not_count() -> None:
    """A manifest in an annotation, images and who owns which field."""
    assert resolved(
        {
            "metadata": {
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 260_000},
                "managedFields": [{"fieldsV1": {"f": "x" * 10**6}}],
            },
            "status": {"images": [{"names": ["x" * 10**6]}], "volumesInUse": ["x" * 10**6]},
        }
    ) == resolved({})


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
