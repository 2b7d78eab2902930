"""What the status of a KwokCapacityPool says: who takes how much of it.

    Use (counted from groups and nodes) + spec  --pool_status-->  KwokCapacityPoolStatus

Shown only: nobody decides anything from it, so it may be late, lost or edited without harm.
"""

from collections.abc import Sequence
from fractions import Fraction

from kwok_operator.core.cloud.stock import Share, Use
from kwok_operator.core.quantity import format_quantity
from kwok_operator.models.capacitypool import (
    MAX_SHOWN_GROUPS,
    GroupShare,
    KwokCapacityPoolSpec,
    KwokCapacityPoolStatus,
)
from kwok_operator.models.status import Condition


def pool_status(
    name: str,
    spec: KwokCapacityPoolSpec,
    *,
    use: Use,
    refused: int,
    generation: int,
    conditions: Sequence[Condition] = (),
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


def _resources(share: Share, spec: KwokCapacityPoolSpec) -> dict[str, str]:
    return {
        name: format_quantity(share.resources.get(name, Fraction()), like=limit)
        for name, limit in sorted(spec.resources.items())
    }
