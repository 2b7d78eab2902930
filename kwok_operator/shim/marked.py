"""What a Node of a simulated cloud says of itself that matters to cluster-autoscaler.

Of a Node that has none of our annotations, each question costs one look.
"""

from kwok_operator import constants
from kwok_operator.core.cloud.marks import mark_of
from kwok_operator.kube.decode import NodeView


def is_stuck(view: NodeView) -> bool:
    """Whether the node is to be deleted, and the cloud puts it off."""
    if constants.DELETE_AT_ANNOTATION not in view.annotations:
        return False
    mark = mark_of(labels=view.labels, annotations=view.annotations)
    return mark is not None and mark.delete_at is not None


def is_initializing(view: NodeView, *, now: float) -> bool:
    """Whether the node still has startup taints, or lacks some of its resources.

    `now` is in epoch seconds. Not seen from its taints, as those of the group's template stay.
    """
    if constants.LIFE_ANNOTATION not in view.annotations:
        return False
    mark = mark_of(labels=view.labels, annotations=view.annotations)
    if mark is None or mark.life is None:
        return False
    shown = mark.life.view(int(now * 1_000))
    return bool(shown.taints or shown.missing)
