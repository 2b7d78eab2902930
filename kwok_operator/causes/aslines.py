"""Turns the objects of a live cluster that are about one pod into lines of a recording. So the same
code explains pods of recordings and of live clusters.

    objects  --AsLines-->  lines, in the order of their times  --recorded.Explainer-->  the chain

The lines look as if a recording had begun when the pod was created: times are in seconds since
then, and older objects exist from the beginning. An object shows only its present state and some
timestamps in whole seconds; what happened in between is known from Events only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from kwok_operator.causes.model import Chain
from kwok_operator.causes.recorded import Explainer
from kwok_operator.formats import autoscalertexts as texts
from kwok_operator.formats.autoscalertexts import AutoscalerStatus
from kwok_operator.formats.podparts import dicts
from kwok_operator.formats.times import parse_time
from kwok_operator.formats.untyped import as_map, condition_of, text_at, value_at
from kwok_operator.rehearsal.judge import observed
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    EventLine,
    GroupLine,
    GroupState,
    NodeClaimLine,
    NodeClaimState,
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordedLine,
    RecordingHeader,
)

Body = Mapping[str, Any]
_PROGRESS: Final = ("Launched", "Registered", "Initialized")
_STAMPS: Final = ("lastTimestamp", "eventTime", "firstTimestamp")


class AsLines:
    """Collects the pod and the objects that may explain its wait. `now` is in milliseconds since
    the epoch, by the cluster's clock. Raises ValueError if the pod has no creation time.
    """

    def __init__(self, pod: Body, *, now: int) -> None:
        created = parse_time(text_at(pod, "metadata", "creationTimestamp"))
        self._pod = pod
        self._clock = StampClock(created)
        self.now = max(now - created, 0) / 1_000
        """The present, in seconds since the pod was created."""
        self._lines: list[RecordedLine] = []
        self._groups: set[str] = set()
        self._claims: set[str] = set()
        self._selectors: dict[str, object] = {}
        self.autoscaled = False
        self.events_read = True
        """Whether the Events about the pod could be read."""
        self.autoscalers_read = True
        """Whether everything could be read that would show that an autoscaler runs."""
        self.claims_read = False
        """Whether all NodeClaims could be read."""

    def since(self, stamp: object) -> float | None:
        """Converts a timestamp to seconds since the pod was created; None if it is no timestamp."""
        return self._clock.seconds(stamp)

    def node(self, body: Body) -> None:
        state = observed.node(
            body, price=None, before=None, seen=max(self.now, 0.001), clock=self._clock
        )
        name = text_at(body, "metadata", "name")
        created = self._at(text_at(body, "metadata", "creationTimestamp"))
        self._lines.append(NodeLine(created, name, replace(state, ready=False)))
        if state.ready:
            ready = condition_of(body, "Ready").get("lastTransitionTime")
            self._lines.append(NodeLine(max(self._at(ready), created), name, state))

    def lost_node(self, name: str) -> None:
        """Adds the pod's node, which no longer exists; only its name is known."""
        state = NodeState(ready=True, created=-1.0)  # when it was created isn't known
        self._lines += [NodeLine(0.0, name, state), NodeLine(self.now, name, None)]

    def group(self, body: Body) -> None:
        name = text_at(body, "metadata", "name")
        self._groups.add(name)
        self._lines.append(GroupLine(0.0, name, observed.group(body)))

    def status(self, status: AutoscalerStatus) -> None:
        """Adds the groups of cluster-autoscaler's status. Leaves out groups whose KwokNodeGroup was
        added before, as a KwokNodeGroup says more.
        """
        self.autoscaled = True
        for each in status.groups:
            if each.name not in self._groups:
                state = GroupState(
                    target=each.target or 0,
                    ready=each.ready or 0,
                    maximum=each.maximum,
                    says=each.backoff,
                )
                self._lines.append(GroupLine(0.0, each.name, state))

    def pool(self, body: Body) -> None:
        """Notes that Karpenter runs or ran, as the existence of a NodePool shows."""
        self.autoscaled = True

    def claim(self, body: Body) -> None:
        name = text_at(body, "metadata", "name")
        state = observed.node_claim(
            body, price=None, before=None, seen=max(self.now, 0.001), clock=self._clock
        )
        created = self._at(text_at(body, "metadata", "creationTimestamp"))
        self._claims.add(name)
        self._lines.append(NodeClaimLine(created, name, state))
        for kind in _PROGRESS:
            condition = condition_of(body, kind)
            if condition.get("status") == "False":
                at = max(self._at(condition.get("lastTransitionTime")), created)
                reason, message = (text_at(condition, key) for key in ("reason", "message"))
                self._lines.append(
                    EventLine(at, "Warning", reason, f"NodeClaim//{name}", "karpenter", message)
                )

    def budget(self, body: Body) -> None:
        metadata = as_map(body.get("metadata"))
        name = f"{text_at(metadata, 'namespace')}/{text_at(metadata, 'name')}"
        self._selectors[name] = value_at(body, "spec", "selector")
        state = observed.budget(body)
        self._lines.append(BudgetLine(0.0, f"{BudgetLine.KEY}/{name}", state))

    def event(self, body: Body) -> None:
        """Adds an Event about the pod, a group, a NodeClaim or cluster-autoscaler's status."""
        stamps = (value_at(body, "series", "lastObservedTime"), *map(body.get, _STAMPS))
        at = next((t for stamp in stamps if (t := self.since(stamp)) is not None), None)
        if at is not None and at >= -1.0:  # timestamps may lack the fraction of a second
            self._lines.append(replace(observed.event(body), t=min(max(at, 0.0), self.now)))

    def chain(self) -> Chain:
        """Returns the pod's chain of causes as of now."""
        versions = {"karpenter": ""} if self.autoscaled else {}
        explainer = Explainer(
            RecordingHeader(versions=versions),
            events_read=self.events_read,
            autoscalers_read=self.autoscalers_read,
        )
        lines = [*self._lines, *self._lost_claims(), *self._of_pod()]
        lines.sort(key=lambda line: (line.t, _place(line)))
        for line in lines:
            for _ in explainer.apply(line):
                pass
        (chain,) = explainer.finish(self.now)
        return chain

    def _of_pod(self) -> Iterator[RecordedLine]:
        body, metadata = self._pod, as_map(self._pod.get("metadata"))
        name = f"{text_at(metadata, 'namespace')}/{text_at(metadata, 'name')}"
        first = observed.pod({"metadata": metadata, "spec": _unbound(body)}, **self._seen(0.0))
        state = observed.pod(body, **self._seen(max(self.now, 0.001), first))
        yield PodLine(0.0, name, first)
        scheduled = condition_of(body, "PodScheduled")
        if state.why:
            at = self._at(scheduled.get("lastTransitionTime"))
            yield PodLine(at, name, replace(first, why=state.why))
        if state.disrupted:
            at = self._at(condition_of(body, "DisruptionTarget").get("lastTransitionTime"))
            yield PodLine(at, name, replace(state, phase="Running"))
        yield PodLine(max(self._ended(), state.running or 0.0), name, state)

    def _seen(self, at: float, before: PodState | None = None) -> dict[str, Any]:
        clock, selectors = self._clock, self._selectors
        return {"before": before, "seen": at, "clock": clock, "selectors": selectors}

    def _ended(self) -> float:
        """Returns when the last container ended; `now` if any is still running."""
        if value_at(self._pod, "status", "phase") not in ("Succeeded", "Failed"):
            return self.now
        statuses = dicts(value_at(self._pod, "status", "containerStatuses"))
        stamps = [value_at(each, "state", "terminated", "finishedAt") for each in statuses]
        return max(map(self._at, stamps), default=self.now)

    def _lost_claims(self) -> Iterator[RecordedLine]:
        """Yields lines for the NodeClaims that Karpenter's Events name and that no longer exist:
        Karpenter has deleted them, or they have failed.
        """
        for line in self._lines if self.claims_read else ():
            named = texts.nominated(line.message) if isinstance(line, EventLine) else None
            if named and named.node_claim and named.node_claim not in self._claims:
                state = NodeClaimState(created=line.t)
                yield NodeClaimLine(line.t, named.node_claim, state)
                yield NodeClaimLine(self.now, named.node_claim, None)

    def _at(self, stamp: object) -> float:
        """Converts a timestamp to seconds since the pod was created, at most `now`. Returns `now`,
        the present in these seconds, if it is no timestamp."""
        return min(self._clock.at(stamp, seen=self.now), self.now)


def _place(line: RecordedLine) -> int:
    """The rank by which lines of the same moment are sorted: first other objects, then the pod,
    last the Events about the pod and the deletion of its node."""
    if isinstance(line, NodeLine) and line.state is None:
        return 2
    return 1 if isinstance(line, PodLine) else 2 if isinstance(line, EventLine) else 0


def _unbound(body: Body) -> dict[str, Any]:
    spec = as_map(body.get("spec"))
    return {key: value for key, value in spec.items() if key != "nodeName"}
