"""Reduces an object of another cluster to a manifest that can be applied elsewhere.

body of a known kind ──clean_object──> a manifest or None, and what was lost
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kwok_operator.formats.untyped import as_list, as_map, text_at, value_at
from kwok_operator.importing.kinds import KINDS
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.allow import copy_allowed
from kwok_operator.importing.pods.binding import require_node
from kwok_operator.importing.pods.fields import (
    LABELS_OF_A_JOB,
    LABELS_OF_A_NAMESPACE_THAT_REFUSE,
    LABELS_OF_A_PLACE,
    OBJECTS,
    PRIORITY_CLASS,
    QUOTA,
    RUNTIME_CLASS,
)
from kwok_operator.importing.pods.shape import (
    MOVED,
    kept_metadata,
    namespace_there,
    pod_shape,
    spec_of,
)

Manifest = dict[str, Any]
Cleaned = tuple[Manifest | None, list[Note]]


_OF_EVERY_CLUSTER: Final = frozenset({"default", *MOVED})
"""Namespaces that exist in every cluster, or whose objects are moved to another namespace."""
_SYSTEM_CLASSES: Final = "system-"
"""Prefix of PriorityClasses that every cluster has, and that users can't create."""


def identity(kind: str, body: object) -> Ref | None:
    """Returns the kind, namespace and name of an object once it is imported; None if its name, or a
    namespace that it needs, is missing.
    """
    name = text_at(body, "metadata", "name")
    namespace = text_at(body, "metadata", "namespace") if KINDS[kind].namespaced else ""
    if not name or (KINDS[kind].namespaced and not namespace):
        return None
    return Ref(kind, namespace_there(namespace), name)


def clean_object(kind: str, body: object, *, keep_images: bool = False) -> Cleaned:
    """Returns an object's manifest for the import, with the same name, in the namespace that
    `namespace_there` returns, and notes on what it lost; or None, with a note that says why.

    `kind` is one of those in KINDS for which manifests are written. Never raises.
    """
    ref = identity(kind, body)
    if ref is None or not isinstance(body, Mapping):
        return None, [Note(Ref(kind, "", ""), Reason.NO_OBJECT, dropped=True)]
    if value_at(body, "metadata", "deletionTimestamp") is not None:
        return None, [Note(ref, Reason.TERMINATING, dropped=True)]
    return _CLEANERS[kind](body, ref, keep_images)


def manifest_of(ref: Ref, metadata: Manifest, **parts: Any) -> Manifest:
    known = KINDS[ref.kind]
    place = {"namespace": ref.namespace} if known.namespaced else {}
    return {
        "apiVersion": known.api_version,
        "kind": ref.kind,
        "metadata": {"name": ref.name, **place, **metadata},
        **parts,
    }


def _template(
    template: object,
    ref: Ref,
    keep_images: bool,
    *,
    without: frozenset[str] = frozenset(),
) -> tuple[Manifest, list[Note]]:
    """Cleans a pod template. If the template names its node, the pods require that node."""
    made, notes = _pod_of(template, ref, keep_images, without=without)
    node = value_at(template, "spec", "nodeName")
    if isinstance(node, str) and node:
        require_node(made["spec"], node)
    return made, notes


def _pod_of(
    template: object, ref: Ref, keep_images: bool, *, without: frozenset[str]
) -> tuple[Manifest, list[Note]]:
    metadata, notes = kept_metadata(value_at(template, "metadata"), ref=ref, without=without)
    spec, of_spec = pod_shape(value_at(template, "spec"), ref=ref, keep_images=keep_images)
    return {"metadata": metadata, "spec": spec}, notes + of_spec


def _workload(body: Mapping[str, Any], ref: Ref, keep_images: bool) -> Cleaned:
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref)
    spec, of_spec = spec_of(body, OBJECTS[ref.kind], ref=ref)
    template, of_template = _template(value_at(body, "spec", "template"), ref, keep_images)
    # Only templates of Jobs have it: elsewhere the API server accepts only Always.
    template["spec"].pop("restartPolicy", None)
    template["spec"].pop("activeDeadlineSeconds", None)
    notes += of_spec + of_template
    if not spec.get("selector") and ref.kind != "ReplicationController":
        return None, [Note(ref, Reason.INVALID_FIELD, field="spec.selector", dropped=True)]
    return manifest_of(ref, metadata, spec={**spec, "template": template}), notes


def _job(body: Mapping[str, Any], ref: Ref, keep_images: bool) -> Cleaned:
    for condition in as_list(value_at(body, "status", "conditions")):
        ended = value_at(condition, "type") in ("Complete", "Failed", "SuccessCriteriaMet")
        if ended and value_at(condition, "status") == "True":
            return None, [Note(ref, Reason.ENDED, dropped=True)]
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref, without=LABELS_OF_A_JOB)
    spec, more = _job_spec(body, ref, keep_images)
    done = value_at(body, "status", "succeeded")
    wanted = spec.get("completions")
    if isinstance(done, int) and not isinstance(done, bool) and done > 0 and wanted is not None:
        if wanted - done < 1:
            return None, [Note(ref, Reason.ENDED, dropped=True)]
        spec["completions"] = wanted - done
        notes.append(Note(ref, Reason.PARTLY_DONE, field="spec.completions", detail=str(done)))
    return manifest_of(ref, metadata, spec=spec), notes + more


def _job_spec(body: Mapping[str, Any], ref: Ref, keep_images: bool) -> tuple[Manifest, list[Note]]:
    spec, notes = spec_of(body, OBJECTS["Job"], ref=ref)
    template, of_template = _template(
        value_at(body, "spec", "template"), ref, keep_images, without=LABELS_OF_A_JOB
    )
    if template["spec"].get("restartPolicy") != "OnFailure":
        template["spec"]["restartPolicy"] = "Never"  # Jobs need one of the two
    return {**spec, "template": template}, notes + of_template


def _cron_job(body: Mapping[str, Any], ref: Ref, keep_images: bool) -> Cleaned:
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref)
    spec, of_spec = spec_of(body, OBJECTS[ref.kind], ref=ref)
    job = as_map(value_at(body, "spec", "jobTemplate"))
    job_metadata, of_job = kept_metadata(job.get("metadata"), ref=ref)
    job_spec, of_job_spec = _job_spec(job, ref, keep_images)
    spec |= {"suspend": True, "jobTemplate": {"metadata": job_metadata, "spec": job_spec}}
    notes.append(Note(ref, Reason.SUSPENDED, field="spec.suspend"))
    return manifest_of(ref, metadata, spec=spec), notes + of_spec + of_job + of_job_spec


def _pod(body: Mapping[str, Any], ref: Ref, keep_images: bool) -> Cleaned:
    if value_at(body, "status", "phase") in ("Succeeded", "Failed"):
        return None, [Note(ref, Reason.ENDED, dropped=True)]
    bound = bool(value_at(body, "spec", "nodeName"))
    without = LABELS_OF_A_PLACE if bound else frozenset[str]()
    template, notes = _pod_of(body, ref, keep_images, without=without)
    return manifest_of(ref, template["metadata"], spec=template["spec"]), notes


def _namespace(body: Mapping[str, Any], ref: Ref, _: bool) -> Cleaned:
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref)
    labels = metadata.get("labels", {})
    if ref.name in _OF_EVERY_CLUSTER:
        own = ", ".join(sorted(labels.keys() - {"kubernetes.io/metadata.name"}))
        return None, [Note(ref, Reason.NAMESPACE_LABELS, detail=own)] if own else []
    for key in [key for key in labels if LABELS_OF_A_NAMESPACE_THAT_REFUSE.fullmatch(key)]:
        del labels[key]
        notes.append(Note(ref, Reason.POD_SECURITY, field=f"metadata.labels.{key}"))
    return manifest_of(ref, metadata), notes


def _policy(body: Mapping[str, Any], ref: Ref, _: bool) -> Cleaned:
    """Cleans a PodDisruptionBudget, a LimitRange or a ResourceQuota. Drops the object if a field
    has a value of a wrong type: without its selector, limit or scope it would apply to other pods.
    """
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref)
    spec, of_spec = spec_of(body, OBJECTS[ref.kind], ref=ref)
    for note in of_spec:
        if note.reason is Reason.INVALID_FIELD:
            return None, [replace(note, dropped=True)]
    notes += of_spec
    if ref.kind == "LimitRange":
        limits = spec.get("limits", [])
        spec["limits"] = [one for one in limits if one.get("type") in ("Container", "Pod")]
        if spec["limits"] != limits:
            notes.append(Note(ref, Reason.QUOTA_UNUSED, field="spec.limits[]"))
    if ref.kind == "ResourceQuota":
        hard = spec.get("hard", {})
        unused = [name for name in hard if not QUOTA.fullmatch(name)]
        notes += [Note(ref, Reason.QUOTA_UNUSED, field=f"spec.hard.{name}") for name in unused]
        spec["hard"] = {name: hard[name] for name in hard if name not in unused}
    if ref.kind != "PodDisruptionBudget" and not (spec.get("hard") or spec.get("limits")):
        return None, [Note(ref, Reason.NOTHING_LEFT, dropped=True)]
    return manifest_of(ref, metadata, spec=spec), notes


def _priority_class(body: Mapping[str, Any], ref: Ref, _: bool) -> Cleaned:
    if ref.name.startswith(_SYSTEM_CLASSES):
        return None, []
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref)
    kept = copy_allowed(body, PRIORITY_CLASS)
    if "value" not in kept.fields:
        return None, [Note(ref, Reason.INVALID_FIELD, field="value", dropped=True)]
    return manifest_of(ref, metadata, **kept.fields), notes


def _runtime_class(body: Mapping[str, Any], ref: Ref, _: bool) -> Cleaned:
    metadata, notes = kept_metadata(body.get("metadata"), ref=ref)
    kept = copy_allowed(body, RUNTIME_CLASS)
    notes += [Note(ref, Reason.INVALID_FIELD, field=path) for path in kept.unfit]
    return manifest_of(ref, metadata, handler="fake", **kept.fields), notes


_CLEANERS: Final[dict[str, Callable[[Mapping[str, Any], Ref, bool], Cleaned]]] = {
    "Namespace": _namespace,
    "PriorityClass": _priority_class,
    "RuntimeClass": _runtime_class,
    "ResourceQuota": _policy,
    "LimitRange": _policy,
    "PodDisruptionBudget": _policy,
    "Deployment": _workload,
    "StatefulSet": _workload,
    "DaemonSet": _workload,
    "ReplicaSet": _workload,
    "ReplicationController": _workload,
    "CronJob": _cron_job,
    "Job": _job,
    "Pod": _pod,
}
