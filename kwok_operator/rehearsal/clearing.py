"""Deletes what a rehearsal has created in a cluster that isn't its own, and nothing else.

    labelled objects --turn by turn--> deleted --> waited for --> what is left, in words

The garbage collector, the operator and kwok delete what exists only because of our objects, such as
pods of a Deployment. What they haven't deleted after some seconds, perhaps because they no longer
run, is deleted here. Objects are recognised by their label only, so the same code clears up after a
rehearsal that was killed.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kwok_operator.constants import (
    DERIVED_LABEL,
    GROUPS_PATH,
    KIND,
    NODE_GROUP_LABEL,
    NODES_PATH,
    REHEARSAL_LABEL,
)
from kwok_operator.errors import ApiError, ConflictError, NotFoundError
from kwok_operator.formats.untyped import as_map, text_at
from kwok_operator.kube.client import MERGE_PATCH, KubeClient
from kwok_operator.kube.decode import OBJECTS
from kwok_operator.kube.followed import pages
from kwok_operator.kube.resources import ApiResource, ApiResources, discover
from kwok_operator.kube.retry import RETRIES
from kwok_operator.nodegroups.naming import group_of_node
from kwok_operator.rehearsal.karpenter.nodepools import CLASS_GROUP
from kwok_operator.rehearsal.progress import Report
from kwok_operator.rehearsal.scenario.borrowing import (
    REHEARSAL_NAMESPACE,
    SCOUT,
    Turn,
    nodes_of_pod,
    turn_of,
)

_ALL_WITHIN: Final = 300.0
_OTHERS_HAVE: Final = 10.0
"""For how many seconds the controllers may delete owned objects, nodes and pods themselves, before
they are deleted here.
"""
_KARPENTER_HAS: Final = 30.0
"""Seconds without any deletion after which Karpenter's finalizer is removed from what is left. It
is long, as a Karpenter that isn't the rehearsal's may be draining a node.
"""
_WITHOUT_KARPENTER: Final = 60.0
"""How many seconds of the time limit are reserved for what is left once Karpenter was stopped."""
_FINALIZER: Final = "karpenter.sh/termination"
_FAKE_MACHINE: Final = "kwok://"
"""The beginning of the providerID of a node that Karpenter's kwok provider made."""
_LOOK_SECONDS: Final = 0.3
_REPORT_SECONDS: Final = 5.0
_NAMED: Final = 5


class _Made(NamedTuple):
    resource: ApiResource
    metadata: dict[str, Any]

    def __str__(self) -> str:
        place = self.metadata.get("namespace")
        name = f"{place}/{self.metadata['name']}" if place else self.metadata["name"]
        return f"{self.resource.kind} {name}"

    @property
    def turn(self) -> Turn:
        resource = self.resource
        return turn_of(
            resource.group,
            resource.kind,
            namespaced=resource.namespaced,
            metadata=self.metadata,
        )

    @property
    def _path(self) -> str:
        return self.resource.path(self.metadata.get("namespace", ""), self.metadata["name"])

    @property
    def is_going(self) -> bool:
        return "deletionTimestamp" in self.metadata

    @property
    def goes_with_others(self) -> bool:
        return bool(self.metadata.get("ownerReferences"))

    @property
    def is_held_by_karpenter(self) -> bool:
        return self.is_going and _FINALIZER in (self.metadata.get("finalizers") or ())

    async def has_machine(self, client: KubeClient) -> bool:
        """Whether this NodeClaim or Node has a machine in a real cloud, which only the Karpenter of
        that cloud can end.
        """
        try:
            spec = (await client.get_json(self._path)).get("spec")
        except NotFoundError:
            return False
        if self.resource.kind == "NodeClaim":
            return text_at(spec, "nodeClassRef", "group") not in ("", CLASS_GROUP)
        provider = text_at(spec, "providerID")
        return bool(provider) and not provider.startswith(_FAKE_MACHINE)

    async def release(self, client: KubeClient) -> None:
        """Removes Karpenter's finalizer, and no other."""
        others = [each for each in self.metadata["finalizers"] if each != _FINALIZER]
        version = self.metadata["resourceVersion"]
        body = {"metadata": {"finalizers": others, "resourceVersion": version}}
        with suppress(NotFoundError, ConflictError):  # it is gone, or is tried again
            await client.request("PATCH", self._path, body=body, content_type=MERGE_PATCH)

    async def delete(self, client: KubeClient, *, at_once: bool) -> str:
        """Deletes the object. Returns why it can't be deleted; an empty text if it is deleted or
        being deleted.
        """
        grace = {"gracePeriodSeconds": 0} if at_once else {}
        body = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": self.metadata["uid"]},
            **grace,
        }
        try:
            await client.request("DELETE", self._path, body=body, retries=RETRIES)
        except (NotFoundError, ConflictError):
            pass  # it is gone, or a new object has its name
        except ApiError as error:
            return f"{error.status} {error.message}"
        return ""


class _Patience:
    """Decides when deletions that make no progress are no longer waited for."""

    def __init__(self) -> None:
        self._going: dict[str, float] = {}
        self._last = time.monotonic()

    def over(self, there: Iterable[_Made]) -> list[_Made]:
        """Returns the objects that are no longer waited for: their deletion has lasted for more
        than _KARPENTER_HAS seconds, and no deletion has ended in the last _KARPENTER_HAS seconds.
        """
        now = time.monotonic()
        going = {each.metadata["uid"]: each for each in there if each.is_going}
        if self._going.keys() - going.keys():
            self._last = now
        self._going = {uid: self._going.get(uid, now) for uid in going}
        if now - self._last <= _KARPENTER_HAS:
            return []
        return [e for uid, e in going.items() if now - self._going[uid] > _KARPENTER_HAS]


class Clearing:
    """Deletes the rehearsal's objects in one cluster. `report` gets a line if the deletion takes
    long.

    While `karpenter_lives`, objects with Karpenter's finalizer are left to Karpenter.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        report: Report,
        karpenter_lives: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._report = report
        self._karpenter_lives = karpenter_lives
        self._until: float | None = None
        self._nodes = {SCOUT}
        """The names of the rehearsal's nodes, as far as they were seen."""
        self._claimed = False
        self._released = False
        self._of_clouds = set[str]()
        """The UIDs of objects that only a cloud's Karpenter may remove."""

    async def clear(self, turns: Iterable[Turn]) -> list[str]:
        """Deletes the objects of these turns, and waits until they are gone. Returns what is left,
        in words. Raises ApiError, ApiUnreachableError.
        """
        left: list[str] = []
        self._claimed = await self._is_claimed()
        for turn in turns:
            if turn is Turn.CLAIM and left:
                break
            served = await discover(self._client)
            if turn is Turn.INSTALLED:
                await self._keep_kinds_in_use(served)
            look = self._nodes_and_groups if turn is Turn.GROUPS else self._labelled
            left += await self._until_gone(turn, served, look)
            if turn >= Turn.CLUSTER_WIDE:
                await self._delete_stranded_pods(served)
        if left and self._karpenter_lives():
            self._report(f"Karpenter is ended, as these are still there: {in_words(left)}")
            return []
        return left

    async def _is_claimed(self) -> bool:
        try:
            namespace = await self._client.get_json(f"/api/v1/namespaces/{REHEARSAL_NAMESPACE}")
        except NotFoundError:
            return False
        return REHEARSAL_LABEL in as_map(namespace["metadata"].get("labels"))

    async def _until_gone(
        self, turn: Turn, served: ApiResources, look: Callable[..., Awaitable[list[_Made]]]
    ) -> list[str]:
        began = reported_at = time.monotonic()
        self._until = self._until or began + _ALL_WITHIN
        all_kinds = kinds = served.deletable
        refused: dict[str, str] = {}
        for_others = False
        patience = _Patience()
        while True:
            remaining = [each for each in await look(kinds) if each.turn is turn]
            if not remaining and kinds is all_kinds:
                return []
            without = _WITHOUT_KARPENTER if self._karpenter_lives() else 0
            if time.monotonic() > self._until - without and for_others:
                return [f"{each}{refused.get(str(each), '')}" for each in remaining]
            for_others = time.monotonic() - began > _OTHERS_HAVE
            self._nodes |= {
                each.metadata["name"] for each in remaining if each.resource.kind == "Node"
            }
            refused |= await self._delete(remaining, for_others=for_others)
            stuck = patience.over(remaining)
            if not self._karpenter_lives():
                await self._release([each for each in stuck if each.is_held_by_karpenter])
            if remaining and time.monotonic() - reported_at > _REPORT_SECONDS:
                reported_at = time.monotonic()
                self._report(f"waiting until these are gone: {in_words(map(str, remaining))}")
            # Owners may have created more objects before they were deleted, so all kinds are listed
            # again at the end.
            kinds = list({each.resource: None for each in remaining}) or all_kinds
            await asyncio.sleep(_LOOK_SECONDS if remaining else 0)

    async def _delete(self, made: Iterable[_Made], *, for_others: bool) -> dict[str, str]:
        """Deletes the objects without an owner; with `for_others`, also those with one, which a
        controller should have deleted. Returns, for each object that can't be deleted, why.
        """
        due = []
        for each in made:
            at_once = for_others and each.resource.kind == "Pod"
            by_us = for_others or not each.goes_with_others
            if at_once or (by_us and not each.is_going):
                due.append((each, at_once))
        answers = await asyncio.gather(
            *(each.delete(self._client, at_once=at_once) for each, at_once in due)
        )
        return {str(each): f" ({why})" for (each, _), why in zip(due, answers, strict=True) if why}

    async def _release(self, held: list[_Made]) -> None:
        held = [each for each in held if each.metadata["uid"] not in self._of_clouds]
        real = await asyncio.gather(*(each.has_machine(self._client) for each in held))
        fake = [each for each, it_has in zip(held, real, strict=True) if not it_has]
        self._of_clouds |= {e.metadata["uid"] for e in held} - {e.metadata["uid"] for e in fake}
        if fake:
            if not self._released:
                self._report(
                    f"no Karpenter has taken these away for {_KARPENTER_HAS:g} s, so they go"
                    f" without it: {in_words(map(str, fake))}"
                )
            self._released = True
            await asyncio.gather(*(each.release(self._client) for each in fake))

    async def _labelled(self, kinds: Iterable[ApiResource]) -> list[_Made]:
        lists = await asyncio.gather(*(self._made(each, REHEARSAL_LABEL) for each in kinds))
        return [each for some in lists for each in some]

    async def _made(self, kind: ApiResource, selector: str) -> list[_Made]:
        try:
            items = await kind.metadata(self._client, labelSelector=selector)
        except ApiError as error:
            # Its CRD is gone, the server behind its API is down, or this account may not list it.
            if error.status in (404, 405) or (kind.group and error.status in (403, 503)):
                return []
            raise
        return [_Made(kind, metadata) for metadata in items]

    async def _nodes_and_groups(self, kinds: Iterable[ApiResource]) -> list[_Made]:
        """Returns labelled objects, groups that the operator made from a provider config, and nodes
        whose group is the rehearsal's or doesn't exist.

        Returns only labelled objects if the cluster has no namespace of a rehearsal: groups and
        nodes without the label belong to another operator then.
        """
        kinds = list(kinds)
        objects = await self._labelled(kinds)
        if not self._claimed:
            return objects
        groups = next((each for each in kinds if each.path() == GROUPS_PATH), None)
        foreign = set()
        if groups is not None:
            everything = await self._made(groups, "")
            objects += await self._made(groups, DERIVED_LABEL)
            ours = {each.metadata["name"] for each in objects if each.resource.kind == KIND}
            foreign = {each.metadata["name"] for each in everything} - ours
        nodes = next((each for each in kinds if each.path() == NODES_PATH), None)
        if nodes is not None:
            objects += [
                each
                for each in await self._made(nodes, NODE_GROUP_LABEL)
                if group_of_node(each.metadata["labels"], each.metadata.get("annotations") or {})
                not in foreign
            ]
        return objects

    async def _delete_stranded_pods(self, served: ApiResources) -> None:
        """Deletes pods on nodes of ours that are gone, as Kubernetes takes long to do that."""
        pods, nodes = served.named("pods", ""), served.named("nodes", "")
        assert pods is not None and nodes is not None, "every cluster has them"
        gone = self._nodes - {each["name"] for each in await nodes.metadata(self._client)}
        if not gone:
            return
        async for page in pages(self._client, pods.path(), OBJECTS):
            stranded = [
                _Made(pods, each["metadata"])
                for each in page.items
                if not gone.isdisjoint(nodes_of_pod(each))
            ]
            await asyncio.gather(*(each.delete(self._client, at_once=True) for each in stranded))

    async def _keep_kinds_in_use(self, served: ApiResources) -> None:
        """Removes our label from CRDs that others have objects of: Kubernetes deletes a CRD's
        objects with the CRD.
        """
        crds = served.named("customresourcedefinitions", "apiextensions.k8s.io")
        for crd in await self._made(crds, REHEARSAL_LABEL) if crds is not None else ():
            plural, _, group = crd.metadata["name"].partition(".")
            kind = served.named(plural, group)
            others = [] if kind is None else await kind.metadata(self._client)
            if others and not crd.is_going:
                self._report(f"{crd} stays: {others[0]['name']} is none of the rehearsal's")
                body = {"metadata": {"labels": {REHEARSAL_LABEL: None}}}
                path = crd.resource.path(name=crd.metadata["name"])
                await self._client.request("PATCH", path, body=body, content_type=MERGE_PATCH)


def in_words(names: Iterable[str]) -> str:
    """Returns the first few names, and how many more there are."""
    each = list(names)
    more = f" and {len(each) - _NAMED:,} more" if len(each) > _NAMED else ""
    return ", ".join(each[:_NAMED]) + more
