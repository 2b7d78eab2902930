"""Finds out whether nodes can be kept not Ready, although kwok makes nodes Ready.

    the Stage kwok-operator-hold exists ──> STAGE: kwok leaves nodes with the hold label alone
    else                                ──> NONE:  nodes are Ready within 2 s of whatever we write

An admin installs the Stage with a component of deploy/. kwok still renews the Lease of a node that
is held. If Kubernetes marks pods of the node as not Ready, a second Stage makes them Ready again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kwok_operator import constants
from kwok_operator.cloud.shaping import Hold
from kwok_operator.errors import ForbiddenError, KwokOperatorError, NotFoundError
from kwok_operator.kube.client import KubeClient
from kwok_operator.nodegroups.api.status import Verdict
from kwok_operator.nodegroups.kwok import LOOK_WITHIN

logger = logging.getLogger(__name__)

STAGE_PATH: Final = f"/apis/kwok.x-k8s.io/v1alpha1/stages/{constants.HOLD_STAGE}"

STAGE_KNOWN_FOR: Final = 30.0
ASK_AGAIN_AFTER: Final = 5.0
"""Seconds until the API server is asked again after an error."""
DISOBEYED_TIMES: Final = 3
DISOBEYED_AFTER: Final = 2.0
DISOBEYED_WITHIN: Final = 60.0
"""The Stage doesn't work if a node with the hold label is seen Ready DISOBEYED_TIMES times, within
DISOBEYED_AFTER to DISOBEYED_WITHIN seconds. Once or twice can happen to any node."""
DISOBEYED_FOR: Final = 300.0
"""Seconds for which the Stage then counts as absent."""
_MOST_SUSPECTS: Final = 1_000

REMEDY: Final = (
    "kubectl apply -f deploy/components/hold-stage/rbac.yaml "
    "-f deploy/components/hold-stage/stage.yaml, with a kwok that runs with --enable-crds=Stage"
)
NOTHING_TO_HOLD: Final = "Nothing in spec.cloud keeps a node from being Ready."
BY_STAGE: Final = (
    f"The Stage {constants.HOLD_STAGE} keeps kwok from making a node Ready before it is due."
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
    """Knows whether nodes can be kept not Ready. `clock` gives monotonic seconds."""

    def __init__(self, *, client: KubeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._looking = asyncio.Lock()
        self.known = Hold.NONE
        """The last result of `current`."""
        self._why = NOT_ASKED
        self._look_again = float("-inf")
        self._suspects: dict[str, list[float]] = {}
        """When nodes were seen Ready that should not be, by name."""
        self._disobeyed_until = float("-inf")

    async def current(self) -> Hold:
        """Returns whether a Stage can keep nodes from being Ready. It asks the API server unless
        its last response is recent.

        If the request fails, the last known result is returned, at first NONE.
        """
        if self._clock() >= self._look_again:
            async with self._looking:
                if self._clock() >= self._look_again:
                    await self._look()
        return self.known

    def condition(self, *, wanted: bool) -> Verdict:
        """The condition CloudSimulated: whether nodes can be kept not Ready as spec.cloud demands.

        `wanted`: a setting in spec.cloud demands it. The condition shows what `current` last
        returned.
        """
        if not wanted:
            return Verdict(True, "NothingToHold", NOTHING_TO_HOLD)
        if self.known is Hold.STAGE:
            return Verdict(True, "HeldByStage", BY_STAGE)
        why = DISOBEYED if self._is_disobeyed() else NOT_HELD.format(why=self._why)
        return Verdict(False, "NotHeld", why)

    def disobeyed(self, node: str) -> None:
        """Reports that a node is Ready in spite of the hold label, which is to keep it NotReady.

        Call this whenever a pass sees such a node. It counts only if it stays Ready, as any
        node may be Ready for a moment between two writes.
        """
        now = self._clock()
        if self.known is not Hold.STAGE:
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

    async def _look(self) -> None:
        before = self.known
        try:
            async with asyncio.timeout(LOOK_WITHIN):
                self.known = await self._find()
        except (KwokOperatorError, TimeoutError) as error:
            logger.debug("how nodes are held can't be found out: %r", error)
            self._look_again = self._clock() + ASK_AGAIN_AFTER
        else:
            self._look_again = self._clock() + STAGE_KNOWN_FOR
        if self.known is not before:
            self._suspects.clear()
            logger.info("nodes are held NotReady: way=%s before=%s", self.known, before)

    async def _find(self) -> Hold:
        held = await self._has_stage() and not self._is_disobeyed()
        return Hold.STAGE if held else Hold.NONE

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
