"""What a client asks that finds out which APIs there are: for kopf, which does."""

import json

from kwok_operator import constants
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.store import Json

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_RESOURCES = {
    "/api/v1": [("namespaces", "Namespace"), ("events", "Event")],
    CRDS.rpartition("/")[0]: [("customresourcedefinitions", "CustomResourceDefinition")],
    GROUPS.rpartition("/")[0]: [(constants.PLURAL, constants.KIND)],
}


def serve_discovery(server: FakeApiServer) -> None:
    """Have the server say that it serves groups, and CRDs."""
    server.serve(CRDS, kind="CustomResourceDefinition")
    documents: dict[str, Json] = {"/api": {"versions": ["v1"]}, "/apis": {"groups": []}}
    for path, resources in _RESOURCES.items():
        documents[path] = {"resources": [_resource(*each) for each in resources]}
        _, kind, group, *version = path.split("/")
        if kind == "apis":
            found = {"version": version[0]}
            documents["/apis"]["groups"].append(
                {"name": group, "versions": [found], "preferredVersion": found}
            )
    server.documents |= {path: json.dumps(document) for path, document in documents.items()}


def _resource(name: str, kind: str) -> Json:
    verbs = ["list", "watch"]
    return {"name": name, "singularName": "", "kind": kind, "namespaced": False, "verbs": verbs}
