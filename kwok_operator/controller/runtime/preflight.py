"""What must be there before the operator starts: an API server, permissions, the CRD.

An API server that can't be reached and a missing permission end the program with one line: both
want a person. A missing CRD is waited for: on a fresh cluster it often comes a moment later.
"""

import asyncio
import logging
from typing import NamedTuple

from kwok_operator import constants
from kwok_operator.controller.writers.statuswriter import StatusWriter
from kwok_operator.errors import PreflightError, UnauthorizedError
from kwok_operator.kube.client import KubeClient

logger = logging.getLogger(__name__)

_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CRD_POLL = 2.0

_GROUP_VERBS = ("get", "list", "watch", "create", "patch", "delete")

NEEDED = (
    *((constants.API_GROUP, constants.PLURAL, verb) for verb in _GROUP_VERBS),
    (constants.API_GROUP, f"{constants.PLURAL}/status", "patch"),
    *((constants.API_GROUP, constants.POOL_PLURAL, verb) for verb in ("list", "watch")),
    (constants.API_GROUP, f"{constants.POOL_PLURAL}/status", "patch"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "list"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "watch"),
    *(("", "nodes", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "nodes/status", "patch"),
    ("coordination.k8s.io", "leases", "get"),
    *(("", "configmaps", verb) for verb in ("list", "watch")),
)
"""API group, resource (and subresource), verb: what deploy/base/rbac.yaml grants, but for Events,
without which all goes on. What a component grants is missed by whoever asks for it."""

NEEDED_FOR_ELECTION = tuple(
    ("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")
)


class _Right(NamedTuple):
    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """As kubectl writes it: `patch kwoknodegroups.kwok-operator.io/status`."""
        name, slash, subresource = self.resource.partition("/")
        place = f" in namespace {self.namespace}" if self.namespace else ""
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {name}{group}{slash}{subresource}{place}"


async def check_permissions(
    client: KubeClient, *, namespace: str, lease: tuple[str, str] | None = None
) -> None:
    """Raises PreflightError that names every permission that is missing.

    ConfigMaps are read in `namespace`. `lease` is that of the leader, namespace and name, where
    there is an election.
    """
    places = {"leases": "kube-node-lease", "configmaps": namespace}
    rights = [_Right(*rule, namespace=places.get(rule[1], "")) for rule in NEEDED]
    if lease is not None:
        place, name = lease
        for rule in NEEDED_FOR_ELECTION:
            # A right to create can't be given for one name.
            named = "" if rule[-1] == "create" else name
            rights.append(_Right(*rule, namespace=place, name=named))
    try:
        answers = await asyncio.gather(*(_allowed(client, right) for right in rights))
    except UnauthorizedError as error:
        raise PreflightError(
            f"{client.connection.server} does not know this account (401 {error.message}): "
            "renew the credentials (token, certificate or exec plugin)"
        ) from error
    missing = [right for right, allowed in zip(rights, answers, strict=True) if not allowed]
    if missing:
        rules = ", ".join(map(str, missing))
        elsewhere = ""
        if any(right.resource == "configmaps" for right in missing):
            elsewhere = ", or name another namespace in POD_NAMESPACE"
        raise PreflightError(
            f"this account may not: {rules}. Bind it to the roles in deploy/base/rbac.yaml"
            f"{elsewhere}"
        )


async def wait_for_crd(status: StatusWriter) -> None:
    """Returns once the API server serves our resource; says so once if it does not."""
    if await status.served():
        return
    logger.warning(
        "waiting for the CRD: %s.%s is not installed; kubectl apply -f crds/",
        constants.PLURAL,
        constants.API_GROUP,
    )
    while not await status.served():  # noqa: ASYNC110 - nobody but the API server could tell us
        await asyncio.sleep(_CRD_POLL)


async def _allowed(client: KubeClient, right: _Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = right._asdict() | {"resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", _REVIEWS_PATH, body=review)
    return b'"allowed":true' in answer
