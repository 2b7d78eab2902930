"""What the reconciler knows of a group, for tests of what is made of it."""

from typing import Final

from kwok_operator.nodegroups.plan import Target
from kwok_operator.nodegroups.status import Facts

AT_REST: Final = Facts(
    generation=7,
    target=Target(3, 3),
    paused=False,
    replicas=3,
    ready=3,
    updated=3,
    pending=0,
    failed=0,
    leaving=0,
    terminating=(),
    foreign=(),
    next_serial=5,
    batches=(),
)
"""A group of three nodes, all of them Ready, that has had five."""
