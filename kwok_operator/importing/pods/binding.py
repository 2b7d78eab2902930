"""Makes pods that only fit certain nodes select the groups of these nodes instead.

A pod may require a node, a label of one machine, or a volume that only some nodes reach. In the
cluster into which the pod is imported, the node doesn't exist, but its group does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kwok_operator.constants import HOSTNAME_LABEL, NODE_GROUP_LABEL
from kwok_operator.formats.untyped import as_list, text_at, value_at
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.allow import TEXTS, Schema, copy_allowed
from kwok_operator.importing.pods.fields import NODE_SELECTOR, PREFERRED, REQUIRED
from kwok_operator.importing.pods.shape import namespace_there

_ZONE_LABELS: Final = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
"""Zone labels of volumes from old provisioners, used if the volume has no node affinity."""
_OF_A_VOLUME: Final[dict[str, Schema]] = {
    "nodeAffinity": {"required": NODE_SELECTOR},
    "claimRef": {"namespace": str, "name": str},
}
_MAX_TERMS: Final = 32
"""The most terms of a node selector; more alternatives would slow down the scheduler."""

NAME_FIELD: Final = "metadata.name"
_EXPRESSIONS: Final = "matchExpressions"

Requirement = dict[str, Any]
Term = list[Requirement]
Places = Mapping[tuple[str, str], frozenset[str]]
"""The groups of the nodes that had a label, by its key and value; or a name, by NAME_FIELD and the
name. Empty if the nodes of the groups have the label, too: then pods can go on to select it.
"""


class Volumes:
    """Knows from which nodes the volumes of PersistentVolumeClaims can be reached."""

    def __init__(self) -> None:
        self._terms: dict[str, list[Term]] = {}
        self._volume_of: dict[tuple[str, str], str] = {}
        self._numbered: dict[tuple[str, str], set[str]] = {}
        """Claims by namespace and by their name without the number at its end."""

    def add_volume(self, name: str, body: Mapping[str, Any]) -> list[str]:
        """Adds a PersistentVolume. Returns the fields that could not be read."""
        kept = copy_allowed(body.get("spec"), _OF_A_VOLUME)
        affinity = kept.fields.get("nodeAffinity", {}).get("required", {})
        terms = [
            [*term.get("matchExpressions", ()), *term.get("matchFields", ())]
            for term in affinity.get("nodeSelectorTerms", ())
        ]
        terms = [term for term in terms if term]
        labels = copy_allowed(body.get("metadata"), {"labels": TEXTS}).fields.get("labels", {})
        if not terms:
            zones = [
                {"key": key, "operator": "In", "values": labels[key].split("__")}
                for key in _ZONE_LABELS
                if labels.get(key)
            ]
            terms = [zones] if zones else []
        if terms:
            self._terms[name] = terms
        claim = kept.fields.get("claimRef", {})
        if len(claim) == 2:
            # The claim's own field comes first: a released volume still names its last claim.
            self._bind(namespace_there(claim["namespace"]), claim["name"], name, again=False)
        return kept.unfit

    def add_claim(self, namespace: str, name: str, body: Mapping[str, Any]) -> list[str]:
        """Adds a PersistentVolumeClaim. Returns the fields that could not be read."""
        kept = copy_allowed(body.get("spec"), {"volumeName": str})
        if kept.fields.get("volumeName"):
            self._bind(namespace, name, kept.fields["volumeName"], again=True)
        return kept.unfit

    def _bind(self, namespace: str, claim: str, volume: str, *, again: bool) -> None:
        if again or (namespace, claim) not in self._volume_of:
            self._volume_of[namespace, claim] = volume
        self._numbered.setdefault((namespace, claim.rstrip("0123456789")), set()).add(claim)

    def of_claim(self, namespace: str, claim: str) -> list[Term]:
        """Returns alternative node requirements of a claim; none if any node reaches the volume, or
        the volume is unknown.
        """
        return self._terms.get(self._volume_of.get((namespace, claim), ""), [])

    def claims_like(self, namespace: str, prefix: str) -> list[str]:
        """Returns the claims of a StatefulSet's template, sorted: `<template>-<set>-<ordinal>`."""
        return sorted(self._numbered.get((namespace, prefix), set()) - {prefix})


def claims_of(spec: object) -> list[str]:
    """Returns the claims that a pod's volumes name."""
    volumes = as_list(value_at(spec, "volumes"))
    return list(filter(None, (text_at(v, "persistentVolumeClaim", "claimName") for v in volumes)))


def templates_of_claims(spec: object) -> list[str]:
    """Returns the names of a StatefulSet's volumeClaimTemplates."""
    templates = as_list(value_at(spec, "volumeClaimTemplates"))
    return list(filter(None, (text_at(template, "metadata", "name") for template in templates)))


def any_of(places: Sequence[Sequence[Term]]) -> list[Term]:
    """Returns the node requirements of equal pods that use different volumes, as at most one term.
    Each of `places` has the terms for the nodes of one volume. The term requires the keys that all
    volumes require, and allows the values of all volumes.
    """
    if not all(places):
        return []
    values = [_values_by_key(terms) for terms in places]
    shared = sorted(set.intersection(*map(set, values))) if values else []
    merged = {key: sorted(set().union(*(each[key] for each in values))) for key in shared}
    term = [{"key": key, "operator": "In", "values": merged[key]} for key in shared]
    return [term] if term else []


def _values_by_key(terms: Sequence[Term]) -> dict[str, set[str]]:
    """Returns the values that terms allow, by key; only for the keys that every term requires with
    the operator `In`.
    """
    values: dict[str, set[str]] = {}
    for key in set.intersection(*({r.get("key") for r in term} for term in terms)):
        named = [r for term in terms for r in term if r.get("key") == key]
        if isinstance(key, str) and all(r.get("operator") == "In" for r in named):
            values[key] = {value for r in named for value in r.get("values", ())}
    return values


def require(shape: dict[str, Any], terms: Sequence[Term]) -> bool:
    """Adds alternatives to a shape's required node affinity. Returns False if they are too many."""
    if not terms:
        return True
    affinity = shape.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    present = affinity.get(REQUIRED, {}).get("nodeSelectorTerms") or [{}]
    if REQUIRED in affinity:
        # An empty term matches no node; with a requirement added, it would match some.
        present = [term for term in present if any(term.values())]
        if not present:
            return True
    if len(present) * len(terms) > _MAX_TERMS:
        return False
    product = []
    for old in present:
        for term in terms:
            new = {part: list(items) for part, items in old.items()}
            for requirement in term:
                part = "matchFields" if requirement.get("key") == NAME_FIELD else _EXPRESSIONS
                if requirement not in new.setdefault(part, []):
                    new[part].append(requirement)
            product.append(new)
    affinity[REQUIRED] = {"nodeSelectorTerms": product}
    return True


def require_node(shape: dict[str, Any], name: str) -> None:
    """Requires the node of that name."""
    require(shape, [[{"key": NAME_FIELD, "operator": "In", "values": [name]}]])


def bind_to_groups(shape: dict[str, Any], *, places: Places, ref: Ref) -> list[Note]:
    """Changes a shape so that it selects groups where it selected nodes.

    Returns notes on the pod's groups, and on requirements that were left out.
    """
    rebinder = _Rebinder(places)
    selector = shape.get("nodeSelector", {})
    for key in [*selector]:
        wanted = {"key": key, "operator": "In", "values": [selector[key]]}
        rebound = rebinder.requirement(wanted)
        if rebound is wanted:
            continue
        del selector[key]
        if rebound is not None and (len(rebound["values"]) > 1 or NODE_GROUP_LABEL in selector):
            require(shape, [[rebound]])
        elif rebound is not None:
            selector[NODE_GROUP_LABEL] = rebound["values"][0]
    if not selector:
        shape.pop("nodeSelector", None)
    affinity = shape.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get(REQUIRED)
    if required is not None:
        terms = required.get("nodeSelectorTerms", ())
        rebound_terms = [rebinder.term(term) for term in terms]
        # A term that lost all its parts would fit no node, and without it, pods would have fewer
        # nodes to choose from.
        if any(any(t.values()) and not new for t, new in zip(terms, rebound_terms, strict=True)):
            affinity.pop(REQUIRED)
        else:
            required["nodeSelectorTerms"] = rebound_terms
    preferred = affinity.get(PREFERRED)
    if preferred is not None:
        for preference in preferred:
            preference["preference"] = rebinder.term(preference.get("preference", {}))
        affinity[PREFERRED] = [p for p in preferred if p["preference"]]
    return rebinder.notes(ref)


class _Rebinder:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._bound, self._lost = set[str](), 0

    def notes(self, ref: Ref) -> list[Note]:
        notes = []
        if self._bound:
            notes.append(Note(ref, Reason.BOUND_TO_NODE, detail=", ".join(sorted(self._bound))))
        if self._lost:
            notes.append(Note(ref, Reason.NODE_UNKNOWN, count=self._lost))
        return notes

    def term(self, term: Mapping[str, Any]) -> dict[str, Any]:
        requirements = [*term.get("matchExpressions", ()), *term.get("matchFields", ())]
        rebound = [new for each in requirements if (new := self.requirement(each)) is not None]
        return {_EXPRESSIONS: rebound} if rebound else {}

    def requirement(self, requirement: Requirement) -> Requirement | None:
        key, operator = requirement.get("key", ""), requirement.get("operator")
        labels = [(key, value) for value in requirement.get("values", ())]
        known = [self._places[each] for each in labels if each in self._places]
        if operator == "In" and known and all(known):
            groups = frozenset().union(*known)
            self._bound |= groups
            return {"key": NODE_GROUP_LABEL, "operator": "In", "values": sorted(groups)}
        if key == NAME_FIELD or (key == HOSTNAME_LABEL and operator != "Exists"):
            self._lost += 1
            return None
        return requirement
