"""What must be there before the operator starts: an API server, permissions, the CRD.

An API server that can't be reached and a missing permission end the program with one line: both
want a person. A missing CRD is waited for: on a fresh cluster it often comes a moment later.
"""

import asyncio
import logging
from collections.abc import Mapping

from kwok_operator import constants
from kwok_operator.controller.statuswriter import StatusWriter
from kwok_operator.errors import PreflightError, UnauthorizedError
from kwok_operator.kube.client import KubeClient

logger = logging.getLogger(__name__)

_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CRD_POLL = 2.0

_GROUP_VERBS = ("get", "list", "watch", "create", "patch", "delete")

NEEDED = (
    *((constants.API_GROUP, constants.PLURAL, verb) for verb in _GROUP_VERBS),
    (constants.API_GROUP, f"{constants.PLURAL}/status", "patch"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "list"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "watch"),
    *(("", "nodes", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "nodes/status", "patch"),
    ("coordination.k8s.io", "leases", "get"),
    *(("", "configmaps", verb) for verb in ("list", "watch")),
)
"""API group, resource (and subresource), verb. Events and Secrets are left out: without them all
goes on, but for templates of other clusters."""


async def check_permissions(client: KubeClient, *, namespace: str) -> None:
    """Raises PreflightError that names every permission that is missing.

    ConfigMaps are read in `namespace`.
    """
    places = {"leases": "kube-node-lease", "configmaps": namespace}
    try:
        answers = await asyncio.gather(*(_allowed(client, places, *rule) for rule in NEEDED))
    except UnauthorizedError as error:
        raise PreflightError(
            f"{client.connection.server} does not know this account (401 {error.message}): "
            "renew the credentials (token, certificate or exec plugin)"
        ) from error
    missing = [rule for rule, allowed in zip(NEEDED, answers, strict=True) if not allowed]
    if missing:
        rules = ", ".join(_in_words(places, *rule) for rule in missing)
        elsewhere = ""
        if any(resource == "configmaps" for _, resource, _ in missing):
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


def _in_words(places: Mapping[str, str], group: str, resource: str, verb: str) -> str:
    """As kubectl writes it: `patch kwoknodegroups.kwok-operator.io/status`."""
    name, slash, subresource = resource.partition("/")
    place = f" in namespace {places[resource]}" if resource in places else ""
    return f"{verb} {name}{'.' + group if group else ''}{slash}{subresource}{place}"


async def _allowed(
    client: KubeClient, places: Mapping[str, str], group: str, resource: str, verb: str
) -> bool:
    resource, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": resource, "verb": verb, "subresource": subresource}
    if resource in places:
        attributes["namespace"] = places[resource]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", _REVIEWS_PATH, body=review)
    return b'"allowed":true' in answer
