"""Profiles' Stages, played by a real kwok beside what was told beforehand.

Stages are applied by hand: the operator has no part in it.
"""

import re
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kwok_operator.constants import KWOK_NODE_ANNOTATION
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Manifest, Profile, compile_profile
from kwok_operator.podprofiles.usage import RESOURCES, compile_usage
from tests.e2e.clouds import staged_cluster
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.podlives import Lives, lives, told

NODE = "gpu-b-ab12-000001"
MESSAGE = 'a "b" {{ c }} }} \\(d) \N{GRINNING FACE}'
EARLY = 1_000
"""Stamps have whole seconds; half a second is added."""
TOLD_UNTIL = 30_000
EVERYTHING: dict[str, Any] = {
    "seed": "run-1",
    "nodeGroups": ["gpu-b"],
    "start": {
        "delay": {"lognormal": {"p50": "2s", "p99": "8s"}},
        "readyDelay": {"uniform": {"min": "1s", "max": "4s"}},
        "initContainers": [{"fixed": "2s"}, {"samples": ["1s", "3s"]}],
    },
    "run": {"duration": {"uniform": {"min": "5s", "max": "15s"}}},
    "failures": [
        {"type": "ImagePullBackOff", "probability": "0.1"},
        {"type": "CreateContainerConfigError", "probability": "0.1", "after": {"fixed": "2s"}},
        {"type": "Error", "probability": "0.15", "after": {"fixed": "3s"}},
        {"type": "OOMKilled", "probability": "0.15", "after": {"samples": ["0s", "5s", "9s"]}},
        {"type": "CrashLoopBackOff", "probability": "0.2", "after": {"samples": ["1s", "11m"]}},
        {"type": "Evicted", "probability": "0.1", "after": {"fixed": "4s"}, "message": MESSAGE},
    ],
}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    directory = tmp_path_factory.mktemp("lives")
    with staged_cluster(
        "lives",
        directory=directory,
        manage_all_nodes=True,
    ) as own:
        resources = {"cpu": "1k", "memory": "1Ti", "pods": "5k"}
        own.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": NODE, "annotations": {KWOK_NODE_ANNOTATION: "fake"}},
                "status": {"capacity": resources, "allocatable": resources},
            }
        )
        yield own


def profile_of(name: str, **given: Any) -> Profile:
    selector = {"podSelector": {"matchLabels": {"profile": name}}}
    spec = KwokPodProfileSpec.model_validate({**selector, **given})
    return Profile.of(name, spec, namespaces=["default"])


def apply(kubectl: Kubectl, profile: Profile) -> None:
    found = compile_profile(profile)
    assert found.stages and not found.problems
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": list(found.stages)})


def pods_of(profile: Profile, size: int) -> list[dict[str, Any]]:
    """Of every restartPolicy; every fourth with init containers and a sidecar."""
    inits = [{"name": name, "image": "i"} for name in ("first", "side", "second")]
    inits[1]["restartPolicy"] = "Always"
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{profile.name}-{i}",
                "namespace": "default",
                "labels": {"profile": profile.name},
            },
            "spec": {
                "restartPolicy": ("Always", "OnFailure", "Never")[i % 3],
                "containers": [{"name": "main", "image": "i"}, {"name": "other", "image": "i"}],
                "initContainers": [] if i % 4 else inits,
            },
        }
        for i in range(size)
    ]


def expected_of(profile: Profile, pods: Sequence[Manifest]) -> dict[str, list[tuple[int, str]]]:
    """The states that are told of each pod for the first half a minute."""
    return {
        pod["metadata"]["name"]: [s for s in told(profile, pod) if s[0] < TOLD_UNTIL]
        for pod in pods
    }


def missing(expected: Lives, seen: Lives) -> list[str]:
    return [name for name, steps in expected.items() if len(seen.get(name, ())) < len(steps)]


def compare(expected: Lives, seen: Lives) -> None:
    for name, steps in expected.items():
        found = seen[name][: len(steps)]
        assert [state for _, state in found] == [state for _, state in steps], name
        for (at, state), (due, _) in zip(found, steps, strict=True):
            assert at > due - EARLY, (name, state)


def test_pods_live_as_explain_pod_predicts(staged: OwnCluster) -> None:
    kubectl, profile = staged.kubectl, profile_of("all", **EVERYTHING)
    apply(kubectl, profile)
    pods = pods_of(profile, 60)
    expected = expected_of(profile, pods)
    states = {state for steps in expected.values() for _, state in steps}
    assert states >= {
        *("Init 0", "Init 2", "Running", "Ready", "Error", "CrashLoopBackOff", "Succeeded"),
        *("Failed", "ImagePullBackOff", "CreateContainerConfigError"),
    }
    with lives(kubectl.api, "profile=all") as seen:
        kubectl.apply({"apiVersion": "v1", "kind": "List", "items": pods})
        eventually(lambda: len(seen) > 50, describe="pods have begun")
        with staged.kwok_killed():
            # Else the next kwok may wait until the Lease of this one has run out, minutes later.
            kubectl("delete", "lease", NODE, "--namespace=kube-node-lease")
        eventually(
            lambda: missing(expected, seen),
            lambda names: not names,
            describe="all that was told has come",
        )
    compare(expected, seen)
    found = seen.last.values()
    evicted = [pod for pod in found if pod["status"].get("reason") == "Evicted"]
    assert {pod["status"]["message"] for pod in evicted} == {MESSAGE}
    for pod in found:
        if pod["status"]["phase"] in ("Succeeded", "Failed"):
            assert runs_on(pod) == [], pod["metadata"]["name"]
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        told_restarts = [s for _, s in seen[pod["metadata"]["name"]]]
        again = sum(s in ("Error", "CrashLoopBackOff") for s in told_restarts[:-1])
        assert restarts == again, pod["metadata"]["name"]


def runs_on(pod: Manifest) -> list[str]:
    """Containers and sidecars that haven't ended."""
    status = pod["status"]
    states = [*status["containerStatuses"], *status.get("initContainerStatuses", ())]
    return [each["name"] for each in states if "running" in each["state"]]


def job(name: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"profile": "job"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completionMode": "Indexed",
            "completions": 20,
            "parallelism": 20,
            "backoffLimitPerIndex": 1,
            "template": template,
        },
    }


def run_of(kubectl: Kubectl, name: str) -> list[tuple[Any, ...]]:
    """Each try of a Job's run: index, failures before it, how it ended."""
    kubectl.apply(job(name))
    eventually(
        lambda: kubectl.json("get", "job", name)["status"].get("conditions", ()),
        lambda found: any(
            c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in found
        ),
        describe=f"the Job {name} has ended",
    )
    pods = kubectl.json("get", "pods", f"--selector=batch.kubernetes.io/job-name={name}")["items"]
    kubectl("delete", "job", name, "--cascade=foreground")
    return sorted(
        (
            int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]),
            int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]),
            pod["status"]["phase"],
        )
        for pod in pods
    )


def test_an_indexed_job_does_the_same_again(staged: OwnCluster) -> None:
    failure = {"type": "Error", "probability": "0.4", "after": {"fixed": "0s"}}
    run = {"duration": {"uniform": {"min": "0s", "max": "2s"}}}
    apply(staged.kubectl, profile_of("job", run=run, failures=[failure], seed="a"))
    first, again = (run_of(staged.kubectl, "train") for _ in range(2))
    assert first == again
    assert {tries for _, tries, _ in first} == {0, 1}
    apply(staged.kubectl, profile_of("job", run=run, failures=[failure], seed="b"))
    assert run_of(staged.kubectl, "train") != first


def test_a_deleted_pod_takes_its_time_and_its_job_replaces_it(staged: OwnCluster) -> None:
    """Once it has failed: it does so before it goes, as with a kubelet."""
    kubectl = staged.kubectl
    run = {"duration": {"fixed": "10m"}}
    profile = profile_of("job", run=run, termination={"delay": {"fixed": "5s"}})
    apply(kubectl, profile)
    one = job("slow")
    one["spec"] |= {"podReplacementPolicy": "Failed", "completions": 1, "parallelism": 1}
    with lives(kubectl.api, "profile=job") as seen:
        kubectl.apply(one)
        eventually(lambda: any(seen.values()), describe="the pod runs")
        began = time.monotonic()
        kubectl("delete", "pod", *seen)
        assert time.monotonic() - began > 5 - EARLY / 1_000
        eventually(lambda: len(seen) == 2, describe="another comes")
    kubectl("delete", "job", "slow", "--cascade=foreground")


METRICS: Manifest = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Metric",
    "metadata": {"name": "used"},
    "spec": {
        "path": "/metrics/nodes/{nodeName}/metrics/used",
        "metrics": [
            {
                "name": resource,
                "dimension": "pod",
                "help": resource,
                "kind": "gauge",
                "labels": [{"name": "pod", "value": "pod.metadata.name"}],
                "value": f'pod.Usage("{resource}")',
            }
            for resource in RESOURCES
        ],
    },
}
PERIOD = 512 * 3_600
"""Of a wave, in seconds: so long that it stands still in a test."""


def wave(after_peak: float) -> dict[str, Any]:
    """Usage in a wave whose peak was so much of its period ago."""
    peak = int(time.time() - after_peak * PERIOD) % PERIOD
    period = {"period": f"{PERIOD}s", "peakAt": f"{peak}s"}
    return {"cpu": {"wave": {"min": "10%", "max": "100%", **period}}}


USAGES: dict[str, dict[str, Any]] = {
    "flat": {"cpu": {"constant": "250m"}, "memory": {"shareOfRequests": "0.5"}},
    "done": {"cpu": {"ramp": {"from": "10%", "to": "3", "over": "1s"}}},
    "crest": wave(0),
    "eighth": wave(1 / 8),
    "trough": wave(1 / 2),
    "rise": wave(3 / 4),
    "silent": {},
}
USED: dict[str, float] = {
    "flat cpu": 0.25,
    "flat memory": 2**29,
    "done cpu": 3,
    "done memory": 2**20,
    "crest cpu": 2,
    "crest memory": 2**20,
    "eighth cpu": 0.2 + 1.8 * 27 / 32,
    "eighth memory": 2**20,
    "trough cpu": 0.2,
    "trough memory": 2**20,
    "rise cpu": 1.1,
    "rise memory": 2**20,
    "silent cpu": 0.001,
    "silent memory": 2**20,
}


def test_pods_use_what_profiles_say(staged: OwnCluster) -> None:
    kubectl = staged.kubectl
    profiles = [profile_of(name, usage=usage) for name, usage in USAGES.items()]
    usage = compile_usage(profiles)
    assert usage
    requests = {"cpu": "2", "memory": "1Gi"}
    pods = [pods_of(profile, 2)[1] for profile in profiles]
    for pod in pods:
        pod["spec"]["containers"] = [
            {"name": "main", "image": "i", "resources": {"requests": requests}}
        ]
    kubectl.apply({"apiVersion": "v1", "kind": "List", "items": [usage, METRICS, *pods]})
    port = eventually(
        lambda: kubectl.json("get", "node", NODE)["status"]["daemonEndpoints"]["kubeletEndpoint"],
        describe="kwok serves the node",
    )["Port"]
    url = f"http://127.0.0.1:{port}/metrics/nodes/{NODE}/metrics/used"

    def used() -> dict[str, float]:
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
        found = {
            (resource, pod): float(value)
            for resource, pod, value in re.findall(r'(cpu|memory)\{pod="(.*)"\} (\S+)', text)
        }
        return {f"{name} {what}": found[what, f"{name}-1"] for name in USAGES for what in RESOURCES}

    eventually(
        used,
        lambda found: found == pytest.approx(USED, rel=0.01),
        describe="pods use that",
    )
