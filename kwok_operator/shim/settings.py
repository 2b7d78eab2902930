"""Checks the flags of `kwok-operator shim` and `kwok-operator cloud-config`, and writes the file
that `cloud-config` prints.

The meaning of each flag is in its help text only.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import yaml

from kwok_operator.clusterapi.discovery import (
    Discovery,
    allowed,
    namespace_watched,
    parse_discovery,
)
from kwok_operator.constants import (
    ALIKE_LABEL,
    CAPI_CLUSTER_ANNOTATION,
    CAPI_NAMESPACE_ANNOTATION,
)
from kwok_operator.errors import SettingsError
from kwok_operator.settings import (
    DEFAULT_PROVIDER_ID_PREFIX,
    LOG_FORMATS,
    LOG_LEVELS,
    Values,
    add_cluster_flags,
    address,
    one_of,
    provider_id_prefix,
)

if TYPE_CHECKING:
    from kwok_operator.shim.troublefile import TroublePlan

DEFAULT_LISTEN = "127.0.0.1:8086"
CLOUD_CONFIG_TIMEOUT: Final = "5s"
_CLOUD_CONFIG: Final = f"""\
# For cluster-autoscaler's flag --cloud-config. The flags that go with it:
#
#   --cloud-provider=externalgrpc
#   --cloud-config=THIS-FILE
#   --balancing-label={ALIKE_LABEL}
#
# Without the last one, --balance-similar-node-groups finds no two groups alike: each node carries
# the name of its group.
"""
_KWOK: Final = "kwok:"
_CLUSTERAPI: Final = "clusterapi:"
_LABEL = re.compile(r"[^=:,\s]+=[^=,\s]*")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the gRPC server listens: a socket file, or a host and a port."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine, or this pod, can reach the address."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files: the server's certificate and key, and the CA of its clients."""

    cert: str
    key: str
    cacert: str


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects the groups that the shim serves: those that match at least one of `alternatives`, or
    all groups if `alternatives` is empty."""

    alternatives: tuple[Discovery, ...] = ()

    def matches(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
        return allowed(
            self.alternatives,
            namespace=annotations.get(CAPI_NAMESPACE_ANNOTATION, ""),
            cluster_name=annotations.get(CAPI_CLUSTER_ANNOTATION, ""),
            labels=labels,
        )


@dataclass(frozen=True, slots=True)
class ShimSettings:
    """The settings of `kwok-operator shim`."""

    kubeconfig: str | None
    context: str | None
    listen: Address
    certificates: Certificates | None
    selector: Selector
    provider_id_prefix: str
    metrics_listen: tuple[str, int] | None
    api_trouble: "TroublePlan | None"
    calls_log: str | None
    log_format: str
    log_level: str


def add_listen_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags that say where the shim listens; `cloud-config` needs no others."""
    server = parser.add_argument_group("the gRPC server")
    server.add_argument(
        "--listen",
        metavar="ADDRESS",
        help=f"HOST:PORT, or unix:/PATH for a socket file (default {DEFAULT_LISTEN})",
    )
    server.add_argument("--cert", metavar="FILE", help="the server's certificate, for mutual TLS")
    server.add_argument("--key", metavar="FILE", help="its private key")
    server.add_argument("--cacert", metavar="FILE", help="the CA of the clients' certificates")


def add_shim_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags. Values are checked by `shim_settings`, wherever they come from."""
    cluster = parser.add_argument_group("which cluster, which groups")
    add_cluster_flags(cluster)
    cluster.add_argument(
        "--node-group-auto-discovery",
        metavar="kwok:LABEL=VALUE,...",
        action="append",
        help="serve only groups with these labels; several flags are alternatives (default: all "
        "groups with spec.autoscaling). As in the provider clusterapi, "
        "clusterapi:namespace=NAME,clusterName=NAME,LABEL=VALUE selects groups of Cluster API's "
        "objects",
    )
    cluster.add_argument(
        "--provider-id-prefix",
        metavar="TEXT",
        help=f'the same as for the operator (default "{DEFAULT_PROVIDER_ID_PREFIX}")',
    )
    add_listen_flags(parser)
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="serve without TLS on an address that others can reach",
    )
    rehearsing = parser.add_argument_group("rehearsing")
    rehearsing.add_argument(
        "--api-trouble",
        metavar="FILE",
        help="delay calls, fail them or leave them unanswered as this file says, for groups with "
        "spec.cloud.apiTrouble: true (default: none)",
    )
    rehearsing.add_argument(
        "--calls-log",
        metavar="FILE",
        help="append to this file, as JSON lines, cluster-autoscaler's requests for changes, calls "
        "that fail, and the begin of each loop (default: none)",
    )
    running = parser.add_argument_group("running")
    running.add_argument(
        "--metrics-listen",
        metavar="ADDRESS",
        help="[HOST]:PORT of /healthz, /readyz and /metrics; 0 switches them off (default :8087)",
    )
    running.add_argument("--log-format", metavar="text|json", help="default text")
    running.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")


def listen_settings(values: Values) -> tuple[Address, Certificates | None]:
    """Returns the address and the certificates. Raises SettingsError naming flag, value, remedy."""
    where: Address = values.read("listen", DEFAULT_LISTEN, parse_address)
    files = {name: values.read(name, "", str) for name in ("cert", "key", "cacert")}
    missing = [f"--{name}" for name, file in files.items() if not file]
    if len(missing) == len(files):
        return where, None
    if missing:
        raise SettingsError(f"--cert, --key and --cacert go together: {missing[0]} is missing")
    return where, Certificates(**files)


def shim_settings(
    flags: argparse.Namespace, environ: Mapping[str, str] = os.environ
) -> ShimSettings:
    """Reads flags, else environment, else defaults; raises SettingsError naming flag, value,
    remedy.
    """
    values = Values(flags, environ)
    where, certificates = listen_settings(values)
    insecure = flags.insecure or values.variable("KWOK_OPERATOR_INSECURE", "", str) == "true"
    if certificates is None and not where.is_local and not insecure:
        raise SettingsError(
            f"--listen {where}: others can reach this address, and could scale the groups; give "
            "--cert, --key and --cacert, or --insecure if that is meant"
        )
    discovery = flags.node_group_auto_discovery
    if discovery is None:
        discovery = values.variable("KWOK_OPERATOR_NODE_GROUP_AUTO_DISCOVERY", "", str).split()
    return ShimSettings(
        kubeconfig=values.read("kubeconfig", "", str) or None,
        context=values.read("context", "", str) or None,
        listen=where,
        certificates=certificates,
        selector=_selector(discovery),
        provider_id_prefix=values.read(
            "provider-id-prefix", DEFAULT_PROVIDER_ID_PREFIX, provider_id_prefix
        ),
        metrics_listen=values.read("metrics-listen", ":8087", address),
        api_trouble=values.read("api-trouble", "", _plan),
        calls_log=values.read("calls-log", "", str) or None,
        log_format=values.read("log-format", "text", one_of(*LOG_FORMATS)),
        log_level=values.read("log-level", "info", one_of(*LOG_LEVELS)),
    )


def cloud_config(listen: Address, client: Certificates | None) -> str:
    """Returns the file for cluster-autoscaler's --cloud-config. Its comments name the flags to use
    with it.

    `client` has the client's files, for mutual TLS.
    """
    config: dict[str, str] = {"address": str(listen), "grpc_timeout": CLOUD_CONFIG_TIMEOUT}
    if client is not None:
        config |= {"cert": client.cert, "key": client.key, "cacert": client.cacert}
    return _CLOUD_CONFIG + yaml.safe_dump(config, sort_keys=False)


def parse_address(text: str) -> Address:
    """Parses HOST:PORT or unix:/PATH; raises ValueError with the remedy."""
    scheme, colon, path = text.partition(":")
    if scheme == "unix" and colon:
        if not path.startswith("/"):
            raise ValueError("is not a socket file such as unix:/run/kwok/shim.sock")
        # cluster-autoscaler splits the address at its colon, and exits if there are two.
        if ":" in path:
            raise ValueError("has a colon in its path: take another, such as /run/kwok/shim.sock")
        if len(os.fsencode(path)) > 100:
            raise ValueError("is too long: the path of a socket file may have 100 bytes")
        return Address(path=path)
    try:
        host, port = address(text) or ("", 0)
    except ValueError:
        host = ""
    if not host:
        raise ValueError("is not an address such as 127.0.0.1:8086 or unix:/run/kwok/shim.sock")
    return Address(host=host, port=port)


def _plan(path: str) -> "TroublePlan | None":
    if not path:
        return None
    # Imported late: most shims don't need it, nor do other commands that only read the flags.
    from kwok_operator.shim.troublefile import read_plan

    return read_plan(path)


def _selector(texts: Sequence[str]) -> Selector:
    plain = [Discovery(labels=_labels(text)) for text in texts if not text.startswith(_CLUSTERAPI)]
    capi = [_discovery(text) for text in texts if text.startswith(_CLUSTERAPI)]
    # CA watches only one namespace: that of the first flag that names one.
    watched = namespace_watched(capi)
    seen = [replace(d, namespace=watched) for d in capi if d.namespace in ("", watched)]
    return Selector((*plain, *seen))


def _discovery(text: str) -> Discovery:
    try:
        return parse_discovery(text)
    except ValueError as error:
        raise SettingsError(f"--node-group-auto-discovery: {text!r} {error}") from error


def _labels(text: str) -> Mapping[str, str]:
    """Parses labels such as `kwok:team=a,stage=b`."""
    pairs = text.removeprefix(_KWOK).split(",")
    if not all(_LABEL.fullmatch(pair) for pair in pairs):
        raise SettingsError(
            f"--node-group-auto-discovery: {text!r} is not a list of labels such as "
            "kwok:team=a,stage=test"
        )
    return dict(pair.split("=", 1) for pair in pairs)
