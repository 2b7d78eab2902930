"""Turns all workloads of another cluster into manifests that create the same pods elsewhere.

    add(kind, body), page after page, owners before pods ──> finish(places) ──> Imported

Pods whose controller is imported are only counted. Pods of unknown controllers become ReplicaSets,
static pods DaemonSets (gathered.py); a pod without an owner stays a pod.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kwok_operator.formats.untyped import as_list, text_at, value_at
from kwok_operator.importing.kinds import HPA, KINDS
from kwok_operator.importing.notes import Note, Reason, Ref
from kwok_operator.importing.pods.admitted import Admitted
from kwok_operator.importing.pods.allow import copy_allowed
from kwok_operator.importing.pods.binding import (
    NAME_FIELD,
    Places,
    Term,
    Volumes,
    any_of,
    bind_to_groups,
    claims_of,
    require,
    templates_of_claims,
)
from kwok_operator.importing.pods.fields import REQUIRED
from kwok_operator.importing.pods.gathered import Gathered, OwnedPod
from kwok_operator.importing.pods.objects import (
    Manifest,
    clean_object,
    identity,
    manifest_of,
)
from kwok_operator.importing.pods.podautoscalers import PodAutoscalers
from kwok_operator.importing.pods.podlocations import PodLocations
from kwok_operator.importing.pods.shape import MOVED, namespace_there

_CONTROLLERS: Final = frozenset(
    "Deployment StatefulSet DaemonSet ReplicaSet ReplicationController Job CronJob".split()
)
_MAKERS: Final = {
    "ReplicaSet": frozenset({"Deployment"}),
    "Job": frozenset({"CronJob"}),
    "Pod": _CONTROLLERS - {"Deployment", "CronJob"},
}
"""The kinds of owners whose controllers create objects of a kind. For other kinds, the owner may be
an operator's own Deployment.
"""
_SYSTEM_PRIORITIES: Final = frozenset(("system-node-critical", "system-cluster-critical"))
_GONE: Final = frozenset((Reason.TERMINATING, Reason.ENDED))
_PATH_OF_A_POD: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": ("spec",),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
} | {kind: ("spec", "template", "spec") for kind in _CONTROLLERS - {"CronJob"}}


@dataclass(frozen=True, slots=True)
class Imported:
    """The result: `manifests` in an order in which they can be applied; `read` counts objects by
    kind; `locations` has the nodes that the pods of a workload were on.
    """

    manifests: list[Manifest]
    notes: list[Note]
    read: dict[str, int]
    locations: Mapping[Ref, PodLocations]


@dataclass(slots=True)
class _Workload:
    """A manifest, and the claims (PersistentVolumeClaims) that may bind its pods to some nodes."""

    manifest: Manifest
    claims: list[str] = field(default_factory=list)
    claim_prefixes: list[str] = field(default_factory=list)


class Workloads:
    """Collects the objects of another cluster. An object that is added twice, with one uid, counts
    once.
    """

    def __init__(self, *, keep_images: bool = False, hpas: bool = False) -> None:
        self._keep_images = keep_images
        self._read = Counter[str]()
        self._seen = set[str]()
        self._owners: dict[str, Ref] = {}
        """The controllers by uid: the objects that they create need no manifests. A Deployment's
        ReplicaSet counts as the Deployment.
        """
        self._locations: defaultdict[Ref, PodLocations] = defaultdict(PodLocations)
        self._terminating = set[str]()
        self._controllers_read = set[str]()
        self._not_whole = set[str]()
        self._made: dict[Ref, _Workload] = {}
        self._plain: dict[Ref, Manifest] = {}
        self._priorities: dict[str, dict[str, Any]] = {}
        self._volumes = Volumes()
        self._gathered = Gathered()
        self._autoscalers = PodAutoscalers(kept=hpas)
        self._admitted = Admitted(keep_images=keep_images)
        self._notes: list[Note] = []
        self._pods: Counter[tuple[str, str, Reason]] = Counter()

    def add(self, kind: str, body: object) -> None:
        """Adds an object; `kind` is one of KINDS. Never raises."""
        uid = text_at(body, "metadata", "uid")
        if uid and uid in self._seen:
            return
        self._seen.add(uid)
        self._read[kind] += 1
        ref = identity(kind, body)
        if ref is None or not isinstance(body, Mapping):
            self._notes.append(Note(Ref(kind, "", ""), Reason.NO_OBJECT, dropped=True))
        elif ref in self._made or ref in self._plain:
            self._notes.append(Note(ref, Reason.NAME_TAKEN, dropped=True))
        elif ref.namespace in self._terminating:
            self._pods[ref.kind, ref.namespace, Reason.TERMINATING] += 1
        elif kind == "PersistentVolume":
            self._note_unfit(ref, self._volumes.add_volume(ref.name, body))
        elif kind == "PersistentVolumeClaim":
            self._note_unfit(ref, self._volumes.add_claim(ref.namespace, ref.name, body))
        elif kind == HPA:
            self._autoscalers.add(ref, body)
        elif kind == "Pod":
            self._add_pod(ref, body)
        elif kind in _CONTROLLERS:
            self._add_controller(ref, body, uid)
        else:
            manifest, notes = clean_object(kind, body)
            self._notes += notes
            if manifest is not None:
                self._plain[ref] = manifest
            elif kind == "Namespace" and any(n.reason is Reason.TERMINATING for n in notes):
                self._terminating.add(namespace_there(ref.name))

    def not_whole(self, kind: str) -> None:
        """Notes that not all objects of a kind could be read. Pods of an owner of this kind that
        wasn't read are then imported all the same, as the owner may exist.
        """
        self._not_whole.add(kind)
        self._controllers_read.discard(kind)

    def _note_unfit(self, ref: Ref, fields: list[str]) -> None:
        self._notes += [Note(ref, Reason.INVALID_FIELD, field=f"spec.{name}") for name in fields]

    def _priority(self, spec: object) -> None:
        """Notes name and value of the PriorityClass that a pod names, in case the class can't be
        read.
        """
        name, value = text_at(spec, "priorityClassName"), value_at(spec, "priority")
        if name and isinstance(value, int):
            policy = text_at(spec, "preemptionPolicy")
            self._priorities.setdefault(name, {"value": value, "preemptionPolicy": policy or None})

    def _missing_priorities(self) -> dict[Ref, Manifest]:
        """Returns manifests of PriorityClasses that could not be read, made from what pods show."""
        manifests: dict[Ref, Manifest] = {}
        for name, shown in self._priorities.items():
            ref = Ref("PriorityClass", "", name)
            if ref not in self._plain:
                manifest, _ = clean_object(ref.kind, {"metadata": {"name": name}, **shown})
                manifests |= {ref: manifest} if manifest is not None else {}
        return manifests

    def finish(self, *, places: Places) -> Imported:
        """Returns the result. `places` maps nodes to groups; pods that were bound to a node are
        bound to its group.
        """
        self._plain |= self._missing_priorities()
        workloads = dict(self._made)
        notes = list(self._notes)
        made, locations, of_made = self._gathered.finish(places, taken=frozenset(workloads))
        locations = {r: s for r, s in self._locations.items() if r in workloads} | locations
        workloads |= {ref: _Workload(manifest) for ref, manifest in made.items()}
        notes += of_made
        for ref, workload in workloads.items():
            notes += self._place(ref, workload, places)
        notes += [
            Note(Ref(kind, namespace, ""), reason, count=count, dropped=reason in _GONE)
            for (kind, namespace, reason), count in self._pods.items()
        ]
        missing = self._missing_namespaces(workloads)
        moved = {namespace_there(name): name for name in MOVED}
        notes += [
            Note(ref, Reason.NAMESPACE_MOVED, detail=moved[ref.name])
            for ref in missing
            if ref.name in moved
        ]
        autoscalers, of_autoscalers = self._autoscalers.finish(
            {ref: workload.manifest for ref, workload in workloads.items()}
        )
        notes += of_autoscalers
        plain = missing | self._plain | autoscalers
        rank = {kind: index for index, kind in enumerate(KINDS)}
        every = plain | {ref: workload.manifest for ref, workload in workloads.items()}
        order = sorted(every, key=lambda ref: (rank[ref.kind], ref))
        manifests = [every[ref] for ref in order]
        return Imported(manifests, sorted(notes, key=_order), dict(self._read), locations)

    def _add_controller(self, ref: Ref, body: Mapping[str, Any], uid: str) -> None:
        if ref.kind not in self._not_whole:
            self._controllers_read.add(ref.kind)
        owner = _owner(body)
        is_managed = owner is not None and self._makes(owner, ref.kind)
        workload = ref
        if owner is not None and is_managed and ref.kind == "ReplicaSet":
            workload = Ref("Deployment", ref.namespace, owner.name)
        if uid:
            self._owners[uid] = workload
        of_pods = value_at(body, "spec", "template", "spec")
        if uid and ref.kind in _MAKERS["Pod"] and (_replicas(body) or not is_managed):
            self._admitted.declared(uid, workload, of_pods)
        if owner is not None and ref.kind == "ReplicaSet" and (is_managed or not _replicas(body)):
            return  # without replicas it is one that a Deployment keeps for a rollback
        manifest, notes = clean_object(ref.kind, body, keep_images=self._keep_images)
        if manifest is not None and owner is not None and not is_managed:
            notes.append(Note(ref, Reason.OWNER_UNKNOWN, detail=owner.kind))
        self._notes += notes
        if manifest is not None:
            prefixes = [f"{name}-{ref.name}-" for name in templates_of_claims(body.get("spec"))]
            self._made[ref] = _Workload(manifest, claims_of(of_pods), prefixes)

    def _makes(self, owner: "_Owner", kind: str) -> bool:
        return owner.uid in self._owners and owner.kind in _MAKERS.get(kind, ())

    def _is_of_a_deployment(self, pod: Ref, owner: "_Owner", body: object) -> bool:
        """Whether a pod belongs to an imported Deployment although its ReplicaSet could not be
        read: the ReplicaSet's name shows that.
        """
        if not (owner.is_known and owner.kind == "ReplicaSet" and owner.kind in self._not_whole):
            return False
        name, _, drawn = owner.name.rpartition("-")
        is_its_hash = drawn == text_at(body, "metadata", "labels", "pod-template-hash")
        return is_its_hash and Ref("Deployment", pod.namespace, name) in self._made

    def _add_pod(self, ref: Ref, body: Mapping[str, Any]) -> None:
        phase, spec = text_at(body, "status", "phase"), body.get("spec")
        node = text_at(spec, "nodeName")
        if value_at(body, "metadata", "deletionTimestamp") is not None:
            self._pods[ref.kind, ref.namespace, Reason.TERMINATING] += 1
            return
        if phase in ("Succeeded", "Failed"):
            self._pods[ref.kind, ref.namespace, Reason.ENDED] += 1
            return
        self._priority(spec)
        owner = _owner(body)
        if owner is not None and self._makes(owner, ref.kind):
            self._admitted.seen(owner.uid, spec)
            workload = self._owners[owner.uid]
            of_set = workload.name if workload.kind == "StatefulSet" else ""
            self._locations[workload].add(body, of_set=of_set)
            return
        if owner is not None and self._is_of_a_deployment(ref, owner, body):
            name = owner.name.rpartition("-")[0]
            self._locations[Ref("Deployment", ref.namespace, name)].add(body)
            return
        if (
            owner is not None
            and owner.is_known
            and owner.kind in self._controllers_read & _MAKERS["Pod"]
        ):
            # The owner was created or deleted while the cluster was read; another import helps.
            self._pods[ref.kind, ref.namespace, Reason.OWNER_CAME_OR_WENT] += 1
            return
        manifest, notes = clean_object("Pod", body, keep_images=self._keep_images)
        if manifest is None:
            return
        if owner is None:
            self._notes += notes
            self._made[ref] = _Workload(manifest, claims=claims_of(spec))
            self._locations[ref].add(body)
            return
        of_set = owner.name if owner.is_known and owner.kind == "StatefulSet" else ""
        locations = PodLocations()
        locations.add(body, of_set=of_set)
        for name in claims_of(spec):
            notes += _bind(manifest["spec"], self._volumes.of_claim(ref.namespace, name), ref)
        pod = OwnedPod(ref, manifest, notes, locations)
        if owner.kind == "Node":
            self._gathered.add_static(pod, node=node or owner.name)
        elif owner.is_known and owner.kind == "DaemonSet":
            self._gathered.add_daemon(pod, of=owner.name, node=node or _node_wanted(spec))
        elif locations.ordinals:
            self._gathered.add_numbered(pod, of=of_set)
        else:
            self._gathered.add_owned(pod, owner=(owner.kind, owner.name))

    def add_expected(self, body: Mapping[str, Any], node: str) -> None:
        """Adds a DaemonSet's pod that cluster-autoscaler expects on each new node of a group,
        unless the DaemonSet was read. `node` is the name of the group's template.
        """
        ref, owner = identity("Pod", body), _owner(body)
        if ref is None or owner is None or owner.uid in self._owners:
            return
        # cluster-autoscaler leaves out the owner's apiVersion in pods that it makes itself.
        if owner.kind != "DaemonSet" or owner.api_version not in (
            "",
            KINDS[owner.kind].api_version,
        ):
            return
        manifest, notes = clean_object("Pod", body, keep_images=self._keep_images)
        if manifest is not None:
            pod = OwnedPod(ref, manifest, notes, PodLocations())
            self._gathered.add_daemon(pod, of=owner.name, node=node)

    def _place(self, ref: Ref, workload: _Workload, places: Places) -> list[Note]:
        """Gives a workload's pods the requests that they got on admission, and makes them require
        nodes that reach their volumes, and groups instead of nodes. Returns notes.
        """
        spec: dict[str, Any] = workload.manifest
        for step in _PATH_OF_A_POD[ref.kind]:
            spec = spec[step]
        notes = self._admitted.settle(ref, spec)
        for claim in workload.claims:
            notes += _bind(spec, self._volumes.of_claim(ref.namespace, claim), ref)
        for prefix in workload.claim_prefixes:
            claims = self._volumes.claims_like(ref.namespace, prefix)
            of_volumes = [self._volumes.of_claim(ref.namespace, claim) for claim in claims]
            if len({json.dumps(terms) for terms in of_volumes}) > 1:
                notes.append(Note(ref, Reason.VOLUMES_IN_SEVERAL_PLACES))
            notes += _bind(spec, any_of(of_volumes), ref)
        notes += bind_to_groups(spec, places=places, ref=ref)
        for name, kind, reason in (
            ("priorityClassName", "PriorityClass", Reason.NO_PRIORITY_CLASS),
            ("runtimeClassName", "RuntimeClass", Reason.NO_RUNTIME_CLASS),
        ):
            wanted = spec.get(name)
            if wanted is None or wanted in _SYSTEM_PRIORITIES:
                continue
            if Ref(kind, "", wanted) not in self._plain:
                del spec[name]
                notes.append(Note(ref, reason, field=name, detail=wanted))
                if kind == "PriorityClass":
                    spec.pop("preemptionPolicy", None)
        return notes

    def _missing_namespaces(self, workloads: Mapping[Ref, _Workload]) -> dict[Ref, Manifest]:
        """Returns manifests of the namespaces that imported objects will be in, if no Namespace of
        that name was read. These include the new names of namespaces that every cluster has.
        """
        needed = {ref.namespace for ref in (*workloads, *self._plain)} - {"", "default"}
        refs = [Ref("Namespace", "", name) for name in needed]
        return {ref: manifest_of(ref, {}) for ref in refs if ref not in self._plain}


def _bind(spec: dict[str, Any], places: list[Term], ref: Ref) -> list[Note]:
    """Makes a pod require one of `places`, the terms for nodes that reach the pod's volumes.
    Without terms, changes nothing. Returns notes.
    """
    if not places:
        return []
    fits = require(spec, places)
    return [Note(ref, Reason.BOUND_BY_VOLUME if fits else Reason.TOO_MANY_PLACES)]


@dataclass(frozen=True, slots=True)
class _Owner:
    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def is_known(self) -> bool:
        known = KINDS.get(self.kind)
        return known is not None and known.api_version == self.api_version


def _owner(body: Mapping[str, Any]) -> _Owner | None:
    """Returns the controller of an object; None if it has none."""
    references = as_list(value_at(body, "metadata", "ownerReferences"))
    schema = {"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool}
    for reference in references:
        fields = copy_allowed(reference, schema).fields
        if fields.get("controller") and len(fields) == len(schema):
            return _Owner(fields["apiVersion"], fields["kind"], fields["name"], fields["uid"])
    return None


def _node_wanted(spec: object) -> str:
    """Returns the node that a DaemonSet's controller has chosen for a pod that isn't bound yet."""
    affinity = value_at(spec, "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
    for term in as_list(affinity):
        for requirement in as_list(value_at(term, "matchFields")):
            if text_at(requirement, "key") == NAME_FIELD:
                return next(
                    (v for v in as_list(value_at(requirement, "values")) if isinstance(v, str)), ""
                )
    return ""


def _replicas(body: Mapping[str, Any]) -> int:
    replicas: int = copy_allowed(body.get("spec"), {"replicas": int}).fields.get("replicas", 1)
    return replicas


def _order(note: Note) -> tuple[str, ...]:
    return (str(note.ref), note.reason, note.field, note.detail)
