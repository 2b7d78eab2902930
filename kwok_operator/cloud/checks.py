"""Warns of settings in spec.cloud that go badly together with spec.autoscaling.options.

None of them is refused: each may be just what a user wants to rehearse.
"""

from typing import Final

from kwok_operator.cloud.draws import SECOND, span
from kwok_operator.formats.times import parse_duration
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec

_MOSTLY: Final = 0.99


def cautions(spec: KwokNodeGroupSpec) -> tuple[str, ...]:
    """Returns the warnings for a group; () without spec.cloud or without autoscaling.options."""
    cloud, autoscaling = spec.cloud, spec.autoscaling
    options = autoscaling.options if autoscaling else None
    if cloud is None or options is None or not options.model_fields_set:
        return ()
    found = []
    fields = {
        "readinessDelay": cloud.readiness_delay,
        "startupTaints": cloud.startup_taints,
        "lateResources": cloud.late_resources,
    }
    if named := " and ".join(name for name, value in fields.items() if value):
        found.append(
            f"autoscaling.options don't hold while a node is starting, and cloud.{named} makes that"
            " long: with them, cluster-autoscaler 1.35 and later would ask for another in its"
            " place; give it these options as flags"
        )
    given, delay = options.max_node_provision_time, cloud.provisioning_delay
    if given is not None and delay is not None:
        longest = span(delay, _MOSTLY) // SECOND
        if parse_duration(given) < longest:
            found.append(
                f"autoscaling.options.maxNodeProvisionTime is {given}, and cloud.provisioningDelay"
                f" can be {longest}s: cluster-autoscaler gives up what is still coming; raise the"
                " one or lower the other"
            )
    return tuple(found)
