"""Deletes the pods of deleted nodes, for groups with scaleDown.pods: Delete.

    a node was deleted ──> its pods are listed ──> each is deleted at once
                                └── 403 ──> reported once for each group; the node is deleted anyway

By default the operator may not delete pods: a component of deploy/ adds that right. Each request is
made once, as the executor repeats the whole call (see nodewriter.py).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kwok_operator.errors import ConflictError, ForbiddenError, NotFoundError
from kwok_operator.kube.client import ACCEPT_METADATA, ACCEPT_METADATA_LIST, KubeClient
from kwok_operator.kube.decode import OBJECTS

PODS_PATH: Final = "/api/v1/pods"
REMEDY: Final = "kubectl apply -f deploy/components/delete-pods/rbac.yaml"


class PodRemover:
    """Deletes pods. `count_request` is called for each request, to count it against --max-qps;
    `refused(group, sentence)` is called at a group's first 403."""

    def __init__(
        self,
        *,
        client: KubeClient,
        count_request: Callable[[], None],
        refused: Callable[[str, str], None],
    ) -> None:
        self._client = client
        self._count_request = count_request
        self._refused = refused
        self._reported: set[str] = set()

    async def remove(self, node: str, *, group: str) -> None:
        """Deletes the pods of a node, or reports a 403. Raises other ApiErrors."""
        try:
            await self._remove(node)
        except ForbiddenError as error:
            if group not in self._reported:
                self._reported.add(group)
                self._refused(group, _in_words(error))

    async def _remove(self, node: str) -> None:
        self._count_request()
        answer = await self._client.request(
            "GET",
            PODS_PATH,
            params={"fieldSelector": f"spec.nodeName={node}"},
            accept=ACCEPT_METADATA_LIST,
        )
        for pod in OBJECTS.page(answer).items:
            await self._remove_one(pod["metadata"])

    async def _remove_one(self, pod: Mapping[str, Any]) -> None:
        self._count_request()
        try:
            await self._client.request(
                "DELETE",
                f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}",
                body={"gracePeriodSeconds": 0, "preconditions": {"uid": pod["uid"]}},
                accept=ACCEPT_METADATA,
            )
        except (NotFoundError, ConflictError):
            return  # the pod is gone, or a new pod has its name


def _in_words(error: ForbiddenError) -> str:
    return (
        "scaleDown.pods is Delete, but pods of deleted nodes stay, because the operator may not "
        f"delete them: {error.message}. To allow it: {REMEDY}"
    )
