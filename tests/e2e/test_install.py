"""`kwok-operator install` and `uninstall` against a real API server."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.manifests import EXAMPLES, OVERLAYS, ROOT, generate, stale
from kwok_operator.cli.install_settings import overlays
from kwok_operator.cli.main import main
from kwok_operator.controlplane import Cluster
from tests.e2e.api import NODES, path_of
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.groups import apply_group, stopped, wait_ready
from tests.e2e.kubectl import Kubectl, as_text, eventually
from tests.e2e.operator import PROGRAM, Harness
from tests.e2e.rights import kubeconfig_of

NAMESPACES = path_of("namespaces")
PASSING = ("events", "leases", "endpoints", "endpointslices", "podmetrics", "nodemetrics")
"""What others write at any time."""
NAMES = "--output=jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} {end}"


@dataclass(frozen=True)
class Own:
    """A cluster in which nothing of ours is yet."""

    cluster: Cluster
    kubectl: Kubectl

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *arguments, f"--kubeconfig={self.cluster.kubeconfig}"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def told(self, *arguments: str) -> list[str]:
        """The lines of a command that succeeds."""
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout.splitlines()

    def objects(self) -> set[str]:
        """All that is in the cluster, as kubectl names it."""
        resources = self.kubectl("api-resources", "--verbs=list,delete", "--output=name").split()
        lasting = [each for each in resources if each.partition(".")[0] not in PASSING]
        return set(self.kubectl("get", ",".join(lasting), "--all-namespaces", NAMES).split())


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with bare_cluster("install", directory=tmp_path_factory.mktemp("install")) as there:
        yield Own(*there)


@pytest.fixture
def clean(own: Own) -> Iterator[Own]:
    """Nothing of ours is there before and after."""
    yield own
    own.run("uninstall", "--apply")


@pytest.fixture
def fake_node(own: Own) -> Iterator[str]:
    """A node of kwok's that is none of ours, so that pods may go there."""
    annotations = {"kwok.x-k8s.io/node": "fake"}
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    own.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "real", "annotations": annotations},
            "status": {"allocatable": room, "capacity": room},
        }
    )
    yield "real"
    own.kubectl("delete", "node", "real")


def printed(own: Own, *flags: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all("\n".join(own.told("install", "--dry-run", *flags))))


def test_what_comes_along_is_what_deploy_says(own: Own) -> None:
    assert stale(generate(own.cluster.kubectl)) == [], "run `make manifests`"


def test_what_comes_along_has_the_overlays_that_are_no_examples() -> None:
    found = {path.name for path in (ROOT / OVERLAYS).iterdir() if path.is_dir()}
    assert set(overlays()) == found - set(EXAMPLES)


def test_installing_twice_changes_nothing(clean: Own) -> None:
    versions = "--output=jsonpath={.items[*].metadata.resourceVersion}"
    kinds = "clusterroles,deployments,services,crds"
    first = clean.told("install", "--apply", "--overlay=ha")
    items = {"apiVersion": "v1", "kind": "List", "items": printed(clean, "--overlay=ha")}
    clean.kubectl("get", "--filename=-", stdin=as_text(items))  # fails where one is missing
    ours = ("get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/part-of=kwok-operator")
    # Its controllers write the status of a Deployment, in their own time.
    with stopped(clean.cluster.pid("kube-controller-manager")):
        before = clean.kubectl(*ours, versions)
        assert clean.told("install", "--apply", "--overlay=ha") == first
        assert clean.kubectl(*ours, versions) == before != ""


@pytest.mark.core
def test_wait_returns_when_the_operator_is_available(fake_node: str, clean: Own) -> None:
    """kwok, which runs in this cluster, makes the pod Ready without running it."""
    done = clean.told("install", "--apply", "--wait")
    assert done[-1] == "deployment.apps/kwok-operator available"
    nodes = "--output=jsonpath={.items[*].spec.nodeName}"
    assert clean.kubectl("get", "pods", "--namespace=kwok-operator", nodes) == fake_node


def test_what_somebody_else_set_is_left(clean: Own) -> None:
    clean.told("install", "--apply")
    clean.kubectl("scale", "deployment/kwok-operator", "--replicas=3", "--namespace=kwok-operator")
    done = clean.run("install", "--apply")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "applying deployment.apps/kwok-operator in kwok-operator" in line
    assert ".spec.replicas" in line
    clean.told("install", "--apply", "--force-conflicts")
    deployment = clean.kubectl.json(
        "get", "deployment", "kwok-operator", "--namespace=kwok-operator"
    )
    assert deployment["spec"]["replicas"] == 1


@pytest.mark.core
def test_uninstall_leaves_the_cluster_as_it_was(
    own: Own, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    before = own.objects()
    own.told("install", "--apply", "--image=registry.example.com/fakes:2")
    image = "--output=jsonpath={.spec.template.spec.containers[*].image}"
    found = own.kubectl("get", "deployment", "kwok-operator", "--namespace=kwok-operator", image)
    assert found == "registry.example.com/fakes:2"
    kubeconfig = tmp_path / "operator.kubeconfig"
    kubeconfig.write_text(kubeconfig_of(own.kubectl, "kwok-operator"))
    harness = Harness(kubeconfig=kubeconfig, directory=tmp_path)
    request.addfinalizer(harness.stop)
    harness.start()
    apply_group(own.kubectl, "uninstalled", targetSize=20)
    wait_ready(own.kubectl, "uninstalled")

    assert len(own.kubectl.api.names(NODES)) == 20
    assert "namespace/kwok-operator deleted" in own.told("uninstall", "--apply")
    harness.stop()
    eventually(
        lambda: (own.kubectl.api.names(NODES), own.kubectl.api.names(NAMESPACES)),
        lambda left: not left[0] and "kwok-operator" not in left[1],
        describe="nodes and namespace are gone",
    )
    eventually(own.objects, lambda left: left <= before, describe="nothing is left")
    assert own.told("uninstall", "--apply") == []


def test_a_namespace_that_was_there_stays(clean: Own) -> None:
    clean.kubectl("create", "namespace", "kwok-operator")
    clean.kubectl("create", "configmap", "theirs", "--namespace=kwok-operator")
    clean.told("install", "--apply")
    clean.told("uninstall", "--apply")
    kinds = "configmaps,deployments,services"
    eventually(
        lambda: clean.kubectl("get", kinds, "--namespace=kwok-operator", "--output=name").split(),
        lambda names: names == ["configmap/kube-root-ca.crt", "configmap/theirs"],
        describe="what is theirs is left, and what Kubernetes adds",
    )
    clean.kubectl("delete", "namespace", "kwok-operator")


def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("install", "uninstall"):
        assert main([command, "--apply", f"--kubeconfig={tmp_path / 'missing'}"]) == 2
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert said.out == ""
        assert line.startswith("kwok-operator: ") and "missing" in line
