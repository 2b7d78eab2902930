"""Keeping nodes NotReady, although a kwok controller makes Ready whatever it sees.

    the Stage kwok-operator-hold is there ──> STAGE: kwok leaves nodes with the hold label alone
    else, we may create Leases of nodes   ──> LEASE: ours, made before the Node; kwok waits for it
    else                                  ──> NONE:  nodes are Ready within 2 s of whatever we say

An admin gives either with a component of deploy/; nothing here asks for what isn't there. `way`
finds out, seldom, and says it to whoever shapes nodes; `told` says it to people, in a condition.

The Stage holds at any time, and kwok goes on to renew the node's Lease: pods there stay Ready, and
a second Stage makes Ready those that Kubernetes marks, as they come while it takes the node to be
not Ready (up to its node-monitor-period, 5 s, after it is).

A Lease holds only a node that kwok has never had: kwok takes it over at its next try after it is
deleted (within a quarter of the duration of its own Leases), and never gives it back. Until then
nobody renews it, so that Kubernetes calls the node's Ready Unknown after its
node-monitor-grace-period. And nobody makes Ready what Kubernetes has marked.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.controller.cloud.kwok import LEASES_PATH
from kwok_operator.core.cloud.shaping import Hold
from kwok_operator.errors import (
    ConflictError,
    ForbiddenError,
    KwokOperatorError,
    NotFoundError,
)
from kwok_operator.kube.client import KubeClient

logger = logging.getLogger(__name__)

STAGE_PATH: Final = f"/apis/kwok.x-k8s.io/v1alpha1/stages/{constants.HOLD_STAGE}"
REVIEWS_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LEASE_SECONDS: Final = 30 * 24 * 3600
"""Longer than any boot. Should nobody delete the Lease, kwok takes the node over then."""

STAGE_KNOWN_FOR: Final = 30.0
RIGHT_KNOWN_FOR: Final = 60.0
ASK_AGAIN_AFTER: Final = 5.0
"""Seconds after an answer that told nothing."""
DISOBEYED_TIMES: Final = 3
DISOBEYED_AFTER: Final = 2.0
DISOBEYED_WITHIN: Final = 60.0
"""A node has to be Ready against what it should be so often, over so many seconds at least and at
most; for a moment, each may be."""
DISOBEYED_FOR: Final = 300.0
"""Seconds for which the Stage then counts for nothing."""
_MOST_SUSPECTS: Final = 1_000

_REVIEW: Final = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SelfSubjectAccessReview",
    "spec": {
        "resourceAttributes": {
            "group": "coordination.k8s.io",
            "resource": "leases",
            "namespace": "kube-node-lease",
            "verb": "create",
        }
    },
}

_Condition = tuple[bool, str, str]
"""Status, reason and message of the condition CloudSimulated."""

REMEDY: Final = (
    "kubectl apply -f deploy/components/hold-stage/rbac.yaml "
    "-f deploy/components/hold-stage/stage.yaml, with a kwok that runs with --enable-crds=Stage"
)
NOTHING_TO_HOLD: Final = "Nothing in spec.cloud keeps a node from being Ready."
BY_STAGE: Final = (
    f"The Stage {constants.HOLD_STAGE} keeps kwok from making a node Ready before it is due."
)
BY_LEASE: Final = (
    "Nodes are kept from kwok until they are due to be Ready, by a Lease of ours. kwok runs their "
    "pods some 10 s after that; Ready turns from False to Unknown where it takes long; and pods "
    "that come in the first seconds may stay not Ready."
)
ONLY_FIRST: Final = (
    "Nodes are kept from kwok by a Lease of ours, which works only until they are Ready for the "
    f"first time: outages and flapping are undone within 2 s. To show them: {REMEDY}."
)
NOT_HELD: Final = f"kwok makes nodes Ready within 2 s, as {{why}}. To hold them: {REMEDY}."
NO_STAGE: Final = f"there is no Stage {constants.HOLD_STAGE}"
STAGE_UNSEEN: Final = (
    f"the operator may not see whether there is a Stage {constants.HOLD_STAGE}, and holds none"
)
NOT_ASKED: Final = "the API server has not yet said whether anything holds them"
DISOBEYED: Final = (
    f"kwok makes nodes Ready although the Stage {constants.HOLD_STAGE} is there: it runs without "
    "--enable-crds=Stage, or another Stage comes before it. To hold them, start kwok with that "
    "flag and its own Stages (stage-fast.yaml of its release)."
)


class HoldLink:
    """How nodes are held. `clock` gives monotonic seconds, `wall` the time of day."""

    def __init__(
        self,
        *,
        client: KubeClient,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._clock = clock
        self._wall = wall
        self._looking = asyncio.Lock()
        self._way = Hold.NONE
        self._why = NOT_ASKED
        self._look_again = float("-inf")
        self._may_lease = False
        self._ask_again = float("-inf")
        self._suspects: dict[str, list[float]] = {}
        """Nodes that were Ready when they should not be, and when that was seen."""
        self._disobeyed_until = float("-inf")

    async def way(self) -> Hold:
        """How nodes are held now, as known for at most 30 s.

        Where the API server has trouble, what was known before. NONE before anything is known.
        """
        if self._clock() >= self._look_again:
            async with self._looking:
                if self._clock() >= self._look_again:
                    await self._look()
        return self._way

    def condition(self, *, wanted: bool, outage_or_flapping: bool) -> _Condition:
        """What to say of a group: whether what its spec.cloud asks for can be seen.

        `wanted` is whether anything there keeps nodes from being Ready; `outage_or_flapping`,
        whether nodes that were Ready once are meant too. As of the last `way`.
        """
        if not wanted:
            return True, "NothingToHold", NOTHING_TO_HOLD
        match self._way:
            case Hold.STAGE:
                return True, "HeldByStage", BY_STAGE
            case Hold.LEASE if not outage_or_flapping:
                return True, "HeldByLease", BY_LEASE
            case Hold.LEASE:
                return False, "NotHeld", ONLY_FIRST
        if self._is_disobeyed():
            return False, "NotHeld", DISOBEYED
        return False, "NotHeld", NOT_HELD.format(why=self._why)

    def disobeyed(self, node: str) -> None:
        """A node that has the hold label is Ready, and should not be.

        To be called whenever that is seen: it counts once it has lasted, as any node may be Ready
        for a moment between two writes.
        """
        now = self._clock()
        if self._way is not Hold.STAGE:
            return
        if len(self._suspects) >= _MOST_SUSPECTS:
            self._suspects.clear()
        seen = [at for at in self._suspects.get(node, ()) if now - at <= DISOBEYED_WITHIN]
        # Of those in between, it is enough to know that they are.
        self._suspects[node] = seen = [*seen[: DISOBEYED_TIMES - 1], now]
        if len(seen) == DISOBEYED_TIMES and now - seen[0] >= DISOBEYED_AFTER:
            logger.warning("the Stage does not hold: stage=%s node=%s", constants.HOLD_STAGE, node)
            self._suspects.clear()
            self._disobeyed_until = now + DISOBEYED_FOR
            self._look_again = float("-inf")

    async def take(self, name: str, *, group: str, uid: str) -> None:
        """Makes the Lease of a node that is about to be posted, so that kwok lets it be.

        `uid` is the group's: the Lease goes with the group, should it be forgotten. Where kwok has
        the Lease already, or we may not create it, the node isn't held. Raises ApiError and
        ApiUnreachableError for anything else: then do all of it again.
        """
        body = self._lease(name, group=group, uid=uid)
        try:
            await self._create(body)
        except ForbiddenError:
            self._ask_again = self._look_again = float("-inf")
        except ConflictError:
            if await self._delete_ours(name, unless_of=uid):
                await self._create(body)

    async def release(self, name: str) -> None:
        """Deletes the Lease of a node if it is ours: when it is to be Ready, or is deleted.

        Whatever the way is now, as it may have been another when the Lease was made. Costs nothing
        for those that may not create Leases. Raises ApiError and ApiUnreachableError.
        """
        try:
            async with self._looking:
                ours_may_be_there = await self._may_create_leases()
            if ours_may_be_there:
                await self._delete_ours(name)
        except ForbiddenError:
            self._ask_again = float("-inf")

    async def _look(self) -> None:
        before = self._way
        try:
            self._way = await self._find()
        except KwokOperatorError as error:
            logger.debug("how nodes are held can't be found out: %s", error)
            self._look_again = self._clock() + ASK_AGAIN_AFTER
        else:
            self._look_again = self._clock() + STAGE_KNOWN_FOR
        if self._way is not before:
            self._suspects.clear()
            logger.info("nodes are held NotReady: way=%s before=%s", self._way, before)

    async def _find(self) -> Hold:
        has_stage = await self._has_stage()
        if has_stage and not self._is_disobeyed():
            return Hold.STAGE
        return Hold.LEASE if await self._may_create_leases() else Hold.NONE

    def _is_disobeyed(self) -> bool:
        return self._clock() < self._disobeyed_until

    async def _has_stage(self) -> bool:
        try:
            await self._client.request("GET", STAGE_PATH, retries=2)
        except NotFoundError:  # nor the CRD, perhaps
            self._why = NO_STAGE
        except ForbiddenError:
            self._why = STAGE_UNSEEN
        else:
            return True
        return False

    async def _may_create_leases(self) -> bool:
        if self._clock() >= self._ask_again:
            answer = await self._client.request("POST", REVIEWS_PATH, body=_REVIEW, retries=2)
            self._may_lease = b'"allowed":true' in answer
            self._ask_again = self._clock() + RIGHT_KNOWN_FOR
        return self._may_lease

    def _lease(self, name: str, *, group: str, uid: str) -> dict[str, Any]:
        owner = {
            "apiVersion": f"{constants.API_GROUP}/{constants.API_VERSION}",
            "kind": constants.KIND,
            "name": group,
            "uid": uid,
        }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": constants.LEASE_HOLDER,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }

    async def _create(self, body: Mapping[str, Any]) -> None:
        await self._client.request("POST", LEASES_PATH, body=body)

    async def _delete_ours(self, name: str, *, unless_of: str = "") -> bool:
        """Whether the name is free now: the Lease was ours, and is not of the group `unless_of`."""
        path = f"{LEASES_PATH}/{name}"
        try:
            lease = await self._client.get_json(path)
            if lease["spec"].get("holderIdentity") != constants.LEASE_HOLDER:
                return False
            metadata = lease["metadata"]
            owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or ()}
            if unless_of in owners:
                return False
            # Not by name alone: kwok may take it at this moment.
            version = {"resourceVersion": metadata["resourceVersion"]}
            await self._client.request("DELETE", path, body={"preconditions": version})
        except NotFoundError:
            return True
        except ConflictError:
            return False
        return True
