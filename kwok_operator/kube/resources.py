"""Discovers which kinds of objects an API server has, and their paths, in two requests."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kwok_operator.kube.client import ACCEPT_METADATA_LIST, KubeClient
from kwok_operator.kube.retry import RETRIES

_ACCEPT: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ApiResource(NamedTuple):
    """A kind in one version; the API group is empty for core/v1."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    verbs: frozenset[str]

    def path(self, namespace: str = "", name: str = "") -> str:
        """Returns the path of the object `name`; without `name`, that of all objects in the
        namespace; without both, that of all objects."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        place = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{place}/{self.plural}" + (f"/{name}" if name else "")

    async def metadata(self, client: KubeClient, **params: str) -> list[dict[str, Any]]:
        """Returns the metadata of the existing objects. Raises ApiError, ApiUnreachableError."""
        answer = await client.request(
            "GET", self.path(), params=params, accept=ACCEPT_METADATA_LIST, retries=RETRIES
        )
        return [item["metadata"] for item in json.loads(answer).get("items") or ()]


NODES: Final = ApiResource("", "v1", "nodes", "Node", namespaced=False, verbs=frozenset())
"""Nodes, whose path is known without discovery."""


class ApiResources:
    """The kinds that one API server serves."""

    def __init__(self, resources: Iterable[ApiResource]) -> None:
        self._kinds: dict[tuple[str, str, str], ApiResource] = {}
        self._preferred: dict[tuple[str, str], ApiResource] = {}
        for each in resources:
            self._kinds[each.group, each.version, each.kind] = each
            self._preferred.setdefault((each.group, each.plural), each)

    def of(self, manifest: Mapping[str, Any]) -> ApiResource | None:
        """Returns the resource of a manifest's kind; None if it isn't served."""
        group, _, version = str(manifest.get("apiVersion")).rpartition("/")
        return self._kinds.get((group, version, str(manifest.get("kind"))))

    def named(self, plural: str, group: str) -> ApiResource | None:
        return self._preferred.get((group, plural))

    @property
    def deletable(self) -> list[ApiResource]:
        """Returns the resources that can be listed and deleted, each in one version only."""
        return [each for each in self._preferred.values() if each.verbs >= {"list", "delete"}]


async def discover(client: KubeClient) -> ApiResources:
    """Reads which kinds the API server serves. Raises ApiError, ApiUnreachableError."""
    resources = []
    for root in ("/api", "/apis"):
        answer = json.loads(
            await client.request("GET", root, accept=f"{_ACCEPT},application/json", retries=RETRIES)
        )
        for group in answer.get("items") or ():
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                resources += [
                    ApiResource(
                        group=name,
                        version=version["version"],
                        plural=each["resource"],
                        kind=(each.get("responseKind") or {}).get("kind", ""),
                        namespaced=each["scope"] == "Namespaced",
                        verbs=frozenset(each.get("verbs") or ()),
                    )
                    for each in version.get("resources") or ()
                ]
    return ApiResources(resources)
