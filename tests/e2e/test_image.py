"""The image, as far as it can be proven without a container engine.

Its steps are carried out as the Dockerfile says, and the result runs as the manifests say: as an
unprivileged user on a read-only root, with nothing but a service account's files, against a real
API server on which that very wheel has installed the manifests.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator import __version__
from kwok_operator.controlplane import Cluster
from tests.e2e.autoscaler import Autoscaler
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.container import ROOT, Container, Image, build_image
from tests.e2e.groups import apply_group, names_of, scale, wait_ready
from tests.e2e.kubectl import Kubectl, eventually

NAMESPACE = "kwok-operator"
FOR_DEVELOPMENT = frozenset("pip setuptools wheel build pytest mypy ruff grpcio hypothesis".split())

LISTED = """
import json, sys
from importlib.metadata import distributions
print(json.dumps({d.name: d.version for d in distributions()}))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return build_image(tmp_path_factory.mktemp("image"))


@dataclass(frozen=True)
class Own:
    """A cluster in which there is what the image installs."""

    cluster: Cluster
    kubectl: Kubectl


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with bare_cluster("image", directory=tmp_path_factory.mktemp("image")) as there:
        yield Own(*there)


def in_image(image: Image, *arguments: str, kubeconfig: Path | None = None) -> str:
    """What the program of the image prints; it runs outside of the sandbox."""
    environ = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
    done = subprocess.run(
        image.command(str(image.environment), list(arguments)),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def installed(own: Own, image: Image, overlay: str) -> dict[str, dict[str, Any]]:
    """Pod templates by the name of the Deployment, after the image has installed the overlay."""
    flags = ("install", f"--overlay={overlay}")
    in_image(image, *flags, "--apply", kubeconfig=own.cluster.kubeconfig)
    objects = yaml.safe_load_all(in_image(image, *flags, "--dry-run"))
    return {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]
        for item in objects
        if item["kind"] == "Deployment"
    }


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_runs_is_in_it_and_nothing_else(image: Image) -> None:
    python = str(image.environment / "bin" / "python")
    answer = subprocess.run([python, "-c", LISTED], capture_output=True, text=True, check=True)
    found = {normal(name): version for name, version in json.loads(answer.stdout).items()}
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line
    )
    pinned = {normal(name): version for name, version in pins.items()}
    assert found.pop("kwok-operator") == __version__
    assert found.items() <= pinned.items()
    assert not FOR_DEVELOPMENT & found.keys()
    assert {"aiohttp", "kopf", "pydantic"} <= found.keys()


def test_its_program_starts_with_the_interpreter_beside_it(image: Image) -> None:
    program = image.environment / "bin" / image.entrypoint
    first = program.read_text().splitlines()[0]
    # In the image the environment is where the Dockerfile's step puts it.
    assert first == f"#!{image.environment}/bin/python"
    assert program.stat().st_mode & 0o111 == 0o111
    assert in_image(image, "--version") == f"kwok-operator {__version__}\n"


def unprivileged(container: Container) -> bool:
    return container.users() == {container.user} and container.capabilities() == 0


@pytest.fixture
def operator(own: Own, image: Image, tmp_path: Path) -> Iterator[Container]:
    pod = installed(own, image, "default")["kwok-operator"]
    container = run(own.kubectl, image, pod, "operator", tmp_path)
    yield container
    container.kill()


@pytest.fixture
def shim(own: Own, image: Image, tmp_path: Path) -> Iterator[Container]:
    pod = installed(own, image, "cluster-autoscaler")["cluster-autoscaler"]
    container = run(own.kubectl, image, pod, "shim", tmp_path)
    yield container
    container.kill()


def run(
    kubectl: Kubectl, image: Image, pod: dict[str, Any], name: str, directory: Path
) -> Container:
    return Container(
        image, pod=pod, name=name, namespace=NAMESPACE, kubectl=kubectl, directory=directory
    )


def test_the_operator_works_as_deployed(own: Own, operator: Container) -> None:
    operator.wait_ready()
    assert not operator.sandboxed or unprivileged(operator)
    apply_group(own.kubectl, "as-deployed", targetSize=300)
    wait_ready(own.kubectl, "as-deployed")
    assert len(names_of(own.kubectl, "as-deployed")) == 300
    scale(own.kubectl, "as-deployed", 0)
    wait_ready(own.kubectl, "as-deployed")
    assert operator.probe("livenessProbe") == 200
    assert operator.peak_memory() < operator.limit("memory") / 2
    assert operator.terminate() == 0
    assert "Traceback" not in operator.log()
    assert "Read-only file system" not in operator.log()


def test_the_shim_works_as_deployed(own: Own, shim: Container) -> None:
    shim.wait_ready()
    assert not shim.sandboxed or unprivileged(shim)
    apply_group(own.kubectl, "driven", targetSize=0, autoscaling={"maxSize": 5})
    (directory,) = shim.volumes.values()
    autoscaler = Autoscaler(Path(directory) / "shim.sock")
    try:
        eventually(
            lambda: autoscaler.groups().get("driven") == (0, 5),
            describe="the shim tells of the group",
        )
    finally:
        autoscaler.close()
    assert shim.probe("livenessProbe") == 200
    assert shim.peak_memory() < shim.limit("memory") / 2
    assert shim.terminate() == 0
    assert "Traceback" not in shim.log()
