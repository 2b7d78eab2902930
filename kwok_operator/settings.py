"""The flags of `kwok-operator run`, as values.

Each flag has an environment variable of the same name with the prefix KWOK_OPERATOR_; a flag wins.
What a flag means stands in its help text, and nowhere else.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kwok_operator.constants import DEFAULT_MAX_TOTAL_NODES
from kwok_operator.errors import SettingsError

ENV_PREFIX = "KWOK_OPERATOR_"
PROVIDER_CONFIG_VARIABLE = "KWOK_PROVIDER_CONFIGMAP"
"""As cluster-autoscaler's kwok provider calls it."""
DEFAULT_PROVIDER_CONFIG = "kwok-provider-config"
DEFAULT_PROVIDER_ID_PREFIX = "kwok:"
DEFAULT_NODE_CONCURRENCY = 64
"""An API server is at its best with half of it; the rest is on its way, or waits for our turn."""
MAX_NODE_CONCURRENCY = 256
DEFAULT_LEASE_NAME = "kwok-operator"
JITTER = 1.2
"""A try may come later than the retry period by this factor, as in client-go's leader election."""
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What `run` was asked for."""

    kubeconfig: str | None
    context: str | None
    max_total_nodes: int
    provider_id_prefix: str
    cloud_seed: str
    csi_nodes: bool | None
    """None: with Cluster API's objects, where the account may write them."""
    node_concurrency: int
    max_qps: float
    """Requests that write nodes, per second; 0 means as many as the API server takes."""
    listen: tuple[str, int] | None
    resync_interval: float
    namespace: str | None
    """The operator's own; None means that of its connection."""
    provider_config: str
    provider_config_namespace: str | None
    leader_elect: bool
    leader_elect_lease_duration: int
    """Seconds, as those of the next two."""
    leader_elect_renew_deadline: float
    leader_elect_retry_period: float
    leader_elect_resource_name: str
    leader_elect_resource_namespace: str | None
    """None means the operator's own."""
    log_format: str
    log_level: str


def add_cluster_flags(group: argparse._ArgumentGroup) -> None:
    """Declares which cluster it is, for each command that talks to one."""
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="kubeconfig to use; by default the pod's service account, else $KUBECONFIG, else "
        "~/.kube/config",
    )
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig")


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags. Values are checked by `run_settings`, wherever they come from."""
    add_cluster_flags(parser.add_argument_group("which cluster"))
    _add_node_flags(parser.add_argument_group("nodes"))
    sharing = parser.add_argument_group("sharing a cluster")
    sharing.add_argument(
        "--node-concurrency",
        metavar="N",
        help="most nodes to write at once, over all groups; fewer for a while after the API server "
        f"asked to slow down (default {DEFAULT_NODE_CONCURRENCY}; more is hardly faster, fewer "
        "leaves more of the API server to others)",
    )
    sharing.add_argument(
        "--max-qps",
        metavar="N",
        help="most requests per second that write nodes or delete their pods; may be a fraction "
        "(default 0: as many as the API server takes)",
    )
    sources = parser.add_argument_group("templates and provider config")
    sources.add_argument(
        "--provider-config-namespace",
        metavar="NAMESPACE",
        help="namespace of the ConfigMaps with templates and the provider config (default: the "
        "operator's own: $POD_NAMESPACE, else that of its service account or of its context). The "
        f"provider config itself is the ConfigMap {DEFAULT_PROVIDER_CONFIG}, unless "
        f"${PROVIDER_CONFIG_VARIABLE} names another",
    )
    _add_election_flags(parser.add_argument_group("several replicas"))
    running = parser.add_argument_group("running")
    running.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="[HOST]:PORT of /healthz, /readyz and /metrics; 0 switches them off (default :8080)",
    )
    running.add_argument(
        "--resync-interval",
        metavar="SECONDS",
        help="how often every group is checked even without a change (default 300)",
    )
    running.add_argument("--log-format", metavar="text|json", help="default text")
    running.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")


def _add_node_flags(nodes: Any) -> None:
    nodes.add_argument(
        "--max-total-nodes",
        metavar="N",
        help="most nodes of all groups together; nodes beyond it wait "
        f"(default {DEFAULT_MAX_TOTAL_NODES})",
    )
    nodes.add_argument(
        "--provider-id-prefix",
        metavar="TEXT",
        help='text before the node name in spec.providerID (default "kwok:"; some cloud '
        'controllers require "kwok://")',
    )
    nodes.add_argument(
        "--cloud-seed",
        metavar="TEXT",
        help="seed of simulated clouds without spec.cloud.seed, beside the group's name; another "
        "one gives another run (default: the name alone)",
    )
    nodes.add_argument(
        "--csi-nodes",
        nargs="?",
        const="true",
        metavar="true|false",
        help="give each node a CSINode, as a kubelet does, an empty one where the group's template"
        " has none: cluster-autoscaler with --enable-csi-node-aware-scheduling needs it; needs the"
        " rights of the component companions (default true with --clusterapi if the account has"
        " them, else false)",
    )


def _add_election_flags(election: Any) -> None:
    election.add_argument(
        "--leader-elect",
        nargs="?",
        const="true",
        metavar="true|false",
        help="work only while holding a Lease: one of several replicas works, the others stand by; "
        "needs get, create and update on Leases (default false)",
    )
    election.add_argument(
        "--leader-elect-lease-duration",
        metavar="SECONDS",
        help="how long the others wait for a silent leader (default 10)",
    )
    election.add_argument(
        "--leader-elect-renew-deadline",
        metavar="SECONDS",
        help="how long a leader works without renewing its Lease; then it stops writing and ends "
        "(default 7)",
    )
    election.add_argument(
        "--leader-elect-retry-period",
        metavar="SECONDS",
        help="how often a leader renews its Lease (default 2)",
    )
    election.add_argument(
        "--leader-elect-resource-name",
        metavar="NAME",
        help=f"name of the Lease (default {DEFAULT_LEASE_NAME}). Its holder is named $POD_NAME, "
        "else the host's name, and some random characters",
    )
    election.add_argument(
        "--leader-elect-resource-namespace",
        metavar="NAMESPACE",
        help="namespace of the Lease (default: the operator's own)",
    )


class Values:
    """Flags, else environment variables, else defaults; a flag wins."""

    def __init__(self, flags: argparse.Namespace, environ: Mapping[str, str]) -> None:
        self._flags = flags
        self._environ = environ

    def read(self, flag: str, default: str, parse: Callable[[str], Any]) -> Any:
        """Raises SettingsError, which names the flag or the variable, the value and the remedy."""
        given = getattr(self._flags, flag.replace("-", "_"))
        if given is not None:
            return parsed(f"--{flag}", given, parse)
        return self.variable(_variable(flag), default, parse)

    def given(self, flag: str) -> bool:
        """Whether there is a value other than the default."""
        given = getattr(self._flags, flag.replace("-", "_"))
        return given is not None or bool(self._environ.get(_variable(flag)))

    def refusal(self, flag: str, why: str) -> SettingsError:
        """The error that the value of a flag, or of its variable, does not go with another's."""
        text = getattr(self._flags, flag.replace("-", "_"))
        source = _variable(flag) if text is None else f"--{flag}"
        return SettingsError(f"{source}: {text or self._environ.get(source)!r} {why}")

    def variable(self, name: str, default: str, parse: Callable[[str], Any]) -> Any:
        """The value of an environment variable alone."""
        return parsed(name, self._environ.get(name) or default, parse)


def _variable(flag: str) -> str:
    return ENV_PREFIX + flag.replace("-", "_").upper()


def parsed(source: str, text: str, parse: Callable[[str], Any]) -> Any:
    """Raises SettingsError where `parse` raises ValueError with the rest of the sentence."""
    try:
        return parse(text)
    except ValueError as error:
        raise SettingsError(f"{source}: {text!r} {error}") from error


def run_settings(flags: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> RunSettings:
    """The settings of `run`; raises SettingsError naming flag, value, remedy."""
    values = Values(flags, environ)
    read = values.read
    duration, deadline, period = _election_times(values)
    return RunSettings(
        kubeconfig=read("kubeconfig", "", str) or None,
        context=read("context", "", str) or None,
        max_total_nodes=read("max-total-nodes", str(DEFAULT_MAX_TOTAL_NODES), _count),
        provider_id_prefix=read(
            "provider-id-prefix", DEFAULT_PROVIDER_ID_PREFIX, provider_id_prefix
        ),
        cloud_seed=read("cloud-seed", "", str),
        csi_nodes={"true": True, "false": False}.get(
            read("csi-nodes", "auto", one_of("auto", "true", "false"))
        ),
        node_concurrency=read("node-concurrency", str(DEFAULT_NODE_CONCURRENCY), _concurrency),
        max_qps=read("max-qps", "0", _rate),
        listen=read("listen", ":8080", address),
        resync_interval=read("resync-interval", "300", _seconds),
        namespace=values.variable("POD_NAMESPACE", "", _namespace) or None,
        provider_config=values.variable(
            PROVIDER_CONFIG_VARIABLE,
            DEFAULT_PROVIDER_CONFIG,
            _name_of_a("ConfigMap", DEFAULT_PROVIDER_CONFIG),
        ),
        provider_config_namespace=read("provider-config-namespace", "", _namespace) or None,
        leader_elect=read("leader-elect", "false", one_of("true", "false")) == "true",
        leader_elect_lease_duration=duration,
        leader_elect_renew_deadline=deadline,
        leader_elect_retry_period=period,
        leader_elect_resource_name=read(
            "leader-elect-resource-name",
            DEFAULT_LEASE_NAME,
            _name_of_a("Lease", DEFAULT_LEASE_NAME),
        ),
        leader_elect_resource_namespace=read("leader-elect-resource-namespace", "", _namespace)
        or None,
        log_format=read("log-format", "text", one_of(*LOG_FORMATS)),
        log_level=read("log-level", "info", one_of(*LOG_LEVELS)),
    )


def _election_times(values: Values) -> tuple[int, float, float]:
    """Lease duration, renew deadline, retry period: each shorter than the one before, in seconds.

    Which of two is wrong nobody knows; the one that was given is told, so each knows the others.
    """
    duration_flag, deadline_flag, period_flag = (
        f"leader-elect-{name}" for name in ("lease-duration", "renew-deadline", "retry-period")
    )
    duration: int = values.read(duration_flag, "10", _lease_seconds)
    deadline: float = values.read(deadline_flag, "7", _election_seconds)
    period: float = values.read(period_flag, "2", _election_seconds)

    if not deadline < duration:
        rule = "a leader has to stop before its Lease ends"
        if values.given(duration_flag):
            why = f"is not longer than --{deadline_flag}, {deadline:g} s: {rule}"
            raise values.refusal(duration_flag, why)
        why = f"is not shorter than --{duration_flag}, {duration} s: {rule}"
        raise values.refusal(deadline_flag, why)
    if not period * JITTER < deadline:
        rule = f"a leader has to try again in time, and may be late by a factor of {JITTER:g}"
        if values.given(deadline_flag):
            why = f"is not enough for --{period_flag}, {period:g} s: {rule}"
            raise values.refusal(deadline_flag, why)
        why = f"is not short enough for --{deadline_flag}, {deadline:g} s: {rule}"
        raise values.refusal(period_flag, why)
    return duration, deadline, period


def _whole(text: str, least: int, most: int) -> int | None:
    short = len(text) < 10 and text.isdecimal()
    return int(text) if short and least <= int(text) <= most else None


def _number(text: str, least: float, most: float) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if least <= number <= most else None


def _lease_seconds(text: str) -> int:
    if (seconds := _whole(text.removesuffix("s"), 1, 3_600)) is None:
        raise ValueError("is not a whole number of seconds from 1 to 3600, such as 10")
    return seconds


def _election_seconds(text: str) -> float:
    if (seconds := _number(text.removesuffix("s"), 0.1, 3_600)) is None:
        raise ValueError("is not a number of seconds from 0.1 to 3600, such as 2")
    return seconds


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("is not a number of nodes, such as 10000")
    return int(text)


def _concurrency(text: str) -> int:
    if (writes := _whole(text, 1, MAX_NODE_CONCURRENCY)) is None:
        raise ValueError(
            f"is not a number of writes from 1 to {MAX_NODE_CONCURRENCY}, such as "
            f"{DEFAULT_NODE_CONCURRENCY}"
        )
    return writes


def _rate(text: str) -> float:
    rate = _number(text, 0, 100_000)
    if rate is None or 0 < rate < 0.01:
        raise ValueError(
            "is not a number of requests per second from 0.01 to 100000, such as 50, nor 0 for as "
            "many as the API server takes"
        )
    return rate


def _seconds(text: str) -> float:
    if (seconds := _number(text, 1, 86_400)) is None:
        raise ValueError("is not a number of seconds from 1 to 86400")
    return seconds


def is_namespace_name(text: str) -> bool:
    """Whether Kubernetes takes it for one (RFC 1123 label)."""
    return re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text) is not None


def _namespace(text: str) -> str:
    if text and not is_namespace_name(text):
        raise ValueError("is not the name of a namespace, such as kube-system")
    return text


def _name_of_a(kind: str, example: str) -> Callable[[str], str]:
    """The name of an object, such as this one."""

    def parse(text: str) -> str:
        if len(text) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", text):
            raise ValueError(f"is not the name of a {kind}, such as {example}")
        return text

    return parse


def provider_id_prefix(text: str) -> str:
    """What stands before a node's name in its providerID."""
    if not text or text.isspace():
        raise ValueError('is empty; give a prefix such as "kwok:"')
    return text


def address(text: str) -> tuple[str, int] | None:
    """[HOST]:PORT, or 0 for none."""
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("is not an address such as :8080 or 127.0.0.1:8080, nor 0 for none")
    return (host.strip("[]") or "0.0.0.0", int(port))


def one_of(*choices: str) -> Callable[[str], str]:
    """One of these words, however it is capitalised."""

    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"is none of {', '.join(choices)}")
        return text.lower()

    return parse
