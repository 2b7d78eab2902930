"""What a person needs to know to tell templates apart: where they differ, what they carry.

For sentences only: paths and keys, few and in a useful order.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from kwok_operator.constants import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL

MAX_PATHS: Final = 5
MAX_KEYS: Final = 15
_USEFUL: Final = (
    INSTANCE_TYPE_LABEL,
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
    "kops.k8s.io/instancegroup",
    ZONE_LABEL,
)
_USELESS: Final = frozenset({HOSTNAME_LABEL, "kubectl.kubernetes.io/last-applied-configuration"})


def differing_paths(one: Any, other: Any) -> list[str]:
    """The first few paths at which two values differ, such as `status.capacity.cpu`."""
    return list(islice(_differences(one, other, ""), MAX_PATHS))


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted(one.keys() | other.keys()):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(one.get(key), other.get(key), below)
    elif one != other:
        yield path


def useful_keys(maps: Sequence[object]) -> list[str]:
    """Keys of labels or annotations: those that name groups first, then those of most nodes."""
    count: Counter[str] = Counter()
    for texts in maps:
        if isinstance(texts, Mapping):
            count.update(str(key) for key, value in texts.items() if value)
    order = {key: place for place, key in enumerate(_USEFUL)}
    keys = sorted(count.keys() - _USELESS, key=lambda k: (order.get(k, len(order)), -count[k], k))
    return keys[:MAX_KEYS]
