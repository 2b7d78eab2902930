"""Checks what the operator needs to start: an API server, permissions, the CRD of groups.

If the API server is unreachable or a permission is missing, the program ends with one line, as only
a person can mend that. A missing CRD is waited for: in a new cluster it often comes a moment later.
"""

import asyncio
import logging

from kwok_operator import constants
from kwok_operator.constants import GROUPS_PATH, POOLS_PATH, PROFILES_PATH
from kwok_operator.errors import (
    ApiError,
    ApiUnreachableError,
    KwokOperatorError,
    PreflightError,
    UnauthorizedError,
)
from kwok_operator.kube.access import AccessRight, missing_rights
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.followed import is_served

logger = logging.getLogger(__name__)

_CRD_POLL = 2.0
_CRD_POLLS = 5
"""How often the program looks for CRDs that it can work without, before it starts without them."""
_ANSWERS_WITHIN = 5.0
"""Seconds to wait for a management cluster. Existing groups don't need it, so the start goes on
without it."""

_GROUP_VERBS = ("get", "list", "watch", "create", "patch", "delete")
_READ = (constants.POOL_PLURAL, constants.PROFILE_PLURAL)

NEEDED = (
    *((constants.API_GROUP, constants.PLURAL, verb) for verb in _GROUP_VERBS),
    (constants.API_GROUP, f"{constants.PLURAL}/status", "patch"),
    *((constants.API_GROUP, kind, verb) for kind in _READ for verb in ("list", "watch")),
    *((constants.API_GROUP, f"{kind}/status", "patch") for kind in _READ),
    *(("", "nodes", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("", "nodes/status", "patch"),
    ("coordination.k8s.io", "leases", "get"),
    *(("", "configmaps", verb) for verb in ("list", "watch")),
)
"""The operator's permissions as API group, resource (and subresource), verb: those in
deploy/base/rbac.yaml, except for Events, which the operator can do without. A component's
permissions are checked only where they are used."""

NEEDED_FOR_ELECTION = tuple(
    ("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")
)

_EMULATED = (
    *(("machinedeployments", verb) for verb in ("list", "watch", "patch")),
    *(("machinesets", verb) for verb in ("get", "list", "watch", "create", "patch")),
    *(("machines", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((f"{kind}/status", "patch") for kind in ("machinedeployments", "machinesets", "machines")),
)
"""The permissions in deploy/components/clusterapi-emulate/rbac.yaml."""


def needed_for_emulation(group: str) -> tuple[tuple[str, str, str], ...]:
    """Returns (API group, resource, verb) of each permission that is needed to simulate Cluster
    API's Machines; `group` is the API group of the Machines."""
    crds = ("apiextensions.k8s.io", "customresourcedefinitions", "list")
    return (crds, *((group, resource, verb) for resource, verb in _EMULATED))


NEEDED_FOR_CSI_NODES = tuple(
    ("storage.k8s.io", "csinodes", verb) for verb in ("get", "list", "watch", "create", "delete")
)
"""The permissions for CSINodes in deploy/components/companions/rbac.yaml."""

_MIRRORED = tuple(
    (kind, verb)
    for kind in ("machinedeployments", "machinesets", "machinepools")
    for verb in ("list", "watch")
)
"""The permissions in deploy/components/clusterapi-mirror/rbac.yaml that are needed to follow
Cluster API's objects."""


async def check_permissions(
    client: KubeClient,
    *,
    namespace: str,
    lease: tuple[str, str] | None = None,
    more: tuple[tuple[str, str, str], ...] = (),
) -> None:
    """Checks the account's permissions; raises PreflightError that names every missing one.

    ConfigMaps are read in `namespace`. `lease` is namespace and name of the leader's Lease, if
    there is an election. `more` are further permissions, in all namespaces.
    """
    places = {"leases": "kube-node-lease", "configmaps": namespace}
    rights = [AccessRight(*rule, namespace=places.get(rule[1], "")) for rule in NEEDED]
    rights += [AccessRight(*rule) for rule in more]
    if lease is not None:
        place, name = lease
        for rule in NEEDED_FOR_ELECTION:
            # RBAC can't grant "create" for a single name.
            named = "" if rule[-1] == "create" else name
            rights.append(AccessRight(*rule, namespace=place, name=named))
    if missing := await _missing(client, rights):
        rules = ", ".join(map(str, missing))
        elsewhere = ""
        if any(right.resource == "configmaps" for right in missing):
            elsewhere = ", or name another namespace in POD_NAMESPACE"
        if any(rule[:2] == right[:2] for right in missing for rule in more):
            elsewhere += " and deploy/components/clusterapi-emulate/rbac.yaml"
        raise PreflightError(
            f"this account may not: {rules}. Bind it to the roles in deploy/base/rbac.yaml"
            f"{elsewhere}"
        )


async def may_keep_csi_nodes(client: KubeClient) -> bool:
    """Whether the account may create a CSINode for each node; logs the missing permissions."""
    missing = await _missing(client, [AccessRight(*rule) for rule in NEEDED_FOR_CSI_NODES])
    if missing:
        logger.info(
            "nodes get no CSINode, without which cluster-autoscaler does nothing if it has"
            " --enable-csi-node-aware-scheduling: this account may not: %s; bind it to the role in"
            " deploy/components/companions/rbac.yaml and start again, or set --csi-nodes=false",
            ", ".join(map(str, missing)),
        )
    return not missing


async def check_reading(client: KubeClient, *, group: str, namespace: str) -> None:
    """Raises PreflightError if Cluster API's objects may not be read, in all namespaces or one.

    A management cluster that doesn't answer is no error: the mirror waits for it.
    """
    rights = [AccessRight(group, *rule, namespace=namespace) for rule in _MIRRORED]
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN):
            missing = await _missing(client, rights)
    except (TimeoutError, ApiError, ApiUnreachableError) as error:
        server = client.connection.server
        logger.warning("management cluster: server=%s error=%s", server, str(error) or "no answer")
        return
    if missing:
        rules = ", ".join(map(str, missing))
        raise PreflightError(
            f"the account for the management cluster may not: {rules}. Bind it there to the role in"
            " deploy/components/clusterapi-mirror/rbac.yaml"
        )


async def _missing(client: KubeClient, rights: list[AccessRight]) -> list[AccessRight]:
    try:
        return await missing_rights(client, rights)
    except UnauthorizedError as error:
        raise PreflightError(
            f"{client.connection.server} does not know this account (401 {error.message}): "
            "renew the credentials (token, certificate or exec plugin)"
        ) from error


async def wait_for_crds(client: KubeClient) -> None:
    """Returns once the API server serves groups.

    The operator can do without the other CRDs. As all are installed together, it waits a little for
    them, too.
    """
    await _wait_for_groups(client)
    for _ in range(_CRD_POLLS):
        missing = await missing_crds(client)
        if not missing:
            return
        await asyncio.sleep(_CRD_POLL)
    for path in missing:
        logger.warning("the API server does not serve %s: install its CRD", _resource(path))


async def missing_crds(client: KubeClient) -> list[str]:
    """Returns the paths of optional CRDs that the API server does not serve."""
    return [path for path in (POOLS_PATH, PROFILES_PATH) if not await is_served(client, path)]


async def end_once_served(client: KubeClient, paths: list[str]) -> None:
    """Raises PreflightError once one of these paths is served, so that the program restarts: kopf
    follows only CRDs that exist at its start."""
    while True:
        await asyncio.sleep(_CRD_POLL)
        for path in paths:
            try:
                served = await is_served(client, path)
            except KwokOperatorError:
                continue  # an outage, which the watches report
            if served:
                raise PreflightError(
                    f"{_resource(path)} are served by now, and followed only"
                    " from the next start on: start the operator again"
                )


async def _wait_for_groups(client: KubeClient) -> None:
    if await is_served(client, GROUPS_PATH):
        return
    logger.warning(
        "waiting for the CRD: %s.%s is not installed; kubectl apply -f crds/",
        constants.PLURAL,
        constants.API_GROUP,
        extra={"trouble": "crd"},
    )
    while not await is_served(client, GROUPS_PATH):  # noqa: ASYNC110 - no event announces it
        await asyncio.sleep(_CRD_POLL)
    logger.info("the CRD is installed", extra={"over": "crd"})


def _resource(path: str) -> str:
    return path.rpartition("/")[2]
