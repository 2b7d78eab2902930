"""The groups of a test: makes objects from short descriptions, waits for them, and deletes them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    KIND,
    NODE_GROUP_LABEL,
    PLURAL,
    POOL_KIND,
)
from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.manifests import Manifest, as_stream
from kwok_operator.formats.untyped import as_list, as_map
from kwok_operator.formats.words import shown
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.testkit.cluster import KubectlError, KwokCluster

_WITHIN: Final = 60.0
_GONE_WITHIN: Final = 240.0
"""Seconds within which the nodes must be gone; less than the time-out of the kubectl command."""

GroupsGiven = Mapping[str, Any] | str
"""Name of a group -> its number of nodes as in `{"general": 3}`, a spec, or a whole manifest; or
YAML of these."""


class GroupError(KwokOperatorError):
    """A group can't be made, or its nodes aren't usable in time."""


class Groups:
    """Makes groups in a cluster, and remembers them."""

    def __init__(self, cluster: KwokCluster) -> None:
        self._cluster = cluster
        self._made: dict[tuple[str, str], Manifest] = {}

    def __call__(
        self, groups: GroupsGiven, *, within: float | None = _WITHIN
    ) -> dict[str, list[str]]:
        """Makes or changes groups; returns the names of each group's nodes, once the nodes are
        usable.

        With `within=None`, returns at once, with the nodes that exist by then. Raises GroupError,
        ManifestError, KubectlError.
        """
        __tracebackhide__ = True
        objects = manifests(groups)
        self._made |= {(each["kind"], each["metadata"]["name"]): each for each in objects}
        self._kubectl("apply", "--server-side", "--filename=-", stdin=as_stream(objects))
        names = [each["metadata"]["name"] for each in objects if each["kind"] == KIND]
        if within is not None and names:
            self._wait(names, within)
        nodes: dict[str, list[str]] = {name: [] for name in names}
        if names:
            for node in self._read("nodes", f"--selector={_of(names)}"):
                nodes[node["metadata"]["labels"][NODE_GROUP_LABEL]].append(node["metadata"]["name"])
        return nodes

    def clear(self) -> None:
        """Deletes all objects that `__call__` has made, and returns once the groups' nodes are
        gone.
        """
        if not self._made:
            return
        objects = [*self._made.values()]
        self._kubectl("delete", "--ignore-not-found", "--filename=-", stdin=as_stream(objects))
        names = [name for kind, name in self._made if kind == KIND]
        if names:
            # kubectl's default is half a minute, in which about 10,000 nodes are deleted.
            which = (f"--selector={_of(names)}", "--for=delete", f"--timeout={_GONE_WITHIN:g}s")
            self._kubectl("wait", "nodes", *which)
        self._made.clear()

    def _wait(self, names: list[str], within: float) -> None:
        __tracebackhide__ = True
        whom = [f"{PLURAL}/{name}" for name in names]
        try:
            self._kubectl("wait", *whom, "--for=condition=Ready", f"--timeout={within:g}s")
        except KubectlError:
            said = [why for each in self._read(*whom) for why in _not_ready(each)]
            if not said:
                raise
            raise GroupError(f"not usable within {within:g} s: {'; '.join(said)}") from None

    def _read(self, *what: str) -> list[dict[str, Any]]:
        answer = json.loads(self._kubectl("get", *what, "--output=json"))
        items: list[dict[str, Any]] = answer.get("items", [answer])
        return items

    def _kubectl(self, *arguments: str, stdin: str = "") -> str:
        __tracebackhide__ = True
        return self._cluster.kubectl(*arguments, stdin=stdin)


def manifests(given: GroupsGiven) -> list[Manifest]:
    """Returns the Kubernetes objects that a short description of groups stands for. Raises
    GroupError, ManifestError."""
    documents = load_documents(given, where="groups") if isinstance(given, str) else [given]
    objects = [each for one in documents if one is not None for each in _objects(one)]
    if not objects:
        raise GroupError('groups: there are none; give some, such as {"general": 3}')
    return objects


def _objects(document: object) -> list[Manifest]:
    if not isinstance(document, Mapping):
        raise GroupError(f'groups: {shown(document)} is none; {{"general": 3}} is one')
    kind, metadata = document.get("kind"), as_map(document.get("metadata"))
    if not isinstance(kind, str):
        return [_group(name, spec) for name, spec in document.items()]
    if kind not in (KIND, POOL_KIND):
        raise GroupError(f"groups: kind: {shown(kind)} is for kwok_cluster.kubectl to apply")
    return [{**document, "metadata": {**metadata, "name": _checked(metadata.get("name"))}}]


def _group(name: object, spec: object) -> Manifest:
    if isinstance(spec, int) and not isinstance(spec, bool):
        spec = {"targetSize": spec}
    if not isinstance(spec, Mapping):
        raise GroupError(
            f"groups: {shown(name)}: {shown(spec)} is neither a number of nodes nor a spec"
        )
    # The guard taint isn't needed: there are no real pods to keep off.
    spec = {"guardTaint": {"enabled": False}, **spec}
    metadata = {"name": _checked(name)}
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": KIND,
        "metadata": metadata,
        "spec": spec,
    }


def _checked(name: object) -> str:
    if not (isinstance(name, str) and is_object_name(name)):
        raise GroupError(f"groups: {shown(name)} is no name of a group, as general-2 is one")
    return name


def _not_ready(group: Mapping[str, Any]) -> list[str]:
    conditions = map(as_map, as_list(as_map(group.get("status")).get("conditions")))
    return [
        f"{group['metadata']['name']}: {each.get('reason')}: {each.get('message')}"
        for each in conditions
        if each.get("type") == "Ready" and each.get("status") != "True"
    ]


def _of(names: list[str]) -> str:
    return f"{NODE_GROUP_LABEL} in ({','.join(names)})"
