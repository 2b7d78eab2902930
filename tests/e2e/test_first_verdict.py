"""`kwok-operator import --rehearse`: from a dump to a verdict in one command.

A cluster with nodes in two zones is full to the last CPU: without the larger zone some pods have no
place. A cluster-autoscaler, the real one where CLUSTER_AUTOSCALER names it, makes places.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from kwok_operator.constants import ZONE_LABEL

REAL: Final = os.path.expanduser(os.environ.get("CLUSTER_AUTOSCALER", ""))
LABELS: Final = {"app": "web"}
SPEC: Final = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1800m"}}}]}


def node(name: str, zone: str) -> dict[str, Any]:
    labels = {ZONE_LABEL: zone, "eks.amazonaws.com/nodegroup": "general"}
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    metadata = {"name": name, "uid": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def owned(kind: str, name: str, owner: str = "", **parts: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "labels": LABELS}
    if owner:
        maker = "Deployment" if kind == "ReplicaSet" else "ReplicaSet"
        reference = {"apiVersion": "apps/v1", "kind": maker, "name": owner, "uid": owner}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return {
        "apiVersion": "v1" if kind == "Pod" else "apps/v1",
        "kind": kind,
        "metadata": metadata,
        **parts,
    }


def cluster() -> dict[str, Any]:
    """Four nodes in zone a, two in zone b, two pods on each, and one that is pending."""
    nodes = {"n1": "a", "n2": "a", "n3": "a", "n4": "a", "n5": "b", "n6": "b"}
    on = [*(name for name in nodes for _ in range(2)), ""]
    spec = {
        "replicas": len(on),
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": SPEC},
    }
    pods = [
        owned(
            "Pod",
            f"web-1-{number}",
            "web-1",
            spec={**SPEC, **({"nodeName": where} if where else {})},
            status={"phase": "Running" if where else "Pending"},
        )
        for number, where in enumerate(on)
    ]
    items = [
        *(node(name, zone) for name, zone in nodes.items()),
        owned("Deployment", "web", spec=spec),
        owned("ReplicaSet", "web-1", "web", spec=spec),
        *pods,
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def first_verdict(directory: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    dump = directory / "dump.json"
    dump.write_text(json.dumps(cluster()))
    command = [sys.executable, "-m", "kwok_operator", "import", f"--from={dump}", "--rehearse"]
    done = subprocess.run(
        [*command, f"--output={directory / 'copy'}", *flags],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told: dict[str, Any] = json.loads((directory / "copy-verdict" / "verdict.json").read_text())
    by_zone = {each.get("zone", ""): each for each in told["questions"]}
    assert (told["podsWithNode"], told["podsPending"]) == (12, 1)
    assert by_zone[""]["held"], done.stdout + done.stderr
    for each in told["questions"]:
        assert (directory / "copy-verdict" / each["name"] / "report.html").exists()
    return done.returncode, by_zone


def test_a_copy_that_is_full_does_not_survive_the_loss_of_a_zone(tmp_path: Path) -> None:
    code, by_zone = first_verdict(tmp_path)
    assert code == 1
    assert [by_zone[zone]["podsInZone"] for zone in "ab"] == [8, 4]
    assert [by_zone[zone]["withoutPlace"] for zone in "ab"] == [8, 4]
    assert [by_zone[zone]["held"] for zone in "ab"] == [False, False]


@pytest.mark.skipif(not REAL, reason="CLUSTER_AUTOSCALER names no cluster-autoscaler")
def test_with_an_autoscaler_all_pods_have_a_place_again(tmp_path: Path) -> None:
    flags = (f"--binary=cluster-autoscaler={REAL}", "--max-size=x4")
    code, by_zone = first_verdict(tmp_path, *flags)
    assert code == 0, by_zone
    for zone, least in (("a", 4), ("b", 2)):
        assert by_zone[zone]["held"] and by_zone[zone]["newNodes"] >= least
        assert by_zone[zone]["secondsUntilAllRun"] > 0
