"""Whether a cluster's CRDs of Cluster API are ours: checked at the start, and every 20 seconds.

    the three CRDs ──> clusterapi/crds.py ──> PreflightError, which ends the program

A real Cluster API can be installed over ours at any time; then nothing may be written any more.
"""

import asyncio
from typing import Any, Final

from kwok_operator.clusterapi.crds import PLURALS, crd_name, objection
from kwok_operator.errors import KwokOperatorError, PreflightError
from kwok_operator.kube.client import KubeClient

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RETRIES: Final = 4
INTERVAL: Final = 20.0
"""Seconds between two looks."""


class Consent:
    """Reads the CRDs of one API group."""

    def __init__(self, *, client: KubeClient, group: str) -> None:
        self._client = client
        self._group = group

    async def check(self) -> None:
        """Raises PreflightError where nothing may be emulated."""
        crds = {plural: await self._read(crd_name(plural, self._group)) for plural in PLURALS}
        why = objection(crds, group=self._group)
        if why is not None:
            raise PreflightError(f"--clusterapi emulate: {why}")

    async def keep(self) -> None:
        """Returns never; raises PreflightError once there is no consent any more."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.check()
            except PreflightError:
                raise
            except KwokOperatorError:
                continue  # unknown: read again

    async def _read(self, name: str) -> dict[str, Any] | None:
        # By a list, which the operator may do anyway.
        params = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._client.get_json(_PATH, params, retries=_RETRIES)
        items = answer.get("items") or []
        return items[0] if items else None
