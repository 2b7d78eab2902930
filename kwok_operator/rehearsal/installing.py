"""Builds what a rehearsal installs: the CRDs, and the operator's account with its rights.

    sources of the scenario --read_objects--> objects --needed_rights--> components
    base, rights of these components          --manifests-->  what is installed

The operator gets the rights of deploy/base, and those of each deploy component that the scenario's
objects need. In a borrowed cluster, the rehearsal's account must be allowed to grant them.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from kwok_operator.constants import REHEARSAL_LABEL
from kwok_operator.formats.manifests import CRD, Manifest, in_order, read_manifests
from kwok_operator.kube.access import AccessRight, missing_rights
from kwok_operator.kube.client import KubeClient
from kwok_operator.rehearsal.kubectl import AsyncKubectl
from kwok_operator.rehearsal.scenario.borrowing import REHEARSAL_NAMESPACE
from kwok_operator.rehearsal.scenario.model import Scenario
from kwok_operator.rehearsal.scenario.rights import component_of
from kwok_operator.rehearsal.scenario.timeline import ApplySource
from kwok_operator.rehearsal.surroundings import is_kustomization

_MANIFESTS: Final = Path(__file__).parent.parent / "manifests"
_INSTALLED: Final = frozenset(
    """CustomResourceDefinition Namespace ServiceAccount ClusterRole ClusterRoleBinding Role
    RoleBinding""".split()
)
_RBAC: Final = "rbac.authorization.k8s.io"
_READ_WITHIN: Final = 300.0


def manifests(components: Collection[str]) -> list[Manifest]:
    """Returns the manifests to install, in the order of creation. `components` are names of folders
    in deploy/components, whose rights are added.
    """
    base = [m for name in ("crds", "default") for m in _packaged(name) if m["kind"] in _INSTALLED]
    return in_order([*base, *rights_of(*components)])


def rights_of(*components: str) -> list[Manifest]:
    """Returns the roles and bindings that the components of these names in deploy/components
    consist of.
    """
    return [m for m in _packaged("rights") if component_of(m) in components]


def hold_stages() -> list[Manifest]:
    """Returns the Stages that stop kwok from making a node Ready while it is to be NotReady."""
    return [m for m in _packaged("cloud") if m["kind"] == "Stage"]


@cache
def _packaged(name: str) -> Sequence[Manifest]:
    path = _MANIFESTS / f"{name}.yaml"
    return read_manifests(path.read_text(encoding="utf-8"), where=path.name)


def crds(manifests: Iterable[Manifest]) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == CRD]


async def install(kubectl: AsyncKubectl, manifests: Sequence[Manifest]) -> None:
    """Installs the manifests in a cluster of the rehearsal's own, and waits until their CRDs are
    established.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": REHEARSAL_NAMESPACE}}
    rest = [namespace, *(m for m in manifests if m["kind"] != CRD)]
    await apply_list(kubectl, [*crds(manifests), *rest])
    await wait_for_crds(kubectl, manifests)


async def apply_list(
    kubectl: AsyncKubectl, manifests: Sequence[Manifest], *, strictly: bool = False
) -> None:
    """Applies manifests. With `strictly`, for manifests that people wrote, unknown fields are
    errors. To check fields, kubectl requests the whole OpenAPI document, which the API server
    builds in a second of CPU after each change of a CRD.
    """
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*manifests]})
    flags = (
        "--server-side",
        "--force-conflicts",
        f"--validate={'strict' if strictly else 'false'}",
    )
    await kubectl("apply", *flags, "--filename=-", stdin=text)


async def wait_for_crds(kubectl: AsyncKubectl, manifests: Iterable[Manifest]) -> None:
    names = [str(m["metadata"]["name"]) for m in crds(manifests)]
    await kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", *names)


async def missing_grants(client: KubeClient, roles: Iterable[Manifest]) -> list[AccessRight]:
    """Returns the rights of the roles that the account may not grant. Kubernetes lets an account
    grant only rights that it has itself, unless it may `escalate` and `bind`.
    """
    wanted = [(each, _place(each)) for each in roles if each["kind"] in ("ClusterRole", "Role")]
    freely = {
        place: not await missing_rights(
            client,
            [
                AccessRight(_RBAC, "roles" if place else "clusterroles", verb, place)
                for verb in ("escalate", "bind")
            ],
        )
        for place in {place for _, place in wanted}
    }
    rights = [
        AccessRight(group, resource, verb, place, name)
        for each, place in wanted
        if not freely[place]
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    ]
    return await missing_rights(client, dict.fromkeys(rights))


def _place(role: Manifest) -> str:
    return str(role["metadata"].get("namespace", ""))


def sources_of(scenario: Scenario) -> list[ApplySource]:
    """Returns all that the scenario applies, at the beginning and in its timeline."""
    return [
        *scenario.apply,
        *(each for step in scenario.timeline for each in step.apply or ()),
    ]


async def read_objects(
    kubectl: AsyncKubectl, sources: Iterable[ApplySource], *, folder: Path, label: str
) -> list[Manifest]:
    """Has kubectl read the objects of the sources and label them, without contacting the cluster.

    Raises CommandError.
    """

    async def read(flag: str, *, stdin: str = "") -> list[Manifest]:
        text = await kubectl(
            "label", "--local", "--overwrite", f"{REHEARSAL_LABEL}={label}", flag, "--output=json",
            stdin=stdin, within=_READ_WITHIN, whole=True,
        )  # fmt: skip
        return _documents(text)

    objects: list[Manifest] = []
    for inline, some in itertools.groupby(sources, lambda each: each.object is not None):
        if inline:
            items = [each.object for each in some]
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            objects += await read("--filename=-", stdin=text)
            continue
        for source in some:
            path = folder / (source.path or "")
            if path.is_dir():
                path = path.resolve()  # kubectl doesn't follow a symbolic link to a folder
            flag = "--kustomize" if is_kustomization(path) else "--filename"
            objects += await read(f"{flag}={path}")
    return objects


def _documents(text: str) -> list[Manifest]:
    """Parses JSON values that follow one another."""
    decoder, values, at = json.JSONDecoder(), list[Any](), 0
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        values.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    return values
