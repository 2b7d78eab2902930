"""Which groups cluster-autoscaler may balance, as a label of their nodes says."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwok_operator.nodegroups.alike import NOT_COMPARED, likeness

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
NODE: dict[str, Any] = {
    "metadata": {"labels": {"kubernetes.io/arch": "amd64", "tier": "web"}},
    "status": {
        "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110", "a.io/gpu": "1"},
        "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "110", "a.io/gpu": "1"},
    },
}
PARTS = ("zone", "pool", "nodegroup")
ABOUT_KIND = {
    # Not where a node is or which pool it belongs to, but what it is.
    "eks.amazonaws.com/nodegroup-image",
    "kubernetes.azure.com/nodepool-type",
    "karpenter.sh/nodepool-hash",
    "karpenter.sh/nodepool-hash-version",
}


@pytest.mark.parametrize("cloud", ["eks", "aks", "gke", "alibaba", "ibm"])
def test_pools_and_zones_of_the_clouds_are_not_compared(cloud: str) -> None:
    labels = {
        label
        for file in CORPUS.glob(f"{cloud}*.clean.yaml")
        for label in yaml.safe_load(file.read_text())["metadata"]["labels"]
    }
    telling = {
        label
        for label in labels - ABOUT_KIND
        if any(part in label.rpartition("/")[2] for part in PARTS)
    }
    assert telling
    assert telling <= NOT_COMPARED


@pytest.mark.parametrize(
    ("part", "key", "value", "alike"),
    [
        ("labels", "topology.kubernetes.io/zone", "a", True),
        ("labels", "eks.amazonaws.com/nodegroup", "a", True),
        ("labels", "tier", "db", False),
        ("labels", "other", "", False),
        ("capacity", "cpu", "4000m", True),
        ("capacity", "cpu", "4001m", False),
        ("capacity", "a.io/gpu", "2", False),
        ("capacity", "b.io/x", "1", False),
        ("capacity", "memory", "16777000Ki", True),
        ("capacity", "memory", "17Gi", False),
        ("allocatable", "cpu", "3900m", True),
        ("allocatable", "cpu", "3", False),
        ("allocatable", "memory", "14Gi", False),
        ("allocatable", "memory", "much", False),
    ],
)
def test_groups_alike_as_for_the_autoscaler(part: str, key: str, value: str, alike: bool) -> None:
    other = copy.deepcopy(NODE)
    other["metadata" if part == "labels" else "status"][part][key] = value
    assert (likeness(other) == likeness(NODE)) is alike
