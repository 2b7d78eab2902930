"""Checks what an account may do, by SelfSubjectAccessReviews."""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from kwok_operator.kube.client import KubeClient

_REVIEWS_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class AccessRight(NamedTuple):
    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Returns the right as kubectl writes it: `patch
        kwoknodegroups.kwok-operator.io/status`."""
        name, slash, subresource = self.resource.partition("/")
        place = f" in namespace {self.namespace}" if self.namespace else ""
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {name}{group}{slash}{subresource}{place}"


async def missing_rights(client: KubeClient, rights: Iterable[AccessRight]) -> list[AccessRight]:
    """Returns those of the `rights` that the account lacks. Raises ApiError,
    ApiUnreachableError."""
    rights = list(rights)
    answers = await asyncio.gather(*(_allowed(client, right) for right in rights))
    return [right for right, allowed in zip(rights, answers, strict=True) if not allowed]


async def _allowed(client: KubeClient, right: AccessRight) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = right._asdict() | {"resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.request("POST", _REVIEWS_PATH, body=review)
    return b'"allowed":true' in answer
