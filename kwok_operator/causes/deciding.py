"""Makes the chain of causes of a pod from recorded facts: its steps, its phases, its cause.

    SeenPod, SeenCluster --chain_of--> Chain

The sentences come from model.py. A chain has no steps from before the pod was created.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from kwok_operator.causes import model
from kwok_operator.causes.model import (
    Cause,
    CauseKind,
    Chain,
    ChainStep,
    StepKind,
    in_order,
)
from kwok_operator.causes.phases import PHASES, split
from kwok_operator.causes.seen import SeenClaim, SeenCluster, SeenGroup, SeenNode, SeenPod
from kwok_operator.errors import one_line
from kwok_operator.formats.autoscalertexts import GroupRefusal
from kwok_operator.formats.podparts import amount_in_words
from kwok_operator.formats.schedulertexts import NODE_AFFINITY, parse_scheduler_text
from kwok_operator.formats.words import counted, few_names

_MOST_SAID: Final = 300
_MOST_HINDERED: Final = 3
_AT_ONCE: Final = 1.0
"""Moments at most this many seconds apart may be recorded in the wrong order."""
_SEEN_LATE: Final = 0.5
"""Seconds by which a decision may be recorded too late: cluster-autoscaler writes the Event about
it only after its call to the cloud has been answered.
"""
_NO_TIME: Final = 0.1
_OLD: Final = 30.0
"""Seconds after which a refusal is old: the autoscaler has probably decided again since."""
_BY_API: Final = "EvictionByEvictionAPI"
_HOW: Final = {
    _BY_API: "evicted through the eviction API",
    "DeletionByTaintManager": "evicted because of a NoExecute taint of its node",
    "PreemptionByScheduler": "preempted by the scheduler",
    "DeletionByPodGC": "removed since its node was gone",
    "TerminationByKubelet": "ended by the kubelet of its node",
}
"""The values of `reason` of the pod condition DisruptionTarget, in words."""
_LONGEST: Final = {
    "wait.decision": "until its node was requested",
    "wait.boot": "until its node was usable",
    "wait.scheduling": "until the scheduler bound it",
    "wait.start": "until its containers ran",
}
_UNDER_WAY: Final = ("Waiting", "Creating", "Starting", "Initializing")
_UNKNOWN_SINCE: Final = (
    "what cluster-autoscaler decided about the pod since {:.1f} s: within 5 minutes it writes one"
    " Event of a kind about a pod (--record-duplicated-events shows all)"
)
_UNKNOWN_EVICTOR: Final = (
    "who evicted the pod: only the audit log has that (kube-apiserver's --audit-log-path)"
)


def chain_of(pod: SeenPod, cluster: SeenCluster, now: float) -> Chain:
    """Makes the chain of causes as of `now`, in seconds since the run began."""
    end = min(moment for moment in (now, pod.ended, pod.gone) if moment is not None)
    until = end if pod.running is None else pod.running
    node, created = pod.node or SeenNode(""), pod.state.created
    steps = [
        ChainStep(created, StepKind.CREATED, "created"),
        *pod.texts.kept,
        *_to_its_node(pod, cluster, end),
        *_on_its_node(pod, cluster, now),
    ]
    seconds = split(
        created=pod.since,
        requested=node.requested,
        usable=node.usable,
        bound=pod.bound,
        running=pod.running,
    )
    phases = dict(zip(PHASES, seconds, strict=False))
    cause = _cause(pod, cluster, end, phases)
    of = (node.state.group or node.state.pool) if node.state else ""
    return Chain(
        pod=pod.name,
        workload=pod.state.workload,
        rehearsed=pod.state.rehearsed,
        steps=in_order(_in_turn(step, created, node.requested) for step in steps),
        cause=cause,
        phases={} if pod.before_the_run else phases,
        waited=0.0 if pod.before_the_run else max(until - pod.since, 0.0),
        node=pod.state.node,
        group=of or ", ".join(pod.groups),
        unknown=tuple(_unknown(pod, cause, end)),
    )


def _in_turn(step: ChainStep, created: float, requested: float | None) -> ChainStep:
    """Corrects a step's time that is out of order. A step before the pod's creation moves to the
    creation. A decision to add a node, recorded shortly after the request for that node, moves to
    the request."""
    if step.kind is StepKind.DECIDED and requested is not None:
        if created <= requested < step.at <= requested + _SEEN_LATE:
            return replace(step, at=requested)
    return replace(step, at=created) if step.at < created else step


def _unknown(pod: SeenPod, cause: Cause, end: float) -> Iterator[str]:
    if pod.state.disrupted == _BY_API and _how(pod) == _HOW[_BY_API]:
        yield _UNKNOWN_EVICTOR
    by_ca = pod.refusals is not None and pod.refused_by == "cluster-autoscaler"
    if by_ca and cause.kind in model.WAITS and end - pod.refused > _OLD:
        yield _UNKNOWN_SINCE.format(pod.refused)


def first_sentence(message: str) -> str:
    """Returns the first sentence of a condition's message: what is wrong, without the advice that
    follows.
    """
    return message.partition(". ")[0]


def longest_phase(phases: Mapping[str, float]) -> str:
    """Returns the name of the longest phase; the first one if several have the same length."""
    return max(phases, key=lambda name: phases[name], default="")


def _to_its_node(pod: SeenPod, cluster: SeenCluster, end: float) -> Iterator[ChainStep]:
    node, bound = pod.node, end if pod.bound is None else pod.bound
    claim = node.claim if node else cluster.claims.get(pod.nominated)
    came_later = node is not None and (node.usable is None or node.usable > pod.since)
    if claim is not None and (came_later or node is None):
        yield ChainStep(claim.state.created, StepKind.REQUESTED, f"NodeClaim {claim.name} made")
        if claim.state.launched is not None:
            yield ChainStep(claim.state.launched, StepKind.CREATING, "its machine was launched")
        yield from claim.failed.within(pod.since, bound)
    for name, chosen in pod.chosen.items():
        yield from cluster.group(name).failed.within(chosen - _AT_ONCE, bound)
    if node is None or node.state is None or not came_later:
        return
    if claim is None and node.requested is not None:
        yield from _increase(pod, cluster.group(node.state.group), node)
    start = node.start.instance_requested if node.start is not None else None
    if claim is None and start is not None:
        of = f" of {node.state.group}" if node.state.group else ""
        yield ChainStep(start, StepKind.REQUESTED, f"its node{of} was requested")
    if node.state.created is not None:
        yield ChainStep(node.state.created, StepKind.NODE, f"its node {node.name} exists")
    if node.usable is not None:
        usable = max(node.usable, node.state.created or 0.0)  # timestamps have whole seconds
        yield ChainStep(usable, StepKind.USABLE, f"its node {node.name} is usable")


def _increase(pod: SeenPod, group: SeenGroup, node: SeenNode) -> Iterator[ChainStep]:
    """Yields cluster-autoscaler's request for more nodes that brought the pod's node, if no Event
    reports that request: cluster-autoscaler emits no Event that repeats an earlier one about the
    pod.
    """
    name = node.state.group if node.state else ""
    requested, created = node.requested or 0.0, node.state.created if node.state else None
    until = max(requested, requested if created is None else created) + _AT_ONCE
    calls = (call for call in group.increases if requested - _AT_ONCE <= call[0] <= until)
    if name not in pod.chosen and (call := next(calls, None)):
        t, more = call
        yield ChainStep(t, StepKind.DECIDED, f"cluster-autoscaler asks {name} for {more} more")


def _on_its_node(pod: SeenPod, cluster: SeenCluster, now: float) -> Iterator[ChainStep]:
    until = now if pod.gone is None else pod.gone
    if pod.bound is not None:
        yield ChainStep(pod.bound, StepKind.BOUND, f"bound to {pod.state.node or 'a node'}")
        if pod.node is not None:
            yield from pod.node.held.within(pod.bound, until)
    if pod.running is not None:
        yield ChainStep(pod.running, StepKind.RUNNING, "running")
        if pod.gone is None and pod.ended is None:
            yield from _held_by_budgets(pod, cluster)
    if pod.disrupted is not None:
        yield ChainStep(pod.disrupted, StepKind.DISRUPTED, _how(pod))
    if pod.ended is not None:
        yield ChainStep(pod.ended, StepKind.ENDED, f"{pod.state.phase.lower()}{_reason(pod)}")
    if pod.gone is not None:
        yield ChainStep(pod.gone, StepKind.ENDED, "deleted")


def _held_by_budgets(pod: SeenPod, cluster: SeenCluster) -> Iterator[ChainStep]:
    namespace = pod.name.partition("/")[0]
    for name in pod.state.covered:
        since, budget = cluster.budgets.get(f"{namespace}/{name}", (0.0, None))
        if budget is not None and budget.allowed <= 0:
            text = f"PodDisruptionBudget {namespace}/{name} allows no eviction now"
            text += f" ({budget.healthy} of {budget.desired} that must be healthy are)"
            yield ChainStep(max(since, pod.running or 0.0), StepKind.HELD, text)


def _cause(pod: SeenPod, cluster: SeenCluster, end: float, phases: Mapping[str, float]) -> Cause:
    if pod.disrupted is not None:
        return model.disrupted(_how(pod))
    if (pod.state.phase, pod.state.reason) == ("Failed", "Evicted"):
        return model.disrupted("evicted by the kubelet of its node")
    if pod.before_the_run:
        return model.ended("ran before the run began")
    if pod.running is not None:
        held = pod.node.held.kept if pod.node else []
        if held and pod.gone is None and held[-1].at >= pod.running:
            return model.held(f"its node is kept: {held[-1].text}")
        cause = _ran(pod, phases)
        if pod.gone is not None or pod.ended is not None:
            return cause
        lost = [f"its node {pod.state.node} is gone"] if _lost_its_node(pod, cluster) else []
        budgets = [step.text for step in _held_by_budgets(pod, cluster)]
        return replace(cause, sentence="; ".join([cause.sentence, *lost, *budgets]))
    if pod.ended is not None:
        return model.ended(f"{pod.state.phase.lower()} before it ran{_reason(pod)}")
    if pod.gone is None and pod.state.deleting and pod.bound is None:
        return model.ended("is being deleted, and has not run")
    why = _starting(pod, cluster, end) if pod.bound is not None else _waiting(pod, cluster, end)
    if pod.gone is not None:
        after = f"{max(end - pod.since, 0.0):.1f} s"
        return model.ended(f"was deleted after {after}, while it waited: {why.sentence}")
    return why


def _reason(pod: SeenPod) -> str:
    return f" ({one_line(pod.state.reason)})" if pod.state.reason else ""


def _starting(pod: SeenPod, cluster: SeenCluster, end: float) -> Cause:
    since = max(end - (pod.bound or 0.0), 0.0)
    if _lost_its_node(pod, cluster):
        return model.without_its_node(pod.state.node, since=since)
    return model.starting(pod.state.node or "a node", since=since, reason=pod.state.reason)


def _lost_its_node(pod: SeenPod, cluster: SeenCluster) -> bool:
    return pod.node is not None and cluster.nodes.get(pod.node.name) is not pod.node


def _ran(pod: SeenPod, phases: Mapping[str, float]) -> Cause:
    longest = longest_phase(phases)
    some = phases[longest] >= _NO_TIME
    most = f"{phases[longest]:.1f} s of them {_LONGEST[longest]}" if some else ""
    return model.running(max((pod.running or 0.0) - pod.since, 0.0), most)


def _how(pod: SeenPod) -> str:
    how = _HOW.get(pod.state.disrupted, f"disrupted ({pod.state.disrupted})")
    by = pod.by
    claim = pod.node.claim if pod.node else None
    if not by and claim is not None and claim.state.reason:
        by = f"as karpenter ends its node ({claim.state.reason})"
    return one_line(f"{how} {by}".strip())


def _waiting(pod: SeenPod, cluster: SeenCluster, end: float) -> Cause:
    """Returns why a pod that has no node waits."""
    too_large = _too_large(pod.state.requests, cluster.largest)
    if "scheduling gates" in pod.message:
        return model.gated()
    if pod.refusals is not None:
        return _refused(pod, cluster, too_large)
    if pod.decided is not None:
        claim = cluster.claims.get(pod.nominated)
        if pod.nominated and claim is None:
            return model.lost_claim(pod.nominated, "and what became of it isn't known")
        return _from_claim(pod, claim, end) if claim else _from_groups(pod, cluster, end)
    if not pod.message:
        return model.unseen(since=end - pod.since)
    if pod.state.workload.startswith("DaemonSet/"):
        return model.of_a_daemon_set(_short(pod.message))
    if cluster.autoscaled:
        return _undecided(pod, cluster, end)
    if not cluster.autoscalers_read:
        return model.unknown_autoscaler(_short(pod.message))
    return model.no_autoscaler(_short(pod.message), too_large)


def _undecided(pod: SeenPod, cluster: SeenCluster, end: float) -> Cause:
    """Returns why a pod waits, if no Event says what an autoscaler decided for it."""
    old = _OLD if cluster.events_read else -1.0
    cause = model.undecided(_short(pod.message), since=end - pod.since, old=old)
    if cluster.hints is None:
        cluster.hints = _under_way(cluster), _hindered(cluster)
    coming, hindered = cluster.hints
    parts = [f"{coming}, and may be meant for it" if coming else ""]
    if cause.kind is CauseKind.UNKNOWN:
        parts += hindered
    return replace(cause, sentence="; ".join(filter(None, [cause.sentence, *parts])))


def _hindered(cluster: SeenCluster) -> list[str]:
    """Returns clauses that name the groups that can't get more nodes, and why: they fail, or are at
    their maximum."""
    states = [(name, group.state) for name, group in cluster.groups.items()]
    full = [name for name, state in states if state.maximum and state.target >= state.maximum]
    failing = [f"{name}: {_shortened(state.says)}" for name, state in states if state.says]
    at_most = [f"at its maximum: {few_names(full)}"] if full else []
    return [*failing[:_MOST_HINDERED], *at_most]


def _refused(pod: SeenPod, cluster: SeenCluster, too_large: str) -> Cause:
    """Returns why a pod waits: the reasons for which the autoscalers add no node for it."""
    refusals = pod.refusals or ()
    # The largest node isn't known yet: nodes that start may get devices late.
    coming = any(group.coming for group in cluster.groups.values())
    cause = model.refused(
        refusals,
        chosen=pod.chosen,
        no_node_ever=not coming and (bool(too_large) or _selects_no_node(pod.message)),
        too_large=too_large,
    )
    if not refusals:
        return model.no_group(too_large)
    # Groups that were not considered may have larger nodes, unless each has shown a node.
    shown = [group.shown for name, group in cluster.groups.items() if name]
    known = all(shown) and sum(each.groups for each in refusals) <= len(shown)
    lasting = all(model.lasts(each.reason) or known for each in refusals)
    lasting = lasting and not coming and not pod.chosen
    if too_large and lasting and any("Insufficient" in each.reason for each in refusals):
        large = model.never(too_large, says=cause.sentence.removesuffix(f"; {too_large}"))
        return replace(large, refusals=cause.refusals)
    return cause


def _selects_no_node(message: str) -> bool:
    """Whether the scheduler's message says that no node has the labels that the pod requires."""
    parsed = parse_scheduler_text(message)
    if parsed is None:
        return False
    mismatches = sum(each.count for each in parsed.reasons if each.text == NODE_AFFINITY)
    return mismatches >= parsed.nodes


def _from_claim(pod: SeenPod, claim: SeenClaim, end: float) -> Cause:
    """Returns why a pod still waits although Karpenter has made a NodeClaim for it."""
    state = claim.state
    if state.registered is None and claim.failed.kept:
        return model.no_stock(f"NodePool {state.pool}".strip(), claim.failed.kept[-1].text)
    if claim.gone:
        return model.lost_claim(claim.name, "which has gone; why isn't known")
    if state.registered is None:
        of = f"NodeClaim {claim.name}"
        return model.creating(state.pool, since=end - state.created, of=of)
    if state.initialized is None:
        return model.not_ready(state.node, since=end - state.registered)
    return model.unscheduled(
        state.node, since=end - state.initialized, scheduler=_short(pod.message)
    )


def _from_groups(pod: SeenPod, cluster: SeenCluster, end: float) -> Cause:
    """Returns why a pod still waits although cluster-autoscaler has scaled up groups for it."""
    decided = pod.decided or 0.0
    groups = {name: cluster.group(name) for name in pod.groups}
    for group in groups.values():
        for node in group.coming.values():
            start = node.start
            if start is None or max(start.requested, start.created) >= decided - _AT_ONCE:
                since = end if start is None else start.created
                return model.not_ready(node.name, since=end - since)
    for name, group in groups.items():
        if group.last is not None and (group.last.usable or 0.0) >= decided:
            state = group.last.state
            if state is not None and not (state.ready and state.schedulable):
                return model.no_longer_usable(group.last.name)
            since = end - (group.last.usable or 0.0)
            return model.unscheduled(group.last.name, since=since, scheduler=_short(pod.message))
        if says := _failing(name, group, since=decided):
            return model.no_stock(name, says)
    for name, group in groups.items():
        if group.lost is not None and (lost := group.lost)[1] >= decided:
            return model.lost(lost[0].name, name, since=end - lost[1])
    return model.creating(", ".join(groups), since=end - decided)


def _failing(name: str, group: SeenGroup, *, since: float = 0.0) -> str:
    """Returns why the group's instances can't be created, by the last failure since the time
    `since` or by the group's state; empty if they can."""
    last = group.failed.kept[-1] if group.failed.kept else None
    says = last.text.removeprefix(f"{name}: ") if last and last.at >= since else group.state.says
    return _shortened(says)


@lru_cache(maxsize=4_096)
def _shortened(says: str) -> str:
    return one_line(first_sentence(says), limit=_MOST_SAID)


def _short(message: str) -> str:
    """Returns the scheduler's message without its part on preemption."""
    parsed = parse_scheduler_text(message)
    if parsed is None or not parsed.reasons:
        return message
    return f"0/{parsed.nodes} nodes: {', '.join(map(str, parsed.reasons))}"


def named_groups(refusal: GroupRefusal, cluster: SeenCluster) -> list[GroupRefusal]:
    """Splits a refusal that only counts its groups into one for each group, with the group's name.
    These are the groups at their maximum, or in back-off, as the refusal says. If they aren't
    exactly as many, the refusal stays whole. Call it as soon as the refusal is read, as the groups
    change."""
    groups, why = cluster.groups.items(), dict[str, str]()
    if refusal.names:
        return [refusal]
    if "max node group size" in refusal.reason:
        why = {
            name: ""
            for name, group in groups
            if group.state.maximum is not None and group.state.target >= group.state.maximum
        }
    elif "in backoff" in refusal.reason:
        why = {
            name: says
            for name, group in groups
            if (says := _failing(name, group, since=group.came))
        }
    if len(why) != refusal.groups:
        return [refusal]
    return [
        GroupRefusal(f"{refusal.reason}{f' ({why[name]})' if why[name] else ''}", 1, (name,))
        for name in sorted(why)
    ]


def _under_way(cluster: SeenCluster) -> str:
    """Returns how many nodes of which groups are starting, in words; empty if none is."""
    counts = {
        name: sum(group.state.states.get(state, 0) for state in _UNDER_WAY) or len(group.coming)
        for name, group in cluster.groups.items()
    }
    return ", ".join(
        f"{counted(count, 'node')} of {name or 'no group'} under way"
        for name, count in counts.items()
        if count
    )


def _too_large(requests: Mapping[str, float], largest: Mapping[str, float]) -> str:
    """Returns in words which resource the pod requests more of than any node has; empty if none."""
    for name, amount in requests.items() if largest else ():
        if name not in largest:
            return f"it requests {name}, and no node has any"
        if amount > largest[name]:
            requested, most = amount_in_words(name, amount), amount_in_words(name, largest[name])
            return f"it requests {requested}, and the largest node has {most}"
    return ""
