"""A cloud that takes instances back, as spot clouds do.

- a Node that is to go is given notice: a taint, a condition and an Event; it goes when the notice
  is over, and not before, and the group replaces it
- no more are under notice at a time than may be, and each has its turn
- no Node lives longer than it may
"""

from typing import Any

from hack.controlplane import Cluster
from kwok_operator.constants import KIND
from kwok_operator.models.cloud import NOTICE_CONDITION, NOTICE_TAINT_KEY
from tests.e2e.clouds import Chronicle, Version, chronicled, condition_of, life_of, taint_keys
from tests.e2e.groups import apply_group, patch_group, serial_of
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process

SLACK = 1_000
"""Milliseconds that two clocks and times in whole seconds may differ by."""


def under_notice(version: Version) -> bool:
    return NOTICE_TAINT_KEY in taint_keys(version.node)


def condition(version: Version) -> dict[str, Any]:
    return condition_of(version.node["status"], NOTICE_CONDITION)


def told_of(kubectl: Kubectl, kind: str) -> set[str]:
    """The names of the objects of a kind that have an Event about an interruption."""
    found = kubectl.json("get", "events", "--all-namespaces", "--field-selector=reason=Interrupted")
    objects = [event["involvedObject"] for event in found["items"]]
    return {about["name"] for about in objects if about["kind"] == kind}


def test_a_node_is_given_notice_and_goes_and_is_replaced(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    spot = {"lifetime": {"uniform": {"min": "6s", "max": "10s"}}, "notice": "4s"}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=3, cloud={"interruptions": spot})
        eventually(
            lambda: len(seen.gone_at) >= 3 and len(seen.here()) == 3,
            describe="three have gone, and there are three again",
            timeout=240,
        )
        # Nodes keep what was decided about them: those that are born from now on stay.
        patch_group(kubectl, group_name, cloud={"interruptions": None})
    for name, gone_at in seen.gone_at.items():
        end = life_of(seen.nodes[name][0].node).end
        assert end is not None and 6_000 <= end.after <= 10_000
        born = life_of(seen.nodes[name][0].node).born
        assert not under_notice(seen.nodes[name][0])
        noticed = seen.first(name, under_notice)
        assert noticed, f"{name} was given notice"
        assert noticed.at >= born + end.after - 4_000
        assert gone_at >= born + end.after
        told = seen.first(name, lambda version: condition(version).get("status") == "True")
        assert told, f"{name} had the condition"
        assert condition(told)["reason"] == "Interrupted"
    assert seen.most == 3, "replaced when it has gone"
    serials = [serial_of(name) for name in seen.born]
    assert sorted(serials) == list(range(len(serials))), "each came once, under a name of its own"
    assert group_name in told_of(kubectl, KIND)
    eventually(lambda: set(seen.gone_at) <= told_of(kubectl, "Node"), describe="each has an Event")


def test_only_so_many_are_under_notice_at_a_time(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    spot = {"lifetime": {"fixed": "4s"}, "notice": "3s", "atATime": 1}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=4, cloud={"interruptions": spot})
        eventually(
            lambda: {0, 1, 2, 3} <= {serial_of(name) for name in seen.gone_at},
            describe="all of the first four have gone",
            timeout=240,
        )
    assert most_under_notice(seen) == 1
    for name, gone_at in seen.gone_at.items():
        noticed = seen.first(name, under_notice)
        assert noticed and gone_at >= noticed.at + 3_000 - SLACK, "with all of the notice"


def most_under_notice(seen: Chronicle) -> int:
    """The most nodes that were under notice at a time."""
    begins = {name: version.at for name in seen.born if (version := seen.first(name, under_notice))}
    return max(
        sum(start <= at < seen.gone_at.get(name, at + 1) for name, start in begins.items())
        for at in begins.values()
    )


def test_no_node_lives_longer_than_it_may(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    spot = {"maxLifetime": "6s", "notice": "4s"}
    with chronicled(cluster, group_name) as seen:
        apply_group(kubectl, group_name, targetSize=2, cloud={"interruptions": spot})
        eventually(
            lambda: {0, 1} <= {serial_of(name) for name in seen.gone_at},
            describe="the first two have gone",
            timeout=240,
        )
    for name in seen.gone_at:
        life = life_of(seen.nodes[name][0].node)
        assert life.end and (life.end.after, life.end.reason) == (6_000, "MaxLifetime")
        told = seen.first(name, lambda version: condition(version).get("status") == "True")
        assert told and condition(told)["reason"] == "MaxLifetime"
