"""The template in use by each group: resolved, and accepted by the API server.

    spec, sources ──resolve (pure)──> node ──strict dry run──> Resolution

Each new template is tried once with a POST that creates nothing, so that a mistake is reported when
it is made and not when the first node is. The result is kept until the spec or the source changes,
or `forget` asks for another try. If a source has no node any more, the last template stays in use.
If the API server doesn't answer, the template is tried again, with growing pauses.
"""

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kwok_operator.errors import (
    FAILED_REQUEST,
    REFUSED,
    AlteredNodeError,
    ApiError,
    KwokOperatorError,
    TemplateError,
    one_line,
)
from kwok_operator.kube.retry import at_least_half, patient_delay
from kwok_operator.nodegroups import template
from kwok_operator.nodegroups.api.status import ConditionType
from kwok_operator.nodegroups.cleaning import Node
from kwok_operator.nodegroups.client import Group
from kwok_operator.nodegroups.naming import NodeNames
from kwok_operator.nodegroups.network import NodeNetwork
from kwok_operator.nodegroups.nodewriter import NodeWriter
from kwok_operator.nodegroups.steps import GroupStep

logger = logging.getLogger(__name__)

REMEDY = "Correct spec.template; nodes that exist stay as they are."
REMEDY_AT_SOURCE = "Correct it there, or spec.template; nodes that exist stay as they are."


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a source has nothing to copy: the reason of a condition, and a sentence for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Found:
    """The source of a group's template.

    `version` changes when the source's nodes change; `origin` describes the source in words. `load`
    returns the nodes themselves; it raises SourceMissingError if they have vanished meanwhile.
    """

    version: str
    origin: str
    load: Callable[[], Awaitable[tuple[template.SourceNode, ...]]]
    missing: Missing | None = None


class SourceMissingError(KwokOperatorError):
    """A source has nothing to copy."""

    def __init__(self, reason: str, message: str) -> None:
        self.missing = Missing(reason, message)
        super().__init__(message)


class TemplateSources(Protocol):
    """Finds the nodes that templates copy."""

    async def find(self, group: Group) -> Found: ...


@dataclass(frozen=True, slots=True)
class Resolution:
    """The node that new nodes copy, or why there is none.

    `error` is a sentence that says why, `reason` the condition's reason for it. `origin` says what
    the node was copied from. With `missing`, the source has no node at the moment, and `node` is
    the last one known. `retry_in` is set if the API server has not checked the template: the
    seconds until the next try.
    """

    node: Node | None
    hash: str
    source: str
    error: str | None = None
    reason: str = "TemplateInvalid"
    origin: str = ""
    missing: Missing | None = None
    retry_in: float | None = None

    @property
    def why_last(self) -> tuple[str, str] | None:
        """A reason and a sentence for status if the template's source is gone, so that `node` is
        only the last copy of it; else None."""
        if self.node is None or self.missing is None:
            return None
        message = f"{self.missing.message}. New nodes copy the last template until there is one."
        return self.missing.reason, message


_Version = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """The Resolution of a group's template, and the time `due` at which to check the template again
    if the API server gave no answer."""

    version: _Version
    resolution: Resolution
    failures: int = 0
    due: float = math.inf


class Templates:
    """Keeps the resolution of each group's template. A resolution is made once for each uid,
    generation and version of the sources.

    `clock` returns monotonic seconds, `draw` random numbers in [0, 1).
    """

    def __init__(
        self,
        *,
        writer: NodeWriter,
        sources: TemplateSources,
        provider_id_prefix: str,
        steps: Sequence[GroupStep] = (),
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._writer = writer
        self._sources = sources
        self._prefix = provider_id_prefix
        self._steps = steps
        self._clock = clock
        self._draw = draw
        self._known: dict[str, _Entry] = {}
        self._last: dict[str, tuple[str, Resolution]] = {}
        """Group's name -> the group's uid, and the last resolution that has a node."""

    async def resolve(self, group: Group) -> Resolution:
        """Returns the resolved template of a group."""
        found = await self._sources.find(group)
        if found.missing is not None:
            return self._last_known(group, found.missing)
        version = (group.uid, group.generation, found.version)
        entry = self._known.get(group.name)
        if entry is None or entry.version != version or entry.due <= self._clock():
            try:
                entry = _Entry(version, await self._resolve(group, found))
            except SourceMissingError as error:
                return self._last_known(group, error.missing)
            except FAILED_REQUEST as error:
                entry = self._not_tried(group, version, error)
            self._known[group.name] = entry
            if entry.resolution.node is not None:
                self._last[group.name] = (group.uid, entry.resolution)
        retry_in = max(0.0, entry.due - self._clock()) if entry.failures else None
        return replace(entry.resolution, origin=found.origin, retry_in=retry_in)

    def forget(self, name: str) -> None:
        """Forgets the result of the check of the group's template, so that the API server checks it
        again; does nothing if a retry is planned."""
        known = self._known.get(name)
        if known is not None and not known.failures:
            del self._known[name]

    def drop(self, name: str) -> None:
        """Drops the templates of a deleted group."""
        self._known.pop(name, None)
        self._last.pop(name, None)

    def _not_tried(self, group: Group, version: _Version, error: KwokOperatorError) -> _Entry:
        before = self._known.get(group.name)
        failures = before.failures if before is not None else 0
        wait = patient_delay(failures, error, draw=at_least_half(self._draw))
        sentence = one_line(
            f"The template can't be tried: {error}. It is tried again; until that succeeds no node"
            " is made or updated."
        )
        source = template.source(group.spec.template)
        resolution = Resolution(None, "", source, sentence, reason="TemplateNotTried")
        return _Entry(version, resolution, failures + 1, self._clock() + wait)

    def _last_known(self, group: Group, missing: Missing) -> Resolution:
        uid, last = self._last.get(group.name, ("", None))
        if last is not None and uid == group.uid:
            return replace(last, missing=missing)
        status, source = group.status, template.source(group.spec.template)
        if status.resolved_template is None or not status.template_hash:
            error = f"{missing.message}. Nodes are made once there is something to copy."
            return Resolution(None, "", source, error, missing.reason)
        node, node_hash = status.resolved_template, status.template_hash
        return Resolution(node, node_hash, status.template_source or source, missing=missing)

    async def _resolve(self, group: Group, found: Found) -> Resolution:
        source = template.source(group.spec.template)
        sources = await found.load()
        try:
            for step in self._steps:
                step.check(group)
            node = template.resolve(
                group.spec.template,
                guard=group.spec.guard_taint,
                sources=sources,
            )
            for step in self._steps:
                node = step.resolved(group, node)
        except TemplateError as error:
            remedy = REMEDY if error.field.startswith("spec.") else REMEDY_AT_SOURCE
            return Resolution(None, "", source, f"{error}. {remedy}")
        except Exception as error:
            # A defect of this program, for this template only. The status must say why the group
            # doesn't reach its target.
            logger.exception("template not resolved: group=%s", group.name)
            sentence = one_line(f"spec.template can't be used ({type(error).__name__}: {error}).")
            return Resolution(None, "", source, f"{sentence} {REMEDY}")
        node_hash = template.template_hash(node)
        if not _accepted_before(group, node_hash):
            rendered = template.render(
                node,
                group=group.name,
                uid=group.uid,
                provider_id_prefix=self._prefix,
                endpoint=None,
                network=NodeNetwork.of(group.spec.template.network, group=group.name),
            )
            name = NodeNames.of(group.name, group.uid).name(group.status.next_serial)
            body = rendered.body(name, requested_at="", now="", ready=False)
            try:
                await self._writer.check(
                    name, body, group=group.name, uid=group.uid, template_hash=rendered.hash
                )
            except AlteredNodeError as error:
                sentence = one_line(f"No node can be made: {error.message}.")
                return Resolution(None, "", source, sentence, reason="NodesAltered")
            except REFUSED as error:
                sentence = f"{_in_words(error)} {REMEDY}"
                return Resolution(None, "", source, sentence)
        return Resolution(node, node_hash, source)


def _accepted_before(group: Group, node_hash: str) -> bool:
    resolved = [c for c in group.status.conditions if c.type == ConditionType.TEMPLATE_RESOLVED]
    return group.status.template_hash == node_hash and [c.status for c in resolved] == ["True"]


def _in_words(error: ApiError) -> str:
    # The API server says metadata.taints where it means spec.taints.
    fields = [(c.field.replace("metadata.taints", "spec.taints"), c.message) for c in error.details]
    causes = "; ".join(f"{field}: {message}" for field, message in fields if field)
    return one_line(
        f"spec.template makes a node that the API server refuses: {causes or error.message}."
    )
