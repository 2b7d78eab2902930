"""Makes the CustomResourceDefinitions of KwokNodeGroup, KwokCapacityPool and KwokPodProfile.

It turns the models' JSON schema into a structural one (no references, no null, no default), and
adds subresources, columns and the rule on the object's name. All fields and their descriptions come
from the models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from kwok_operator.api.base import RULES, STORED_DEFAULT, ApiModel, ApiRule
from kwok_operator.cloud.api.capacitypool import KwokCapacityPoolSpec, KwokCapacityPoolStatus
from kwok_operator.constants import (
    API_GROUP,
    API_VERSION,
    CATEGORY,
    KIND,
    MAX_GROUP_NAME_LENGTH,
    PLURAL,
    POOL_KIND,
    POOL_PLURAL,
    POOL_SHORT_NAME,
    POOL_SINGULAR,
    PROFILE_KIND,
    PROFILE_PLURAL,
    PROFILE_SHORT_NAME,
    PROFILE_SINGULAR,
    SHORT_NAME,
    SINGULAR,
)
from kwok_operator.nodegroups.api.nodegroup import KwokNodeGroupSpec
from kwok_operator.nodegroups.api.status import KwokNodeGroupStatus
from kwok_operator.podprofiles.api import KwokPodProfileSpec, KwokPodProfileStatus
from kwok_operator.topology.api import OUTAGE_UNITS

# The API server refuses uniqueItems (list-type set replaces it), and doesn't know propertyNames.
# Defaults would be stored in every object and show up in users' diffs, so the models apply them;
# except the two that server-side apply needs (STORED_DEFAULT and that of spec).
_DROPPED = frozenset({"title", "default", "uniqueItems", "propertyNames", "$defs"})


def _structural_schema(model: type[ApiModel]) -> dict[str, Any]:
    """Returns the model's schema in the form of a CRD, except that its rules are `ApiRule`s."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _structural(schema, definitions=schema.get("$defs", {}))


def _structural(schema: Mapping[str, Any], *, definitions: Mapping[str, Any]) -> dict[str, Any]:
    schema = _resolved(schema, definitions=definitions)
    result = {key: value for key, value in schema.items() if key not in _DROPPED}
    if STORED_DEFAULT in result:
        result["default"] = result.pop(STORED_DEFAULT)
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), Mapping):
            result[key] = _structural(result[key], definitions=definitions)
    if result.get("x-kubernetes-preserve-unknown-fields"):
        result.pop("additionalProperties", None)
    if result.get("type") == "array":
        # Never "set": then each write of the object, also of its status, costs the API server nine
        # times as much, because it keeps an owner for each item.
        is_map = "x-kubernetes-list-map-keys" in result
        result["x-kubernetes-list-type"] = "map" if is_map else "atomic"
    if "properties" in result:
        required = result.get("required", ())
        result["properties"] = {
            name: _property(field, required=name in required, definitions=definitions)
            for name, field in result["properties"].items()
        }
    return result


def _property(
    field: Mapping[str, Any], *, required: bool, definitions: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the schema of a field. An object may be null if that means the same as {}.

    Server-side apply turns an object into null when a manifest removes its last field ({zone: a}
    becomes {}), and the API server would refuse it. `X | None` may not be null unless the model
    says so, as there {} and a missing field differ.
    """
    result = _structural(field, definitions=definitions)
    if result.get("type") == "object" and not required and "anyOf" not in field:
        result["nullable"] = True
    return result


def _resolved(schema: Mapping[str, Any], *, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replaces a reference by the schema that it refers to, and `X | None` by X.

    The field's own keys, such as its description, override those of the referred schema.
    """
    while True:
        options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
        if "$ref" in schema:
            inner, replaced = definitions[schema["$ref"].rpartition("/")[2]], "$ref"
        elif len(options) == 1:
            inner, replaced = options[0], "anyOf"
        else:
            return schema
        schema = {**inner, **{key: value for key, value in schema.items() if key != replaced}}


_Column = tuple[str, str, str, str]
"""A printer column: name, type, path and description."""


@dataclass(frozen=True, slots=True)
class _Kind:
    names: Mapping[str, str]
    noun: str
    description: str
    spec: type[ApiModel]
    status: type[ApiModel]
    columns: tuple[_Column, ...]
    wide: tuple[_Column, ...]
    rules: tuple[ApiRule, ...] = ()
    subresources: Mapping[str, Any] = field(default_factory=dict)

    def schema(self) -> dict[str, Any]:
        """Returns the schema of a whole object; each rule in it is an `ApiRule`."""
        version = f"{API_GROUP}/{API_VERSION}"
        return {
            "description": self.description,
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string", "description": f"Always {version}."},
                "kind": {"type": "string", "description": f"Always {self.names['kind']}."},
                # metadata.name is listed so that rules can refer to it. The API server estimates
                # their cost from its length.
                "metadata": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 253}},
                },
                # Always stored: the API server would refuse a server-side apply of {} in place of
                # {targetSize: 10}.
                "spec": {
                    **_structural_schema(self.spec),
                    "description": f"What the {self.noun} should be.",
                    "default": {},
                },
                "status": {
                    **_structural_schema(self.status),
                    "description": f"What the {self.noun} is; written by the operator only.",
                },
            },
            **({RULES: list(self.rules)} if self.rules else {}),
        }

    def printer_columns(self) -> list[dict[str, Any]]:
        """Returns the printer columns; the age is the last of those that are always shown."""
        age = ("AGE", "date", ".metadata.creationTimestamp", "Time since it was created")
        shown, wide = (*self.columns, age), self.wide
        return [
            {"name": name, "type": kind, "jsonPath": path, "description": description}
            | ({} if place < len(shown) else {"priority": 1})
            for place, (name, kind, path, description) in enumerate((*shown, *wide))
        ]

    def definition(self) -> dict[str, Any]:
        """Returns the CustomResourceDefinition as an object for `kubectl apply`."""
        version = {
            "name": API_VERSION,
            "served": True,
            "storage": True,
            "additionalPrinterColumns": self.printer_columns(),
            "schema": {"openAPIV3Schema": _plain(self.schema())},
            "subresources": {**self.subresources, "status": {}},
        }
        names = {key: name for key, name in self.names.items() if key != "shortName"} | {
            "shortNames": [self.names["shortName"]],
            "listKind": f"{self.names['kind']}List",
            "categories": [CATEGORY],
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{names['plural']}.{API_GROUP}"},
            "spec": {"group": API_GROUP, "names": names, "scope": "Cluster", "versions": [version]},
        }


def _plain(part: Any) -> Any:
    """Replaces each `ApiRule` by its form in a CRD."""
    if isinstance(part, ApiRule):
        return part.as_schema()
    if isinstance(part, dict):
        return {key: _plain(value) for key, value in part.items()}
    return [_plain(item) for item in part] if isinstance(part, list) else part


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def _has_a_short_name(group: Mapping[str, Any]) -> bool:
    name = (group.get("metadata") or {}).get("name")
    return not isinstance(name, str) or len(name) <= MAX_GROUP_NAME_LENGTH


_CAPACITY: Final = ".status.resolvedTemplate.status.capacity"
_GROUP: Final = _Kind(
    names={"kind": KIND, "plural": PLURAL, "singular": SINGULAR, "shortName": SHORT_NAME},
    noun="group",
    description="A group of fake nodes: kwok keeps them alive, the operator keeps their number."
    " spec: {targetSize: 10} is a whole group.",
    spec=KwokNodeGroupSpec,
    status=KwokNodeGroupStatus,
    columns=(
        ("TARGET", "integer", ".status.targetSize", "Number of nodes in force, within all limits"),
        ("CURRENT", "integer", ".status.replicas", "Nodes that exist"),
        ("READY", "integer", ".status.readyReplicas", "Nodes that are Ready and take pods"),
        ("STATUS", "string", _condition("Ready", "reason"), "Why the group is Ready or not"),
    ),
    wide=(
        ("MIN", "integer", ".spec.autoscaling.minSize", "Fewest nodes"),
        ("MAX", "integer", ".spec.autoscaling.maxSize", "Most nodes"),
        ("CPU", "string", f"{_CAPACITY}.cpu", "CPU of each node"),
        ("MEMORY", "string", f"{_CAPACITY}.memory", "Memory of each node"),
    ),
    rules=(
        ApiRule(
            f"self.metadata.name.size() <= {MAX_GROUP_NAME_LENGTH}",
            f"metadata.name must have at most {MAX_GROUP_NAME_LENGTH} characters:"
            " a node is called after its group, with a number, and its hostname label holds"
            " 63; choose a shorter name",
            _has_a_short_name,
            field="metadata.name",
        ),
        OUTAGE_UNITS,
    ),
    subresources={
        "scale": {
            "specReplicasPath": ".spec.targetSize",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    },
)

_GPU: Final = "nvidia\\.com/gpu"
_POOL: Final = _Kind(
    names={
        "kind": POOL_KIND,
        "plural": POOL_PLURAL,
        "singular": POOL_SINGULAR,
        "shortName": POOL_SHORT_NAME,
    },
    noun="pool",
    description="What groups of fake nodes share in the simulated cloud: a zone's stock, a quota, a"
    " reservation. Groups name it in spec.cloud.capacityPools; first come, first served."
    " spec: {instances: 50} is a whole pool.",
    spec=KwokCapacityPoolSpec,
    status=KwokCapacityPoolStatus,
    columns=(
        ("INSTANCES", "integer", ".status.instances", "Instances that draw from the pool"),
        ("LIMIT", "integer", ".spec.instances", "Most instances"),
        ("REFUSED", "integer", ".status.refused", "Instances that found no room, and wait"),
        (
            "OUTAGE",
            "string",
            _condition("Outage", "status"),
            "Whether no Node is Ready, and no instance comes",
        ),
    ),
    wide=(
        ("CPU", "string", ".status.resources.cpu", "CPU in use"),
        ("CPU-LIMIT", "string", ".spec.resources.cpu", "Most CPU"),
        ("GPU", "string", f".status.resources.{_GPU}", "GPUs in use"),
        ("GPU-LIMIT", "string", f".spec.resources.{_GPU}", "Most GPUs"),
    ),
)

_PROFILE: Final = _Kind(
    names={
        "kind": PROFILE_KIND,
        "plural": PROFILE_PLURAL,
        "singular": PROFILE_SINGULAR,
        "shortName": PROFILE_SHORT_NAME,
    },
    noun="profile",
    description="How pods on fake nodes start, run, fail, end and use resources. It is compiled to"
    " kwok's Stages and usage objects; the operator neither watches pods nor writes them.",
    spec=KwokPodProfileSpec,
    status=KwokPodProfileStatus,
    columns=(
        ("PRIORITY", "integer", ".spec.priority", "The greatest holds, of several for a pod"),
        ("STAGES", "integer", ".status.stages", "Stages that it was compiled to"),
        ("COMPILED", "string", _condition("Compiled", "reason"), "Whether it holds"),
        ("PRESENT", "string", _condition("StagesPresent", "status"), "Whether kwok has it"),
    ),
    wide=(
        ("NAMESPACES", "integer", ".status.namespaces", "Namespaces that it selects"),
        (
            "OVERLAPPING",
            "string",
            _condition("Overlapping", "status"),
            "Whether another profile holds for some of its pods",
        ),
        ("SEED", "string", ".spec.seed", "What draws are made from"),
    ),
)
_KINDS: Final = {kind.names["kind"]: kind for kind in (_POOL, _GROUP, _PROFILE)}


@cache
def schema_of(kind: str) -> Mapping[str, Any]:
    """Returns the schema of a whole object of one of our kinds. Each rule in it is an `ApiRule`."""
    return _KINDS[kind].schema()


def definitions() -> tuple[dict[str, Any], ...]:
    """Returns the CustomResourceDefinitions of all our kinds, by name."""
    return tuple(kind.definition() for kind in _KINDS.values())
