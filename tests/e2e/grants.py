"""Rights as deploy/ grants them, one verb on one resource each, and requests that made use of them.

    the files of deploy/ ──> Grant ──taken_away──> the API server's roles, for a while
    the API server's audit log ──> Request ──repeat──> the same once more, as the same account

Which requests there were is for the API server to say: its audit log has the role that allowed
each of them. `Caller` is somebody with a token; kubectl would take ten times as long.
"""

import base64
import dataclasses
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kwok_operator.constants import API_GROUP, API_VERSION, KIND
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.rights import NAMESPACE, OPERATOR, SHIM, kubeconfig_of, user_name

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = {
    OPERATOR: (
        "base/rbac.yaml",
        "components/delete-pods/rbac.yaml",
        "components/hold-stage/rbac.yaml",
        "components/remote-templates/rbac.yaml",
    ),
    SHIM: ("components/shim-rbac/rbac.yaml",),
}
PROFILES = "components/pod-profiles/rbac.yaml"
"""The operator's too, where kwok has Stages: tried in test_pod_profiles.py."""
COMPANIONS = "components/companions/rbac.yaml"
"""The operator's too, where groups have companions: tried in test_companions.py."""
CLUSTERAPI = (
    "components/clusterapi-emulate/rbac.yaml",
    "components/clusterapi-mirror/rbac.yaml",
)
"""The operator's too, where Cluster API is: tried in test_clusterapi_*.py."""
METHODS = {
    "create": "POST",
    "patch": "PATCH",
    "apply": "PATCH",
    "update": "PUT",
    "delete": "DELETE",
}
JSON = "application/json"
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Caller:
    """Sends requests with the token of a kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        config = json.loads(kubeconfig)
        cluster = config["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._token = config["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)

    def send(
        self, method: str, uri: str, body: object = None, *, content_type: str = JSON
    ) -> tuple[int, Any]:
        """Status and object of the answer; a watch is left at once."""
        asked = urllib.request.Request(
            self._server + uri,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": content_type},
        )
        try:
            with urllib.request.urlopen(asked, timeout=30, context=self._tls) as answer:
                watch = "watch=true" in uri
                return answer.status, None if watch else json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            # Of an API group that nobody serves, it only says so: `404 page not found`.
            is_json = error.headers.get_content_type() == JSON
            return error.code, json.loads(text) if is_json else {"message": text}


def make_admin(kubectl: Kubectl) -> Caller:
    """Somebody who may do everything."""
    kubectl("create", "serviceaccount", "admin", f"--namespace={NAMESPACE}")
    account = f"--serviceaccount={NAMESPACE}:admin"
    kubectl("create", "clusterrolebinding", "admin", "--clusterrole=cluster-admin", account)
    admin = Caller(kubeconfig_of(kubectl, "admin"))
    eventually(lambda: admin.send("GET", "/api/v1/nodes")[0] == 200, describe="it may")
    return admin


@dataclass(frozen=True)
class Grant:
    """One verb on one resource. `namespace` is "" for a ClusterRole's."""

    account: str
    role: str
    namespace: str
    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        dot = f".{self.group}" if self.group else ""
        return f"{self.account}: {self.verb} {self.resource}{dot}{place}"

    @contextmanager
    def taken_away(self, admin: Caller) -> Iterator[None]:
        """The role is without it."""
        kind = f"namespaces/{self.namespace}/roles" if self.namespace else "clusterroles"
        uri = f"/apis/rbac.authorization.k8s.io/v1/{kind}/{self.role}"
        before = admin.send("GET", uri)[1]["rules"]
        after = [kept for rule in before for kept in self._without(rule)]
        assert after != before

        def put(rules: list[dict[str, Any]]) -> None:
            patch = [{"op": "replace", "path": "/rules", "value": rules}]
            assert admin.send("PATCH", uri, patch, content_type=JSON_PATCH)[0] == 200

        put(after)
        try:
            yield
        finally:
            put(before)

    def _without(self, rule: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if self.group not in rule["apiGroups"] or self.resource not in rule["resources"]:
            yield rule
            return
        if others := [resource for resource in rule["resources"] if resource != self.resource]:
            yield {**rule, "resources": others}
        if verbs := [verb for verb in rule["verbs"] if verb != self.verb]:
            yield {**rule, "resources": [self.resource], "verbs": verbs}


def granted(files_of: Mapping[str, tuple[str, ...]] = FILES) -> list[Grant]:
    """All that accounts may do, as files say; by default the operator and the shim."""
    return [
        Grant(
            account=account,
            role=role["metadata"]["name"],
            namespace=role["metadata"].get("namespace", ""),
            group=group,
            resource=resource,
            verb=verb,
        )
        for account, files in files_of.items()
        for file in files
        for role in yaml.safe_load_all((DEPLOY / file).read_text())
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": [user_name(account) for account in FILES]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Request:
    """One that was made, and allowed. `apply` is a patch that creates."""

    verb: str
    uri: str

    def repeat(self, caller: Caller) -> tuple[int, Any]:
        """The same, with a body that says nothing."""
        method, uri = METHODS.get(self.verb, "GET"), self.uri
        if self.verb == "apply":
            path, _, query = uri.partition("?")
            name = "never-there"
            body = {
                "apiVersion": f"{API_GROUP}/{API_VERSION}",
                "kind": KIND,
                "metadata": {"name": name},
            }
            uri = f"{path.rpartition('/')[0]}/{name}?{query}&dryRun=All"
            return caller.send(method, uri, body | {"spec": {}}, content_type=APPLY_PATCH)
        if method == "PATCH":
            return caller.send(method, uri, {}, content_type=MERGE_PATCH)
        return caller.send(method, uri, None if method == "GET" else {})


def requests_by_grant(audit_log: str) -> dict[Grant, Request]:
    """For each right that was made use of, one of the requests."""
    found: dict[Grant, Request] = {}
    known = {user_name(account): account for account in FILES}
    for line in audit_log.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # it is being written
        decision = event.get("annotations", {})
        if decision.get("authorization.k8s.io/decision") != "allow" or "objectRef" not in event:
            continue
        what, reason = event["objectRef"], decision["authorization.k8s.io/reason"]
        binding, _, rest = reason.partition(" of ")
        resource = "/".join(filter(None, (what["resource"], what.get("subresource", ""))))
        grant = Grant(
            account=known[event["user"]["username"]],
            role=rest.split('"')[1] if '"' in rest else "",
            namespace=what.get("namespace", "") if " RoleBinding " in binding else "",
            group=what.get("apiGroup", ""),
            resource=resource,
            verb=event["verb"],
        )
        found.setdefault(grant, Request(event["verb"], event["requestURI"]))
        if event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201:
            # The right to create is asked for then too, and the log doesn't say so.
            creates = dataclasses.replace(grant, verb="create")
            found.setdefault(creates, Request("apply", event["requestURI"]))
    return found
