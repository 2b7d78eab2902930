"""What a pod will do, told beforehand."""

from itertools import product
from typing import Any

import pytest

from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.explain import RESTARTS_TOLD, Course, explain, lines
from kwok_operator.podprofiles.life import (
    FAILED_TRIES,
    IGNORED_TRIES,
    INDEX_LABEL,
    JOB_LABEL,
    NO_FAILURE,
    ORDINAL_LABEL,
    Lives,
    Who,
)
from kwok_operator.podprofiles.selectors import Pod
from tests.fakes.stages import evaluate


def course(pod: Pod, **given: Any) -> Course:
    spec = KwokPodProfileSpec.model_validate(given)
    return explain(Profile.of("p", spec, namespaces=None), pod)


def pod(name: str = "web-0", **given: Any) -> Pod:
    return Pod("default", name, **{"labels": {}, "annotations": {}, **given})


def member(suffix: str, *, index: int = 3, **tries: str) -> Pod:
    keys = {"failed": FAILED_TRIES, "ignored": IGNORED_TRIES}
    return pod(
        f"train-{index}-{suffix}",
        labels={INDEX_LABEL: str(index), JOB_LABEL: "train"},
        annotations={keys[key]: value for key, value in tries.items()},
        restart_policy="Never",
    )


def failing(kind: str, after: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "probability": "1", "after": {"fixed": after}, **more}


def test_a_crash_loop_backs_off_as_a_kubelet_does() -> None:
    found = course(pod(), failures=[failing("CrashLoopBackOff", "3s")])
    seen = [(step.after // 1_000, step.state) for step in found.steps if step.state != "Ready"]
    starts = [0, 3, 3 + 3 + 10, 16 + 3 + 20, 39 + 3 + 40, 82 + 3 + 80]
    assert [at for at, state in seen if state == "Running"] == starts
    ends = [state for _, state in seen if state != "Running"]
    assert ends == ["Error"] + ["CrashLoopBackOff"] * RESTARTS_TOLD
    assert found.goes_on


@pytest.mark.parametrize(
    ("after", "waits"),
    [
        ("1s", [0, 10, 20, 40, 80, 160, 300, 300, 300]),
        ("10m", [0, 10, 20, 40]),
        ("11m", [0, 0, 0, 0]),
    ],
)
def test_back_off(after: str, waits: list[int]) -> None:
    spec = KwokPodProfileSpec.model_validate({"failures": [failing("CrashLoopBackOff", after)]})
    lives, who = Lives(spec, seed="s"), Who.of(pod())
    assert [lives.back_off(who, r, run=None) // 1_000 for r in range(len(waits))] == waits


def test_a_long_run_is_forgiven() -> None:
    after = {"samples": ["1s", "1s", "1s", "1h"]}
    failure = {"type": "CrashLoopBackOff", "probability": "1", "after": after}
    lives = Lives(KwokPodProfileSpec.model_validate({"failures": [failure]}), seed="s")
    who = Who.of(pod())
    ran = [lives.after_of(0, who, r, run=None) // 1_000 for r in range(40)]
    long = next(r for r in range(3, 30) if ran[r] > 600 and max(ran[r + 1 : r + 4]) < 600)
    waits = [lives.back_off(who, r, run=None) // 1_000 for r in range(long, long + 4)]
    assert waits == [0, 10, 20, 40]


EVERY_FAILURE = [
    {"type": "Error", "probability": "0.3", "after": {"samples": ["5s", "20m"]}},
    {"type": "CrashLoopBackOff", "probability": "0.3", "after": {"samples": ["1s", "2s", "1h"]}},
    {"type": "Evicted", "probability": "0.1"},
    {"type": "ImagePullBackOff", "probability": "0.2"},
    {"type": "OOMKilled", "indexes": "7"},
]


def test_jq_chooses_the_same_failures_and_back_offs() -> None:
    run = {"duration": {"uniform": {"min": "1s", "max": "2h"}}}
    spec = KwokPodProfileSpec.model_validate({"run": run, "failures": EVERY_FAILURE})
    lives = Lives(spec, seed="s")
    asked = lives.jq(
        f"{lives.jq_failure()}{lives.jq_after()}"
        f"[failure(restarts), {lives.jq_run()}, {lives.jq_back_off()}]"
    )
    seen = set()
    for i, restarts in product(range(40), range(12)):
        labels = {ORDINAL_LABEL: str(i)}
        who = Who.of(pod(f"web-{i}", labels=labels))
        run_of = lives.run_of(who, pod(restart_policy="OnFailure"))
        failure = lives.failure(who, restarts)
        expected = [failure, run_of, lives.back_off(who, restarts, run=run_of)]
        manifest = {
            "metadata": {"namespace": "default", "name": f"web-{i}", "labels": labels},
            "spec": {"restartPolicy": "OnFailure"},
            "status": {"containerStatuses": [{"restartCount": restarts}]},
        }
        assert evaluate(asked, manifest) == [expected], (i, restarts)
        seen.add((failure, restarts > 0))
    assert {(1, True), (0, True), (2, True), (3, False), (4, True), (-1, True)} <= seen


RUN = {"run": {"duration": {"uniform": {"min": "1m", "max": "10h"}}}}
HALF = {"failures": [{"type": "Error", "probability": "0.5", "after": {"fixed": "5s"}}]}


def test_an_index_repeats_and_a_counted_try_is_another() -> None:
    first = course(member("aaaaa", failed="0"), **RUN)
    assert first == course(member("bbbbb", failed="0"), **RUN)
    others = [
        course(member("aaaaa", failed="1"), **RUN),
        course(member("aaaaa", failed="0", ignored="1"), **RUN),
        course(member("aaaaa", index=4, failed="0"), **RUN),
        course(member("aaaaa", failed="0"), **RUN, seed="other"),
    ]
    assert first not in others
    assert len({each.steps for each in others}) == len(others)


def test_an_index_without_a_count_of_tries_may_fail_or_not() -> None:
    assert course(member("aaaaa"), **RUN) == course(member("bbbbb"), **RUN)
    tries = [course(member(f"{i:05}"), **RUN, **HALF).steps[-1].state for i in range(60)]
    assert 15 < tries.count("Failed") < 45
    counted = {course(member(f"{i:05}", failed="0"), **RUN, **HALF).steps for i in range(60)}
    assert len(counted) == 1


def test_names_count_where_there_is_no_index() -> None:
    assert course(pod("a"), **RUN) == course(pod("a"), **RUN)
    never = [pod(f"web-{i}", restart_policy="Never") for i in range(50)]
    assert len({course(each, **RUN).steps for each in never}) == 50


def test_failures_by_index_come_first_and_each_time() -> None:
    failures = [
        {"type": "Evicted", "probability": "1"},
        {"type": "Error", "indexes": "3,10-19", "exitCode": 7, "after": {"fixed": "1s"}},
    ]
    lives = Lives(KwokPodProfileSpec.model_validate({"failures": failures}), seed="s")
    for index, expected in ((3, 1), (10, 1), (19, 1), (2, 0), (20, 0)):
        who = Who.of(pod(f"db-{index}", labels={ORDINAL_LABEL: str(index)}))
        assert [lives.failure(who, r) for r in range(3)] == [expected] * 3


def test_as_many_fail_as_are_to() -> None:
    failures = [
        {"type": "OOMKilled", "probability": "0.05"},
        {"type": "Error", "probability": "0.2"},
        {"type": "ImagePullBackOff", "probability": "0.01"},
    ]
    lives = Lives(KwokPodProfileSpec.model_validate({"failures": failures}), seed="s")
    who = [Who.of(pod(f"job-{i}")) for i in range(20_000)]
    found = [lives.failure(each, 0) for each in who]
    for position, share in enumerate((0.05, 0.2, 0.01)):
        deviation = (20_000 * share * (1 - share)) ** 0.5
        assert abs(found.count(position) - 20_000 * share) < 4.5 * deviation
    after = [lives.failure(each, 1) for each in who]
    assert 2 not in after
    both = sum(a != NO_FAILURE and b != NO_FAILURE for a, b in zip(found, after, strict=True))
    assert abs(both - 20_000 * 0.26 * 0.25) < 4.5 * (20_000 * 0.065) ** 0.5


def test_a_pod_that_is_to_fail_does_so_before_its_run_ends() -> None:
    found = course(
        pod(restart_policy="Never"),
        run={"duration": {"fixed": "20s"}},
        failures=[failing("OOMKilled", "5m")],
    )
    assert (found.steps[-1].after, found.steps[-1].state) == (20_000, "Failed")
    assert found.steps[-1].detail == "OOMKilled, exit code 137"


def test_pods_with_restart_policy_always_never_succeed() -> None:
    assert course(pod(), run={"duration": {"fixed": "20s"}}).steps[-1].state == "Ready"


def test_people_read_it_in_lines() -> None:
    spec = KwokPodProfileSpec.model_validate(
        {
            "start": {"delay": {"fixed": "61m5s"}, "readyDelay": {"fixed": "2s"}},
            "failures": [failing("Error", "30s")],
            "termination": {"delay": {"fixed": "7s"}},
        }
    )
    found = lines(Profile.of("slow", spec, namespaces=None), pod(restart_policy="Never"))
    assert found == [
        "default/web-0: profile slow, seed slow; times count from when it is bound",
        " 1:01:05.000  Running",
        " 1:01:07.000  Ready",
        " 1:01:35.000  Failed  Error, exit code 1",
        " 0:00:07.000  after it is deleted, it is gone",
    ]
    endless = lines(Profile.of("slow", spec, namespaces=None), pod())
    assert endless[-2].strip() == "and so on"
