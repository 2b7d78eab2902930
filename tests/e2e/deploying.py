"""What deploy/ holds, rendered by kubectl as people do, and looked into.

`Tree` renders overlays, those of deploy/ and those that a test puts together from components. It
works on a copy, next to which overlays of a test can lie. `Workload` is what a Deployment runs.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.kubectl import Kubectl

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = sorted(path.parent.name for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in DEPLOY.glob("components/*/kustomization.yaml"))
SHIM_RBAC = "shim-rbac"
USE_SHIM_RBAC = {"cluster-autoscaler", "shim-mtls"}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace and name."""


class Tree:
    """A copy of deploy/ and crds/."""

    def __init__(self, *, kubectl: Kubectl, directory: Path) -> None:
        self._kubectl = kubectl
        self._rendered: dict[str, list[Object]] = {}
        self.directory = directory
        shutil.copytree(DEPLOY, directory / "deploy")
        shutil.copytree(ROOT / "crds", directory / "crds")

    def path(self, overlay: str) -> Path:
        return self.directory / "deploy" / "overlays" / overlay

    def render(self, overlay: str) -> list[Object]:
        """The objects, as `kubectl kustomize` prints them."""
        if overlay not in self._rendered:
            text = self._kubectl("kustomize", str(self.path(overlay)))
            self._rendered[overlay] = list(yaml.load_all(text, Loader=LOADER))
        return self._rendered[overlay]

    def combine(self, name: str, components: Sequence[str], **more: Any) -> str:
        """An overlay of the base and these components, in this order; its name."""
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../../base"],
            "components": [f"../../components/{component}" for component in components],
            "transformers": ["../../settings"],
        } | more
        self._rendered.pop(name, None)
        self.path(name).mkdir(exist_ok=True)
        (self.path(name) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return name


def with_what_they_use(*components: str) -> list[str]:
    """The components, and the one that some of them go together with."""
    uses = USE_SHIM_RBAC.intersection(components) and SHIM_RBAC not in components
    return [*components, SHIM_RBAC] if uses else list(components)


def key_of(item: Mapping[str, Any]) -> Key:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace", ""), metadata["name"]


def by_key(items: Sequence[Object]) -> dict[Key, Object]:
    return {key_of(item): item for item in items}


def find(items: Sequence[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = [i for i in items if i["kind"] == kind and i["metadata"]["name"] == name]
    return found


@dataclass(frozen=True)
class Container:
    """A container of a pod, and where it stands."""

    workload: str
    pod: Object
    spec: Object

    def __str__(self) -> str:
        return f"{self.workload}/{self.spec['name']}"

    @property
    def is_ours(self) -> bool:
        return "kwok-operator" in str(self.spec["image"])

    def port(self, name: str) -> int:
        (found,) = [p for p in self.spec["ports"] if p["name"] == name]
        return int(found["containerPort"])


def deployments(items: Sequence[Object]) -> list[Object]:
    return [item for item in items if item["kind"] == "Deployment"]


def containers(items: Sequence[Object]) -> Iterator[Container]:
    """Every container of every Deployment, sidecars too."""
    for deployment in deployments(items):
        pod = deployment["spec"]["template"]["spec"]
        for spec in (*pod.get("initContainers", ()), *pod["containers"]):
            yield Container(deployment["metadata"]["name"], pod, spec)
