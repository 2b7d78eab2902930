"""Cuts devices of dynamic resource allocation (DRA) into ResourceSlices that the API server
accepts.

    ResourceSlices (spec) ──checked, counts written out──> devices ──cut──> Slice, ...

A pool is complete once all its slices exist, as each says how many there are. Counter sets have
slices of their own: since Kubernetes 1.35 a slice has either counter sets or devices.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.api.base import DNS_NAME
from kwok_operator.companions.api import CounterSet, Device, PoolScope, ResourceSlices
from kwok_operator.companions.gpudevices import UID_PATTERN
from kwok_operator.errors import TemplateError
from kwok_operator.nodegroups.naming import longest_name

FIELD: Final = "spec.template.companions.resourceSlices"
INDEX_PATTERN: Final = "{index}"
NODE_PATTERN: Final = "{node}"
OF_NODE: Final = {"nodeName": NODE_PATTERN}
"""The field of a slice that says that its devices are the node's own."""
MAX_DEVICES: Final = 128
"""The most devices in a slice."""
MAX_DEVICES_WITH_MORE: Final = 64
"""The most devices in a slice in which some have taints or use counters."""
MAX_COUNTER_SETS: Final = 8
MOST_DEVICES: Final = 2_048
"""The most devices in a pool. This limit is our own, as each node gets a pool."""
MAX_VALUES: Final = 32
"""The most attributes and capacities of a device, together."""
GATES: Final = {
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "taints": "DRADeviceTaints",
    "allowMultipleAllocations": "DRAConsumableCapacity",
}
"""Field of a device -> the feature gate without which an API server drops it."""
_IDENTIFIER: Final = re.compile(rf"((?=[^/]{{1,63}}/){DNS_NAME}/)?[A-Za-z_][A-Za-z0-9_]{{0,31}}")
_PRE_RELEASE: Final = r"(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION: Final = re.compile(
    r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}"
    rf"(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
MAX_TEXT: Final = 64
"""The most bytes in a string attribute."""
_UID_LENGTH: Final = 36
_COUNTER: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice to be made: its spec, with {node} for the owner's name.

    `suffix` is added to the owner's name; `shared` slices belong to the group, not to a node."""

    suffix: str
    shared: bool
    spec: Mapping[str, Any]


def compile_slices(wanted: ResourceSlices, *, group: str, tainted: bool = False) -> list[Slice]:
    """Returns the slices of one pool. With `tainted`, they leave room for taints that devices get
    later.

    Raises TemplateError, which names the field, the value and the remedy.
    """
    field = f"{FIELD}[{wanted.driver}]"
    devices, sets = list(_devices(wanted, field)), list(_counter_sets(wanted, field))
    _check_taken(devices, sets, field)
    shared = wanted.pool is PoolScope.SHARED
    _check_texts(devices, field, base=longest_name(group, node=not shared))
    where = {"nodeSelector": _selector(group)} if shared else OF_NODE
    return cut(wanted.driver, devices, sets, where=where, tainted=tainted and not shared)


def cut(
    driver: str,
    devices: Sequence[Mapping[str, Any]],
    sets: Sequence[Mapping[str, Any]],
    *,
    where: Mapping[str, Any],
    tainted: bool,
    pool: str = NODE_PATTERN,
    first: int = 0,
) -> list[Slice]:
    """Cuts a pool of devices and counter sets into slices that the API server accepts.

    The slices' names are numbered from `first` on: the number of slices in the driver's earlier
    pools.
    """
    more = tainted or any("taints" in each or "consumesCounters" in each for each in devices)
    most = MAX_DEVICES_WITH_MORE if more else MAX_DEVICES
    parts: list[tuple[str, Sequence[Any]]] = [
        ("devices", devices[i : i + most]) for i in range(0, len(devices), most)
    ]
    parts += [
        ("sharedCounters", sets[i : i + MAX_COUNTER_SETS])
        for i in range(0, len(sets), MAX_COUNTER_SETS)
    ]
    of_pool = {"name": pool, "generation": 1, "resourceSliceCount": len(parts)}
    head = {"driver": driver, "pool": of_pool, **where}
    return [
        Slice(f"-{driver}-{place}", where is not OF_NODE, {**head, key: list(items)})
        for place, (key, items) in enumerate(parts, start=first)
    ]


def written_size(text: str, base: str) -> int:
    """Returns the length of `text` in bytes, with `base` for {node} and a uid for {uid}."""
    written = text.replace(NODE_PATTERN, base).replace(UID_PATTERN, "-" * _UID_LENGTH)
    return len(written.encode(errors="surrogatepass"))


def gated_fields(spec: Mapping[str, Any]) -> frozenset[str]:
    """Returns the fields of a slice that an API server silently drops if their feature gate is
    off."""
    found = {"sharedCounters"} if spec.get("sharedCounters") else set[str]()
    for device in spec.get("devices") or ():
        found.update(key for key in GATES if device.get(key))
    return frozenset(found)


def _selector(group: str) -> dict[str, Any]:
    match = {"key": constants.NODE_GROUP_LABEL, "operator": "In", "values": [group]}
    return {"nodeSelectorTerms": [{"matchExpressions": [match]}]}


def _devices(wanted: ResourceSlices, field: str) -> Iterator[dict[str, Any]]:
    for place, device in enumerate(wanted.devices):
        _check_device(device, f"{field}.devices[{place}]")
    _check_names(wanted.devices, f"{field}.devices", most=MOST_DEVICES)
    for device in wanted.devices:
        body = {key: value for key, value in device.dump().items() if value not in ([], {})}
        for name, index in _names(device):
            yield {**_numbered(body, index), "name": name}


def _numbered(body: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Returns the device with `index` in place of {index} in its texts, and without the field
    `count`."""
    found = {key: value for key, value in body.items() if key != "count"}
    number = str(index)
    if "attributes" in found:
        found["attributes"] = {
            name: {
                kind: value.replace(INDEX_PATTERN, number) if kind == "string" else value
                for kind, value in attribute.items()
            }
            for name, attribute in found["attributes"].items()
        }
    if "consumesCounters" in found:
        found["consumesCounters"] = [
            {**each, "counterSet": each["counterSet"].replace(INDEX_PATTERN, number)}
            for each in found["consumesCounters"]
        ]
    return found


def _counter_sets(wanted: ResourceSlices, field: str) -> Iterator[dict[str, Any]]:
    field = f"{field}.sharedCounters"
    for place, each in enumerate(wanted.shared_counters):
        _check_counters(each.counters, f"{field}[{place}].counters")
    _check_names(wanted.shared_counters, field, most=MOST_DEVICES)
    for each in wanted.shared_counters:
        for name, _ in _names(each):
            yield {"name": name, "counters": each.dump()["counters"]}


def _names(counted: Device | CounterSet) -> Iterator[tuple[str, int]]:
    if counted.count is None:
        yield counted.name, 0
        return
    for index in range(counted.count):
        yield f"{counted.name}-{index}", index


def _check_device(device: Device, field: str) -> None:
    for key in ("attributes", "capacity"):
        _check_keys(getattr(device, key), f"{field}.{key}", _IDENTIFIER)
    for place, taken in enumerate(device.consumes_counters):
        _check_counters(taken.counters, f"{field}.consumesCounters[{place}].counters")
    values = len(device.attributes) + len(device.capacity)
    if values > MAX_VALUES:
        raise TemplateError(
            field=field,
            value=values,
            problem=f"attributes and capacities are more than a device may have, {MAX_VALUES}",
            remedy="take out what no claim asks for",
        )
    for name, attribute in device.attributes.items():
        if len(attribute.dump()) != 1:
            raise TemplateError(
                field=f"{field}.attributes.{name}",
                value=attribute.dump(),
                problem="is not one value",
                remedy="give it a string, an int, a bool or a version",
            )
        if attribute.version is not None and not _VERSION.fullmatch(attribute.version):
            raise TemplateError(
                field=f"{field}.attributes.{name}.version",
                value=attribute.version,
                problem="is no semantic version",
                remedy="write all three numbers, such as 12.4.0, or make it a string",
            )


def _check_counters(given: Mapping[str, object], field: str) -> None:
    if not given:
        raise TemplateError(
            field=field,
            value={},
            problem="is empty",
            remedy="give a counter, as in {memory: {value: 10Gi}}, or take out the entry that it"
            " is in",
        )
    _check_keys(given, field, _COUNTER)


def _check_keys(given: Mapping[str, object], field: str, pattern: re.Pattern[str]) -> None:
    for key in given:
        if not pattern.fullmatch(key):
            raise TemplateError(
                field=field,
                value=key,
                problem="is no name that the API server takes",
                remedy="write it as memory, or with a domain where it may have one",
            )


def _check_names(given: Sequence[Device | CounterSet], field: str, *, most: int) -> None:
    total = sum(1 if each.count is None else each.count for each in given)
    if total > most:
        raise TemplateError(
            field=field,
            value=total,
            problem=f"are more than the {most} that a pool may have here",
            remedy="make them fewer",
        )
    times = Counter(name for each in given for name, _ in _names(each))
    twice = next((name for name, count in times.items() if count > 1), None)
    if twice is not None:
        raise TemplateError(
            field=field,
            value=twice,
            problem="is the name of two",
            remedy="give one another name, or make them with one count",
        )


def _check_taken(
    devices: Sequence[Mapping[str, Any]], sets: Sequence[Mapping[str, Any]], field: str
) -> None:
    known = {each["name"]: each["counters"] for each in sets}
    for device in devices:
        every = [taken["counterSet"] for taken in device.get("consumesCounters", ())]
        if len(set(every)) < len(every):
            raise TemplateError(
                field=f"{field}.devices[{device['name']}].consumesCounters",
                value=every[0],
                problem="is there twice",
                remedy="put all that the device takes of a set into one",
            )
        for taken in device.get("consumesCounters", ()):
            name = taken["counterSet"]
            missing = [key for key in taken["counters"] if key not in known.get(name, {})]
            if missing:
                raise TemplateError(
                    field=f"{field}.devices[{device['name']}].consumesCounters",
                    value=f"{name}.{missing[0]}",
                    problem="is not among sharedCounters",
                    remedy="name a set and a counter that are there",
                )


def _check_texts(devices: Sequence[Mapping[str, Any]], field: str, *, base: str) -> None:
    for device in devices:
        for name, attribute in device.get("attributes", {}).items():
            if written_size(attribute.get("string", ""), base) > MAX_TEXT:
                raise TemplateError(
                    field=f"{field}.devices[{device['name']}].attributes.{name}.string",
                    value=attribute["string"],
                    problem=f"is longer than {MAX_TEXT} bytes where it is written out",
                    remedy="make it shorter",
                )
