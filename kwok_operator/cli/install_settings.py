"""The flags of `kwok-operator install` and `uninstall`, as values.

What a flag means is only in its help text. The overlays are the files in manifests/.
"""

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kwok_operator.api.base import is_api_group
from kwok_operator.clusterapi.keys import DEFAULT_GROUP
from kwok_operator.constants import INSTALL_IMAGE
from kwok_operator.errors import SettingsError
from kwok_operator.settings import ENV_PREFIX, Values, add_cluster_flags

DIRECTORY: Final = Path(__file__).parents[1] / "manifests"
DEFAULT_OVERLAY: Final = "default"
DEFAULT_TIMEOUT: Final = 120
CRDS: Final = "crds"
"""The file with the CRDs, which belongs to every overlay."""
RIGHTS: Final = "rights"
"""The file with optional RBAC rules, of which rehearsals install some."""

_IMAGE_REFERENCE: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@[a-z0-9]+:[0-9a-f]+)?"
)
"""Host, port, path, tag and digest of an image; all but the path may be missing."""


@dataclass(frozen=True, slots=True)
class InstallSettings:
    """The settings of `install` and `uninstall`."""

    apply: bool
    """Whether to apply the manifests; otherwise they are printed."""
    overlay: str
    image: str | None
    """The operator's image; None means the one in the manifests."""
    kubeconfig: str | None
    context: str | None
    force: bool
    wait: bool
    timeout: float
    """The seconds that each wait may take."""
    clusterapi_group: str | None = None
    """If given, only the CRDs of this API group that simulated Machines need are installed."""


def overlays() -> list[str]:
    """Returns the overlays that this package has, by name."""
    return sorted(file.stem for file in DIRECTORY.glob("*.yaml") if file.stem not in (CRDS, RIGHTS))


def overlays_in_words() -> str:
    """A line for each overlay: its name and its own description."""
    width = max(map(len, overlays()), default=0)
    lines = ["overlays:"]
    for name in overlays():
        with (DIRECTORY / f"{name}.yaml").open(encoding="utf-8") as file:
            _, summary = file.readline(), file.readline()
        lines.append(f"  {name:{width}}  {summary.strip('# ').strip()}")
    return "\n".join(lines)


def add_install_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `install`. Values are checked by `install_settings`."""
    what = parser.add_argument_group("what to do (one of them)")
    what.add_argument("--dry-run", action="store_true", help="print the manifests as YAML")
    what.add_argument(
        "--apply",
        action="store_true",
        help="apply them to the cluster: CRDs, rights, and the operator's Deployment",
    )
    parser.add_argument(
        "--overlay",
        metavar="NAME",
        help=f"the overlay to install, see below (default: {DEFAULT_OVERLAY})",
    )
    parser.add_argument(
        "--image",
        metavar="IMAGE",
        help="image to run, from a registry that the cluster's nodes can reach, such as "
        "registry.example.com/kwok-operator:1.2.3",
    )
    parser.add_argument(
        "--force-conflicts",
        action="store_true",
        help="take over fields that others changed",
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait until the Deployments are available"
    )
    _add_clusterapi_flag(parser, "install")
    _add_common_flags(parser)


def add_uninstall_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `uninstall`."""
    parser.add_argument("--apply", action="store_true", help="delete, without a question")
    _add_clusterapi_flag(parser, "delete")
    _add_common_flags(parser)


def _add_clusterapi_flag(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument(
        "--clusterapi-crds",
        metavar="GROUP",
        nargs="?",
        const=DEFAULT_GROUP,
        help=f"{verb} only the CRDs of Cluster API for `run --clusterapi emulate`; those of a real "
        f"Cluster API are left alone (default: {DEFAULT_GROUP})",
    )


def _add_common_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        help=f"longest wait for one object to appear or disappear (default {DEFAULT_TIMEOUT})",
    )
    add_cluster_flags(parser.add_argument_group("which cluster"))


def install_settings(
    flags: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> InstallSettings:
    """The settings of `install` or `uninstall`; raises SettingsError naming flag, value, remedy."""
    given = argparse.Namespace(**{"overlay": None, "image": None} | vars(flags))
    if flags.command == "uninstall" and not flags.apply:
        raise SettingsError("uninstall: give --apply, which deletes groups, nodes and the operator")
    if flags.command == "install" and flags.dry_run == flags.apply:
        raise SettingsError("install: give either --dry-run, to print the manifests, or --apply")
    read = Values(given, environ).read
    other_image = given.image is not None or environ.get(f"{ENV_PREFIX}IMAGE")
    return InstallSettings(
        apply=flags.apply,
        overlay=read("overlay", DEFAULT_OVERLAY, _overlay),
        image=read("image", INSTALL_IMAGE, _image) if other_image else None,
        kubeconfig=read("kubeconfig", "", str) or None,
        context=read("context", "", str) or None,
        force=getattr(flags, "force_conflicts", False),
        wait=getattr(flags, "wait", False),
        timeout=read("timeout", str(DEFAULT_TIMEOUT), _seconds),
        clusterapi_group=_api_group(flags.clusterapi_crds),
    )


def _api_group(text: str | None) -> str | None:
    if text is not None and not is_api_group(text):
        raise SettingsError(f"--clusterapi-crds: {text!r} is no API group, such as {DEFAULT_GROUP}")
    return text


def _overlay(text: str) -> str:
    if text not in overlays():
        raise ValueError(f"is none of {', '.join(overlays())}")
    return text


def _image(text: str) -> str:
    if not _IMAGE_REFERENCE.fullmatch(text):
        raise ValueError("is not an image, such as registry.example.com/kwok-operator:1.2.3")
    return text


def _seconds(text: str) -> float:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 86_400:
        raise ValueError("is not a number of seconds from 1 to 86400, such as 120")
    return float(text)
