"""What nodes of a scalable have, and what cluster-autoscaler (CA) sees of them from zero."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.clusterapi.capacity import Capacity
from kwok_operator.clusterapi.keys import is_managed
from kwok_operator.companions.desired import CompanionOwner, compile_companions
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.nodegroups.api.template import Template
from tests.scalables import CAPACITY, MACHINE, capacity, reasons

ARCH, OS = "kubernetes.io/arch", "kubernetes.io/os"
WORDS = st.sampled_from(["", "a", "b"])
TAINT = st.tuples(st.sampled_from("kl"), WORDS, st.sampled_from(["NoSchedule", "NoExecute"]))
LABELS = st.dictionaries(
    st.sampled_from(["pool", "node-role.kubernetes.io/web", "x.node.cluster.x-k8s.io/y", ARCH, OS]),
    WORDS,
)


def pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())


def labels_of(found: Capacity) -> dict[str, str]:
    """Of the nodes."""
    shape = found.shape
    return {**shape.get("labels", {}), ARCH: shape["arch"], OS: shape["os"]}


def seen_labels(found: Capacity) -> dict[str, str]:
    over = found.overlay.get("labels", {})
    merged = {**labels_of(found), **over}
    return {key: value for key, value in merged.items() if value is not None}


class TestLabels:
    @given(LABELS, LABELS, LABELS, st.none() | LABELS)
    def test_from_zero_they_are_those_that_ca_builds(
        self,
        handed_on: dict[str, str],
        inner: dict[str, str],
        annotated: dict[str, str],
        info: dict[str, str] | None,
    ) -> None:
        node_info = {
            "architecture": (info or {}).get(ARCH),
            "operatingSystem": (info or {}).get(OS),
        }
        told = {key: value for key, value in node_info.items() if value is not None}
        found = capacity(
            {f"{CAPACITY}labels": pairs(annotated)},
            None if info is None else {"status": {"nodeInfo": told}},
            handed_on=handed_on,
            machine={"metadata": {"labels": inner}},
        )
        expected = {ARCH: "amd64", OS: "linux"}
        if info is not None:
            expected |= {ARCH: told.get("architecture", ""), OS: told.get("operatingSystem", "")}
        expected |= {key: value for key, value in inner.items() if is_managed(key)}
        assert seen_labels(found) == expected | annotated

    @given(LABELS, LABELS)
    def test_nodes_have_what_reaches_them_in_production(
        self, handed_on: dict[str, str], annotated: dict[str, str]
    ) -> None:
        found = capacity({f"{CAPACITY}labels": pairs(annotated)}, handed_on=handed_on)
        managed = {key: value for key, value in handed_on.items() if is_managed(key)}
        filled = {k: v for k, v in annotated.items() if v or k not in (ARCH, OS)}
        assert labels_of(found) == {ARCH: "amd64", OS: "linux"} | managed | filled
        unseen = managed.keys() - annotated.keys()
        assert ("LabelsUnseen" in reasons(found)) == bool(unseen)

    def test_a_template_without_node_info_has_no_architecture_for_ca(self) -> None:
        found = capacity(MACHINE, {"status": {}})
        assert found.overlay == {"labels": {ARCH: "", OS: ""}}
        assert labels_of(found) == {ARCH: "amd64", OS: "linux"}
        assert reasons(found) == ["NoArchitecture"]
        assert reasons(capacity(MACHINE, None)) == []

    def test_one_that_no_node_can_have_is_expected_by_ca_alone(self) -> None:
        found = capacity(MACHINE | {f"{CAPACITY}labels": "-bad=x,good=y,nothing"})
        assert found.shape["labels"] == {"good": "y"}
        assert found.overlay == {"labels": {"-bad": "x"}}
        assert reasons(found) == ["InvalidLabel", "InvalidLabel"]

    @pytest.mark.parametrize(
        ("key", "expected"),
        [
            ("node-role.kubernetes.io/worker", True),
            ("x.node-role.kubernetes.io/worker", False),
            ("node-restriction.kubernetes.io/x", True),
            ("a.node-restriction.kubernetes.io/x", True),
            ("anode-restriction.kubernetes.io/x", False),
            ("node.cluster.x-k8s.io/x", True),
            ("b.node.cluster.x-k8s.io/x", True),
            ("cluster.x-k8s.io/x", False),
        ],
    )
    def test_cluster_api_hands_on_those_of_its_domains(self, key: str, expected: bool) -> None:
        assert is_managed(key) is expected


class TestTaints:
    @given(
        st.lists(TAINT, max_size=3, unique_by=lambda t: (t[0], t[2])), st.lists(TAINT, max_size=3)
    )
    def test_ca_puts_those_of_the_annotation_in_the_place_of_specified_ones(
        self, specified: list[tuple[str, ...]], annotated: list[tuple[str, ...]]
    ) -> None:
        text = ",".join(f"{key}={value}:{effect}" for key, value, effect in annotated)
        names = ("key", "value", "effect")
        raw = [dict(zip(names, taint, strict=True)) for taint in specified]
        found = capacity({f"{CAPACITY}taints": text}, machine={"taints": raw})
        last = {(key, effect): value for key, value, effect in annotated}
        expected = {(key, effect): value for key, value, effect in specified} | last
        nodes = {(t["key"], t["effect"]): t["value"] for t in found.shape.get("taints", ())}
        seen = found.overlay.get("taints", found.shape.get("taints", []))
        assert {(t["key"], t["effect"]): t["value"] for t in seen} == expected
        assert len(seen) == len(expected)
        assert nodes == last
        missing = expected.keys() - last.keys()
        assert ("TaintsUnseen" in reasons(found)) == bool(missing)

    @pytest.mark.parametrize(
        ("text", "seen", "told"),
        [
            ("k=v:NoSchedule", [("k", "v", "NoSchedule")], 0),
            ("k:NoExecute", [("k", "", "NoExecute")], 0),
            ("a.io/k=:NoExecute", [("a.io/k", "", "NoExecute")], 0),
            ("k", [("k", "", "")], 1),
            ("k=v:Never", [("k", "v", "Never")], 1),
            ("k=v", [], 1),
            ("k=v=w:NoSchedule", [], 1),
            ("k:a:NoSchedule", [], 1),
            ("-k:NoSchedule", [], 1),
            ("k=-v:NoSchedule,", [], 1),
        ],
    )
    def test_taints_are_parsed_as_ca_parses_them(
        self, text: str, seen: list[Any], told: int
    ) -> None:
        found = capacity(MACHINE | {f"{CAPACITY}taints": text})
        all_of_them = found.overlay.get("taints", found.shape.get("taints", []))
        assert [(t["key"], t["value"], t["effect"]) for t in all_of_them] == seen
        assert reasons(found) == ["InvalidTaint"] * told


AMOUNT = st.sampled_from(["0", "4", "2.5", "16Gi"])
ANNOTATED = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage"}
FIELDS = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeralStorage"}


class TestAmounts:
    @given(
        st.dictionaries(st.sampled_from(list(ANNOTATED)), AMOUNT | st.just("")),
        st.dictionaries(st.sampled_from(list(FIELDS)), AMOUNT),
    )
    def test_annotations_that_say_something_win_over_the_templates_status(
        self, annotated: dict[str, str], status: dict[str, str]
    ) -> None:
        said = {ANNOTATED[key]: text for key, text in annotated.items() if text not in ("", "0")}
        found = capacity(
            {CAPACITY + key: text for key, text in annotated.items()},
            {"status": {"capacity": status}},
        )
        expected = status | said
        assert {key: found.shape.get(FIELDS[key]) for key in FIELDS} == {
            key: expected.get(key) for key in FIELDS
        }
        assert found.known == ({"cpu", "memory"} <= expected.keys())

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("cpu", "500mb"),
            ("memory", "1 Gi"),
            ("ephemeral-disk", "9" * 10_000),
            ("gpu-count", "1.5"),
            ("maxPods", "many"),
            ("maxPods", "9" * 5_000),
            ("gpu-count", "9223372036854775808"),
        ],
    )
    def test_one_that_is_none_takes_scaling_from_zero(self, key: str, text: str) -> None:
        found = capacity(MACHINE | {CAPACITY + key: text})
        assert not found.known
        (finding,) = found.findings
        assert finding.reason == "InvalidCapacity"
        assert finding.path == ("metadata", "annotations", CAPACITY + key)
        assert len(finding.message) < 400

    def test_one_number_among_the_templates_texts_empties_it(self) -> None:
        template = {"status": {"capacity": {"cpu": 4, "memory": "8Gi"}, "nodeInfo": {}}}
        found = capacity({}, template)
        assert found.shape.keys() == {"maxPods", "arch", "os"}
        assert not found.known
        assert "InvalidCapacity" in reasons(found)

    def test_one_of_the_template_that_cant_be_parsed_is_left_out_alone(self) -> None:
        template = {"status": {"capacity": {"cpu": "4", "memory": "8Gi", "a.io/x": "1x"}}}
        found = capacity({}, template)
        assert found.known
        assert "resources" not in found.shape
        assert "InvalidCapacity" in reasons(found)

    @pytest.mark.parametrize(
        ("key", "part"), [("cpu", "cpu"), ("memory", "memory"), ("maxPods", "pods")]
    )
    def test_below_nothing_is_nothing_from_zero_and_none_of_the_nodes(
        self, key: str, part: str
    ) -> None:
        template = {"status": {"capacity": {"cpu": "2", "memory": "4Gi"}}}
        found = capacity(MACHINE | {f"{CAPACITY}{key}": "-3"}, template)
        assert found.known, "cluster-autoscaler reads it"
        assert found.overlay["capacity"] == {part: "0"}
        assert found.shape["maxPods"] == 110
        assert found.shape.get(part) == {"cpu": "2", "memory": "4Gi"}.get(part)
        (told,) = [each for each in found.findings if each.reason == "InvalidCapacity"]
        assert "below 0" in told.message

    @pytest.mark.parametrize(
        ("key", "status", "text"),
        [
            ("memory", "memory", "8"),
            ("memory", "memory", "8m"),
            ("cpu", "cpu", "1e30"),
            ("ephemeral-disk", "ephemeral-storage", "100"),
        ],
    )
    def test_unlikely_amounts_are_reported(self, key: str, status: str, text: str) -> None:
        annotated = capacity(MACHINE | {CAPACITY + key: text})
        (told,) = annotated.findings
        assert (told.reason, told.path[-1]) == ("UnlikelyCapacity", CAPACITY + key)
        assert annotated.known, "cluster-autoscaler takes it"
        template = {"status": {"capacity": {status: text}}}
        assert "UnlikelyCapacity" in reasons(capacity(MACHINE, template))

    @given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from(["", "m", "Ki", "Gi"]))
    def test_however_long_it_is_written_it_is_the_same_amount(
        self, number: int, zeros: int, unit: str
    ) -> None:
        found = capacity(MACHINE | {f"{CAPACITY}memory": f"{number}.{'0' * zeros}{unit}"})
        amount = parse_quantity(found.shape.get("memory", "0"))
        assert amount == parse_quantity(f"{number}{unit}")

    def test_other_resources_of_the_template_are_the_nodes(self) -> None:
        status = {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "1Gi", "a.io/x": "2", "odd": "1"}
        found = capacity({}, {"status": {"capacity": status}})
        assert found.shape["resources"] == {"hugepages-2Mi": "1Gi", "a.io/x": "2"}
        assert "UnknownResource" in reasons(found)

    @pytest.mark.parametrize(
        ("annotated", "status", "nodes", "seen"),
        [
            (None, None, 110, None),
            (None, "50", 50, {"pods": "110"}),
            (None, "110", 110, None),
            ("30", "50", 30, None),
            ("0", "50", 50, {"pods": "110"}),
            ("+030", None, 30, None),
        ],
    )
    def test_ca_counts_with_110_pods_unless_the_annotation_says_otherwise(
        self, annotated: str | None, status: str | None, nodes: int, seen: Any
    ) -> None:
        annotations = {f"{CAPACITY}maxPods": annotated} if annotated else {}
        template = {"status": {"capacity": {"pods": status}}} if status else None
        found = capacity(annotations, template)
        assert found.shape["maxPods"] == nodes
        assert found.overlay.get("capacity") == seen
        assert ("PodsIgnored" in reasons(found)) == (seen is not None)

    @pytest.mark.parametrize(
        ("annotations", "gpu", "told"),
        [
            ({"gpu-type": "a.io/gpu", "gpu-count": "2"}, ("a.io/gpu", 2), []),
            ({"gpu-count": "2"}, None, ["GpuIncomplete"]),
            ({"gpu-type": "a.io/gpu"}, None, ["GpuIncomplete"]),
            ({"gpu-type": "a.io/gpu", "gpu-count": "0"}, None, ["GpuIncomplete"]),
            ({"gpu-type": "gpu", "gpu-count": "1"}, None, ["UnknownResource"]),
            ({"dra-driver": "gpu.x", "gpu-count": "2"}, None, []),
            ({"dra-driver": "gpu.x"}, None, ["GpuIncomplete"]),
            ({"dra-driver": "GPU!", "gpu-count": "2"}, None, ["InvalidDriver"]),
            ({"dra-driver": "gpu.x", "gpu-count": "1025"}, None, ["InvalidDriver"]),
        ],
    )
    def test_gpus_have_a_type_and_a_count(
        self, annotations: dict[str, str], gpu: Any, told: list[str]
    ) -> None:
        found = capacity(MACHINE | {CAPACITY + key: text for key, text in annotations.items()})
        expected = {"type": gpu[0], "count": gpu[1]} if gpu else None
        assert found.shape.get("gpu") == expected
        assert reasons(found) == told
        assert found.known

    def test_drivers_are_companions_of_the_nodes(self) -> None:
        given = {"dra-driver": "gpu.x", "gpu-count": "2", "csi-driver": "d.x=3, e.x=0,d.x=4,f,g=-1"}
        found = capacity(MACHINE | {CAPACITY + key: text for key, text in given.items()})
        assert reasons(found) == ["InvalidDriver"] * 2
        (csi, *_), (devices, *_) = (
            compile_companions(Template.model_validate({"companions": part}), group="web")
            for part in ({k: v} for k, v in found.companions.items())
        )
        owner = CompanionOwner("n", "u", "web")
        drivers = json.loads(csi.body(owner))["spec"]["drivers"]
        assert [(d["name"], d["allocatable"]) for d in drivers if "allocatable" in d] == [
            ("d.x", {"count": 3})
        ]
        assert [d["name"] for d in drivers] == ["d.x", "e.x"]
        spec = json.loads(devices.body(owner))["spec"]
        assert spec["driver"] == "gpu.x"
        assert [d["name"] for d in spec["devices"]] == ["gpu-0", "gpu-1"]
        assert all(d["attributes"] == {"type": {"string": "gpu"}} for d in spec["devices"])
