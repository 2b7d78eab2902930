"""The brake: how many nodes all groups together may have."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kwok_operator.nodegroups.budget import NodeBudget

LIMIT = 10
GROUPS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(GROUPS, st.none() | st.integers(0, 15), st.booleans()), max_size=20)


@settings(max_examples=40)
@given(STEPS)
def test_groups_share_the_limit_and_hear_of_room(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    """Each step grants a group so many nodes, or (None) has it go."""
    woken: list[str] = []
    budget = NodeBudget(limit=LIMIT, freed=woken.append)
    granted: dict[str, int] = {}
    waiting: set[str] = set()
    for name, nodes, wants_more in steps:
        before = granted.pop(name, 0)
        waiting.discard(name)
        freed_for = sorted(waiting) if (nodes or 0) < before else []
        if nodes is None:
            budget.release(name)
        else:
            budget.grant(name, nodes, wants_more=wants_more)
            granted[name] = nodes
            waiting |= {name} if wants_more else set()
        assert sorted(woken) == freed_for
        woken.clear()
        for other in "abcd":
            theirs = sum(granted.values()) - granted.get(other, 0)
            assert budget.room(other) == max(0, LIMIT - theirs)
        assert (budget.granted, budget.waiting) == (sum(granted.values()), len(waiting))
