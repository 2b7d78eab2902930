"""Makes the chains of causes of all pods of a recording, by reading its lines once.

    line --Explainer.apply--> facts (seen.py) --deciding--> the chains of pods that are gone
    Explainer.finish ------------------------------------> the chains of all others

Memory grows with the cluster, not with the length of the recording: only some texts of a pod are
kept, and nothing once its chain is made. Events are recorded after what they report, so the chain
of a deleted pod is made some seconds later.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from kwok_operator.causes.deciding import chain_of, first_sentence, named_groups
from kwok_operator.causes.model import Chain, StepKind, refusals_in_words
from kwok_operator.causes.seen import SeenClaim, SeenCluster, SeenPod
from kwok_operator.formats import autoscalertexts
from kwok_operator.formats.autoscalertexts import GroupRefusal
from kwok_operator.formats.schedulertexts import parse_scheduler_text
from kwok_operator.nodegroups.api.status import FAILURES
from kwok_operator.rehearsal.judge.recording import (
    BudgetLine,
    CallLine,
    EventLine,
    GroupLine,
    GroupState,
    NodeClaimLine,
    NodeLine,
    PodLine,
    PodState,
    RecordedLine,
    RecordingHeader,
)

_EVENTS_WITHIN: Final = 5.0
"""For how many seconds Events about a deleted pod may still be recorded."""
_MOST_GONE: Final = 10_000
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_INCREASE: Final = "NodeGroupIncreaseSize"
_HELD: Final = frozenset({"ScaleDownFailed", "DisruptionBlocked", "Unconsolidatable"})
_DISRUPTS: Final = frozenset({"Preempted", "ScaleDown", "Evicted"})
_OF_BUDGETS: Final = ("disruption budget", "Pdb ", "pdb ", "PodDisruptionBudget")

Wanted = Callable[[str, PodState], bool]


def every_pod(name: str, state: PodState) -> bool:
    return True


class Explainer:
    """Reads the lines of a recording, and yields the chains of causes of the pods for which
    `wanted`, called with the pod's name and first state, is true. `events_read` and
    `autoscalers_read` say which facts could be read (see SeenCluster)."""

    def __init__(
        self,
        header: RecordingHeader,
        *,
        wanted: Wanted = every_pod,
        events_read: bool = True,
        autoscalers_read: bool = True,
    ) -> None:
        self._wanted = wanted
        autoscaled = any("karpenter" in each.lower() for each in header.versions)
        self._cluster = SeenCluster(
            autoscaled, events_read=events_read, autoscalers_read=autoscalers_read
        )
        self._pods: dict[str, SeenPod] = {}
        self._gone: deque[SeenPod] = deque()
        self._lately: dict[str, SeenPod] = {}
        """Deleted pods that may still get Events, by name: the last one of each name."""
        self._claims_gone: deque[str] = deque()

    def apply(self, line: RecordedLine) -> Iterator[Chain]:
        """Applies a line. Yields the chains of pods that were deleted some seconds before."""
        while self._gone and self._is_due(line.t):
            yield self._forgotten(self._gone.popleft(), line.t)
        if not isinstance(line, PodLine | EventLine):
            self._cluster.changed()
        match line:
            case PodLine():
                self._pod(line)
            case NodeLine():
                self._node(line)
            case EventLine():
                self._event(line)
            case GroupLine():
                self._cluster.group(line.name).state = line.state or GroupState()
            case NodeClaimLine():
                self._claim(line)
            case BudgetLine():
                self._budget(line)
            case CallLine():
                self._cluster.autoscaled = True
                if line.method == _INCREASE and line.code == "OK":
                    self._cluster.group(line.group).increases.append((line.t, line.argument))

    def finish(self, now: float) -> Iterator[Chain]:
        """Yields the chains that `apply` has not yielded, as of `now`, the end of the recording."""
        yield from (chain_of(pod, self._cluster, now) for pod in self._gone)
        yield from (chain_of(pod, self._cluster, now) for pod in self._pods.values())

    def _is_due(self, now: float) -> bool:
        gone = self._gone[0].gone
        late = gone is not None and gone < now - _EVENTS_WITHIN
        return late or len(self._gone) > _MOST_GONE

    def _forgotten(self, pod: SeenPod, now: float) -> Chain:
        if self._lately.get(pod.name) is pod:
            del self._lately[pod.name]
        return chain_of(pod, self._cluster, now)

    def _pod(self, line: PodLine) -> None:
        state, t = line.state, line.t
        pod = self._pods.get(line.name)
        if state is None:
            if pod is not None:
                pod.gone = t
                self._gone.append(self._pods.pop(line.name))
                self._lately[line.name] = pod
            return
        if pod is None:
            if not self._wanted(line.name, state):
                return
            over = state.phase in _ENDED or state.running is not None
            pod = SeenPod(line.name, state, before_the_run=state.created < 0 and over)
            self._pods[line.name] = pod
        pod.state = state
        if state.node and pod.node is None:
            pod.node = self._cluster.node(state.node)
        if pod.bound is None and (state.bound is not None or state.node):
            pod.bound = t if state.bound is None else state.bound
        served = state.phase == "Succeeded" and pod.node is not None
        if pod.running is None and (state.running is not None or served):
            pod.running = t if state.running is None else state.running
        if pod.ended is None and state.phase in _ENDED:
            pod.ended = t
        if pod.disrupted is None and state.disrupted:
            pod.disrupted = t
        if state.why and pod.bound is None:
            _unschedulable(pod, state.why, t)

    def _node(self, line: NodeLine) -> None:
        cluster, state = self._cluster, line.state
        # These starts determine `usable` of a node.
        was_usable = line.name in cluster.nodes and cluster.nodes[line.name].usable is not None
        cluster.starts.apply(line)
        if state is None:
            node = cluster.nodes.pop(line.name, None)
            if node is not None and node.state is not None:
                group = cluster.group(node.state.group)
                group.coming.pop(line.name, None)
                if group.last is node:
                    group.last = None
                group.lost = node, line.t
            return
        node = cluster.node(line.name)
        new = node.state is None
        if node.state is None or node.state.allocatable != state.allocatable:
            for name, amount in state.allocatable.items():
                cluster.largest[name] = max(cluster.largest.get(name, 0.0), amount)
        node.state, node.start = state, cluster.starts.of(line.name)
        group = cluster.group(state.group)
        group.shown = True
        if new:
            group.came = line.t
        if node.usable is None:
            group.coming[line.name] = node
        elif not was_usable:
            group.coming.pop(line.name, None)
            group.last = node

    def _claim(self, line: NodeClaimLine) -> None:
        claims = self._cluster.claims
        self._cluster.autoscaled = True
        if line.state is None:
            if line.name in claims:
                # Pods that wait for the NodeClaim look it up by this name.
                claims[line.name].gone = True
                self._claims_gone.append(line.name)
            if len(self._claims_gone) > _MOST_GONE:
                claims.pop(self._claims_gone.popleft(), None)
            return
        claim = claims.get(line.name)
        if claim is None or claim.gone:
            claim = claims[line.name] = SeenClaim(line.name, line.state)
        claim.state = line.state
        if line.state.node:
            self._cluster.node(line.state.node).claim = claim
            self._cluster.starts.claim(line.state)

    def _budget(self, line: BudgetLine) -> None:
        name, budgets = line.name.partition("/")[2], self._cluster.budgets
        before = budgets.pop(name, None)
        if line.state is not None:
            same = before is not None and before[1].allowed == line.state.allowed
            budgets[name] = (before[0] if before and same else line.t, line.state)

    def _event(self, line: EventLine) -> None:
        cluster = self._cluster
        if line.component in autoscalertexts.AUTOSCALERS:
            cluster.autoscaled = True
        kind, _, name = line.about.partition("/")
        namespace_less = name.removeprefix("/").rpartition("/")[2]
        if kind != "Pod":
            cluster.changed()
        match kind:
            case "Pod":
                pod = self._about(name, line)
                if pod is not None:
                    _hear(pod, line, cluster)
            case "ConfigMap":
                if failed := autoscalertexts.failure(line.message):
                    text = f"{failed.group}: {failed.why}"
                    cluster.group(failed.group).failed.add(line.t, StepKind.FAILED, text)
            case "KwokNodeGroup" if line.reason in FAILURES:
                text = f"{namespace_less}: {first_sentence(line.message)}"
                cluster.group(namespace_less).failed.add(line.t, StepKind.FAILED, text)
            case "NodeClaim" if line.type == "Warning" and namespace_less in cluster.claims:
                text = f"{line.reason}: {line.message}"
                cluster.claims[namespace_less].failed.add(line.t, StepKind.FAILED, text)
            case "Node" if line.reason in _HELD and namespace_less in cluster.nodes:
                if any(words in line.message for words in _OF_BUDGETS):
                    text = f"{line.component or 'the autoscaler'}: {line.message}"
                    cluster.nodes[namespace_less].held.add(line.t, StepKind.HELD, text)

    def _about(self, name: str, line: EventLine) -> SeenPod | None:
        """Returns the pod that an Event is about. As a recorded Event has no UID, this may be a pod
        of the same name that was deleted some seconds before.
        """
        pod, before = self._pods.get(name), self._lately.get(name)
        if pod is None or before is None:
            return pod or before
        if line.reason in _DISRUPTS:
            late = before.disrupted is not None and pod.disrupted is None and not before.by
        else:
            # Autoscalers consider a pod only after the scheduler has reported that no node takes
            # it.
            late = not pod.message
        return before if late else pod


def _unschedulable(pod: SeenPod, message: str, t: float) -> None:
    """Keeps the scheduler's message. Adds a step if the message differs from the previous one in
    more than its numbers of nodes.
    """
    before, pod.message = pod.message, message
    if before != message and _reasons(before) != _reasons(message):
        pod.texts.add(t, StepKind.UNSCHEDULABLE, message)


@lru_cache(maxsize=4_096)
def _reasons(message: str) -> frozenset[str]:
    parsed = parse_scheduler_text(message)
    if parsed is None or not parsed.reasons:
        return frozenset({message})
    return frozenset(reason.text for reason in parsed.reasons)


def _decides(pod: SeenPod, who: str, t: float) -> None:
    pod.decided, pod.decided_by, pod.refusals = t, who, None
    pod.said.pop(who, None)


def _hear(pod: SeenPod, line: EventLine, cluster: SeenCluster) -> None:
    """Applies an Event about a pod, such as a decision of the scheduler or of an autoscaler."""
    message, t = line.message, line.t
    if line.reason == autoscalertexts.TRIGGERED:
        ups = autoscalertexts.triggered(message)
        _decides(pod, "cluster-autoscaler", t)
        pod.groups, pod.nominated = tuple(each.group for each in ups), ""
        pod.chosen = dict.fromkeys(pod.groups, t) | pod.chosen
        sizes = ", ".join(f"{u.group} {u.before} -> {u.after} (max {u.maximum})" for u in ups)
        pod.texts.add(t, StepKind.DECIDED, f"cluster-autoscaler requests nodes: {sizes or message}")
    elif line.reason == autoscalertexts.NOT_TRIGGERED:
        _refuses(pod, "cluster-autoscaler", autoscalertexts.refused(message), line, cluster)
    elif line.reason == autoscalertexts.NOMINATED:
        named = autoscalertexts.nominated(message)
        _decides(pod, "karpenter", t)
        pod.nominated = named.node_claim if named else ""
        pod.texts.add(t, StepKind.DECIDED, f"karpenter: {message}")
    elif line.reason == autoscalertexts.FAILED_SCHEDULING:
        if autoscalertexts.of_karpenter(message):
            _refuses(pod, "karpenter", autoscalertexts.refused_by_pools(message), line, cluster)
        elif pod.bound is None and not pod.message:
            _unschedulable(pod, message, t)
    elif line.reason == "Preempted":
        pod.by = f"in favour of {line.by or message}"
    elif line.component in autoscalertexts.AUTOSCALERS and line.reason in _DISRUPTS:
        pod.by = f"by {line.component} ({message})"


def _refuses(
    pod: SeenPod,
    who: str,
    refusals: tuple[GroupRefusal, ...] | None,
    line: EventLine,
    cluster: SeenCluster,
) -> None:
    """Notes that an autoscaler adds no node for the pod. If another autoscaler has decided to add
    one, this decision stays valid, and the refusal only becomes a step of the chain."""
    if pod.bound is not None or refusals is None:
        return
    if pod.decided is None or pod.decided_by == who:
        if refusals not in cluster.named:
            parts = (part for each in refusals for part in named_groups(each, cluster))
            cluster.named[refusals] = tuple(parts)
        pod.said[who] = cluster.named[refusals]
        pod.refusals = sum(pod.said.values(), ()) if len(pod.said) > 1 else pod.said[who]
        pod.refused, pod.refused_by = line.t, who
    says = refusals_in_words(refusals) or "it has no group to add a node to"
    pod.texts.add(line.t, StepKind.REFUSED, f"{who} adds no node: {says}")
