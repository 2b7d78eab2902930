"""The namespaces and their labels. They are watched only while a profile has a
namespaceSelector."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kwok_operator.kube.client import KubeClient
from kwok_operator.kube.decode import OBJECTS
from kwok_operator.kube.reflector import Reflector
from kwok_operator.podprofiles.api import LabelSelector
from kwok_operator.podprofiles.selectors import labels_match

_PATH: Final = "/api/v1/namespaces"
_KNOWN_WITHIN: Final = 5.0
"""Seconds to wait for the first list of namespaces. After that, profiles are compiled without
it."""

_Named = tuple[str, dict[str, str]]


def _named(raw: Mapping[str, Any]) -> _Named:
    metadata = raw["metadata"]
    return metadata["name"], metadata.get("labels") or {}


class Namespaces:
    """The labels of all namespaces. `changed()` is called when a namespace is created, deleted or
    relabelled."""

    def __init__(self, *, client: KubeClient, changed: Callable[[], None]) -> None:
        self.trouble: str | None = None
        """Why the namespaces can't be read, in a sentence; None if they can."""
        self._client = client
        self._changed = changed
        self._labels: dict[str, dict[str, str]] = {}
        self._watch: asyncio.Task[None] | None = None

    def selected(self, selector: LabelSelector) -> list[str]:
        return [name for name, labels in self._labels.items() if labels_match(selector, labels)]

    async def start(self) -> None:
        """Starts the watch. Returns once the namespaces are listed, or after 5 s."""
        if self._watch is not None and not self._watch.done():
            return
        reflector = Reflector(
            client=self._client,
            path=_PATH,
            decoder=OBJECTS.then(_named),
            sink=self,
            on_trouble=self._in_trouble,
        )
        self._watch = asyncio.create_task(reflector.run(), name="watch namespaces")
        with suppress(TimeoutError):
            async with asyncio.timeout(_KNOWN_WITHIN):
                await reflector.synced.wait()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch, self._labels, self.trouble = None, {}, None

    def replace(self, items: Sequence[_Named], resource_version: int) -> None:
        self._labels = dict(items)
        self._changed()

    def upsert(self, item: _Named) -> None:
        name, labels = item
        if self._labels.get(name) != labels:
            self._labels[name] = labels
            self._changed()

    def remove(self, item: _Named) -> None:
        if self._labels.pop(item[0], None) is not None:
            self._changed()

    def _in_trouble(self, trouble: str | None) -> None:
        if (self.trouble is None) is not (trouble is None):
            self._changed()
        self.trouble = trouble
