"""The taint of new nodes comes off, and nothing else does: whatever a node carries, and whatever
becomes of it between the look and the write.

The patch is applied as an API server would, to the node as it is by then.
"""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kwok_operator.kube.taints import is_not_ready_taint
from kwok_operator.nodegroups.usable import untaint
from tests.fakes.store import Refused, json_patch

Json = dict[str, Any]
OURS = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

TAINTS = st.lists(
    st.one_of(
        st.just(OURS),
        st.fixed_dictionaries(
            {
                "key": st.sampled_from([OURS["key"], "node.kubernetes.io/unreachable", "gpu"]),
                "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
            },
            optional={
                "value": st.sampled_from(["", "mine"]),
                "timeAdded": st.just("2026-01-02T03:04:05Z"),
            },
        ),
    ),
    max_size=5,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Ready", "DiskPressure", "NetworkUnavailable"]),
            "status": st.sampled_from(["True", "False", "Unknown"]),
        }
    ),
    max_size=3,
    unique_by=lambda condition: condition["type"],
)
NODES = st.builds(
    lambda taints, conditions: {
        "metadata": {"uid": "1"},
        "spec": {"taints": copy.deepcopy(taints)} if taints else {},
        "status": {"conditions": conditions} if conditions else {},
    },
    TAINTS,
    CONDITIONS,
)


def is_ready(node: Json) -> bool:
    return {"type": "Ready", "status": "True"} in node["status"].get("conditions", ())


def taints(node: Json) -> list[Json]:
    return node["spec"].get("taints") or []


@given(node=NODES)
def test_a_ready_node_loses_that_taint_and_nothing_else(node: Json) -> None:
    patch, before = untaint(node), copy.deepcopy(node)
    assert (patch is not None) is (is_ready(node) and any(map(is_not_ready_taint, taints(node))))
    after = json_patch(node, patch or [])
    left = [taint for taint in taints(before) if not is_not_ready_taint(taint)]
    if patch is not None:
        assert taints(after) == left
        before["spec"]["taints"] = left
    assert after == before


def becomes_not_ready(node: Json) -> None:
    for condition in node["status"].get("conditions", ()):
        condition["status"] = "Unknown"


def gets_a_value(node: Json) -> None:
    for taint in taints(node):
        taint["value"] = "mine"


def gets_a_taint_before_the_others(node: Json) -> None:
    node["spec"]["taints"] = [{"key": "mine", "effect": "NoSchedule"}, *taints(node)]


def loses_the_first_taint(node: Json) -> None:
    node["spec"]["taints"] = taints(node)[1:]


def gets_a_condition_before_the_others(node: Json) -> None:
    conditions = node["status"].get("conditions", ())
    node["status"]["conditions"] = [{"type": "Mine", "status": "True"}, *conditions]


def is_another_of_its_name(node: Json) -> None:
    node["metadata"]["uid"] += "0"


CHANGES = (
    becomes_not_ready,
    gets_a_value,
    gets_a_taint_before_the_others,
    loses_the_first_taint,
    gets_a_condition_before_the_others,
    is_another_of_its_name,
)


NEW: Json = {
    "metadata": {"uid": "1"},
    "spec": {"taints": [OURS]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@settings(max_examples=50)
@given(
    seen=NODES.filter(lambda node: untaint(node) is not None),
    changes=st.lists(st.sampled_from(CHANGES), max_size=3),
)
@example(seen=NEW, changes=[becomes_not_ready])
@example(seen=NEW, changes=[gets_a_value])
@example(seen=NEW, changes=[is_another_of_its_name])
def test_a_changed_node_loses_what_was_seen_or_nothing(
    seen: Json, changes: list[Callable[[Json], None]]
) -> None:
    now = copy.deepcopy(seen)
    for change in changes:
        change(now)
    try:
        after = json_patch(now, untaint(seen) or [])
    except Refused:
        return
    assert is_ready(now) and now["metadata"] == seen["metadata"]
    assert [taint for taint in taints(now) if not is_not_ready_taint(taint)] == taints(after)
    assert {**after, "spec": now["spec"]} == now
