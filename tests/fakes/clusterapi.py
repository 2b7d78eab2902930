"""An API server that serves Cluster API's kinds, or those of an infrastructure provider."""

import json

from tests.fakes.apiserver import FakeApiServer

GROUP = "cluster.x-k8s.io"
ROOT = f"/apis/{GROUP}/v1beta2"


def serve(server: FakeApiServer, group: str, versions: list[str], *kinds: str) -> None:
    """The first version is the preferred one; all have these kinds."""
    found = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    told = {"name": group, "versions": found, "preferredVersion": found[0]}
    server.documents[f"/apis/{group}"] = json.dumps(told)
    for version in versions:
        root = f"/apis/{group}/{version}"
        resources = [{"name": f"{kind.lower()}s", "kind": kind} for kind in kinds]
        server.documents[root] = json.dumps({"resources": resources})
        for kind in kinds:
            path = f"{root}/{kind.lower()}s"
            if path not in server.store.collections:
                server.serve(path, kind=kind, status_on_create=True)
