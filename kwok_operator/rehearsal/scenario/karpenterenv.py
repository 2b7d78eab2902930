"""The environment variables with which a rehearsal starts Karpenter: its own and the scenario's.

Karpenter of a scenario, ports, a file --karpenter_environment--> variables
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kwok_operator.rehearsal.scenario.karpenter import Karpenter

_GIVEN: Final = "given by the rehearsal; take it out"

GIVEN_VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys("KUBECONFIG DISABLE_LEADER_ELECTION".split(), _GIVEN)
    | dict.fromkeys("HEALTH_PROBE_PORT METRICS_PORT".split(), _GIVEN)
    | dict.fromkeys("LOG_OUTPUT_PATHS LOG_ERROR_OUTPUT_PATHS".split(), _GIVEN)
    | {
        "BATCH_IDLE_DURATION": "a field: write batchIdle",
        "BATCH_MAX_DURATION": "a field: write batchMax",
        "FEATURE_GATES": "a field: write featureGates",
        "INSTANCE_TYPES_FILE_PATH": "a field: write instanceTypesFrom",
        "LOG_LEVEL": "a field: write logLevel",
    }
)
"""Why `env` of a process can't set a variable, by the variable's name."""


def karpenter_environment(
    wanted: Karpenter, *, kubeconfig: str, types: str, health_port: int, metrics_port: int
) -> dict[str, str]:
    """Returns the variables; `types` is the path of the file of instance types."""
    given = {
        "BATCH_IDLE_DURATION": _duration(wanted.batch_idle),
        "BATCH_MAX_DURATION": _duration(wanted.batch_max),
        "FEATURE_GATES": ",".join(
            f"{gate}={str(on).lower()}" for gate, on in wanted.feature_gates.items()
        ),
    }
    return {
        "DISABLE_LEADER_ELECTION": "true",
        "HEALTH_PROBE_PORT": str(health_port),
        "INSTANCE_TYPES_FILE_PATH": types,
        "KUBECONFIG": kubeconfig,
        "LOG_LEVEL": wanted.log_level.value,
        "LOG_OUTPUT_PATHS": "stdout",
        "METRICS_PORT": str(metrics_port),
        **{name: value for name, value in given.items() if value},
    }


def _duration(seconds: float | None) -> str:
    # Go reads no exponents.
    return "" if seconds is None else f"{max(seconds, 0.001):.3f}s"
