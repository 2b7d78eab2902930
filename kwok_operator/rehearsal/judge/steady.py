"""Decides whether a cluster is steady: everything applied is complete, so a rehearsal can begin.

    groups             --groups_under_way---> those that aren't Ready, with the operator's reason
    Deployments, ...   --without_their_pods-> those whose controller has yet to create pods
    pods without node  --not_scheduled------> those that the scheduler may yet bind

Objects are JSON of the API server. Pods of other schedulers are left out: these schedulers may be
processes of the scenario, which start once the cluster is steady.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kwok_operator.errors import one_line
from kwok_operator.formats.manifests import condition_is_true
from kwok_operator.formats.untyped import as_list, as_map, condition_of
from kwok_operator.formats.words import few_names

_SCHEDULER: Final = "default-scheduler"
_GATED: Final = "SchedulingGated"
_ENDED: Final = ("Succeeded", "Failed")
MOST_GROUPS: Final = 3
_MOST_TEXT: Final = 500
"""The most characters of one group's reason and message."""


class UnderWay(NamedTuple):
    """What a rehearsal still waits for before it begins."""

    groups: int
    """The number of all groups."""
    not_ready: list[str]
    without_pods: list[str]
    not_scheduled: list[str]
    placed: int = 0
    """How many pods have just been bound; controllers may react to that."""

    @property
    def is_steady(self) -> bool:
        return not (self.not_ready or self.without_pods or self.not_scheduled or self.placed)

    def __str__(self) -> str:
        if self.not_ready:
            ready, more = self.groups - len(self.not_ready), len(self.not_ready) - MOST_GROUPS
            named = ", ".join(self.not_ready[:MOST_GROUPS])
            rest = f" and {more} more" if more > 0 else ""
            return f"{ready} of {self.groups} groups are Ready, but not {named}{rest}"
        if self.without_pods:
            return f"not all pods have been created of {few_names(self.without_pods)}"
        if self.placed:
            return f"{self.placed:,} pods have just been placed"
        return f"the scheduler has not yet decided on {few_names(self.not_scheduled)}"


def groups_under_way(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the groups that aren't Ready, each with the reason and the message of its condition
    Ready.
    """
    return [text for text, _ in _not_ready(groups)]


def held_back(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the groups that aren't Ready because they are paused: waiting for them would never
    end.
    """
    return [text for text, reason in _not_ready(groups) if reason == "Paused"]


def _not_ready(groups: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, object]]:
    for body in groups:
        name = as_map(body.get("metadata")).get("name")
        ready = condition_of(body, "Ready")
        reason = ready.get("reason")
        if ready.get("observedGeneration") != _generation(body):
            yield f"{name} (the operator has not reported on it yet)", ""
        elif ready.get("status") != "True":
            why = one_line(f"{reason}: {ready.get('message')}", limit=_MOST_TEXT)
            yield f"{name} ({why})", reason


def wants_nodes(groups: Iterable[Mapping[str, Any]]) -> bool:
    return any(as_map(body.get("spec")).get("targetSize") for body in groups)


def without_their_pods(
    kind: str, objects: Iterable[Mapping[str, Any]], unbound: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Returns the objects whose controller has yet to create pods. `unbound` are the pods without a
    node.
    """
    owners = {
        owner.get("uid")
        for pod in unbound
        for owner in as_list(as_map(pod.get("metadata")).get("ownerReferences"))
        if isinstance(owner, dict)
    }
    return [
        f"{kind} {_name(body)}"
        for body in objects
        if not _has_pods(kind, body)
        # Until its first pod is ready, a StatefulSet creates no second one.
        and not (kind == "StatefulSet" and as_map(body.get("metadata")).get("uid") in owners)
    ]


def not_scheduled(
    unbound: Iterable[Mapping[str, Any]], *, retried: bool, nodes: int = 0
) -> list[str]:
    """Returns the pods that the scheduler may yet bind.

    Leaves out pods with scheduling gates, and pods that the scheduler has refused for good. With
    `retried`, each refusal is for good, as the scheduler has had the time to try again on new
    nodes. Without it, only a refusal that is about all `nodes` and names no taint is for good: new
    nodes may have taints that they lose later.
    """
    waiting = []
    for pod in unbound:
        metadata, spec, status = (as_map(pod.get(p)) for p in ("metadata", "spec", "status"))
        if metadata.get("deletionTimestamp") or status.get("phase") in _ENDED:
            continue
        if spec.get("schedulerName", _SCHEDULER) != _SCHEDULER:
            continue
        said = condition_of(pod, "PodScheduled")
        message = str(said.get("message", ""))
        tried = message.startswith(f"0/{nodes} nodes") and "taint" not in message
        gated = said.get("reason") == _GATED
        refused = said.get("status") == "False" and (retried or gated or (tried and nodes > 0))
        if not refused:
            waiting.append(_name(pod))
    return waiting


def _has_pods(kind: str, body: Mapping[str, Any]) -> bool:
    spec, status = as_map(body.get("spec")), as_map(body.get("status"))
    if kind == "Job":
        if (
            spec.get("suspend")
            or condition_is_true(body, "Complete")
            or condition_is_true(body, "Failed")
        ):
            return True
        wanted = _or_one(spec.get("parallelism"))
        wanted = min(wanted, spec.get("completions") or wanted)
        return bool(_sum(status, "active", "succeeded", "failed") >= wanted)
    if (status.get("observedGeneration") or 0) < _generation(body):
        return False
    if kind == "DaemonSet":
        return _sum(status, "currentNumberScheduled") >= _sum(status, "desiredNumberScheduled")
    refused = spec.get("paused") or condition_is_true(body, "ReplicaFailure")
    return bool(refused) or _sum(status, "replicas") >= _or_one(spec.get("replicas"))


def _or_one(number: Any) -> int:
    return 1 if number is None else number


def _sum(status: Mapping[str, Any], *keys: str) -> int:
    return sum(status.get(key) or 0 for key in keys)


def _generation(body: Mapping[str, Any]) -> int:
    return as_map(body.get("metadata")).get("generation") or 0


def _name(body: Mapping[str, Any]) -> str:
    metadata = as_map(body.get("metadata"))
    return f"{metadata.get('namespace')}/{metadata.get('name')}"
