"""The taint of new nodes comes off, and nothing else does: whatever a node carries, and whatever
becomes of it between the look and the write.

The patch is applied as an API server would, to the node as it is by then.
"""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.core.usable import is_not_ready_taint, untaint
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
    lambda uid, taints, conditions: {
        "metadata": {"uid": uid},
        "spec": {"taints": taints} if taints else {},
        "status": {"conditions": conditions} if conditions else {},
    },
    st.sampled_from(["1", "2"]),
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


@given(seen=NODES, now=NODES)
def test_a_node_that_has_changed_loses_what_was_seen_or_nothing(seen: Json, now: Json) -> None:
    patch = untaint(seen)
    try:
        after = json_patch(now, patch or [])
    except Refused:
        return
    gone = [taint for taint in taints(now) if taint not in taints(after)]
    assert {**after, "spec": now["spec"]} == now
    if gone:
        assert is_ready(now)
        assert now["metadata"] == seen["metadata"]
        assert all(map(is_not_ready_taint, gone))
        assert gone[0] in taints(seen)
