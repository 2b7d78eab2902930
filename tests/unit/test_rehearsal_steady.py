"""When a cluster is steady: what is still under way, by its objects as the API server has them."""

from typing import Any

import pytest

from kwok_operator.rehearsal.judge.steady import (
    UnderWay,
    groups_under_way,
    held_back,
    not_scheduled,
    without_their_pods,
)


def body(generation: int = 2, **parts: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "shop", "uid": "u", "generation": generation}
    return {"metadata": metadata, **parts}


def condition(kind: str, status: str, **more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status, **more}]}


@pytest.mark.parametrize(
    ("status", "waits_for", "held"),
    [
        ({}, ["a (the operator has not reported on it yet)"], False),
        (
            condition("Ready", "False", observedGeneration=1, reason="Paused"),
            ["a (the operator has not reported on it yet)"],
            False,
        ),
        (
            condition("Ready", "False", observedGeneration=2, reason="Paused", message="0 of 3."),
            ["a (Paused: 0 of 3.)"],
            True,
        ),
        (
            condition("Ready", "False", observedGeneration=2, reason="Outage", message="0 of 3."),
            ["a (Outage: 0 of 3.)"],
            False,
        ),
        (condition("Ready", "True", observedGeneration=2), [], False),
    ],
)
def test_groups(status: dict[str, Any], waits_for: list[str], held: bool) -> None:
    assert groups_under_way([body(status=status)]) == waits_for
    assert held_back([body(status=status)]) == (waits_for if held else [])


SEEN = {"observedGeneration": 2}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "steady"),
    [
        ("Deployment", {}, {"observedGeneration": 1, "replicas": 1}, False),
        ("Deployment", {"replicas": 2}, {**SEEN, "replicas": 1}, False),
        ("Deployment", {"replicas": 2}, {**SEEN, "replicas": 2}, True),
        ("Deployment", {"replicas": 0}, SEEN, True),
        ("Deployment", {"replicas": None}, SEEN, False),
        ("Deployment", {"paused": True}, SEEN, True),
        ("ReplicaSet", {}, {**SEEN, **condition("ReplicaFailure", "True")}, True),
        ("StatefulSet", {"replicas": 3}, {**SEEN, "replicas": 1}, False),
        ("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 2}, False),
        ("DaemonSet", {}, SEEN | dict.fromkeys(("desiredNumberScheduled",), 0), True),
        ("Job", {"parallelism": None}, {}, False),
        ("Job", {"parallelism": 3, "completions": 2}, {"active": 1, "succeeded": 1}, True),
        ("Job", {"suspend": True}, {}, True),
        ("Job", {}, condition("Complete", "True"), True),
    ],
)
def test_controllers(kind: str, spec: dict[str, Any], status: dict[str, Any], steady: bool) -> None:
    found = without_their_pods(kind, [body(spec=spec, status=status)], [])
    assert found == ([] if steady else [f"{kind} shop/a"])


def test_a_stateful_set_waits_for_its_first_pod() -> None:
    pod = {"metadata": {"ownerReferences": [{"uid": "u"}]}}
    whole = body(spec={"replicas": 3}, status={**SEEN, "replicas": 1})
    assert without_their_pods("StatefulSet", [whole], [pod]) == []


REFUSED = condition("PodScheduled", "False", reason="Unschedulable")
GATED = condition("PodScheduled", "False", reason="SchedulingGated")


@pytest.mark.parametrize(
    ("pod", "retried", "steady"),
    [
        (body(), True, False),
        (body(status=REFUSED), False, False),
        (body(status=REFUSED), True, True),
        (body(status=GATED), False, True),
        (body(spec={"schedulerName": "other"}), True, True),
        (body(status={"phase": "Failed"}), True, True),
    ],
)
def test_pods(pod: dict[str, Any], retried: bool, steady: bool) -> None:
    assert not_scheduled([pod], retried=retried) == ([] if steady else ["shop/a"])


@pytest.mark.parametrize(
    ("message", "steady"),
    [
        ("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", True),
        ("0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.", False),
        ("0/33 nodes are available: 33 Insufficient cpu.", False),
        ("0/3 nodes are available: 3 node(s) had untolerated taint {a: b}.", False),
    ],
)
def test_pods_that_were_tried_on_all_nodes_are_not_waited_for(message: str, steady: bool) -> None:
    refused = condition("PodScheduled", "False", reason="Unschedulable", message=message)
    found = not_scheduled([body(status=refused)], retried=False, nodes=3)
    assert found == ([] if steady else ["shop/a"])


@pytest.mark.parametrize("part", ["not_ready", "without_pods", "not_scheduled"])
def test_what_is_waited_for_is_short(part: str) -> None:
    names = [f"shop/web-{n:04}" for n in range(1_000)]
    lists: dict[str, Any] = {part: names}
    found = UnderWay(1_000, [], [], [])._replace(**lists)
    assert not found.is_steady
    assert "shop/web-0000" in str(found) and len(str(found)) < 200
