"""Makes the status of a KwokCapacityPool: how much of it each group takes.

    Use (counted from groups and nodes) + spec  --pool_status-->  KwokCapacityPoolStatus

Nothing is decided from this status, so it may be late, lost or edited without harm. One thing is
read back: since when there is an outage, which a restart of the operator must not change.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from kwok_operator.cloud.api.capacitypool import (
    MAX_SHOWN_GROUPS,
    GroupShare,
    KwokCapacityPoolSpec,
    KwokCapacityPoolStatus,
    PoolCondition,
    PoolConditionType,
)
from kwok_operator.cloud.stock import Share, Use
from kwok_operator.formats.quantity import format_quantity
from kwok_operator.nodegroups.api.status import POOL_EXHAUSTED, Verdict, conditions_of


def pool_status(
    name: str,
    spec: KwokCapacityPoolSpec,
    *,
    use: Use,
    refused: int,
    generation: int,
    conditions: Sequence[PoolCondition] = (),
) -> KwokCapacityPoolStatus:
    """The status of a pool: instances taken, and the resources that it limits.

    `refused`: instances of all groups that found no room.
    """
    shares = sorted(use.shares(name).items(), key=lambda item: (-item[1].instances, item[0]))
    shown = shares[:MAX_SHOWN_GROUPS]
    total = use.total(name)
    return KwokCapacityPoolStatus(
        observed_generation=generation,
        instances=total.instances,
        resources=_resources(total, spec),
        groups=tuple(
            GroupShare(group=group, instances=share.instances, resources=_resources(share, spec))
            for group, share in shown
        ),
        other_groups=len(shares) - len(shown),
        refused=refused,
        conditions=tuple(conditions),
    )


def pool_conditions(
    spec: KwokCapacityPoolSpec,
    *,
    refused: int,
    generation: int,
    previous: Iterable[PoolCondition],
    outage_since: str | None,
    now: str,
) -> tuple[PoolCondition, ...]:
    """The conditions Outage and Exhausted of a pool, with the times of their last transitions.

    `outage_since` and `now` are RFC 3339, in whole seconds.
    """
    outage = Verdict(False, "NoOutage", "Nodes and instances come as they would.")
    if spec.outage:
        message = "spec.outage is true: no Node is Ready, no instance comes."
        outage = Verdict(True, "Outage", message)
    exhausted = Verdict(False, "HasRoom", "No instance waits for room.")
    if refused:
        wait = "1 instance waits" if refused == 1 else f"{refused} instances wait"
        exhausted = Verdict(True, POOL_EXHAUSTED, f"{wait} for room.")
    return conditions_of(
        PoolCondition,
        {PoolConditionType.OUTAGE: outage, PoolConditionType.EXHAUSTED: exhausted},
        previous=previous,
        generation=generation,
        now=now,
        began={PoolConditionType.OUTAGE: outage_since},
    )


def _resources(share: Share, spec: KwokCapacityPoolSpec) -> dict[str, str]:
    return {
        name: format_quantity(share.resources.get(name, Fraction()), like=limit)
        for name, limit in sorted(spec.resources.items())
    }
