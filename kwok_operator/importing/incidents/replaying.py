"""Turns a decision of cluster-autoscaler (CA) into parts of a scenario: flags, steps, expectations.

    Decision, ReplayCopy  --replay_of-->  ScenarioParts, with which CA should decide the same again

The scenario only expects what the log proves: if CA chose between groups at random, any of them
will do, and sizes count only where the copy starts with the same sizes. The remarks say why a run
may still differ from the original.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final

from kwok_operator.formats.autoscalertexts import NOT_TRIGGERED, TRIGGERED, ScaleUp
from kwok_operator.formats.words import counted, few_names
from kwok_operator.importing.incidents.decision import (
    BACKOFF,
    FULL,
    Decision,
    PlannedScaleUp,
    WindowEnd,
)
from kwok_operator.importing.incidents.scenario import ScenarioParts

Expected = dict[str, Any]

_DEFAULTS: Final[Mapping[str, str]] = {
    "balance-similar-node-groups": "false",
    "blocking-system-pod-distruption-timeout": "1h0m0s",
    "cores-total": "0:320000",
    "enforce-node-group-min-size": "false",
    "expander": "",
    "expendable-pods-priority-cutoff": "-10",
    "force-ds": "false",
    "ignore-daemonsets-utilization": "false",
    "ignore-mirror-pods-utilization": "false",
    "max-allocatable-difference-ratio": "0.05",
    "max-drain-parallelism": "1",
    "max-empty-bulk-delete": "10",
    "max-free-difference-ratio": "0.05",
    "max-graceful-termination-sec": "600",
    "max-node-provision-time": "15m0s",
    "max-nodes-per-scaleup": "1000",
    "max-nodes-total": "0",
    "max-scale-down-parallelism": "10",
    "max-total-unready-percentage": "45",
    "memory-difference-ratio": "0.015",
    "memory-total": "0:6400000",
    "min-replica-count": "0",
    "new-pod-scale-up-delay": "0s",
    "ok-total-unready-count": "3",
    "parallel-scale-up": "false",
    "salvo-scale-up": "false",
    "scale-down-candidates-pool-min-count": "50",
    "scale-down-candidates-pool-ratio": "0.1",
    "scale-down-enabled": "true",
    "scale-down-gpu-utilization-threshold": "0.5",
    "scale-down-non-empty-candidates-count": "30",
    "scale-down-unready-enabled": "true",
    "scale-down-utilization-threshold": "0.5",
    "scale-up-from-zero": "true",
    "skip-nodes-with-custom-controller-pods": "true",
    "skip-nodes-with-local-storage": "true",
    "skip-nodes-with-system-pods": "true",
}
"""Flags that influence decisions, with their defaults in CA 1.36 (config/flags/flags.go). The
default of expander has changed, so it is always passed. Times are shorter, or a run would take
hours.
"""
_ELSEWHERE: Final = frozenset(
    """scheduler-config-file grpc-expander-url drain-priority-config startup-taint ignore-taint
    status-taint gpu-total balancing-ignore-label balancing-label""".split()
)
"""Flags that influence decisions, too, but whose values are files, servers or lists."""
_EXPANDER: Final = "(?:random|most-pods|least-waste|least-nodes|price|priority|grpc)"
_VALUE: Final = re.compile(rf"true|false|[-+0-9.:smh]+|{_EXPANDER}(?:,{_EXPANDER})*")
"""Values that these flags may have: they contain no names."""
_FAST: Final[Mapping[str, str]] = {
    "scan-interval": "2s",
    "scale-down-unneeded-time": "10s",
    "scale-down-unready-time": "30s",
    "scale-down-delay-after-add": "10s",
    "unremovable-node-recheck-timeout": "5s",
    "kube-client-qps": "100",
    "kube-client-burst": "200",
}
"""Shorter times, so that minutes of the original take seconds. Back-offs keep their times."""
_CLASSES: Final = {"OutOfResource": "OutOfResources"}
"""The class of an error in spec.cloud, by the class in CA's log; all others are Other."""
_CODE: Final = re.compile(r"(?=.{1,64}$)[A-Za-z]+(?:[._-][A-Za-z]+)*")
"""Error codes that spec.cloud accepts: only words, as others may contain account names."""
_WHY_KEPT: Final[Mapping[str, str]] = {
    "disruption budget": "not enough pod disruption budget",
    "min size reached": "node group min size reached",
    "utilization": "above the scale-down utilization threshold",
    "scale down disabled": "scale down disabled by an annotation",
    "no scale down": "scale down disabled by an annotation",
    "not replicated": "a pod is not replicated",
    "local storage": "a pod has local storage",
    "kube-system": "a pod of kube-system",
    "can reschedule": "its pods find no other place",
    "place": "its pods find no other place",
    "minimal limit": "minimal limit exceeded",
}
"""Parts of CA's reasons not to remove a node, with the reasons without names."""
_MOST_TEXT: Final = 300
_MOST_NAMES: Final = 100
"""The most names in one expectation."""
_MOST_EVENTS: Final = 200
"""The most Events that a run waits for: CA drops some if there are very many."""
_MOST_EXPECTED: Final = 20
"""The most expectations of one sort: nobody reads more."""


@dataclass(frozen=True, slots=True)
class ReplayCopy:
    """Maps names in the imported cluster to those in the copy that replays the decision."""

    groups: Mapping[str, Sequence[str]]
    """The copy's groups for each of CA's groups: several if it had several zones."""
    sizes: Mapping[str, int]
    """The number of nodes with which each group of the copy starts."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """A pattern for the name of each node, such as web-????-000002."""
    pod: Callable[[str], str] = lambda pod: pod
    """Maps NAMESPACE/NAME of a pod to a pattern for all pods of its workload, such as shop/web-*;
    empty if the workload is unknown.
    """
    text: Callable[[str], str] = lambda text: text
    """Makes a reason of CA's anonymous; empty if it may contain names."""


def replay_of(decision: Decision, copy: ReplayCopy) -> ScenarioParts:
    """Returns flags, steps before CA starts, and expectations; empty parts if the decision is
    unknown.
    """
    there = _of_copy(decision, copy)
    remarks = [f"May differ: {each}." for each in _differs(there, copy)]
    if there != decision:
        remarks.append("What was decided of pods that the copy lacks isn't expected.")
    decision = there
    expect = list(_expected(decision, copy))
    teaches = f"Whether {_said(decision, copy)}, as then."
    if not expect:
        teaches = "What cluster-autoscaler does. Nothing of its log can be expected of this copy."
    return ScenarioParts(
        teaches=teaches,
        remarks=remarks,
        autoscaler=_flags(decision),
        steps=list(_refusing(decision, copy)),
        expect=expect,
    )


def _of_copy(decision: Decision, copy: ReplayCopy) -> Decision:
    """Returns the decision without the parts that are only about pods that the copy lacks."""
    plans = (p for p in decision.scale_ups if not p.pods or any(map(copy.pod, p.pods)))
    refusals = {pod: why for pod, why in decision.refusals.items() if copy.pod(pod)}
    there = replace(decision, scale_ups=tuple(plans), refusals=refusals)
    return there if there == decision else replace(there, accounted=False)


def _flags(decision: Decision) -> dict[str, str]:
    given = {
        name: decision.flags[name]
        for name, default in _DEFAULTS.items()
        if decision.flags.get(name, default) != default and _VALUE.fullmatch(decision.flags[name])
    }
    return {**_FAST, **given}


def _refusing(decision: Decision, copy: ReplayCopy) -> Iterator[Expected]:
    """Yields steps that make the simulated cloud refuse what the real cloud refused."""
    failures = {each.group: each for each in decision.failures}
    for group in sorted(failures.keys() | decision.backed_off):
        failure = failures.get(group)
        creation = {
            "probability": "1",
            "class": _CLASSES.get(failure.error_class if failure else "OutOfResource", "Other"),
        }
        if failure and _CODE.fullmatch(code := copy.text(failure.code)):
            creation["code"] = code
        for name in copy.groups.get(group, ()):
            patch = {"spec": {"cloud": {"failures": {"creation": [creation]}}}}
            yield {"patch": {"what": f"kng/{name}", "patch": patch}}


def _expected(decision: Decision, copy: ReplayCopy) -> Iterator[Expected]:
    if not decision.known:
        return
    yield from _scale_ups(decision, copy)
    yield from _refusals(decision, copy)
    yield from _nodes(decision, copy)


def _scale_ups(decision: Decision, copy: ReplayCopy) -> Iterator[Expected]:
    refused = {each.group for each in decision.failures} | decision.backed_off
    possible: set[str] = set(refused)
    begun = _begun(decision)
    for plan in decision.scale_ups:
        alternatives = _alternatives(plan, copy)
        chosen = {up.group for up in plan.groups}
        possible |= chosen | alternatives
        about = sorted({pattern for pod in plan.pods if (pattern := copy.pod(pod))})[:_MOST_NAMES]
        # A pod for which the cloud has refused a node gets no second Event within five minutes.
        left = alternatives if chosen <= refused else alternatives | refused
        for up in plan.groups:
            unknown = up.group not in copy.groups or _is_larger(up.group, begun, copy)
            if unknown or plan.to_minimum:
                continue
            parts = _triggered(up, plan, left, copy, begun)
            if parts and (about or left == alternatives):
                names = [name for group in left for name in copy.groups.get(group, ())]
                chance = f" or, by chance, of {few_names(names)}" if names else ""
                event: dict[str, Any] = {"reason": TRIGGERED, "message": parts}
                if about:
                    event["about"] = [f"Pod/{each}" for each in about]
                yield {
                    "name": f"scale-up of {_in_copy(up, copy)}{chance}, as then",
                    "event": event,
                    "atLeast": 1,
                }
            groups_in_copy = copy.groups.get(up.group, ())
            same = len(groups_in_copy) == 1 and copy.sizes.get(groups_in_copy[0]) == begun[up.group]
            if same and not alternatives and (plan.merged or left):
                bound = "atMost" if plan.merged else "atLeast"
                yield {"figure": "nodes.max", "of": {"group": groups_in_copy[0]}, bound: up.after}
    if decision.ended is WindowEnd.SETTLED:
        yield from _final_sizes(decision, copy, refused)
    if not decision.accounted:
        return
    if not possible:
        yield {"name": "no scale-up, as then", "event": {"reason": TRIGGERED}, "equals": 0}
        return
    never = sorted(
        name for group, names in copy.groups.items() if group not in possible for name in names
    )
    for some in _in_parts(never):
        yield {
            "name": f"no scale-up of {few_names(some)}, as then",
            "event": {"reason": TRIGGERED, "message": [f"{{{name} " for name in some]},
            "equals": 0,
        }


def _alternatives(plan: PlannedScaleUp, copy: ReplayCopy) -> frozenset[str]:
    """Returns the groups that CA could have chosen instead of its choice."""
    if plan.alternatives is not None:
        return plan.alternatives
    return frozenset(copy.groups) - plan.excluded - {up.group for up in plan.groups}


def _triggered(
    up: ScaleUp,
    plan: PlannedScaleUp,
    alternatives: frozenset[str],
    copy: ReplayCopy,
    begun: Mapping[str, int],
) -> list[str]:
    """Returns parts of messages by which the scenario recognises a scale-up: each of CA's Events
    about the scale-up should contain one of them.
    """
    added = {each.after - each.before for each in plan.groups}
    names = copy.groups.get(up.group, ())
    own, size = up.after - up.before, copy.sizes.get(names[0], 0) if names else 0
    if up.before < 0:
        parts = [f"{{{names[0]} {size}->{up.after} "]
    elif len(names) == 1 and size == begun[up.group] and not plan.merged:
        # If CA balanced groups, any of them may get one node more than the others.
        near = sorted({own} | {each for each in added if abs(each - own) <= 1})
        parts = [f"{{{names[0]} {up.before}->{up.before + each} " for each in near]
    else:
        parts = [f"{{{name} {copy.sizes.get(name, 0)}->" for name in names]
    parts += [
        f"{{{name} {copy.sizes.get(name, 0)}->"
        for group in sorted(alternatives)
        for name in copy.groups.get(group, ())
    ]
    return parts[:_MOST_NAMES]


def _begun(decision: Decision) -> dict[str, int]:
    """Returns the sizes that the groups had before they were scaled up; -1 if unknown."""
    begun: dict[str, int] = {}
    for up in (up for plan in decision.scale_ups for up in plan.groups):
        begun.setdefault(up.group, up.before)
    return begun


def _is_larger(group: str, begun: Mapping[str, int], copy: ReplayCopy) -> bool:
    """Whether the copy starts with more nodes of a group than the group had before its scale-up.
    Then the group had changed between the snapshot and the scale-up.
    """
    size = sum(copy.sizes.get(name, 0) for name in copy.groups.get(group, ()))
    return 0 <= begun[group] < size


def _final_sizes(decision: Decision, copy: ReplayCopy, refused: set[str]) -> Iterator[Expected]:
    """Yields expectations on the largest sizes that groups reached. There are none if CA had a
    choice between groups.
    """
    plans = decision.scale_ups
    if any(_alternatives(plan, copy) or len(plan.groups) > 1 or plan.merged for plan in plans):
        return
    ups = [up for plan in plans for up in plan.groups if up.group not in refused]
    begun = _begun(decision)
    for group in dict.fromkeys(up.group for up in ups):
        names = copy.groups.get(group, ())
        most = max(up.after for up in ups if up.group == group)
        if len(names) == 1 and begun[group] in (-1, copy.sizes.get(names[0])):
            yield {"figure": "nodes.max", "of": {"group": names[0]}, "equals": most}


def _refusals(decision: Decision, copy: ReplayCopy) -> Iterator[Expected]:
    """Yields expectations on why pods get no node, one for all pods of a workload and reason."""
    # CA counts groups, so the copy must have as many. Without a log, CA's Events name none.
    counted = max(
        (sum(each.groups for each in why) for why in decision.refusals.values()), default=0
    )
    lacking = max(len(decision.named - copy.groups.keys()), counted - len(copy.groups), 0)
    alike = not lacking and all(len(names) == 1 for names in copy.groups.values())
    full = {group for group, why in decision.skipped.items() if why == FULL}
    refused = {each.group for each in decision.failures} | decision.backed_off
    backing = {
        pod
        for plan in decision.scale_ups
        if {up.group for up in plan.groups} <= refused & copy.groups.keys()
        for pod in plan.pods
    }
    pods: dict[tuple[str, tuple[tuple[str, ...], ...]], int] = Counter()
    for pod, reasons in decision.refusals.items():
        about = copy.pod(pod)
        reasons_of_pod: list[tuple[str, ...]] = []
        for refusal in reasons:
            text = "".join(takewhile(str.isprintable, copy.text(refusal.reason)))[
                :_MOST_TEXT
            ].rstrip()
            if not text or (
                text == BACKOFF and not (pod in backing and refused & copy.groups.keys())
            ):
                continue
            # When CA backs off from a group, its reason changes to that during a run.
            unsure = lacking + (0 if text == FULL else len(refused))
            if text == BACKOFF or (text == FULL and full & copy.groups.keys() and not alike):
                reasons_of_pod.append((text,))
            elif refusal.groups > unsure:
                counts = range(refusal.groups - unsure, refusal.groups + unsure + 1)
                reasons_of_pod.append(
                    tuple(f"{count} {text}" for count in counts) if alike else (text,)
                )
        if about and reasons_of_pod:
            pods[about, tuple(reasons_of_pod)] += 1
    for (about, reasons_of), count in sorted(pods.items())[:_MOST_EXPECTED]:
        for texts in reasons_of:
            numbered = texts[0][:1].isdigit()
            forms = [f"{mark} {text}" for text in texts for mark in ":,"] if numbered else texts
            yield {
                "name": f"no node for {about}, as then: {texts[len(texts) // 2]}",
                "event": {"reason": NOT_TRIGGERED, "about": f"Pod/{about}", "message": [*forms]},
                "atLeast": min(count, _MOST_EVENTS),
            }


def _nodes(decision: Decision, copy: ReplayCopy) -> Iterator[Expected]:
    """Yields expectations on nodes that were removed, and on nodes that were not."""
    marked = {"reason": "ScaleDown", "message": "marked the node"}
    # Chance decides which of several nodes is drained, or removed first.
    drawn = {node for node, pods in decision.removed.items() if pods} | decision.removable
    unsure = {_group_pattern(copy.nodes[node]) for node in drawn if node in copy.nodes}
    removed = Counter[str]()
    for name in (copy.nodes[node] for node in decision.removed if node in copy.nodes):
        group = _group_pattern(name)
        removed[group if group in unsure else name] += 1
    for name, count in sorted(removed.items())[:_MOST_NAMES]:
        yield {
            "name": f"scale-down of {name}, as then",
            "event": {**marked, "about": f"Node/{name}"},
            "atLeast": count,
        }
    if decision.scale_ups or decision.refusals:
        return  # it is about pods; new nodes may make others unneeded
    for why, nodes in _kept(decision).items():
        there = {copy.nodes[node] for node in nodes if node in copy.nodes}
        for names in _in_parts(_of_groups(there, copy.nodes.values())):
            yield {
                "name": f"no scale-down of {few_names(names)}, as then: {why}",
                "event": {**marked, "about": [f"Node/{name}" for name in names]},
                "equals": 0,
            }


def _kept(decision: Decision) -> dict[str, list[str]]:
    """Returns the nodes that CA kept, by reason in words without names; rare reasons first."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for node, said in decision.kept.items():
        why = next((words for part, words in _WHY_KEPT.items() if part in said), "other reasons")
        by_reason[why].append(node)
    return dict(sorted(by_reason.items(), key=lambda each: len(each[1])))


def _of_groups(names: Collection[str], every: Iterable[str]) -> list[str]:
    """Returns patterns for the nodes in `names`: one pattern for each group whose nodes in `every`
    are all in `names`, and one for each other node.
    """
    groups: dict[str, set[str]] = defaultdict(set)
    for name in every:
        groups[_group_pattern(name)].add(name)
    return sorted(
        pattern
        for group, members in groups.items()
        for pattern in ([group] if members <= set(names) else members & set(names))
    )


def _group_pattern(node: str) -> str:
    """Returns the pattern for all nodes of a group, made of the pattern for one of them."""
    return f"{node.rpartition('-')[0]}-*"


def _in_parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, min(len(names), _MOST_NAMES * _MOST_EXPECTED), _MOST_NAMES):
        yield names[start : start + _MOST_NAMES]


def _in_copy(up: ScaleUp, copy: ReplayCopy) -> str:
    names = few_names(copy.groups.get(up.group, ())) or copy.text(up.group) or "a group"
    return f"{names} from {up.before} to {up.after}" if up.before >= 0 else f"{names} to {up.after}"


def _said(decision: Decision, copy: ReplayCopy) -> str:
    if not decision.known:
        return "what cluster-autoscaler decided isn't known"
    ups = [
        _in_copy(up, copy)
        for plan in decision.scale_ups
        for up in plan.groups
        if up.group in copy.groups
    ]
    parts = [f"scaled up {', '.join(ups)}"] if ups else []
    refused = Counter(copy.text(r.reason) for rs in decision.refusals.values() for r in rs)
    if refused:
        why = ", ".join(text for text, _ in refused.most_common(3) if text)
        parts.append(f"added no node for {counted(len(decision.refusals), 'pod')} ({why})")
    if decision.removed:
        parts.append(f"removed {counted(len(decision.removed), 'node')}")
    elif decision.kept and not parts:
        kept = (f"{counted(len(nodes), 'node')} ({why})" for why, nodes in _kept(decision).items())
        parts.append(f"kept {', '.join(kept)}")
    if decision.failures:
        parts.append("was refused nodes by the cloud")
    version = f" {decision.version}" if decision.version else ""
    return f"cluster-autoscaler{version} {'; '.join(parts) or 'did nothing'}"


def _differs(decision: Decision, copy: ReplayCopy) -> Iterator[str]:
    yield from decision.problems
    version = decision.version or "of the same version"
    yield f"play it with cluster-autoscaler {version}, as others may decide otherwise"
    given = sorted(name for name in _ELSEWHERE if decision.flags.get(name, "") not in ("", "[]"))
    if given:
        yield f"these flags are not given to it: {', '.join(given)}"
    if decision.flags.get("expander", "").startswith(("priority", "grpc")):
        yield "its expander needs a ConfigMap or a server, which the copy hasn't"
    if any(_alternatives(plan, copy) for plan in decision.scale_ups):
        yield "its expander may have chosen by chance, so any of the groups that were left will do"
    if decision.failures or decision.backed_off:
        yield "the cloud refuses what it refused then, but from the beginning"
    begun = _begun(decision)
    if larger := [group for group in begun if _is_larger(group, begun, copy)]:
        names = few_names([name for group in larger for name in copy.groups[group]])
        yield f"the copy begins with more nodes of {names} than CA scaled up: that isn't expected"
    if unknown := [copy.text(name) for name in decision.named - copy.groups.keys()]:
        named = few_names(unknown) if all(unknown) else f"{len(unknown):,} groups"
        yield f"the copy lacks {named}, or their bounds: nothing shows nodes or bounds of them"
    if decision.errors:  # their texts may contain account names
        yield f"it met {counted(len(decision.errors), 'error')}, which the copy doesn't repeat"
    yield "times are shorter than then: a node is unneeded after 10 s, a loop begins every 2 s"
