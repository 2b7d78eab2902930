"""The flags with which a rehearsal starts cluster-autoscaler: the set that the scenario chooses
(`fast` or `production`), and the scenario's own.

ClusterAutoscaler of a scenario, paths and addresses --autoscaler_flags--> arguments
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from kwok_operator.constants import ALIKE_LABEL
from kwok_operator.rehearsal.scenario.parts import seconds_of
from kwok_operator.rehearsal.scenario.process import ClusterAutoscaler, FlagSet

FAST: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scan-interval": "2s",
        "scale-down-unneeded-time": "10s",
        "scale-down-unready-time": "30s",
        "scale-down-delay-after-add": "10s",
        "node-delete-delay-after-taint": "0s",
        "max-node-provision-time": "3m",
        "unremovable-node-recheck-timeout": "5s",
        "initial-node-group-backoff-duration": "10s",
        "max-node-group-backoff-duration": "1m",
        "node-group-backoff-reset-timeout": "5m",
        "kube-client-qps": "100",
        "kube-client-burst": "200",
    }
)
"""The flags of the set `fast` in docs/cluster-autoscaler.md. The other set, `production`, is empty:
cluster-autoscaler then has its defaults.
"""
DELAYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "scan-interval": "10s",
        "new-pod-scale-up-delay": "0s",
        "scale-down-unneeded-time": "10m",
        "scale-down-delay-after-add": "10m",
    }
)
"""The flags that set when cluster-autoscaler checks the cluster and acts, with their defaults."""

_GIVEN: Final = "given by the rehearsal"
_LOGGED: Final = "not for a rehearsal, which reads warnings in the log"

GIVEN_FLAGS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys("cloud-provider cloud-config kubeconfig namespace".split(), _GIVEN)
    | dict.fromkeys("leader-elect address".split(), _GIVEN)
    | dict.fromkeys("logging-format logtostderr stderrthreshold skip-headers".split(), _LOGGED)
    | dict.fromkeys("legacy-stderr-threshold-behavior add-dir-header".split(), _LOGGED)
)
"""Why a scenario can't set a flag, by the flag's name, written with dashes."""

OPERATOR_FLAGS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys("kubeconfig listen log-format".split(), _GIVEN) | {"log-level": _LOGGED}
)


def delay_of(name: str, flags: Mapping[str, Any]) -> float:
    """Returns the value of a flag in DELAYS, in seconds. If `flags` has no valid value, this is the
    flag's default.
    """
    try:
        return float(seconds_of(flags.get(name, DELAYS[name])))
    except ValueError:
        return float(seconds_of(DELAYS[name]))


def autoscaler_flags(
    wanted: ClusterAutoscaler, *, cloud_config: str, kubeconfig: str, namespace: str, address: str
) -> list[str]:
    """Returns all flags. The scenario's own override those of the chosen FlagSet."""
    flags = {
        "cloud-provider": "externalgrpc",
        "cloud-config": cloud_config,
        "kubeconfig": kubeconfig,
        # In kube-system it would share its status object with another autoscaler.
        "namespace": namespace,
        "leader-elect": "false",
        "address": address,
        "balancing-label": ALIKE_LABEL,
        **(FAST if wanted.values is FlagSet.FAST else {}),
        **wanted.flags,
    }
    if "balancing-ignore-label" in wanted.flags:
        # The scenario's flag has no effect if `balancing-label` is given.
        del flags["balancing-label"]
    return [f"--{name}={value}" for name, value in flags.items()]
