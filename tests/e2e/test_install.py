"""`kwok-operator install` and `uninstall` against a real API server.

- what comes along is what deploy/ says, in another namespace too
- install brings all objects of an overlay, says what became of each, and changes nothing the
  second time; what somebody else set is a conflict, and left
- an operator works with what was installed; uninstall takes its groups and nodes along and leaves
  the cluster as it was before
- a namespace that was there before stays, with what is in it
"""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.controlplane import Cluster
from hack.manifests import EXAMPLES, OVERLAYS, ROOT, generate, stale
from kwok_operator.cli.install_settings import overlays
from kwok_operator.cli.main import main
from kwok_operator.core.manifests import identity
from tests.e2e.api import NODES, path_of
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.groups import apply_group, wait_ready
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
    own.run("uninstall", "--apply", "--namespace=fakes")


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


def test_another_namespace_is_as_kustomize_has_it(
    own: Own, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """deploy/ has its own way to another namespace; both ways lead to the same place."""
    for overlay in overlays():
        theirs = list(yaml.safe_load_all(with_kustomize(own, overlay, tmp_path)))
        assert main(["install", "--dry-run", f"--overlay={overlay}", "--namespace=fakes"]) == 0
        ours = list(yaml.safe_load_all(capsys.readouterr().out))
        assert {identity(item): item for item in ours} == {identity(item): item for item in theirs}


def with_kustomize(own: Own, overlay: str, directory: Path) -> str:
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kwok-operator-settings"},
        "data": {"namespace": "fakes"},
    }
    text = (ROOT / OVERLAYS / overlay / "kustomization.yaml").read_text()
    kustomization = yaml.safe_load(text)
    base = os.path.relpath(ROOT / OVERLAYS / overlay, directory)
    for key in ("resources", "components", "transformers"):
        if key in kustomization:
            kustomization[key] = [os.path.join(base, path) for path in kustomization[key]]
    kustomization.setdefault("patches", []).append({"patch": yaml.safe_dump(settings)})
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return own.kubectl("kustomize", str(directory))


def test_installing_twice_changes_nothing(clean: Own) -> None:
    first = clean.told("install", "--apply", "--overlay=ha")
    assert {line.split()[1] for line in first} == {"created"}
    items = {"apiVersion": "v1", "kind": "List", "items": printed(clean, "--overlay=ha")}
    clean.kubectl("get", "--filename=-", stdin=as_text(items))  # fails where one is missing
    second = clean.told("install", "--apply", "--overlay=ha")
    assert [line.split()[0] for line in second] == [line.split()[0] for line in first]
    assert {line.split()[1] for line in second} == {"unchanged"}


@pytest.mark.core
def test_wait_returns_when_the_operator_is_available(fake_node: str, clean: Own) -> None:
    """kwok, which runs in this cluster, makes the pod Ready without running it."""
    done = clean.told("install", "--apply", "--wait")
    assert done[-1] == "deployment.apps/kwok-operator available"
    nodes = "--output=jsonpath={.items[*].spec.nodeName}"
    assert clean.kubectl("get", "pods", "--namespace=kwok-operator", nodes) == fake_node


def test_what_somebody_else_set_is_left_unless_forced(clean: Own) -> None:
    clean.told("install", "--apply")
    clean.kubectl("scale", "deployment/kwok-operator", "--replicas=3", "--namespace=kwok-operator")
    done = clean.run("install", "--apply")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "applying deployment.apps/kwok-operator in kwok-operator" in line
    assert ".spec.replicas" in line
    assert "--force-conflicts" in line
    assert "deployment.apps/kwok-operator configured" in clean.told(
        "install", "--apply", "--force-conflicts"
    )


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

    would = own.told("uninstall", "--dry-run")
    assert {line.partition(" ")[2] for line in would} == {"would be deleted"}
    assert len(own.kubectl.api.names(NODES)) == 20
    done = own.told("uninstall", "--apply")
    assert [line for line in done if line.endswith(" deleted")] == [
        line.replace("would be deleted", "deleted") for line in would
    ]
    harness.stop()
    eventually(
        lambda: (own.kubectl.api.names(NODES), own.kubectl.api.names(NAMESPACES)),
        lambda left: not left[0] and "kwok-operator" not in left[1],
        describe="nodes and namespace are gone",
        timeout=120,
    )
    eventually(own.objects, lambda left: left <= before, describe="nothing is left", timeout=120)
    assert own.told("uninstall", "--apply") == []


def test_a_namespace_that_was_there_stays(clean: Own) -> None:
    clean.kubectl("create", "namespace", "fakes")
    clean.kubectl("create", "configmap", "theirs", "--namespace=fakes")
    first = clean.told("install", "--apply", "--namespace=fakes")
    assert first[0] == "namespace/fakes left as it is: it was there before"
    assert "kwok-operator" not in clean.kubectl("get", "namespaces", "--output=name")
    last = clean.told("uninstall", "--apply", "--namespace=fakes")[-1]
    assert last.startswith("namespace/fakes left as it is")
    names = clean.kubectl("get", "configmaps,deployments,services", "-nfakes", "--output=name")
    assert names.split() == ["configmap/kube-root-ca.crt", "configmap/theirs"]
    clean.kubectl("delete", "namespace", "fakes")


def test_a_cluster_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("install", "uninstall"):
        assert main([command, "--apply", f"--kubeconfig={tmp_path / 'missing'}"]) == 1
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert said.out == ""
        assert line.startswith("kwok-operator: ") and "missing" in line
