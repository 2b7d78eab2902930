"""Profiles as Stages, played by jq beside what is told beforehand."""

import json
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.formats.times import format_time
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import WEIGHT, Manifest, Profile, compile_profile, stage_name
from kwok_operator.podprofiles.explain import LifeStep, explain, holding
from kwok_operator.podprofiles.life import FAILED_TRIES, INDEX_LABEL, JOB_LABEL, ORDINAL_LABEL
from kwok_operator.podprofiles.selectors import Pod
from tests.fakes.stages import evaluate, fits, fitting, played_at
from tests.unit.clouds import DELAYS

PAGE = Path(__file__).parents[2] / "docs" / "pods.md"
BOUND_AT = 1_800_000_000_000
HALF_A_SECOND = 500

FAILURES = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            "ImagePullBackOff CreateContainerConfigError Error OOMKilled CrashLoopBackOff"
            " Evicted".split()
        ),
        "probability": st.sampled_from(["0", "0.2", "0.5", "1"]),
    },
    optional={
        "after": st.one_of(DELAYS, st.just({"uniform": {"min": "5m", "max": "20m"}})),
        "indexes": st.sampled_from(["0", "1-3", "2,7-9"]),
        "message": st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=10),
    },
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.text(min_size=1, max_size=8),
        "start": st.fixed_dictionaries(
            {},
            optional={
                "delay": DELAYS,
                "initContainers": st.lists(DELAYS, max_size=3),
                "readyDelay": DELAYS,
            },
        ),
        "run": st.fixed_dictionaries({}, optional={"duration": DELAYS}),
        "failures": st.lists(FAILURES, max_size=4),
        "termination": st.fixed_dictionaries({}, optional={"delay": DELAYS}),
    },
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        INDEX_LABEL: st.integers(0, 9).map(str),
        JOB_LABEL: st.just("train"),
        ORDINAL_LABEL: st.integers(0, 9).map(str),
    },
)


def spec_of(**given: Any) -> KwokPodProfileSpec:
    return KwokPodProfileSpec.model_validate(given)


def profile_of(name: str = "p", *, namespaces: list[str] | None = None, **given: Any) -> Profile:
    return Profile.of(name, spec_of(**given), namespaces=namespaces)


def pod_of(name: str = "web-0", **given: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": "u", **given.pop("metadata", {})}
    containers = [{"name": "main", "image": "i"}, {"name": "other", "image": "i"}]
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(0)}
    return {
        "metadata": {"creationTimestamp": stamp(-9_000), **metadata},
        "spec": {"nodeName": "gpu-b-ab12-000001", "containers": containers, **given},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }


PODS = st.builds(
    lambda name, labels, tries, policy, inits: pod_of(
        f"web-{name}",
        metadata={"labels": labels, "annotations": {FAILED_TRIES: tries} if tries else {}},
        restartPolicy=policy,
        terminationGracePeriodSeconds=40,
        initContainers=[{"name": f"i{i}", **each} for i, each in enumerate(inits)],
    ),
    st.integers(0, 99),
    LABELS,
    st.sampled_from(["", "0", "2"]),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.lists(st.sampled_from([{}, {"restartPolicy": "Always"}]), max_size=3),
)


def stamp(after: int) -> str:
    return format_time(BOUND_AT + after)


class Played:
    """A pod's status as the Stages would have it, step by step; stamps are whole seconds."""

    def __init__(self, pod: dict[str, Any]) -> None:
        self.pod, self.state, self.restarts = pod, "", 0
        self.since, self.exactly = 0, 0

    def shows(self, step: LifeStep) -> None:
        if step.state in ("Running", "Ready") and self.state in ("Error", "CrashLoopBackOff"):
            self.restarts += 1
        if step.state != "Ready" or self.state != "Running":
            self.since, self.exactly = step.after // 1_000 * 1_000, step.after
        self.state, status = step.state, self.pod["status"]
        conditions = {c["type"]: c for c in status["conditions"]}
        ready = str(step.state == "Ready")
        for kind in ("Ready", "ContainersReady"):
            conditions[kind] = {"type": kind, "status": ready}
        status["conditions"] = list(conditions.values())
        running = {"running": {"startedAt": stamp(self.since)}}
        ended = {"terminated": {"finishedAt": stamp(self.since), "exitCode": 1}}
        waiting = {"waiting": {"reason": step.state}}
        if step.state == "Init":
            status |= {"phase": "Pending", **self._inits(int(step.detail.split()[2]), running)}
            status |= self._containers({"waiting": {"reason": "PodInitializing"}})
        elif step.state in ("Running", "Ready"):
            status |= {"phase": "Running", **self._containers(running)}
        elif step.state == "Error":
            status |= {"phase": "Running", **self._containers(ended)}
        elif step.state == "CrashLoopBackOff":
            status |= {"phase": "Running", **self._containers(waiting, lastState=ended)}
        elif step.state in ("Succeeded", "Failed"):
            status |= {"phase": step.state, **self._containers(ended)}
        else:
            status |= {"phase": "Pending", **self._containers(waiting)}

    def _containers(self, state: Manifest, **more: Any) -> Manifest:
        first = {"name": "main", "restartCount": self.restarts, "state": state, **more}
        other = {"name": "other", "restartCount": 0, "state": state}
        return {"containerStatuses": [first, other]}

    def _inits(self, at: int, running: Manifest) -> Manifest:
        states: list[Manifest] = []
        for i, each in enumerate(self.pod["spec"]["initContainers"]):
            sidecar = each.get("restartPolicy") == "Always"
            before: Manifest = running if sidecar else {"terminated": {}}
            after: Manifest = {"waiting": {"reason": "PodInitializing"}}
            states.append(before if i < at else running if i == at else after)
        return {"initContainerStatuses": [{"state": state} for state in states]}


PARTS = {
    "Init": ("start", "init"),
    "Ready": ("ready",),
    "Succeeded": ("succeed",),
    "ImagePullBackOff": ("stuck",),
    "CreateContainerConfigError": ("stuck",),
}


def parts_before(step: LifeStep, state: str) -> tuple[str, ...]:
    """The Stages that may bring a step."""
    if step.state == "Running" or (step.state == "Ready" and state != "Running"):
        return ("restart",) if state in ("Error", "CrashLoopBackOff") else ("start", "init")
    return PARTS.get(step.state, ("fail",))


def seen_steps(steps: tuple[LifeStep, ...], *, late: bool) -> Iterator[LifeStep]:
    """Without those that no write shows: a pod that is not late to be Ready is so at once."""
    for i, step in enumerate(steps):
        following = steps[i + 1] if i + 1 < len(steps) else None
        if step.state == "Running" and not late and following and following.state == "Ready":
            continue
        yield step


@settings(max_examples=120, deadline=None)
@given(SPECS, PODS)
def test_the_stages_do_what_the_forecast_says(given: dict[str, Any], pod: dict[str, Any]) -> None:
    profile = profile_of(**given)
    stages = compile_profile(profile).stages
    course = explain(profile, Pod.of(pod))
    start = profile.spec.start
    late = start.ready_delay is not None
    by_kwok = not (start.delay or start.init_containers or late)
    played = Played(pod)
    for step in seen_steps(course.steps, late=late):
        found = fitting(stages, pod)
        if not (by_kwok and played.state == "" and "stuck" not in parts_before(step, "")):
            (stage,) = found
            part = stage["metadata"]["name"].rpartition(".")[2].partition("-")[0]
            assert part in parts_before(step, played.state), (played.state, step)
            at = played_at(stage, pod)
            due = BOUND_AT + played.since + step.after - played.exactly
            assert at == due + HALF_A_SECOND or (at is None and step.after == played.exactly)
        else:
            assert found == []
        played.shows(step)
    if not course.goes_on:
        names = [s["metadata"]["name"] for s in fitting(stages, pod)]
        holds = pod["status"]["phase"] == "Pending" and course.steps[-1].detail == "for ever"
        assert names == (["kwok-operator.p.hold"] if holds else [])


SLOW: dict[str, Any] = {"start": {"delay": {"fixed": "5s"}}}


def test_what_the_profile_leaves_out_is_left_to_kwok() -> None:
    assert compile_profile(profile_of()).stages == ()
    only = compile_profile(profile_of(termination={"delay": {"fixed": "5s"}})).stages
    names = [s["metadata"]["name"].rpartition(".")[2] for s in only]
    assert names == ["end", "terminate"]


def test_what_was_begun_goes_on_where_the_profile_says_less_by_now() -> None:
    """kwok plays what it has planned by the Stage that it knew then."""
    less = compile_profile(profile_of(**SLOW)).stages
    for state, part in (
        (LifeStep(3_000, "Init", "init container 0 runs"), "init"),
        (LifeStep(3_000, "Error"), "restart"),
        (LifeStep(3_000, "CrashLoopBackOff"), "restart"),
    ):
        pod = pod_of(initContainers=[{"name": "i"}])
        Played(pod).shows(state)
        (stage,) = fitting(less, pod)
        assert stage["metadata"]["name"] == f"kwok-operator.p.{part}"


def test_a_deleted_pod_takes_its_time_within_its_grace_period() -> None:
    profile = profile_of(termination={"delay": {"fixed": "9s"}}, run={"duration": {"fixed": "1s"}})
    for grace, expected in ((30, 9_000), (5, 5_000)):
        pod = pod_of(terminationGracePeriodSeconds=grace)
        pod["metadata"] |= {
            "deletionTimestamp": stamp(grace * 1_000),
            "deletionGracePeriodSeconds": grace,
        }
        for phase, deletes in (("Pending", False), ("Running", False), ("Failed", True)):
            pod["status"]["phase"] = phase
            (stage,) = fitting(compile_profile(profile).stages, pod)
            assert stage["spec"]["next"].get("delete", False) is deletes
            assert played_at(stage, pod) == BOUND_AT + expected + HALF_A_SECOND
        assert explain(profile, Pod.of(pod)).deletion == expected


def test_a_pod_that_kubernetes_marked_is_ready_again_and_ends_when_it_would_have() -> None:
    ready, succeed, _ = compile_profile(profile_of(run={"duration": {"fixed": "1m"}})).stages
    pod = pod_of(restartPolicy="Never")
    played = Played(pod)
    played.shows(LifeStep(0, "Ready"))
    assert fits(succeed, pod) and not fits(ready, pod)
    next(c for c in pod["status"]["conditions"] if c["type"] == "Ready")["status"] = "False"
    assert fits(ready, pod) and not fits(succeed, pod)
    pod["spec"]["readinessGates"] = [{"conditionType": "example.com/open"}]
    assert fits(succeed, pod) and not fits(ready, pod)


@pytest.mark.parametrize(
    ("given", "namespaces", "fitting_pod", "other_pod"),
    [
        ({"podSelector": {"matchLabels": {"app": "a"}}}, None, {"labels": {"app": "a"}}, {}),
        (
            {"podSelector": {"matchExpressions": [{"key": "k/x", "operator": "Exists"}]}},
            None,
            {"labels": {"k/x": ""}},
            {"labels": {"k": "x"}},
        ),
        (
            {
                "podSelector": {
                    "matchExpressions": [{"key": "t", "operator": "NotIn", "values": ["a", "b"]}]
                }
            },
            None,
            {},
            {"labels": {"t": "b"}},
        ),
        (
            {"podSelector": {"matchExpressions": [{"key": "t", "operator": "DoesNotExist"}]}},
            None,
            {"labels": {"u": "1"}},
            {"labels": {"t": "1"}},
        ),
        ({}, ["a", "default"], {}, {"namespace": "other"}),
        ({"nodeGroups": ["gpu-b", "x"]}, None, {}, None),
    ],
)
def test_whose_pods_they_are(
    given: dict[str, Any],
    namespaces: list[str] | None,
    fitting_pod: dict[str, Any],
    other_pod: dict[str, Any] | None,
) -> None:
    profile = profile_of(**given, **SLOW, namespaces=namespaces)
    stage, *_ = compile_profile(profile).stages
    lower = profile_of("z", **SLOW)
    rest, *_ = compile_profile(lower, above=[profile]).stages
    mine, others = pod_of(metadata=fitting_pod), pod_of(metadata=other_pod or {})
    if other_pod is None:
        others["spec"]["nodeName"] = "gpu-c-ab12-000001"
    for pod, expected in ((mine, (True, False)), (others, (False, True))):
        assert (fits(stage, pod), fits(rest, pod)) == expected, pod
        assert profile.scope.takes(Pod.of(pod)) is expected[0]
        assert holding(Pod.of(pod), [lower, profile]) is (profile if expected[0] else lower)
        assert evaluate(profile.scope.jq(), pod) == [expected[0]]


def test_the_higher_priority_holds_then_the_first_name() -> None:
    low, high, same = profile_of("a"), profile_of("z", priority=3), profile_of("b")
    assert holding(Pod.of(pod_of()), [same, low, high]) is high
    assert holding(Pod.of(pod_of()), [same, low]) is low


def test_profiles_that_share_no_pod_don_t_exclude_each_other() -> None:
    one = profile_of("a", podSelector={"matchLabels": {"app": "a"}}, **SLOW)
    for other in (
        profile_of("b", podSelector={"matchLabels": {"app": "b"}}, **SLOW),
        profile_of("b", podSelector={"matchLabels": {"app": "a"}}, namespaces=["x"], **SLOW),
    ):
        narrowed = Profile.of("a", one.spec, namespaces=["default"])
        found = compile_profile(narrowed, above=[other])
        assert found.overlapping == ()
        assert found.stages == compile_profile(narrowed).stages


@pytest.mark.parametrize(
    ("namespaces", "above", "reason"),
    [
        ([], [], "NoNamespaces"),
        (None, [profile_of("all", priority=1)], "Overshadowed"),
        ([f"n{i:060}" for i in range(20_000)], [], "TooLarge"),
    ],
)
def test_profiles_that_can_t_hold_say_why(
    namespaces: list[str] | None, above: list[Profile], reason: str
) -> None:
    found = compile_profile(profile_of(**SLOW, namespaces=namespaces), above=above)
    assert [problem.reason for problem in found.problems] == [reason]
    assert found.stages == ()


HOSTILE = ['\\(1) " ; "', '{{ .x }} "}} {{', "\u0000\n\t\u2028\N{GRINNING FACE}", "'; halt", "`{{"]


def printable(text: str) -> str:
    """Without control characters, which the API server refuses."""
    return "".join(c for c in text if unicodedata.category(c) != "Cc")


def stages_with(text: str) -> tuple[Manifest, ...]:
    failures = [
        {"type": kind, "probability": "0.3", "message": printable(text)}
        for kind in ("ImagePullBackOff", "Evicted", "OOMKilled")
    ]
    selector = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}
    return compile_profile(
        profile_of(seed=text, podSelector=selector, failures=failures, **SLOW)
    ).stages


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_breaks_a_stage(text: str) -> None:
    for stage, plain in zip(stages_with(text), stages_with("plain"), strict=True):
        for each in stage["spec"]["selector"]["matchExpressions"]:
            assert evaluate(each["key"], pod_of()) is not None
        # In a template the text stands in quotes only, as Go and JSON write it.
        quoted = json.dumps(printable(text), ensure_ascii=False)
        assert template_of(stage).replace(quoted, '"plain"') == template_of(plain)


def template_of(stage: Manifest) -> str:
    patches = stage["spec"]["next"].get("patches", ())
    return "".join(patch["template"] for patch in patches)


def test_what_has_changed_meanwhile_is_not_written() -> None:
    templates = [template_of(stage) for stage in stages_with("plain")]
    assert all("resourceVersion" in text.splitlines()[0] for text in templates if text)
    assert any(templates)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"phase": "Running"},
        {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
        {"phase": "Running", "containerStatuses": [], "conditions": None},
        {"phase": "Pending", "initContainerStatuses": [{"state": {}}], "conditions": []},
        {"phase": "Unknown"},
        {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "Other"}}}]},
    ],
    ids=str,
)
def test_a_pod_with_an_odd_status_fits_no_two_stages(status: dict[str, Any]) -> None:
    everything: dict[str, Any] = {
        "start": {
            "delay": {"fixed": "1s"},
            "readyDelay": {"fixed": "2s"},
            "initContainers": [{"fixed": "1s"}],
        },
        "run": {"duration": {"fixed": "9s"}},
        "failures": [
            {"type": kind, "probability": "0.25"}
            for kind in ("Error", "Evicted", "CrashLoopBackOff", "ImagePullBackOff")
        ],
    }
    stages = compile_profile(profile_of(**everything)).stages
    for policy in ("Always", "Never"):
        pod = {**pod_of(restartPolicy=policy), "status": status}
        assert len(fitting(stages, pod)) <= 1


def test_names_of_stages() -> None:
    assert stage_name("slow.images", "start") == "kwok-operator.slow.images.start"
    long = [stage_name(letter * 253, "stuck-7") for letter in "ab"]
    assert len(set(long)) == 2
    assert max(map(len, long)) <= 253
    stages = compile_profile(profile_of(**SLOW)).stages
    assert {stage["spec"]["weight"] for stage in stages} == {WEIGHT}
    assert f"weight {WEIGHT:,}, kwok's own 0 or 1" in PAGE.read_text()


def test_a_pod_that_ends_when_it_would_be_ready_is_ready_first() -> None:
    profile = profile_of(start={"readyDelay": {"fixed": "5s"}}, run={"duration": {"fixed": "5s"}})
    pod = pod_of(restartPolicy="Never")
    Played(pod).shows(LifeStep(0, "Running"))
    (stage,) = fitting(compile_profile(profile).stages, pod)
    assert stage["metadata"]["name"].endswith(".ready")
    states = [step.state for step in explain(profile, Pod.of(pod)).steps]
    assert states == ["Running", "Ready", "Succeeded"]
