"""Parses `--node-group-auto-discovery=clusterapi:namespace=..,clusterName=..,label=..` as CA
(cluster-autoscaler) does.

Several flags are alternatives; no flag means all objects. CA applies them also to MachineSets and
Machines that it looks up by name: if the Machine template lacks a label, CA doesn't find a group's
nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kwok_operator.api.base import is_label_key, is_label_value
from kwok_operator.clusterapi.capacity import DEFAULT_ARCH
from kwok_operator.clusterapi.keys import Keys

PREFIX: Final = "clusterapi"
EXAMPLE: Final = "clusterapi:namespace=default,clusterName=prod"


@dataclass(frozen=True, slots=True)
class Discovery:
    """What one --node-group-auto-discovery flag selects; an empty field matches everything."""

    namespace: str = ""
    cluster_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def matches(self, *, namespace: str, cluster_name: str, labels: Mapping[str, str]) -> bool:
        if self.namespace not in ("", namespace):
            return False
        if self.cluster_name not in ("", cluster_name):
            return False
        return self.labels.items() <= labels.items()


@dataclass(frozen=True, slots=True)
class ConvertTerms:
    """The settings of the cluster-autoscaler for which files with Cluster API's objects are
    converted."""

    keys: Keys = field(default_factory=Keys)
    discoveries: Sequence[Discovery] = ()
    default_arch: str = DEFAULT_ARCH


def parse_discovery(text: str) -> Discovery:
    """Parses the value of one flag. Raises ValueError that names the part that is wrong."""
    prefix, colon, rest = text.partition(":")
    if prefix != PREFIX or not colon or ":" in rest:
        raise ValueError(f"is not of the form {EXAMPLE}")
    names = {"namespace": "", "clusterName": ""}
    labels: dict[str, str] = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or "=" in value:
            raise ValueError(f"has {pair!r}, which is not of the form KEY=VALUE")
        if key in names:
            names[key] = value
        elif not is_label_key(key) or not is_label_value(value):
            raise ValueError(f"has {pair!r}, which is no label")
        elif labels.setdefault(key, value) != value:
            raise ValueError(f"asks for {key}={labels[key]} and {pair}; nothing has both")
    return Discovery(names["namespace"], names["clusterName"], labels)


def allowed(
    discoveries: Iterable[Discovery],
    *,
    namespace: str,
    cluster_name: str,
    labels: Mapping[str, str],
) -> bool:
    """Whether an object matches one of the flags. Without flags, every object is allowed."""
    flags = list(discoveries)
    return not flags or any(
        flag.matches(namespace=namespace, cluster_name=cluster_name, labels=labels)
        for flag in flags
    )


def namespace_watched(discoveries: Sequence[Discovery]) -> str:
    """Returns the only namespace that CA watches: that of the first flag that names one. "" stands
    for all namespaces.
    """
    return next((flag.namespace for flag in discoveries if flag.namespace), "")
