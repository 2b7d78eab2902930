"""Decides which optional rights, needed only by some features, the operator of a rehearsal gets.

    objects of `apply` and of the timeline, patches, flags  --needed_rights-->  OptionalRights

A right has the name of the component in deploy/components that grants it. If the scenario runs
programs, any may be needed, as it isn't known what they apply.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kwok_operator.constants import KIND, PROFILE_KIND
from kwok_operator.errors import ManifestError
from kwok_operator.formats.manifests import Manifest, name_of
from kwok_operator.formats.untyped import as_map
from kwok_operator.formats.yamltext import load_documents
from kwok_operator.rehearsal.scenario.model import Component, Scenario

_PREFIX: Final = "kwok-operator-"
"""The prefix of the names of the components' roles and bindings."""
_MODES: Final = {"emulate": "clusterapi-emulate", "mirror": "clusterapi-mirror"}
"""The component that a mode of the operator's flag --clusterapi needs."""


class OptionalRights(NamedTuple):
    needed: frozenset[str]
    possible: frozenset[str]
    """The optional rights that a program of the scenario could need."""


def component_of(manifest: Manifest) -> str:
    """Returns the name of the component that a role or binding belongs to."""
    return name_of(manifest).removeprefix(_PREFIX)


def needed_rights(scenario: Scenario, objects: Iterable[Manifest]) -> OptionalRights:
    """Returns the rights that the scenario needs. `objects` are those that `apply` and the timeline
    apply.
    """
    patches = (step.patch.patch for step in scenario.timeline if step.patch is not None)
    # The kind of the patched object doesn't matter: no other kind has these fields.
    every = [*objects, *({"kind": kind, **p} for p in patches for kind in (KIND, "ConfigMap"))]
    needed = {name for name, need in _NEEDS.items() for each in every if need(each)}
    if scenario.has_outages:
        needed.add("hold-stage")
    mode = scenario.cluster.flags.get(Component.OPERATOR, {}).get("clusterapi", "")
    if mode in _MODES:
        needed |= {_MODES[mode], "companions"}  # Cluster API's objects can name drivers
    programs = any(process.command is not None for process in scenario.processes)
    programs |= any(step.run is not None for step in scenario.timeline)
    return OptionalRights(frozenset(needed), frozenset(_NEEDS if programs else ()) - needed)


def _deletes_pods(manifest: Manifest) -> bool:
    return _spec(manifest, "scaleDown").get("pods") == "Delete"


def _has_companions(manifest: Manifest) -> bool:
    template = _spec(manifest, "template")
    source = as_map(as_map(template.get("from")).get("nodes"))
    gpu = as_map(as_map(template.get("shape")).get("gpu"))
    return bool(template.get("companions") or source.get("companions") or gpu.get("dra"))


def _reads_other_clusters(manifest: Manifest) -> bool:
    source = as_map(as_map(_spec(manifest, "template").get("from")).get("nodes"))
    return bool(source.get("cluster")) or bool(_config(manifest).get("cluster"))


_NEEDS: Final[Mapping[str, Callable[[Manifest], bool]]] = {
    "companions": _has_companions,
    "delete-pods": _deletes_pods,
    "hold-stage": lambda manifest: bool(_spec(manifest, "cloud")),
    "pod-profiles": lambda manifest: manifest.get("kind") == PROFILE_KIND,
    "remote-templates": _reads_other_clusters,
}


def _spec(manifest: Manifest, part: str) -> Mapping[str, Any]:
    """Returns a part of a group's spec; empty for objects of other kinds."""
    return as_map(as_map(manifest.get("spec")).get(part)) if manifest.get("kind") == KIND else {}


def _config(manifest: Manifest) -> Mapping[str, Any]:
    """Returns the provider config (of cluster-autoscaler's kwok provider) in a ConfigMap; empty if
    the object has none.
    """
    text = as_map(manifest.get("data")).get("config")
    if manifest.get("kind") != "ConfigMap" or not isinstance(text, str):
        return {}
    try:
        documents = load_documents(text, where="config")
    except ManifestError:
        return {}  # the operator reports what is wrong with it
    return as_map(next(iter(documents), None))


COMPONENTS: Final = frozenset({*_NEEDS, *_MODES.values()})
