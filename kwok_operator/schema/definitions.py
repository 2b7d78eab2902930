"""The CustomResourceDefinitions of KwokNodeGroup, KwokCapacityPool and KwokPodProfile.

Turns the models' JSON schema into a structural one (nothing by reference, no null, no default), and
adds subresources, columns and the rule on the object's name. All fields and their descriptions are
the models'.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kwok_operator.api.base import STORED_DEFAULT, ApiModel
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

CRD_NAME = f"{PLURAL}.{API_GROUP}"
POOL_CRD_NAME = f"{POOL_PLURAL}.{API_GROUP}"

# uniqueItems is refused by the API server (list-type set says it), propertyNames unknown to it.
# Defaults would be written into every object, and show up in users' diffs; the models apply them,
# but for the two that server-side apply needs (STORED_DEFAULT and that of spec).
_DROPPED = frozenset({"title", "default", "uniqueItems", "propertyNames", "$defs"})


def structural_schema(model: type[ApiModel]) -> dict[str, Any]:
    """The model's schema in the form that a CRD takes."""
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
    """A field; an object may be null where that means the same as {}.

    Server-side apply turns an object into null when a manifest takes its last field away ({zone: a}
    becomes {}), and the API server would refuse it. `X | None` is excepted, unless the model says
    so: its presence counts.
    """
    result = _structural(field, definitions=definitions)
    if result.get("type") == "object" and not required and "anyOf" not in field:
        result["nullable"] = True
    return result


def _resolved(schema: Mapping[str, Any], *, definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself in place of a reference to it, and X in place of `X | None`.

    What a field says about itself, such as its description, goes before what its class says.
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


_NOUNS = {KIND: "group", POOL_KIND: "pool", PROFILE_KIND: "profile"}


def _root_schema(
    kind: str, description: str, *, spec: type[ApiModel], status: type[ApiModel], **about_all: Any
) -> dict[str, Any]:
    """The schema of the whole object; `about_all` is what it says besides its fields."""
    noun = _NOUNS[kind]
    return {
        "description": description,
        "type": "object",
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": f"Always {API_GROUP}/{API_VERSION}.",
            },
            "kind": {"type": "string", "description": f"Always {kind}."},
            # The name is mentioned so that a rule can point to it.
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            # Never absent: server-side apply of {} in place of {targetSize: 10} would be refused.
            "spec": {
                **structural_schema(spec),
                "description": f"What the {noun} should be.",
                "default": {},
            },
            "status": {
                **structural_schema(status),
                "description": f"What the {noun} is; written by the operator only.",
            },
        },
        **about_all,
    }


def _group_schema() -> dict[str, Any]:
    rule = {
        "rule": f"self.metadata.name.size() <= {MAX_GROUP_NAME_LENGTH}",
        "message": f"metadata.name must have at most {MAX_GROUP_NAME_LENGTH} characters:"
        " a node is called after its group, with a number, and its hostname label holds"
        " 63; choose a shorter name",
        "fieldPath": ".metadata.name",
    }
    return _root_schema(
        KIND,
        "A group of fake nodes: kwok keeps them alive, the operator keeps their number."
        " spec: {targetSize: 10} is a whole group.",
        spec=KwokNodeGroupSpec,
        status=KwokNodeGroupStatus,
        **{"x-kubernetes-validations": [rule]},
    )


def _pool_schema() -> dict[str, Any]:
    return _root_schema(
        POOL_KIND,
        "What groups of fake nodes share in the simulated cloud: a zone's stock, a quota, a"
        " reservation. Groups name it in spec.cloud.capacityPools; first come, first served."
        " spec: {instances: 50} is a whole pool.",
        spec=KwokCapacityPoolSpec,
        status=KwokCapacityPoolStatus,
    )


def _profile_schema() -> dict[str, Any]:
    return _root_schema(
        PROFILE_KIND,
        "How pods on fake nodes start, run, fail, end and use resources. It is compiled to kwok's"
        " Stages and usage objects; the operator neither watches pods nor writes them.",
        spec=KwokPodProfileSpec,
        status=KwokPodProfileStatus,
    )


_Column = tuple[str, str, str, str]
"""Name, path, type and description."""


def _columns(shown: Sequence[_Column], *, wide: Sequence[_Column]) -> list[dict[str, Any]]:
    """The age comes last of those that are always shown."""
    age = ("AGE", ".metadata.creationTimestamp", "date", "Time since it was created")
    columns: list[dict[str, Any]] = [
        {"name": name, "type": kind, "jsonPath": path, "description": description}
        for name, path, kind, description in (*shown, age, *wide)
    ]
    for column in columns[len(shown) + 1 :]:
        column["priority"] = 1
    return columns


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def _group_columns() -> list[dict[str, Any]]:
    capacity = ".status.resolvedTemplate.status.capacity"
    target = "Number of nodes in force, within all limits"
    return _columns(
        (
            ("TARGET", ".status.targetSize", "integer", target),
            ("CURRENT", ".status.replicas", "integer", "Nodes that exist"),
            ("READY", ".status.readyReplicas", "integer", "Nodes that are Ready and take pods"),
            ("STATUS", _condition("Ready", "reason"), "string", "Why the group is Ready or not"),
        ),
        wide=(
            ("MIN", ".spec.autoscaling.minSize", "integer", "Fewest nodes"),
            ("MAX", ".spec.autoscaling.maxSize", "integer", "Most nodes"),
            ("CPU", f"{capacity}.cpu", "string", "CPU of each node"),
            ("MEMORY", f"{capacity}.memory", "string", "Memory of each node"),
        ),
    )


def _pool_columns() -> list[dict[str, Any]]:
    gpu = "nvidia\\.com/gpu"
    refused = "Instances that found no room, and wait"
    outage = "Whether no Node is Ready, and no instance comes"
    return _columns(
        (
            ("INSTANCES", ".status.instances", "integer", "Instances that draw from the pool"),
            ("LIMIT", ".spec.instances", "integer", "Most instances"),
            ("REFUSED", ".status.refused", "integer", refused),
            ("OUTAGE", _condition("Outage", "status"), "string", outage),
        ),
        wide=(
            ("CPU", ".status.resources.cpu", "string", "CPU in use"),
            ("CPU-LIMIT", ".spec.resources.cpu", "string", "Most CPU"),
            ("GPU", f".status.resources.{gpu}", "string", "GPUs in use"),
            ("GPU-LIMIT", f".spec.resources.{gpu}", "string", "Most GPUs"),
        ),
    )


def _profile_columns() -> list[dict[str, Any]]:
    overlapping = "Whether another profile holds for some of its pods"
    return _columns(
        (
            ("PRIORITY", ".spec.priority", "integer", "The greatest holds, of several for a pod"),
            ("STAGES", ".status.stages", "integer", "Stages that it was compiled to"),
            ("COMPILED", _condition("Compiled", "reason"), "string", "Whether it holds"),
            ("PRESENT", _condition("StagesPresent", "status"), "string", "Whether kwok has it"),
        ),
        wide=(
            ("NAMESPACES", ".status.namespaces", "integer", "Namespaces that it selects"),
            ("OVERLAPPING", _condition("Overlapping", "status"), "string", overlapping),
            ("SEED", ".spec.seed", "string", "What draws are made from"),
        ),
    )


def custom_resource_definition() -> dict[str, Any]:
    """That of KwokNodeGroup, as `kubectl apply` takes it."""
    return _definition(
        names={"kind": KIND, "plural": PLURAL, "singular": SINGULAR, "shortNames": [SHORT_NAME]},
        schema=_group_schema(),
        columns=_group_columns(),
        scale={
            "specReplicasPath": ".spec.targetSize",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    )


def pool_definition() -> dict[str, Any]:
    """That of KwokCapacityPool, as `kubectl apply` takes it."""
    return _definition(
        names={
            "kind": POOL_KIND,
            "plural": POOL_PLURAL,
            "singular": POOL_SINGULAR,
            "shortNames": [POOL_SHORT_NAME],
        },
        schema=_pool_schema(),
        columns=_pool_columns(),
    )


def profile_definition() -> dict[str, Any]:
    """That of KwokPodProfile, as `kubectl apply` takes it."""
    return _definition(
        names={
            "kind": PROFILE_KIND,
            "plural": PROFILE_PLURAL,
            "singular": PROFILE_SINGULAR,
            "shortNames": [PROFILE_SHORT_NAME],
        },
        schema=_profile_schema(),
        columns=_profile_columns(),
    )


def definitions() -> tuple[dict[str, Any], ...]:
    """All of them, by name."""
    return pool_definition(), custom_resource_definition(), profile_definition()


def _definition(
    *,
    names: Mapping[str, Any],
    schema: Mapping[str, Any],
    columns: Sequence[Mapping[str, object]],
    **subresources: Any,
) -> dict[str, Any]:
    version = {
        "name": API_VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {**subresources, "status": {}},
    }
    names = {**names, "listKind": f"{names['kind']}List", "categories": [CATEGORY]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{API_GROUP}"},
        "spec": {"group": API_GROUP, "names": names, "scope": "Cluster", "versions": [version]},
    }
