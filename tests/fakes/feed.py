"""In the place of kopf, where a test has no operator: a watch that tells who follows a kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from kwok_operator.kube.decode import OBJECTS
from kwok_operator.kube.followed import FollowedKind
from kwok_operator.kube.reflector import Reflector
from tests.fakes.reflecting import Naps

Body = Mapping[str, Any]


class Feed:
    """Hands objects on to `known`."""

    def __init__(self, known: FollowedKind[Any]) -> None:
        self._known = known

    def replace(self, items: Sequence[Body], resource_version: int) -> None:
        self._known.listed(items, resource_version or 2**63)

    def upsert(self, item: Body) -> None:
        self._known.seen(item, gone=False)

    def remove(self, item: Body) -> None:
        self._known.seen(item, gone=True)


def feeding(known: FollowedKind[Any], *, client: Any, path: str) -> Reflector[Any]:
    return Reflector(
        client=client, path=path, decoder=OBJECTS, sink=Feed(known), sleep=Naps(), optional=True
    )
