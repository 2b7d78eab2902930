"""Somebody's admission webhooks for nodes: they deny, strip, and take their time.

    API server ── AdmissionReview ──> Webhook: the mode of the group that a node's name begins with

It belongs to one event loop; nodes of groups without a mode pass. What it denies is every other
node, by its name, or all of them.
"""

import asyncio
import base64
import json
import ssl
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import trustme
from aiohttp import web

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.api import Api

Mode = Literal["deny", "deny-all", "protect", "slow", "strip-label", "strip-owner", "strip-all"]
DELAY: Final = 3.0
CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
STRIPPED: Final[Mapping[str, tuple[str, ...]]] = {
    "strip-label": ("/metadata/labels/" + NODE_GROUP_LABEL.replace("/", "~1"),),
    "strip-owner": ("/metadata/ownerReferences",),
    "strip-all": ("/metadata/labels", "/metadata/annotations", "/metadata/ownerReferences"),
}
HIDDEN: Final = ("strip-label", "strip-owner")
"""They leave dry runs alone, so that nobody learns of them before a node is there."""


class Webhook:
    """`modes` can be changed at any time; `start` it, then `register` it."""

    def __init__(self, *, directory: Path, name: str) -> None:
        authority = trustme.CA()
        self._ca = authority.cert_pem.bytes()
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._tls)
        self._name = name
        self._port = 0
        self._runner: web.AppRunner | None = None
        self.modes: dict[str, Mode] = {}
        self.done: Counter[str] = Counter()

    async def start(self) -> None:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/{kind}", self._review)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def register(self, api: Api, *, condition: str) -> None:
        """For nodes of which a CEL expression is true."""
        for kind, operations in (
            ("Mutating", ["CREATE"]),
            ("Validating", ["CREATE", "UPDATE", "DELETE"]),
        ):
            api.create(
                f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations",
                {
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": f"{kind}WebhookConfiguration",
                    "metadata": {"name": self._name},
                    "webhooks": [self._rule(kind.lower(), operations, condition)],
                },
            )

    def withdraw(self, api: Api) -> None:
        for kind in ("mutating", "validating"):
            api.delete(f"{CONFIGURATIONS}/{kind}webhookconfigurations/{self._name}")

    def _rule(self, kind: str, operations: list[str], condition: str) -> dict[str, Any]:
        return {
            "name": f"{kind}.chaos.test",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 10,
            "clientConfig": {
                "url": f"https://127.0.0.1:{self._port}/{kind}",
                "caBundle": base64.b64encode(self._ca).decode(),
            },
            "matchConditions": [{"name": "hostile", "expression": condition}],
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["nodes"],
                    "operations": operations,
                }
            ],
        }

    async def _review(self, request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        mode: str = self.modes.get(asked["name"].rsplit("-", 2)[0], "none")
        answer: dict[str, Any] = {"uid": asked["uid"], "allowed": True}
        if request.match_info["kind"] == "mutating":
            if mode == "slow":
                self.done[mode] += 1
                await asyncio.sleep(DELAY)
            if mode in STRIPPED and not (asked.get("dryRun") and mode in HIDDEN):
                self.done[mode] += 1
                patch = [{"op": "remove", "path": path} for path in STRIPPED[mode]]
                coded = base64.b64encode(json.dumps(patch).encode()).decode()
                answer |= {"patchType": "JSONPatch", "patch": coded}
        elif _denies(mode, asked):
            self.done[mode] += 1
            message = "a policy of the test"
            answer |= {"allowed": False, "status": {"code": 403, "message": message}}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response(review | {"response": answer})


def _denies(mode: str, asked: Mapping[str, Any]) -> bool:
    every_other = zlib.crc32(asked["name"].encode()) % 2 == 0
    if asked["operation"] == "DELETE":
        return mode == "protect" and every_other
    return mode == "deny-all" or (mode == "deny" and every_other)
