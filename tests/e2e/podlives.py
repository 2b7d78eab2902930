"""Pods' lives as a watch tells them, beside what was told beforehand.

    with lives(api, selector) as seen: ...      every state that each pod went through, and when
    told(profile, manifest)                     the same from the profile alone

A state is what kubectl shows; times are milliseconds from when the pod was bound.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kwok_operator.formats.times import parse_time
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.explain import explain
from kwok_operator.podprofiles.selectors import Pod
from tests.e2e.api import Api
from tests.e2e.watching import Watch, each

PODS = "/api/v1/pods"

Lives = dict[str, list[tuple[int, str]]]


class SeenLives(dict[str, list[tuple[int, str]]]):
    """`last` has each pod as it was when its last state was told, or later."""

    def __init__(self) -> None:
        self.last: dict[str, dict[str, Any]] = {}


def state_of(pod: Mapping[str, Any]) -> str:
    """ "" before anything runs."""
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return str(status["phase"])
    containers = status.get("containerStatuses") or [{"state": {}}]
    first = containers[0]["state"]
    if "waiting" in first and first["waiting"]["reason"] != "PodInitializing":
        return str(first["waiting"]["reason"])
    if "terminated" in first:
        return "Error"
    if "running" in first:
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status["conditions"])
        return "Ready" if ready else "Running"
    inits = status.get("initContainerStatuses") or ()
    running = (i for i, each in enumerate(inits) if "running" in each["state"])
    return next((f"Init {i}" for i in running if not _sidecar(pod, i)), "")


def _sidecar(pod: Mapping[str, Any], position: int) -> bool:
    container: Mapping[str, Any] = pod["spec"]["initContainers"][position]
    return container.get("restartPolicy") == "Always"


def bound_at(pod: Mapping[str, Any]) -> int:
    scheduled = (c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")
    return parse_time(next(scheduled)["lastTransitionTime"])


@contextmanager
def lives(api: Api, selector: str) -> Iterator[SeenLives]:
    """By the name of each pod."""
    seen = SeenLives()

    def note(event: str, pod: dict[str, Any]) -> None:
        life = seen.setdefault(pod["metadata"]["name"], [])
        seen.last[pod["metadata"]["name"]] = pod
        state = state_of(pod)
        if state and (not life or life[-1][1] != state) and event != "DELETED":
            life.append((int(time.time() * 1_000) - bound_at(pod), state))

    with Watch(api, PODS, listed=each(note), seen=note, selector=selector):
        yield seen


def told(profile: Profile, manifest: Mapping[str, Any]) -> list[tuple[int, str]]:
    """A pod that is Ready at once is never seen running only."""
    steps = [
        (step.after, f"Init {step.detail.split()[2]}" if step.state == "Init" else step.state)
        for step in explain(profile, Pod.of(manifest)).steps
    ]
    following = [*steps[1:], (-1, "")]
    return [
        step
        for step, then in zip(steps, following, strict=True)
        if step[1] != "Running" or then != (step[0], "Ready")
    ]
