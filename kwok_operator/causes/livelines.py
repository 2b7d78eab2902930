"""Lines of text on the present state of a live cluster, as far as it may explain why a pod waits.

    Fit --> which nodes would take the pod, and what keeps it off the others
    autoscaler's status, NodePools, groups --> those that can't grow, or have a problem

Groups without a problem are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kwok_operator.causes.fit import Fit, KeptOff
from kwok_operator.causes.model import Cause, CauseKind, Chain
from kwok_operator.formats.autoscalertexts import AutoscalerStatus, GroupStatus
from kwok_operator.formats.podparts import amount_in_words, dicts
from kwok_operator.formats.untyped import as_texts, text_at, value_at
from kwok_operator.formats.words import counted
from kwok_operator.nodegroups.api.status import ConditionType

_MOST: Final = 20
"""The most lines that are shown on nodes, and the most on groups."""
_USUAL: Final = frozenset({"", "NoActivity"})
_PROBLEMS: Final = {
    ConditionType.READY: "False",
    ConditionType.STALLED: "True",
    ConditionType.PROVISIONED: "False",
    ConditionType.SCALING_LIMITED: "True",
    ConditionType.PAUSED: "True",
    ConditionType.OUTAGE: "True",
    ConditionType.AUTOSCALABLE: "False",
}
"""The conditions of KwokNodeGroups that explain missing nodes, each with its bad status."""
_OVERRULED: Final = (
    CauseKind.NO_AUTOSCALER,
    CauseKind.UNDECIDED,
    CauseKind.REFUSED,
    CauseKind.NEVER,
    CauseKind.UNKNOWN,
)

Body = Mapping[str, Any]


def fit_lines(result: Fit, requests: Mapping[str, float]) -> Iterator[str]:
    """Yields how many nodes would take the pod, and why the other nodes don't. `requests` are the
    requests of the pod.
    """
    if result.pod:
        yield f"no node takes the pod: {result.pod}"
        return
    if not result.nodes:
        yield "the cluster has no nodes"
        return
    taken = f"{result.takes:,} would take the pod now"
    if result.takes:
        taken += f", such as {result.example}"
    yield f"{counted(result.nodes, 'node')}: {taken}"
    for each in result.kept_off[:_MOST]:
        detail = _detail(each, requests)
        yield f"  {each.nodes:,} {each.reason}{f': {detail}' if detail else ''} ({each.example})"
    if more := result.kept_off[_MOST:]:
        yield f"  and {len(more):,} more reasons"


def _detail(each: KeptOff, requests: Mapping[str, float]) -> str:
    if not each.resource:
        return each.detail
    most = amount_in_words(each.resource, each.most)
    if each.resource == "pods":
        return f"none of them takes more than {most}"
    needs = amount_in_words(each.resource, requests.get(each.resource, 0.0))
    free = amount_in_words(each.resource, each.free)
    return f"it requests {needs}; of these nodes, none has more than {free} free, or {most} in all"


def autoscaler_lines(status: AutoscalerStatus, *, where: str) -> Iterator[str]:
    """Yields cluster-autoscaler's status; `where` is the NAMESPACE/NAME of its ConfigMap."""
    state = ", ".join(filter(None, (status.state, status.health)))
    yield f"cluster-autoscaler ({where}, {status.written or 'no time'}): {state or 'no state'}"
    listed = [each for each in status.groups if _matters(each)]
    for each in listed[:_MOST]:
        yield f"  {_group(each)}"
    if more := listed[_MOST:]:
        yield f"  and {counted(len(more), 'more group')}"
    if others := len(status.groups) - len(listed):
        yield f"  {counted(others, 'group')} with nothing to report"


def _matters(each: GroupStatus) -> bool:
    full = each.maximum is not None and (each.target or 0) >= each.maximum
    return full or each.scale_up not in _USUAL or each.health not in ("", "Healthy")


def _group(each: GroupStatus) -> str:
    of = f" of {each.target}" if each.target is not None else ""
    parts = [f"{each.ready or 0} ready{of}"]
    if each.maximum is not None:
        parts.append(f"from {each.minimum or 0} to {each.maximum} nodes")
    parts.append("" if each.health in ("", "Healthy") else each.health)
    parts.append("" if each.scale_up in _USUAL else f"scale-up {each.scale_up}")
    says = f" ({each.backoff})" if each.backoff else ""
    return f"{each.name}: {', '.join(filter(None, parts))}{says}"


def pool_lines(pools: Sequence[Body]) -> Iterator[str]:
    """Yields Karpenter's NodePools: their limits, and the conditions that are False."""
    for body in pools[:_MOST]:
        limits = as_texts(value_at(body, "spec", "limits"))
        used = as_texts(value_at(body, "status", "resources"))
        parts = [f"{used.get(key, '0')} of {most} {key}" for key, most in limits.items()]
        parts += [_in_words(each) for each in _conditions(body) if each.get("status") == "False"]
        name = text_at(body, "metadata", "name")
        yield f"NodePool {name}: {'; '.join(parts) or 'no limits, and no problem'}"
    if more := pools[_MOST:]:
        yield f"and {len(more):,} more NodePools"


def group_lines(groups: Sequence[Body]) -> Iterator[str]:
    """Yields the KwokNodeGroups that have a condition that explains why nodes are missing."""
    listed = [(body, problems) for body in groups if (problems := _problems(body))]
    for body, problems in listed[:_MOST]:
        yield f"KwokNodeGroup {text_at(body, 'metadata', 'name')}: {'; '.join(problems)}"
    if more := listed[_MOST:]:
        yield f"and {counted(len(more), 'more KwokNodeGroup')} with a problem"


def _problems(group: Body) -> list[str]:
    """Returns the conditions that explain why nodes are missing, in words."""
    return [
        _in_words(each)
        for each in _conditions(group)
        if _PROBLEMS.get(_type(each)) == each.get("status")
    ]


def with_fit(chain: Chain, result: Fit) -> Chain:
    """Returns the chain. If no node is being added and some node would take the pod by now, the
    cause becomes that the scheduler hasn't bound the pod yet.
    """
    if not result.takes or chain.cause.kind not in _OVERRULED:
        return chain
    more = f" and {result.takes - 1:,} more" if result.takes > 1 else ""
    sentence = f"{result.example}{more} would take the pod, and the scheduler hasn't bound it yet"
    remedy = (
        "wait for the scheduler's back-off (up to 10 s), which ends at once when a node changes; if"
        " nothing comes, something that isn't computed here keeps the pod off (docs/why.md)"
    )
    return replace(chain, cause=Cause(CauseKind.UNSCHEDULED, sentence, remedy))


def _type(condition: Body) -> Any:
    return condition.get("type")


def _conditions(body: Body) -> list[dict[str, Any]]:
    return dicts(value_at(body, "status", "conditions"))


def _in_words(condition: Body) -> str:
    kind, status, reason, message = (
        text_at(condition, key) for key in ("type", "status", "reason", "message")
    )
    says = ": ".join(filter(None, (reason, message)))
    return f"{kind}={status}{f' ({says})' if says else ''}"
