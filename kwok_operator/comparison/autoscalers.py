"""Checks, by the fields of their scenarios, whether a comparison of arms with different autoscalers
is fair: whether only the decisions of the autoscalers differ.

arms --unlike_autoscalers--> whether it is fair, and a sentence; None if all arms have Karpenter,
                             or none
"""

from collections.abc import Sequence

from kwok_operator.comparison.plan import ComparisonArm
from kwok_operator.formats.words import names_in_words
from kwok_operator.rehearsal.scenario.process import FlagSet


def unlike_autoscalers(arms: Sequence[ComparisonArm]) -> tuple[bool, str] | None:
    """Compares the arms that have Karpenter with the other arms. Returns whether only the decisions
    of the autoscalers differ, and a sentence on it; None if all arms have Karpenter, or none.
    """
    having = [arm for arm in arms if arm.scenario.karpenters]
    if not having or len(having) == len(arms):
        return None
    fast = [
        arm.name
        for arm in arms
        for each in arm.scenario.processes
        if each.cluster_autoscaler is not None and each.cluster_autoscaler.values is FlagSet.FAST
    ]
    sentences = []
    if fast:
        sentences.append(
            f"{names_in_words(fast)} has cluster-autoscaler with values: fast, which shortens its"
            " delays; those of Karpenter can't be set (it looks for savings every 10 s, and waits"
            " 15 s before it acts), so waits and node-hours favour cluster-autoscaler: values:"
            " production has its own delays"
        )
    else:
        sentences.append("each has its own delays, of which Karpenter's can't be set")
    karpenters = [each for arm in having for each in arm.scenario.karpenters.values()]
    if any(each.node_pools is None for each in karpenters):
        sentences.append(
            "Karpenter keeps the maxSize of all groups of a NodePool together, cluster-autoscaler"
            " that of each group"
        )
    unlike = [f"Karpenter of {arm.name} {each}" for arm in having for each in arm.unlike]
    return not fast and not unlike, "; ".join([*sentences, *unlike])
