"""NodePools of Karpenter in an import."""

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.importing.anonymous import Anonymizer
from kwok_operator.importing.importer import run_import
from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.nodes.nodepools import NodePools
from kwok_operator.importing.notes import Reason
from kwok_operator.importing.settings import ImportSettings
from kwok_operator.importing.yamlout import dump
from kwok_operator.reporter import Reporter
from tests.fakes.apiserver import NODES, FakeApiServer
from tests.fakes.kubeconfigs import kubeconfig
from tests.fakes.reflecting import Naps

ROOT = "/apis/karpenter.sh"
AWS = "karpenter.k8s.aws"
LABELS = {
    "karpenter.sh/nodepool": "web",
    "karpenter.sh/capacity-type": "spot",
    f"{AWS}/instance-family": "m5",
    f"{AWS}/instance-cpu": "4",
    "topology.k8s.aws/zone-id": "use1-az1",
    "node.kubernetes.io/instance-type": "m5.xlarge",
    "topology.kubernetes.io/zone": "us-east-1a",
}
KEPT: list[dict[str, Any]] = [
    {"key": f"{AWS}/instance-family", "operator": "In", "values": ["m5", "c5"]},
    {"key": f"{AWS}/instance-cpu", "operator": "Gt", "values": ["2"]},
    {"key": "topology.k8s.aws/zone-id", "operator": "In", "values": ["use1-az1"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
    {"key": "example.com/team", "operator": "In", "values": ["shop"]},
]
SPOT = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
LEFT_OUT = {"key": f"{AWS}/instance-local-nvme", "operator": "Gt", "values": ["100"]}
TAINT = {"key": "dedicated", "value": "web", "effect": "NoSchedule"}
DISRUPTION = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "1h30m",
    "budgets": [
        {"nodes": "10%"},
        {"nodes": "0", "schedule": "@daily", "duration": "1h30m", "reasons": ["Drifted"]},
    ],
}
POOL: dict[str, Any] = {
    "metadata": {"name": "web", "annotations": {"karpenter.sh/nodepool-hash": "1"}},
    "spec": {
        "template": {
            "metadata": {"labels": {"example.com/tier": "front"}},
            "spec": {
                "nodeClassRef": {"group": AWS, "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {**SPOT, "values": ["on-demand", "spot"]},
                    *KEPT[:-1],
                    {**KEPT[-1], "minValues": 1},
                    LEFT_OUT,
                ],
                "taints": [TAINT],
                "startupTaints": [{"key": "agent", "effect": "NoSchedule"}],
                "expireAfter": "720h",
                "terminationGracePeriod": "48h",
            },
        },
        "disruption": DISRUPTION,
        "limits": {"cpu": "1000", "memory": "many"},
        "weight": 10,
    },
    "status": {"resources": {"cpu": "3"}},
}


def made(
    *bodies: Any, groups: dict[str, dict[str, str]] | None = None
) -> tuple[list[dict[str, Any]], dict[Reason, str]]:
    pools = NodePools()
    for body in bodies:
        pools.add(body)
    manifests, notes = pools.finish({"web-a": LABELS, "other": {}} if groups is None else groups)
    return manifests, {note.reason: note.detail or note.field for note in notes}


def test_what_karpenter_decides_by_is_kept() -> None:
    (found,), notes = made(POOL)
    assert found == {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "web"},
        "spec": {
            "disruption": DISRUPTION,
            "limits": {"cpu": "1000"},
            "weight": 10,
            "template": {
                "metadata": {"labels": {"example.com/tier": "front"}},
                "spec": {
                    "taints": [TAINT],
                    "expireAfter": "720h",
                    "terminationGracePeriod": "48h",
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": "default",
                    },
                    "requirements": [
                        {
                            "key": "kwok-operator.io/node-group",
                            "operator": "In",
                            "values": ["web-a"],
                        },
                        SPOT,
                        *KEPT,
                    ],
                },
            },
        },
    }
    assert notes == {
        Reason.REQUIREMENT_UNKNOWN: f"{AWS}/instance-local-nvme Gt",
        Reason.MIN_VALUES: "example.com/team",
        Reason.STARTUP_TAINTS: "spec.template.spec.startupTaints",
        Reason.INVALID_FIELD: "memory",
    }


def empty(*requirements: Any) -> dict[str, Any]:
    template = {"spec": {"requirements": list(requirements)}}
    return {"metadata": {"name": "empty"}, "spec": {"template": template}}


def test_a_pool_without_nodes_may_have_those_of_others() -> None:
    family = {**KEPT[0], "values": ["r5", "m5"]}
    (found,), notes = made(empty(family, KEPT[1], KEPT[-1]))
    assert found["spec"]["template"]["spec"]["requirements"] == [family, KEPT[1], KEPT[-1]]
    assert notes == {Reason.POOL_WITHOUT_NODES: ""}


@pytest.mark.parametrize(
    "requirement",
    [
        LEFT_OUT,
        {**KEPT[0], "values": ["p5"]},
        {**KEPT[0], "operator": "NotIn"},
        {"key": KEPT[0]["key"], "operator": "DoesNotExist"},
        {**KEPT[1], "values": ["4"]},
        {**KEPT[1], "operator": "Lt", "values": ["4"]},
    ],
)
def test_a_pool_that_could_have_no_node_is_left_out(requirement: Any) -> None:
    assert made(empty(requirement), groups={"web-a": LABELS}) == ([], {Reason.POOL_UNKNOWN: ""})


@pytest.mark.parametrize(
    "key",
    [
        "karpenter.azure.com/sku-family",
        "karpenter.k8s.gcp/instance-category",
        "cloud.google.com/machine-family",
        "kubernetes.azure.com/mode",
        "topology.kubernetes.io/region",
    ],
)
def test_a_requirement_of_any_cloud_stays_if_nodes_have_its_label(key: str) -> None:
    requirement = {"key": key, "operator": "In", "values": ["D"]}
    template = {"spec": {"requirements": [requirement]}}
    body = {"metadata": {"name": "web"}, "spec": {"template": template}}
    for labels, left in ((LABELS | {key: "D"}, [requirement]), (LABELS, [])):
        (found,), notes = made(body, groups={"a": labels})
        assert found["spec"]["template"]["spec"]["requirements"][2:] == left
        assert (Reason.REQUIREMENT_UNKNOWN in notes) is not bool(left)


def test_fields_of_v1beta1_have_moved() -> None:
    disruption = {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "Never"}
    (found,), _ = made({"metadata": {"name": "a"}, "spec": {"disruption": disruption}})
    assert found["spec"]["disruption"] == {"consolidationPolicy": "WhenEmptyOrUnderutilized"}
    assert found["spec"]["template"]["spec"]["expireAfter"] == "Never"


@pytest.mark.parametrize("odd", [5, {"operator": "In"}, {"key": "a"}, {"key": 5, "operator": "In"}])
def test_a_requirement_that_says_nothing_is_left_out(odd: Any) -> None:
    template = {"spec": {"requirements": [odd, KEPT[-1]]}}
    (found,), notes = made({"metadata": {"name": "a"}, "spec": {"template": template}})
    assert found["spec"]["template"]["spec"]["requirements"] == [KEPT[-1]]
    assert notes[Reason.INVALID_FIELD] == "spec.template.spec.requirements"


def test_a_pool_and_a_label_that_names_it_get_one_anonymous_name() -> None:
    anonymizer = Anonymizer(b"key" * 20)
    for name in ("web", "42", "default", "true"):
        assert anonymizer.label_value("karpenter.sh/nodepool", name) == anonymizer.name(name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["10%", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "template spec disruption budgets nodes limits requirements key operator values"
                " taints metadata labels cpu startupTaints expireAfter weight".split()
            ),
            inner,
        )
    ),
    max_leaves=25,
)


@given(JSON)
def test_whatever_a_node_pool_holds(spec: Any) -> None:
    manifests, _ = made({"metadata": {"name": "a"}, "spec": spec}, spec)
    for manifest in manifests:
        assert yaml.safe_load(dump(manifest)) == manifest
        for each in manifest["spec"]["template"]["spec"]["requirements"]:
            assert each["key"] and each["operator"]


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    """A cluster with Karpenter: two nodes of its NodePool."""
    resources = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    async with FakeApiServer() as server:
        for kind in KINDS.values():
            server.serve(kind.path, kind=kind.name)
        for number in range(2):
            metadata = {"name": f"node-{number}", "labels": LABELS}
            status = {"capacity": resources, "allocatable": resources}
            server.create(NODES, {"metadata": metadata, "status": status})
        server.documents[ROOT] = '{"preferredVersion": {"version": "v1"}}'
        server.serve(f"{ROOT}/v1/nodepools", kind="NodePool")
        server.create(f"{ROOT}/v1/nodepools", POOL)
        yield server


async def imported(server: FakeApiServer, folder: Path, **settings: Any) -> dict[str, str]:
    path = kubeconfig(folder / "kubeconfig", server=server.url)
    output = folder / "out"
    given_settings = ImportSettings(
        output=output, kubeconfig=path, requests_per_second=1000.0, **settings
    )
    await run_import(given_settings, reporter=Reporter(io.StringIO()), sleep=Naps())
    return {file.name: file.read_text() for file in output.iterdir()}


async def test_they_have_a_file_of_their_own(server: FakeApiServer, tmp_path: Path) -> None:
    files = await imported(server, tmp_path)
    group = yaml.safe_load(files["nodegroups.yaml"])
    (expected,), _ = made(POOL, groups={group["metadata"]["name"]: LABELS})
    assert yaml.safe_load(files["karpenter.yaml"]) == expected
    assert yaml.safe_load(files["kustomization.yaml"])["resources"] == ["nodegroups.yaml"]
    assert group["spec"]["autoscaling"] == {"minSize": 0}
    ledger = json.loads(files["ledger.json"])
    assert (ledger["read"]["NodePool"], ledger["written"]["NodePool"]) == (1, 1)
    assert {"PriceNeeded", "ScaledByKarpenter", "RequirementUnknown"} <= ledger["reasons"].keys()
    again = await imported(server, tmp_path)
    assert again == files


async def test_their_names_are_made_anonymous(server: FakeApiServer, tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("instanceType,capacityType,hourly\nm5.xlarge,spot,0.07\n")
    files = await imported(server, tmp_path, anonymize=True, prices=prices)
    for secret in ("web", "shop", "front", "team", "tier", "example.com/"):
        assert secret not in files["karpenter.yaml"]
    pool, group = (yaml.safe_load(files[name]) for name in ("karpenter.yaml", "nodegroups.yaml"))
    spec = pool["spec"]["template"]["spec"]
    assert spec["requirements"][0]["values"] == [group["metadata"]["name"]]
    assert (
        pool["metadata"]["name"]
        == group["spec"]["template"]["shape"]["labels"]["karpenter.sh/nodepool"]
    )
    assert spec["nodeClassRef"] == made(POOL)[0][0]["spec"]["template"]["spec"]["nodeClassRef"]
    assert pool["spec"]["disruption"] == DISRUPTION
    assert group["spec"]["price"] == {"hourly": "0.07"}
