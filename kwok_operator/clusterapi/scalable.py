"""Reads MachineDeployments, MachineSets and MachinePools, of v1beta1 and of v1beta2.

A field of the wrong type counts as missing, as it does for cluster-autoscaler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kwok_operator.clusterapi.keys import Keys
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.untyped import as_list, as_map, as_texts, whole

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class CapiFinding:
    """A message for users about an object: field, value, what cluster-autoscaler (CA) does, remedy.

    `reason` is one word for programs, `about` is the id of the object, `path` is the field in it. A
    `note` needs no remedy.
    """

    reason: str
    message: str
    about: str
    path: Path = ()
    note: bool = False


class Kind(StrEnum):
    """The kinds that can be scaled."""

    MACHINE_DEPLOYMENT = "MachineDeployment"
    MACHINE_SET = "MachineSet"
    MACHINE_POOL = "MachinePool"

    @property
    def plural(self) -> str:
        return f"{self.lower()}s"


@dataclass(frozen=True, slots=True)
class InfrastructureRef:
    """The reference to the infrastructure template. `version` is empty in v1beta2."""

    group: str
    version: str
    kind: str
    name: str

    @property
    def resource(self) -> str:
        """The plural of the kind as cluster-autoscaler makes it, which may be wrong."""
        return f"{self.kind.lower()}s"


@dataclass(frozen=True, slots=True)
class Scalable:
    """A MachineDeployment, MachineSet or MachinePool.

    Its Machines get `template_labels`; cluster-autoscaler also expects `node_labels` on Nodes.
    `replicas` is None if not set; `deployment` is the MachineDeployment that owns a MachineSet.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    template_labels: Mapping[str, str]
    node_labels: Mapping[str, str]
    cluster_name: str
    replicas: int | None
    infrastructure: InfrastructureRef | None
    taints: tuple[Mapping[str, str], ...]
    deployment: str
    deleting: bool
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def id(self) -> str:
        """The name that cluster-autoscaler gives to the scalable's group: Kind/namespace/name."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def read_scalable(body: Mapping[str, Any], keys: Keys) -> Scalable:
    """Reads an object. Raises ManifestError if it is of another kind, or has no name."""
    metadata, spec = as_map(body.get("metadata")), as_map(body.get("spec"))
    try:
        kind = Kind(str(body.get("kind")))
    except ValueError:
        raise ManifestError(f"kind: {body.get('kind')!r} is none of {', '.join(Kind)}") from None
    name, namespace = metadata.get("name"), metadata.get("namespace", "default")
    for path, value in (("name", name), ("namespace", namespace)):
        if not isinstance(value, str) or not value:
            shown = one_line(repr(value), limit=100)
            raise ManifestError(f"{kind}: metadata.{path} is {shown}; give it a name")
    template = as_map(spec.get("template"))
    machine = as_map(template.get("spec"))
    labels = as_texts(metadata.get("labels"))
    cluster = spec.get("clusterName")
    return Scalable(
        kind=kind,
        namespace=str(namespace),
        name=str(name),
        uid=str(metadata.get("uid") or ""),
        labels=labels,
        annotations=as_texts(metadata.get("annotations")),
        template_labels=as_texts(as_map(template.get("metadata")).get("labels")),
        node_labels=_all_texts(as_map(machine.get("metadata")).get("labels")),
        cluster_name=cluster if isinstance(cluster, str) else labels.get(keys.cluster_name, ""),
        replicas=whole(spec.get("replicas")),
        infrastructure=_infrastructure(machine.get("infrastructureRef")),
        taints=tuple(as_texts(taint) for taint in as_list(machine.get("taints"))),
        deployment=_owner(metadata, Kind.MACHINE_DEPLOYMENT),
        deleting=bool(metadata.get("deletionTimestamp")),
        spec=spec,
    )


def _infrastructure(value: Any) -> InfrastructureRef | None:
    """Reads the infrastructureRef; None if cluster-autoscaler would ignore it."""
    ref = _all_texts(value)
    kind, name = ref.get("kind", ""), ref.get("name", "")
    group, version = ref.get("apiGroup", ""), ""
    if not group:
        group, _, version = ref.get("apiVersion", "").rpartition("/")
    if not (kind and name and group):
        return None
    return InfrastructureRef(group=group, version=version, kind=kind, name=name)


def _owner(metadata: Mapping[str, Any], kind: str) -> str:
    for reference in map(as_map, as_list(metadata.get("ownerReferences"))):
        name = reference.get("name")
        if reference.get("kind") == kind and isinstance(name, str) and name:
            return name
    return ""


def _all_texts(value: Any) -> dict[str, str]:
    """Reads a map of strings; {} if one of its values is no string, as in Go's
    unstructured.NestedStringMap."""
    texts = as_texts(value)
    return texts if len(texts) == len(as_map(value)) else {}
