"""MachineDeployments, MachineSets and MachinePools, as values; of v1beta1 and v1beta2 alike.

What has another type than Cluster API gives it counts as absent, as it does for cluster-autoscaler.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kwok_operator.clusterapi.keys import Keys
from kwok_operator.errors import ManifestError, one_line
from kwok_operator.formats.untyped import as_list, as_map, as_texts

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class CapiFinding:
    """What users should know of an object: field, value, what CA does, remedy.

    `reason` is one word for programs, `about` the object as CA calls it, `path` where in it the
    field stands. A `note` needs no remedy.
    """

    reason: str
    message: str
    about: str
    path: Path = ()
    note: bool = False


class Kind(StrEnum):
    """What can be scaled; the plural names its resource."""

    MACHINE_DEPLOYMENT = "MachineDeployment"
    MACHINE_SET = "MachineSet"
    MACHINE_POOL = "MachinePool"

    @property
    def plural(self) -> str:
        return f"{self.lower()}s"


@dataclass(frozen=True, slots=True)
class InfrastructureRef:
    """Which object describes the machines. `version` is empty in v1beta2."""

    group: str
    version: str
    kind: str
    name: str

    @property
    def resource(self) -> str:
        """As cluster-autoscaler forms the plural, whether it is right or not."""
        return f"{self.kind.lower()}s"


@dataclass(frozen=True, slots=True)
class Scalable:
    """One of them. `template_labels` are what its Machines get, `node_labels` what
    cluster-autoscaler takes for labels that reach the Node. `replicas` is None where there is none;
    `deployment` is the MachineDeployment that owns a MachineSet, or empty.
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
        """As cluster-autoscaler calls its group."""
        return f"{self.kind}/{self.namespace}/{self.name}"


def read_scalable(body: Mapping[str, Any], keys: Keys) -> Scalable:
    """Raises ManifestError for what is none of the kinds, or has no name."""
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
        replicas=_count(spec.get("replicas")),
        infrastructure=_infrastructure(machine.get("infrastructureRef")),
        taints=tuple(as_texts(taint) for taint in as_list(machine.get("taints"))),
        deployment=_owner(metadata, Kind.MACHINE_DEPLOYMENT),
        deleting=bool(metadata.get("deletionTimestamp")),
        spec=spec,
    )


def _infrastructure(value: Any) -> InfrastructureRef | None:
    """None where cluster-autoscaler finds nothing to look up."""
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


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _all_texts(value: Any) -> dict[str, str]:
    """All of them, or none where one is no text: as unstructured.NestedStringMap reads."""
    texts = as_texts(value)
    return texts if len(texts) == len(as_map(value)) else {}
