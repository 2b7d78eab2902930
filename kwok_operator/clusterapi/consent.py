"""Checks that a cluster's CRDs of Cluster API are the operator's own: at the start, and every 20
seconds.

    the three CRDs ──> clusterapi/crds.py ──> PreflightError, which ends the program

A real Cluster API can be installed over them at any time. From then on nothing may be written, as
its machines cost money.
"""

import asyncio
from typing import Any, Final

from kwok_operator.clusterapi.crds import PLURALS, crd_name, objection
from kwok_operator.errors import KwokOperatorError, PreflightError
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.retry import PATIENT

_PATH: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INTERVAL: Final = 20.0
"""Seconds between two checks."""


class Consent:
    """Reads the CRDs of one API group, and checks that Machines may still be simulated."""

    def __init__(self, *, client: KubeClient, group: str) -> None:
        self._client = client
        self._group = group

    async def check(self) -> None:
        """Raises PreflightError if no Machines may be simulated in this cluster."""
        crds = {plural: await self._read(crd_name(plural, self._group)) for plural in PLURALS}
        why = objection(crds, group=self._group)
        if why is not None:
            raise PreflightError(f"--clusterapi emulate: {why}")

    async def keep(self) -> None:
        """Checks again and again, and never returns; raises PreflightError once a check fails."""
        while True:
            await asyncio.sleep(INTERVAL)
            try:
                await self.check()
            except PreflightError:
                raise
            except KwokOperatorError:
                continue  # no answer: read again at the next check

    async def _read(self, name: str) -> dict[str, Any] | None:
        # Lists instead of getting: the operator has the right to list anyway.
        params = {"fieldSelector": f"metadata.name={name}"}
        answer = await self._client.get_json(_PATH, params, retries=PATIENT)
        items = answer.get("items") or []
        return items[0] if items else None
