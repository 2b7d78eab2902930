"""The chain of a pod of a live cluster, from its objects as they are now."""

import re
from dataclasses import replace
from typing import Any

import pytest

from kwok_operator.causes.aslines import AsLines
from kwok_operator.causes.fit import Fit, KeptOff
from kwok_operator.causes.livelines import (
    autoscaler_lines,
    fit_lines,
    group_lines,
    pool_lines,
    with_fit,
)
from kwok_operator.causes.model import Cause, CauseKind, StepKind
from kwok_operator.constants import NODE_POOL_LABEL, REQUESTED_AT_ANNOTATION
from kwok_operator.formats.autoscalertexts import AutoscalerStatus, GroupStatus, parse_status
from kwok_operator.formats.times import format_time, parse_time

Json = dict[str, Any]
BORN = parse_time("2026-01-01T00:00:00Z")
SAYS = "0/1 nodes are available: 1 Insufficient cpu."
STATUS = """\
autoscalerStatus: Running
nodeGroups:
- name: a
  health: {status: Healthy, cloudProviderTarget: 1, minSize: 0, maxSize: 9}
  scaleUp:
    status: Backoff
    backoffInfo: {errorCode: stockout, errorMessage: no more of these}
- name: b
  health: {status: Healthy, cloudProviderTarget: 1, minSize: 0, maxSize: 9}
"""


def at(seconds: float) -> str:
    return format_time(BORN + round(seconds * 1_000))


def condition(kind: str, status: str, seconds: float, **more: str) -> Json:
    return {"type": kind, "status": status, "lastTransitionTime": at(seconds), **more}


def pod(*conditions: Json, node: str = "", **status: Any) -> Json:
    return {
        "metadata": {"name": "p", "namespace": "shop", "uid": "1", "creationTimestamp": at(0)},
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending", "conditions": [*conditions], **status},
    }


WAITS = pod(condition("PodScheduled", "False", 1, reason="Unschedulable", message=SAYS))


def event(seconds: float, reason: str, message: str, about: str = "Pod", name: str = "p") -> Json:
    namespace = "shop" if about == "Pod" else ""
    return {
        "involvedObject": {"kind": about, "namespace": namespace, "name": name},
        "lastTimestamp": at(seconds),
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "karpenter" if about == "NodeClaim" else "cluster-autoscaler"},
    }


def seen(body: Json, now: float) -> AsLines:
    return AsLines(body, now=BORN + round(now * 1_000))


REFUSED = event(
    40, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up"
)
TRIGGERED = event(0, "TriggeredScaleUp", "pod triggered scale-up: [{a 0->1 (max: 9)}]")


def test_a_refusal_names_the_group_and_what_the_cloud_said() -> None:
    lines = seen(WAITS, 60)
    lines.event(event(-30, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Too many pods"))
    lines.event(REFUSED)
    status = parse_status(STATUS)
    assert status is not None
    lines.status(status)
    chain = lines.chain()
    assert chain.cause.kind is CauseKind.REFUSED
    (refusal,) = chain.cause.refusals
    assert refusal.names == ("a",) and "no more of these" in refusal.reason
    assert [step.at for step in chain.steps if step.kind is StepKind.REFUSED] == [40]
    assert list(autoscaler_lines(status, where="x/y"))[1:] == [
        "  a: 0 ready of 1, from 0 to 9 nodes, scale-up Backoff (stockout: no more of these)",
        "  1 group with nothing to report",
    ]


@pytest.mark.parametrize("repeated", [False, True], ids=["once", "repeated"])
@pytest.mark.parametrize("later", [False, True], ids=["refused-last", "triggered-last"])
def test_what_was_decided_last_counts(later: bool, repeated: bool) -> None:
    lines = seen(WAITS, 60)
    trigger = {**TRIGGERED, "lastTimestamp": at(50 if later else 5)}
    if repeated:
        last = {"lastObservedTime": trigger["lastTimestamp"]}
        trigger |= {"lastTimestamp": None, "eventTime": at(3), "series": last}
    for each in (trigger, REFUSED):
        lines.event(each)
    assert lines.chain().cause.kind is (CauseKind.CREATING if later else CauseKind.REFUSED)


@pytest.mark.parametrize(
    ("events_read", "now", "kind"),
    [
        (True, 10, CauseKind.UNDECIDED),
        (True, 7_200, CauseKind.UNKNOWN),
        (False, 10, CauseKind.UNKNOWN),
    ],
    ids=["soon", "Events are gone", "Events can't be read"],
)
def test_a_decision_that_is_not_shown_is_unknown(
    events_read: bool, now: float, kind: CauseKind
) -> None:
    lines = seen(WAITS, now)
    status = parse_status(STATUS)
    assert status is not None
    lines.status(status)
    lines.events_read = events_read
    cause = lines.chain().cause
    assert cause.kind is kind
    assert (kind is CauseKind.UNKNOWN) is ("no more of these" in cause.sentence)


def test_a_group_of_ours_says_more_than_the_autoscalers_status_of_it() -> None:
    lines = seen(WAITS, 7_200)
    status = parse_status(STATUS)
    assert status is not None
    lines.group({"metadata": {"name": "a"}})
    lines.status(status)
    assert "no more of these" not in lines.chain().cause.sentence


@pytest.mark.parametrize(
    ("when", "steps"), [(-2, []), (-1, [0]), (90, [60])], ids=["older", "rounded", "ahead"]
)
def test_an_event_is_of_the_pods_time(when: float, steps: list[float]) -> None:
    lines = seen(WAITS, 60)
    lines.event({**REFUSED, "lastTimestamp": at(when)})
    refusals = [step.at for step in lines.chain().steps if step.kind is StepKind.REFUSED]
    assert refusals == steps


@pytest.mark.parametrize(
    ("conditions", "kind"),
    [
        ([], CauseKind.CREATING),
        ([condition("Launched", "Unknown", 6)], CauseKind.CREATING),
        ([condition("Launched", "False", 6, reason="No", message="stock")], CauseKind.NO_STOCK),
        ([condition("Registered", "False", 6, reason="No", message="node")], CauseKind.NO_STOCK),
    ],
)
def test_a_nodeclaim_says_how_far_it_is(conditions: list[Json], kind: CauseKind) -> None:
    lines = seen(WAITS, 60)
    lines.event(event(5, "Nominated", "Pod should schedule on: nodeclaim/c-1"))
    metadata = {"name": "c-1", "creationTimestamp": at(4)}
    lines.claim({"metadata": metadata, "status": {"conditions": conditions}})
    lines.claims_read = True
    assert lines.chain().cause.kind is kind


def ended(seconds: float) -> Json:
    state = {"terminated": {"startedAt": at(2), "finishedAt": at(seconds)}}
    return {"state": state}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_has_ended_with_its_last_container(phase: str) -> None:
    scheduled = condition("PodScheduled", "True", 1)
    body = pod(scheduled, node="n", phase=phase, containerStatuses=[ended(40), ended(20)])
    (step,) = (s for s in seen(body, 100).chain().steps if s.kind is StepKind.ENDED)
    assert step.at == pytest.approx(40, abs=1)


def test_a_pod_that_runs_is_covered_and_evicted_when_its_objects_say_so() -> None:
    running = {"state": {"running": {"startedAt": at(2)}}}
    conditions = [
        condition("PodScheduled", "True", 1),
        condition("DisruptionTarget", "True", 30, reason="EvictionByEvictionAPI"),
    ]
    for place, kind in enumerate((StepKind.HELD, StepKind.DISRUPTED)):
        body = pod(*conditions[: 1 + place], node="n", phase="Running", containerStatuses=[running])
        body["metadata"]["labels"] = {"app": "web"}
        lines = seen(body, 100)
        selector = {"matchLabels": {"app": "web"}}
        name = {"namespace": "shop", "name": "b"}
        lines.budget({"metadata": name, "spec": {"selector": selector}, "status": {}})
        (step,) = (s for s in lines.chain().steps if s.kind is kind)
        assert step.at == pytest.approx((2, 30)[place], abs=1)


def test_a_lost_nodeclaim_is_told_with_its_failure() -> None:
    lines = seen(WAITS, 60)
    lines.event(event(5, "Nominated", "Pod should schedule on: nodeclaim/c-1"))
    lines.event(event(9, "InsufficientCapacityError", "no t3 in zone-a", "NodeClaim", "c-1"))
    lines.claims_read = True
    cause = lines.chain().cause
    assert cause.kind is CauseKind.NO_STOCK and "no t3 in zone-a" in cause.sentence


@pytest.mark.parametrize(
    ("read", "text"), [(True, "NodeClaim c-1 .* has gone"), (False, "NodeClaim c-1 .* isn't known")]
)
def test_nothing_is_said_of_a_nodeclaim_that_is_not_known(read: bool, text: str) -> None:
    lines = seen(WAITS, 60)
    lines.event(event(5, "Nominated", "Pod should schedule on: nodeclaim/c-1"))
    lines.claims_read = read
    cause = lines.chain().cause
    assert cause.kind is CauseKind.UNKNOWN and re.search(text, cause.sentence), cause


@pytest.mark.parametrize("ready", [25, 30, 35])
def test_the_steps_of_a_later_node_add_up(ready: float) -> None:
    started = {"state": {"running": {"startedAt": at(50)}}}
    bound = condition("PodScheduled", "True", 40)
    body = pod(bound, node="n", containerStatuses=[started]) | {}
    body["status"]["phase"] = "Running"
    lines = seen(body, 100)
    lines.event(TRIGGERED)
    requested = {REQUESTED_AT_ANNOTATION: at(20)}
    metadata = {"name": "n", "creationTimestamp": at(30), "annotations": requested}
    lines.node(
        {"metadata": metadata, "status": {"conditions": [condition("Ready", "True", ready)]}}
    )
    chain = lines.chain()
    kinds = [step.kind for step in chain.steps]
    assert kinds == [
        StepKind.CREATED,
        StepKind.DECIDED,
        StepKind.REQUESTED,
        StepKind.NODE,
        StepKind.USABLE,
        StepKind.BOUND,
        StepKind.RUNNING,
    ]
    assert sum(chain.phases.values()) == pytest.approx(chain.waited) == pytest.approx(50.5)
    assert chain.phases["wait.boot"] == pytest.approx(max(ready, 30) - 20, abs=1)


def test_a_node_that_would_take_the_pod_corrects_the_cause() -> None:
    chain = seen(WAITS, 60).chain()
    assert chain.cause.kind is CauseKind.NO_AUTOSCALER
    assert with_fit(chain, Fit(1)) == chain
    corrected = with_fit(chain, Fit(2, takes=2, example="n7")).cause
    assert corrected.kind is CauseKind.UNSCHEDULED and "n7 and 1 more" in corrected.sentence


@pytest.mark.parametrize("kind", CauseKind)
def test_only_causes_of_pods_for_which_no_node_comes_are_corrected(kind: CauseKind) -> None:
    chain = replace(seen(WAITS, 60).chain(), cause=Cause(kind, "it waits"))
    corrected = with_fit(chain, Fit(1, takes=1, example="n7")) != chain
    assert corrected is (kind in {"noAutoscaler", "undecided", "refused", "never", "unknown"})


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        (Fit(2, pod="no claim"), ["no node takes the pod: no claim"]),
        (Fit(0), ["the cluster has no nodes"]),
        (
            Fit(2, kept_off=(KeptOff("Too many pods", "", "pods", 2, "n1", most=9.0),)),
            [
                "2 nodes: 0 would take the pod now",
                "  2 Too many pods: none of them takes more than 9 pods (n1)",
            ],
        ),
    ],
    ids=["of the pod", "no nodes", "pods"],
)
def test_what_keeps_the_pod_off_is_shown(result: Fit, lines: list[str]) -> None:
    assert list(fit_lines(result, {})) == lines


def test_long_lists_are_cut() -> None:
    many = range(25)
    reasons = tuple(KeptOff(f"reason {n}", nodes=1, example="n") for n in many)
    shown = list(fit_lines(Fit(25, kept_off=reasons), {}))
    assert (len(shown), shown[-1]) == (22, "  and 5 more reasons")
    full = tuple(GroupStatus(f"g{n}", target=1, maximum=1) for n in many)
    status = AutoscalerStatus(groups=(*full, GroupStatus("fine")))
    shown = list(autoscaler_lines(status, where="x/y"))[21:]
    assert shown == ["  and 5 more groups", "  1 group with nothing to report"]
    short = {"conditions": [condition("Provisioned", "False", 1)]}
    groups = [{"metadata": {"name": f"g{n}"}, "status": short} for n in many]
    shown = list(group_lines(groups))
    assert (len(shown), shown[-1]) == (21, "and 5 more KwokNodeGroups with a problem")
    assert len(list(group_lines(groups[:20]))) == 20


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        *(("Ready", "False"), ("Stalled", "True"), ("Provisioned", "False")),
        *(("ScalingLimited", "True"), ("Paused", "True"), ("Outage", "True")),
        ("Autoscalable", "False"),
    ],
)
def test_which_conditions_of_a_group_are_problems(kind: str, bad: str) -> None:
    shown = [
        bool(list(group_lines([{"status": {"conditions": [condition(kind, status, 1)]}}])))
        for status in ("True", "False", "Unknown")
    ]
    assert shown == [bad == "True", bad == "False", False]


def test_an_unhealthy_group_is_shown_and_an_unknown_condition_of_a_pool_is_not() -> None:
    ill = AutoscalerStatus(groups=(GroupStatus("a", health="Unhealthy"),))
    assert "  a: 0 ready, Unhealthy" in list(autoscaler_lines(ill, where="x/y"))
    pool = {"metadata": {"name": "p"}, "status": {"conditions": [condition("Ready", "Unknown", 1)]}}
    assert list(pool_lines([pool])) == ["NodePool p: no limits, and no problem"]


def test_what_hinders_groups_and_nodepools_is_shown() -> None:
    short = condition("Provisioned", "False", 1, reason="OutOfStock", message="none left")
    fine = condition("Ready", "True", 1)
    groups = [
        {"metadata": {"name": "a"}, "status": {"conditions": [fine, short]}},
        {"metadata": {"name": "b"}, "status": {"conditions": [fine]}},
    ]
    assert list(group_lines(groups)) == [
        "KwokNodeGroup a: Provisioned=False (OutOfStock: none left)"
    ]
    unready = condition("Ready", "False", 1, reason="NodeClassNotReady")
    pool = {
        "metadata": {"name": "web", "labels": {NODE_POOL_LABEL: "web"}},
        "spec": {"limits": {"cpu": "10"}},
        "status": {"resources": {"cpu": "8"}, "conditions": [unready]},
    }
    assert list(pool_lines([pool])) == [
        "NodePool web: 8 of 10 cpu; Ready=False (NodeClassNotReady)"
    ]
