"""The scenario that an import writes beside its manifests. It starts from the state that the
cluster had at the time of the import or dump.

    files of the folder, ImportedPlacement, ScenarioParts  --scenario_of-->  scenario.yaml

ScenarioParts says what is done and expected, with the names in the folder: with --anonymize these
are the anonymous names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import one_line
from kwok_operator.importing.incidents.placement import ImportedPlacement

SCENARIO: Final = "scenario.yaml"
PLACEMENT: Final = "placement.json"
FIELDS: Final[Sequence[str]] = (
    *("teaches", "seed", "currency", "cluster", "apply", "placement", "topology", "begin"),
    *("steadyWithin", "processes", "workloads", "timeline", "until", "expect"),
)
"""The fields of a scenario, in the order in which people write them."""
_APPLIED: Final = ("cluster", "nodegroups", "namespaces")
_TEACHES: Final = "The cluster as it was imported: each pod is where it was, or pending again."
_STEADY_WITHIN: Final = "15m"
_QUIET: Final = "10s"
_QUIET_WITH_AUTOSCALER: Final = "40s"
_AT_MOST: Final = "10m"
_LONGEST: Final = 2_000
"""The most characters that the field `teaches` may have."""


@dataclass(frozen=True, slots=True)
class ScenarioParts:
    """What a scenario does and expects.

    `autoscaler` has cluster-autoscaler's flags without dashes; None: don't start it. Without
    `until`, the run ends when nothing changes any more; without `expect`, it expects that no more
    pods are pending than were. `steps` are done before cluster-autoscaler starts. `remarks` are
    sentences for people.
    """

    teaches: str = _TEACHES
    remarks: Sequence[str] = ()
    autoscaler: Mapping[str, str] | None = None
    steps: Sequence[Mapping[str, Any]] = ()
    until: Mapping[str, Any] | None = None
    expect: Sequence[Mapping[str, Any]] = ()


def scenario_of(
    files: Iterable[str], *, placement: ImportedPlacement, parts: ScenarioParts
) -> dict[str, Any]:
    """Returns the scenario that applies the folder's files that contain manifests."""
    folders = {name.partition("/")[0] for name in files}
    # A long file continues in another, such as nodegroups.2.yaml.
    apply = [name for stem in _APPLIED for name in sorted(folders) if name.split(".")[0] == stem]
    scenario: dict[str, Any] = {
        # The report shows `teaches`, so that is where the remarks go.
        "teaches": one_line(" ".join([parts.teaches, *parts.remarks]), limit=_LONGEST),
        "apply": apply,
        "placement": PLACEMENT,
        "steadyWithin": _STEADY_WITHIN,
    }
    quiet, steps = _QUIET, [dict(step) for step in parts.steps]
    if parts.autoscaler is not None:
        quiet = _QUIET_WITH_AUTOSCALER
        autoscaler = {"values": "production", "flags": dict(parts.autoscaler)}
        process = {"name": "autoscaler", "clusterAutoscaler": autoscaler, "starts": "byTimeline"}
        scenario["processes"] = [process]
        # Events count only once the scenario's clock runs.
        steps.append({"start": "autoscaler"})
    if steps:
        scenario["timeline"] = steps
    scenario["until"] = dict(parts.until or {"settledFor": quiet, "atMost": _AT_MOST})
    as_many = {"figure": "pods.pending", "atMost": placement.pending}
    none = {"figure": "pods.pending", "equals": 0}
    scenario["expect"] = list(map(dict, parts.expect)) or [as_many if placement.pending else none]
    return scenario
