"""Makes NodePools for Karpenter's kwok provider from those of a real cluster.

NodePools, labels of the imported groups  --add, finish-->  manifests, notes

The NodePools can only make nodes like those of the imported groups, as no other instance types are
known. So a requirement about a label is kept if the groups' nodes have the label, even one that
only clouds set.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator import constants
from kwok_operator.errors import one_line
from kwok_operator.formats.podparts import meets
from kwok_operator.formats.quantity import parse_quantity
from kwok_operator.formats.untyped import as_list, as_map, as_texts, text_at
from kwok_operator.importing.nodes.pools import TYPE_KEYS, ZONE_KEYS, capacity_type
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.allow import INT_OR_TEXT, QUANTITIES, Schema, copy_allowed
from kwok_operator.nodegroups.naming import is_object_name

KIND: Final = "NodePool"
_DOMAIN: Final = "karpenter.sh"
_NODE_CLASS: Final = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
_TAINT: Final[Schema] = {"key": str, "value": str, "effect": str}
_REQUIREMENT: Final[Schema] = {"key": str, "operator": str, "values": [str]}
_TEMPLATE: Final[Mapping[str, Schema]] = {
    "taints": [_TAINT],
    "expireAfter": str,
    "terminationGracePeriod": str,
}
_SPEC: Final[Mapping[str, Schema]] = {
    "disruption": {
        "consolidationPolicy": str,
        "consolidateAfter": str,
        "budgets": [{"nodes": INT_OR_TEXT, "reasons": [str], "schedule": str, "duration": str}],
    },
    "limits": QUANTITIES,
    "weight": int,
    "replicas": int,
}
_OLD_POLICIES: Final = {"WhenUnderutilized": "WhenEmptyOrUnderutilized"}
"""Values of v1beta1, with the values that replaced them in v1."""
_ALWAYS_KNOWN: Final = frozenset(
    {
        constants.CAPACITY_TYPE_LABEL,
        *(constants.ARCH_LABEL, constants.BETA_ARCH_LABEL),
        *(constants.OS_LABEL, constants.BETA_OS_LABEL),
        *TYPE_KEYS,
        *ZONE_KEYS,
    }
)
"""Labels that the instance types of the kwok provider always have, with their former names."""
_OF_CLOUDS: Final = (
    *("k8s.aws", "amazonaws.com", "karpenter.azure.com", "kubernetes.azure.com"),
    *("k8s.gcp", "cloud.google.com", "gke.io", "kubernetes.io", "k8s.io"),
)
"""Domains of labels that clouds give their nodes: a NodePool can't add them itself."""


@dataclass(slots=True)
class NodePools:
    """Collects NodePools. `add` never raises: it notes an object without a valid name."""

    _bodies: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _notes: list[Note] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._bodies)

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    @property
    def read(self) -> int:
        return len(self._bodies) + len(self._notes)

    def add(self, body: Any) -> None:
        name = text_at(body, "metadata", "name")
        if is_object_name(name):
            self._bodies[name] = as_map(body)
        else:
            self._notes.append(Note(Ref(KIND, "", ""), Reason.NO_OBJECT, dropped=True))

    def finish(
        self, labels_of: Mapping[str, Mapping[str, str]]
    ) -> tuple[list[dict[str, Any]], list[Note]]:
        """Returns manifests and notes. `labels_of` has, by imported group, the labels of the
        group's nodes.
        """
        notes = list(self._notes)
        groups = defaultdict[str, list[str]](list)
        for name, labels in sorted(labels_of.items()):
            groups[labels.get(constants.NODE_POOL_LABEL, "")].append(name)
        known = _ALWAYS_KNOWN.union(*labels_of.values())
        manifests = []
        for name, body in sorted(self._bodies.items()):
            of_pool = {group: labels_of[group] for group in groups[name]}
            pool = _Pool(name, as_map(body.get("spec")), of_pool, known)
            manifest = pool.manifest()
            if of_pool or pool.fits(manifest, labels_of.values()):
                manifests.append(manifest)
                notes += pool.notes
            else:
                notes.append(Note(Ref(KIND, "", name), Reason.POOL_UNKNOWN, dropped=True))
        return manifests, notes


@dataclass(slots=True)
class _Pool:
    name: str
    spec: Mapping[str, Any]
    groups: Mapping[str, Mapping[str, str]]
    """The labels of the nodes of each of the NodePool's groups."""
    known: frozenset[str]
    notes: list[Note] = field(default_factory=list)

    def manifest(self) -> dict[str, Any]:
        template = as_map(self.spec.get("template"))
        inner = as_map(template.get("spec"))
        spec = self._kept(self.spec, _SPEC, "spec")
        kept = self._kept(inner, _TEMPLATE, "spec.template.spec")
        disruption = spec.get("disruption") or {}
        if (policy := disruption.get("consolidationPolicy")) in _OLD_POLICIES:
            disruption["consolidationPolicy"] = _OLD_POLICIES[policy]
        if old := text_at(self.spec, "disruption", "expireAfter"):  # v1beta1
            kept.setdefault("expireAfter", old)
        for budget in disruption.get("budgets") or ():
            budget["nodes"] = str(budget.get("nodes", "10%"))
        for key in self._bad_limits(spec.get("limits") or {}):
            del spec["limits"][key]
        if inner.get("startupTaints"):
            self._note(Reason.STARTUP_TAINTS, "spec.template.spec.startupTaints")
        if not self.groups:
            self._note(Reason.POOL_WITHOUT_NODES)
        labels = as_texts(as_map(template.get("metadata")).get("labels"))
        labels = {key: value for key, value in labels.items() if not _is_karpenters(key)}
        return {
            "apiVersion": f"{_DOMAIN}/v1",
            "kind": KIND,
            "metadata": {"name": self.name},
            "spec": {
                **spec,
                "template": {
                    **({"metadata": {"labels": labels}} if labels else {}),
                    "spec": {
                        **kept,
                        "nodeClassRef": dict(_NODE_CLASS),
                        "requirements": [*self._of_groups(), *self._requirements(inner)],
                    },
                },
            },
        }

    def fits(self, manifest: Mapping[str, Any], nodes: Iterable[Mapping[str, str]]) -> bool:
        """Whether to keep a NodePool that had no node: whether one of the imported groups' `nodes`,
        given by their labels, can meet its requirements.

        Returns False if the import left out a requirement of the NodePool. Without it, a NodePool
        for GPUs, for instance, would make nodes without GPUs, too.
        """
        if any(note.reason is Reason.REQUIREMENT_UNKNOWN for note in self.notes):
            return False
        requirements = manifest["spec"]["template"]["spec"]["requirements"]
        return any(
            # A node without the label may get it.
            all(
                each["key"] not in labels or meets(labels[each["key"]], each)
                for each in requirements
            )
            for labels in nodes
        )

    def _of_groups(self) -> Iterator[dict[str, Any]]:
        """Yields requirements that allow only nodes like those of the groups of this NodePool.

        They name the capacity types, too: otherwise Karpenter may choose a type that its kwok
        provider doesn't offer, and the provider crashes.
        """
        if self.groups:
            kinds = {capacity_type(labels) for labels in self.groups.values()}
            yield _one_of(constants.NODE_GROUP_LABEL, self.groups)
            yield _one_of(constants.CAPACITY_TYPE_LABEL, kinds)

    def _requirements(self, inner: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        path = "spec.template.spec.requirements"
        for each in as_list(inner.get("requirements")):
            kept = copy_allowed({"requirement": each}, {"requirement": _REQUIREMENT})
            requirement = kept.fields.get("requirement") or {}
            key, operator = requirement.get("key"), requirement.get("operator")
            if not key or not operator:
                self._note(Reason.INVALID_FIELD, path)
                continue
            if as_map(each).get("minValues") is not None:
                self._note(Reason.MIN_VALUES, path, key)
            if key == constants.CAPACITY_TYPE_LABEL and self.groups:
                continue
            if _is_karpenters(key) or not self._can_be_met(key):
                self._note(Reason.REQUIREMENT_UNKNOWN, path, f"{key} {operator}")
            else:
                yield requirement

    def _can_be_met(self, key: str) -> bool:
        """Whether the nodes have the label, or the NodePool can add it."""
        domain = key.rpartition("/")[0]
        of_cloud = any(domain == each or domain.endswith(f".{each}") for each in _OF_CLOUDS)
        return key in self.known or not of_cloud

    def _kept(self, value: Any, schema: Mapping[str, Schema], path: str) -> dict[str, Any]:
        kept = copy_allowed(value, schema)
        for unfit in kept.unfit:
            self._note(Reason.INVALID_FIELD, f"{path}.{unfit}".rstrip("."))
        return kept.fields

    def _bad_limits(self, limits: Mapping[str, Any]) -> list[str]:
        bad = []
        for key, amount in limits.items():
            try:
                parse_quantity(amount)
            except ValueError:
                bad.append(key)
                self._note(Reason.INVALID_FIELD, "spec.limits", one_line(key, limit=100))
        return bad

    def _note(self, reason: Reason, path: str = "", detail: str = "") -> None:
        ref = Ref(KIND, "", self.name)
        self.notes.append(Note(ref, reason, path, one_line(detail, limit=200)))


def _one_of(key: str, values: Iterable[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": sorted(values)}


def _is_karpenters(key: str) -> bool:
    """Whether only Karpenter itself may set a label."""
    domain = key.rpartition("/")[0]
    own = domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")
    return (own and key != constants.CAPACITY_TYPE_LABEL) or key == constants.HOSTNAME_LABEL
