"""The template in use by each group: resolved, and accepted by the API server.

    spec ──resolve (pure)──> node ──strict dry run──> Resolution

Each new template is tried once with a POST that creates nothing, so that a mistake is told when it
is made and not when the first node is. The verdict is kept until the spec changes or is asked
again.
"""

from dataclasses import dataclass

from kwok_operator.controller.groups import Group
from kwok_operator.controller.nodes import NodeWriter
from kwok_operator.core import template
from kwok_operator.core.cleaning import Node
from kwok_operator.core.naming import NodeNames
from kwok_operator.errors import (
    ApiError,
    BadRequestError,
    ForbiddenError,
    InvalidError,
    TemplateError,
    one_line,
)
from kwok_operator.models.status import ConditionType

REMEDY = "Correct spec.template; nodes that exist stay as they are."


@dataclass(frozen=True, slots=True)
class Resolution:
    """The node that new nodes copy, or why there is none."""

    node: Node | None
    hash: str
    source: str
    error: str | None = None


class Templates:
    """Resolutions by group, each made once per uid and generation."""

    def __init__(self, *, writer: NodeWriter, provider_id_prefix: str) -> None:
        self._writer = writer
        self._prefix = provider_id_prefix
        self._known: dict[str, tuple[tuple[str, int], Resolution]] = {}

    async def resolve(self, group: Group) -> Resolution:
        """The template of a group. Raises KwokOperatorError when it can't be tried."""
        version = (group.uid, group.generation)
        known = self._known.get(group.name)
        if known is not None and known[0] == version:
            return known[1]
        resolution = await self._resolve(group)
        self._known[group.name] = (version, resolution)
        return resolution

    def forget(self, name: str) -> None:
        """Have the template of this group tried again."""
        self._known.pop(name, None)

    async def _resolve(self, group: Group) -> Resolution:
        source = template.source(group.spec.template)
        try:
            node = template.resolve(group.spec.template, guard=group.spec.guard_taint)
        except TemplateError as error:
            return Resolution(None, "", source, f"{error}. {REMEDY}")
        node_hash = template.template_hash(node)
        if not _accepted_before(group, node_hash):
            rendered = template.render(
                node,
                group=group.name,
                uid=group.uid,
                provider_id_prefix=self._prefix,
                endpoint=None,
            )
            name = NodeNames.of(group.name, group.uid).name(group.status.next_serial)
            body = rendered.body(name, requested_at="", now="", ready=False)
            try:
                await self._writer.check(body)
            except (BadRequestError, ForbiddenError, InvalidError) as error:
                return Resolution(None, "", source, f"{_in_words(error)} {REMEDY}")
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
