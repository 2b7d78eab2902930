"""What a Node of a simulated cloud says of itself that matters to cluster-autoscaler.

Times are epoch seconds.
"""

from kwok_operator.core.cloud.annotations import Mark


def is_stuck(mark: Mark | None) -> bool:
    """Whether the node is to be deleted, and the cloud puts it off."""
    return mark is not None and mark.delete_at is not None


def is_initializing(mark: Mark | None, *, now: float) -> bool:
    """Whether the node still has startup taints, or lacks some of its resources.

    Not seen from its taints, as those of the group's template stay.
    """
    if mark is None or mark.life is None:
        return False
    shown = mark.life.desired(int(now * 1_000))
    return bool(shown.taints or shown.missing)


def is_over(mark: Mark, *, capped: bool, now: float) -> bool:
    """Whether the cloud takes the node back now; `capped` is whether others must wait."""
    life = mark.lived(capped=capped)
    end = life.end
    return end is not None and life.born + end.gone_after <= now * 1_000
