"""A cloud that takes instances back, as spot clouds do.

A Node that is to go is given notice: a taint, a condition and an Event; it goes when the notice is
over, and not before, and the group replaces it.
"""

from typing import Any

import pytest

from kwok_operator.cloud.api.cloud import NOTICE_CONDITION, NOTICE_TAINT_KEY
from kwok_operator.constants import KIND
from kwok_operator.controlplane import Cluster
from tests.e2e.clouds import Chronicle, Version, chronicled, condition_of, life_of, taint_keys
from tests.e2e.groups import apply_group, patch_group, serial_of
from tests.e2e.kubectl import Kubectl, eventually
from tests.e2e.operator import Process


def under_notice(version: Version) -> bool:
    return NOTICE_TAINT_KEY in taint_keys(version.node)


def condition(version: Version) -> dict[str, Any]:
    return condition_of(version.node["status"], NOTICE_CONDITION)


def told_of(kubectl: Kubectl, kind: str) -> set[str]:
    """The names of the objects of a kind that have an Event about an interruption."""
    found = kubectl.json("get", "events", "--all-namespaces", "--field-selector=reason=Interrupted")
    objects = [event["involvedObject"] for event in found["items"]]
    return {about["name"] for about in objects if about["kind"] == kind}


@pytest.mark.core
def test_a_node_is_given_notice_and_goes_and_is_replaced(
    cluster: Cluster, kubectl: Kubectl, operator: Process, group_name: str
) -> None:
    # Of a notice that is over before the operator looks, nobody learns.
    spot = {"lifetime": {"uniform": {"min": "17s", "max": "21s"}}, "notice": "15s"}
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
        assert end is not None and 17_000 <= end.after <= 21_000
        born = life_of(seen.nodes[name][0].node).born
        assert not under_notice(seen.nodes[name][0])
        noticed = seen.first(name, under_notice)
        assert noticed, f"{name} was given notice"
        assert noticed.at >= born + end.after - 15_000
        assert gone_at >= born + end.after
        told = seen.first(name, lambda version: condition(version).get("status") == "True")
        assert told, f"{name} had the condition"
        assert condition(told)["reason"] == "Interrupted"
    assert seen.most == 3, "replaced when it has gone"
    serials = [serial_of(name) for name in seen.born]
    assert sorted(serials) == list(range(len(serials))), "each came once, under a name of its own"
    assert group_name in told_of(kubectl, KIND)
    eventually(lambda: set(seen.gone_at) <= told_of(kubectl, "Node"), describe="each has an Event")


def gone(seen: Chronicle, group: str) -> list[str]:
    return [name for name in list(seen.gone_at) if name.startswith(f"{group}-")]
