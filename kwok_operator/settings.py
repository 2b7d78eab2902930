"""The flags of `kwok-operator run`, as values.

Each flag has an environment variable of the same name with the prefix KWOK_OPERATOR_; if both are
set, the flag counts. `RunSettings` declares each flag at its field: its help, its default, and how
its text becomes a value. Errors name the flag or the variable, its value, and a valid example.
"""

import argparse
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from kwok_operator.constants import DEFAULT_MAX_TOTAL_NODES
from kwok_operator.errors import SettingsError

ENV_PREFIX = "KWOK_OPERATOR_"
PROVIDER_CONFIG_VARIABLE = "KWOK_PROVIDER_CONFIGMAP"
"""The name that cluster-autoscaler's kwok provider gives this variable."""
DEFAULT_PROVIDER_CONFIG = "kwok-provider-config"
DEFAULT_PROVIDER_ID_PREFIX = "kwok:"
DEFAULT_NODE_CONCURRENCY = 64
"""An API server is fastest with half as many requests; the other half is on the network, or waits
for our event loop."""
MAX_NODE_CONCURRENCY = 256
DEFAULT_LEASE_NAME = "kwok-operator"
JITTER = 1.2
"""A try may be later than the retry period by this factor, as in client-go's leader election."""
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


class Values:
    """Reads values from flags, else environment variables, else defaults."""

    def __init__(self, flags: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self._flags = flags
        self._environ = environ

    def read(self, flag: str, default: str, parse: Callable[[str], Any]) -> Any:
        """Returns the parsed value of a flag. Raises SettingsError, which names the flag or the
        variable, the value and the remedy."""
        given = getattr(self._flags, flag.replace("-", "_"))
        if given is not None:
            return parsed(f"--{flag}", given, parse)
        return self.variable(_variable(flag), default, parse)

    def given(self, flag: str) -> bool:
        """Whether the flag or its variable is set."""
        given = getattr(self._flags, flag.replace("-", "_"))
        return given is not None or bool(self._environ.get(_variable(flag)))

    def refusal(self, flag: str, why: str) -> SettingsError:
        """Returns the error for a flag that contradicts another one; it names the flag, or the
        variable that sets it, and says `why`."""
        text = getattr(self._flags, flag.replace("-", "_"))
        source = _variable(flag) if text is None else f"--{flag}"
        return SettingsError(f"{source}: {text or self._environ.get(source)!r} {why}")

    def variable(self, name: str, default: str, parse: Callable[[str], Any]) -> Any:
        """Returns the parsed value of an environment variable alone."""
        return parsed(name, self._environ.get(name) or default, parse)


def _variable(flag: str) -> str:
    return ENV_PREFIX + flag.replace("-", "_").upper()


def parsed(source: str, text: str, parse: Callable[[str], Any]) -> Any:
    """Parses the value of `source` (a flag or variable). If `parse` raises ValueError, raises
    SettingsError with a sentence that ends with the ValueError's text."""
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError(f"{source}: {text!r} {error}") from error


ABOVE_0: Final = math.ulp(0.0)
"""The smallest float above 0."""


def number_between(
    words: str, least: float, most: float, *, whole: bool = False, unit: str = ""
) -> Callable[[str], Any]:
    """Returns a parser of numbers within these limits, with or without `unit`; the error of the
    parser describes a valid value with `words`."""

    def parse(text: str) -> float:
        bare = text.removesuffix(unit)
        try:
            number = float(bare)
        except ValueError:
            number = math.nan
        if not least <= number <= most or (whole and not bare.isdecimal()):
            raise ValueError(f"is not {words}")
        return int(bare) if whole else number

    return parse


_election_seconds = number_between(
    "a number of seconds from 0.1 to 3600, such as 2", 0.1, 3_600, unit="s"
)


def _rate(text: str) -> float:
    words = (
        "a number of requests per second from 0.01 to 100000, such as 50, nor 0 for as many as the"
        " API server takes"
    )
    rate: float = number_between(words, 0, 100_000)(text)
    if 0 < rate < 0.01:
        raise ValueError(f"is not {words}")
    return rate


def is_namespace_name(text: str) -> bool:
    """Whether Kubernetes accepts the text as the name of a namespace (RFC 1123 label)."""
    return re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text) is not None


def _namespace(text: str) -> str | None:
    if text and not is_namespace_name(text):
        raise ValueError("is not the name of a namespace, such as kube-system")
    return text or None


def _name_of_a(kind: str, example: str) -> Callable[[str], str]:
    """Returns a parser of object names; `example` is for its error."""

    def parse(text: str) -> str:
        if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text):
            raise ValueError(f"is not the name of a {kind}, such as {example}")
        return text

    return parse


def provider_id_prefix(text: str) -> str:
    """Parses the text that precedes a node's name in its providerID."""
    if not text or text.isspace():
        raise ValueError('is empty; give a prefix such as "kwok:"')
    return text


def address(text: str) -> tuple[str, int] | None:
    """Parses [HOST]:PORT; returns None for "0", which means no address."""
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("is not an address such as :8080 or 127.0.0.1:8080, nor 0 for none")
    return (host.strip("[]") or "0.0.0.0", int(port))


def one_of(*choices: str) -> Callable[[str], str]:
    """Returns a parser that accepts these words, in upper or lower case."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"is none of {', '.join(choices)}")
        return text.lower()

    return parse


@dataclass(frozen=True, slots=True)
class _Flag:
    group: str
    metavar: str
    help: str
    default: str
    parse: Callable[[str], Any]
    is_switch: bool


def _flag(
    group: str,
    metavar: str,
    help: str,
    *,
    default: str = "",
    parse: Callable[[str], Any] = lambda text: text or None,
    is_switch: bool = False,
) -> Any:
    """Declares a field that a flag sets; a switch may stand without a value, which means true."""
    return field(metadata={"flag": _Flag(group, metavar, help, default, parse, is_switch)})


_CLUSTER: Final = "which cluster"
_NODES: Final = "nodes"
_SHARING: Final = "sharing a cluster"
_SOURCES: Final = "templates and provider config"
_REPLICAS: Final = "several replicas"
_RUNNING: Final = "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of `run`."""

    kubeconfig: str | None = _flag(
        _CLUSTER,
        "FILE",
        "kubeconfig to use; by default the pod's service account, else $KUBECONFIG, else "
        "~/.kube/config",
    )
    context: str | None = _flag(_CLUSTER, "NAME", "context of the kubeconfig")
    max_total_nodes: int = _flag(
        _NODES,
        "N",
        "most nodes of all groups together; nodes beyond it wait "
        f"(default {DEFAULT_MAX_TOTAL_NODES})",
        default=str(DEFAULT_MAX_TOTAL_NODES),
        parse=number_between("a number of nodes, such as 10000", 0, 10**9, whole=True),
    )
    provider_id_prefix: str = _flag(
        _NODES,
        "TEXT",
        'text before the node name in spec.providerID (default "kwok:"; some cloud '
        'controllers require "kwok://")',
        default=DEFAULT_PROVIDER_ID_PREFIX,
        parse=provider_id_prefix,
    )
    cloud_seed: str = _flag(
        _NODES,
        "TEXT",
        "seed of simulated clouds without spec.cloud.seed, beside the group's name; another "
        "one gives another run (default: the name alone)",
        parse=str,
    )
    csi_nodes: bool | None = _flag(
        _NODES,
        "true|false",
        "give each node a CSINode, as a kubelet does, an empty one where the group's template"
        " has none: cluster-autoscaler with --enable-csi-node-aware-scheduling needs it; needs the"
        " rights of the component companions (default true with --clusterapi if the account has"
        " them, else false)",
        default="auto",
        parse=lambda text: {"true": True, "false": False}.get(
            one_of("auto", "true", "false")(text)
        ),
        is_switch=True,
    )
    """Whether nodes get CSINodes. None: only if groups follow Cluster API's objects, and the
    account may write CSINodes."""
    node_concurrency: int = _flag(
        _SHARING,
        "N",
        "most nodes to write at once, over all groups; fewer for a while after the API server "
        f"asked to slow down (default {DEFAULT_NODE_CONCURRENCY}; more is hardly faster, fewer "
        "leaves more of the API server to others)",
        default=str(DEFAULT_NODE_CONCURRENCY),
        parse=number_between(
            f"a number of writes from 1 to {MAX_NODE_CONCURRENCY}, such as"
            f" {DEFAULT_NODE_CONCURRENCY}",
            *(1, MAX_NODE_CONCURRENCY),
            whole=True,
        ),
    )
    max_qps: float = _flag(
        _SHARING,
        "N",
        "most requests per second that write nodes or delete their pods; may be a fraction "
        "(default 0: as many as the API server takes)",
        default="0",
        parse=_rate,
    )
    provider_config_namespace: str | None = _flag(
        _SOURCES,
        "NAMESPACE",
        "namespace of the ConfigMaps with templates and the provider config (default: the "
        "operator's own: $POD_NAMESPACE, else that of its service account or of its context). The "
        f"provider config itself is the ConfigMap {DEFAULT_PROVIDER_CONFIG}, unless "
        f"${PROVIDER_CONFIG_VARIABLE} names another",
        parse=_namespace,
    )
    leader_elect: bool = _flag(
        _REPLICAS,
        "true|false",
        "work only while holding a Lease: one of several replicas works, the others stand by; "
        "needs get, create and update on Leases (default false)",
        default="false",
        parse=lambda text: one_of("true", "false")(text) == "true",
        is_switch=True,
    )
    leader_elect_lease_duration: int = _flag(
        _REPLICAS,
        "SECONDS",
        "how long the others wait for a silent leader (default 10)",
        default="10",
        parse=number_between(
            "a whole number of seconds from 1 to 3600, such as 10", 1, 3_600, whole=True, unit="s"
        ),
    )
    leader_elect_renew_deadline: float = _flag(
        _REPLICAS,
        "SECONDS",
        "how long a leader works without renewing its Lease; then it stops writing and ends "
        "(default 7)",
        default="7",
        parse=_election_seconds,
    )
    leader_elect_retry_period: float = _flag(
        _REPLICAS,
        "SECONDS",
        "how often a leader renews its Lease (default 2)",
        default="2",
        parse=_election_seconds,
    )
    leader_elect_resource_name: str = _flag(
        _REPLICAS,
        "NAME",
        f"name of the Lease (default {DEFAULT_LEASE_NAME}). Its holder is named $POD_NAME, "
        "else the host's name, and some random characters",
        default=DEFAULT_LEASE_NAME,
        parse=_name_of_a("Lease", DEFAULT_LEASE_NAME),
    )
    leader_elect_resource_namespace: str | None = _flag(
        _REPLICAS,
        "NAMESPACE",
        "namespace of the Lease (default: the operator's own)",
        parse=_namespace,
    )
    listen: tuple[str, int] | None = _flag(
        _RUNNING,
        "ADDRESS",
        "[HOST]:PORT of /healthz, /readyz and /metrics; 0 switches them off (default :8080)",
        default=":8080",
        parse=address,
    )
    resync_interval: float = _flag(
        _RUNNING,
        "SECONDS",
        "how often every group is checked even without a change (default 300)",
        default="300",
        parse=number_between("a number of seconds from 1 to 86400", 1, 86_400),
    )
    log_format: str = _flag(
        _RUNNING, "text|json", "default text", default="text", parse=one_of(*LOG_FORMATS)
    )
    log_level: str = _flag(
        _RUNNING,
        "LEVEL",
        "debug, info, warning or error",
        default="info",
        parse=one_of(*LOG_LEVELS),
    )
    namespace: str | None
    """The operator's namespace; None means that of its connection."""
    provider_config: str


_FLAGS: Final[Mapping[str, _Flag]] = {
    each.name: each.metadata["flag"] for each in fields(RunSettings) if "flag" in each.metadata
}


def add_cluster_flags(group: argparse._ArgumentGroup) -> None:
    """Declares the flags that name the cluster, for each command that uses one."""
    for name in ("kubeconfig", "context"):
        _declare(group, name)


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `run`. `run_settings` checks the values, whatever their origin."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for name, flag in _FLAGS.items():
        if flag.group not in groups:
            groups[flag.group] = parser.add_argument_group(flag.group)
        _declare(groups[flag.group], name)


def _declare(group: argparse._ArgumentGroup, name: str) -> None:
    flag = _FLAGS[name]
    switch: dict[str, Any] = {"nargs": "?", "const": "true"} if flag.is_switch else {}
    option = f"--{name.replace('_', '-')}"
    group.add_argument(option, metavar=flag.metavar, help=flag.help, **switch)


def run_settings(flags: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> RunSettings:
    """Returns the settings of `run`; raises SettingsError naming flag, value, remedy."""
    values = Values(flags, environ)
    settings = RunSettings(
        namespace=values.variable("POD_NAMESPACE", "", _namespace),
        provider_config=values.variable(
            PROVIDER_CONFIG_VARIABLE,
            DEFAULT_PROVIDER_CONFIG,
            _name_of_a("ConfigMap", DEFAULT_PROVIDER_CONFIG),
        ),
        **{
            name: values.read(name.replace("_", "-"), flag.default, flag.parse)
            for name, flag in _FLAGS.items()
        },
    )
    _check_election(settings, values)
    return settings


def _check_election(settings: RunSettings, values: Values) -> None:
    """Checks that the renew deadline is shorter than the Lease, and the retry period than the
    deadline.

    If two values contradict each other, the error names the one that was set, not a default.
    """
    duration, deadline, period = (
        f"leader-elect-{name}" for name in ("lease-duration", "renew-deadline", "retry-period")
    )
    lease = settings.leader_elect_lease_duration
    renew = settings.leader_elect_renew_deadline
    retry = settings.leader_elect_retry_period
    if not renew < lease:
        rule = "a leader has to stop before its Lease ends"
        if values.given(duration):
            why = f"is not longer than --{deadline}, {renew:g} s: {rule}"
            raise values.refusal(duration, why)
        raise values.refusal(deadline, f"is not shorter than --{duration}, {lease} s: {rule}")
    if not retry * JITTER < renew:
        rule = f"a leader has to try again in time, and may be late by a factor of {JITTER:g}"
        if values.given(deadline):
            why = f"is not enough for --{period}, {retry:g} s: {rule}"
            raise values.refusal(deadline, why)
        why = f"is not short enough for --{deadline}, {renew:g} s: {rule}"
        raise values.refusal(period, why)
