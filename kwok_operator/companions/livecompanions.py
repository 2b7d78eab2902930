"""Cleans the companions of a real node, so that the nodes copied from it can have the same.

    CSINode, ResourceSlices (as an API server gives them) --clean_companions--> CopiedCompanions

The node's name becomes {node}; uuids of its devices become {uid} and a number. Taints of devices
and conditions that a driver reports are left out, as they concern that machine. Pools are cut into
slices again. Malformed parts count as missing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.api.base import DNS_NAME
from kwok_operator.companions.deviceslices import (
    MAX_TEXT,
    MOST_DEVICES,
    NODE_PATTERN,
    OF_NODE,
    Slice,
    cut,
    written_size,
)
from kwok_operator.companions.gpudevices import UID_PATTERN
from kwok_operator.formats.untyped import as_list, as_map

_KEPT_OF_A_DEVICE: Final = (
    "name",
    "attributes",
    "capacity",
    "consumesCounters",
    "allowMultipleAllocations",
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_SHORTEST_NAME: Final = 7
"""Names of nodes with fewer characters also occur in texts that don't mean the node, so they are
not replaced."""
_DRIVER: Final = re.compile(DNS_NAME)


@dataclass(frozen=True, slots=True)
class CopiedPool:
    """The devices of one driver in one pool; the pool's `name` has {node} for the node's name."""

    driver: str
    name: str
    devices: Sequence[Mapping[str, Any]]
    counters: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CopiedCompanions:
    """Cleaned companions of a real node; `csi_drivers` is None if it has no CSINode."""

    csi_drivers: Sequence[Mapping[str, Any]] | None = None
    pools: Sequence[CopiedPool] = ()

    def slices(self, *, without: frozenset[str], tainted: bool, base: str) -> Iterator[Slice]:
        """Yields the slices of all drivers except those in `without`. With `tainted`, they leave
        room for taints that devices get later. A text is left out if it becomes too long for a node
        with a name as long as `base`."""
        places: dict[str, int] = {}
        for pool in self.pools:
            if pool.driver not in without:
                first = places.get(pool.driver, 0)
                found = cut(
                    pool.driver,
                    [_fitting(device, base) for device in pool.devices],
                    pool.counters,
                    where=OF_NODE,
                    tainted=tainted,
                    pool=pool.name,
                    first=first,
                )
                places[pool.driver] = first + len(found)
                yield from found


def clean_companions(node: str, *, csi_node: object, slices: Sequence[object]) -> CopiedCompanions:
    """Cleans the companions of `node`. `slices` may include those of other nodes and of older
    generations."""
    cleaner = _Cleaner(node)
    specs = [as_map(as_map(each).get("spec")) for each in slices]
    pools: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for spec in specs:
        driver, name = spec.get("driver"), as_map(spec.get("pool")).get("name")
        known = isinstance(driver, str) and _DRIVER.fullmatch(driver) and isinstance(name, str)
        if known and spec.get("nodeName") == node:
            pools.setdefault((str(driver), str(name)), []).append(spec)
    found = [cleaner.pool(*key, pools[key]) for key in sorted(pools)]
    drivers = as_map(as_map(csi_node).get("spec")).get("drivers") if csi_node else None
    return CopiedCompanions(
        csi_drivers=cleaner.csi_drivers(drivers) if csi_node else None,
        pools=tuple(pool for pool in found if pool is not None),
    )


class _Cleaner:
    """Cleans the objects of one node. It numbers uuids, so that equal uuids become equal texts."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._mention = re.compile(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9])")
        self._uuids: dict[str, int] = {}

    def csi_drivers(self, drivers: object) -> tuple[Mapping[str, Any], ...]:
        found: dict[str, Mapping[str, Any]] = {}
        for driver in map(as_map, as_list(drivers)):
            name, count = driver.get("name"), as_map(driver.get("allocatable")).get("count")
            if not isinstance(name, str):
                continue
            keys = [key for key in as_list(driver.get("topologyKeys")) if isinstance(key, str)]
            called = self._mention.sub(NODE_PATTERN, str(driver.get("nodeID") or ""))
            found[name] = {
                "name": name,
                "nodeID": called if NODE_PATTERN in called else NODE_PATTERN,
                "topologyKeys": list(dict.fromkeys(keys)),
                **({"allocatable": {"count": count}} if isinstance(count, int) else {}),
            }
        return tuple(found.values())

    def pool(self, driver: str, name: str, specs: Sequence[Mapping[str, Any]]) -> CopiedPool | None:
        """Cleans a pool. Returns None while slices of its newest generation are missing."""
        newest = max(_number(spec, "generation") for spec in specs)
        specs = [spec for spec in specs if _number(spec, "generation") == newest]
        devices = [
            self._device(device)
            for spec in specs
            for device in map(as_map, as_list(spec.get("devices")))
            if isinstance(device.get("name"), str)
        ]
        counters = [
            {"name": each["name"], "counters": as_map(each.get("counters"))}
            for spec in specs
            for each in map(as_map, as_list(spec.get("sharedCounters")))
            if isinstance(each.get("name"), str)
        ]
        whole = all(_number(spec, "resourceSliceCount") == len(specs) for spec in specs)
        if not whole or not 0 < len(devices) <= MOST_DEVICES:
            return None
        called = NODE_PATTERN if name == self._node else self._mention.sub(NODE_PATTERN, name)
        # Without the node's name, the pools of all nodes would be one pool with contradicting
        # slices.
        called = called if NODE_PATTERN in called else f"{NODE_PATTERN}/{called}"
        return CopiedPool(driver, called, devices, counters)

    def _device(self, device: Mapping[str, Any]) -> Mapping[str, Any]:
        found = {key: device[key] for key in _KEPT_OF_A_DEVICE if device.get(key)}
        attributes: dict[str, Any] = {}
        for key, value in as_map(device.get("attributes")).items():
            text = as_map(value).get("string")
            attributes[key] = {"string": self._text(text)} if isinstance(text, str) else value
        return found | ({"attributes": attributes} if attributes else {})

    def _text(self, text: str) -> str:
        if len(self._node) >= _SHORTEST_NAME:
            text = self._mention.sub(NODE_PATTERN, text)
        match = _UUID.search(text)
        while match is not None:
            number = self._uuids.setdefault(match[0].lower(), len(self._uuids))
            text = text.replace(match[0], f"{UID_PATTERN}-{number}")
            match = _UUID.search(text)
        return text


def _fitting(device: Mapping[str, Any], base: str) -> Mapping[str, Any]:
    attributes = {
        key: value
        for key, value in as_map(device.get("attributes")).items()
        if written_size(str(as_map(value).get("string", "")), base) <= MAX_TEXT
    }
    found = {**device, "attributes": attributes}
    return {key: value for key, value in found.items() if value}


def _number(spec: Mapping[str, Any], key: str) -> int:
    value = as_map(spec.get("pool")).get(key)
    return value if isinstance(value, int) else 0
