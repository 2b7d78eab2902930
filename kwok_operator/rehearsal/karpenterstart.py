"""Prepares the cluster for Karpenter with its kwok provider, and computes how to start it.

    CRDs, waited for -> groups, waited for -> instance types, a file -> the class, NodePools
        -> the environment, with free ports --> testbed.py starts the program; /readyz

This is done once: a timeline may change the NodePools, stop Karpenter and start it again.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import GROUPS_PATH
from kwok_operator.errors import KwokOperatorError, NotFoundError
from kwok_operator.formats.manifests import Manifest
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.client import APPLY, KubeClient
from kwok_operator.kube.retry import PATIENT
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import ConditionType, KwokNodeGroupStatus
from kwok_operator.rehearsal.borrowed import BorrowedCluster
from kwok_operator.rehearsal.installing import apply_list, crds, read_objects, wait_for_crds
from kwok_operator.rehearsal.karpenter.crds import KarpenterCrds
from kwok_operator.rehearsal.karpenter.instancetypes import InstanceType, as_json
from kwok_operator.rehearsal.karpenter.setup import (
    Groups,
    KarpenterSetupError,
    ignored,
    left_beside,
    name_of,
    set_up,
    unpaid,
)
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.scenario.karpenter import CRDS_FOLDER, Karpenter
from kwok_operator.rehearsal.scenario.karpentertypes import read_types
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.userfiles import read_bytes

_LOOK_SECONDS: Final = 0.2
_RESOLVED_WITHIN: Final = 60.0
_SERVED_WITHIN: Final = 30.0
"""Seconds. The API server serves a kind shortly after its CRD is Established."""
_MOST_NAMES: Final = 3
_MANAGER: Final = "rehearsal"


@dataclass(frozen=True, slots=True)
class PreparedKarpenter:
    types: Path
    """The file of its instance types."""
    caveats: tuple[str, ...]
    """Sentences on how Karpenter's nodes differ from what the groups specify."""
    groups: Mapping[str, KwokNodeGroupSpec] | None = None
    """The groups from which its instance types are made; None if they are from a file."""


@dataclass(frozen=True, slots=True)
class KarpenterPlace:
    kubectl: AsyncKubectl
    client: KubeClient
    folder: Path
    """The folder of the scenario."""
    logs: Path
    borrowed: BorrowedCluster | None = None
    """The borrowed cluster, where the CRDs are installed already; None for an own one."""

    async def prepare(self, name: str, wanted: Karpenter, program: Path) -> PreparedKarpenter:
        """Applies the objects that Karpenter needs, and writes the file of its instance types.
        Raises KwokOperatorError.
        """
        definitions = await self.crds(name, wanted, program)
        own = None
        if wanted.node_pools is not None:
            own = await self._read(name, wanted.node_pools)
        if self.borrowed is None:
            await apply_list(self.kubectl, definitions)
            await wait_for_crds(self.kubectl, definitions)
        types = self._types(wanted)
        groups = await self._groups() if types is None else {}
        delay = wanted.node_class.registration_delay
        setup = set_up(
            groups,
            types=types,
            own=own,
            disruption=wanted.disruption_of_pools,
            delay=delay,
        )
        path = self.logs / f"{name}.instance-types.json"
        path.write_text(as_json(setup.types), encoding="utf-8")
        known = KarpenterCrds.of(definitions)
        objects = setup.objects
        if self.borrowed is not None:
            objects = await self.borrowed.to_create(objects)
        for each in objects:
            await self._apply(each, known.path_of(each))
        specs = {group: spec for group, (spec, _) in groups.items()}
        lost = [
            f"has no effect on its nodes: {each}"
            for each in ignored(specs, delay_given=delay is not None)
        ]
        beside = (*unpaid(specs), *left_beside(specs))
        caveats = (*setup.caveats, *lost, *beside)
        return PreparedKarpenter(path, caveats, specs if types is None else None)

    async def crds(self, name: str, wanted: Karpenter, program: Path) -> list[Manifest]:
        """Returns the CRDs in the folder that the scenario names, or that is beside the program."""
        folder = wanted.crds or str(program.parent / CRDS_FOLDER)
        return crds(await self._read(name, [ApplySource(path=folder)]))

    async def _read(self, name: str, sources: Iterable[ApplySource]) -> list[Manifest]:
        return await read_objects(self.kubectl, sources, folder=self.folder, label=name)

    def _types(self, wanted: Karpenter) -> list[InstanceType] | None:
        if wanted.types_file is None:
            return None
        try:
            return read_types(read_bytes(self.folder / wanted.types_file).decode())
        except (OSError, UnicodeDecodeError) as error:
            raise KarpenterSetupError(f"{wanted.types_file} can't be read: {error}") from error

    async def _apply(self, manifest: Manifest, path: str) -> None:
        """Applies an object by a request to the API server, as kubectl may not know a new kind for
        a while.
        """
        until = time.monotonic() + _SERVED_WITHIN
        params = {"fieldManager": _MANAGER, "force": "true"}
        while True:
            try:
                await self.client.request(
                    "PATCH", path, params=params, body=manifest, content_type=APPLY, retries=PATIENT
                )
                return
            except NotFoundError:
                if time.monotonic() > until:
                    raise
            except KwokOperatorError as error:
                what = f"{manifest['kind']} {name_of(manifest)}"
                raise KarpenterSetupError(f"{what} can't be applied: {error}") from error
            await asyncio.sleep(_LOOK_SECONDS)

    async def _groups(self) -> Groups:
        """Returns the groups that an autoscaler may scale, once the operator has resolved their
        templates.
        """
        until = time.monotonic() + _RESOLVED_WITHIN
        while True:
            listed = (await self.client.get_json(GROUPS_PATH, retries=PATIENT))["items"]
            groups, missing = dict[str, tuple[KwokNodeGroupSpec, dict[str, Any]]](), list[str]()
            for each in listed:
                name = each["metadata"]["name"]
                spec = KwokNodeGroupSpec.model_validate(each.get("spec"))
                if spec.autoscaling is None:
                    continue
                status = KwokNodeGroupStatus.model_validate(each.get("status"))
                node = status.resolved_template
                if node is None or not _is_resolved(status, each["metadata"]["generation"]):
                    missing.append(name)
                else:
                    groups[name] = spec, node
            if not missing:
                return groups
            if time.monotonic() > until:
                raise KarpenterSetupError(
                    f"after {_RESOLVED_WITHIN:g} s the template of KwokNodeGroup"
                    f" {names_in_words(missing, most=_MOST_NAMES)} is not resolved, so its nodes"
                    " can't become instance types; its condition TemplateResolved says why"
                )
            await asyncio.sleep(_LOOK_SECONDS)


def _is_resolved(status: KwokNodeGroupStatus, generation: int) -> bool:
    said = {each.type: each.status for each in status.conditions}
    resolved = said.get(ConditionType.TEMPLATE_RESOLVED) == "True"
    return resolved and status.observed_generation == generation
