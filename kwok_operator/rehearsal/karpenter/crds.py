"""The CRDs that a user provides for Karpenter, and whether they fit its version.

objects of the folder  --KarpenterCrds.of-->  CRDs by kind, and their schemas by version
CRDs in the program    --unlike-->            a field in which these CRDs differ from the folder's
an object to apply     --problems-->          its mistakes, by the schema of its version
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kwok_operator.api.base import is_label_value
from kwok_operator.errors import KwokOperatorError
from kwok_operator.formats.manifests import CRD
from kwok_operator.formats.untyped import as_map, text_at, value_at
from kwok_operator.formats.words import names_in_words, shown
from kwok_operator.nodegroups.naming import is_object_name
from kwok_operator.rehearsal.crdschemas import fields_of, schemas_of
from kwok_operator.rehearsal.karpenter.nodepools import NODE_CLASS, NODE_POOL
from kwok_operator.schema.check import FieldProblem, check_by_schema

NODE_CLAIM: Final = "NodeClaim"
NODE_OVERLAY: Final = "NodeOverlay"
CAPACITY_BUFFER: Final = "CapacityBuffer"
_VERSIONS: Final = {NODE_POOL: "v1", NODE_CLAIM: "v1", NODE_CLASS: "v1alpha1"}
"""The API versions that Karpenter's kwok provider uses from 1.4 on."""
_NAMES: Final = {
    NODE_POOL: "nodepools.karpenter.sh",
    NODE_CLAIM: "nodeclaims.karpenter.sh",
    NODE_CLASS: "kwoknodeclasses.karpenter.kwok.sh",
    NODE_OVERLAY: "nodeoverlays.karpenter.sh",
    CAPACITY_BUFFER: "capacitybuffers.autoscaling.x-k8s.io",
}
_GATES: Final = {"NodeOverlay": NODE_OVERLAY, "CapacityBuffer": CAPACITY_BUFFER}
"""The kind that each feature gate needs."""
_DELAY: Final = ("properties", "spec", "properties", "nodeRegistrationDelay")


class KarpenterCrdsError(KwokOperatorError):
    """CRDs that Karpenter can't work with. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class KarpenterCrds:
    """The CRDs of a folder: their schemas by API version and kind, their specs by kind."""

    schemas: Mapping[tuple[str, str], Mapping[str, Any]]
    specs: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, objects: Iterable[Any], *, gates: Collection[str] = ()) -> "KarpenterCrds":
        """Reads the objects of a folder. `gates` are the feature gates that are on. Raises
        KarpenterCrdsError.
        """
        crds = {text_at(each, "metadata", "name"): each for each in objects if _is_crd(each)}
        kinds = [*_VERSIONS, *(_GATES[gate] for gate in sorted(gates) if gate in _GATES)]
        if missing := [_NAMES[kind] for kind in kinds if _NAMES[kind] not in crds]:
            raise KarpenterCrdsError(
                f"has no CRD {names_in_words(missing)}; name the folder that has those of this"
                " Karpenter's version (in kwok/charts/crds one is a link: `cp -rL` copies its file)"
            )
        crds = {name: crd for name, crd in crds.items() if name in _NAMES.values()}
        schemas = dict(entry for crd in crds.values() for entry in schemas_of(crd))
        for kind, version in _VERSIONS.items():
            served = {v.partition("/")[2] for v, each in schemas if each == kind}
            if version not in served:
                raise KarpenterCrdsError(
                    f"serves {kind} as {names_in_words(sorted(served)) or 'nothing'}, and Karpenter"
                    f" needs {version}; name the CRDs of Karpenter 1.4 or later"
                )
        of_class = next(s for (_, kind), s in schemas.items() if kind == NODE_CLASS)
        if value_at(of_class, *_DELAY) is None:
            raise KarpenterCrdsError(
                f"has a {NODE_CLASS} without nodeRegistrationDelay, so it is older than 1.4; name"
                " the CRDs of Karpenter 1.4 or later"
            )
        specs = (as_map(each.get("spec")) for each in crds.values())
        return cls(schemas, {text_at(each, "names", "kind"): each for each in specs})

    @staticmethod
    def gate_of(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
        """Returns the field by which an object needs a feature gate to have an effect, and that
        gate; None if it needs no gate.
        """
        kind = manifest.get("kind")
        if kind == NODE_POOL and value_at(manifest, "spec", "replicas") is not None:
            return "spec.replicas", "StaticCapacity"
        gates = [gate for gate, needed in _GATES.items() if needed == kind]
        return (f"kind: {kind}", gates[0]) if gates else None

    def unlike(self, those: Iterable[Any]) -> str:
        """Compares these CRDs with `those`. Returns in words a field, or an allowed value of a
        field, that only one side has; empty if the kinds that both sides have are equal.
        """
        others = dict(entry for crd in those if _is_crd(crd) for entry in schemas_of(crd))
        for version, kind in sorted(self.schemas.keys() & others.keys()):
            here, there = (set(fields_of(each[version, kind])) for each in (self.schemas, others))
            for fields, having in ((there - here, "lacks"), (here - there, "has")):
                if fields:
                    return f"{having} {min(fields)} of {kind}"
        return ""

    def path_of(self, manifest: Mapping[str, Any]) -> str:
        """Returns the API path of an object that has no `problems`."""
        spec, metadata = self.specs[manifest["kind"]], manifest["metadata"]
        place = f"/apis/{manifest['apiVersion']}"
        if spec.get("scope") == "Namespaced":
            place = f"{place}/namespaces/{metadata.get('namespace', 'default')}"
        return f"{place}/{text_at(spec, 'names', 'plural')}/{metadata['name']}"

    def problems(self, manifest: Mapping[str, Any]) -> list[FieldProblem]:
        """Returns the mistakes of an object that is to be applied."""
        version, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
        schema = self.schemas.get((version, kind))
        if schema is None or kind == NODE_CLAIM:
            can = sorted(f"{each} ({v})" for v, each in self.schemas if each != NODE_CLAIM)
            said = f"{shown(kind)} ({shown(version)}) is nothing that Karpenter takes"
            return [FieldProblem(("kind",), f"kind: {said}; it takes {names_in_words(can)}")]
        name = text_at(manifest, "metadata", "name")
        if not name:
            return [FieldProblem(("metadata",), "metadata.name: is missing, and must be given")]
        if not (is_object_name(name) and is_label_value(name)):  # nodes have it as a label
            sentence = f"metadata.name: {shown(name)} is no name of at most 63 characters"
            return [FieldProblem(("metadata", "name"), f"{sentence}; use a-z, 0-9, - and .")]
        namespace = as_map(manifest.get("metadata")).get("namespace")
        if namespace is not None and not (isinstance(namespace, str) and is_object_name(namespace)):
            sentence = f"metadata.namespace: {shown(namespace)} is no name of a namespace"
            return [FieldProblem(("metadata", "namespace"), f"{sentence}; correct it")]
        try:
            return check_by_schema(manifest, schema)
        except (AttributeError, KeyError, TypeError, ValueError):
            sentence = f"kind: the CRD of {kind} has a schema that can't be read; name another"
            return [FieldProblem(("kind",), sentence)]


def _is_crd(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == CRD
