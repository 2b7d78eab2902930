"""Declares and reads the flags of `kwok-operator run` for Cluster API.

They have the names and meanings of the flags of cluster-autoscaler (CA); their help explains them.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kwok_operator.api.base import is_api_group
from kwok_operator.clusterapi.capacity import ARCHITECTURES, DEFAULT_ARCH
from kwok_operator.clusterapi.crds import VERSIONS
from kwok_operator.clusterapi.discovery import (
    EXAMPLE,
    ConvertTerms,
    Discovery,
    parse_discovery,
)
from kwok_operator.clusterapi.keys import DEFAULT_GROUP, Keys
from kwok_operator.clusterapi.machines import FailureStyle
from kwok_operator.errors import SettingsError
from kwok_operator.settings import ENV_PREFIX, Values, one_of, parsed

GROUP_VARIABLE = "CAPI_GROUP"
VERSION_VARIABLE = "CAPI_VERSION"
ARCH_VARIABLE = "CAPI_SCALE_ZERO_DEFAULT_ARCH"


class Mode(StrEnum):
    MIRROR = "mirror"
    EMULATE = "emulate"


class Replicas(StrEnum):
    """How a mirrored object's replicas set the size of its group: only when the group is new
    (ONCE), or at each change (FOLLOW)."""

    ONCE = "once"
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True)
class ClusterApiSettings:
    """The settings of `run --clusterapi`. If `version` is "", the API server's preferred version is
    used."""

    mode: Mode
    keys: Keys
    version: str
    default_arch: str
    discoveries: tuple[Discovery, ...]
    cloud_config: str | None
    authoritative: bool
    replicas: Replicas
    failures: FailureStyle


def add_clusterapi_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags. Values are checked by `clusterapi_settings`."""
    group = parser.add_argument_group("Cluster API")
    group.add_argument(
        "--clusterapi",
        metavar="off|mirror|emulate",
        help="make groups from MachineDeployments, MachineSets and MachinePools: mirror follows a"
        " management cluster and writes nothing there; emulate plays the machines of"
        " MachineDeployments and MachineSets, and needs the CRDs of `install"
        f" --clusterapi-crds` (default off). ${GROUP_VARIABLE}, ${VERSION_VARIABLE} and"
        f" ${ARCH_VARIABLE} work as in cluster-autoscaler",
    )
    add_discovery_flag(group)
    group.add_argument(
        "--cloud-config",
        metavar="FILE",
        help="kubeconfig of the management cluster with Cluster API's objects; groups and nodes are"
        " in the cluster of --kubeconfig (default: one cluster for both)",
    )
    group.add_argument(
        "--clusterapi-cloud-config-authoritative",
        nargs="?",
        const="true",
        metavar="true|false",
        help="without --cloud-config: this pod's cluster is the management cluster, whatever"
        " --kubeconfig says (default false)",
    )
    group.add_argument(
        "--clusterapi-replicas",
        metavar="once|follow",
        help="mirror: take replicas as a group's first size only, or also follow later changes"
        " (default follow)",
    )
    group.add_argument(
        "--clusterapi-failures",
        metavar="v1beta1|v1beta2",
        help="emulate: a failed machine has status.failureMessage and the phase Failed (v1beta1),"
        " or only a condition, as in Cluster API 1.11 and later (default v1beta2)",
    )


def add_discovery_flag(group: argparse._ActionsContainer) -> None:
    """Declares the flag that selects objects of Cluster API."""
    group.add_argument(
        "--node-group-auto-discovery",
        metavar="clusterapi:KEY=VALUE,...",
        action="append",
        help="only objects with this namespace, clusterName and labels; several flags are"
        f" alternatives, as in cluster-autoscaler (default: all). Example: {EXAMPLE}",
    )


def terms(flags: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> ConvertTerms:
    """Reads the settings with which objects in files are converted. Raises SettingsError."""
    values = Values(flags, environ)
    return ConvertTerms(
        keys=Keys(values.variable(GROUP_VARIABLE, DEFAULT_GROUP, _api_group)),
        discoveries=_discoveries(flags, environ),
        default_arch=_architecture(environ.get(ARCH_VARIABLE)),
    )


def clusterapi_settings(
    flags: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> ClusterApiSettings | None:
    """Reads the settings; None if --clusterapi is off. Raises SettingsError with the remedy."""
    values = Values(flags, environ)
    mode = values.read("clusterapi", "off", one_of("off", *Mode))
    discoveries = _discoveries(flags, environ)
    if mode == "off":
        wrong = [name for name in _OF_ONE_MODE if values.given(name)]
        if flags.node_group_auto_discovery is not None:
            wrong.append("node-group-auto-discovery")
        for name in wrong:
            raise SettingsError(
                f"--{name}: has no effect without --clusterapi; add --clusterapi=mirror"
            )
        return None
    for name, (only, why) in _OF_ONE_MODE.items():
        if mode != only and values.given(name):
            raise values.refusal(name, f"goes with --clusterapi={only} only{why}")
    version = values.variable(VERSION_VARIABLE, "", _version)
    if mode == Mode.EMULATE and version not in ("", *VERSIONS):
        known = " or ".join(VERSIONS)
        raise SettingsError(
            f"{VERSION_VARIABLE}: {version!r} is not emulated; set it to {known}, or not at all"
        )
    return ClusterApiSettings(
        mode=Mode(mode),
        keys=Keys(values.variable(GROUP_VARIABLE, DEFAULT_GROUP, _api_group)),
        version=version,
        default_arch=_architecture(environ.get(ARCH_VARIABLE)),
        discoveries=discoveries,
        cloud_config=values.read("cloud-config", "", str) or None,
        authoritative=values.read(
            "clusterapi-cloud-config-authoritative", "false", one_of("true", "false")
        )
        == "true",
        replicas=Replicas(values.read("clusterapi-replicas", "follow", one_of(*Replicas))),
        failures=FailureStyle(
            values.read("clusterapi-failures", FailureStyle.V1BETA2, one_of(*FailureStyle))
        ),
    )


_ONE_CLUSTER = ": machines are where their nodes are"
_OF_ONE_MODE = {
    "cloud-config": (Mode.MIRROR, _ONE_CLUSTER),
    "clusterapi-cloud-config-authoritative": (Mode.MIRROR, _ONE_CLUSTER),
    "clusterapi-replicas": (Mode.MIRROR, ""),
    "clusterapi-failures": (Mode.EMULATE, ""),
}
"""Flags that are allowed only in one mode -> that mode, and why."""


def _discoveries(flags: argparse.Namespace, environ: Mapping[str, str]) -> tuple[Discovery, ...]:
    """Reads the flags, or else the environment variable, which has one or several values separated
    by blanks."""
    variable = f"{ENV_PREFIX}NODE_GROUP_AUTO_DISCOVERY"
    source, texts = "--node-group-auto-discovery", flags.node_group_auto_discovery
    if texts is None:
        source, texts = variable, environ.get(variable, "").split()
    return tuple(parsed(source, text, parse_discovery) for text in texts)


def _architecture(text: str | None) -> str:
    """Reads an architecture; an unknown one counts as amd64, as in cluster-autoscaler."""
    return text if text in ARCHITECTURES else DEFAULT_ARCH


def _api_group(text: str) -> str:
    if not is_api_group(text):
        raise ValueError(f"is not the name of an API group, such as {DEFAULT_GROUP}")
    return text


def _version(text: str) -> str:
    if text and not text.isalnum():
        raise ValueError("is not a version, such as v1beta2")
    return text
