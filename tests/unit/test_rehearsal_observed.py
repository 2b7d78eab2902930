"""What a recording says of objects, as the API server tells them."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kwok_operator.constants import REHEARSED_LABEL, REQUESTED_AT_ANNOTATION
from kwok_operator.formats import podparts
from kwok_operator.formats.times import format_time
from kwok_operator.rehearsal.judge import observed
from kwok_operator.rehearsal.judge.clocks import ClockOffset
from kwok_operator.rehearsal.judge.observed import StampClock
from kwok_operator.rehearsal.judge.recording import (
    MAX_COUNT,
    BudgetLine,
    GroupLine,
    JobLine,
    NodeLine,
    NodeState,
    PodLine,
    PodState,
    RecordedLine,
)
from tests.fakes.rehearsed import content, reader

BEGAN = StampClock(1_700_000_000_000)
"""2023-11-14T22:13:20Z."""
STAMP = "2023-11-14T22:13:{:02d}Z"


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web-1", "namespace": "shop", "creationTimestamp": STAMP.format(30)},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
        "status": status,
    }


def seen(body: dict[str, Any], at: float, before: PodState | None = None) -> PodState:
    return observed.pod(body, before=before, seen=at, clock=BEGAN)


def bound(body: dict[str, Any], second: int) -> dict[str, Any]:
    when = {"type": "PodScheduled", "status": "True", "lastTransitionTime": STAMP.format(second)}
    status = {**body["status"], "conditions": [when]}
    return {**body, "spec": {**body["spec"], "nodeName": "n"}, "status": status}


@pytest.mark.parametrize(
    ("labels", "annotations", "spec", "gang", "least"),
    [
        (
            {"scheduling.x-k8s.io/pod-group": "other"},
            {},
            {"schedulingGroup": {"podGroupName": "g"}},
            "PodGroup/shop/g",
            0,
        ),
        ({"scheduling.x-k8s.io/pod-group": "g"}, {}, {}, "PodGroup/shop/g", 0),
        ({}, {"scheduling.k8s.io/group-name": "g"}, {}, "PodGroup/shop/g", 0),
        (
            {"kueue.x-k8s.io/pod-group-name": "g"},
            {"kueue.x-k8s.io/pod-group-total-count": "4"},
            {},
            "PodGroup/shop/g",
            4,
        ),
        (
            {
                "leaderworkerset.sigs.k8s.io/name": "l",
                "leaderworkerset.sigs.k8s.io/group-index": "2",
            },
            {"leaderworkerset.sigs.k8s.io/size": f"{10**25}"},
            {},
            "LeaderWorkerSet/shop/l-2",
            MAX_COUNT,
        ),
        ({"kueue.x-k8s.io/pod-group-name": 3}, {}, {"schedulingGroup": []}, "", 0),
    ],
)
def test_a_pod_names_its_gang(
    labels: Any, annotations: Any, spec: Any, gang: str, least: int
) -> None:
    body = pod()
    body["metadata"] |= {"labels": labels, "annotations": annotations}
    state = seen({**body, "spec": spec | {"resourceClaims": [{"name": "gpu"}]}}, 1.0)
    assert (state.gang, state.least, state.claims) == (gang, least, 1)


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 18}}}, 18),
        ({"schedulingPolicy": {"basic": {}}}, 0),
        ({"minMember": 3}, 3),
        ({"schedulingPolicy": {"gang": "x"}}, 0),
    ],
)
def test_a_pod_group_says_how_many_must_run(spec: Any, least: int) -> None:
    assert observed.pod_group({"spec": spec}).least == least


@pytest.mark.parametrize(
    ("spec", "at_once"),
    [({}, 1), ({"parallelism": 4}, 4), ({"parallelism": 4, "completions": 3}, 3)],
)
def test_a_job_runs_no_more_pods_than_it_wants(spec: Any, at_once: int) -> None:
    state = observed.job({"spec": spec}, before=None, seen=0.0, clock=BEGAN)
    assert state.parallelism == at_once


def test_a_node_stands_where_its_labels_say() -> None:
    labels = {"a/block": "b", "a/rack": "r"}

    def stands(*levels: str) -> tuple[str, ...]:
        body = {"metadata": {"labels": labels}}
        more: Any = {"price": None, "before": None, "seen": 0.0, "clock": BEGAN}
        return observed.node(body, levels=levels, **more).topology

    assert stands("a/block", "a/rack", "a/host") == ("b", "r", "")
    assert stands() == stands("a/host") == ()


def test_moments_are_those_of_the_first_look() -> None:
    created = seen(pod(phase="Pending"), 10.4)
    assert (created.created, created.bound, created.running) == (10.4, None, None)
    placed = seen(bound(pod(phase="Pending"), 31), 11.2, created)
    assert (placed.created, placed.bound, placed.node) == (10.4, 11.2, "n")
    runs = seen(bound(pod(phase="Running"), 31), 11.9, placed)
    later = seen(bound(pod(phase="Running"), 31), 59.0, runs)
    assert (later.created, later.bound, later.running) == (10.4, 11.2, 11.9)
    assert later == runs


def test_what_is_seen_late_happened_when_its_stamp_says() -> None:
    late = seen(bound(pod(phase="Pending"), 31), 25.0)
    assert (late.created, late.bound) == (10.5, 11.5)
    before_the_run = {**pod(), "metadata": {"creationTimestamp": "2023-11-14T22:13:00Z"}}
    assert seen(before_the_run, -0.001).created == -19.5


@given(
    ahead=st.floats(-60, 60),
    error=st.floats(0, 1),
    wrong=st.floats(-1, 1),
    created=st.floats(-30, 30),
    news=st.floats(0, 0.5),
)
@example(ahead=5.0, error=0.5, wrong=1.0, created=0.9, news=0.5)
def test_a_clock_that_is_off_moves_nothing_over_the_beginning(
    ahead: float, error: float, wrong: float, created: float, news: float
) -> None:
    """`created` is the truth, by our clock; the offset is known `wrong` by at most its error."""
    clock = StampClock(BEGAN.began, ClockOffset(ahead + wrong * error, error))
    stamp = format_time(BEGAN.began + round((created + ahead) * 1_000))
    body = {"metadata": {"creationTimestamp": stamp}}
    before = created < 0
    at = -0.001 if before else created + news
    found = observed.pod(body, before=None, seen=at, clock=clock).created
    assert (found < 0) is before
    if before:
        assert found == at or abs(found - created) <= 0.51 + error
        return
    assert found == at
    late = observed.pod(body, before=None, seen=created + 40, clock=clock).created
    assert late >= 0 and abs(late - created) <= 0.51 + error


def test_what_is_seen_ended_has_run_if_a_container_had() -> None:
    def ended(phase: str, **terminated: str | None) -> float | None:
        body = pod(phase=phase, containerStatuses=[{"state": {"terminated": terminated}}])
        return seen(body, 25.0).running

    assert ended("Succeeded", startedAt=STAMP.format(31)) == 11.5
    assert ended("Failed", startedAt=STAMP.format(31)) == 11.5
    assert ended("Failed", startedAt=None) is None
    assert seen(pod(phase="Failed", reason="Evicted"), 25.0).running is None


def test_requests_are_those_that_the_scheduler_counts() -> None:
    def asks(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec: dict[str, Any] = {
        "containers": [asks("500m"), asks("1")],
        "initContainers": [asks("250m", restartPolicy="Always"), asks("2")],
        "overhead": {"cpu": "10m"},
    }
    assert podparts.requests(spec) == {"cpu": 2_260}
    beside_containers = {**spec, "initContainers": spec["initContainers"][:1]}
    assert podparts.requests(beside_containers) == {"cpu": 1_760}
    assert podparts.requests({**spec, "resources": {"requests": {"cpu": "4"}}}) == {"cpu": 4_010}


def test_pods_belong_to_what_people_wrote() -> None:
    def owned(kind: str, name: str, **labels: str) -> str:
        owner = {"kind": kind, "name": name, "controller": True}
        metadata = {"namespace": "shop", "name": "x", "ownerReferences": [owner], "labels": labels}
        return podparts.workload(metadata)

    assert owned("ReplicaSet", "web-7d9", **{"pod-template-hash": "7d9"}) == "Deployment/shop/web"
    assert owned("ReplicaSet", "plain") == "ReplicaSet/shop/plain"
    assert owned("Job", "batch") == "Job/shop/batch"
    assert podparts.workload({"namespace": "shop", "name": "a-1", "generateName": "a-"}) == (
        "Pod/shop/a"
    )


def test_pods_and_jobs_say_of_which_workload_of_the_scenario_they_are() -> None:
    def told(job: str, **labels: str) -> tuple[str, str]:
        owner = {"kind": "Job", "name": job, "controller": True}
        own = {"metadata": {"name": job, "namespace": "shop", "labels": labels}}
        of_pod = seen(pod() | {"metadata": {**own["metadata"], "ownerReferences": [owner]}}, 1)
        of_job = observed.job(own, before=None, seen=1, clock=BEGAN)
        return of_pod.rehearsed, of_job.rehearsed

    assert told("queue-0001", **{REHEARSED_LABEL: "queue"}) == ("queue", "queue")
    assert told("queue", **{REHEARSED_LABEL: "queue"}) == told("queue-2024") == ("", "")


def seen_node(body: dict[str, Any], at: float, before: NodeState | None = None) -> NodeState:
    return observed.node(body, price=None, before=before, seen=at, clock=BEGAN)


def test_when_a_node_was_asked_for_and_made_is_known_also_of_one_that_was_there_before() -> None:
    def node(asked: str, created: str) -> dict[str, Any]:
        annotations = {"kwok-operator.io/requested-at": asked}
        return {"metadata": {"annotations": annotations, "creationTimestamp": created}}

    fresh = seen_node(node("2023-11-14T22:13:22Z", "2023-11-14T22:13:29Z"), 9.4)
    assert (fresh.requested, fresh.created) == (2.0, 9.4)
    old = seen_node(node("odd", "2023-11-14T22:13:10Z"), -0.001)
    assert (old.requested, old.created) == (None, -9.5)


@pytest.mark.parametrize(
    ("selector", "covers"),
    [
        ({}, True),
        (None, False),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "a"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app"}]}, False),
    ],
)
def test_a_pod_that_is_evicted_has_the_budgets_that_cover_it(selector: Any, covers: bool) -> None:
    selectors = {"shop/b": selector, "other/c": {}}

    def look(phase: str, before: PodState | None, *kinds: str, going: bool = False) -> PodState:
        held = [
            {"type": kind, "status": "True", "reason": "DeletionByTaintManager"} for kind in kinds
        ]
        body = pod(phase=phase, conditions=held)
        body["metadata"] |= {"labels": {"app": "web"}} | (
            {"deletionTimestamp": "x"} if going else {}
        )
        return observed.pod(body, before=before, seen=9, clock=BEGAN, selectors=selectors)

    runs = look("Running", None)
    evicted = look("Running", runs, "DisruptionTarget", going=True)
    assert (runs.budgets, evicted.budgets) == ((), ("b",) if covers else ())
    assert runs.covered == (("b",) if covers else ())
    selectors.clear()
    assert look("Failed", evicted, "DisruptionTarget").budgets == evicted.budgets
    selectors["shop/b"] = {}
    assert look("Succeeded", None, "DisruptionTarget").budgets == ()
    assert look("Running", look("Running", runs, going=True), "DisruptionTarget").budgets == ()


@pytest.mark.parametrize(
    ("spec", "wanted"), [({}, 1), ({"completions": 3}, 3), ({"parallelism": 2}, 0)]
)
def test_a_job_whose_completions_are_not_fixed_wants_none(spec: Any, wanted: int) -> None:
    assert observed.job({"spec": spec}, before=None, seen=1, clock=BEGAN).wanted == wanted


def test_a_node_keeps_its_price_and_its_shape_without_what_comes_late() -> None:
    def look(price: float | None, before: NodeState | None, **more: str) -> NodeState:
        body = {"status": {"allocatable": {"cpu": "4", **more}}}
        return observed.node(body, price=price, before=before, seen=1, clock=BEGAN)

    bare = look(2.0, None)
    whole = look(None, bare, **{"example.com/gpu": "2"})
    assert (whole.price, whole.shape) == (2.0, bare.shape)
    assert whole.allocatable != bare.allocatable
    assert look(3.0, whole, memory="1Gi").shape != bare.shape


def test_heartbeats_leave_no_trace() -> None:
    def node(beat: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
        status = {"allocatable": {"cpu": "4", "memory": "8Gi"}, "conditions": [ready]}
        return {"metadata": {"name": "n", "resourceVersion": beat}, "status": status}

    first = seen_node(node("1"), 1.0)
    assert first == seen_node(node("2"), 9.0, before=first)
    assert first.ready and first.allocatable == {"cpu": 4_000, "memory": 2**33}


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=8,
)
_FIELDS = st.sampled_from(
    """metadata spec status labels conditions allocatable containers requests resources nodeName
    phase count series source involvedObject price hourly cloud counts taints""".split()
)


@given(st.dictionaries(_FIELDS, st.dictionaries(_FIELDS, _ODD) | _ODD))
@example({"metadata": {"annotations": {REQUESTED_AT_ANNOTATION: "9999-01-01T00:00:00Z"}}})
@example({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}})
@example({"spec": {"containers": [{"resources": {"requests": {"cpu": "9E"}}}] * 200}})
@example({"status": {"allocatable": {"cpu": "-1"}}, "spec": {"priority": -(2**70)}})
@example({"status": {"containerStatuses": [{"restartCount": 2**61}] * 9}})
@example({"spec": {"price": {"hourly": "1e99"}}, "count": 2**70})
def test_what_is_recorded_of_odd_objects_can_be_read(body: dict[str, Any]) -> None:
    lines: list[RecordedLine] = [
        NodeLine(1.0, "n", seen_node(body, -0.001)),
        PodLine(1.0, "shop/p", seen(body, -0.001)),
        GroupLine(1.0, "g", observed.group(body)),
        BudgetLine(1.0, "PodDisruptionBudget/shop/b", observed.budget(body)),
        JobLine(1.0, "Job/shop/j", observed.job(body, before=None, seen=-0.001, clock=BEGAN)),
        replace(observed.event(body), t=1.0),
    ]
    assert len(list(reader(content(lines)).lines())) == len(lines)


def test_an_event_has_its_whole_message() -> None:
    message = f"0/900 nodes are available: {'1 node(s) had a taint, ' * 40}30 Insufficient cpu."
    assert observed.event({"message": message}).message == message


def test_a_pod_has_the_scheduler_s_whole_message_and_a_group_what_keeps_its_instances() -> None:
    why = f"0/9 nodes are available: {'1 node(s) had a taint, ' * 99}"
    held = {"type": "PodScheduled", "status": "False", "message": why}
    assert seen(pod(phase="Pending", conditions=[held]), 1.0).why == why
    missing = {"type": "Provisioned", "status": "False", "reason": "OutOfStock", "message": why}
    body = {"spec": {"autoscaling": {"maxSize": 3}}, "status": {"conditions": [missing]}}
    assert (observed.group(body).says, observed.group(body).maximum) == (why, 3)
    missing["reason"] = "Provisioning"
    assert observed.group(body).says == ""


def test_who_preempted_a_pod_is_known_by_the_uid() -> None:
    body = {"reason": "Preempted", "message": "Preempted by pod u-1 on node n"}
    assert observed.preemptor(observed.event(body)) == "u-1"
    assert observed.preemptor(observed.event({**body, "reason": "Killing"})) == ""


def test_sidecars_restart_too_and_other_init_containers_do_not_count() -> None:
    inits = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}]
    counts = [{"name": "proxy", "restartCount": 2}, {"name": "setup", "restartCount": 4}]
    main = [{"name": "main", "restartCount": 1}]
    body = {
        "spec": {"initContainers": inits},
        "status": {"containerStatuses": main, "initContainerStatuses": counts},
    }
    assert observed.pod(body, before=None, seen=1.0, clock=StampClock(0)).restarts == 3
