"""Karpenter in a rehearsal, as people play it: with KARPENTER its program, else a stand-in."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.constants import NODE_GROUP_LABEL
from tests.e2e.rehearsals import GROUP, karpenter_in, play

PRICED: dict[str, Any] = {
    **GROUP,
    "spec": {
        "template": GROUP["spec"]["template"],
        "autoscaling": {"minSize": 0, "maxSize": 5},
        "price": {"hourly": "0.5"},
    },
}
WEB: dict[str, Any] = {"name": "web", "count": 8, "pods": {"cpu": "900m", "memory": "1Gi"}}
POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "own"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh",
                    "kind": "KWOKNodeClass",
                    "name": "default",
                },
                "requirements": [],
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
    },
}


def scenario(directory: Path, **parts: Any) -> Path:
    path = directory / "scenario.yaml"
    given = {"apply": [{"object": PRICED}], "workloads": [WEB], **parts}
    path.write_text(yaml.safe_dump(given))
    return path


@pytest.mark.core
def test_pods_get_nodes_and_empty_nodes_go(tmp_path: Path, own_cache: dict[str, str]) -> None:
    soon = {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}
    path = scenario(
        tmp_path,
        processes=[karpenter_in(tmp_path, disruption=soon)],
        timeline=[
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 8},
                "scale": {"what": "deployment/web", "replicas": 0},
            }
        ],
        until={"condition": {"figure": "churn.deleted", "atLeast": 2}, "atMost": "3m"},
        expect=[
            {"figure": "nodes.max", "of": {"group": "a"}, "equals": 2},
            {"figure": "nodes.final", "equals": 0},
            {"figure": "cost", "atLeast": 0.0001},
            {"figure": "utilisation.cpu.max", "equals": 0.9},
            {"figure": "warnings", "equals": 0},
        ],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_node_that_is_interrupted_is_drained_and_another_comes(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    # Nodes get notice after 6 s, and are drained long before their end.
    spot = {"interruptions": {"lifetime": {"fixed": "24s"}, "notice": "18s", "atATime": 1}}
    b = {"metadata": {"name": "b"}, "spec": {**PRICED["spec"], "cloud": spot}}
    path = scenario(
        tmp_path,
        apply=[{"object": PRICED}, {"object": PRICED | b}],
        processes=[karpenter_in(tmp_path, disruption={"consolidateAfter": "Never"})],
        workloads=[
            WEB | {"pods": WEB["pods"] | {"nodeSelector": {NODE_GROUP_LABEL: "a"}}},
            {"name": "batch", "pods": WEB["pods"] | {"nodeSelector": {NODE_GROUP_LABEL: "b"}}},
        ],
        timeline=[
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 8},
                "interrupt": {"group": "a", "count": 1, "notice": "30s"},
            }
        ],
        # The third end is the second one of b: until then, all replacements have come.
        until={"condition": {"figure": "churn.deleted", "atLeast": 3}, "atMost": "3m"},
        expect=[
            {"figure": "churn.created", "atLeast": 5},
            {"figure": "churn.deleted", "of": {"group": "a"}, "equals": 1},
            {"figure": "churn.deleted", "of": {"group": "b"}, "atLeast": 1},
            {"figure": "losses", "equals": 0},
            {"figure": "warnings", "of": {"program": "operator"}, "equals": 0},
        ],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nodes_of_an_own_pool_are_late_and_drift(tmp_path: Path, own_cache: dict[str, str]) -> None:
    changed = {"spec": {"template": {"metadata": {"labels": {"example.com/image": "v2"}}}}}
    own = {"nodePools": [{"object": POOL}], "nodeClass": {"registrationDelay": "8s"}}
    path = scenario(
        tmp_path,
        processes=[karpenter_in(tmp_path, **own)],
        timeline=[
            {
                "after": {"figure": "pods.running", "of": {"workload": "web"}, "atLeast": 8},
                "patch": {"what": "nodepool/own", "patch": changed},
            }
        ],
        until={
            "condition": {"figure": "disruptions.Drifted", "atLeast": 2},
            "atMost": "3m",
        },
        expect=[
            {"figure": "nodes.max", "of": {"nodePool": "own"}, "atLeast": 2},
            {"figure": "pendingSeconds.max", "atLeast": "8s"},
            {"figure": "nodeClaims.neverRegistered", "equals": 0},
            {"figure": "disruptions.Empty", "equals": 0},
        ],
    )
    done = play(path, tmp_path / "out", reuse=own_cache)
    assert done.returncode == 0, done.stdout + done.stderr
