"""The ConfigMaps of one namespace, and the Nodes that are written in them.

A text is parsed once for each version of a ConfigMap, in a thread, as it may be 1 MiB of YAML. An
Event on the ConfigMap names objects in it that are no Nodes.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kwok_operator.errors import ManifestError
from kwok_operator.formats.documents import NodeDocuments, read_nodes
from kwok_operator.formats.words import names_in_words
from kwok_operator.kube.events import Recorder
from kwok_operator.kube.followed import FollowedKind

NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap as last seen."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    data: Mapping[str, str]

    @property
    def reference(self) -> dict[str, str]:
        """Returns the reference for Events about the ConfigMap."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
        }


def stored_configmap(raw: Mapping[str, Any]) -> ConfigMap:
    metadata = raw["metadata"]
    return ConfigMap(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=int(metadata["resourceVersion"]),
        data=raw.get("data") or {},
    )


class ConfigMaps:
    """The ConfigMaps of a namespace by name. `changed(name)` is called when a ConfigMap is new,
    different or gone."""

    def __init__(
        self, *, namespace: str, recorder: Recorder, changed: Callable[[str], None]
    ) -> None:
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._recorder = recorder
        self._changed = changed
        self.objects = FollowedKind(stored_configmap, self._seen)
        self._parsed: dict[tuple[str, str], tuple[int, asyncio.Task[NodeDocuments]]] = {}

    def get(self, name: str) -> ConfigMap | None:
        return self.objects.get(name)

    async def nodes(self, configmap: ConfigMap, key: str) -> NodeDocuments:
        """Returns the Nodes in the text under `key`, which must exist. Raises ManifestError, naming
        line and column."""
        place, version = (configmap.name, key), configmap.resource_version
        known = self._parsed.get(place)
        if known is None or known[0] != version:
            known = self._parsed[place] = version, asyncio.create_task(self._parse(configmap, key))
        return await asyncio.shield(known[1])

    async def _parse(self, configmap: ConfigMap, key: str) -> NodeDocuments:
        where = f"ConfigMap {configmap.namespace}/{configmap.name}, key {key}"
        documents = await asyncio.to_thread(read_nodes, configmap.data[key], where=where)
        if documents.others:
            shown = names_in_words(documents.others, most=NAMES_SHOWN)
            message = f"key {key} holds what is no Node, and is left out: {shown}."
            self._recorder.emit(configmap, "Warning", "NotANode", message)
        return documents

    def _seen(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        known = new or old
        assert known is not None
        if new is None:
            self._parsed = {place: p for place, p in self._parsed.items() if place[0] != known.name}
        if old is None or new is None or (old.uid, old.data) != (new.uid, new.data):
            self._changed(known.name)


def only_key(configmap: ConfigMap, key: str | None) -> str:
    """Returns `key`, or if it is None the only key of the ConfigMap. Raises ManifestError, which
    names the existing keys."""
    where, keys = f"ConfigMap {configmap.namespace}/{configmap.name}", sorted(configmap.data)
    if key is None and len(keys) == 1:
        return keys[0]
    there = ", ".join(keys[:NAMES_SHOWN]) or "none"
    if key is None and not keys:
        raise ManifestError(f"{where} is empty; put the Nodes under a key of its data")
    if key is None:
        raise ManifestError(
            f"{where}: which key is meant? Name one in template.from.configMap.key: {there}"
        )
    if key not in configmap.data:
        raise ManifestError(f"{where} has no key {key}, only: {there}")
    return key
