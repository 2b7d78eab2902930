"""Reads scaling groups and options from the flags and the status of cluster-autoscaler (CA)."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.formats.autoscalertexts import parse_status
from kwok_operator.formats.optiontexts import duration, share
from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.nodegroups.api.autoscaling import MAX_TARGET_SIZE

_PROGRAM: Final = "cluster-autoscaler"
_SHARES: Final = {
    "scale-down-utilization-threshold": "scaleDownUtilizationThreshold",
    "scale-down-gpu-utilization-threshold": "scaleDownGpuUtilizationThreshold",
}
_TIMES: Final = {
    "scale-down-unneeded-time": "scaleDownUnneededTime",
    "scale-down-unready-time": "scaleDownUnreadyTime",
    "max-node-provision-time": "maxNodeProvisionTime",
}
_SWITCHES: Final = {"ignore-daemonsets-utilization": "ignoreDaemonSetsUtilization"}
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_COUNT = re.compile(r"[0-9]{1,7}")

Flags = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ScalingGroup:
    """A node group of CA: its name in CA, its minimum and maximum number of nodes, and its own
    options.
    """

    name: str
    minimum: int
    maximum: int
    options: Mapping[str, Any] = field(default_factory=dict)


GroupsAndProblems = tuple[list[ScalingGroup], list[str]]
"""Scaling groups, and a message for each that couldn't be read."""


def flags_of(body: Any) -> Flags | None:
    """Returns flags with their values, in the given order; None for a workload that isn't CA."""
    for container in _containers(body):
        words = [*_words(container.get("command")), *_words(container.get("args"))]
        named = [text_at(container, "image"), *(w for w in words if w[:1] != "-")]
        if any(_PROGRAM in word.split("@")[0] for word in named):
            return list(_flags(words))
    return None


def groups_of_flags(flags: Flags) -> GroupsAndProblems:
    """Returns the scaling groups of flags --nodes=MIN:MAX:NAME, and problems."""
    groups, problems = [], []
    for flag, value in flags:
        if flag != "nodes":
            continue
        least, _, rest = value.partition(":")
        most, _, name = rest.partition(":")
        try:
            groups.append(_scaling_group(name, least, most))
        except ValueError:
            problems.append("--nodes: a value must be MIN:MAX:NAME, with MIN at most MAX")
    return groups, problems


def options_of_flags(flags: Flags) -> tuple[dict[str, Any], list[str]]:
    """Returns the groups' options that flags set, and problems. If a flag is given several times,
    the last one counts.
    """
    options: dict[str, Any] = {}
    problems: list[str] = []
    for flag, text in flags:
        option = ""
        value: Any = None
        if flag in _SHARES:
            option, value = _SHARES[flag], share(text.lower()) or None
        elif flag in _TIMES:
            option, value = _TIMES[flag], duration(text) or None
        elif flag in _SWITCHES:
            option, value = _SWITCHES[flag], _BOOLEANS.get(text or "true")
        if option and value is None:
            problems.append(f"--{flag}: has no value that a group can have")
        elif option:
            options[option] = value
    return options, problems


def groups_of_status(text: Any) -> GroupsAndProblems:
    """Returns the scaling groups in the text of CA's status, and problems."""
    status = parse_status(text) if isinstance(text, str) else None
    if status is None:
        return [], ["status: must be the text that cluster-autoscaler writes"]
    groups, problems = [], []
    for group in status.groups:
        try:
            groups.append(_scaling_group(group.name, group.minimum or 0, group.maximum or 0))
        except ValueError:
            problems.append("nodeGroups: the minSize of one is not at most its maxSize")
    return groups, problems


def _scaling_group(name: Any, least: Any, most: Any) -> ScalingGroup:
    if (
        not isinstance(name, str)
        or not name
        or not all(_COUNT.fullmatch(str(number)) for number in (least, most))
    ):
        raise ValueError(name)
    low, high = int(least), int(most)
    if low > high:
        raise ValueError(name)
    return ScalingGroup(name, min(low, MAX_TARGET_SIZE), min(high, MAX_TARGET_SIZE))


def _containers(body: Any) -> Iterator[Mapping[str, Any]]:
    spec = value_at(body, "spec", "template", "spec") or value_at(body, "spec")
    return map(as_map, as_list(value_at(spec, "containers")))


def _words(value: Any) -> Iterator[str]:
    """Yields the words of a command; the line of a shell command is split."""
    for word in as_list(value):
        if not isinstance(word, str):
            continue
        if " " in word.strip() and not word.startswith("-"):
            try:
                yield from shlex.split(word)
            except ValueError:
                yield from word.split()
        else:
            yield word


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        flag, equals, value = word.lstrip("-").partition("=")
        if not equals and flag not in _SWITCHES and place + 1 < len(words):
            value = words[place + 1]
        yield flag, value
