"""What a client requests that looks which APIs there are: for kopf, which does."""

import json

from kwok_operator import constants
from tests.fakes.apiserver import GROUPS, FakeApiServer
from tests.fakes.store import Json

CONFIGMAPS = "/api/v1/namespaces/ops/configmaps"
FOLLOWED = {
    GROUPS: constants.KIND,
    constants.POOLS_PATH: constants.POOL_KIND,
    constants.PROFILES_PATH: constants.PROFILE_KIND,
    CONFIGMAPS: "ConfigMap",
}

_NAMESPACED = ("configmaps", "events")
_RESOURCES = {
    "/api/v1": [("namespaces", "Namespace"), ("events", "Event"), ("configmaps", "ConfigMap")],
    GROUPS.rpartition("/")[0]: [
        (path.rpartition("/")[2], kind) for path, kind in FOLLOWED.items() if path != CONFIGMAPS
    ],
}


def serve_followed(server: FakeApiServer) -> None:
    """Have the server serve what kopf follows, ConfigMaps of the namespace ops, and say so."""
    for path, kind in FOLLOWED.items():
        if path not in server.store.collections:
            server.serve(path, kind=kind)
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
    return {
        "name": name,
        "singularName": "",
        "kind": kind,
        "namespaced": name in _NAMESPACED,
        "verbs": ["list", "watch"],
    }
