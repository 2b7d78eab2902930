"""Nodes that a user's Stage makes what they are, in groups whose nodes are not born Ready."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.clouds import chronicled, life_of, staged_cluster
from tests.e2e.deploying import DEPLOY
from tests.e2e.groups import apply_group, is_ready, names_of, nodes_of, scale, wait_ready
from tests.e2e.own_cluster import OwnCluster, born_ready

GROUP = "sample-own-stage"
SAMPLE = DEPLOY / "samples" / "stages" / "own-stage.yaml"
DELAY = 3_000


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnCluster]:
    """The operator runs."""
    directory = tmp_path_factory.mktemp("own-stage")
    with staged_cluster("own-stage", directory=directory) as own:
        own.harness.start()
        yield own


def host_name(node: dict[str, Any]) -> str:
    (name,) = [a["address"] for a in node["status"]["addresses"] if a["type"] == "Hostname"]
    return str(name)


def is_made_by_stage(node: dict[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    version = node["status"]["nodeInfo"]["kubeletVersion"]
    own_name = host_name(node) == node["metadata"]["name"]
    return conditions.get("FabricUp") == "True" and version == "v1.33.1-odd" and own_name


def test_nodes_are_as_their_stage_says_and_others_as_ever(staged: OwnCluster) -> None:
    kubectl = staged.kubectl
    kubectl("apply", f"--filename={SAMPLE}")
    wait_ready(kubectl, GROUP)
    apply_group(kubectl, "plain", targetSize=2)
    wait_ready(kubectl, "plain")
    scale(kubectl, GROUP, 6)
    wait_ready(kubectl, GROUP)
    scale(kubectl, "plain", 6)
    wait_ready(kubectl, "plain")

    nodes = nodes_of(kubectl, GROUP)
    assert len(nodes) == 6
    assert all(map(is_made_by_stage, nodes))
    assert not any(born_ready(kubectl, name) for name in names_of(kubectl, GROUP))
    assert sum(born_ready(kubectl, name) for name in names_of(kubectl, "plain")) == 5
    assert len({host_name(node) for node in nodes_of(kubectl, "plain")}) == 1


def test_the_stage_begins_when_the_cloud_lets_go(staged: OwnCluster) -> None:
    kubectl = staged.kubectl
    group, stage = yaml.safe_load_all(SAMPLE.read_text())
    stage["metadata"]["name"] = "late"
    stage["spec"]["selector"]["matchLabels"]["kwok-operator.io/node-group"] = "late"
    kubectl.apply(stage)
    with chronicled(staged.cluster, "late") as seen:
        cloud = {"readinessDelay": {"fixed": "4s"}, "seed": "a"}
        apply_group(kubectl, "late", **{**group["spec"], "cloud": cloud})
        wait_ready(kubectl, "late")
    for name in seen.born:
        first = seen.first(name, lambda version: is_ready(version.node))
        assert first is not None and is_made_by_stage(first.node)
        life = life_of(first.node)
        assert life.ready_after == 4_000
        assert first.at >= life.born + 4_000 + DELAY
