"""The texts of cluster-autoscaler (CA) and Karpenter: their Events, and CA's status ConfigMap.

    message of an Event  -->  scale-ups, refusals, failures of groups, nominations
    text of the status   -->  each group's size, bounds, health and back-off

The texts are those of CA 1.36 (processors/status/eventing_scale_up_processor.go, clusterstate/,
core/scaleup/orchestrator/) and Karpenter 1.14 (provisioning/scheduling/), and of earlier versions.
Nothing here judges a reason: causes/model.py does.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.errors import ManifestError
from kwok_operator.formats.schedulertexts import parse_reasons
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at, whole
from kwok_operator.formats.yamltext import load_documents

AUTOSCALERS: Final = frozenset({"cluster-autoscaler", "karpenter"})
"""The components that report the Events of autoscalers."""
TRIGGERED: Final = "TriggeredScaleUp"
NOT_TRIGGERED: Final = "NotTriggerScaleUp"
NOMINATED: Final = "Nominated"
FAILED_SCHEDULING: Final = "FailedScheduling"
"""Karpenter and the scheduler use this reason for their Events; `of_karpenter` distinguishes
them."""

_SCALE_UP: Final = re.compile(r"\{(\S+) ([0-9]{1,9})->([0-9]{1,9}) \(max: ([0-9]{1,9})\)\}")
_REFUSED: Final = re.compile(
    r"pod didn't trigger scale-up(?: \(it wouldn't fit if a new node is added\))?:?\s*(.*)",
    re.DOTALL,
)
_FAILURES: Final = (
    re.compile(r"Scale-up failed for group (?P<group>\S+): (?P<why>.*)", re.DOTALL),
    re.compile(
        r"Failed adding (?P<nodes>[0-9]{1,9}) nodes to group (?P<group>\S+) due to (?P<why>.*)",
        re.DOTALL,
    ),
    re.compile(r"Nodes added to group (?P<group>\S+) (?P<why>failed to register within .*)"),
)
_NOMINATED: Final = re.compile(r"Pod should schedule on: ?(.*)")
_NOT_SCHEDULED: Final = "Failed to schedule pod, "
_TAINTED: Final = "did not tolerate"
_OVERHEAD: Final = re.compile(r"daemonset overhead=\{[^}]*\}, ")
_POOLS: Final = (
    re.compile(r'incompatible with nodepool "(?P<pool>[^"]+)", '),
    re.compile(r' for (?:nodepool|provisioner) "(?P<pool>[^"]+)"'),
    re.compile(r' ?\(?NodePool="?(?P<pool>[^")\s,]+)"?\)?'),
)
_REQUIRED_POOL: Final = re.compile(r"\bkarpenter\.sh/nodepool In \[([^\]\s]+)\]")
_OLD_GROUP: Final = re.compile(r"^[ \t]+Name:[ \t]+(\S+)[ \t]*$", re.MULTILINE)
_OLD_CONDITION: Final = re.compile(r"^[ \t]*(Health|ScaleUp):[ \t]+(\S+)", re.MULTILINE)
_OLD_NUMBER: Final = re.compile(r"\b(ready|cloudProviderTarget|minSize|maxSize)=([0-9]{1,9})\b")
_MAX_STATUS: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class GroupRefusal:
    """Why an autoscaler adds no node to some groups, in its own words."""

    reason: str
    groups: int = 1
    names: tuple[str, ...] = ()
    """The groups' names, if they are known."""


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """A request of CA: the size of a group before and after it, and the group's maximum."""

    group: str
    before: int
    after: int
    maximum: int


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A scale-up that failed: the group, and the cloud's message."""

    group: str
    why: str


@dataclass(frozen=True, slots=True)
class Nomination:
    """What Karpenter has chosen for a pod; a name is empty if it isn't known yet."""

    node_claim: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group in CA's status. A number is None if the status has none."""

    name: str
    health: str = ""
    ready: int | None = None
    target: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    scale_up: str = ""
    """The state of scale-ups: NoActivity, InProgress, Backoff or Unhealthy."""
    backoff: str = ""
    """Why the group is in back-off: code and message. CA before 1.30 doesn't report it."""


@dataclass(frozen=True, slots=True)
class AutoscalerStatus:
    """CA's status. `written` is the time as CA writes it, such as 2026-01-02 03:04:05 +0000 UTC."""

    written: str = ""
    state: str = ""
    """CA's own state: Running or Initializing."""
    health: str = ""
    groups: tuple[GroupStatus, ...] = ()


def triggered(message: str) -> tuple[ScaleUp, ...]:
    """Reads `pod triggered scale-up: [{a 0->3 (max: 10)}]`; () for another text."""
    return scale_ups(message) if message.startswith("pod triggered scale-up") else ()


def scale_ups(text: str) -> tuple[ScaleUp, ...]:
    """Returns all that a text of CA names as `{a 0->3 (max: 10)}`."""
    matches = _SCALE_UP.findall(text)
    return tuple(ScaleUp(group, int(a), int(b), int(most)) for group, a, b, most in matches)


def refused(message: str) -> tuple[GroupRefusal, ...] | None:
    """Reads `pod didn't trigger scale-up: 1 in backoff after failed scale-up, 2 ...`; None for
    another text. The result is empty if CA had no group to consider."""
    if not (match := _REFUSED.fullmatch(message.strip())):
        return None
    if not match[1]:
        return ()
    reasons = parse_reasons(match[1])
    if reasons is None:  # such as `max total nodes in cluster reached`
        return (GroupRefusal(match[1]),)
    return tuple(GroupRefusal(each.text, each.count) for each in reasons)


def failure(message: str) -> GroupFailure | None:
    """Reads CA's Events about its status ConfigMap that say that a scale-up failed."""
    for pattern in _FAILURES:
        if match := pattern.fullmatch(message.strip()):
            return GroupFailure(match["group"], match["why"].strip())
    return None


def nominated(message: str) -> Nomination | None:
    """Reads Karpenter's `Pod should schedule on: nodeclaim/a, node/b`; None for another text."""
    if not (match := _NOMINATED.fullmatch(message.strip())):
        return None
    named = dict(part.partition("/")[::2] for part in match[1].split(", "))
    return Nomination(named.get("nodeclaim", ""), named.get("node", ""))


def of_karpenter(message: str) -> bool:
    """Whether an Event with the reason FailedScheduling is Karpenter's, and not the scheduler's."""
    return message.startswith(_NOT_SCHEDULED)


def refused_by_pools(message: str) -> tuple[GroupRefusal, ...] | None:
    """Reads Karpenter's `Failed to schedule pod, ...`: why each NodePool can't take the pod.

    Versions before 1.7 name the NodePool in each part. Later ones do so only for limits, or among
    the requirements; without a name, the refusal is of an unknown NodePool. None for another text.
    """
    if not of_karpenter(message):
        return None
    counted: Counter[tuple[str, str]] = Counter()
    last = ""
    for part in message.removeprefix(_NOT_SCHEDULED).split("; "):
        pool, reason = _pool_and_reason(part.strip())
        tainted = reason.startswith(_TAINTED)
        # The taints of one NodePool are separated by "; ", too, like the NodePools.
        pool = pool or (last if tainted else "")
        last = pool if tainted else ""
        counted[reason, pool] += 1
    names: dict[str, list[str]] = {}
    groups: Counter[str] = Counter()
    for (reason, pool), count in counted.items():
        groups[reason] += 1 if pool else count
        names.setdefault(reason, []).extend([pool] if pool else [])
    return tuple(
        GroupRefusal(reason, number, tuple(names[reason]) if len(names[reason]) == number else ())
        for reason, number in groups.items()
    )


def _pool_and_reason(part: str) -> tuple[str, str]:
    part = _OVERHEAD.sub("", part)
    for pattern in _POOLS:
        if match := pattern.search(part):
            return match["pool"], (part[: match.start()] + part[match.end() :]).strip()
    required = _REQUIRED_POOL.findall(part)
    return (required[-1] if required else ""), part


def parse_status(text: str) -> AutoscalerStatus | None:
    """Reads the status in CA's ConfigMap: YAML (CA 1.30 and later) or plain text; None if it is
    neither.
    """
    if len(text) > _MAX_STATUS:
        return None
    if "Cluster-wide:" in text:
        return _old_status(text)
    try:
        documents = load_documents(text, where="status")
    except ManifestError:
        return None
    status = documents[0] if documents and isinstance(documents[0], Mapping) else {}
    if not status:
        return None
    return AutoscalerStatus(
        written=str(status.get("time") or ""),
        state=text_at(status, "autoscalerStatus"),
        health=text_at(status, "clusterWide", "health", "status"),
        groups=tuple(_groups(as_list(status.get("nodeGroups")))),
    )


def _groups(groups: Iterable[Any]) -> Iterable[GroupStatus]:
    for group in map(as_map, groups):
        health = as_map(group.get("health"))
        error = as_map(value_at(group, "scaleUp", "backoffInfo"))
        said = (text_at(error, "errorCode"), text_at(error, "errorMessage"))
        if name := text_at(group, "name"):
            yield GroupStatus(
                name,
                health=text_at(health, "status"),
                ready=whole(value_at(health, "nodeCounts", "registered", "ready")),
                target=whole(health.get("cloudProviderTarget")),
                minimum=whole(health.get("minSize")),
                maximum=whole(health.get("maxSize")),
                scale_up=text_at(group, "scaleUp", "status"),
                backoff=": ".join(dict.fromkeys(filter(None, said))),
            )


def _old_status(text: str) -> AutoscalerStatus:
    """Reads the text of CA before 1.30: a paragraph for the cluster, and one for each group."""
    first, *groups = _OLD_GROUP.split(text)
    written = re.match(r"Cluster-autoscaler status at (.*):", first.strip())
    return AutoscalerStatus(
        written=written[1] if written else "",
        state="Running",
        health=dict(_OLD_CONDITION.findall(first)).get("Health", ""),
        groups=tuple(map(_old_group, groups[::2], groups[1::2])),
    )


def _old_group(name: str, text: str) -> GroupStatus:
    states = dict(_OLD_CONDITION.findall(text))
    # The conditions Health and ScaleUp both have `ready` and `cloudProviderTarget`, with equal
    # values.
    numbers = {key: int(value) for key, value in reversed(_OLD_NUMBER.findall(text))}
    return GroupStatus(
        name,
        health=states.get("Health", ""),
        ready=numbers.get("ready"),
        target=numbers.get("cloudProviderTarget"),
        minimum=numbers.get("minSize"),
        maximum=numbers.get("maxSize"),
        scale_up=states.get("ScaleUp", ""),
    )
