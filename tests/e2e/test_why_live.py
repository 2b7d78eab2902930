"""What `kwok-operator why` computes of a live cluster: for random pods with every kind of
constraint, the nodes that would take a pod, and the reasons of the others with their numbers, are
those of the real scheduler.
"""

import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kwok_operator.causes.crowd import Crowd, PodNeeds
from kwok_operator.causes.fit import Fit, FitClaim, fit
from kwok_operator.causes.nodematch import FitNode
from kwok_operator.causes.schedulertexts import TAINTS, SchedulerText, parse_scheduler_text
from tests.e2e.api import NODES, Api
from tests.e2e.bare_cluster import bare_cluster
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.placements import nodes, random_pod, zonal_volume

PODS = "/api/v1/namespaces/default/pods"
NUMBER_OF_NODES = 12
NUMBER_OF_PODS = 120


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A cluster with nodes that are ready, and claims of volumes in two zones."""
    with bare_cluster("why", directory=tmp_path_factory.mktemp("why")) as (_, kubectl):
        for node in nodes(NUMBER_OF_NODES):
            kubectl.api.create(NODES, node)
        for zone in "ab":
            for each in zonal_volume(f"in-{zone}", zone):
                kubectl.apply(each)
        eventually(lambda: all(map(is_usable, kubectl.api.list(NODES)[0])), describe="nodes")
        claims = "/api/v1/namespaces/default/persistentvolumeclaims"
        eventually(
            lambda: {each["status"]["phase"] for each in kubectl.api.list(claims)[0]},
            {"Bound"}.__eq__,
            describe="claims are bound",
        )
        eventually(
            lambda: kubectl.api.get("/api/v1/namespaces/default/serviceaccounts/default"),
            describe="pods can be made",
        )
        yield kubectl


def is_usable(node: dict[str, Any]) -> bool:
    taints = {taint["key"] for taint in node["spec"].get("taints", ())}
    return "node.kubernetes.io/not-ready" not in taints


def outcome(api: Api, name: str) -> dict[str, Any]:
    """The condition PodScheduled, once there is one."""
    pod = api.get(f"{PODS}/{name}")
    return next(c for c in pod["status"]["conditions"] if c["type"] == "PodScheduled")


def computed(api: Api, name: str) -> Fit:
    """What we say about a pod, as if it had no node."""
    pods, _ = api.list("/api/v1/pods")
    pod = next(each for each in pods if each["metadata"]["name"] == name)
    spaces, _ = api.list("/api/v1/namespaces")
    crowd = Crowd(
        PodNeeds.of(pod),
        {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in spaces},
    )
    for each in pods:
        if each["metadata"]["name"] != name:
            crowd.add(each)
    claims = []
    for volume in pod["spec"].get("volumes", ()):
        if claim := volume.get("persistentVolumeClaim", {}).get("claimName"):
            body = api.get(f"/api/v1/persistentvolumes/{claim}")
            claims.append(FitClaim(claim, affinity=body["spec"]["nodeAffinity"]["required"]))
    return fit(crowd, [FitNode.of(each) for each in api.list(NODES)[0]], claims)


def counts(said: SchedulerText) -> dict[str, int]:
    """The scheduler's reasons; earlier versions name the taint."""
    found: dict[str, int] = {}
    for each in said.reasons:
        reason = re.sub(r"node\(s\) had untolerated taint \{.*", TAINTS, each.text)
        found[reason] = found.get(reason, 0) + each.count
    return found


def test_the_scheduler_gives_the_same_reasons(kubectl: Kubectl) -> None:
    api, draw, refused = kubectl.api, random.Random(5), 0
    seen: set[str] = set()
    for number in range(NUMBER_OF_PODS):
        pod = random_pod(f"p{number}", draw, claims=["in-a", "in-b"])
        name = pod["metadata"]["name"]
        api.create(PODS, pod)
        said = eventually(partial(outcome, api, name), describe=f"{name} is decided")
        found = computed(api, name)
        if said["status"] == "True":
            assert found.takes > 0, (pod["spec"], found)
            continue
        refused += 1
        message = parse_scheduler_text(said["message"])
        assert message is not None and message.nodes == NUMBER_OF_NODES
        assert (found.takes, found.reasons()) == (0, counts(message)), (pod["spec"], said)
        seen |= found.reasons().keys()
    # The draws must reach most of the filters, else the test says little.
    assert refused >= 20 and len(seen) >= 9, (refused, seen)
