"""Builds a pod's shape: the fields of its spec and metadata that matter to scheduler and
autoscalers.

A shape has only fields that fields.py names. If it names a node, binding.py later replaces that
node by its group.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from kwok_operator.constants import GUARD_TAINT_EFFECT, GUARD_TAINT_KEY, GUARD_TAINT_VALUE
from kwok_operator.formats.untyped import as_list, as_map, text_at
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.allow import TEXTS, Kept, copy_allowed
from kwok_operator.importing.pods.fields import (
    ANNOTATIONS,
    CONTAINER,
    NAMED,
    NAMED_OF_CONTAINERS,
    POD,
    UNNAMED,
    UNNAMED_OF_CONTAINERS,
)

IMAGE: Final = "fake"
MOVED: Final = frozenset(("kube-system", "kube-public", "kube-node-lease", "kwok-operator"))
"""Namespaces of every cluster. Their objects are moved, as they could replace real ones."""
_OTHERS: Final = "others"
_ADMITTED: Final = [
    {
        "key": f"node.kubernetes.io/{problem}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for problem in ("not-ready", "unreachable")
]
"""Tolerations that the API server adds to each pod without them, with the default seconds."""


def namespace_there(name: str) -> str:
    """Returns the namespace into which the objects of a namespace are imported: the same, but
    imported-NAME for kube-system and others that every cluster has.
    """
    return f"imported-{name}" if name in MOVED else name


def pod_shape(
    spec: object, *, ref: Ref, keep_images: bool = False
) -> tuple[dict[str, Any], list[Note]]:
    """Returns the spec of a pod that runs nothing and is scheduled alike, and notes on what it
    lost.

    The pod tolerates the guard taint, by which nodes of groups keep other pods off. Never raises:
    an invalid pod becomes a pod of one container that requests nothing.
    """
    body = as_map(spec)
    kept = copy_allowed(body, POD)
    shape = kept.fields
    rename_namespaces(shape, namespace_there)
    _unmerge(shape)
    lost = _lost_fields(body, named=NAMED, unnamed=UNNAMED | POD.keys())
    for part, prefix in (("initContainers", "i"), ("containers", "c")):
        if body.get(part) is not None and not isinstance(body[part], list):
            kept.unfit.append(part)
        image = {"image"} if keep_images else set()
        containers = []
        for index, container in enumerate(as_list(body.get(part))):
            one, unfit = _container(
                container, on_host=body.get("hostNetwork") is True, keep_images=keep_images
            )
            if part == "containers":
                one.pop("restartPolicy", None)  # older API servers accept it only for sidecars
            containers.append({"name": f"{prefix}{index}", **one})
            kept.unfit += [f"{part}[].{path}" for path in unfit]
            of_one = _lost_fields(
                as_map(container),
                named=NAMED_OF_CONTAINERS - image,
                unnamed=UNNAMED_OF_CONTAINERS | image,
            )
            lost |= {f"{part}[].{name}" for name in of_one}
        if containers:
            shape[part] = containers
    shape.setdefault("containers", [{"name": "c0", "image": IMAGE}])
    shape["automountServiceAccountToken"] = False
    shape["enableServiceLinks"] = False
    tolerations = [each for each in shape.get("tolerations", ()) if each not in _ADMITTED]
    shape["tolerations"] = tolerations
    if not tolerates_guard(tolerations):
        tolerations.append({"key": GUARD_TAINT_KEY, "operator": "Exists"})
    notes = _invalid(ref, kept, prefix="spec.")
    for name, reason in _REASON_OF.items():
        if name in lost:
            lost.remove(name)
            notes.append(Note(ref, reason, field=f"spec.{name}"))
    if lost:
        notes.append(Note(ref, Reason.NOT_SCHEDULING, detail=", ".join(sorted(lost))))
    return shape, notes


def _unmerge(shape: Mapping[str, Any]) -> None:
    """Removes from selectors the requirements that the API server has added for `matchLabelKeys`:
    it refuses new pods that have them already.
    """
    for term in [*shape.get("topologySpreadConstraints", ()), *_pod_terms(shape)]:
        keys, selector = term.get("matchLabelKeys", ()), term.get("labelSelector", {})
        expressions = selector.get("matchExpressions", ())
        left = [r for r in expressions if r.get("operator") != "In" or r.get("key") not in keys]
        if len(left) < len(expressions):
            selector["matchExpressions"] = left


def _pod_terms(shape: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the terms of a shape's podAffinity and podAntiAffinity."""
    for kind in ("podAffinity", "podAntiAffinity"):
        for terms in shape.get("affinity", {}).get(kind, {}).values():
            for term in terms:
                yield term.get("podAffinityTerm", term)


_REASON_OF: Final = {
    "resourceClaims": Reason.RESOURCE_CLAIMS,
    "schedulingGates": Reason.SCHEDULING_GATES,
    "readinessGates": Reason.READINESS_GATES,
}


_NAME_LABEL: Final = "kubernetes.io/metadata.name"


def rename_namespaces(shape: Mapping[str, Any], there: Callable[[str], str]) -> None:
    """Renames the namespaces in podAffinity and podAntiAffinity."""
    for term in _pod_terms(shape):
        if "namespaces" in term:
            term["namespaces"] = [there(name) for name in term["namespaces"]]
        selector = term.get("namespaceSelector", {})
        labels = selector.get("matchLabels", {})
        if _NAME_LABEL in labels:
            labels[_NAME_LABEL] = there(labels[_NAME_LABEL])
        for expression in selector.get("matchExpressions", ()):
            if expression.get("key") == _NAME_LABEL and "values" in expression:
                expression["values"] = [there(name) for name in expression["values"]]


def _lost_fields(
    body: Mapping[str, Any], *, named: Collection[str], unnamed: Collection[str]
) -> set[str]:
    """Returns the names of fields with a value that an import drops: those in `named`, and one
    entry for all fields that are neither in `named` nor in `unnamed`, as their names might be
    private. Fields in `unnamed` don't count as lost.
    """
    lost = {name for name in named if body.get(name)}
    if any(value and key not in named and key not in unnamed for key, value in body.items()):
        lost.add(_OTHERS)
    return lost


def _container(
    container: object, *, on_host: bool, keep_images: bool
) -> tuple[dict[str, Any], list[str]]:
    kept = copy_allowed(container, CONTAINER)
    if container is None:
        kept.unfit.append("")
    made: dict[str, Any] = {"image": IMAGE}
    if keep_images and (image := text_at(container, "image")):
        made["image"] = image
    ports = []
    for port in kept.fields.pop("ports", []):
        if on_host and port.get("containerPort"):
            # The API server sets it in pods, not in templates, and the scheduler reserves it.
            port.setdefault("hostPort", port["containerPort"])
        if port.get("hostPort"):
            ports.append(port)
    if ports:
        made["ports"] = ports
    return {**made, **kept.fields}, kept.unfit


def tolerates_guard(tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether pods with these tolerations may be scheduled to nodes of a KwokNodeGroup."""
    return any(
        toleration.get("effect") in (None, "", GUARD_TAINT_EFFECT)
        and toleration.get("key") in (None, "", GUARD_TAINT_KEY)
        and (toleration.get("operator") == "Exists" or toleration.get("value") == GUARD_TAINT_VALUE)
        for toleration in tolerations
    )


def kept_metadata(
    metadata: object, *, ref: Ref, without: frozenset[str] = frozenset()
) -> tuple[dict[str, Any], list[Note]]:
    """Returns the labels, except those in `without`, and the annotations that schedulers and
    autoscalers read; and notes.
    """
    kept = copy_allowed(metadata, {"labels": TEXTS})
    made: dict[str, Any] = {}
    labels = {k: v for k, v in kept.fields.get("labels", {}).items() if k not in without}
    if labels:
        made["labels"] = labels
    annotations = as_map(metadata).get("annotations")
    if isinstance(annotations, Mapping):
        annotations = {k: v for k, v in annotations.items() if ANNOTATIONS.fullmatch(str(k))}
    texts = copy_allowed({"annotations": annotations}, {"annotations": TEXTS})
    kept.unfit += texts.unfit
    if annotations and not texts.unfit:
        made["annotations"] = annotations
    return made, _invalid(ref, kept, prefix="metadata.")


def _invalid(ref: Ref, kept: Kept, *, prefix: str) -> list[Note]:
    lost = ((Reason.INVALID_FIELD, kept.unfit), (Reason.UNKNOWN_FIELDS, kept.unknown))
    return [
        Note(ref, reason, field=f"{prefix}{path}".rstrip("."))
        for reason, paths in lost
        for path in dict.fromkeys(paths)
    ]


def spec_of(
    body: Mapping[str, Any], fields: Mapping[str, Any], *, ref: Ref
) -> tuple[dict[str, Any], list[Note]]:
    """Returns the fields of an object's spec that `fields` names; and notes."""
    kept = copy_allowed(body.get("spec"), fields)
    return kept.fields, _invalid(ref, kept, prefix="spec.")
