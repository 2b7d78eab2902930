"""`kwok-operator import`, from one control plane into another."""

import functools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.constants import NODE_GROUP_LABEL, ZONE_LABEL
from tests.e2e import production
from tests.e2e.api import GROUPS, NODES, Refused
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import own_cluster
from tests.e2e.rights import kubeconfig_of

ACCOUNT = "kwok-operator-import"
RIGHTS = Path(__file__).parents[2] / "deploy" / "import"
PODS = "/api/v1/pods"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def reader(kubectl: Kubectl, directory: Path) -> Path:
    """A kubeconfig of the account that may import, and no more."""
    kubectl("apply", f"--kustomize={RIGHTS}")
    user = f"--as=system:serviceaccount:{ACCOUNT}:{ACCOUNT}"
    for what in ("nodes", "pods"):
        eventually(
            functools.partial(kubectl, "auth", "can-i", "list", what, "--all-namespaces", user),
            describe=f"it may read {what}",
        )
    path = directory / "reader.kubeconfig"
    path.write_text(kubeconfig_of(kubectl, ACCOUNT, namespace=ACCOUNT))
    return path


def run_import(kubeconfig: Path, output: Path, *flags: str) -> dict[str, Any]:
    """The ledger of an import that went well."""
    command = [sys.executable, "-m", "kwok_operator", "import", f"--kubeconfig={kubeconfig}"]
    done = subprocess.run(
        [*command, f"--output={output}", "--requests-per-second=100", *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    ledger: dict[str, Any] = json.loads((output / "ledger.json").read_text())
    return ledger


@pytest.fixture
def hand_made(kubectl: Kubectl, group_name: str) -> Iterator[str]:
    """A plain Node that nobody's group has."""
    kubectl.api.create(NODES, production.node("eks-managed", name=group_name))
    yield group_name
    kubectl.api.delete(f"{NODES}/{group_name}")


@pytest.mark.core
def test_the_rights_in_deploy_are_enough(kubectl: Kubectl, hand_made: str, tmp_path: Path) -> None:
    kubeconfig = reader(kubectl, tmp_path)
    ledger = run_import(kubeconfig, tmp_path / "out")
    assert [each for each in ledger["unread"] if each["needed"]] == []
    groups = list(yaml.safe_load_all((tmp_path / "out" / "nodegroups.yaml").read_text()))
    assert "general" in [group["metadata"]["name"].partition("-us-east-2")[0] for group in groups]
    kubectl("apply", f"--kustomize={tmp_path / 'out'}", "--dry-run=server")
    as_reader = f"--kubeconfig={kubeconfig}"
    for what in ("secrets", "configmaps"):
        kubectl.fails("auth", "can-i", "list", what, "--all-namespaces", as_reader)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """Where production runs."""
    with bare_cluster("import-from", directory=tmp_path_factory.mktemp("from")) as (_, kubectl):
        for node in production.nodes():
            kubectl.api.create(NODES, node)
        for objects in (production.cluster_objects(), production.workloads()):
            everything = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
            # A pod needs the account of its namespace, which a controller makes.
            eventually(functools.partial(kubectl.apply, everything), describe="all is there")
        for number in range(4):
            body = {"metadata": {"name": f"custom-{number}", "namespace": "lab"}}
            owner = kubectl.api.create("/api/v1/namespaces/lab/configmaps", body)
            for pod in production.owned_pods(owner):
                kubectl.api.create("/api/v1/namespaces/lab/pods", pod)
        budgets = {"apiVersion": "v1", "kind": "List", "items": list(production.budgets())}
        kubectl.apply(budgets)
        settled(kubectl)
        yield kubectl


def test_a_cluster_runs_again(source: Kubectl, tmp_path: Path) -> None:
    ran, pools, allowed = running(source), nodes_by_pool(source), disruptions(source)
    assert sum(ran.values()) > 180
    output = tmp_path / "rehearsal"
    run_import(reader(source, tmp_path), output)
    text = "".join(path.read_text() for path in output.rglob("*") if path.is_file())
    assert not [word for word in ("canary", "secret-product", "/bin/secret") if word in text]
    with own_cluster("import-to", directory=tmp_path) as target:
        target.harness.ensure()
        kubectl = target.kubectl
        kubectl("apply", f"--kustomize={output}", timeout=300)
        eventually(
            lambda: nodes_by_pool(kubectl),
            lambda found: found == pools,
            describe="the same nodes in each pool and zone",
        )
        sizes = Counter(
            node["metadata"]["labels"][NODE_GROUP_LABEL] for node in kubectl.api.list(NODES)[0]
        )
        targets = {
            group["metadata"]["name"]: group["spec"]["targetSize"]
            for group in kubectl.api.list(GROUPS)[0]
        }
        assert sizes == targets
        eventually(
            lambda: missing(ran, running(kubectl)),
            lambda found: sum(found.values()) <= sum(ran.values()) / 100,
            describe="99 % of the pods run again",
        )
        eventually(
            lambda: disruptions(kubectl),
            lambda found: found == allowed,
            describe="the same disruptions are allowed",
        )
        assert {evicted(kubectl, name) for name, number in allowed.items() if not number} == {429}
        assert {evicted(kubectl, name) for name, number in allowed.items() if number} == {201}


def test_a_cluster_runs_again_under_other_names(source: Kubectl, tmp_path: Path) -> None:
    ran, pools, allowed = running(source), nodes_by_pool(source), disruptions(source)
    output = tmp_path / "rehearsal"
    run_import(reader(source, tmp_path), output, "--anonymize")
    table = json.loads((tmp_path / "rehearsal.names.json").read_text())["names"]
    private = {name for names in ran for name in names} & set(table.values())
    assert private
    text = "\n".join(path.read_text() for path in output.rglob("*") if path.is_file())
    words = set(text.replace("/", " ").replace('"', " ").replace("'", " ").split())
    assert private.isdisjoint(words)
    assert not [name for name in ("shop", "bank", "deployment-1", "general") if name in text]
    with own_cluster("import-anonymous", directory=tmp_path) as target:
        target.harness.ensure()
        kubectl = target.kubectl
        kubectl("apply", f"--kustomize={output}", timeout=300)
        zones = Counter(zone for _, zone in pools.elements())
        eventually(
            lambda: nodes_by_zone(kubectl),
            lambda found: found == zones,
            describe="as many nodes in each zone",
        )
        eventually(
            lambda: [pod["status"]["phase"] for pod in kubectl.api.list(PODS)[0]],
            lambda phases: phases.count("Running") >= sum(ran.values()) * 99 / 100,
            describe="99 % of the pods run again",
        )
        eventually(
            lambda: sorted(disruptions(kubectl).values()),
            lambda found: found == sorted(allowed.values()),
            describe="as many disruptions are allowed",
        )


def settled(kubectl: Kubectl) -> None:
    """Returns when all pods run that can, and budgets have seen them."""

    def waiting() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in kubectl.api.list(PODS)[0]
            if pod["status"]["phase"] not in ("Running", "Succeeded")
        ]

    eventually(waiting, lambda found: not found, describe="all pods run")
    eventually(
        lambda: [
            budget["metadata"]["name"]
            for budget in kubectl.api.list(BUDGETS)[0]
            if not budget["status"].get("currentHealthy")
        ],
        lambda found: not found,
        describe="budgets know their pods",
    )


def running(kubectl: Kubectl) -> Counter[tuple[str, str]]:
    """Pods by namespace and the label that all of them have, but for those of Jobs: these end of
    themselves, and come each minute.
    """
    return Counter(
        (pod["metadata"]["namespace"], pod["metadata"]["labels"]["app"])
        for pod in kubectl.api.list(PODS)[0]
        if pod["status"]["phase"] == "Running"
        and "app" in pod["metadata"].get("labels", {})
        and "Job" not in {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
    )


def missing(
    ran: Counter[tuple[str, str]], runs: Counter[tuple[str, str]]
) -> Counter[tuple[str, str]]:
    return ran - runs


def nodes_by_pool(kubectl: Kubectl) -> Counter[tuple[str, str]]:
    found = (node["metadata"]["labels"] for node in kubectl.api.list(NODES)[0])
    return Counter(
        (next(labels[key] for key in production.POOL_LABELS if key in labels), labels[ZONE_LABEL])
        for labels in found
    )


def nodes_by_zone(kubectl: Kubectl) -> Counter[str]:
    return Counter(node["metadata"]["labels"][ZONE_LABEL] for node in kubectl.api.list(NODES)[0])


def disruptions(kubectl: Kubectl) -> dict[tuple[str, str], int]:
    return {
        (budget["metadata"]["namespace"], budget["metadata"]["name"]): budget["status"][
            "disruptionsAllowed"
        ]
        for budget in kubectl.api.list(BUDGETS)[0]
    }


def evicted(kubectl: Kubectl, budget: tuple[str, str]) -> int:
    """What comes of evicting a pod of the Deployment that has a budget."""
    namespace, app = budget
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods, _ = kubectl.api.list(path, selector=f"app={app}")
    name = next(p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running")
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    try:
        kubectl.api.create(f"{path}/{name}/eviction", body)
    except Refused as error:
        return error.status
    return 201
