"""What the status of a KwokCapacityPool says: who takes how much of it.

    Use (counted from groups and nodes) + spec  --pool_status-->  KwokCapacityPoolStatus

Shown only: nobody decides anything from it, so it may be late, lost or edited without harm. One
thing is read back: since when there is an outage, which a restart of the operator must not change.
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
from kwok_operator.nodegroups.api.status import POOL_EXHAUSTED


def pool_status(
    name: str,
    spec: KwokCapacityPoolSpec,
    *,
    use: Use,
    refused: int,
    generation: int,
    conditions: Sequence[PoolCondition] = (),
) -> KwokCapacityPoolStatus:
    """Of the resources those that the pool limits; `refused` are instances of all groups."""
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
    """Each as of when it last changed; `outage_since` and `now` are RFC 3339, in whole seconds."""
    outage = ("Outage", "spec.outage is true: no Node is Ready, no instance comes.")
    healthy = ("NoOutage", "Nodes and instances come as they would.")
    wait = "1 instance waits" if refused == 1 else f"{refused} instances wait"
    waiting = (POOL_EXHAUSTED, f"{wait} for room.")
    room = ("HasRoom", "No instance waits for room.")
    before = {condition.type: condition for condition in previous}
    conditions = []
    for kind, holds, (reason, message), began in (
        (PoolConditionType.OUTAGE, spec.outage, outage if spec.outage else healthy, outage_since),
        (PoolConditionType.EXHAUSTED, refused > 0, waiting if refused else room, None),
    ):
        old, status = before.get(kind), "True" if holds else "False"
        since = old.last_transition_time if old and old.status == status else began or now
        conditions.append(
            PoolCondition(
                type=kind,
                status="True" if holds else "False",
                reason=reason,
                message=message,
                observed_generation=generation,
                last_transition_time=since,
            )
        )
    return tuple(conditions)


def _resources(share: Share, spec: KwokCapacityPoolSpec) -> dict[str, str]:
    return {
        name: format_quantity(share.resources.get(name, Fraction()), like=limit)
        for name, limit in sorted(spec.resources.items())
    }
