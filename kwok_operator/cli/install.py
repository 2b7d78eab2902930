"""`kwok-operator install` and `uninstall`: the manifests that come along, printed or applied.

    manifests/crds.yaml + manifests/OVERLAY.yaml --> core/manifests.py --┬--> standard output
                                                                         └--> installer.py

The manifests are those of deploy/, rendered by `make manifests`. What was asked for is known from
install_settings.py.
"""

import sys
from typing import Any, Final

import yaml

from kwok_operator.cli.install_settings import CRDS, DIRECTORY, InstallSettings, overlays
from kwok_operator.cli.installer import Installer
from kwok_operator.core.manifests import (
    Manifest,
    identity,
    in_order,
    read_manifests,
    with_image,
    with_namespace,
)
from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.config import load_connection

_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def manifests(settings: InstallSettings) -> list[Manifest]:
    """The objects of one overlay as they are wanted, in the order of their creation."""
    found = [*_packaged(CRDS), *_packaged(settings.overlay)]
    found = with_namespace(found, settings.namespace)
    return in_order(with_image(found, settings.image) if settings.image else found)


def all_manifests(settings: InstallSettings) -> list[Manifest]:
    """The objects of all overlays, each once."""
    found = [m for name in (CRDS, *overlays()) for m in _packaged(name)]
    unique = {identity(manifest): manifest for manifest in found}
    return in_order(with_namespace(unique.values(), settings.namespace))


def _packaged(name: str) -> list[Manifest]:
    file = DIRECTORY / f"{name}.yaml"
    return read_manifests(file.read_text(encoding="utf-8"), where=f"manifests/{name}.yaml")


def as_yaml(objects: list[Manifest]) -> str:
    """The text that `kubectl apply --filename=-` takes."""
    return "".join(
        "---\n" + yaml.dump(item, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=100)
        for item in objects
    )


async def install(settings: InstallSettings) -> None:
    """Prints the manifests or applies them; raises KwokOperatorError."""
    wanted = manifests(settings)
    if not settings.apply:
        sys.stdout.write(as_yaml(wanted))
        return
    async with await _client(settings) as client:
        installer = _installer(settings, client)
        await installer.apply(wanted)
        if settings.wait:
            await installer.wait_until_available(wanted)


async def uninstall(settings: InstallSettings) -> None:
    """Deletes what `install` applied, or says what that is; raises KwokOperatorError."""
    async with await _client(settings) as client:
        await _installer(settings, client).remove(all_manifests(settings), really=settings.apply)


async def _client(settings: InstallSettings) -> KubeClient:
    connection = await load_connection(kubeconfig=settings.kubeconfig, context=settings.context)
    return KubeClient(connection=connection)


def _installer(settings: InstallSettings, client: KubeClient) -> Installer:
    return Installer(
        client=client,
        say=lambda line: print(line, flush=True),
        timeout=settings.timeout,
        force=settings.force,
    )
