"""Lines of recordings about one pod, and the chains of causes that they make."""

from collections.abc import Iterable
from typing import Any

from kwok_operator.causes.model import Chain
from kwok_operator.causes.recorded import Explainer
from kwok_operator.rehearsal.judge.recording import (
    EventLine,
    GroupLine,
    GroupState,
    NodeClaimLine,
    NodeClaimState,
    PodLine,
    RecordedLine,
    RecordingHeader,
)
from tests.fakes.rehearsed import pod

WEB = "Pod/default/web-1"
FULL = "0/1 nodes are available: 1 Insufficient cpu."
ANTI = "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
SOLD_OUT = "1 instance has no Node yet: 1 OutOfStock (OutOfStock: no instances of this type left)."


def chains(lines: Iterable[RecordedLine], **header: Any) -> list[Chain]:
    explainer, now = Explainer(RecordingHeader(**header)), 0.0
    found = list[Chain]()
    for line in lines:
        found += explainer.apply(line)
        now = line.t
    return [*found, *explainer.finish(now)]


def says(t: float, reason: str, message: str, about: str = WEB, *, by: str = "") -> EventLine:
    component = "karpenter" if reason in ("Nominated", "FailedScheduling") else "cluster-autoscaler"
    return EventLine(t, "Normal", reason, about, component, message, by=by)


def refused(t: float, reasons: str) -> EventLine:
    return says(t, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reasons}")


def scaled(t: float, group: str = "a") -> EventLine:
    message = f"pod triggered scale-up: [{{{group} 1->2 (max: 5)}}]"
    return says(t, "TriggeredScaleUp", message)


def waits(why: str = FULL, **state: Any) -> list[RecordedLine]:
    return [pod(1, "web-1", created=1), pod(1.5, "web-1", created=1, why=why, **state)]


def runs(t: float = 40.0, **state: Any) -> list[RecordedLine]:
    placed = {"node": "n", "bound": t - 1}
    return [
        pod(t - 1, "web-1", created=1, **placed),
        pod(t, "web-1", created=1, **{"phase": "Running", "running": t} | placed | state),
    ]


def evicted(reason: str) -> PodLine:
    (_, last) = runs(disrupted=reason, deleting=True)
    assert isinstance(last, PodLine)
    return PodLine(60.0, last.name, last.state)


def kept(t: float, by: str = "p") -> EventLine:
    text = f"Pdb prevents pod evictions (default/{by})"
    return says(t, "DisruptionBlocked", text, "Node//n")


def claim(t: float, **state: Any) -> NodeClaimLine:
    return NodeClaimLine(t, "c-1", NodeClaimState(created=3.0, pool="p", **state))


def group(t: float, **state: Any) -> GroupLine:
    return GroupLine(t, "a", GroupState(**state))


def failed(t: float, why: str) -> EventLine:
    text = f"Scale-up failed for group a: {why}"
    return says(t, "FailedToScaleUpGroup", text, "ConfigMap/k/s")
