"""KwokPodProfiles that an operator keeps as Stages, on a real cluster."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

import pytest

from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    KWOK_NODE_ANNOTATION,
    PROFILE_KIND,
    PROFILE_LABEL,
)
from kwok_operator.formats.times import parse_time
from kwok_operator.podprofiles.api import KwokPodProfileSpec
from kwok_operator.podprofiles.compile import Profile
from kwok_operator.podprofiles.life import FAILED_TRIES, INDEX_LABEL, JOB_LABEL
from tests.e2e.clouds import condition_of, staged_cluster
from tests.e2e.grants import DEPLOY, PROFILES
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.own_cluster import OwnCluster
from tests.e2e.podlives import lives
from tests.e2e.podlives import told as told_of

OURS = f"--selector={PROFILE_LABEL}"
STATES = ("Compiled", "StagesPresent", "Overlapping")
COMPLETIONS = 500
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "batch"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]},
}


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """With an operator that has no right to Stages yet."""
    directory = tmp_path_factory.mktemp("profiles")
    with staged_cluster("profiles", directory=directory) as own:
        resources = {"cpu": "1k", "memory": "1Ti", "pods": "5k"}
        own.kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n", "annotations": {KWOK_NODE_ANNOTATION: "fake"}},
                "status": {"capacity": resources, "allocatable": resources},
            }
        )
        own.harness.start()
        yield own


@pytest.fixture
def kubectl(staged: OwnCluster) -> Iterator[Kubectl]:
    """There are no profiles before and after."""
    yield staged.kubectl
    staged.kubectl("delete", "kpp", "--all")
    eventually(lambda: not stages(staged.kubectl), describe="their Stages are gone")


@pytest.fixture
def allowed(kubectl: Kubectl) -> None:
    kubectl("apply", f"--filename={DEPLOY / PROFILES}")


def profile(name: str, app: str = "", **spec: Any) -> dict[str, Any]:
    selector = {"podSelector": {"matchLabels": {"app": app or name}}}
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": PROFILE_KIND,
        "metadata": {"name": name},
        "spec": {**selector, **spec},
    }


def stages(kubectl: Kubectl) -> list[str]:
    return kubectl("get", "stages", OURS, "--output=name").split()


def states(kubectl: Kubectl, name: str) -> tuple[str, ...]:
    """What each condition says of the spec as it is now."""
    found = kubectl.json("get", "kpp", name)
    status = found.get("status", {})
    if status.get("observedGeneration") != found["metadata"]["generation"]:
        return ()
    return tuple(condition_of(status, kind).get("status", "") for kind in STATES)


def settled(kubectl: Kubectl, name: str, *wanted: str) -> None:
    eventually(
        lambda: states(kubectl, name),
        lambda found: found == wanted,
        describe=f"{name} is {wanted}",
    )


def run_pod(kubectl: Kubectl, name: str, app: str) -> int:
    """Milliseconds from when it is bound until it is Ready."""
    with lives(kubectl.api, f"app={app}") as seen:
        kubectl.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
                "spec": {"containers": [{"name": "main", "image": "i"}]},
            }
        )
        ready = eventually(
            lambda: next((at for at, s in seen.get(name, ()) if s == "Ready"), None),
            lambda at: at is not None,
            describe=f"{name} is Ready",
        )
        assert ready is not None
        return ready


def told(staged: OwnCluster, pod: str) -> int:
    """When the pod is to be Ready, in milliseconds."""
    command = [sys.executable, "-m", "kwok_operator", "explain-pod", f"default/{pod}"]
    kubeconfig = f"--kubeconfig={staged.cluster.kubeconfig}"
    said = subprocess.run([*command, kubeconfig], capture_output=True, text=True, check=True)
    found = re.search(r"(\d+):(\d+):(\d+)\.(\d+)  Ready", said.stdout)
    assert found, said.stdout
    hours, minutes, seconds, thousandths = map(int, found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000 + thousandths


def test_without_the_right_the_status_says_what_is_missing(kubectl: Kubectl) -> None:
    kubectl.apply(profile("early", start={"delay": {"fixed": "2s"}}))
    settled(kubectl, "early", "True", "False", "False")
    reason = condition_of(kubectl.json("get", "kpp", "early")["status"], "StagesPresent")["reason"]
    assert reason == "NotAllowed"
    assert not stages(kubectl)


@pytest.mark.core
@pytest.mark.usefixtures("allowed")
def test_a_profile_is_applied_changed_and_removed(staged: OwnCluster, kubectl: Kubectl) -> None:
    delay = {"uniform": {"min": "2s", "max": "5s"}}
    # Of the characters that YAML has its own ways with.
    never = {"type": "Error", "probability": "0", "message": "disk full 💥 \\"}
    kubectl.apply(profile("slow", start={"delay": delay}, failures=[never]))
    settled(kubectl, "slow", "True", "True", "False")
    names = (f"web-{number}" for number in count())
    # kwok hears of Stages a moment later, and whatever stands still for a while makes one pod late.

    def took() -> int:
        return run_pod(kubectl, next(names), "slow")

    eventually(took, lambda ms: ms > 1_500, describe="kwok has heard of the Stages")
    late: list[int] = []

    def on_time() -> int:
        name = next(names)
        late.append(run_pod(kubectl, name, "slow") - told(staged, name))
        return sum(ms < 1_500 for ms in late)

    eventually(on_time, lambda pods: pods == 2, describe="two pods are Ready when it was told")
    assert min(late) > -1_500, late
    kubectl.apply(profile("slow", start={"delay": {"fixed": "7s"}}))
    settled(kubectl, "slow", "True", "True", "False")
    eventually(took, lambda ms: ms > 6_000, describe="pods take as long as the changed one says")
    kubectl("delete", "kpp", "slow")
    eventually(lambda: not stages(kubectl), describe="its Stages are gone")
    eventually(took, lambda ms: ms < 6_000, describe="pods are Ready at once again")


@pytest.mark.usefixtures("allowed")
def test_of_two_that_match_the_higher_one_holds(kubectl: Kubectl) -> None:
    kubectl.apply(profile("a", app="two", start={"delay": {"fixed": "60s"}}))
    kubectl.apply(profile("b", app="two", priority=5, start={"readyDelay": {"fixed": "2s"}}))
    settled(kubectl, "b", "True", "True", "False")
    eventually(lambda: states(kubectl, "a")[2:] == ("True",), describe="a says it is overlapped")
    assert run_pod(kubectl, "two-0", "two") < 30_000


@pytest.mark.usefixtures("allowed")
def test_a_job_retries_what_fails(kubectl: Kubectl) -> None:
    manifest = profile(
        "batch",
        run={"duration": {"fixed": "1s"}},
        failures=[{"type": "Error", "probability": "0.05"}],
    )
    kubectl.apply(manifest)
    settled(kubectl, "batch", "True", "True", "False")
    kubectl.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "batch", "namespace": "default"},
            "spec": {
                "completionMode": "Indexed",
                "completions": COMPLETIONS,
                "parallelism": COMPLETIONS,
                "backoffLimitPerIndex": 6,
                "template": TEMPLATE,
            },
        }
    )
    status = eventually(
        lambda: kubectl.json("get", "job", "batch")["status"],
        lambda found: condition_of(found, "Complete").get("status") == "True",
        describe="the Job is complete",
    )
    spec = KwokPodProfileSpec.model_validate(manifest["spec"])
    expected = retries(Profile.of("batch", spec, namespaces=None))
    assert (status["succeeded"], status["failed"]) == (COMPLETIONS, sum(expected.values()))
    tries: dict[str, list[dict[str, Any]]] = {}
    for pod in kubectl.json("get", "pods", "--selector=app=batch")["items"]:
        tries.setdefault(pod["metadata"]["labels"][INDEX_LABEL], []).append(pod)
    for index, pods in tries.items():
        pods.sort(key=lambda pod: int(pod["metadata"]["annotations"][FAILED_TRIES]))
        phases = [pod["status"]["phase"] for pod in pods]
        assert phases == ["Failed"] * expected[index] + ["Succeeded"], index
        for number, (before, after) in enumerate(pairwise(pods)):
            terminated = before["status"]["containerStatuses"][0]["state"]["terminated"]
            gone, back = terminated["finishedAt"], after["metadata"]["creationTimestamp"]
            waited = parse_time(back) - parse_time(gone)
            assert waited >= (10 << number) * 1_000 - 1_000, (index, number)


def retries(batch: Profile) -> Counter[str]:
    """How often each index of the Job fails, told before it does."""
    failed: Counter[str] = Counter()
    for index in map(str, range(COMPLETIONS)):
        labels = {"app": "batch", JOB_LABEL: "batch", INDEX_LABEL: index}
        while True:
            annotations = {FAILED_TRIES: str(failed[index])}
            metadata = {"name": "any", "labels": labels, "annotations": annotations}
            if told_of(batch, {**TEMPLATE, "metadata": metadata})[-1][1] == "Succeeded":
                break
            failed[index] += 1
    # Binomial: beyond these numbers comes once in a million seeds.
    assert 5 < failed.total() < 60
    return failed


@pytest.mark.usefixtures("allowed")
def test_a_stage_of_somebody_elses_stays_as_it_is(kubectl: Kubectl) -> None:
    kubectl.apply(profile("mine", start={"delay": {"fixed": "2s"}}))
    settled(kubectl, "mine", "True", "True", "False")
    (first, *_) = stages(kubectl)
    name = first.partition("/")[2]
    kubectl("delete", "kpp", "mine")
    eventually(lambda: not stages(kubectl), describe="its Stages are gone")
    reference = {"apiGroup": "v1", "kind": "Pod"}
    selector = {"matchLabels": {"never": "there"}}
    kubectl.apply(
        {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "Stage",
            "metadata": {"name": name},
            "spec": {"resourceRef": reference, "selector": selector, "next": {"delete": True}},
        }
    )
    before = kubectl.json("get", "stage", name)
    kubectl.apply(profile("mine", start={"delay": {"fixed": "2s"}}))
    settled(kubectl, "mine", "True", "False", "False")
    kubectl("delete", "kpp", "mine")
    eventually(lambda: not stages(kubectl), describe="its other Stages are gone")
    assert kubectl.json("get", "stage", name) == before
    kubectl("delete", "stage", name)
