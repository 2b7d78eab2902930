"""Prepares the cluster for Kueue, and does what a kubelet would do for its manager.

    CRDs, waited for -> webhooks that lead here, a Secret -> the Configuration, a file
        --> testbed.py starts the manager -> its certificate: Secret to files
        -> /readyz, and a Job that it suspends -> the objects of the scenario

This is done once: a timeline may change the objects, stop the manager and start it again.
"""

import asyncio
import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.untyped import text_at, value_at
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.installing import apply_list, read_objects, wait_for_crds
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.kueue.setup import (
    QUEUE_LABEL,
    KueueSetup,
    KueueSetupError,
    configuration_in,
    set_up,
)
from kwok_operator.rehearsal.programs import answers
from kwok_operator.rehearsal.scenario.kueue import MANIFESTS, Kueue
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.rehearsal.surroundings import read_text

_JOBS_PATH: Final = "/apis/batch/v1/namespaces/default/jobs"
_FILES: Final = ("tls.key", "tls.crt")
"""In the order in which they are written: the manager waits for the last."""


@dataclass(frozen=True, slots=True)
class KueuePlace:
    kubectl: AsyncKubectl
    client: KubeClient
    folder: Path
    """The folder of the scenario."""
    logs: Path
    kubeconfig: Path
    """The certificate is put beside it, so it goes with the cluster."""

    async def prepare(
        self, name: str, wanted: Kueue, program: Path, *, webhook_port: int, health_port: int
    ) -> "PreparedKueue":
        """Installs what Kueue needs, and writes its Configuration. Raises KwokOperatorError."""
        path = wanted.manifests or str(program.parent / MANIFESTS)
        manifests = await self._read(name, [ApplySource(path=path)])
        own = self._own(wanted)
        certificates = self.kubeconfig.with_name(f"{name}.certificates")
        try:
            setup = set_up(
                manifests,
                own,
                webhook_port=webhook_port,
                health_port=health_port,
                certificates=str(certificates),
            )
        except KueueSetupError as error:
            raise KueueSetupError(f"{path} {error}") from error
        await apply_list(self.kubectl, setup.crds)
        await wait_for_crds(self.kubectl, setup.crds)
        await apply_list(self.kubectl, setup.objects)
        configuration = self.logs / f"{name}.configuration.yaml"
        configuration.write_text(json.dumps(setup.configuration, indent=2), encoding="utf-8")
        return PreparedKueue(configuration, setup, certificates, health_port, self)

    async def apply(self, name: str, wanted: Kueue) -> None:
        """Applies the scenario's objects for Kueue, which Kueue's webhooks check."""
        if objects := await self._read(name, wanted.objects):
            await apply_list(self.kubectl, objects, strictly=True)

    async def _read(self, name: str, sources: Iterable[ApplySource]) -> list[Manifest]:
        return await read_objects(self.kubectl, sources, folder=self.folder, label=name)

    def _own(self, wanted: Kueue) -> Manifest | None:
        if wanted.configuration is None:
            return None
        path = self.folder / wanted.configuration
        return configuration_in(read_text(path), where=path.name)


@dataclass(frozen=True, slots=True)
class PreparedKueue:
    configuration: Path
    setup: KueueSetup
    certificates: Path
    health_port: int
    place: KueuePlace

    async def ready(self) -> bool:
        """Whether the manager is ready, and the API server reaches its webhooks."""
        return (
            await self._certificate_is_there()
            and await answers(f"http://127.0.0.1:{self.health_port}/readyz")()
            and await self._is_asked()
        )

    async def _certificate_is_there(self) -> bool:
        namespace, name = self.setup.secret
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        try:
            secret = await self.place.client.get_json(path)
            data = [base64.b64decode(text_at(secret, "data", name)) for name in _FILES]
        except (KwokOperatorError, binascii.Error):
            return False
        if all(data):
            await asyncio.to_thread(self._write, data)
        return all(data)

    def _write(self, data: Iterable[bytes]) -> None:
        self.certificates.mkdir(mode=0o700, exist_ok=True)
        for name, content in zip(_FILES, data, strict=True):
            path = self.certificates / name
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    async def _is_asked(self) -> bool:
        """Whether the API server calls Kueue's webhooks. To see that, creates a Job in a dry run:
        the webhooks accept it and, if Kueue suspends new Jobs, suspend it.
        """
        pod = {"restartPolicy": "Never", "containers": [{"name": "none", "image": "none"}]}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"generateName": "ready-", "labels": {QUEUE_LABEL: "ready"}},
            "spec": {"template": {"spec": pod}},
        }
        try:
            answer = await self.place.client.request(
                "POST", _JOBS_PATH, params={"dryRun": "All"}, body=job
            )
        except KwokOperatorError:
            return False
        suspended = value_at(json.loads(answer), "spec", "suspend") is True
        return suspended or not self.setup.suspends_jobs

    async def withdraw(self) -> None:
        """Removes Kueue's webhooks, and the conversion of its CRDs, from a cluster that outlives
        the manager: the API server would call them in vain. Raises KwokOperatorError.
        """
        for each in self.setup.webhooks:
            await self.place.kubectl("delete", each["kind"], each["metadata"]["name"])
        conversion = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        patch = f"--patch={json.dumps(conversion)}"
        for each in self.setup.converted:
            await self.place.kubectl(
                "patch", "crd", each["metadata"]["name"], "--type=merge", patch
            )
