"""The scenarios of a first verdict on a copy: one plays the copy as it was imported, one for each
zone plays the loss of that zone.

    groups and placement of an import  --facts_of-->  CopyFacts
    CopyFacts, scenario.yaml of the import  --questions-->  a scenario for each question

A zone is lost by making its nodes NotReady. Kubernetes would take minutes to evict their pods, so
flags of the control plane shorten that to seconds. A cluster-autoscaler is started only after the
pods without a node have been counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from kwok_operator.formats.untyped import as_list, as_map, value_at
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.rehearsal.scenario.applied import zone_in
from kwok_operator.rehearsal.scenario.autoscaler import delay_of

AS_IT_STANDS: Final = "as-it-stands"
AUTOSCALER: Final = "autoscaler"
_SOON: Final[Mapping[str, Mapping[str, str]]] = {
    "kube-apiserver": {
        "default-not-ready-toleration-seconds": "2",
        "default-unreachable-toleration-seconds": "2",
    },
    "kube-controller-manager": {
        "node-monitor-period": "2s",
        "node-eviction-rate": "1000",
        "secondary-node-eviction-rate": "1000",
    },
}
"""Flags of the control plane: nodes are checked every 2 s, which kwokctl would do every 25 s; pods
leave NotReady nodes after 2 s, not 300, and many at a time.
"""
_STANDS: Final = {"settledFor": "5s", "atMost": "2m"}
_QUIET: Final = "15s"
"""Longer than the scheduler waits until it tries a pod again, which is at most 10 s."""
_PODS_PER_SECOND: Final = 10
"""Pods that even a very busy machine evicts and schedules again in one second."""
_ACTS_WITHIN: Final = 25.0
"""Seconds beyond its scan-interval and new-pod-scale-up-delay within which cluster-autoscaler acts.
When it has done nothing for so long after its start or its last action, it won't.
"""
_MOST_NAMED: Final = 50
_KINDS: Final = {
    kind.lower(): kind
    for kind in "Deployment StatefulSet DaemonSet ReplicaSet ReplicationController Job".split()
}


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """Facts of the import. `zones` has the number of nodes by zone; "" are nodes without a zone."""

    zones: Mapping[str, int]
    bound: int
    """The number of pods that had a node."""
    pending: Mapping[str, int] = field(default_factory=dict)
    """The number of pods without a node, by workload as KIND/NAMESPACE/NAME; "" for bare pods."""
    scalable: int = 0
    """The number of groups that an autoscaler may make larger."""

    @property
    def waiting(self) -> int:
        return sum(self.pending.values())

    @property
    def nodes(self) -> int:
        return sum(self.zones.values())


@dataclass(frozen=True, slots=True)
class CopyQuestion:
    """A question on the copy, and a scenario that answers it. `zone`: the lost zone, or empty."""

    name: str
    scenario: Mapping[str, Any]
    zone: str = ""
    nodes: int = 0
    """The number of nodes of the lost zone."""


def facts_of(groups: Iterable[Any], placement: Mapping[str, Any]) -> CopyFacts:
    """Reads the groups of an import, and its placement.json."""
    zones = Counter[str]()
    scalable = 0
    for group in groups:
        spec = as_map(value_at(group, "spec"))
        size, most = spec.get("targetSize"), value_at(spec, "autoscaling", "maxSize")
        size = size if isinstance(size, int) else 0
        zones[zone_in(spec)] += size
        scalable += isinstance(most, int) and most > size
    bound, pending = 0, Counter[str]()
    for pods in map(as_map, as_list(placement.get("pods"))):
        bound += sum(as_map(pods.get("on")).values()) + len(as_map(pods.get("ordinals")))
        if waiting := len(as_list(pods.get("pending"))):
            kind, _, name = str(pods.get("what")).partition("/")
            word = _KINDS.get(kind, "")  # figures can't be narrowed to a single pod
            pending[f"{word}/{pods.get('namespace')}/{name}" if word else ""] += waiting
    return CopyFacts(dict(sorted(zones.items())), bound, pending, scalable)


def questions(
    facts: CopyFacts, base: Mapping[str, Any], *, folder: str, autoscaler: bool
) -> list[CopyQuestion]:
    """Returns the questions: first on the copy as it was imported, then on the loss of each zone,
    zones with many nodes first. `base` is the import's scenario, whose paths are relative to
    `folder`.
    """
    common = dict(base)
    common["apply"] = [f"{folder}/{path}" for path in as_list(base.get("apply"))]
    if isinstance(placement := base.get("placement"), str):
        common["placement"] = f"{folder}/{placement}"
    common["cluster"] = {"flags": dict(_SOON)}  # the same for all, so that one cluster can be kept
    processes = [dict(each) for each in as_list(common.pop("processes", None))]
    for field_of_others in ("timeline", "until", "expect"):
        common.pop(field_of_others, None)
    stands = {
        **common,
        "teaches": "whether the copy holds as it stands: pods run that ran, and others are pending",
        "until": _STANDS,
        "expect": list(_as_it_stood(facts)),
    }
    to_play = [CopyQuestion(AS_IT_STANDS, stands)]
    zones = {zone: nodes for zone, nodes in facts.zones.items() if zone and nodes}
    if len(zones) == 1 and not facts.zones.get(""):
        return to_play  # without a node no pod can run
    largest = sorted(zones.items(), key=lambda each: (-each[1], each[0]))
    for number, (zone, nodes) in enumerate(largest, 1):
        lost = _lost(facts, zone, processes=processes if autoscaler else None)
        scenario = {**common, **lost}
        name = f"zone-{zone}" if is_object_name(zone) and len(zone) < 60 else f"lost-{number}"
        to_play.append(CopyQuestion(name, scenario, zone, nodes))
    return to_play


def _as_it_stood(facts: CopyFacts) -> Iterator[Mapping[str, Any]]:
    if facts.bound:
        yield {"figure": "pods.running", "atLeast": facts.bound}
    yield {"figure": "pods.pending", "equals": facts.waiting}
    if len(facts.pending) <= _MOST_NAMED:
        for name, count in sorted(facts.pending.items()):
            if name:
                yield {"figure": "pods.pending", "equals": count, "of": {"workload": name}}


def _lost(facts: CopyFacts, zone: str, *, processes: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Returns the fields of the scenario that loses a zone. The scenario starts a
    cluster-autoscaler unless `processes` is None.
    """
    share = facts.zones[zone] / max(facts.nodes, 1)
    longest = 180 + ceil(facts.bound * share / _PODS_PER_SECOND)
    lost: dict[str, Any] = {
        "teaches": f"whether all pods find a place when the zone {zone} is lost",
        "timeline": [{"at": "0s", "outage": {"zone": zone}}],
        "until": {"settledFor": _QUIET, "atMost": f"{longest}s"},
        "expect": [{"figure": "pods.pending", "atMost": facts.waiting}],
    }
    if processes is None:
        return lost
    process = (processes or [{"name": AUTOSCALER, "clusterAutoscaler": {"values": "production"}}])[
        0
    ]
    lost["processes"] = [{**process, "starts": "byTimeline"}]
    # The pods without a place are counted at its start.
    lost["timeline"].append({"start": process["name"], "settledFor": _QUIET})
    flags = as_map(value_at(process, "clusterAutoscaler", "flags"))
    settled = _ACTS_WITHIN + sum(
        delay_of(each, flags) for each in ("scan-interval", "new-pod-scale-up-delay")
    )
    lost["until"] = {"settledFor": f"{settled:g}s", "atMost": f"{2 * longest + ceil(settled)}s"}
    return lost
