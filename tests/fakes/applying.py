"""A fake API server that takes what `kwok-operator install` applies.

Server-side apply is here as far as one manager needs it: what isn't there is created, what is there
gets the fields that are given, and the manager's name is noted. A field that another manager has
(`others`) is a conflict. Discovery tells of the kinds that are served.
"""

import json
from typing import Any

from tests.fakes.apiserver import FakeApiServer, Seen
from tests.fakes.store import Collection, Json, Refused, merge_patch

NAMESPACES = "/api/v1/namespaces"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCOUNTS = "/api/v1/namespaces/{}/serviceaccounts"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"


class ApplyingApiServer(FakeApiServer):
    """See the module."""

    def __init__(self, *namespaces: str) -> None:
        super().__init__()
        self.others: dict[str, str] = {}
        """Names of objects that have fields of another manager, and that manager."""
        self.established = True
        for path, kind in ((NAMESPACES, "Namespace"), (CRDS, "CustomResourceDefinition")):
            self.serve(path, kind=kind)
            self._tell_of(path, kind, namespaced=False)
        for path, kind in ((ACCOUNTS, "ServiceAccount"), (DEPLOYMENTS, "Deployment")):
            for namespace in namespaces:
                self.serve(path.format(namespace), kind=kind)
            self._tell_of(path, kind, namespaced=True)

    def _tell_of(self, path: str, kind: str, *, namespaced: bool) -> None:
        root = path.split("/namespaces")[0] if path != CRDS else path.rpartition("/")[0]
        known = json.loads(self.documents.get(root, '{"resources": []}'))
        plural = path.rpartition("/")[2]
        known["resources"] += [
            {"name": plural, "kind": kind, "namespaced": namespaced},
            {"name": f"{plural}/status", "kind": kind, "namespaced": namespaced},
        ]
        self.documents[root] = json.dumps(known)

    def _find(self, path: str) -> tuple[Collection | None, str, str]:
        # The longest path first: namespaces are a collection, and part of the path of others.
        for prefix in sorted(self.store.collections, key=len, reverse=True):
            if path.startswith(f"{prefix}/"):
                name, _, subresource = path[len(prefix) + 1 :].partition("/")
                return self.store.collections[prefix], name, subresource
        return super()._find(path)

    def _serve_object(self, seen: Seen, collection: Collection, subresource: str) -> Json:
        if seen.headers.get("Content-Type") != "application/apply-patch+yaml":
            return super()._serve_object(seen, collection, subresource)
        body: dict[str, Any] = json.loads(seen.body)
        applied = {"manager": seen.query["fieldManager"], "operation": "Apply"}
        body["metadata"]["managedFields"] = [applied]
        if seen.name in self.others and seen.query.get("force") != "true":
            other = self.others[seen.name]
            raise Refused(409, "Conflict", f'conflict with "{other}": .spec.replicas')
        if seen.name in collection.objects:
            whole = merge_patch(self.store.get(collection, seen.name), body)
            return self.store.update(collection, seen.name, whole)
        made = self.store.create(collection, body)
        if collection.kind == "CustomResourceDefinition" and self.established:
            made["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        return made
