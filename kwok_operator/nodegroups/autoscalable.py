"""Decides whether cluster-autoscaler (CA) can drive a group, by the limits of its protocol.

    paused, instances, all groups' GPU labels  --hindrance-->  reason and sentence, for status
    the same limits and rules  -->  the shim's answers

The operator's status predicts the shim's answers, so both use this module. The shim encodes the
instances of a group; this module computes how long that encoding will be.
"""

from collections.abc import Mapping
from typing import Final

from kwok_operator.formats.words import few_names

MAX_ANSWER: Final = 4 * 2**20
"""The most bytes that CA's client reads of one answer. No setting raises it."""
DRIVABLE: Final = "Drivable", "cluster-autoscaler can drive this group, through a shim."
FROM_ONE_NODE: Final = (
    "FromOneNode",
    "cluster-autoscaler can drive this group, but learns of its nodes' devices and CSI drivers from"
    " a node that is there: a shim can't tell it of them. Set autoscaling.minSize to 1.",
)
_STATE: Final = 4
"""The bytes of an instance's state in protobuf: a field's key and length, and in it one field with
a small value."""


def answer_size(instances: int, *, id_length: int) -> int:
    """Returns the length in bytes of the response in which the shim lists this many instances, none
    of them failed.

    `id_length` is the length of a providerID in bytes.
    """
    return instances * _field(_field(id_length) + _STATE)


def too_many_instances(instances: int, size: int) -> str:
    """Returns a sentence for users: the response that lists the instances, of `size` bytes, is too
    long for CA, and what to do."""
    return (
        f"{instances} instances take {size} bytes, and cluster-autoscaler reads {MAX_ANSWER}: "
        f"split the group, or ask for at most {MAX_ANSWER * instances // size}"
    )


def gpu_label_in_use(labels: Mapping[str, str]) -> str:
    """Returns the GPU label that the shim reports to CA. CA takes one label for all groups: this is
    the label of the first group by name that sets one, or "" if no group does.

    `labels` maps names of groups to the labels that they set.
    """
    return labels[min(labels)] if labels else ""


def disagreement(labels: Mapping[str, str]) -> dict[str, str]:
    """Returns `labels` (group's name -> GPU label) if they are not all the same, else {}."""
    return dict(labels) if len(set(labels.values())) > 1 else {}


def hindrance(
    *,
    group: str,
    paused: bool,
    instances: int,
    id_length: int,
    gpu_labels: Mapping[str, str],
) -> tuple[str, str] | None:
    """Returns reason and sentence why CA can't drive the group at present; None if it can.

    `gpu_labels` maps names of groups that CA may drive to the GPU labels that they set.
    """
    if paused:
        return "SpecPaused", "cluster-autoscaler does not see this group. Set spec.paused to false."
    size = answer_size(instances, id_length=id_length)
    if size > MAX_ANSWER:
        return "TooManyInstances", f"{too_many_instances(instances, size)}."
    own = gpu_labels.get(group)
    others = [name for name, label in gpu_labels.items() if label != own] if own else []
    if others:
        return "GPULabelsDisagree", (
            f"cluster-autoscaler knows one GPU label and is told {gpu_label_in_use(gpu_labels)}, "
            f"that of group {min(gpu_labels)}. This group sets {own}, and another is set by "
            f"{few_names(others)}. Give all groups of a shim the same autoscaling.gpuLabel."
        )
    return None


def _field(length: int) -> int:
    """Returns the length in bytes of a protobuf field with `length` bytes of content: key, length
    and content."""
    return 1 + max(1, -(-length.bit_length() // 7)) + length
